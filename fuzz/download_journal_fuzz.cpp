// Journals of downloads: whatever the file holds, it is read within its bounds or refused, and what is read is written the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/download_journal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pocketfleet;
  const auto journal = DownloadJournal::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!journal) return 0;
  std::string text = journal->head();
  uint64_t done = 0;
  // Few chunks are looked at one by one, since a journal may tell of millions.
  for (uint64_t index = 0; index < journal->chunks() && index < 4096; ++index) {
    if (!journal->has(index)) continue;
    text += journal->chunk_line(index);
    done += journal->range_of(index).size();
  }
  if (done > journal->identity().size_bytes || journal->done_bytes() > journal->identity().size_bytes) std::abort();
  const auto again = DownloadJournal::parse(text);
  if (!again || again->identity() != journal->identity()) std::abort();
  return 0;
}
