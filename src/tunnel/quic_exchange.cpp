#include "tunnel/quic_exchange.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "tunnel/quic_link.h"
#include "tunnel/quic_streams.h"

namespace pocketfleet::tunnel {

namespace {

constexpr std::string_view kAck = "ack";
constexpr std::string_view kDone = "done";
constexpr std::string_view kReady = "ready";
constexpr std::string_view kRetire = "retire";
constexpr size_t kProofBytes = 65;
constexpr int64_t kRetireStallMs = 10'000;

// A stream only says that it is closed; the connection knows why.
Error explain(const QuicCarrier& carrier, Error error) {
  return carrier.error() ? *carrier.error() : std::move(error);
}

// The control stream, and what both ends do with it.
class Exchange {
 public:
  explicit Exchange(std::shared_ptr<QuicCarrier> carrier) : carrier_(std::move(carrier)) {}

  QuicCarrier& carrier() const { return *carrier_; }
  const std::shared_ptr<QuicCarrier>& shared_carrier() const { return carrier_; }
  bool started() const { return control_ != nullptr; }
  void start(std::unique_ptr<net::Stream> control) { control_ = std::move(control); }

  asio::awaitable<Result<std::string>> read(int64_t deadline) {
    if (!control_) co_return fail(ErrorCode::kInternal, "the control exchange has not begun, or is over");
    auto item = co_await read_item(*control_, deadline);
    if (!item) co_return fail(explain(*carrier_, std::move(item).error()));
    co_return item;
  }

  asio::awaitable<Result<void>> expect(std::string_view wanted, int64_t deadline) {
    PF_CO_TRY(const std::string item, co_await read(deadline));
    if (item == wanted) co_return Result<void>();
    co_return fail(ErrorCode::kProtocol,
                   carrier_->facts().peer + " did not say \"" + std::string(wanted) + "\" in the control exchange");
  }

  asio::awaitable<Result<void>> write(std::string bytes, int64_t deadline) {
    if (!control_) co_return fail(ErrorCode::kInternal, "the control exchange has not begun, or is over");
    auto sent = co_await control_->write(bytes, time_left(deadline));
    if (!sent) co_return fail(explain(*carrier_, std::move(sent).error()));
    co_return Result<void>();
  }

  // What was written still arrives.
  asio::awaitable<void> finish() {
    if (!control_) co_return;
    co_await control_->shutdown(0);
    control_.reset();
  }

 private:
  std::shared_ptr<QuicCarrier> carrier_;
  std::unique_ptr<net::Stream> control_;
};

class QuicRelayLink final : public RelayLink {
 public:
  explicit QuicRelayLink(std::shared_ptr<QuicCarrier> carrier) : exchange_(std::make_shared<Exchange>(std::move(carrier))) {}
  ~QuicRelayLink() override { exchange_->carrier().close("the relay lets go of the link", false); }

  const LinkFacts& facts() const override { return exchange_->carrier().facts(); }
  asio::any_io_executor executor() const override { return exchange_->carrier().executor(); }

  asio::awaitable<Result<AgentHello>> receive_hello(int64_t timeout_ms) override {
    const int64_t deadline = deadline_after(timeout_ms);
    QuicCarrier& carrier = exchange_->carrier();
    auto control = co_await carrier.next_stream(time_left(deadline));
    if (!control) co_return fail(std::move(control).error());
    exchange_->start(std::move(control->stream));
    AgentHello hello;
    PF_CO_TRY(hello.domain, co_await exchange_->read(deadline));
    PF_CO_TRY(hello.proof, co_await exchange_->read(deadline));
    if (hello.proof.size() != kProofBytes) {
      co_return fail(ErrorCode::kProtocol, facts().peer + " sent a proof of " + std::to_string(hello.proof.size()) + " bytes");
    }
    PF_CO_TRY(hello.key_auth, co_await exchange_->read(deadline));
    hello.bound = carrier.extended();
    co_return hello;
  }

  asio::awaitable<Result<void>> begin_challenge(int64_t timeout_ms) override {
    co_return co_await exchange_->write(frame_item(kAck), deadline_after(timeout_ms));
  }

  asio::awaitable<Result<void>> wait_challenge_done(int64_t timeout_ms) override {
    co_return co_await exchange_->expect(kDone, deadline_after(timeout_ms));
  }

  asio::awaitable<Result<void>> confirm(int64_t timeout_ms) override {
    if (!exchange_->carrier().extended()) {
      co_await exchange_->finish();
      co_return Result<void>();
    }
    PF_CO_CHECK_OK(co_await exchange_->write(frame_item(kReady), deadline_after(timeout_ms)));
    confirmed_ = true;
    co_return Result<void>();
  }

  asio::awaitable<Result<std::unique_ptr<net::Stream>>> open(StreamKind, int64_t timeout_ms) override {
    if (retired_) co_return fail(ErrorCode::kConnectionClosed, "the link to " + facts().peer + " is on its way out");
    co_return co_await exchange_->carrier().open_stream(timeout_ms);
  }

  size_t open_streams() const override { return exchange_->carrier().open_streams(); }
  asio::awaitable<bool> probe(int64_t timeout_ms) override { co_return co_await exchange_->carrier().probe(timeout_ms); }

  void retire() override {
    QuicCarrier& carrier = exchange_->carrier();
    if (retired_ || carrier.error()) return;
    retired_ = true;
    if (!carrier.extended()) return carrier.end_with_last_stream();
    if (!confirmed_) return carrier.close("the relay goes away; dial again", false);
    asio::co_spawn(
        executor(),
        [exchange = exchange_]() -> asio::awaitable<void> {
          // Should it not arrive, the end of the link says as much.
          (void)co_await exchange->write(frame_item(kRetire), deadline_after(kRetireStallMs));
          exchange->carrier().end_with_last_stream();
        },
        asio::detached);
  }

  void close(const std::string& reason, bool refused) override { exchange_->carrier().close(reason, refused); }
  asio::awaitable<Error> wait_closed() override { return exchange_->carrier().wait_ended(); }

 private:
  std::shared_ptr<Exchange> exchange_;
  bool confirmed_ = false;
  bool retired_ = false;
};

class QuicAgentLink final : public AgentLink {
 public:
  explicit QuicAgentLink(std::shared_ptr<QuicCarrier> carrier) : shared_(std::make_shared<Shared>(std::move(carrier))) {}
  ~QuicAgentLink() override { close(); }

  QuicCarrier& carrier() const { return shared_->exchange.carrier(); }
  const LinkFacts& facts() const override { return carrier().facts(); }
  asio::any_io_executor executor() const override { return carrier().executor(); }

  asio::awaitable<Result<void>> introduce(Introduction introduction, int64_t timeout_ms) override {
    const int64_t deadline = deadline_after(timeout_ms);
    Exchange& exchange = shared_->exchange;
    if (exchange.started()) co_return fail(ErrorCode::kInternal, "an agent introduces itself once on each link");
    const bool challenge = !introduction.key_auth.empty();
    PF_CO_TRY(const std::string proof, introduction.prove(carrier().extended()));
    auto control = co_await carrier().open_stream(time_left(deadline));
    if (!control) co_return fail(std::move(control).error());
    exchange.start(std::move(*control));
    // A stream may overtake the relay's answer.
    if (challenge) carrier().mark_arrivals(StreamKind::kChallenge);
    std::string items = frame_item(introduction.domain) + frame_item(proof) + frame_item(introduction.key_auth);
    PF_CO_CHECK_OK(co_await exchange.write(std::move(items), deadline));
    if (challenge) co_return co_await exchange.expect(kAck, deadline);
    co_return co_await settle(deadline);
  }

  asio::awaitable<Result<void>> challenge_done(int64_t timeout_ms) override {
    const int64_t deadline = deadline_after(timeout_ms);
    carrier().mark_arrivals(StreamKind::kUser);
    PF_CO_CHECK_OK(co_await shared_->exchange.write(frame_item(kDone), deadline));
    co_return co_await settle(deadline);
  }

  asio::awaitable<Result<IncomingStream>> accept() override { return carrier().next_stream(net::kNoDeadline); }
  bool retiring() const override { return shared_->retiring; }
  size_t open_streams() const override { return carrier().open_streams(); }
  void close() override { carrier().close("the agent goes away", false); }

 private:
  struct Shared {
    explicit Shared(std::shared_ptr<QuicCarrier> carrier) : exchange(std::move(carrier)) {}
    Exchange exchange;
    bool retiring = false;
  };

  asio::awaitable<Result<void>> settle(int64_t deadline) {
    Exchange& exchange = shared_->exchange;
    if (!carrier().extended()) {
      co_await exchange.finish();
      co_return Result<void>();
    }
    PF_CO_CHECK_OK(co_await exchange.expect(kReady, deadline));
    asio::co_spawn(executor(), listen(shared_), asio::detached);
    co_return Result<void>();
  }

  // Items that are not known may come from relays of later days.
  static asio::awaitable<void> listen(std::shared_ptr<Shared> shared) {
    for (;;) {
      const auto item = co_await shared->exchange.read(deadline_after(net::kNoDeadline));
      if (!item) co_return;
      if (*item == kRetire) shared->retiring = true;
    }
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::shared_ptr<RelayLink> make_quic_relay_link(std::shared_ptr<QuicCarrier> carrier) {
  return std::make_shared<QuicRelayLink>(std::move(carrier));
}

std::shared_ptr<AgentLink> make_quic_agent_link(std::shared_ptr<QuicCarrier> carrier) {
  return std::make_shared<QuicAgentLink>(std::move(carrier));
}

void migrate_quic(AgentLink& link) {
  if (auto* quic = dynamic_cast<QuicAgentLink*>(&link)) quic->carrier().migrate();
}

}  // namespace pocketfleet::tunnel
