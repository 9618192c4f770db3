// Finds the fastest settings for a kind of work by trying few of them: one knob after the other, each against the best so far,
// near ones again until they part, and the knobs a second time when something changed. Then the finalists run long enough to get
// hot. Pure but for the probe that it is given, so tests give it a machine of their own. Errors are the probe's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/speed_probe.h"
#include "tuner/topology.h"

namespace pocketfleet {

struct TunedWork {
  std::string name;
  ProbeWork work;
  std::vector<int> streams;  // worth trying
};

// review (7,000 read, 5 written), guard (100, 1), chat (500, 200, up to 4 at a time). kInvalidArgument for another name.
Result<TunedWork> work_named(const std::string& name);

struct Settings {
  size_t model = 0;  // which of the files
  ProbeSettings probe;
  bool operator==(const Settings&) const = default;
};

// llama.cpp keeps a quantised cache only with flash attention.
bool possible(const Settings& settings);

// "2 threads on 0-1, batch 512, f16, flash attention, 1 stream"
std::string describe(const Settings& settings);

struct Knobs {
  size_t models = 1;
  std::vector<CoreSet> cores;
  std::vector<int> batch_tokens = {64, 128, 256, 512, 1024};
  std::vector<std::string> kv_types = {"f16", "q8_0"};
  std::vector<bool> flash_attention = {true, false};
  std::vector<bool> kernels = {true, false};
  std::vector<int> streams = {1};

  // All that could be tried, and what a server takes when nobody says anything.
  std::vector<Settings> grid() const;
  Settings usual() const;
};

struct Trial {
  Settings settings;
  double request_ms = 0;  // the least of all times
  int times = 0;
};

struct SearchProgress {
  std::string doing;
  Settings settings;
  int probes = 0;
  double best_ms = 0;  // 0: not known yet
};

// The least time of one request in ms, from a short measurement.
using Probe = std::function<Result<double>(const Settings&)>;

// The best first; all that were tried.
Result<std::vector<Trial>> search_settings(const Knobs& knobs, const Probe& probe,
                                           const std::function<void(const SearchProgress&)>& on_progress);

// The tried settings that may be the best when hot: at most `most`, within a tenth of the first.
std::vector<Settings> finalists(const std::vector<Trial>& trials, size_t most);

}  // namespace pocketfleet
