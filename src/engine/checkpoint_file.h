// The checkpoint file, docs/formats/checkpoint.md: bytes to checkpoint and back. Pure; any thread. A file of another model, build
// or KV type, or one that is damaged anywhere, is kInvalidArgument with the reason; nothing of it is given out.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/types.h"

namespace pocketfleet {

// XXH3, 128 bits, canonical order of bytes.
using Hash128 = std::array<uint8_t, 16>;
Hash128 hash128(std::string_view bytes);
Hash128 hash_tokens(std::span<const Token> tokens);
std::string to_hex(const Hash128& hash);
// Of a whole file. kIo when it cannot be read.
Result<Hash128> hash_file(const std::string& path);

// What must be equal for a state to be of use.
struct CheckpointIdentity {
  Hash128 model{};
  Hash128 build{};
  uint32_t key_type = 0;
  uint32_t value_type = 0;
};

constexpr size_t kCheckpointHeaderBytes = 112;
constexpr size_t kMostCheckpointTokens = 1u << 24;

struct CheckpointHead {
  uint32_t tokens = 0;
  uint64_t payload_bytes = 0;
  Hash128 token_hash{};
  Hash128 payload_hash{};
};

struct CheckpointView {
  Tokens tokens;
  std::string_view payload;  // into the bytes that were read
};

std::string encode_checkpoint(const CheckpointIdentity& identity, std::span<const Token> tokens, std::string_view payload);
// `head`: at least the first 112 bytes of a file of `file_bytes`.
Result<CheckpointHead> read_checkpoint_head(std::string_view head, uint64_t file_bytes, const CheckpointIdentity& identity);
Result<CheckpointView> read_checkpoint(std::string_view file, const CheckpointIdentity& identity);

}  // namespace pocketfleet
