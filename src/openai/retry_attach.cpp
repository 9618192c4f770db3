#include "openai/retry_attach.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <utility>
#include <vector>

#include "crypto/digest.h"
#include "net/mailbox.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

constexpr std::string_view kRetryCount = "x-stainless-retry-count";
// How often a waiting caller is looked at.
constexpr int64_t kLook_ms = 50;
// A caller's time and ours differ by what the request was on its way.
constexpr int64_t kEarly_ms = 1'500;
constexpr int64_t kBeforeSecond_ms = 60;
constexpr int64_t kBehindSecond_ms = 250;  // on a busy machine both sides are late
// Answers that nobody has come for; more are thrown away.
constexpr size_t kMostKept = 256;

int retry_count(const net::HttpRequest& request) {
  const auto header = request.headers.get(kRetryCount);
  int count = -1;
  if (header) std::from_chars(header->data(), header->data() + header->size(), count);
  return count;
}

}  // namespace

bool RunningAnswers::time_was_up(int64_t waited_ms, int64_t patience_ms) {
  if (patience_ms > 0) return waited_ms + kEarly_ms >= patience_ms;
  // The client for JavaScript does not say the time that was set for all requests. People set whole seconds.
  const int64_t second_ms = (waited_ms + kBeforeSecond_ms) / 1000 * 1000;
  return second_ms >= 1000 && waited_ms <= second_ms + kBehindSecond_ms;
}

struct RunningAnswers::Running {
  using Waiting = net::Mailbox<Answer>;
  std::string id;
  net::HttpRequest request;
  Work work;
  // Under the mutex.
  std::vector<std::shared_ptr<Waiting>> waiting;
  uint64_t leaves = 0;
  std::optional<Answer> finished;  // while nobody has come for it
};

RunningAnswers::RunningAnswers(const Clock& clock, int64_t linger_ms) : clock_(clock), linger_ms_(linger_ms) {}
RunningAnswers::~RunningAnswers() = default;

bool RunningAnswers::concerns(const net::HttpRequest& request) {
  if (request.method != "POST" || retry_count(request) < 0) return false;
  // Looked for in the text, as the body is parsed later: whoever writes the word elsewhere is only read twice.
  return request.body.find("\"stream\"") == std::string::npos;
}

size_t RunningAnswers::running() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

asio::awaitable<void> RunningAnswers::run(std::shared_ptr<Running> running) {
  Answer answer = co_await running->work(running->request);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& waiting : running->waiting) waiting->push(answer);
    if (!running->waiting.empty() || running->request.gone.cancelled() || kept_ >= kMostKept) {
      forget(running);
      co_return;
    }
    // Between two tries a client pauses; the answer waits for the next one.
    running->finished = std::move(answer);
    ++kept_;
  }
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(linger_ms_));
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  const std::lock_guard lock(mutex_);
  forget(running);
}

// The mutex is held. Another one of the same id may have taken its place.
void RunningAnswers::forget(const std::shared_ptr<Running>& running) {
  if (std::exchange(running->finished, std::nullopt)) --kept_;
  const auto known = running_.find(running->id);
  if (known != running_.end() && known->second == running) running_.erase(known);
}

// Somebody may come back within a short time.
asio::awaitable<void> RunningAnswers::linger(std::shared_ptr<Running> running, uint64_t leaves) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(linger_ms_));
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  const std::lock_guard lock(mutex_);
  if (running->waiting.empty() && running->leaves == leaves) running->request.gone.cancel();
}

asio::awaitable<std::optional<RunningAnswers::Given>> RunningAnswers::answer(net::HttpRequest& request, const std::string& caller,
                                                                             int64_t patience_ms, Work work) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const int64_t came_ms = clock_.now_ms();
  const std::string id = caller + '\n' + request.path + '\n' + to_hex(sha256(request.body));
  const auto mailbox = std::make_shared<Running::Waiting>();
  std::shared_ptr<Running> running;
  bool attached = false;
  {
    const std::lock_guard lock(mutex_);
    const auto known = running_.find(id);
    attached = known != running_.end() && retry_count(request) > 0;
    if (attached) {
      running = known->second;
      if (running->finished) {
        Given given;
        given.answer = *running->finished;
        given.attached = true;
        forget(running);
        co_return given;
      }
    } else {
      running = std::make_shared<Running>();
      running->id = id;
      // The caller's own is still asked for its headers.
      std::string body = std::move(request.body);
      running->request = request;
      running->request.body = std::move(body);
      // Whether anybody waits is told here, not by this caller's connection.
      running->request.gone = CancelToken();
      running->work = std::move(work);
      // The same request twice at the same time is meant so; the tries of the later one meet it.
      running_[id] = running;
    }
    running->waiting.push_back(mailbox);
  }
  if (!attached) asio::co_spawn(executor, run(running), [](std::exception_ptr) {});
  for (;;) {
    auto answer = co_await mailbox->pop(kLook_ms);
    if (answer) {
      Given given;
      given.answer = *std::move(answer);
      given.attached = attached;
      co_return given;
    }
    if (!request.gone.cancelled()) continue;
    const bool may_come_again = time_was_up(clock_.now_ms() - came_ms, patience_ms);
    const std::lock_guard lock(mutex_);
    std::erase(running->waiting, mailbox);
    ++running->leaves;
    if (running->waiting.empty()) {
      if (may_come_again) {
        asio::co_spawn(executor, linger(running, running->leaves), [](std::exception_ptr) {});
      } else {
        running->request.gone.cancel();
      }
    }
    co_return std::nullopt;
  }
}

}  // namespace pocketfleet
