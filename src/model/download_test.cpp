// A download against a server whose faults are played: the file is right or absent, and little is fetched twice.
#include "model/download.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "base/files.h"
#include "base/ids.h"

namespace pocketfleet {
namespace {

std::string bytes_of(size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The server of one file, and what it does wrong.
struct FaultyServer {
  std::string bytes = bytes_of(3'000'000);
  std::string validator = "\"v1\"";
  uint64_t drop_after = UINT64_MAX;  // bytes of one answer, then the connection breaks
  bool ignores_ranges = false;
  std::function<std::optional<SourceReply>(int call)> refuse;  // instead of an answer
  std::function<void(int call)> before;                        // may change all of the above
  int calls = 0;
  std::vector<std::string> bearers;
};

class FaultySource final : public DownloadSource {
 public:
  FaultySource(FaultyServer& server, std::mutex& mutex) : server_(server), mutex_(mutex) {}

  Result<SourceReply> get(const SourceRequest& request, SourceSink& sink, const CancelToken& cancel) override {
    std::string bytes;
    SourceReply reply;
    uint64_t drop_after = 0;
    {
      const std::lock_guard lock(mutex_);
      const int call = ++server_.calls;
      server_.bearers.push_back(request.bearer);
      if (server_.before) server_.before(call);
      if (server_.refuse) {
        if (const auto refusal = server_.refuse(call)) {
          sink.begin(*refusal);
          return *refusal;
        }
      }
      reply.size_bytes = server_.bytes.size();
      reply.validator = server_.validator;
      const bool ranged =
          request.range && !server_.ignores_ranges && (request.if_range.empty() || request.if_range == server_.validator);
      reply.status = ranged ? 206 : 200;
      reply.begin = ranged ? request.range->begin : 0;
      const uint64_t end = ranged ? std::min<uint64_t>(request.range->end, server_.bytes.size()) : server_.bytes.size();
      bytes = server_.bytes.substr(reply.begin, end - reply.begin);
      drop_after = server_.drop_after;
    }
    if (!sink.begin(reply)) return reply;
    uint64_t sent = 0;
    for (size_t at = 0; at < bytes.size(); at += 10'000) {
      if (cancel.cancelled()) return fail(ErrorCode::kCancelled, "stopped");
      const std::string_view piece = std::string_view(bytes).substr(at, std::min<uint64_t>(10'000, drop_after - sent));
      if (!piece.empty() && !sink.write(piece)) return reply;
      sent += piece.size();
      if (sent >= drop_after) return fail(ErrorCode::kConnectionClosed, "it broke off");
    }
    return reply;
  }

 private:
  FaultyServer& server_;
  std::mutex& mutex_;
};

class Download : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / make_id("download-test-");
    std::filesystem::create_directory(folder_);
    options_.url = "https://example.org/model.gguf";
    options_.path = folder_ / "model.gguf";
    tools_.make_source = [this] { return std::make_unique<FaultySource>(server_, mutex_); };
    tools_.pause = [this](int64_t ms, const CancelToken&) {
      const std::lock_guard lock(mutex_);
      paused_ms_.push_back(ms);
    };
    tools_.free_bytes = [](const std::string&) -> Result<uint64_t> { return uint64_t{1} << 40; };
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<DownloadResult> run() {
    return download(options_, tools_, [this](const DownloadProgress& progress) {
      EXPECT_LE(progress.done_bytes, progress.size_bytes);
      if (!progress.waiting_for.empty()) reasons_.insert(progress.waiting_for);
    });
  }
  void expect_right() {
    const auto file = read_file(options_.path, 64u << 20);
    ASSERT_TRUE(file);
    EXPECT_TRUE(*file == server_.bytes);
    EXPECT_FALSE(std::filesystem::exists(options_.path + ".partial"));
    EXPECT_FALSE(std::filesystem::exists(options_.path + ".journal"));
  }
  void expect_absent() { EXPECT_FALSE(std::filesystem::exists(options_.path)); }
  uint64_t size() const { return server_.bytes.size(); }

  std::filesystem::path folder_;
  std::mutex mutex_;
  FaultyServer server_;
  DownloadOptions options_;
  DownloadTools tools_;
  std::vector<int64_t> paused_ms_;
  std::set<std::string> reasons_;
};

TEST_F(Download, AFileComesWholeInOneAnswer) {
  const auto result = run();
  ASSERT_TRUE(result) << result.error().message;
  expect_right();
  EXPECT_EQ(server_.calls, 1);
  EXPECT_EQ(result->fetched_bytes, size());
  EXPECT_EQ(result->sha256, *sha256_file(options_.path));
  EXPECT_TRUE(paused_ms_.empty());
}

TEST_F(Download, SeveralConnectionsShareIt) {
  options_.connections = 4;
  server_.bytes = bytes_of(80'000'000);
  server_.drop_after = 7'000'000;
  const auto result = run();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->sha256, *sha256_file(options_.path));
  EXPECT_EQ(std::filesystem::file_size(options_.path), size());
  EXPECT_LT(result->fetched_bytes, size() + size() / 100);
}

TEST_F(Download, ALineThatBreaksAgainAndAgainCostsNoByteTwice) {
  server_.drop_after = 350'001;
  const auto result = run();
  ASSERT_TRUE(result) << result.error().message;
  expect_right();
  EXPECT_EQ(result->fetched_bytes, size());
  EXPECT_TRUE(paused_ms_.empty()) << "bytes came every time, so there is nothing to wait for";
}

TEST_F(Download, AServerThatIgnoresRangesIsReadFromTheBeginning) {
  server_.ignores_ranges = true;
  server_.before = [this](int call) { server_.drop_after = call == 1 ? 1'000'000 : UINT64_MAX; };
  ASSERT_TRUE(run());
  expect_right();
  EXPECT_EQ(server_.calls, 2);
}

TEST_F(Download, AServerThatIgnoresRangesAndBreaksOffEveryTimeIsGivenUp) {
  server_.ignores_ranges = true;
  server_.drop_after = 1'000'000;
  EXPECT_FALSE(run());
  expect_absent();
  EXPECT_LT(server_.calls, 20);
}

TEST_F(Download, AFileThatChangesMeanwhileIsFetchedAnewAndNeverMixed) {
  server_.drop_after = 1'200'000;
  server_.before = [this](int call) {
    if (call != 2) return;
    server_.bytes = bytes_of(2'500'000, 2);
    server_.validator = "\"v2\"";
  };
  ASSERT_TRUE(run());
  expect_right();
}

TEST_F(Download, AFileThatNeverStaysTheSameIsGivenUp) {
  server_.drop_after = 1'000'000;
  server_.before = [this](int call) { server_.validator = "\"v" + std::to_string(call) + "\""; };
  const auto result = run();
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("changes"), std::string::npos);
  expect_absent();
}

TEST_F(Download, TheServersOwnTimeToWaitIsKept) {
  server_.refuse = [](int call) -> std::optional<SourceReply> {
    if (call > 3) return std::nullopt;
    SourceReply reply;
    reply.status = call == 2 ? 503 : 429;
    reply.retry_after_ms = 7'000;
    return reply;
  };
  ASSERT_TRUE(run());
  expect_right();
  ASSERT_EQ(paused_ms_.size(), 3u);
  for (const int64_t ms : paused_ms_) {
    EXPECT_GE(ms, 7'000);
    EXPECT_LE(ms, 10'500);
  }
  EXPECT_TRUE(reasons_.contains("the server asked to wait (429)"));
}

TEST_F(Download, ALinkThatExpiredIsAskedForAnew) {
  server_.drop_after = 1'800'000;
  server_.refuse = [](int call) -> std::optional<SourceReply> {
    if (call != 2) return std::nullopt;
    SourceReply reply;
    reply.status = 403;
    return reply;
  };
  ASSERT_TRUE(run());
  expect_right();
}

TEST_F(Download, WhatMayNotBeReadOrDoesNotExistIsSaidAtOnce) {
  int status = 404;
  server_.refuse = [&](int) -> std::optional<SourceReply> {
    SourceReply reply;
    reply.status = status;
    return reply;
  };
  EXPECT_EQ(run().error().code, ErrorCode::kNotFound);
  EXPECT_EQ(server_.calls, 1);
  status = 403;
  EXPECT_EQ(run().error().code, ErrorCode::kPermissionDenied);
  EXPECT_LE(server_.calls, 5);
  expect_absent();
}

TEST_F(Download, NothingIsFetchedForWhichThereIsNoRoom) {
  tools_.free_bytes = [](const std::string&) -> Result<uint64_t> { return uint64_t{1'000'000}; };
  const auto result = run();
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("room"), std::string::npos);
  expect_absent();
}

TEST_F(Download, AnotherLengthOrAnotherDigestThanExpectedLeavesNothing) {
  options_.expected_bytes = 5;
  EXPECT_FALSE(run());
  expect_absent();
  options_.expected_bytes = 0;
  options_.expected_sha256 = std::string(64, '0');
  server_.calls = 0;
  EXPECT_FALSE(run());
  EXPECT_EQ(server_.calls, 2) << "once more, and no more";
  expect_absent();
}

TEST_F(Download, AStoppedDownloadGoesOnWhereItWas) {
  server_.before = [this](int call) { server_.drop_after = call == 1 ? 2'000'000 : UINT64_MAX; };
  tools_.pause = [](int64_t, const CancelToken&) {};
  // The process goes when the connection breaks.
  options_.tries = 0;
  server_.refuse = [](int call) -> std::optional<SourceReply> {
    if (call != 2) return std::nullopt;
    SourceReply reply;
    reply.status = 500;
    return reply;
  };
  ASSERT_FALSE(run());
  expect_absent();
  options_.tries = 10;
  const auto result = run();
  ASSERT_TRUE(result) << result.error().message;
  expect_right();
  EXPECT_GT(result->resumed_bytes, 1'900'000u);
  EXPECT_EQ(result->resumed_bytes + result->fetched_bytes, size());
}

TEST_F(Download, BytesThatChangedOnTheDiskAreFetchedAgain) {
  server_.before = [this](int call) { server_.drop_after = call == 1 ? 2'000'000 : UINT64_MAX; };
  server_.refuse = [](int call) -> std::optional<SourceReply> {
    if (call != 2) return std::nullopt;
    SourceReply reply;
    reply.status = 404;
    return reply;
  };
  ASSERT_FALSE(run());
  {
    std::fstream file(options_.path + ".partial", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(500'000);
    file.put('!').put('?');
  }
  ASSERT_TRUE(run());
  expect_right();
}

TEST_F(Download, WhoeverKillsItWhereverItIsRightOrAbsentAfterwards) {
  std::mt19937 random(5);
  uint64_t fetched = 0;
  for (int life = 0; life < 200; ++life) {
    // A process that is killed leaves the files as they are: here it is stopped in the middle of an answer.
    const CancelToken kill;
    options_.cancel = kill;
    const uint64_t until = 50'000 + random() % 400'000;
    uint64_t come = 0;
    const auto result = download(options_, tools_, [&](const DownloadProgress& progress) {
      come = progress.fetched_bytes;
      if (come >= until) kill.cancel();
    });
    fetched += come;
    if (result) {
      expect_right();
      // What stood in the chunk that was being fetched comes twice.
      EXPECT_LT(fetched, 2 * size());
      return;
    }
    expect_absent();
  }
  FAIL() << "it never ended";
}

TEST_F(Download, AnEmptyFileIsAFile) {
  server_.bytes.clear();
  ASSERT_TRUE(run());
  expect_right();
}

TEST_F(Download, TheTokenGoesWithEveryRequest) {
  options_.bearer = "secret";
  server_.drop_after = 1'500'000;
  ASSERT_TRUE(run());
  for (const std::string& bearer : server_.bearers) EXPECT_EQ(bearer, "secret");
}

}  // namespace
}  // namespace pocketfleet
