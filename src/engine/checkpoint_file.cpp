#include "engine/checkpoint_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace pocketfleet {

namespace {

constexpr std::string_view kMagic = "PFCKPT\r\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kHashedHeaderBytes = 96;
constexpr size_t kReadBytes = 1u << 20;

static_assert(std::endian::native == std::endian::little, "tokens and numbers are written as they lie in memory");

Hash128 canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Hash128 out;
  std::memcpy(out.data(), bytes.digest, out.size());
  return out;
}

template <typename T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

tl::unexpected<Error> refuse(std::string reason) {
  return fail(ErrorCode::kInvalidArgument, "the checkpoint file " + std::move(reason));
}

}  // namespace

Hash128 hash128(std::string_view bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

Hash128 hash_tokens(std::span<const Token> tokens) {
  return canonical(XXH3_128bits(tokens.data(), tokens.size_bytes()));
}

std::string to_hex(const Hash128& hash) {
  std::string out;
  for (const uint8_t byte : hash) out += fmt::format("{:02x}", byte);
  return out;
}

Result<Hash128> hash_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto io_error = [&] { return fail(ErrorCode::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno))); };
  if (file < 0) return io_error();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> buffer(kReadBytes);
  for (;;) {
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      auto error = io_error();
      ::close(file);
      return error;
    }
    if (got == 0) break;
    XXH3_128bits_update(state.get(), buffer.data(), static_cast<size_t>(got));
  }
  ::close(file);
  return canonical(XXH3_128bits_digest(state.get()));
}

std::string encode_checkpoint(const CheckpointIdentity& identity, std::span<const Token> tokens, std::string_view payload) {
  std::string out;
  out.reserve(kCheckpointHeaderBytes + tokens.size_bytes() + payload.size());
  out += kMagic;
  append(out, kVersion);
  append(out, static_cast<uint32_t>(tokens.size()));
  append(out, static_cast<uint64_t>(payload.size()));
  append(out, identity.key_type);
  append(out, identity.value_type);
  append(out, identity.model);
  append(out, identity.build);
  append(out, hash_tokens(tokens));
  append(out, hash128(payload));
  append(out, hash128(out));
  out.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return out.append(payload);
}

Result<CheckpointHead> read_checkpoint_head(std::string_view head, uint64_t file_bytes, const CheckpointIdentity& identity) {
  if (head.size() < kCheckpointHeaderBytes || file_bytes < kCheckpointHeaderBytes) return refuse("is shorter than its header");
  if (!head.starts_with(kMagic)) return refuse("begins with something else than PFCKPT");
  if (const auto version = take<uint32_t>(head, 8); version != kVersion)
    return refuse(fmt::format("has version {}, not {}", version, kVersion));
  if (take<Hash128>(head, kHashedHeaderBytes) != hash128(head.substr(0, kHashedHeaderBytes)))
    return refuse("has a damaged header");
  CheckpointHead out;
  out.tokens = take<uint32_t>(head, 12);
  out.payload_bytes = take<uint64_t>(head, 16);
  if (out.tokens == 0 || out.tokens > kMostCheckpointTokens || out.payload_bytes == 0)
    return refuse(fmt::format("claims {} tokens and {} bytes of state", out.tokens, out.payload_bytes));
  const uint64_t before_payload = kCheckpointHeaderBytes + uint64_t{out.tokens} * sizeof(Token);
  if (file_bytes < before_payload || file_bytes - before_payload != out.payload_bytes)
    return refuse(fmt::format("has {} bytes, not the {} that its header tells", file_bytes, before_payload + out.payload_bytes));
  if (take<Hash128>(head, 32) != identity.model) return refuse("belongs to another model");
  if (take<Hash128>(head, 48) != identity.build) return refuse("was made by another build or with other settings");
  if (take<uint32_t>(head, 24) != identity.key_type || take<uint32_t>(head, 28) != identity.value_type)
    return refuse("has other types in its KV cache");
  out.token_hash = take<Hash128>(head, 64);
  out.payload_hash = take<Hash128>(head, 80);
  return out;
}

Result<CheckpointView> read_checkpoint(std::string_view file, const CheckpointIdentity& identity) {
  PF_TRY(const CheckpointHead head, read_checkpoint_head(file, file.size(), identity));
  CheckpointView out;
  out.tokens.resize(head.tokens);
  std::memcpy(out.tokens.data(), file.data() + kCheckpointHeaderBytes, head.tokens * sizeof(Token));
  if (hash_tokens(out.tokens) != head.token_hash) return refuse("has damaged tokens");
  for (const Token token : out.tokens) {
    if (token < 0) return refuse("holds a negative token");
  }
  out.payload = file.substr(kCheckpointHeaderBytes + head.tokens * sizeof(Token));
  if (hash128(out.payload) != head.payload_hash) return refuse("holds a damaged state");
  return out;
}

}  // namespace pocketfleet
