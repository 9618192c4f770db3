#include "tuner/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/money.h"

namespace pocketfleet {

namespace {

constexpr double kMsPerDay = 86'400'000;
constexpr double kMsPerHour = 3'600'000;
constexpr uint64_t kMostPrompts = 1'000'000'000'000;
constexpr uint64_t kMostTokens = 10'000'000;
// Speed goes with the number of weights; further away than this one says nothing about the other.
constexpr double kFurthestScale = 4;
constexpr double kSameSize = 1.3;
// Where nobody measured writing: a phone that reads 36 tokens a second writes 9.
constexpr double kWritePerRead = 0.25;

double distance(double a, double b) {
  return std::max(a, b) / std::min(a, b);
}

const MeasuredSpeed* nearest(const DeviceProfile& device, double parameters_b) {
  const MeasuredSpeed* best = nullptr;
  for (const MeasuredSpeed& speed : device.speeds) {
    if (speed.read_tokens_per_s <= 0) continue;
    if (best == nullptr || distance(speed.parameters_b, parameters_b) < distance(best->parameters_b, parameters_b)) best = &speed;
  }
  return best;
}

}  // namespace

Result<void> check(const Job& job) {
  const auto bad = [](std::string text, const char* field) { return fail(ErrorCode::kInvalidArgument, std::move(text), field); };
  if (job.prompts == 0 || job.prompts > kMostPrompts) return bad("say how many prompts there are, at least one", "prompts");
  if (job.prompt_tokens == 0 || job.prompt_tokens > kMostTokens)
    return bad(fmt::format("a prompt has 1 to {} tokens", kMostTokens), "length");
  if (job.shared_tokens >= job.prompt_tokens)
    return bad(fmt::format("of a prompt's {} tokens fewer than all can be shared, not {}", job.prompt_tokens, job.shared_tokens),
               "shared");
  if (job.written_tokens > kMostTokens) return bad(fmt::format("an answer has at most {} tokens", kMostTokens), "write");
  if (!(job.parameters_b > 0 && job.parameters_b < 10'000))
    return bad("say the model's size like 0.8b or 9b, or name its file", "model");
  if (!(job.burst_share > 0 && job.burst_share <= 1)) return bad("what heat leaves is a share above 0 and at most 1", "heat");
  if (job.deadline_ms <= 0 && job.phones == 0)
    return bad("say by when (--deadline) or with how many phones (--phones)", "deadline");
  return {};
}

Estimate estimate(const Job& job, const DeviceProfile& device) {
  Estimate out;
  const MeasuredSpeed* speed = nearest(device, job.parameters_b);
  if (speed == nullptr) {
    out.reason = "its reading was not measured";
    return out;
  }
  const double apart = distance(speed->parameters_b, job.parameters_b);
  if (apart > kFurthestScale) {
    out.reason = fmt::format("the nearest model measured on it has {}B parameters", speed->parameters_b);
    return out;
  }
  if (device.available_bytes > 0 && job.memory_bytes > device.available_bytes) {
    out.reason = fmt::format("the model takes {:.1f} GiB and it has {:.1f}", static_cast<double>(job.memory_bytes) / (1 << 30),
                             static_cast<double>(device.available_bytes) / (1 << 30));
    return out;
  }
  const double scale = apart > kSameSize ? speed->parameters_b / job.parameters_b : 1;
  const double heat = device.phone && !speed->sustained ? job.burst_share : 1;
  out.read_tokens_per_s = speed->read_tokens_per_s * scale * heat;
  const double written = speed->write_tokens_per_s > 0 ? speed->write_tokens_per_s : speed->read_tokens_per_s * kWritePerRead;
  out.write_tokens_per_s = written * scale * heat;

  out.basis = std::string(device.published ? "published" : "measured here");
  out.basis += speed->prompt_tokens > 0 ? fmt::format(", prompts of {}", speed->prompt_tokens) : ", length not stated";
  if (scale != 1) out.basis += fmt::format(", scaled from {}B", speed->parameters_b);
  if (heat != 1) out.basis += fmt::format(", {:.0f} % left when hot", heat * 100);
  if (speed->write_tokens_per_s <= 0 && job.written_tokens > 0) out.basis += ", writing guessed";

  const double shared_ms = static_cast<double>(job.shared_tokens) / out.read_tokens_per_s * 1000;
  const double each_ms = static_cast<double>(job.prompt_tokens - job.shared_tokens) / out.read_tokens_per_s * 1000 +
                         static_cast<double>(job.written_tokens) / out.write_tokens_per_s * 1000;
  out.verdict_ms = std::llround(each_ms);
  out.verdicts_per_phone_hour = kMsPerHour / each_ms;
  out.phones = job.phones;
  if (out.phones == 0) {
    const double room = (static_cast<double>(job.deadline_ms) - shared_ms) / each_ms;
    if (room < 1) {
      out.reason = fmt::format("one verdict takes {:.0f} s on it, more than the deadline", (shared_ms + each_ms) / 1000);
      return out;
    }
    const auto most = static_cast<uint64_t>(room);
    out.phones = (job.prompts + most - 1) / most;
  }
  // More phones than prompts stand idle, and are paid.
  const double rounds = std::ceil(static_cast<double>(job.prompts) / static_cast<double>(out.phones));
  const double duration_ms = shared_ms + rounds * each_ms;
  const double planck = static_cast<double>(out.phones) * duration_ms / kMsPerDay * static_cast<double>(job.day_planck);
  if (duration_ms > 1e15 || planck > 9e18) {
    out.reason = "it would take longer, or cost more, than can be counted";
    return out;
  }
  out.duration_ms = static_cast<int64_t>(std::ceil(duration_ms));
  out.cost_planck = static_cast<int64_t>(std::ceil(planck));
  if (out.cost_planck > 0)
    out.verdicts_per_acu =
        static_cast<double>(job.prompts) / (static_cast<double>(out.cost_planck) / static_cast<double>(kPlanckPerAcu));
  return out;
}

}  // namespace pocketfleet
