// SPDX-License-Identifier: Apache-2.0
//
// Convolutions: attributes name every dim of data_format; the functions behind them take spatial dims, channels in
// front, and one pad for both sides.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "kernels/cast.h"
#include "kernels/channels_last_conv.h"
#include "ops/families/channels_last.h"
#include "ops/named_ops/image.h"
#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"
#include "ops/spatial.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

// What the attributes of a convolution say.
struct Geometry {
  opdef::ImageLayout layout;
  std::vector<int64_t> strides, dilations;
  opdef::Pads pads;
  int64_t groups = 1;

  size_t dims() const { return strides.size(); }
  bool is_symmetric() const {
    return std::all_of(pads.begin(), pads.end(), [](const auto& pad) { return pad.first == pad.second; });
  }
  std::vector<int64_t> pads_in_front() const {
    std::vector<int64_t> front;
    for (const auto& pad : pads) front.push_back(pad.first);
    return front;
  }
  std::vector<int64_t> pads_behind() const {
    std::vector<int64_t> behind;
    for (const auto& pad : pads) behind.push_back(pad.second);
    return behind;
  }
};

StatusOr<Geometry> ReadGeometry(const NamedCall& call) {
  Geometry out;
  const size_t dims = opdef::SpatialDims(call.context);
  REPRISE_ASSIGN_OR_RETURN(out.layout, opdef::LayoutOf(call.context, dims));
  REPRISE_ASSIGN_OR_RETURN(out.strides, opdef::SpatialOf(call.context, "strides", out.layout));
  REPRISE_ASSIGN_OR_RETURN(out.dilations, opdef::SpatialOf(call.context, "dilations", out.layout));
  REPRISE_ASSIGN_OR_RETURN(out.pads, opdef::PadsOf(call.context, dims));
  if (call.context.op.FindAttribute("groups") == nullptr) return out;  // as many as channels
  out.groups = call.context.Int("groups");
  if (out.groups >= 1) return out;
  return call.context.WrongAttribute("groups", fmt::format("is {}", out.groups), "set it to 1 or more");
}

std::vector<int64_t> Zeros(size_t count) { return std::vector<int64_t>(count, 0); }

// The type that sums are in: integers become float64, which holds their sums exactly.
DType ComputeType(DType in, DType out) {
  if (in == DType::kInt8) return DType::kDouble;
  return in == out ? in : DType::kFloat;
}

Status CheckOffset(const NamedCall& call) {
  if (call.Has("offset_w")) return call.WrongInput(call.Input("offset_w"), "is not possible here", "leave it out");
  const int64_t offset = call.context.Int("offset_x");
  if (offset == 0) return {};
  return call.context.WrongAttribute("offset_x", fmt::format("is {}, only 0 is possible", offset),
                                     "subtract the offset before the convolution");
}

// x with zeros around it, where the pads of a dim differ; the pads that are left.
StatusOr<StridedView> PadApart(NamedCall& call, const StridedView& x, Geometry& geometry) {
  if (geometry.is_symmetric()) return x;
  std::vector<int64_t> wanted;  // the last dim comes first
  Dims sizes = x.sizes;
  for (size_t d = geometry.dims(); d-- > 0;) {
    auto& [front, behind] = geometry.pads[d];
    wanted.push_back(front);
    wanted.push_back(behind);
    sizes[2 + d] += front + behind;
    front = behind = 0;
  }
  const StridedView padded = call.Temporary(x.dtype, sizes);
  REPRISE_RETURN_IF_ERROR(
      StepWith(call, "aclnnConstantPadNd",
               {{"self", x}, {"pad", std::move(wanted)}, {"value", kernels::Scalar::Of<int64_t>(0)}, {"out", padded}}));
  return padded;
}

// One convolution whose operands have channels in front and one type.
Status Convolve(NamedCall& call, const StridedView& x, const StridedView& filter, const StepArgument& bias,
                const StridedView& out, const Geometry& geometry, bool is_transposed, std::vector<int64_t> more) {
  return StepWith(call, "aclnnConvolution",
                  {{"input", x},
                   {"weight", filter},
                   {"bias", bias},
                   {"stride", geometry.strides},
                   {"padding", geometry.pads_in_front()},
                   {"dilation", geometry.dilations},
                   {"transposed", is_transposed},
                   {"outputPadding", std::move(more)},
                   {"groups", geometry.groups},
                   {"output", out},
                   {"cubeMathType", int64_t{0}}});
}

// As Convolve, transposed: the result has the sizes that `out` has.
Status ConvolveBack(NamedCall& call, const StridedView& x, const StridedView& filter, const StepArgument& bias,
                    const StridedView& out, Geometry geometry) {
  const size_t dims = geometry.dims();
  Dims full = out.sizes;
  std::vector<int64_t> more;
  bool fits = geometry.is_symmetric();
  for (size_t d = 0; d < dims; ++d) {
    const int64_t reach = geometry.dilations[d] * (filter.sizes[2 + d] - 1) + 1;
    const int64_t wanted = out.sizes[2 + d] + geometry.pads[d].first + geometry.pads[d].second;
    full[2 + d] = (x.sizes[2 + d] - 1) * geometry.strides[d] + reach;
    more.push_back(wanted - full[2 + d]);
    fits &= more.back() >= 0;
  }
  if (fits) return Convolve(call, x, filter, bias, out, geometry, true, std::move(more));
  // Without pads, and the part that is wanted of it.
  for (size_t d = 0; d < dims; ++d) {
    more[d] = std::max<int64_t>(0, out.sizes[2 + d] + geometry.pads[d].first - full[2 + d]);
    full[2 + d] += more[d];
  }
  const StridedView whole = call.Temporary(out.dtype, full);
  StridedView part = whole;
  for (size_t d = 0; d < dims; ++d) {
    part = Narrowed(part, 2 + d, geometry.pads[d].first, out.sizes[2 + d]);
    geometry.pads[d] = {0, 0};
  }
  REPRISE_RETURN_IF_ERROR(Convolve(call, x, filter, bias, whole, geometry, true, std::move(more)));
  return CopyTo(call, part, out);
}

// Operands of a convolution in the type that it is computed in, channels in front.
struct Operands {
  StridedView x, filter, out;
  StepArgument bias = nullptr;
};

StatusOr<Operands> ReadOperands(NamedCall& call, const StridedView& x, const StridedView& filter,
                                const StridedView& out) {
  const DType type = ComputeType(x.dtype, out.dtype);
  Operands operands;
  REPRISE_ASSIGN_OR_RETURN(operands.x, Converted(call, x, type));
  REPRISE_ASSIGN_OR_RETURN(operands.filter, Converted(call, filter, type));
  if (call.Has("bias")) {
    StridedView bias = call.Input("bias").view();
    if (kernels::CategoryOf(bias.dtype) < kernels::Category::kFloating || type == DType::kDouble) {
      REPRISE_ASSIGN_OR_RETURN(bias, Converted(call, bias, type));
    }
    operands.bias = bias;
  }
  operands.out = type == out.dtype ? out : call.Temporary(type, out.sizes);
  return operands;
}

StatusOr<Operands> ReadOperands(NamedCall& call, const opdef::ImageLayout& layout) {
  return ReadOperands(call, ChannelsFirst(call.Input("x").view(), layout),
                      ChannelsFirst(call.Input("filter").view(), layout), ChannelsFirst(call.OutputView(), layout));
}

// ---- With what follows ----

constexpr Computation kFused = {.dtype_rule = convolution::FusedTypes,
                                .shape_rule = convolution::FusedShape,
                                .engine = Engine::kCube,
                                .lower = convolution::LowerFused};
constexpr std::array kFusedParams = {In("input"),
                                     In("weight"),
                                     opdef::Param{"packed", ParamKind::kTensor, Role::kInput, true, kFloat32Type},
                                     opdef::Param{"bias", ParamKind::kTensor, Role::kInput, true, kFloatingTypes},
                                     opdef::Param{"addend", ParamKind::kTensor, Role::kInput, true},
                                     Attr("stride", ParamKind::kIntArray),
                                     Attr("padding", ParamKind::kIntArray),
                                     Attr("paddingBehind", ParamKind::kIntArray),
                                     Attr("dilation", ParamKind::kIntArray),
                                     Attr("groups", ParamKind::kInt),
                                     Attr("activation", ParamKind::kInt),
                                     Attr("low", ParamKind::kReal),
                                     Attr("high", ParamKind::kReal),
                                     Out("output")};
constexpr Routine kFusedRoutine = {kFusedParams, kFused};

kernels::TensorRef OfRank5(const StridedView& view) {
  kernels::TensorRef ref;
  ref.data = view.data;
  ref.dtype = view.dtype;
  ref.rank = static_cast<int>(view.sizes.size());
  std::copy(view.sizes.begin(), view.sizes.end(), ref.sizes);
  std::copy(view.strides.begin(), view.strides.end(), ref.strides);
  InsertDims(ref, 2, 5 - ref.rank);
  return ref;
}

// The filter as the kernel reads it, if its elements are known now.
StepArgument PackedFilter(NamedCall& call, const kernels::ChannelsLastConv& conv, const StridedView& filter) {
  const NamedTensor& given = call.Input("filter");
  if (given.known.empty() || filter.dtype != given.dtype() || filter.data != given.data) return nullptr;
  kernels::TensorRef ref = OfRank5(filter);
  ref.data = const_cast<char*>(given.known.data());  // only read
  std::vector<float> packed(static_cast<size_t>(conv.packed_elements()));
  std::vector<char> scratch(static_cast<size_t>(conv.PackScratchBytes()));
  conv.Pack(ref, packed.data(), {0, conv.pack_units()}, scratch.data());
  const std::array<int64_t, 1> sizes = {conv.packed_elements()};
  return call.Numbers(DType::kFloat, sizes, packed.data());
}

struct Activation {
  kernels::ConvActivation kind = kernels::ConvActivation::kNone;
  double low = 0, high = 0;
};

// One step, if there is a kernel for the layout that the operands have; else *is_done stays false.
Status ConvolveChannelsLast(NamedCall& call, const Operands& operands, const Geometry& geometry,
                            const StepArgument& addend, const Activation& activation, bool* is_done) {
  if (operands.x.dtype != operands.filter.dtype) return {};
  const StridedView& x = operands.x;
  const StridedView& filter = operands.filter;
  const StridedView& out = operands.out;
  const int64_t groups = geometry.groups;
  if (x.sizes[1] % groups != 0 || out.sizes[1] % groups != 0 || CountOf(out.sizes) == 0) return {};
  kernels::ConvShape shape;
  shape.batch = x.sizes[0];
  shape.groups = groups;
  shape.in_channels = x.sizes[1] / groups;
  shape.out_channels = out.sizes[1] / groups;
  for (size_t d = 0; d < geometry.dims(); ++d) {
    shape.dims[3 - geometry.dims() + d] = {x.sizes[2 + d],      out.sizes[2 + d],       filter.sizes[2 + d],
                                           geometry.strides[d], geometry.pads[d].first, geometry.dilations[d]};
  }
  const kernels::TensorRef input = OfRank5(x);
  const kernels::TensorRef result = OfRank5(out);
  if (!kernels::ChannelsLastConv::Fits(shape, input, result)) return {};
  const kernels::ChannelsLastConv conv(shape, input, result, {}, true);
  *is_done = true;
  return call.Step(kFusedRoutine, {x, filter, PackedFilter(call, conv, filter), operands.bias, addend, geometry.strides,
                                   geometry.pads_in_front(), geometry.pads_behind(), geometry.dilations, groups,
                                   static_cast<int64_t>(activation.kind), activation.low, activation.high, out});
}

// A convolution of views with channels in front.
Status LowerConvolutionOf(NamedCall& call, const StridedView& x, const StridedView& filter, const StridedView& out,
                          Geometry geometry) {
  REPRISE_ASSIGN_OR_RETURN(Operands operands, ReadOperands(call, x, filter, out));
  bool is_done = false;
  REPRISE_RETURN_IF_ERROR(ConvolveChannelsLast(call, operands, geometry, nullptr, {}, &is_done));
  if (!is_done) {
    REPRISE_ASSIGN_OR_RETURN(operands.x, PadApart(call, operands.x, geometry));
    REPRISE_RETURN_IF_ERROR(Convolve(call, operands.x, operands.filter, operands.bias, operands.out, geometry, false,
                                     Zeros(geometry.dims())));
  }
  return operands.out.dtype == out.dtype ? Status() : CopyTo(call, operands.out, out);
}

Status LowerNamedConvolution(NamedCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckOffset(call));
  REPRISE_ASSIGN_OR_RETURN(const Geometry geometry, ReadGeometry(call));
  return LowerConvolutionOf(call, ChannelsFirst(call.Input("x").view(), geometry.layout),
                            ChannelsFirst(call.Input("filter").view(), geometry.layout),
                            ChannelsFirst(call.OutputView(), geometry.layout), geometry);
}

StatusOr<Activation> ReadActivation(const NamedCall& call) {
  using kernels::ConvActivation;
  const std::string name = call.context.Text("activation");
  if (name.empty()) return Activation{};
  if (name == "Relu") return Activation{ConvActivation::kClamp, 0, std::numeric_limits<double>::infinity()};
  if (name == "Clip") {
    return Activation{ConvActivation::kClamp, call.context.Real("low"), call.context.Real("high")};
  }
  if (name == "HardSwish") return Activation{ConvActivation::kHardSwish};
  if (name == "Swish") return Activation{ConvActivation::kSwish};
  return call.context.WrongAttribute("activation", fmt::format("is \"{}\"", name),
                                     "use Relu, Clip, HardSwish, Swish or none");
}

Status LowerFusedConvolution(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  REPRISE_ASSIGN_OR_RETURN(Operands operands, ReadOperands(call, geometry.layout));
  StepArgument addend = nullptr;
  if (call.Has("addend")) {
    if (call.Input("addend").dims != call.shape()) {
      return call.WrongInput(call.Input("addend"), "has another shape than the result", "pass a tensor of its shape");
    }
    addend = ChannelsFirst(call.Input("addend").view(), geometry.layout);
  }
  REPRISE_ASSIGN_OR_RETURN(const Activation activation, ReadActivation(call));
  bool is_done = false;
  REPRISE_RETURN_IF_ERROR(ConvolveChannelsLast(call, operands, geometry, addend, activation, &is_done));
  if (is_done) return {};
  REPRISE_ASSIGN_OR_RETURN(operands.x, PadApart(call, operands.x, geometry));
  // The parts one by one, rounded as the fused kernel does: once.
  const StridedView out = operands.out;
  const bool has_more = call.Has("addend") || activation.kind != kernels::ConvActivation::kNone;
  if (has_more) {
    operands.out = call.Temporary(Wide(out.dtype), out.sizes);
    REPRISE_ASSIGN_OR_RETURN(operands.x, Converted(call, operands.x, operands.out.dtype));
    REPRISE_ASSIGN_OR_RETURN(operands.filter, Converted(call, operands.filter, operands.out.dtype));
  }
  REPRISE_RETURN_IF_ERROR(Convolve(call, operands.x, operands.filter, operands.bias, operands.out, geometry, false,
                                   Zeros(geometry.dims())));
  if (!has_more) return {};
  const StridedView sum = operands.out;
  if (const auto* view = std::get_if<StridedView>(&addend)) REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {sum, *view, sum}));
  switch (activation.kind) {
    case kernels::ConvActivation::kNone:
    case kernels::ConvActivation::kRow: break;  // which no attribute names
    case kernels::ConvActivation::kClamp:
      return StepWith(call, "aclnnClamp",
                      {{"self", sum},
                       {"clipValueMin", kernels::Scalar::Of<double>(activation.low)},
                       {"clipValueMax", kernels::Scalar::Of<double>(activation.high)},
                       {"out", out}});
    case kernels::ConvActivation::kHardSwish:
      REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnHardswish", {sum, sum}));
      break;
    case kernels::ConvActivation::kSwish: REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnSilu", {sum, sum})); break;
    case kernels::ConvActivation::kRelu: REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnRelu", {sum, sum})); break;
  }
  return CopyTo(call, sum, out);
}

Status LowerTransposedConvolution(NamedCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckOffset(call));
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"x", "filter"}, geometry.layout));
  REPRISE_ASSIGN_OR_RETURN(const Operands operands, ReadOperands(call, geometry.layout));
  REPRISE_RETURN_IF_ERROR(ConvolveBack(call, operands.x, operands.filter, operands.bias, operands.out, geometry));
  const StridedView out = ChannelsFirst(call.OutputView(), geometry.layout);
  return operands.out.dtype == out.dtype ? Status() : CopyTo(call, operands.out, out);
}

// The gradient of x, in the type of the result.
Status StepGradientOfInput(NamedCall& call, const StridedView& grad, const StridedView& filter, const StridedView& out,
                           const Geometry& geometry) {
  const DType type = ComputeType(grad.dtype, out.dtype);
  REPRISE_ASSIGN_OR_RETURN(const StridedView wide_grad, Converted(call, grad, type));
  REPRISE_ASSIGN_OR_RETURN(const StridedView wide_filter, Converted(call, filter, type));
  const StridedView result = type == out.dtype ? out : call.Temporary(type, out.sizes);
  REPRISE_RETURN_IF_ERROR(ConvolveBack(call, wide_grad, wide_filter, nullptr, result, geometry));
  return type == out.dtype ? Status() : CopyTo(call, result, out);
}

Status LowerGradientOfInput(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"filter", "out_backprop"}, geometry.layout));
  const auto view = [&](const NamedTensor& tensor) { return ChannelsFirst(tensor.view(), geometry.layout); };
  return StepGradientOfInput(call, view(call.Input("out_backprop")), view(call.Input("filter")), view(call.output()),
                             geometry);
}

// The gradient of the filter [out, in of a group, ..], in the type of the result.
Status StepGradientOfFilter(NamedCall& call, const StridedView& input, const StridedView& grad, const StridedView& out,
                            Geometry geometry) {
  const DType type = input.dtype == out.dtype ? out.dtype : DType::kFloat;
  REPRISE_ASSIGN_OR_RETURN(const StridedView wide_input, Converted(call, input, type));
  REPRISE_ASSIGN_OR_RETURN(const StridedView wide_grad, Converted(call, grad, type));
  REPRISE_ASSIGN_OR_RETURN(const StridedView x, PadApart(call, wide_input, geometry));
  return StepWith(call, "aclnnConvolutionBackward",
                  {{"gradOutput", wide_grad},
                   {"input", x},
                   {"weight", Placeholder(call, out.dtype, out.sizes)},
                   {"biasSizes", std::vector<int64_t>{out.sizes[0]}},
                   {"stride", geometry.strides},
                   {"padding", geometry.pads_in_front()},
                   {"dilation", geometry.dilations},
                   {"transposed", false},
                   {"outputPadding", Zeros(geometry.dims())},
                   {"groups", geometry.groups},
                   {"outputMask", std::vector<bool>{false, true, false}},
                   {"cubeMathType", int64_t{0}},
                   {"gradWeight", out}});
}

Status LowerGradientOfFilter(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Geometry geometry, ReadGeometry(call));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"x", "out_backprop"}, geometry.layout));
  const auto view = [&](const NamedTensor& tensor) { return ChannelsFirst(tensor.view(), geometry.layout); };
  return StepGradientOfFilter(call, view(call.Input("x")), view(call.Input("out_backprop")), view(call.output()),
                              geometry);
}

// ---- A filter of its own for each channel ----

// A filter as [c * m, 1, h, w]: of [h, w, c, m] beside NHWC that is a view; [m, c, h, w] beside NCHW has other places.
struct DepthwiseFilter {
  StridedView view;
  std::array<int64_t, 4> sizes;
  bool is_view = true;
};

StatusOr<DepthwiseFilter> ReadDepthwise(const NamedCall& call, const NamedTensor& filter, const Geometry& geometry,
                                        int64_t channels) {
  const StridedView view = filter.view();
  const bool is_last = geometry.layout.channel == 3;
  if (view.sizes.size() != 4) {
    return call.WrongInput(filter, fmt::format("has the shape {}", ShapeText(filter.dims)), "pass a filter of 4 dims");
  }
  DepthwiseFilter out;
  out.sizes = is_last ? std::array<int64_t, 4>{view.sizes[2] * view.sizes[3], 1, view.sizes[0], view.sizes[1]}
                      : std::array<int64_t, 4>{view.sizes[0] * view.sizes[1], 1, view.sizes[2], view.sizes[3]};
  const int64_t own = is_last ? view.sizes[2] : view.sizes[1] == 1 ? channels : view.sizes[1];
  if (own != channels || channels < 1 || out.sizes[0] % channels != 0) {
    return call.WrongInput(filter,
                           fmt::format("has the shape {}, but there are {} channels", ShapeText(filter.dims), channels),
                           is_last ? "pass [height, width, channels, results of a channel]"
                                   : "pass [channels times results of a channel, 1, height, width]");
  }
  out.view = StridedView::Of(view.dtype, out.sizes, view.data);
  if (is_last) {
    out.view.strides[0] = 1;
    out.view.strides[1] = out.sizes[0];
    out.view.strides[2] = out.sizes[0] * out.sizes[3];
    out.view.strides[3] = out.sizes[0];
  }
  out.is_view = is_last || view.sizes[1] == 1 || view.sizes[0] == 1;
  return out;
}

// [m, c, h, w] with c in front of m.
StridedView ChannelsBeforeResults(const StridedView& filter) {
  constexpr std::array<size_t, 4> kOrder = {1, 0, 2, 3};
  return Permuted(filter, kOrder);
}

StatusOr<StridedView> DepthwiseView(NamedCall& call, const NamedTensor& filter, const Geometry& geometry,
                                    int64_t channels) {
  REPRISE_ASSIGN_OR_RETURN(const DepthwiseFilter found, ReadDepthwise(call, filter, geometry, channels));
  if (found.is_view) return found.view;
  const StridedView from = ChannelsBeforeResults(filter.view());
  const StridedView copy = call.Temporary(from.dtype, from.sizes);
  REPRISE_RETURN_IF_ERROR(CopyTo(call, from, copy));
  return copy.As(found.sizes);
}

Status LowerDepthwise(NamedCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckOffset(call));
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  const StridedView out = ChannelsFirst(call.OutputView(), geometry.layout);
  const StridedView x = ChannelsFirst(call.Input("x").view(), geometry.layout);
  geometry.groups = x.sizes[1];
  REPRISE_ASSIGN_OR_RETURN(const StridedView filter, DepthwiseView(call, call.Input("filter"), geometry, x.sizes[1]));
  return LowerConvolutionOf(call, x, filter, out, geometry);
}

Status LowerDepthwiseGradientOfInput(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"out_backprop"}, geometry.layout));
  const StridedView out = ChannelsFirst(call.OutputView(), geometry.layout);
  geometry.groups = out.sizes[1];
  REPRISE_ASSIGN_OR_RETURN(const StridedView filter, DepthwiseView(call, call.Input("filter"), geometry, out.sizes[1]));
  const StridedView grad = ChannelsFirst(call.Input("out_backprop").view(), geometry.layout);
  if (grad.sizes[1] != filter.sizes[0]) {
    return call.WrongInput(call.Input("out_backprop"), fmt::format("has {} channels", grad.sizes[1]),
                           fmt::format("pass one for each of the {} filters", filter.sizes[0]));
  }
  return StepGradientOfInput(call, grad, filter, out, geometry);
}

Status LowerDepthwiseGradientOfFilter(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  if (call.shape().size() != 4) {
    return call.WrongOutput(call.output(), fmt::format("gets {} dims", call.shape().size()), "ask for 4 sizes");
  }
  for (const std::string_view name : {"input", "out_backprop"}) {
    if (call.Input(name).rank() == 4) continue;
    return call.WrongInput(call.Input(name), fmt::format("has {} dims", call.Input(name).rank()), "pass 4 dims");
  }
  const StridedView x = ChannelsFirst(call.Input("input").view(), geometry.layout);
  const StridedView grad = ChannelsFirst(call.Input("out_backprop").view(), geometry.layout);
  geometry.groups = x.sizes[1];
  REPRISE_ASSIGN_OR_RETURN(const DepthwiseFilter found, ReadDepthwise(call, call.output(), geometry, x.sizes[1]));
  if (found.is_view) return StepGradientOfFilter(call, x, grad, found.view, geometry);
  const StridedView to = ChannelsBeforeResults(call.OutputView());
  const StridedView result = call.Temporary(to.dtype, to.sizes);
  REPRISE_RETURN_IF_ERROR(StepGradientOfFilter(call, x, grad, result.As(found.sizes), geometry));
  return CopyTo(call, result, to);
}

Status LowerQuantConvolution(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Geometry geometry, ReadGeometry(call));
  const auto view = [&](const NamedTensor& tensor) { return ChannelsFirst(tensor.view(), geometry.layout); };
  REPRISE_ASSIGN_OR_RETURN(const StridedView x, PadApart(call, view(call.Input("x")), geometry));
  return StepWith(call, "aclnnQuantConvolution",
                  {{"input", x},
                   {"weight", view(call.Input("filter"))},
                   {"bias", OptionalInput(call, "bias")},
                   {"scale", call.Input("scale").view()},
                   {"offset", OptionalInput(call, "offset")},
                   {"stride", geometry.strides},
                   {"padding", geometry.pads_in_front()},
                   {"dilation", geometry.dilations},
                   {"transposed", false},
                   {"outputPadding", Zeros(geometry.dims())},
                   {"groups", geometry.groups},
                   {"offsetx", call.context.Int("offset_x")},
                   {"roundMode", call.context.Text("round_mode")},
                   {"output", view(call.output())}});
}

// Rows of tokens [s, b, h] and weights [window, h]: out[t] = sum of x[t - window + 1 + i] * weight[i], zero in front,
// and zero where the mask [b, s] is.
Status LowerMaskedCausalConvolution(NamedCall& call) {
  const StridedView x = call.Input("input").view();
  const StridedView weight = call.Input("weight").view();
  if (x.sizes.size() != 3 || weight.sizes.size() != 2 || weight.sizes[0] < 1 || weight.sizes[1] != x.sizes[2]) {
    return call.WrongInput(call.Input("weight"), "does not fit input", "pass input [s, b, h] and weight [window, h]");
  }
  const int64_t tokens = x.sizes[0];
  const int64_t window = weight.sizes[0];
  const StridedView sum = call.Temporary(DType::kFloat, x.sizes);
  const StridedView part = call.Temporary(DType::kFloat, x.sizes);
  REPRISE_RETURN_IF_ERROR(
      StepWith(call, "aclnnMul", {{"self", x}, {"other", Narrowed(weight, 0, window - 1, 1)}, {"out", sum}}));
  for (int64_t back = 1; back < window && back < tokens; ++back) {
    const StridedView from = Narrowed(x, 0, 0, tokens - back);
    const StridedView product = Narrowed(part, 0, back, tokens - back);
    const StridedView to = Narrowed(sum, 0, back, tokens - back);
    REPRISE_RETURN_IF_ERROR(StepWith(
        call, "aclnnMul", {{"self", from}, {"other", Narrowed(weight, 0, window - 1 - back, 1)}, {"out", product}}));
    REPRISE_RETURN_IF_ERROR(StepWith(
        call, "aclnnAdd", {{"self", to}, {"other", product}, {"alpha", kernels::Scalar::Of<int64_t>(1)}, {"out", to}}));
  }
  if (!call.Has("mask")) return CopyTo(call, sum, call.OutputView());
  StridedView mask = call.Input("mask").view();
  const bool fits = mask.sizes.size() == 2 && mask.sizes[0] == x.sizes[1] && mask.sizes[1] == tokens;
  if (!fits) return call.WrongInput(call.Input("mask"), "does not fit input", "pass a mask [b, s]");
  const std::array<int64_t, 3> shape = {x.sizes[1], tokens, 1};
  constexpr std::array<size_t, 3> kTokensFirst = {1, 0, 2};
  return StepWith(call, "aclnnMul",
                  {{"self", sum}, {"other", Permuted(mask.As(shape), kTokensFirst)}, {"out", call.OutputView()}});
}

constexpr NamedOp kConvolutionRows[] = {
    {"Conv2D", {}, LowerNamedConvolution},
    {"Conv2DBackpropFilter", {}, LowerGradientOfFilter},
    {"Conv2DBackpropFilterD", {}, LowerGradientOfFilter},
    {"Conv2DBackpropInput", {}, LowerGradientOfInput},
    {"Conv2DBackpropInputD", {}, LowerGradientOfInput},
    {"Conv2DTranspose", {}, LowerTransposedConvolution},
    {"Conv2DTransposeD", {}, LowerTransposedConvolution},
    {"Conv2DFused", {}, LowerFusedConvolution},
    {"Conv3D", {}, LowerNamedConvolution},
    {"Conv3DFused", {}, LowerFusedConvolution},
    {"Conv3DBackpropFilter", {}, LowerGradientOfFilter},
    {"Conv3DBackpropInput", {}, LowerGradientOfInput},
    {"Conv3DTranspose", {}, LowerTransposedConvolution},
    {"Deconvolution", {}, LowerTransposedConvolution},
    {"DepthwiseConv2D", {}, LowerDepthwise},
    {"DepthwiseConv2DBackpropFilter", {}, LowerDepthwiseGradientOfFilter},
    {"DepthwiseConv2DBackpropFilterD", {}, LowerDepthwiseGradientOfFilter},
    {"DepthwiseConv2DBackpropInput", {}, LowerDepthwiseGradientOfInput},
    {"DepthwiseConv2DBackpropInputD", {}, LowerDepthwiseGradientOfInput},
    As("FusedCausalConv1d", {}, "aclnnFusedCausalConv1d",
       "x weight =conv_states query_start_loc cache_indices initial_state_mode bias num_accepted_tokens "
       "num_computed_tokens block_idx_first_scheduled_token block_idx_last_scheduled_token initial_state_idx "
       "@activation_mode @pad_slot_id @run_mode @max_query_len @residual_connection @block_size @conv_mode =y"),
    As("InplaceFusedCausalConv1d", {}, "aclnnInplaceFusedCausalConv1d",
       "=x weight =conv_states query_start_loc cache_indices initial_state_mode bias num_accepted_tokens "
       "num_computed_tokens block_idx_first_scheduled_token block_idx_last_scheduled_token initial_state_idx "
       "@activation_mode @pad_slot_id @run_mode @max_query_len @residual_connection @block_size @conv_mode"),
    {"MaskedCausalConv1d", {}, LowerMaskedCausalConvolution},
    {"QuantConv2D", {}, LowerQuantConvolution},
};

}  // namespace

std::span<const NamedOp> ConvolutionRows() { return kConvolutionRows; }

}  // namespace reprise::ops::named
