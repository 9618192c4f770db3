// A link without a network, for tests: remembers what was done to it. Its streams are none.
#pragma once

#include <boost/asio/io_context.hpp>
#include <string>

#include "tunnel/link.h"

namespace pocketfleet::tunnel {

class FakeRelayLink final : public RelayLink {
 public:
  explicit FakeRelayLink(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  const LinkFacts& facts() const override { return facts_; }
  asio::any_io_executor executor() const override { return executor_; }
  asio::awaitable<Result<AgentHello>> receive_hello(int64_t) override { co_return hello; }
  asio::awaitable<Result<void>> begin_challenge(int64_t) override { co_return Result<void>(); }
  asio::awaitable<Result<void>> wait_challenge_done(int64_t) override { co_return Result<void>(); }
  asio::awaitable<Result<void>> confirm(int64_t) override { co_return Result<void>(); }
  asio::awaitable<Result<std::unique_ptr<net::Stream>>> open(StreamKind, int64_t) override {
    co_return fail(ErrorCode::kUnavailable, "a fake opens nothing");
  }
  size_t open_streams() const override { return 0; }
  void retire() override { retired = true; }
  void close(const std::string& reason, bool refused) override { closed = (refused ? "refused: " : "") + reason; }
  asio::awaitable<Error> wait_closed() override { co_return Error(); }

  AgentHello hello;
  bool retired = false;
  std::string closed;

 private:
  asio::any_io_executor executor_;
  LinkFacts facts_;
};

}  // namespace pocketfleet::tunnel
