#include "model/model_hub.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/sha256.h"

namespace pocketfleet {

namespace {

constexpr size_t kMostBytes = 16u << 20;
constexpr size_t kMostFiles = 100'000;

std::string percent_encoded(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                       byte == '-' || byte == '.' || byte == '_' || byte == '~' || byte == '/';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<HubAddress> hub_from_environment() {
  HubAddress hub;
  if (const char* endpoint = std::getenv("HF_ENDPOINT"); endpoint != nullptr && *endpoint != '\0') {
    PF_TRY(const ModelReference reference, parse_reference(endpoint));
    if (reference.kind != ReferenceKind::kUrl)
      return fail(ErrorCode::kInvalidArgument, fmt::format("HF_ENDPOINT is \"{}\", which is no https address", endpoint));
    hub.endpoint = endpoint;
    while (hub.endpoint.ends_with('/')) hub.endpoint.pop_back();
  }
  if (const char* token = std::getenv("HF_TOKEN"); token != nullptr) hub.token = token;
  return hub;
}

std::string hub_list_url(const HubAddress& hub, const ModelReference& reference) {
  return fmt::format("{}/api/models/{}/{}/tree/{}?recursive=true", hub.endpoint, percent_encoded(reference.owner),
                     percent_encoded(reference.repository), percent_encoded(reference.revision));
}

std::string hub_file_url(const HubAddress& hub, const ModelReference& reference, std::string_view path) {
  return fmt::format("{}/{}/{}/resolve/{}/{}", hub.endpoint, percent_encoded(reference.owner),
                     percent_encoded(reference.repository), percent_encoded(reference.revision), percent_encoded(path));
}

Result<std::vector<HubFile>> parse_hub_files(std::string_view text) {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.max_bytes = kMostBytes;
  PF_TRY(const Json list, parse_json(text, limits));
  if (!list.is_array() || list.size() > kMostFiles) return fail(ErrorCode::kProtocol, "the hub's answer is no list of files");
  std::vector<HubFile> files;
  for (const Json& item : list) {
    if (!item.is_object()) return fail(ErrorCode::kProtocol, "the hub's list of files holds something else");
    if (text_of(item, "type") != "file") continue;
    HubFile file;
    file.path = text_of(item, "path");
    // What would leave the folder is no file of a repository.
    if (file.path.empty() || file.path.front() == '/' || file.path.find("..") != std::string::npos) continue;
    if (const auto size = item.find("size"); size != item.end() && size->is_number_unsigned())
      file.size_bytes = size->get<uint64_t>();
    if (const auto lfs = item.find("lfs"); lfs != item.end() && lfs->is_object()) {
      const std::string digest = text_of(*lfs, "oid");
      if (is_sha256(digest)) file.sha256 = digest;
    }
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::vector<HubFile>> list_hub_files(DownloadSource& source, const HubAddress& hub, const ModelReference& reference,
                                            const CancelToken& cancel) {
  TextSink sink(kMostBytes);
  SourceRequest request;
  request.url = hub_list_url(hub, reference);
  request.bearer = hub.token;
  PF_TRY(const SourceReply reply, source.get(request, sink, cancel));
  const std::string name = fmt::format("{}/{}", reference.owner, reference.repository);
  if (reply.status == 401 || reply.status == 403 || reply.status == 404) {
    return fail(reply.status == 404 ? ErrorCode::kNotFound : ErrorCode::kPermissionDenied,
                fmt::format("{} at revision {} is not there for us ({}): is the name right, and does it need a token (HF_TOKEN)?",
                            name, reference.revision, reply.status));
  }
  if (reply.status == 429)
    return fail(Error{ErrorCode::kUnavailable,
                      "the hub asks to wait (429); try again later",
                      {},
                      static_cast<int>(reply.retry_after_ms / 1000)});
  if (reply.status != 200) return fail(ErrorCode::kUnavailable, fmt::format("the hub answered {} for {}", reply.status, name));
  if (sink.too_long) return fail(ErrorCode::kProtocol, fmt::format("the list of files of {} is too long", name));
  return parse_hub_files(sink.text);
}

}  // namespace pocketfleet
