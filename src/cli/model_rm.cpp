#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

int run_model_rm(const ModelStoreOptions& options) {
  auto store = open_store(options.cache);
  if (!store) return fail_command("model rm", store.error());
  const auto freed = store->remove(options.reference);
  if (!freed) return fail_command("model rm", freed.error());
  if (options.json) {
    std::printf("%s\n", dump_json({{"reference", options.reference}, {"freed_bytes", *freed}}).c_str());
  } else {
    std::printf("%s is removed, %s are free again\n", options.reference.c_str(), format_bytes(*freed).c_str());
  }
  return 0;
}

}  // namespace pocketfleet::cli
