// Golden prompts: what a model must make of some prompts, so that a build or a processor on which it comes out as something else
// gets no traffic. Made once where the model is known to be good; checked after each load. Blocking calls; any thread. A
// mismatch is kInvalidModel, and says which prompt, which place, what was expected and what came.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace pocketfleet {

struct GoldenPrompt {
  std::string prompt;    // whole, control tokens written out
  Tokens prompt_tokens;  // what it comes to
  Tokens tokens;         // the likeliest that follow, each far ahead of the next likeliest
};

inline constexpr size_t kMostGoldenTokens = 16;

// At most 16 tokens, and none from the first on that leads by less than 1 in log-probability: other kernels round differently.
// kInvalidArgument when the first one is in doubt already. The engine must be ready.
Result<GoldenPrompt> make_golden(Engine& engine, const std::string& prompt, const CancelToken& cancel = {});

Result<void> check_golden(Engine& engine, std::span<const GoldenPrompt> prompts, const CancelToken& cancel = {});

// The same engine, kLoading until its model is there and has passed, kFailed when it has not.
std::unique_ptr<Engine> make_checked_engine(std::unique_ptr<Engine> engine, std::vector<GoldenPrompt> prompts);

}  // namespace pocketfleet
