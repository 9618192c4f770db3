// Fetches one large file: `path` is right or absent, whatever the server, the network or a kill does meanwhile. Bytes go to
// PATH.partial at their own places, a journal tells which of them can be trusted, and a later call goes on from there. Blocks;
// one call for one path at a time (the caller holds a lock). Errors say what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "model/download_source.h"

namespace pocketfleet {

struct DownloadOptions {
  std::string url;
  std::string path;
  std::string bearer;
  uint64_t expected_bytes = 0;  // 0: not known
  std::string expected_sha256;  // lower-case hex; empty: not known
  int connections = 1;
  int tries = 10;  // in a row without a byte
  CancelToken cancel;
};

struct DownloadProgress {
  uint64_t done_bytes = 0;
  uint64_t size_bytes = 0;     // 0: not known yet
  uint64_t fetched_bytes = 0;  // by this call, also what was fetched in vain
  std::string waiting_for;     // why nothing comes just now; empty: it comes
};

struct DownloadResult {
  uint64_t size_bytes = 0;
  uint64_t fetched_bytes = 0;
  uint64_t resumed_bytes = 0;  // that an earlier call had left
  std::string sha256;
};

struct DownloadTools {
  std::function<std::unique_ptr<DownloadSource>()> make_source = make_curl_source;
  // Waits, and returns early once the token is set.
  std::function<void(int64_t ms, const CancelToken& cancel)> pause;
  // Free bytes where `path` will lie.
  std::function<Result<uint64_t>(const std::string& path)> free_bytes;
  const Clock& clock = SystemClock::instance();
};

DownloadTools real_download_tools();

Result<DownloadResult> download(const DownloadOptions& options, const DownloadTools& tools,
                                const std::function<void(const DownloadProgress&)>& on_progress);

// SHA-256 of a file in lower-case hex; kCancelled once the token is set.
Result<std::string> sha256_file(const std::string& path, const CancelToken& cancel = {});

}  // namespace pocketfleet
