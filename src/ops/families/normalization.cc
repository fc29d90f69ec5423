// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/copy.h"
#include "kernels/normalize.h"
#include "kernels/staged.h"
#include "ops/computations.h"
#include "ops/families/picture_reader.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::NormOperands;
using kernels::RowOp;
using kernels::RowWork;
using kernels::TensorRef;

// Light elements that one element of a row costs.
constexpr int64_t kSoftmaxCost = 8;
constexpr int64_t kNormCost = 3;

// Rows of `length`, short ones together up to a size that stays in the first cache.
RowWork WorkOf(int64_t length, int64_t rows) {
  constexpr int64_t kBatchElements = 2048;
  return {length, std::clamp<int64_t>(kBatchElements / std::max<int64_t>(1, length), 1, std::max<int64_t>(1, rows))};
}

// The same where rows of the operand may be columns in memory, which are turned some at a time.
RowWork WorkOf(int64_t length, int64_t rows, const TensorRef& ref) {
  constexpr int64_t kTurned = 16;
  constexpr int64_t kMostLength = 1024;
  RowWork work = WorkOf(length, rows);
  const bool is_in_columns = ref.rank > 1 && ref.sizes[ref.rank - 1] != 1 && ref.strides[ref.rank - 1] != 1;
  if (is_in_columns && length <= kMostLength) work.batch = std::min(std::max(work.batch, kTurned), rows);
  return work;
}

// ---- Softmax ----

void RunRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MapRows(static_cast<RowOp>(launch.ints[0]), launch.refs[0], launch.refs[1],
                   launch.refs.size() > 2 ? &launch.refs[2] : nullptr, launch.compute, {launch.ints[1], launch.ints[2]},
                   memory.scratch, range);
}

Status LowerRows(OpCall& call, RowOp op) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  Launch& launch = call.AddLaunch(RunRows);
  const int64_t count = call.outputs[0].tensor->count;
  if (count == 0) return {};
  const int64_t length = self.rank() == 0 ? 1 : self.sizes()[static_cast<size_t>(dim)];
  const RowWork work = WorkOf(length, count / length);
  launch.ints.push_back(static_cast<int64_t>(op));
  launch.ints.push_back(work.length);
  launch.ints.push_back(work.batch);
  call.Write(launch, call.outputs[0], kernels::WithDimLast(call.RefOf(call.outputs[0]), dim));
  for (const Operand& input : call.inputs) call.Read(launch, input, kernels::WithDimLast(call.RefOf(input), dim));
  launch.units = count / length;
  // Rows that are columns in memory go by lines of it.
  constexpr int64_t kColumns = 32;
  const TensorRef& first = launch.refs[0];
  const bool is_in_columns = first.rank > 1 && first.strides[first.rank - 1] != 1;
  launch.grain = std::max<int64_t>(GrainOf(length * kSoftmaxCost), is_in_columns ? kColumns : 1);
  int64_t bytes = 0;
  for (const TensorRef& ref : launch.refs) {
    bytes += kernels::StagingBytes(ref, call.compute, work.batch * work.length);
  }
  if (bytes != 0) call.AddScratch(launch, static_cast<uint64_t>(bytes));
  return {};
}

Status LowerLogSoftmax(OpCall& call) { return LowerRows(call, RowOp::kLogSoftmax); }
Status LowerSoftmaxBackward(OpCall& call) { return LowerRows(call, RowOp::kSoftmaxGrad); }
Status LowerLogSoftmaxBackward(OpCall& call) { return LowerRows(call, RowOp::kLogSoftmaxGrad); }

// All inputs and outputs have one shape.
Status OneShape(OpCall& call) {
  const std::span<const int64_t> shape = call.inputs[0].sizes();
  for (const Operand& input : call.inputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(input, shape, [] { return "the shape"; }));
  }
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "the shape"; }));
  }
  return {};
}

// ---- Norms ----

// Statistics, one for each row, as the shape of x with size 1 in the normalized dims, the last `inner` ones.
Status CheckStatistics(OpCall& call, const Operand& operand, std::span<const int64_t> x, size_t inner) {
  Dims shape(x.data(), x.size());
  for (size_t d = x.size() - inner; d < x.size(); ++d) shape[d] = 1;
  return call.CheckCount(operand, shape, [] { return "one for each row:"; });
}

bool IsEnd(std::span<const int64_t> inner, std::span<const int64_t> sizes) {
  return inner.size() <= sizes.size() &&
         std::equal(inner.begin(), inner.end(), sizes.end() - static_cast<std::ptrdiff_t>(inner.size()));
}

// `inner`, the normalized shape as `name` gives it, must be the last dims of x.
Status CheckInner(const OpCall& call, std::string_view name, std::span<const int64_t> inner, const Operand& x) {
  const std::span<const int64_t> sizes = x.sizes();
  if (!inner.empty() && IsEnd(inner, sizes)) return {};
  return call.Invalid(fmt::format("{} {} is not the end of the shape {} of {}", name, ShapeText(inner),
                                  ShapeText(sizes), call.NameOf(x)),
                      "name the last dims, at least one");
}

// Where the parameters of each norm stand in its row; -1: it has none of the sort.
struct NormParams {
  int8_t x, shape, weight, bias, out, mean, rstd, dy, x2, sum, dw, db, scaled = -1;
};
enum NormKind : uint8_t { kLayer, kRms, kAddRms, kLayerGrad, kRmsGrad, kInplaceAddRms, kDeep, kDeepGrad };
// clang-format off
constexpr NormParams kNormParams[] = {
    {.x = 0, .shape = 1, .weight = 2, .bias = 3, .out = 5, .mean = 6, .rstd = 7, .dy = -1,
     .x2 = -1, .sum = -1, .dw = -1, .db = -1},
    {.x = 0, .shape = -1, .weight = 1, .bias = -1, .out = 3, .mean = -1, .rstd = 4, .dy = -1,
     .x2 = -1, .sum = -1, .dw = -1, .db = -1},
    {.x = 0, .shape = -1, .weight = 2, .bias = -1, .out = 4, .mean = -1, .rstd = 5, .dy = -1,
     .x2 = 1, .sum = 6, .dw = -1, .db = -1},
    {.x = 1, .shape = 2, .weight = 5, .bias = 6, .out = 8, .mean = 3, .rstd = 4, .dy = 0,
     .x2 = -1, .sum = -1, .dw = 9, .db = 10},
    {.x = 1, .shape = -1, .weight = 3, .bias = -1, .out = 4, .mean = -1, .rstd = 2, .dy = 0,
     .x2 = -1, .sum = -1, .dw = 5, .db = -1},
    {.x = 0, .shape = -1, .weight = 2, .bias = -1, .out = 0, .mean = -1, .rstd = 4, .dy = -1,
     .x2 = 1, .sum = 1, .dw = -1, .db = -1},
    {.x = 0, .shape = -1, .weight = 3, .bias = 2, .out = 8, .mean = 6, .rstd = 7, .dy = -1,
     .x2 = 1, .sum = -1, .dw = -1, .db = -1},
    {.x = 1, .shape = -1, .weight = 3, .bias = -1, .out = 8, .mean = 4, .rstd = 5, .dy = 0,
     .x2 = 2, .sum = -1, .dw = 10, .db = 9, .scaled = 7},
};
// clang-format on

const NormParams& ParamsOf(const OpCall& call) { return kNormParams[call.op.computation.code]; }
bool IsLayerNorm(const OpCall& call) { return ParamsOf(call).mean >= 0; }
// The shape that is normalized is an argument of its own, not that of gamma.
bool HasShape(const OpCall& call) { return ParamsOf(call).shape >= 0; }

// The operand at a place of the row; null for an absent one.
const Operand* At(const OpCall& call, int8_t param) {
  for (const Operand& input : call.inputs) {
    if (input.param == param) return &input;
  }
  for (const Operand& output : call.outputs) {
    if (output.param == param) return &output;
  }
  return nullptr;
}

// The shape that is normalized.
std::span<const int64_t> InnerShape(const OpCall& call) {
  return HasShape(call) ? call.Ints("normalizedShape") : At(call, ParamsOf(call).weight)->sizes();
}

Status NormShape(OpCall& call) {
  const NormParams& params = ParamsOf(call);
  const Operand& x = *At(call, params.x);
  std::span<const int64_t> inner = InnerShape(call);
  // A gamma with ones in front of what is normalized.
  while (!HasShape(call) && inner.size() > 1 && inner[0] == 1 && !IsEnd(inner, x.sizes())) inner = inner.subspan(1);
  REPRISE_RETURN_IF_ERROR(CheckInner(call, HasShape(call) ? "normalizedShape" : "gamma of shape", inner, x));
  const auto check = [&](const Operand& operand) -> Status {
    const auto param = static_cast<int8_t>(operand.param);
    if (param == params.weight || param == params.bias || param == params.dw || param == params.db) {
      return call.CheckShape(operand, inner, [] { return "the normalized shape"; });
    }
    if (param == params.mean || param == params.rstd) return CheckStatistics(call, operand, x.sizes(), inner.size());
    return call.CheckShape(operand, x.sizes(), [] { return "the shape of the input"; });
  };
  for (const Operand& input : call.inputs) REPRISE_RETURN_IF_ERROR(check(input));
  for (const Operand& output : call.outputs) REPRISE_RETURN_IF_ERROR(check(output));
  return {};
}

// Places in Launch::refs of all the norms; those at the end may be missing.
enum Place : size_t { kOut, kX, kWeight, kRstd, kMean, kBiasOrDy, kX1OrPartials, kX2, kX1OfGrad, kScaled };
enum : size_t { kLengthInt, kBatchInt, kIsLayerNormInt, kIsGradInt, kChunkInt, kRowsInt };
enum : size_t { kEpsilonScalar, kAlphaScalar };

bool Given(const Launch& launch, size_t place) { return place < launch.refs.size() && launch.HasOperand(place); }

NormOperands OperandsOf(const Launch& launch) {
  const auto at = [&](size_t place) { return Given(launch, place) ? &launch.refs[place] : nullptr; };
  const bool is_grad = launch.ints[kIsGradInt] != 0;
  return {.x = at(kX),
          .weight = at(kWeight),
          .bias = is_grad ? nullptr : at(kBiasOrDy),
          .out = at(kOut),
          .mean = at(kMean),
          .rstd = at(kRstd),
          .dy = is_grad ? at(kBiasOrDy) : nullptr,
          .x1 = at(is_grad ? kX1OfGrad : kX1OrPartials),
          .x2 = at(kX2),
          .scaled = at(kScaled),
          .alpha = launch.scalars.size() > kAlphaScalar ? launch.scalars[kAlphaScalar].As<double>() : 1.0};
}

void RunNorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const RowWork work = {launch.ints[kLengthInt], launch.ints[kBatchInt]};
  const double eps = launch.scalars[kEpsilonScalar].As<double>();
  if (launch.ints[kIsLayerNormInt] != 0) {
    kernels::LayerNorm(OperandsOf(launch), eps, launch.compute, work, memory.scratch, range);
  } else {
    kernels::RmsNorm(OperandsOf(launch), eps, launch.compute, work, memory.scratch, range);
  }
}

int64_t Product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}

void AddOperand(OpCall& call, Launch& launch, const Operand* operand, bool is_write) {
  if (is_write) {
    call.WriteOptional(launch, operand);
  } else {
    call.ReadOptional(launch, operand);
  }
}

void RunStatistic(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

void AddStatistic(OpCall& call, const Operand* output, double value) {
  if (output == nullptr || output->tensor->count == 0) return;
  Launch& launch = call.AddLaunch(RunStatistic);
  launch.scalars.push_back(kernels::Scalar::Of(value));
  call.Write(launch, *output);
  launch.units = output->tensor->count;
  launch.grain = GrainOf(1);
}

Status LowerNorm(OpCall& call) {
  const bool is_layer_norm = IsLayerNorm(call);
  const NormParams& params = ParamsOf(call);
  const Operand& input = *At(call, params.x);
  const Operand* sum = At(call, params.sum);  // of AddRmsNorm, written before it is read
  const int64_t length = Product(InnerShape(call));
  if (input.tensor->count == 0) {
    // Of rows without elements the mean is 0, and nothing is 1 / sqrt(0 / 0).
    AddStatistic(call, At(call, params.mean), 0);
    AddStatistic(call, At(call, params.rstd), std::numeric_limits<double>::quiet_NaN());
    return {};
  }
  const int64_t rows = input.tensor->count / length;
  const RowWork work = WorkOf(length, rows, call.RefOf(input));
  Launch& launch = call.AddLaunch(RunNorm);
  for (int64_t value : {work.length, work.batch, int64_t{is_layer_norm}, int64_t{0}}) launch.ints.push_back(value);
  const Operand* const x2 = At(call, params.x2);
  const size_t places = x2 != nullptr ? kX2 + 1 : is_layer_norm ? kBiasOrDy + 1 : kRstd + 1;
  launch.refs.reserve(places);
  launch.uses.reserve(places);
  launch.scalars.push_back(kernels::Scalar::Of(call.Real(HasShape(call) ? "eps" : "epsilon")));
  if (call.Has("alpha")) launch.scalars.push_back(kernels::Scalar::Of(call.Real("alpha")));
  call.WriteOptional(launch, At(call, params.out));
  AddOperand(call, launch, sum != nullptr ? sum : x2 != nullptr ? nullptr : &input, sum != nullptr);
  call.ReadOptional(launch, At(call, params.weight));
  call.WriteOptional(launch, At(call, params.rstd));
  if (places > kRstd + 1) {
    call.WriteOptional(launch, At(call, params.mean));
    call.ReadOptional(launch, At(call, params.bias));
  }
  if (x2 != nullptr) {
    call.Read(launch, input);
    call.Read(launch, *x2);
  }
  launch.units = rows;
  launch.grain = GrainOf(length * kNormCost);
  const int64_t bytes = kernels::NormScratchBytes(OperandsOf(launch), is_layer_norm, call.compute, work);
  if (bytes != 0) call.AddScratch(launch, static_cast<uint64_t>(bytes));
  return {};
}

// A unit is a chunk of rows, with sums for weight and bias of its own.
void RunNormGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const RowWork work = {launch.ints[kLengthInt], launch.ints[kBatchInt]};
  const int64_t chunk = launch.ints[kChunkInt];
  const bool is_layer_norm = launch.ints[kIsLayerNormInt] != 0;
  const bool has_sums = Given(launch, kX1OrPartials);
  const TensorRef partials = has_sums ? launch.Ref(kX1OrPartials, memory) : TensorRef();
  const int64_t row_bytes = work.length * kernels::ItemSize(partials.dtype);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    char* dw = nullptr;
    if (has_sums) dw = static_cast<char*>(partials.data) + unit * row_bytes * (is_layer_norm ? 2 : 1);
    kernels::NormGrad(OperandsOf(launch), launch.compute, work, memory.scratch, dw,
                      has_sums && is_layer_norm ? dw + row_bytes : nullptr,
                      {unit * chunk, std::min(launch.ints[kRowsInt], (unit + 1) * chunk)});
  }
}

void RunSumPartials(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef partials = launch.Ref(1, memory);
  const char* first = static_cast<const char*>(partials.data) + launch.ints[1] * kernels::ItemSize(partials.dtype);
  kernels::SumPartials(first, partials.sizes[0], launch.ints[0], launch.compute, launch.refs[0], range);
}

void AddSumOfPartials(OpCall& call, const Operand& out, const TensorRef& partials, int64_t place, int64_t length) {
  Launch& launch = call.AddLaunch(RunSumPartials);
  launch.ints.push_back(partials.sizes[1] * length);
  launch.ints.push_back(place * length);
  call.Write(launch, out);
  call.ReadTemporary(launch, partials);
  launch.units = length;
  launch.grain = GrainOf(std::max<int64_t>(1, partials.sizes[0]));
}

Status LowerNormGrad(OpCall& call) {
  const bool is_layer_norm = IsLayerNorm(call);
  const NormParams& params = ParamsOf(call);
  const Operand& input = *At(call, params.x);
  const Operand* dx = At(call, params.out);
  const Operand* dw = At(call, params.dw);
  const Operand* db = At(call, params.db);
  if (HasShape(call)) {
    const std::vector<bool> mask = call.Bools("outputMask");
    if (mask.size() != 3) {
      return call.Invalid(fmt::format("outputMask has {} values, expected 3", mask.size()),
                          "one for each of gradInputOut, gradWeightOut and gradBiasOut");
    }
    const Operand** const outputs[3] = {&dx, &dw, &db};
    const char* const names[3] = {"gradInputOut", "gradWeightOut", "gradBiasOut"};
    for (size_t i = 0; i < 3; ++i) {
      if (mask[i] && *outputs[i] == nullptr) {
        return call.Invalid(fmt::format("{} is null although outputMask asks for it", names[i]));
      }
      if (!mask[i]) *outputs[i] = nullptr;
    }
  }
  const int64_t length = Product(InnerShape(call));
  if (length == 0) return {};
  const int64_t rows = input.tensor->count / length;
  // Fixed chunks: how the sums for weight and bias are cut must not depend on the threads.
  const int64_t chunk = std::clamp<int64_t>((rows + 7) / 8, 8, 256);
  const int64_t chunks = (rows + chunk - 1) / chunk;
  const kernels::DType math = call.compute == kernels::DType::kDouble ? call.compute : kernels::DType::kFloat;
  const bool has_sums = dw != nullptr || db != nullptr;
  TensorRef partials;
  if (has_sums) {
    const int64_t sizes[] = {chunks, is_layer_norm ? 2 : 1, length};
    partials = call.Temporary(math, sizes);
  }
  if (rows != 0 && (has_sums || dx != nullptr)) {
    const RowWork work = WorkOf(length, chunk);
    Launch& launch = call.AddLaunch(RunNormGrad);
    for (int64_t value : {work.length, work.batch, int64_t{is_layer_norm}, int64_t{1}, chunk, rows}) {
      launch.ints.push_back(value);
    }
    const Operand* const x2 = At(call, params.x2);
    const size_t places = x2 != nullptr ? kScaled + 1 : kX2;
    launch.refs.reserve(places);
    launch.uses.reserve(places);
    call.WriteOptional(launch, dx);
    call.ReadOptional(launch, x2 != nullptr ? nullptr : &input);
    call.ReadOptional(launch, At(call, params.weight));
    call.Read(launch, *At(call, params.rstd));
    call.ReadOptional(launch, At(call, params.mean));
    call.Read(launch, *At(call, params.dy));
    if (has_sums) call.WriteTemporary(launch, partials);
    if (x2 != nullptr) {
      call.Read(launch, *x2);
      call.Read(launch, input);
      call.Write(launch, *At(call, params.scaled));
      launch.scalars.push_back(kernels::Scalar::Of(0.0));
      launch.scalars.push_back(kernels::Scalar::Of(call.Real("alpha")));
    }
    launch.units = chunks;
    launch.grain = GrainOf(chunk * length * kNormCost);
    const int64_t bytes = kernels::NormScratchBytes(OperandsOf(launch), is_layer_norm, call.compute, work);
    if (bytes != 0) call.AddScratch(launch, static_cast<uint64_t>(bytes));
  }
  if (dw != nullptr) AddSumOfPartials(call, *dw, partials, 0, length);
  if (db != nullptr) AddSumOfPartials(call, *db, partials, 1, length);
  return {};
}

}  // namespace

Status LowerSoftmax(OpCall& call) { return LowerRows(call, RowOp::kSoftmax); }

bool NormalisesAnyStrides(const Launch& launch) {
  if (launch.kernel != RunNorm || Given(launch, kX1OrPartials)) return false;
  for (const OperandUse& use : launch.uses) {
    if (use.slot < 0 && use.slot != OperandUse::kAbsent) return false;
  }
  return launch.HasOperand(kX) && !launch.uses[kX].is_write;
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/normalization.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
