// POST /v1/responses: OpenAI's newer API, as far as it keeps nothing between requests. One answer is a list of items: what was
// thought, what was said, what is called. A stream tells of each item as it begins, grows and ends, and ends with the whole.

#include <boost/asio/this_coro.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/ids.h"
#include "openai/chat_run.h"
#include "openai/responses_request.h"
#include "openai/route.h"
#include "openai/wire.h"

namespace pocketfleet {

namespace asio = boost::asio;

namespace {

Json logprobs_of(const std::vector<TokenLogprob>& logprobs) {
  return chat_logprobs_json(logprobs).at("content");
}

Json text_part(const std::string& text, Json logprobs) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(logprobs)}};
}

Json reasoning_part(const std::string& text) {
  return {{"type", "reasoning_text"}, {"text", text}};
}

Json one(Json value) {
  Json array = Json::array();
  array.push_back(std::move(value));
  return array;
}

// What the answer repeats of the request.
Json echo_of(const Json& body, const ResponsesRequest& request) {
  const auto said = [&](const char* key, Json otherwise) {
    const auto found = body.find(key);
    return found == body.end() || found->is_null() ? std::move(otherwise) : *found;
  };
  Json echo = {{"background", false},
               {"instructions", said("instructions", nullptr)},
               {"max_output_tokens", said("max_output_tokens", nullptr)},
               {"metadata", said("metadata", Json::object())},
               {"parallel_tool_calls", request.input.parallel_tool_calls},
               {"previous_response_id", nullptr},
               {"reasoning", said("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
               {"store", false},
               {"temperature", request.generation.sampling.temperature},
               {"text", said("text", {{"format", {{"type", "text"}}}})},
               {"tool_choice", said("tool_choice", "auto")},
               {"tools", said("tools", Json::array())},
               {"top_p", request.generation.sampling.top_p},
               {"truncation", "disabled"}};
  if (body.contains("user")) echo["user"] = body["user"];
  return echo;
}

class ResponsesAnswer final : public ChatRun {
 public:
  ResponsesAnswer(RouteContext& context, const ResponsesRequest& request, Json echo, RenderedChat rendered)
      : ChatRun(context, request.generation, request.top_logprobs, std::move(rendered)), response_(std::move(echo)) {
    response_["id"] = make_id("resp_");
    response_["object"] = "response";
    response_["created_at"] = context.clock.unix_ms() / 1000;
    response_["model"] = context.options.model_name;
    response_["status"] = "in_progress";
    response_["error"] = nullptr;
    response_["incomplete_details"] = nullptr;
    response_["output"] = Json::array();
    response_["usage"] = nullptr;
  }

 private:
  enum class ItemKind { kReasoning, kMessage, kCall };

  // An item of the output while it grows.
  struct OutputItem {
    ItemKind kind = ItemKind::kMessage;
    std::string id;
    std::string text;  // arguments, of a call
    std::string call_id;
    std::string name;
    size_t tool_index = 0;
    std::vector<TokenLogprob> logprobs;
  };

  static Json item_json(const OutputItem& item, const char* status, bool filled) {
    switch (item.kind) {
      case ItemKind::kReasoning:
        return {{"id", item.id},
                {"type", "reasoning"},
                {"summary", Json::array()},
                {"content", filled ? one(reasoning_part(item.text)) : Json::array()},
                {"status", status}};
      case ItemKind::kMessage:
        return {{"id", item.id},
                {"type", "message"},
                {"role", "assistant"},
                {"content", filled ? one(text_part(item.text, logprobs_of(item.logprobs))) : Json::array()},
                {"status", status}};
      case ItemKind::kCall:
        break;
    }
    return {{"id", item.id},
            {"type", "function_call"},
            {"call_id", item.call_id},
            {"name", item.name},
            {"arguments", filled ? item.text : std::string()},
            {"status", status}};
  }

  asio::awaitable<void> send(const char* type, Json event) {
    event["type"] = type;
    event["sequence_number"] = sequence_++;
    co_await events_.send(event, type);
  }

  // An event about the last item.
  Json about_item(bool part) const {
    Json event = {{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
    if (part) event["content_index"] = 0;
    return event;
  }

  asio::awaitable<void> begin() {
    if (std::exchange(begun_, true)) co_return;
    Json created = {{"response", response_}};
    co_await send("response.created", created);
    co_await send("response.in_progress", std::move(created));
  }

  asio::awaitable<void> open_item(OutputItem item) {
    co_await close_item();
    items_.push_back(std::move(item));
    item_open_ = true;
    if (!streaming()) co_return;
    Json added = {{"output_index", items_.size() - 1}, {"item", item_json(items_.back(), "in_progress", false)}};
    co_await send("response.output_item.added", std::move(added));
    if (items_.back().kind == ItemKind::kCall) co_return;
    Json part = about_item(true);
    part["part"] = items_.back().kind == ItemKind::kMessage ? text_part("", Json::array()) : reasoning_part("");
    co_await send("response.content_part.added", std::move(part));
  }

  asio::awaitable<void> close_item() {
    if (!std::exchange(item_open_, false) || !streaming()) co_return;
    const OutputItem& item = items_.back();
    if (item.kind == ItemKind::kCall) {
      Json done = about_item(false);
      done["name"] = item.name;
      done["arguments"] = item.text;
      co_await send("response.function_call_arguments.done", std::move(done));
    } else {
      const bool message = item.kind == ItemKind::kMessage;
      Json done = about_item(true);
      done["text"] = item.text;
      if (message) done["logprobs"] = logprobs_of(item.logprobs);
      co_await send(message ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
      Json part = about_item(true);
      part["part"] = message ? text_part(item.text, logprobs_of(item.logprobs)) : reasoning_part(item.text);
      co_await send("response.content_part.done", std::move(part));
    }
    Json done = {{"output_index", items_.size() - 1}, {"item", item_json(item, "completed", true)}};
    co_await send("response.output_item.done", std::move(done));
  }

  asio::awaitable<void> show_delta(size_t, const ChatDelta& delta, std::vector<TokenLogprob> logprobs) override {
    co_await begin();
    co_await grow(delta, std::move(logprobs));
  }

  asio::awaitable<void> grow(const ChatDelta& delta, std::vector<TokenLogprob> logprobs) {
    const ItemKind kind = delta.kind == ChatDelta::Kind::kContent     ? ItemKind::kMessage
                          : delta.kind == ChatDelta::Kind::kReasoning ? ItemKind::kReasoning
                                                                      : ItemKind::kCall;
    const bool same =
        item_open_ && items_.back().kind == kind && (kind != ItemKind::kCall || items_.back().tool_index == delta.tool_index);
    if (!same) {
      OutputItem item;
      item.kind = kind;
      item.id = make_id(kind == ItemKind::kMessage ? "msg_" : kind == ItemKind::kReasoning ? "rs_" : "fc_");
      item.call_id = delta.tool_id.empty() ? make_id("call_") : delta.tool_id;
      item.name = delta.tool_name;
      item.tool_index = delta.tool_index;
      co_await open_item(std::move(item));
    }
    const std::string& text = kind == ItemKind::kCall ? delta.arguments : delta.text;
    OutputItem& item = items_.back();
    item.text += text;
    item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
    if (text.empty() || !streaming()) co_return;
    Json event = about_item(kind != ItemKind::kCall);
    event["delta"] = text;
    if (kind == ItemKind::kMessage) event["logprobs"] = logprobs_of(logprobs);
    co_await send(kind == ItemKind::kMessage     ? "response.output_text.delta"
                  : kind == ItemKind::kReasoning ? "response.reasoning_text.delta"
                                                 : "response.function_call_arguments.delta",
                  std::move(event));
  }

  asio::awaitable<void> show_end(size_t, std::vector<TokenLogprob> logprobs) override {
    co_await begin();
    if (item_open_ && items_.back().kind == ItemKind::kMessage)
      items_.back().logprobs.insert(items_.back().logprobs.end(), logprobs.begin(), logprobs.end());
    co_await close_item();
  }

  asio::awaitable<void> show_error(const Error& error) override {
    co_await begin();
    response_["status"] = "failed";
    response_["error"] = {{"code", "server_error"}, {"message", error.message}};
    Json failed = {{"response", response_}};
    co_await send("response.failed", std::move(failed));
    co_await events_.end();
  }

  asio::awaitable<void> show_finish() override {
    const AssistantMessage& message = choices_[0].message;
    if (!streaming()) {
      const std::vector<TokenLogprob> none;
      ChatDelta delta;
      if (!message.reasoning.empty()) {
        delta.kind = ChatDelta::Kind::kReasoning;
        delta.text = message.reasoning;
        co_await grow(delta, none);
      }
      if (!message.content.empty()) {
        delta.kind = ChatDelta::Kind::kContent;
        delta.text = message.content;
        co_await grow(delta, message.logprobs);
      }
      for (size_t index = 0; index < message.tool_calls.size(); ++index) {
        const ToolCall& call = message.tool_calls[index];
        ChatDelta called;
        called.kind = ChatDelta::Kind::kToolCall;
        called.tool_index = index;
        called.tool_id = call.id;
        called.tool_name = call.name;
        called.arguments = call.arguments;
        co_await grow(called, none);
      }
    }
    // An empty answer is a message too.
    if (items_.empty()) {
      if (streaming()) co_await begin();
      OutputItem item;
      item.id = make_id("msg_");
      co_await open_item(std::move(item));
      co_await close_item();
    }
    const bool cut = choices_[0].reason == FinishReason::kLength;
    for (size_t index = 0; index < items_.size(); ++index) {
      const bool last = index + 1 == items_.size();
      response_["output"].push_back(item_json(items_[index], cut && last ? "incomplete" : "completed", true));
    }
    response_["status"] = cut ? "incomplete" : "completed";
    if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    response_["completed_at"] = context_.clock.unix_ms() / 1000;
    response_["usage"] = {{"input_tokens", usage_.prompt_tokens},
                          {"input_tokens_details", {{"cached_tokens", usage_.cached_tokens}}},
                          {"output_tokens", usage_.written_tokens},
                          {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens()}}},
                          {"total_tokens", usage_.prompt_tokens + usage_.written_tokens}};
    if (!streaming()) {
      co_await send_json(context_, 200, response_);
      co_return;
    }
    Json last = {{"response", response_}};
    co_await send(cut ? "response.incomplete" : "response.completed", std::move(last));
    co_await events_.end();
  }

  const char* prompt_param() const override { return "input"; }

  Json response_;
  std::vector<OutputItem> items_;
  bool item_open_ = false;
  bool begun_ = false;
  int64_t sequence_ = 0;
};

asio::awaitable<void> respond(RouteContext& context) {
  const auto body = read_model_body(context);
  if (!body) {
    co_await send_error(context, body.error());
    co_return;
  }
  const ChatDefaults defaults{context.options.thinking, context.engine.model().vocabulary};
  auto request = read_responses_request(*body, defaults);
  if (!request) {
    co_await send_error(context, request.error());
    co_return;
  }
  auto rendered = context.engine.render_chat(request->input);
  if (!rendered) {
    co_await send_error(context, rendered.error());
    co_return;
  }
  ResponsesAnswer answer(context, *request, echo_of(*body, *request), *std::move(rendered));
  co_await answer.run();
}

}  // namespace

void add_responses_routes(Router& router) {
  router.add_v1("POST", "/responses", respond);
}

}  // namespace pocketfleet
