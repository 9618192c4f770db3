#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

int run_model_list(const ModelStoreOptions& options) {
  const auto store = open_store(options.cache);
  if (!store) return fail_command("model list", store.error());
  const auto models = store->list();
  for (const StoredModel& model : models) {
    if (options.json) {
      std::printf("%s\n", dump_json({{"reference", model.reference},
                                     {"path", model.path},
                                     {"size_bytes", model.size_bytes()},
                                     {"fetched_unix_ms", model.fetched_unix_ms},
                                     {"source", model.source}})
                              .c_str());
    } else {
      std::printf("%10s  %s\n            %s\n", format_bytes(model.size_bytes()).c_str(), model.reference.c_str(),
                  model.path.c_str());
    }
  }
  if (models.empty() && !options.json) std::printf("no model was pulled yet: pocketfleet model pull --help\n");
  return 0;
}

}  // namespace pocketfleet::cli
