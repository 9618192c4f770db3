#include "net/prefixed_stream.h"

#include <utility>

namespace pocketfleet::net {

namespace {

class PrefixedStream final : public Stream {
 public:
  PrefixedStream(std::unique_ptr<Stream> lower, std::string prefix) : lower_(std::move(lower)), prefix_(std::move(prefix)) {}

  asio::awaitable<Result<size_t>> read_some(char* data, size_t size, int64_t timeout_ms) override {
    if (prefix_.empty()) co_return co_await lower_->read_some(data, size, timeout_ms);
    const size_t count = prefix_.copy(data, size, given_);
    given_ += count;
    // Its memory goes too, which an assignment would keep: the stream may live for hours.
    if (given_ == prefix_.size()) std::string().swap(prefix_);
    co_return count;
  }

  asio::awaitable<Result<void>> write(std::string_view bytes, int64_t stall_ms) override {
    co_return co_await lower_->write(bytes, stall_ms);
  }
  asio::awaitable<void> shutdown(int64_t timeout_ms) override { co_await lower_->shutdown(timeout_ms); }
  void cancel_read() override { lower_->cancel_read(); }
  void close() override {
    // After it everything fails, as it does underneath.
    prefix_.clear();
    lower_->close();
  }
  const std::string& peer() const override { return lower_->peer(); }
  asio::any_io_executor executor() const override { return lower_->executor(); }

 private:
  std::unique_ptr<Stream> lower_;
  std::string prefix_;
  size_t given_ = 0;
};

}  // namespace

std::unique_ptr<Stream> make_prefixed_stream(std::unique_ptr<Stream> stream, std::string prefix) {
  return std::make_unique<PrefixedStream>(std::move(stream), std::move(prefix));
}

}  // namespace pocketfleet::net
