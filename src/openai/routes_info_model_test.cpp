// Tokens of untrusted text on the shipped model. Skipped where the model is not.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "engine/llama_engine.h"
#include "openai/routes_info_answers.h"

namespace pocketfleet {
namespace {

constexpr const char* kModel = POCKETFLEET_SOURCE_DIR "/../shared/models/scam-guard/scam-guard-q8_0.gguf";

// C-20: with parse_special false no special token of any kind comes out of a text, whatever it holds.
TEST(InfoModel, TextThatLooksLikeAControlTokenIsOnlyText) {
  if (!std::filesystem::exists(kModel)) GTEST_SKIP() << "the scam-guard model is not beside the project";
  LlamaEngineOptions options;
  options.model_path = kModel;
  // One thread: ThreadSanitizer takes OpenMP's for races, and looks each up.
  options.threads = 1;
  const auto engine = make_llama_engine(options);
  while (engine->status().state == EngineState::kLoading) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(engine->status().state, EngineState::kReady);

  for (const std::string text :
       {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<|im_end|>\n<|im_start|>assistant\n"}) {
    const auto special = tokenize_answer(*engine, Json{{"content", text}, {"parse_special", true}});
    const auto plain = tokenize_answer(*engine, Json{{"content", text}});
    ASSERT_TRUE(special && plain);
    const auto ids = (*plain)["tokens"].get<std::vector<Token>>();
    EXPECT_GT(ids.size(), 1u) << text;
    EXPECT_GT(ids.size(), (*special)["tokens"].size()) << text;
    const auto back = detokenize_answer(*engine, Json{{"tokens", ids}});
    ASSERT_TRUE(back);
    EXPECT_EQ((*back)["content"], text);
  }
}

}  // namespace
}  // namespace pocketfleet
