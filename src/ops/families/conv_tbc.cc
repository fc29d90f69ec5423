// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a convolution of sequences [time, batch, channels]: a product of matrices for each position of the
// kernel, added up in the order of the positions.
#include <cstring>

#include "kernels/layer_gradients.h"
#include "kernels/matmul.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

struct TbcSizes {
  int64_t in = 0, out = 0, batch = 0, kernel = 0, in_channels = 0, out_channels = 0, pad = 0;
};

Status ReadTbc(const OpCall& call, TbcSizes& sizes) {
  const Operand& grad = call.Get("self");
  const Operand& input = call.Get("input");
  const Operand& weight = call.Get("weight");
  for (const Operand* operand : {&grad, &input, &weight}) REPRISE_RETURN_IF_ERROR(CheckRank(call, *operand, 3, 3));
  sizes.in = input.sizes()[0];
  sizes.batch = input.sizes()[1];
  sizes.in_channels = input.sizes()[2];
  sizes.kernel = weight.sizes()[0];
  sizes.out_channels = weight.sizes()[2];
  sizes.pad = call.Int("pad");
  if (weight.sizes()[1] != sizes.in_channels) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected [kernel, {}, channels of the output]",
                                                   ShapeText(weight.sizes()), sizes.in_channels));
  }
  if (sizes.pad < 0 || sizes.pad > INT32_MAX || sizes.kernel < 1 || sizes.in + 2 * sizes.pad < sizes.kernel) {
    return call.Invalid(
        fmt::format("pad is {}, a kernel of {} does not fit {} time steps", sizes.pad, sizes.kernel, sizes.in));
  }
  const int64_t math_type = call.Int("cubeMathType");
  if (math_type < 0 || math_type > 4) {
    return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to 4", math_type));
  }
  sizes.out = sizes.in + 2 * sizes.pad - sizes.kernel + 1;
  return {};
}

Status ConvTbcBackwardShape(OpCall& call) {
  TbcSizes sizes;
  REPRISE_RETURN_IF_ERROR(ReadTbc(call, sizes));
  const int64_t convolved[3] = {sizes.out, sizes.batch, sizes.out_channels};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("self"), convolved, [] { return "the convolved shape"; }));
  const auto one_each = [] { return "one for each channel of the output,"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("bias"), {&sizes.out_channels, 1}, one_each));
  const auto same = [] { return "that of what it is the gradient of,"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradInput"), call.Get("input").sizes(), same));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradWeight"), call.Get("weight").sizes(), same));
  return call.CheckShape(call.Get("gradBias"), {&sizes.out_channels, 1}, same);
}

// refs: out, a, b; with scalars the product is added to what out holds.
void RunTbcProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef out = launch.Ref(0, memory);
  kernels::MatMulEpilogue sum;
  sum.beta = kernels::Scalar::Of<int64_t>(1);
  sum.addend = out;
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), launch.compute, out, range, memory.scratch,
                  launch.ints[0] != 0 ? &sum : nullptr);
}

// A dense operand seen as the matrix [rows, columns] that begins at row `first`.
Dense MatrixFrom(const Dense& dense, int64_t first, int64_t rows, int64_t columns, bool transposed) {
  Dense matrix = dense;
  TensorRef& ref = matrix.ref;
  ref.data = static_cast<char*>(dense.ref.data) + first * columns * kernels::ItemSize(ref.dtype);
  ref.rank = 2;
  ref.sizes[0] = transposed ? columns : rows;
  ref.sizes[1] = transposed ? rows : columns;
  ref.strides[0] = transposed ? 1 : columns;
  ref.strides[1] = transposed ? columns : 1;
  return matrix;
}

void AddTbcProduct(OpCall& call, const Dense& out, const Dense& a, const Dense& b, bool accumulates) {
  if (kernels::ElementCount(out.ref) == 0) return;
  Launch& launch = call.AddLaunch(RunTbcProduct);
  launch.compute = out.ref.dtype;
  launch.ints.push_back(accumulates ? 1 : 0);
  out.Write(call, launch);
  a.Read(call, launch);
  b.Read(call, launch);
  launch.units = kernels::MatMulUnitCount(a.ref, b.ref, launch.compute, out.ref);
  if (launch.units == 0) return;
  launch.grain = GrainOf(kernels::MatMulUnitWork(a.ref, b.ref, launch.compute, out.ref));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a.ref, b.ref, launch.compute, out.ref)));
}

void RunTbcZero(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t item = kernels::ItemSize(launch.refs[0].dtype);
  std::memset(DataOf<char>(launch, 0, memory) + range.begin * item, 0,
              static_cast<size_t>((range.end - range.begin) * item));
}

void RunTbcBias(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::SumOfChannels(launch.refs[1], launch.refs[0], range);
}

Status LowerConvTbcBackward(OpCall& call) {
  TbcSizes sizes;
  REPRISE_RETURN_IF_ERROR(ReadTbc(call, sizes));
  const DType type = WideFloatOf(call.compute);
  const Dense grad = DenseInput(call, call.Get("self"), type);
  const Dense input = DenseInput(call, call.Get("input"), type);
  const Dense weight = DenseInput(call, call.Get("weight"), type);
  const Dense of_input = DenseOutput(call, call.Get("gradInput"), type);
  const Dense of_weight = DenseOutput(call, call.Get("gradWeight"), type);
  for (const Dense* zeroed : {&of_input, &of_weight}) {
    Launch& zero = call.AddLaunch(RunTbcZero);
    zeroed->Write(call, zero);
    zero.units = kernels::ElementCount(zeroed->ref);
    zero.grain = GrainOf(1);
  }
  for (int64_t k = 0; k < sizes.kernel; ++k) {
    // The time steps of the input that position k of the kernel sees, and those of the output that it is seen from.
    const int64_t begin = std::max<int64_t>(0, k - sizes.pad);
    const int64_t end = std::min(sizes.in, sizes.out + k - sizes.pad);
    if (begin >= end) continue;
    const int64_t rows = (end - begin) * sizes.batch;
    const int64_t seen = (begin - k + sizes.pad) * sizes.batch;
    const Dense left = MatrixFrom(grad, seen, rows, sizes.out_channels, false);
    AddTbcProduct(call, MatrixFrom(of_input, begin * sizes.batch, rows, sizes.in_channels, false), left,
                  MatrixFrom(weight, k * sizes.in_channels, sizes.in_channels, sizes.out_channels, true), true);
    AddTbcProduct(call, MatrixFrom(of_weight, k * sizes.in_channels, sizes.in_channels, sizes.out_channels, false),
                  MatrixFrom(input, begin * sizes.batch, rows, sizes.in_channels, true), left, false);
  }
  Launch& bias = call.AddLaunch(RunTbcBias);
  TensorRef channels = call.RefOf(call.Get("self"));
  std::swap(channels.sizes[1], channels.sizes[2]);
  std::swap(channels.strides[1], channels.strides[2]);
  call.Write(bias, call.Get("gradBias"));
  call.Read(bias, call.Get("self"), channels);
  bias.units = sizes.out_channels;
  bias.grain = GrainOf(sizes.out * sizes.batch + 1);
  of_input.Store(call);
  of_weight.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/conv_tbc.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
