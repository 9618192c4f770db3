// The bodies of /v1/models, /health, /tokenize and /detokenize, made from what the engine says. Pure but for the engine's own
// calls; any thread. Errors name the parameter.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"

namespace pocketfleet {

inline constexpr size_t kMaxDetokenizeTokens = 1u << 20;

// One entry of /v1/models: OpenAI's fields, vLLM's max_model_len and llama-server's meta.
Json model_answer(const Engine& engine, const std::string& name, int64_t created, const std::vector<std::string>& profiles);

// Status and body: 200 "ok"; 503 "loading" and "warming" with progress, "failed" with what went wrong, "stopping". `warming`:
// what WarmUp::progress() says.
std::pair<int, Json> health_answer(const Engine& engine, const Json& warming);

// {"content", "add_special": false, "parse_special": false, "with_pieces": false} to {"tokens": [...]}.
Result<Json> tokenize_answer(const Engine& engine, const Json& body);
// {"tokens": [...]} to {"content"}; bytes that are not UTF-8 become U+FFFD.
Result<Json> detokenize_answer(const Engine& engine, const Json& body);

}  // namespace pocketfleet
