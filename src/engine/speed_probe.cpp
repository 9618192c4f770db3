#include "engine/speed_probe.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "engine/kv_type.h"
#include "engine/llama_runtime.h"
#include "engine/pin_thread.h"

namespace pocketfleet {

namespace {

constexpr size_t kPieceTokens = 512;  // of a sample
constexpr size_t kWarmTokens = 32;    // that touch the buffers first
constexpr size_t kSampleSteps = 8;    // of writing

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One measurement; on the thread that is pinned.
class Measurement {
 public:
  // `middle`: the state in the middle of a prompt, or nothing yet.
  Measurement(LlamaRuntime& runtime, const ProbeSettings& settings, const ProbeWork& work, StateBytes& middle,
              const CancelToken& cancel)
      : runtime_(runtime),
        middle_(&middle),
        prompt_(static_cast<size_t>(work.prompt_tokens)),
        written_(static_cast<size_t>(work.written_tokens)),
        cancel_(cancel),
        next_(static_cast<size_t>(settings.streams), 0) {}

  Result<ProbeResult> run(bool whole) {
    const bool sampled = !whole && prompt_ > 3 * kPieceTokens;
    PF_TRY(const double read_ms, sampled ? sample_reading() : read_all());
    const auto streams = static_cast<double>(next_.size());
    ProbeResult result;
    result.read_tokens_per_s = static_cast<double>(prompt_) * streams / read_ms * 1000;
    double write_ms = 0;
    if (written_ > 0) {
      PF_TRY(const double step_ms, write());
      write_ms = step_ms * static_cast<double>(written_);
      result.write_tokens_per_s = streams / step_ms * 1000;
    }
    result.request_ms = (read_ms + write_ms) / streams;
    return result;
  }

 private:
  Result<void> decode() {
    const std::function<bool()> give_up = [this] { return cancel_.cancelled(); };
    auto done = runtime_.decode(give_up);
    runtime_.batch_clear();
    return done;
  }

  void add(size_t stream, bool ask) {
    const size_t position = next_[stream]++;
    runtime_.batch_add(static_cast<Token>((position * 7 + 11) % 97 + 3), static_cast<int>(position), static_cast<int>(stream),
                       ask);
  }

  // So many more tokens of one prompt; the time they take.
  Result<double> read_piece(size_t stream, size_t count) {
    const double start = now_ms();
    while (count > 0) {
      const size_t batch = std::min(runtime_.batch_tokens(), count);
      count -= batch;
      for (size_t left = batch; left > 0; --left) add(stream, count == 0 && left == 1);
      PF_CHECK_OK(decode());
    }
    return now_ms() - start;
  }

  // Every prompt from its beginning to its end; short ones share a batch, as the scheduler has it.
  Result<double> read_all() {
    const size_t together = std::clamp<size_t>(runtime_.batch_tokens() / std::max<size_t>(prompt_, 1), 1, next_.size());
    const double start = now_ms();
    for (size_t first = 0; first < next_.size(); first += together) {
      if (together == 1) {
        PF_CHECK_OK(read_piece(first, prompt_));
        continue;
      }
      for (size_t stream = first; stream < std::min(first + together, next_.size()); ++stream) {
        for (size_t left = prompt_; left > 0; --left) add(stream, left == 1);
      }
      PF_CHECK_OK(decode());
    }
    return now_ms() - start;
  }

  // The cost of a token grows evenly with how much stands before it, so a piece in the middle tells of the whole. What stands
  // before it is read once for all settings that keep it in the same form.
  Result<double> sample_reading() {
    const size_t depth = prompt_ / 2;
    if (middle_->empty()) {
      PF_CHECK_OK(read_piece(0, depth));
      PF_TRY(*middle_, runtime_.save(0));
    } else {
      PF_CHECK_OK(runtime_.restore(0, *middle_));
      next_[0] = depth;
      PF_CHECK_OK(read_piece(0, kWarmTokens));
    }
    const size_t piece = std::max(kPieceTokens, runtime_.batch_tokens());
    PF_TRY(const double piece_ms, read_piece(0, piece));
    return piece_ms / static_cast<double>(piece) * static_cast<double>(prompt_ * next_.size());
  }

  // The time of a step in which every stream writes a token.
  Result<double> write() {
    const size_t steps = std::min(written_, kSampleSteps);
    const double start = now_ms();
    for (size_t step = 0; step < steps; ++step) {
      for (size_t stream = 0; stream < next_.size(); ++stream) add(stream, true);
      PF_CHECK_OK(decode());
    }
    return (now_ms() - start) / static_cast<double>(steps);
  }

  LlamaRuntime& runtime_;
  StateBytes* const middle_;
  const size_t prompt_;
  const size_t written_;
  const CancelToken& cancel_;
  std::vector<size_t> next_;  // position of each stream
};

Result<ProbeResult> measure_here(const RuntimeOptions& options, const ProbeSettings& settings, const ProbeWork& work, bool whole,
                                 StateBytes& middle, const CancelToken& cancel) {
  PF_CHECK_OK(pin_thread(settings.cpus));
  PF_TRY(const std::unique_ptr<LlamaRuntime> runtime, LlamaRuntime::load(options, [](float) { return true; }));
  if (whole) PF_CHECK_OK(runtime->warm_up());
  return Measurement(*runtime, settings, work, middle, cancel).run(whole);
}

}  // namespace

Result<std::unique_ptr<SpeedProbe>> SpeedProbe::open(const std::string& model_path) {
  std::unique_ptr<SpeedProbe> probe(new SpeedProbe(model_path));
  PF_CHECK_OK(probe->base(true));
  return probe;
}

Result<LlamaRuntime*> SpeedProbe::base(bool kernels) {
  if (base_ && base_kernels_ == kernels) return base_.get();
  base_.reset();
  RuntimeOptions options;
  options.model_path = model_path_;
  options.context_tokens = 256;
  options.slots = 1;
  options.score_sequences = 0;
  options.kernels = kernels;
  PF_TRY(base_, LlamaRuntime::load(options, [](float) { return true; }));
  base_kernels_ = kernels;
  return base_.get();
}

SpeedProbe::SpeedProbe(std::string model_path) : model_path_(std::move(model_path)) {}
SpeedProbe::~SpeedProbe() = default;

Result<ProbeResult> SpeedProbe::measure(const ProbeSettings& settings, const ProbeWork& work, bool whole,
                                        const CancelToken& cancel) {
  if (work.prompt_tokens < 1 || work.written_tokens < 0 || settings.streams < 1)
    return fail(ErrorCode::kInvalidArgument, "a probe reads at least one token in at least one stream");
  PF_TRY(LlamaRuntime * base, this->base(settings.kernels));
  RuntimeOptions options;
  options.model = base->share_model();
  options.context_tokens =
      work.prompt_tokens + work.written_tokens + std::max(settings.batch_tokens, static_cast<int>(kPieceTokens));
  options.slots = settings.streams;
  options.threads = static_cast<int>(settings.cpus.size());
  options.batch_tokens = settings.batch_tokens;
  options.score_sequences = 0;
  options.flash_attention = settings.flash_attention;
  options.kernels = settings.kernels;
  PF_TRY(options.kv_type, parse_kv_type(settings.kv_type));
  // A thread of its own: OpenMP's workers belong to the thread that started them, and keep its cores.
  Result<ProbeResult> result = fail(ErrorCode::kInternal, "not measured");
  StateBytes& middle = middles_[{work.prompt_tokens, settings.kv_type, settings.flash_attention}];
  std::thread([&] { result = measure_here(options, settings, work, whole, middle, cancel); }).join();
  return result;
}

}  // namespace pocketfleet
