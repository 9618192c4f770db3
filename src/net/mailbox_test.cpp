#include "net/mailbox.h"

#include <boost/asio/detached.hpp>
#include <boost/asio/strand.hpp>
#include <string>
#include <thread>
#include <vector>

#include "net/net_test_util.h"

namespace pocketfleet::net {
namespace {

// One reader on a strand of a context with several threads, as a connection is.
template <typename T>
T read_with(const asio::strand<asio::io_context::executor_type>& strand, asio::awaitable<T> work) {
  return asio::co_spawn(strand, std::move(work), asio::use_future).get();
}

struct Fixture {
  TestLoop loop{3};
  asio::strand<asio::io_context::executor_type> strand{asio::make_strand(loop.context())};
};

TEST(Mailbox, ValuesOfOneWriterKeepTheirOrderAndNoneOfSeveralIsLost) {
  Fixture f;
  constexpr int kWriters = 4;
  constexpr int kEach = 20'000;
  auto mailbox = std::make_shared<Mailbox<std::pair<int, int>>>();
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([mailbox, w] {
      for (int i = 0; i < kEach; ++i) mailbox->push({w, i});
    });
  }
  const auto read = [](std::shared_ptr<Mailbox<std::pair<int, int>>> from) -> asio::awaitable<int> {
    std::vector<int> next(kWriters, 0);
    int in_order = 0;
    while (in_order < kWriters * kEach) {
      const auto value = co_await from->pop(10'000);
      if (!value || value->second != next[static_cast<size_t>(value->first)]++) break;
      ++in_order;
    }
    co_return in_order;
  };
  EXPECT_EQ(read_with(f.strand, read(mailbox)), kWriters * kEach);
  for (auto& writer : writers) writer.join();
}

TEST(Mailbox, AReaderThatWaitsIsWokenByEachSingleValue) {
  Fixture f;
  auto there = std::make_shared<Mailbox<int>>();
  const auto other_strand = asio::make_strand(f.loop.context());
  auto back = std::make_shared<Mailbox<int>>();
  // Ping-pong: each push meets a reader that sleeps or is about to.
  const auto bounce = [](std::shared_ptr<Mailbox<int>> in, std::shared_ptr<Mailbox<int>> out) -> asio::awaitable<int> {
    int last = -1;
    while (auto value = co_await in->pop(10'000)) {
      last = *value;
      out->push(last + 1);
      if (last >= 10'000) break;
    }
    co_return last;
  };
  auto other = asio::co_spawn(other_strand, bounce(back, there), asio::use_future);
  there->push(0);
  EXPECT_GE(read_with(f.strand, bounce(there, back)), 10'000);
  EXPECT_GE(other.get(), 10'000);
}

TEST(Mailbox, ATimeoutGivesNothingAndTheMailboxStaysOpen) {
  Fixture f;
  auto mailbox = std::make_shared<Mailbox<int>>();
  EXPECT_EQ(read_with(f.strand, mailbox->pop(0)), std::nullopt);
  EXPECT_EQ(read_with(f.strand, mailbox->pop(10)), std::nullopt);
  EXPECT_FALSE(mailbox->closed());
  mailbox->push(5);
  EXPECT_EQ(read_with(f.strand, mailbox->pop(INT64_MAX)), 5);
}

TEST(Mailbox, ClosingWakesTheReaderAfterTheValuesThatAreLeft) {
  Fixture f;
  auto mailbox = std::make_shared<Mailbox<std::string>>();
  mailbox->push("left");
  mailbox->close();
  mailbox->push("too late");
  EXPECT_FALSE(mailbox->closed());
  EXPECT_EQ(read_with(f.strand, mailbox->pop(-1)), "left");
  EXPECT_EQ(read_with(f.strand, mailbox->pop(-1)), std::nullopt);
  EXPECT_TRUE(mailbox->closed());
  auto waiting = std::make_shared<Mailbox<int>>();
  auto popped = asio::co_spawn(f.strand, waiting->pop(-1), asio::use_future);
  waiting->close();
  EXPECT_EQ(popped.get(), std::nullopt);
}

TEST(Mailbox, AWriterMayOutliveTheReader) {
  Fixture f;
  auto mailbox = std::make_shared<Mailbox<int>>();
  EXPECT_EQ(read_with(f.strand, mailbox->pop(1)), std::nullopt);
  std::thread writer([mailbox = std::move(mailbox)] {
    for (int i = 0; i < 1'000; ++i) mailbox->push(i);
  });
  writer.join();
}

TEST(Mailbox, AWriterMayOutliveTheReadersContext) {
  auto mailbox = std::make_shared<Mailbox<int>>();
  {
    asio::io_context context;
    asio::co_spawn(
        context, [](std::shared_ptr<Mailbox<int>> from) -> asio::awaitable<void> { co_await from->pop(-1); }(mailbox),
        asio::detached);
    context.poll();
  }
  // The reader went while it slept; nobody is there to be woken.
  mailbox->push(1);
  mailbox->close();
  mailbox.reset();
}

TEST(Mailbox, AWriterMayPushWhileTheReadersContextGoes) {
  for (int round = 0; round < 200; ++round) {
    auto mailbox = std::make_shared<Mailbox<int>>();
    auto context = std::make_unique<asio::io_context>();
    asio::co_spawn(
        *context, [](std::shared_ptr<Mailbox<int>> from) -> asio::awaitable<void> { co_await from->pop(-1); }(mailbox),
        asio::detached);
    context->poll();
    std::thread writer([mailbox]() mutable {
      mailbox->push(1);
      mailbox.reset();
    });
    context.reset();
    writer.join();
    EXPECT_EQ(mailbox.use_count(), 1);
  }
}

}  // namespace
}  // namespace pocketfleet::net
