#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/ids.h"

namespace pocketfleet {

namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> io_error(std::string_view what, const std::string& path) {
  return fail(ErrorCode::kIo, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return io_error("open", path);
  std::string out;
  char buffer[65536];
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error("read", path);
    if (got == 0) return out;
    if (out.size() + static_cast<size_t>(got) > max_bytes) {
      return fail(ErrorCode::kPayloadTooLarge, fmt::format("{} has more than {} bytes", path, max_bytes));
    }
    out.append(buffer, static_cast<size_t>(got));
  }
}

Result<void> write_file_atomic(const std::string& path, std::string_view bytes, unsigned mode) {
  const std::string temporary = path + make_id(".tmp-");
  {
    const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.get() < 0) return io_error("create", temporary);
    while (!bytes.empty()) {
      const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        auto error = io_error("write", temporary);
        ::unlink(temporary.c_str());
        return error;
      }
      bytes.remove_prefix(static_cast<size_t>(put));
    }
    if (::fsync(file.get()) != 0) {
      auto error = io_error("fsync", temporary);
      ::unlink(temporary.c_str());
      return error;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    auto error = io_error("rename", temporary);
    ::unlink(temporary.c_str());
    return error;
  }
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const FileDescriptor folder(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
  return {};
}

}  // namespace pocketfleet
