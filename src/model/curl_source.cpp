#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "model/download_source.h"

namespace pocketfleet {

namespace {

constexpr long kConnect_ms = 30'000;
constexpr long kSlowBytes_per_s = 1024;
constexpr long kSlow_s = 30;
constexpr long kMostRedirects = 10;
constexpr size_t kMostHeaderBytes = 64u << 10;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
         });
}

class CurlSource final : public DownloadSource {
 public:
  CurlSource() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    handle_ = curl_easy_init();
  }
  ~CurlSource() override {
    if (handle_ != nullptr) curl_easy_cleanup(handle_);
  }

  Result<SourceReply> get(const SourceRequest& request, SourceSink& sink, const CancelToken& cancel) override {
    if (handle_ == nullptr) return fail(ErrorCode::kInternal, "libcurl could not be started");
    reply_ = {};
    content_length_.reset();
    header_bytes_ = 0;
    begun_ = ended_by_sink_ = false;
    sink_ = &sink;
    cancel_ = &cancel;
    error_[0] = '\0';
    curl_easy_reset(handle_);
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirects);
    // What began encrypted stays so.
    const bool encrypted = request.url.starts_with("https://");
    set(CURLOPT_PROTOCOLS_STR, encrypted ? "https" : "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, encrypted ? "https" : "http,https");
    set(CURLOPT_CONNECTTIMEOUT_MS, kConnect_ms);
    set(CURLOPT_LOW_SPEED_LIMIT, kSlowBytes_per_s);
    set(CURLOPT_LOW_SPEED_TIME, kSlow_s);
    // Where there is no system to say whom to trust, as under a phone's terminal.
    if (const char* trusted = std::getenv("SSL_CERT_FILE"); trusted != nullptr && *trusted != '\0') set(CURLOPT_CAINFO, trusted);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "pocketfleet");
    if (!request.bearer.empty()) {
      set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
      set(CURLOPT_XOAUTH2_BEARER, request.bearer.c_str());
    }
    std::string range;
    if (request.range) {
      range = fmt::format("{}-{}", request.range->begin, request.range->end - 1);
      set(CURLOPT_RANGE, range.c_str());
    }
    curl_slist* headers = nullptr;
    if (!request.if_range.empty()) headers = curl_slist_append(headers, ("If-Range: " + request.if_range).c_str());
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, on_bytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_tick);
    set(CURLOPT_XFERINFODATA, this);
    const CURLcode code = curl_easy_perform(handle_);
    curl_slist_free_all(headers);
    if (code == CURLE_OK) {
      if (!begun_) begin();
      return reply_;
    }
    if (ended_by_sink_) return reply_;
    if (cancel.cancelled()) return fail(ErrorCode::kCancelled, "stopped");
    const std::string what = error_[0] != '\0' ? error_ : curl_easy_strerror(code);
    // Trying again makes no certificate trusted.
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
      return fail(ErrorCode::kPermissionDenied,
                  fmt::format("the certificate of {} is not trusted: {} (SSL_CERT_FILE names whom to trust)", request.url, what));
    const bool reached = begun_ || code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING;
    return fail(reached ? ErrorCode::kConnectionClosed : ErrorCode::kUnavailable, what);
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(handle_, option, value);
  }

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    return static_cast<CurlSource*>(self)->take_header({data, size * count}) ? size * count : 0;
  }
  static size_t on_bytes(char* data, size_t size, size_t count, void* self) {
    return static_cast<CurlSource*>(self)->take_bytes({data, size * count}) ? size * count : 0;
  }
  static int on_tick(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<CurlSource*>(self)->cancel_->cancelled() ? 1 : 0;
  }

  bool take_header(std::string_view line) {
    header_bytes_ += line.size();
    if (header_bytes_ > kMostHeaderBytes) return false;
    // Each hop of a redirect begins anew.
    if (line.starts_with("HTTP/")) {
      reply_ = {};
      content_length_.reset();
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (equal_ignoring_case(name, "etag")) {
      // A weak one says nothing of bytes.
      if (!value.starts_with("W/") && value.size() <= 512) reply_.validator = value;
    } else if (equal_ignoring_case(name, "content-length")) {
      content_length_ = number(value);
    } else if (equal_ignoring_case(name, "content-range")) {
      take_content_range(value);
    } else if (equal_ignoring_case(name, "retry-after")) {
      if (const auto seconds = number(value))
        reply_.retry_after_ms = static_cast<int64_t>(std::min<uint64_t>(*seconds, 86'400)) * 1000;
    }
    return true;
  }

  // "bytes 5-9/100".
  void take_content_range(std::string_view value) {
    if (!value.starts_with("bytes ")) return;
    value.remove_prefix(6);
    const size_t dash = value.find('-');
    const size_t slash = value.find('/');
    if (slash == std::string_view::npos) return;
    reply_.size_bytes = number(value.substr(slash + 1));
    if (dash < slash) reply_.begin = number(value.substr(0, dash)).value_or(0);
  }

  bool begin() {
    begun_ = true;
    long status = 0;
    curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    reply_.status = static_cast<int>(status);
    if (status == 200) reply_.size_bytes = content_length_;
    ended_by_sink_ = !sink_->begin(reply_);
    return !ended_by_sink_;
  }

  bool take_bytes(std::string_view bytes) {
    if (!begun_ && !begin()) return false;
    if (!sink_->write(bytes)) ended_by_sink_ = true;
    return !ended_by_sink_;
  }

  CURL* handle_ = nullptr;
  SourceReply reply_;
  std::optional<uint64_t> content_length_;
  size_t header_bytes_ = 0;
  bool begun_ = false;
  bool ended_by_sink_ = false;
  SourceSink* sink_ = nullptr;
  const CancelToken* cancel_ = nullptr;
  char error_[CURL_ERROR_SIZE] = "";
};

}  // namespace

std::unique_ptr<DownloadSource> make_curl_source() {
  return std::make_unique<CurlSource>();
}

}  // namespace pocketfleet
