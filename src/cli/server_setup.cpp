#include "cli/server_setup.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "cli/serve_rules.h"
#include "engine/fake_engine.h"
#include "engine/llama_engine.h"
#include "kernels/backend.h"
#include "model/gguf.h"
#include "model/memory_fit.h"
#include "openai/profile.h"
#include "tuner/topology.h"

namespace pocketfleet::cli {

Result<KeyStore> load_keys(const ServeOptions& options) {
  if (!options.api_key_file.empty()) return KeyStore::load(options.api_key_file);
  if (options.unix_socket.empty() && !is_loopback(options.host)) {
    return fail(ErrorCode::kPermissionDenied,
                "whoever can reach " + options.host +
                    " could use this model: make a key with `pocketfleet key keys.txt --name NAME` and start again with "
                    "--api-key-file keys.txt, or listen on 127.0.0.1",
                "host");
  }
  return KeyStore();
}

Result<void> load_profiles(const ServeOptions& options, ProfileSet& profiles) {
  for (const std::string& path : options.profiles) {
    auto profile = load_profile(path);
    if (!profile) return fail(profile.error());
    if (auto added = profiles.add(*std::move(profile)); !added) {
      Error error = added.error();
      error.message = path + ": " + error.message;
      return fail(std::move(error));
    }
  }
  return {};
}

uint64_t packing_bytes(const ModelSummary& summary) {
  double more = 0;
  for (const TypeShare& share : summary.types) {
    const double growth = kernels::packed_bytes_per_file_byte(share.type);
    if (growth > 1) more += (growth - 1) * static_cast<double>(share.bytes);
  }
  return static_cast<uint64_t>(more);
}

namespace {

MemorySettings settings_of(const ServeOptions& options, const ModelSummary& summary) {
  MemorySettings settings;
  settings.context_tokens = static_cast<uint64_t>(std::max(options.context_tokens, 0));
  settings.slots = static_cast<uint64_t>(options.slots);
  settings.kv_type = options.kv_type;
  settings.batch_tokens = static_cast<uint64_t>(options.batch_tokens);
  settings.checkpoint_bytes = static_cast<uint64_t>(options.checkpoint_ram_mib) << 20;
  settings.embeddings = options.pooling != "none" && (options.pooling != "model" || summary.pools);
  settings.draft_head = options.speculate == "mtp";
  if (options.kernels != "off") settings.packing_bytes = packing_bytes(summary);
  return settings;
}

Result<void> check_draft_head(const ServeOptions& options, const ModelSummary& summary) {
  if (options.speculate != "mtp" || !summary.draft_layers.empty()) return {};
  return fail(ErrorCode::kInvalidArgument,
              options.model_path + " has no draft head, which --speculate mtp needs: serve it without, or with --speculate ngram",
              "speculate");
}

// Refused with the numbers, before a byte of the weights is read.
Result<void> check_memory(const ServeOptions& options, const ModelSummary& summary) {
  const auto available = read_available_memory();
  if (!available) {
    log_warn("memory_unknown", {{"reason", available.error().message}});
    return {};
  }
  PF_TRY(const MemoryPlan plan, plan_memory(summary, settings_of(options, summary), available->bytes));
  log_info("memory", {{"needs", format_bytes(plan.total_bytes())},
                      {"available", format_bytes(available->bytes)},
                      {"limited_by", available->limited_by},
                      {"parts", describe(plan)}});
  return {};
}

}  // namespace

Result<int> choose_context(const ServeOptions& options) {
  if (options.context_tokens >= 0 || !options.fake.empty()) return std::max(options.context_tokens, 0);
  PF_TRY(const ModelSummary summary, inspect_gguf(options.model_path));
  PF_CHECK_OK(check_servable(summary));
  PF_TRY(const AvailableMemory available, read_available_memory());
  PF_TRY(const uint64_t tokens, largest_context(summary, settings_of(options, summary), available.bytes));
  log_info("context_chosen",
           {{"tokens", static_cast<unsigned long>(tokens)}, {"trained", static_cast<unsigned long>(summary.context_tokens)}});
  return static_cast<int>(tokens);
}

Result<void> check_model_file(const ServeOptions& options) {
  if (!options.fake.empty()) return {};
  PF_TRY(const ModelSummary summary, inspect_gguf(options.model_path));
  PF_CHECK_OK(check_servable(summary));
  log_info("model", {{"file", options.model_path}, {"is", describe(summary)}});
  PF_CHECK_OK(check_draft_head(options, summary));
  return check_memory(options, summary);
}

Result<std::unique_ptr<Engine>> make_engine(const ServeOptions& options) {
  if (!options.fake.empty()) {
    FakeScript script;
    script.queue_limit = static_cast<size_t>(options.queue);
    if (options.context_tokens > 0) script.context_tokens = options.context_tokens;
    if (options.fake == "slow") script.read_tokens_per_s = script.write_tokens_per_s = 20;
    return std::make_unique<FakeEngine>(std::move(script));
  }
  LlamaEngineOptions engine;
  engine.model_path = options.model_path;
  engine.context_tokens = options.context_tokens;
  engine.slots = options.slots;
  engine.threads = options.threads;
  engine.queue_limit = static_cast<size_t>(options.queue);
  engine.checkpoint_ram_bytes = static_cast<size_t>(options.checkpoint_ram_mib) << 20;
  engine.deterministic = options.deterministic;
  engine.pooling = options.pooling;
  if (options.speculate == "ngram") engine.speculation = Speculation::kNgram;
  if (options.speculate == "mtp") engine.speculation = Speculation::kMtp;
  engine.kv_type = options.kv_type;
  engine.cpus = parse_cpu_list(options.cpus);
  engine.batch_tokens = options.batch_tokens;
  engine.kernels = options.kernels != "off";
  engine.flash_attention = options.flash_attention != "off";
  engine.checkpoint_disk_bytes = static_cast<uint64_t>(options.checkpoint_disk_mib) << 20;
  engine.checkpoint_folder = options.checkpoint_dir;
  if (engine.checkpoint_folder.empty()) {
    const auto variable = [](const char* name) { return std::string(std::getenv(name) == nullptr ? "" : std::getenv(name)); };
    std::error_code ignored;
    engine.checkpoint_folder = default_checkpoint_folder(std::filesystem::absolute(options.model_path, ignored).string(),
                                                         variable("XDG_CACHE_HOME"), variable("HOME"));
  }
  return make_llama_engine(std::move(engine));
}

Result<void> wait_until_ready(const Engine& engine) {
  while (engine.status().state == EngineState::kLoading) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (const EngineStatus status = engine.status(); status.state != EngineState::kReady) return fail(status.error);
  return {};
}

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

int fail_command(const char* command, const Error& error) {
  std::fprintf(stderr, "pocketfleet %s: %s\n", command, error.message.c_str());
  return 2;
}

}  // namespace pocketfleet::cli
