#include "openai/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pocketfleet {

namespace {

constexpr size_t kMostMessages = 2'048;
constexpr size_t kMostToolCalls = 128;

// A string, or an array of text parts that are put together.
std::string read_content(ParamReader& reader, bool required) {
  const Json* content = reader.any("content");
  if (content == nullptr) {
    if (required) reader.refuse("content", fmt::format("{} is missing", reader.name("content")));
    return {};
  }
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    reader.refuse("content",
                  fmt::format("{} must be a string or an array of parts, not {}", reader.name("content"), content->type_name()));
    return {};
  }
  std::string text;
  for (size_t index = 0; index < content->size(); ++index) {
    const Json& part = (*content)[index];
    const std::string where = fmt::format("content[{}]", index);
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string()) {
      reader.refuse(where, fmt::format("{} must be an object with a type", reader.name(where)));
      return {};
    }
    const std::string& kind = type->get_ref<const std::string&>();
    const char* field = kind == "refusal" ? "refusal" : "text";
    if (kind != "text" && kind != "refusal") {
      reader.refuse(where,
                    fmt::format("{}: parts of type \"{}\" are not supported, only text", reader.name(where), kind.substr(0, 40)),
                    ErrorCode::kUnsupportedParameter);
      return {};
    }
    const auto value = part.find(field);
    if (value == part.end() || !value->is_string()) {
      reader.refuse(where, fmt::format("{}.{} must be a string", reader.name(where), field));
      return {};
    }
    text += value->get_ref<const std::string&>();
  }
  return text;
}

std::vector<ToolCall> read_tool_calls(ParamReader& reader) {
  std::vector<ToolCall> calls;
  const Json* array = reader.array("tool_calls");
  if (array == nullptr) return calls;
  if (array->size() > kMostToolCalls) {
    reader.refuse("tool_calls", fmt::format("{} holds more than {} calls", reader.name("tool_calls"), kMostToolCalls));
    return calls;
  }
  for (size_t index = 0; index < array->size(); ++index) {
    const Json& item = (*array)[index];
    const std::string where = fmt::format("tool_calls[{}]", index);
    const auto function = item.is_object() ? item.find("function") : item.end();
    if (!item.is_object() || function == item.end() || !function->is_object()) {
      reader.refuse(where, fmt::format("{} must be an object with a function", reader.name(where)));
      return calls;
    }
    ParamReader call(item, reader.name(where) + ".");
    ParamReader inside(*function, reader.name(where) + ".function.");
    ToolCall made;
    made.id = call.string("id", 256).value_or("");
    made.name = inside.string("name", 256).value_or("");
    made.arguments = inside.string("arguments").value_or("{}");
    if (made.name.empty()) reader.refuse(where, fmt::format("{}.function.name is missing", reader.name(where)));
    // Templates read arguments as an object.
    if (const auto parsed = parse_json(made.arguments); !parsed || !parsed->is_object()) {
      reader.refuse(where, fmt::format("{}.function.arguments must be a JSON object as text", reader.name(where)));
    }
    for (const ParamReader* part : {&call, &inside}) {
      if (auto ok = part->check(); !ok) reader.refuse(where, ok.error().message);
    }
    calls.push_back(std::move(made));
  }
  return calls;
}

void read_message(const Json& item, size_t index, ParamReader& body, ChatInput& input, std::string& system) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!item.is_object()) {
    body.refuse(where, fmt::format("{} must be an object, not {}", where, item.type_name()));
    return;
  }
  ParamReader reader(item, where + ".");
  const std::string role = reader.string("role", 64).value_or("");
  ChatMessage message;
  message.role = role;
  message.name = reader.string("name", 256).value_or("");
  if (role == "system" || role == "developer") {
    // Many templates take one system message only, and only in front.
    const std::string content = read_content(reader, true);
    if (!system.empty() && !content.empty()) system += "\n\n";
    system += content;
  } else if (role == "user") {
    message.content = read_content(reader, true);
  } else if (role == "assistant") {
    message.tool_calls = read_tool_calls(reader);
    message.content = read_content(reader, false);
    message.reasoning = reader.string("reasoning_content").value_or("");
    if (const auto reasoning = reader.string("reasoning"); reasoning && message.reasoning.empty()) message.reasoning = *reasoning;
    reader.accept({"refusal", "annotations"});
    if (item.value("content", Json()).is_null() && message.tool_calls.empty() && message.reasoning.empty()) {
      reader.refuse("content", fmt::format("{} is missing", reader.name("content")));
    }
  } else if (role == "tool") {
    message.content = read_content(reader, true);
    message.tool_call_id = reader.string("tool_call_id", 256).value_or("");
  } else {
    reader.refuse(
        "role", fmt::format("{}.role must be system, developer, user, assistant or tool, not \"{}\"", where, role.substr(0, 40)));
  }
  body.take(reader.finish());
  if (role != "system" && role != "developer") input.messages.push_back(std::move(message));
}

void read_tools(ParamReader& reader, ChatInput& input) {
  if (const Json* tools = reader.array("tools")) {
    if (tools->size() > kMostTools) reader.refuse("tools", fmt::format("tools holds more than {} entries", kMostTools));
    for (size_t index = 0; index < tools->size() && reader.ok(); ++index) {
      const Json& item = (*tools)[index];
      const std::string where = fmt::format("tools[{}]", index);
      const auto function = item.is_object() ? item.find("function") : item.end();
      if (!item.is_object() || item.value("type", Json()) != "function" || function == item.end() || !function->is_object()) {
        reader.refuse(where, fmt::format("{} must be {{\"type\": \"function\", \"function\": {{...}}}}", where));
        return;
      }
      ParamReader inside(*function, where + ".function.");
      ToolDefinition tool;
      tool.name = inside.string("name", 256).value_or("");
      tool.description = inside.string("description").value_or("");
      const Json* parameters = inside.object("parameters");
      tool.parameters = parameters == nullptr ? R"({"type":"object","properties":{}})" : dump_json(*parameters);
      inside.accept({"strict"});
      if (tool.name.empty()) reader.refuse(where, fmt::format("{}.function.name is missing", where));
      reader.take(inside.finish());
      input.tools.push_back(std::move(tool));
    }
  }
  input.parallel_tool_calls = reader.boolean("parallel_tool_calls").value_or(true);
  const Json* choice = reader.any("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    if (!choose_tools(choice->get_ref<const std::string&>(), input))
      reader.refuse("tool_choice", "tool_choice must be \"auto\", \"none\", \"required\" or name a function");
  } else {
    const auto function = choice->is_object() ? choice->find("function") : choice->end();
    const auto name = function != choice->end() && function->is_object() ? function->find("name") : Json::const_iterator();
    if (!choice->is_object() || function == choice->end() || !function->is_object() || name == function->end() ||
        !name->is_string()) {
      reader.refuse("tool_choice", "tool_choice must be \"auto\", \"none\", \"required\" or name a function");
      return;
    }
    choose_tool(reader, name->get<std::string>(), input);
  }
  check_tool_choice(reader, input);
}

void read_thinking(ParamReader& reader, ChatInput& input) {
  read_effort(reader, "reasoning_effort", input);
  const Json* kwargs = reader.object("chat_template_kwargs");
  if (kwargs == nullptr) return;
  if (kwargs->size() > 32) reader.refuse("chat_template_kwargs", "chat_template_kwargs holds more than 32 entries");
  for (const auto& item : kwargs->items()) {
    if (item.key() == "enable_thinking") {
      if (!item.value().is_boolean()) {
        reader.refuse(
            "chat_template_kwargs.enable_thinking",
            fmt::format("chat_template_kwargs.enable_thinking must be true or false, not {}", item.value().type_name()));
        return;
      }
      input.enable_thinking = item.value().get<bool>();
      continue;
    }
    static constexpr std::string_view kReserved[] = {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"};
    if (std::find(std::begin(kReserved), std::end(kReserved), item.key()) != std::end(kReserved)) {
      reader.refuse("chat_template_kwargs." + item.key(), fmt::format("chat_template_kwargs.{} cannot be set", item.key()));
      return;
    }
    input.template_kwargs[item.key()] = dump_json(item.value());
  }
}

}  // namespace

void read_effort(ParamReader& reader, std::string_view key, ChatInput& input) {
  const auto effort = reader.string(key, 64);
  if (!effort) return;
  if (*effort == "none" || *effort == "minimal") {
    input.enable_thinking = false;
  } else if (*effort == "low" || *effort == "medium" || *effort == "high" || *effort == "xhigh") {
    input.enable_thinking = true;
  } else {
    reader.refuse(key, fmt::format("{} must be none, minimal, low, medium, high or xhigh", reader.name(key)));
  }
}

bool choose_tools(std::string_view word, ChatInput& input) {
  if (word == "none") {
    input.tool_choice = ToolChoice::kNone;
  } else if (word == "required") {
    input.tool_choice = ToolChoice::kRequired;
  } else if (word != "auto") {
    return false;
  }
  return true;
}

void choose_tool(ParamReader& reader, const std::string& name, ChatInput& input) {
  std::erase_if(input.tools, [&](const ToolDefinition& tool) { return tool.name != name; });
  if (input.tools.empty())
    reader.refuse("tool_choice", fmt::format("tool_choice names \"{}\", which is not among tools", name.substr(0, 80)));
  input.tool_choice = ToolChoice::kRequired;
}

void check_tool_choice(ParamReader& reader, const ChatInput& input) {
  if (input.tool_choice == ToolChoice::kRequired && input.tools.empty())
    reader.refuse("tool_choice", "tool_choice asks for a tool, but there are none");
}

Result<ChatRequest> read_chat_request(const Json& body, const ChatDefaults& defaults) {
  ParamReader reader(body);
  ChatRequest request;
  ChatInput& input = request.input;
  input.enable_thinking = defaults.thinking;
  reader.accept({"model"});

  const Json* messages = reader.array("messages");
  if (messages == nullptr) {
    reader.refuse("messages", "messages is missing");
  } else if (messages->empty()) {
    reader.refuse("messages", "messages is empty; at least one message is needed");
  } else if (messages->size() > kMostMessages) {
    reader.refuse("messages", fmt::format("messages holds {} entries; at most {} are accepted", messages->size(), kMostMessages));
  } else {
    std::string system;
    for (size_t index = 0; index < messages->size() && reader.ok(); ++index)
      read_message((*messages)[index], index, reader, input, system);
    if (!system.empty()) input.messages.insert(input.messages.begin(), {"system", std::move(system), {}, {}, {}, {}});
    if (input.messages.empty()) reader.refuse("messages", "messages holds no text");
  }
  read_tools(reader, input);
  read_thinking(reader, input);
  request.generation = read_generation_params(reader, defaults.vocabulary);
  input.constraint = request.generation.constraint;
  if (request.generation.max_tokens == 0) reader.refuse("max_tokens", "max_tokens must be at least 1");

  const bool logprobs = reader.boolean("logprobs").value_or(false);
  const auto top_logprobs = reader.integer("top_logprobs", 0, 20);
  if (top_logprobs && !logprobs) reader.refuse("top_logprobs", "top_logprobs needs logprobs: true");
  if (logprobs) request.top_logprobs = static_cast<int>(top_logprobs.value_or(0));
  if (!request.generation.choices.empty()) {
    if (logprobs)
      reader.refuse("logprobs", "logprobs cannot be had for a choice; /v1/classify gives the probability of every label",
                    ErrorCode::kUnsupportedParameter);
    if (!input.tools.empty() && input.tool_choice != ToolChoice::kNone)
      reader.refuse("tools", "tools cannot be combined with a choice", ErrorCode::kUnsupportedParameter);
    input.enable_thinking = false;
  }
  if (const auto store = reader.boolean("store"); store && *store) {
    reader.refuse("store", "store: true is not supported; nothing is kept here", ErrorCode::kUnsupportedParameter);
  }
  if (const Json* modalities = reader.array("modalities"); modalities != nullptr && *modalities != Json::array({"text"})) {
    reader.refuse("modalities", "modalities must be [\"text\"]; nothing else is supported", ErrorCode::kUnsupportedParameter);
  }
  reader.accept({"user", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
                 "verbosity", "cache_prompt"});
  PF_CHECK_OK(reader.finish());
  return request;
}

}  // namespace pocketfleet
