#include "openai/profile_lint.h"

#include <fmt/format.h>

#include <algorithm>

#include "openai/profile_prompt.h"

namespace pocketfleet {

namespace {

// A question as short as this behind the input may well help the model.
constexpr size_t kShortQuestionTokens = 16;
constexpr std::string_view kProbe = "a";

}  // namespace

Result<ProfileLint> lint_profile(const Engine& engine, const Profile& profile, double read_tokens_per_s) {
  PF_TRY(const auto prepared, prepare_profile(engine, profile, false));
  PF_TRY(const Prompt prompt, profile_prompt(engine, *prepared, kProbe));
  PF_TRY(const Tokens probe, engine.tokenize(kProbe, false, false));
  ProfileLint lint;
  lint.fixed_tokens = prepared->fixed.size();
  lint.answer_tokens = prepared->labels->forced.size();
  for (const Tokens& label : prepared->labels->labels)
    lint.longest_label_tokens = std::max(lint.longest_label_tokens, label.size());
  lint.per_input_tokens =
      prompt.tokens.size() - lint.fixed_tokens - std::min(probe.size(), prompt.tokens.size() - lint.fixed_tokens);

  // What the profile says behind the input: the message with all of it, less the message cut off at the input.
  const ChatInput chat = profile_chat(profile, kProbe);
  const std::string& message = chat.messages.back().content;
  const std::string behind = profile_tail(profile);
  if (!behind.empty() && message.ends_with(behind)) {
    PF_TRY(const Tokens tokens, engine.tokenize(behind, false, false));
    lint.behind_input_tokens = tokens.size();
  }
  const auto seconds = [&](size_t tokens) { return static_cast<double>(tokens) / std::max(read_tokens_per_s, 1e-9); };
  const bool instructions_behind = !profile.instructions.empty() && behind.find(profile.instructions) != std::string::npos;
  if (instructions_behind || lint.behind_input_tokens > kShortQuestionTokens) {
    lint.warnings.push_back(
        fmt::format("{} behind the input: {} tokens are read again with every input, {:.1f} s at {:.0f} tokens/s, {:.1f} h for "
                    "10,000 inputs. "
                    "Put them before {{input}} and they are read once.",
                    instructions_behind ? "the instructions stand" : "words of the profile stand", lint.behind_input_tokens,
                    seconds(lint.behind_input_tokens), read_tokens_per_s, seconds(lint.behind_input_tokens) * 10'000 / 3600));
  }
  if (lint.fixed_tokens == 0)
    lint.warnings.emplace_back("nothing of the prompt is the same for all inputs: every input is read whole");
  return lint;
}

}  // namespace pocketfleet
