// What a deployer says of a model: where it is, what its bytes are, which engines run it, and golden prompts with the tokens that
// are to come out (docs/formats/model-manifest.md). Pure. kInvalidArgument names the field. Whether the
// signature is right is for those to check who have keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet {

struct ManifestFile {
  std::string name;
  uint64_t size_bytes = 0;
  std::string sha256;  // lower-case hex
};

struct ManifestPrompt {
  std::string prompt;                  // whole, control tokens written out
  std::vector<int32_t> prompt_tokens;  // what it comes to
  std::vector<int32_t> tokens;         // the likeliest that follow
};

struct Manifest {
  std::string name;
  std::string source;  // a reference, or a path from the manifest's own folder
  std::vector<ManifestFile> files;
  std::string licence;
  std::string chat_template_sha256;
  std::string engine_name;
  std::string engine_from;  // versions, both included
  std::string engine_to;
  std::vector<ManifestPrompt> golden;
  std::string signature_key;  // base64; empty when it is not signed
  std::string signature_value;
};

inline constexpr size_t kMostManifestBytes = 4u << 20;

Result<Manifest> parse_manifest(std::string_view text);
// For people: indented, with the signature.
std::string print_manifest(const Manifest& manifest);
// The bytes that a signature is over.
std::string signed_bytes(const Manifest& manifest);

// "0.4.0", also "0.4.0-dev". kUnsupported (with what to do) when `version` of `engine` is not in the manifest's range.
Result<void> check_engine(const Manifest& manifest, std::string_view engine, std::string_view version);

}  // namespace pocketfleet
