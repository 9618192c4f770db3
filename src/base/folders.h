// Where this program keeps things on a machine, and making folders for them. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet {

// Of this user, for what can be had again: $XDG_CACHE_HOME/pocketfleet/KIND, or under ~/.cache. Not made.
// kInvalidArgument when neither is an absolute path.
Result<std::string> cache_folder(std::string_view kind);
// Likewise for what cannot, such as keys: $XDG_STATE_HOME/pocketfleet/KIND, or under ~/.local/state.
Result<std::string> state_folder(std::string_view kind);

// With those above it; one that is there already is good. kIo.
Result<void> make_folder(const std::string& path);
// Likewise for its owner alone. A folder that was there keeps its permissions.
Result<void> make_private_folder(const std::string& path);

}  // namespace pocketfleet
