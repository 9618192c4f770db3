// What each command was told on its command line. Plain values, filled by main.cpp, which alone knows the option parser. Every
// run_...() returns the process's exit code: 0 done, 1 done with failures, 2 could not be done at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pocketfleet::cli {

struct ServeOptions {
  std::string model_path;   // or another reference: https://..., hf:...
  std::string model_cache;  // where models are kept that are fetched; empty: the user's cache
  std::string model_name;   // empty: the file's name without .gguf
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string unix_socket;
  std::string api_key_file;
  std::vector<std::string> cors_origins;
  std::vector<std::string> profiles;
  int context_tokens = 0;  // -1: as many as leave a margin of memory
  int slots = 4;
  int threads = 0;
  int queue = 64;
  int checkpoint_ram_mib = 256;
  int checkpoint_disk_mib = 1024;
  std::string checkpoint_dir;  // empty: a folder of this model's own in the user's cache
  std::string kv_type = "f16";
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
  std::string cache;  // folder; empty: the user's cache
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

struct ModelInspectOptions {
  std::string file;
  int context_tokens = 0;
  int slots = 4;
  std::string kv_type = "f16";
  int checkpoint_ram_mib = 256;
  bool json = false;
};

int run_serve(const ServeOptions& options);
int run_classify(const ClassifyOptions& options);
int run_key(const KeyOptions& options);
int run_profile_check(const ProfileCheckOptions& options);
int run_profile_lint(const ProfileLintOptions& options);
int run_model_pull(const ModelPullOptions& options);
int run_model_list(const ModelStoreOptions& options);
int run_model_verify(const ModelStoreOptions& options);
int run_model_rm(const ModelStoreOptions& options);
int run_model_inspect(const ModelInspectOptions& options);
int run_profile_calibrate(const ProfileCalibrateOptions& options);

}  // namespace pocketfleet::cli
