// POST /v1/completions: the legacy API, for plain text and for token ids.

#include <fmt/format.h>

#include <boost/asio/this_coro.hpp>
#include <nlohmann/json.hpp>

#include "base/ids.h"
#include "openai/engine_events.h"
#include "openai/event_stream.h"
#include "openai/generation_params.h"
#include "openai/route.h"
#include "openai/wire.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

constexpr size_t kMostPrompts = 64;
constexpr int kDefaultTokens = 16;  // OpenAI's

struct CompletionRequest {
  std::vector<Prompt> prompts;
  std::vector<std::string> texts;  // of the prompts, for echo
  GenerationParams generation;
  std::shared_ptr<const OutputFormat> format;
  int logprobs = -1;
  bool echo = false;
};

Result<void> read_prompts(const Engine& engine, const Json& prompt, int vocabulary, bool parse_special,
                          CompletionRequest& request) {
  const auto add_text = [&](const Json& item) -> Result<void> {
    Prompt made;
    PF_CHECK_OK(engine.check_length(item.get_ref<const std::string&>()));
    PF_TRY(made.tokens, engine.tokenize(item.get_ref<const std::string&>(), true, parse_special));
    request.texts.push_back(item.get<std::string>());
    request.prompts.push_back(std::move(made));
    return {};
  };
  const auto add_tokens = [&](const Json& item) -> Result<void> {
    Prompt made;
    PF_TRY(made.tokens, read_token_ids(item, "prompt", vocabulary));
    PF_TRY(std::string text, engine.detokenize(made.tokens, true));
    request.texts.push_back(std::move(text));
    request.prompts.push_back(std::move(made));
    return {};
  };
  if (prompt.is_string()) return add_text(prompt);
  if (!prompt.is_array() || prompt.empty()) {
    return fail(ErrorCode::kInvalidArgument, "prompt must be a string, an array of strings, or token ids, and not empty",
                "prompt");
  }
  if (prompt.front().is_number()) return add_tokens(prompt);
  if (prompt.size() > kMostPrompts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("prompt holds {} prompts; at most {} are accepted", prompt.size(), kMostPrompts), "prompt");
  }
  for (const Json& item : prompt) {
    if (item.is_string()) {
      PF_CHECK_OK(add_text(item));
    } else if (item.is_array() && !item.empty()) {
      PF_CHECK_OK(add_tokens(item));
    } else {
      return fail(ErrorCode::kInvalidArgument, "prompt must be a string, an array of strings, or token ids", "prompt");
    }
  }
  return {};
}

Result<CompletionRequest> read_request(RouteContext& context) {
  PF_TRY(const Json body, read_model_body(context));
  const int vocabulary = context.engine.model().vocabulary;
  ParamReader reader(body);
  CompletionRequest request;
  reader.accept({"model", "user", "cache_prompt"});
  request.generation = read_generation_params(reader, vocabulary);
  request.logprobs = static_cast<int>(reader.integer("logprobs", 0, 5).value_or(-1));
  request.echo = reader.boolean("echo").value_or(false);
  if (const auto best_of = reader.integer("best_of", 1, kMostChoices); best_of && *best_of != request.generation.n) {
    reader.refuse("best_of", "best_of must equal n", ErrorCode::kUnsupportedParameter);
  }
  if (reader.any("suffix") != nullptr) reader.refuse("suffix", "suffix is not supported", ErrorCode::kUnsupportedParameter);
  if (request.echo && request.logprobs >= 0)
    reader.refuse("echo", "echo cannot be combined with logprobs", ErrorCode::kUnsupportedParameter);
  if (!request.generation.choices.empty()) {
    reader.refuse(request.generation.choices_param, "a choice needs /v1/chat/completions or /v1/classify",
                  ErrorCode::kUnsupportedParameter);
  }
  // Off unless asked for: a prompt often holds text that somebody else wrote.
  const bool parse_special = reader.boolean("parse_special").value_or(false);
  const Json* prompt = reader.any("prompt");
  if (prompt == nullptr) reader.refuse("prompt", "prompt is missing");
  PF_CHECK_OK(reader.finish());
  PF_CHECK_OK(read_prompts(context.engine, *prompt, vocabulary, parse_special, request));
  PF_TRY(request.format, context.engine.compile(request.generation.constraint));
  return request;
}

class CompletionAnswer {
 public:
  CompletionAnswer(RouteContext& context, const CompletionRequest& request)
      : context_(context), request_(request), events_(context.writer) {
    head_ = {make_id("cmpl-"), context.options.model_name, context.clock.unix_ms() / 1000};
  }

  asio::awaitable<void> run() {
    const auto each = static_cast<size_t>(request_.generation.n);
    choices_.resize(request_.prompts.size() * each);
    auto mailbox = std::make_shared<GenerateMailbox>();
    for (size_t index = 0; index < choices_.size(); ++index) {
      if (request_.echo) choices_[index].text = request_.texts[index / each];
      auto accepted =
          context_.engine.generate(make_request(index / each, index % each), std::make_shared<MailboxSink>(mailbox, index));
      if (!accepted) {
        cancel_.cancel();
        Error error = accepted.error();
        if (error.param.empty() && map_error(error.code).http_status == 400) error.param = "prompt";
        co_await send_error(context_, error);
        co_return;
      }
    }
    size_t left = choices_.size();
    while (left > 0) {
      std::optional<GenerateEvent> event = co_await mailbox->pop(streaming() ? context_.options.ping_interval_ms : -1);
      if (!event) {
        co_await events_.ping();
        if (events_.gone()) cancel_.cancel();
        continue;
      }
      if (event->done && !*event->done) {
        cancel_.cancel();
        const Error& error = event->done->error();
        if (!events_.open()) {
          co_await send_error(context_, error);
        } else {
          context_.record.error = error_name(error.code);
          co_await events_.send(error_json(error));
          co_await events_.done();
        }
        co_return;
      }
      Choice& choice = choices_[event->choice];
      const size_t before = choice.characters;
      for (const TokenLogprob& logprob : event->chunk.logprobs) choice.logprobs.push_back(logprob);
      for (const char c : event->chunk.text) choice.characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
      if (streaming()) {
        co_await stream_piece(event->choice, before, *event);
        if (events_.gone()) cancel_.cancel();
      } else {
        choice.text += event->chunk.text;
      }
      if (event->done) {
        const GenerateDone& done = **event->done;
        choice.reason = done.reason;
        const bool first_of_prompt = event->choice % each == 0;
        if (first_of_prompt) usage_.prompt_tokens += done.usage.prompt_tokens;
        usage_.cached_tokens += first_of_prompt ? done.usage.cached_tokens : 0;
        usage_.written_tokens += done.usage.written_tokens;
        usage_.predicted_wait_ms = std::max(usage_.predicted_wait_ms, done.usage.predicted_wait_ms);
        usage_.wait_ms = std::max(usage_.wait_ms, done.usage.wait_ms);
        usage_.read_ms = std::max(usage_.read_ms, done.usage.read_ms);
        usage_.write_ms = std::max(usage_.write_ms, done.usage.write_ms);
        --left;
      }
    }
    context_.record.usage = usage_;
    co_await finish();
  }

 private:
  struct Choice {
    std::string text;
    std::vector<TokenLogprob> logprobs;
    size_t characters = 0;
    bool echoed = false;
    FinishReason reason = FinishReason::kStop;
  };

  bool streaming() const { return request_.generation.stream; }

  GenerateRequest make_request(size_t prompt, size_t repeat) {
    GenerateRequest made;
    made.id = context_.record.id;
    made.prompt = request_.prompts[prompt];
    made.sampling = request_.generation.sampling;
    if (made.sampling.seed) *made.sampling.seed += static_cast<uint32_t>(repeat);
    made.format = request_.format;
    made.max_tokens = request_.generation.max_tokens.value_or(kDefaultTokens);
    made.stop = request_.generation.stop;
    made.ignore_eos = request_.generation.ignore_eos;
    made.top_logprobs = request_.logprobs;
    const Patience patience = caller_patience(context_, streaming() ? context_.options.ping_interval_ms : 0);
    made.deadline_ms = patience.deadline_ms;
    made.admit_by_ms = patience.admit_by_ms;
    made.cancel = cancel_;
    return made;
  }

  asio::awaitable<void> stream_piece(size_t index, size_t offset, const GenerateEvent& event) {
    Choice& choice = choices_[index];
    std::string text = event.chunk.text;
    if (request_.echo && !std::exchange(choice.echoed, true)) text = choice.text + text;
    Json reason;
    if (event.done) reason = finish_reason_name((*event.done)->reason, false);
    if (text.empty() && reason.is_null()) co_return;
    Json logprobs;
    if (request_.logprobs >= 0) logprobs = completion_logprobs_json(std::exchange(choice.logprobs, {}), offset);
    Json choices = Json::array();
    choices.push_back(completion_choice_json(index, std::move(text), std::move(logprobs), std::move(reason)));
    co_await events_.send(completion_json(head_, std::move(choices)));
  }

  asio::awaitable<void> finish() {
    if (streaming()) {
      if (request_.generation.include_usage) {
        Json last = completion_json(head_, Json::array());
        last["usage"] = usage_json(usage_, 0);
        co_await events_.send(last);
      }
      co_await events_.done();
      co_return;
    }
    Json choices = Json::array();
    for (size_t index = 0; index < choices_.size(); ++index) {
      Choice& choice = choices_[index];
      Json logprobs;
      if (request_.logprobs >= 0) logprobs = completion_logprobs_json(choice.logprobs, 0);
      choices.push_back(
          completion_choice_json(index, std::move(choice.text), std::move(logprobs), finish_reason_name(choice.reason, false)));
    }
    Json answer = completion_json(head_, std::move(choices));
    answer["usage"] = usage_json(usage_, 0);
    answer["timings"] = timings_json(usage_);
    co_await send_json(context_, 200, answer);
  }

  RouteContext& context_;
  const CompletionRequest& request_;
  EventStream events_;
  AnswerHead head_;
  CancelToken cancel_ = context_.request.gone;
  std::vector<Choice> choices_;
  Usage usage_;
};

asio::awaitable<void> complete(RouteContext& context) {
  auto request = read_request(context);
  if (!request) {
    co_await send_error(context, request.error());
    co_return;
  }
  CompletionAnswer answer(context, *request);
  co_await answer.run();
}

}  // namespace

void add_completion_routes(Router& router) {
  router.add_v1("POST", "/completions", complete);
}

}  // namespace pocketfleet
