// Verdicts for the texts of one request: prompts made from the profile, scored by the engine in one go, windows put together
// again. Runs on the caller's strand and gives it up between prompts; the engine reports from its own thread. Cancelled when
// `gone` is set. Errors name the input ("input[3]"); an input that does not fit the context is refused with both counts and never
// cut.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "engine/engine.h"
#include "openai/classify_request.h"
#include "openai/classify_verdict.h"
#include "openai/patience.h"
#include "openai/profile_prompt.h"

namespace pocketfleet {

struct ClassifyResult {
  std::shared_ptr<const PreparedProfile> prepared;
  std::vector<Verdict> verdicts;  // one an input, in order
  bool calibrated = false;
  Usage usage;
};

boost::asio::awaitable<Result<ClassifyResult>> classify(Engine& engine, ProfileSet& profiles, const ClassifyRequest& request,
                                                        std::string id, CancelToken gone, Patience patience = {});

// The answer in vLLM's shape, with margin, labels and what the profile adds.
Json classify_answer(const ClassifyResult& result, const std::string& id, const std::string& model, int64_t created);

}  // namespace pocketfleet
