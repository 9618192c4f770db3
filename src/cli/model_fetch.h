// From what a person calls a model to a file on this machine: paths as they are, everything else from the store, fetched when it
// is not there. What `serve` and the model commands share. Blocking; one thread; progress goes to standard error.
#pragma once

#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "model/model_store.h"

namespace pocketfleet::cli {

struct FetchSettings {
  std::string folder;  // of the store; empty: the user's cache
  int connections = 4;
  bool quiet = false;
  CancelToken cancel;
};

Result<ModelStore> open_store(const std::string& folder);
Result<StoredModel> pull_model(const std::string& reference, const FetchSettings& settings);
// The path to give to the engine.
Result<std::string> local_model(const std::string& reference, const FetchSettings& settings);

}  // namespace pocketfleet::cli
