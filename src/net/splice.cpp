#include "net/splice.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/this_coro.hpp>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "net/signal.h"

namespace pocketfleet::net {

namespace {

// A direction that has nothing to carry holds the small buffer only: most connections wait most of the time.
constexpr size_t kSmallBytes = 1u << 10;
constexpr size_t kLargeBytes = 32u << 10;
constexpr int64_t kShutdownMs = 1'000;

struct Shared {
  explicit Shared(const asio::any_io_executor& executor) : ended(executor) {}
  Signal ended;
  int running = 2;
  int64_t moved_ms = now_ms();  // when a byte last went either way
  std::optional<Error> error;
};

asio::awaitable<Result<void>> carry(Stream& from, Stream& to, const SpliceOptions& options, uint64_t& count, Shared& shared) {
  char small[kSmallBytes];
  std::unique_ptr<char[]> large;
  for (;;) {
    char* buffer = large ? large.get() : small;
    const int64_t most_idle = shared.running == 2 ? options.idle_ms : options.half_closed_idle_ms;
    const int64_t left = shared.moved_ms + most_idle - now_ms();
    const auto got = co_await from.read_some(buffer, large ? kLargeBytes : kSmallBytes, left > 0 ? left : 0);
    if (!got) {
      // The other direction may have moved meanwhile, or have ended and so made this one's time shorter.
      const int64_t limit = shared.running == 2 ? options.idle_ms : options.half_closed_idle_ms;
      const bool retry = got.error().code == ErrorCode::kCancelled ||
                         (got.error().code == ErrorCode::kDeadlineExceeded && now_ms() - shared.moved_ms < limit);
      if (retry && !shared.error) continue;
      co_return fail(got.error());
    }
    if (*got == 0) {
      co_await to.shutdown(kShutdownMs);
      co_return Result<void>();
    }
    shared.moved_ms = now_ms();
    PF_CO_CHECK_OK(co_await to.write(std::string_view(buffer, *got), options.stall_ms));
    count += *got;
    if (*got == kSmallBytes && !large) {
      large = std::make_unique<char[]>(kLargeBytes);
    } else if (*got < kSmallBytes) {
      large.reset();
    }
  }
}

}  // namespace

asio::awaitable<Result<void>> splice(Stream& a, Stream& b, SpliceOptions options, SpliceCount& count) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Shared shared(executor);
  const auto run = [&](Stream& from, Stream& to, uint64_t& counted) -> asio::awaitable<void> {
    const auto result = co_await carry(from, to, options, counted, shared);
    --shared.running;
    if (!result) {
      if (!shared.error) shared.error = result.error();
      // Wakes the other direction, whatever it waits for; its own error then no longer counts.
      a.close();
      b.close();
    } else {
      // What the other direction waits for now counts as half-closed.
      to.cancel_read();
    }
    shared.ended.raise();
  };
  // Both lambdas' frames end before this one: it waits for them.
  asio::co_spawn(executor, run(b, a, count.back_bytes), asio::detached);
  co_await run(a, b, count.forth_bytes);
  while (shared.running > 0) co_await shared.ended.wait(-1);
  if (shared.error) co_return fail(*shared.error);
  co_return Result<void>();
}

}  // namespace pocketfleet::net
