#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/jsonl.h"
#include "cli/manifest_file.h"
#include "cli/options.h"
#include "cli/serve_rules.h"
#include "cli/server_setup.h"
#include "engine/llama_engine.h"
#include "model/gguf.h"

namespace pocketfleet::cli {

namespace fs = std::filesystem;

namespace {

// What `serve` would read, with its control tokens written out.
Result<std::string> prompt_of(const Engine& engine, const Json& line) {
  if (line.is_object() && line.contains("prompt") && line["prompt"].is_string()) return line["prompt"].get<std::string>();
  if (!line.is_object() || !line.contains("messages") || !line["messages"].is_array())
    return fail(ErrorCode::kInvalidArgument, "has neither \"prompt\" nor \"messages\"");
  ChatInput input;
  input.enable_thinking = false;
  for (const Json& item : line["messages"]) {
    ChatMessage message;
    if (!item.is_object() || !item.contains("role") || !item["role"].is_string() || !item.contains("content") ||
        !item["content"].is_string())
      return fail(ErrorCode::kInvalidArgument, "holds a message without a role or without content, both as strings");
    message.role = item["role"];
    message.content = item["content"];
    input.messages.push_back(std::move(message));
  }
  PF_TRY(const RenderedChat chat, engine.render_chat(input));
  PF_TRY(std::string text, engine.detokenize(chat.prompt.tokens, true));
  PF_TRY(const Tokens again, engine.tokenize(text, false, true));
  if (again != chat.prompt.tokens)
    return fail(ErrorCode::kInvalidArgument, "holds text that looks like a control token; leave it out");
  return text;
}

Result<std::vector<ManifestPrompt>> make_all(Engine& engine, const std::string& path) {
  PF_TRY(const std::string text, read_input(path));
  std::vector<ManifestPrompt> out;
  for (const auto& [number, line] : split_lines(text)) {
    const auto about = [&](const Error& error) {
      return fail(error.code, fmt::format("{}, line {}: {}", path, number, error.message));
    };
    const auto json = parse_json(line);
    if (!json) return about(json.error());
    const auto prompt = prompt_of(engine, *json);
    if (!prompt) return about(prompt.error());
    auto golden = make_golden(engine, *prompt);
    if (!golden) return about(golden.error());
    out.push_back({std::move(golden->prompt), std::move(golden->prompt_tokens), std::move(golden->tokens)});
  }
  if (out.empty()) return fail(ErrorCode::kInvalidArgument, path + " holds no prompt");
  return out;
}

Result<std::vector<ManifestFile>> describe_files(const ModelSummary& summary) {
  std::vector<ManifestFile> out;
  const fs::path first(summary.path);
  for (int part = 1; part <= summary.parts; ++part) {
    std::string name = first.filename().string();
    const std::string ending = fmt::format("-00001-of-{:05}.gguf", summary.parts);
    if (summary.parts > 1 && name.ends_with(ending))
      name = fmt::format("{}-{:05}-of-{:05}.gguf", name.substr(0, name.size() - ending.size()), part, summary.parts);
    const std::string path = (first.parent_path() / name).string();
    std::error_code error;
    const uint64_t size_bytes = fs::file_size(path, error);
    if (error) return fail(ErrorCode::kIo, fmt::format("{} cannot be read: {}", path, error.message()));
    PF_TRY(std::string digest, sha256_file(path));
    out.push_back({std::move(name), size_bytes, std::move(digest)});
  }
  return out;
}

Result<Manifest> make(const ModelManifestOptions& options) {
  FetchSettings fetch;
  fetch.folder = options.cache;
  fetch.quiet = options.json;
  PF_TRY(const ModelReference reference, parse_reference(options.reference));
  PF_TRY(const std::string path, local_model(options.reference, fetch));
  PF_TRY(const ModelSummary summary, inspect_gguf(path));
  PF_CHECK_OK(check_servable(summary));
  Manifest manifest;
  manifest.name = options.name.empty() ? model_name_of(path) : options.name;
  manifest.source = options.source;
  if (manifest.source.empty())
    manifest.source = reference.kind == ReferenceKind::kPath ? fs::path(path).filename().string() : options.reference;
  PF_TRY(manifest.files, describe_files(summary));
  manifest.licence = options.licence;
  manifest.chat_template_sha256 = template_digest(summary);
  manifest.engine_name = "llama.cpp";
  manifest.engine_from = llama_build();
  manifest.engine_to = options.engine_to.empty() ? manifest.engine_from : options.engine_to;
  if (!options.golden.empty()) {
    LlamaEngineOptions engine_options;
    engine_options.model_path = path;
    engine_options.slots = 1;
    const auto engine = make_llama_engine(std::move(engine_options));
    PF_CHECK_OK(wait_until_ready(*engine));
    PF_TRY(manifest.golden, make_all(*engine, options.golden));
  }
  if (!options.key.empty()) {
    PF_TRY(const P256PrivateKey key, load_or_make_key(options.key));
    PF_CHECK_OK(sign(manifest, key));
  }
  // What cannot be read back must not be handed out.
  PF_CHECK_OK(parse_manifest(print_manifest(manifest)));
  return manifest;
}

}  // namespace

int run_model_manifest(const ModelManifestOptions& options) {
  set_log_level(LogLevel::kWarn);
  const auto manifest = make(options);
  if (!manifest) return fail_command("model manifest", manifest.error());
  const std::string output = options.output.empty() ? manifest->name + ".manifest.json" : options.output;
  if (const auto written = write_file_atomic(output, print_manifest(*manifest)); !written)
    return fail_command("model manifest", written.error());
  if (options.json) {
    std::printf("%s\n", dump_json({{"file", output},
                                   {"name", manifest->name},
                                   {"files", manifest->files.size()},
                                   {"golden", manifest->golden.size()},
                                   {"key", manifest->signature_key}})
                            .c_str());
    return 0;
  }
  std::printf("%s\n  %zu file%s of %s, %zu golden prompt%s, %s %s to %s\n", output.c_str(), manifest->files.size(),
              manifest->files.size() == 1 ? "" : "s", manifest->name.c_str(), manifest->golden.size(),
              manifest->golden.size() == 1 ? "" : "s", manifest->engine_name.c_str(), manifest->engine_from.c_str(),
              manifest->engine_to.c_str());
  for (const ManifestPrompt& prompt : manifest->golden)
    std::printf("  prompt of %zu tokens, %zu to come out\n", prompt.prompt_tokens.size(), prompt.tokens.size());
  if (manifest->signature_key.empty()) {
    std::printf("  not signed: anyone may change it. Sign it with --key FILE.\n");
  } else {
    std::printf("  signed; who serves it can ask for this with --manifest-key %s\n", manifest->signature_key.c_str());
  }
  return 0;
}

}  // namespace pocketfleet::cli
