// Runs a labelling job against a server: address, key, requests, progress. What commands that label files share. Blocking; one
// thread. Errors say what to do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/classify_job.h"

namespace pocketfleet::cli {

struct ServerAddress {
  std::string url;
  std::string api_key;      // empty: what the environment says
  std::string api_key_env;  // name of the variable
};

struct JobRun {
  std::unique_ptr<Job> job;  // also what was labelled before it had to give up
  Result<void> ended;
  double seconds = 0;
};

// kInvalidArgument for an address that cannot be one; `records` must outlive the job. Progress goes to standard error.
Result<JobRun> run_job(const ServerAddress& server, JobOptions options, const std::vector<Record>& records, bool quiet);

}  // namespace pocketfleet::cli
