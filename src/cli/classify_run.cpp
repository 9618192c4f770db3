#include "cli/classify_run.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>

#include "cli/progress.h"
#include "net/http_client.h"
#include "net/url.h"

namespace pocketfleet::cli {

namespace asio = boost::asio;

namespace {

Result<std::string> classify_url(const std::string& base) {
  PF_TRY(const net::Url url, net::parse_url(base));
  (void)url;
  std::string text = base;
  while (!text.empty() && text.back() == '/') text.pop_back();
  // Clients are often given the address with OpenAI's /v1.
  if (text.ends_with("/v1")) text.resize(text.size() - 3);
  return text + (base.starts_with("unix:") ? ":/v1/classify" : "/v1/classify");
}

std::string key_of(const ServerAddress& server) {
  if (!server.api_key.empty()) return server.api_key;
  const char* value = std::getenv(server.api_key_env.c_str());
  return value == nullptr ? std::string() : value;
}

}  // namespace

Result<JobRun> run_job(const ServerAddress& server, JobOptions options, const std::vector<Record>& records, bool quiet) {
  PF_TRY(const std::string url, classify_url(server.url));
  asio::io_context context(1);
  net::HttpClient client;
  net::Headers headers = {{"content-type", "application/json"}};
  if (const std::string key = key_of(server); !key.empty()) headers.add("authorization", "Bearer " + key);
  JobRun run;
  run.job =
      std::make_unique<Job>(std::move(options), records, [&](std::string body) -> asio::awaitable<Result<net::HttpResponse>> {
        net::ClientRequest request("POST", url, headers, std::move(body));
        co_return co_await client.request(std::move(request));
      });
  Job& job = *run.job;
  Progress progress(records.size(), quiet);
  job.on_progress = [&] { progress.show(job.done(), job.failed()); };
  const auto begin = std::chrono::steady_clock::now();
  asio::co_spawn(
      context,
      [&]() -> asio::awaitable<void> {
        run.ended = co_await job.run();
        client.close_idle();
      },
      [&](std::exception_ptr thrown) {
        if (thrown) run.ended = fail(ErrorCode::kInternal, "the run ended in an exception");
      });
  context.run();
  job.on_progress = nullptr;
  run.seconds = std::max(1e-6, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  progress.finish(job.done(), job.failed());
  return run;
}

}  // namespace pocketfleet::cli
