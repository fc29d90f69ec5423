// SPDX-License-Identifier: Apache-2.0
//
// Factors of matrices (kernels/factorization.h).
#include "kernels/factorization.h"

#include "kernels/arithmetic.h"
#include "kernels/staged.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;

struct MatrixBatch {
  Dims sizes;  // of the batch
  int64_t rows = 0;
  int64_t columns = 0;

  Dims With(std::initializer_list<int64_t> tail) const {
    Dims shape(sizes.data(), sizes.size());
    for (const int64_t size : tail) shape.push_back(size);
    return shape;
  }
  int64_t least() const { return std::min(rows, columns); }
};

StatusOr<MatrixBatch> ReadMatrices(const OpCall& call, const Operand& self) {
  const std::span<const int64_t> sizes = self.sizes();
  if (sizes.size() < 2) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected matrices: 2 dims or more", ShapeText(sizes)));
  }
  MatrixBatch batch;
  batch.sizes.assign(sizes.data(), sizes.size() - 2);
  batch.rows = sizes[sizes.size() - 2];
  batch.columns = sizes.back();
  return batch;
}

void SplitMatrices(OpCall& call, Launch& launch, const MatrixBatch& batch, int64_t scratch_bytes) {
  launch.units = 1;
  for (const int64_t size : batch.sizes) launch.units *= size;
  if (launch.units == 0) return;
  launch.grain = GrainOf(batch.rows * batch.columns * (batch.least() + 1));
  call.AddScratch(launch, static_cast<uint64_t>(std::max<int64_t>(scratch_bytes, 1)));
}

// ---- Cholesky ----

void RunCholesky(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Cholesky(launch.refs[1], launch.ints[0] != 0, launch.refs[0], range, memory.scratch);
}

Status CholeskyShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const MatrixBatch batch, ReadMatrices(call, self));
  if (batch.rows != batch.columns) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected square matrices: two equal sizes at the end",
                                                 ShapeText(self.sizes())));
  }
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape"; });
}

Status LowerCholesky(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const MatrixBatch batch, ReadMatrices(call, self));
  if (self.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunCholesky);
  launch.ints.push_back(call.Bool("upper") ? 1 : 0);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  SplitMatrices(call, launch, batch, kernels::CholeskyScratchBytes(self.dtype, batch.rows));
  return {};
}

// ---- QR ----

constexpr int64_t kReduced = 0, kComplete = 1, kOnlyR = 2;

Status QrShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const MatrixBatch batch, ReadMatrices(call, call.inputs[0]));
  const int64_t mode = call.Int("mode");
  if (mode < kReduced || mode > kOnlyR) {
    return call.Invalid(fmt::format("mode is {}, expected 0 (reduced), 1 (complete) or 2 (r alone)", mode));
  }
  const int64_t middle = mode == kComplete ? batch.rows : batch.least();
  if (mode != kOnlyR) {
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(call.Get("Q"), batch.With({batch.rows, middle}), [] { return "the shape"; }));
  }
  return call.CheckShape(call.Get("R"), batch.With({middle, batch.columns}), [] { return "the shape"; });
}

void RunQr(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Qr(launch.refs[2], launch.RefOrNull(1), launch.refs[0], range, memory.scratch);
}

Status LowerQr(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const MatrixBatch batch, ReadMatrices(call, call.inputs[0]));
  const bool has_q = call.Int("mode") != kOnlyR;
  const Operand& q = call.Get("Q");
  Launch& launch = call.AddLaunch(RunQr);
  call.Write(launch, call.Get("R"));
  call.WriteOptional(launch, has_q ? &q : nullptr);
  call.Read(launch, call.inputs[0]);
  SplitMatrices(call, launch, batch,
                kernels::QrScratchBytes(call.compute, batch.rows, batch.columns, has_q ? q.sizes().back() : 0));
  return {};
}

// ---- Singular values ----

DType RealPart(DType type) {
  return type == DType::kComplex64 ? DType::kFloat : type == DType::kComplex128 ? DType::kDouble : type;
}

Status SvdTypes(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(OneType(call));
  const Operand& sigma = call.Get("sigma");
  if (sigma.dtype == RealPart(call.compute)) return {};
  return call.InvalidOperand(sigma, fmt::format("has {}, expected {} for {}", kernels::Name(sigma.dtype),
                                                kernels::Name(RealPart(call.compute)), call.InputTypes()));
}

Status SvdShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const MatrixBatch batch, ReadMatrices(call, call.inputs[0]));
  const int64_t least = batch.least();
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("sigma"), batch.With({least}), [] { return "the shape of the singular values,"; }));
  if (!call.Bool("computeUV")) return {};
  const bool is_full = call.Bool("fullMatrices");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("u"), batch.With({batch.rows, is_full ? batch.rows : least}),
                                          [] { return "the shape of the left vectors,"; }));
  return call.CheckShape(call.Get("v"), batch.With({batch.columns, is_full ? batch.columns : least}),
                         [] { return "the shape of the right vectors,"; });
}

void RunSvd(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Svd(launch.refs[3], launch.refs[0], launch.refs[1], launch.refs[2], launch.ints[0] != 0, range,
               memory.scratch);
}

Status LowerSvd(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const MatrixBatch batch, ReadMatrices(call, call.inputs[0]));
  const bool has_vectors = call.Bool("computeUV");
  Launch& launch = call.AddLaunch(RunSvd);
  launch.ints.push_back(has_vectors ? 1 : 0);
  call.Write(launch, call.Get("sigma"));
  for (const char* name : {"u", "v"}) call.WriteOptional(launch, has_vectors ? &call.Get(name) : nullptr);
  call.Read(launch, call.inputs[0]);
  const Operand& tall = call.Get(batch.rows < batch.columns ? "v" : "u");
  SplitMatrices(
      call, launch, batch,
      kernels::SvdScratchBytes(call.compute, batch.rows, batch.columns, has_vectors ? tall.sizes().back() : 0));
  launch.grain = 1;
  return {};
}

// ---- Cross ----

// The dim along which vectors of 3 lie: parameter dim.
StatusOr<int> CrossDim(const OpCall& call, const Dims& shape) {
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), static_cast<int>(shape.size())));
  if (!shape.empty() && shape[static_cast<size_t>(dim)] == 3) return dim;
  return call.Invalid(fmt::format("dim is {}, which has not size 3 in the broadcast shape {} of {}", call.Int("dim"),
                                  ShapeText(shape), call.InputShapes()));
}

Status CrossShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(BroadcastInputs(call));
  const std::span<const int64_t> sizes = call.outputs[0].sizes();
  return CrossDim(call, Dims(sizes.data(), sizes.size())).status();
}

// `ref` as a view of the shape of out, to which it broadcasts.
kernels::TensorRef SpreadTo(const kernels::TensorRef& ref, const kernels::TensorRef& out) {
  kernels::TensorRef view = ref;
  view.rank = out.rank;
  for (int d = 0; d < out.rank; ++d) {
    const int own = d - out.rank + ref.rank;
    view.sizes[d] = out.sizes[d];
    view.strides[d] = own < 0 || ref.sizes[own] == 1 ? 0 : ref.strides[own];
  }
  return view;
}

// refs: out, a, b; row-major, the dim of 3 last.
template <class T>
void CrossVectors(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const T* a = DataOf<T>(launch, 1, memory);
  const T* b = DataOf<T>(launch, 2, memory);
  T* out = DataOf<T>(launch, 0, memory);
  for (int64_t i = 3 * range.begin; i < 3 * range.end; i += 3) {
    for (int64_t k = 0; k < 3; ++k) {
      const int64_t l = i + (k + 1) % 3;
      const int64_t r = i + (k + 2) % 3;
      out[i + k] = kernels::SubValue(kernels::MulValue(a[l], b[r]), kernels::MulValue(a[r], b[l]));
    }
  }
}

void RunCross(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  switch (launch.refs[0].dtype) {
    case DType::kFloat: return CrossVectors<float>(launch, range, memory);
    case DType::kDouble: return CrossVectors<double>(launch, range, memory);
    case DType::kComplex64: return CrossVectors<std::complex<float>>(launch, range, memory);
    case DType::kComplex128: return CrossVectors<std::complex<double>>(launch, range, memory);
    case DType::kUInt64: return CrossVectors<uint64_t>(launch, range, memory);
    default: return CrossVectors<int64_t>(launch, range, memory);
  }
}

// The type that products are made in; integers keep their low bits in a wider one.
DType CrossStage(DType type) {
  if (kernels::CategoryOf(type) == kernels::Category::kComplex || type == DType::kUInt64) return type;
  return kernels::CategoryOf(type) == kernels::Category::kFloating ? WideFloatOf(type) : DType::kInt64;
}

Status LowerCross(OpCall& call) {
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  const kernels::TensorRef whole = call.RefOf(out);
  REPRISE_ASSIGN_OR_RETURN(const int dim, CrossDim(call, Dims(whole.sizes, static_cast<size_t>(whole.rank))));
  const DType stage = CrossStage(call.compute);
  const auto input = [&](size_t i) {
    return DenseInput(call, call.inputs[i], kernels::WithDimLast(SpreadTo(call.RefOf(call.inputs[i]), whole), dim),
                      stage);
  };
  const Dense a = input(0);
  const Dense b = input(1);
  const kernels::TensorRef turned = kernels::WithDimLast(whole, dim);
  const Dense product = DenseTemporary(call, stage, {turned.sizes, static_cast<size_t>(turned.rank)});
  Launch& launch = call.AddLaunch(RunCross);
  product.Write(call, launch);
  a.Read(call, launch);
  b.Read(call, launch);
  launch.units = out.tensor->count / 3;
  launch.grain = GrainOf(6);
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, out, turned);
  product.Read(call, copy);
  copy.units = out.tensor->count;
  copy.grain = GrainOf(1);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/factorization.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
