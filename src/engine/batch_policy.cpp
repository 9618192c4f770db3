#include "engine/batch_policy.h"

#include <algorithm>
#include <numeric>

namespace pocketfleet {

double claim(const Reading& reading, const BatchLimits& limits) {
  const double age = 1.0 + static_cast<double>(reading.waiting_ms) / static_cast<double>(std::max<int64_t>(limits.ageing_ms, 1));
  const double weight = reading.priority == Priority::kBatch ? 8.0 : 1.0;
  return static_cast<double>(reading.remaining) * weight / (age * age);
}

std::vector<Chunk> plan_chunks(const std::vector<Reading>& readings, const BatchLimits& limits) {
  std::vector<Chunk> chunks;
  if (readings.empty() || limits.batch_tokens == 0) return chunks;

  size_t room = limits.batch_tokens;
  if (limits.read_tokens_per_s > 0) {
    const int64_t time_ms = limits.streams_running ? std::min(limits.stream_gap_ms, limits.chunk_ms) : limits.chunk_ms;
    const auto fits = static_cast<size_t>(limits.read_tokens_per_s * static_cast<double>(time_ms) / 1000.0);
    room = std::min(room, std::max(fits, limits.minimum_chunk));
  }

  std::vector<size_t> order(readings.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return claim(readings[a], limits) < claim(readings[b], limits); });

  const size_t lead = order.front();
  const size_t lead_tokens = std::min(readings[lead].until_stop, room);
  chunks.push_back({lead, lead_tokens});
  room -= lead_tokens;

  // The rest goes to those that can take a chunk about as long as the leader's, the closest first.
  std::vector<size_t> others(order.begin() + 1, order.end());
  const auto distance = [&](size_t index) {
    const size_t length = readings[index].until_stop;
    return length > lead_tokens ? length - lead_tokens : lead_tokens - length;
  };
  std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return distance(a) < distance(b); });
  for (const size_t index : others) {
    if (room == 0) break;
    const size_t tokens = std::min(readings[index].until_stop, room);
    // A sliver of a long prompt would cost a piece of its own.
    if (tokens < readings[index].until_stop && tokens < limits.minimum_chunk) continue;
    chunks.push_back({index, tokens});
    room -= tokens;
  }
  return chunks;
}

}  // namespace pocketfleet
