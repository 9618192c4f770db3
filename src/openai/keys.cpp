#include "openai/keys.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "base/files.h"
#include "crypto/random.h"

namespace pocketfleet {

namespace {

constexpr size_t kMaxFileBytes = 1u << 20;
constexpr size_t kMaxKeyBytes = 512;
constexpr size_t kMinKeyBytes = 8;
constexpr std::string_view kHashed = "sha256:";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool sane_name(std::string_view name) {
  return name.size() <= 64 && std::ranges::all_of(name, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

bool same_without_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

Result<KeyStore> KeyStore::parse(std::string_view text, std::string_view source) {
  KeyStore store;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;

    const auto wrong = [&](std::string_view what) {
      return fail(ErrorCode::kInvalidArgument,
                  std::string(source) + ", line " + std::to_string(number) + ": " + std::string(what));
    };
    std::string name = "key " + std::to_string(store.digests_.size() + 1);
    Sha256 digest{};
    if (line.starts_with(kHashed)) {
      const std::string_view rest = line.substr(kHashed.size());
      const size_t space = std::min(rest.find_first_of(" \t"), rest.size());
      const auto read = sha256_from_hex(rest.substr(0, space));
      if (!read) return wrong("after sha256: come 64 hexadecimal digits and perhaps a name");
      digest = *read;
      if (const std::string_view given = trim(rest.substr(space)); !given.empty()) {
        if (!sane_name(given)) return wrong("a name is one word of at most 64 printable characters");
        name = given;
      }
    } else {
      if (line.find_first_of(" \t") != std::string_view::npos)
        return wrong("a plain key is one word; name keys with sha256:<digest> NAME");
      if (line.size() < kMinKeyBytes) return wrong("a key has at least 8 characters");
      if (line.size() > kMaxKeyBytes) return wrong("a key has at most 512 characters");
      digest = sha256(line);
    }
    if (find_constant_time(store.digests_, digest) >= 0) return wrong("this key stands in the file twice");
    store.digests_.push_back(digest);
    store.names_.push_back(std::move(name));
  }
  if (store.digests_.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                std::string(source) + " holds no key; make one with: pocketfleet key FILE --name NAME");
  }
  return store;
}

Result<KeyStore> KeyStore::load(const std::string& path) {
  auto text = read_file(path, kMaxFileBytes);
  if (!text) return fail(text.error());
  return parse(*text, path);
}

Result<std::string> KeyStore::check(std::optional<std::string_view> authorization) const {
  if (digests_.empty()) return std::string();
  static constexpr std::string_view kScheme = "Bearer";
  std::string_view key;
  if (authorization && authorization->size() > kScheme.size() &&
      same_without_case(authorization->substr(0, kScheme.size()), kScheme) && (*authorization)[kScheme.size()] == ' ') {
    key = trim(authorization->substr(kScheme.size()));
  }
  if (key.empty()) {
    return fail(ErrorCode::kUnauthenticated, "this server wants an API key: send the header Authorization: Bearer KEY");
  }
  // A digest of fixed length is compared, so neither the key's length nor its beginning shows in the time.
  const int place = key.size() <= kMaxKeyBytes ? find_constant_time(digests_, sha256(key)) : -1;
  if (place < 0) return fail(ErrorCode::kUnauthenticated, "the API key is not known to this server");
  return names_[static_cast<size_t>(place)];
}

std::string key_file_line(std::string_view key, std::string_view name) {
  std::string line = std::string(kHashed) + to_hex(sha256(key));
  if (!name.empty()) line += " " + std::string(name);
  return line + "\n";
}

Result<std::string> add_key(const std::string& path, std::string_view name) {
  if (!sane_name(name)) {
    return fail(ErrorCode::kInvalidArgument, "a key's name is one word of at most 64 printable characters", "name");
  }
  std::string text;
  if (auto old = read_file(path, kMaxFileBytes)) {
    text = *std::move(old);
    // A damaged file is not made longer; one without keys yet is fine.
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) {
      if (auto known = KeyStore::parse(text + "\n" + key_file_line("a key that only checks the file", ""), path); !known) {
        return fail(known.error());
      }
      if (text.back() != '\n') text.push_back('\n');
    }
  } else if (std::error_code ignored; std::filesystem::exists(path, ignored) || ignored) {
    return fail(old.error());  // a file that is there but cannot be read is not written over
  }
  PF_TRY(std::string key, make_api_key());
  PF_CHECK_OK(write_file_atomic(path, text + key_file_line(key, name), 0600));
  return key;
}

}  // namespace pocketfleet
