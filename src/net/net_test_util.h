// For tests only: an HTTP server on threads of its own, and a blocking client that sends exactly the bytes it is told to.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/http_server.h"

namespace pocketfleet::net {

// An io_context run by several threads until the object ends.
class TestLoop {
 public:
  explicit TestLoop(int threads = 2) : work_(context_.get_executor()) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { context_.run(); });
  }
  ~TestLoop() {
    work_.reset();
    context_.stop();
    for (auto& thread : threads_) thread.join();
  }
  asio::io_context& context() { return context_; }
  template <typename T>
  T wait(asio::awaitable<T> work) {
    return asio::co_spawn(context_, std::move(work), asio::use_future).get();
  }

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

class TestServer {
 public:
  explicit TestServer(HttpHandler handler, ServerOptions options = {},
                      std::function<std::string(int, std::string_view)> error_body = {})
      : server_(loop_.context().get_executor(), options, std::move(handler), std::move(error_body)) {
    const auto port = server_.listen_tcp("127.0.0.1", 0);
    EXPECT_TRUE(port.has_value()) << port.error().message;
    port_ = port.value_or(0);
  }
  ~TestServer() { loop_.wait(server_.drain(0)); }
  HttpServer& server() { return server_; }
  TestLoop& loop() { return loop_; }
  uint16_t port() const { return port_; }

 private:
  TestLoop loop_;
  HttpServer server_;
  uint16_t port_ = 0;
};

class RawClient {
 public:
  // A socket that can be connected later, when there may be no file descriptor left.
  static int open_socket() { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
  explicit RawClient(uint16_t port, int socket = open_socket()) : fd_(socket) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  explicit RawClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }
  // Everything until `end` is in it, the peer closes or five seconds have passed. Bytes after `end` are kept for the next call.
  std::string read_until(std::string_view end, int timeout_ms = 5'000) {
    for (;;) {
      const size_t at = end.empty() ? std::string::npos : held_.find(end);
      if (at != std::string::npos) {
        std::string out = held_.substr(0, at + end.size());
        held_.erase(0, at + end.size());
        return out;
      }
      pollfd waiting{fd_, POLLIN, 0};
      char buffer[65536];
      if (::poll(&waiting, 1, timeout_ms) <= 0) break;
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      closed_ = count <= 0;
      if (closed_) break;
      held_.append(buffer, static_cast<size_t>(count));
    }
    return std::exchange(held_, {});
  }
  std::string read_all(int timeout_ms = 5'000) { return read_until({}, timeout_ms); }
  // True once the peer has closed (and all bytes were read).
  bool closed() const { return closed_; }
  // One answer with a content-length; its head and body.
  std::string read_answer() {
    std::string head = read_until("\r\n\r\n");
    const size_t at = head.find("content-length: ");
    if (at == std::string::npos) return head;
    const size_t length = std::stoul(head.substr(at + 16));
    while (held_.size() < length) {
      const size_t before = held_.size();
      char buffer[65536];
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      held_.append(buffer, static_cast<size_t>(count));
      if (held_.size() == before) break;
    }
    head += held_.substr(0, length);
    held_.erase(0, std::min(length, held_.size()));
    return head;
  }

 private:
  int fd_;
  bool connected_ = false;
  bool closed_ = false;
  std::string held_;
};

// Something that one thread waits for and another brings about.
class Event {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool wait(int timeout_ms = 5'000) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Waits until a condition that nobody signals holds.
template <typename Condition>
bool eventually(Condition condition, int timeout_ms = 5'000) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline int status_of(std::string_view answer) {
  return answer.size() > 12 && answer.starts_with("HTTP/1.") ? std::atoi(std::string(answer.substr(9, 3)).c_str()) : 0;
}

inline asio::awaitable<void> wait_ms(int64_t ms) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::milliseconds(ms));
  co_await timer.async_wait(asio::use_awaitable);
}

// Waits in small steps, so that a handler ends soon after its client went.
inline asio::awaitable<bool> wait_until_gone(const HttpRequest& request, int64_t limit_ms = 5'000) {
  for (int64_t waited = 0; waited < limit_ms && !request.gone.cancelled(); waited += 5) co_await wait_ms(5);
  co_return request.gone.cancelled();
}

inline asio::awaitable<void> echo(HttpRequest& request, ResponseWriter& writer) {
  HttpResponse response;
  response.headers.add("content-type", "text/plain");
  response.body = request.method + " " + request.path + "?" + request.query + " " + request.body;
  co_await writer.send(std::move(response));
}

inline std::string get(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nhost: x\r\n\r\n";
}

}  // namespace pocketfleet::net
