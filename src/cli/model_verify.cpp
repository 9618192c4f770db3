#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

int run_model_verify(const ModelStoreOptions& options) {
  auto store = open_store(options.cache);
  if (!store) return fail_command("model verify", store.error());
  std::vector<StoredModel> models;
  if (options.reference.empty()) {
    models = store->list();
  } else {
    const auto model = store->find(options.reference);
    if (!model) return fail_command("model verify", model.error());
    models.push_back(*model);
  }
  int damaged = 0;
  for (const StoredModel& model : models) {
    const auto wrong = store->verify(model, {});
    if (!wrong) return fail_command("model verify", wrong.error());
    damaged += wrong->empty() ? 0 : 1;
    if (options.json) {
      std::printf("%s\n", dump_json({{"reference", model.reference}, {"right", wrong->empty()}, {"damaged", *wrong}}).c_str());
    } else if (wrong->empty()) {
      std::printf("%s: right, %s\n", model.reference.c_str(), format_bytes(model.size_bytes()).c_str());
    } else {
      std::printf("%s: %s is damaged and was removed; pull the model again\n", model.reference.c_str(), wrong->front().c_str());
    }
  }
  return damaged == 0 ? 0 : 1;
}

}  // namespace pocketfleet::cli
