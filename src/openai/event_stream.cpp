#include "openai/event_stream.h"

#include <nlohmann/json.hpp>

namespace pocketfleet {

namespace asio = boost::asio;

asio::awaitable<void> EventStream::put(std::string bytes) {
  if (gone_) co_return;
  if (!open_) {
    open_ = true;
    net::Headers headers;
    headers.add("content-type", "text/event-stream");
    headers.add("cache-control", "no-cache");
    // Reverse proxies hold answers back otherwise.
    headers.add("x-accel-buffering", "no");
    auto begun = co_await writer_.begin(200, std::move(headers));
    gone_ = !begun;
    if (gone_) co_return;
  }
  auto written = co_await writer_.write(bytes);
  gone_ = !written;
}

// JSON text holds no line ends, so one data line is enough.
asio::awaitable<void> EventStream::send(const Json& event, std::string_view type) {
  std::string bytes;
  if (!type.empty()) bytes.append("event: ").append(type).append("\n");
  bytes.append("data: ").append(dump_json(event)).append("\n\n");
  co_await put(std::move(bytes));
}

asio::awaitable<void> EventStream::ping() {
  co_await put(": ping\n\n");
}

asio::awaitable<void> EventStream::done() {
  co_await put("data: [DONE]\n\n");
  co_await end();
}

asio::awaitable<void> EventStream::end() {
  if (!gone_) static_cast<void>(co_await writer_.end());
}

}  // namespace pocketfleet
