// Frames of a chat template: made once for a system message, used for every message that it goes before.

#include <array>

#include "engine/chat_template_impl.h"

namespace pocketfleet {

namespace {

constexpr size_t kMostFrames = 32;
constexpr size_t kMostFrameKeyBytes = 1u << 20;

// Texts that the templates known to us would change if they changed texts at all: letters of both cases, lines, marks, spaces
// inside.
constexpr std::array<std::string_view, 3> kProbes = {"aQ7z", "Zb  c.\n\n- d\t\"9\" 'x'", "\xD0\xAF & <q> {0} [y]"};

bool can_be_framed(const ChatInput& input) {
  if (!input.tools.empty() || input.constraint.kind != ConstraintKind::kNone || input.messages.size() > 2) return false;
  const ChatMessage& last = input.messages.back();
  if (last.role != "user" || !last.reasoning.empty() || !last.tool_calls.empty() || !last.tool_call_id.empty()) return false;
  return input.messages.size() == 1 || input.messages.front().role == "system";
}

std::string frame_key(const ChatInput& input) {
  std::string key = input.enable_thinking ? "1" : "0";
  for (const auto& [name, value] : input.template_kwargs) key += name + '\0' + value + '\0';
  key += '\1' + input.messages.back().name + '\1';
  if (input.messages.size() == 2) key += '\2' + input.messages.front().name + '\2' + input.messages.front().content;
  return key;
}

}  // namespace

// Null where the whole template has to be run.
std::shared_ptr<const ChatFrame> ChatTemplate::frame_for(const ChatInput& input) const {
  if (!can_be_framed(input) || !guard_.passes(input.messages.back().content)) return nullptr;
  std::string key = frame_key(input);
  if (key.size() > kMostFrameKeyBytes) return nullptr;
  {
    const std::lock_guard lock(cache_mutex_);
    const auto known = frames_.find(key);
    if (known == frames_.end()) {
      // A chat that is asked once is not worth a frame.
      if (frames_.size() >= kMostFrames) frames_.clear();
      frames_.emplace(std::move(key), Framed{1, nullptr});
      return nullptr;
    }
    if (++known->second.asked > 2) return known->second.frame;
  }
  auto frame = make_frame(input);
  const std::lock_guard lock(cache_mutex_);
  frames_[std::move(key)] = {3, frame};
  return frame;
}

std::shared_ptr<const ChatFrame> ChatTemplate::make_frame(const ChatInput& input) const {
  ChatInput probe = input;
  auto frame = std::make_shared<ChatFrame>();
  std::string before;
  std::string after;
  for (const std::string_view text : kProbes) {
    probe.messages.back().content = text;
    const auto rendered = apply(probe, false);
    if (!rendered) return nullptr;
    const std::string& prompt = rendered->params.prompt;
    if (text == kProbes.front()) {
      const size_t at = prompt.rfind(text);
      if (at == std::string::npos || prompt.find(text) != at) return nullptr;
      before = prompt.substr(0, at);
      after = prompt.substr(at + text.size());
      // The head begins behind the last control token; both may hold texts that were masked.
      size_t head = 0;
      for (size_t start = 0; start < before.size();) {
        const auto [found, index] = vocab_.find_special(before, start);
        if (found == std::string::npos) break;
        head = start = found + vocab_.specials()[index].text.size();
      }
      const auto [tail_end, index] = vocab_.find_special(after, 0);
      const size_t tail = std::min(tail_end, after.size());
      auto first = to_tokens(before.substr(0, head), rendered->masked);
      auto last = to_tokens(after.substr(tail), rendered->masked);
      // Without a control token on each side there is nothing that keeps the tokens apart.
      if (!first || !last || head == 0 || tail_end == std::string::npos) return nullptr;
      const size_t added = llama_vocab_get_add_bos(vocab_.raw()) && !last->empty() ? 1 : 0;
      frame->before = *std::move(first);
      frame->after.assign(last->begin() + static_cast<std::ptrdiff_t>(added), last->end());
      frame->head = unmask(before.substr(head), rendered->masked);
      frame->tail = unmask(after.substr(0, tail), rendered->masked);
      auto whole = render_whole(probe);
      if (!whole) return nullptr;
      frame->fixed_tokens = fixed_prefix(probe);
      frame->generation_tokens = 0;
      if (!whole->prompt.checkpoints.empty() && whole->prompt.checkpoints.back() > frame->fixed_tokens)
        frame->generation_tokens = whole->prompt.tokens.size() - whole->prompt.checkpoints.back();
      frame->shape = *std::move(whole);
      frame->shape.prompt = {};
    }
    const auto whole = render_whole(probe);
    const auto framed = render_in_frame(*frame, text);
    if (!whole || !framed || whole->prompt.tokens != framed->prompt.tokens ||
        whole->prompt.checkpoints != framed->prompt.checkpoints)
      return nullptr;
  }
  return frame;
}

Result<RenderedChat> ChatTemplate::render_in_frame(const ChatFrame& frame, std::string_view content) const {
  RenderedChat out = frame.shape;
  std::string middle;
  middle.reserve(frame.head.size() + content.size() + frame.tail.size());
  middle.append(frame.head).append(content).append(frame.tail);
  PF_TRY(const Tokens inside, vocab_.tokenize(middle, false, false));
  Tokens& tokens = out.prompt.tokens;
  tokens.reserve(frame.before.size() + inside.size() + frame.after.size() + 8);
  tokens = frame.before;
  tokens.insert(tokens.end(), inside.begin(), inside.end());
  tokens.insert(tokens.end(), frame.after.begin(), frame.after.end());
  const size_t fixed = std::min(frame.fixed_tokens, tokens.size());
  if (fixed > 0) out.prompt.checkpoints.push_back(fixed);
  if (frame.generation_tokens > 0 && tokens.size() - frame.generation_tokens > fixed)
    out.prompt.checkpoints.push_back(tokens.size() - frame.generation_tokens);
  return out;
}

}  // namespace pocketfleet
