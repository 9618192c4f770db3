// Labels records over HTTP: batches, several requests at a time, retries when the server is busy, and one by one where a batch
// holds an input that the server refuses. Knows no sockets: `post` sends one body. Runs on one strand; a Job belongs to it.
// Errors: what makes all further requests useless (a wrong key, an unknown profile, nobody there) ends the job.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/jsonl.h"
#include "net/http.h"

namespace pocketfleet::cli {

// How one body is sent to /v1/classify and answered.
using Post = std::function<boost::asio::awaitable<Result<net::HttpResponse>>(std::string body)>;

struct JobOptions {
  std::string profile;
  std::string model;
  bool calibrate = true;  // by what the profile says
  size_t batch = 32;
  size_t concurrency = 4;
  int tries = 8;                 // of one request, while the server is busy or does not answer
  int64_t first_pause_ms = 250;  // before the second try; doubles, with jitter, unless the server says when
  int64_t longest_pause_ms = 30'000;
};

struct Item {
  bool done = false;
  bool failed = false;
  std::string label;
  std::optional<bool> flagged;
  std::vector<double> probabilities;  // of all labels, where the answer had them
  std::string line;                   // for the output file, without its end
};

class Job {
 public:
  Job(JobOptions options, const std::vector<Record>& records, Post post);

  // Ends when every record is done, or with the error that made it give up. Call once.
  boost::asio::awaitable<Result<void>> run();

  const std::vector<Item>& items() const { return items_; }
  size_t done() const { return done_; }
  size_t failed() const { return failed_; }
  // Why the first record that failed did; empty when none has.
  const std::string& first_failure() const { return first_failure_; }
  const std::vector<double>& latencies_ms() const { return latencies_ms_; }
  uint64_t tokens_read() const { return tokens_read_; }
  uint64_t tokens_reused() const { return tokens_reused_; }
  size_t retries() const { return retries_; }
  // Called whenever more is done.
  std::function<void()> on_progress;

 private:
  boost::asio::awaitable<void> work();
  boost::asio::awaitable<void> send(size_t first, size_t count);
  // The answer of the last try; an error when nobody answered.
  boost::asio::awaitable<Result<net::HttpResponse>> try_until_answered(const std::string& body);
  boost::asio::awaitable<void> pause(int attempt, const net::HttpResponse* response);
  std::string body_of(size_t first, size_t count) const;
  Result<void> take_answer(const net::HttpResponse& response, size_t first, size_t count);
  void take_failure(size_t index, const Error& error);

  JobOptions options_;
  const std::vector<Record>& records_;
  Post post_;
  std::vector<Item> items_;
  std::vector<double> latencies_ms_;
  std::optional<Error> fatal_;
  std::string first_failure_;
  size_t next_ = 0;
  size_t done_ = 0;
  size_t failed_ = 0;
  size_t retries_ = 0;
  uint64_t tokens_read_ = 0;
  uint64_t tokens_reused_ = 0;
  uint64_t jitter_ = 0x9E3779B97F4A7C15u;
};

}  // namespace pocketfleet::cli
