#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "engine/llama_runtime.h"

namespace pocketfleet {
namespace {

const std::string kShipped = std::string(POCKETFLEET_SOURCE_DIR) + "/models/scam-guard/";
const std::string kShared = std::string(POCKETFLEET_SOURCE_DIR) + "/../shared/models/scam-guard/";

// The largest difference to the fp32 reference over the ten largest logits of each prompt.
double largest_difference(const std::string& path, ggml_type kv_type, bool flash_attention, int* argmax_same) {
  RuntimeOptions options;
  options.model_path = path;
  options.context_tokens = 512;
  options.slots = 1;
  options.threads = 1;
  options.kv_type = kv_type;
  options.flash_attention = flash_attention;
  auto runtime = LlamaRuntime::load(options, [](float) { return true; });
  EXPECT_TRUE(runtime) << runtime.error().message;
  const auto references = parse_json(*read_file(kShipped + "reference_logits.json", 1 << 20));
  double largest = 0;
  *argmax_same = 0;
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
      if (std::exchange(first, false)) *argmax_same += best == token ? 1 : 0;
      largest = std::max(largest, std::abs(static_cast<double>(logits[token]) - top["logit"].get<double>()));
    }
  }
  return largest;
}

TEST(ReferenceLogits, TheShippedFileAgreesWithinTheStatedBound) {
  int same = 0;
  EXPECT_LE(largest_difference(kShipped + "scam-guard-q4_0.gguf", GGML_TYPE_F32, false, &same), 0.16);
  EXPECT_EQ(same, 20);
}

TEST(ReferenceLogits, FinerFilesAgreeMoreClosely) {
  if (!std::filesystem::exists(kShared + "scam-guard-f16.gguf")) GTEST_SKIP() << "needs " << kShared;
  int same = 0;
  EXPECT_LE(largest_difference(kShared + "scam-guard-f16.gguf", GGML_TYPE_F32, false, &same), 8.5e-4);
  EXPECT_EQ(same, 20);
  EXPECT_LE(largest_difference(kShared + "scam-guard-q8_0.gguf", GGML_TYPE_F32, false, &same), 0.049);
  EXPECT_EQ(same, 20);
}

}  // namespace
}  // namespace pocketfleet
