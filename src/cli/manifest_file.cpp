#include "cli/manifest_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/files.h"
#include "base/folders.h"
#include "base/log.h"
#include "crypto/base64.h"
#include "crypto/digest.h"
#include "engine/llama_engine.h"
#include "model/download.h"
#include "model/download_source.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

namespace fs = std::filesystem;

namespace {

Result<void> check_signature(const Manifest& manifest, const std::string& key) {
  if (manifest.signature_key.empty()) {
    if (key.empty()) return {};
    return fail(ErrorCode::kPermissionDenied, "it is not signed, and a signature of " + key + " is asked for");
  }
  const auto point = from_base64(manifest.signature_key);
  const auto signature = from_base64(manifest.signature_value);
  if (!point || !signature) return fail(ErrorCode::kPermissionDenied, "its signature is not in base64");
  PF_TRY(const P256PublicKey signer, P256PublicKey::from_compressed(*point));
  if (!signer.verify(signed_bytes(manifest), *signature))
    return fail(ErrorCode::kPermissionDenied, "its signature is wrong: it was changed after it was signed");
  if (!key.empty() && key != manifest.signature_key)
    return fail(ErrorCode::kPermissionDenied,
                fmt::format("it is signed by {}, and a signature of {} is asked for", manifest.signature_key, key));
  return {};
}

tl::unexpected<Error> differs(const std::string& path, std::string_view what, std::string_view is, std::string_view said) {
  return fail(
      ErrorCode::kInvalidModel,
      fmt::format("{} is not the file that the manifest means: its {} is {}, and the manifest says {}", path, what, is, said));
}

Result<void> check_file(const std::string& path, const ManifestFile& wanted, const CancelToken& cancel) {
  std::error_code error;
  const uint64_t size_bytes = fs::file_size(path, error);
  if (error) return fail(ErrorCode::kIo, fmt::format("{} cannot be read: {}", path, error.message()));
  if (size_bytes != wanted.size_bytes)
    return differs(path, "size", std::to_string(size_bytes), std::to_string(wanted.size_bytes));
  PF_TRY(const std::string digest, sha256_file(path, cancel));
  if (digest != wanted.sha256) return differs(path, "SHA-256", digest, wanted.sha256);
  return {};
}

// Files that were fetched were compared with their digest as they came.
Result<void> check_stored(const StoredModel& model, const Manifest& manifest) {
  if (model.files.size() != manifest.files.size())
    return differs(model.path, "number of files", std::to_string(model.files.size()), std::to_string(manifest.files.size()));
  for (size_t index = 0; index < model.files.size(); ++index) {
    if (model.files[index].sha256 != manifest.files[index].sha256)
      return differs(model.files[index].name, "SHA-256", model.files[index].sha256, manifest.files[index].sha256);
  }
  return {};
}

Result<void> check_template(const std::string& path, const Manifest& manifest) {
  PF_TRY(const ModelSummary summary, inspect_gguf(path));
  const std::string digest = template_digest(summary);
  if (digest != manifest.chat_template_sha256)
    return differs(path, "chat template's SHA-256", digest.empty() ? "none" : digest,
                   manifest.chat_template_sha256.empty() ? "none" : manifest.chat_template_sha256);
  return {};
}

bool is_elsewhere(const std::string& reference) {
  return reference.find("://") != std::string::npos;
}

// What was fetched last stands in for it while the other end cannot be reached.
Result<std::string> fetch_manifest(const std::string& url, const FetchSettings& settings) {
  PF_TRY(const ModelReference parsed, parse_reference(url));
  PF_TRY(const ModelStore store, open_store(settings.folder));
  const std::string folder = store.folder() + "/manifests";
  const std::string kept = folder + "/" + to_hex(sha256(url)) + ".json";
  TextSink sink(kMostManifestBytes);
  SourceRequest request;
  request.url = parsed.url;
  const auto reply = make_curl_source()->get(request, sink, settings.cancel);
  if (reply && reply->status == 200 && !sink.too_long) {
    PF_CHECK_OK(make_folder(folder));
    PF_CHECK_OK(write_file_atomic(kept, sink.text));
    return sink.text;
  }
  if (sink.too_long) return fail(ErrorCode::kPayloadTooLarge, fmt::format("{} has more than {} bytes", url, kMostManifestBytes));
  const bool away = !reply || reply->status == 429 || reply->status >= 500;
  const std::string why = reply ? fmt::format("it answered {}", reply->status) : reply.error().message;
  if (!away) return fail(ErrorCode::kNotFound, fmt::format("{} cannot be fetched: {}", url, why));
  if (auto text = read_file(kept, kMostManifestBytes)) {
    log_warn("manifest_kept", {{"url", url}, {"reason", why}});
    return text;
  }
  return fail(ErrorCode::kUnavailable, fmt::format("{} cannot be fetched, and was not fetched before: {}", url, why));
}

}  // namespace

bool is_manifest(const std::string& reference) {
  return reference.ends_with(".json") && !reference.starts_with("hf:");
}

Result<Manifest> load_manifest(const std::string& reference, const std::string& key, const FetchSettings& settings) {
  const auto about = [&](Error error) {
    error.message = reference + ": " + error.message;
    return fail(std::move(error));
  };
  PF_TRY(const std::string text,
         is_elsewhere(reference) ? fetch_manifest(reference, settings) : read_file(reference, kMostManifestBytes));
  auto manifest = parse_manifest(text);
  if (!manifest) return about(manifest.error());
  if (const auto checked = check_signature(*manifest, key); !checked) return about(checked.error());
  if (const auto checked = check_engine(*manifest, "llama.cpp", llama_build()); !checked) return about(checked.error());
  return manifest;
}

Result<std::string> local_model(const Manifest& manifest, const std::string& reference, const FetchSettings& settings) {
  PF_TRY(const ModelReference source, parse_reference(manifest.source));
  std::string where = manifest.source;
  if (source.kind == ReferenceKind::kPath && is_elsewhere(reference)) {
    // Beside the manifest is where the file is.
    where = reference.substr(0, reference.rfind('/') + 1) + source.path;
  } else if (source.kind == ReferenceKind::kPath) {
    const fs::path first = fs::path(reference).parent_path() / source.path;
    for (const ManifestFile& file : manifest.files)
      PF_CHECK_OK(check_file((first.parent_path() / file.name).string(), file, settings.cancel));
    PF_CHECK_OK(check_template(first.string(), manifest));
    return first.string();
  }
  PF_TRY(const ModelStore store, open_store(settings.folder));
  auto model = store.find(where);
  // What was fetched before under this name may be an earlier version.
  if (!model || !check_stored(*model, manifest)) model = pull_model(where, settings);
  if (!model) return fail(model.error());
  PF_CHECK_OK(check_stored(*model, manifest));
  PF_CHECK_OK(check_template(model->path, manifest));
  return model->path;
}

Result<void> sign(Manifest& manifest, const P256PrivateKey& key) {
  PF_TRY(const std::string signature, key.sign(signed_bytes(manifest)));
  manifest.signature_key = to_base64(key.public_key().compressed());
  manifest.signature_value = to_base64(signature);
  return {};
}

std::vector<GoldenPrompt> golden_prompts(const Manifest& manifest) {
  std::vector<GoldenPrompt> out;
  for (const ManifestPrompt& each : manifest.golden) out.push_back({each.prompt, each.prompt_tokens, each.tokens});
  return out;
}

}  // namespace pocketfleet::cli
