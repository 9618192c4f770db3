#include "openai/warm_up.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "openai/classify.h"

namespace pocketfleet {

WarmUp::WarmUp(Engine& engine, ProfileSet& profiles, bool wanted)
    : engine_(engine), profiles_(profiles), names_(wanted ? profiles.names() : std::vector<std::string>()) {}

boost::asio::awaitable<void> WarmUp::run() {
  for (const std::string& name : names_) {
    // Any text will do: what the engine keeps is what stands before it.
    ClassifyRequest request;
    request.profile = name;
    request.inputs = {"a"};
    CancelToken nobody_leaves;
    std::string id = "warm-up-" + name;
    const auto verdict = co_await classify(engine_, profiles_, request, std::move(id), nobody_leaves);
    if (verdict) {
      log_info("profile_warm", {{"profile", name},
                                {"tokens", verdict->usage.prompt_tokens},
                                {"reused", verdict->usage.cached_tokens},
                                {"read_ms", static_cast<long>(verdict->usage.read_ms)}});
    } else {
      log_warn("profile_not_warm", {{"profile", name}, {"reason", verdict.error().message}});
    }
    ++done_;
  }
}

Json WarmUp::progress() const {
  const size_t done = done_;
  if (done >= names_.size()) return nullptr;
  return {{"progress", static_cast<double>(done) / static_cast<double>(names_.size())},
          {"phase", "reading profile " + names_[done]}};
}

}  // namespace pocketfleet
