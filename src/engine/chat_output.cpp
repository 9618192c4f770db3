#include "engine/chat_output.h"

#include <chat.h>

#include "base/ids.h"
#include "base/log.h"

namespace pocketfleet {

namespace {

ChatDelta content_delta(std::string text) {
  ChatDelta delta;
  delta.text = std::move(text);
  return delta;
}

class ContentParser final : public ChatOutputParser {
 public:
  std::vector<ChatDelta> push(std::string_view text) override {
    if (text.empty()) return {};
    return {content_delta(std::string(text))};
  }
  std::vector<ChatDelta> finish() override { return {}; }
};

// [<think>] reasoning </think> content. Marks are found also when split; white space around them belongs to neither side.
class ReasoningParser final : public ChatOutputParser {
 public:
  explicit ReasoningParser(const ReadingSpec& spec)
      : start_(spec.reasoning_start), end_(spec.reasoning_end), state_(spec.reasoning_open ? State::kReasoning : State::kStart) {}

  std::vector<ChatDelta> push(std::string_view text) override {
    held_.append(text);
    std::vector<ChatDelta> deltas;
    step(deltas, false);
    return deltas;
  }

  std::vector<ChatDelta> finish() override {
    std::vector<ChatDelta> deltas;
    step(deltas, true);
    return deltas;
  }

 private:
  enum class State { kStart, kReasoning, kContent };
  static constexpr std::string_view kSpace = " \t\r\n";

  void emit(std::vector<ChatDelta>& deltas, std::string text) {
    if (text.empty()) return;
    if (trim_next_) {
      const size_t first = text.find_first_not_of(kSpace);
      if (first == std::string::npos) return;
      text.erase(0, first);
      trim_next_ = false;
    }
    ChatDelta delta = content_delta(std::move(text));
    if (state_ == State::kReasoning) delta.kind = ChatDelta::Kind::kReasoning;
    deltas.push_back(std::move(delta));
  }

  void step(std::vector<ChatDelta>& deltas, bool last) {
    if (state_ == State::kStart) {
      const size_t first = held_.find_first_not_of(kSpace);
      const std::string_view rest = first == std::string::npos ? std::string_view() : std::string_view(held_).substr(first);
      if (!last && (rest.empty() || (rest.size() < start_.size() && std::string_view(start_).starts_with(rest)))) return;
      if (!start_.empty() && rest.starts_with(start_)) {
        held_.erase(0, first + start_.size());
        state_ = State::kReasoning;
        trim_next_ = true;
      } else {
        state_ = State::kContent;
      }
    }
    if (state_ == State::kReasoning) {
      const size_t at = held_.find(end_);
      if (at != std::string::npos) {
        std::string text = held_.substr(0, at);
        text.erase(text.find_last_not_of(kSpace) + 1);
        emit(deltas, std::move(text));
        held_.erase(0, at + end_.size());
        state_ = State::kContent;
        trim_next_ = true;
      } else {
        // White space and what may be the beginning of the mark wait for what comes.
        size_t keep = 0;
        for (size_t length = std::min(end_.size() - 1, held_.size()); length > 0; --length) {
          if (held_.compare(held_.size() - length, length, end_, 0, length) == 0) {
            keep = length;
            break;
          }
        }
        size_t out = held_.size() - (last ? 0 : keep);
        if (!last) {
          while (out > 0 && kSpace.find(held_[out - 1]) != std::string_view::npos) --out;
        }
        emit(deltas, held_.substr(0, out));
        held_.erase(0, out);
        return;
      }
    }
    emit(deltas, std::move(held_));
    held_.clear();
  }

  std::string start_;
  std::string end_;
  std::string held_;
  State state_;
  bool trim_next_ = false;
};

// llama.cpp's parser reads the whole text again at each step and we give out what is new. It throws on text that does not fit
// the template; then what has not gone out yet goes out as content.
class ToolParser final : public ChatOutputParser {
 public:
  explicit ToolParser(const ReadingSpec& spec) {
    params_.format = static_cast<common_chat_format>(spec.chat_format);
    params_.reasoning_format = spec.reasoning ? COMMON_REASONING_FORMAT_DEEPSEEK : COMMON_REASONING_FORMAT_NONE;
    params_.generation_prompt = spec.generation_prompt;
    params_.parse_tool_calls = true;
    try {
      if (!spec.parser.empty()) params_.parser.load(spec.parser);
    } catch (const std::exception& e) {
      log_warn("chat_parser_failed", {{"reason", e.what()}});
      broken_ = true;
    }
  }

  std::vector<ChatDelta> push(std::string_view text) override {
    text_.append(text);
    return read(true);
  }
  std::vector<ChatDelta> finish() override { return read(false); }

 private:
  std::vector<ChatDelta> read(bool partial) {
    if (!broken_) {
      try {
        common_chat_msg message = common_chat_parse(text_, partial, params_);
        if (partial && message.empty()) return {};
        message.set_tool_call_ids(ids_, [] { return make_id("call_"); });
        std::vector<ChatDelta> deltas;
        for (const common_chat_msg_diff& diff : common_chat_msg_diff::compute_diffs(previous_, message)) {
          if (!diff.reasoning_content_delta.empty()) {
            ChatDelta delta = content_delta(diff.reasoning_content_delta);
            delta.kind = ChatDelta::Kind::kReasoning;
            deltas.push_back(std::move(delta));
          }
          if (!diff.content_delta.empty()) deltas.push_back(content_delta(diff.content_delta));
          if (diff.tool_call_index != std::string::npos) {
            ChatDelta delta;
            delta.kind = ChatDelta::Kind::kToolCall;
            delta.tool_index = diff.tool_call_index;
            delta.tool_id = diff.tool_call_delta.id;
            delta.tool_name = diff.tool_call_delta.name;
            delta.arguments = diff.tool_call_delta.arguments;
            deltas.push_back(std::move(delta));
          }
        }
        previous_ = std::move(message);
        if (!deltas.empty()) given_ = text_.size();
        return deltas;
      } catch (const std::exception& e) {
        if (partial) return {};
        log_debug("chat_output_unparsed", {{"reason", e.what()}});
        broken_ = true;
      }
    }
    std::vector<ChatDelta> deltas;
    // What is left of a call that was cut off is no content.
    if (!previous_.tool_calls.empty()) given_ = text_.size();
    if (given_ < text_.size()) deltas.push_back(content_delta(text_.substr(given_)));
    given_ = text_.size();
    return deltas;
  }

  common_chat_parser_params params_;
  common_chat_msg previous_;
  std::vector<std::string> ids_;
  std::string text_;
  size_t given_ = 0;  // bytes of text_ up to the last ones that something went out for
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<ChatOutputParser> make_chat_parser(const ReadingSpec& spec) {
  if (spec.tools) return std::make_unique<ToolParser>(spec);
  if (spec.reasoning) return std::make_unique<ReasoningParser>(spec);
  return std::make_unique<ContentParser>();
}

}  // namespace pocketfleet
