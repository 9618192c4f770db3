#include "model/memory_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/files.h"

namespace pocketfleet {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

#define EXPECT_WITHIN(part, bytes, reported) EXPECT_LT(std::abs(mib(bytes) - (reported)), (part) * (reported)) << mib(bytes)

ModelSummary shipped() {
  auto summary = inspect_gguf(POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf");
  EXPECT_TRUE(summary);
  return *summary;
}

// The shapes of Qwen3.5-0.8B.
ModelSummary real_size() {
  ModelSummary out;
  out.path = "m.gguf";
  out.context_tokens = 262144;
  out.embedding = 1024;
  out.feed_forward = 3584;
  out.vocabulary = 248320;
  out.heads = 8;
  out.attention_dims = 2048;
  out.recurrent = true;
  out.recurrent_dims = 2048;
  out.convolved = 6144;
  out.tensor_bytes = 490'497'792;
  for (int layer = 0; layer < 24; ++layer) {
    if (layer % 4 == 3)
      out.layers.push_back({512, 512, 0});
    else
      out.layers.push_back({0, 0, 3 * 6144 + 128 * 2048});
  }
  return out;
}

TEST(MemoryFit, TheShippedModelMatchesWhatLlamaCppReports) {
  MemorySettings settings;
  settings.context_tokens = 1024;
  const auto plan = compute_memory(shipped(), settings);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->sequences, 31u);
  EXPECT_WITHIN(0.01, plan->kv_bytes, 2.00);
  EXPECT_WITHIN(0.01, plan->recurrent_bytes, 6.36);
  EXPECT_WITHIN(0.05, plan->compute_bytes, 12.49);
}

TEST(MemoryFit, AModelOfRealSizeMatchesWhatLlamaCppReports) {
  struct Reported {
    uint64_t context, sequences, batch;
    const char* kv_type;
    double kv, recurrent, compute;
  };
  // llama.cpp's log lines for a synthetic 0.8B with these settings, in MiB.
  for (const Reported& row :
       {Reported{8192, 10, 512, "f16", 384.00, 192.66, 90.64}, Reported{2048, 10, 512, "f16", 96.00, 192.66, 66.27},
        Reported{8192, 10, 256, "f16", 384.00, 192.66, 54.93}, Reported{8192, 20, 512, "q8_0", 204.00, 385.31, 110.13}}) {
    MemorySettings settings;
    settings.context_tokens = row.context;
    settings.sequences = row.sequences;
    settings.batch_tokens = row.batch;
    settings.kv_type = row.kv_type;
    const auto plan = compute_memory(real_size(), settings);
    ASSERT_TRUE(plan);
    EXPECT_WITHIN(0.001, plan->kv_bytes, row.kv);
    EXPECT_WITHIN(0.001, plan->recurrent_bytes, row.recurrent);
    EXPECT_WITHIN(0.05, plan->compute_bytes, row.compute);
  }
}

TEST(MemoryFit, TheEnginesOwnNumberOfSequencesIsFollowed) {
  const auto plan = compute_memory(real_size(), {});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->sequences, 4u + 3 + 3);
  EXPECT_EQ(plan->context_tokens, 8192u);
}

// C-12
TEST(MemoryFit, EmbeddingsTakeAContextOfTheirOwn) {
  const auto summary = inspect_gguf(POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf");
  ASSERT_TRUE(summary) << summary.error().message;
  MemorySettings settings;
  settings.context_tokens = 512;
  const MemoryPlan without = *compute_memory(*summary, settings);
  settings.embeddings = true;
  const MemoryPlan with = *compute_memory(*summary, settings);
  EXPECT_EQ(without.embedding_bytes, 0u);
  EXPECT_GT(with.embedding_bytes, with.kv_bytes / settings.slots);
  EXPECT_EQ(with.total_bytes(), without.total_bytes() + with.embedding_bytes);
  EXPECT_NE(describe(with).find("embeddings"), std::string::npos);
}

TEST(MemoryFit, ADraftHeadTakesMemoryOnlyWhenItIsAskedFor) {
  ModelSummary summary = real_size();
  summary.draft_layers = {{512, 512, 0}};
  summary.draft_bytes = 10u << 20;
  summary.tensor_bytes += summary.draft_bytes;
  MemorySettings settings;
  const MemoryPlan without = *compute_memory(summary, settings);
  EXPECT_EQ(without.weight_bytes, real_size().tensor_bytes);
  EXPECT_EQ(without.draft_bytes, 0u);
  settings.draft_head = true;
  const MemoryPlan with = *compute_memory(summary, settings);
  EXPECT_GT(with.draft_bytes, summary.draft_bytes);
  EXPECT_EQ(with.total_bytes(), without.total_bytes() + with.draft_bytes);
  EXPECT_NE(describe(with).find("draft head"), std::string::npos);
}

TEST(MemoryFit, TheLargestContextLeavesATenthFreeAndOneStepMoreDoesNot) {
  const auto summary = inspect_gguf(POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf");
  ASSERT_TRUE(summary) << summary.error().message;
  MemorySettings settings;
  settings.slots = 2;
  settings.checkpoint_bytes = 16u << 20;
  settings.context_tokens = 1024;
  const uint64_t least_bytes = compute_memory(*summary, settings)->total_bytes();
  for (const double factor : {1.13, 1.2, 1.3}) {
    const auto available = static_cast<uint64_t>(static_cast<double>(least_bytes) * factor);
    const auto found = largest_context(*summary, settings, available);
    ASSERT_TRUE(found) << found.error().message;
    settings.context_tokens = *found;
    EXPECT_LE(compute_memory(*summary, settings)->total_bytes(), available - available / 10);
    settings.context_tokens = *found + 256;
    const bool more = *found + 256 <= summary->context_tokens;
    if (more) {
      EXPECT_GT(compute_memory(*summary, settings)->total_bytes(), available - available / 10);
    }
  }
  EXPECT_EQ(*largest_context(*summary, settings, uint64_t{1} << 40), summary->context_tokens / 256 * 256)
      << "as far as it was trained";
  const auto none = largest_context(*summary, settings, least_bytes / 2);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
}

TEST(MemoryFit, WhatDoesNotFitIsRefusedWithEveryNumberAndWhatToChange) {
  MemorySettings settings;
  settings.slots = 16;
  const auto plan = plan_memory(real_size(), settings, uint64_t{2} << 30);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kOutOfMemory);
  for (const char* part : {"m.gguf needs", "2.0 GiB are available", "weights 468 MiB", "KV cache 1.5 GiB", "8192 tokens",
                           "sequences", "compute buffers", "checkpoints 256 MiB", "--ctx", "--slots"}) {
    EXPECT_NE(plan.error().message.find(part), std::string::npos) << part << ": " << plan.error().message;
  }
  EXPECT_TRUE(plan_memory(real_size(), {}, uint64_t{2} << 30));
}

TEST(MemoryFit, ASmallerContextIsNotAdvisedWhereItCannotHelp) {
  const auto weights = plan_memory(real_size(), {}, 300u << 20);
  ASSERT_FALSE(weights);
  EXPECT_NE(weights.error().message.find("weights alone"), std::string::npos);
  EXPECT_EQ(weights.error().message.find("--slots"), std::string::npos);
  const auto barely = plan_memory(real_size(), {}, 650u << 20);
  ASSERT_FALSE(barely);
  EXPECT_NE(barely.error().message.find("Even --ctx 1024"), std::string::npos) << barely.error().message;
}

TEST(MemoryFit, AbsurdSettingsAreRefusedAndDoNotWrapAround) {
  MemorySettings settings;
  settings.context_tokens = UINT64_MAX / 2;
  settings.slots = 64;
  EXPECT_EQ(plan_memory(real_size(), settings, uint64_t{64} << 30).error().code, ErrorCode::kOutOfMemory);
  settings = {};
  settings.kv_type = "q3";
  EXPECT_EQ(plan_memory(real_size(), settings, uint64_t{64} << 30).error().code, ErrorCode::kInvalidArgument);
}

class AvailableMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / "pocketfleet-memory-XXXXXX").string();
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    write("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    ASSERT_TRUE(write_file_atomic(root_ + path, text));
  }

  std::string root_;
};

TEST_F(AvailableMemoryTest, WithoutCgroupsTheMachineSays) {
  const auto memory = read_available_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->bytes, uint64_t{8'000'000} * 1024);
  EXPECT_EQ(memory->limited_by, "this machine");
}

TEST_F(AvailableMemoryTest, TheTightestCgroupAboveUsWins) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "1000000\n");
  write("/sys/fs/cgroup/a/memory.max", "1073741824\n");
  write("/sys/fs/cgroup/a/memory.current", "536870912\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 1\nfile 9\ninactive_file 100\nactive_file 200\n");
  const auto memory = read_available_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->bytes, 536870912u + 300);
  EXPECT_EQ(memory->limited_by, "the memory limit of cgroup /a");
}

TEST_F(AvailableMemoryTest, ACgroupThatIsFullLeavesNothing) {
  write("/proc/self/cgroup", "12:cpu:/x\n0::/\n");
  write("/sys/fs/cgroup/memory.max", "1000\n");
  write("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(read_available_memory(root_)->bytes, 0u);
}

TEST(AvailableMemory, ThisMachineAnswers) {
  const auto memory = read_available_memory();
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_GT(memory->bytes, 0u);
}

}  // namespace
}  // namespace pocketfleet
