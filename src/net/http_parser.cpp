#include "net/http_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <cstring>

#include "net/url.h"

namespace pocketfleet::net {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using beast::error_code;

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

// A chunk's size line and the trailer are held by nobody but us until they are whole.
constexpr size_t kMaxChunkLineBytes = 8u << 10;
constexpr size_t kMinChunkEndBytes = std::string_view("0\r\n\r\n").size();

struct BlockScan {
  size_t end = 0;  // length of the header block with its empty line; 0: not there yet
  const char* fault = nullptr;
};

// Looks for the end of the header block and for what Beast would forgive.
BlockScan scan_header_block(std::string_view bytes, size_t& scanned) {
  while (true) {
    const size_t line_feed = bytes.find('\n', scanned);
    const std::string_view line = bytes.substr(scanned, line_feed == std::string_view::npos ? line_feed : line_feed - scanned);
    if (line_feed == std::string_view::npos) return {};
    if (line.empty() || line.back() != '\r') return {0, "a header line ends in a bare line feed"};
    const std::string_view text = line.substr(0, line.size() - 1);
    if (std::memchr(text.data(), '\r', text.size())) return {0, "a header line holds a bare carriage return"};
    if (std::memchr(text.data(), '\0', text.size())) return {0, "a header line holds a NUL byte"};
    if (scanned > 0 && !text.empty() && (text.front() == ' ' || text.front() == '\t'))
      return {0, "a header is folded over lines"};
    scanned = line_feed + 1;
    if (text.empty()) return {scanned, nullptr};
  }
}

bool is_length(std::string_view text) {
  return !text.empty() && text.size() <= 18 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// What requests and responses have in common: framing and bounds.
template <bool isRequest>
class Core : public http::basic_parser<isRequest> {
 public:
  using Base = http::basic_parser<isRequest>;
  explicit Core(const ParserLimits& limits) : limits_(limits) {
    this->header_limit(static_cast<uint32_t>(std::min<size_t>(limits.max_header_bytes + 1, UINT32_MAX)));
    this->body_limit(boost::none);
    this->eager(false);  // so that each piece of the message passes the check in feed()
  }

  size_t feed(std::string_view bytes) {
    size_t taken = 0;
    if (status_ || this->is_done()) return 0;
    if (!this->is_header_done()) {
      // One empty line before a request is what old clients send after a body.
      if (isRequest && scanned_ == 0 && !skipped_ && bytes.size() >= 2 && bytes[0] == '\r' && bytes[1] == '\n') {
        skipped_ = true;
        taken = 2;
        bytes.remove_prefix(2);
      }
      if (isRequest && scanned_ == 0 && !skipped_ && bytes == "\r") return taken;
      const BlockScan scan = scan_header_block(bytes, scanned_);
      if (scan.fault) return refuse(400, scan.fault), taken;
      if (scan.end > limits_.max_header_bytes || (!scan.end && bytes.size() > limits_.max_header_bytes)) {
        return refuse(431, "the header is larger than " + std::to_string(limits_.max_header_bytes) + " bytes"), taken;
      }
      if (!scan.end) return taken;
    }
    // Beast stops at the end of a piece and after the message; what it has not taken begins the next put.
    while (!this->is_done()) {
      // Beast asserts, wrongly, that it is never asked about a last chunk with less than this; no message can end with less.
      if (this->is_header_done() && this->chunked() && chunk_left_ == 0 && bytes.size() < kMinChunkEndBytes) break;
      error_code ec;
      const size_t used = this->put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
      bytes.remove_prefix(used);
      taken += used;
      if (ec == http::error::need_more) {
        if (!this->is_header_done()) refuse(400, "the first line is malformed");
        if (bytes.size() > kMaxChunkLineBytes) refuse(400, "a chunk's header or the trailer is too long");
        break;
      }
      if (ec) {
        if (!status_) refuse(ec == http::error::bad_version ? 505 : 400, "the message is malformed: " + ec.message());
        break;
      }
      if (used == 0) break;
    }
    return taken;
  }

  void refuse(int status, std::string message) {
    status_ = status;
    message_ = std::move(message);
  }

  ParserLimits limits_;
  Headers headers_;
  std::string body_;
  size_t body_total_ = 0;
  size_t scanned_ = 0;
  uint64_t chunk_left_ = 0;
  bool skipped_ = false;
  int status_ = 0;
  std::string message_;
  int version_ = 11;
  bool has_length_ = false;
  bool has_encoding_ = false;
  bool complete_ = false;

 protected:
  error_code refused(int status, std::string message) {
    refuse(status, std::move(message));
    return http::error::bad_value;
  }

  void on_field_impl(http::field field, beast::string_view name, beast::string_view value, error_code& ec) override {
    if (this->is_header_done()) return;  // a trailer: nobody asks for one
    if (field == http::field::content_length) {
      if (has_length_)
        ec = refused(400, "there are two content-length headers");
      else if (has_encoding_)
        ec = refused(400, "content-length stands beside transfer-encoding");
      else if (!is_length(view(value)))
        ec = refused(400, "content-length is not a number");
      has_length_ = true;
    } else if (field == http::field::transfer_encoding) {
      if (has_encoding_)
        ec = refused(400, "there are two transfer-encoding headers");
      else if (has_length_)
        ec = refused(400, "content-length stands beside transfer-encoding");
      else if (!equals_ignoring_case(view(value), "chunked"))
        ec = refused(501, "transfer-encoding is not \"chunked\"");
      else if (version_ < 11)
        ec = refused(400, "HTTP/1.0 has no transfer-encoding");
      has_encoding_ = true;
    }
    if (!ec) headers_.add(std::string(view(name)), std::string(view(value)));
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code& ec) override {
    if (length && *length > limits_.max_body_bytes) ec = too_large();
  }

  std::size_t on_body_impl(beast::string_view bytes, error_code& ec) override {
    body_total_ += bytes.size();
    if (body_total_ > limits_.max_body_bytes) {
      ec = too_large();
      return 0;
    }
    body_.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  void on_chunk_header_impl(std::uint64_t size, beast::string_view, error_code& ec) override {
    if (size > limits_.max_body_bytes - std::min(body_total_, limits_.max_body_bytes)) ec = too_large();
    chunk_left_ = size;
  }

  std::size_t on_chunk_body_impl(std::uint64_t remain, beast::string_view bytes, error_code& ec) override {
    const std::size_t taken = on_body_impl(bytes, ec);
    chunk_left_ = remain - taken;
    return taken;
  }
  void on_finish_impl(error_code&) override { complete_ = true; }

 private:
  error_code too_large() { return refused(413, "the body is larger than " + std::to_string(limits_.max_body_bytes) + " bytes"); }
};

}  // namespace

struct RequestParser::Impl final : Core<true> {
  explicit Impl(const ParserLimits& limits) : Core(limits) {}

  HttpRequest request;
  bool header_complete = false;
  bool expects_continue = false;

  void on_request_impl(http::verb, beast::string_view method, beast::string_view target, int version, error_code& ec) override {
    version_ = version;
    request.method = view(method);
    request.target = view(target);
    if (version != 10 && version != 11) {
      ec = refused(505, "the HTTP version is not 1.0 or 1.1");
      return;
    }
    std::string_view path = request.target;
    // The absolute form is for proxies, but a server must understand it.
    if (path.starts_with("http://") || path.starts_with("https://")) {
      const size_t slash = path.find('/', path.find("://") + 3);
      path = slash == std::string_view::npos ? std::string_view("/") : path.substr(slash);
    }
    if (path.empty() || (path.front() != '/' && !(path == "*" && request.method == "OPTIONS"))) {
      ec = refused(400, "the request's target is not a path");
      return;
    }
    const size_t question = path.find('?');
    if (question != std::string_view::npos) request.query = path.substr(question + 1);
    auto decoded = percent_decode(path.substr(0, question));
    if (!decoded) {
      ec = refused(400, "the request's path is not well percent-encoded");
      return;
    }
    request.path = std::move(*decoded);
  }

  void on_response_impl(int, beast::string_view, int, error_code&) override {}

  void on_header_impl(error_code& ec) override {
    size_t hosts = 0;
    for (const auto& [name, value] : headers_.items()) {
      if (equals_ignoring_case(name, "host")) ++hosts;
      if (equals_ignoring_case(name, "expect")) {
        if (!equals_ignoring_case(value, "100-continue")) {
          ec = refused(417, "the only expectation that is met here is 100-continue");
          return;
        }
        expects_continue = version_ >= 11;
      }
    }
    if (hosts > 1 || (hosts == 0 && version_ >= 11)) {
      ec = refused(400, hosts ? "there are two host headers" : "there is no host header");
      return;
    }
    request.headers = std::move(headers_);
    header_complete = true;
  }
};

RequestParser::RequestParser(const ParserLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::put(std::string_view bytes) {
  const bool was_complete = impl_->complete_;
  const size_t taken = impl_->feed(bytes);
  if (impl_->complete_ && !was_complete) impl_->request.body = std::move(impl_->body_);
  return taken;
}
bool RequestParser::header_done() const {
  return impl_->header_complete;
}
bool RequestParser::done() const {
  return impl_->complete_;
}
int RequestParser::error_status() const {
  return impl_->status_;
}
std::string_view RequestParser::error_message() const {
  return impl_->message_;
}
bool RequestParser::keep_alive() const {
  return impl_->keep_alive();
}
bool RequestParser::http_1_0() const {
  return impl_->version_ < 11;
}
bool RequestParser::expects_continue() const {
  return impl_->expects_continue;
}
HttpRequest& RequestParser::request() {
  return impl_->request;
}

struct ResponseParser::Impl final : Core<false> {
  explicit Impl(const ParserLimits& limits) : Core(limits) {}

  int code = 0;
  bool header_complete = false;

  void on_request_impl(http::verb, beast::string_view, beast::string_view, int, error_code&) override {}
  void on_response_impl(int status, beast::string_view, int version, error_code& ec) override {
    version_ = version;
    code = status;
    if (version != 10 && version != 11) ec = refused(400, "the HTTP version of the answer is not 1.0 or 1.1");
  }
  void on_header_impl(error_code&) override { header_complete = true; }
};

ResponseParser::ResponseParser(const ParserLimits& limits, bool head) : impl_(std::make_unique<Impl>(limits)) {
  if (head) impl_->skip(true);
}
ResponseParser::~ResponseParser() = default;

size_t ResponseParser::put(std::string_view bytes) {
  return impl_->feed(bytes);
}
void ResponseParser::put_end() {
  if (impl_->status_ || impl_->complete_) return;
  if (!impl_->header_complete) return impl_->refuse(400, "the connection ended inside the header");
  error_code ec;
  impl_->put_eof(ec);
  if (ec || !impl_->complete_) impl_->refuse(400, "the connection ended inside the body");
}
bool ResponseParser::header_done() const {
  return impl_->header_complete;
}
bool ResponseParser::done() const {
  return impl_->complete_;
}
bool ResponseParser::failed() const {
  return impl_->status_ != 0;
}
std::string_view ResponseParser::error_message() const {
  return impl_->message_;
}
bool ResponseParser::keep_alive() const {
  return impl_->complete_ && impl_->keep_alive();
}
int ResponseParser::status() const {
  return impl_->code;
}
Headers& ResponseParser::headers() {
  return impl_->headers_;
}
std::string ResponseParser::take_body() {
  return std::exchange(impl_->body_, {});
}

}  // namespace pocketfleet::net
