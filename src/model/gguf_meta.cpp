#include "model/gguf_meta.h"

#include <cmath>

namespace pocketfleet {

namespace {

tl::unexpected<Error> wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) {
  return fail(ErrorCode::kInvalidModel,
              fmt::format("{} has the type {}{}; it must be {}", key, gguf_type_name(value.type),
                          value.type == GgufType::kArray ? fmt::format(" of {}", gguf_type_name(value.element)) : "", wanted));
}

Result<uint64_t> in_range(std::string_view key, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return value;
  return fail(ErrorCode::kInvalidModel, fmt::format("{} is {}; it must be from {} to {}", key, value, least, most));
}

}  // namespace

Result<uint64_t> GgufMeta::number(std::string_view name, uint64_t least, uint64_t most, uint64_t otherwise) const {
  const std::string whole = key(name);
  const GgufValue* value = file_.find(whole);
  if (value == nullptr) return otherwise;
  if (value->type != GgufType::kU32) return wrong_type(whole, *value, "u32");
  return in_range(whole, *value->as_unsigned(), least, most);
}

Result<uint64_t> GgufMeta::required(std::string_view name, uint64_t least, uint64_t most) const {
  if (!has(name)) return fail(ErrorCode::kInvalidModel, fmt::format("{} is missing", key(name)));
  return number(name, least, most, 0);
}

Result<std::vector<uint64_t>> GgufMeta::per_layer(std::string_view name, uint64_t layers, uint64_t most,
                                                  uint64_t otherwise) const {
  const std::string whole = key(name);
  const GgufValue* value = file_.find(whole);
  if (value == nullptr || value->type != GgufType::kArray) {
    PF_TRY(const uint64_t all, number(name, 0, most, otherwise));
    return std::vector<uint64_t>(layers, all);
  }
  if (value->element != GgufType::kU32 && value->element != GgufType::kI32 && value->element != GgufType::kBool) {
    return wrong_type(whole, *value, "u32 or an array of u32, i32 or bool");
  }
  if (value->count != layers) {
    return fail(ErrorCode::kInvalidModel, fmt::format("{} has {} elements for {} layers", whole, value->count, layers));
  }
  std::vector<uint64_t> out;
  for (uint64_t i = 0; i < layers; ++i) {
    const auto element = value->unsigned_at(i);
    if (!element) return fail(ErrorCode::kInvalidModel, fmt::format("{} is negative for layer {}", whole, i));
    PF_TRY(const uint64_t checked, in_range(whole, *element, 0, most));
    out.push_back(checked);
  }
  return out;
}

Result<double> GgufMeta::real(std::string_view name, double least, double most, double otherwise) const {
  const std::string whole = key(name);
  const GgufValue* value = file_.find(whole);
  if (value == nullptr) return otherwise;
  if (value->type != GgufType::kF32) return wrong_type(whole, *value, "f32");
  const double real = *value->as_float();
  if (std::isfinite(real) && real >= least && real <= most) return real;
  return fail(ErrorCode::kInvalidModel, fmt::format("{} is {}; it must be from {} to {}", whole, real, least, most));
}

Result<std::string_view> GgufMeta::string(std::string_view whole_key) const {
  const GgufValue* value = file_.find(whole_key);
  if (value == nullptr) return std::string_view();
  if (value->type != GgufType::kString) return wrong_type(whole_key, *value, "a string");
  return value->bytes;
}

}  // namespace pocketfleet
