#include "tuner/tuned_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/files.h"
#include "base/folders.h"
#include "base/json.h"
#include "engine/checkpoint_file.h"

namespace pocketfleet {

namespace {

constexpr int kVersion = 1;
constexpr size_t kMostBytes = 64u << 10;
constexpr size_t kMostCpuInfoBytes = 4u << 20;
constexpr double kDrift = 0.8;

std::string field(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return {};
  line.remove_prefix(colon + 1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return std::string(line);
}

Json json_of(const TunedKey& key, const Tuned& tuned) {
  const ProbeSettings& probe = tuned.settings.probe;
  return {{"version", kVersion},
          {"model", key.model},
          {"device", key.device},
          {"engine", key.engine},
          {"work", key.work},
          {"tuned_unix_ms", tuned.tuned_unix_ms},
          {"sample_ms", tuned.sample_ms},
          {"settings",
           {{"cpus", format_cpu_list(probe.cpus)},
            {"batch_tokens", probe.batch_tokens},
            {"kv_type", probe.kv_type},
            {"flash_attention", probe.flash_attention},
            {"kernels", probe.kernels},
            {"streams", probe.streams}}},
          {"sustained",
           {{"read_tokens_per_s", tuned.sustained.read_tokens_per_s},
            {"write_tokens_per_s", tuned.sustained.write_tokens_per_s},
            {"request_ms", tuned.sustained.request_ms}}}};
}

std::optional<Tuned> read(const std::string& text, const TunedKey& key) {
  const auto json = parse_json(text);
  if (!json) return std::nullopt;
  try {
    if (json->at("version") != kVersion || json->at("model") != key.model || json->at("device") != key.device ||
        json->at("engine") != key.engine || json->at("work") != key.work)
      return std::nullopt;
    Tuned tuned;
    tuned.tuned_unix_ms = json->at("tuned_unix_ms").get<int64_t>();
    tuned.sample_ms = json->at("sample_ms").get<double>();
    const Json& settings = json->at("settings");
    ProbeSettings& probe = tuned.settings.probe;
    probe.cpus = parse_cpu_list(settings.at("cpus").get<std::string>());
    probe.batch_tokens = settings.at("batch_tokens").get<int>();
    probe.kv_type = settings.at("kv_type").get<std::string>();
    probe.flash_attention = settings.at("flash_attention").get<bool>();
    probe.kernels = settings.at("kernels").get<bool>();
    probe.streams = settings.at("streams").get<int>();
    const Json& sustained = json->at("sustained");
    tuned.sustained.read_tokens_per_s = sustained.at("read_tokens_per_s").get<double>();
    tuned.sustained.write_tokens_per_s = sustained.at("write_tokens_per_s").get<double>();
    tuned.sustained.request_ms = sustained.at("request_ms").get<double>();
    const bool sound = !probe.cpus.empty() && probe.batch_tokens >= 1 && probe.batch_tokens <= 65'536 && probe.streams >= 1 &&
                       probe.streams <= 64;
    return sound ? std::optional(tuned) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string TunedStore::path(const TunedKey& key) const {
  // The key itself stands inside the file.
  return folder_ + "/" + to_hex(hash128(key.model + '\n' + key.device + '\n' + key.engine + '\n' + key.work)) + ".json";
}

std::optional<Tuned> TunedStore::find(const TunedKey& key) const {
  const auto text = read_file(path(key), kMostBytes);
  return text ? read(*text, key) : std::nullopt;
}

std::optional<std::pair<std::string, Tuned>> TunedStore::find_any(TunedKey key) const {
  std::optional<std::pair<std::string, Tuned>> latest;
  for (const char* work : {"review", "guard", "chat"}) {
    key.work = work;
    const auto found = find(key);
    if (found && (!latest || found->tuned_unix_ms > latest->second.tuned_unix_ms)) latest = {work, *found};
  }
  return latest;
}

Result<void> TunedStore::put(const TunedKey& key, const Tuned& tuned) const {
  PF_CHECK_OK(make_folder(folder_));
  return write_file_atomic(path(key), dump_json(json_of(key, tuned)) + "\n");
}

std::string device_identity(const std::string& root) {
  const auto cpuinfo = read_file(root + "/proc/cpuinfo", kMostCpuInfoBytes);
  std::string name;
  for (const char* key : {"model name", "Hardware", "CPU part"}) {
    if (name.empty() && cpuinfo) name = field(*cpuinfo, key);
  }
  std::map<uint64_t, std::vector<int>, std::greater<>> classes;
  for (const Core& core : read_cores(root)) classes[core.capacity].push_back(core.cpu);
  for (const auto& [capacity, cpus] : classes)
    name += fmt::format(", {} core{} {}", cpus.size(), cpus.size() == 1 ? "" : "s", format_cpu_list(cpus));
  return name;
}

bool has_drifted(double sample_ms, const Tuned& tuned) {
  return sample_ms * kDrift > tuned.sample_ms;
}

}  // namespace pocketfleet
