// How fast classes of machines are known to read and write, for planning before one has measured one's own. Published figures
// were taken by others, with other engines and models than will run: each says where from. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pocketfleet {

struct MeasuredSpeed {
  double parameters_b = 0;        // of the model, in thousand millions
  int prompt_tokens = 0;          // read at a time when it was measured; 0: not stated
  double read_tokens_per_s = 0;   // 0: not stated
  double write_tokens_per_s = 0;  // one stream; 0: not stated
  bool sustained = false;         // long enough that heat is in it
};

struct DeviceProfile {
  std::string_view name;  // what --device takes
  std::string_view what;
  std::string_view engine;
  std::string_view source;
  bool phone = false;            // gets hot, and slower with it
  bool published = true;         // by others; false: measured with this project's own benchmark
  uint64_t available_bytes = 0;  // for a model and all it needs; 0: not stated
  std::vector<MeasuredSpeed> speeds;
};

const std::vector<DeviceProfile>& known_devices();

}  // namespace pocketfleet
