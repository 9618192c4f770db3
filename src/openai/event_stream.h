// An answer as server-sent events: begins with the first thing to say, fills silence with comment lines, ends with [DONE] or what
// stands for it. Runs on the request's strand. A write that fails means that the client has gone; then nothing more is written.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <string_view>

#include "base/json.h"
#include "net/http_server.h"

namespace pocketfleet {

class EventStream {
 public:
  explicit EventStream(net::ResponseWriter& writer) : writer_(writer) {}

  // `type`: the event's name, if it has one.
  boost::asio::awaitable<void> send(const Json& event, std::string_view type = {});
  boost::asio::awaitable<void> ping();
  boost::asio::awaitable<void> done();
  // Without [DONE], where the last event says it.
  boost::asio::awaitable<void> end();
  bool open() const { return open_; }
  bool gone() const { return gone_; }

 private:
  boost::asio::awaitable<void> put(std::string bytes);

  net::ResponseWriter& writer_;
  bool open_ = false;
  bool gone_ = false;
};

}  // namespace pocketfleet
