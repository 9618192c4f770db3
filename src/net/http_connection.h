// One connection of the HTTP server: reads requests, runs the handler, writes answers, watches for a client that goes. Internal
// to net/. Lives as long as its coroutine; everything but drain() and abort() runs on the stream's executor, and those two post
// to it. ServerCore is what the connections of one server share; it outlives them.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/http_parser.h"
#include "net/http_server.h"
#include "net/stream.h"

namespace pocketfleet::net {

class Connection;

class ServerCore {
 public:
  ServerOptions options;
  HttpHandler handler;
  std::function<std::string(int status, std::string_view message)> error_body;
  std::atomic<bool> draining{false};

  // False when the server is full, or the address has its share; `address` is empty where no limit counts.
  bool admit(const std::string& address);
  void release(const std::string& address);
  size_t connections() const { return count_.load(); }

  void enter(const std::shared_ptr<Connection>& connection);
  void leave(Connection* connection);
  std::vector<std::shared_ptr<Connection>> all() const;

 private:
  mutable std::mutex mutex_;
  std::atomic<size_t> count_{0};
  std::map<std::string, size_t> per_address_;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections_;
};

class Connection final : public ResponseWriter, public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerCore> core, std::unique_ptr<Stream> stream, std::string address);
  ~Connection() override;

  // Spawns the coroutine that serves until the connection ends. The core must have admitted the address.
  static void start(std::shared_ptr<ServerCore> core, std::unique_ptr<Stream> stream, std::string address);

  void drain();
  void abort();

  asio::awaitable<Result<void>> send(HttpResponse response) override;
  asio::awaitable<Result<void>> begin(int status, Headers headers) override;
  asio::awaitable<Result<void>> write(std::string_view bytes) override;
  asio::awaitable<Result<void>> end() override;
  bool started() const override { return state_ != State::kWaiting; }

 private:
  enum class State { kWaiting, kStreaming, kEnded };

  asio::awaitable<void> run();
  asio::awaitable<bool> serve_one();
  // Reads until the parser is done; false when the connection is over.
  asio::awaitable<bool> read_request(RequestParser& parser);
  asio::awaitable<void> handle(HttpRequest& request);
  asio::awaitable<void> refuse(int status, std::string_view message);
  asio::awaitable<void> linger();
  asio::awaitable<Result<void>> put(std::string_view bytes);
  asio::awaitable<void> stop_watching();
  asio::awaitable<void> watch();
  std::string head(int status, const Headers& headers, std::optional<size_t> length);

  std::shared_ptr<ServerCore> core_;
  std::unique_ptr<Stream> stream_;
  std::string address_;
  std::string input_;  // bytes that have come and are not parsed yet
  HttpRequest* request_ = nullptr;
  std::optional<asio::steady_timer> watch_ended_;
  uint64_t serial_ = 0;
  State state_ = State::kEnded;
  bool idle_ = false;
  bool handling_ = false;
  bool watching_ = false;
  bool closed_ = false;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
  bool head_only_ = false;
  bool bodiless_ = false;
  char small_[512];  // what an idle connection reads into, so that it owns no larger buffer
};

}  // namespace pocketfleet::net
