#include "engine/checkpoint_disk.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/ids.h"

namespace pocketfleet {
namespace {

namespace fs = std::filesystem;

class CheckpointDiskTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = testing::TempDir() + make_id("checkpoint_disk_"); }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<CheckpointDisk> open(uint64_t budget_bytes = 1 << 20, const char* model = "model") {
    auto disk = CheckpointDisk::open({folder_, budget_bytes, {hash128(model), hash128("build"), 1, 1}});
    EXPECT_TRUE(disk) << disk.error().message;
    return disk ? *std::move(disk) : nullptr;
  }
  static Tokens tokens(Token first, size_t count = 10) {
    Tokens out;
    for (size_t index = 0; index < count; ++index) out.push_back(first + static_cast<Token>(index));
    return out;
  }
  static std::shared_ptr<const StateBytes> state(uint8_t value, size_t bytes = 1000) {
    return std::make_shared<const StateBytes>(bytes, value);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& file : fs::directory_iterator(folder_)) {
      if (file.path().extension() == ".ckpt") out.push_back(file.path());
    }
    return out;
  }

  std::string folder_;
};

TEST_F(CheckpointDiskTest, AStateOutlivesTheProcess) {
  {
    const auto disk = open();
    disk->save(tokens(1), state(7), true);
    // Also while it is still being written.
    EXPECT_EQ(disk->load(tokens(1)), *state(7));
  }
  const auto disk = open();
  ASSERT_EQ(disk->list().size(), 1u);
  EXPECT_EQ(disk->list()[0], tokens(1));
  EXPECT_TRUE(disk->holds(tokens(1)));
  EXPECT_EQ(disk->load(tokens(1)), *state(7));
  EXPECT_EQ(disk->load(tokens(2)), std::nullopt);
  EXPECT_EQ(disk->counters().restored, 1u);
  EXPECT_EQ(disk->counters().refused, 0u);
}

TEST_F(CheckpointDiskTest, DamageIsFoundWhenItIsReadAndTheFileIsDeleted) {
  open()->save(tokens(1), state(7), false);
  ASSERT_EQ(files().size(), 1u);
  {
    std::fstream file(files()[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(600);
    file.put('\x01');
  }
  const auto disk = open();
  EXPECT_TRUE(disk->holds(tokens(1)));
  EXPECT_EQ(disk->load(tokens(1)), std::nullopt);
  EXPECT_FALSE(disk->holds(tokens(1)));
  EXPECT_EQ(disk->counters().refused, 1u);
  EXPECT_TRUE(files().empty());
}

TEST_F(CheckpointDiskTest, ShortForeignAndLeftoverFilesAreDeletedAtTheStart) {
  open()->save(tokens(1), state(7), false);
  open()->save(tokens(100), state(7), false);
  ASSERT_EQ(files().size(), 2u);
  fs::resize_file(files()[0], 500);
  std::ofstream(folder_ + "/0123.ckpt.tmp-abc") << "half";
  std::ofstream(folder_ + "/readme.txt") << "not ours";
  {
    const auto disk = open();
    EXPECT_EQ(disk->counters().refused, 1u);
    EXPECT_EQ(disk->list().size(), 1u);
    EXPECT_FALSE(fs::exists(folder_ + "/0123.ckpt.tmp-abc"));
    EXPECT_TRUE(fs::exists(folder_ + "/readme.txt"));
  }
  const auto other = open(1 << 20, "another model");
  EXPECT_EQ(other->counters().refused, 1u);
  EXPECT_TRUE(files().empty());
}

TEST_F(CheckpointDiskTest, AFileUnderAnotherOnesNameIsRefused) {
  open()->save(tokens(1), state(7), false);
  const fs::path file = files()[0];
  fs::rename(file, file.parent_path() / "00000000000000000000000000000000.ckpt");
  EXPECT_EQ(open()->counters().refused, 1u);
  EXPECT_TRUE(files().empty());
}

TEST_F(CheckpointDiskTest, TheBudgetHoldsTheLeastRecentlyUsedGoesAndThePinnedStays) {
  const auto disk = open(3600);
  disk->save(tokens(1), state(1), true);
  disk->save(tokens(100), state(2), false);
  disk->save(tokens(200), state(3), false);
  disk->flush();
  EXPECT_EQ(disk->load(tokens(100)), *state(2));
  disk->save(tokens(300), state(4), false);
  disk->flush();
  EXPECT_TRUE(disk->holds(tokens(1)));
  EXPECT_TRUE(disk->holds(tokens(100)));
  EXPECT_FALSE(disk->holds(tokens(200)));
  EXPECT_TRUE(disk->holds(tokens(300)));
  EXPECT_LE(disk->counters().bytes, 3600u);
  EXPECT_EQ(disk->counters().evicted, 1u);
  disk->save(tokens(400), state(5, 5000), true);
  EXPECT_FALSE(disk->holds(tokens(400))) << "more than the whole budget";
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(CheckpointDiskTest, ASmallerBudgetThanBeforeIsKeptFromTheStart) {
  {
    const auto disk = open();
    for (Token first = 0; first < 500; first += 100) disk->save(tokens(first), state(1), false);
  }
  const auto disk = open(2500);
  EXPECT_EQ(files().size(), 2u);
  EXPECT_LE(disk->counters().bytes, 2500u);
}

TEST_F(CheckpointDiskTest, AFolderBelongsToOneServerAtATime) {
  const auto disk = open();
  const auto second = CheckpointDisk::open({folder_, 1 << 20, {}});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(second.error().message.find("--checkpoint-dir"), std::string::npos);
}

TEST_F(CheckpointDiskTest, AFolderThatCannotBeMadeIsAnErrorThatNamesIt) {
  std::ofstream(folder_) << "a file";
  const auto disk = CheckpointDisk::open({folder_ + "/inside", 1 << 20, {}});
  ASSERT_FALSE(disk);
  EXPECT_EQ(disk.error().code, ErrorCode::kIo);
  EXPECT_NE(disk.error().message.find(folder_), std::string::npos);
}

}  // namespace
}  // namespace pocketfleet
