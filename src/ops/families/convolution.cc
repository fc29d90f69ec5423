// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::ConvDim;
using kernels::ConvPlan;
using kernels::ConvShape;
using kernels::TensorRef;

constexpr int64_t kGrainOfConvolution = int64_t{1} << 20;
constexpr int64_t kMostElements = int64_t{1} << 45;  // of the copy of the input

void RunPrepare(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  launch.State<ConvPlan>().Prepare(launch.refs[1], launch.Ref(0, memory).data, range);
}

void RunPack(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  launch.State<ConvPlan>().Pack(launch.refs[1], launch.Ref(0, memory).data, range, memory.scratch);
}

void RunConvolution(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  const auto& plan = launch.State<ConvPlan>();
  const TensorRef input = launch.Ref(1, memory);  // prepared or not
  plan.Convolve(input, plan.source_elements() != 0 ? input.data : nullptr, launch.Ref(2, memory).data,
                launch.HasOperand(3) ? &launch.refs[3] : nullptr, launch.refs[0], range, memory.scratch);
}

struct Operands {
  const Operand* input;
  const Operand* weight;
  const Operand* bias;
  const Operand* out;
  TensorRef input_ref, weight_ref, out_ref;  // of rank 5
};

Status AddLaunches(OpCall& call, ConvShape shape, Operands& operands) {
  if (operands.out->tensor->count == 0) return {};
  ConvPlan::Simplify(shape, operands.input_ref, operands.out_ref);
  // Sizes whose product does not fit would end up in the workspace.
  __int128 elements = shape.batch * shape.groups * shape.in_channels;
  for (const ConvDim& dim : shape.dims) {
    elements *= dim.in + 2 * dim.pad + dim.dilation * dim.kernel + dim.stride;
    if (elements > kMostElements) {
      return call.Invalid(fmt::format("{} with this padding and dilation are too large", call.InputShapes()));
    }
  }
  auto made = std::make_shared<ConvPlan>(shape, operands.input_ref);
  const ConvPlan& plan = *made;

  TensorRef source;
  if (plan.source_elements() != 0) {
    const int64_t count[1] = {plan.source_elements()};
    source = call.Temporary(plan.compute(), count);
    Launch& prepare = call.AddLaunch(RunPrepare);
    prepare.state = made;
    call.WriteTemporary(prepare, source);
    call.Read(prepare, *operands.input, operands.input_ref);
    prepare.units = plan.prepare_units();
    prepare.grain = GrainOf(plan.prepare_cost());
  }
  const int64_t count[1] = {std::max<int64_t>(1, plan.packed_elements())};
  const TensorRef packed = call.Temporary(plan.compute(), count);
  Launch& pack = call.AddLaunch(RunPack);
  pack.state = made;
  call.WriteTemporary(pack, packed);
  call.Read(pack, *operands.weight, operands.weight_ref);
  pack.units = plan.pack_units();
  pack.grain = GrainOf(plan.pack_cost());
  call.AddScratch(pack, static_cast<uint64_t>(plan.PackScratchBytes()));

  Launch& launch = call.AddLaunch(RunConvolution);
  launch.state = made;
  call.Write(launch, *operands.out, operands.out_ref);
  if (plan.source_elements() != 0) {
    call.ReadTemporary(launch, source);
  } else {
    call.Read(launch, *operands.input, operands.input_ref);
  }
  call.ReadTemporary(launch, packed);
  call.ReadOptional(launch, operands.bias);
  launch.units = plan.units();
  launch.grain = std::max<int64_t>(1, kGrainOfConvolution / std::max<int64_t>(1, plan.unit_cost()));
  call.AddScratch(launch, static_cast<uint64_t>(plan.ScratchBytes()));
  return {};
}

Status CheckMathType(const OpCall& call) {
  const int64_t math_type = call.Int("cubeMathType");
  if (math_type >= 0 && math_type <= 4) return {};
  return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to 4", math_type));
}

Status CheckBias(OpCall& call, const Operand* bias, int64_t channels) {
  if (bias == nullptr) return {};
  return call.CheckShape(*bias, {&channels, 1}, [] { return "one value for each channel of the output,"; });
}

// ---- Convolution -------------------------------------------------------------------------------------------------

Status ReadConvolution(OpCall& call, ConvShape& shape) {
  const Operand& input = call.Get("input");
  const Operand& weight = call.Get("weight");
  if (input.rank() < 3 || input.rank() > 5) {
    return call.InvalidOperand(input, fmt::format("has shape {}, expected [N, C, L], [N, C, H, W] or [N, C, D, H, W]",
                                                  ShapeText(input.sizes())));
  }
  if (weight.rank() != input.rank()) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected {} dims as {} has",
                                                   ShapeText(weight.sizes()), input.rank(), call.NameOf(input)));
  }
  REPRISE_RETURN_IF_ERROR(CheckMathType(call));
  const int dims = input.rank() - 2;
  shape.transposed = call.Bool("transposed");
  shape.batch = input.sizes()[0];
  shape.groups = call.Int("groups");
  const int64_t channels = input.sizes()[1];
  const int64_t outer = weight.sizes()[0];
  const int64_t inner = weight.sizes()[1];
  if (shape.groups < 1 || channels % shape.groups != 0 || outer % shape.groups != 0) {
    return call.Invalid(
        fmt::format("groups is {}, expected a divisor of the channels of {}", shape.groups, call.InputShapes()));
  }
  shape.in_channels = channels / shape.groups;
  shape.out_channels = shape.transposed ? inner : outer / shape.groups;
  if (shape.transposed ? outer != channels : inner != shape.in_channels) {
    return call.InvalidOperand(
        weight,
        fmt::format("has shape {}, expected {} in dim {} for {} channels in {} groups", ShapeText(weight.sizes()),
                    shape.transposed ? channels : shape.in_channels, shape.transposed ? 0 : 1, channels, shape.groups));
  }
  if (channels == 0 || shape.out_channels == 0) {
    return call.Invalid(fmt::format("{} have no channels", call.InputShapes()));
  }
  REPRISE_RETURN_IF_ERROR(CheckBias(call, call.Find("bias"), shape.out_channels * shape.groups));
  int64_t stride[3], pad[3], dilation[3], output_pad[3] = {};
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "stride", dims, 1, false, stride));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "padding", dims, 0, false, pad));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "dilation", dims, 1, false, dilation));
  if (shape.transposed) REPRISE_RETURN_IF_ERROR(ReadDims(call, "outputPadding", dims, 0, true, output_pad));
  for (int d = 0; d < dims; ++d) {
    ConvDim& dim = shape.dims[3 - dims + d];
    dim.in = input.sizes()[static_cast<size_t>(2 + d)];
    dim.kernel = weight.sizes()[static_cast<size_t>(2 + d)];
    dim.stride = stride[d];
    dim.pad = pad[d];
    dim.dilation = dilation[d];
    if (dim.kernel < 1 || dim.kernel > INT32_MAX || dim.in > INT64_MAX / 4) {
      return call.InvalidOperand(
          weight, fmt::format("has shape {}, kernels of this size are not possible", ShapeText(weight.sizes())));
    }
    if (dim.in < 1) {
      return call.InvalidOperand(input, fmt::format("has shape {}, only the batch may be 0", ShapeText(input.sizes())));
    }
    if (shape.transposed && output_pad[d] >= std::max(dim.stride, dim.dilation)) {
      return call.Invalid(fmt::format("outputPadding is {}, expected less than stride {} or dilation {}",
                                      ShapeText(call.Ints("outputPadding")), dim.stride, dim.dilation));
    }
    const int64_t reach = dim.dilation * (dim.kernel - 1) + 1;
    __int128 out = 0;
    if (shape.transposed) {
      out = static_cast<__int128>(dim.in - 1) * dim.stride - 2 * dim.pad + reach + output_pad[d];
    } else if (dim.in + 2 * dim.pad >= reach) {
      out = (dim.in + 2 * dim.pad - reach) / dim.stride + 1;
    }
    if (out < 1 || out > INT64_MAX / 4) {
      return call.Invalid(fmt::format("a kernel that reaches over {} elements does not fit {} with padding {}", reach,
                                      call.InputShapes(), ShapeText(call.Ints("padding"))));
    }
    dim.out = static_cast<int64_t>(out);
  }
  return {};
}

Status ConvolutionShape(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  Dims expected;
  expected.push_back(shape.batch);
  expected.push_back(shape.groups * shape.out_channels);
  const int dims = call.Get("input").rank() - 2;
  for (int d = 3 - dims; d < 3; ++d) expected.push_back(shape.dims[d].out);
  return call.CheckShape(call.outputs[0], expected, [] { return "the convolved shape"; });
}

Status PlanConvolution(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  Operands operands{&call.Get("input"), &call.Get("weight"), call.Find("bias"), &call.outputs[0], {}, {}, {}};
  operands.input_ref = call.RefOf(*operands.input);
  operands.weight_ref = call.RefOf(*operands.weight);
  operands.out_ref = call.RefOf(*operands.out);
  for (TensorRef* ref : {&operands.input_ref, &operands.weight_ref, &operands.out_ref})
    InsertDims(*ref, 2, 5 - ref->rank);
  return AddLaunches(call, shape, operands);
}

// ---- ConvTbc: time, batch, channels ------------------------------------------------------------------------------

Status ReadConvTbc(OpCall& call, ConvShape& shape) {
  const Operand& self = call.Get("self");
  const Operand& weight = call.Get("weight");
  REPRISE_RETURN_IF_ERROR(CheckRank(call, self, 3, 3));
  REPRISE_RETURN_IF_ERROR(CheckRank(call, weight, 3, 3));
  REPRISE_RETURN_IF_ERROR(CheckMathType(call));
  ConvDim& dim = shape.dims[2];
  dim.in = self.sizes()[0];
  dim.kernel = weight.sizes()[0];
  dim.pad = call.Int("pad");
  shape.batch = self.sizes()[1];
  shape.in_channels = self.sizes()[2];
  shape.out_channels = weight.sizes()[2];
  if (weight.sizes()[1] != shape.in_channels || shape.in_channels == 0 || shape.out_channels == 0) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected [kernel, {}, channels of the output]",
                                                   ShapeText(weight.sizes()), shape.in_channels));
  }
  REPRISE_RETURN_IF_ERROR(CheckBias(call, call.Find("bias"), shape.out_channels));
  if (dim.pad < 0 || dim.pad > INT32_MAX || dim.in < 1 || dim.kernel < 1 || dim.in + 2 * dim.pad < dim.kernel) {
    return call.Invalid(
        fmt::format("pad is {}, a kernel of {} does not fit {} time steps", dim.pad, dim.kernel, dim.in));
  }
  dim.out = dim.in + 2 * dim.pad - dim.kernel + 1;
  return {};
}

Status ConvTbcShape(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvTbc(call, shape));
  const int64_t expected[3] = {shape.dims[2].out, shape.batch, shape.out_channels};
  return call.CheckShape(call.outputs[0], expected, [] { return "the convolved shape"; });
}

// Dims of `ref` in another order, as [a, b, 1, 1, c].
TensorRef Reordered(const TensorRef& ref, int a, int b, int c) {
  TensorRef view = ref;
  const int order[3] = {a, b, c};
  for (int d = 0; d < 3; ++d) {
    view.sizes[d] = ref.sizes[order[d]];
    view.strides[d] = ref.strides[order[d]];
  }
  InsertDims(view, 2, 2);
  return view;
}

Status PlanConvTbc(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvTbc(call, shape));
  Operands operands{&call.Get("self"), &call.Get("weight"), call.Find("bias"), &call.outputs[0], {}, {}, {}};
  operands.input_ref = Reordered(call.RefOf(*operands.input), 1, 2, 0);
  operands.weight_ref = Reordered(call.RefOf(*operands.weight), 2, 1, 0);
  operands.out_ref = Reordered(call.RefOf(*operands.out), 1, 2, 0);
  return AddLaunches(call, shape, operands);
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/convolution.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
