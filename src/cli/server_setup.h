// What `serve` checks and reads before it listens: addresses and keys, origins, profiles, the engine. Errors say what to do.
#pragma once

#include <memory>

#include "base/result.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "model/gguf.h"
#include "openai/cors.h"
#include "openai/keys.h"
#include "openai/profile_prompt.h"

namespace pocketfleet::cli {

// kPermissionDenied for an address that others can reach when there is no key file.
Result<KeyStore> load_keys(const ServeOptions& options);

Result<void> load_profiles(const ServeOptions& options, ProfileSet& profiles);

// For --ctx auto: the largest context that leaves a margin of memory; what was said, otherwise.
Result<int> choose_context(const ServeOptions& options);

// Our own look at the model file: kIo when it cannot be opened, kInvalidModel for what llama.cpp could not load or would abort
// on.
Result<void> check_model_file(const ServeOptions& options);

// What our kernels' form of the weights takes more than the file's, on this machine.
uint64_t packing_bytes(const ModelSummary& summary);

// Starts to load the model and returns while it loads.
Result<std::unique_ptr<Engine>> make_engine(const ServeOptions& options);

// Blocks until the model is loaded, or could not be.
Result<void> wait_until_ready(const Engine& engine);

// A connection is a file, and many systems allow a process 1,024 until it asks for what it may have.
void raise_file_limit();

// Prints the error for people and returns the exit code, 2.
int fail_command(const char* command, const Error& error);

}  // namespace pocketfleet::cli
