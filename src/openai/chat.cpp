// POST /v1/chat/completions.

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ids.h"
#include "openai/chat_request.h"
#include "openai/chat_run.h"
#include "openai/engine_events.h"
#include "openai/event_stream.h"
#include "openai/route.h"
#include "openai/wire.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

Result<ChatRequest> read_request(RouteContext& context) {
  PF_TRY(const Json body, read_model_body(context));
  return read_chat_request(body, {context.options.thinking, context.engine.model().vocabulary});
}

class ChatAnswer final : public ChatRun {
 public:
  ChatAnswer(RouteContext& context, const ChatRequest& request, RenderedChat rendered)
      : ChatRun(context, request.generation, request.top_logprobs, std::move(rendered)),
        head_{make_id("chatcmpl-"), context.options.model_name, context.clock.unix_ms() / 1000} {}

 private:
  asio::awaitable<void> show_delta(size_t index, const ChatDelta& delta, std::vector<TokenLogprob> logprobs) override {
    co_await begin_choices();
    Json shown;
    if (!logprobs.empty()) shown = chat_logprobs_json(logprobs);
    co_await events_.send(chat_chunk_json(head_, index, chat_delta_json(delta), nullptr, std::move(shown)));
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

  asio::awaitable<void> show_end(size_t index, std::vector<TokenLogprob> logprobs) override {
    co_await begin_choices();
    Json shown;
    if (!logprobs.empty()) shown = chat_logprobs_json(logprobs);
    const char* reason = finish_reason_name(choices_[index].reason, !choices_[index].message.tool_calls.empty());
    co_await events_.send(chat_chunk_json(head_, index, Json::object(), reason, std::move(shown)));
  }

  asio::awaitable<void> show_error(const Error& error) override {
    co_await events_.send(error_json(error));
    co_await events_.done();
  }

  asio::awaitable<void> show_finish() override {
    if (streaming()) {
      if (generation_.include_usage) {
        Json last = chat_chunk_json(head_, 0, Json::object(), nullptr, nullptr);
        last["choices"] = Json::array();
        last["usage"] = usage_json(usage_, reasoning_tokens());
        last["timings"] = timings_json(usage_);
        co_await events_.send(last);
      }
      co_await events_.done();
      co_return;
    }
    Json choices = Json::array();
    for (size_t index = 0; index < choices_.size(); ++index)
      choices.push_back(chat_choice_json(index, choices_[index].message, choices_[index].reason));
    co_await send_json(context_, 200, chat_answer_json(head_, std::move(choices), usage_, reasoning_tokens()));
  }

  const char* prompt_param() const override { return "messages"; }

  const AnswerHead head_;
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
  const Patience patience = chat_patience(context, request.generation.stream);
  score.deadline_ms = patience.deadline_ms;
  score.admit_by_ms = patience.admit_by_ms;
  score.inputs.push_back(std::move(rendered.prompt));
  Tokens& tokens = score.inputs[0].tokens;
  tokens.insert(tokens.end(), set->forced.begin(), set->forced.end());
  auto mailbox = std::make_shared<ScoreMailbox>();
  auto accepted = context.engine.score(std::move(score), std::make_shared<ScoreMailboxSink>(mailbox, 1));
  if (!accepted) {
    co_await send_error(context, blame_prompt(accepted.error(), "messages"));
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
