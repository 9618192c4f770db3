// Where the bytes of a download come from: a port, so that faults can be played in tests. get() blocks; one call at a time on one
// source; several sources may run on several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/cancel.h"
#include "base/result.h"
#include "model/download_journal.h"

namespace pocketfleet {

struct SourceRequest {
  std::string url;
  std::optional<ByteRange> range;  // none: the whole
  std::string if_range;            // a validator; with another one the server sends the whole
  std::string bearer;              // sent to the host of `url` alone, not where that sends us on
};

// What the server says before the bytes.
struct SourceReply {
  int status = 0;
  uint64_t begin = 0;                  // where in the file the bytes that follow stand
  std::optional<uint64_t> size_bytes;  // of the whole file
  std::string validator;               // strong ETag as it was sent; empty when there is none
  int64_t retry_after_ms = 0;
};

class SourceSink {
 public:
  virtual ~SourceSink() = default;
  // Once, before any bytes; false ends the transfer.
  virtual bool begin(const SourceReply& reply) = 0;
  virtual bool write(std::string_view bytes) = 0;
};

// The whole of a small file, or nothing past `most_bytes`.
class TextSink final : public SourceSink {
 public:
  explicit TextSink(size_t most_bytes) : most_bytes_(most_bytes) {}
  bool begin(const SourceReply& reply) override { return reply.status == 200; }
  bool write(std::string_view bytes) override {
    too_long = text.size() + bytes.size() > most_bytes_;
    if (!too_long) text += bytes;
    return !too_long;
  }
  std::string text;
  bool too_long = false;

 private:
  size_t most_bytes_;
};

class DownloadSource {
 public:
  virtual ~DownloadSource() = default;
  // The reply, once the transfer has ended as the server announced it or the sink has ended it. kConnectionClosed when it broke
  // off, kUnavailable when nobody answered, kPermissionDenied when it is not to be believed, kCancelled.
  virtual Result<SourceReply> get(const SourceRequest& request, SourceSink& sink, const CancelToken& cancel) = 0;
};

// Over libcurl: redirects are followed (https stays https), a transfer slower than 1 KiB/s for 30 s counts as broken off.
std::unique_ptr<DownloadSource> make_curl_source();

}  // namespace pocketfleet
