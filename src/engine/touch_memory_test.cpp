#include "engine/touch_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace pocketfleet {
namespace {

constexpr char kSmaps[] =
    "55aa00000000-55aa00800000 r-xp 00000000 08:01 123                        /usr/bin/pocketfleet\n"
    "Size:               8192 kB\nVmFlags: rd ex mr mw me\n"
    "55aa10000000-55aa14000000 rw-p 00000000 00:00 0                          [heap]\n"
    "Size:              65536 kB\nVmFlags: rd wr mr mw me ac sd\n"
    "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \n"
    "Size:            1048576 kB\nVmFlags: rd wr mr mw me nr sd\n"
    "7f1000000000-7f1004000000 rw-p 00000000 00:00 0 \n"
    "Size:              65536 kB\nVmFlags: rd wr mr mw me ac sd\n"
    "7f2000000000-7f2000800000 rw-p 00000000 00:00 0 \n"
    "Size:               8192 kB\nVmFlags: rd wr mr mw me ac sd\n"
    "7f3000000000-7f3004000000 rw-p 00000000 08:01 99                         /tmp/mapped\n"
    "Size:              65536 kB\nVmFlags: rd wr mr mw me ac sd\n"
    "7f4000000000-7f4004000000 ---p 00000000 00:00 0 \n"
    "Size:              65536 kB\nVmFlags: mr mw me\n"
    "7f5000000000-7f5004000000 rw-s 00000000 00:01 7                          /dev/shm/x\n"
    "Size:              65536 kB\nVmFlags: rd wr sh mr mw me ms sd\n";

TEST(TouchMemory, OnlyLargePrivateBuffersOfOurOwnCount) {
  const auto ranges = large_buffers(kSmaps, 10u << 20);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].begin, 0x55aa10000000u);
  EXPECT_EQ(ranges[1].begin, 0x7f1000000000u);
  EXPECT_EQ(ranges[1].end, 0x7f1004000000u);
  EXPECT_TRUE(large_buffers("", 1).empty());
  EXPECT_TRUE(large_buffers("nonsense\nVmFlags: rd wr\n", 1).empty());
}

// C-13
TEST(TouchMemory, ALargeBufferIsResidentAfterwards) {
  constexpr size_t kBytes = 64u << 20;
  auto* buffer = static_cast<unsigned char*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(buffer, MAP_FAILED);
  buffer[5] = 7;
  const uint64_t touched = touch_large_buffers();
  std::vector<unsigned char> resident(kBytes / 4096);
  ASSERT_EQ(::mincore(buffer, kBytes, resident.data()), 0);
  size_t pages = 0;
  for (const unsigned char page : resident) pages += page & 1;
  EXPECT_EQ(buffer[5], 7) << "what was there stays";
  ::munmap(buffer, kBytes);
  if (touched == 0) GTEST_SKIP() << "this kernel, or a build with sanitizers, does not touch";
  EXPECT_GE(touched, kBytes);
  EXPECT_EQ(pages, resident.size());
}

}  // namespace
}  // namespace pocketfleet
