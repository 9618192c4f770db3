#include "openai/profile_prompt.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <mutex>

#include "openai/suggest.h"

namespace pocketfleet {

namespace {

constexpr size_t kMaxInlineProfiles = 32;

// Beginnings that no tokenizer joins to the same token: what is common to all of them is fixed.
constexpr std::array<std::string_view, 4> kProbes = {"a", "Z", "5", "\xD0\xAF"};

Tokens common_beginning(const Tokens& a, const Tokens& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return {a.begin(), end};
}

}  // namespace

Result<std::shared_ptr<const PreparedProfile>> prepare_profile(const Engine& engine, const Profile& profile, bool pinned) {
  auto prepared = std::make_shared<PreparedProfile>();
  prepared->profile = profile;
  prepared->pinned = pinned;
  const std::vector<std::string> labels = profile.label_texts();
  PF_TRY(LabelSet set, engine.prepare_labels(profile.answer_prefix, labels));
  prepared->labels = std::make_shared<const LabelSet>(std::move(set));
  for (const std::string_view probe : kProbes) {
    PF_TRY(const RenderedChat rendered, engine.render_chat(profile_chat(profile, probe)));
    prepared->fixed =
        probe == kProbes.front() ? rendered.prompt.tokens : common_beginning(prepared->fixed, rendered.prompt.tokens);
  }
  return prepared;
}

Result<Prompt> profile_prompt(const Engine& engine, const PreparedProfile& prepared, std::string_view text) {
  PF_TRY(RenderedChat rendered, engine.render_chat(profile_chat(prepared.profile, text)));
  Prompt prompt = std::move(rendered.prompt);
  const Tokens& fixed = prepared.fixed;
  // An input may begin with what joins the last fixed token to another one (a line feed, say): then nothing is claimed to be
  // shared.
  const bool shared =
      !fixed.empty() && prompt.tokens.size() > fixed.size() && std::equal(fixed.begin(), fixed.end(), prompt.tokens.begin());
  if (shared) {
    prompt.checkpoints = {fixed.size()};
    prompt.pinned = prepared.pinned;
  }
  prompt.tokens.insert(prompt.tokens.end(), prepared.labels->forced.begin(), prepared.labels->forced.end());
  return prompt;
}

struct ProfileSet::Impl {
  using Prepared = std::shared_ptr<const PreparedProfile>;
  mutable std::mutex mutex;
  std::map<std::string, Profile, std::less<>> profiles;
  std::map<std::string, Prepared, std::less<>> ready;
  std::list<std::pair<std::string, Prepared>> inline_ready;  // the latest first
};

ProfileSet::ProfileSet() : impl_(std::make_unique<Impl>()) {}
ProfileSet::~ProfileSet() = default;

Result<void> ProfileSet::add(Profile profile) {
  const std::lock_guard lock(impl_->mutex);
  std::string name = profile.name;
  if (!impl_->profiles.try_emplace(name, std::move(profile)).second) {
    return fail(ErrorCode::kInvalidArgument, "there are two profiles named \"" + name + "\"; rename one of them", "name");
  }
  return {};
}

std::vector<std::string> ProfileSet::names() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> names;
  for (const auto& [name, profile] : impl_->profiles) names.push_back(name);
  return names;
}

Result<Profile> ProfileSet::find(std::string_view name) const {
  const std::lock_guard lock(impl_->mutex);
  if (const auto found = impl_->profiles.find(name); found != impl_->profiles.end()) return found->second;

  std::string message = "there is no profile \"" + std::string(name.substr(0, 64)) + "\" here";
  if (impl_->profiles.empty()) {
    message += "; start the server with --profile FILE, or send \"labels\" and \"instructions\"";
  } else {
    std::vector<std::string_view> known;
    for (const auto& [known_name, profile] : impl_->profiles) known.emplace_back(known_name);
    std::string list;
    for (const std::string_view known_name : known) list += (list.empty() ? "" : ", ") + std::string(known_name);
    message += "; there is: " + list;
    if (known.size() > 1) message += did_you_mean(name, known);
  }
  return fail(ErrorCode::kNotFound, std::move(message), "profile");
}

Result<std::shared_ptr<const PreparedProfile>> ProfileSet::prepared(const Engine& engine, std::string_view name) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (const auto found = impl_->ready.find(name); found != impl_->ready.end()) return found->second;
  }
  // Made outside the lock: two callers may both make it, and the first one's stays.
  PF_TRY(const Profile profile, find(name));
  PF_TRY(auto made, prepare_profile(engine, profile, true));
  const std::lock_guard lock(impl_->mutex);
  return impl_->ready.try_emplace(std::string(name), std::move(made)).first->second;
}

Result<std::shared_ptr<const PreparedProfile>> ProfileSet::prepared_inline(const Engine& engine, const Profile& profile,
                                                                           const std::string& key) {
  {
    const std::lock_guard lock(impl_->mutex);
    auto& list = impl_->inline_ready;
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == key; });
    if (found != list.end()) {
      list.splice(list.begin(), list, found);
      return found->second;
    }
  }
  PF_TRY(auto made, prepare_profile(engine, profile, false));
  const std::lock_guard lock(impl_->mutex);
  impl_->inline_ready.emplace_front(key, made);
  if (impl_->inline_ready.size() > kMaxInlineProfiles) impl_->inline_ready.pop_back();
  return made;
}

}  // namespace pocketfleet
