#include "tuner/device_profiles.h"

namespace pocketfleet {

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

}  // namespace

const std::vector<DeviceProfile>& known_devices() {
  static const std::vector<DeviceProfile> devices = {
      {"sd8-elite-16gb",
       "phone, Snapdragon 8 Elite, 16 GB",
       "MNN, 4 bits",
       "published article on Qwen3.5 on rented phones: seconds for a prompt of 7,000 tokens",
       true,
       true,
       // 5.7 GB of weights left 0.8 GB over.
       6 * kGiB,
       {{0.8, 7000, 467, 0, true}, {4, 7000, 72.2, 0, true}, {9, 7000, 35.9, 9.3, true}}},
      {"raspberry-pi-5", "Raspberry Pi 5", "MNN, 4 bits", "potato-os PR 196", false, true, 0, {{4, 0, 27.6, 4.5, false}}},
      {"mac-mini-m4",
       "Mac mini M4 (Metal)",
       "llama.cpp Q4_K_M",
       "jitesh.dev, Qwen3.5 on Apple silicon",
       false,
       true,
       0,
       {{0.8, 0, 2085, 103, false}, {2, 0, 978, 59, false}, {4, 0, 385, 28, false}, {9, 0, 214, 16, false}}},
      {"ryzen-ai-9-365",
       "laptop, Ryzen AI 9 365, 10 threads",
       "llama.cpp IQ4_XS",
       "r/LocalLLaMA, March 2026",
       false,
       true,
       0,
       {{4, 0, 56.5, 12.9, false}}},
      {"spacemit-k3",
       "RISC-V board, SpacemiT K3, 8 threads",
       "MNN, 4 bits",
       "MNN's performance notes",
       false,
       true,
       0,
       {{0.8, 0, 127.6, 33.9, false}, {2, 0, 85.6, 17.7, false}}},
  };
  return devices;
}

}  // namespace pocketfleet
