// Finds stop strings in text that comes in pieces, also when one is split over pieces: what may be the beginning of a stop string
// is held back until it is known. Pure; one object a stream.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pocketfleet {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  // Takes text and returns what may go out. After a match nothing comes out any more.
  std::string push(std::string_view text);
  // The end of the stream: what was held back.
  std::string finish();
  bool matched() const { return !matched_.empty(); }
  const std::string& match() const { return matched_; }
  bool holding() const { return !held_.empty(); }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
};

}  // namespace pocketfleet
