#include "tuner/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace pocketfleet {

namespace {

// A change must be worth this much; another cache type, whose answers differ a little, more.
constexpr double kWorthwhile = 0.02;
constexpr double kWorthLessExact = 0.05;
// Times within this of the best may be the best: they are taken again.
constexpr double kNear = 0.08;
constexpr int kTimes = 4;
constexpr int kSweeps = 2;

class Search {
 public:
  Search(const Knobs& knobs, const Probe& probe, const std::function<void(const SearchProgress&)>& on_progress)
      : knobs_(knobs), probe_(probe), on_progress_(on_progress), best_(knobs.usual()) {}

  Result<std::vector<Trial>> run() {
    PF_CHECK_OK(measure(best_, "the usual settings"));
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      const Settings before = best_;
      PF_CHECK_OK(try_all());
      if (best_ == before) break;
    }
    std::stable_sort(trials_.begin(), trials_.end(), [](const Trial& a, const Trial& b) { return a.request_ms < b.request_ms; });
    // What was chosen stands first, also where something else was faster by less than counts.
    const auto chosen = std::find_if(trials_.begin(), trials_.end(), [&](const Trial& trial) { return trial.settings == best_; });
    std::rotate(trials_.begin(), chosen, chosen + 1);
    return std::move(trials_);
  }

 private:
  Result<void> try_all() {
    std::vector<Settings> others;
    const auto vary = [&](const auto& values, auto set) {
      others.clear();
      for (const auto& value : values) {
        Settings other = best_;
        set(other, value);
        if (possible(other) && !(other == best_)) others.push_back(std::move(other));
      }
    };
    std::vector<size_t> models(knobs_.models);
    for (size_t index = 0; index < models.size(); ++index) models[index] = index;
    vary(models, [](Settings& settings, size_t value) { settings.model = value; });
    PF_CHECK_OK(choose(others, "quantisation", kWorthwhile));
    vary(knobs_.cores, [](Settings& settings, const CoreSet& value) { settings.probe.cpus = value.cpus; });
    PF_CHECK_OK(choose(others, "cores", kWorthwhile));
    vary(knobs_.streams, [](Settings& settings, int value) { settings.probe.streams = value; });
    PF_CHECK_OK(choose(others, "streams", kWorthwhile));
    vary(knobs_.batch_tokens, [](Settings& settings, int value) { settings.probe.batch_tokens = value; });
    PF_CHECK_OK(choose(others, "batch", kWorthwhile));
    vary(knobs_.flash_attention, [](Settings& settings, bool value) { settings.probe.flash_attention = value; });
    PF_CHECK_OK(choose(others, "flash attention", kWorthwhile));
    vary(knobs_.kernels, [](Settings& settings, bool value) { settings.probe.kernels = value; });
    PF_CHECK_OK(choose(others, "kernels", kWorthwhile));
    vary(knobs_.kv_types, [](Settings& settings, const std::string& value) { settings.probe.kv_type = value; });
    return choose(others, "cache type", kWorthLessExact);
  }

  // The best so far against the others; it stays unless one is faster by `worth`.
  Result<void> choose(const std::vector<Settings>& others, std::string_view knob, double worth) {
    for (const Settings& other : others) PF_CHECK_OK(measure(other, knob));
    // Others may have had the bad luck of a busy moment, and the best so far of a good one.
    for (int time = 1; time < kTimes; ++time) {
      double least_ms = ms_of(best_);
      for (const Settings& other : others) least_ms = std::min(least_ms, ms_of(other));
      const bool alone = std::none_of(others.begin(), others.end(),
                                      [&](const Settings& other) { return ms_of(other) <= ms_of(best_) * (1 + kNear); });
      if (alone) break;
      if (ms_of(best_) <= least_ms * (1 + kNear)) PF_CHECK_OK(measure_to(best_, time + 1, knob));
      for (const Settings& other : others) {
        if (ms_of(other) <= least_ms * (1 + kNear)) PF_CHECK_OK(measure_to(other, time + 1, knob));
      }
    }
    const Settings* winner = nullptr;
    double limit_ms = ms_of(best_) * (1 - worth);
    for (const Settings& other : others) {
      if (ms_of(other) >= limit_ms) continue;
      winner = &other;
      limit_ms = ms_of(other);
    }
    if (winner != nullptr) best_ = *winner;
    return {};
  }

  Trial* find(const Settings& settings) {
    const auto found =
        std::find_if(trials_.begin(), trials_.end(), [&](const Trial& trial) { return trial.settings == settings; });
    return found == trials_.end() ? nullptr : &*found;
  }
  double ms_of(const Settings& settings) { return find(settings)->request_ms; }

  Result<void> measure(const Settings& settings, std::string_view knob) { return measure_to(settings, 1, knob); }
  Result<void> measure_to(const Settings& settings, int times, std::string_view knob) {
    if (find(settings) == nullptr) trials_.push_back({settings, 0, 0});
    while (find(settings)->times < times) {
      if (on_progress_)
        on_progress_({std::string(knob), settings, probes_, find(best_) == nullptr ? 0 : find(best_)->request_ms});
      PF_TRY(const double request_ms, probe_(settings));
      ++probes_;
      Trial& trial = *find(settings);
      trial.request_ms = trial.times == 0 ? request_ms : std::min(trial.request_ms, request_ms);
      ++trial.times;
    }
    return {};
  }

  const Knobs& knobs_;
  const Probe& probe_;
  const std::function<void(const SearchProgress&)>& on_progress_;
  Settings best_;
  std::vector<Trial> trials_;
  int probes_ = 0;
};

}  // namespace

Result<TunedWork> work_named(const std::string& name) {
  if (name == "review") return TunedWork{name, {7000, 5}, {1}};
  if (name == "guard") return TunedWork{name, {100, 1}, {1, 2, 4, 8}};
  if (name == "chat") return TunedWork{name, {500, 200}, {1, 2, 4}};
  return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is no kind of work; there are review, guard and chat", name),
              "work");
}

bool possible(const Settings& settings) {
  return settings.probe.flash_attention || settings.probe.kv_type.front() == 'f';
}

std::string describe(const Settings& settings) {
  return fmt::format(
      "{} thread{} on {}, batch {}, {}, {}, {}{} stream{}", settings.probe.cpus.size(),
      settings.probe.cpus.size() == 1 ? "" : "s", format_cpu_list(settings.probe.cpus), settings.probe.batch_tokens,
      settings.probe.kv_type, settings.probe.flash_attention ? "flash attention" : "no flash attention",
      settings.probe.kernels ? "" : "llama.cpp's kernels, ", settings.probe.streams, settings.probe.streams == 1 ? "" : "s");
}

std::vector<Settings> Knobs::grid() const {
  std::vector<Settings> out;
  for (size_t model = 0; model < models; ++model) {
    for (const CoreSet& set : cores) {
      for (const int batch : batch_tokens) {
        for (const std::string& kv_type : kv_types) {
          for (const bool flash : flash_attention) {
            for (const bool ours : kernels) {
              for (const int count : streams) {
                Settings settings{model, {set.cpus, batch, kv_type, flash, ours, count}};
                if (possible(settings)) out.push_back(std::move(settings));
              }
            }
          }
        }
      }
    }
  }
  return out;
}

Settings Knobs::usual() const {
  Settings settings;
  for (const CoreSet& set : cores) {
    if (set.cpus.size() > settings.probe.cpus.size()) settings.probe.cpus = set.cpus;
  }
  if (std::find(batch_tokens.begin(), batch_tokens.end(), settings.probe.batch_tokens) == batch_tokens.end())
    settings.probe.batch_tokens = batch_tokens.back();
  settings.probe.kv_type = kv_types.front();
  settings.probe.flash_attention = flash_attention.front();
  settings.probe.kernels = kernels.front();
  settings.probe.streams = streams.back();
  return settings;
}

Result<std::vector<Trial>> search_settings(const Knobs& knobs, const Probe& probe,
                                           const std::function<void(const SearchProgress&)>& on_progress) {
  return Search(knobs, probe, on_progress).run();
}

std::vector<Settings> finalists(const std::vector<Trial>& trials, size_t most) {
  std::vector<Settings> out;
  for (const Trial& trial : trials) {
    if (out.size() < most && trial.request_ms <= trials.front().request_ms * 1.1) out.push_back(trial.settings);
  }
  return out;
}

}  // namespace pocketfleet
