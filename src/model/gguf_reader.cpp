#include "model/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/utf8.h"

namespace pocketfleet {

namespace {

// Far above every model there is; llama.cpp looks for duplicates in quadratic time, so it may not be handed more.
constexpr uint64_t kMostPairs = 8192;
constexpr uint64_t kMostTensors = 32768;
constexpr uint64_t kLongestKey = 1024;
constexpr uint64_t kLongestName = 63;  // ggml keeps a name in 64 bytes
constexpr uint64_t kLongestString = 64u << 20;
constexpr uint64_t kMostElements = uint64_t{1} << 50;
constexpr uint64_t kLeastAlignment = 32;  // ggml maps tensors at this alignment and aborts on less
constexpr uint64_t kMostAlignment = 1u << 20;

uint64_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

template <typename T>
T load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::optional<uint64_t> unsigned_of(GgufType type, std::string_view bytes) {
  const auto positive = [](int64_t value) -> std::optional<uint64_t> {
    if (value < 0) return std::nullopt;
    return static_cast<uint64_t>(value);
  };
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return load<uint8_t>(bytes);
    case GgufType::kU16:
      return load<uint16_t>(bytes);
    case GgufType::kU32:
      return load<uint32_t>(bytes);
    case GgufType::kU64:
      return load<uint64_t>(bytes);
    case GgufType::kI8:
      return positive(load<int8_t>(bytes));
    case GgufType::kI16:
      return positive(load<int16_t>(bytes));
    case GgufType::kI32:
      return positive(load<int32_t>(bytes));
    case GgufType::kI64:
      return positive(load<int64_t>(bytes));
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return std::nullopt;
}

bool is_printable(std::string_view text) {
  return is_valid_utf8(text) &&
         std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

class Reader {
 public:
  Reader(std::string_view bytes, uint64_t file_bytes) : bytes_(bytes), file_bytes_(file_bytes) {}

  Result<GgufFile> run() {
    GgufFile file;
    PF_CHECK_OK(read_head(file));
    for (uint64_t i = 0; i < pair_count_; ++i) PF_CHECK_OK(read_pair(file));
    PF_CHECK_OK(read_alignment(file));
    for (uint64_t i = 0; i < tensor_count_; ++i) PF_CHECK_OK(read_tensor(file));
    PF_CHECK_OK(place_tensors(file));
    return file;
  }

 private:
  template <typename... Args>
  tl::unexpected<Error> bad(fmt::format_string<Args...> text, Args&&... args) const {
    return fail(ErrorCode::kInvalidModel, fmt::format(text, std::forward<Args>(args)...));
  }

  tl::unexpected<Error> cut_short(std::string_view what) const {
    return bad("the file ends after {} bytes, inside {}: it is cut short or damaged", file_bytes_, what);
  }

  template <typename T>
  Result<T> number(std::string_view what) {
    if (bytes_.size() - at_ < sizeof(T)) return cut_short(what);
    const T value = load<T>(bytes_.substr(at_));
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> take(uint64_t length, std::string_view what) {
    if (bytes_.size() - at_ < length) return cut_short(what);
    const std::string_view out = bytes_.substr(at_, length);
    at_ += length;
    return out;
  }

  Result<std::string_view> text(uint64_t longest, std::string_view what) {
    PF_TRY(const uint64_t length, number<uint64_t>(what));
    if (length > longest) return bad("at byte {}: the length of {} is given as {}, more than {}", at_ - 8, what, length, longest);
    return take(length, what);
  }

  Result<void> read_head(GgufFile& file) {
    if (bytes_.empty()) return bad("the file is empty");
    if (bytes_.starts_with("version https://git-lfs")) {
      return bad("this is a Git LFS pointer, not the model: fetch the file itself with `git lfs pull`");
    }
    if (bytes_.starts_with("FUGG")) return bad("this GGUF file is in big-endian byte order, which is not supported");
    if (!bytes_.starts_with("GGUF")) return bad("this is not a GGUF file: it does not begin with GGUF");
    at_ = 4;
    PF_TRY(file.version, number<uint32_t>("the version"));
    if (file.version == 1) return bad("this is a GGUF file of version 1, which is no longer supported: convert the model again");
    if (file.version < 2 || file.version > 3) return bad("GGUF version {} is not known: 2 and 3 are", file.version);
    PF_TRY(tensor_count_, number<uint64_t>("the number of tensors"));
    PF_TRY(pair_count_, number<uint64_t>("the number of keys"));
    if (tensor_count_ > kMostTensors)
      return bad("the file claims to hold {} tensors; at most {} are accepted", tensor_count_, kMostTensors);
    if (pair_count_ > kMostPairs) return bad("the file claims to hold {} keys; at most {} are accepted", pair_count_, kMostPairs);
    return {};
  }

  Result<GgufType> value_type(std::string_view key) {
    PF_TRY(const uint32_t type, number<uint32_t>("a type"));
    if (type > static_cast<uint32_t>(GgufType::kF64)) return bad("key \"{}\" has the type {}, which does not exist", key, type);
    return static_cast<GgufType>(type);
  }

  Result<void> read_pair(GgufFile& file) {
    const size_t begin = at_;
    PF_TRY(const std::string_view key, text(kLongestKey, "a key"));
    if (key.empty()) return bad("at byte {}: a key is empty", begin);
    if (!is_printable(key)) return bad("at byte {}: a key holds control characters or is not UTF-8", begin);
    if (!keys_.insert(key).second) return bad("key \"{}\" appears twice", key);
    GgufValue value;
    PF_TRY(value.type, value_type(key));
    if (value.type == GgufType::kString) {
      PF_TRY(value.bytes, text(kLongestString, key));
    } else if (value.type == GgufType::kArray) {
      PF_CHECK_OK(read_array(key, value));
    } else {
      PF_TRY(value.bytes, take(fixed_size(value.type), key));
    }
    file.pairs.push_back({key, value});
    return {};
  }

  Result<void> read_array(std::string_view key, GgufValue& value) {
    PF_TRY(value.element, value_type(key));
    PF_TRY(value.count, number<uint64_t>(key));
    if (value.element == GgufType::kArray) return bad("key \"{}\" is an array of arrays, which no model uses", key);
    const size_t begin = at_;
    const uint64_t left = bytes_.size() - at_;
    if (value.element == GgufType::kString) {
      // Each string takes 8 bytes at least, so a count that cannot be true is known before the first is read.
      if (value.count > left / 8) return cut_short(key);
      for (uint64_t i = 0; i < value.count; ++i) PF_CHECK_OK(text(kLongestString, key));
      value.bytes = bytes_.substr(begin, at_ - begin);
      return {};
    }
    const uint64_t size = fixed_size(value.element);
    if (value.count > left / size) return cut_short(key);
    PF_TRY(value.bytes, take(value.count * size, key));
    return {};
  }

  Result<void> read_alignment(GgufFile& file) {
    const GgufValue* value = file.find("general.alignment");
    if (value == nullptr) return {};
    if (value->type != GgufType::kU32)
      return bad("general.alignment has the type {}; it must be u32", gguf_type_name(value->type));
    file.alignment = *value->as_unsigned();
    if (file.alignment < kLeastAlignment || file.alignment > kMostAlignment || (file.alignment & (file.alignment - 1)) != 0) {
      return bad("general.alignment is {}; it must be a power of two from {} to {}", file.alignment, kLeastAlignment,
                 kMostAlignment);
    }
    return {};
  }

  Result<void> read_tensor(GgufFile& file) {
    GgufTensor tensor;
    const size_t begin = at_;
    PF_TRY(tensor.name, text(kLongestName, "a tensor's name"));
    if (tensor.name.empty()) return bad("at byte {}: a tensor has no name", begin);
    if (!is_printable(tensor.name)) return bad("at byte {}: a tensor's name holds control characters or is not UTF-8", begin);
    if (!names_.insert(tensor.name).second) return bad("tensor \"{}\" appears twice", tensor.name);
    PF_TRY(tensor.dim_count, number<uint32_t>("a tensor's dimensions"));
    if (tensor.dim_count < 1 || tensor.dim_count > 4) {
      return bad("tensor \"{}\" has {} dimensions; 1 to 4 are possible", tensor.name, tensor.dim_count);
    }
    tensor.elements = 1;
    for (uint32_t i = 0; i < tensor.dim_count; ++i) {
      PF_TRY(tensor.dims[i], number<uint64_t>("a tensor's dimensions"));
      if (tensor.dims[i] == 0) return bad("tensor \"{}\" has a dimension of 0", tensor.name);
      if (tensor.dims[i] > kMostElements / tensor.elements) {
        return bad("tensor \"{}\" claims a dimension of {}: no memory could hold it", tensor.name, tensor.dims[i]);
      }
      tensor.elements *= tensor.dims[i];
    }
    PF_TRY(tensor.type, number<uint32_t>("a tensor's type"));
    const auto type = tensor_type(tensor.type);
    if (!type) return bad("tensor \"{}\" has the type {}, which is not known", tensor.name, tensor.type);
    if (tensor.dims[0] % type->elements != 0) {
      return bad("tensor \"{}\" has rows of {} elements, which {} cannot hold: it stores {} together", tensor.name,
                 tensor.dims[0], type->name, type->elements);
    }
    // No overflow: elements are below 2^50 and a block has at most 292 bytes.
    tensor.bytes = tensor.elements / type->elements * type->bytes;
    PF_TRY(tensor.offset, number<uint64_t>("a tensor's offset"));
    file.tensors.push_back(tensor);
    return {};
  }

  uint64_t padded(uint64_t bytes, uint64_t alignment) const { return (bytes + alignment - 1) / alignment * alignment; }

  // Tensors lie one after the other in the order of the table, each padded to the alignment: so none overlaps another.
  Result<void> place_tensors(GgufFile& file) {
    file.data_offset = padded(at_, file.alignment);
    if (file.tensors.empty()) return {};
    const uint64_t data_bytes = file_bytes_ > file.data_offset ? file_bytes_ - file.data_offset : 0;
    uint64_t next = 0;
    for (const GgufTensor& tensor : file.tensors) {
      if (tensor.offset != next) {
        return bad("tensor \"{}\" begins at {} where {} was expected: tensors overlap or leave a gap", tensor.name, tensor.offset,
                   next);
      }
      if (tensor.bytes > data_bytes || next > data_bytes - tensor.bytes) {
        return bad("the file ends after {} bytes, but tensor \"{}\" reaches to byte {}: it is cut short, download it again",
                   file_bytes_, tensor.name, file.data_offset + next + tensor.bytes);
      }
      next = padded(next + tensor.bytes, file.alignment);
    }
    return {};
  }

  std::string_view bytes_;
  uint64_t file_bytes_;
  size_t at_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t pair_count_ = 0;
  std::unordered_set<std::string_view> keys_;
  std::unordered_set<std::string_view> names_;
};

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                       "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<TensorType> tensor_type(uint32_t number) {
  switch (number) {
    case 0:
      return TensorType{"f32", 1, 4};
    case 1:
      return TensorType{"f16", 1, 2};
    case 2:
      return TensorType{"q4_0", 32, 18};
    case 3:
      return TensorType{"q4_1", 32, 20};
    case 6:
      return TensorType{"q5_0", 32, 22};
    case 7:
      return TensorType{"q5_1", 32, 24};
    case 8:
      return TensorType{"q8_0", 32, 34};
    case 9:
      return TensorType{"q8_1", 32, 36};
    case 10:
      return TensorType{"q2_k", 256, 84};
    case 11:
      return TensorType{"q3_k", 256, 110};
    case 12:
      return TensorType{"q4_k", 256, 144};
    case 13:
      return TensorType{"q5_k", 256, 176};
    case 14:
      return TensorType{"q6_k", 256, 210};
    case 15:
      return TensorType{"q8_k", 256, 292};
    case 16:
      return TensorType{"iq2_xxs", 256, 66};
    case 17:
      return TensorType{"iq2_xs", 256, 74};
    case 18:
      return TensorType{"iq3_xxs", 256, 98};
    case 19:
      return TensorType{"iq1_s", 256, 50};
    case 20:
      return TensorType{"iq4_nl", 32, 18};
    case 21:
      return TensorType{"iq3_s", 256, 110};
    case 22:
      return TensorType{"iq2_s", 256, 82};
    case 23:
      return TensorType{"iq4_xs", 256, 136};
    case 24:
      return TensorType{"i8", 1, 1};
    case 25:
      return TensorType{"i16", 1, 2};
    case 26:
      return TensorType{"i32", 1, 4};
    case 27:
      return TensorType{"i64", 1, 8};
    case 28:
      return TensorType{"f64", 1, 8};
    case 29:
      return TensorType{"iq1_m", 256, 56};
    case 30:
      return TensorType{"bf16", 1, 2};
    case 34:
      return TensorType{"tq1_0", 256, 54};
    case 35:
      return TensorType{"tq2_0", 256, 66};
    case 39:
      return TensorType{"mxfp4", 32, 17};
    case 40:
      return TensorType{"nvfp4", 64, 36};
    case 41:
      return TensorType{"q1_0", 128, 18};
    case 42:
      return TensorType{"q2_0", 64, 18};
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> GgufValue::as_unsigned() const {
  return unsigned_of(type, bytes);
}

std::optional<double> GgufValue::as_float() const {
  if (type == GgufType::kF32) return load<float>(bytes);
  if (type == GgufType::kF64) return load<double>(bytes);
  return std::nullopt;
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (type != GgufType::kString) return std::nullopt;
  return bytes;
}

std::vector<std::string_view> GgufValue::strings() const {
  std::vector<std::string_view> out;
  if (type != GgufType::kArray || element != GgufType::kString) return out;
  out.reserve(count);  // read_gguf() has walked over them all
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = load<uint64_t>(bytes.substr(at));
    out.push_back(bytes.substr(at + 8, length));
    at += 8 + length;
  }
  return out;
}

std::optional<uint64_t> GgufValue::unsigned_at(uint64_t index) const {
  const uint64_t size = type == GgufType::kArray ? fixed_size(element) : 0;
  if (size == 0 || index >= count) return std::nullopt;
  return unsigned_of(element, bytes.substr(index * size, size));
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = std::find_if(pairs.begin(), pairs.end(), [key](const GgufPair& pair) { return pair.key == key; });
  return found == pairs.end() ? nullptr : &found->value;
}

Result<GgufFile> read_gguf(std::string_view bytes, uint64_t file_bytes) {
  return Reader(bytes, file_bytes).run();
}

}  // namespace pocketfleet
