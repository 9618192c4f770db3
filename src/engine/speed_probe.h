// Measures how fast a model reads and writes on this machine under some settings, in contexts of its own on weights that are
// loaded once. Blocking, and it takes all the cores it is given: for when nothing else runs. One thread at a time. Errors as the
// runtime has them; kCancelled.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"

namespace pocketfleet {

class LlamaRuntime;

struct ProbeSettings {
  std::vector<int> cpus;  // one thread each
  int batch_tokens = 512;
  std::string kv_type = "f16";
  bool flash_attention = true;
  bool kernels = true;
  int streams = 1;  // requests at the same time
  bool operator==(const ProbeSettings&) const = default;
};

struct ProbeWork {
  int prompt_tokens = 0;  // of one request
  int written_tokens = 0;
};

struct ProbeResult {
  double read_tokens_per_s = 0;   // of all streams together, over a whole prompt
  double write_tokens_per_s = 0;  // of all streams together
  double request_ms = 0;          // all that a request takes of the machine
};

class SpeedProbe {
 public:
  static Result<std::unique_ptr<SpeedProbe>> open(const std::string& model_path);
  ~SpeedProbe();

  // `whole`: every token of the prompt is read. Otherwise, of a long one, a piece in its middle, where the cache has its average
  // length; the first such call for a cache type reads half a prompt to get there.
  Result<ProbeResult> measure(const ProbeSettings& settings, const ProbeWork& work, bool whole, const CancelToken& cancel);

 private:
  explicit SpeedProbe(std::string model_path);
  // Which holds the weights, laid out for our kernels or for ggml-cpu's; the other's are given up.
  Result<LlamaRuntime*> base(bool kernels);

  std::string model_path_;
  bool base_kernels_ = true;
  std::unique_ptr<LlamaRuntime> base_;
  // States in the middle of a prompt, by its length, cache type and whether attention is the fused one.
  std::map<std::tuple<int, std::string, bool>, std::vector<uint8_t>> middles_;
};

}  // namespace pocketfleet
