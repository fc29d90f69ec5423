// SPDX-License-Identifier: Apache-2.0
//
// What reads and writes by index.
#include <algorithm>
#include <array>
#include <utility>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Reading ----

Status LowerNamedGather(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView indices = call.Input("indices").view();
  int64_t batch = call.context.op.FindAttribute("batch_dims") != nullptr ? call.context.Int("batch_dims") : 0;
  if (batch < 0) batch += static_cast<int64_t>(indices.sizes.size());
  int64_t dim = batch;
  if (call.context.Has("axis") || call.context.op.FindAttribute("axis") != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(dim, DimOf(call, "axis", x.sizes.size()));
  }
  return StepWith(call, "aclnnGatherV3",
                  {{"self", x}, {"dim", dim}, {"index", indices}, {"batchDims", batch}, {"out", call.OutputView()}});
}

// The function takes a tensor for each dim in front; one without elements stands for a dim that is not indexed.
Status LowerIndexByTensor(NamedCall& call) {
  const std::vector<int64_t> mask = call.context.Ints("indices_mask");
  const std::span<const NamedTensor> indices = call.List("indices");
  constexpr std::array<int64_t, 1> kNone = {0};
  std::vector<StridedView> list;
  size_t next = 0;
  for (const int64_t is_indexed : mask) {
    if (is_indexed != 0) {
      list.push_back(indices[next++].view());
    } else {
      list.push_back(call.Temporary(DType::kInt64, kNone));
    }
  }
  // A tensor of indices without elements would be taken for none.
  if (CountOf(call.shape()) == 0) return {};
  return StepWith(call, "aclnnIndex",
                  {{"self", call.Input("x").view()}, {"indices", std::move(list)}, {"out", call.OutputView()}});
}

// The row of data_seq [rows, n] that equals x [n], -1 where none does.
Status LowerMapIndex(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView table = call.Input("data_seq").view();
  const int64_t width = CountOf(x.sizes);
  if (width == 0 || CountOf(table.sizes) % width != 0) {
    return call.WrongInput(call.Input("data_seq"), fmt::format("has no rows of {} elements", width),
                           "pass rows as long as x");
  }
  if (call.Has("level_index")) {
    return call.WrongInput(call.Input("level_index"), "is not possible here", "leave it out");
  }
  const int64_t rows = CountOf(table.sizes) / width;
  const std::array<int64_t, 2> table_sizes = {rows, width};
  const std::array<int64_t, 1> row_sizes = {rows};
  const std::array<int64_t, 1> one = {1};
  const StridedView out = call.OutputView().As(one);
  if (rows == 0) return call.Step(kFill, {out, Scalar::Of<int64_t>(-1)});
  // The first place that is equal, and whether it is.
  const StridedView equal = call.Temporary(DType::kBool, table_sizes);
  const StridedView all = call.Temporary(DType::kBool, row_sizes);
  const StridedView found = call.Temporary(DType::kInt32, row_sizes);
  const StridedView place = call.Temporary(DType::kInt64, one);
  const StridedView is_found = call.Temporary(DType::kInt64, one);
  const std::array<int64_t, 1> flat = {width};
  REPRISE_RETURN_IF_ERROR(
      StepWith(call, "aclnnEqTensor", {{"self", table.As(table_sizes)}, {"other", x.As(flat)}, {"out", equal}}));
  REPRISE_RETURN_IF_ERROR(StepWith(
      call, "aclnnAll", {{"self", equal}, {"dim", std::vector<int64_t>{1}}, {"keepdim", false}, {"out", all}}));
  REPRISE_RETURN_IF_ERROR(CopyTo(call, all, found));
  const std::array<int64_t, 0> scalar = {};
  REPRISE_RETURN_IF_ERROR(StepWith(
      call, "aclnnArgMax", {{"self", found}, {"dim", int64_t{0}}, {"keepdim", false}, {"out", place.As(scalar)}}));
  const StridedView hit = call.Temporary(DType::kInt32, one);
  REPRISE_RETURN_IF_ERROR(
      StepWith(call, "aclnnGatherV3", {{"self", found}, {"dim", int64_t{0}}, {"index", place}, {"out", hit}}));
  // (place + 1) * hit - 1
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {place, Scalar::Of<int64_t>(1), is_found}));
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {is_found, hit, place}));
  return call.Step(kAddScalar, {place, Scalar::Of<int64_t>(-1), out});
}

// ---- Bags ----

Status LowerNamedEmbeddingBag(NamedCall& call) {
  const std::string text = call.context.Text("mode");
  constexpr std::array<std::string_view, 3> kModes = {"sum", "mean", "max"};
  const auto* const mode = std::find(kModes.begin(), kModes.end(), text);
  if (mode == kModes.end()) {
    return call.context.WrongAttribute("mode", fmt::format("is \"{}\"", text), "use sum, mean or max");
  }
  const StridedView indices = call.Input("indices").view();
  const std::array<int64_t, 1> items = {CountOf(indices.sizes)};
  StepArgument scales = nullptr;
  if (call.Has("per_sample_weights")) scales = call.Input("per_sample_weights").view().As(items);
  StridedView offsets;
  if (call.Has("offsets")) {
    offsets = call.Input("offsets").view();
  } else {  // bags of one size
    std::vector<int64_t> begins;
    for (int64_t bag = 0; bag < indices.sizes[0]; ++bag) begins.push_back(bag * indices.sizes[1]);
    const std::array<int64_t, 1> bags = {indices.sizes[0]};
    offsets = call.Numbers(DType::kInt64, bags, begins.data());
  }
  return StepWith(call, "aclnnEmbeddingBag",
                  {{"weight", call.Input("weight").view()},
                   {"indices", indices.As(items)},
                   {"offsets", offsets},
                   {"scaleGradByFreq", call.context.Bool("scale_grad_by_freq")},
                   {"mode", static_cast<int64_t>(mode - kModes.begin())},
                   {"sparse", call.context.Bool("sparse")},
                   {"perSampleWeights", std::move(scales)},
                   {"includeLastOffset", call.Has("offsets") && call.context.Bool("include_last_offset")},
                   {"paddingIdx", call.context.Int("padding_idx")},
                   {"output", call.Output("y").view()},
                   {"offset2bag", call.Output("offset2bag").view()},
                   {"bagSize", call.Output("bag_size").view()},
                   {"maxIndices", call.Output("max_indices").view()}});
}

// ---- Writing ----

Status CheckUpdates(const NamedCall& call) {
  const std::string text = call.context.Text("reduce");
  if (text == "update") return {};
  return call.context.WrongAttribute("reduce", fmt::format("is \"{}\"", text), "use update");
}

Status LowerScatterCache(NamedCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckUpdates(call));
  return StepAsFunction(call, "aclnnInplaceScatterUpdate", "=var indices updates @axis");
}

Status LowerQuantScatter(NamedCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckUpdates(call));
  return StepAsFunction(call, "aclnnInplaceQuantScatterV2",
                        "=var indices updates quant_scales quant_zero_points @axis @quant_axis %1 @round_mode");
}

Status LowerScatterElements(NamedCall& call) {
  const std::string text = call.context.Text("reduction");
  constexpr std::array<std::string_view, 3> kWords = {"none", "add", "mul"};
  const auto* const word = std::find(kWords.begin(), kWords.end(), text);
  if (word == kWords.end()) {
    return call.context.WrongAttribute("reduction", fmt::format("is \"{}\"", text), "use none, add or mul");
  }
  return StepWith(call, "aclnnScatter",
                  {{"self", call.Input("data").view()},
                   {"dim", call.context.Int("axis")},
                   {"index", call.Input("indices").view()},
                   {"src", call.Input("updates").view()},
                   {"reduce", static_cast<int64_t>(word - kWords.begin())},
                   {"out", call.OutputView()}});
}

// alpha lies on the device.
Status LowerIndexAdd(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView var, call.InPlace("var"));
  StridedView updates = call.Input("updates").view();
  if (call.Has("alpha")) {
    constexpr std::array<int64_t, 0> kNumber = {};
    const StridedView scaled = call.Temporary(updates.dtype, updates.sizes);
    REPRISE_RETURN_IF_ERROR(
        call.Step(BinaryRoutine(kCodeMul), {updates, call.Input("alpha").view().As(kNumber), scaled}));
    updates = scaled;
  }
  return StepWith(call, "aclnnIndexAdd",
                  {{"self", var},
                   {"dim", call.context.Int("axis")},
                   {"index", call.Input("indices").view()},
                   {"source", updates},
                   {"alpha", Scalar::Of<int64_t>(1)},
                   {"out", var}});
}

constexpr NamedOp kIndexingRows[] = {
    {"EmbeddingBag", {}, LowerNamedEmbeddingBag},
    As("EmbeddingDenseGrad", {}, "aclnnEmbeddingDenseBackward",
       "grad indices @num_weights @padding_idx @scale_grad_by_freq ="),
    {"Gather", {}, LowerNamedGather},
    As("GatherElements", {}, "aclnnGather", "x @dim index ="),
    MovesBits({"GatherV2", {}, LowerNamedGather}),
    {"GatherV2D", {}, LowerNamedGather},
    {"IndexByTensor", {}, LowerIndexByTensor},
    {"InplaceIndexAdd", {}, LowerIndexAdd},
    {"MapIndex", {}, LowerMapIndex},
    {"QuantUpdateScatter", {}, LowerQuantScatter},
    {"Scatter", {}, LowerScatterCache},
    {"ScatterElements", {}, LowerScatterElements},
    As("ScatterList", {}, "aclnnScatterList", "=var indice updates mask @reduce @axis"),
    As("ScatterNdUpdate", {}, "aclnnScatterNdUpdate", "=var indices updates"),
    As("ScatterPaKvCache", {}, "aclnnScatterPaKvCache",
       "key =key_cache slot_mapping value =value_cache compress_lens compress_seq_offset seq_lens @cache_mode "
       "@scatter_mode @strides @offsets"),
};

}  // namespace

std::span<const NamedOp> IndexingRows() { return kIndexingRows; }

}  // namespace reprise::ops::named
