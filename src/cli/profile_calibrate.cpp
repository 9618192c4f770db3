#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "cli/classify_run.h"
#include "cli/options.h"
#include "cli/server_setup.h"
#include "openai/calibration.h"
#include "openai/profile.h"

namespace pocketfleet::cli {

namespace {

struct Figures {
  size_t examples = 0;
  CalibrationMethod method = CalibrationMethod::kTemperature;
  Calibration calibration;
  CalibrationScore before;
  CalibrationScore fitted;
  CalibrationScore held_out;
};

const char* method_name(CalibrationMethod method) {
  return method == CalibrationMethod::kPlatt ? "platt" : "temperature";
}

// The verdicts beside what is right.
Result<std::vector<CalibrationExample>> make_examples(const ProfileCalibrateOptions& options, const Profile& profile,
                                                      const std::vector<Record>& records, const std::vector<Item>& items) {
  const std::vector<std::string> labels = profile.label_texts();
  std::vector<CalibrationExample> examples;
  for (size_t index = 0; index < items.size(); ++index) {
    const Item& item = items[index];
    if (item.failed) continue;
    if (item.probabilities.size() != labels.size()) {
      return fail(ErrorCode::kInvalidArgument, "the server's profile \"" + profile.name + "\" has " +
                                                   std::to_string(item.probabilities.size()) + " labels and this file " +
                                                   std::to_string(labels.size()) + ": serve this file (--profile)");
    }
    CalibrationExample example;
    example.probabilities = item.probabilities;
    const std::string& expected = records[index].expected;
    if (!options.positive_values.empty()) {
      const auto& values = options.positive_values;
      example.is_positive = std::find(values.begin(), values.end(), expected) != values.end();
    } else {
      const auto place = static_cast<size_t>(std::find(labels.begin(), labels.end(), expected) - labels.begin());
      if (place == labels.size()) {
        return fail(ErrorCode::kInvalidArgument,
                    "line " + std::to_string(records[index].line) +
                        " expects an answer that is not one of the profile's labels; " +
                        "where the field says something else than labels, name its positive values with --positive-values");
      }
      example.gold = place;
      example.is_positive = std::find(profile.positive.begin(), profile.positive.end(), place) != profile.positive.end();
    }
    examples.push_back(std::move(example));
  }
  return examples;
}

Json calibration_json(const Calibration& calibration) {
  if (calibration.platt) return {{"platt", {{"slope", calibration.platt->slope}, {"offset", calibration.platt->offset}}}};
  return {{"temperature", calibration.temperature}};
}

Json score_json(const CalibrationScore& score) {
  return {{"expected_calibration_error", score.expected_calibration_error},
          {"negative_log_likelihood", score.negative_log_likelihood},
          {"brier", score.brier}};
}

void print_score(const char* name, const CalibrationScore& score) {
  std::printf("  %-28s %8.4f %10.4f %8.4f\n", name, score.expected_calibration_error, score.negative_log_likelihood, score.brier);
}

// The profile's own text with its calibration put in, keys in their order.
Result<void> write_profile(const std::string& from, const std::string& to, const Calibration& calibration) {
  PF_TRY(const std::string text, read_file(from, 4u << 20));
  auto value = nlohmann::ordered_json::parse(text, nullptr, false);
  value["calibration"] = nlohmann::ordered_json::parse(dump_json(calibration_json(calibration)));
  return write_file_atomic(to, value.dump(2) + "\n");
}

Result<Figures> calibrate(const ProfileCalibrateOptions& options) {
  PF_TRY(const Profile profile, load_profile(options.file));
  if (options.expect_field.empty())
    return fail(ErrorCode::kInvalidArgument, "name the field that holds the right answer with --expect-field");
  if (!options.positive_values.empty() && profile.positive.empty())
    return fail(ErrorCode::kInvalidArgument, "--positive-values needs a profile that names \"positive\" labels");
  PF_TRY(const std::string text, read_input(options.examples));
  auto records = parse_records(text, options.text_field, options.expect_field);
  if (!records) return fail(ErrorCode::kInvalidArgument, options.examples + ": " + records.error().message);

  JobOptions job;
  job.profile = profile.name;
  job.calibrate = false;
  const ServerAddress server{options.url, options.api_key, options.api_key_env};
  PF_TRY(const JobRun run, run_job(server, job, *records, options.quiet));
  PF_CHECK_OK(run.ended);
  if (run.job->failed() > 0) std::fprintf(stderr, "%zu left out; %s\n", run.job->failed(), run.job->first_failure().c_str());
  PF_TRY(const auto examples, make_examples(options, profile, *records, run.job->items()));

  Figures figures;
  figures.examples = examples.size();
  figures.method = options.method == "platt" || (options.method == "auto" && !options.positive_values.empty())
                       ? CalibrationMethod::kPlatt
                       : CalibrationMethod::kTemperature;
  PF_TRY(figures.calibration, fit_calibration(figures.method, examples, profile.positive));
  figures.before = score_calibration({}, examples, profile.positive);
  figures.fitted = score_calibration(figures.calibration, examples, profile.positive);
  PF_TRY(figures.held_out, cross_validated_score(figures.method, examples, profile.positive));
  if (!options.output.empty()) PF_CHECK_OK(write_profile(options.file, options.output, figures.calibration));
  return figures;
}

}  // namespace

int run_profile_calibrate(const ProfileCalibrateOptions& options) {
  const auto figures = calibrate(options);
  if (!figures) return fail_command("profile calibrate", figures.error());
  const Json found = calibration_json(figures->calibration);
  if (options.json) {
    const Json line = {{"file", options.file},
                       {"examples", figures->examples},
                       {"method", method_name(figures->method)},
                       {"calibration", found},
                       {"before", score_json(figures->before)},
                       {"after", score_json(figures->fitted)},
                       {"after_held_out", score_json(figures->held_out)},
                       {"output", options.output}};
    std::printf("%s\n", dump_json(line).c_str());
    return 0;
  }
  std::printf("%s on %zu examples\n\n", method_name(figures->method), figures->examples);
  std::printf("  %-28s %8s %10s %8s\n", "", "ECE", "log loss", "Brier");
  print_score("before", figures->before);
  print_score("after, on these examples", figures->fitted);
  print_score("after, on examples left out", figures->held_out);
  std::printf("\n\"calibration\": %s\n", dump_json(found).c_str());
  if (figures->held_out.negative_log_likelihood >= figures->before.negative_log_likelihood)
    std::printf("On examples left out it is no better than none: do not use it, or fit it on more examples.\n");
  if (options.output.empty()) {
    std::printf("Put that into the profile, or run again with --output FILE.\n");
  } else {
    std::printf("written to %s\n", options.output.c_str());
  }
  return 0;
}

}  // namespace pocketfleet::cli
