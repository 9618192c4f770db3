#include "tunnel/h2_link.h"

#include <nghttp2/nghttp2.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <deque>

#include "base/clock.h"
#include "tunnel/identity.h"

namespace pocketfleet::tunnel {

namespace {

constexpr std::string_view kProofHeader = "pocketfleet-proof";  // "1": over the connection's binding

int64_t left_ms(int64_t until) {
  return std::max<int64_t>(until - now_ms(), 0);
}

Result<LinkFacts> facts_of(const net::TlsStream& transport) {
  LinkFacts facts;
  facts.carrier = "h2";
  facts.peer = transport.peer();
  facts.peer_certificate = transport.peer_certificate();
  PF_TRY(facts.binding, transport.exporter(kBindingLabel, kBindingBytes));
  return facts;
}

class H2RelayLink final : public RelayLink {
 public:
  H2RelayLink(LinkFacts facts, std::shared_ptr<H2Session> session) : facts_(std::move(facts)), session_(std::move(session)) {}
  ~H2RelayLink() override { close("the relay lets go of the link", false); }

  const LinkFacts& facts() const override { return facts_; }
  asio::any_io_executor executor() const override { return session_->transport().executor(); }

  asio::awaitable<Result<AgentHello>> receive_hello(int64_t timeout_ms) override {
    const int64_t until = now_ms() + timeout_ms;
    AgentHello hello;
    const H2Headers none;
    const H2Headers bound = {{std::string(kProofHeader), "1"}};
    PF_CO_TRY(const Item domain, co_await fetch("/_ctrl/domain", none, left_ms(until)));
    PF_CO_TRY(const Item proof, co_await fetch("/_ctrl/sig", bound, left_ms(until)));
    PF_CO_TRY(const Item key_auth, co_await fetch("/_ctrl/key_auth", none, left_ms(until)));
    hello.domain = domain.body;
    hello.proof = proof.body;
    hello.bound = proof.bound;
    hello.key_auth = key_auth.body;
    hears_more_ = hello.bound;
    co_return hello;
  }

  asio::awaitable<Result<void>> begin_challenge(int64_t) override {
    // A long poll: the agent answers once it has its certificate, and by its being asked it knows that streams may come.
    const H2Headers none;
    PF_CO_TRY(done_, session_->request("GET", "/_ctrl/done", none, true));
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> wait_challenge_done(int64_t timeout_ms) override {
    PF_CO_TRY(const std::string body, co_await session_->read_all(done_, kMostItemBytes, timeout_ms));
    done_.reset();
    co_return Result<void>();
  }

  asio::awaitable<Result<void>> confirm(int64_t timeout_ms) override {
    if (!hears_more_) co_return Result<void>();
    const H2Headers none;
    PF_CO_TRY(const Item item, co_await fetch("/_ctrl/ready", none, timeout_ms));
    co_return Result<void>();
  }

  asio::awaitable<Result<std::unique_ptr<net::Stream>>> open(StreamKind kind, int64_t) override {
    const H2Headers none;
    const bool challenge = kind == StreamKind::kChallenge;
    // Bytes may follow at once; an agent that refuses shows when the answer is read.
    PF_CO_TRY(auto channel, session_->request(challenge ? "POST" : "GET", challenge ? "/_ctrl/alpn" : "/", none, false));
    co_return Result<std::unique_ptr<net::Stream>>(std::make_unique<H2Stream>(session_, std::move(channel)));
  }

  size_t open_streams() const override { return session_->open_channels(); }

  asio::awaitable<bool> probe(int64_t timeout_ms) override { co_return co_await session_->probe(timeout_ms); }

  void retire() override {
    if (retired_ || session_->error()) return;
    retired_ = true;
    session_->go_away(NGHTTP2_NO_ERROR, "the relay goes away; dial again", false);
  }

  void close(const std::string& reason, bool refused) override {
    // Any code but 0, which only retires, so that the agent hears the reason.
    session_->go_away(refused ? kRefusedCode : static_cast<uint32_t>(NGHTTP2_CANCEL), reason, true);
  }

  asio::awaitable<Error> wait_closed() override { return session_->wait_closed(); }

 private:
  struct Item {
    Item() = default;
    std::string body;
    bool bound = false;
  };

  asio::awaitable<Result<Item>> fetch(std::string path, H2Headers headers, int64_t timeout_ms) {
    PF_CO_TRY(const auto channel, session_->request("GET", path, headers, true));
    Item item;
    PF_CO_TRY(item.body, co_await session_->read_all(channel, kMostItemBytes, timeout_ms));
    item.bound = channel->header(kProofHeader).value_or("") == "1";
    co_return item;
  }

  LinkFacts facts_;
  std::shared_ptr<H2Session> session_;
  std::shared_ptr<H2Channel> done_;  // the long poll of a challenge
  bool hears_more_ = false;          // the agent knows what we add to the protocol
  bool retired_ = false;
};

class H2AgentLink final : public AgentLink, public std::enable_shared_from_this<H2AgentLink> {
 public:
  H2AgentLink(LinkFacts facts, const asio::any_io_executor& executor)
      : facts_(std::move(facts)), progress_(executor), arrived_(executor) {}
  ~H2AgentLink() override { close(); }

  void start(std::unique_ptr<net::TlsStream> transport, H2Options options) {
    // The session may outlive the link by a moment.
    session_ = H2Session::start(std::move(transport), H2Session::Role::kServer, options,
                                [weak = weak_from_this()](std::shared_ptr<H2Channel> channel) {
                                  if (const auto self = weak.lock()) self->take(std::move(channel));
                                });
    asio::co_spawn(
        executor(),
        [session = session_, weak = weak_from_this()]() -> asio::awaitable<void> {
          co_await session->wait_closed();
          if (const auto self = weak.lock()) {
            self->progress_.raise();
            self->arrived_.raise();
          }
        },
        asio::detached);
  }

  const LinkFacts& facts() const override { return facts_; }
  asio::any_io_executor executor() const override { return session_->transport().executor(); }

  asio::awaitable<Result<void>> introduce(Introduction introduction, int64_t timeout_ms) override {
    introduction_ = std::make_unique<Introduction>(std::move(introduction));
    for (auto& channel : std::exchange(early_, {})) answer(channel);
    const bool challenge = !introduction_->key_auth.empty();
    const int64_t until = now_ms() + timeout_ms;
    for (;;) {
      if (failure_) co_return fail(*failure_);
      if (session_->error()) co_return fail(*session_->error());
      // A relay that knows what we add says when it is done; of others only the last question is known.
      if (challenge ? done_ != nullptr : (knows_more_ ? ready_ : asked_key_auth_)) co_return Result<void>();
      if (!co_await progress_.wait(left_ms(until))) break;
    }
    co_return fail(ErrorCode::kDeadlineExceeded, "the relay " + facts_.peer + " did not finish the introduction in time");
  }

  asio::awaitable<Result<void>> challenge_done(int64_t timeout_ms) override {
    if (!done_) co_return fail(ErrorCode::kInternal, "no challenge is going on");
    PF_CO_CHECK_OK(session_->respond(std::exchange(done_, nullptr), {}, std::string()));
    const int64_t until = now_ms() + timeout_ms;
    while (knows_more_ && !ready_) {
      if (session_->error()) co_return fail(*session_->error());
      if (!co_await progress_.wait(left_ms(until)))
        co_return fail(ErrorCode::kDeadlineExceeded, "the relay " + facts_.peer + " did not confirm in time");
    }
    co_return Result<void>();
  }

  asio::awaitable<Result<IncomingStream>> accept() override {
    while (incoming_.empty()) {
      if (failure_) co_return fail(*failure_);
      if (session_->error()) co_return fail(*session_->error());
      if (retiring() && session_->open_channels() == 0)
        co_return fail(ErrorCode::kConnectionClosed, "the relay " + facts_.peer + " went away");
      co_await arrived_.wait(1'000);
    }
    Result<IncomingStream> next(std::move(incoming_.front()));
    incoming_.pop_front();
    co_return next;
  }

  bool retiring() const override { return session_->peer_goes_away(); }
  size_t open_streams() const override { return session_->open_channels(); }
  void close() override {
    if (session_) session_->go_away(NGHTTP2_NO_ERROR, {}, true);
  }

 private:
  void take(std::shared_ptr<H2Channel> channel) {
    if (channel->path == "/" || channel->path == "/_ctrl/alpn") {
      const bool challenge = channel->path != "/";
      if (!session_->respond(channel, {}, std::nullopt)) return;
      IncomingStream stream;
      stream.kind = challenge ? StreamKind::kChallenge : StreamKind::kUser;
      stream.stream = std::make_unique<H2Stream>(session_, std::move(channel));
      incoming_.push_back(std::move(stream));
      arrived_.raise();
      return;
    }
    if (introduction_) {
      answer(channel);
    } else if (early_.size() < kMostEarly) {
      early_.push_back(std::move(channel));
    } else {
      session_->reset(*channel);
    }
  }

  void answer(const std::shared_ptr<H2Channel>& channel) {
    const std::string& path = channel->path;
    if (path == "/_ctrl/domain") {
      say(channel, {}, introduction_->domain);
    } else if (path == "/_ctrl/sig") {
      knows_more_ = channel->header(kProofHeader).value_or("") == "1";
      auto proof = introduction_->prove(knows_more_);
      if (!proof) {
        failure_ = proof.error();
        session_->end(proof.error());
      } else {
        say(channel, knows_more_ ? H2Headers{{std::string(kProofHeader), "1"}} : H2Headers{}, std::move(*proof));
      }
    } else if (path == "/_ctrl/key_auth") {
      say(channel, {}, introduction_->key_auth);
      asked_key_auth_ = true;
    } else if (path == "/_ctrl/done" && !introduction_->key_auth.empty()) {
      done_ = channel;
    } else if (path == "/_ctrl/ready") {
      say(channel, {}, "");
      ready_ = true;
    } else {
      session_->reset(*channel);
    }
    progress_.raise();
  }

  void say(const std::shared_ptr<H2Channel>& channel, const H2Headers& headers, std::string body) {
    if (auto sent = session_->respond(channel, headers, std::move(body)); !sent) failure_ = sent.error();
  }

  static constexpr size_t kMostEarly = 8;

  LinkFacts facts_;
  std::shared_ptr<H2Session> session_;
  std::unique_ptr<Introduction> introduction_;
  std::vector<std::shared_ptr<H2Channel>> early_;  // asked before we knew what to say
  std::shared_ptr<H2Channel> done_;
  std::deque<IncomingStream> incoming_;
  std::optional<Error> failure_;
  bool knows_more_ = false;  // the relay knows what we add to the protocol
  bool asked_key_auth_ = false;
  bool ready_ = false;
  Signal progress_;
  Signal arrived_;
};

}  // namespace

Result<std::shared_ptr<RelayLink>> make_h2_relay_link(std::unique_ptr<net::TlsStream> transport, H2Options options) {
  PF_TRY(LinkFacts facts, facts_of(*transport));
  auto session = H2Session::start(std::move(transport), H2Session::Role::kClient, options, nullptr);
  return std::make_shared<H2RelayLink>(std::move(facts), std::move(session));
}

Result<std::shared_ptr<AgentLink>> make_h2_agent_link(std::unique_ptr<net::TlsStream> transport, H2Options options) {
  PF_TRY(LinkFacts facts, facts_of(*transport));
  const auto executor = transport->executor();
  auto link = std::make_shared<H2AgentLink>(std::move(facts), executor);
  link->start(std::move(transport), options);
  return link;
}

}  // namespace pocketfleet::tunnel
