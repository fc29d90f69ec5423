// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"

#include "kernels/arg_reduce.h"
#include "kernels/histogram.h"
#include "kernels/scan.h"
#include "ops/computations.h"
#include "ops/families/picture_reader.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::Category;
using kernels::DType;
using kernels::ReduceOp;
using kernels::ReduceSpec;
using kernels::TensorRef;

// ---- Attributes ----

bool KeepsDims(const OpCall& call) {
  for (const std::string_view name : {"keepDims", "keepDim", "keepdim"}) {
    if (call.Has(name)) return call.Bool(name);
  }
  return false;
}

ParamKind KindOf(const OpCall& call, std::string_view name) {
  for (const Param& param : call.op.params) {
    if (param.name == name) return param.kind;
  }
  return ParamKind::kInt;
}

// Bit d: dim d of self is reduced. No dims at all means every one.
StatusOr<uint32_t> ReducedDims(const OpCall& call) {
  const int rank = call.inputs[0].rank();
  const std::string_view name = call.Has("dims") ? "dims" : "dim";
  if (!call.Has(name)) return (1u << rank) - 1;
  if (KindOf(call, name) != ParamKind::kIntArray) {
    REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim(name, call.Int(name), rank));
    return rank == 0 ? 0u : 1u << dim;
  }
  const std::span<const int64_t> dims = call.Ints(name);
  if (dims.empty()) return (1u << rank) - 1;
  uint32_t mask = 0;
  for (int64_t dim : dims) {
    REPRISE_ASSIGN_OR_RETURN(const int d,
                             call.WrapDim(name == "dims" ? "an entry of dims" : "an entry of dim", dim, rank));
    if ((mask >> d & 1) != 0) {
      return call.Invalid(fmt::format("{} {} names dim {} twice", name, ShapeText(dims), d), "name each dim once");
    }
    mask |= 1u << d;
  }
  return rank == 0 ? 0 : mask;
}

// ---- Launches ----

constexpr int64_t kFewOutputs = 8;
constexpr int64_t kWorthTwoLaunches = 4 * kernels::kReducePart;  // elements
constexpr int64_t kFewColumnBytes = 8192;

// Outputs that are worth a call of their own. Columns side by side are read by whole lines, and where rows are long and
// many, each row of them from a page of its own.
int64_t ColumnsOfChunk(const TensorRef& source, uint32_t mask) {
  constexpr int64_t kOfLines = 32;
  constexpr int64_t kOfPages = 512;
  constexpr int64_t kFewRows = 64;
  constexpr int64_t kLongRow = 2048;  // bytes
  int64_t rows = 1;
  int64_t step = 0;  // from one row to the next, at least
  bool has_columns = false;
  for (int d = 0; d < source.rank; ++d) {
    if (source.sizes[d] == 1) continue;
    const bool is_reduced = (mask >> d & 1) != 0;
    if (source.strides[d] == 1) has_columns = !is_reduced && source.sizes[d] >= 4;
    if (!is_reduced) continue;
    rows *= source.sizes[d];
    step = step == 0 ? source.strides[d] : std::min(step, source.strides[d]);
  }
  if (!has_columns) return 1;
  return rows > kFewRows && step * kernels::ItemSize(source.dtype) >= kLongRow ? kOfPages : kOfLines;
}

// A reduction whose outputs may be few: then parts of the elements are units of work, too.
struct Reduction {
  OpCall& call;
  ReduceSpec spec;
  uint32_t mask;
  const Operand* self;
  TensorRef source;  // self, or another view of it

  int64_t outputs = 1;
  int64_t count = 1;
  int64_t columns = 0;  // contiguous outputs over elements that are not

  Reduction(OpCall& c, ReduceSpec s, uint32_t m, const Operand& operand)
      : Reduction(c, s, m, operand, c.RefOf(operand)) {}
  Reduction(OpCall& c, ReduceSpec s, uint32_t m, const Operand& operand, const TensorRef& view)
      : call(c), spec(s), mask(m), self(&operand), source(view) {
    for (int d = 0; d < source.rank; ++d) {
      const bool is_reduced = (mask >> d & 1) != 0;
      (is_reduced ? count : outputs) *= source.sizes[d];
      if (source.sizes[d] != 1 && source.strides[d] == 1) columns = is_reduced ? 0 : source.sizes[d];
    }
  }

  int64_t parts() const { return (count + kernels::kReducePart - 1) / kernels::kReducePart; }
  bool IsSplit() const {
    if (parts() < 2 || outputs * count < kWorthTwoLaunches) return false;
    return columns >= 4 ? outputs * kernels::ItemSize(source.dtype) <= kFewColumnBytes : outputs < kFewOutputs;
  }
  int64_t Cost() const { return spec.op == ReduceOp::kNormP ? 20 : spec.op == ReduceOp::kLogSumExp ? 6 : 1; }
  // The kept dims of `out`, which has size 1 in the place of the reduced ones, or not.
  TensorRef KeptOf(TensorRef out) const {
    if (out.rank != source.rank) return out;
    int kept = 0;
    for (int d = 0; d < source.rank; ++d) {
      if ((mask >> d & 1) != 0) continue;
      out.sizes[kept] = out.sizes[d];
      out.strides[kept++] = out.strides[d];
    }
    out.rank = kept;
    return out;
  }
  Launch& Add(Launch::Kernel kernel, int64_t pass) const {
    Launch& launch = call.AddLaunch(kernel);
    launch.compute = spec.compute;
    for (int64_t value : {static_cast<int64_t>(spec.op), static_cast<int64_t>(mask), pass, count}) {
      launch.ints.push_back(value);
    }
    launch.scalars.push_back(kernels::Scalar::Of<double>(spec.value));
    return launch;
  }

  /// Writes to an operand, `mean` may be null; or to a temporary.
  void Lower(const Operand& out, const Operand* mean) const { Lower(&out, KeptOf(call.RefOf(out)), mean); }
  void LowerTemporary(const TensorRef& out) const { Lower(nullptr, out, nullptr); }

 private:
  void Lower(const Operand* out, const TensorRef& out_view, const Operand* mean) const;
};

ReduceSpec SpecOf(const Launch& launch) {
  return {static_cast<ReduceOp>(launch.ints[0]), launch.compute, launch.scalars[0].As<double>()};
}

void RunReduce(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef out = launch.Ref(0, memory);
  kernels::Reduce(SpecOf(launch), launch.refs[1], static_cast<uint32_t>(launch.ints[1]), out, launch.RefOrNull(2),
                  range);
}

void RunParts(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef partials = launch.Ref(0, memory);
  const TensorRef shift = launch.Ref(2, memory);
  kernels::ReduceParts(SpecOf(launch), static_cast<int>(launch.ints[2]), launch.refs[1],
                       static_cast<uint32_t>(launch.ints[1]), launch.HasOperand(2) ? &shift : nullptr, partials, range);
}

void RunPartials(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef out = launch.Ref(0, memory);
  const TensorRef partials = launch.Ref(1, memory);
  const TensorRef shift = launch.Ref(2, memory);
  kernels::ReducePartials(SpecOf(launch), static_cast<int>(launch.ints[2]), partials,
                          launch.HasOperand(2) ? &shift : nullptr, launch.ints[3], out, launch.RefOrNull(3), range);
}

void Reduction::Lower(const Operand* out, const TensorRef& out_view, const Operand* mean) const {
  const auto write_out = [&](Launch& launch) {
    if (out != nullptr) {
      call.Write(launch, *out, out_view);
    } else {
      call.WriteTemporary(launch, out_view);
    }
  };
  const auto write_mean = [&](Launch& launch, bool wanted) {
    if (wanted && mean != nullptr) {
      call.Write(launch, *mean, KeptOf(call.RefOf(*mean)));
    } else {
      call.WriteOptional(launch, nullptr);
    }
  };
  if (!IsSplit()) {
    Launch& launch = Add(RunReduce, 0);
    write_out(launch);
    call.Read(launch, *self, source);
    write_mean(launch, true);
    launch.units = outputs;
    launch.grain = std::max(GrainOf(count * Cost()), ColumnsOfChunk(source, mask));
    return;
  }
  const DType stage = kernels::ReduceStage(spec);
  Dims partial_sizes;
  partial_sizes.push_back(parts());
  for (int d = 0; d < source.rank; ++d) {
    if ((mask >> d & 1) == 0) partial_sizes.push_back(source.sizes[d]);
  }
  const TensorRef partials = call.Temporary(stage, partial_sizes);
  const int passes = kernels::ReducePasses(spec.op);
  TensorRef shift;
  if (passes == 2) shift = call.Temporary(stage, std::span(partial_sizes).subspan(1));
  for (int pass = 0; pass < passes; ++pass) {
    Launch& launch = Add(RunParts, pass);
    call.WriteTemporary(launch, partials);
    call.Read(launch, *self, source);
    if (pass == 1) {
      call.ReadTemporary(launch, shift);
    } else {
      call.ReadOptional(launch, nullptr);
    }
    launch.units = parts() * outputs;
    launch.grain = std::max(GrainOf(kernels::kReducePart * Cost()), columns >= 4 ? outputs : 1);
    Launch& folds = Add(RunPartials, pass);
    if (pass + 1 < passes) {
      call.WriteTemporary(folds, shift);
    } else {
      write_out(folds);
    }
    call.ReadTemporary(folds, partials);
    if (pass == 1) {
      call.ReadTemporary(folds, shift);
    } else {
      call.ReadOptional(folds, nullptr);
    }
    write_mean(folds, passes == 2 && pass == 0);
    folds.units = outputs;
    folds.grain = GrainOf(parts());
  }
}

// ---- Types ----

bool IsComplex(DType type) { return kernels::CategoryOf(type) == Category::kComplex; }

// Parameter dtype is the type of the output, a floating or complex one.
Status TypeOfMean(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(TypeOfDTypeParam(call));
  if (kernels::CategoryOf(call.compute) >= Category::kFloating) return {};
  return call.Invalid(fmt::format("dtype is {}, a mean needs a floating or complex type", kernels::Name(call.compute)));
}

// The norm of complex numbers is real.
Status TypeOfNorm(OpCall& call) {
  const Operand& out = call.outputs[0];
  const DType self = call.inputs[0].dtype;
  if (IsComplex(out.dtype)) {
    return call.InvalidOperand(out, fmt::format("has {}, a norm is real", kernels::Name(out.dtype)));
  }
  call.compute = self;
  if (!call.Has("dtype")) return {};
  REPRISE_RETURN_IF_ERROR(TypeOfDTypeParam(call));
  if (IsComplex(self)) call.compute = out.dtype == DType::kDouble ? DType::kComplex128 : DType::kComplex64;
  return {};
}

Status TypeOfTrace(OpCall& call) {
  call.compute = call.outputs[0].dtype;
  const DType self = call.inputs[0].dtype;
  if (kernels::CanCast(self, call.compute)) return {};
  return call.InvalidOperand(call.outputs[0], fmt::format("has {}, which cannot hold the sum of {}",
                                                          kernels::Name(call.compute), call.InputTypes()));
}

Status CheckConversion(const OpCall& call) {
  const Operand& self = call.inputs[0];
  if (!IsComplex(self.dtype) || IsComplex(call.compute)) return {};
  return call.InvalidOperand(self, fmt::format("is {}, which does not convert to dtype {}", kernels::Name(self.dtype),
                                               kernels::Name(call.compute)));
}

// ---- Plans ----

StatusOr<double> RealScalar(const OpCall& call, std::string_view name) {
  const kernels::Scalar& scalar = *call.Scalar(name);
  if (IsComplex(scalar.dtype)) return call.Invalid(fmt::format("{} is a complex number, expected a real one", name));
  return scalar.As<double>();
}

// Norms of any order are found under one operation; special orders need no powers.
ReduceSpec NormSpec(DType compute, double order) {
  ReduceOp op = ReduceOp::kNormP;
  if (order == 0) op = ReduceOp::kNormZero;
  if (order == 1) op = ReduceOp::kNormOne;
  if (order == 2) op = ReduceOp::kNormTwo;
  if (std::isinf(order)) op = order > 0 ? ReduceOp::kNormInf : ReduceOp::kNormMinusInf;
  return {op, compute, order};
}

Status CheckNotEmpty(const OpCall& call, const Reduction& reduction) {
  if (reduction.count != 0 || reduction.outputs == 0) return {};
  return call.InvalidOperand(
      *reduction.self,
      fmt::format("has shape {}: nothing to choose from in the reduced dims", ShapeText(reduction.self->sizes())),
      "reduce dims that have elements");
}

Status LowerReduce(OpCall& call) {
  const auto op = static_cast<ReduceOp>(call.op.computation.code);
  REPRISE_RETURN_IF_ERROR(CheckConversion(call));
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  const Reduction reduction(call, {op, call.compute}, mask, call.inputs[0]);
  if (op == ReduceOp::kMax || op == ReduceOp::kMin) REPRISE_RETURN_IF_ERROR(CheckNotEmpty(call, reduction));
  reduction.Lower(call.outputs[0], nullptr);
  return {};
}

// Least and largest in one pass each.
Status LowerAminmax(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  const Reduction least(call, {ReduceOp::kMin, call.compute}, mask, call.inputs[0]);
  REPRISE_RETURN_IF_ERROR(CheckNotEmpty(call, least));
  least.Lower(call.Get("minOut"), nullptr);
  Reduction(call, {ReduceOp::kMax, call.compute}, mask, call.inputs[0]).Lower(call.Get("maxOut"), nullptr);
  return {};
}

Status LowerVariance(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  const ReduceSpec spec{static_cast<ReduceOp>(call.op.computation.code), call.compute,
                        static_cast<double>(call.Int("correction"))};
  const Operand* mean = call.Has("meanOut") ? call.Find("meanOut") : nullptr;
  Reduction(call, spec, mask, call.inputs[0]).Lower(call.outputs[0], mean);
  return {};
}

Status LowerVectorNorm(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  REPRISE_ASSIGN_OR_RETURN(const double order, RealScalar(call, call.Has("ord") ? "ord" : "pScalar"));
  const Reduction reduction(call, NormSpec(call.compute, order), mask, call.inputs[0]);
  // The norm of nothing is 0 but for the orders that choose an element.
  if (order < 0) REPRISE_RETURN_IF_ERROR(CheckNotEmpty(call, reduction));
  reduction.Lower(call.outputs[0], nullptr);
  return {};
}

void RunRenorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Renorm(launch.refs[1], launch.Ref(2, memory), static_cast<int>(launch.ints[0]),
                  launch.scalars[0].As<double>(), launch.refs[0], range);
}

Status LowerRenorm(OpCall& call) {
  const Operand& self = call.inputs[0];
  if (self.rank() < 2) {
    return call.InvalidOperand(self, fmt::format("has rank {}, slices need a rank of 2 or more", self.rank()));
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  REPRISE_ASSIGN_OR_RETURN(const double order, RealScalar(call, "p"));
  REPRISE_ASSIGN_OR_RETURN(const double limit, RealScalar(call, "maxNorm"));
  if (!(order > 0)) return call.Invalid(fmt::format("p is {}, expected a number above 0", order));
  if (!(limit >= 0)) return call.Invalid(fmt::format("maxNorm is {}, expected 0 or more", limit));
  if (self.tensor->count == 0) return {};
  const ReduceSpec spec = NormSpec(call.compute, order);
  const TensorRef norms = call.Temporary(kernels::ReduceStage(spec), self.sizes().subspan(static_cast<size_t>(dim), 1));
  Reduction(call, spec, ((1u << self.rank()) - 1) & ~(1u << dim), self).LowerTemporary(norms);
  Launch& launch = call.AddLaunch(RunRenorm);
  launch.ints.push_back(dim);
  launch.scalars.push_back(kernels::Scalar::Of<double>(limit));
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  call.ReadTemporary(launch, norms);
  launch.units = self.tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

Status TraceShape(OpCall& call) {
  if (call.inputs[0].rank() != 2) {
    return call.InvalidOperand(call.inputs[0], fmt::format("has rank {}, expected a matrix", call.inputs[0].rank()));
  }
  return call.CheckShape(call.outputs[0], {}, [] { return "the shape of one number"; });
}

Status LowerTrace(OpCall& call) {
  TensorRef view = call.RefOf(call.inputs[0]);
  view.sizes[0] = std::min(view.sizes[0], view.sizes[1]);
  view.strides[0] += view.strides[1];
  view.rank = 1;
  Reduction(call, {ReduceOp::kSum, call.compute}, 1, call.inputs[0], view).Lower(call.outputs[0], nullptr);
  return {};
}

// ---- Largest and smallest with their places ----

void RunArg(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::ArgReduce(launch.ints[0] != 0, launch.refs[1], static_cast<int>(launch.ints[1]), launch.refs[2],
                     launch.refs[0], range);
}

void RunArgParts(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ArgReduceParts(launch.ints[0] != 0, launch.refs[1], static_cast<int>(launch.ints[1]), launch.Ref(2, memory),
                          launch.Ref(0, memory), range);
}

void RunArgPartials(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ArgReducePartials(launch.ints[0] != 0, launch.compute, launch.Ref(3, memory), launch.Ref(2, memory),
                             launch.refs[1], launch.refs[0], range);
}

Status TypeOfArg(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  return call.Has("indices") ? OneType(call) : Status();
}

Status LowerArg(OpCall& call) {
  const Operand& self = call.inputs[0];
  const bool is_max = call.op.computation.code != 0;
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const Operand* values = call.Has("indices") ? &call.Get("out") : nullptr;
  const Operand& indices = call.Get(values != nullptr ? "indices" : "out");
  const Reduction shape(call, {ReduceOp::kMax, self.dtype}, self.rank() == 0 ? 0 : 1u << dim, self);
  REPRISE_RETURN_IF_ERROR(CheckNotEmpty(call, shape));
  const auto write_out = [&](Launch& launch) { call.Write(launch, indices, shape.KeptOf(call.RefOf(indices))); };
  const auto write_values = [&](Launch& launch) {
    if (values != nullptr) {
      call.Write(launch, *values, shape.KeptOf(call.RefOf(*values)));
    } else {
      call.WriteOptional(launch, nullptr);
    }
  };
  const auto add = [&](Launch::Kernel kernel) -> Launch& {
    Launch& launch = call.AddLaunch(kernel);
    launch.ints.push_back(is_max ? 1 : 0);
    launch.ints.push_back(dim);
    return launch;
  };
  if (!shape.IsSplit()) {
    Launch& launch = add(RunArg);
    write_out(launch);
    call.Read(launch, self);
    write_values(launch);
    launch.units = shape.outputs;
    launch.grain = GrainOf(shape.count);
    return {};
  }
  Dims sizes;
  sizes.push_back((shape.count + kernels::kArgReducePart - 1) / kernels::kArgReducePart);
  for (int d = 0; d < self.rank(); ++d) {
    if (d != dim) sizes.push_back(self.sizes()[static_cast<size_t>(d)]);
  }
  const TensorRef part_indices = call.Temporary(DType::kInt64, sizes);
  const TensorRef part_values = call.Temporary(kernels::ArgReduceStage(self.dtype), sizes);
  Launch& parts = add(RunArgParts);
  call.WriteTemporary(parts, part_indices);
  call.Read(parts, self);
  call.WriteTemporary(parts, part_values);
  parts.units = sizes[0] * shape.outputs;
  parts.grain = shape.columns >= 4 ? shape.outputs : 1;
  Launch& folds = add(RunArgPartials);
  write_out(folds);
  write_values(folds);
  call.ReadTemporary(folds, part_indices);
  call.ReadTemporary(folds, part_values);
  folds.units = shape.outputs;
  folds.grain = GrainOf(sizes[0]);
  return {};
}

// ---- Scans ----

// Cost of an element of a scan: one after the other.
constexpr int64_t kScanCost = 4;

void RunScan(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Scan(static_cast<kernels::ScanOp>(launch.ints[0]), launch.refs[1], static_cast<int>(launch.ints[1]),
                launch.compute, launch.refs[0], range);
}

void RunScanExtreme(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::ScanExtreme(static_cast<kernels::ScanOp>(launch.ints[0]), launch.refs[1], static_cast<int>(launch.ints[1]),
                       launch.refs[0], launch.refs[2], range);
}

Status LowerScan(OpCall& call) {
  const Operand& self = call.inputs[0];
  const auto op = static_cast<kernels::ScanOp>(call.op.computation.code);
  REPRISE_RETURN_IF_ERROR(CheckConversion(call));
  int64_t wanted = 0;
  if (KindOf(call, "dim") == ParamKind::kScalar) {
    const kernels::Scalar& scalar = *call.Scalar("dim");
    if (kernels::CategoryOf(scalar.dtype) != Category::kInteger) {
      return call.Invalid(fmt::format("dim is a scalar of type {}, expected an integer", kernels::Name(scalar.dtype)));
    }
    wanted = scalar.As<int64_t>();
  } else {
    wanted = call.Int("dim");
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", wanted, self.rank()));
  const bool is_extreme = op == kernels::ScanOp::kMax || op == kernels::ScanOp::kMin;
  Launch& launch = call.AddLaunch(is_extreme ? RunScanExtreme : RunScan);
  launch.ints.push_back(static_cast<int64_t>(op));
  launch.ints.push_back(dim);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  if (is_extreme) call.Write(launch, call.outputs[1]);
  if (self.tensor->count == 0) return {};
  launch.units = kernels::ScanRowCount(launch.refs[1], dim);
  launch.grain = GrainOf(self.tensor->count / launch.units * kScanCost);
  return {};
}

// ---- Counts ----

void RunBincount(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::Bincount(launch.refs[1], launch.refs[2], launch.refs[0], memory.scratch);
}

Status TypeOfBincount(OpCall& call) {
  const Operand* weights = call.Find("weights");
  call.compute = weights == nullptr ? DType::kInt64 : weights->dtype == DType::kFloat ? DType::kFloat : DType::kDouble;
  return call.CheckOutputsHold();
}

Status BincountShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& out = call.outputs[0];
  if (self.rank() != 1) return call.InvalidOperand(self, fmt::format("has rank {}, expected 1", self.rank()));
  if (out.rank() != 1) return call.InvalidOperand(out, fmt::format("has rank {}, expected 1", out.rank()));
  const Operand* weights = call.Find("weights");
  if (weights != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*weights, self.sizes(), [] { return "the shape of self,"; }));
  }
  const int64_t least = call.Int("minlength");
  if (least < 0) return call.Invalid(fmt::format("minlength is {}, expected 0 or more", least));
  if (out.sizes()[0] >= least) return {};
  return call.InvalidOperand(out, fmt::format("has {} elements, minlength asks for {}", out.sizes()[0], least));
}

Status LowerBincount(OpCall& call) {
  Launch& launch = call.AddLaunch(RunBincount);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("self"));
  call.ReadOptional(launch, call.Find("weights"));
  if (call.outputs[0].tensor->count == 0) return {};
  launch.units = 1;
  call.AddScratch(launch, static_cast<uint64_t>(call.outputs[0].tensor->count) * 8);
  return {};
}

constexpr int64_t kHistogramPart = 65536;

void RunHistogram(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t bins = launch.ints[0];
  auto* counts = static_cast<int64_t*>(launch.Ref(0, memory).data);
  TensorRef data_low;
  TensorRef data_high;
  if (launch.HasOperand(2)) {
    data_low = launch.Ref(2, memory);
    data_high = launch.Ref(3, memory);
  }
  for (int64_t part = range.begin; part < range.end; ++part) {
    const kernels::Range elements{part * kHistogramPart, std::min(launch.ints[1], (part + 1) * kHistogramPart)};
    kernels::Histogram(launch.refs[1], launch.scalars[0].As<double>(), launch.scalars[1].As<double>(), data_low,
                       data_high, bins, counts + part * bins, elements);
  }
}

void RunCountSum(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ReduceSum(launch.Ref(1, memory), 1, DType::kInt64, launch.refs[0], range);
}

Status HistcShape(OpCall& call) {
  const int64_t bins = call.Int("bins");
  if (bins <= 0) return call.Invalid(fmt::format("bins is {}, expected a number above 0", bins));
  return call.CheckShape(call.outputs[0], {&bins, 1}, [] { return "one element for each bin:"; });
}

Status LowerHistc(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t bins = call.Int("bins");
  REPRISE_ASSIGN_OR_RETURN(const double low, RealScalar(call, "min"));
  REPRISE_ASSIGN_OR_RETURN(const double high, RealScalar(call, "max"));
  if (!std::isfinite(low) || !std::isfinite(high) || low > high) {
    return call.Invalid(fmt::format("min is {} and max {}, expected finite numbers, min not above max", low, high));
  }
  const int64_t count = self.tensor->count;
  if (const DType out = call.outputs[0].dtype; kernels::CategoryOf(out) < kernels::Category::kFloating) {
    const bool is_signed = kernels::Promote(out, DType::kInt8) == out;
    const int digits = 8 * static_cast<int>(kernels::ItemSize(out)) - (is_signed ? 1 : 0);
    if (digits < 63 && count >> digits != 0) {
      return call.InvalidOperand(
          call.outputs[0], fmt::format("has {}, which cannot count the {} elements of self", kernels::Name(out), count),
          "use an output of a wider type");
    }
  }
  const int64_t parts = (count + kHistogramPart - 1) / kHistogramPart;
  const Dims sizes = [&] {
    Dims dims;
    dims.push_back(parts);
    dims.push_back(bins);
    return dims;
  }();
  const TensorRef counts = call.Temporary(DType::kInt64, sizes);
  const bool of_data = low == high && count != 0;
  TensorRef ends[2];
  if (of_data) {
    int end = 0;
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const ReduceSpec spec{op, kernels::HistogramType(self.dtype)};
      ends[end] = call.Temporary(kernels::ReduceStage(spec), {});
      Reduction(call, spec, (1u << self.rank()) - 1, self).LowerTemporary(ends[end++]);
    }
  }
  Launch& launch = call.AddLaunch(RunHistogram);
  launch.ints.push_back(bins);
  launch.ints.push_back(count);
  launch.scalars.push_back(kernels::Scalar::Of<double>(low));
  launch.scalars.push_back(kernels::Scalar::Of<double>(high));
  call.WriteTemporary(launch, counts);
  call.Read(launch, self);
  if (of_data) {
    call.ReadTemporary(launch, ends[0]);
    call.ReadTemporary(launch, ends[1]);
  } else {
    call.ReadOptional(launch, nullptr);
    call.ReadOptional(launch, nullptr);
  }
  launch.units = parts;
  launch.grain = 1;
  Launch& sum = call.AddLaunch(RunCountSum);
  call.Write(sum, call.outputs[0]);
  call.ReadTemporary(sum, counts);
  sum.units = bins;
  sum.grain = GrainOf(parts);
  return {};
}

}  // namespace

Status ReducedShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  const bool keeps = KeepsDims(call);
  Dims shape;
  for (int d = 0; d < self.rank(); ++d) {
    if ((mask >> d & 1) == 0) {
      shape.push_back(self.sizes()[static_cast<size_t>(d)]);
    } else if (keeps) {
      shape.push_back(1);
    }
  }
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "the reduced shape"; }));
  }
  return {};
}

Status LowerReduceSum(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckConversion(call));
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  Reduction(call, {ReduceOp::kSum, call.compute}, mask, call.inputs[0]).Lower(call.outputs[0], nullptr);
  return {};
}

void SplitReduction(Launch& launch) {
  const TensorRef& source = launch.refs[1];
  const auto mask = static_cast<uint32_t>(launch.ints[1]);
  launch.grain = std::max(launch.grain, ColumnsOfChunk(source, mask));
}

bool ReducesAnyStrides(const Launch& launch) {
  return launch.kernel == RunReduce && launch.refs[1].rank >= 3 && launch.uses[0].slot >= 0 && launch.uses[1].slot >= 0;
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/reduction.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
