// SPDX-License-Identifier: Apache-2.0
//
// What tests/ops cannot see: the result does not depend on how the work is cut.
#include "kernels/indexed.h"

#include <limits>

#include "kernels/remap.h"
#include "kernels/test_tensor.h"

namespace reprise::kernels {
namespace {

using testing::Pick;
using testing::Rng;

constexpr int64_t kRows = 70;  // enough to be cut by place
constexpr int64_t kColumns = 300;
constexpr int64_t kItems = 90;

// Calls run(range) for ranges that cover [0, units).
template <class Run>
void InPieces(Rng& rng, int64_t units, Run&& run) {
  for (int64_t begin = 0; begin < units;) {
    const int64_t end = std::min(units, begin + Pick(rng, 1, 1 + units / 3));
    run(Range{begin, end});
    begin = end;
  }
}

std::vector<float> Numbers(Rng& rng, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = static_cast<float>(Pick(rng, -1000, 1000)) / 7;
  return values;
}

// self[index[i][j]][j] or self[index[i]][j] for value[i][j]; some indices are out of range, many are doubles.
class IndexedTest : public ::testing::TestWithParam<bool> {
 protected:
  IndexedTest() {
    const bool is_by_element = GetParam();
    index_.resize(static_cast<size_t>(kItems * (is_by_element ? kColumns : 1)));
    for (int64_t& index : index_) index = Pick(rng_, -kRows - 2, kRows + 1);
    index_[5] = std::numeric_limits<int64_t>::min();
    index_[6] = std::numeric_limits<int64_t>::max();
    loop_.index_count = 1;
    loop_.indices[0].size = kRows;
    loop_.indices[0].step = kColumns * 4;
    loop_.indices[0].is_wide = true;
    loop_.AddDim(kItems, kColumns * 4, 0);
    loop_.indices[0].strides[0] = is_by_element ? kColumns * 8 : 8;
    loop_.AddDim(kColumns, 4, 4);
    loop_.indices[0].strides[1] = is_by_element ? 8 : 0;
  }

  Rng rng_{7};
  std::vector<int64_t> index_;
  IndexLoop loop_;
};

TEST_P(IndexedTest, CutsOfGathersMakeNoDifference) {
  loop_.Finish(false);
  const std::vector<float> self = Numbers(rng_, kRows * kColumns);
  std::vector<float> whole(kItems * kColumns, -1);
  std::vector<float> pieces = whole;
  const void* indices[] = {index_.data()};
  const auto gather = [&](std::vector<float>& out, Range range) {
    GatherIndexed(loop_, reinterpret_cast<const char*>(self.data()), indices, DType::kFloat,
                  reinterpret_cast<char*>(out.data()), range);
  };
  gather(whole, {0, loop_.units()});
  InPieces(rng_, loop_.units(), [&](Range range) { gather(pieces, range); });
  EXPECT_EQ(whole, pieces);
  const int64_t first = index_[0];
  const bool is_inside = first >= -kRows && first < kRows;
  EXPECT_EQ(whole[0], is_inside ? self[static_cast<size_t>((first + kRows) % kRows * kColumns)] : 0);
}

TEST_P(IndexedTest, CutsOfScattersMakeNoDifference) {
  loop_.Finish(true);
  EXPECT_EQ(loop_.by_places, !GetParam());
  IndexLoop in_one_go = loop_;
  in_one_go.by_places = false;
  in_one_go.split = -1;
  const std::vector<float> value = Numbers(rng_, kItems * kColumns);
  const void* indices[] = {index_.data()};
  for (ScatterOp op : {ScatterOp::kReplace, ScatterOp::kAdd, ScatterOp::kMultiply}) {
    std::vector<float> whole(kRows * kColumns, 1);
    std::vector<float> pieces = whole;
    std::vector<float> at_once = whole;
    const auto scatter = [&](const IndexLoop& loop, std::vector<float>& self, Range range) {
      ScatterIndexed(loop, op, reinterpret_cast<char*>(self.data()), DType::kFloat, indices,
                     reinterpret_cast<const char*>(value.data()), DType::kFloat, nullptr, range);
    };
    scatter(loop_, whole, {0, loop_.units()});
    InPieces(rng_, loop_.units(), [&](Range range) { scatter(loop_, pieces, range); });
    scatter(in_one_go, at_once, {0, 1});
    EXPECT_EQ(whole, pieces);
    EXPECT_EQ(whole, at_once);
    EXPECT_NE(whole, std::vector<float>(kRows * kColumns, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(ByRowAndByElement, IndexedTest, ::testing::Bool());

TEST(EmbeddingGradient, CutsMakeNoDifference) {
  Rng rng(8);
  std::vector<int64_t> index(kItems);
  for (int64_t& i : index) i = Pick(rng, -1, kRows);
  std::vector<float> grad = Numbers(rng, kItems * kColumns);
  const TensorRef grad_ref = MakeContiguous(grad.data(), DType::kFloat, {kItems, kColumns});
  const auto run = [&](std::vector<float>& out, std::vector<Range> ranges) {
    std::vector<int64_t> heads(kRows);
    std::vector<int64_t> links(kItems);
    std::vector<double> line(kColumns);
    for (Range range : ranges) {
      EmbeddingGradient(grad_ref, index.data(), 8, true, kItems, 3, true,
                        MakeContiguous(out.data(), DType::kFloat, {kRows, kColumns}), heads.data(), links.data(),
                        line.data(), range);
    }
  };
  std::vector<float> whole(kRows * kColumns, -1);
  std::vector<float> pieces = whole;
  run(whole, {{0, kRows}});
  std::vector<Range> ranges;
  InPieces(rng, kRows, [&](Range range) { ranges.push_back(range); });
  run(pieces, ranges);
  EXPECT_EQ(whole, pieces);
  EXPECT_EQ(whole[3 * kColumns], 0);
}

TEST(Remap, CutsMakeNoDifference) {
  Rng rng(9);
  std::vector<float> self = Numbers(rng, 6 * 7 * 5);
  Remap remap;
  remap.dtype = DType::kFloat;
  remap.dims = {{6, 9 * 8 * 4, 35 * 4, {{0, 6, 5, -1, false}}},
                {9, 8 * 4, 5 * 4, {{0, 1, 0, 1, true}, {1, 8, 0, 1, false}, {8, 9, 6, 0, false}}},
                {8, 4, 4, {{0, 2, 2, -1, false}, {2, 7, 0, 1, false}, {7, 8, 0, 1, true}}}};
  remap.Finish();
  std::vector<float> whole(6 * 9 * 8, -1);
  std::vector<float> pieces = whole;
  const auto run = [&](std::vector<float>& out, Range range) {
    RunRemap(remap, reinterpret_cast<const char*>(self.data()), reinterpret_cast<char*>(out.data()), range);
  };
  run(whole, {0, 6 * 9 * 8});
  InPieces(rng, 6 * 9 * 8, [&](Range range) { run(pieces, range); });
  EXPECT_EQ(whole, pieces);
  EXPECT_EQ(whole[8], self[5 * 35 + 2]);
}

}  // namespace
}  // namespace reprise::kernels
