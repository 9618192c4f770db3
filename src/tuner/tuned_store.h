// What was found about a model on this machine, kept from one start to the next: a JSON file for each model shape, device, engine
// build and kind of work. A file that is damaged or of another version counts as not there. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tuner/search.h"

namespace pocketfleet {

struct TunedKey {
  std::string model;   // what decides its speed: shapes and types, not the numbers in them
  std::string device;  // see device_identity()
  std::string engine;
  std::string work;
};

struct Tuned {
  Settings settings;
  ProbeResult sustained;  // as measured at the end, hot
  int64_t tuned_unix_ms = 0;
  double sample_ms = 0;  // of a short measurement with these settings right after: what a later one is compared with
};

class TunedStore {
 public:
  explicit TunedStore(std::string folder) : folder_(std::move(folder)) {}
  std::optional<Tuned> find(const TunedKey& key) const;
  // The latest of any kind of work for which there is one; its name comes with it.
  std::optional<std::pair<std::string, Tuned>> find_any(TunedKey key) const;
  Result<void> put(const TunedKey& key, const Tuned& tuned) const;

 private:
  std::string path(const TunedKey& key) const;
  std::string folder_;
};

// "AMD EPYC, 2 cores 0-1": the processor's name, or the parts of its cores, and how many of which speed.
std::string device_identity(const std::string& root = "");

// Speeds drift with age, with updates and with what else runs: a fifth slower than it was, and it is time to tune again.
bool has_drifted(double sample_ms, const Tuned& tuned);

}  // namespace pocketfleet
