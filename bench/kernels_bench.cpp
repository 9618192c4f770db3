// Reads and writes with plain llama.cpp and with our kernels in one process, in turn, and prints what each took: see
// bench/kernels. Usage: kernels_bench MODEL --threads N --rounds N --prompts 512,2048 --write 64 [--kernels-only] [--check]
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/make_context.h"
#include "kernels/backend.h"

namespace {

using pocketfleet::load_model;
using pocketfleet::make_context;

struct Side {
  const char* name;
  bool kernels;
  std::shared_ptr<llama_model> model;
  std::unique_ptr<llama_context, void (*)(llama_context*)> context{nullptr, llama_free};
  double load_s = 0;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Tokens a second while reading `count` of them in batches of 512 from an empty context.
double read_speed(llama_context* context, const std::vector<llama_token>& tokens, int count) {
  llama_memory_clear(llama_get_memory(context), true);
  const double start = now_s();
  for (int at = 0; at < count; at += 512) {
    const int n = std::min(512, count - at);
    std::vector<llama_token> part(tokens.begin() + at, tokens.begin() + at + n);
    if (llama_decode(context, llama_batch_get_one(part.data(), n)) != 0) std::exit(1);
  }
  return count / (now_s() - start);
}

double write_speed(llama_context* context, const std::vector<llama_token>& tokens, int count) {
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<llama_token> first(tokens.begin(), tokens.begin() + 16);
  llama_decode(context, llama_batch_get_one(first.data(), 16));
  const double start = now_s();
  for (int i = 0; i < count; ++i) {
    llama_token token = tokens[static_cast<size_t>(i)];
    if (llama_decode(context, llama_batch_get_one(&token, 1)) != 0) std::exit(1);
  }
  return count / (now_s() - start);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<int> numbers(const char* text) {
  std::vector<int> out;
  for (const char* at = text; *at != '\0';) {
    out.push_back(std::atoi(at));
    at = std::strchr(at, ',');
    if (at == nullptr) break;
    ++at;
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1, rounds = 3, write = 64;
  std::vector<int> prompts = {512};
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--threads") threads = std::atoi(argv[i + 1]);
    if (name == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (name == "--write") write = std::atoi(argv[i + 1]);
    if (name == "--prompts") prompts = numbers(argv[i + 1]);
  }
  if (argc < 2) {
    std::fprintf(stderr,
                 "kernels_bench: which model? kernels_bench MODEL.gguf --threads 1 --rounds 3 --prompts 512,2048 --write 64\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  Side sides[2] = {{"llama.cpp", false, {}}, {"ours", true, {}}};
  const int longest = *std::max_element(prompts.begin(), prompts.end());
  for (Side& side : sides) {
    llama_model_params model_params = llama_model_default_params();
    model_params.load_mode = LLAMA_LOAD_MODE_NONE;
    const double start = now_s();
    side.model = load_model(argv[1], model_params, side.kernels);
    side.load_s = now_s() - start;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(std::max(longest, 512) + 256);
    params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = threads;
    params.no_perf = true;
    if (side.model) side.context.reset(make_context(side.model.get(), params, true, side.kernels));
    if (!side.context) {
      std::fprintf(stderr, "kernels_bench: %s could not be loaded\n", argv[1]);
      return 2;
    }
  }
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(sides[0].model.get()));
  std::mt19937 random(1);
  std::vector<llama_token> tokens(static_cast<size_t>(std::max(longest, 512)));
  for (llama_token& token : tokens)
    token = static_cast<llama_token>(random() % static_cast<unsigned>(std::min(vocabulary, 50'000)));

  std::printf("{\"model\":\"%s\",\"threads\":%d,\"rounds\":%d,\"kernels\":\"%s\",\"load_s\":[%.2f,%.2f]", argv[1], threads,
              rounds, pocketfleet::kernels_in_use(true).c_str(), sides[0].load_s, sides[1].load_s);
  const auto measure = [&](const std::string& name, auto&& speed) {
    std::vector<double> values[2];
    for (int round = 0; round < rounds; ++round) {
      for (int s = 0; s < 2; ++s) values[s].push_back(speed(sides[s].context.get()));
    }
    const auto spread = [](const std::vector<double>& v) {
      return (*std::max_element(v.begin(), v.end()) - *std::min_element(v.begin(), v.end())) / median(v);
    };
    std::printf(",\"%s\":{\"llama.cpp\":%.2f,\"ours\":%.2f,\"ratio\":%.3f,\"best_ratio\":%.3f,\"spread\":[%.3f,%.3f]}",
                name.c_str(), median(values[0]), median(values[1]), median(values[1]) / median(values[0]),
                *std::max_element(values[1].begin(), values[1].end()) / *std::max_element(values[0].begin(), values[0].end()),
                spread(values[0]), spread(values[1]));
    std::fflush(stdout);
  };
  for (const int prompt : prompts) {
    measure("pp" + std::to_string(prompt), [&](llama_context* c) { return read_speed(c, tokens, prompt); });
  }
  if (write > 0) measure("tg" + std::to_string(write), [&](llama_context* c) { return write_speed(c, tokens, write); });
  std::printf("}\n");
  return 0;
}
