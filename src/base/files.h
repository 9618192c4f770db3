// Whole small files. Bounded reads; writes that are either all there or not there (temporary name, fsync, rename). Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet {

// kIo when it cannot be read, kPayloadTooLarge when it has more than max_bytes.
Result<std::string> read_file(const std::string& path, size_t max_bytes);
// mode: permission bits of the new file.
Result<void> write_file_atomic(const std::string& path, std::string_view bytes, unsigned mode = 0644);

}  // namespace pocketfleet
