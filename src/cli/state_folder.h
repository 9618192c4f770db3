// Where a command keeps what is no cache, such as keys: $XDG_STATE_HOME/pocketfleet/KIND, or under ~/.local/state. Not made.
// kInvalidArgument when neither is an absolute path.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet::cli {

Result<std::string> state_folder(std::string_view kind);

}  // namespace pocketfleet::cli
