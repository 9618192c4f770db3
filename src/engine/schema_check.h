// The bounds of a JSON schema, before llama.cpp converts it. `strict`: keywords that would be passed over in silence are errors
// too. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json.h"
#include "engine/grammar.h"

namespace pocketfleet {

Result<void> check_schema(const Json& schema, bool strict, const GrammarLimits& limits);

}  // namespace pocketfleet
