#include "base/money.h"

#include <fmt/format.h>

#include <charconv>

namespace pocketfleet {

namespace {

constexpr size_t kDecimals = 12;
constexpr int64_t kMostAcu = 9'000'000;

Result<int64_t> digits(std::string_view text, std::string_view whole) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.front() == '-' || error != std::errc() || end != text.data() + text.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not an amount in ACU; write it like 0.8", whole.substr(0, 40)));
  return value;
}

}  // namespace

Result<int64_t> parse_acu(std::string_view text) {
  const size_t point = text.find('.');
  PF_TRY(const int64_t acu, digits(text.substr(0, point), text));
  if (acu > kMostAcu) return fail(ErrorCode::kInvalidArgument, fmt::format("{} ACU is more than {} can be", acu, kMostAcu));
  if (point == std::string_view::npos) return acu * kPlanckPerAcu;
  std::string decimals(text.substr(point + 1));
  if (decimals.size() > kDecimals)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" has more than {} digits after the point", text.substr(0, 40), kDecimals));
  PF_TRY(const int64_t checked, digits(decimals, text));
  int64_t planck = checked;
  for (size_t place = decimals.size(); place < kDecimals; ++place) planck *= 10;
  return acu * kPlanckPerAcu + planck;
}

std::string format_acu(int64_t amount_planck) {
  std::string out = fmt::format("{}.{:012}", amount_planck / kPlanckPerAcu, amount_planck % kPlanckPerAcu);
  out.resize(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

}  // namespace pocketfleet
