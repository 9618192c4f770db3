// What guesses ahead of a stream: the port, and the record by which a guesser that is often wrong falls silent. One guesser a
// stream, used by the engine's thread alone; it never fails, it just has nothing to say.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "engine/types.h"

namespace pocketfleet {

class Draft {
 public:
  virtual ~Draft() = default;
  // A token that was written. `hidden` is what the model's last layer came to where it was chosen; empty where no head asks.
  virtual void push(Token token, std::span<const float> hidden) = 0;
  // At most `most` tokens that may follow; empty when nothing is known or guesses have been failing.
  virtual Tokens propose(size_t most) = 0;
  // How many of the tokens of the last proposal were right.
  virtual void judge(size_t proposed, size_t accepted) = 0;
};

// Made for each stream, of its prompt.
using MakeDraft = std::function<std::unique_ptr<Draft>(const Tokens& prompt)>;

// A wrong guess costs its reading, so below a third of right ones a guesser pauses, and then is given another chance.
class GuessRecord {
 public:
  // `written`: tokens so far, of any beginning that stays the same.
  bool silent(size_t written) const { return written < silent_until_; }
  void judge(size_t written, size_t proposed, size_t accepted) {
    if (proposed == 0) return;
    share_right_ = 0.7 * share_right_ + 0.3 * static_cast<double>(accepted) / static_cast<double>(proposed);
    if (share_right_ >= kWorthwhile) return;
    silent_until_ = written + kSilence;
    share_right_ = 2 * kWorthwhile;
  }

 private:
  static constexpr double kWorthwhile = 0.3;
  static constexpr size_t kSilence = 32;
  double share_right_ = 1;  // of recent proposals
  size_t silent_until_ = 0;
};

}  // namespace pocketfleet
