// A file's bytes without a copy, read-only. Owns the mapping. A path that is a folder, a pipe or a device is refused. If somebody
// cuts the file short while it is mapped, reading past its new end is a SIGBUS, as it is for any program that maps a file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet {

class MappedFile {
 public:
  // kIo when it cannot be opened or is no regular file.
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}

  std::string_view bytes_;
};

}  // namespace pocketfleet
