#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "kernels/backend.h"
#include "model/gguf.h"
#include "model/memory_fit.h"

namespace pocketfleet::cli {

namespace {

size_t recurrent_layers(const ModelSummary& summary) {
  size_t count = 0;
  for (const LayerState& layer : summary.layers) count += layer.recurrent_numbers > 0 ? 1 : 0;
  return count;
}

// Bytes of the weights that our own kernels compute with on this machine.
uint64_t covered_bytes(const ModelSummary& summary) {
  uint64_t covered = 0;
  for (const TypeShare& share : summary.types) covered += kernels::packed_bytes_per_file_byte(share.type) > 0 ? share.bytes : 0;
  return covered;
}

std::string covered_types(const ModelSummary& summary) {
  std::string out;
  for (const TypeShare& share : summary.types) {
    if (kernels::packed_bytes_per_file_byte(share.type) > 0) out += (out.empty() ? "" : ", ") + share.type;
  }
  return out;
}

Json json_of(const ModelSummary& summary, const MemoryPlan& plan, const std::string& not_servable) {
  Json types = Json::array();
  for (const TypeShare& share : summary.types)
    types.push_back({{"type", share.type}, {"tensors", share.tensors}, {"bytes", share.bytes}});
  Json out = {{"file", summary.path},
              {"architecture", summary.architecture},
              {"name", summary.name},
              {"quantisation", summary.quantisation},
              {"parameters", summary.parameters},
              {"file_bytes", summary.file_bytes},
              {"parts", summary.parts},
              {"layers", summary.layers.size()},
              {"recurrent_layers", recurrent_layers(summary)},
              {"embedding", summary.embedding},
              {"context_tokens", summary.context_tokens},
              {"vocabulary", summary.vocabulary},
              {"tokenizer", summary.tokenizer},
              {"chat_template_sha256", template_digest(summary)},
              {"pools", summary.pools},
              {"types", std::move(types)},
              {"kernels", {{"instruction_set", kernels::instruction_set()}, {"covered_bytes", covered_bytes(summary)}}},
              {"servable", not_servable.empty()},
              {"memory",
               {{"context_tokens", plan.context_tokens},
                {"sequences", plan.sequences},
                {"weight_bytes", plan.weight_bytes},
                {"kv_bytes", plan.kv_bytes},
                {"recurrent_bytes", plan.recurrent_bytes},
                {"compute_bytes", plan.compute_bytes},
                {"vocabulary_bytes", plan.vocabulary_bytes},
                {"checkpoint_bytes", plan.checkpoint_bytes},
                {"embedding_bytes", plan.embedding_bytes},
                {"program_bytes", plan.program_bytes},
                {"total_bytes", plan.total_bytes()}}}};
  if (!not_servable.empty()) out["reason"] = not_servable;
  return out;
}

void print(const ModelSummary& summary, const MemoryPlan& plan, const ModelInspectOptions& options, const std::string& reason) {
  std::printf("%s\n", summary.path.c_str());
  std::printf("  model         %s%s\n", describe(summary).c_str(),
              summary.name.empty() ? "" : (" (" + summary.name + ")").c_str());
  const size_t recurrent = recurrent_layers(summary);
  std::printf("  layers        %zu, of which %zu keep a recurrent state; width %llu\n", summary.layers.size(), recurrent,
              static_cast<unsigned long long>(summary.embedding));
  std::string types;
  for (const TypeShare& share : summary.types) {
    types += fmt::format("{}{} {} ({} tensors)", types.empty() ? "" : ", ", share.type, format_bytes(share.bytes), share.tensors);
  }
  std::printf("  weights       %s\n", types.c_str());
  const uint64_t covered = covered_bytes(summary);
  std::printf("  kernels       %s\n", covered == 0
                                          ? "llama.cpp's"
                                          : fmt::format("{} for {} of {} ({})", kernels::instruction_set(), format_bytes(covered),
                                                        format_bytes(summary.tensor_bytes), covered_types(summary))
                                                .c_str());
  std::printf("  tokenizer     %s, %llu tokens\n", summary.tokenizer.c_str(),
              static_cast<unsigned long long>(summary.vocabulary));
  const std::string digest = template_digest(summary);
  std::printf(
      "  chat template %s\n",
      digest.empty() ? "none" : fmt::format("{} bytes, sha256 {}", summary.chat_template.size(), digest.substr(0, 16)).c_str());
  std::printf("  embeddings    %s\n", summary.pools ? "the model says how to pool" : "only with serve --pooling");
  std::printf("  memory        %s for %llu tokens a request and %d slots\n", format_bytes(plan.total_bytes()).c_str(),
              static_cast<unsigned long long>(plan.context_tokens), options.slots);
  std::printf("                %s\n", describe(plan).c_str());
  if (!reason.empty()) std::printf("  cannot be served: %s\n", reason.c_str());
}

}  // namespace

int run_model_inspect(const ModelInspectOptions& options) {
  const auto summary = inspect_gguf(options.file);
  if (!summary) return fail_command("model inspect", summary.error());
  MemorySettings settings;
  settings.context_tokens = static_cast<uint64_t>(options.context_tokens);
  settings.slots = static_cast<uint64_t>(options.slots);
  settings.kv_type = options.kv_type;
  settings.checkpoint_bytes = static_cast<uint64_t>(options.checkpoint_ram_mib) << 20;
  settings.embeddings = summary->pools;
  settings.packing_bytes = packing_bytes(*summary);
  const auto plan = compute_memory(*summary, settings);
  if (!plan) return fail_command("model inspect", plan.error());
  const auto servable = check_servable(*summary);
  const std::string reason = servable ? std::string() : servable.error().message;
  if (options.json) {
    std::printf("%s\n", dump_json(json_of(*summary, *plan, reason)).c_str());
  } else {
    print(*summary, *plan, options, reason);
  }
  return 0;
}

}  // namespace pocketfleet::cli
