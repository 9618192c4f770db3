// What of a download lies on the disk: a small text file beside NAME.partial, one line for each chunk that was written, with its
// digest (docs/formats/download-journal.md). Pure: bytes in, values out; a line that was cut off while it was written
// counts as not there. Errors: kInvalidArgument for what is no journal.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pocketfleet {

// Which bytes a download is of. `validator`: the server's strong ETag, or empty when it gave none.
struct DownloadIdentity {
  uint64_t size_bytes = 0;
  std::string validator;
  uint64_t chunk_bytes = 8u << 20;
  bool operator==(const DownloadIdentity&) const = default;
};

struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;  // behind the last byte
  uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

class DownloadJournal {
 public:
  explicit DownloadJournal(DownloadIdentity identity) : identity_(std::move(identity)) {}

  static Result<DownloadJournal> parse(std::string_view text);
  // The first lines of the file; the rest are chunk_line()s in any order.
  std::string head() const;
  std::string chunk_line(uint64_t index) const;

  const DownloadIdentity& identity() const { return identity_; }
  uint64_t chunks() const;
  ByteRange range_of(uint64_t index) const;
  bool has(uint64_t index) const { return done_.contains(index); }
  // Lower-case hex; only of chunks that are there.
  const std::string& digest(uint64_t index) const { return done_.at(index); }
  void add(uint64_t index, std::string sha256) { done_[index] = std::move(sha256); }
  void remove(uint64_t index) { done_.erase(index); }
  uint64_t done_bytes() const;
  bool complete() const { return done_.size() == chunks(); }
  // What is missing, neighbours together, from the beginning; at most `most` bytes each.
  std::vector<ByteRange> missing(uint64_t most) const;

 private:
  DownloadIdentity identity_;
  std::map<uint64_t, std::string> done_;
};

}  // namespace pocketfleet
