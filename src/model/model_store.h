// The models of this machine: a folder of files named by their SHA-256, shared by all who serve from it, and what each was called
// when it was fetched. A file that is there is whole. Two processes that want the same file fetch it once. Any thread; errors say
// what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/download.h"
#include "model/model_hub.h"
#include "model/reference.h"

namespace pocketfleet {

struct StoredFile {
  std::string name;  // as the source calls it, without folders
  std::string sha256;
  uint64_t size_bytes = 0;
};

struct StoredModel {
  std::string reference;  // as it was asked for
  std::string source;     // where the first file came from
  int64_t fetched_unix_ms = 0;
  std::vector<StoredFile> files;  // in order; of a model in parts, all
  std::string path;               // of the first, to be given to the engine
  uint64_t size_bytes() const;
};

struct PullProgress {
  std::string file;
  size_t index = 0;  // of the files of the model
  size_t count = 0;
  DownloadProgress download;
};

class ModelStore {
 public:
  // The folder is made when it is needed.
  explicit ModelStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Of `reference` as it was pulled; kNotFound when it was not, or when a file of it is gone.
  Result<StoredModel> find(const std::string& reference) const;
  std::vector<StoredModel> list() const;
  // Fetches what is missing. A path is not for the store.
  Result<StoredModel> pull(const ModelReference& reference, const HubAddress& hub, int connections, const CancelToken& cancel,
                           const DownloadTools& tools, const std::function<void(const PullProgress&)>& on_progress);
  // Reads every byte again. The names of the files that are not what they were; those are removed.
  Result<std::vector<std::string>> verify(const StoredModel& model, const CancelToken& cancel);
  // The bytes that were freed: files that another model has too stay.
  Result<uint64_t> remove(const std::string& reference);

 private:
  std::string blob(const std::string& sha256) const;
  std::string record_path(const std::string& reference) const;
  Result<StoredModel> read_record(const std::string& path) const;
  Result<void> write_record(StoredModel& model) const;
  Result<StoredFile> fetch(const std::string& url, HubFile wanted, const std::string& bearer, int connections,
                           const CancelToken& cancel, const DownloadTools& tools,
                           const std::function<void(const DownloadProgress&)>& on_progress) const;

  std::string folder_;
};

}  // namespace pocketfleet
