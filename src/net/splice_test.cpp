#include "net/splice.h"

#include <gtest/gtest.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "net/net_test_util.h"
#include "net/signal.h"
#include "net/sockets.h"

namespace pocketfleet::net {
namespace {

using Pair = std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>>;

// client - a == splice == b - server, all in one thread.
class SpliceTest : public ::testing::Test {
 protected:
  SpliceTest() {
    std::tie(client_, a_) = pair();
    std::tie(b_, server_) = pair();
  }
  Pair pair() {
    asio::local::stream_protocol::socket one(context_), other(context_);
    asio::local::connect_pair(one, other);
    return {make_socket_stream(std::move(one), "one"), make_socket_stream(std::move(other), "other")};
  }
  void start(SpliceOptions options = {}) {
    done_ = asio::co_spawn(context_, splice(*a_, *b_, options, count_), asio::use_future);
  }
  Result<void> end() { return finish(done_); }
  template <typename T>
  T run(asio::awaitable<T> work) {
    auto done = asio::co_spawn(context_, std::move(work), asio::use_future);
    return finish(done);
  }
  // Not until the context has nothing to do: the deadlines of streams that live count as something.
  template <typename T>
  T finish(std::future<T>& done) {
    context_.restart();
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) context_.run_one();
    return done.get();
  }
  static asio::awaitable<std::string> read(Stream& stream, size_t size) {
    std::string text;
    char buffer[4'096];
    while (text.size() < size) {
      const auto count = co_await stream.read_some(buffer, sizeof buffer, 5'000);
      if (!count || *count == 0) break;
      text.append(buffer, *count);
    }
    co_return text;
  }

  asio::io_context context_;
  std::unique_ptr<Stream> client_, a_, b_, server_;
  std::future<Result<void>> done_;
  SpliceCount count_;
};

TEST_F(SpliceTest, AnEndOfOneDirectionLetsTheOtherGoOn) {
  start();
  run([this]() -> asio::awaitable<void> {
    EXPECT_TRUE(co_await client_->write("question", 1'000));
    co_await client_->shutdown(1'000);
    EXPECT_EQ(co_await read(*server_, 100), "question");
    EXPECT_TRUE(co_await server_->write("answer", 1'000));
    co_await server_->shutdown(1'000);
    EXPECT_EQ(co_await read(*client_, 100), "answer");
  }());
  EXPECT_TRUE(end());
  EXPECT_EQ(count_.forth_bytes, 8u);
  EXPECT_EQ(count_.back_bytes, 6u);
}

TEST_F(SpliceTest, ManyBytesArriveUnchanged) {
  start();
  std::string much(3u << 20, '\0');
  for (size_t i = 0; i < much.size(); ++i) much[i] = static_cast<char>(i * 31 % 251);
  run([&]() -> asio::awaitable<void> {
    asio::co_spawn(
        context_,
        [&]() -> asio::awaitable<void> {
          EXPECT_TRUE(co_await client_->write(much, 5'000));
          co_await client_->shutdown(1'000);
        },
        asio::detached);
    EXPECT_TRUE(co_await read(*server_, much.size() + 1) == much);
    co_await server_->shutdown(1'000);
  }());
  EXPECT_TRUE(end());
}

TEST_F(SpliceTest, SilenceBothWaysEndsIt) {
  SpliceOptions options;
  options.idle_ms = 50;
  start(options);
  const auto result = end();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(SpliceTest, AByteInOneDirectionKeepsTheOtherAlive) {
  SpliceOptions options;
  options.idle_ms = 200;
  start(options);
  run([this]() -> asio::awaitable<void> {
    Signal never(context_.get_executor());
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(co_await server_->write("x", 1'000));
      EXPECT_EQ(co_await read(*client_, 1), "x");
      co_await never.wait(100);
    }
  }());
  const auto result = end();
  ASSERT_FALSE(result);
  EXPECT_EQ(count_.back_bytes, 5u);
}

TEST_F(SpliceTest, AfterOneDirectionHasEndedSilenceCountsSooner) {
  SpliceOptions options;
  options.half_closed_idle_ms = 50;
  start(options);
  run([this]() -> asio::awaitable<void> { co_await client_->shutdown(1'000); }());
  const auto result = end();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(SpliceTest, AConnectionThatIsResetEndsBoth) {
  start();
  run([this]() -> asio::awaitable<void> {
    EXPECT_TRUE(co_await server_->write("x", 1'000));
    client_->close();
    co_return;
  }());
  client_.reset();
  server_->close();
  const auto result = end();
  EXPECT_EQ(run(read(*b_, 1)), "");
}

TEST(Signal, RaisedBeforeAnybodyWaitsItLetsTheNextOneThrough) {
  TestLoop loop(1);
  Signal signal(loop.context().get_executor());
  EXPECT_TRUE(loop.wait([&]() -> asio::awaitable<bool> {
    signal.raise();
    co_return co_await signal.wait(1'000);
  }()));
  EXPECT_FALSE(loop.wait(signal.wait(10)));
}

}  // namespace
}  // namespace pocketfleet::net
