// How fast prompts are read, by how deep in the prompt: attention makes the seventh thousand of tokens slower than the first.
// Recent measurements count most, so that a machine that gets hot is believed soon. Pure; one thread or a lock around it; never
// fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pocketfleet {

class ReadSpeed {
 public:
  // `first_tokens_per_s`: a first guess, from a short prompt.
  explicit ReadSpeed(double first_tokens_per_s);

  // `tokens` were read in `ms`, the first of them at `position`.
  void observe(size_t position, size_t tokens, double ms);
  // For the tokens from position `from` up to `to`.
  int64_t estimate_ms(size_t from, size_t to) const;

 private:
  static constexpr size_t kBands = 8;  // up to 512, 1,024, ... tokens deep; the last one holds all that is deeper
  static size_t band_of(size_t position);
  static size_t end_of(size_t band);
  double ms_per_token(size_t band) const;

  std::array<double, kBands> measured_{};  // ms per token; 0: not known
  double first_;
};

}  // namespace pocketfleet
