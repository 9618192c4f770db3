#include "cli/model_fetch.h"

#include "base/folders.h"
#include "cli/byte_progress.h"

namespace pocketfleet::cli {

Result<ModelStore> open_store(const std::string& folder) {
  if (!folder.empty()) return ModelStore(folder);
  PF_TRY(std::string usual, cache_folder("models"));
  return ModelStore(std::move(usual));
}

Result<StoredModel> pull_model(const std::string& reference, const FetchSettings& settings) {
  PF_TRY(const ModelReference parsed, parse_reference(reference));
  PF_TRY(const HubAddress hub, hub_from_environment());
  PF_TRY(ModelStore store, open_store(settings.folder));
  ByteProgress progress(settings.quiet);
  auto model =
      store.pull(parsed, hub, settings.connections, settings.cancel, real_download_tools(), [&](const PullProgress& now) {
        const std::string part =
            now.count > 1 ? " (" + std::to_string(now.index + 1) + " of " + std::to_string(now.count) + ")" : "";
        progress.show(now.file + part, now.download.done_bytes, now.download.size_bytes, now.download.fetched_bytes,
                      now.download.waiting_for);
      });
  progress.finish();
  return model;
}

Result<std::string> local_model(const std::string& reference, const FetchSettings& settings) {
  PF_TRY(const ModelReference parsed, parse_reference(reference));
  if (parsed.kind == ReferenceKind::kPath) return parsed.path;
  PF_TRY(const ModelStore store, open_store(settings.folder));
  if (const auto there = store.find(reference)) return there->path;
  PF_TRY(const StoredModel model, pull_model(reference, settings));
  return model.path;
}

}  // namespace pocketfleet::cli
