// The GGUF container, byte by byte: magic, version, key-value pairs, tensor table, offsets. Knows nothing of what the keys mean.
// Views into the caller's bytes, which must outlive them; memory used grows with what is in the bytes and never with a number
// that they claim. Pure, any thread. Errors: kInvalidModel with what is wrong and at which byte.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// "u32", "string", ...
std::string_view gguf_type_name(GgufType type);

struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 1;                // elements of an array
  std::string_view bytes;            // a number's bytes, a string's characters, or an array's elements as they lie in the file

  // An unsigned number of any width, or a signed one that is not negative; nothing for other values.
  std::optional<uint64_t> as_unsigned() const;
  std::optional<double> as_float() const;
  std::optional<std::string_view> as_string() const;
  // The elements of an array of strings. Empty for any other value.
  std::vector<std::string_view> strings() const;
  // Element `index` of an array of integers or booleans, as as_unsigned() gives it.
  std::optional<uint64_t> unsigned_at(uint64_t index) const;
};

struct GgufPair {
  std::string_view key;
  GgufValue value;
};

// How ggml stores numbers: `bytes` for each `elements` of a row.
struct TensorType {
  std::string_view name;
  uint32_t elements = 0;
  uint32_t bytes = 0;
};

// Nothing for a number that names no type that is still in use.
std::optional<TensorType> tensor_type(uint32_t number);

struct GgufTensor {
  std::string_view name;
  std::array<uint64_t, 4> dims = {1, 1, 1, 1};
  uint32_t dim_count = 1;
  uint32_t type = 0;
  uint64_t offset = 0;  // from the beginning of the data
  uint64_t bytes = 0;
  uint64_t elements = 0;
};

struct GgufFile {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;
  std::vector<GgufPair> pairs;
  std::vector<GgufTensor> tensors;

  const GgufValue* find(std::string_view key) const;
};

// `file_bytes`: the size of the whole file, of which `bytes` may be only the beginning.
Result<GgufFile> read_gguf(std::string_view bytes, uint64_t file_bytes);

}  // namespace pocketfleet
