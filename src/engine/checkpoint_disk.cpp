#include "engine/checkpoint_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/files.h"
#include "base/folders.h"
#include "base/log.h"

namespace pocketfleet {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEnding = ".ckpt";
// States that wait for the disk; a slower disk gets no more than that.
constexpr size_t kMostWaitingBytes = 512u << 20;

struct Entry {
  Tokens tokens;
  uint64_t bytes = 0;
  bool pinned = false;
  uint64_t used = 0;  // number of its last use; higher is later
};

struct Job {
  Tokens tokens;
  std::shared_ptr<const StateBytes> state;
};

}  // namespace

struct CheckpointDisk::Impl {
  Options options;
  int lock_file = -1;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  std::unordered_map<std::string, Entry> entries;  // by file name; also those that are still to be written
  std::deque<Job> jobs;
  size_t waiting_bytes = 0;
  const Job* current = nullptr;  // what is being written
  bool stopping = false;
  uint64_t uses = 0;
  ShelfCounters counted;
  std::thread writer;

  ~Impl() {
    if (lock_file >= 0) ::close(lock_file);
  }

  std::string path_of(const std::string& name) const { return options.folder + "/" + name; }
  static std::string name_of(std::span<const Token> tokens) { return to_hex(hash_tokens(tokens)) + std::string(kEnding); }

  void refuse(const std::string& name, const Error& error) {
    log_warn("checkpoint_refused", {{"file", name}, {"reason", error.message}});
    std::error_code ignored;
    fs::remove(path_of(name), ignored);
    ++counted.refused;
  }

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [name, entry] : entries) sum += entry.bytes;
    return sum;
  }

  // Deletes until `wanted` more bytes fit; the mutex is held. Pinned ones go only for pinned ones.
  bool make_room(uint64_t wanted, bool pinned) {
    if (wanted > options.budget_bytes) return false;
    while (bytes() + wanted > options.budget_bytes) {
      auto victim = entries.end();
      for (auto it = entries.begin(); it != entries.end(); ++it) {
        if (it->second.pinned && !pinned) continue;
        const auto rank = [](const Entry& entry) { return std::make_pair(entry.pinned, entry.used); };
        if (victim == entries.end() || rank(it->second) < rank(victim->second)) victim = it;
      }
      if (victim == entries.end()) return false;
      std::error_code ignored;
      fs::remove(path_of(victim->first), ignored);
      entries.erase(victim);
      ++counted.evicted;
    }
    return true;
  }

  void scan();
  void write_jobs();
};

void CheckpointDisk::Impl::scan() {
  struct Found {
    std::string name;
    fs::file_time_type time;
  };
  std::vector<Found> found;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(options.folder, error)) {
    const std::string name = file.path().filename().string();
    std::error_code ignored;
    if (name.find(".tmp-") != std::string::npos) fs::remove(file.path(), ignored);
    if (name.ends_with(kEnding)) found.push_back({name, fs::last_write_time(file.path(), ignored)});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.time < b.time; });
  for (const Found& one : found) {
    std::error_code ignored;
    const uint64_t size = fs::file_size(path_of(one.name), ignored);
    std::ifstream file(path_of(one.name), std::ios::binary);
    std::string head(kCheckpointHeaderBytes, '\0');
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<size_t>(file.gcount()));
    const auto read = read_checkpoint_head(head, size, options.identity);
    if (!read) {
      refuse(one.name, read.error());
      continue;
    }
    Entry entry;
    entry.tokens.resize(read->tokens);
    file.read(reinterpret_cast<char*>(entry.tokens.data()), static_cast<std::streamsize>(read->tokens * sizeof(Token)));
    if (!file || name_of(entry.tokens) != one.name || hash_tokens(entry.tokens) != read->token_hash) {
      refuse(one.name, {ErrorCode::kInvalidArgument, "the checkpoint file has damaged tokens, or another one's name", {}, 0});
      continue;
    }
    entry.bytes = size;
    entry.used = ++uses;
    entries.emplace(one.name, std::move(entry));
  }
  make_room(0, true);
}

void CheckpointDisk::Impl::write_jobs() {
  std::unique_lock lock(mutex);
  for (;;) {
    wake.wait(lock, [this] { return stopping || !jobs.empty(); });
    if (jobs.empty()) return;
    const Job job = std::move(jobs.front());
    jobs.pop_front();
    const std::string name = name_of(job.tokens);
    if (entries.contains(name)) {
      current = &job;
      lock.unlock();
      const std::string_view payload(reinterpret_cast<const char*>(job.state->data()), job.state->size());
      const auto written = write_file_atomic(path_of(name), encode_checkpoint(options.identity, job.tokens, payload), 0600);
      lock.lock();
      current = nullptr;
      if (written) {
        ++counted.written;
        // Evicted while it was being written.
        std::error_code ignored;
        if (!entries.contains(name)) fs::remove(path_of(name), ignored);
      } else {
        log_warn("checkpoint_not_written", {{"reason", written.error().message}});
        ++counted.failed;
        entries.erase(name);
      }
    }
    waiting_bytes -= job.state->size();
    if (jobs.empty()) idle.notify_all();
  }
}

CheckpointDisk::CheckpointDisk(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->writer = std::thread([this] { impl_->write_jobs(); });
}

CheckpointDisk::~CheckpointDisk() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->wake.notify_all();
  }
  impl_->writer.join();
}

Result<std::unique_ptr<CheckpointDisk>> CheckpointDisk::open(Options options) {
  PF_CHECK_OK(make_folder(options.folder));
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  const std::string lock = impl->path_of("lock");
  impl->lock_file = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (impl->lock_file < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("the checkpoint folder {} cannot be used: {}", impl->options.folder, std::strerror(errno)));
  }
  if (::flock(impl->lock_file, LOCK_EX | LOCK_NB) != 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("the checkpoint folder {} is used by another server; give this one its own "
                                                     "with --checkpoint-dir",
                                                     impl->options.folder));
  }
  impl->scan();
  return std::unique_ptr<CheckpointDisk>(new CheckpointDisk(std::move(impl)));
}

std::vector<Tokens> CheckpointDisk::list() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<const Entry*> order;
  for (const auto& [name, entry] : impl_->entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) { return a->used < b->used; });
  std::vector<Tokens> out;
  for (const Entry* entry : order) out.push_back(entry->tokens);
  return out;
}

void CheckpointDisk::save(std::span<const Token> tokens, std::shared_ptr<const StateBytes> state, bool pinned) {
  const std::string name = Impl::name_of(tokens);
  const std::lock_guard lock(impl_->mutex);
  if (const auto known = impl_->entries.find(name); known != impl_->entries.end()) {
    known->second.pinned = known->second.pinned || pinned;
    return;
  }
  Entry entry;
  entry.tokens.assign(tokens.begin(), tokens.end());
  entry.bytes = kCheckpointHeaderBytes + tokens.size_bytes() + state->size();
  entry.pinned = pinned;
  entry.used = ++impl_->uses;
  if (impl_->waiting_bytes + state->size() > kMostWaitingBytes || !impl_->make_room(entry.bytes, pinned)) {
    ++impl_->counted.failed;
    return;
  }
  impl_->waiting_bytes += state->size();
  impl_->jobs.push_back({entry.tokens, std::move(state)});
  impl_->entries.emplace(name, std::move(entry));
  impl_->wake.notify_one();
}

std::optional<StateBytes> CheckpointDisk::load(std::span<const Token> tokens) {
  const std::string name = Impl::name_of(tokens);
  uint64_t size = 0;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto entry = impl_->entries.find(name);
    if (entry == impl_->entries.end()) return std::nullopt;
    const auto is_it = [&](const Job& job) {
      return std::equal(job.tokens.begin(), job.tokens.end(), tokens.begin(), tokens.end());
    };
    if (impl_->current != nullptr && is_it(*impl_->current)) return *impl_->current->state;
    const auto job = std::find_if(impl_->jobs.begin(), impl_->jobs.end(), is_it);
    if (job != impl_->jobs.end()) return *job->state;
    entry->second.used = ++impl_->uses;
    size = entry->second.bytes;
  }
  const auto file = read_file(impl_->path_of(name), size);
  const auto view = file ? read_checkpoint(*file, impl_->options.identity) : Result<CheckpointView>(fail(file.error()));
  const std::lock_guard lock(impl_->mutex);
  if (!view || !std::equal(view->tokens.begin(), view->tokens.end(), tokens.begin(), tokens.end())) {
    impl_->refuse(name,
                  view ? Error{ErrorCode::kInvalidArgument, "the checkpoint file holds other tokens", {}, 0} : view.error());
    impl_->entries.erase(name);
    return std::nullopt;
  }
  ++impl_->counted.restored;
  // The order of use outlives a restart in the files' times.
  ::utimensat(AT_FDCWD, impl_->path_of(name).c_str(), nullptr, 0);
  return StateBytes(view->payload.begin(), view->payload.end());
}

bool CheckpointDisk::holds(std::span<const Token> tokens) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->entries.contains(Impl::name_of(tokens));
}

ShelfCounters CheckpointDisk::counters() const {
  const std::lock_guard lock(impl_->mutex);
  ShelfCounters out = impl_->counted;
  out.files = impl_->entries.size();
  out.bytes = impl_->bytes();
  return out;
}

void CheckpointDisk::flush() {
  std::unique_lock lock(impl_->mutex);
  impl_->idle.wait(lock, [this] { return impl_->jobs.empty() && impl_->current == nullptr; });
}

}  // namespace pocketfleet
