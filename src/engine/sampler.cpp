#include "engine/sampler.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <cmath>

#include "base/ids.h"
#include "engine/candidates.h"

namespace pocketfleet {

namespace {

constexpr size_t kGrammarTailBytes = 4096;

bool uses_penalties(const SamplingParams& params) {
  return params.frequency_penalty != 0 || params.presence_penalty != 0 || params.repeat_penalty != 1.0f;
}

}  // namespace

Sampler::Sampler(const Vocab& vocab, const SamplingParams& params, std::shared_ptr<const LlamaFormat> format,
                 const Tokens& prompt, bool ignore_eos)
    : vocab_(vocab), format_(std::move(format)) {
  const int size = vocab.size();
  plain_greedy_ = params.temperature <= 0 && !uses_penalties(params);
  for (const auto& [token, value] : params.logit_bias) {
    // OpenAI's -100 is a ban.
    if (token >= 0 && token < size) bias_.emplace_back(token, value <= -100.0f ? -INFINITY : value);
  }
  if (ignore_eos) {
    for (const Token end : vocab.end_tokens()) bias_.emplace_back(end, -INFINITY);
  }
  if (uses_penalties(params)) {
    const int window = params.penalty_window < 0 ? static_cast<int>(prompt.size()) + 65'536 : params.penalty_window;
    penalties_.reset(
        llama_sampler_init_penalties(size, window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty));
    const size_t seen = std::min(prompt.size(), static_cast<size_t>(window));
    for (size_t index = prompt.size() - seen; index < prompt.size(); ++index)
      llama_sampler_accept(penalties_.get(), prompt[index]);
  }
  llama_sampler_chain_params chain_params = llama_sampler_chain_default_params();
  chain_params.no_perf = true;
  chain_.reset(llama_sampler_chain_init(chain_params));
  if (params.temperature <= 0) {
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_greedy());
  } else {
    if (params.top_k > 0) llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_k(params.top_k));
    if (params.top_p < 1.0f) {
      if (params.top_k > 0) {
        llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_p(params.top_p, 1));
      } else {
        // llama.cpp's would sort the whole vocabulary.
        nucleus_ = params.top_p;
      }
    }
    if (params.min_p > 0.0f) llama_sampler_chain_add(chain_.get(), llama_sampler_init_min_p(params.min_p, 1));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_temp(params.temperature));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_dist(params.seed.value_or(LLAMA_DEFAULT_SEED)));
  }
  if (format_) grammar_ = format_->make_grammar();
  grammar_on_ = grammar_ != nullptr && format_->grammar_after().empty();
}

Sampler::~Sampler() = default;

const float* Sampler::with_bias(const float* logits) {
  if (bias_.empty()) return logits;
  biased_.assign(logits, logits + vocab_.size());
  for (const auto& [token, value] : bias_) biased_[static_cast<size_t>(token)] += value;
  return biased_.data();
}

Token Sampler::choose(const float* logits, bool with_grammar) {
  const auto size = static_cast<size_t>(vocab_.size());
  logits = with_bias(logits);
  if (plain_greedy_ && !with_grammar) return largest_logit(logits, size);
  candidates_.resize(size);
  for (size_t index = 0; index < size; ++index) candidates_[index] = {static_cast<Token>(index), logits[index], 0.0f};
  llama_token_data_array array{candidates_.data(), candidates_.size(), -1, false};
  if (with_grammar) llama_sampler_apply(grammar_.get(), &array);
  if (with_grammar || !bias_.empty()) {
    // What is forbidden must not come back, not even when nothing else is left.
    const auto end =
        std::remove_if(array.data, array.data + array.size, [](const llama_token_data& d) { return d.logit == -INFINITY; });
    array.size = static_cast<size_t>(end - array.data);
    if (array.size == 0) return -1;
  }
  if (penalties_) llama_sampler_apply(penalties_.get(), &array);
  if (nucleus_ < 1.0f) {
    array.size = keep_nucleus(array.data, array.size, nucleus_);
    array.sorted = true;
  }
  llama_sampler_apply(chain_.get(), &array);
  if (array.selected < 0 || array.selected >= static_cast<int64_t>(array.size)) return -1;
  return array.data[array.selected].id;
}

bool Sampler::grammar_allows(Token token) {
  llama_token_data one{token, 1.0f, 0.0f};
  llama_token_data_array array{&one, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &array);
  return one.logit != -INFINITY;
}

void Sampler::accept(Token token) {
  if (penalties_) llama_sampler_accept(penalties_.get(), token);
  llama_sampler_accept(chain_.get(), token);
  if (!grammar_) return;
  if (grammar_on_) {
    llama_sampler_accept(grammar_.get(), token);
    return;
  }
  before_grammar_ += vocab_.token_bytes(token, true);
  if (before_grammar_.find(format_->grammar_after()) != std::string::npos) grammar_on_ = true;
  if (before_grammar_.size() > kGrammarTailBytes) before_grammar_.erase(0, before_grammar_.size() - kGrammarTailBytes / 2);
}

Result<Token> Sampler::sample(const float* logits) {
  try {
    Token token = choose(logits, false);
    if (grammar_on_ && (token < 0 || !grammar_allows(token))) token = choose(logits, true);
    if (token < 0) {
      return fail(
          ErrorCode::kInvalidArgument,
          "no token of this model is left that the request allows: its constraint, or its biases, cannot be met from here on");
    }
    accept(token);
    return token;
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, fmt::format("the constraint could not go on: {}", e.what()));
  }
}

TokenLogprob Sampler::logprob(const float* logits, Token chosen, int top) const {
  const auto size = static_cast<size_t>(vocab_.size());
  const float largest = *std::max_element(logits, logits + size);
  double sum = 0;
  for (size_t index = 0; index < size; ++index) sum += std::exp(static_cast<double>(logits[index] - largest));
  const float log_sum = largest + static_cast<float>(std::log(sum));
  const auto score = [&](Token token) { return TokenScore{token, vocab_.token_bytes(token, true), logits[token] - log_sum}; };
  TokenLogprob out{score(chosen), {}};
  if (top <= 0) return out;
  std::vector<Token> order(size);
  for (size_t index = 0; index < size; ++index) order[index] = static_cast<Token>(index);
  const size_t wanted = std::min(size, static_cast<size_t>(top));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(wanted), order.end(),
                    [&](Token a, Token b) { return logits[a] > logits[b]; });
  for (size_t index = 0; index < wanted; ++index) out.top.push_back(score(order[index]));
  return out;
}

}  // namespace pocketfleet
