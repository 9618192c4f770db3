// The streams of a QUIC connection: what ngtcp2 says of them, and what their readers and writers want.
#include <utility>

#include "tunnel/quic_connection.h"

namespace pocketfleet::tunnel {

namespace {

using Stream = QuicStreamState;

// What all readers of a connection may leave unread before the peer is slowed down as a whole.
constexpr size_t kMostUnread = 64u << 20;
constexpr size_t kGrantStep = 32u << 10;

bool is_user_stream(int64_t id) {
  return (id & 3) == 1;
}

}  // namespace

int QuicConnection::on_stream_open(ngtcp2_conn*, int64_t id, void* user) {
  auto& self = *static_cast<QuicConnection*>(user);
  IncomingStream arrival;
  arrival.kind = self.arriving_;
  arrival.stream = make_quic_stream(self.add_stream(id));
  self.arrivals_.push_back(std::move(arrival));
  self.changed_.ring();
  return 0;
}

int QuicConnection::on_stream_data(ngtcp2_conn*, uint32_t flags, int64_t id, uint64_t, const uint8_t* data, size_t size,
                                   void* user, void*) {
  auto& self = *static_cast<QuicConnection*>(user);
  Stream* const stream = self.streams_.find(id);
  self.owed_ += size;
  if (stream != nullptr) {
    if (stream->held && size > 0) {
      stream->in.append(data, size);
      self.unread_ += size;
    }
    if ((flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0) stream->in_ended = true;
    stream->readable.raise();
  }
  self.grant_connection();
  return 0;
}

int QuicConnection::on_acked(ngtcp2_conn*, int64_t id, uint64_t offset, uint64_t size, void* user, void*) {
  Stream* const stream = static_cast<QuicConnection*>(user)->streams_.find(id);
  if (stream == nullptr) return 0;
  stream->out.acked(offset + size);
  // A writer that waits is woken for more than a packet's worth of room.
  if (stream->out.held() <= kQuicSendBuffer / 4 * 3) stream->writable.raise();
  return 0;
}

int QuicConnection::on_stream_close(ngtcp2_conn*, uint32_t, int64_t id, uint64_t, void* user, void*) {
  auto& self = *static_cast<QuicConnection*>(user);
  Stream* const stream = self.streams_.find(id);
  if (stream == nullptr) return 0;
  stream->open = false;
  stream->out_dead = true;
  stream->out.clear();
  if (!stream->in_ended) stream->in_reset = true;
  stream->wake();
  if (is_user_stream(id)) --self.user_streams_;
  if (!stream->held) self.forget(id);
  return 0;
}

int QuicConnection::on_stream_reset(ngtcp2_conn*, int64_t id, uint64_t, uint64_t, void* user, void*) {
  Stream* const stream = static_cast<QuicConnection*>(user)->streams_.find(id);
  if (stream == nullptr || stream->in_ended) return 0;
  stream->in_reset = true;
  stream->readable.raise();
  return 0;
}

int QuicConnection::on_stream_window(ngtcp2_conn*, int64_t id, uint64_t, void* user, void*) {
  auto& self = *static_cast<QuicConnection*>(user);
  if (Stream* const stream = self.streams_.find(id)) self.streams_.unblock(*stream);
  return 0;
}

asio::awaitable<Result<std::unique_ptr<net::Stream>>> QuicConnection::open_stream(int64_t timeout_ms) {
  const auto self = shared_from_this();
  const int64_t deadline = deadline_after(timeout_ms);
  for (;;) {
    if (self->error_) co_return fail(*self->error_);
    int64_t id = -1;
    const int rv = ngtcp2_conn_open_bidi_stream(self->conn_, &id, nullptr);
    if (rv == 0) co_return Result<std::unique_ptr<net::Stream>>(make_quic_stream(self->add_stream(id)));
    if (rv != NGTCP2_ERR_STREAM_ID_BLOCKED) {
      co_return fail(ErrorCode::kInternal, "QUIC opens no stream to " + self->facts_.peer + ": " + ngtcp2_strerror(rv));
    }
    if (time_left(deadline) == 0) {
      co_return fail(ErrorCode::kDeadlineExceeded, self->facts_.peer + " allows no more streams for now");
    }
    co_await self->changed_.wait(deadline);
  }
}

asio::awaitable<Result<IncomingStream>> QuicConnection::next_stream(int64_t timeout_ms) {
  const auto self = shared_from_this();
  const int64_t deadline = deadline_after(timeout_ms);
  for (;;) {
    if (self->error_) co_return fail(*self->error_);
    if (!self->arrivals_.empty()) {
      Result<IncomingStream> next(std::move(self->arrivals_.front()));
      self->arrivals_.pop_front();
      co_return next;
    }
    if (time_left(deadline) == 0) {
      co_return fail(ErrorCode::kDeadlineExceeded, self->facts_.peer + " has opened no stream in time");
    }
    co_await self->changed_.wait(deadline);
  }
}

std::shared_ptr<Stream> QuicConnection::add_stream(int64_t id) {
  auto stream = std::make_shared<Stream>(executor_, this, id, facts_.peer);
  streams_.add(stream);
  if (is_user_stream(id)) ++user_streams_;
  return stream;
}

// The relay may open another stream only once nothing of this one is held here any more.
void QuicConnection::forget(int64_t id) {
  streams_.erase(id);
  if (server_ || !is_user_stream(id)) return;
  ngtcp2_conn_extend_max_streams_bidi(conn_, 1);
  schedule_flush();
}

bool QuicConnection::grant_connection() {
  if (owed_ == 0 || unread_ > kMostUnread) return false;
  ngtcp2_conn_extend_max_offset(conn_, std::exchange(owed_, 0));
  return true;
}

void QuicConnection::on_written(Stream& stream) {
  streams_.make_ready(stream);
  schedule_flush();
}

void QuicConnection::on_read(Stream& stream, size_t bytes) {
  unread_ -= bytes;
  if (grant_connection()) schedule_flush();
  stream.unreported_bytes += bytes;
  if (!stream.open || stream.in_ended || stream.in_reset || stream.unreported_bytes < kGrantStep) return;
  ngtcp2_conn_extend_max_stream_offset(conn_, stream.id, std::exchange(stream.unreported_bytes, 0));
  schedule_flush();
}

void QuicConnection::on_let_go(Stream& stream) {
  unread_ -= stream.in.size();
  grant_connection();
  if (!stream.open) return forget(stream.id);
  if (!stream.in_ended && !stream.in_reset) ngtcp2_conn_shutdown_stream_read(conn_, stream.id, 0);
  if (!stream.out_ended && !stream.out_dead) {
    stream.out_dead = true;
    ngtcp2_conn_shutdown_stream_write(conn_, stream.id, 0);
  }
  schedule_flush();
}

}  // namespace pocketfleet::tunnel
