#include "cli/classify_job.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

namespace pocketfleet::cli {

namespace asio = boost::asio;
using Steady = std::chrono::steady_clock;

namespace {

// The server is there but cannot take the work now.
bool busy(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// Every further request would be answered in the same way: no key, no such route, profile or model.
bool hopeless(int status, const Error& error) {
  return status == 401 || status == 403 || status == 404 || status == 405 || error.param == "profile" || error.param == "model";
}

uint64_t count_of(const Json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

Error error_of(const net::HttpResponse& response) {
  Error error{ErrorCode::kInvalidArgument, "the server answered " + std::to_string(response.status), {}, 0};
  JsonLimits limits;
  limits.max_depth = 16;
  if (const auto body = parse_json(response.body, limits); body && body->is_object()) {
    if (const auto found = body->find("error"); found != body->end() && found->is_object()) {
      if (const auto text = found->find("message"); text != found->end() && text->is_string()) {
        error.message += ": " + text->get<std::string>();
      }
      if (const auto param = found->find("param"); param != found->end() && param->is_string())
        error.param = param->get<std::string>();
    }
  }
  return error;
}

}  // namespace

Job::Job(JobOptions options, const std::vector<Record>& records, Post post)
    : options_(std::move(options)), records_(records), post_(std::move(post)), items_(records.size()) {
  jitter_ ^= static_cast<uint64_t>(Steady::now().time_since_epoch().count());
}

asio::awaitable<Result<void>> Job::run() {
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer all_ended(executor, asio::steady_timer::time_point::max());
  const size_t batches = (records_.size() + options_.batch - 1) / options_.batch;
  size_t running = std::min(options_.concurrency, batches);
  if (running == 0) co_return Result<void>{};
  for (size_t worker = std::min(options_.concurrency, batches); worker > 0; --worker) {
    asio::co_spawn(executor, work(), [&](std::exception_ptr thrown) {
      if (thrown && !fatal_) fatal_ = Error{ErrorCode::kInternal, "a request ended in an exception", {}, 0};
      if (--running == 0) all_ended.cancel();
    });
  }
  boost::system::error_code ignored;
  while (running > 0) co_await all_ended.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (fatal_) co_return fail(*fatal_);
  co_return Result<void>{};
}

asio::awaitable<void> Job::work() {
  while (!fatal_ && next_ < records_.size()) {
    const size_t first = next_;
    const size_t count = std::min(options_.batch, records_.size() - first);
    next_ += count;
    co_await send(first, count);
  }
}

asio::awaitable<void> Job::send(size_t first, size_t count) {
  const auto answer = co_await try_until_answered(body_of(first, count));
  if (!answer) {
    if (!fatal_) fatal_ = answer.error();
    co_return;
  }
  if (answer->status == 200) {
    if (const auto taken = take_answer(*answer, first, count); !taken && !fatal_) fatal_ = taken.error();
  } else if (const Error error = error_of(*answer); hopeless(answer->status, error)) {
    if (!fatal_) fatal_ = error;
  } else if (count == 1) {
    take_failure(first, error);
  } else {
    // One bad input makes the server refuse all of them: find it, and label the others.
    for (size_t index = first; index < first + count && !fatal_; ++index) co_await send(index, 1);
    co_return;
  }
  if (on_progress) on_progress();
}

asio::awaitable<Result<net::HttpResponse>> Job::try_until_answered(const std::string& body) {
  for (int attempt = 1;; ++attempt) {
    const auto begin = Steady::now();
    Result<net::HttpResponse> answer = co_await post_(body);
    const bool again = attempt < options_.tries && !fatal_;
    if (answer && !busy(answer->status)) {
      latencies_ms_.push_back(std::chrono::duration<double, std::milli>(Steady::now() - begin).count());
      co_return answer;
    }
    // Nobody there at the very first request is a wrong address rather than a busy server.
    if (!again || (!answer && latencies_ms_.empty() && attempt >= 2)) co_return answer;
    ++retries_;
    co_await pause(attempt, answer ? &*answer : nullptr);
  }
}

asio::awaitable<void> Job::pause(int attempt, const net::HttpResponse* response) {
  int64_t wait_ms = std::min(options_.longest_pause_ms, options_.first_pause_ms << std::min(attempt - 1, 16));
  if (response != nullptr) {
    if (const auto after = response->headers.get("retry-after")) {
      int64_t seconds = 0;
      const auto parsed = std::from_chars(after->data(), after->data() + after->size(), seconds);
      if (parsed.ec == std::errc() && seconds > 0) wait_ms = std::min(options_.longest_pause_ms, seconds * 1000);
    }
  }
  // Up to a quarter more, so that those who were refused together do not come back together.
  jitter_ = jitter_ * 6364136223846793005u + 1442695040888963407u;
  wait_ms += static_cast<int64_t>(jitter_ >> 33) % (wait_ms / 4 + 1);
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(wait_ms));
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

std::string Job::body_of(size_t first, size_t count) const {
  Json body = Json::object();
  if (!options_.model.empty()) body["model"] = options_.model;
  if (!options_.profile.empty()) body["profile"] = options_.profile;
  if (!options_.calibrate) body["calibration"] = false;
  Json& input = body["input"] = Json::array();
  for (size_t index = first; index < first + count; ++index) input.push_back(records_[index].text);
  return dump_json(body);
}

Result<void> Job::take_answer(const net::HttpResponse& response, size_t first, size_t count) {
  const auto wrong = [] {
    return fail(ErrorCode::kProtocol, "the server's answer is not that of /v1/classify; is this a pocketfleet server?");
  };
  JsonLimits limits;
  limits.max_bytes = 256u << 20;
  const auto body = parse_json(response.body, limits);
  if (!body || !body->is_object()) return wrong();
  const auto data = body->find("data");
  if (data == body->end() || !data->is_array() || data->size() != count) return wrong();
  for (size_t place = 0; place < count; ++place) {
    const Json& verdict = (*data)[place];
    const auto index = verdict.is_object() ? verdict.find("index") : verdict.end();
    if (!verdict.is_object() || index == verdict.end() || !index->is_number_unsigned() || index->get<size_t>() >= count)
      return wrong();
    const auto label = verdict.find("label");
    if (label == verdict.end() || !label->is_string()) return wrong();

    const size_t record = first + index->get<size_t>();
    Item& item = items_[record];
    if (item.done) return wrong();
    item.done = true;
    item.label = label->get<std::string>();
    if (const auto flagged = verdict.find("flagged"); flagged != verdict.end() && flagged->is_boolean())
      item.flagged = flagged->get<bool>();
    if (const auto probs = verdict.find("probs"); probs != verdict.end() && probs->is_array()) {
      for (const Json& value : *probs) item.probabilities.push_back(value.is_number() ? value.get<double>() : 0);
    }
    Json line = verdict;
    line["index"] = record;
    line["line"] = records_[record].line;
    item.line = dump_json(line);
    ++done_;
  }
  if (const auto usage = body->find("usage"); usage != body->end() && usage->is_object()) {
    const uint64_t prompt = count_of(*usage, "prompt_tokens");
    const auto details = usage->find("prompt_tokens_details");
    const uint64_t cached = details == usage->end() ? 0 : std::min(prompt, count_of(*details, "cached_tokens"));
    tokens_read_ += prompt - cached;
    tokens_reused_ += cached;
  }
  return {};
}

void Job::take_failure(size_t index, const Error& error) {
  Item& item = items_[index];
  item.done = true;
  item.failed = true;
  item.line = dump_json(
      {{"index", index}, {"line", records_[index].line}, {"error", {{"message", error.message}, {"param", error.param}}}});
  if (first_failure_.empty()) first_failure_ = "line " + std::to_string(records_[index].line) + ": " + error.message;
  ++done_;
  ++failed_;
}

}  // namespace pocketfleet::cli
