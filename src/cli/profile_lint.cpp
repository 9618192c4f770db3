#include "openai/profile_lint.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "engine/llama_engine.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

namespace {

Result<std::unique_ptr<Engine>> load_vocabulary(const std::string& path) {
  PF_CHECK_OK(inspect_gguf(path));
  LlamaEngineOptions options;
  options.model_path = path;
  options.vocabulary_only = true;
  auto engine = make_llama_engine(std::move(options));
  PF_CHECK_OK(wait_until_ready(*engine));
  return engine;
}

}  // namespace

int run_profile_lint(const ProfileLintOptions& options) {
  set_log_level(LogLevel::kWarn);
  const auto profile = load_profile(options.file);
  if (!profile) return fail_command("profile lint", profile.error());
  const auto engine = load_vocabulary(options.model_path);
  if (!engine) return fail_command("profile lint", engine.error());
  const auto lint = lint_profile(**engine, *profile, options.read_tokens_per_s);
  if (!lint) return fail_command("profile lint", lint.error());
  if (options.json) {
    const Json line = {{"file", options.file},
                       {"name", profile->name},
                       {"fixed_tokens", lint->fixed_tokens},
                       {"per_input_tokens", lint->per_input_tokens},
                       {"behind_input_tokens", lint->behind_input_tokens},
                       {"answer_tokens", lint->answer_tokens},
                       {"longest_label_tokens", lint->longest_label_tokens},
                       {"read_tokens_per_s", options.read_tokens_per_s},
                       {"warnings", lint->warnings}};
    std::printf("%s\n", dump_json(line).c_str());
    return 0;
  }
  std::printf("profile \"%s\"\n", profile->name.c_str());
  std::printf("  read once            %zu tokens\n", lint->fixed_tokens);
  std::printf("  read with each input %zu tokens beside its own, of which %zu are the profile's words behind it\n",
              lint->per_input_tokens, lint->behind_input_tokens);
  std::printf("  answer               begins with %zu tokens that are not written; labels have up to %zu more\n",
              lint->answer_tokens, lint->longest_label_tokens);
  for (const std::string& warning : lint->warnings) std::printf("  warning: %s\n", warning.c_str());
  return 0;
}

}  // namespace pocketfleet::cli
