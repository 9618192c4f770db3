#include "tunnel/quic_streams.h"

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "tunnel/link.h"

namespace pocketfleet::tunnel {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kLongestMs = 86'400'000;  // a day is for ever here, and cannot overflow
constexpr size_t kSmallestChunk = 2u << 10;
constexpr size_t kLargestChunk = 16u << 10;
constexpr size_t kKeptWhenEmpty = 64u << 10;  // of the room that received bytes took

class QuicStream final : public net::Stream {
 public:
  explicit QuicStream(std::shared_ptr<QuicStreamState> state) : state_(std::move(state)) {}
  ~QuicStream() override { close(); }

  asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) override {
    const std::shared_ptr<QuicStreamState> state = state_;
    const int64_t deadline = deadline_after(timeout_ms);
    if (size == 0) co_return size_t{0};
    state->read_cancelled = false;
    state->reading = true;
    for (;;) {
      const size_t count = state->in.take(data, size);
      if (count > 0 || state->in_ended || state->in_reset || state->error || !state->held) {
        state->reading = false;
        if (count > 0) {
          if (state->host != nullptr) state->host->on_read(*state, count);
          co_return count;
        }
        if (!state->held) co_return fail(ErrorCode::kConnectionClosed, "the stream to " + state->peer + " was closed here");
        if (state->in_ended) co_return size_t{0};
        if (state->in_reset) co_return fail(ErrorCode::kConnectionClosed, state->peer + " has broken the stream off");
        co_return fail(ErrorCode::kConnectionClosed, "reading from " + state->peer + ": " + state->error->message);
      }
      if (state->read_cancelled) {
        state->reading = false;
        co_return fail(ErrorCode::kCancelled, "reading from " + state->peer + ": cancelled");
      }
      const int64_t left = time_left(deadline);
      if (left == 0) {
        state->reading = false;
        co_return fail(ErrorCode::kDeadlineExceeded, "reading from " + state->peer + ": the deadline passed");
      }
      co_await state->readable.wait(left);
    }
  }

  asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) override {
    const std::shared_ptr<QuicStreamState> state = state_;
    int64_t deadline = deadline_after(stall_ms);
    while (!bytes.empty()) {
      if (!state->held || state->out_ended) {
        co_return fail(ErrorCode::kConnectionClosed, "the stream to " + state->peer + " was closed here");
      }
      if (state->error) co_return fail(ErrorCode::kConnectionClosed, "writing to " + state->peer + ": " + state->error->message);
      if (state->out_dead || !state->open) {
        co_return fail(ErrorCode::kConnectionClosed, state->peer + " reads the stream no more");
      }
      const size_t held = state->out.held();
      if (held < kQuicSendBuffer) {
        const size_t count = std::min(bytes.size(), kQuicSendBuffer - held);
        state->out.append(bytes.substr(0, count));
        bytes.remove_prefix(count);
        state->host->on_written(*state);
        deadline = deadline_after(stall_ms);
        continue;
      }
      const int64_t left = time_left(deadline);
      if (left == 0) {
        co_return fail(ErrorCode::kDeadlineExceeded, "writing to " + state->peer + ": it has taken nothing for too long");
      }
      co_await state->writable.wait(left);
    }
    co_return Result<void>();
  }

  asio::awaitable<void> shutdown(int64_t) override {
    if (state_->held && state_->open && !state_->out_ended && !state_->out_dead && state_->host != nullptr) {
      state_->out_ended = true;
      state_->host->on_written(*state_);
    }
    co_return;
  }

  void cancel_read() override {
    if (!state_->reading) return;
    state_->read_cancelled = true;
    state_->readable.raise();
  }

  void close() override {
    if (!state_->held) return;
    state_->held = false;
    if (state_->host != nullptr) state_->host->on_let_go(*state_);
    state_->in.clear();
    state_->wake();
  }

  const std::string& peer() const override { return state_->peer; }
  asio::any_io_executor executor() const override { return state_->executor; }

 private:
  std::shared_ptr<QuicStreamState> state_;
};

// Exactly so many bytes. Zero bytes and no error: the stream ended before the first.
asio::awaitable<Result<std::string>> read_exactly(net::Stream& stream, size_t size, int64_t deadline) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    PF_CO_TRY(const size_t count, co_await stream.read_some(bytes.data() + have, size - have, time_left(deadline)));
    if (count == 0) {
      if (have == 0) co_return std::string();
      co_return fail(ErrorCode::kProtocol, stream.peer() + " ended the control exchange in the middle of an item");
    }
    have += count;
  }
  co_return bytes;
}

}  // namespace

int64_t deadline_after(int64_t timeout_ms) {
  if (timeout_ms < 0) return kNever;
  return SystemClock::instance().now_ms() + std::min(timeout_ms, kLongestMs);
}

int64_t time_left(int64_t deadline) {
  if (deadline == kNever) return net::kNoDeadline;
  return std::max<int64_t>(deadline - SystemClock::instance().now_ms(), 0);
}

void Bell::ring() {
  for (asio::steady_timer* timer : waiting_) timer->cancel();
}

asio::awaitable<void> Bell::wait(int64_t deadline) {
  const int64_t left = time_left(deadline);
  asio::steady_timer timer(executor_);
  if (left < 0) {
    timer.expires_at(asio::steady_timer::time_point::max());
  } else {
    timer.expires_after(std::chrono::milliseconds(left));
  }
  // Also when the coroutine is destroyed while it sleeps.
  struct Place {
    Place(std::list<asio::steady_timer*>& the_list, asio::steady_timer* the_timer)
        : list(the_list), at(the_list.insert(the_list.end(), the_timer)) {}
    ~Place() { list.erase(at); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    std::list<asio::steady_timer*>& list;
    std::list<asio::steady_timer*>::iterator at;
  };
  const Place place(waiting_, &timer);
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

void ReceiveBuffer::append(const uint8_t* data, size_t size) {
  // What was read is thrown away once it is the greater part, so that each byte is moved once at most.
  if (read_ > 0 && read_ >= bytes_.size() / 2) {
    bytes_.erase(0, read_);
    read_ = 0;
  }
  bytes_.append(reinterpret_cast<const char*>(data), size);
}

size_t ReceiveBuffer::take(char* data, size_t size) {
  const size_t count = std::min(size, this->size());
  if (count == 0) return 0;
  std::memcpy(data, bytes_.data() + read_, count);
  read_ += count;
  if (read_ == bytes_.size()) clear();
  return count;
}

void ReceiveBuffer::clear() {
  read_ = 0;
  if (bytes_.capacity() > kKeptWhenEmpty) {
    bytes_ = std::string();
  } else {
    bytes_.clear();
  }
}

void SendBuffer::append(std::string_view bytes) {
  while (!bytes.empty()) {
    if (chunks_.empty() || chunks_.back().size == chunks_.back().capacity) {
      Chunk fresh;
      fresh.capacity = std::clamp(bytes.size(), kSmallestChunk, kLargestChunk);
      fresh.data.reset(new char[fresh.capacity]);
      if (chunks_.empty()) first_ = end_;
      chunks_.push_back(std::move(fresh));
    }
    Chunk& last = chunks_.back();
    const size_t count = std::min(bytes.size(), last.capacity - last.size);
    std::memcpy(last.data.get() + last.size, bytes.data(), count);
    last.size += count;
    end_ += count;
    bytes.remove_prefix(count);
  }
}

size_t SendBuffer::pending(std::array<Piece, kMostPieces>& pieces) const {
  size_t count = 0;
  uint64_t begin = first_;
  for (const Chunk& chunk : chunks_) {
    const uint64_t end = begin + chunk.size;
    if (end > sent_) {
      if (count == pieces.size()) break;
      const size_t skipped = sent_ > begin ? static_cast<size_t>(sent_ - begin) : 0;
      pieces[count].data = chunk.data.get() + skipped;
      pieces[count].size = chunk.size - skipped;
      ++count;
    }
    begin = end;
  }
  return count;
}

void SendBuffer::acked(uint64_t offset) {
  acked_ = std::clamp(offset, acked_, sent_);
  while (!chunks_.empty() && first_ + chunks_.front().size <= acked_) {
    first_ += chunks_.front().size;
    chunks_.pop_front();
  }
}

void SendBuffer::clear() {
  chunks_.clear();
  first_ = acked_ = sent_ = end_;
}

std::unique_ptr<net::Stream> make_quic_stream(std::shared_ptr<QuicStreamState> state) {
  return std::make_unique<QuicStream>(std::move(state));
}

QuicStreamState* QuicStreamTable::find(int64_t id) const {
  const auto place = streams_.find(id);
  return place == streams_.end() ? nullptr : place->second.get();
}

void QuicStreamTable::make_ready(const QuicStreamState& stream) {
  if (stream.queued || stream.blocked || !stream.has_pending()) return;
  const auto place = streams_.find(stream.id);
  if (place == streams_.end()) return;
  place->second->queued = true;
  ready_.push_back(place->second);
}

std::shared_ptr<QuicStreamState> QuicStreamTable::next_ready() {
  while (!ready_.empty()) {
    std::shared_ptr<QuicStreamState> stream = std::move(ready_.front());
    ready_.pop_front();
    if (!stream->blocked && stream->has_pending()) {
      ready_.push_back(stream);
      return stream;
    }
    stream->queued = false;
  }
  return nullptr;
}

void QuicStreamTable::block(const std::shared_ptr<QuicStreamState>& stream) {
  if (std::exchange(stream->blocked, true)) return;
  blocked_.push_back(stream);
}

void QuicStreamTable::unblock(QuicStreamState& stream) {
  if (!std::exchange(stream.blocked, false)) return;
  std::erase_if(blocked_, [&](const auto& other) { return other.get() == &stream; });
  make_ready(stream);
}

void QuicStreamTable::unblock_all() {
  for (const auto& stream : std::exchange(blocked_, {})) {
    stream->blocked = false;
    make_ready(*stream);
  }
}

void QuicStreamTable::fail_all(const Error& error) {
  for (auto& [id, stream] : streams_) {
    stream->host = nullptr;
    stream->error = error;
    stream->wake();
  }
  ready_.clear();
  blocked_.clear();
}

std::string frame_item(std::string_view item) {
  const auto size = static_cast<uint32_t>(item.size());
  std::string out;
  out.reserve(4 + item.size());
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>((size >> shift) & 0xff));
  out.append(item);
  return out;
}

asio::awaitable<Result<std::string>> read_item(net::Stream& stream, int64_t deadline) {
  PF_CO_TRY(const std::string head, co_await read_exactly(stream, 4, deadline));
  if (head.empty()) co_return fail(ErrorCode::kConnectionClosed, stream.peer() + " ended the control exchange");
  size_t size = 0;
  for (const char c : head) size = (size << 8) | static_cast<unsigned char>(c);
  if (size > kMostItemBytes) {
    co_return fail(ErrorCode::kProtocol, stream.peer() + " announced an item of " + std::to_string(size) + " bytes; at most " +
                                             std::to_string(kMostItemBytes) + " are allowed");
  }
  if (size == 0) co_return std::string();
  PF_CO_TRY(std::string item, co_await read_exactly(stream, size, deadline));
  if (item.empty()) co_return fail(ErrorCode::kProtocol, stream.peer() + " ended the control exchange before an item");
  co_return item;
}

}  // namespace pocketfleet::tunnel
