// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution.h"

#include <algorithm>

#include "kernels/layer_gradients.h"
#include "kernels/quant_rows.h"
#include "ops/computations.h"
#include "ops/families/channels_last.h"
#include "ops/families/plane_convolution.h"
#include "ops/families/recurrent_parts.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::ConvDim;
using kernels::ConvSetup;
using kernels::ConvShape;
using kernels::TensorRef;

constexpr int64_t kMostElements = int64_t{1} << 45;  // of the copy of the input

void RunPrepare(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  launch.State<ConvSetup>().Prepare(launch.refs[1], launch.Ref(0, memory).data, range);
}

void RunPack(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  launch.State<ConvSetup>().Pack(launch.refs[1], launch.Ref(0, memory).data, range, memory.scratch);
}

void TellPacking(const Launch& launch, std::vector<int64_t>& key) { launch.State<ConvSetup>().TellPacking(key); }

void RunConvolution(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& setup = launch.State<ConvSetup>();
  const TensorRef input = launch.Ref(1, memory);  // prepared or not
  setup.Convolve(input, setup.source_elements() != 0 ? input.data : nullptr, launch.Ref(2, memory).data,
                 launch.RefOrNull(3), launch.Ref(0, memory), range, memory.scratch);
}

struct Operands {
  const Operand* input;
  const Operand* weight;
  const Operand* bias;
  const Operand* out;
  TensorRef input_ref, weight_ref, out_ref;  // of rank 5
  bool is_temporary = false;                 // out_ref lies in the workspace
};

channels_last::Operands OfPixels(const Operands& operands, bool has_planes) {
  return {operands.input,
          operands.weight,
          nullptr,
          operands.bias,
          nullptr,
          operands.out,
          operands.input_ref,
          operands.weight_ref,
          {},
          operands.out_ref,
          operands.is_temporary,
          has_planes};
}

// Whether channels, and what each of them has, lie in a line.
bool IsLine(const TensorRef& ref, int64_t of_channel) {
  return kernels::HasLinesOfTaps(ref) && (ref.sizes[1] == 1 || ref.strides[1] == of_channel);
}

// A transposed convolution of pictures of one pixel is a product: each output has one tap of its own.
void MakeProduct(ConvShape& shape, Operands& operands) {
  const int64_t line = kernels::KernelSize(shape);
  if (!shape.transposed || shape.groups != 1 || operands.bias != nullptr || !IsLine(operands.weight_ref, line) ||
      !IsLine(operands.out_ref, line)) {
    return;
  }
  for (const ConvDim& dim : shape.dims) {
    const bool has_own_taps = dim.in == 1 && dim.pad == 0 && dim.out == dim.kernel && dim.dilation == 1;
    if (!has_own_taps) return;
  }
  shape.out_channels *= line;
  shape.transposed = false;
  std::fill_n(shape.dims, 3, ConvDim());
  TensorRef& weight = operands.weight_ref;
  std::swap(weight.sizes[0], weight.sizes[1]);
  std::swap(weight.strides[0], weight.strides[1]);
  weight.sizes[0] = operands.out_ref.sizes[1] = shape.out_channels;
  weight.strides[0] = operands.out_ref.strides[1] = 1;
  for (int d = 2; d < 5; ++d) weight.sizes[d] = operands.out_ref.sizes[d] = 1;
}

// Pixels that the kernel covers are rows of a product with what each output has of it.
struct Product {
  TensorRef input, weight, out;  // [batch, depth], [depth, channels], [batch, channels]
};

// Dims 0 and 1, or 1 and 0; what lies behind dim 1 is a part of it.
TensorRef MatrixOf(TensorRef ref, int64_t line, bool is_turned) {
  ref.rank = 2;
  ref.sizes[1] *= line;
  if (line != 1) ref.strides[1] = 1;
  if (is_turned) {
    std::swap(ref.sizes[0], ref.sizes[1]);
    std::swap(ref.strides[0], ref.strides[1]);
  }
  return ref;
}

// Where the result has one pixel, and all of the input is read for it: as squeeze-and-excitation has it.
bool FindProduct(const ConvShape& shape, const Operands& operands, Product& product) {
  const int64_t line = kernels::KernelSize(shape);
  const auto covers_all = [](const ConvDim& dim) { return dim.pad == 0 && dim.in == dim.kernel && dim.out == 1; };
  const TensorRef& input = operands.input_ref;
  const TensorRef& weight = operands.weight_ref;
  if (shape.transposed || shape.groups != 1 || operands.is_temporary || shape.in_channels * line == 0 ||
      !std::all_of(std::begin(shape.dims), std::end(shape.dims), covers_all)) {
    return false;
  }
  if (kernels::CategoryOf(input.dtype) != kernels::Category::kFloating || weight.dtype != input.dtype ||
      operands.out_ref.dtype != input.dtype) {
    return false;
  }
  if (line != 1 && (!IsLine(input, line) || !IsLine(weight, line))) return false;
  product = {MatrixOf(input, line, false), MatrixOf(weight, line, true), MatrixOf(operands.out_ref, 1, false)};
  return true;
}

void AddProduct(OpCall& call, const Operands& operands, const Product& product) {
  recurrent::Part bias;  // absent
  if (operands.bias != nullptr) {
    bias = recurrent::PartOf(call, operands.bias);
    InsertDims(bias.ref, 0, 1);
  }
  recurrent::AddProduct(call, {operands.out, product.out}, {operands.input, product.input},
                        {operands.weight, product.weight}, bias);
}

Status AddLaunches(OpCall& call, ConvShape shape, Operands& operands) {
  if (operands.out->tensor->count == 0) return {};
  MakeProduct(shape, operands);
  const bool fits = kernels::ChannelsLastConv::Fits(shape, operands.input_ref, operands.out_ref);
  const bool is_turned = !fits && channels_last::IsWorthTurning(shape, operands.input_ref, operands.out_ref);
  const bool is_channels_last = fits || is_turned;
  if (Product product; !is_channels_last && FindProduct(shape, operands, product)) {
    AddProduct(call, operands, product);
    return {};
  }
  if (!is_channels_last) ConvSetup::Simplify(shape, operands.input_ref, operands.out_ref);
  // Sizes whose product does not fit would end up in the workspace.
  __int128 elements = shape.batch * shape.groups * shape.in_channels;
  for (const ConvDim& dim : shape.dims) {
    elements *= dim.in + 2 * dim.pad + dim.dilation * dim.kernel + dim.stride;
    if (elements > kMostElements) {
      return call.Invalid(fmt::format("{} with this padding and dilation are too large", call.InputShapes()));
    }
  }
  if (is_channels_last) {
    return channels_last::AddLaunches(call, shape, OfPixels(operands, is_turned), {});
  }
  auto made = std::make_shared<ConvSetup>(shape, operands.input_ref, &operands.weight_ref);
  const ConvSetup& setup = *made;

  TensorRef source;
  if (setup.source_elements() != 0) {
    const int64_t count[1] = {setup.source_elements()};
    source = call.Temporary(setup.compute(), count);
    Launch& prepare = call.AddLaunch(RunPrepare);
    prepare.state = made;
    call.WriteTemporary(prepare, source);
    call.Read(prepare, *operands.input, operands.input_ref);
    prepare.units = setup.prepare_units();
    prepare.grain = GrainOf(setup.prepare_cost());
  }
  TensorRef packed;
  if (setup.packed_elements() != 0) {
    const int64_t count[1] = {setup.packed_elements()};
    packed = call.Temporary(setup.compute(), count);
    Launch& pack = call.AddLaunch(RunPack);
    pack.state = made;
    call.WriteTemporary(pack, packed);
    call.Read(pack, *operands.weight, operands.weight_ref);
    pack.units = setup.pack_units();
    pack.grain = GrainOf(setup.pack_cost());
    call.AddScratch(pack, static_cast<uint64_t>(setup.PackScratchBytes()));
    pack.tell_packing = TellPacking;
  }

  Launch& launch = call.AddLaunch(RunConvolution);
  launch.state = made;
  if (operands.is_temporary) {
    call.WriteTemporary(launch, operands.out_ref);
  } else {
    call.Write(launch, *operands.out, operands.out_ref);
  }
  if (setup.source_elements() != 0) {
    call.ReadTemporary(launch, source);
  } else {
    call.Read(launch, *operands.input, operands.input_ref);
  }
  if (setup.packed_elements() != 0) {
    launch.packed_operand = static_cast<int8_t>(launch.refs.size());
    call.ReadTemporary(launch, packed);
  } else {
    call.Read(launch, *operands.weight, operands.weight_ref);
  }
  call.ReadOptional(launch, operands.bias);
  launch.units = setup.units();
  launch.grain = GrainOfProduct(setup.unit_cost());
  call.AddScratch(launch, static_cast<uint64_t>(setup.ScratchBytes()));
  return {};
}

Status CheckMathType(const OpCall& call) {
  const int64_t math_type = call.Has("cubeMathType") ? call.Int("cubeMathType") : 0;
  if (math_type >= 0 && math_type <= 4) return {};
  return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to 4", math_type));
}

Status CheckBias(OpCall& call, const Operand* bias, int64_t channels) {
  if (bias == nullptr) return {};
  return call.CheckShape(*bias, {&channels, 1}, [] { return "one value for each channel of the output,"; });
}

// ---- Convolution ----

// Of a convolution of each channel on its own there is no number of groups.
bool IsDepthwise(const OpCall& call) { return !call.Has("groups"); }

const Operand& InputOf(const OpCall& call) { return call.Get(IsDepthwise(call) ? "self" : "input"); }

Status ReadConvolution(OpCall& call, ConvShape& shape) {
  const Operand& input = InputOf(call);
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
  shape.transposed = call.Has("transposed") && call.Bool("transposed");
  shape.batch = input.sizes()[0];
  shape.groups = IsDepthwise(call) ? input.sizes()[1] : call.Int("groups");
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
  const Operand* bias = call.Has("bias") ? call.Find("bias") : nullptr;
  REPRISE_RETURN_IF_ERROR(CheckBias(call, bias, shape.out_channels * shape.groups));
  int64_t stride[3], pad[3], behind[3], dilation[3], output_pad[3] = {};
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "stride", dims, 1, false, stride));
  REPRISE_RETURN_IF_ERROR(ReadDims(call, "padding", dims, 0, false, pad));
  std::copy_n(pad, dims, behind);
  if (call.Has("paddingBehind")) REPRISE_RETURN_IF_ERROR(ReadDims(call, "paddingBehind", dims, 0, false, behind));
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
      out = static_cast<__int128>(dim.in - 1) * dim.stride - dim.pad - behind[d] + reach + output_pad[d];
    } else if (dim.in + dim.pad + behind[d] >= reach) {
      out = (dim.in + dim.pad + behind[d] - reach) / dim.stride + 1;
    }
    if (out < 1 || out > INT64_MAX / 4) {
      return call.Invalid(fmt::format("a kernel that reaches over {} elements does not fit {} with padding {}", reach,
                                      call.InputShapes(), ShapeText(call.Ints("padding"))));
    }
    dim.out = static_cast<int64_t>(out);
  }
  return {};
}

// The kernel is given twice.
Status CheckKernelSize(const OpCall& call) {
  if (!IsDepthwise(call)) return {};
  const Operand& weight = call.Get("weight");
  const std::span<const int64_t> size = call.Ints("kernelSize");
  if (weight.rank() == 4 && InputOf(call).rank() == 4 && size.size() == 2 && size[0] == weight.sizes()[2] &&
      size[1] == weight.sizes()[3]) {
    return {};
  }
  return call.Invalid(fmt::format("kernelSize is {}, {}", ShapeText(size), call.InputShapes()),
                      "pass 4 dims, and the last two of weight as kernelSize");
}

Status ConvolutionShape(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(CheckKernelSize(call));
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  Dims expected;
  expected.push_back(shape.batch);
  expected.push_back(shape.groups * shape.out_channels);
  const int dims = InputOf(call).rank() - 2;
  for (int d = 3 - dims; d < 3; ++d) expected.push_back(shape.dims[d].out);
  return call.CheckShape(call.outputs[0], expected, [] { return "the convolved shape"; });
}

Status LowerConvolution(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  Operands operands{&InputOf(call), &call.Get("weight"), call.Find("bias"), &call.outputs[0], {}, {}, {}};
  operands.input_ref = call.RefOf(*operands.input);
  operands.weight_ref = call.RefOf(*operands.weight);
  operands.out_ref = call.RefOf(*operands.out);
  for (TensorRef* ref : {&operands.input_ref, &operands.weight_ref, &operands.out_ref})
    InsertDims(*ref, 2, 5 - ref->rank);
  return AddLaunches(call, shape, operands);
}

// ---- Convolution of int8 ----

// refs: out, sums, scale, bias.
void RunScaleChannels(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScaleChannels(launch.Ref(1, memory), launch.refs[2], launch.refs[3], launch.refs[0], range);
}

Status QuantConvolutionTypes(OpCall& call) {
  using kernels::DType;
  call.compute = DType::kFloat;
  for (const char* name : {"input", "weight"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == DType::kInt8) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected int8", kernels::Name(operand.dtype)));
  }
  if (const Operand* offset = call.Find("offset"); offset != nullptr && offset->tensor->count != 0) {
    return call.InvalidOperand(*offset, "is given, but quantized results are not supported", "pass null");
  }
  const Operand& scale = call.Get("scale");
  if (scale.dtype == DType::kFloat || scale.dtype == DType::kInt64 || scale.dtype == DType::kUInt64) return {};
  return call.InvalidOperand(
      scale, fmt::format("has {}, expected float32, or 64 bits of aclnnTransQuantParamV2", kernels::Name(scale.dtype)));
}

Status QuantConvolutionShape(OpCall& call) {
  if (call.Bool("transposed")) return call.Invalid("transposed is true, expected false");
  if (call.Int("offsetx") != 0) {
    return call.Invalid(fmt::format("offsetx is {}, expected 0", call.Int("offsetx")), "the padding is 0");
  }
  if (const std::string_view mode = call.Text("roundMode"); !mode.empty() && mode != "rint") {
    return call.Invalid(fmt::format("roundMode is '{}', expected rint", mode));
  }
  REPRISE_RETURN_IF_ERROR(ConvolutionShape(call));
  const Operand& scale = call.Get("scale");
  const int64_t channels = call.outputs[0].sizes()[1];
  if (scale.rank() <= 1 && (scale.tensor->count == 1 || scale.tensor->count == channels)) return {};
  return call.InvalidOperand(scale,
                             fmt::format("has shape {}, expected [1] or [{}]", ShapeText(scale.sizes()), channels));
}

Status LowerQuantConvolution(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  const TensorRef sums = call.Temporary(kernels::DType::kFloat, out.sizes());
  Operands operands{&call.Get("input"), &call.Get("weight"), nullptr, &out, {}, {}, {}, true};
  operands.input_ref = call.RefOf(*operands.input);
  operands.weight_ref = call.RefOf(*operands.weight);
  operands.out_ref = sums;
  for (TensorRef* ref : {&operands.input_ref, &operands.weight_ref, &operands.out_ref})
    InsertDims(*ref, 2, 5 - ref->rank);
  REPRISE_RETURN_IF_ERROR(AddLaunches(call, shape, operands));
  Launch& launch = call.AddLaunch(RunScaleChannels);
  call.Write(launch, out);
  call.ReadTemporary(launch, sums);
  call.Read(launch, call.Get("scale"));
  call.ReadOptional(launch, call.Find("bias"));
  launch.units = out.tensor->count / out.sizes().back();
  launch.grain = GrainOf(out.sizes().back() * 4);
  return {};
}

// ---- ConvTbc: time, batch, channels ----

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

Status LowerConvTbc(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvTbc(call, shape));
  Operands operands{&call.Get("self"), &call.Get("weight"), call.Find("bias"), &call.outputs[0], {}, {}, {}};
  operands.input_ref = Reordered(call.RefOf(*operands.input), 1, 2, 0);
  operands.weight_ref = Reordered(call.RefOf(*operands.weight), 2, 1, 0);
  operands.out_ref = Reordered(call.RefOf(*operands.out), 1, 2, 0);
  return AddLaunches(call, shape, operands);
}

// ---- Gradients ----

Status ConvolutionBackwardShape(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  const Operand& input = call.Get("input");
  Dims expected;
  expected.push_back(shape.batch);
  expected.push_back(shape.groups * shape.out_channels);
  for (int d = 5 - input.rank(); d < 3; ++d) expected.push_back(shape.dims[d].out);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOutput"), expected, [] { return "the convolved shape"; }));
  const std::span<const int64_t> shapes[] = {input.sizes(), call.Get("weight").sizes(), {&expected[1], 1}};
  for (size_t i = 0; i < 3; ++i) {
    REPRISE_ASSIGN_OR_RETURN(const Operand* wanted, WantedGradient(call, i));
    if (wanted == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*wanted, shapes[i], [] { return "that of what it is the gradient of,"; }));
  }
  return {};
}

TensorRef OfRank5(const OpCall& call, const Operand& operand) {
  TensorRef ref = call.RefOf(operand);
  InsertDims(ref, 2, 5 - ref.rank);
  return ref;
}

void RunWeightGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ConvWeightGradient(launch.State<kernels::ConvGradientShape>(), launch.Ref(1, memory), launch.Ref(2, memory),
                              launch.refs[0], range, memory.scratch);
}

void RunBiasGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::SumOfChannels(launch.refs[1], launch.refs[0], range);
}

// A copy whose rows are numbers of the type of the arithmetic; nothing where they are that already.
bool CopyForRows(OpCall& call, const Operand& operand, TensorRef& ref) {
  const kernels::DType compute =
      call.compute == kernels::DType::kDouble ? kernels::DType::kDouble : kernels::DType::kFloat;
  if (ref.dtype == compute && (ref.strides[4] == 1 || ref.sizes[4] == 1)) return false;
  const TensorRef from = ref;
  ref = call.Temporary(compute, {ref.sizes, 5});
  Launch& launch = call.AddLaunch(RunCopy);
  call.WriteTemporary(launch, ref);
  call.Read(launch, operand, from);
  launch.units = kernels::ElementCount(ref);
  launch.grain = GrainOf(1);
  return true;
}

void LowerWeightGradient(OpCall& call, const ConvShape& shape, const Operand& out) {
  const Operand& grad = call.Get("gradOutput");
  const Operand& input = call.Get("input");
  const Operand& left = shape.transposed ? input : grad;
  const Operand& right = shape.transposed ? grad : input;
  auto state = std::make_shared<kernels::ConvGradientShape>();
  state->groups = shape.groups;
  for (int d = 0; d < 3; ++d) {
    state->dims[d] = shape.dims[d];
    if (shape.transposed) std::swap(state->dims[d].in, state->dims[d].out);
  }
  TensorRef left_ref = OfRank5(call, left);
  TensorRef right_ref = OfRank5(call, right);
  const bool copies_left = CopyForRows(call, left, left_ref);
  const bool copies_right = CopyForRows(call, right, right_ref);
  Launch& launch = call.AddLaunch(RunWeightGradient);
  call.Write(launch, out, OfRank5(call, out));
  copies_left ? call.ReadTemporary(launch, left_ref) : call.Read(launch, left, left_ref);
  copies_right ? call.ReadTemporary(launch, right_ref) : call.Read(launch, right, right_ref);
  launch.units = out.sizes()[0] * out.sizes()[1];
  const int64_t volume = state->dims[0].kernel * state->dims[1].kernel * state->dims[2].kernel;
  const int64_t channels = std::max<int64_t>(1, left.sizes()[1]);
  launch.grain = GrainOf(volume * (left.tensor->count / channels));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ConvWeightGradientScratchBytes(*state)));
  launch.state = std::move(state);
}

Status LowerConvolutionBackward(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  const Operand& grad = call.Get("gradOutput");
  REPRISE_ASSIGN_OR_RETURN(const Operand* of_input, WantedGradient(call, 0));
  REPRISE_ASSIGN_OR_RETURN(const Operand* of_weight, WantedGradient(call, 1));
  REPRISE_ASSIGN_OR_RETURN(const Operand* of_bias, WantedGradient(call, 2));
  if (of_weight != nullptr) LowerWeightGradient(call, shape, *of_weight);
  if (of_bias != nullptr) {
    Launch& launch = call.AddLaunch(RunBiasGradient);
    call.Write(launch, *of_bias);
    call.Read(launch, grad);
    launch.units = of_bias->tensor->count;
    launch.grain = GrainOf(grad.tensor->count / std::max<int64_t>(1, launch.units));
  }
  if (of_input == nullptr) return {};
  // The convolution the other way round, with the same weight.
  ConvShape turned = shape;
  turned.transposed = !shape.transposed;
  std::swap(turned.in_channels, turned.out_channels);
  for (ConvDim& dim : turned.dims) std::swap(dim.in, dim.out);
  const Operand& weight = call.Get("weight");
  Operands operands{
      &grad, &weight, nullptr, of_input, OfRank5(call, grad), OfRank5(call, weight), OfRank5(call, *of_input)};
  return AddLaunches(call, turned, operands);
}

}  // namespace

namespace convolution {

Status FusedTypes(OpCall& call) { return AllOneType(call); }

Status FusedShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(ConvolutionShape(call));
  const Operand* const addend = call.Find("addend");
  if (addend == nullptr) return {};
  return call.CheckShape(*addend, call.outputs[0].sizes(), [] { return "that of the output,"; });
}

Status LowerFused(OpCall& call) {
  ConvShape shape;
  REPRISE_RETURN_IF_ERROR(ReadConvolution(call, shape));
  if (call.outputs[0].tensor->count == 0) return {};
  channels_last::Operands operands;
  operands.input = &call.Get("input");
  operands.weight = &call.Get("weight");
  operands.packed = call.Find("packed");
  operands.bias = call.Find("bias");
  operands.addend = call.Find("addend");
  operands.out = &call.outputs[0];
  operands.input_ref = OfRank5(call, *operands.input);
  operands.weight_ref = OfRank5(call, *operands.weight);
  operands.out_ref = OfRank5(call, *operands.out);
  if (operands.addend != nullptr) operands.addend_ref = OfRank5(call, *operands.addend);
  kernels::ConvEpilogue epilogue;
  epilogue.activation = static_cast<kernels::ConvActivation>(call.Int("activation"));
  epilogue.low = static_cast<float>(call.Real("low"));
  epilogue.high = static_cast<float>(call.Real("high"));
  return channels_last::AddLaunches(call, shape, operands, epilogue);
}

}  // namespace convolution

// One tap, or each channel by itself.
bool FindConvolutionOfPlanes(std::span<const Launch* const> launches, PlaneConvolution& found) {
  const bool is_prepared = launches.size() > 1 && launches[0]->kernel == RunPrepare;
  if (launches.empty() || launches[is_prepared]->kernel != RunConvolution) return false;
  const Launch& launch = *launches[is_prepared];
  if (is_prepared && launches[0]->state != launch.state) return false;
  const Launch& reads = *launches[0];
  for (const auto& [from, operand] : {std::pair(&launch, 0), std::pair(&reads, 1), std::pair(&launch, 2)}) {
    if (from->uses[static_cast<size_t>(operand)].slot < 0) return false;
    if (from->refs[static_cast<size_t>(operand)].dtype != kernels::DType::kFloat) return false;
  }
  const ConvShape& shape = launch.State<ConvSetup>().shape();
  const auto has_one = [](const ConvDim& dim) { return dim.kernel == 1 && dim.pad == 0; };
  const bool has_one_tap = shape.groups == 1 && shape.out_channels > 2 && has_one(shape.dims[0]) &&
                           has_one(shape.dims[1]) && has_one(shape.dims[2]);
  const bool is_depthwise = shape.groups > 1 && shape.in_channels == 1 && shape.out_channels == 1;
  // Where there are more pixels they would be turned, or are too many to be copied.
  const bool is_small = shape.batch * shape.dims[1].out * shape.dims[2].out < 128;
  const bool unfolds = !has_one_tap && shape.groups == 1 && shape.out_channels > 2 && shape.dims[0].in == 1 &&
                       shape.dims[0].kernel == 1 && shape.dims[0].pad == 0 && is_small;
  if (shape.transposed || (!has_one_tap && !is_depthwise && !unfolds)) return false;
  found = {
      shape, reads.refs[1], launch.refs[2], launch.refs[0], launch.RefOrNull(3), is_prepared ? size_t{2} : size_t{1},
      false, unfolds};
  return true;
}

bool FindPlaneConvolution(std::span<const Launch* const> launches, PlaneConvolution& found) {
  return FindTurnedConvolution(launches, found) || FindConvolutionOfPlanes(launches, found);
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/convolution.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
