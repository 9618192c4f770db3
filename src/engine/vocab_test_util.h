// For tests only: a suite that shares the shipped model's vocabulary.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/llama_runtime.h"
#include "engine/vocab.h"

namespace pocketfleet {

class ShippedVocab : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto loaded = LlamaRuntime::load_vocabulary(std::string(POCKETFLEET_SOURCE_DIR) + "/models/scam-guard/scam-guard-q4_0.gguf");
    ASSERT_TRUE(loaded) << loaded.error().message;
    runtime_ = *std::move(loaded);
    vocab_ = std::make_unique<Vocab>(runtime_->vocab());
  }
  static void TearDownTestSuite() {
    vocab_.reset();
    runtime_.reset();
  }

  static inline std::unique_ptr<LlamaRuntime> runtime_;
  static inline std::unique_ptr<Vocab> vocab_;
};

}  // namespace pocketfleet
