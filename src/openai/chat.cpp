// POST /v1/chat/completions.

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ids.h"
#include "openai/chat_request.h"
#include "openai/engine_events.h"
#include "openai/event_stream.h"
#include "openai/held_logprobs.h"
#include "openai/route.h"
#include "openai/wire.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

// One of the n answers while it is being written.
struct Choice {
  std::unique_ptr<ChatOutputParser> parser;
  AssistantMessage message;
  HeldLogprobs held_logprobs;
  int held_tokens = 0;  // of text that the parser holds back
  FinishReason reason = FinishReason::kStop;
};

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

Result<ChatRequest> read_request(RouteContext& context) {
  PF_TRY(const Json body, read_body(context.request));
  // Says that the model is still being loaded before anything else is looked at.
  PF_CHECK_OK(context.engine.tokenize("", false, false));
  PF_CHECK_OK(check_model(context.options, body));
  return read_chat_request(body, {context.options.thinking, context.engine.model().vocabulary});
}

// An overlong prompt is the messages' fault.
Error about_messages(Error error) {
  if (error.code == ErrorCode::kContextLengthExceeded && error.param.empty()) error.param = "messages";
  return error;
}

// How long the caller can be sure to hear something: a stream says something at least so often, an answer in one piece does not.
Patience patience_of(const RouteContext& context, bool stream) {
  return caller_patience(context, stream ? context.options.ping_interval_ms : 0);
}

class ChatAnswer {
 public:
  ChatAnswer(RouteContext& context, const ChatRequest& request, RenderedChat rendered)
      : context_(context), request_(request), rendered_(std::move(rendered)), events_(context.writer) {
    head_ = {make_id("chatcmpl-"), context.options.model_name, context.clock.unix_ms() / 1000};
  }

  asio::awaitable<void> run() {
    const auto count = static_cast<size_t>(request_.generation.n);
    choices_.resize(count);
    auto mailbox = std::make_shared<GenerateMailbox>();
    for (size_t index = 0; index < count; ++index) {
      choices_[index].parser = rendered_.format->make_parser();
      choices_[index].message.wants_logprobs = request_.top_logprobs >= 0;
      auto accepted = context_.engine.generate(make_request(index), std::make_shared<MailboxSink>(mailbox, index));
      if (!accepted) {
        // What was accepted before it is taken back.
        cancel_.cancel();
        co_await send_error(context_, about_messages(accepted.error()));
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
    co_await finish();
  }

 private:
  bool streaming() const { return request_.generation.stream; }

  GenerateRequest make_request(size_t index) {
    GenerateRequest made;
    made.id = context_.record.id;
    made.prompt = rendered_.prompt;
    made.sampling = request_.generation.sampling;
    // The same seed would write the same text n times.
    if (made.sampling.seed) *made.sampling.seed += static_cast<uint32_t>(index);
    made.format = rendered_.format;
    made.max_tokens = request_.generation.max_tokens.value_or(-1);
    made.stop = request_.generation.stop;
    made.stop.insert(made.stop.end(), rendered_.stops.begin(), rendered_.stops.end());
    made.ignore_eos = request_.generation.ignore_eos;
    made.top_logprobs = request_.top_logprobs;
    const Patience patience = patience_of(context_, streaming());
    made.deadline_ms = patience.deadline_ms;
    made.admit_by_ms = patience.admit_by_ms;
    made.cancel = cancel_;
    return made;
  }

  asio::awaitable<void> take_chunk(size_t index, GenerateChunk& chunk) {
    Choice& choice = choices_[index];
    choice.held_logprobs.add(std::move(chunk.logprobs));
    choice.held_tokens += chunk.tokens;
    if (chunk.text.empty()) co_return;
    const std::vector<ChatDelta> deltas = choice.parser->push(chunk.text);
    co_await take_deltas(index, deltas);
  }

  asio::awaitable<void> take_deltas(size_t index, const std::vector<ChatDelta>& deltas) {
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
      if (!streaming()) {
        std::move(logprobs.begin(), logprobs.end(), std::back_inserter(choice.message.logprobs));
        continue;
      }
      co_await begin_choices();
      Json shown;
      if (!logprobs.empty()) shown = chat_logprobs_json(logprobs);
      co_await events_.send(chat_chunk_json(head_, index, chat_delta_json(delta), nullptr, std::move(shown)));
    }
  }

  // The first chunk of each choice names the role.
  asio::awaitable<void> begin_choices() {
    if (begun_) co_return;
    begun_ = true;
    for (size_t index = 0; index < choices_.size(); ++index) {
      Json delta = {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}};
      co_await events_.send(chat_chunk_json(head_, index, std::move(delta), nullptr, nullptr));
    }
  }

  asio::awaitable<void> end_choice(size_t index) {
    Choice& choice = choices_[index];
    const std::vector<ChatDelta> deltas = choice.parser->finish();
    co_await take_deltas(index, deltas);
    std::vector<TokenLogprob> logprobs = choice.held_logprobs.take_all();
    // Behind reasoning or a call, what is left belongs to their marks.
    if (!choice.message.reasoning.empty() || !choice.message.tool_calls.empty()) logprobs.clear();
    if (!streaming()) {
      std::move(logprobs.begin(), logprobs.end(), std::back_inserter(choice.message.logprobs));
      co_return;
    }
    co_await begin_choices();
    Json shown;
    if (!logprobs.empty()) shown = chat_logprobs_json(logprobs);
    const char* reason = finish_reason_name(choice.reason, !choice.message.tool_calls.empty());
    co_await events_.send(chat_chunk_json(head_, index, Json::object(), reason, std::move(shown)));
  }

  asio::awaitable<void> give_error(const Error& error) {
    if (!events_.open()) {
      co_await send_error(context_, error);
      co_return;
    }
    context_.record.error = error_name(error.code);
    co_await events_.send(error_json(error));
    co_await events_.done();
  }

  asio::awaitable<void> finish() {
    int reasoning_tokens = 0;
    for (const Choice& choice : choices_) reasoning_tokens += choice.message.reasoning_tokens;
    if (streaming()) {
      if (request_.generation.include_usage) {
        Json last = chat_chunk_json(head_, 0, Json::object(), nullptr, nullptr);
        last["choices"] = Json::array();
        last["usage"] = usage_json(usage_, reasoning_tokens);
        last["timings"] = timings_json(usage_);
        co_await events_.send(last);
      }
      co_await events_.done();
      co_return;
    }
    Json choices = Json::array();
    for (size_t index = 0; index < choices_.size(); ++index)
      choices.push_back(chat_choice_json(index, choices_[index].message, choices_[index].reason));
    co_await send_json(context_, 200, chat_answer_json(head_, std::move(choices), usage_, reasoning_tokens));
  }

  RouteContext& context_;
  const ChatRequest& request_;
  RenderedChat rendered_;
  EventStream events_;
  AnswerHead head_;
  // Set by the connection when the client goes, and here when one of n answers fails and the others are of no use.
  CancelToken cancel_ = context_.request.gone;
  std::vector<Choice> choices_;
  Usage usage_;
  bool begun_ = false;
};

// One of a few texts: scored in one pass instead of being written.
asio::awaitable<void> answer_choice(RouteContext& context, const ChatRequest& request, RenderedChat rendered) {
  auto labels = context.engine.prepare_labels("", request.generation.choices);
  if (!labels) {
    Error error = labels.error();
    error.param = request.generation.choices_param;
    co_await send_error(context, error);
    co_return;
  }
  auto set = std::make_shared<const LabelSet>(*std::move(labels));
  ScoreRequest score;
  score.id = context.record.id;
  score.labels = set;
  score.cancel = context.request.gone;
  const Patience patience = patience_of(context, request.generation.stream);
  score.deadline_ms = patience.deadline_ms;
  score.admit_by_ms = patience.admit_by_ms;
  score.inputs.push_back(std::move(rendered.prompt));
  Tokens& tokens = score.inputs[0].tokens;
  tokens.insert(tokens.end(), set->forced.begin(), set->forced.end());
  auto mailbox = std::make_shared<ScoreMailbox>();
  auto accepted = context.engine.score(std::move(score), std::make_shared<ScoreMailboxSink>(mailbox, 1));
  if (!accepted) {
    co_await send_error(context, about_messages(accepted.error()));
    co_return;
  }
  EventStream events(context.writer);
  std::optional<ScoreAnswer> answer;
  while (!answer) {
    answer = co_await mailbox->pop(request.generation.stream ? context.options.ping_interval_ms : -1);
    if (!answer) co_await events.ping();
    if (events.gone()) context.request.gone.cancel();
  }
  if (!answer->done) {
    if (events.open()) {
      context.record.error = error_name(answer->done.error().code);
      co_await events.send(error_json(answer->done.error()));
      co_await events.done();
    } else {
      co_await send_error(context, answer->done.error());
    }
    co_return;
  }
  const std::vector<double>& p = answer->probabilities[0];
  const auto best = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  Usage usage = *answer->done;
  // The labels' own first tokens were read with the prompt; they are the answer's, not the caller's.
  usage.prompt_tokens -= static_cast<int>(set->forced.size());
  usage.written_tokens = static_cast<int>(set->forced.size() + set->labels[best].size());
  context.record.usage = usage;

  const AnswerHead head{make_id("chatcmpl-"), context.options.model_name, context.clock.unix_ms() / 1000};
  AssistantMessage message;
  message.content = request.generation.choices[best];
  if (!request.generation.stream) {
    Json choices = Json::array();
    for (int index = 0; index < request.generation.n; ++index)
      choices.push_back(chat_choice_json(static_cast<size_t>(index), message, FinishReason::kStop));
    co_await send_json(context, 200, chat_answer_json(head, std::move(choices), usage, 0));
    co_return;
  }
  for (int index = 0; index < request.generation.n; ++index) {
    const auto at = static_cast<size_t>(index);
    Json delta = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
    co_await events.send(chat_chunk_json(head, at, std::move(delta), nullptr, nullptr));
    co_await events.send(chat_chunk_json(head, at, Json::object(), "stop", nullptr));
  }
  if (request.generation.include_usage) {
    Json last = chat_chunk_json(head, 0, Json::object(), nullptr, nullptr);
    last["choices"] = Json::array();
    last["usage"] = usage_json(usage, 0);
    co_await events.send(last);
  }
  co_await events.done();
}

asio::awaitable<void> chat(RouteContext& context) {
  auto request = read_request(context);
  if (!request) {
    co_await send_error(context, request.error());
    co_return;
  }
  auto rendered = context.engine.render_chat(request->input);
  if (!rendered) {
    co_await send_error(context, rendered.error());
    co_return;
  }
  if (!request->generation.choices.empty()) {
    co_await answer_choice(context, *request, *std::move(rendered));
    co_return;
  }
  ChatAnswer answer(context, *request, *std::move(rendered));
  co_await answer.run();
}

}  // namespace

void add_chat_routes(Router& router) {
  router.add_v1("POST", "/chat/completions", chat);
}

}  // namespace pocketfleet
