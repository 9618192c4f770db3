#include "openai/params.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "openai/suggest.h"

namespace pocketfleet {

ParamReader::ParamReader(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

void ParamReader::refuse(std::string_view key, std::string message, ErrorCode code) {
  if (!error_) error_ = Error{code, std::move(message), name(key), 0};
}

void ParamReader::take(const Result<void>& part) {
  if (!part && !error_) error_ = part.error();
}

const Json* ParamReader::find(std::string_view key) {
  read_.emplace(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> ParamReader::number(std::string_view key, double least, double most) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    refuse(key, fmt::format("{} must be a number, not {}", name(key), value->type_name()));
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < least || number > most) {
    refuse(key, fmt::format("{} must be between {} and {}", name(key), least, most));
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> ParamReader::integer(std::string_view key, int64_t least, int64_t most) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  // 5.0 is a whole number too; some clients write it so.
  const bool whole =
      value->is_number_integer() || (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>());
  if (!whole) {
    refuse(key,
           fmt::format("{} must be a whole number, not {}", name(key), value->is_number() ? "a fraction" : value->type_name()));
    return std::nullopt;
  }
  const double approximate = value->get<double>();
  // 2^63 is the first double that no int64_t holds.
  if (approximate < static_cast<double>(least) || approximate > static_cast<double>(most) ||
      approximate >= 9223372036854775808.0) {
    refuse(key, fmt::format("{} must be between {} and {}", name(key), least, most));
    return std::nullopt;
  }
  return value->is_number_float() ? static_cast<int64_t>(approximate) : value->get<int64_t>();
}

std::optional<bool> ParamReader::boolean(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    refuse(key, fmt::format("{} must be true or false, not {}", name(key), value->type_name()));
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string> ParamReader::string(std::string_view key, size_t most_bytes) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    refuse(key, fmt::format("{} must be a string, not {}", name(key), value->type_name()));
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > most_bytes) {
    refuse(key, fmt::format("{} has {} bytes; at most {} are accepted", name(key), text.size(), most_bytes));
    return std::nullopt;
  }
  return text;
}

const Json* ParamReader::array(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_array()) return value;
  refuse(key, fmt::format("{} must be an array, not {}", name(key), value->type_name()));
  return nullptr;
}

const Json* ParamReader::object(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  refuse(key, fmt::format("{} must be an object, not {}", name(key), value->type_name()));
  return nullptr;
}

const Json* ParamReader::any(std::string_view key) {
  return find(key);
}

void ParamReader::accept(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

Result<void> ParamReader::check() const {
  if (error_) return fail(*error_);
  return {};
}

Result<void> ParamReader::finish() {
  PF_CHECK_OK(check());
  for (const auto& item : object_.items()) {
    if (read_.contains(item.key()) || item.value().is_null()) continue;
    const std::string key = shown_key(item.key());
    const std::vector<std::string_view> known(read_.begin(), read_.end());
    return fail(ErrorCode::kUnsupportedParameter, fmt::format("{} is not supported here{}", name(key), did_you_mean(key, known)),
                name(key));
  }
  return {};
}

Result<Tokens> read_token_ids(const Json& array, const std::string& param, int vocabulary) {
  Tokens tokens;
  for (const Json& item : array) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() >= vocabulary) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: token ids must be whole numbers from 0 to {}", param, vocabulary - 1), param);
    }
    tokens.push_back(item.get<Token>());
  }
  return tokens;
}

}  // namespace pocketfleet
