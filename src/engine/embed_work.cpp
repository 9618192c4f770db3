#include "engine/embed_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace pocketfleet {

namespace {

constexpr size_t kMostAtOnce = 64;

}  // namespace

struct EmbedWork::Job {
  EmbedRequest request;
  std::shared_ptr<EmbedSink> sink;
  std::vector<size_t> order;  // short ones first, so that neighbours share batches well
  size_t next = 0;            // into order
  Embedder::Piecewise piece;  // of the input at `next`, while it is read in pieces
  Usage usage;
  int64_t submitted_ms = 0;
  int64_t started_ms = 0;
};

EmbedWork::EmbedWork(Embedder& embedder, const Clock& clock, size_t queue_limit)
    : embedder_(embedder), clock_(clock), queue_limit_(queue_limit) {}

EmbedWork::~EmbedWork() = default;

Result<void> EmbedWork::submit(EmbedRequest request, std::shared_ptr<EmbedSink> sink) {
  if (request.inputs.empty()) return fail(ErrorCode::kInvalidArgument, "there is no input");
  for (size_t index = 0; index < request.inputs.size(); ++index) {
    const size_t tokens = request.inputs[index].size();
    const std::string param = fmt::format("input[{}]", index);
    if (tokens == 0) return fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" has no tokens", param), param);
    if (tokens > embedder_.context_tokens()) {
      return fail(ErrorCode::kContextLengthExceeded,
                  fmt::format("\"{}\" has {} tokens; this model's context holds {}", param, tokens, embedder_.context_tokens()),
                  param);
    }
  }
  auto job = std::make_shared<Job>();
  job->order.resize(request.inputs.size());
  std::iota(job->order.begin(), job->order.end(), size_t{0});
  std::stable_sort(job->order.begin(), job->order.end(),
                   [&](size_t a, size_t b) { return request.inputs[a].size() < request.inputs[b].size(); });
  job->request = std::move(request);
  job->sink = std::move(sink);
  job->submitted_ms = clock_.now_ms();
  const std::lock_guard lock(mutex_);
  if (jobs_.size() >= queue_limit_) {
    return fail(
        Error{ErrorCode::kQueueFull,
              fmt::format("{} requests for embeddings are waiting, which is all the queue holds; try again", jobs_.size()),
              {},
              1});
  }
  jobs_.push_back(std::move(job));
  return {};
}

bool EmbedWork::idle() const {
  return waiting() == 0;
}

size_t EmbedWork::waiting() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size();
}

std::shared_ptr<EmbedWork::Job> EmbedWork::front() {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() ? nullptr : jobs_.front();
}

void EmbedWork::end(const std::shared_ptr<Job>& job, Result<Usage> done) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(jobs_, job);
  }
  job->sink->on_done(std::move(done));
}

void EmbedWork::turn(const std::atomic<bool>& stopping) {
  const std::shared_ptr<Job> job = front();
  if (!job) return;
  const auto gone = [&] {
    const int64_t deadline_ms = job->request.deadline_ms;
    return job->request.cancel.cancelled() || (deadline_ms > 0 && clock_.now_ms() >= deadline_ms);
  };
  const auto give_up = [&] {
    const bool by_caller = job->request.cancel.cancelled();
    end(job, fail(by_caller ? ErrorCode::kCancelled : ErrorCode::kDeadlineExceeded,
                  by_caller ? "the caller has gone" : "the deadline passed"));
  };
  if (gone()) {
    give_up();
    return;
  }
  if (job->started_ms == 0) {
    job->started_ms = clock_.now_ms();
    job->usage.wait_ms = job->started_ms - job->submitted_ms;
  }
  const std::function<bool()> give_up_reading = [&] { return stopping.load() || gone(); };
  std::vector<const Tokens*> inputs;
  for (size_t place = job->next; place < job->order.size() && inputs.size() < kMostAtOnce; ++place)
    inputs.push_back(&job->request.inputs[job->order[place]]);
  inputs.resize(embedder_.fits(inputs));
  Result<std::vector<std::vector<float>>> vectors;
  if (embedder_.is_long(*inputs.front())) {
    auto whole = embedder_.embed_piece(*inputs.front(), job->piece, give_up_reading);
    if (whole && !*whole) return;
    if (whole) {
      vectors->push_back(**std::move(whole));
    } else {
      vectors = fail(whole.error());
    }
    job->piece = {};
  } else {
    vectors = embedder_.embed(inputs, give_up_reading);
  }
  if (!vectors) {
    if (stopping) return;
    if (vectors.error().code == ErrorCode::kCancelled) {
      give_up();
    } else {
      end(job, fail(vectors.error()));
    }
    return;
  }
  for (size_t place = 0; place < inputs.size(); ++place) {
    job->usage.prompt_tokens += static_cast<int>(inputs[place]->size());
    job->sink->on_item(job->order[job->next + place], std::move((*vectors)[place]));
  }
  job->next += inputs.size();
  if (job->next < job->order.size()) return;
  job->usage.read_ms = clock_.now_ms() - job->started_ms;
  end(job, job->usage);
}

void EmbedWork::fail_all(const Error& error) {
  while (const std::shared_ptr<Job> job = front()) end(job, fail(error));
}

}  // namespace pocketfleet
