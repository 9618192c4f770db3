// The command line: which command, and its options. The only file that knows CLI11.
#include <CLI/CLI.hpp>

#include <csignal>
#include <map>
#include <string>

#include "cli/options.h"

namespace {

using namespace pocketfleet::cli;

constexpr int kUsage = 2;

void add_log_options(CLI::App* command, bool& json_logs, bool& quiet) {
  command->add_flag("--log-json", json_logs, "log lines as JSON");
  command->add_flag("--quiet", quiet, "log warnings and errors only");
}

void add_serve(CLI::App& app, ServeOptions& options) {
  CLI::App* serve = app.add_subcommand("serve", "serve a GGUF model over the OpenAI API on this machine");
  serve
      ->add_option("model", options.model_path,
                   "the model file (.gguf), or https://..., or hf:owner/repository[:file or quantisation], or a manifest (.json)")
      ->required();
  serve->add_option("--manifest-key", options.manifest_key,
                    "refuse a manifest that is not signed with this key (as model manifest printed it)");
  serve->add_option("--model-cache", options.model_cache, "folder where fetched models are kept; default: in the user's cache");
  serve->add_option("--model-name", options.model_name, "the name that clients ask for; default: the file's name");
  serve->add_option("--host", options.host, "address to listen on; any but loopback needs --api-key-file")->capture_default_str();
  serve->add_option("--port", options.port, "port; 0 takes a free one")->capture_default_str()->check(CLI::Range(0, 65535));
  serve->add_option("--unix-socket", options.unix_socket, "listen on this Unix socket instead of a port");
  serve->add_option("--api-key-file", options.api_key_file, "file of keys that are let in, see: pocketfleet key --help");
  serve->add_option("--cors-origin", options.cors_origins, "a web origin whose pages may call; may be given several times");
  serve->add_option("--profile", options.profiles, "a classification profile (JSON); may be given several times");
  serve
      ->add_option("--ctx", options.context_tokens,
                   "tokens of one request, prompt and answer; 0: trained length, at most 8192; auto: all that memory allows")
      ->capture_default_str()
      ->transform([](std::string text) { return text == "auto" ? std::string("-1") : text; })
      ->check(CLI::Range(-1, 10'000'000));
  serve->add_option("--slots", options.slots, "requests that write at the same time; default: as tuned, or 4")
      ->check(CLI::Range(1, 64));
  serve->add_option("--threads", options.threads, "default: as tuned, or one a core")->check(CLI::Range(1, 1024));
  serve->add_option("--cpus", options.cpus, "cores that the threads are held to, like 4-7; default: as tuned, or any");
  serve->add_option("--batch", options.batch_tokens, "tokens in one call of the model; default: as tuned, or 512")
      ->check(CLI::Range(8, 8192));
  serve
      ->add_option("--kernels", options.kernels,
                   "auto: our own kernels where they suit this processor; off: llama.cpp's; default: as tuned, or auto")
      ->check(CLI::IsMember({"auto", "off"}));
  serve->add_option("--flash-attention", options.flash_attention, "on or off; default: as tuned, or on")
      ->check(CLI::IsMember({"on", "off"}));
  serve->add_flag("!--no-tuned", options.use_tuned, "do not use what pocketfleet tune found on this machine");
  serve->add_option("--queue", options.queue, "requests that may wait; more get 429")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  serve->add_option("--checkpoint-ram", options.checkpoint_ram_mib, "MiB for saved states of prompts")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  serve->add_option("--checkpoint-disk", options.checkpoint_disk_mib, "MiB for those that outlive a restart; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000'000));
  serve->add_option("--checkpoint-dir", options.checkpoint_dir,
                    "folder for them, of this server alone; default: one for the model in the user's cache");
  serve->add_option("--kv-type", options.kv_type, "f32, f16 or q8_0; default: as tuned, or f16")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  serve->add_option("--pooling", options.pooling, "how embeddings are made: as the model says, none, mean, first or last")
      ->capture_default_str()
      ->check(CLI::IsMember({"model", "none", "mean", "first", "last"}));
  serve->add_option("--thinking", "on or off: what holds when a request does not say")
      ->default_str("on")
      ->check(CLI::IsMember({"on", "off"}))
      ->each([&options](const std::string& value) { options.thinking = value == "on"; });
  serve
      ->add_option(
          "--speculate", options.speculate,
          "guess ahead of streams: off; ngram: from what stands in the text, pays where it repeats; mtp: with the model's draft "
          "head, pays for long answers of large models")
      ->capture_default_str()
      ->check(CLI::IsMember({"off", "ngram", "mtp"}));
  serve->add_flag("--deterministic", options.deterministic,
                  "the same request gives the same bits, alone or among others and after a restart; one at a time");
  add_log_options(serve, options.json_logs, options.quiet);
  serve->add_option("--fake", options.fake, "")->group("");
  serve->footer(
      "Example:\n  pocketfleet serve scam-guard-q8_0.gguf --profile models/scam-guard/profile.json --port 8080\n"
      "  curl http://127.0.0.1:8080/v1/classify -H 'content-type: application/json' \\\n"
      "    -d '{\"profile\":\"scam-guard\",\"input\":\"You have won! Call 0900 now\"}'\n");
}

void add_relay(CLI::App& app, RelayCommandOptions& options) {
  CLI::App* relay = app.add_subcommand("relay", "pass TLS connections on to machines behind NAT, by server name and unopened");
  relay->add_option("--host", options.host, "address to listen on")->capture_default_str();
  relay->add_option("--public-port", options.public_port, "where users come; 0 takes a free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  relay->add_option("--agent-port", options.agent_port, "where agents dial in")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  relay->add_option("--admin", options.admin, "HOST:PORT for /metrics and /health; off: none")->capture_default_str();
  relay->add_option("--suffix", options.suffixes, "domain that addresses may end with; may be given several times");
  relay->add_option("--suffix-file", options.suffix_file, "the same from a file, one a line; read again on SIGHUP");
  relay->add_option("--certificate", options.certificate, "chain (PEM) that agents see; read again on SIGHUP");
  relay->add_option("--key", options.key, "its private key (PEM)");
  relay->add_option("--acme-name", options.acme_name, "the relay's host name: order a certificate for it instead, and renew it");
  relay->add_option("--acme-directory", options.acme_directory, "the certificate authority")->capture_default_str();
  relay->add_option("--acme-ca", options.acme_ca, "authorities (PEM) for that one's own certificate; default: the system's");
  relay->add_option("--acme-contact", options.acme_contact, "e-mail address that the authority may write to");
  relay->add_flag("--agree-terms", options.agree, "you agree to the certificate authority's terms of service");
  relay->add_option("--state", options.state, "folder of the ordered certificate and its key; default: the user's");
  relay
      ->add_option("--accept", options.accept,
                   "bound: agents whose proof holds for one connection only; legacy: also those of the public network")
      ->capture_default_str()
      ->check(CLI::IsMember({"bound", "legacy"}));
  relay->add_option("--authorise", options.authorise, "URL that is asked (POST) whether an agent may serve its address");
  relay->add_option("--nameserver", options.nameserver,
                    "for TXT records of suffixes: ADDRESS or ADDRESS:PORT; default: the system's");
  relay->add_flag("--proxy-protocol", options.proxy_protocol, "tell tunnels who calls (PROXY protocol, version 2)");
  relay->add_flag("!--no-quic", options.quic, "agents come over TCP only");
  relay->add_option("--workers", options.workers, "threads; default: one a core")->check(CLI::Range(1, 1024));
  relay->add_option("--drain", options.drain_s, "seconds that users have to end after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0, 86'400));
  relay->add_option("--most-per-source", options.most_per_source, "connections at once of one address; 0: no limit")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000'000));
  relay->add_option("--new-per-source", options.new_per_source_s, "new connections of one address a second; 0: no limit")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  relay
      ->add_option("--most-users", options.most_users, "connections at once in all; default: what the limit of open files allows")
      ->check(CLI::Range(1, 10'000'000));
  add_log_options(relay, options.json_logs, options.quiet);
  relay->footer(
      "Example:\n  pocketfleet relay --suffix fleet.example --acme-name relay.fleet.example --agree-terms\n"
      "  pocketfleet relay --suffix fleet.example --certificate relay.pem --key relay.key\n"
      "  kill -HUP PID     takes a new certificate and new suffixes\n  kill -TERM PID    lets users end, then goes\n");
}

void add_tunnel(CLI::App& app, TunnelCommandOptions& options) {
  CLI::App* tunnel = app.add_subcommand("tunnel", "give a local server a public HTTPS address through a relay");
  tunnel->add_option("--to", options.to, "the local server: HOST:PORT or unix:/path")->capture_default_str();
  tunnel->add_option("--relay", options.relays, "HOST or HOST:PORT of a relay; may be given several times")->required();
  tunnel->add_option("--suffix", options.suffix, "domain that the address ends with, as the relay has it")->required();
  tunnel->add_option("--state", options.state,
                     "folder of the key, which is the address, and of the certificate; default: the user's");
  tunnel->add_option("--relay-ca", options.relay_ca, "authorities (PEM) that relays are checked against; default: the system's");
  tunnel
      ->add_option("--accept", options.accept,
                   "bound: relays that bind the proof to the connection; legacy: also those of the public network")
      ->capture_default_str()
      ->check(CLI::IsMember({"bound", "legacy"}));
  tunnel
      ->add_option("--carrier", options.carrier,
                   "quic, h2, or auto: QUIC where it gets through, HTTP/2 where it does not, and back when it does")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "quic", "h2"}));
  tunnel->add_option("--quic-retry", options.quic_retry_s, "seconds between looks, over HTTP/2, whether QUIC gets through now")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  tunnel
      ->add_option("--public-port", options.public_port,
                   "of the relays, where others with the same key are asked for their certificate")
      ->capture_default_str()
      ->check(CLI::Range(1, 65535));
  tunnel->add_option("--links", options.links, "connections to each relay")->capture_default_str()->check(CLI::Range(1, 16));
  tunnel->add_option("--certificate", options.certificate, "chain (PEM) for the address, instead of ordering one");
  tunnel->add_option("--key", options.key, "its private key (PEM)");
  tunnel->add_flag("--self-signed", options.self_signed, "sign it here; clients must be told to trust it");
  tunnel->add_flag("--send-proxy", options.send_proxy,
                   "tell the local server who calls (PROXY protocol, version 2); it must expect that");
  tunnel->add_option("--acme-directory", options.acme_directory, "the certificate authority")->capture_default_str();
  tunnel->add_option("--acme-ca", options.acme_ca, "authorities (PEM) for that one's own certificate; default: the system's");
  tunnel->add_option("--acme-contact", options.acme_contact, "e-mail address that the authority may write to");
  tunnel->add_flag("--agree-terms", options.agree, "you agree to the certificate authority's terms of service");
  tunnel->add_flag("--json", options.json, "each change of the status as a line of JSON");
  add_log_options(tunnel, options.json_logs, options.quiet);
  tunnel->footer(
      "Example:\n  pocketfleet serve model.gguf --port 8080 --api-key-file keys.txt &\n"
      "  pocketfleet tunnel --to 127.0.0.1:8080 --relay relay.fleet.example --suffix fleet.example --agree-terms\n");
}

void add_classify(CLI::App& app, ClassifyOptions& options) {
  CLI::App* classify = app.add_subcommand("classify", "label every line of a JSONL file over HTTP");
  classify->add_option("file", options.file, "JSONL file; - reads standard input")->required();
  classify->add_option("--url", options.url, "the server")->capture_default_str();
  classify->add_option("--profile", options.profile, "profile to ask; may be left out where the server has only one");
  classify->add_option("--model", options.model, "model to ask; may be left out");
  classify->add_option("--api-key", options.api_key, "key; seen by other users of this machine, so prefer the environment");
  classify->add_option("--api-key-env", options.api_key_env, "environment variable that holds the key")->capture_default_str();
  classify->add_option("--batch", options.batch, "texts in one request")->capture_default_str()->check(CLI::Range(1, 2048));
  classify->add_option("--concurrency", options.concurrency, "requests at the same time")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  classify->add_option("--text-field", options.text_field, "field that holds the text")->capture_default_str();
  classify->add_option("--expect-field", options.expect_field,
                       "field that holds the right answer: prints how good the labels are");
  classify->add_option("--positive-values", options.positive_values, "values of that field that ought to be flagged")
      ->delimiter(',');
  classify
      ->add_option("--positive-labels", options.positive_labels, "labels that count as flagged; default: what the profile flags")
      ->delimiter(',');
  classify->add_option("--output", options.output, "write one JSON line for each input to this file");
  classify->add_flag("--json", options.json, "print the summary as JSON");
  classify->add_flag("--quiet", options.quiet, "no progress");
  classify->footer(
      "Example:\n  pocketfleet classify --url http://127.0.0.1:8080 --profile scam-guard \\\n"
      "    --expect-field label --positive-values spam --output verdicts.jsonl messages.jsonl\n");
}

void add_key(CLI::App& app, KeyOptions& options) {
  CLI::App* key = app.add_subcommand("key", "make an API key, print it once and append its digest to a file");
  key->add_option("file", options.file, "key file; made when it is not there")->required();
  key->add_option("--name", options.name, "who the key is for; appears in the server's log");
  key->add_flag("--json", options.json, "print as JSON");
  key->footer(
      "Example:\n  pocketfleet key keys.txt --name laptop\n  pocketfleet serve model.gguf --host 0.0.0.0 --api-key-file "
      "keys.txt\n");
}

void add_manifest(CLI::App& model, ModelManifestOptions& options) {
  CLI::App* manifest = model.add_subcommand(
      "manifest", "write down what a model is: where, its digests, engines that run it, and golden prompts; signed");
  manifest->add_option("reference", options.reference, "a file, https://..., or hf:owner/repository[:file or quantisation]")
      ->required();
  manifest->add_option("--golden", options.golden,
                       "JSONL of prompts, {\"messages\": [...]} or {\"prompt\": ...}; - reads standard input");
  manifest->add_option("--key", options.key, "P-256 key (PEM) to sign with; made when it is not there");
  manifest->add_option("--source", options.source,
                       "where others find it; default: the reference, or the file beside the manifest");
  manifest->add_option("--name", options.name, "default: the file's");
  manifest->add_option("--licence", options.licence, "of the model");
  manifest->add_option("--engine-to", options.engine_to, "newest llama.cpp it may run on; default: this one");
  manifest->add_option("--output", options.output, "default: NAME.manifest.json");
  manifest->add_option("--cache", options.cache, "folder where models are kept; default: in the user's cache");
  manifest->add_flag("--json", options.json, "print as JSON");
  manifest->footer(
      "Example:\n  pocketfleet model manifest guard.gguf --golden golden.jsonl --key deployer.pem --licence Apache-2.0\n"
      "  pocketfleet serve guard.manifest.json\n");
}

void add_model(CLI::App& app, ModelInspectOptions& options, ModelPullOptions& pull_options, ModelStoreOptions& store,
               ModelManifestOptions& manifest) {
  CLI::App* model = app.add_subcommand("model", "fetch, list, check and look into model files");
  model->require_subcommand(1);
  const char* kCache = "folder where models are kept; default: in the user's cache";
  CLI::App* pull =
      model->add_subcommand("pull", "fetch a model, or what is missing of it; goes on where an earlier pull was stopped");
  pull->add_option(
          "reference", pull_options.reference,
          "https://..., hf:owner/repository[@revision][:file or quantisation], or a manifest (.json), here or at https://...")
      ->required();
  pull->add_option("--manifest-key", pull_options.manifest_key, "the manifest must be signed with this key (base64)");
  pull->add_option("--cache", pull_options.cache, kCache);
  pull->add_option("--connections", pull_options.connections, "at the same time")
      ->capture_default_str()
      ->check(CLI::Range(1, 16));
  pull->add_flag("--json", pull_options.json, "print as JSON");
  pull->add_flag("--quiet", pull_options.quiet, "no progress");
  pull->footer(
      "HF_TOKEN is sent to the hub; HF_ENDPOINT names another one.\n"
      "Example:\n  pocketfleet model pull hf:unsloth/Qwen3.5-0.8B-GGUF:Q4_0\n");
  CLI::App* list = model->add_subcommand("list", "the models that were pulled");
  list->add_option("--cache", store.cache, kCache);
  list->add_flag("--json", store.json, "one JSON line a model");
  list->footer("Example:\n  pocketfleet model list\n");
  CLI::App* verify = model->add_subcommand("verify", "read every byte of pulled models again; what is damaged is removed");
  verify->add_option("reference", store.reference, "as it was pulled; default: all");
  verify->add_option("--cache", store.cache, kCache);
  verify->add_flag("--json", store.json, "one JSON line a model");
  verify->footer("Example:\n  pocketfleet model verify\n");
  CLI::App* rm = model->add_subcommand("rm", "remove a pulled model");
  rm->add_option("reference", store.reference, "as it was pulled")->required();
  rm->add_option("--cache", store.cache, kCache);
  rm->add_flag("--json", store.json, "print as JSON");
  rm->footer("Example:\n  pocketfleet model rm hf:unsloth/Qwen3.5-0.8B-GGUF:Q4_0\n");
  CLI::App* inspect = model->add_subcommand("inspect", "say what a GGUF file holds and what memory serving it takes");
  inspect->add_option("file", options.file, "model file (.gguf); of a model in parts, the first")->required();
  inspect->add_option("--ctx", options.context_tokens, "tokens of one request; 0: trained length, at most 8192")
      ->capture_default_str()
      ->check(CLI::Range(0, 10'000'000));
  inspect->add_option("--slots", options.slots, "requests that write at the same time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  inspect->add_option("--kv-type", options.kv_type, "f32, f16 or q8_0")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  inspect->add_option("--checkpoint-ram", options.checkpoint_ram_mib, "MiB for saved states of prompts")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  inspect->add_flag("--json", options.json, "print as JSON");
  inspect->footer("Example:\n  pocketfleet model inspect models/scam-guard/scam-guard-q4_0.gguf --ctx 4096 --slots 1\n");
  add_manifest(*model, manifest);
  model->footer("Example:\n  pocketfleet model inspect models/scam-guard/scam-guard-q4_0.gguf\n");
}

void add_calibrate(CLI::App& profile, ProfileCalibrateOptions& options) {
  CLI::App* calibrate = profile.add_subcommand(
      "calibrate", "fit a profile's probabilities to labelled examples, and say how far off they are before and after");
  calibrate->add_option("file", options.file, "profile file (JSON); the server must serve it")->required();
  calibrate->add_option("examples", options.examples, "JSONL file of labelled examples; - reads standard input")->required();
  calibrate->add_option("--url", options.url, "the server")->capture_default_str();
  calibrate->add_option("--api-key", options.api_key, "key; seen by other users of this machine, so prefer the environment");
  calibrate->add_option("--api-key-env", options.api_key_env, "environment variable that holds the key")->capture_default_str();
  calibrate->add_option("--text-field", options.text_field, "field that holds the text")->capture_default_str();
  calibrate->add_option("--expect-field", options.expect_field, "field that holds the right answer")->required();
  calibrate
      ->add_option("--positive-values", options.positive_values,
                   "values of that field that ought to be flagged; without them it holds labels")
      ->delimiter(',');
  calibrate->add_option("--method", options.method, "temperature, platt, or auto: platt where positive values are named")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "temperature", "platt"}));
  calibrate->add_option("--output", options.output, "write the profile with its calibration to this file; may be the same file");
  calibrate->add_flag("--json", options.json, "print as JSON");
  calibrate->add_flag("--quiet", options.quiet, "no progress");
  calibrate->footer(
      "Example:\n  pocketfleet profile calibrate models/scam-guard/profile.json valid.jsonl --expect-field label \\\n"
      "    --positive-values spam --output profile-calibrated.json\n");
}

void add_profile(CLI::App& app, ProfileCheckOptions& options, ProfileLintOptions& lint_options,
                 ProfileCalibrateOptions& calibrate_options) {
  CLI::App* profile = app.add_subcommand("profile", "work with classification profiles");
  profile->require_subcommand(1);
  CLI::App* check = profile->add_subcommand("check", "say whether profile files are valid, and what is wrong with them");
  check->add_option("files", options.files, "profile files (JSON)")->required();
  check->add_flag("--json", options.json, "one JSON line a file");
  check->footer("Example:\n  pocketfleet profile check models/scam-guard/profile.json\n");
  CLI::App* lint =
      profile->add_subcommand("lint", "say how many tokens of a profile's prompt are read once, and how many each time");
  lint->add_option("file", lint_options.file, "profile file (JSON)")->required();
  lint->add_option("--model", lint_options.model_path,
                   "model file whose vocabulary and template are used; its weights are not read")
      ->required();
  lint->add_option("--read-speed", lint_options.read_tokens_per_s, "tokens per second, for the seconds in warnings")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1e9));
  lint->add_flag("--json", lint_options.json, "print as JSON");
  lint->footer(
      "Example:\n  pocketfleet profile lint models/scam-guard/profile.json --model models/scam-guard/scam-guard-q4_0.gguf\n");
  add_calibrate(*profile, calibrate_options);
  profile->footer("Example:\n  pocketfleet profile check models/scam-guard/profile.json\n");
}

void add_tune(CLI::App& app, TuneOptions& options) {
  CLI::App* tune = app.add_subcommand("tune", "find the fastest settings for a model on this machine, also when it is hot");
  tune->add_option("models", options.models, "the model, or its quantisations to choose from; nothing else should run meanwhile")
      ->required();
  tune->add_option("--work", options.work,
                   "review (7000 tokens read, 5 written), guard (100, 1) or chat (500, 200, up to 4 at once)")
      ->capture_default_str()
      ->check(CLI::IsMember({"review", "guard", "chat"}));
  tune->add_option("--kv-type", options.kv_type, "only this; default: f16, and q8_0 where it is much faster")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  tune->add_option("--soak", options.soak_s, "seconds that the finalists run to get hot")
      ->capture_default_str()
      ->check(CLI::Range(0, 86'400));
  tune->add_flag("--again", options.again, "also when an earlier result still holds");
  tune->add_flag("--grid", options.grid, "try every combination as well, which takes ten times as long, and compare");
  tune->add_flag("--json", options.json, "print as JSON");
  tune->add_flag("--quiet", options.quiet, "no progress");
  tune->footer("Example:\n  pocketfleet tune models/scam-guard/scam-guard-q4_0.gguf --work guard --soak 30\n");
}

void add_estimate(CLI::App& app, EstimateOptions& options) {
  CLI::App* estimate = app.add_subcommand("estimate", "say how many phones, hours and ACU a job takes");
  estimate->add_option("--prompts", options.prompts, "how many")->required()->check(CLI::Range(1.0, 1e12));
  estimate->add_option("--length", options.length, "tokens of one prompt, all of it")->capture_default_str();
  estimate->add_option("--shared", options.shared, "of them, the same in all prompts, so read once a phone")
      ->capture_default_str();
  estimate->add_option("--write", options.write, "tokens of one answer")->capture_default_str();
  estimate->add_option("--model", options.model, "its size, like 0.8b, or a file")->capture_default_str();
  estimate->add_option("--device", options.device, "class of machines; all")->capture_default_str();
  CLI::Option* deadline =
      estimate->add_option("--deadline", options.deadline_ms, "all must be done within: 45m, 8h, 2d")
          ->transform(CLI::AsNumberWithUnit(
              std::map<std::string, int64_t>{{"s", 1'000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}},
              CLI::AsNumberWithUnit::UNIT_REQUIRED));
  estimate->add_option("--phones", options.phones, "that there are, instead of a deadline")
      ->check(CLI::Range(1.0, 1e9))
      ->excludes(deadline);
  estimate->add_option("--price", options.price, "ACU for a phone and day")->capture_default_str();
  estimate->add_option("--heat", options.heat, "share of its short-run speed that a phone keeps when it is hot")
      ->capture_default_str();
  estimate->add_option("--read-speed", options.read_speed, "tokens per second that you measured on your own machine")
      ->check(CLI::Range(0.001, 1e9));
  estimate->add_option("--write-speed", options.write_speed, "likewise, of one stream")->check(CLI::Range(0.001, 1e9));
  estimate->add_flag("--json", options.json, "one JSON line a device");
  estimate->footer(
      "Figures of others are marked as published: they come from other engines and other models.\n"
      "Example:\n  pocketfleet estimate --prompts 20000 --length 7000 --shared 5500 --model 4b --deadline 8h --price 0.8\n");
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away (pocketfleet classify ... | head) is an error of write(), not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);

  CLI::App app("Pocketfleet: your own small language model behind the OpenAI API");
  app.set_version_flag("--version", std::string("pocketfleet ") + POCKETFLEET_VERSION);
  app.require_subcommand(1);
  app.footer("Help on one command, with an example:\n  pocketfleet serve --help\n");

  ServeOptions serve;
  ClassifyOptions classify;
  KeyOptions key;
  ProfileCheckOptions check;
  ProfileLintOptions lint;
  ProfileCalibrateOptions calibrate;
  ModelInspectOptions inspect;
  add_serve(app, serve);
  add_classify(app, classify);
  add_key(app, key);
  add_profile(app, check, lint, calibrate);
  ModelPullOptions pull;
  ModelStoreOptions store;
  ModelManifestOptions manifest;
  add_model(app, inspect, pull, store, manifest);
  TuneOptions tune;
  add_tune(app, tune);
  EstimateOptions estimate;
  add_estimate(app, estimate);
  RelayCommandOptions relay;
  add_relay(app, relay);
  TunnelCommandOptions tunnel;
  add_tunnel(app, tunnel);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (app.got_subcommand("serve")) return run_serve(serve);
  if (app.got_subcommand("classify")) return run_classify(classify);
  if (app.got_subcommand("key")) return run_key(key);
  if (app.got_subcommand("tune")) return run_tune(tune);
  if (app.got_subcommand("estimate")) return run_estimate(estimate);
  if (app.got_subcommand("relay")) return run_relay(relay);
  if (app.got_subcommand("tunnel")) return run_tunnel(tunnel);
  if (app.got_subcommand("model")) {
    const CLI::App* model = app.get_subcommand("model");
    if (model->got_subcommand("pull")) return run_model_pull(pull);
    if (model->got_subcommand("list")) return run_model_list(store);
    if (model->got_subcommand("verify")) return run_model_verify(store);
    if (model->got_subcommand("rm")) return run_model_rm(store);
    if (model->got_subcommand("manifest")) return run_model_manifest(manifest);
    return run_model_inspect(inspect);
  }
  if (app.get_subcommand("profile")->got_subcommand("calibrate")) return run_profile_calibrate(calibrate);
  if (app.get_subcommand("profile")->got_subcommand("lint")) return run_profile_lint(lint);
  return run_profile_check(check);
}
