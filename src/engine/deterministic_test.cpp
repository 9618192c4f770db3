// With the deterministic option the same request gives the same bits, whatever else there is to do.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/ids.h"
#include "engine/llama_engine_test_util.h"

namespace pocketfleet {
namespace {

class Deterministic : public testing::Test {
 protected:
  void SetUp() override { folder_ = std::filesystem::temp_directory_path() / make_id("deterministic-test-"); }
  void TearDown() override {
    engine_.reset();
    std::filesystem::remove_all(folder_);
  }

  void restart() {
    engine_.reset();
    LlamaEngineOptions options = guard_options();
    options.deterministic = true;
    options.checkpoint_folder = folder_;
    options.checkpoint_disk_bytes = 64u << 20;
    engine_ = start(options);
    ASSERT_EQ(engine_->status().state, EngineState::kReady) << engine_->status().error.message;
    const std::vector<std::string> labels{"1", "2", "5", "5 and more"};
    labels_ = std::make_shared<LabelSet>(*engine_->prepare_labels("RISK_LEVEL: ", labels));
  }

  // Message number `seed`, behind fixed instructions, as profiles lay prompts out.
  Prompt prompt(int seed) const {
    static const std::string system = [] {
      std::ifstream file(kShipped + "prompt.txt");
      return std::string((std::istreambuf_iterator<char>(file)), {});
    }();
    const std::string head = "<|im_start|>system\n" + system + "<|im_end|>\n<|im_start|>user\n";
    std::string message;
    for (int word = 0; word < 8 + seed % 23; ++word) message += std::to_string((word * 7919 + seed * 104'729) % 9'973) + " call ";
    Prompt made;
    made.tokens = *engine_->tokenize(head, true, true);
    made.checkpoints = {made.tokens.size()};
    made.pinned = true;
    const Tokens rest = *engine_->tokenize(message + "<|im_end|>\n<|im_start|>assistant\n", false, true);
    made.tokens.insert(made.tokens.end(), rest.begin(), rest.end());
    made.tokens.insert(made.tokens.end(), labels_->forced.begin(), labels_->forced.end());
    return made;
  }

  std::vector<std::vector<double>> score(const std::vector<int>& seeds) {
    ScoreRequest request;
    request.labels = labels_;
    for (const int seed : seeds) request.inputs.push_back(prompt(seed));
    auto sink = std::make_shared<ScoreCollector>();
    EXPECT_TRUE(engine_->score(std::move(request), sink));
    EXPECT_TRUE(sink->wait());
    return sink->items;
  }

  std::shared_ptr<Collector> write(int seed, int tokens) {
    GenerateRequest request;
    request.prompt = prompt(seed);
    request.max_tokens = tokens;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    request.top_logprobs = 3;
    auto sink = std::make_shared<Collector>();
    EXPECT_TRUE(engine_->generate(std::move(request), sink));
    return sink;
  }

  std::filesystem::path folder_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<LabelSet> labels_;
};

TEST_F(Deterministic, AnInputHasTheSameBitsAloneInABatchOf64AndAfterARestart) {
  restart();
  std::vector<int> all(64);
  std::iota(all.begin(), all.end(), 0);
  const auto cold = score({7});
  const auto together = score(all);
  for (const int seed : {0, 7, 31, 63}) {
    EXPECT_EQ(score({seed})[0], together[static_cast<size_t>(seed)]) << seed;
  }
  EXPECT_EQ(cold[0], together[7]) << "the first one had no checkpoint to go on from";
  restart();
  const auto again = score(all);
  EXPECT_GT(engine_->counters().shelf.restored, 0u) << "the fixed part should have come from the disk";
  EXPECT_EQ(again, together);
  std::filesystem::remove_all(folder_);
  restart();
  EXPECT_EQ(score({63})[0], together[63]) << "and so without any checkpoint";
}

TEST_F(Deterministic, OtherRequestsMeanwhileChangeNothing) {
  restart();
  const auto alone = score({5, 9});
  const auto written = write(3, 24);
  ASSERT_TRUE(written->wait());
  const auto stream = write(3, 24);
  const auto other = write(4, 24);
  EXPECT_EQ(score({5, 9}), alone);
  ASSERT_TRUE(stream->wait());
  ASSERT_TRUE(other->wait());
  EXPECT_EQ(stream->text, written->text);
  ASSERT_EQ(stream->logprobs.size(), written->logprobs.size());
  for (size_t index = 0; index < stream->logprobs.size(); ++index)
    EXPECT_EQ(stream->logprobs[index].chosen.logprob, written->logprobs[index].chosen.logprob) << index;
}

}  // namespace
}  // namespace pocketfleet
