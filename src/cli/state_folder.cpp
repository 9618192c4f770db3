#include "cli/state_folder.h"

#include <cstdlib>
#include <utility>

namespace pocketfleet::cli {

Result<std::string> state_folder(std::string_view kind) {
  for (const auto& [variable, rest] : {std::pair("XDG_STATE_HOME", ""), std::pair("HOME", "/.local/state")}) {
    const char* root = std::getenv(variable);
    if (root != nullptr && root[0] == '/') return std::string(root) + rest + "/pocketfleet/" + std::string(kind);
  }
  return fail(ErrorCode::kInvalidArgument, "neither XDG_STATE_HOME nor HOME says where to keep the key; give --state FOLDER");
}

}  // namespace pocketfleet::cli
