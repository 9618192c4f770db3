// What `tune` found on this machine, as `serve` uses it.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "model/gguf.h"
#include "tuner/tuned_store.h"

namespace pocketfleet::cli {

Result<TunedStore> open_tuned_store();
TunedKey tuned_key(const ModelSummary& summary, const std::string& work);

// Fills what was not said on the command line with what was found on this machine, else with what is usual. `model_path` is
// there.
Result<void> settle(ServeOptions& options);

}  // namespace pocketfleet::cli
