#include "kernels/pack.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace pocketfleet::kernels {
namespace {

constexpr ggml_type kTypes[] = {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};

std::vector<std::byte> random_bytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(count);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(Pack, KeepsEveryBitOfEveryBlock) {
  for (const ggml_type type : kTypes) {
    for (const int64_t rows : {1, 7, 8, 9, 16, 17, 40}) {
      for (const int64_t columns : {256, 768}) {
        SCOPED_TRACE(std::string(ggml_type_name(type)) + " " + std::to_string(rows) + " x " + std::to_string(columns));
        const Layout layout = layout_for(type, columns, rows);
        ASSERT_NE(layout, Layout::kNone);
        const size_t row_bytes = ggml_row_size(type, columns);
        // Any bytes will do: packing looks at no meaning.
        const auto file = random_bytes(row_bytes * static_cast<size_t>(rows), static_cast<unsigned>(rows * columns));
        std::vector<std::byte> packed(packed_bytes(layout, columns, rows), std::byte{0xee});
        const int64_t panels = (rows + kUnitRows - 1) / kUnitRows * 2;
        for (int64_t panel = 0; panel < panels; ++panel) pack_panel(layout, file.data(), columns, rows, panel, packed.data());
        std::vector<std::byte> back(row_bytes);
        for (int64_t row = 0; row < rows; ++row) {
          unpack_row(layout, packed.data(), columns, row, back.data());
          EXPECT_EQ(std::memcmp(back.data(), file.data() + static_cast<size_t>(row) * row_bytes, row_bytes), 0) << "row " << row;
        }
      }
    }
  }
}

TEST(Pack, TakesNoMoreThanThreePercentAboveTheFile) {
  for (const ggml_type type : kTypes) {
    const Layout layout = layout_for(type, 1024, 3584);
    const double file = static_cast<double>(ggml_row_size(type, 1024)) * 3584;
    EXPECT_GE(static_cast<double>(packed_bytes(layout, 1024, 3584)), file) << ggml_type_name(type);
    EXPECT_LE(static_cast<double>(packed_bytes(layout, 1024, 3584)), file * 1.03) << ggml_type_name(type);
  }
}

TEST(Pack, ShapesMatchTheFileFormatsBlocks) {
  for (const ggml_type type : kTypes) {
    const LayoutShape shape = shape_of(layout_for(type, 256, 8));
    EXPECT_EQ(shape.file_block_bytes, ggml_type_size(type)) << ggml_type_name(type);
    EXPECT_EQ(shape.block_columns, ggml_blck_size(type)) << ggml_type_name(type);
  }
}

TEST(Pack, LeavesOtherTypesAndRaggedRowsAlone) {
  EXPECT_EQ(layout_for(GGML_TYPE_F16, 256, 8), Layout::kNone);
  EXPECT_EQ(layout_for(GGML_TYPE_IQ4_XS, 256, 8), Layout::kNone);
  EXPECT_EQ(layout_for(GGML_TYPE_Q4_K, 128, 8), Layout::kNone);
  EXPECT_EQ(layout_for(GGML_TYPE_Q4_0, 48, 8), Layout::kNone);
  EXPECT_EQ(layout_for(GGML_TYPE_Q4_0, 0, 8), Layout::kNone);
}

}  // namespace
}  // namespace pocketfleet::kernels
