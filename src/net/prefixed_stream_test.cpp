#include "net/prefixed_stream.h"

#include <gtest/gtest.h>

#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "net/net_test_util.h"
#include "net/sockets.h"

namespace pocketfleet::net {
namespace {

// A stream with a prefix, and its other end; used on the loop's only thread.
class PrefixedStreamTest : public ::testing::Test {
 protected:
  ~PrefixedStreamTest() override {
    loop_.wait([this]() -> asio::awaitable<void> {
      stream_.reset();
      other_.reset();
      co_return;
    }());
  }
  void start(std::string prefix) {
    asio::local::stream_protocol::socket one(loop_.context()), other(loop_.context());
    asio::local::connect_pair(one, other);
    stream_ = make_prefixed_stream(make_socket_stream(std::move(one), "one"), std::move(prefix));
    other_ = make_socket_stream(std::move(other), "other");
  }
  Result<std::string> read(size_t size, int64_t timeout_ms = 1'000) {
    std::string buffer(size, '\0');
    const auto count = loop_.wait(stream_->read_some(buffer.data(), buffer.size(), timeout_ms));
    if (!count) return fail(count.error());
    buffer.resize(*count);
    return buffer;
  }
  bool send(std::string_view bytes) { return loop_.wait(other_->write(bytes, 1'000)).has_value(); }

  TestLoop loop_{1};
  std::unique_ptr<Stream> stream_, other_;
};

TEST_F(PrefixedStreamTest, GivesThePrefixInAnyPiecesAndThenWhatComes) {
  start("hello");
  ASSERT_TRUE(send(" world"));
  EXPECT_EQ(read(2).value(), "he");
  EXPECT_EQ(read(100).value(), "llo");
  EXPECT_EQ(read(100).value(), " world");
}

TEST_F(PrefixedStreamTest, GivesThePrefixBeforeAnythingHasCome) {
  start("hello");
  EXPECT_EQ(read(100, 0).value(), "hello");
  const auto nothing = read(100, 10);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(PrefixedStreamTest, GivesThePrefixOfAPeerThatHasEnded) {
  start("bye");
  loop_.wait(other_->shutdown(1'000));
  EXPECT_EQ(read(100).value(), "bye");
  EXPECT_EQ(read(100).value(), "");
}

TEST_F(PrefixedStreamTest, WithAnEmptyPrefixIsTheStreamItself) {
  start("");
  ASSERT_TRUE(send("x"));
  EXPECT_EQ(read(100).value(), "x");
  EXPECT_EQ(stream_->peer(), "one");
}

TEST_F(PrefixedStreamTest, PassesWritesOnWithoutThePrefix) {
  start("hello");
  ASSERT_TRUE(loop_.wait(stream_->write("answer", 1'000)));
  char buffer[16];
  const auto count = loop_.wait(other_->read_some(buffer, sizeof buffer, 1'000));
  ASSERT_TRUE(count);
  EXPECT_EQ(std::string_view(buffer, *count), "answer");
}

TEST_F(PrefixedStreamTest, GivesNothingOnceItIsClosed) {
  start("hello");
  loop_.wait([this]() -> asio::awaitable<void> {
    stream_->close();
    co_return;
  }());
  EXPECT_FALSE(read(100));
}

}  // namespace
}  // namespace pocketfleet::net
