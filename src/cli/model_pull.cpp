#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/manifest_file.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

namespace {

struct Pulled {
  std::string path;
  uint64_t size_bytes = 0;
  std::string sha256;  // of the first file
};

Result<Pulled> pull_plain(const ModelPullOptions& options, const FetchSettings& settings) {
  if (!options.manifest_key.empty())
    return fail(ErrorCode::kInvalidArgument, "--manifest-key is for a manifest (.json), and " + options.reference + " is none");
  PF_TRY(const StoredModel model, pull_model(options.reference, settings));
  return Pulled{model.path, model.size_bytes(), model.files.front().sha256};
}

Result<Pulled> pull_manifest(const ModelPullOptions& options, const FetchSettings& settings) {
  PF_TRY(const Manifest manifest, load_manifest(options.reference, options.manifest_key, settings));
  Pulled pulled;
  PF_TRY(pulled.path, local_model(manifest, options.reference, settings));
  for (const ManifestFile& file : manifest.files) pulled.size_bytes += file.size_bytes;
  pulled.sha256 = manifest.files.front().sha256;
  return pulled;
}

}  // namespace

int run_model_pull(const ModelPullOptions& options) {
  FetchSettings settings;
  settings.folder = options.cache;
  settings.connections = options.connections;
  settings.quiet = options.quiet;
  const auto pulled = is_manifest(options.reference) ? pull_manifest(options, settings) : pull_plain(options, settings);
  if (!pulled) return fail_command("model pull", pulled.error());
  if (options.json) {
    std::printf("%s\n", dump_json({{"reference", options.reference},
                                   {"path", pulled->path},
                                   {"size_bytes", pulled->size_bytes},
                                   {"sha256", pulled->sha256}})
                            .c_str());
  } else {
    std::printf("%s\n  %s, sha256 %s\n  %s\n", options.reference.c_str(), format_bytes(pulled->size_bytes).c_str(),
                pulled->sha256.c_str(), pulled->path.c_str());
  }
  return 0;
}

}  // namespace pocketfleet::cli
