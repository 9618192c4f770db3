// SHA-256 and comparison in constant time. Pure functions on values; any thread; they do not fail. The comparisons take the same
// time whatever the bytes are: only the lengths and the number of entries may be learnt from the time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pocketfleet {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::string_view bytes);

std::string to_hex(std::span<const uint8_t> bytes);
// Exactly 64 hexadecimal digits, of either case.
std::optional<Sha256> sha256_from_hex(std::string_view hex);

bool equal_constant_time(const Sha256& a, const Sha256& b);

// The place of `wanted` in `known`, or -1. Every entry is compared to its end, also after a match.
int find_constant_time(std::span<const Sha256> known, const Sha256& wanted);

}  // namespace pocketfleet
