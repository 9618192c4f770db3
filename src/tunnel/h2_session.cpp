#include "tunnel/h2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

#include "base/clock.h"

namespace pocketfleet::tunnel {

namespace {

constexpr size_t kSendBufferBytes = 64u << 10;  // of one channel
constexpr size_t kBatchBytes = 64u << 10;       // frames that go out in one write
constexpr size_t kIdleReadBytes = 512;          // what a session that hears nothing holds
constexpr size_t kBulkReadBytes = 32u << 10;
constexpr size_t kMostHeaderBytes = 8u << 10;  // of one request or response
constexpr int32_t kConnectionWindowBytes = 16 << 20;
constexpr int64_t kGoAwayMs = 1'000;

nghttp2_nv name_value(std::string_view name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())), reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())),
          name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

void add_all(std::vector<nghttp2_nv>& out, const H2Headers& headers) {
  for (const auto& [name, value] : headers) out.push_back(name_value(name, value));
}

// nghttp2 asks for the bytes of a channel when the windows have room.
ssize_t give_bytes(nghttp2_session*, int32_t, uint8_t* buffer, size_t size, uint32_t* flags, nghttp2_data_source* source, void*) {
  auto& channel = *static_cast<H2Channel*>(source->ptr);
  const size_t count = std::min(size, channel.out.size() - channel.out_sent);
  if (count == 0 && !channel.out_ended) {
    channel.out_deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  std::copy_n(channel.out.data() + channel.out_sent, count, buffer);
  channel.out_sent += count;
  if (channel.out_sent == channel.out.size()) {
    channel.out.clear();
    channel.out_sent = 0;
    if (channel.out_ended) *flags |= NGHTTP2_DATA_FLAG_EOF;
  }
  channel.writable.raise();
  return static_cast<ssize_t>(count);
}

nghttp2_data_provider provider(H2Channel& channel) {
  nghttp2_data_provider out{};
  out.source.ptr = &channel;
  out.read_callback = give_bytes;
  return out;
}

}  // namespace

std::optional<std::string_view> H2Channel::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return std::nullopt;
}

struct H2Session::Callbacks {
  static H2Session& of(void* user) { return *static_cast<H2Session*>(user); }

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    H2Session& self = of(user);
    if (self.role_ != Role::kServer || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    auto channel = std::make_shared<H2Channel>(self.transport_->executor());
    channel->id = frame->hd.stream_id;
    self.channels_[channel->id] = std::move(channel);
    return 0;
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size, const uint8_t* value,
                       size_t value_size, uint8_t, void* user) {
    const auto channel = of(user).find(frame->hd.stream_id);
    if (!channel) return 0;
    std::string key(reinterpret_cast<const char*>(name), name_size);
    std::string text(reinterpret_cast<const char*>(value), value_size);
    size_t total = key.size() + text.size();
    for (const auto& [k, v] : channel->headers) total += k.size() + v.size();
    if (total > kMostHeaderBytes) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (key == ":method") {
      channel->method = std::move(text);
    } else if (key == ":path") {
      channel->path = std::move(text);
    } else if (key == ":status") {
      channel->status = text.size() == 3 ? std::atoi(text.c_str()) : -1;
    } else if (!key.starts_with(':')) {
      channel->headers.emplace_back(std::move(key), std::move(text));
    }
    return 0;
  }

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    H2Session& self = of(user);
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      self.peer_goes_away_ = true;
      const auto& goaway = frame->goaway;
      if (goaway.error_code != NGHTTP2_NO_ERROR) {
        std::string reason(reinterpret_cast<const char*>(goaway.opaque_data), std::min<size_t>(goaway.opaque_data_len, 200));
        if (reason.empty()) reason = nghttp2_http2_strerror(goaway.error_code);
        self.end(Error{goaway.error_code == kRefusedCode ? ErrorCode::kPermissionDenied : ErrorCode::kConnectionClosed,
                       std::move(reason),
                       {},
                       0});
      }
      return 0;
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    const auto channel = self.find(frame->hd.stream_id);
    if (!channel) return 0;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) channel->in_ended = true;
    channel->readable.raise();
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) self.on_request_(channel);
    return 0;
  }

  static int on_data(nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* user) {
    H2Session& self = of(user);
    const auto channel = self.find(id);
    const bool wanted = channel && !channel->abandoned;
    self.owed_bytes_ += size;
    if (wanted) {
      self.unread_bytes_ += size;
      channel->in.append(reinterpret_cast<const char*>(data), size);
      channel->readable.raise();
    }
    self.grant_connection();
    return 0;
  }

  static int on_sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_DATA || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    const auto channel = of(user).find(frame->hd.stream_id);
    if (!channel) return 0;
    channel->out_end_sent = true;
    if (channel->abandoned) of(user).abandon(*channel);
    return 0;
  }

  static int on_close(nghttp2_session*, int32_t id, uint32_t code, void* user) {
    H2Session& self = of(user);
    const auto channel = self.find(id);
    if (!channel) return 0;
    self.channels_.erase(id);
    channel->closed = true;
    if (code != NGHTTP2_NO_ERROR) {
      self.fail_channel(*channel, Error{ErrorCode::kConnectionClosed, "the other end of the tunnel reset the stream", {}, 0});
    } else {
      channel->in_ended = true;
    }
    channel->readable.raise();
    channel->writable.raise();
    return 0;
  }
};

H2Session::H2Session(std::unique_ptr<net::TlsStream> transport, Role role, H2Options options, OnRequest on_request)
    : transport_(std::move(transport)),
      role_(role),
      options_(options),
      on_request_(std::move(on_request)),
      to_write_(transport_->executor()),
      ended_(transport_->executor()),
      heard_(transport_->executor()),
      tick_(transport_->executor()),
      heard_ms_(now_ms()) {}

H2Session::~H2Session() {
  nghttp2_session_del(session_);
}

std::shared_ptr<H2Session> H2Session::start(std::unique_ptr<net::TlsStream> transport, Role role, H2Options options,
                                            OnRequest on_request) {
  std::shared_ptr<H2Session> self(new H2Session(std::move(transport), role, options, std::move(on_request)));
  if (auto ready = self->prepare(); !ready) self->error_ = ready.error();
  const auto executor = self->transport_->executor();
  // Each coroutine holds the session, so that it outlives them.
  asio::co_spawn(
      executor, [self]() -> asio::awaitable<void> { co_await self->read_frames(); }, asio::detached);
  asio::co_spawn(
      executor, [self]() -> asio::awaitable<void> { co_await self->write_frames(); }, asio::detached);
  asio::co_spawn(
      executor, [self]() -> asio::awaitable<void> { co_await self->keep_alive(); }, asio::detached);
  return self;
}

Result<void> H2Session::prepare() {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0)
    return fail(ErrorCode::kInternal, "no memory for HTTP/2");
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Callbacks::on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Callbacks::on_sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::on_close);
  nghttp2_option_set_no_auto_window_update(option, 1);
  // The relays of the public network send requests without an authority, which strict HTTP would refuse.
  nghttp2_option_set_no_http_messaging(option, 1);
  // A closed stream is of no use here, and ten thousand idle tunnels would each keep some.
  nghttp2_option_set_no_closed_streams(option, 1);
  nghttp2_option_set_max_deflate_dynamic_table_size(option, 0);
  const int made = role_ == Role::kServer ? nghttp2_session_server_new2(&session_, callbacks, this, option)
                                          : nghttp2_session_client_new2(&session_, callbacks, this, option);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  if (made != 0) return fail(ErrorCode::kInternal, "no memory for HTTP/2");
  std::vector<nghttp2_settings_entry> settings = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options_.stream_window_bytes},
                                                  {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options_.most_streams},
                                                  {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, 0}};
  if (role_ == Role::kClient) settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  if (nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) != 0 ||
      nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes) != 0)
    return fail(ErrorCode::kInternal, "HTTP/2 could not be set up");
  return {};
}

asio::awaitable<void> H2Session::read_frames() {
  char small[kIdleReadBytes];
  std::unique_ptr<char[]> bulk;
  while (!error_) {
    char* buffer = bulk ? bulk.get() : small;
    const auto count = co_await transport_->read_some(buffer, bulk ? kBulkReadBytes : sizeof small, net::kNoDeadline);
    if (error_) break;
    if (!count || *count == 0) {
      end(count ? Error{ErrorCode::kConnectionClosed, transport_->peer() + " closed the connection", {}, 0} : count.error());
      break;
    }
    heard_ms_ = now_ms();
    ping_out_ = false;
    if (probing_) heard_.raise();
    const ssize_t taken = nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(buffer), *count);
    if (taken < 0) {
      end(Error{
          ErrorCode::kProtocol, transport_->peer() + " breaks HTTP/2: " + nghttp2_strerror(static_cast<int>(taken)), {}, 0});
      break;
    }
    to_write_.raise();
    if (*count < sizeof small) {
      bulk.reset();
    } else if (!bulk) {
      bulk = std::make_unique<char[]>(kBulkReadBytes);
    }
  }
}

asio::awaitable<void> H2Session::write_frames() {
  std::string batch;
  while (!error_) {
    batch.clear();
    while (batch.size() < kBatchBytes) {
      const uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size < 0) {
        end(Error{ErrorCode::kInternal, std::string("HTTP/2: ") + nghttp2_strerror(static_cast<int>(size)), {}, 0});
        co_return;
      }
      if (size == 0) break;
      batch.append(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
    }
    if (!batch.empty()) {
      const auto sent = co_await transport_->write(batch, options_.write_stall_ms);
      if (!sent) end(sent.error());
      continue;
    }
    if (ends_when_sent_) {
      co_await transport_->shutdown(kGoAwayMs);
      end(Error{ErrorCode::kConnectionClosed, "closed on this side", {}, 0});
      break;
    }
    batch = std::string();
    co_await to_write_.wait(-1);
  }
}

asio::awaitable<void> H2Session::keep_alive() {
  while (!error_) {
    const int64_t silent_ms = now_ms() - heard_ms_;
    if (silent_ms >= options_.idle_timeout_ms) {
      end(Error{ErrorCode::kDeadlineExceeded,
                transport_->peer() + " has said nothing for " + std::to_string(silent_ms / 1000) + " s and answers no ping",
                {},
                0});
      break;
    }
    if (silent_ms >= options_.keep_alive_ms && !ping_out_) {
      ping_out_ = true;
      nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
      to_write_.raise();
    }
    const int64_t next = silent_ms < options_.keep_alive_ms ? options_.keep_alive_ms : options_.idle_timeout_ms;
    tick_.expires_after(std::chrono::milliseconds(std::max<int64_t>(next - silent_ms, 1)));
    boost::system::error_code ignored;
    co_await tick_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

std::shared_ptr<H2Channel> H2Session::find(int32_t id) const {
  const auto at = channels_.find(id);
  return at == channels_.end() ? nullptr : at->second;
}

void H2Session::grant_connection() {
  if (error_ || owed_bytes_ == 0 || unread_bytes_ > options_.most_unread_bytes) return;
  nghttp2_session_consume_connection(session_, std::exchange(owed_bytes_, 0));
  to_write_.raise();
}

void H2Session::fail_channel(H2Channel& channel, const Error& error) {
  if (!channel.error) channel.error = error;
  channel.closed = true;
  channel.readable.raise();
  channel.writable.raise();
}

void H2Session::end(Error error) {
  if (!error_) error_ = std::move(error);
  if (std::exchange(transport_open_, false)) transport_->close();
  // A woken coroutine runs later, never inside this loop.
  for (auto& [id, channel] : std::exchange(channels_, {})) fail_channel(*channel, *error_);
  to_write_.raise();
  tick_.cancel();
  ended_.raise();
  heard_.raise();
}

asio::awaitable<Error> H2Session::wait_closed() {
  const auto self = shared_from_this();
  while (!error_) co_await ended_.wait(-1);
  ended_.raise();  // for whoever else waits
  co_return *error_;
}

asio::awaitable<bool> H2Session::probe(int64_t timeout_ms) {
  const auto self = shared_from_this();
  if (error_) co_return false;
  probing_ = true;
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
  to_write_.raise();
  const bool heard = co_await heard_.wait(timeout_ms);
  probing_ = false;
  co_return heard && !error_;
}

void H2Session::go_away(uint32_t code, const std::string& reason, bool ends) {
  if (error_) return;
  const std::string text = reason.substr(0, 200);
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_), code,
                        reinterpret_cast<const uint8_t*>(text.data()), text.size());
  ends_when_sent_ = ends_when_sent_ || ends;
  to_write_.raise();
}

Result<std::shared_ptr<H2Channel>> H2Session::request(const std::string& method, const std::string& path,
                                                      const H2Headers& headers, bool ends) {
  if (error_) return fail(*error_);
  auto channel = std::make_shared<H2Channel>(transport_->executor());
  std::vector<nghttp2_nv> values = {name_value(":method", method), name_value(":scheme", "http"), name_value(":path", path)};
  add_all(values, headers);
  const auto body = provider(*channel);
  const int32_t id = nghttp2_submit_request(session_, nullptr, values.data(), values.size(), ends ? nullptr : &body, nullptr);
  if (id < 0) return fail(ErrorCode::kUnavailable, std::string("HTTP/2 opens no stream: ") + nghttp2_strerror(id));
  channel->id = id;
  channel->out_ended = ends;
  channels_[id] = channel;
  to_write_.raise();
  return channel;
}

Result<void> H2Session::respond(const std::shared_ptr<H2Channel>& channel, const H2Headers& headers,
                                std::optional<std::string> body) {
  if (channel->error) return fail(*channel->error);
  std::vector<nghttp2_nv> values = {name_value(":status", "200")};
  add_all(values, headers);
  if (body) {
    channel->out = std::move(*body);
    channel->out_ended = true;
  }
  const auto data = provider(*channel);
  const int done = nghttp2_submit_response(session_, channel->id, values.data(), values.size(), &data);
  if (done != 0) return fail(ErrorCode::kConnectionClosed, std::string("HTTP/2: ") + nghttp2_strerror(done));
  to_write_.raise();
  return {};
}

asio::awaitable<Result<size_t>> H2Session::read_some(H2Channel& channel, char* data, size_t size, int64_t timeout_ms) {
  const int64_t until = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
  channel.read_cancelled = false;
  for (;;) {
    const size_t there = channel.in.size() - channel.in_read;
    if (there > 0) {
      const size_t count = std::min(size, there);
      std::copy_n(channel.in.data() + channel.in_read, count, data);
      channel.in_read += count;
      if (channel.in_read == channel.in.size()) {
        channel.in_read = 0;
        // A burst leaves no large buffer behind.
        if (channel.in.capacity() > kSendBufferBytes) {
          channel.in = std::string();
        } else {
          channel.in.clear();
        }
      }
      if (!channel.closed && !error_) {
        nghttp2_session_consume_stream(session_, channel.id, count);
        to_write_.raise();
      }
      unread_bytes_ -= count;
      grant_connection();
      co_return count;
    }
    if (channel.error) co_return fail(*channel.error);
    if (channel.status != 0 && channel.status != 200)
      co_return fail(ErrorCode::kProtocol, "the agent answered a stream with status " + std::to_string(channel.status));
    if (channel.in_ended) co_return size_t{0};
    if (std::exchange(channel.read_cancelled, false)) co_return fail(ErrorCode::kCancelled, "reading from the tunnel: cancelled");
    const int64_t left = until < 0 ? -1 : std::max<int64_t>(until - now_ms(), 0);
    if (!co_await channel.readable.wait(left))
      co_return fail(ErrorCode::kDeadlineExceeded, "reading from the tunnel: the deadline passed");
  }
}

asio::awaitable<Result<void>> H2Session::write(H2Channel& channel, std::string_view bytes, int64_t stall_ms) {
  while (!bytes.empty()) {
    if (channel.error) co_return fail(*channel.error);
    if (channel.closed || channel.out_ended)
      co_return fail(ErrorCode::kConnectionClosed, "writing into the tunnel: the stream has ended");
    const size_t waiting = channel.out.size() - channel.out_sent;
    const size_t room = waiting < kSendBufferBytes ? kSendBufferBytes - waiting : 0;
    if (room == 0) {
      if (!co_await channel.writable.wait(stall_ms))
        co_return fail(ErrorCode::kDeadlineExceeded, "writing into the tunnel: the other end takes nothing");
      continue;
    }
    const size_t count = std::min(room, bytes.size());
    if (channel.out_sent >= kSendBufferBytes / 2) {
      channel.out.erase(0, channel.out_sent);
      channel.out_sent = 0;
    }
    channel.out.append(bytes.data(), count);
    bytes.remove_prefix(count);
    if (std::exchange(channel.out_deferred, false)) nghttp2_session_resume_data(session_, channel.id);
    to_write_.raise();
  }
  co_return Result<void>();
}

void H2Session::end_writing(H2Channel& channel) {
  if (error_ || channel.closed || std::exchange(channel.out_ended, true)) return;
  if (std::exchange(channel.out_deferred, false)) nghttp2_session_resume_data(session_, channel.id);
  to_write_.raise();
}

void H2Session::forget_unread(H2Channel& channel) {
  unread_bytes_ -= std::exchange(channel.in, {}).size() - std::exchange(channel.in_read, 0);
  grant_connection();
}

void H2Session::reset(H2Channel& channel) {
  forget_unread(channel);
  if (error_ || channel.closed) return;
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, channel.id, NGHTTP2_CANCEL);
  fail_channel(channel, Error{ErrorCode::kConnectionClosed, "the stream was closed", {}, 0});
  to_write_.raise();
}

void H2Session::abandon(H2Channel& channel) {
  forget_unread(channel);
  if (error_ || channel.closed) return;
  if (!channel.out_ended) return reset(channel);
  channel.abandoned = true;
  if (!channel.out_end_sent || channel.in_ended) return;
  // The peer may stop sending: nothing has gone wrong.
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, channel.id, NGHTTP2_NO_ERROR);
  to_write_.raise();
}

asio::awaitable<Result<std::string>> H2Session::read_all(std::shared_ptr<H2Channel> channel, size_t most_bytes,
                                                         int64_t timeout_ms) {
  const int64_t until = now_ms() + timeout_ms;
  std::string all;
  char piece[1024];
  for (;;) {
    PF_CO_TRY(const size_t count, co_await read_some(*channel, piece, sizeof piece, std::max<int64_t>(until - now_ms(), 0)));
    if (count == 0) co_return all;
    all.append(piece, count);
    if (all.size() > most_bytes) {
      reset(*channel);
      co_return fail(ErrorCode::kProtocol, "the other end sent an item of more than " + std::to_string(most_bytes) + " bytes");
    }
  }
}

H2Stream::H2Stream(std::shared_ptr<H2Session> session, std::shared_ptr<H2Channel> channel)
    : session_(std::move(session)), channel_(std::move(channel)) {}

H2Stream::~H2Stream() {
  session_->abandon(*channel_);
}

asio::awaitable<Result<size_t>> H2Stream::read_some(char* data, size_t size, int64_t timeout_ms) {
  co_return co_await session_->read_some(*channel_, data, size, timeout_ms);
}
asio::awaitable<Result<void>> H2Stream::write(std::string_view bytes, int64_t stall_ms) {
  co_return co_await session_->write(*channel_, bytes, stall_ms);
}
asio::awaitable<void> H2Stream::shutdown(int64_t) {
  session_->end_writing(*channel_);
  co_return;
}
void H2Stream::cancel_read() {
  channel_->read_cancelled = true;
  channel_->readable.raise();
}
void H2Stream::close() {
  session_->reset(*channel_);
}
const std::string& H2Stream::peer() const {
  return session_->transport().peer();
}
asio::any_io_executor H2Stream::executor() const {
  return session_->transport().executor();
}

}  // namespace pocketfleet::tunnel
