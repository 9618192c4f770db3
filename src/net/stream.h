// One byte stream for all transports: TCP, TLS, Unix socket, and later tunnel streams. Not thread-safe: everything is called on
// executor(), a strand when its context has several threads; one read and one write may be in flight together. Deadlines are in
// milliseconds, negative: none. A read that timed out or was cancelled has lost no bytes; after any other error, close. When a
// stream is destroyed, no operation may be in flight. Errors: kDeadlineExceeded, kCancelled, kConnectionClosed, kIo.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pocketfleet::net {

namespace asio = boost::asio;

constexpr int64_t kNoDeadline = -1;

class Stream {
 public:
  virtual ~Stream() = default;
  // 0: the other side will send nothing more.
  virtual asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) = 0;
  // All bytes. `stall_ms` bounds the time without any progress, not the whole.
  virtual asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) = 0;
  // Tells the other side that nothing more comes. Reading may go on, but over TLS what is still sent to us is dropped.
  virtual asio::awaitable<void> shutdown(int64_t timeout_ms) = 0;
  // Ends a read that is in flight with kCancelled (or with the bytes that have just come).
  virtual void cancel_read() = 0;
  // At once; everything in flight ends with an error.
  virtual void close() = 0;
  // "127.0.0.1:4711" or "unix".
  virtual const std::string& peer() const = 0;
  virtual asio::any_io_executor executor() const = 0;
};

}  // namespace pocketfleet::net
