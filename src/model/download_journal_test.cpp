#include "model/download_journal.h"

#include <gtest/gtest.h>

namespace pocketfleet {
namespace {

const std::string kDigest(64, 'a');

DownloadJournal journal_of(uint64_t size, uint64_t chunk, std::initializer_list<uint64_t> done) {
  DownloadJournal journal({size, "\"abc\"", chunk});
  for (const uint64_t index : done) journal.add(index, kDigest);
  return journal;
}

std::string text_of(const DownloadJournal& journal) {
  std::string text = journal.head();
  for (uint64_t index = 0; index < journal.chunks(); ++index) {
    if (journal.has(index)) text += journal.chunk_line(index);
  }
  return text;
}

TEST(DownloadJournal, WhatIsWrittenIsReadBack) {
  const DownloadJournal journal = journal_of(100'000, 4096, {0, 3, 24});
  const auto read = DownloadJournal::parse(text_of(journal));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->identity(), journal.identity());
  EXPECT_TRUE(read->has(3));
  EXPECT_FALSE(read->has(1));
  EXPECT_EQ(read->digest(24), kDigest);
  EXPECT_EQ(read->done_bytes(), 2 * 4096u + (100'000 - 24 * 4096));
  EXPECT_EQ(DownloadJournal::parse(DownloadJournal({5, "", 4096}).head())->identity().validator, "");
}

TEST(DownloadJournal, WhereverItIsCutTheWholeLinesCount) {
  const DownloadJournal journal = journal_of(100'000, 4096, {0, 1, 2});
  const std::string text = text_of(journal);
  const size_t head = journal.head().size();
  for (size_t length = head; length <= text.size(); ++length) {
    const auto read = DownloadJournal::parse(std::string_view(text).substr(0, length));
    ASSERT_TRUE(read) << length;
    EXPECT_EQ(read->done_bytes(), (length - head) / journal.chunk_line(0).size() * 4096);
  }
  for (size_t length = 0; length < head; ++length) EXPECT_FALSE(DownloadJournal::parse(text.substr(0, length))) << length;
}

TEST(DownloadJournal, MissingNeighboursAreFetchedTogetherUpToABound) {
  EXPECT_EQ(journal_of(20'000, 4096, {1}).missing(1 << 20), (std::vector<ByteRange>{{0, 4096}, {8192, 20'000}}));
  EXPECT_EQ(journal_of(20'000, 4096, {}).missing(8192), (std::vector<ByteRange>{{0, 8192}, {8192, 16'384}, {16'384, 20'000}}));
  EXPECT_TRUE(journal_of(8192, 4096, {0, 1}).complete());
  EXPECT_TRUE(journal_of(0, 4096, {}).complete());
  EXPECT_TRUE(journal_of(8192, 4096, {0, 1}).missing(1 << 20).empty());
}

TEST(DownloadJournal, WhatIsNoJournalIsRefused) {
  const std::string good = journal_of(20'000, 4096, {}).head();
  for (const std::string& text : {std::string(), std::string("pocketfleet-download 2\n"),
                                  std::string("pocketfleet-download 1\nsize x\nchunk 4096\nvalidator -\n"),
                                  std::string("pocketfleet-download 1\nsize 5\nchunk 0\nvalidator -\n"),
                                  std::string("pocketfleet-download 1\nsize 1125899906842624\nchunk 4096\nvalidator -\n"),
                                  good + "done 99 " + kDigest + "\n", good + "done 0 abc\n", good + "nonsense\n",
                                  good + "done 18446744073709551616 " + kDigest + "\n"}) {
    EXPECT_FALSE(DownloadJournal::parse(text)) << text;
  }
}

}  // namespace
}  // namespace pocketfleet
