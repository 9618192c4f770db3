// `pocketfleet serve` as a process: what it prints, how it ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/ids.h"
#include "base/json.h"
#include "net/http_client.h"

namespace pocketfleet::cli {
namespace {

// The program as a child; its standard output and error are pipes.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return;
    arguments.insert(arguments.begin(), POCKETFLEET_BINARY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      // Nothing is left in the user's cache.
      ::setenv("XDG_CACHE_HOME", testing::TempDir().c_str(), 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    ::close(out_);
    ::close(err_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // "http://127.0.0.1:PORT" from the line that says where it listens; empty when it ends or 20 seconds pass before.
  std::string address() {
    std::string text;
    while (text.find('\n') == std::string::npos && read_some(out_, text)) {
    }
    const std::string mark = "listening on ";
    const size_t at = text.find(mark);
    return at == std::string::npos ? "" : text.substr(at + mark.size(), text.find('\n', at) - at - mark.size());
  }
  std::string errors() { return read_all(err_); }
  std::string output() { return read_all(out_); }
  void signal(int number) { ::kill(pid_, number); }
  // The exit code; 128 and the signal when one ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static bool read_some(int fd, std::string& into) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, 20'000) <= 0) return false;
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got <= 0) return false;
    into.append(buffer, static_cast<size_t>(got));
    return true;
  }
  static std::string read_all(int fd) {
    std::string text;
    while (read_some(fd, text)) {
    }
    return text;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

std::string temporary(const std::string& ending) {
  return (std::filesystem::temp_directory_path() / (make_id("pf-cli-") + ending)).string();
}

int status_of(const std::string& url, const std::string& path, net::Headers headers = {}) {
  net::BlockingHttpClient client;
  const auto response = client.request(net::ClientRequest("GET", url + path, std::move(headers)));
  return response ? response->status : -1;
}

TEST(ServeProcess, ItPrintsItsAddressServesAndEndsWithZeroOnASignal) {
  for (const int number : {SIGINT, SIGTERM}) {
    Child serve({"serve", "none", "--fake", "fast", "--port", "0"});
    const std::string url = serve.address();
    ASSERT_EQ(url.find("http://127.0.0.1:"), 0u) << url;
    EXPECT_EQ(status_of(url, "/health"), 200);
    serve.signal(number);
    EXPECT_EQ(serve.wait(), 0);
  }
}

TEST(ServeProcess, ARequestThatRunsWhenTheSignalComesIsAnswered) {
  Child serve(
      {"serve", "none", "--fake", "slow", "--port", "0", "--profile", POCKETFLEET_SOURCE_DIR "/models/scam-guard/profile.json"});
  const std::string url = serve.address();
  ASSERT_FALSE(url.empty());
  net::BlockingHttpClient client;
  bool first = true;
  std::string text;
  // The signal is sent when the answer has begun and the rest is still to be written.
  const auto streamed = client.stream(
      net::ClientRequest("POST", url + "/v1/chat/completions", {{"content-type", "application/json"}},
                         R"({"model":"none","stream":true,"messages":[{"role":"user","content":"Hi"}]})"),
      [&](int status, const net::Headers&) { return status == 200; },
      [&](std::string_view bytes) {
        if (first) serve.signal(SIGTERM);
        first = false;
        text += bytes;
        return true;
      });
  EXPECT_TRUE(streamed) << streamed.error().message;
  EXPECT_NE(text.find("[DONE]"), std::string::npos);
  EXPECT_EQ(serve.wait(), 0);
}

TEST(ServeProcess, AnAddressThatOthersCanReachNeedsAKeyFile) {
  Child refused({"serve", "none", "--fake", "fast", "--port", "0", "--host", "0.0.0.0"});
  const std::string errors = refused.errors();
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_NE(errors.find("pocketfleet key"), std::string::npos) << errors;
  EXPECT_NE(errors.find("--api-key-file"), std::string::npos) << errors;

  const std::string file = temporary(".keys");
  Child make({"key", file, "--name", "test", "--json"});
  const auto made = parse_json(make.output());
  EXPECT_EQ(make.wait(), 0);
  ASSERT_TRUE(made);
  Child serve({"serve", "none", "--fake", "fast", "--port", "0", "--host", "0.0.0.0", "--api-key-file", file});
  std::string url = serve.address();
  ASSERT_NE(url.find("0.0.0.0"), std::string::npos);
  url.replace(url.find("0.0.0.0"), 7, "127.0.0.1");
  EXPECT_EQ(status_of(url, "/v1/models"), 401);
  EXPECT_EQ(status_of(url, "/v1/models", {{"authorization", "Bearer " + (*made)["key"].get<std::string>()}}), 200);
  std::filesystem::remove(file);
}

TEST(ServeProcess, ADamagedModelIsAClearErrorAndExitCode2) {
  const std::string path = temporary(".gguf");
  const std::string whole =
      read_file(POCKETFLEET_SOURCE_DIR "/../shared/models/scam-guard/scam-guard-q8_0.gguf", 64u << 20).value_or("GGUF");
  for (const std::string& bytes :
       {std::string(), std::string("hello, I am not a model"), std::string("GGUF"), whole.substr(0, 5'000),
        whole.substr(0, whole.size() / 2), whole.substr(0, 8) + std::string(4'000, '\xFF')}) {
    std::ofstream(path, std::ios::binary) << bytes;
    Child serve({"serve", path, "--port", "0"});
    const std::string errors = serve.errors();
    EXPECT_EQ(serve.wait(), 2) << bytes.size() << " bytes: " << errors;
    EXPECT_NE(errors.find("pocketfleet serve: "), std::string::npos) << errors;
    EXPECT_NE(errors.find(path), std::string::npos) << errors;
  }
  std::filesystem::remove(path);
  Child serve({"serve", path, "--port", "0"});
  EXPECT_NE(serve.errors().find("No such file"), std::string::npos);
  EXPECT_EQ(serve.wait(), 2);
}

TEST(ServeProcess, AModelThatDoesNotFitIsRefusedWithTheNumbers) {
  const std::string model = POCKETFLEET_SOURCE_DIR "/../shared/models/scam-guard/scam-guard-q8_0.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << "the scam-guard model is not beside the project";
  Child serve({"serve", model, "--port", "0", "--quiet", "--checkpoint-ram", "1000000"});
  const std::string errors = serve.errors();
  EXPECT_EQ(serve.wait(), 2);
  EXPECT_NE(errors.find("GiB"), std::string::npos) << errors;
}

TEST(ServeProcess, AContextThatMemoryDecidesIsSaidAndServed) {
  Child serve({"serve", POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf", "--port", "0", "--ctx", "auto",
               "--slots", "1", "--checkpoint-disk", "0"});
  const std::string url = serve.address();
  ASSERT_FALSE(url.empty());
  serve.signal(SIGTERM);
  EXPECT_NE(serve.errors().find("event=context_chosen"), std::string::npos);
  EXPECT_EQ(serve.wait(), 0);
  // What would not fit in any case is refused as with a number.
  Child refused({"serve", POCKETFLEET_SOURCE_DIR "/models/scam-guard/scam-guard-q4_0.gguf", "--port", "0", "--quiet", "--ctx",
                 "auto", "--checkpoint-ram", "1000000"});
  EXPECT_NE(refused.errors().find("GiB"), std::string::npos);
  EXPECT_EQ(refused.wait(), 2);
}

TEST(ServeProcess, AUnixSocketIsServedWithoutAKeyAndRemovedAtTheEnd) {
  const std::string path = temporary(".sock");
  Child serve({"serve", "none", "--fake", "fast", "--unix-socket", path});
  ASSERT_EQ(serve.address(), "unix:" + path);
  EXPECT_EQ(status_of("unix:" + path + ":", "/health"), 200);
  serve.signal(SIGTERM);
  EXPECT_EQ(serve.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ServeProcess, WhatIsWrongOnTheCommandLineIsExitCode2) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"serve"},
                                             {"serve", "none", "--nonsense"},
                                             {"serve", "none", "--fake", "fast", "--port", "70000"},
                                             {"serve", "none", "--fake", "fast", "--profile", "/no/such/file"},
                                             {"serve", "none", "--fake", "fast", "--api-key-file", "/no/such/file"},
                                             {"serve", "none", "--fake", "fast", "--cors-origin", "nonsense"}}) {
    Child child(arguments);
    EXPECT_FALSE(child.errors().empty());
    EXPECT_EQ(child.wait(), 2);
  }
}

TEST(ClassifyProcess, AFileIsLabelledAndComparedWithWhatIsRight) {
  Child serve(
      {"serve", "none", "--fake", "fast", "--port", "0", "--profile", POCKETFLEET_SOURCE_DIR "/models/scam-guard/profile.json"});
  const std::string url = serve.address();
  const std::string input = temporary(".jsonl"), output = temporary(".out");
  {
    std::ofstream file(input);
    for (int index = 0; index < 100; ++index) {
      file << "{\"text\":\"A\xE2\x80\xA8" << index << "\",\"label\":\"" << (index < 10 ? "spam" : "ham") << "\"}\n";
    }
  }
  Child classify({"classify", "--url", url, "--profile", "scam-guard", "--batch", "7", "--expect-field", "label",
                  "--positive-values", "spam", "--json", "--output", output, input});
  const auto summary = parse_json(classify.output());
  EXPECT_EQ(classify.wait(), 0);
  ASSERT_TRUE(summary);
  // The scripted engine says "1" to everything.
  EXPECT_EQ((*summary)["confusion"], Json({{"caught", 0}, {"missed", 10}, {"false_alarms", 0}, {"right", 90}}));
  EXPECT_EQ((*summary)["verdicts"], 100);
  const std::string lines = read_file(output, 1 << 20).value_or("");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 100);
  std::filesystem::remove(input);
  std::filesystem::remove(output);
}

TEST(ModelInspect, SaysWhatAFileHoldsAndWhatServingItTakes) {
  const std::string file = std::string(POCKETFLEET_SOURCE_DIR) + "/models/scam-guard/scam-guard-q4_0.gguf";
  Child child({"model", "inspect", file, "--ctx", "512", "--slots", "1", "--json"});
  const auto said = parse_json(child.output());
  EXPECT_EQ(child.wait(), 0);
  ASSERT_TRUE(said);
  EXPECT_EQ((*said)["architecture"], "qwen35");
  EXPECT_EQ((*said)["layers"], 4);
  EXPECT_EQ((*said)["recurrent_layers"], 3);
  EXPECT_EQ((*said)["servable"], true);
  EXPECT_EQ((*said)["memory"]["context_tokens"], 512);
  EXPECT_GT((*said)["memory"]["total_bytes"], (*said)["memory"]["weight_bytes"]);
  Child people({"model", "inspect", file});
  const std::string text = people.output();
  EXPECT_EQ(people.wait(), 0);
  EXPECT_NE(text.find("qwen35 3M q4_0"), std::string::npos) << text;
  EXPECT_NE(text.find("tokens a request and 4 slots"), std::string::npos) << text;
}

TEST(ModelInspect, AFileThatIsNoModelEndsWithCode2AndASentence) {
  Child child({"model", "inspect", std::string(POCKETFLEET_SOURCE_DIR) + "/README.md"});
  EXPECT_NE(child.errors().find("not a GGUF file"), std::string::npos);
  EXPECT_EQ(child.wait(), 2);
}

}  // namespace
}  // namespace pocketfleet::cli
