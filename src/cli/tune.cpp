#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/model_fetch.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "cli/tuned.h"
#include "tuner/soak.h"

namespace pocketfleet::cli {

namespace {

constexpr size_t kMostFinalists = 3;
constexpr int kComparisons = 5;
constexpr int kLooks = 5;
constexpr int64_t kLineEvery_ms = 5'000;  // where there is no terminal

const CancelToken& interrupted() {
  static const CancelToken token;
  return token;
}

class Tuning {
 public:
  Tuning(const TuneOptions& options, TunedWork work) : options_(options), work_(std::move(work)) {
    knobs_.cores = candidate_sets(read_cores());
    knobs_.streams = work_.streams;
    knobs_.models = options.models.size();
    if (!options.kv_type.empty()) knobs_.kv_types = {options.kv_type};
  }

  Result<void> load() {
    FetchSettings fetch;
    fetch.quiet = options_.json;
    for (const std::string& reference : options_.models) {
      PF_TRY(std::string path, local_model(reference, fetch));
      PF_TRY(ModelSummary summary, inspect_gguf(path));
      PF_CHECK_OK(check_servable(summary));
      paths_.push_back(std::move(path));
      summaries_.push_back(std::move(summary));
    }
    return {};
  }

  // What was found before, if it still holds.
  Result<std::optional<Tuned>> reuse(const TunedStore& store) {
    if (options_.again || options_.grid || paths_.size() > 1) return std::nullopt;
    const auto found = store.find(key(0));
    if (!found) return std::nullopt;
    say("looking whether what was found before still holds");
    // A busy moment is no drift.
    double least_ms = 0;
    for (int look = 0; look < kLooks; ++look) {
      PF_TRY(const ProbeResult sample, measure(found->settings, false));
      if (!has_drifted(sample.request_ms, *found)) return found;
      least_ms = look == 0 ? sample.request_ms : std::min(least_ms, sample.request_ms);
    }
    say(fmt::format("it was {:.1f} ms and is {:.1f} ms now: tuning again", found->sample_ms, least_ms));
    return std::nullopt;
  }

  Result<Tuned> run() {
    const int64_t started_ms = clock_.now_ms();
    const Probe probe = [this](const Settings& settings) -> Result<double> {
      PF_TRY(const ProbeResult result, measure(settings, false));
      return result.request_ms;
    };
    PF_TRY(trials_, search_settings(knobs_, probe, [this, started_ms](const SearchProgress& progress) {
             say(fmt::format("{}: {} ({} tried, best {:.1f} ms, {} s)", progress.doing, describe(progress.settings),
                             progress.probes, progress.best_ms, (clock_.now_ms() - started_ms) / 1000));
           }));
    search_ms_ = clock_.now_ms() - started_ms;
    const auto whole = [this](const Settings& settings) { return measure(settings, true); };
    PF_TRY(soaked_, soak(finalists(trials_, kMostFinalists), int64_t{1000} * options_.soak_s, clock_, whole,
                         [this](const Settings& settings, int round, int64_t passed_ms) {
                           say(fmt::format("warm, round {}, {} of {} s: {}", round, passed_ms / 1000, options_.soak_s,
                                           describe(settings)));
                         }));
    Tuned tuned;
    tuned.settings = soaked_.front().settings;
    tuned.sustained = soaked_.front().sustained;
    PF_TRY(const ProbeResult sample, measure(tuned.settings, false));
    tuned.sample_ms = sample.request_ms;
    tuned.tuned_unix_ms = clock_.unix_ms();
    return tuned;
  }

  // Every setting with the whole work, for comparison; then the best of them and `tuned` in turn.
  Result<Json> compare_with_grid(const Tuned& tuned) {
    const int64_t started_ms = clock_.now_ms();
    const std::vector<Settings> grid = knobs_.grid();
    Settings best;
    double best_ms = 0;
    for (size_t index = 0; index < grid.size(); ++index) {
      say(fmt::format("grid, {} of {}: {}", index + 1, grid.size(), describe(grid[index])));
      PF_TRY(const ProbeResult result, measure(grid[index], true));
      if (best_ms > 0 && result.request_ms >= best_ms) continue;
      best = grid[index];
      best_ms = result.request_ms;
    }
    const int64_t grid_ms = clock_.now_ms() - started_ms;
    double grid_best_ms = 0;
    double tuned_ms = 0;
    for (int time = 0; time < kComparisons; ++time) {
      for (const bool ours : {true, false}) {
        double& least = ours ? tuned_ms : grid_best_ms;
        PF_TRY(const ProbeResult result, measure(ours ? tuned.settings : best, true));
        least = least == 0 ? result.request_ms : std::min(least, result.request_ms);
      }
    }
    return Json{{"settings", grid.size()},
                {"grid_ms", grid_ms},
                {"search_ms", search_ms_},
                {"time_share", static_cast<double>(search_ms_) / static_cast<double>(std::max<int64_t>(grid_ms, 1))},
                {"best", describe(best)},
                {"best_request_ms", grid_best_ms},
                {"tuned_request_ms", tuned_ms},
                {"speed_ratio", grid_best_ms / tuned_ms}};
  }

  TunedKey key(size_t model) const { return tuned_key(summaries_[model], work_.name); }
  const std::string& path(size_t model) const { return paths_[model]; }
  const TunedWork& work() const { return work_; }
  const std::vector<Trial>& trials() const { return trials_; }
  const std::vector<SoakResult>& soaked() const { return soaked_; }
  int64_t search_ms() const { return search_ms_; }

  void say(const std::string& text) {
    const bool terminal = isatty(STDERR_FILENO) == 1;
    if (options_.quiet || (!terminal && clock_.now_ms() < next_line_ms_)) return;
    next_line_ms_ = clock_.now_ms() + kLineEvery_ms;
    std::fprintf(stderr, terminal ? "\rtune: %s\x1b[K" : "tune: %s\n", text.c_str());
    std::fflush(stderr);
  }
  void end_line() const {
    if (!options_.quiet && isatty(STDERR_FILENO) == 1) std::fputc('\n', stderr);
  }

 private:
  Result<ProbeResult> measure(const Settings& settings, bool whole) {
    if (interrupted().cancelled()) return fail(ErrorCode::kCancelled, "stopped; nothing was kept");
    if (!probe_ || settings.model != loaded_) {
      probe_.reset();  // two models at a time may not fit
      PF_TRY(probe_, SpeedProbe::open(paths_[settings.model]));
      loaded_ = settings.model;
    }
    return probe_->measure(settings.probe, work_.work, whole, interrupted());
  }

  const TuneOptions& options_;
  const TunedWork work_;
  const Clock& clock_ = SystemClock::instance();
  Knobs knobs_;
  std::vector<std::string> paths_;
  std::vector<ModelSummary> summaries_;
  std::unique_ptr<SpeedProbe> probe_;
  size_t loaded_ = 0;
  std::vector<Trial> trials_;
  std::vector<SoakResult> soaked_;
  int64_t search_ms_ = 0;
  int64_t next_line_ms_ = 0;
};

Json json_of(const Settings& settings) {
  return {{"cpus", format_cpu_list(settings.probe.cpus)},
          {"batch_tokens", settings.probe.batch_tokens},
          {"kv_type", settings.probe.kv_type},
          {"flash_attention", settings.probe.flash_attention},
          {"kernels", settings.probe.kernels},
          {"streams", settings.probe.streams}};
}

Json json_of(const ProbeResult& result) {
  return {{"request_ms", result.request_ms},
          {"read_tokens_per_s", result.read_tokens_per_s},
          {"write_tokens_per_s", result.write_tokens_per_s}};
}

void print_table(const Tuning& tuning, const Tuned& tuned, bool reused) {
  std::printf("%s, work \"%s\": %d tokens read, %d written\n", tuning.path(tuned.settings.model).c_str(),
              tuning.work().name.c_str(), tuning.work().work.prompt_tokens, tuning.work().work.written_tokens);
  if (!reused) {
    std::printf("%zu settings tried in %.0f s; the finalists warm:\n", tuning.trials().size(),
                static_cast<double>(tuning.search_ms()) / 1000);
    std::printf("  %10s %10s %8s %8s  %s\n", "first", "sustained", "read/s", "write/s", "settings");
    for (const SoakResult& each : tuning.soaked()) {
      std::printf("  %7.1f ms %7.1f ms %8.1f %8.1f  %s\n", each.first.request_ms, each.sustained.request_ms,
                  each.sustained.read_tokens_per_s, each.sustained.write_tokens_per_s, describe(each.settings).c_str());
    }
  }
  std::printf("%s: %s\n  %.1f ms a request when warm, %.0f an hour; serve uses it from now on\n",
              reused ? "found before, and still so" : "chosen", describe(tuned.settings).c_str(), tuned.sustained.request_ms,
              3'600'000 / tuned.sustained.request_ms);
}

Result<int> tune(const TuneOptions& options) {
  PF_TRY(TunedWork work, work_named(options.work));
  PF_TRY(const TunedStore store, open_tuned_store());
  Tuning tuning(options, std::move(work));
  PF_CHECK_OK(tuning.load());
  PF_TRY(std::optional<Tuned> tuned, tuning.reuse(store));
  const bool reused = tuned.has_value();
  if (!reused) {
    PF_TRY(tuned, tuning.run());
    PF_CHECK_OK(store.put(tuning.key(tuned->settings.model), *tuned));
  }
  Json grid;
  if (options.grid) {
    PF_TRY(grid, tuning.compare_with_grid(*tuned));
  }
  tuning.end_line();
  if (options.json) {
    Json out = {{"model", tuning.path(tuned->settings.model)},
                {"work", tuning.work().name},
                {"reused", reused},
                {"settings", json_of(tuned->settings)},
                {"sustained", json_of(tuned->sustained)},
                {"tried", tuning.trials().size()},
                {"search_ms", tuning.search_ms()}};
    if (!grid.is_null()) out["grid"] = grid;
    std::printf("%s\n", dump_json(out).c_str());
    return 0;
  }
  print_table(tuning, *tuned, reused);
  if (!grid.is_null()) {
    std::printf("grid of %zu: best %s; the chosen one runs at %.3f of its speed, found in %.3f of its time\n",
                grid["settings"].get<size_t>(), grid["best"].get<std::string>().c_str(), grid["speed_ratio"].get<double>(),
                grid["time_share"].get<double>());
  }
  return 0;
}

}  // namespace

int run_tune(const TuneOptions& options) {
  set_log_level(LogLevel::kWarn);
  interrupted();
  std::signal(SIGINT, [](int) { interrupted().cancel(); });
  const auto code = tune(options);
  if (code) return *code;
  return fail_command("tune", code.error());
}

}  // namespace pocketfleet::cli
