#include "engine/chat_template.h"

#include <fmt/format.h>
#include <llama.h>
#include <log.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "engine/chat_template_impl.h"
#include "engine/grammar.h"
#include "engine/tool_grammar.h"

namespace pocketfleet {

namespace {

// Private-use characters that stand for a taken-out text: open, number, close.
constexpr std::string_view kOpen = "\xEE\x83\xB0";   // U+E0F0
constexpr std::string_view kClose = "\xEE\x83\xB1";  // U+E0F1
constexpr std::string_view kMarkStart = "\xEE\x83";
constexpr size_t kMostCachedPrefixes = 256;
constexpr size_t kMostCachedKeyBytes = 1024;
constexpr const char* kChatMl =
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}";

// Takes special texts, and the placeholder characters themselves, out of text that others wrote.
class Mask {
 public:
  explicit Mask(const Vocab& vocab) : vocab_(vocab) {}

  std::string hide(std::string_view text) {
    std::string out;
    size_t start = 0;
    // Both marks begin alike. The next one is looked for only once the last one is behind, or many specials would cost a search
    // of the whole rest each.
    size_t mark_at = text.find(kMarkStart);
    for (;;) {
      auto [at, index] = vocab_.find_special(text, start);
      size_t length = at == std::string_view::npos ? 0 : vocab_.specials()[index].text.size();
      if (mark_at != std::string_view::npos && mark_at < start) mark_at = text.find(kMarkStart, start);
      while (mark_at < at && !text.substr(mark_at).starts_with(kOpen) && !text.substr(mark_at).starts_with(kClose))
        mark_at = text.find(kMarkStart, mark_at + 1);
      if (mark_at < at) {
        at = mark_at;
        length = kOpen.size();
      }
      if (at == std::string_view::npos) break;
      out += text.substr(start, at - start);
      out += fmt::format("{}{}{}", kOpen, masked_.size(), kClose);
      masked_.emplace_back(text.substr(at, length));
      start = at + length;
    }
    if (start == 0) return std::string(text);
    return out.append(text.substr(start));
  }

  // JSON text: its strings count as they will be read, for a template may print them so and `\u003c` is a `<` there.
  std::string hide_json(const std::string& text) {
    if (text.find('\\') == std::string::npos || !parse_json(text)) return hide(text);
    auto value = nlohmann::ordered_json::parse(text, nullptr, false);
    const size_t before = masked_.size();
    hide_strings(value);
    if (masked_.size() == before) return text;
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

  std::vector<std::string> take() { return std::move(masked_); }

 private:
  void hide_strings(nlohmann::ordered_json& value) {
    if (value.is_string()) {
      value = hide(value.get_ref<const std::string&>());
    } else if (value.is_array()) {
      for (auto& item : value) hide_strings(item);
    } else if (value.is_object()) {
      auto object = nlohmann::ordered_json::object();
      for (auto& item : value.items()) {
        hide_strings(item.value());
        object[hide(item.key())] = std::move(item.value());
      }
      value = std::move(object);
    }
  }

  const Vocab& vocab_;
  std::vector<std::string> masked_;
};

std::string trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

std::string regex_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(".^$|()*+?[]{}\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string unmask(std::string_view text, const std::vector<std::string>& masked) {
  std::string out;
  size_t start = 0;
  for (;;) {
    const size_t at = text.find(kOpen, start);
    if (at == std::string_view::npos) break;
    const size_t close = text.find(kClose, at);
    if (close == std::string_view::npos) break;
    size_t number = 0;
    for (size_t digit = at + kOpen.size(); digit < close; ++digit) number = number * 10 + static_cast<size_t>(text[digit] - '0');
    out += text.substr(start, at - start);
    if (number < masked.size()) out += masked[number];
    start = close + kClose.size();
  }
  return out.append(text.substr(start));
}

namespace {

// A conversation that needs none of the library's adjustments.
bool is_plain(const common_chat_templates_inputs& inputs) {
  return inputs.tools.empty() && std::all_of(inputs.messages.begin(), inputs.messages.end(), [](const common_chat_msg& message) {
           return message.tool_calls.empty() && message.role != "tool";
         });
}

}  // namespace

// What stands behind the last message; it does not depend on the messages.
std::string ChatTemplate::Impl::generation_prompt(const std::string& key, const autoparser::generation_params& params) const {
  {
    const std::lock_guard lock(mutex);
    if (const auto found = generation_prompts.find(key); found != generation_prompts.end()) return found->second;
  }
  std::string text = common_chat_template_generation_prompt(*direct, params);
  if (key.size() > kMostCachedKeyBytes) return text;
  const std::lock_guard lock(mutex);
  if (generation_prompts.size() >= kMostCachedPrefixes) generation_prompts.clear();
  generation_prompts.emplace(key, text);
  return text;
}

ChatTemplate::ChatTemplate(const Vocab& vocab) : vocab_(vocab), impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

bool ChatTemplate::supports_thinking() const {
  return impl_->thinking;
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(const llama_model* model, const Vocab& vocab,
                                                           const std::string& override_source) {
  // The library reports through its own log; what matters comes back as an error.
  common_log_set_verbosity_thold(-1);
  std::unique_ptr<ChatTemplate> made(new ChatTemplate(vocab));
  std::string source = override_source;
  if (source.empty() && llama_model_chat_template(model, nullptr) == nullptr) source = kChatMl;
  try {
    made->impl_->templates = common_chat_templates_init(model, source);
    made->impl_->thinking = common_chat_templates_support_enable_thinking(made->impl_->templates.get());
    common_chat_templates_inputs probe;
    common_chat_msg message;
    message.role = "user";
    message.content = "hello";
    probe.messages = {message};
    const common_chat_params params = common_chat_templates_apply(made->impl_->templates.get(), probe);
    if (!params.thinking_start_tag.empty()) made->impl_->reasoning_start = trimmed(params.thinking_start_tag);
    if (!params.thinking_end_tags.empty()) made->impl_->reasoning_end = trimmed(params.thinking_end_tags.front());
    made->impl_->thinking = made->impl_->thinking || params.supports_thinking;
    const auto piece = [&](Token token) { return token < 0 ? std::string() : vocab.token_bytes(token, true); };
    made->impl_->direct =
        std::make_unique<common_chat_template>(common_chat_templates_source(made->impl_->templates.get()),
                                               piece(llama_vocab_bos(vocab.raw())), piece(llama_vocab_eos(vocab.raw())));
    made->forgo_direct_where_it_differs();
    made->guard_ = ContentGuard(common_chat_templates_source(made->impl_->templates.get()));
  } catch (const std::exception& e) {
    if (!made->impl_->templates)
      return fail(ErrorCode::kInvalidModel, fmt::format("the chat template cannot be used: {}", e.what()));
    log_warn("chat_template_probe_failed", {{"reason", e.what()}});
  }
  return made;
}

// The library adds things for some templates, such as the date or trimmed texts; those are always rendered by it.
void ChatTemplate::forgo_direct_where_it_differs() {
  ChatInput probe;
  probe.messages = {{"system", " Be brief. ", {}, {}, {}, {}},
                    {"user", " one \n", {}, {}, {}, {}},
                    {"assistant", " two \n", {}, {}, {}, {}},
                    {"user", " three \n", {}, {}, {}, {}}};
  for (const bool thinking : {false, true}) {
    probe.enable_thinking = thinking;
    const auto fast = apply(probe, false);
    auto direct = std::move(impl_->direct);
    const auto whole = apply(probe, false);
    if (!fast || !whole || fast->params.prompt != whole->params.prompt ||
        fast->params.generation_prompt != whole->params.generation_prompt)
      return;
    impl_->direct = std::move(direct);
  }
}

Result<ChatTemplate::Rendered> ChatTemplate::apply(const ChatInput& input, bool for_parser) const {
  Mask mask(vocab_);
  common_chat_templates_inputs inputs;
  for (const ChatMessage& message : input.messages) {
    common_chat_msg made;
    made.role = mask.hide(message.role);
    std::string content = message.content;
    std::string reasoning = message.reasoning;
    if (message.role == "assistant" && reasoning.empty()) {
      // What a template would take apart by its marks must be taken apart before the marks are hidden from it.
      if (const size_t end = content.find(impl_->reasoning_end); end != std::string::npos) {
        std::string_view thought(content.data(), end);
        if (const size_t start = thought.find(impl_->reasoning_start); start != std::string_view::npos) {
          thought.remove_prefix(start + impl_->reasoning_start.size());
        }
        reasoning = trimmed(thought);
        content = content.substr(end + impl_->reasoning_end.size());
        content.erase(0, std::min(content.find_first_not_of('\n'), content.size()));
      }
    }
    made.content = mask.hide(content);
    made.reasoning_content = mask.hide(reasoning);
    for (const ToolCall& call : message.tool_calls) {
      made.tool_calls.push_back({mask.hide(call.name), mask.hide_json(call.arguments), mask.hide(call.id)});
    }
    made.tool_call_id = mask.hide(message.tool_call_id);
    made.tool_name = mask.hide(message.name);
    inputs.messages.push_back(std::move(made));
  }
  for (const ToolDefinition& tool : input.tools) {
    inputs.tools.push_back({mask.hide(tool.name), mask.hide(tool.description), mask.hide_json(tool.parameters)});
  }
  for (const auto& [key, value] : input.template_kwargs) inputs.chat_template_kwargs[key] = mask.hide_json(value);
  inputs.tool_choice = input.tool_choice == ToolChoice::kNone       ? COMMON_CHAT_TOOL_CHOICE_NONE
                       : input.tool_choice == ToolChoice::kRequired ? COMMON_CHAT_TOOL_CHOICE_REQUIRED
                                                                    : COMMON_CHAT_TOOL_CHOICE_AUTO;
  inputs.parallel_tool_calls = input.parallel_tool_calls;
  inputs.enable_thinking = input.enable_thinking;
  inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
  inputs.force_pure_content = !for_parser;
  inputs.add_bos = llama_vocab_get_add_bos(vocab_.raw());
  inputs.add_eos = llama_vocab_get_add_eos(vocab_.raw());
  try {
    Rendered rendered;
    if (!for_parser && impl_->direct && is_plain(inputs) && impl_->direct->original_caps().supports_system_role) {
      autoparser::generation_params params;
      params.messages = common_json::array();
      for (const common_chat_msg& message : inputs.messages) params.messages.push_back(message.to_json_oaicompat(false));
      params.enable_thinking = inputs.enable_thinking;
      params.add_generation_prompt = true;
      params.add_bos = inputs.add_bos;
      params.add_eos = inputs.add_eos;
      params.extra_context = common_json::object();
      std::string key = inputs.enable_thinking ? "1" : "0";
      for (const auto& [name, value] : inputs.chat_template_kwargs) {
        params.extra_context[name] = common_json::parse(value);
        key += name + '\0' + value + '\0';
      }
      rendered.params.prompt = common_chat_template_direct_apply(*impl_->direct, params);
      rendered.params.generation_prompt = impl_->generation_prompt(key, params);
      rendered.masked = mask.take();
      return rendered;
    }
    rendered.params = common_chat_templates_apply(impl_->templates.get(), inputs);
    rendered.masked = mask.take();
    return rendered;
  } catch (const std::exception& e) {
    std::string reason = e.what();
    if (reason.size() > 400) reason = reason.substr(0, 400) + "...";
    return fail(ErrorCode::kInvalidArgument, "the model's chat template refuses this conversation: " + reason, "messages");
  }
}

Result<Tokens> ChatTemplate::to_tokens(const std::string& text, const std::vector<std::string>& masked) const {
  if (masked.empty()) return vocab_.tokenize(text, true, true);
  Tokens tokens;
  if (llama_vocab_get_add_bos(vocab_.raw())) tokens.push_back(llama_vocab_bos(vocab_.raw()));
  size_t start = 0;
  while (start < text.size()) {
    const auto [at, index] = vocab_.find_special(text, start);
    const size_t end = std::min(at, text.size());
    PF_TRY(const Tokens plain, vocab_.tokenize(unmask(std::string_view(text).substr(start, end - start), masked), false, false));
    tokens.insert(tokens.end(), plain.begin(), plain.end());
    if (at == std::string::npos) break;
    tokens.push_back(vocab_.specials()[index].token);
    start = at + vocab_.specials()[index].text.size();
  }
  return tokens;
}

size_t ChatTemplate::measure_fixed_prefix(const ChatInput& input) const {
  ChatInput probe = input;
  probe.messages.erase(
      std::remove_if(probe.messages.begin(), probe.messages.end(), [](const ChatMessage& m) { return m.role != "system"; }),
      probe.messages.end());
  probe.messages.push_back({"user", "a", {}, {}, {}, {}});
  const auto one = apply(probe, false);
  probe.messages.back().content = "Z b";
  const auto two = apply(probe, false);
  if (!one || !two) return 0;
  const auto first = to_tokens(one->params.prompt, one->masked);
  const auto second = to_tokens(two->params.prompt, two->masked);
  if (!first || !second) return 0;
  const size_t limit = std::min(first->size(), second->size());
  return static_cast<size_t>(
      std::mismatch(first->begin(), first->begin() + static_cast<std::ptrdiff_t>(limit), second->begin()).first - first->begin());
}

size_t ChatTemplate::fixed_prefix(const ChatInput& input) const {
  std::string key = input.enable_thinking ? "1" : "0";
  for (const ChatMessage& message : input.messages) {
    if (message.role == "system") key += '\0' + message.content;
  }
  for (const ToolDefinition& tool : input.tools) key += '\1' + tool.name + '\0' + tool.description + '\0' + tool.parameters;
  for (const auto& [name, value] : input.template_kwargs) key += '\2' + name + '\0' + value;
  if (key.size() == 1) return 0;
  // Two texts with one hash would only get a checkpoint in a useless place.
  const size_t hash = std::hash<std::string>{}(key);
  {
    const std::lock_guard lock(cache_mutex_);
    if (const auto found = fixed_prefixes_.find(hash); found != fixed_prefixes_.end()) return found->second;
  }
  const size_t length = measure_fixed_prefix(input);
  const std::lock_guard lock(cache_mutex_);
  if (fixed_prefixes_.size() >= kMostCachedPrefixes) fixed_prefixes_.clear();
  fixed_prefixes_.emplace(hash, length);
  return length;
}

Result<RenderedChat> ChatTemplate::render(const ChatInput& input) const {
  if (input.messages.empty()) return fail(ErrorCode::kInvalidArgument, "there must be at least one message", "messages");
  if (const auto frame = frame_for(input)) return render_in_frame(*frame, input.messages.back().content);
  return render_whole(input);
}

Result<RenderedChat> ChatTemplate::render_whole(const ChatInput& input) const {
  const bool tools = !input.tools.empty() && input.tool_choice != ToolChoice::kNone;
  if (tools && input.constraint.kind != ConstraintKind::kNone) {
    return fail(ErrorCode::kUnsupportedParameter,
                "tools cannot be combined with a constraint on the text; set tool_choice to \"none\"", "response_format");
  }
  PF_TRY(std::string grammar, constraint_to_gbnf(input.constraint));
  if (tools) {
    for (const ToolDefinition& tool : input.tools) PF_CHECK_OK(check_tool_schema(tool.parameters));
  }
  PF_TRY(Rendered rendered, apply(input, tools));
  const common_chat_params& params = rendered.params;

  RenderedChat out;
  PF_TRY(out.prompt.tokens, to_tokens(params.prompt, rendered.masked));
  out.stops = params.additional_stops;

  const size_t fixed = std::min(fixed_prefix(input), out.prompt.tokens.size());
  if (fixed > 0) out.prompt.checkpoints.push_back(fixed);
  if (!params.generation_prompt.empty()) {
    PF_TRY(const Tokens tail, vocab_.tokenize(params.generation_prompt, false, true));
    const Tokens& tokens = out.prompt.tokens;
    if (tail.size() < tokens.size() &&
        std::equal(tail.begin(), tail.end(), tokens.end() - static_cast<std::ptrdiff_t>(tail.size()))) {
      const size_t turn = tokens.size() - tail.size();
      if (turn > fixed) out.prompt.checkpoints.push_back(turn);
    }
  }

  GrammarSpec spec;
  ReadingSpec reading;
  reading.reasoning_start = impl_->reasoning_start;
  reading.reasoning_end = impl_->reasoning_end;
  const std::string prompt_end =
      trimmed(std::string_view(params.prompt).substr(params.prompt.size() - std::min<size_t>(params.prompt.size(), 256)));
  reading.reasoning_open = prompt_end.ends_with(impl_->reasoning_start);
  reading.reasoning = impl_->thinking && (input.enable_thinking || reading.reasoning_open);
  const auto show = [&](const std::string& text) {
    if (const Token token = vocab_.special_token(text); token >= 0) reading.shown.push_back(token);
  };
  if (reading.reasoning) {
    show(reading.reasoning_start);
    show(reading.reasoning_end);
  }
  spec.text = std::move(grammar);
  if (tools) {
    reading.tools = true;
    reading.chat_format = params.format;
    reading.generation_prompt = params.generation_prompt;
    reading.parser = params.parser;
    for (const std::string& text : params.preserved_tokens) show(text);
    ToolGrammar tool_grammar = tighten_tool_grammar(params.grammar, input.tools, input.tool_choice == ToolChoice::kRequired);
    spec.text = params.grammar.empty() ? std::string() : std::move(tool_grammar.text);
    spec.lazy = params.grammar_lazy;
    for (const common_grammar_trigger& trigger : params.grammar_triggers) {
      const std::string& value = trigger.value;
      switch (trigger.type) {
        case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
          spec.trigger_tokens.push_back(trigger.token);
          break;
        case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: {
          // A word that is one special token triggers as that token, which is never written as text.
          const Token token = vocab_.special_token(value);
          if (token >= 0) {
            spec.trigger_tokens.push_back(token);
            show(value);
          } else {
            spec.trigger_patterns.push_back(regex_escaped(value));
          }
          break;
        }
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
          spec.trigger_patterns.push_back(value);
          break;
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL:
          spec.trigger_patterns.push_back((value.starts_with('^') ? "" : "^") + value + (value.ends_with('$') ? "" : "$"));
          break;
      }
    }
    if (!spec.lazy && !spec.text.empty() && !tool_grammar.starts_at_call) {
      PF_TRY(spec.prefill, vocab_.tokenize(params.generation_prompt, false, true));
    }
  }
  PF_TRY(out.format, LlamaFormat::create(vocab_, std::move(spec), std::move(reading),
                                         tools ? "tools" : constraint_param(input.constraint.kind)));
  return out;
}

}  // namespace pocketfleet
