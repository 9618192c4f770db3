#include "tuner/soak.h"

#include <algorithm>

namespace pocketfleet {

namespace {

constexpr int kLeastRounds = 2;

}  // namespace

Result<std::vector<SoakResult>> soak(const std::vector<Settings>& finalists, int64_t soak_ms, const Clock& clock,
                                     const WholeProbe& probe,
                                     const std::function<void(const Settings&, int round, int64_t passed_ms)>& on_progress) {
  std::vector<std::vector<ProbeResult>> rounds(finalists.size());
  const int64_t started_ms = clock.now_ms();
  for (int round = 1; round <= kLeastRounds || clock.now_ms() - started_ms < soak_ms; ++round) {
    for (size_t index = 0; index < finalists.size(); ++index) {
      if (on_progress) on_progress(finalists[index], round, clock.now_ms() - started_ms);
      PF_TRY(const ProbeResult result, probe(finalists[index]));
      rounds[index].push_back(result);
    }
  }
  std::vector<SoakResult> out;
  for (size_t index = 0; index < finalists.size(); ++index) {
    std::vector<ProbeResult> last(rounds[index].begin() + static_cast<std::ptrdiff_t>(rounds[index].size() / 2),
                                  rounds[index].end());
    const auto middle = last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2);
    std::nth_element(last.begin(), middle, last.end(),
                     [](const ProbeResult& a, const ProbeResult& b) { return a.request_ms < b.request_ms; });
    out.push_back({finalists[index], rounds[index].front(), *middle, static_cast<int>(rounds[index].size())});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const SoakResult& a, const SoakResult& b) { return a.sustained.request_ms < b.sustained.request_ms; });
  return out;
}

}  // namespace pocketfleet
