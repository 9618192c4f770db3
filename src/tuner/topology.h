// The cores of this machine as Linux tells of them, and which sets of them are worth trying: phones have fast and slow cores, and
// more threads than fast cores are often slower. Reading takes a root for tests; the rest is pure. A file that is not there says
// nothing; a machine that tells nothing has equal cores.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pocketfleet {

struct Core {
  int cpu = 0;               // its first hardware thread's number
  uint64_t capacity = 0;     // relative to the fastest; from cpu_capacity, else the highest frequency, else 0
  std::vector<int> threads;  // hardware threads, itself first
};

struct CoreSet {
  std::string name;  // "4 fastest of 8"
  std::vector<int> cpus;
};

// "0-3,6": 0 1 2 3 6. Empty for what is no such list, and for more than 4,096.
std::vector<int> parse_cpu_list(std::string_view text);
std::string format_cpu_list(const std::vector<int>& cpus);

// Of the cpus that this process may use; the fastest first. At least one.
std::vector<Core> read_cores(const std::string& root = "");

// One thread a core: the fastest class, each further class added, half of a class of more than two; and all hardware threads
// where cores have several. No set twice; the fewest first.
std::vector<CoreSet> candidate_sets(const std::vector<Core>& cores);

}  // namespace pocketfleet
