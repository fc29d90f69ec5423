// SPDX-License-Identifier: Apache-2.0
//
// Rules of operators whose result follows from values: sizes, ranges, fills; and of drawn numbers.
#include <cmath>

#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

// What has the shape as its value: the first input that the row marks, else the first attribute.
std::string_view SizesName(const InferContext& call) {
  for (const Operand& input : call.op.inputs) {
    if (input.is_value()) return input.name;
  }
  return call.op.attributes[0].name;
}

Status SetFromSizes(InferContext& call) {
  const std::string_view name = SizesName(call);
  const std::vector<Dim>* const sizes = call.Value(name);
  if (sizes == nullptr) return call.SetRest(UnknownSizes(call.In(name)));
  for (const Dim& size : *sizes) {
    if (size.is_number() && size.number() < 0) {
      return call.Wrong(name, fmt::format("is {}, which has a negative size", TextOf(*sizes)),
                        "pass sizes of 0 or more");
    }
  }
  return call.SetRest(Sizes(*sizes));
}

}  // namespace

Status AttributeSizes(InferContext& call) {  // rule
  const std::vector<int64_t> sizes = call.Ints(call.op.attributes[0].name);
  for (const int64_t size : sizes) {
    if (size >= 0) continue;
    return call.WrongAttribute(call.op.attributes[0].name, "is " + TextOf(sizes), "pass sizes of 0 or more");
  }
  return call.SetRest(opdef::Shape::Of(sizes));
}

Status Empty(InferContext& call) {  // rule
  return SetFromSizes(call);
}

Status Fill(InferContext& call) {  // rule
  const InferTensor& value = call.In("value");
  if (!MayBeOneNumber(value.shape)) {
    return call.WrongInput(value, fmt::format("has the shape {}", value.shape.text()), "pass one number");
  }
  REPRISE_RETURN_IF_ERROR(SetFromSizes(call));
  const opdef::Shape& shape = call.Out(0).shape;
  constexpr int64_t kMost = 64;
  if (value.value.has_value() && value.value->size() == 1 && shape.has_rank() && shape.rank() == 1 &&
      shape[0].is_number() && shape[0].number() <= kMost) {
    call.Out(0).value = std::vector<Dim>(static_cast<size_t>(shape[0].number()), (*value.value)[0]);
  }
  return {};
}

// The value is the compiler's: it knows shape and type.
Status Constant(InferContext& call) {  // rule
  call.Out(0).dtype = call.Out(0).wanted;
  return call.Open();
}

// The sizes of a tensor are known as far as they are.
Status SizesOf(InferContext& call) {  // rule
  const opdef::Shape& x = call.First().shape;
  if (!x.has_rank()) return call.SetRest(opdef::Shape::Unknown(1));
  call.Out(0).value = x.dims();
  return call.SetRest(opdef::Shape{static_cast<int64_t>(x.rank())});
}

Status SizesOfEach(InferContext& call) {  // rule
  const std::span<const InferTensor> tensors = call.List("x");
  for (size_t i = 0; i < tensors.size(); ++i) {
    InferResult& sizes = call.outputs[0][i];
    const opdef::Shape& shape = tensors[i].shape;
    if (shape.has_rank()) sizes.value = shape.dims();
    const Dim rank = shape.has_rank() ? Dim(static_cast<int64_t>(shape.rank())) : Dim::Unknown();
    REPRISE_RETURN_IF_ERROR(call.Set(sizes, opdef::Shape{rank}));
  }
  return {};
}

Status RankOf(InferContext& call) {  // rule
  const opdef::Shape& x = call.First().shape;
  if (x.has_rank()) call.Out(0).value = {static_cast<int64_t>(x.rank())};
  return call.SetRest({});
}

Status CountOf(InferContext& call) {  // rule
  const opdef::Dim elements = call.First().shape.elements();
  if (!elements.is_unknown()) call.Out(0).value = {elements};
  return call.SetRest({});
}

Status LinSpace(InferContext& call) {  // rule
  REPRISE_ASSIGN_OR_RETURN(const Dim count, call.ValueInt("num"));
  if (count.is_number() && count.number() < 0) {
    return call.WrongInput(call.In("num"), fmt::format("is {}", count.text()), "ask for 0 numbers or more");
  }
  return call.SetRest(opdef::Shape{count});
}

namespace {

// How many numbers lie between two bounds of integers.
Dim CountBetween(const Dim& start, const Dim& limit, int64_t delta) {
  const Dim span = delta > 0 ? limit - start : start - limit;
  const Dim count = CeilDiv(span, delta > 0 ? delta : -delta);
  if (count.is_number()) return std::max<int64_t>(0, count.number());
  const std::optional<int64_t> least = span.least();
  return least.has_value() && *least >= 0 ? count : Dim::Unknown();
}

}  // namespace

Status Range(InferContext& call) {  // rule
  auto type = static_cast<kernels::DType>(call.First().dtype);
  double reals[3] = {};
  bool has_reals = true;
  for (size_t i = 0; i < 3; ++i) {
    const InferTensor& input = call.inputs[i][0];
    type = kernels::Promote(type, static_cast<kernels::DType>(input.dtype));
    if (input.reals.has_value() && input.reals->size() == 1) {
      reals[i] = (*input.reals)[0];
    } else if (input.value.has_value() && input.value->size() == 1 && (*input.value)[0].is_number()) {
      reals[i] = static_cast<double>((*input.value)[0].number());
    } else {
      has_reals = false;
    }
  }
  call.Out(0).dtype = static_cast<int32_t>(type);
  const bool is_integer = kernels::IsKnown(type) && kernels::CategoryOf(type) < kernels::Category::kFloating;
  if (has_reals && reals[2] == 0) return call.WrongInput(call.In("delta"), "is 0", "step by another number");
  if (is_integer) {
    REPRISE_ASSIGN_OR_RETURN(const Dim start, call.ValueInt("start"));
    REPRISE_ASSIGN_OR_RETURN(const Dim limit, call.ValueInt("limit"));
    REPRISE_ASSIGN_OR_RETURN(const std::optional<int64_t> delta, call.Number("delta"));
    if (!delta.has_value()) return call.SetRest(opdef::Shape::Unknown(1));
    return call.SetRest(opdef::Shape{CountBetween(start, limit, *delta)});
  }
  if (!has_reals) return call.SetRest(opdef::Shape::Unknown(1));
  const double count = std::ceil((reals[1] - reals[0]) / reals[2]);
  constexpr double kMost = 9.0e15;
  if (!(count < kMost)) {
    return call.WrongInput(call.In("limit"), "is too far away", "ask for fewer numbers");
  }
  return call.SetRest(opdef::Shape{std::max<int64_t>(0, static_cast<int64_t>(count))});
}

// Vectors along a new dim; -1 puts it last.
Status OneHot(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  REPRISE_ASSIGN_OR_RETURN(const Dim depth, call.ValueInt("depth"));
  if (!x.shape.has_rank()) return call.Open();
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis, call.WrapDim("axis", call.Int("axis"), x.shape.rank() + 1));
  opdef::Shape shape = x.shape;
  Insert(shape.dims(), static_cast<size_t>(axis), depth);
  return call.SetRest(shape);
}

// ---- Drawn numbers ----

Status Samples(InferContext& call) {  // rule
  const opdef::Shape& x = call.First().shape;
  if (!x.has_rank()) return call.Open();
  if (x.rank() == 0) return call.WrongInput(call.First(), "has no dims", "pass weights along one dim at least");
  opdef::Shape shape = x;
  shape.dims().back() = call.Int("numsamples");
  return call.SetRest(shape);
}

Status Randperm(InferContext& call) {  // rule
  if (call.op.FindAttribute("n") != nullptr) {
    if (call.Int("n") < 0) return call.WrongAttribute("n", fmt::format("is {}", call.Int("n")), "pass 0 or more");
    return call.SetRest(opdef::Shape{call.Int("n")});
  }
  REPRISE_ASSIGN_OR_RETURN(const Dim count, call.ValueInt("n"));
  return call.SetRest(opdef::Shape{count});
}

// One bit for each element, in groups of 128.
Status DropoutMask(InferContext& call) {  // rule
  const std::vector<Dim>* sizes = call.Value("shape");
  if (sizes == nullptr) return call.SetRest(opdef::Shape::Unknown(1));
  constexpr int64_t kGroup = 128;
  return call.SetRest(opdef::Shape{CeilDiv(opdef::Shape(*sizes).elements(), kGroup) * (kGroup / 8)});
}

// ---- Other processes ----

namespace {

Status SetFirstDim(InferContext& call, const Dim& size) {
  opdef::Shape shape = call.First().shape;
  shape[0] = size;
  return call.SetRest(shape);
}

StatusOr<int64_t> RankSize(const InferContext& call) {
  const int64_t size = call.Int("rank_size");
  if (size > 0) return size;
  return call.WrongAttribute("rank_size", fmt::format("is {}", size), "set it to the number of processes");
}

}  // namespace

Status AllGather(InferContext& call) {  // rule
  REPRISE_ASSIGN_OR_RETURN(const int64_t ranks, RankSize(call));
  const InferTensor& x = call.First();
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0) return call.SetRest(opdef::Shape{ranks});
  return SetFirstDim(call, x.shape[0] * ranks);
}

Status ReduceScatter(InferContext& call) {  // rule
  REPRISE_ASSIGN_OR_RETURN(const int64_t ranks, RankSize(call));
  const InferTensor& x = call.First();
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0 || (x.shape[0].is_number() && x.shape[0].number() % ranks != 0)) {
    return call.WrongInput(
        x, fmt::format("has the shape {}, which has no equal parts for {} processes", x.shape.text(), ranks),
        "pass a first dim that rank_size divides");
  }
  return SetFirstDim(call, FloorDiv(x.shape[0], ranks));
}

namespace {

// Counts are of elements: rows of more than one element make the first dim smaller.
Status SetElements(InferContext& call, const Dim& total) {
  const InferTensor& data = call.First();
  if (!data.shape.has_rank() || data.shape.rank() < 2) return call.SetRest(opdef::Shape{total});
  return SetFirstDim(call, FloorDiv(total, opdef::Shape(Part(data.shape, 1, data.shape.rank())).elements()));
}

// Where the last block ends: blocks may lie in any order, with gaps between them. Unknown where numbers are missing,
// but for blocks that lie back to back.
Dim EndOfBlocks(const std::vector<Dim>& counts, const std::vector<Dim>& places) {
  Dim sum = 0;
  int64_t end = 0;
  bool is_known = places.size() == counts.size();
  bool is_dense = is_known;
  for (size_t k = 0; k < counts.size(); ++k) {
    is_dense = is_dense && places[k] == sum;
    sum = sum + counts[k];
    if (!is_known || counts[k] == Dim(0)) continue;
    const Dim last = places[k] + counts[k];  // unknown where the sum is too large
    is_known = last.is_number();
    if (is_known) end = std::max(end, last.number());
  }
  if (is_dense) return sum;
  return is_known ? Dim(end) : Dim::Unknown();
}

}  // namespace

Status AllToAllV(InferContext& call) {  // rule
  const bool is_one = call.op.type == "HcomReduceScatterV";
  const std::vector<Dim>* counts = call.Value(is_one ? "recv_count" : "recv_counts");
  if (counts == nullptr) return SetElements(call, Dim::Unknown());
  if (!is_one && call.Has("recv_displacements")) {
    const std::vector<Dim>* places = call.Value("recv_displacements");
    return SetElements(call, places != nullptr ? EndOfBlocks(*counts, *places) : Dim::Unknown());
  }
  Dim total = 0;
  for (const Dim& count : *counts) total = total + count;
  return SetElements(call, total);
}

// What each process sends to this one: a column of the matrix.
Status AllToAllVc(InferContext& call) {  // rule
  const std::vector<Dim>* counts = call.Value("send_count_matrix");
  if (counts == nullptr) return SetElements(call, Dim::Unknown());
  size_t ranks = 0;
  while (ranks * ranks < counts->size()) ++ranks;
  const int64_t rank = call.Int("rank");
  if (ranks * ranks != counts->size() || rank < 0 || static_cast<size_t>(rank) >= ranks) {
    return call.WrongAttribute("rank", fmt::format("is {}, for a matrix of {} numbers", rank, counts->size()),
                               "pass a square matrix, and the position of this process");
  }
  Dim total = 0;
  for (size_t k = 0; k < ranks; ++k) total = total + (*counts)[k * ranks + static_cast<size_t>(rank)];
  return SetElements(call, total);
}

Status Receive(InferContext& call) {  // rule
  return call.SetRest(opdef::Shape::Of(call.Ints("shape")));
}

Status ValueSizes(InferContext& call) {  // rule
  return SetFromSizes(call);
}

}  // namespace reprise::opdef::infer
