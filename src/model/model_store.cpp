#include "model/model_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "base/files.h"
#include "base/folders.h"
#include "base/json.h"
#include "model/sha256.h"

namespace pocketfleet {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostRecordBytes = 1u << 20;

std::string last_part(std::string_view path) {
  path = path.substr(0, path.find_first_of("?#"));
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// Held by one process at a time; goes with the process.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& path, const CancelToken& cancel) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return fail(ErrorCode::kIo, fmt::format("{} could not be opened: {}", path, std::strerror(errno)));
    FolderLock lock(file);
    while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
      if (cancel.cancelled()) return fail(ErrorCode::kCancelled, "stopped while another process was fetching the same file");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return lock;
  }
  ~FolderLock() {
    if (file_ >= 0) ::close(file_);
  }
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  explicit FolderLock(int file) : file_(file) {}
  int file_;
};

}  // namespace

uint64_t StoredModel::size_bytes() const {
  uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.size_bytes;
  return sum;
}

std::string ModelStore::blob(const std::string& sha256) const {
  return folder_ + "/files/" + sha256;
}

std::string ModelStore::record_path(const std::string& reference) const {
  return folder_ + "/models/" + sha256_of_text(reference).substr(0, 32);
}

Result<StoredModel> ModelStore::read_record(const std::string& path) const {
  PF_TRY(const std::string text, read_file(path + "/model.json", kMostRecordBytes));
  PF_TRY(const Json record, parse_json(text));
  StoredModel model;
  try {
    model.reference = record.at("reference").get<std::string>();
    model.source = record.at("source").get<std::string>();
    model.fetched_unix_ms = record.at("fetched_unix_ms").get<int64_t>();
    for (const Json& item : record.at("files")) {
      StoredFile file{item.at("name").get<std::string>(), item.at("sha256").get<std::string>(),
                      item.at("size_bytes").get<uint64_t>()};
      std::error_code error;
      if (fs::file_size(blob(file.sha256), error) != file.size_bytes || error)
        return fail(ErrorCode::kNotFound,
                    fmt::format("{} of {} is gone or cut short; pull it again", file.name, model.reference));
      model.files.push_back(std::move(file));
    }
  } catch (const Json::exception&) {
    return fail(ErrorCode::kNotFound, fmt::format("{}/model.json is damaged; pull the model again", path));
  }
  if (model.files.empty()) return fail(ErrorCode::kNotFound, fmt::format("{}/model.json names no file", path));
  model.path = path + "/" + model.files.front().name;
  return model;
}

// A folder with the files under their own names, so that the parts of a model find one another.
Result<void> ModelStore::write_record(StoredModel& model) const {
  const std::string path = record_path(model.reference);
  PF_CHECK_OK(make_folder(path));
  Json files = Json::array();
  for (const StoredFile& file : model.files) {
    const std::string link = path + "/" + file.name;
    std::error_code error;
    fs::remove(link, error);
    fs::create_symlink("../../files/" + file.sha256, link, error);
    if (error) return fail(ErrorCode::kIo, fmt::format("{} could not be made: {}", link, error.message()));
    files.push_back({{"name", file.name}, {"sha256", file.sha256}, {"size_bytes", file.size_bytes}});
  }
  const Json record = {{"reference", model.reference},
                       {"source", model.source},
                       {"fetched_unix_ms", model.fetched_unix_ms},
                       {"files", std::move(files)}};
  PF_CHECK_OK(write_file_atomic(path + "/model.json", dump_json(record) + "\n"));
  model.path = path + "/" + model.files.front().name;
  return {};
}

Result<StoredModel> ModelStore::find(const std::string& reference) const {
  const std::string path = record_path(reference);
  if (!fs::exists(path + "/model.json"))
    return fail(ErrorCode::kNotFound,
                fmt::format("{} is not on this machine; fetch it with: pocketfleet model pull {}", reference, reference));
  return read_record(path);
}

std::vector<StoredModel> ModelStore::list() const {
  std::vector<StoredModel> models;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_ + "/models", error)) {
    if (auto model = read_record(entry.path().string())) models.push_back(*std::move(model));
  }
  std::sort(models.begin(), models.end(), [](const StoredModel& a, const StoredModel& b) { return a.reference < b.reference; });
  return models;
}

Result<StoredFile> ModelStore::fetch(const std::string& url, HubFile wanted, const std::string& bearer, int connections,
                                     const CancelToken& cancel, const DownloadTools& tools,
                                     const std::function<void(const DownloadProgress&)>& on_progress) const {
  const std::string incoming = folder_ + "/incoming/" + sha256_of_text(url).substr(0, 32);
  PF_TRY(const FolderLock lock, FolderLock::take(incoming + ".lock", cancel));
  // Another one may have fetched it while we waited, or under another name.
  std::error_code error;
  if (!wanted.sha256.empty() && fs::file_size(blob(wanted.sha256), error) == wanted.size_bytes && !error)
    return StoredFile{last_part(wanted.path), wanted.sha256, wanted.size_bytes};
  DownloadOptions options;
  options.url = url;
  options.path = incoming;
  options.bearer = bearer;
  options.expected_bytes = wanted.size_bytes;
  options.expected_sha256 = wanted.sha256;
  options.connections = connections;
  options.cancel = cancel;
  PF_TRY(const DownloadResult done, download(options, tools, on_progress));
  fs::rename(incoming, blob(done.sha256), error);
  if (error) return fail(ErrorCode::kIo, fmt::format("{} could not be renamed: {}", incoming, error.message()));
  return StoredFile{last_part(wanted.path), done.sha256, done.size_bytes};
}

Result<StoredModel> ModelStore::pull(const ModelReference& reference, const HubAddress& hub, int connections,
                                     const CancelToken& cancel, const DownloadTools& tools,
                                     const std::function<void(const PullProgress&)>& on_progress) {
  if (reference.kind == ReferenceKind::kPath)
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} is a path; there is nothing to fetch", reference.text));
  PF_CHECK_OK(make_folder(folder_ + "/files"));
  PF_CHECK_OK(make_folder(folder_ + "/incoming"));
  std::vector<HubFile> wanted;
  std::vector<std::string> urls;
  if (reference.kind == ReferenceKind::kHub) {
    const auto source = tools.make_source();
    PF_TRY(const std::vector<HubFile> files, list_hub_files(*source, hub, reference, cancel));
    PF_TRY(wanted, choose_files(files, reference.selector));
    for (const HubFile& file : wanted) urls.push_back(hub_file_url(hub, reference, file.path));
  } else {
    wanted.push_back({last_part(reference.url), 0, {}});
    if (wanted[0].path.empty()) wanted[0].path = "model.gguf";
    urls.push_back(reference.url);
  }
  StoredModel model;
  model.reference = reference.text;
  model.source = urls.front();
  for (size_t index = 0; index < wanted.size(); ++index) {
    PF_TRY(StoredFile file, fetch(urls[index], wanted[index], reference.kind == ReferenceKind::kHub ? hub.token : std::string(),
                                  connections, cancel, tools, [&](const DownloadProgress& progress) {
                                    if (on_progress) on_progress({wanted[index].path, index, wanted.size(), progress});
                                  }));
    model.files.push_back(std::move(file));
  }
  model.fetched_unix_ms = tools.clock.unix_ms();
  PF_CHECK_OK(write_record(model));
  return model;
}

Result<std::vector<std::string>> ModelStore::verify(const StoredModel& model, const CancelToken& cancel) {
  std::vector<std::string> wrong;
  for (const StoredFile& file : model.files) {
    PF_TRY(const std::string digest, sha256_file(blob(file.sha256), cancel));
    if (digest == file.sha256) continue;
    wrong.push_back(file.name);
    std::error_code ignored;
    fs::remove(blob(file.sha256), ignored);
  }
  return wrong;
}

Result<uint64_t> ModelStore::remove(const std::string& reference) {
  const std::string path = record_path(reference);
  std::error_code error;
  if (!fs::exists(path, error)) return fail(ErrorCode::kNotFound, fmt::format("{} is not on this machine", reference));
  const auto model = read_record(path);
  fs::remove_all(path, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("{} could not be removed: {}", path, error.message()));
  if (!model) return 0;
  std::set<std::string> in_use;
  for (const StoredModel& other : list()) {
    for (const StoredFile& file : other.files) in_use.insert(file.sha256);
  }
  uint64_t freed = 0;
  for (const StoredFile& file : model->files) {
    if (in_use.contains(file.sha256)) continue;
    fs::remove(blob(file.sha256), error);
    freed += file.size_bytes;
  }
  return freed;
}

}  // namespace pocketfleet
