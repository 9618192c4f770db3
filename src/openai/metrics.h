// Counters and histograms in Prometheus' text format: requests by route and status, times, and the engine's own totals, which are
// read when somebody asks. Names are listed in docs/api.md. Any thread; nothing here fails.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "openai/request_log.h"

namespace pocketfleet {

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void observe(const RequestRecord& record);
  std::string render(const Engine& engine) const;
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet
