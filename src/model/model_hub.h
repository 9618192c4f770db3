// What files a repository on the Hugging Face hub (or a mirror of it) holds, and where they are fetched from. The parser is pure;
// list_hub_files() asks the hub. Errors say what to do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/download_source.h"
#include "model/reference.h"

namespace pocketfleet {

struct HubAddress {
  std::string endpoint = "https://huggingface.co";  // without a slash at the end
  std::string token;                                // empty: public repositories only
};

// From HF_ENDPOINT and HF_TOKEN. kInvalidArgument for an endpoint that is not encrypted, but on loopback.
Result<HubAddress> hub_from_environment();

std::string hub_list_url(const HubAddress& hub, const ModelReference& reference);
std::string hub_file_url(const HubAddress& hub, const ModelReference& reference, std::string_view path);

// The hub's answer to hub_list_url().
Result<std::vector<HubFile>> parse_hub_files(std::string_view text);

Result<std::vector<HubFile>> list_hub_files(DownloadSource& source, const HubAddress& hub, const ModelReference& reference,
                                            const CancelToken& cancel);

}  // namespace pocketfleet
