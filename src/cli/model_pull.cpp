#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

int run_model_pull(const ModelPullOptions& options) {
  FetchSettings settings;
  settings.folder = options.cache;
  settings.connections = options.connections;
  settings.quiet = options.quiet;
  const auto model = pull_model(options.reference, settings);
  if (!model) return fail_command("model pull", model.error());
  if (options.json) {
    std::printf("%s\n", dump_json({{"reference", model->reference},
                                   {"path", model->path},
                                   {"size_bytes", model->size_bytes()},
                                   {"sha256", model->files.front().sha256}})
                            .c_str());
  } else {
    std::printf("%s\n  %s, sha256 %s\n  %s\n", model->reference.c_str(), format_bytes(model->size_bytes()).c_str(),
                model->files.front().sha256.c_str(), model->path.c_str());
  }
  return 0;
}

}  // namespace pocketfleet::cli
