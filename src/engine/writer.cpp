#include "engine/writer.h"

namespace pocketfleet {

Writer::Writer(const Vocab& vocab, const GenerateRequest& request, std::shared_ptr<const LlamaFormat> format,
               const Tokens& prompt)
    : vocab_(vocab),
      format_(std::move(format)),
      sampler_(vocab, request.sampling, format_, prompt, request.ignore_eos),
      text_(request.stop),
      max_tokens_(request.max_tokens),
      top_logprobs_(request.top_logprobs) {}

Result<std::unique_ptr<Writer>> Writer::create(const Vocab& vocab, const GenerateRequest& request, const Tokens& prompt) {
  std::shared_ptr<const LlamaFormat> format;
  if (request.format) {
    format = std::dynamic_pointer_cast<const LlamaFormat>(request.format);
    if (!format) return fail(ErrorCode::kInternal, "the output format belongs to another engine");
  }
  return std::unique_ptr<Writer>(new Writer(vocab, request, std::move(format), prompt));
}

Result<Writer::Step> Writer::write(const float* logits, bool context_full) {
  Step step;
  PF_TRY(last_, sampler_.sample(logits));
  ++written_;
  if (vocab_.is_end_of_generation(last_)) {
    step.finished = true;
    text_.finish(step.chunk);
    return step;
  }
  const std::string bytes = vocab_.token_bytes(last_, format_ && format_->shows(last_));
  if (top_logprobs_ >= 0) {
    const TokenLogprob logprob = sampler_.logprob(logits, last_, top_logprobs_);
    text_.push(bytes, &logprob, step.chunk);
  } else {
    text_.push(bytes, nullptr, step.chunk);
  }
  if (text_.stopped()) {
    step.finished = true;
  } else if ((max_tokens_ >= 0 && written_ >= max_tokens_) || context_full) {
    step.finished = true;
    step.reason = FinishReason::kLength;
  }
  if (step.finished) text_.finish(step.chunk);
  return step;
}

}  // namespace pocketfleet
