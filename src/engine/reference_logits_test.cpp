#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "engine/llama_runtime.h"

namespace pocketfleet {
namespace {

const std::string kShipped = std::string(POCKETFLEET_SOURCE_DIR) + "/models/scam-guard/";
const std::string kShared = std::string(POCKETFLEET_SOURCE_DIR) + "/../shared/models/scam-guard/";

// To the fp32 reference, over the ten largest logits of each prompt.
struct Difference {
  double largest = 0;
  double root_mean_square = 0;
  int argmax_same = 0;  // prompts
};

RuntimeOptions exact_options(const std::string& path) {
  RuntimeOptions options;
  options.model_path = path;
  options.context_tokens = 512;
  options.slots = 1;
  options.threads = 1;
  options.kv_type = GGML_TYPE_F32;
  options.flash_attention = false;
  return options;
}

Difference difference(const RuntimeOptions& options) {
  Difference out;
  auto runtime = LlamaRuntime::load(options, [](float) { return true; });
  EXPECT_TRUE(runtime) << runtime.error().message;
  const auto references = parse_json(*read_file(kShipped + "reference_logits.json", 1 << 20));
  double squares = 0;
  int count = 0;
  for (const Json& reference : *references) {
    LlamaRuntime& model = **runtime;
    model.clear();
    model.batch_clear();
    const auto tokens = reference["token_ids"].get<Tokens>();
    int row = 0;
    for (size_t index = 0; index < tokens.size(); ++index) {
      row = model.batch_add(tokens[index], static_cast<int>(index), 0, index + 1 == tokens.size());
    }
    EXPECT_TRUE(model.decode());
    const float* logits = model.logits(row);
    const auto best = static_cast<Token>(std::max_element(logits, logits + model.info().vocabulary) - logits);
    bool first = true;
    for (const Json& top : reference["top10"]) {
      const auto token = top["id"].get<Token>();
      if (std::exchange(first, false)) out.argmax_same += best == token ? 1 : 0;
      const double off = static_cast<double>(logits[token]) - top["logit"].get<double>();
      out.largest = std::max(out.largest, std::abs(off));
      squares += off * off;
      ++count;
    }
  }
  out.root_mean_square = std::sqrt(squares / std::max(count, 1));
  return out;
}

TEST(ReferenceLogits, TheShippedFileAgreesWithinTheStatedBound) {
  const Difference shipped = difference(exact_options(kShipped + "scam-guard-q4_0.gguf"));
  EXPECT_LE(shipped.largest, 0.16);
  EXPECT_EQ(shipped.argmax_same, 20);
}

TEST(ReferenceLogits, FinerFilesAgreeMoreClosely) {
  if (!std::filesystem::exists(kShared + "scam-guard-f16.gguf")) GTEST_SKIP() << "needs " << kShared;
  for (const auto& [file, bound] : {std::pair("scam-guard-f16.gguf", 8.5e-4), std::pair("scam-guard-q8_0.gguf", 0.049)}) {
    const Difference finer = difference(exact_options(kShared + file));
    EXPECT_LE(finer.largest, bound) << file;
    EXPECT_EQ(finer.argmax_same, 20) << file;
  }
}

// As it is served: 16-bit KV cache and flash attention.
TEST(ReferenceLogits, OurKernelsAreAsCloseAsThoseOfLlamaCpp) {
  for (const std::string& path : {kShipped + "scam-guard-q4_0.gguf", kShared + "scam-guard-q8_0.gguf",
                                  kShared + "scam-guard-q4_k_m.gguf", kShared + "scam-guard-f16.gguf"}) {
    if (!std::filesystem::exists(path)) {
      std::printf("skipped: no %s\n", path.c_str());
      continue;
    }
    RuntimeOptions options;
    options.model_path = path;
    options.context_tokens = 512;
    options.slots = 1;
    options.threads = 1;
    const Difference ours = difference(options);
    options.kernels = false;
    const Difference theirs = difference(options);
    std::printf("%s: off by %.5f with our kernels, %.5f without (root mean square), at most %.4f and %.4f\n",
                std::filesystem::path(path).filename().c_str(), ours.root_mean_square, theirs.root_mean_square, ours.largest,
                theirs.largest);
    EXPECT_LE(ours.root_mean_square, theirs.root_mean_square * 1.2) << path;
    EXPECT_EQ(ours.argmax_same, 20) << path;
  }
}

}  // namespace
}  // namespace pocketfleet
