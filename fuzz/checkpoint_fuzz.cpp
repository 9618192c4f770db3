// Whatever the bytes are, a checkpoint file is refused or gives exactly what was written into it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "engine/checkpoint_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const CheckpointIdentity identity = {hash128("model"), hash128("build"), 1, 1};
  if (const auto read = read_checkpoint(file, identity)) {
    if (encode_checkpoint(identity, read->tokens, read->payload) != file) std::abort();
  }
  // A header that is right lets the rest be reached.
  std::string repaired = encode_checkpoint(identity, Tokens{1, 2, 3}, "payload");
  if (size > kCheckpointHeaderBytes) {
    std::string sealed(file);
    std::memcpy(sealed.data(), repaired.data(), 8);
    const uint32_t version = 1;
    std::memcpy(sealed.data() + 8, &version, sizeof version);
    std::memcpy(sealed.data() + 24, repaired.data() + 24, 40);
    const Hash128 seal = hash128(std::string_view(sealed).substr(0, 96));
    std::memcpy(sealed.data() + 96, seal.data(), seal.size());
    const auto read = read_checkpoint(sealed, identity);
    if (read && encode_checkpoint(identity, read->tokens, read->payload) != sealed) std::abort();
  }
  // What is encoded is read back.
  Tokens tokens;
  for (size_t index = 0; index < size && index < 64; ++index) tokens.push_back(data[index]);
  if (tokens.empty()) return 0;
  const std::string made = encode_checkpoint(identity, tokens, file);
  const auto again = read_checkpoint(made, identity);
  if (!again || again->tokens != tokens || again->payload != file) std::abort();
  return 0;
}
