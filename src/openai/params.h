// Reads the fields of a request's JSON object strictly: types, ranges, and at the end that no field was left unread. The first
// thing that is wrong is kept and names the parameter ("messages[2].content"). Null counts as absent. One request; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "engine/types.h"

namespace pocketfleet {

class ParamReader {
 public:
  // `object` must be a JSON object and outlive the reader; `prefix` stands before names in errors: "messages[2].".
  explicit ParamReader(const Json& object, std::string prefix = {});

  std::optional<double> number(std::string_view key, double least, double most);
  std::optional<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> string(std::string_view key, size_t most_bytes = 8u << 20);
  // An array or object of any content; null when absent.
  const Json* array(std::string_view key);
  const Json* object(std::string_view key);
  // Any value; null when absent.
  const Json* any(std::string_view key);
  // Accepted and without effect here.
  void accept(std::initializer_list<std::string_view> keys);

  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  void refuse(std::string_view key, std::string message, ErrorCode code = ErrorCode::kInvalidArgument);
  // Takes over the error of a reader of a part, which knows its own place already.
  void take(const Result<void>& part);
  bool ok() const { return !error_.has_value(); }

  // The first error; or, when a field was not read, that it is not supported.
  Result<void> finish();
  // The first error, whatever was not read.
  Result<void> check() const;

 private:
  const Json* find(std::string_view key);

  const Json& object_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
  std::optional<Error> error_;
};

// Token ids; errors name `param`.
Result<Tokens> read_token_ids(const Json& array, const std::string& param, int vocabulary);

}  // namespace pocketfleet
