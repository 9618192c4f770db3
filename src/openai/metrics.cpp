#include "openai/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <vector>

namespace pocketfleet {

namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// From a verdict on a small model to a long prompt on a phone.
const prometheus::Histogram::BucketBoundaries kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                          1,     2.5,    5,     10,   30,    60,   120, 300,  600};

double seconds(int64_t ms) {
  return static_cast<double>(ms) / 1000.0;
}

void add_value(std::vector<MetricFamily>& families, MetricType type, const char* name, const char* help, double value) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  prometheus::ClientMetric metric;
  if (type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(metric);
  families.push_back(std::move(family));
}

void add_kernels(std::vector<MetricFamily>& families, const std::string& kernels) {
  add_value(families, MetricType::Gauge, "pocketfleet_kernels_info", "1; the label says which kernels compute, or none of ours",
            1);
  families.back().metric.back().label.push_back({"instruction_set", kernels});
}

void add_engine(std::vector<MetricFamily>& families, const Engine& engine) {
  const EngineStatus status = engine.status();
  const EngineCounters counters = engine.counters();
  const auto counter = [&](const char* name, const char* help, uint64_t value) {
    add_value(families, MetricType::Counter, name, help, static_cast<double>(value));
  };
  const auto gauge = [&](const char* name, const char* help, double value) {
    add_value(families, MetricType::Gauge, name, help, value);
  };
  counter("pocketfleet_tokens_read_total", "Prompt tokens that were computed", counters.tokens_read);
  counter("pocketfleet_tokens_reused_total", "Prompt tokens taken from a checkpoint or a shared prefix", counters.tokens_reused);
  counter("pocketfleet_tokens_written_total", "Tokens written", counters.tokens_written);
  counter("pocketfleet_tokens_drafted_total", "Tokens guessed ahead of streams", counters.tokens_drafted);
  counter("pocketfleet_tokens_draft_accepted_total", "Tokens guessed right", counters.tokens_draft_accepted);
  counter("pocketfleet_batches_total", "Calls of the model", counters.batches);
  counter("pocketfleet_batch_tokens_total", "Tokens in those calls", counters.batch_tokens);
  counter("pocketfleet_cancelled_total", "Requests whose caller had gone before the engine was done", counters.cancelled);
  counter("pocketfleet_expired_total", "Requests whose deadline had passed", counters.expired);
  counter("pocketfleet_rejected_total", "Requests refused because the queue was full", counters.rejected);
  counter("pocketfleet_checkpoints_made_total", "Checkpoints made", counters.checkpoints_made);
  counter("pocketfleet_checkpoints_used_total", "Requests that went on from a checkpoint", counters.checkpoints_used);
  counter("pocketfleet_checkpoints_evicted_total", "Checkpoints given up for others", counters.checkpoints_evicted);
  gauge("pocketfleet_checkpoints", "Checkpoints held", static_cast<double>(counters.checkpoints));
  gauge("pocketfleet_checkpoint_bytes", "Bytes of checkpoints held", static_cast<double>(counters.checkpoint_bytes));
  counter("pocketfleet_checkpoint_files_written_total", "Checkpoints written to the disk", counters.shelf.written);
  counter("pocketfleet_checkpoint_files_restored_total", "Checkpoints read back from the disk", counters.shelf.restored);
  counter("pocketfleet_checkpoint_files_refused_total", "Checkpoint files that were damaged or foreign, and were deleted",
          counters.shelf.refused);
  counter("pocketfleet_checkpoint_files_evicted_total", "Checkpoint files deleted to make room", counters.shelf.evicted);
  counter("pocketfleet_checkpoint_files_failed_total", "Checkpoints that could not be written to the disk",
          counters.shelf.failed);
  gauge("pocketfleet_checkpoint_files", "Checkpoints on the disk", static_cast<double>(counters.shelf.files));
  gauge("pocketfleet_checkpoint_file_bytes", "Bytes of checkpoints on the disk", static_cast<double>(counters.shelf.bytes));
  if (status.state == EngineState::kReady) add_kernels(families, engine.model().kernels);
  gauge("pocketfleet_running", "Requests being read or written", status.running);
  gauge("pocketfleet_queued", "Requests that wait", status.queued);
  gauge("pocketfleet_queued_tokens", "Prompt tokens that are not read yet", static_cast<double>(status.queued_tokens));
  gauge("pocketfleet_read_tokens_per_second", "Recent speed of reading", counters.read_tokens_per_s);
  gauge("pocketfleet_write_tokens_per_second", "Recent speed of one stream", counters.write_tokens_per_s);
  gauge("pocketfleet_ready", "1 when the model is loaded and answers", status.state == EngineState::kReady ? 1 : 0);
  gauge("pocketfleet_load_progress", "How much of the model is loaded, 0 to 1", status.progress);
}

}  // namespace

struct Metrics::Impl {
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  prometheus::Registry registry;
  Counters& requests = prometheus::BuildCounter()
                           .Name("pocketfleet_requests_total")
                           .Help("Requests answered, by route and status")
                           .Register(registry);
  Counters& gone = prometheus::BuildCounter()
                       .Name("pocketfleet_gone_callers_total")
                       .Help("Requests whose caller closed the connection before the answer ended")
                       .Register(registry);
  Histograms& total = prometheus::BuildHistogram()
                          .Name("pocketfleet_request_seconds")
                          .Help("From the end of the header to the end of the answer")
                          .Register(registry);
  Histograms& predicted_wait = prometheus::BuildHistogram()
                                   .Name("pocketfleet_predicted_wait_seconds")
                                   .Help("What the wait was expected to be when the request came")
                                   .Register(registry);
  Histograms& wait = prometheus::BuildHistogram()
                         .Name("pocketfleet_wait_seconds")
                         .Help("Until the first token of the prompt was read")
                         .Register(registry);
  Histograms& read = prometheus::BuildHistogram()
                         .Name("pocketfleet_read_seconds")
                         .Help("From then to the first token of the answer")
                         .Register(registry);
  Histograms& write =
      prometheus::BuildHistogram().Name("pocketfleet_write_seconds").Help("From the first token to the last").Register(registry);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::observe(const RequestRecord& record) {
  const prometheus::Labels route = {{"route", record.route}};
  impl_->requests.Add({{"route", record.route}, {"status", std::to_string(record.status)}}).Increment();
  impl_->total.Add(route, kSeconds).Observe(seconds(record.total_ms));
  if (record.status == 499) impl_->gone.Add(route).Increment();
  if (!record.usage) return;
  impl_->predicted_wait.Add(route, kSeconds).Observe(seconds(record.usage->predicted_wait_ms));
  impl_->wait.Add(route, kSeconds).Observe(seconds(record.usage->wait_ms));
  impl_->read.Add(route, kSeconds).Observe(seconds(record.usage->read_ms));
  impl_->write.Add(route, kSeconds).Observe(seconds(record.usage->write_ms));
}

std::string Metrics::render(const Engine& engine) const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  add_engine(families, engine);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace pocketfleet
