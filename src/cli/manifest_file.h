// A model manifest as it lies in a file or at an https address, with its signature: read and checked, and the model that it names
// made ready on this machine. What `serve`, `model pull` and `model manifest` share. Blocking; one thread. Errors say what to do.
#pragma once

#include <string>
#include <vector>

#include "cli/model_fetch.h"
#include "crypto/p256.h"
#include "engine/golden.h"
#include "model/manifest.h"

namespace pocketfleet::cli {

// Whether what a person calls a model is a manifest: a path or an address that ends in .json.
bool is_manifest(const std::string& reference);

// Refused when it is signed and the signature is wrong, and when `key` (base64; may be empty) is asked for and it is not signed
// with that. One from elsewhere is kept, and taken from there while nobody answers.
Result<Manifest> load_manifest(const std::string& reference, const std::string& key, const FetchSettings& settings);

// kInvalidModel when a file is not what the manifest says; it is fetched when it is not there. The path to give to the engine.
Result<std::string> local_model(const Manifest& manifest, const std::string& reference, const FetchSettings& settings);

Result<void> sign(Manifest& manifest, const P256PrivateKey& key);

std::vector<GoldenPrompt> golden_prompts(const Manifest& manifest);

}  // namespace pocketfleet::cli
