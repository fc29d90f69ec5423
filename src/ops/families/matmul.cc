// SPDX-License-Identifier: Apache-2.0
#include <complex>

#include "base/strict.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/matmul.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/products.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

constexpr int64_t kMaxCubeMathType = 4;

// The right operand as PrepareRight leaves it; null where it is as it was given.
void RunMatmul(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.refs[1], launch.refs[2], launch.compute, launch.refs[0], range, memory.scratch, nullptr,
                  PreparedRight(launch));
}

// beta * refs[3] + alpha * refs[1] x refs[2]; scalars: alpha, beta.
void RunAddmm(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const kernels::MatMulEpilogue epilogue = {launch.scalars[0], launch.scalars[1], launch.refs[3]};
  kernels::MatMul(launch.refs[1], launch.refs[2], launch.compute, launch.refs[0], range, memory.scratch, &epilogue,
                  PreparedRight(launch));
}

void RunGer(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  launch.State<kernels::ElementCall>().Run(launch.refs.begin(), range);
}

Status WrongRank(const OpCall& call, const Operand& operand, int rank) {
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims", ShapeText(operand.sizes()), rank));
}

Status CheckRank(const OpCall& call, const Operand& operand, int rank) {
  return operand.rank() == rank ? Status() : WrongRank(call, operand, rank);
}

Status CheckBatch(const OpCall& call, const Operand& a, const Operand& b) {
  if (a.sizes()[0] == b.sizes()[0] || a.sizes()[0] == 1 || b.sizes()[0] == 1) return {};
  return call.Invalid(fmt::format("{} have batch sizes {} and {}", call.InputShapes(), a.sizes()[0], b.sizes()[0]),
                      "pass batches of the same size, or one of size 1");
}

// The shape of a x b by NumPy's rules.
Status ProductShape(const OpCall& call, const Operand& left, const Operand& right, Dims& shape) {
  for (const Operand* input : {&left, &right}) {
    if (input->rank() == 0) return call.InvalidOperand(*input, "is a scalar, expected at least one dim");
  }
  const std::span<const int64_t> a = left.sizes();
  const std::span<const int64_t> b = right.sizes();
  const int64_t a_depth = a.back();
  const int64_t b_depth = b.size() == 1 ? b[0] : b[b.size() - 2];
  if (a_depth != b_depth) {
    return call.Invalid(fmt::format("{} cannot be multiplied: the last dim of {} is {}, the {} dim of {} is {}",
                                    call.InputShapes(), call.NameOf(left), a_depth,
                                    b.size() == 1 ? "only" : "last but one", call.NameOf(right), b_depth));
  }
  if (!Broadcast(a.first(a.size() - std::min<size_t>(2, a.size())), b.first(b.size() - std::min<size_t>(2, b.size())),
                 shape)) {
    return call.Invalid(fmt::format("the batch dims of {} do not broadcast", call.InputShapes()),
                        "batch sizes, aligned at the last one, must be equal or 1");
  }
  if (a.size() > 1) shape.push_back(a[a.size() - 2]);
  if (b.size() > 1) shape.push_back(b.back());
  return {};
}

// out has `shape`, to which self broadcasts.
Status CheckAddend(OpCall& call, const Operand& self, const Dims& shape) {
  Dims both;
  if (!Broadcast(shape, self.sizes(), both) || !std::equal(both.begin(), both.end(), shape.begin(), shape.end())) {
    return call.InvalidOperand(self,
                               fmt::format("has shape {}, which does not broadcast to the shape {} of the product",
                                           ShapeText(self.sizes()), ShapeText(shape)),
                               "sizes, aligned at the last dim, must be equal to those of the product or 1");
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape"; });
}

Status CheckMathType(const OpCall& call) {
  const int64_t math_type = call.Int("cubeMathType");
  if (math_type >= 0 && math_type <= kMaxCubeMathType) return {};
  return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to {}", math_type, kMaxCubeMathType),
                      "0 keeps the type; the others allow less precision, which this device does not need");
}

// An operand as a batch of matrices: a vector is a row on the left and a column on the right.
kernels::TensorRef Left(const OpCall& call, const Operand& operand) {
  kernels::TensorRef ref = call.RefOf(operand);
  if (ref.rank == 1) InsertDims(ref, 0, 1);
  return ref;
}
kernels::TensorRef Right(const OpCall& call, const Operand& operand) {
  kernels::TensorRef ref = call.RefOf(operand);
  if (ref.rank == 1) InsertDims(ref, 1, 1);
  return ref;
}

// Makes all dims but the last one of [.., m, n] one, if their elements lie at one distance.
bool MergeRows(kernels::TensorRef& ref) {
  int64_t rows = 1;
  int64_t stride = ref.strides[ref.rank - 2];
  for (int d = ref.rank - 2; d >= 0; --d) {
    if (ref.sizes[d] == 1) continue;
    if (rows != 1 && ref.strides[d] != rows * stride) return false;
    if (rows == 1) stride = ref.strides[d];
    rows *= ref.sizes[d];
  }
  ref.sizes[1] = ref.sizes[ref.rank - 1];
  ref.strides[1] = ref.strides[ref.rank - 1];
  ref.sizes[0] = rows;
  ref.strides[0] = stride;
  ref.rank = 2;
  return true;
}

bool HasBatch(const kernels::TensorRef& ref) {
  return std::any_of(ref.sizes, ref.sizes + std::max(0, ref.rank - 2), [](int64_t size) { return size != 1; });
}

// The rows of all matrices of a batch that are multiplied by the same matrix are rows of one product. `self` may be
// null, or has as many dims as out.
void MergeBatch(kernels::TensorRef& a, kernels::TensorRef& b, kernels::TensorRef& out, kernels::TensorRef* self) {
  if (out.rank <= 2 || a.rank != out.rank || !HasBatch(out) || kernels::ElementCount(out) == 0) return;
  for (int d = 0; d < b.rank - 2; ++d) {
    if (b.sizes[d] != 1 && b.strides[d] != 0) return;
  }
  if (!std::equal(a.sizes, a.sizes + a.rank - 2, out.sizes)) return;
  kernels::TensorRef merged[] = {a, out, self != nullptr ? *self : out};
  const bool is_row = self != nullptr && !HasBatch(*self) && self->sizes[self->rank - 2] == 1;
  const bool is_whole = self == nullptr || std::equal(self->sizes, self->sizes + self->rank - 1, out.sizes);
  if ((!is_row && !is_whole) || !std::all_of(std::begin(merged), std::end(merged), MergeRows)) return;
  a = merged[0];
  out = merged[1];
  if (self != nullptr) *self = merged[2];
  b.sizes[0] = b.sizes[b.rank - 2];
  b.strides[0] = b.strides[b.rank - 2];
  b.sizes[1] = b.sizes[b.rank - 1];
  b.strides[1] = b.strides[b.rank - 1];
  b.rank = 2;
}

// The launch's operands are there; units and grain. \return bytes of scratch
uint64_t CutProduct(Launch& launch) {
  const kernels::TensorRef& a = launch.refs[1];
  const kernels::TensorRef& b = launch.refs[2];
  const kernels::TensorRef& out = launch.refs[0];
  const bool is_prepared = launch.uses[2].is_prepared;
  launch.units = kernels::MatMulUnitCount(a, b, launch.compute, out, is_prepared);
  if (launch.units == 0) return 0;
  const kernels::ProductWork work = kernels::MatMulUnitWork(a, b, launch.compute, out, is_prepared);
  launch.grain = GrainOf(work);
  launch.has_cheap_calls = work.has_cheap_calls;
  return static_cast<uint64_t>(kernels::MatMulScratchBytes(a, b, launch.compute, out, is_prepared));
}

// Fewer rows than these read the right operand as fast as memory gives it, in whatever order; of fewer columns a panel
// is mostly empty.
constexpr int64_t kLeastPreparedRows = 3;
constexpr int64_t kLeastPreparedCols = 16;
// Of fewer rows, or columns, sums may be cut otherwise where the operand is read where it lies.
constexpr int64_t kLeastKeptRows = 11;
constexpr int64_t kLeastKeptCols = 17;

void AdoptPreparedRight(Launch& launch) {
  const uint64_t bytes = CutProduct(launch);
  // What does not fit on the stack has as many work items as before, and takes less.
  if (bytes <= Launch::kMostStackBytes)
    launch.scratch_bytes = (bytes + kScratchAlignment - 1) & ~(kScratchAlignment - 1);
}

PreparedForm FindPreparedRight(const Launch& launch) {
  const kernels::TensorRef& a = launch.refs[1];
  const kernels::TensorRef& b = launch.refs[2];
  const kernels::TensorRef& out = launch.refs[0];
  if (launch.units == 0 || a.sizes[a.rank - 2] < kLeastPreparedRows || b.sizes[b.rank - 1] < kLeastPreparedCols)
    return {};
  const kernels::PreparedRight form = kernels::FindPreparedRight(a, b, launch.compute);
  const int64_t scratch = kernels::MatMulScratchBytes(a, b, launch.compute, out, true);
  const bool has_room = static_cast<uint64_t>(scratch) <= Launch::kMostStackBytes ||
                        (kernels::MatMulUnitCount(a, b, launch.compute, out, true) == launch.units &&
                         static_cast<uint64_t>(scratch) <= launch.scratch_bytes);
  if (!has_room) return {};
  const bool keeps_bits = a.sizes[a.rank - 2] >= kLeastKeptRows && b.sizes[b.rank - 1] >= kLeastKeptCols;
  return {2, static_cast<uint64_t>(form.bytes), form.write, AdoptPreparedRight, keeps_bits};
}

}  // namespace

void SplitProduct(OpCall& call, Launch& launch) {
  const uint64_t scratch = CutProduct(launch);
  if (launch.units == 0) return;
  call.AddScratch(launch, scratch);
  launch.find_prepared = FindPreparedRight;
}

namespace {

// REPRISE_STRICT=1: the cube unit multiplies floats.
Status PromoteFactors(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PromoteInputs(call));
  if (!IsStrict()) [[likely]]
    return {};
  for (const Operand& input : call.inputs) {
    using kernels::DType;
    if (input.tensor == nullptr || input.dtype == DType::kFloat || input.dtype == DType::kFloat16 ||
        input.dtype == DType::kBFloat16) {
      continue;
    }
    return StrictRefusal(kOperatorArgumentInvalid,
                         fmt::format("{}: {} is a tensor of {}; a device multiplies matrices of float32, "
                                     "float16 and bfloat16",
                                     call.op.name, call.NameOf(input), kernels::Name(input.dtype)))
        .Culprit(call.NameOf(input))
        .Hint("cast it to one of these types");
  }
  return {};
}

// A factor that the computation's type can hold.
Status CheckFactor(const OpCall& call, std::string_view name) {
  const kernels::Scalar& value = *call.Scalar(name);
  if (kernels::CanCast(value.dtype, call.compute)) return {};
  return call.Invalid(fmt::format("{} is a {}, which the computation's type {} of {} cannot hold", name,
                                  kernels::Name(value.dtype), kernels::Name(call.compute), call.InputTypes()),
                      "pass an integer for integer tensors and a real number for real tensors");
}

// out = beta * self + alpha * left x right.
Status LowerProductAndSum(OpCall& call, const Operand& left, const Operand& right) {
  REPRISE_RETURN_IF_ERROR(CheckMathType(call));
  REPRISE_RETURN_IF_ERROR(CheckFactor(call, "alpha"));
  REPRISE_RETURN_IF_ERROR(CheckFactor(call, "beta"));
  kernels::TensorRef a = Left(call, left);
  kernels::TensorRef b = Right(call, right);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  if (right.rank() == 1) InsertDims(out, out.rank, 1);
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  if (right.rank() == 1) InsertDims(self, self.rank, 1);
  while (self.rank < out.rank) InsertDims(self, 0, 1);
  MergeBatch(a, b, out, &self);

  Launch& launch = call.AddLaunch(RunAddmm);
  launch.scalars.push_back(*call.Scalar("alpha"));
  launch.scalars.push_back(*call.Scalar("beta"));
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, left, a);
  call.Read(launch, right, b);
  if (launch.scalars[1].As<std::complex<double>>() == std::complex<double>(0)) {
    call.ReadOptional(launch, nullptr);  // whatever self holds, NaN included
  } else {
    call.Read(launch, call.inputs[0], self);
  }
  SplitProduct(call, launch);
  return {};
}

}  // namespace

Status MatmulShape(OpCall& call) {
  Dims shape;
  REPRISE_RETURN_IF_ERROR(ProductShape(call, call.inputs[0], call.inputs[1], shape));
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape"; });
}

Status MatrixShape(OpCall& call) {
  for (const Operand& input : call.inputs) REPRISE_RETURN_IF_ERROR(CheckRank(call, input, 2));
  return MatmulShape(call);
}

Status BatchMatrixShape(OpCall& call) {
  for (const Operand& input : call.inputs) REPRISE_RETURN_IF_ERROR(CheckRank(call, input, 3));
  REPRISE_RETURN_IF_ERROR(CheckBatch(call, call.inputs[0], call.inputs[1]));
  return MatmulShape(call);
}

Status LowerMatmul(OpCall& call) {
  if (call.Has("cubeMathType")) REPRISE_RETURN_IF_ERROR(CheckMathType(call));
  kernels::TensorRef a = Left(call, call.inputs[0]);
  kernels::TensorRef b = Right(call, call.inputs[1]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  const bool is_column = call.inputs[1].rank() == 1;
  if (call.inputs[0].rank() == 1) InsertDims(out, is_column ? out.rank : out.rank - 1, 1);
  if (is_column) InsertDims(out, out.rank, 1);
  MergeBatch(a, b, out, nullptr);

  Launch& launch = call.AddLaunch(RunMatmul);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], a);
  call.Read(launch, call.inputs[1], b);
  SplitProduct(call, launch);
  return {};
}

namespace {

Status AddmmShape(OpCall& call) {
  const Operand& mat1 = call.Get("mat1");
  const Operand& mat2 = call.Get("mat2");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, mat1, 2));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, mat2, 2));
  Dims shape;
  REPRISE_RETURN_IF_ERROR(ProductShape(call, mat1, mat2, shape));
  return CheckAddend(call, call.inputs[0], shape);
}

Status BaddbmmShape(OpCall& call) {
  const Operand& batch1 = call.Get("batch1");
  const Operand& batch2 = call.Get("batch2");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, batch1, 3));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, batch2, 3));
  REPRISE_RETURN_IF_ERROR(CheckBatch(call, batch1, batch2));
  Dims shape;
  REPRISE_RETURN_IF_ERROR(ProductShape(call, batch1, batch2, shape));
  return CheckAddend(call, call.Get("self"), shape);
}

Status AddmvShape(OpCall& call) {
  const Operand& mat = call.Get("mat");
  const Operand& vec = call.Get("vec");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, mat, 2));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, vec, 1));
  Dims shape;
  REPRISE_RETURN_IF_ERROR(ProductShape(call, mat, vec, shape));
  return CheckAddend(call, call.Get("self"), shape);
}

Status MvShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckRank(call, call.inputs[0], 2));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, call.inputs[1], 1));
  return MatmulShape(call);
}

Status VectorsShape(OpCall& call) {
  for (const Operand& input : call.inputs) REPRISE_RETURN_IF_ERROR(CheckRank(call, input, 1));
  return MatmulShape(call);
}

Status OuterShape(OpCall& call) {
  Dims shape;
  for (const Operand& input : call.inputs) {
    REPRISE_RETURN_IF_ERROR(CheckRank(call, input, 1));
    shape.push_back(input.sizes()[0]);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape"; });
}

Status LowerAddmm(OpCall& call) { return LowerProductAndSum(call, call.Get("mat1"), call.Get("mat2")); }
Status LowerBaddbmm(OpCall& call) { return LowerProductAndSum(call, call.Get("batch1"), call.Get("batch2")); }
Status LowerAddmv(OpCall& call) { return LowerProductAndSum(call, call.Get("mat"), call.Get("vec")); }

Status LowerGer(OpCall& call) {
  kernels::TensorRef column = call.RefOf(call.inputs[0]);
  InsertDims(column, 1, 1);
  Launch& launch = call.AddLaunch(RunGer);
  launch.state = std::make_shared<kernels::ElementCall>(kernels::kMulFn, call.compute);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0], column);
  call.Read(launch, call.inputs[1]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

// ---- Addbmm: the products of all batches are one product whose inner dim has the batches side by side ----

Status AddbmmShape(OpCall& call) {
  const Operand& batch1 = call.Get("batch1");
  const Operand& batch2 = call.Get("batch2");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, batch1, 3));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, batch2, 3));
  const std::span<const int64_t> a = batch1.sizes();
  const std::span<const int64_t> b = batch2.sizes();
  if (a[0] != b[0] || a[2] != b[1]) {
    return call.Invalid(fmt::format("{} cannot be multiplied: expected [b, n, k] and [b, k, m]", call.InputShapes()));
  }
  Dims shape;
  shape.push_back(a[1]);
  shape.push_back(b[2]);
  return CheckAddend(call, call.inputs[0], shape);
}

// refs: out, left, right, self.
void RunAddbmm(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const kernels::MatMulEpilogue epilogue = {launch.scalars[0], launch.scalars[1], launch.refs[3]};
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), launch.compute, launch.refs[0], range, memory.scratch,
                  &epilogue);
}

Status LowerAddbmm(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckMathType(call));
  REPRISE_RETURN_IF_ERROR(CheckFactor(call, "alpha"));
  REPRISE_RETURN_IF_ERROR(CheckFactor(call, "beta"));
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  kernels::TensorRef rows = call.RefOf(call.Get("batch1"));
  std::swap(rows.sizes[0], rows.sizes[1]);
  std::swap(rows.strides[0], rows.strides[1]);
  Dense left = DenseInput(call, call.Get("batch1"), rows, call.Get("batch1").dtype);
  Dense right = DenseInput(call, call.Get("batch2"), call.Get("batch2").dtype);
  const int64_t depth = rows.sizes[1] * rows.sizes[2];
  const int64_t left_sizes[2] = {rows.sizes[0], depth};
  const int64_t right_sizes[2] = {depth, right.ref.sizes[2]};
  left.ref = kernels::MakeContiguous(left.ref.data, left.ref.dtype, 2, left_sizes);
  right.ref = kernels::MakeContiguous(right.ref.data, right.ref.dtype, 2, right_sizes);
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  while (self.rank < 2) InsertDims(self, 0, 1);
  Launch& launch = call.AddLaunch(RunAddbmm);
  launch.scalars.push_back(*call.Scalar("alpha"));
  launch.scalars.push_back(*call.Scalar("beta"));
  call.Write(launch, out);
  left.Read(call, launch);
  right.Read(call, launch);
  if (launch.scalars[1].As<std::complex<double>>() == std::complex<double>(0)) {
    call.ReadOptional(launch, nullptr);  // whatever self holds, NaN included
  } else {
    call.Read(launch, call.inputs[0], self);
  }
  SplitProduct(call, launch);
  launch.find_prepared = nullptr;  // operands may be temporaries
  return {};
}

// A weight has one layout here, so there is nothing to rearrange.
Status LowerNothing(OpCall&) { return {}; }

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/matmul.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
