#include "cli/tuned.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/folders.h"
#include "base/log.h"
#include "engine/llama_engine.h"

namespace pocketfleet::cli {

namespace {

// Beside one long prompt a short one must get in.
constexpr int kLeastSlots = 2;
constexpr int kUsualSlots = 4;
constexpr int kUsualBatch = 512;

}  // namespace

Result<TunedStore> open_tuned_store() {
  PF_TRY(std::string folder, cache_folder("tuned"));
  return TunedStore(std::move(folder));
}

// Shapes and types decide the speed, so a model that is tuned further needs no tuning here.
TunedKey tuned_key(const ModelSummary& summary, const std::string& work) {
  std::string model = fmt::format("{} {} layers {} wide {} feed-forward {} vocabulary", summary.architecture,
                                  summary.layers.size(), summary.embedding, summary.feed_forward, summary.vocabulary);
  for (const TypeShare& type : summary.types) model += fmt::format(", {} {} x {}", type.type, type.bytes, type.tensors);
  return {std::move(model), device_identity(), "llama.cpp " + llama_build(), work};
}

namespace {

void take_tuned(ServeOptions& options) {
  const auto summary = inspect_gguf(options.model_path);
  const auto store = open_tuned_store();
  if (!summary || !store) return;
  const auto found = store->find_any(tuned_key(*summary, {}));
  if (!found) return;
  const ProbeSettings& probe = found->second.settings.probe;
  if (options.cpus.empty() && options.threads == 0) options.cpus = format_cpu_list(probe.cpus);
  if (options.batch_tokens == 0) options.batch_tokens = probe.batch_tokens;
  if (options.kv_type.empty()) options.kv_type = probe.kv_type;
  if (options.kernels.empty()) options.kernels = probe.kernels ? "auto" : "off";
  if (options.flash_attention.empty()) options.flash_attention = probe.flash_attention ? "on" : "off";
  if (options.slots == 0) options.slots = std::max(probe.streams, kLeastSlots);
  log_info("tuned", {{"work", found->first},
                     {"settings", describe(found->second.settings)},
                     {"sustained_read_tokens_per_s", found->second.sustained.read_tokens_per_s}});
}

}  // namespace

Result<void> settle(ServeOptions& options) {
  if (!options.cpus.empty() && parse_cpu_list(options.cpus).empty())
    return fail(ErrorCode::kInvalidArgument, "--cpus is \"" + options.cpus + "\"; write it like 4-7 or 0,2", "cpus");
  // What is tuned later must not change the bits of a server that promises always the same.
  if (options.use_tuned && !options.deterministic && options.fake.empty()) take_tuned(options);
  if (options.slots == 0) options.slots = kUsualSlots;
  if (options.batch_tokens == 0) options.batch_tokens = kUsualBatch;
  if (options.kv_type.empty()) options.kv_type = "f16";
  return {};
}

}  // namespace pocketfleet::cli
