// Profile files and the windows and prompts that are made of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "openai/profile.h"
#include "openai/windows.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto profile = parse_profile(text)) {
    if (profile->labels.size() < 2 || profile->positive.size() >= profile->labels.size()) std::abort();
    const ChatInput chat = profile_chat(*profile, text);
    if (chat.messages.empty() || chat.messages.back().content.find(text) == std::string::npos) std::abort();
  }
  // The first two bytes choose a window; the rest is cut by it, whatever it holds.
  if (size < 2) return 0;
  const size_t characters = data[0] + 1u;
  const size_t stride = data[1] % characters + 1;
  const std::string_view input = text.substr(2);
  const bool valid = is_valid_utf8(input);
  const auto windows = cut_windows(input, characters, stride);
  if (windows.size() != count_windows(input, characters, stride)) std::abort();
  const char* covered = input.data();
  for (const TextWindow& window : windows) {
    if (window.text.data() > covered || (valid && !is_valid_utf8(window.text))) std::abort();
    covered = window.text.data() + window.text.size();
  }
  if (covered != input.data() + input.size()) std::abort();
  return 0;
}
