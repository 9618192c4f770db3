// For tests only: the shipped model under the real engine, and sinks that wait. Sinks may be used from any thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/llama_engine.h"

namespace pocketfleet {

inline const std::string kShipped = std::string(POCKETFLEET_SOURCE_DIR) + "/models/scam-guard/";
inline const std::string kShared = std::string(POCKETFLEET_SOURCE_DIR) + "/../shared/";

inline constexpr auto kPatience = std::chrono::seconds(60);

// The end of a request, which a test waits for. Sinks report under its mutex.
template <typename Done>
class Awaited {
 public:
  void end(Result<Done> result) {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(done.has_value()) << "on_done came twice";
    done = std::move(result);
    changed_.notify_all();
  }
  const Result<Done>& wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return done.has_value(); })) done = fail(ErrorCode::kInternal, "no answer");
    return *done;
  }

  std::optional<Result<Done>> done;

 protected:
  // Each in its place, once.
  template <typename Item>
  void keep(std::vector<Item>& items, size_t index, Item item) {
    const std::lock_guard lock(mutex_);
    if (items.size() <= index) items.resize(index + 1);
    EXPECT_TRUE(items[index].empty());
    items[index] = std::move(item);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
};

class Collector final : public GenerateSink, public Awaited<GenerateDone> {
 public:
  void on_chunk(GenerateChunk chunk) override {
    const std::lock_guard lock(mutex_);
    text += chunk.text;
    for (auto& logprob : chunk.logprobs) logprobs.push_back(std::move(logprob));
    ++chunks;
    changed_.notify_all();
  }
  void on_done(Result<GenerateDone> result) override { end(std::move(result)); }
  void wait_for_chunk() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return chunks > 0 || done.has_value(); });
  }
  bool finished() {
    const std::lock_guard lock(mutex_);
    return done.has_value();
  }

  std::string text;
  std::vector<TokenLogprob> logprobs;
  int chunks = 0;
};

class ScoreCollector final : public ScoreSink, public Awaited<Usage> {
 public:
  void on_item(size_t index, std::vector<double> probabilities) override { keep(items, index, std::move(probabilities)); }
  void on_done(Result<Usage> result) override { end(std::move(result)); }

  std::vector<std::vector<double>> items;
};

inline std::unique_ptr<Engine> start(LlamaEngineOptions options) {
  auto engine = make_llama_engine(std::move(options));
  for (;;) {
    const EngineState state = engine->status().state;
    if (state != EngineState::kLoading) return engine;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

inline LlamaEngineOptions guard_options(const std::string& file = kShipped + "scam-guard-q4_0.gguf") {
  LlamaEngineOptions options;
  options.model_path = file;
  options.context_tokens = 512;
  options.threads = 1;
  return options;
}

}  // namespace pocketfleet
