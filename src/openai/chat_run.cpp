#include "openai/chat_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "openai/engine_events.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

void add_usage(Usage& sum, const Usage& one) {
  // Choices share one prompt; it is counted once.
  sum.prompt_tokens = one.prompt_tokens;
  sum.cached_tokens = std::max(sum.cached_tokens, one.cached_tokens);
  sum.written_tokens += one.written_tokens;
  sum.predicted_wait_ms = std::max(sum.predicted_wait_ms, one.predicted_wait_ms);
  sum.wait_ms = std::max(sum.wait_ms, one.wait_ms);
  sum.read_ms = std::max(sum.read_ms, one.read_ms);
  sum.write_ms = std::max(sum.write_ms, one.write_ms);
}

}  // namespace

Patience chat_patience(const RouteContext& context, bool stream) {
  return caller_patience(context, stream ? context.options.ping_interval_ms : 0);
}

Error blame_prompt(Error error, const char* param) {
  if (error.code == ErrorCode::kContextLengthExceeded && error.param.empty()) error.param = param;
  return error;
}

ChatRun::ChatRun(RouteContext& context, const GenerationParams& generation, int top_logprobs, RenderedChat rendered)
    : context_(context),
      generation_(generation),
      events_(context.writer),
      top_logprobs_(top_logprobs),
      rendered_(std::move(rendered)) {}

int ChatRun::reasoning_tokens() const {
  int sum = 0;
  for (const Choice& choice : choices_) sum += choice.message.reasoning_tokens;
  return sum;
}

asio::awaitable<void> ChatRun::run() {
  const auto count = static_cast<size_t>(generation_.n);
  choices_.resize(count);
  auto mailbox = std::make_shared<GenerateMailbox>();
  for (size_t index = 0; index < count; ++index) {
    choices_[index].parser = rendered_.format->make_parser();
    choices_[index].message.wants_logprobs = top_logprobs_ >= 0;
    auto accepted = context_.engine.generate(make_request(index), std::make_shared<MailboxSink>(mailbox, index));
    if (!accepted) {
      // What was accepted before it is taken back.
      cancel_.cancel();
      co_await send_error(context_, blame_prompt(accepted.error(), prompt_param()));
      co_return;
    }
  }
  size_t left = count;
  while (left > 0) {
    std::optional<GenerateEvent> event = co_await mailbox->pop(streaming() ? context_.options.ping_interval_ms : 1'000);
    if (!event) {
      if (streaming()) co_await events_.ping();
      if (events_.gone()) cancel_.cancel();
      continue;
    }
    Choice& choice = choices_[event->choice];
    if (event->done && !*event->done) {
      cancel_.cancel();
      co_await give_error(event->done->error());
      co_return;
    }
    co_await take_chunk(event->choice, event->chunk);
    if (event->done) {
      const GenerateDone& done = **event->done;
      choice.reason = done.reason;
      add_usage(usage_, done.usage);
      co_await end_choice(event->choice);
      --left;
    }
    if (events_.gone()) cancel_.cancel();
  }
  context_.record.usage = usage_;
  co_await show_finish();
}

GenerateRequest ChatRun::make_request(size_t index) const {
  GenerateRequest made;
  made.id = context_.record.id;
  made.prompt = rendered_.prompt;
  made.sampling = generation_.sampling;
  // The same seed would write the same text n times.
  if (made.sampling.seed) *made.sampling.seed += static_cast<uint32_t>(index);
  made.format = rendered_.format;
  made.max_tokens = generation_.max_tokens.value_or(-1);
  made.stop = generation_.stop;
  made.stop.insert(made.stop.end(), rendered_.stops.begin(), rendered_.stops.end());
  made.ignore_eos = generation_.ignore_eos;
  made.top_logprobs = top_logprobs_;
  const Patience patience = chat_patience(context_, streaming());
  made.deadline_ms = patience.deadline_ms;
  made.admit_by_ms = patience.admit_by_ms;
  made.cancel = cancel_;
  return made;
}

asio::awaitable<void> ChatRun::take_chunk(size_t index, GenerateChunk& chunk) {
  Choice& choice = choices_[index];
  choice.held_logprobs.add(std::move(chunk.logprobs));
  choice.held_tokens += chunk.tokens;
  if (chunk.text.empty()) co_return;
  const std::vector<ChatDelta> deltas = choice.parser->push(chunk.text);
  co_await take_deltas(index, deltas);
}

asio::awaitable<void> ChatRun::take_deltas(size_t index, const std::vector<ChatDelta>& deltas) {
  Choice& choice = choices_[index];
  for (const ChatDelta& delta : deltas) {
    choice.message.apply(delta);
    const int tokens = std::exchange(choice.held_tokens, 0);
    if (delta.kind == ChatDelta::Kind::kReasoning) choice.message.reasoning_tokens += tokens;
    std::vector<TokenLogprob> logprobs;
    if (delta.kind == ChatDelta::Kind::kContent) {
      logprobs = choice.held_logprobs.take(delta.text);
    } else if (delta.kind == ChatDelta::Kind::kReasoning) {
      choice.held_logprobs.skip(delta.text);
    } else if (deltas.size() == 1) {
      choice.held_logprobs.drop();
    }
    choice.message.logprobs.insert(choice.message.logprobs.end(), logprobs.begin(), logprobs.end());
    if (streaming()) co_await show_delta(index, delta, std::move(logprobs));
  }
}

asio::awaitable<void> ChatRun::end_choice(size_t index) {
  Choice& choice = choices_[index];
  const std::vector<ChatDelta> deltas = choice.parser->finish();
  co_await take_deltas(index, deltas);
  std::vector<TokenLogprob> logprobs = choice.held_logprobs.take_all();
  // Behind reasoning or a call, what is left belongs to their marks.
  if (!choice.message.reasoning.empty() || !choice.message.tool_calls.empty()) logprobs.clear();
  choice.message.logprobs.insert(choice.message.logprobs.end(), logprobs.begin(), logprobs.end());
  if (streaming()) co_await show_end(index, std::move(logprobs));
}

asio::awaitable<void> ChatRun::give_error(const Error& error) {
  if (!events_.open()) {
    co_await send_error(context_, error);
    co_return;
  }
  context_.record.error = error_name(error.code);
  co_await show_error(error);
}

}  // namespace pocketfleet
