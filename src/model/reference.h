// What a person calls a model: a path, an https address, or hf:owner/repo[@revision][:file-or-quantisation] on the Hugging Face
// hub or a mirror of it; and which file of a repository is meant. Pure. Errors say what a reference looks like.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet {

enum class ReferenceKind { kPath, kUrl, kHub };

struct ModelReference {
  ReferenceKind kind = ReferenceKind::kPath;
  std::string text;  // as it was given
  std::string path;  // kPath
  std::string url;   // kUrl
  // kHub.
  std::string owner;
  std::string repository;
  std::string revision = "main";
  std::string selector;  // a file's name or a quantisation ("Q4_K_M"); may be empty
};

// kInvalidArgument for what is none of them; http is only taken for loopback addresses.
Result<ModelReference> parse_reference(std::string_view text);

struct HubFile {
  std::string path;  // inside the repository
  uint64_t size_bytes = 0;
  std::string sha256;  // lower-case hex; empty where the hub does not say
};

// The parts of the model that `selector` names, in order: one file, or all of a model that is split (-00001-of-00003.gguf). With
// an empty selector, the one model there is, or its Q4_K_M, Q4_0 or Q8_0, the first there is. kNotFound with the names that
// there are; kInvalidArgument when several fit.
Result<std::vector<HubFile>> choose_files(const std::vector<HubFile>& files, std::string_view selector);

// The quantisation that a file's name tells of, upper case ("Q4_K_M", "F16"); empty when it tells none.
std::string quantisation_of(std::string_view file_name);

}  // namespace pocketfleet
