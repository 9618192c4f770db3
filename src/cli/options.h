// What each command was told on its command line. Plain values, filled by main.cpp, which alone knows the option parser. Every
// run_...() returns the process's exit code: 0 done, 1 done with failures, 2 could not be done at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pocketfleet::cli {

struct ServeOptions {
  std::string model_path;    // or another reference: https://..., hf:...
  std::string manifest_key;  // whose signature a manifest must have; empty: any or none
  std::string model_cache;   // where models are kept that are fetched; empty: the user's cache
  std::string model_name;    // empty: the file's name without .gguf
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string unix_socket;
  std::string api_key_file;
  std::vector<std::string> cors_origins;
  std::vector<std::string> profiles;
  int context_tokens = 0;  // -1: as many as leave a margin of memory
  int slots = 0;           // 0: as tuned, or 4
  int threads = 0;
  std::string cpus;             // "4-7"; empty: as tuned, or any
  int batch_tokens = 0;         // 0: as tuned, or 512
  std::string kernels;          // auto, off; empty: as tuned, or auto
  std::string flash_attention;  // on, off; empty: as tuned, or on
  bool use_tuned = true;
  int queue = 64;
  int checkpoint_ram_mib = 256;
  int checkpoint_disk_mib = 1024;
  std::string checkpoint_dir;  // empty: a folder of this model's own in the user's cache
  std::string kv_type;         // empty: as tuned, or f16
  std::string pooling = "model";
  bool thinking = true;
  bool deterministic = false;
  std::string speculate = "off";
  bool json_logs = false;
  bool quiet = false;
  std::string fake;  // for tests: no model, a scripted engine of this kind
};

struct ClassifyOptions {
  std::string url = "http://127.0.0.1:8080";
  std::string file;  // "-": standard input
  std::string profile;
  std::string model;
  std::string api_key;
  std::string api_key_env = "POCKETFLEET_API_KEY";
  int batch = 32;
  int concurrency = 4;
  std::string text_field = "text";
  std::string expect_field;
  std::vector<std::string> positive_values;  // of expect_field
  std::vector<std::string> positive_labels;  // of the answers; empty: what the profile flags
  std::string output;
  bool json = false;
  bool quiet = false;
};

struct TuneOptions {
  std::vector<std::string> models;  // of one model, in several quantisations
  std::string work = "review";
  std::string kv_type;  // empty: f16, and q8_0 where it is much faster
  int soak_s = 60;
  bool again = false;
  bool grid = false;
  bool json = false;
  bool quiet = false;
};

struct KeyOptions {
  std::string file;
  std::string name;
  bool json = false;
};

struct ProfileCheckOptions {
  std::vector<std::string> files;
  bool json = false;
};

struct ProfileLintOptions {
  std::string file;
  std::string model_path;
  double read_tokens_per_s = 100;
  bool json = false;
};

struct ProfileCalibrateOptions {
  std::string file;
  std::string examples;  // JSONL; "-": standard input
  std::string url = "http://127.0.0.1:8080";
  std::string api_key;
  std::string api_key_env = "POCKETFLEET_API_KEY";
  std::string text_field = "text";
  std::string expect_field;
  std::vector<std::string> positive_values;  // of expect_field
  std::string method = "auto";               // auto, temperature, platt
  std::string output;
  bool json = false;
  bool quiet = false;
};

struct ModelPullOptions {
  std::string reference;
  std::string manifest_key;  // base64
  std::string cache;         // folder; empty: the user's cache
  int connections = 4;
  bool json = false;
  bool quiet = false;
};

// model list, verify and rm.
struct ModelStoreOptions {
  std::string reference;
  std::string cache;
  bool json = false;
};

struct ModelManifestOptions {
  std::string reference;
  std::string source;  // where others find it; empty: the reference, or the file beside the manifest
  std::string name;    // empty: the file's
  std::string licence;
  std::string golden;     // JSONL of prompts; empty: none
  std::string key;        // PEM file; empty: not signed
  std::string engine_to;  // empty: this build
  std::string output;     // empty: NAME.manifest.json
  std::string cache;
  bool json = false;
};

struct ModelInspectOptions {
  std::string file;
  int context_tokens = 0;
  int slots = 4;
  std::string kv_type = "f16";
  int checkpoint_ram_mib = 256;
  bool json = false;
};

struct EstimateOptions {
  uint64_t prompts = 0;
  uint64_t length = 7000;
  uint64_t shared = 0;
  uint64_t write = 5;
  std::string model = "0.8b";  // or a file
  std::string device = "all";
  int64_t deadline_ms = 0;
  uint64_t phones = 0;
  std::string price = "1";  // ACU
  double heat = 0.65;
  double read_speed = 0;
  double write_speed = 0;
  bool json = false;
};

struct RelayCommandOptions {
  std::string host = "0.0.0.0";
  int public_port = 443;
  int agent_port = 4433;
  std::string admin = "127.0.0.1:9443";  // "off": none
  std::vector<std::string> suffixes;
  std::string suffix_file;  // one a line; read again on SIGHUP
  std::string certificate;
  std::string key;
  std::string acme_name;  // instead of the two
  std::string acme_directory = "https://acme-v02.api.letsencrypt.org/directory";
  std::string acme_ca;
  std::string acme_contact;
  bool agree = false;
  std::string state;  // empty: a folder of this user's
  std::string accept = "bound";
  bool quic = true;
  bool proxy_protocol = false;
  std::string authorise;  // a URL to ask
  std::string nameserver;
  int workers = 0;
  int drain_s = 30;
  int most_per_source = 256;
  double new_per_source_s = 50;
  int most_users = 0;
  bool json_logs = false;
  bool quiet = false;
};

struct TunnelCommandOptions {
  std::string to = "127.0.0.1:8080";
  std::vector<std::string> relays;
  std::string suffix;
  std::string state;  // empty: a folder of this user's
  std::string relay_ca;
  std::string accept = "bound";
  std::string carrier = "auto";
  int quic_retry_s = 300;
  int public_port = 443;
  int links = 2;
  std::string certificate;
  std::string key;
  bool self_signed = false;
  bool send_proxy = false;
  std::string acme_directory = "https://acme-v02.api.letsencrypt.org/directory";
  std::string acme_ca;
  std::string acme_contact;
  bool agree = false;
  bool json = false;
  bool json_logs = false;
  bool quiet = false;
};

int run_relay(const RelayCommandOptions& options);
int run_tunnel(const TunnelCommandOptions& options);
int run_serve(const ServeOptions& options);
int run_classify(const ClassifyOptions& options);
int run_key(const KeyOptions& options);
int run_profile_check(const ProfileCheckOptions& options);
int run_profile_lint(const ProfileLintOptions& options);
int run_model_pull(const ModelPullOptions& options);
int run_model_list(const ModelStoreOptions& options);
int run_model_verify(const ModelStoreOptions& options);
int run_model_rm(const ModelStoreOptions& options);
int run_model_manifest(const ModelManifestOptions& options);
int run_model_inspect(const ModelInspectOptions& options);
int run_tune(const TuneOptions& options);
int run_estimate(const EstimateOptions& options);
int run_profile_calibrate(const ProfileCalibrateOptions& options);

}  // namespace pocketfleet::cli
