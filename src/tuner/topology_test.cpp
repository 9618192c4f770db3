#include "tuner/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace pocketfleet {
namespace {

namespace fs = std::filesystem;

class Machine {
 public:
  explicit Machine(const std::string& online) : root_(fs::temp_directory_path() / ("pf-topology-" + std::to_string(::getpid()))) {
    fs::remove_all(root_);
    put("online", online);
  }
  ~Machine() { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    const fs::path file = root_ / "sys/devices/system/cpu" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

std::vector<std::string> sets_of(const Machine& machine) {
  std::vector<std::string> out;
  for (const CoreSet& set : candidate_sets(read_cores(machine.root()))) out.push_back(format_cpu_list(set.cpus));
  return out;
}

using List = std::vector<std::string>;

// C-99
TEST(Topology, APhonesFastCoresAreTriedBeforeItsSlowOnes) {
  Machine machine("0-7");
  for (int cpu = 0; cpu < 8; ++cpu)
    machine.put("cpu" + std::to_string(cpu) + "/cpu_capacity", cpu < 4 ? "290" : cpu < 7 ? "760" : "1024");
  // The one fastest, half of the middle class, all of it, half of the slow ones, all.
  EXPECT_EQ(sets_of(machine), (List{"7", "4,7", "4-7", "0-1,4-7", "0-7"}));
}

TEST(Topology, WithoutCapacitiesTheHighestFrequencyTellsFastFromSlow) {
  Machine machine("0-3");
  for (int cpu = 0; cpu < 4; ++cpu)
    machine.put("cpu" + std::to_string(cpu) + "/cpufreq/cpuinfo_max_freq", cpu % 2 == 0 ? "2400000" : "1800000");
  EXPECT_EQ(sets_of(machine), (List{"0", "0,2", "0-3"}));
}

TEST(Topology, EqualCoresAreHalvedAndHardwareThreadsComeLast) {
  Machine machine("0-15");
  for (int cpu = 0; cpu < 16; ++cpu)
    machine.put("cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
                std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8));
  EXPECT_EQ(sets_of(machine), (List{"0", "0-3", "0-7", "0-15"}));
  EXPECT_EQ(read_cores(machine.root()).size(), 8u);
}

TEST(Topology, AMachineThatTellsNothingHasOneCoreAtLeast) {
  const Machine machine("");
  EXPECT_EQ(sets_of(machine), List{"0"});
  EXPECT_FALSE(read_cores().empty());
}

TEST(Topology, ListsOfCpusAreReadAndWritten) {
  EXPECT_EQ(parse_cpu_list("0-3,6\n"), (std::vector<int>{0, 1, 2, 3, 6}));
  EXPECT_EQ(format_cpu_list({6, 0, 2, 1, 3}), "0-3,6");
  EXPECT_EQ(format_cpu_list({}), "");
  for (const char* text : {"", "x", "1-", "3-1", "-1", "0-99999", "1;2", "1,,2", "0x1"})
    EXPECT_TRUE(parse_cpu_list(text).empty()) << text;
}

}  // namespace
}  // namespace pocketfleet
