// What a job takes: phones, hours, money, from how fast a class of machines reads. Pure. Errors: kInvalidArgument for a job that
// cannot be (no prompts, a shared part longer than the prompt). What a device cannot do is not an error but a reason.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "tuner/device_profiles.h"

namespace pocketfleet {

struct Job {
  uint64_t prompts = 0;
  uint64_t prompt_tokens = 0;   // of one, all of it
  uint64_t shared_tokens = 0;   // of them, the same in all: read once a phone
  uint64_t written_tokens = 5;  // of one answer
  double parameters_b = 0.8;
  uint64_t memory_bytes = 0;  // that serving it takes; 0: not known
  int64_t deadline_ms = 0;    // for all; 0: `phones` is given
  uint64_t phones = 0;        // 0: as many as the deadline needs
  int64_t day_planck = 0;     // price of a phone for a day
  double burst_share = 0.65;  // of a phone's short-run speed that is left when it is hot
};

struct Estimate {
  std::string reason;  // why the device cannot do it; then the rest says nothing
  double read_tokens_per_s = 0;
  double write_tokens_per_s = 0;
  int64_t verdict_ms = 0;  // one, once the shared part is read
  uint64_t phones = 0;
  int64_t duration_ms = 0;
  int64_t cost_planck = 0;      // all phones for the time, rounded up
  double verdicts_per_acu = 0;  // 0: nothing is paid
  double verdicts_per_phone_hour = 0;
  std::string basis;  // what the speed rests on
};

Result<void> check(const Job& job);
Estimate estimate(const Job& job, const DeviceProfile& device);

}  // namespace pocketfleet
