#include "tuner/topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/files.h"

namespace pocketfleet {

namespace {

constexpr int kMostCpus = 4096;

std::optional<uint64_t> number_in(const std::string& path) {
  const auto text = read_file(path, 4096);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), value);
  return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
}

std::vector<int> list_in(const std::string& path) {
  const auto text = read_file(path, 65'536);
  return text ? parse_cpu_list(*text) : std::vector<int>();
}

std::set<int> allowed_cpus(const std::string& root) {
  const std::vector<int> online = list_in(root + "/sys/devices/system/cpu/online");
  std::set<int> out(online.begin(), online.end());
  if (!root.empty()) return out;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return out;
  std::set<int> ours;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask) && (out.empty() || out.contains(cpu))) ours.insert(cpu);
  }
  return ours;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::set<int> cpus;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int first = 0;
    const char* end = part.data() + part.size();
    auto parsed = std::from_chars(part.data(), end, first);
    if (parsed.ec != std::errc() || first < 0 || first >= kMostCpus) return {};
    int last = first;
    if (parsed.ptr != end) {
      if (*parsed.ptr != '-') return {};
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc() || parsed.ptr != end || last < first || last >= kMostCpus) return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return {cpus.begin(), cpus.end()};
}

std::string format_cpu_list(const std::vector<int>& cpus) {
  std::vector<int> sorted = cpus;
  std::sort(sorted.begin(), sorted.end());
  std::string out;
  for (size_t at = 0; at < sorted.size();) {
    size_t end = at + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += end - at > 1 ? fmt::format("{}-{}", sorted[at], sorted[end - 1]) : std::to_string(sorted[at]);
    at = end;
  }
  return out;
}

std::vector<Core> read_cores(const std::string& root) {
  const std::set<int> allowed = allowed_cpus(root);
  std::vector<Core> cores;
  std::set<int> seen;
  for (const int cpu : allowed) {
    if (seen.contains(cpu)) continue;
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}", root, cpu);
    Core core;
    core.cpu = cpu;
    core.threads = {cpu};
    seen.insert(cpu);
    std::vector<int> siblings = list_in(folder + "/topology/core_cpus_list");
    if (siblings.empty()) siblings = list_in(folder + "/topology/thread_siblings_list");
    for (const int sibling : siblings) {
      if (allowed.contains(sibling) && seen.insert(sibling).second) core.threads.push_back(sibling);
    }
    core.capacity = number_in(folder + "/cpu_capacity").value_or(0);
    if (core.capacity == 0) core.capacity = number_in(folder + "/cpufreq/cpuinfo_max_freq").value_or(0);
    cores.push_back(std::move(core));
  }
  if (cores.empty()) cores.push_back({0, 0, {0}});
  std::stable_sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) { return a.capacity > b.capacity; });
  return cores;
}

std::vector<CoreSet> candidate_sets(const std::vector<Core>& cores) {
  std::set<size_t> counts;
  size_t begin = 0;
  while (begin < cores.size()) {
    size_t end = begin;
    while (end < cores.size() && cores[end].capacity == cores[begin].capacity) ++end;
    counts.insert(end);
    if (end - begin > 2) counts.insert(begin + (end - begin) / 2);
    if (begin == 0) counts.insert(1);
    begin = end;
  }
  std::vector<CoreSet> sets;
  for (const size_t count : counts) {
    CoreSet set;
    set.name = count == cores.size() ? fmt::format("all {} cores", count) : fmt::format("{} fastest of {}", count, cores.size());
    if (cores.front().capacity == cores.back().capacity && count < cores.size())
      set.name = fmt::format("{} of {} cores", count, cores.size());
    for (size_t index = 0; index < count; ++index) set.cpus.push_back(cores[index].cpu);
    sets.push_back(std::move(set));
  }
  CoreSet all;
  for (const Core& core : cores) all.cpus.insert(all.cpus.end(), core.threads.begin(), core.threads.end());
  if (all.cpus.size() > cores.size()) {
    all.name = fmt::format("all {} hardware threads", all.cpus.size());
    sets.push_back(std::move(all));
  }
  return sets;
}

}  // namespace pocketfleet
