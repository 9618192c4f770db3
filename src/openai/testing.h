// For tests only: an Api over the scripted engine without sockets. Calls run on one io_context, several at once when asked; what
// the server would have sent is recorded. Not for several threads.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/fake_engine.h"
#include "openai/api.h"

namespace pocketfleet {

// An engine that answers everything with these pieces.
inline FakeScript script_of(std::vector<std::string> pieces) {
  FakeScript script;
  script.answer = [pieces = std::move(pieces)](const std::string&) { return pieces; };
  return script;
}

class RecordingWriter final : public net::ResponseWriter {
 public:
  boost::asio::awaitable<Result<void>> send(net::HttpResponse response) override {
    ++answers;
    status = response.status;
    headers = std::move(response.headers);
    body = std::move(response.body);
    ended = true;
    co_return Result<void>{};
  }
  boost::asio::awaitable<Result<void>> begin(int the_status, net::Headers the_headers) override {
    ++answers;
    status = the_status;
    headers = std::move(the_headers);
    co_return Result<void>{};
  }
  boost::asio::awaitable<Result<void>> write(std::string_view bytes) override {
    if (on_write) on_write();
    if (broken) co_return fail(ErrorCode::kConnectionClosed, "the client has gone");
    body += bytes;
    co_return Result<void>{};
  }
  boost::asio::awaitable<Result<void>> end() override {
    ended = true;
    co_return Result<void>{};
  }
  bool started() const override { return answers > 0; }

  std::string header(std::string_view name) const { return std::string(headers.get(name).value_or("")); }
  Json json() const { return Json::parse(body, nullptr, false); }
  // The events of a stream without its [DONE]; comment lines are skipped.
  std::vector<Json> events() const {
    std::vector<Json> out;
    for (size_t begin = 0; begin < body.size();) {
      const size_t end = body.find("\n\n", begin);
      EXPECT_NE(end, std::string::npos) << "an event without its end";
      if (end == std::string::npos) break;
      std::string line = body.substr(begin, end - begin);
      // A named event says its name in its data too.
      if (line.starts_with("event: ")) line = line.substr(line.find('\n') + 1);
      if (line.starts_with("data: ") && line != "data: [DONE]") out.push_back(Json::parse(line.substr(6)));
      begin = end + 2;
    }
    return out;
  }
  bool done() const { return body.ends_with("data: [DONE]\n\n"); }

  int answers = 0;  // must become 1
  int status = 0;
  net::Headers headers;
  std::string body;
  bool ended = false;
  bool broken = false;  // writes fail from now on
  std::function<void()> on_write;
};

struct RecordedCall {
  net::HttpRequest request;
  RecordingWriter writer;
};

class ApiHarness {
 public:
  explicit ApiHarness(FakeScript script = {}, ApiOptions options = quiet())
      : engine(std::move(script)), api_(engine, profiles_, named(std::move(options)), clock) {}

  // Without thinking, which the scripted engine would otherwise take every text for.
  static ApiOptions quiet() {
    ApiOptions options;
    options.thinking = false;
    return options;
  }

  // Begins with run(). Calls begin in the order of start(), and what is posted after them comes when each waits for the engine.
  std::unique_ptr<RecordedCall> start(std::string method, std::string path, std::string body, net::Headers headers = {}) {
    auto call = std::make_unique<RecordedCall>();
    call->request.method = std::move(method);
    call->request.target = path;
    call->request.path = std::move(path);
    call->request.body = std::move(body);
    call->request.headers = std::move(headers);
    boost::asio::co_spawn(context, api_.handler()(call->request, call->writer),
                          [](const std::exception_ptr& thrown) { EXPECT_EQ(thrown, nullptr) << "a handler threw"; });
    return call;
  }
  std::unique_ptr<RecordedCall> start_chat(const Json& body) { return start("POST", "/v1/chat/completions", body.dump()); }
  void run() {
    context.run();
    context.restart();
  }
  RecordingWriter call(std::string method, std::string path, std::string body = {}, net::Headers headers = {}) {
    auto made = start(std::move(method), std::move(path), std::move(body), std::move(headers));
    run();
    EXPECT_EQ(made->writer.answers, 1);
    EXPECT_TRUE(made->writer.ended);
    return std::move(made->writer);
  }
  RecordingWriter post(std::string path, const Json& body, net::Headers headers = {}) {
    return call("POST", std::move(path), body.dump(), std::move(headers));
  }
  RecordingWriter chat(Json body, net::Headers headers = {}) {
    if (!body.contains("messages")) body["messages"] = hello();
    return post("/v1/chat/completions", body, std::move(headers));
  }

  static Json hello() { return Json::array({{{"role", "user"}, {"content", "hi"}}}); }

  FakeClock clock;
  FakeEngine engine;
  boost::asio::io_context context;

 private:
  static ApiOptions named(ApiOptions options) {
    options.model_name = "fake";
    options.model_aliases = {"other-name"};
    return options;
  }

  ProfileSet profiles_;
  Api api_;
};

}  // namespace pocketfleet
