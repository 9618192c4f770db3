// A profile made ready for one engine: its labels as tokens and the fixed beginning that all its prompts share. Made once, then
// shared and immutable; any thread. Errors are those of the engine, or name the input: "input[3]".
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "openai/profile.h"

namespace pocketfleet {

struct PreparedProfile {
  Profile profile;
  std::shared_ptr<const LabelSet> labels;
  Tokens fixed;         // the tokens that prompts of this profile begin with, whatever the input is
  bool pinned = false;  // the state after `fixed` is to be kept for good
};

// Renders a few short inputs to find what their prompts have in common.
Result<std::shared_ptr<const PreparedProfile>> prepare_profile(const Engine& engine, const Profile& profile, bool pinned);

// The prompt for one piece of text, with LabelSet::forced appended and the checkpoint set.
Result<Prompt> profile_prompt(const Engine& engine, const PreparedProfile& prepared, std::string_view text);

// Holds profiles by name and prepares each once; also the last few that stood in requests. Any thread.
class ProfileSet {
 public:
  ProfileSet();
  ~ProfileSet();
  ProfileSet(const ProfileSet&) = delete;
  ProfileSet& operator=(const ProfileSet&) = delete;

  // kInvalidArgument when the name is taken.
  Result<void> add(Profile profile);
  std::vector<std::string> names() const;
  // kNotFound, naming what there is.
  Result<Profile> find(std::string_view name) const;
  // By name from the set.
  Result<std::shared_ptr<const PreparedProfile>> prepared(const Engine& engine, std::string_view name);
  // For a profile that stood in a request; `key` tells equal ones.
  Result<std::shared_ptr<const PreparedProfile>> prepared_inline(const Engine& engine, const Profile& profile,
                                                                 const std::string& key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pocketfleet
