// Reads the fixed part of every profile before the first caller comes, or takes it from the checkpoints on the disk. Until that
// is done /health says "warming"; requests are served meanwhile. What goes wrong with a profile is logged and keeps nothing back.
// Any thread.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "openai/profile_prompt.h"

namespace pocketfleet {

class WarmUp {
 public:
  // `wanted` false: there is nothing to wait for.
  WarmUp(Engine& engine, ProfileSet& profiles, bool wanted);

  // Once, when the engine is ready.
  boost::asio::awaitable<void> run();
  // Null once it is done: {"progress": 0 to 1, "phase": "reading profile x"}.
  Json progress() const;

 private:
  Engine& engine_;
  ProfileSet& profiles_;
  const std::vector<std::string> names_;
  std::atomic<size_t> done_{0};
};

}  // namespace pocketfleet
