// SPDX-License-Identifier: Apache-2.0
//
// Slices by sizes, and blocks of dims that become channels or batches.
#include <algorithm>
#include <array>
#include <numeric>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

Status LowerSlice(NamedCall& call) {
  if (CountOf(call.shape()) == 0) return {};
  StridedView block = call.Input("x").view();
  const std::vector<int64_t> offsets = *call.context.Numbers("offsets");
  for (size_t d = 0; d < offsets.size(); ++d) block = Narrowed(std::move(block), d, offsets[d], call.shape()[d]);
  return call.Step(kCopy, {block, call.OutputView()});
}

Status LowerEye(NamedCall& call) {
  const StridedView out = call.OutputView();
  const std::array<int64_t, 2> sizes = {out.sizes[out.sizes.size() - 2], out.sizes[out.sizes.size() - 1]};
  if (out.sizes.size() == 2) return StepOf(call, "aclnnEye", {sizes[0], sizes[1], out});
  const StridedView matrix = call.Temporary(out.dtype, sizes);
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnEye", {sizes[0], sizes[1], matrix}));
  return call.Step(kSpread, {out, matrix});
}

Status LowerIdentityEach(NamedCall& call) {
  const std::span<const NamedTensor> outputs = call.OutputList("y");
  for (size_t i = 0; i < outputs.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(call.Step(kCopy, {call.List("x")[i].view(), outputs[i].view()}));
  }
  return {};
}

// ---- Images ----

// The elements of x as six dims, in another order. Inference has checked sizes and words.
Status LowerDepthToSpace(NamedCall& call) {
  const std::vector<int64_t>& in = call.Input("x").dims;
  const int64_t block = call.context.Int("block_size");
  const bool is_crd = call.context.Text("mode") == "CRD";
  const bool is_last = call.context.Text("data_format") == "NHWC";
  const int64_t channels = (is_last ? in[3] : in[1]) / (block * block);
  std::vector<int64_t> sizes;
  std::vector<int64_t> order;
  if (is_last) {
    sizes = is_crd ? std::vector{in[0], in[1], in[2], channels, block, block}
                   : std::vector{in[0], in[1], in[2], block, block, channels};
    order = is_crd ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 1, 3, 2, 4, 5};
  } else {
    sizes = is_crd ? std::vector{in[0], channels, block, block, in[2], in[3]}
                   : std::vector{in[0], block, block, channels, in[2], in[3]};
    order = is_crd ? std::vector<int64_t>{0, 1, 4, 2, 5, 3} : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
  }
  std::vector<int64_t> out;
  for (const int64_t dim : order) out.push_back(sizes[static_cast<size_t>(dim)]);
  return call.Step(kPermute, {call.Input("x").view().As(sizes), std::move(order), call.OutputView().As(out)});
}

Status LowerSpaceToDepth(NamedCall& call) {
  const std::vector<int64_t>& in = call.Input("x").dims;
  const int64_t block = call.context.Int("block_size");
  const bool is_last = call.context.Text("data_format") == "NHWC";
  const std::vector<int64_t> sizes = is_last ? std::vector{in[0], in[1] / block, block, in[2] / block, block, in[3]}
                                             : std::vector{in[0], in[1], in[2] / block, block, in[3] / block, block};
  std::vector<int64_t> order =
      is_last ? std::vector<int64_t>{0, 1, 3, 2, 4, 5} : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  std::vector<int64_t> out;
  for (const int64_t dim : order) out.push_back(sizes[static_cast<size_t>(dim)]);
  return call.Step(kPermute, {call.Input("x").view().As(sizes), std::move(order), call.OutputView().As(out)});
}

// ---- Batches ----

// A tensor [batch, dims, rest] with blocks, as the dims that are permuted: block edges, batch, dims, rest as one.
struct BlockSizes {
  std::vector<int64_t> edges;
  std::vector<int64_t> borders;  // pairs
  std::vector<int64_t> dims;     // of the tensor whose batch is larger
  int64_t batch = 0;             // of the other one
  int64_t rest = 1;
};

StatusOr<BlockSizes> BlockSizesOf(const NamedCall& call, const std::vector<int64_t>& blocked,
                                  std::string_view borders) {
  BlockSizes out;
  out.edges = *call.context.Numbers("block_shape");
  out.borders = *call.context.Numbers(borders);
  const size_t count = out.edges.size();
  if (2 * count + 2 > static_cast<size_t>(kernels::kMaxRank)) {
    return call.context.Wrong("block_shape", fmt::format("has {} numbers", count),
                              fmt::format("name {} dims at most", (kernels::kMaxRank - 2) / 2));
  }
  const int64_t blocks = std::accumulate(out.edges.begin(), out.edges.end(), int64_t{1}, std::multiplies<>());
  out.batch = blocked[0] / blocks;
  out.dims.assign(blocked.begin() + 1, blocked.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  for (size_t d = 1 + count; d < blocked.size(); ++d) out.rest *= blocked[d];
  return out;
}

// [edges, batch, dims, rest]
std::vector<int64_t> BlocksFirst(const BlockSizes& of) {
  std::vector<int64_t> sizes = of.edges;
  sizes.push_back(of.batch);
  sizes.insert(sizes.end(), of.dims.begin(), of.dims.end());
  sizes.push_back(of.rest);
  return sizes;
}

// [batch, dim, edge, dim, edge, .., rest]
std::vector<int64_t> BlocksInside(const BlockSizes& of) {
  std::vector<int64_t> sizes = {of.batch};
  for (size_t d = 0; d < of.dims.size(); ++d) sizes.insert(sizes.end(), {of.dims[d], of.edges[d]});
  sizes.push_back(of.rest);
  return sizes;
}

// [batch, dim * edge, .., rest]
std::vector<int64_t> Joined(const BlockSizes& of) {
  std::vector<int64_t> sizes = {of.batch};
  for (size_t d = 0; d < of.dims.size(); ++d) sizes.push_back(of.dims[d] * of.edges[d]);
  sizes.push_back(of.rest);
  return sizes;
}

// The dims of `whole` [batch, dims, rest] without their borders.
StridedView WithoutBorders(StridedView whole, const std::vector<int64_t>& borders) {
  for (size_t d = 0; 2 * d < borders.size(); ++d) {
    const int64_t size = whole.sizes[1 + d] - borders[2 * d] - borders[2 * d + 1];
    whole = Narrowed(std::move(whole), 1 + d, borders[2 * d], size);
  }
  return whole;
}

bool HasBorders(const BlockSizes& of) {
  return std::any_of(of.borders.begin(), of.borders.end(), [](int64_t border) { return border != 0; });
}

Status LowerBatchToSpace(NamedCall& call) {
  if (CountOf(call.shape()) == 0) return {};
  REPRISE_ASSIGN_OR_RETURN(const BlockSizes of, BlockSizesOf(call, call.Input("x").dims, "crops"));
  const auto count = static_cast<int64_t>(of.edges.size());
  std::vector<int64_t> order = {count};
  for (int64_t d = 0; d < count; ++d) order.insert(order.end(), {count + 1 + d, d});
  order.push_back(2 * count + 1);
  const StridedView out = call.OutputView();
  const StridedView whole = HasBorders(of) ? call.Temporary(out.dtype, Joined(of)) : out;
  REPRISE_RETURN_IF_ERROR(
      call.Step(kPermute, {call.Input("x").view().As(BlocksFirst(of)), std::move(order), whole.As(BlocksInside(of))}));
  if (!HasBorders(of)) return {};
  const StridedView inner = WithoutBorders(whole, of.borders);
  return call.Step(kCopy, {inner, out.As(inner.sizes)});
}

Status LowerSpaceToBatch(NamedCall& call) {
  if (CountOf(call.shape()) == 0) return {};
  REPRISE_ASSIGN_OR_RETURN(const BlockSizes of, BlockSizesOf(call, call.shape(), "paddings"));
  const auto count = static_cast<int64_t>(of.edges.size());
  std::vector<int64_t> order;
  for (int64_t d = 0; d < count; ++d) order.push_back(2 + 2 * d);
  order.push_back(0);
  for (int64_t d = 0; d < count; ++d) order.push_back(1 + 2 * d);
  order.push_back(2 * count + 1);
  StridedView whole = call.Input("x").view();
  if (HasBorders(of)) {
    const StridedView x = whole;
    whole = call.Temporary(x.dtype, Joined(of));
    const StridedView inner = WithoutBorders(whole, of.borders);
    REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {whole}));
    if (CountOf(inner.sizes) != 0) REPRISE_RETURN_IF_ERROR(call.Step(kSpread, {inner, x.As(inner.sizes)}));
  }
  return call.Step(kPermute, {whole.As(BlocksInside(of)), std::move(order), call.OutputView().As(BlocksFirst(of))});
}

constexpr NamedOp kBlockRows[] = {
    {"BatchToSpaceND", kAllTypes, LowerBatchToSpace},
    {"BatchToSpaceNDD", kAllTypes, LowerBatchToSpace},
    {"DepthToSpace", kAllTypes, LowerDepthToSpace},
    {"Eye", {}, LowerEye},
    {"IdentityN", kAllTypes, LowerIdentityEach},
    {"Slice", kAllTypes, LowerSlice},
    {"SliceD", kAllTypes, LowerSlice},
    {"SpaceToBatchND", kAllTypes, LowerSpaceToBatch},
    {"SpaceToBatchNDD", kAllTypes, LowerSpaceToBatch},
    {"SpaceToDepth", kAllTypes, LowerSpaceToDepth},
};

}  // namespace

std::span<const NamedOp> BlockRows() { return kBlockRows; }

}  // namespace reprise::ops::named
