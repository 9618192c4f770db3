#include "model/download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.h"
#include "model/sha256.h"

namespace pocketfleet {

namespace {

constexpr uint64_t kLeastChunk = 64u << 10;
constexpr uint64_t kMostChunk = 8u << 20;
constexpr uint64_t kChunksWanted = 1024;
// What one request asks for, so that several connections find work and a broken one loses nothing but its place.
constexpr uint64_t kMostRequest = 256u << 20;
constexpr uint64_t kSharedRequest = 32u << 20;
constexpr uint64_t kSyncBytes = 64u << 20;
constexpr uint64_t kSpareBytes = 64u << 20;
constexpr int64_t kFirstPause_ms = 500;
constexpr int64_t kLongestPause_ms = 30'000;
constexpr int64_t kLongestRetryAfter_ms = 600'000;
constexpr int kMostRestarts = 3;
constexpr int kMostRefusals = 3;  // 401 and 403 in a row
constexpr int kMostWaits = 100;   // 429 and 503 in a row
constexpr size_t kMostJournalBytes = 512u << 20;

class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

tl::unexpected<Error> io_error(std::string_view what, const std::string& path) {
  return fail(ErrorCode::kIo, fmt::format("{} {}: {}", path, what, std::strerror(errno)));
}

Result<File> open_file(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (descriptor < 0) return io_error("could not be opened", path);
  return File(descriptor);
}

Result<void> write_at(int file, std::string_view bytes, uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return io_error("could not be written", path);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Result<std::string> sha256_range(int file, ByteRange range, const std::string& path, const CancelToken& cancel) {
  Sha256Stream hash;
  std::string buffer(1u << 20, '\0');
  for (uint64_t at = range.begin; at < range.end;) {
    if (cancel.cancelled()) return fail(ErrorCode::kCancelled, "stopped");
    const size_t want = std::min<uint64_t>(buffer.size(), range.end - at);
    const ssize_t got = ::pread(file, buffer.data(), want, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("could not be read", path);
    if (got == 0) break;
    hash.add(std::string_view(buffer.data(), static_cast<size_t>(got)));
    at += static_cast<uint64_t>(got);
  }
  return hash.finish();
}

uint64_t chunk_for(uint64_t size) {
  const uint64_t wanted = size / kChunksWanted / kLeastChunk * kLeastChunk;
  return std::clamp(wanted, kLeastChunk, kMostChunk);
}

// What the connections share.
class Fetch {
 public:
  Fetch(const DownloadOptions& options, const DownloadTools& tools,
        const std::function<void(const DownloadProgress&)>& on_progress)
      : options_(options),
        tools_(tools),
        on_progress_(on_progress),
        partial_(options.path + ".partial"),
        journal_path_(options.path + ".journal") {}

  Result<DownloadResult> run() {
    PF_CHECK_OK(open_partial());
    PF_CHECK_OK(resume());
    const uint64_t resumed = journal_ ? journal_->done_bytes() : 0;
    for (int restart = 0;; ++restart) {
      PF_CHECK_OK(fetch_all());
      if (!changed_) {
        auto done = finish(resumed);
        if (done || done.error().code != ErrorCode::kProtocol) return done;
        // All came and it is not what it should be: once more from the beginning, and then nothing is left behind.
        if (restart >= 1) {
          PF_CHECK_OK(begin_anew());
          return done;
        }
      } else if (restart >= kMostRestarts) {
        return fail(ErrorCode::kProtocol, fmt::format("{} changes while it is being fetched; try later", options_.url));
      }
      PF_CHECK_OK(begin_anew());
    }
  }

 private:
  // One connection at its work. Kept over broken transfers, so that no byte is fetched twice.
  struct Cursor {
    ByteRange range;
    uint64_t at = 0;
    Sha256Stream hash;  // of the chunk that `at` is in
    bool active = false;
  };

  class Sink final : public SourceSink {
   public:
    Sink(Fetch& fetch, Cursor& cursor) : fetch_(fetch), cursor_(cursor) {}
    bool begin(const SourceReply& reply) override { return fetch_.take_reply(reply, cursor_); }
    bool write(std::string_view bytes) override { return fetch_.take_bytes(bytes, cursor_); }

   private:
    Fetch& fetch_;
    Cursor& cursor_;
  };

  Result<void> open_partial() {
    PF_TRY(file_, open_file(partial_, O_RDWR | O_CREAT));
    PF_TRY(journal_file_, open_file(journal_path_, O_RDWR | O_CREAT));
    return {};
  }

  // Trusts what the journal says and the bytes confirm.
  Result<void> resume() {
    const auto text = read_file(journal_path_, kMostJournalBytes);
    auto journal = text ? DownloadJournal::parse(*text) : Result<DownloadJournal>(fail(text.error()));
    const bool fits = journal && (options_.expected_bytes == 0 || journal->identity().size_bytes == options_.expected_bytes);
    if (!fits) return begin_anew();
    for (uint64_t index = 0; index < journal->chunks(); ++index) {
      if (!journal->has(index)) continue;
      PF_TRY(const std::string digest, sha256_range(file_.get(), journal->range_of(index), partial_, options_.cancel));
      if (digest != journal->digest(index)) journal->remove(index);
    }
    journal_ = *std::move(journal);
    return rewrite_journal();
  }

  Result<void> begin_anew() {
    journal_.reset();
    changed_ = false;
    ranges_supported_ = true;
    if (::ftruncate(file_.get(), 0) != 0 || ::ftruncate(journal_file_.get(), 0) != 0)
      return io_error("could not be emptied", partial_);
    journal_at_ = 0;
    return {};
  }

  Result<void> rewrite_journal() {
    std::string text = journal_->head();
    for (uint64_t index = 0; index < journal_->chunks(); ++index) {
      if (journal_->has(index)) text += journal_->chunk_line(index);
    }
    if (::ftruncate(journal_file_.get(), 0) != 0) return io_error("could not be emptied", journal_path_);
    PF_CHECK_OK(write_at(journal_file_.get(), text, 0, journal_path_));
    if (::fdatasync(journal_file_.get()) != 0) return io_error("could not be synced", journal_path_);
    journal_at_ = text.size();
    return {};
  }

  // Until nothing is missing, the file changed, or it cannot go on.
  Result<void> fetch_all() {
    failure_.reset();
    handed_out_.clear();
    const int connections = std::clamp(options_.connections, 1, 16);
    std::vector<std::thread> helpers;
    for (int index = 1; index < connections; ++index) helpers.emplace_back([this] { work(false); });
    work(true);
    for (std::thread& helper : helpers) helper.join();
    if (options_.cancel.cancelled())
      return fail(ErrorCode::kCancelled, "stopped; what was fetched is kept, so run it again to go on");
    if (failure_ && !changed_) return fail(*failure_);
    return {};
  }

  bool over() const { return failure_ || changed_ || options_.cancel.cancelled() || (journal_ && journal_->complete()); }

  // The first connection learns what the file is; the others wait for that.
  void work(bool first) {
    const std::unique_ptr<DownloadSource> source = tools_.make_source();
    Cursor cursor;
    int fruitless = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (!first) changed_state_.wait(lock, [&] { return over() || journal_; });
        if (over() || (!first && !ranges_supported_)) break;
        if (!cursor.active && !next_range(cursor)) break;
      }
      const uint64_t before = cursor.at;
      SourceRequest request;
      request.url = options_.url;
      request.bearer = options_.bearer;
      {
        const std::lock_guard lock(mutex_);
        if (journal_ && ranges_supported_) {
          request.range = ByteRange{cursor.at, cursor.range.end};
          request.if_range = journal_->identity().validator;
        } else if (journal_) {
          // The server knows only wholes: what came before has to come again.
          cursor.at = cursor.range.begin;
          cursor.hash.reset();
        }
      }
      Sink sink(*this, cursor);
      const auto reply = source->get(request, sink, options_.cancel);
      int64_t pause_ms = 0;
      {
        const std::lock_guard lock(mutex_);
        fruitless = cursor.at > before ? 0 : fruitless + 1;
        pause_ms = judge(reply, fruitless);
        changed_state_.notify_all();
        if (over()) break;
      }
      if (pause_ms > 0) tools_.pause(pause_ms, options_.cancel);
    }
    const std::lock_guard lock(mutex_);
    changed_state_.notify_all();
  }

  // What one connection asks for at most. mutex_ is held, and the journal is there.
  uint64_t request_bytes() const {
    return options_.connections > 1 ? std::max(kSharedRequest, journal_->identity().chunk_bytes) : kMostRequest;
  }

  // mutex_ is held.
  bool next_range(Cursor& cursor) {
    if (!journal_) {
      cursor.range = {0, UINT64_MAX};
      cursor.at = 0;
      cursor.hash.reset();
      cursor.active = true;
      return true;
    }
    for (const ByteRange& range : journal_->missing(request_bytes())) {
      const bool taken = std::any_of(handed_out_.begin(), handed_out_.end(),
                                     [&](const ByteRange& other) { return range.begin < other.end && other.begin < range.end; });
      if (taken) continue;
      cursor.range = range;
      cursor.at = range.begin;
      cursor.hash.reset();
      cursor.active = true;
      handed_out_.push_back(range);
      return true;
    }
    return false;
  }

  int64_t give_up(Error error) {
    if (!failure_) failure_ = std::move(error);
    return 0;
  }

  // What comes next after a transfer, and how long to wait before it. mutex_ is held.
  int64_t judge(const Result<SourceReply>& reply, int fruitless) {
    if (over() || fruitless == 0) return 0;
    int64_t pause_ms = std::min(kLongestPause_ms, kFirstPause_ms << std::min(fruitless, 16));
    std::string why;
    if (!reply) {
      if (reply.error().code == ErrorCode::kCancelled) return 0;
      const bool final = reply.error().code == ErrorCode::kPermissionDenied;
      if (final || fruitless >= options_.tries) return give_up(reply.error());
      why = reply.error().message;
    } else {
      const int status = reply->status;
      if (status == 416) {
        changed_ = true;
        return 0;
      }
      if (status == 404 || status == 410)
        return give_up({ErrorCode::kNotFound, fmt::format("{} does not exist ({})", options_.url, status), {}, 0});
      // A signed link may have expired between two hops; asking anew makes another.
      if ((status == 401 || status == 403) && fruitless >= kMostRefusals) {
        return give_up({ErrorCode::kPermissionDenied,
                        fmt::format("{} may not be read ({}); does it need a token (HF_TOKEN)?", options_.url, status),
                        {},
                        0});
      }
      const bool asked_to_wait = status == 429 || status == 503;
      if (fruitless >= (asked_to_wait ? kMostWaits : options_.tries)) {
        return give_up({ErrorCode::kUnavailable, fmt::format("{} is answered {} all the time", options_.url, status), {}, 0});
      }
      if (asked_to_wait) pause_ms = std::clamp(std::max(reply->retry_after_ms, pause_ms), int64_t{1}, kLongestRetryAfter_ms);
      why = asked_to_wait ? fmt::format("the server asked to wait ({})", status)
                          : fmt::format("the server answered {} and no bytes", status);
    }
    show(why);
    // Half as much again at most, so that those who were sent away together do not come back together.
    return pause_ms + static_cast<int64_t>(random_() % static_cast<uint64_t>(pause_ms / 2 + 1));
  }

  bool take_reply(const SourceReply& reply, Cursor& cursor) {
    const std::lock_guard lock(mutex_);
    if (over()) return false;
    if (reply.status != 200 && reply.status != 206) return false;
    if (!reply.size_bytes) {
      give_up({ErrorCode::kProtocol, fmt::format("{} does not say how long it is", options_.url), {}, 0});
      return false;
    }
    if (!journal_) return learn(reply, cursor);
    const DownloadIdentity& identity = journal_->identity();
    if (*reply.size_bytes != identity.size_bytes || reply.validator != identity.validator) {
      changed_ = true;
      return false;
    }
    if (reply.status == 200) {
      // Ranges are ignored: the whole comes from its beginning, and what is there already is skipped.
      ranges_supported_ = false;
      cursor.at = 0;
      cursor.range = {0, identity.size_bytes};
      cursor.hash.reset();
      return true;
    }
    if (reply.begin != cursor.at) {
      give_up({ErrorCode::kProtocol,
               fmt::format("{} sends bytes from {} where {} was asked for", options_.url, reply.begin, cursor.at),
               {},
               0});
      return false;
    }
    return true;
  }

  // The first reply of all says what the file is. mutex_ is held.
  bool learn(const SourceReply& reply, Cursor& cursor) {
    const uint64_t size = *reply.size_bytes;
    if (options_.expected_bytes != 0 && size != options_.expected_bytes) {
      give_up({ErrorCode::kProtocol,
               fmt::format("{} has {} bytes, not the {} that were expected", options_.url, size, options_.expected_bytes),
               {},
               0});
      return false;
    }
    if (const auto free = tools_.free_bytes(options_.path); free && *free < size + kSpareBytes) {
      give_up({ErrorCode::kIo,
               fmt::format("{} needs {} MB and the disk has {} MB left; make room or name another folder", options_.url,
                           size / 1'000'000, *free / 1'000'000),
               {},
               0});
      return false;
    }
    journal_.emplace(DownloadIdentity{size, reply.validator, chunk_for(size)});
    if (const auto written = rewrite_journal(); !written) {
      give_up(written.error());
      return false;
    }
    // The rest of this answer is the first range.
    cursor.range = {0, size};
    if (options_.connections > 1) {
      const auto missing = journal_->missing(request_bytes());
      if (!missing.empty()) cursor.range = missing.front();
    }
    handed_out_.push_back(cursor.range);
    changed_state_.notify_all();
    return true;
  }

  bool take_bytes(std::string_view bytes, Cursor& cursor) {
    const std::lock_guard lock(mutex_);
    if (over()) return false;
    fetched_ += bytes.size();
    while (!bytes.empty()) {
      if (cursor.at >= cursor.range.end) return false;  // the end of this connection's part
      const uint64_t index = cursor.at / journal_->identity().chunk_bytes;
      const ByteRange chunk = journal_->range_of(index);
      const size_t count = std::min<uint64_t>(bytes.size(), std::min(chunk.end, cursor.range.end) - cursor.at);
      const std::string_view piece = bytes.substr(0, count);
      if (!journal_->has(index)) {
        if (const auto written = write_at(file_.get(), piece, cursor.at, partial_); !written) {
          give_up(written.error());
          return false;
        }
        cursor.hash.add(piece);
      }
      cursor.at += count;
      bytes.remove_prefix(count);
      if (cursor.at == chunk.end && !end_chunk(index, cursor)) return false;
    }
    show({});
    if (cursor.at < cursor.range.end) return true;
    cursor.active = false;
    std::erase(handed_out_, cursor.range);
    // Exactly what was asked for has come: the connection can be used again.
    return true;
  }

  bool end_chunk(uint64_t index, Cursor& cursor) {
    const std::string digest = cursor.hash.finish();
    cursor.hash.reset();
    if (journal_->has(index)) return true;
    journal_->add(index, digest);
    const std::string line = journal_->chunk_line(index);
    const auto written = write_at(journal_file_.get(), line, journal_at_, journal_path_);
    if (!written) {
      give_up(written.error());
      return false;
    }
    journal_at_ += line.size();
    // Which of the two reaches the disk first does not matter, since whoever goes on reads the chunk again. A machine that goes
    // down loses no more than this.
    unsynced_ += journal_->range_of(index).size();
    if (unsynced_ < kSyncBytes) return true;
    unsynced_ = 0;
    if (::fdatasync(file_.get()) == 0 && ::fdatasync(journal_file_.get()) == 0) return true;
    give_up({ErrorCode::kIo, fmt::format("{} could not be synced: {}", partial_, std::strerror(errno)), {}, 0});
    return false;
  }

  void show(const std::string& why) {
    if (!on_progress_) return;
    DownloadProgress progress;
    progress.done_bytes = journal_ ? journal_->done_bytes() : 0;
    progress.size_bytes = journal_ ? journal_->identity().size_bytes : options_.expected_bytes;
    progress.fetched_bytes = fetched_;
    progress.waiting_for = why;
    on_progress_(progress);
  }

  Result<DownloadResult> finish(uint64_t resumed) {
    DownloadResult result;
    result.size_bytes = journal_->identity().size_bytes;
    result.fetched_bytes = fetched_;
    result.resumed_bytes = resumed;
    if (::ftruncate(file_.get(), static_cast<off_t>(result.size_bytes)) != 0) return io_error("could not be cut", partial_);
    PF_TRY(result.sha256, sha256_range(file_.get(), {0, result.size_bytes}, partial_, options_.cancel));
    if (!options_.expected_sha256.empty() && result.sha256 != options_.expected_sha256) {
      return fail(ErrorCode::kProtocol,
                  fmt::format("{} came whole and is not the file that was expected: its SHA-256 is {}, not {}", options_.url,
                              result.sha256, options_.expected_sha256));
    }
    if (::fsync(file_.get()) != 0) return io_error("could not be synced", partial_);
    if (::rename(partial_.c_str(), options_.path.c_str()) != 0) return io_error("could not be renamed", partial_);
    ::unlink(journal_path_.c_str());
    const std::string folder = std::filesystem::path(options_.path).parent_path().string();
    if (const auto directory = open_file(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY)) ::fsync(directory->get());
    return result;
  }

  const DownloadOptions& options_;
  const DownloadTools& tools_;
  const std::function<void(const DownloadProgress&)>& on_progress_;
  const std::string partial_;
  const std::string journal_path_;
  File file_;
  File journal_file_;
  uint64_t journal_at_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_state_;
  std::optional<DownloadJournal> journal_;
  std::vector<ByteRange> handed_out_;
  std::optional<Error> failure_;
  bool changed_ = false;  // the file on the server is another one now
  bool ranges_supported_ = true;
  uint64_t fetched_ = 0;
  uint64_t unsynced_ = 0;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

Result<std::string> sha256_file(const std::string& path, const CancelToken& cancel) {
  PF_TRY(const File file, open_file(path, O_RDONLY));
  return sha256_range(file.get(), {0, UINT64_MAX}, path, cancel);
}

DownloadTools real_download_tools() {
  DownloadTools tools;
  tools.pause = [](int64_t ms, const CancelToken& cancel) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
    while (!cancel.cancelled() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  tools.free_bytes = [](const std::string& path) -> Result<uint64_t> {
    struct statvfs stat {};
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (::statvfs(folder.empty() ? "." : folder.c_str(), &stat) != 0) return io_error("could not be looked at", folder);
    return static_cast<uint64_t>(stat.f_bavail) * stat.f_frsize;
  };
  return tools;
}

Result<DownloadResult> download(const DownloadOptions& options, const DownloadTools& tools,
                                const std::function<void(const DownloadProgress&)>& on_progress) {
  return Fetch(options, tools, on_progress).run();
}

}  // namespace pocketfleet
