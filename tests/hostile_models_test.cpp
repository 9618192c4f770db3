// What our own reader lets through, llama.cpp must survive: damaged copies of the shipped model are loaded, and read a few
// tokens, each in a process of its own, so that an abort there is a failed test and not the end of all of them.
#include <gtest/gtest.h>
#include <llama.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/files.h"
#include "model/gguf.h"

namespace pocketfleet {
namespace {

constexpr unsigned kSecondsMost = 60;

void read_tokens(llama_model* model) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 256;
  params.n_batch = params.n_ubatch = 32;
  params.n_threads = params.n_threads_batch = 1;
  params.n_seq_max = 2;
  params.kv_unified = true;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  llama_token tokens[32];
  const std::string text = "Free entry! Text WIN to 80086";
  const int count = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens, 32, true, true);
  if (count > 0) llama_decode(context, llama_batch_get_one(tokens, count));
  char piece[256];
  for (int token = 0; token < llama_vocab_n_tokens(vocab); ++token)
    llama_token_to_piece(vocab, token, piece, sizeof piece, 0, true);
  llama_free(context);
}

// The signal that ended the process which loaded the file; 0 when it ended by itself.
int load_apart(const std::string& path) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kSecondsMost);
    std::freopen("/dev/null", "w", stderr);
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    // An exception is a refusal: the engine turns it into an error.
    try {
      llama_model* model = llama_model_load_from_file(path.c_str(), llama_model_default_params());
      if (model != nullptr) read_tokens(model);
    } catch (const std::exception&) {
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

class HostileModels : public testing::Test {
 protected:
  static constexpr size_t kHeadEnd = 96'000;  // where the tensors' numbers begin

  void SetUp() override {
    auto bytes = read_file(POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf", 16u << 20);
    ASSERT_TRUE(bytes);
    whole_ = *std::move(bytes);
    folder_ = (std::filesystem::temp_directory_path() / "pocketfleet-hostile-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/mutant.gguf";
    llama_backend_init();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // True when our reader let it through to llama.cpp.
  bool survives(const std::string& bytes, const std::string& what) {
    const auto summary = inspect_gguf_bytes(bytes, path_);
    if (!summary || !check_servable(*summary)) return false;
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_EQ(load_apart(path_), 0) << what;
    return true;
  }

  std::string whole_, folder_, path_;
};

TEST_F(HostileModels, TheWholeModelIsLoadedAndReads) {
  EXPECT_TRUE(survives(whole_, "the shipped model"));
}

TEST_F(HostileModels, WhatGetsPastOurReaderDoesNotEndLlamaCpp) {
  const char* wanted = std::getenv("POCKETFLEET_MUTANTS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 400;
  std::mt19937 random(11);
  int passed = 0;
  const size_t keys_end = whole_.find("tokenizer.ggml.tokens");
  const size_t table = whole_.find("output_norm.weight");
  ASSERT_NE(keys_end, std::string::npos);
  ASSERT_NE(table, std::string::npos);
  for (int round = 0; round < rounds; ++round) {
    // The keys, the tokenizer and the table of tensors in turn; now and then a byte of the weights.
    std::string bytes = whole_;
    size_t at = 0;
    switch (round % 4) {
      case 0:
      case 1:
        at = random() % keys_end;
        break;
      case 2:
        at = table + random() % 3000;
        break;
      default:
        at = round % 8 == 3 ? random() % bytes.size() : random() % table;
    }
    const auto before = static_cast<unsigned char>(bytes[at]);
    bytes[at] = static_cast<char>(round % 3 == 0 ? before ^ (1u << (random() % 8)) : random());
    passed += survives(bytes, "byte " + std::to_string(at) + " was " + std::to_string(before) + ", is " +
                                  std::to_string(static_cast<unsigned char>(bytes[at])))
                  ? 1
                  : 0;
  }
  // Otherwise nothing was shown.
  EXPECT_GT(passed, rounds / 10);
  std::printf("%d of %d mutants were let through\n", passed, rounds);
}

}  // namespace
}  // namespace pocketfleet
