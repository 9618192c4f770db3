#include "openai/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace pocketfleet {

namespace {

constexpr size_t kMostItems = 2'048;
constexpr int64_t kMostTokens = 1'000'000;

constexpr std::string_view kKeptNothing = "nothing is kept here between requests; send the whole conversation in input";

// What OpenAI's API takes and this server cannot do, and what chat completions call it otherwise.
struct Refusal {
  std::string_view key;
  std::string_view why;
};
constexpr Refusal kRefused[] = {
    {"previous_response_id", kKeptNothing},
    {"conversation", kKeptNothing},
    {"prompt", "stored prompts are not supported; send instructions and input"},
    {"context_management", "is not supported: an overlong input is refused and never shortened"},
    {"max_tool_calls", "is not supported; no tool is run here"},
    {"n", "is not supported; send one request an answer"},
    {"max_tokens", "is called max_output_tokens here"},
    {"max_completion_tokens", "is called max_output_tokens here"},
    {"response_format", "is called text.format here"},
    {"reasoning_effort", "is called reasoning.effort here"},
    {"messages", "is called input here"},
};

// A string, or an array of text parts that are put together.
std::string read_text(ParamReader& reader, std::string_view key) {
  const Json* content = reader.any(key);
  if (content == nullptr) {
    reader.refuse(key, fmt::format("{} is missing", reader.name(key)));
    return {};
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    reader.refuse(key, fmt::format("{} must be a string or an array of parts, not {}", reader.name(key), content->type_name()));
    return {};
  }
  std::string text;
  for (size_t index = 0; index < content->size() && reader.ok(); ++index) {
    const Json& part = (*content)[index];
    const std::string where = fmt::format("{}[{}]", key, index);
    if (!part.is_object()) {
      reader.refuse(where, fmt::format("{} must be an object with a type", reader.name(where)));
      return {};
    }
    ParamReader inside(part, reader.name(where) + ".");
    const std::string type = inside.string("type", 64).value_or("");
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text";
    if (!is_text && type != "refusal") {
      reader.refuse(where,
                    fmt::format("{}: parts of type \"{}\" are not supported, only text", reader.name(where), type.substr(0, 40)),
                    ErrorCode::kUnsupportedParameter);
      return {};
    }
    const char* field = is_text ? "text" : "refusal";
    const auto value = inside.string(field);
    if (!value) inside.refuse(field, fmt::format("{} is missing", inside.name(field)));
    inside.accept({"annotations", "logprobs", "prompt_cache_breakpoint"});
    reader.take(inside.finish());
    text += value.value_or("");
  }
  return text;
}

// Puts the conversation together. What an assistant thought, said and called comes as items of their own, and is one message for
// a chat template.
class Conversation {
 public:
  explicit Conversation(std::string instructions) : system_(std::move(instructions)) {}

  void read(const Json& item, size_t index, ParamReader& body) {
    const std::string where = fmt::format("input[{}]", index);
    if (!item.is_object()) {
      body.refuse(where, fmt::format("{} must be an object, not {}", where, item.type_name()));
      return;
    }
    ParamReader reader(item, where + ".");
    const std::string type = reader.string("type", 64).value_or("message");
    reader.accept({"id", "status"});
    if (type == "message") {
      read_message(reader, where);
    } else if (type == "function_call") {
      read_call(reader);
    } else if (type == "function_call_output") {
      ChatMessage message{"tool", read_text(reader, "output"), {}, {}, reader.string("call_id", 256).value_or(""), {}};
      if (message.tool_call_id.empty()) reader.refuse("call_id", fmt::format("{} is missing", reader.name("call_id")));
      messages_.push_back(std::move(message));
    } else if (type == "reasoning") {
      reader.accept({"summary", "encrypted_content"});
      if (reader.any("content") != nullptr) assistant(true).reasoning += read_text(reader, "content");
    } else {
      reader.refuse("type",
                    fmt::format("{} \"{}\" is not supported; there are message, function_call, function_call_output and "
                                "reasoning",
                                reader.name("type"), type.substr(0, 40)),
                    ErrorCode::kUnsupportedParameter);
    }
    body.take(reader.finish());
  }

  std::vector<ChatMessage> take() {
    if (!system_.empty()) messages_.insert(messages_.begin(), {"system", std::move(system_), {}, {}, {}, {}});
    return std::move(messages_);
  }

 private:
  void read_message(ParamReader& reader, const std::string& where) {
    const std::string role = reader.string("role", 64).value_or("");
    reader.accept({"phase"});
    std::string content = read_text(reader, "content");
    if (role == "system" || role == "developer") {
      // Many templates take one system message only, and only in front.
      if (!system_.empty() && !content.empty()) system_ += "\n\n";
      system_ += content;
    } else if (role == "user") {
      messages_.push_back({"user", std::move(content), {}, {}, {}, {}});
    } else if (role == "assistant") {
      ChatMessage& message = assistant(false);
      message.content = std::move(content);
    } else {
      reader.refuse("role",
                    fmt::format("{}.role must be user, assistant, system or developer, not \"{}\"", where, role.substr(0, 40)));
    }
  }

  void read_call(ParamReader& reader) {
    ToolCall call;
    call.id = reader.string("call_id", 256).value_or("");
    call.name = reader.string("name", 256).value_or("");
    call.arguments = reader.string("arguments").value_or("{}");
    if (call.id.empty()) reader.refuse("call_id", fmt::format("{} is missing", reader.name("call_id")));
    if (call.name.empty()) reader.refuse("name", fmt::format("{} is missing", reader.name("name")));
    // Templates read arguments as an object.
    if (const auto parsed = parse_json(call.arguments); !parsed || !parsed->is_object())
      reader.refuse("arguments", fmt::format("{} must be a JSON object as text", reader.name("arguments")));
    if (messages_.empty() || messages_.back().role != "assistant") messages_.push_back({"assistant", {}, {}, {}, {}, {}});
    messages_.back().tool_calls.push_back(std::move(call));
  }

  // The assistant's message that goes on being put together: one that has not said or called anything yet.
  ChatMessage& assistant(bool reasoning) {
    const bool open = !messages_.empty() && messages_.back().role == "assistant" && messages_.back().content.empty() &&
                      messages_.back().tool_calls.empty();
    if (!open || (reasoning && !messages_.back().reasoning.empty())) messages_.push_back({"assistant", {}, {}, {}, {}, {}});
    return messages_.back();
  }

  std::string system_;
  std::vector<ChatMessage> messages_;
};

void read_tools(ParamReader& reader, ChatInput& input) {
  if (const Json* tools = reader.array("tools")) {
    if (tools->size() > kMostTools) reader.refuse("tools", fmt::format("tools holds more than {} entries", kMostTools));
    for (size_t index = 0; index < tools->size() && reader.ok(); ++index) {
      const Json& item = (*tools)[index];
      const std::string where = fmt::format("tools[{}]", index);
      if (!item.is_object() || item.value("type", Json()) != "function") {
        reader.refuse(where,
                      fmt::format("{} must be {{\"type\": \"function\", \"name\": ...}}; other tools are not run here", where),
                      ErrorCode::kUnsupportedParameter);
        return;
      }
      ParamReader inside(item, where + ".");
      ToolDefinition tool;
      tool.name = inside.string("name", 256).value_or("");
      tool.description = inside.string("description").value_or("");
      const Json* parameters = inside.object("parameters");
      tool.parameters = parameters == nullptr ? R"({"type":"object","properties":{}})" : dump_json(*parameters);
      inside.accept({"type", "strict"});
      if (tool.name.empty()) inside.refuse("name", fmt::format("{} is missing", inside.name("name")));
      reader.take(inside.finish());
      input.tools.push_back(std::move(tool));
    }
  }
  input.parallel_tool_calls = reader.boolean("parallel_tool_calls").value_or(true);
  const Json* choice = reader.any("tool_choice");
  if (choice == nullptr) return;
  constexpr const char* kForms = R"(tool_choice must be "auto", "none", "required" or {"type": "function", "name": ...})";
  if (choice->is_string()) {
    if (!choose_tools(choice->get_ref<const std::string&>(), input)) reader.refuse("tool_choice", kForms);
  } else {
    const Json name = choice->is_object() && choice->value("type", Json()) == "function" ? choice->value("name", Json()) : Json();
    if (!name.is_string()) {
      reader.refuse("tool_choice", kForms);
      return;
    }
    choose_tool(reader, name.get<std::string>(), input);
  }
  check_tool_choice(reader, input);
}

void read_reasoning(ParamReader& reader, ChatInput& input) {
  const Json* reasoning = reader.object("reasoning");
  if (reasoning == nullptr) return;
  ParamReader inside(*reasoning, "reasoning.");
  // What was thought is given whole, so a summary is not needed.
  inside.accept({"summary", "generate_summary"});
  read_effort(inside, "effort", input);
  reader.take(inside.finish());
}

void read_format(ParamReader& reader, GenerationParams& generation) {
  const Json* text = reader.object("text");
  if (text == nullptr) return;
  ParamReader outer(*text, "text.");
  outer.accept({"verbosity"});
  if (const Json* format = outer.object("format")) {
    ParamReader inside(*format, "text.format.");
    const std::string type = inside.string("type", 64).value_or("");
    Constraint constraint;
    if (type == "json_object") {
      constraint.kind = ConstraintKind::kJsonObject;
    } else if (type == "json_schema") {
      inside.accept({"name", "description", "strict"});
      if (const Json* schema = inside.object("schema")) {
        constraint = {ConstraintKind::kJsonSchema, dump_json(*schema)};
      } else {
        inside.refuse("schema", "text.format.schema must be an object");
      }
    } else if (type != "text") {
      inside.refuse("type",
                    fmt::format("text.format.type \"{}\" is not one of text, json_object, json_schema", type.substr(0, 40)));
    }
    if (constraint.kind != ConstraintKind::kNone) {
      if (generation.constraint.kind != ConstraintKind::kNone)
        inside.refuse("type", "text.format and structured_outputs cannot both constrain the text");
      generation.constraint = std::move(constraint);
    }
    outer.take(inside.finish());
  }
  reader.take(outer.finish());
}

void read_include(ParamReader& reader, ResponsesRequest& request) {
  const auto top = reader.integer("top_logprobs", 0, 20);
  bool logprobs = false;
  if (const Json* include = reader.array("include")) {
    for (size_t index = 0; index < include->size(); ++index) {
      const Json& item = (*include)[index];
      const std::string where = fmt::format("include[{}]", index);
      if (!item.is_string()) {
        reader.refuse(where, fmt::format("{} must be a string", where));
      } else if (item == "message.output_text.logprobs") {
        logprobs = true;
      } else if (item != "reasoning.encrypted_content") {  // reasoning is given in the open
        reader.refuse(where, fmt::format("{} \"{}\" is not supported", where, item.get<std::string>().substr(0, 80)),
                      ErrorCode::kUnsupportedParameter);
      }
    }
  }
  if (top && *top > 0 && !logprobs)
    reader.refuse("top_logprobs", R"(top_logprobs needs include: ["message.output_text.logprobs"])");
  if (logprobs) request.top_logprobs = static_cast<int>(top.value_or(0));
}

void read_input(ParamReader& reader, ChatInput& chat) {
  Conversation conversation(reader.string("instructions").value_or(""));
  const Json* input = reader.any("input");
  if (input == nullptr) {
    reader.refuse("input", "input is missing: send a text or an array of items");
  } else if (input->is_string()) {
    const Json message = {{"role", "user"}, {"content", *input}};
    conversation.read(message, 0, reader);
  } else if (!input->is_array()) {
    reader.refuse("input", fmt::format("input must be a string or an array of items, not {}", input->type_name()));
  } else if (input->empty()) {
    reader.refuse("input", "input is empty; at least one item is needed");
  } else if (input->size() > kMostItems) {
    reader.refuse("input", fmt::format("input holds {} items; at most {} are accepted", input->size(), kMostItems));
  } else {
    for (size_t index = 0; index < input->size() && reader.ok(); ++index) conversation.read((*input)[index], index, reader);
  }
  chat.messages = conversation.take();
  if (chat.messages.empty()) reader.refuse("input", "input holds no text");
}

}  // namespace

Result<ResponsesRequest> read_responses_request(const Json& body, const ChatDefaults& defaults) {
  ParamReader reader(body);
  ResponsesRequest request;
  ChatInput& chat = request.input;
  chat.enable_thinking = defaults.thinking;
  for (const auto& [key, why] : kRefused) {
    if (reader.any(key) == nullptr) continue;
    const bool sentence = why.find(' ') != std::string_view::npos && why.starts_with("is ");
    reader.refuse(key, fmt::format("\"{}\"{}{}", key, sentence ? " " : ": ", why), ErrorCode::kUnsupportedParameter);
  }
  for (const char* key : {"background", "store"}) {
    if (reader.boolean(key).value_or(false))
      reader.refuse(key, fmt::format("{}: true is not supported; nothing is kept here", key), ErrorCode::kUnsupportedParameter);
  }
  if (const auto truncation = reader.string("truncation", 64); truncation && *truncation != "disabled")
    reader.refuse("truncation", "truncation must be \"disabled\": an overlong input is refused and never shortened",
                  ErrorCode::kUnsupportedParameter);

  read_input(reader, chat);
  read_tools(reader, chat);
  read_reasoning(reader, chat);
  request.generation = read_generation_params(reader, defaults.vocabulary);
  if (!request.generation.choices.empty())
    reader.refuse(request.generation.choices_param, "a choice needs /v1/chat/completions or /v1/classify",
                  ErrorCode::kUnsupportedParameter);
  read_format(reader, request.generation);
  chat.constraint = request.generation.constraint;
  if (const auto most = reader.integer("max_output_tokens", 1, kMostTokens))
    request.generation.max_tokens = static_cast<int>(*most);
  read_include(reader, request);
  reader.object("metadata");
  reader.accept({"model", "user", "service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
                 "safety_identifier"});
  PF_CHECK_OK(reader.finish());
  return request;
}

}  // namespace pocketfleet
