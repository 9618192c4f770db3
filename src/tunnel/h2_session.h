// HTTP/2 (RFC 9113, nghttp2) over one TLS connection, as the tunnel uses it: the relay is the HTTP/2 client, the agent the
// server. A Channel is one HTTP/2 stream; H2Stream makes it a net::Stream. Everything runs on the transport's executor. The
// window of a stream is given back as bytes are read and that of the connection as they arrive, so a slow reader stalls nobody
// else; only when all readers together leave too much unread the peer is slowed down as a whole. Silence is probed by PING; a
// peer that answers none is dead. Sessions end with an Error that everybody gets.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/signal.h"
#include "net/tls.h"

struct nghttp2_session;

namespace pocketfleet::tunnel {

namespace asio = boost::asio;

class H2Session;
using net::Signal;

// GOAWAY with this code, which no standard uses: the peer does not want us, and its text says why.
inline constexpr uint32_t kRefusedCode = 0x50460001;

using H2Headers = std::vector<std::pair<std::string, std::string>>;

struct H2Options {
  int64_t keep_alive_ms = 10'000;    // of silence until a PING is sent
  int64_t idle_timeout_ms = 30'000;  // of silence until the peer counts as gone
  int64_t write_stall_ms = 30'000;   // one write makes no progress for so long: likewise
  uint32_t stream_window_bytes = 1u << 20;
  uint32_t most_streams = 1'000;
  size_t most_unread_bytes = 64u << 20;  // of all streams; beyond that, and one window more, the peer may send nothing
};

struct H2Channel {
  explicit H2Channel(const asio::any_io_executor& executor) : readable(executor), writable(executor) {}

  int32_t id = 0;
  std::string method, path;  // of a request that came in
  H2Headers headers;         // of the request or of the response
  int status = 0;            // of the response; 0: none yet

  std::string in;  // received and not read yet; bounded by the window
  size_t in_read = 0;
  bool in_ended = false;
  std::string out;  // to be sent, from out_sent on
  size_t out_sent = 0;
  bool out_ended = false;
  bool out_deferred = false;    // nghttp2 waits for more to send
  bool out_end_sent = false;    // all of it has gone out
  bool abandoned = false;       // nobody reads any more; ends once everything is sent
  bool closed = false;          // no frame goes either way any more
  bool read_cancelled = false;  // by cancel_read()
  std::optional<Error> error;

  Signal readable;  // something of in, in_ended, status or error has changed
  Signal writable;

  std::optional<std::string_view> header(std::string_view name) const;
};

class H2Session : public std::enable_shared_from_this<H2Session> {
 public:
  enum class Role { kClient, kServer };
  // Called for each request that comes in, servers only; before its body.
  using OnRequest = std::function<void(std::shared_ptr<H2Channel>)>;

  static std::shared_ptr<H2Session> start(std::unique_ptr<net::TlsStream> transport, Role role, H2Options options,
                                          OnRequest on_request);
  ~H2Session();
  H2Session(const H2Session&) = delete;
  H2Session& operator=(const H2Session&) = delete;

  // Clients. `ends`: nothing is sent after the header.
  Result<std::shared_ptr<H2Channel>> request(const std::string& method, const std::string& path, const H2Headers& headers,
                                             bool ends);
  // Servers. With a body the answer is complete, without one the channel stays open both ways.
  Result<void> respond(const std::shared_ptr<H2Channel>& channel, const H2Headers& headers, std::optional<std::string> body);

  // Until the whole answer (client) or request body (server) is there. kProtocol past most_bytes.
  asio::awaitable<Result<std::string>> read_all(std::shared_ptr<H2Channel> channel, size_t most_bytes, int64_t timeout_ms);
  // As net::Stream has it.
  asio::awaitable<Result<size_t>> read_some(H2Channel& channel, char* data, size_t size, int64_t timeout_ms);
  asio::awaitable<Result<void>> write(H2Channel& channel, std::string_view bytes, int64_t stall_ms);
  void end_writing(H2Channel& channel);
  void reset(H2Channel& channel);
  // Nobody reads or writes any more: what was written before end_writing() still goes out, without it the channel is reset.
  void abandon(H2Channel& channel);

  // Sends a PING; false when nothing at all was heard in time. One at a time.
  asio::awaitable<bool> probe(int64_t timeout_ms);
  // GOAWAY: the peer learns `code` and `reason`. With `ends`, the session ends once that is sent.
  void go_away(uint32_t code, const std::string& reason, bool ends);
  // At once.
  void end(Error error);
  asio::awaitable<Error> wait_closed();

  const std::optional<Error>& error() const { return error_; }
  bool peer_goes_away() const { return peer_goes_away_; }
  size_t open_channels() const { return channels_.size(); }
  net::TlsStream& transport() { return *transport_; }

 private:
  struct Callbacks;
  H2Session(std::unique_ptr<net::TlsStream> transport, Role role, H2Options options, OnRequest on_request);
  Result<void> prepare();
  asio::awaitable<void> read_frames();
  asio::awaitable<void> write_frames();
  asio::awaitable<void> keep_alive();
  void fail_channel(H2Channel& channel, const Error& error);
  // Gives back what is owed of the connection's window, unless too much is unread.
  void grant_connection();
  void forget_unread(H2Channel& channel);
  std::shared_ptr<H2Channel> find(int32_t id) const;

  std::unique_ptr<net::TlsStream> transport_;
  Role role_;
  H2Options options_;
  OnRequest on_request_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<int32_t, std::shared_ptr<H2Channel>> channels_;
  Signal to_write_;
  Signal ended_;
  Signal heard_;
  asio::steady_timer tick_;
  size_t unread_bytes_ = 0;  // by all readers together
  size_t owed_bytes_ = 0;    // of the connection's window, to be given back
  int64_t heard_ms_ = 0;
  bool ping_out_ = false;
  bool probing_ = false;
  bool peer_goes_away_ = false;
  bool ends_when_sent_ = false;
  bool transport_open_ = true;
  std::optional<Error> error_;
};

// One channel as a stream. Destroyed after shutdown(), what was written still goes out; before it, the channel is reset.
class H2Stream final : public net::Stream {
 public:
  H2Stream(std::shared_ptr<H2Session> session, std::shared_ptr<H2Channel> channel);
  ~H2Stream() override;
  asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) override;
  asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) override;
  asio::awaitable<void> shutdown(int64_t timeout_ms) override;
  void cancel_read() override;
  void close() override;
  const std::string& peer() const override;
  asio::any_io_executor executor() const override;

 private:
  std::shared_ptr<H2Session> session_;
  std::shared_ptr<H2Channel> channel_;
};

}  // namespace pocketfleet::tunnel
