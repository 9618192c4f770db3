// The hub's list of files: whatever it says, no file leaves its folder, and one is chosen or the reason is said.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/model_hub.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const auto files = parse_hub_files(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!files) return 0;
  for (const HubFile& file : *files) {
    if (file.path.empty() || file.path.front() == '/' || file.path.find("..") != std::string::npos) std::abort();
    if (!file.sha256.empty() && file.sha256.size() != 64) std::abort();
  }
  for (const char* selector : {"", "Q4_0", "a.gguf"}) {
    const auto chosen = choose_files(*files, selector);
    if (chosen ? chosen->empty() : chosen.error().message.empty()) std::abort();
  }
  return 0;
}
