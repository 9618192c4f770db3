#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/options.h"
#include "openai/keys.h"

namespace pocketfleet::cli {

int run_key(const KeyOptions& options) {
  const auto key = add_key(options.file, options.name);
  if (!key) {
    std::fprintf(stderr, "pocketfleet key: %s\n", key.error().message.c_str());
    return 2;
  }
  if (options.json) {
    std::printf("%s\n", dump_json({{"key", *key}, {"name", options.name}, {"file", options.file}}).c_str());
    return 0;
  }
  std::printf("%s\n", key->c_str());
  std::fprintf(stderr,
               "This is the only time the key is shown: %s holds its SHA-256 alone.\n"
               "A server that is already running reads the file when it starts again.\n",
               options.file.c_str());
  return 0;
}

}  // namespace pocketfleet::cli
