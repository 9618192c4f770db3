#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "cli/classify_run.h"
#include "cli/jsonl.h"
#include "cli/options.h"
#include "cli/tally.h"

namespace pocketfleet::cli {

namespace {

int say(const Error& error) {
  std::fprintf(stderr, "pocketfleet classify: %s\n", error.message.c_str());
  return 2;
}

struct Summary {
  double seconds = 0;
  std::map<std::string, size_t> labels;
  size_t flagged = 0;
  bool has_flags = false;
  bool compared = false;
  Confusion confusion;
};

// Whether an answer counts as flagged; empty where neither the profile nor the caller says.
std::optional<bool> flag_of(const Item& item, const std::vector<std::string>& positive_labels) {
  if (positive_labels.empty()) return item.flagged;
  return std::find(positive_labels.begin(), positive_labels.end(), item.label) != positive_labels.end();
}

Result<Summary> sum_up(const ClassifyOptions& options, const std::vector<Record>& records, const std::vector<Item>& items) {
  Summary summary;
  summary.compared = !options.expect_field.empty();
  for (size_t index = 0; index < items.size(); ++index) {
    if (items[index].failed || !items[index].done) continue;
    ++summary.labels[items[index].label];
    const auto flagged = flag_of(items[index], options.positive_labels);
    if (flagged) {
      summary.has_flags = true;
      summary.flagged += *flagged ? 1 : 0;
    }
    if (!summary.compared) continue;
    if (!flagged) {
      return fail(ErrorCode::kInvalidArgument,
                  "the profile names no positive labels, so nothing is flagged: say which labels are with --positive-labels");
    }
    const auto& values = options.positive_values;
    summary.confusion.add(std::find(values.begin(), values.end(), records[index].expected) != values.end(), *flagged);
  }
  return summary;
}

Json summary_json(const Job& job, const Summary& summary) {
  const size_t good = job.done() - job.failed();
  Json out = {{"inputs", job.items().size()},
              {"verdicts", good},
              {"failed", job.failed()},
              {"retries", job.retries()},
              {"seconds", summary.seconds},
              {"verdicts_per_s", static_cast<double>(good) / summary.seconds},
              {"request_ms", {{"p50", percentile(job.latencies_ms(), 0.5)}, {"p95", percentile(job.latencies_ms(), 0.95)}}},
              {"tokens_read", job.tokens_read()},
              {"tokens_reused", job.tokens_reused()},
              {"labels", summary.labels}};
  if (summary.has_flags) out["flagged"] = summary.flagged;
  if (job.failed() > 0) out["first_failure"] = job.first_failure();
  if (summary.compared) {
    const Confusion& c = summary.confusion;
    out["confusion"] = {{"caught", c.caught}, {"missed", c.missed}, {"false_alarms", c.false_alarms}, {"right", c.right}};
    out["accuracy"] = c.accuracy();
    out["precision"] = c.precision();
    out["recall"] = c.recall();
    out["f1"] = c.f1();
  }
  return out;
}

void print_summary(const ClassifyOptions& options, const Job& job, const Summary& summary) {
  const size_t good = job.done() - job.failed();
  std::printf("%zu verdicts in %.1f s: %.1f/s; a request of up to %d took %.1f ms (median), %.1f ms (p95)\n", good,
              summary.seconds, static_cast<double>(good) / summary.seconds, options.batch, percentile(job.latencies_ms(), 0.5),
              percentile(job.latencies_ms(), 0.95));
  std::printf("tokens: %llu read, %llu reused\n", static_cast<unsigned long long>(job.tokens_read()),
              static_cast<unsigned long long>(job.tokens_reused()));
  std::string labels;
  for (const auto& [label, count] : summary.labels) labels += (labels.empty() ? "" : ", ") + label + ": " + std::to_string(count);
  std::printf("labels: %s\n", labels.c_str());
  if (summary.has_flags) std::printf("flagged: %zu\n", summary.flagged);
  if (job.failed() > 0) std::printf("failed: %zu; the first: %s\n", job.failed(), job.first_failure().c_str());
  if (!summary.compared) return;
  const Confusion& c = summary.confusion;
  std::printf("\n                 flagged  not flagged\n");
  std::printf("  positive    %10zu %12zu\n", c.caught, c.missed);
  std::printf("  negative    %10zu %12zu\n\n", c.false_alarms, c.right);
  std::printf("%zu caught, %zu missed, %zu false alarms, %zu right\n", c.caught, c.missed, c.false_alarms, c.right);
  std::printf("accuracy %.3f  precision %.3f  recall %.3f  F1 %.3f\n", c.accuracy(), c.precision(), c.recall(), c.f1());
}

Result<void> check(const ClassifyOptions& options) {
  if (options.expect_field.empty() == options.positive_values.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, options.expect_field.empty()
                                               ? "--positive-values needs --expect-field, the field that holds the right answers"
                                               : "--expect-field needs --positive-values, the answers that ought to be flagged");
}

}  // namespace

int run_classify(const ClassifyOptions& options) {
  if (const auto checked = check(options); !checked) return say(checked.error());
  const auto text = read_input(options.file);
  if (!text) return say(text.error());
  const auto records = parse_records(*text, options.text_field, options.expect_field);
  if (!records) return say({ErrorCode::kInvalidArgument, options.file + ": " + records.error().message, {}, 0});

  JobOptions job_options;
  job_options.profile = options.profile;
  job_options.model = options.model;
  job_options.batch = static_cast<size_t>(options.batch);
  job_options.concurrency = static_cast<size_t>(options.concurrency);
  const ServerAddress server{options.url, options.api_key, options.api_key_env};
  const auto run = run_job(server, job_options, *records, options.quiet);
  if (!run) return say(run.error());
  const Job& job = *run->job;

  // What was labelled is kept, also when the run had to end early.
  if (!options.output.empty()) {
    std::string lines;
    for (const Item& item : job.items()) {
      if (item.done) lines += item.line + "\n";
    }
    if (const auto written = write_file_atomic(options.output, lines); !written) return say(written.error());
  }
  if (!run->ended) {
    std::fprintf(stderr, "pocketfleet classify: %s\n%zu of %zu were labelled\n", run->ended.error().message.c_str(),
                 job.done() - job.failed(), records->size());
    return 2;
  }
  auto summary = sum_up(options, *records, job.items());
  if (!summary) return say(summary.error());
  summary->seconds = run->seconds;
  if (options.json) {
    std::printf("%s\n", dump_json(summary_json(job, *summary)).c_str());
  } else {
    print_summary(options, job, *summary);
  }
  return job.failed() == 0 ? 0 : 1;
}

}  // namespace pocketfleet::cli
