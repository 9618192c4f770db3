#include "model/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pocketfleet {

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Non-blocking, so that a named pipe without a writer does not hold us.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail(ErrorCode::kIo, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::kIo,
                fmt::format("{} is {}, not a file", path, S_ISDIR(info.st_mode) ? "a folder" : "a pipe or a device"));
  }
  if (info.st_size == 0) {
    ::close(fd);
    return MappedFile(std::string_view());
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (address == MAP_FAILED) return fail(ErrorCode::kIo, fmt::format("cannot map {}: {}", path, std::strerror(error)));
  return MappedFile(std::string_view(static_cast<const char*>(address), size));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

}  // namespace pocketfleet
