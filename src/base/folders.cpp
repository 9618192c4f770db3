#include "base/folders.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace pocketfleet {

namespace {

Result<std::string> user_folder(const char* variable, const char* below_home, std::string_view kind) {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? value : nullptr;
  };
  if (const char* base = absolute(variable)) return fmt::format("{}/pocketfleet/{}", base, kind);
  if (const char* home = absolute("HOME")) return fmt::format("{}/{}/pocketfleet/{}", home, below_home, kind);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("neither {} nor HOME says where to keep {}: set one, or name a folder", variable, kind));
}

Result<bool> make(const std::string& path) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(path, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("the folder {} cannot be made: {}", path, error.message()));
  return made;
}

}  // namespace

Result<std::string> cache_folder(std::string_view kind) {
  return user_folder("XDG_CACHE_HOME", ".cache", kind);
}

Result<std::string> state_folder(std::string_view kind) {
  return user_folder("XDG_STATE_HOME", ".local/state", kind);
}

Result<void> make_folder(const std::string& path) {
  PF_TRY([[maybe_unused]] const bool made, make(path));
  return {};
}

Result<void> make_private_folder(const std::string& path) {
  PF_TRY(const bool made, make(path));
  std::error_code error;
  if (made) std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("the folder {} cannot be closed to others: {}", path, error.message()));
  return {};
}

}  // namespace pocketfleet
