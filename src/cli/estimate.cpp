#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/money.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "model/gguf.h"
#include "model/memory_fit.h"
#include "tuner/estimate.h"

namespace pocketfleet::cli {

namespace {

// "0.8b" is a size, anything else a file.
Result<void> read_model(const EstimateOptions& options, Job& job) {
  const std::string& text = options.model;
  const char* end = text.data() + text.size();
  if (text.ends_with('b') || text.ends_with('B')) {
    const auto parsed = std::from_chars(text.data(), end, job.parameters_b);
    if (parsed.ec == std::errc() && parsed.ptr == end - 1) return {};
  }
  PF_TRY(const ModelSummary summary, inspect_gguf(text));
  job.parameters_b = static_cast<double>(summary.parameters) / 1e9;
  MemorySettings settings;
  settings.context_tokens = job.prompt_tokens + job.written_tokens;
  settings.slots = 1;
  PF_TRY(const MemoryPlan plan, compute_memory(summary, settings));
  job.memory_bytes = plan.total_bytes();
  return {};
}

Result<Job> read_job(const EstimateOptions& options) {
  Job job;
  job.prompts = options.prompts;
  job.prompt_tokens = options.length;
  job.shared_tokens = options.shared;
  job.written_tokens = options.write;
  job.deadline_ms = options.deadline_ms;
  job.phones = options.phones;
  job.burst_share = options.heat;
  PF_TRY(job.day_planck, parse_acu(options.price));
  PF_CHECK_OK(read_model(options, job));
  PF_CHECK_OK(check(job));
  return job;
}

Result<std::vector<DeviceProfile>> choose_devices(const EstimateOptions& options, const Job& job) {
  std::vector<DeviceProfile> out;
  if (options.read_speed > 0) {
    out.push_back({"yours",
                   "your machine",
                   "as you measured",
                   "--read-speed",
                   false,
                   false,
                   0,
                   {{job.parameters_b, static_cast<int>(options.length), options.read_speed, options.write_speed, true}}});
  }
  std::string names;
  for (const DeviceProfile& device : known_devices()) {
    const bool wanted = options.device == "all" ? options.read_speed <= 0 : options.device == device.name;
    if (wanted) out.push_back(device);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", device.name);
  }
  if (out.empty()) return fail(ErrorCode::kNotFound, fmt::format("no device is called {}; there are: {}", options.device, names));
  return out;
}

std::string duration(int64_t ms) {
  const int64_t minutes = (ms + 59'999) / 60'000;
  if (minutes < 120) return fmt::format("{} min", minutes);
  if (minutes < 48 * 60) return fmt::format("{}.{} h", minutes / 60, minutes % 60 / 6);
  return fmt::format("{}.{} days", minutes / 1440, minutes % 1440 / 144);
}

// To a thousandth of an ACU, upward.
std::string cost(int64_t planck) {
  const int64_t step = kPlanckPerAcu / 1000;
  return format_acu((planck + step - 1) / step * step);
}

Json json_of(const DeviceProfile& device, const Estimate& estimate) {
  Json out = {{"device", device.name}, {"what", device.what}, {"engine", device.engine}, {"source", device.source}};
  if (!estimate.reason.empty()) {
    out["reason"] = estimate.reason;
    return out;
  }
  out.update({{"basis", estimate.basis},
              {"read_tokens_per_s", estimate.read_tokens_per_s},
              {"write_tokens_per_s", estimate.write_tokens_per_s},
              {"verdict_ms", estimate.verdict_ms},
              {"verdicts_per_phone_hour", estimate.verdicts_per_phone_hour},
              {"phones", estimate.phones},
              {"duration_ms", estimate.duration_ms},
              {"cost_planck", estimate.cost_planck},
              {"verdicts_per_acu", estimate.verdicts_per_acu}});
  return out;
}

}  // namespace

int run_estimate(const EstimateOptions& options) {
  const auto job = read_job(options);
  if (!job) return fail_command("estimate", job.error());
  const auto devices = choose_devices(options, *job);
  if (!devices) return fail_command("estimate", devices.error());
  bool any = false;
  if (!options.json) {
    std::printf("%llu prompts of %llu tokens, %llu of them shared; %llu written; %.3gB parameters; %s ACU a phone and day\n\n",
                static_cast<unsigned long long>(job->prompts), static_cast<unsigned long long>(job->prompt_tokens),
                static_cast<unsigned long long>(job->shared_tokens), static_cast<unsigned long long>(job->written_tokens),
                job->parameters_b, format_acu(job->day_planck).c_str());
    std::printf("%-15s %8s %9s %10s %7s %10s %9s %12s\n", "device", "read/s", "a verdict", "an hour", "phones", "time", "ACU",
                "verdicts/ACU");
  }
  std::string notes;
  for (const DeviceProfile& device : *devices) {
    const Estimate found = estimate(*job, device);
    any = any || found.reason.empty();
    if (options.json) {
      std::printf("%s\n", dump_json(json_of(device, found)).c_str());
      continue;
    }
    const std::string name(device.name);
    if (!found.reason.empty()) {
      std::printf("%-15s no: %s\n", name.c_str(), found.reason.c_str());
      continue;
    }
    std::printf("%-15s %8.0f %7.1f s %10.0f %7llu %10s %9s %12.0f\n", name.c_str(), found.read_tokens_per_s,
                static_cast<double>(found.verdict_ms) / 1000, found.verdicts_per_phone_hour,
                static_cast<unsigned long long>(found.phones), duration(found.duration_ms).c_str(),
                cost(found.cost_planck).c_str(), found.verdicts_per_acu);
    notes += fmt::format("  {}: {}, {}; {} ({})\n", device.name, device.what, device.engine, found.basis, device.source);
  }
  if (!notes.empty()) {
    std::printf("\nWhat this rests on:\n%sMeasure your own phones (pocketfleet tune) before you promise anything.\n",
                notes.c_str());
  }
  return any ? 0 : 1;
}

}  // namespace pocketfleet::cli
