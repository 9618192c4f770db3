// Streams of a QUIC connection as far as QUIC itself does not matter: what has come and waits for its reader, what is kept until
// the peer has acknowledged it, and the net::Stream over both; and the items of the control exchange. The connection is behind
// QuicStreamHost; it moves the bytes, and says when it has ended. Both buffers of a stream are bounded: what comes by the window
// that the host grants, what goes by kQuicSendBuffer. On one executor. Errors as in net/stream.h.
#pragma once

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/signal.h"
#include "net/stream.h"

namespace pocketfleet::tunnel {

namespace asio = boost::asio;

inline constexpr size_t kQuicReceiveWindow = 1u << 20;
inline constexpr size_t kQuicSendBuffer = 512u << 10;  // written and not yet acknowledged

// Points in time on the system's clock, in ms. A negative timeout is never over, and so is what comes of it.
int64_t deadline_after(int64_t timeout_ms);
int64_t time_left(int64_t deadline);

// Wakes everybody who waits. It must outlive its waiters.
class Bell {
 public:
  explicit Bell(asio::any_io_executor executor) : executor_(std::move(executor)) {}
  void ring();
  // Returns at the next ring, or at the deadline.
  asio::awaitable<void> wait(int64_t deadline);

 private:
  asio::any_io_executor executor_;
  std::list<asio::steady_timer*> waiting_;
};

class ReceiveBuffer {
 public:
  size_t size() const { return bytes_.size() - read_; }
  void append(const uint8_t* data, size_t size);
  size_t take(char* data, size_t size);
  void clear();

 private:
  std::string bytes_;
  size_t read_ = 0;
};

// Bytes stay where they are until they are acknowledged: who sends them anew points there.
class SendBuffer {
 public:
  struct Piece {
    const char* data = nullptr;
    size_t size = 0;
  };
  static constexpr size_t kMostPieces = 8;

  size_t held() const { return static_cast<size_t>(end_ - acked_); }
  size_t unsent() const { return static_cast<size_t>(end_ - sent_); }
  void append(std::string_view bytes);
  // From the first byte that was not sent; returns the number of pieces, which may not be all.
  size_t pending(std::array<Piece, kMostPieces>& pieces) const;
  void sent(size_t bytes) { sent_ += bytes; }
  // All before this offset.
  void acked(uint64_t offset);
  void clear();

 private:
  struct Chunk {
    std::unique_ptr<char[]> data;
    size_t capacity = 0;
    size_t size = 0;
  };
  std::deque<Chunk> chunks_;
  uint64_t first_ = 0;  // offset of the first byte of the first chunk
  uint64_t acked_ = 0;
  uint64_t sent_ = 0;
  uint64_t end_ = 0;
};

struct QuicStreamState;

class QuicStreamHost {
 public:
  virtual void on_written(QuicStreamState& stream) = 0;
  virtual void on_read(QuicStreamState& stream, size_t bytes) = 0;
  // Nobody reads or writes any more. What was written before shutdown() still goes out, without that the stream is reset.
  virtual void on_let_go(QuicStreamState& stream) = 0;

 protected:
  ~QuicStreamHost() = default;
};

struct QuicStreamState {
  QuicStreamState(const asio::any_io_executor& the_executor, QuicStreamHost* the_host, int64_t the_id, std::string the_peer)
      : executor(the_executor),
        host(the_host),
        id(the_id),
        peer(std::move(the_peer)),
        readable(the_executor),
        writable(the_executor) {}

  // Something waits to be sent and may be sent.
  bool has_pending() const { return open && !out_dead && (out.unsent() > 0 || (out_ended && !out_end_sent)); }
  void wake() {
    readable.raise();
    writable.raise();
  }

  asio::any_io_executor executor;
  QuicStreamHost* host;  // null once the connection has ended
  int64_t id;
  std::string peer;

  ReceiveBuffer in;
  bool in_ended = false;  // the peer sends nothing more
  bool in_reset = false;  // the peer has broken off
  SendBuffer out;
  bool out_ended = false;
  bool out_end_sent = false;
  bool out_dead = false;  // the peer takes nothing more

  bool open = true;             // QUIC knows it
  bool held = true;             // somebody reads or writes it
  bool queued = false;          // in the host's line of those that have something to send
  bool blocked = false;         // waits for the peer's window
  size_t unreported_bytes = 0;  // read, and not yet granted anew
  bool reading = false;
  bool read_cancelled = false;
  std::optional<Error> error;  // of the connection

  net::Signal readable;
  net::Signal writable;
};

std::unique_ptr<net::Stream> make_quic_stream(std::shared_ptr<QuicStreamState> state);

// The streams of a connection, and whose turn it is to send. A stream is here until QUIC and its holder have both let it go.
class QuicStreamTable {
 public:
  void add(std::shared_ptr<QuicStreamState> stream) { streams_[stream->id] = std::move(stream); }
  QuicStreamState* find(int64_t id) const;
  void erase(int64_t id) { streams_.erase(id); }
  // It has something to send.
  void make_ready(const QuicStreamState& stream);
  // Each has its turn; null when none has anything to send that it may send.
  std::shared_ptr<QuicStreamState> next_ready();
  // The peer's window is full.
  void block(const std::shared_ptr<QuicStreamState>& stream);
  void unblock(QuicStreamState& stream);
  void unblock_all();
  // The connection is no more; those who wait learn it.
  void fail_all(const Error& error);

 private:
  std::unordered_map<int64_t, std::shared_ptr<QuicStreamState>> streams_;
  std::deque<std::shared_ptr<QuicStreamState>> ready_;
  std::vector<std::shared_ptr<QuicStreamState>> blocked_;
};

// Items of the control exchange: length in four bytes, the highest first, and the bytes.
std::string frame_item(std::string_view item);
// kProtocol for more than kMostItemBytes and for an item that is cut off.
asio::awaitable<Result<std::string>> read_item(net::Stream& stream, int64_t deadline);

}  // namespace pocketfleet::tunnel
