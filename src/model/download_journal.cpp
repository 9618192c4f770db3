#include "model/download_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "model/sha256.h"

namespace pocketfleet {

namespace {

constexpr std::string_view kFirstLine = "pocketfleet-download 1";
constexpr uint64_t kLargest = uint64_t{1} << 50;
constexpr uint64_t kLeastChunk = 1u << 12;
constexpr uint64_t kMostChunks = 1u << 22;
constexpr size_t kLongestValidator = 1024;

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "key value" gives the value.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
  if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') return std::nullopt;
  return line.substr(key.size() + 1);
}

tl::unexpected<Error> wrong(std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("the download's journal {}", what));
}

}  // namespace

uint64_t DownloadJournal::chunks() const {
  return identity_.size_bytes / identity_.chunk_bytes + (identity_.size_bytes % identity_.chunk_bytes != 0 ? 1 : 0);
}

ByteRange DownloadJournal::range_of(uint64_t index) const {
  const uint64_t begin = index * identity_.chunk_bytes;
  return {begin, std::min(begin + identity_.chunk_bytes, identity_.size_bytes)};
}

uint64_t DownloadJournal::done_bytes() const {
  uint64_t sum = 0;
  for (const auto& [index, digest] : done_) sum += range_of(index).size();
  return sum;
}

std::vector<ByteRange> DownloadJournal::missing(uint64_t most) const {
  std::vector<ByteRange> ranges;
  for (uint64_t index = 0; index < chunks(); ++index) {
    if (has(index)) continue;
    const ByteRange range = range_of(index);
    if (!ranges.empty() && ranges.back().end == range.begin && ranges.back().size() + range.size() <= most) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

std::string DownloadJournal::head() const {
  return fmt::format("{}\nsize {}\nchunk {}\nvalidator {}\n", kFirstLine, identity_.size_bytes, identity_.chunk_bytes,
                     identity_.validator.empty() ? "-" : identity_.validator);
}

std::string DownloadJournal::chunk_line(uint64_t index) const {
  return fmt::format("done {} {}\n", index, digest(index));
}

Result<DownloadJournal> DownloadJournal::parse(std::string_view text) {
  // The last line counts only with its end.
  const auto next_line = [&]() -> std::optional<std::string_view> {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    return line;
  };
  if (next_line() != kFirstLine) return wrong("is not one, or of another version");
  DownloadIdentity identity;
  const auto size_line = next_line();
  const auto chunk_line = next_line();
  const auto validator_line = next_line();
  if (!size_line || !chunk_line || !validator_line) return wrong("is cut short");
  const auto size = number(value_of(*size_line, "size").value_or(""));
  const auto chunk = number(value_of(*chunk_line, "chunk").value_or(""));
  const auto validator = value_of(*validator_line, "validator");
  if (!size || *size > kLargest) return wrong("tells no size");
  if (!chunk || *chunk < kLeastChunk || *chunk > kLargest) return wrong("tells no size of chunks");
  if (!validator || validator->size() > kLongestValidator) return wrong("tells no validator");
  identity.size_bytes = *size;
  identity.chunk_bytes = *chunk;
  if (*validator != "-") identity.validator = *validator;
  DownloadJournal journal(identity);
  if (journal.chunks() > kMostChunks) return wrong("tells of too many chunks");
  while (const auto line = next_line()) {
    const auto rest = value_of(*line, "done");
    const size_t space = rest ? rest->find(' ') : std::string_view::npos;
    const auto index = space == std::string_view::npos ? std::nullopt : number(rest->substr(0, space));
    if (!index || *index >= journal.chunks() || !is_sha256(rest->substr(space + 1))) return wrong("holds a line that is none");
    journal.add(*index, std::string(rest->substr(space + 1)));
  }
  return journal;
}

}  // namespace pocketfleet
