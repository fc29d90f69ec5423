// SPDX-License-Identifier: Apache-2.0
//
// Pools, grids and sizes of images.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/named_ops/expression.h"
#include "ops/named_ops/image.h"
#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

// ---- Means ----

struct Windows {
  opdef::ImageLayout layout;
  std::vector<int64_t> sizes, strides;
  std::vector<int64_t> pads;  // of both dims in front, then of both behind
  bool ceil = false;

  bool is_symmetric() const { return pads[0] == pads[2] && pads[1] == pads[3]; }
};

// \param image  of the tensor that the windows lie in
StatusOr<Windows> ReadWindows(const NamedCall& call, std::span<const int64_t> image) {
  REPRISE_ASSIGN_OR_RETURN(opdef::NamedWindows given, opdef::NamedWindowsOf(call.context));
  Windows out = {std::move(given.layout), std::move(given.sizes), std::move(given.strides), {0, 0, 0, 0}, given.ceil};
  if (given.is_global) {
    for (size_t d = 0; d < 2; ++d) out.sizes[d] = out.strides[d] = image[out.layout.spatial[d]];
    return out;
  }
  for (size_t d = 0; d < 2; ++d) {
    const bool is_same = given.mode == "SAME";
    const auto [front, behind] =
        is_same ? opdef::SamePads(image[out.layout.spatial[d]], out.sizes[d], out.strides[d]) : given.pads[d];
    out.pads[d] = front;
    out.pads[2 + d] = behind;
    out.ceil = out.ceil && !is_same;
  }
  return out;
}

// Padding does not count, unless the row says that it does.
bool CountsPads(const NamedCall& call) {
  return call.context.op.FindAttribute("exclusive") != nullptr && !call.context.Bool("exclusive");
}

int64_t DivisorOf(const NamedCall& call) {
  return call.context.op.FindAttribute("divisor_override") != nullptr ? call.context.Int("divisor_override") : 0;
}

Status StepMeans(NamedCall& call, Windows windows, bool counts_pads) {
  return StepWith(call, "aclnnAvgPool2d",
                  {{"self", ChannelsFirst(call.Input("x").view(), windows.layout)},
                   {"kernelSize", std::move(windows.sizes)},
                   {"strides", std::move(windows.strides)},
                   {"paddings", std::move(windows.pads)},
                   {"ceilMode", windows.ceil},
                   {"countIncludePad", counts_pads},
                   {"divisorOverride", DivisorOf(call)},
                   {"cubeMathType", int64_t{0}},
                   {"out", ChannelsFirst(call.OutputView(), windows.layout)}});
}

Status LowerNamedAvgPool(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Windows windows, ReadWindows(call, call.Input("x").dims));
  return StepMeans(call, std::move(windows), CountsPads(call));
}

// How many elements each window counts, of both dims: [rows, columns].
std::vector<float> CountsOf(const Windows& windows, std::span<const int64_t> image, std::span<const int64_t> places,
                            bool counts_pads) {
  const auto along = [&](size_t d, int64_t place) {
    const int64_t begin = place * windows.strides[d] - windows.pads[d];
    const int64_t last = image[d] + (counts_pads ? windows.pads[2 + d] : 0);
    return std::min(begin + windows.sizes[d], last) - (counts_pads ? begin : std::max<int64_t>(0, begin));
  };
  std::vector<float> counts;
  for (int64_t row = 0; row < places[0]; ++row) {
    for (int64_t column = 0; column < places[1]; ++column) {
      counts.push_back(static_cast<float>(along(0, row) * along(1, column)));
    }
  }
  return counts;
}

// The gradient of a padded image, whose inner part is wanted. Windows divide by what they count.
Status StepGradientOfPaddedMeans(NamedCall& call, const Windows& windows, const StridedView& out) {
  const StridedView grad = ChannelsFirst(call.Input("input_grad").view(), windows.layout);
  const std::span<const int64_t> image = std::span<const int64_t>(out.sizes).subspan(2);
  const std::span<const int64_t> places = std::span<const int64_t>(grad.sizes).subspan(2);
  const DType type = Wide(out.dtype);
  Dims padded = out.sizes;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t reach = (places[d] - 1) * windows.strides[d] + windows.sizes[d];
    const int64_t wanted = windows.pads[d] + image[d] + windows.pads[2 + d];
    padded[2 + d] = std::max(reach, wanted);
  }
  const int64_t divisor = DivisorOf(call);
  std::vector<float> counts = CountsOf(windows, image, places, CountsPads(call));
  if (divisor != 0) std::fill(counts.begin(), counts.end(), static_cast<float>(divisor));
  const StridedView shares = call.Temporary(type, grad.sizes);
  REPRISE_RETURN_IF_ERROR(
      call.Step(BinaryRoutine(kCodeDiv), {grad, call.Numbers(DType::kFloat, places, counts.data()), shares}));
  const StridedView whole = call.Temporary(type, padded);
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnAvgPool2dBackward",
                                   {{"gradOutput", shares},
                                    {"self", Placeholder(call, type, padded)},
                                    {"kernelSize", windows.sizes},
                                    {"stride", windows.strides},
                                    {"padding", std::vector<int64_t>{0, 0}},
                                    {"ceilMode", false},
                                    {"countIncludePad", true},
                                    {"divisorOverride", int64_t{1}},
                                    {"cubeMathType", int64_t{0}},
                                    {"gradInput", whole}}));
  return CopyTo(call, Narrowed(Narrowed(whole, 2, windows.pads[0], image[0]), 3, windows.pads[1], image[1]), out);
}

Status LowerAvgPoolGradient(NamedCall& call) {
  if (call.shape().size() != 4) {
    return call.WrongOutput(call.output(), fmt::format("gets {} dims", call.shape().size()), "ask for 4 sizes");
  }
  REPRISE_ASSIGN_OR_RETURN(Windows windows, ReadWindows(call, call.shape()));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"input_grad"}, windows.layout));
  const StridedView out = ChannelsFirst(call.OutputView(), windows.layout);
  if (!windows.is_symmetric()) return StepGradientOfPaddedMeans(call, windows, out);
  return StepWith(call, "aclnnAvgPool2dBackward",
                  {{"gradOutput", ChannelsFirst(call.Input("input_grad").view(), windows.layout)},
                   {"self", Placeholder(call, out.dtype, out.sizes)},
                   {"kernelSize", std::move(windows.sizes)},
                   {"stride", std::move(windows.strides)},
                   {"padding", std::vector<int64_t>{windows.pads[0], windows.pads[1]}},
                   {"ceilMode", windows.ceil},
                   {"countIncludePad", CountsPads(call)},
                   {"divisorOverride", DivisorOf(call)},
                   {"cubeMathType", int64_t{0}},
                   {"gradInput", out}});
}

Status LowerGlobalMean(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  std::vector<int64_t> dims;
  for (size_t d = 2; d < x.sizes.size(); ++d) dims.push_back(static_cast<int64_t>(d));
  const StridedView out = call.OutputView();
  return StepWith(call, "aclnnMean",
                  {{"self", x}, {"dim", std::move(dims)}, {"keepDim", true}, {"dtype", out.dtype}, {"out", out}});
}

Status LowerNamedAdaptivePool(NamedCall& call) {
  const std::vector<int64_t>& out = call.shape();
  return StepWith(call, "aclnnAdaptiveAvgPool2d",
                  {{"self", call.Input("x").view()},
                   {"outputSize", std::vector<int64_t>(out.end() - 2, out.end())},
                   {"out", call.OutputView()}});
}

Status LowerAdaptivePoolGradient(NamedCall& call) {
  const StridedView out = call.OutputView();
  return StepWith(call, "aclnnAdaptiveAvgPool2dBackward",
                  {{"gradOutput", call.Input("input_grad").view()},
                   {"self", Placeholder(call, out.dtype, out.sizes)},
                   {"out", out}});
}

// ---- Largest elements of windows that name their padding ----

Status StepMaxima(NamedCall& call, Windows windows) {
  return StepWith(call, "aclnnMaxPool",
                  {{"self", ChannelsFirst(call.Input("x").view(), windows.layout)},
                   {"kernelShape", std::move(windows.sizes)},
                   {"strides", std::move(windows.strides)},
                   {"autoPad", int64_t{0}},
                   {"pads", std::move(windows.pads)},
                   {"dilations", std::vector<int64_t>{1, 1}},
                   {"ceilMode", int64_t{windows.ceil ? 1 : 0}},
                   {"out", ChannelsFirst(call.OutputView(), windows.layout)}});
}

Status LowerNamedMaxPool(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(Windows windows, ReadWindows(call, call.Input("x").dims));
  return StepMaxima(call, std::move(windows));
}

// Of Caffe: mode 0 takes the largest elements, 1 means, whose windows count padding.
Status LowerCaffePool(NamedCall& call) {
  const std::vector<int64_t> dilation = call.context.Ints("dilation");
  if (std::any_of(dilation.begin(), dilation.end(), [](int64_t step) { return step != 1; })) {
    return call.context.WrongAttribute("dilation", fmt::format("is {}", ShapeText(dilation)), "leave it at 1");
  }
  REPRISE_ASSIGN_OR_RETURN(Windows windows, ReadWindows(call, call.Input("x").dims));
  const int64_t mode = call.context.Int("mode");
  if (mode == 0) return StepMaxima(call, std::move(windows));
  if (mode == 1) return StepMeans(call, std::move(windows), true);
  return call.context.WrongAttribute("mode", fmt::format("is {}", mode), "set it to 0 (largest) or 1 (mean)");
}

// Each gradient goes to the first of the largest elements of its window.
Status LowerMaxPoolGradient(NamedCall& call) {
  const NamedTensor& given = call.inputs[0];
  const NamedTensor& result = call.inputs[1];
  const NamedTensor& gradient = call.Input("grad");
  if (given.rank() != 4) {
    return call.WrongInput(given, fmt::format("has the shape {}", ShapeText(given.dims)), "pass 4 dims");
  }
  REPRISE_ASSIGN_OR_RETURN(const Windows windows, ReadWindows(call, given.dims));
  if (gradient.dims != result.dims) {
    return call.WrongInput(
        gradient,
        fmt::format("has the shape {}, but {} has {}", ShapeText(gradient.dims), result.name, ShapeText(result.dims)),
        "pass the gradient of the pooled tensor");
  }
  StridedView x = ChannelsFirst(given.view(), windows.layout);
  const StridedView out = ChannelsFirst(call.OutputView(), windows.layout);
  std::vector<int64_t> pads = {windows.pads[0], windows.pads[1]};
  StridedView whole = out;
  if (!windows.is_symmetric()) {  // around it lies what no window chooses
    Dims padded = x.sizes;
    int64_t behind[2];
    for (size_t d = 0; d < 2; ++d) {
      const int64_t reach = (gradient.dims[windows.layout.spatial[d]] - 1) * windows.strides[d] + windows.sizes[d];
      behind[d] = std::max(windows.pads[2 + d], reach - windows.pads[d] - x.sizes[2 + d]);
      padded[2 + d] += windows.pads[d] + behind[d];
    }
    const StridedView around = call.Temporary(x.dtype, padded);
    REPRISE_RETURN_IF_ERROR(
        StepWith(call, "aclnnConstantPadNd",
                 {{"self", x},
                  {"pad", std::vector<int64_t>{windows.pads[1], behind[1], windows.pads[0], behind[0]}},
                  {"value", kernels::Scalar::Of<double>(-std::numeric_limits<double>::infinity())},
                  {"out", around}}));
    x = around;
    whole = call.Temporary(x.dtype, padded);
    pads = {0, 0};
  }
  const StridedView grad = ChannelsFirst(gradient.view(), windows.layout);
  const StridedView values = call.Temporary(x.dtype, grad.sizes);
  const StridedView places = call.Temporary(DType::kInt32, grad.sizes);
  const std::vector<int64_t> steps = {1, 1};
  const bool ceil = windows.ceil && windows.is_symmetric();
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnMaxPool2dWithIndices",
                                   {{"self", x},
                                    {"kernelSize", windows.sizes},
                                    {"stride", windows.strides},
                                    {"padding", pads},
                                    {"dilation", steps},
                                    {"ceilMode", ceil},
                                    {"out", values},
                                    {"indices", places}}));
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnMaxPool2dWithIndicesBackward",
                                   {{"gradOutput", grad},
                                    {"self", x},
                                    {"indices", places},
                                    {"kernelSize", windows.sizes},
                                    {"stride", windows.strides},
                                    {"padding", pads},
                                    {"dilation", steps},
                                    {"ceilMode", ceil},
                                    {"gradInput", whole}}));
  if (windows.is_symmetric()) return {};
  whole = Narrowed(Narrowed(whole, 2, windows.pads[0], out.sizes[2]), 3, windows.pads[1], out.sizes[3]);
  return CopyTo(call, whole, out);
}

// ---- Largest elements ----

struct LargestWindows {
  opdef::ImageLayout layout;  // of the tensors
  std::vector<int64_t> sizes, strides, dilations, pads;
};

StatusOr<LargestWindows> ReadLargestWindows(const NamedCall& call) {
  LargestWindows out;
  const bool has_mask = call.op.type.ends_with("V1");
  const size_t dims = opdef::SpatialDims(call.context);
  REPRISE_ASSIGN_OR_RETURN(out.layout, opdef::LayoutOf(call.context, dims));
  REPRISE_ASSIGN_OR_RETURN(opdef::PoolWindows windows,
                           opdef::MaxPoolWindows(call.context, has_mask ? opdef::MaxPoolMaskLists() : out.layout));
  out.sizes = std::move(windows.sizes);
  out.strides = std::move(windows.strides);
  out.dilations = std::move(windows.dilations);
  for (const auto& [front, behind] : windows.pads) {
    if (front != behind) {
      return call.context.WrongAttribute("pads", fmt::format("has {} in front, but {} behind", front, behind),
                                         "pad the tensor first, so that both sides have as much");
    }
    out.pads.push_back(front);
  }
  return out;
}

Status StepLargest(NamedCall& call, const LargestWindows& windows, const StridedView& out, const StridedView& places) {
  const bool is_volume = windows.sizes.size() == 3;
  return StepWith(call, is_volume ? "aclnnMaxPool3dWithArgmax" : "aclnnMaxPool2dWithIndices",
                  {{"self", ChannelsFirst(call.Input("x").view(), windows.layout)},
                   {"kernelSize", windows.sizes},
                   {"stride", windows.strides},
                   {"padding", windows.pads},
                   {"dilation", windows.dilations},
                   {"ceilMode", call.context.Bool("ceil_mode")},
                   {"out", ChannelsFirst(out, windows.layout)},
                   {"indices", ChannelsFirst(places, windows.layout)}});
}

Status StepLargestAlone(NamedCall& call, const LargestWindows& windows) {
  return StepWith(call, "aclnnMaxPool",
                  {{"self", ChannelsFirst(call.Input("x").view(), windows.layout)},
                   {"kernelShape", windows.sizes},
                   {"strides", windows.strides},
                   {"autoPad", int64_t{0}},
                   {"pads", windows.pads},
                   {"dilations", windows.dilations},
                   {"ceilMode", call.context.Bool("ceil_mode")},
                   {"out", ChannelsFirst(call.Output("y").view(), windows.layout)}});
}

Status LowerLargest(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const LargestWindows windows, ReadLargestWindows(call));
  if (windows.sizes.size() == 2 && !call.Wants("argmax")) return StepLargestAlone(call, windows);
  return StepLargest(call, windows, call.Output("y").view(), call.Output("argmax").view());
}

// The mask has a bit for each window and each element of a window: those of 16 windows are an entry of 16 bits.
Status LowerLargestWithMask(NamedCall& call) {
  constexpr int64_t kBits = 16;
  REPRISE_ASSIGN_OR_RETURN(const LargestWindows windows, ReadLargestWindows(call));
  if (!call.Wants("argmax")) return StepLargestAlone(call, windows);
  const StridedView out = call.Output("y").view();
  const int64_t entries = (out.sizes[2] * out.sizes[3] + kBits - 1) / kBits;
  const int64_t elements = windows.sizes[0] * windows.sizes[1];
  const std::array<int64_t, 4> byte_sizes = {out.sizes[0], out.sizes[1], elements, (entries + 1) * 32};
  const StridedView bytes = call.Temporary(DType::kUInt8, byte_sizes);
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnMaxPool2dWithMask",
                                   {{"self", call.Input("x").view()},
                                    {"kernelSize", windows.sizes},
                                    {"stride", windows.strides},
                                    {"padding", windows.pads},
                                    {"dilation", windows.dilations},
                                    {"ceilMode", call.context.Bool("ceil_mode")},
                                    {"out", out},
                                    {"indices", bytes}}));
  // [n, c, elements, entries, 16] of bytes that are 0 or 1, weighted and added up.
  StridedView bits = Narrowed(bytes, 3, 0, entries * kBits);
  bits.sizes[3] = entries;
  bits.strides[3] = kBits;
  bits.sizes.push_back(kBits);
  bits.strides.push_back(1);
  int32_t weights[kBits];
  for (int i = 0; i < kBits; ++i) weights[i] = 1 << i;
  const std::array<int64_t, 1> weight_sizes = {kBits};
  const StridedView weighted = call.Temporary(DType::kInt32, bits.sizes);
  REPRISE_RETURN_IF_ERROR(
      call.Step(BinaryRoutine(kCodeMul), {bits, call.Numbers(DType::kInt32, weight_sizes, weights), weighted}));
  const std::array<int64_t, 4> sum_sizes = {out.sizes[0], out.sizes[1], elements, entries};
  const StridedView sums = call.Temporary(DType::kInt32, sum_sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kReduceSum, {weighted, std::vector<int64_t>{4}, false, DType::kInt32, sums}));
  const StridedView mask = call.Output("argmax").view();
  REPRISE_RETURN_IF_ERROR(CopyTo(call, sums, Narrowed(mask, 3, 0, entries)));
  return call.Step(kSetZero, {Narrowed(mask, 3, entries, 1)});
}

Status StepLargestGradient(NamedCall& call, const LargestWindows& windows, const StridedView& places) {
  return StepWith(call, "aclnnMaxPool2dWithIndicesBackward",
                  {{"gradOutput", ChannelsFirst(call.Input("grad").view(), windows.layout)},
                   {"self", ChannelsFirst(call.Input("x").view(), windows.layout)},
                   {"indices", ChannelsFirst(places, windows.layout)},
                   {"kernelSize", windows.sizes},
                   {"stride", windows.strides},
                   {"padding", windows.pads},
                   {"dilation", windows.dilations},
                   {"ceilMode", call.context.Bool("ceil_mode")},
                   {"gradInput", ChannelsFirst(call.OutputView(), windows.layout)}});
}

Status LowerLargestGradient(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const LargestWindows windows, ReadLargestWindows(call));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"x", "grad", "argmax"}, windows.layout));
  return StepLargestGradient(call, windows, call.Input("argmax").view());
}

// x says where its largest elements are; the mask says the same.
Status LowerLargestGradientWithMask(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const LargestWindows windows, ReadLargestWindows(call));
  REPRISE_RETURN_IF_ERROR(CheckImages(call, {"x", "grad"}, windows.layout));
  const StridedView grad = call.Input("grad").view();
  const StridedView values = call.Temporary(grad.dtype, grad.sizes);
  const StridedView places = call.Temporary(DType::kInt32, grad.sizes);
  REPRISE_RETURN_IF_ERROR(StepLargest(call, windows, values, places));
  return StepLargestGradient(call, windows, places);
}

// ---- Grids ----

StatusOr<int64_t> WordOf(const NamedCall& call, std::string_view attribute, std::span<const std::string_view> words) {
  const std::string text = call.context.Text(attribute);
  for (size_t i = 0; i < words.size(); ++i) {
    if (text == words[i]) return static_cast<int64_t>(i);
  }
  return call.context.WrongAttribute(attribute, fmt::format("is \"{}\"", text),
                                     fmt::format("use one of {}", fmt::join(words, ", ")));
}

Status LowerGrid(NamedCall& call) {
  constexpr std::array<std::string_view, 3> kModes = {"bilinear", "nearest", "bicubic"};
  constexpr std::array<std::string_view, 3> kPaddings = {"zeros", "border", "reflection"};
  REPRISE_ASSIGN_OR_RETURN(const int64_t mode, WordOf(call, "interpolation_mode", kModes));
  REPRISE_ASSIGN_OR_RETURN(const int64_t padding, WordOf(call, "padding_mode", kPaddings));
  const bool aligns = call.context.Bool("align_corners");
  if (call.op.type == "GridSampler2DGrad") {
    return StepWith(call, "aclnnGridSampler2DBackward",
                    {{"gradOutput", call.Input("grad").view()},
                     {"input", call.Input("x").view()},
                     {"grid", call.Input("grid").view()},
                     {"interpolationMode", mode},
                     {"paddingMode", padding},
                     {"alignCorners", aligns},
                     {"outputMask", std::vector<bool>{true, true}},
                     {"inputGrad", call.Output("dx").view()},
                     {"gridGrad", call.Output("dgrid").view()}});
  }
  const bool is_volume = call.op.type == "GridSampler3D";
  if (is_volume && call.context.Text("data_format") != "NCDHW") {
    return call.context.WrongAttribute("data_format", fmt::format("is \"{}\"", call.context.Text("data_format")),
                                       "use NCDHW");
  }
  return StepWith(call, is_volume ? "aclnnGridSampler3D" : "aclnnGridSampler2D",
                  {{"input", call.Input("x").view()},
                   {"grid", call.Input("grid").view()},
                   {"interpolationMode", mode},
                   {"paddingMode", padding},
                   {"alignCorners", aligns},
                   {"out", call.OutputView()}});
}

// ---- Sizes ----

// Which element of `in` each of `out` elements is, with the scale rounded to float32 as PyTorch has it.
std::vector<int64_t> NearestPlaces(int64_t in, int64_t out, bool aligns, bool is_half) {
  std::vector<int64_t> places;
  const int64_t steps = aligns ? out - 1 : out;
  const float scale = steps > 0 ? static_cast<float>(aligns ? in - 1 : in) / static_cast<float>(steps) : 0.0F;
  for (int64_t i = 0; i < out; ++i) {
    const float place = (static_cast<float>(i) + (is_half ? 0.5F : 0.0F)) * scale;
    places.push_back(std::min(in - 1, static_cast<int64_t>(aligns ? std::round(place) : std::floor(place))));
  }
  return places;
}

struct ResizeMode {
  bool aligns, is_half;
};

StatusOr<ResizeMode> ReadResize(const NamedCall& call) {
  const ResizeMode mode = {call.context.Bool("align_corners"), call.context.Bool("half_pixel_centers")};
  if (!mode.aligns || !mode.is_half) return mode;
  return call.context.WrongAttribute("half_pixel_centers", "is true, but align_corners is, too", "set one of both");
}

StridedView PlacesOf(NamedCall& call, int64_t in, int64_t out, const ResizeMode& mode) {
  const std::vector<int64_t> places = NearestPlaces(in, out, mode.aligns, mode.is_half);
  const std::array<int64_t, 1> sizes = {out};
  return call.Numbers(DType::kInt64, sizes, places.data());
}

// Rows by their places, then columns.
Status LowerNearest(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const ResizeMode mode, ReadResize(call));
  const StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  if (x.sizes[2] < 1 || x.sizes[3] < 1) {
    return call.WrongInput(call.Input("x"), "has no elements to choose from", "pass height and width of 1 or more");
  }
  Dims sizes = x.sizes;
  sizes[2] = out.sizes[2];
  const StridedView rows = call.Temporary(x.dtype, sizes);
  REPRISE_RETURN_IF_ERROR(StepWith(
      call, "aclnnIndexSelect",
      {{"self", x}, {"dim", int64_t{2}}, {"index", PlacesOf(call, x.sizes[2], out.sizes[2], mode)}, {"out", rows}}));
  return StepWith(
      call, "aclnnIndexSelect",
      {{"self", rows}, {"dim", int64_t{3}}, {"index", PlacesOf(call, x.sizes[3], out.sizes[3], mode)}, {"out", out}});
}

// Where each of `out` elements lies between two of `in`.
struct Between {
  std::vector<int64_t> low, high;
  std::vector<float> share;  // of the high one
};

Between BetweenOf(int64_t in, int64_t out, const ResizeMode& mode) {
  Between found;
  for (int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<double>(i);
    double place = at * static_cast<double>(in) / static_cast<double>(out);
    if (mode.aligns) place = out > 1 ? at * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    if (mode.is_half) place = std::max(0.0, (at + 0.5) * static_cast<double>(in) / static_cast<double>(out) - 0.5);
    const int64_t low = std::min(in - 1, static_cast<int64_t>(place));
    found.low.push_back(low);
    found.high.push_back(std::min(in - 1, low + 1));
    found.share.push_back(static_cast<float>(place - static_cast<double>(low)));
  }
  return found;
}

// Rows between rows, then columns between columns, in float32.
Status LowerBilinear(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const ResizeMode mode, ReadResize(call));
  const NamedTensor& given = call.Input("x");
  const StridedView out = call.OutputView();
  if (out.dtype != DType::kFloat) {
    return call.context.WrongAttribute("dtype", "is uint8", "leave it at float32, and cast the result");
  }
  if (given.dims[2] < 1 || given.dims[3] < 1) {
    return call.WrongInput(given, "has no elements to choose from", "pass height and width of 1 or more");
  }
  Expression f(call, DType::kFloat);
  StridedView from = f.Convert(given.view());
  REPRISE_RETURN_IF_ERROR(f.TakeStatus());
  for (const size_t dim : {size_t{2}, size_t{3}}) {
    const Between between = BetweenOf(from.sizes[dim], out.sizes[dim], mode);
    Dims sizes = from.sizes;
    sizes[dim] = out.sizes[dim];
    const std::array<int64_t, 1> count = {out.sizes[dim]};
    const auto chosen = [&](const std::vector<int64_t>& places) -> StatusOr<StridedView> {
      const StridedView part = call.Temporary(DType::kFloat, sizes);
      REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnIndexSelect",
                                       {{"self", from},
                                        {"dim", static_cast<int64_t>(dim)},
                                        {"index", call.Numbers(DType::kInt64, count, places.data())},
                                        {"out", part}}));
      return part;
    };
    REPRISE_ASSIGN_OR_RETURN(const StridedView low, chosen(between.low));
    REPRISE_ASSIGN_OR_RETURN(const StridedView high, chosen(between.high));
    const std::array<int64_t, 2> along = {count[0], 1};
    StridedView share = call.Numbers(DType::kFloat, count, between.share.data());
    if (dim == 2) share = share.As(along);
    from = f.Add(low, f.Mul(f.Sub(high, low), share));
  }
  f.Store(from, out);
  return f.TakeStatus();
}

// Of Caffe: each element stride_h x stride_w times, multiplied by scale.
Status LowerUpsample(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  const std::array<int64_t, 6> apart = {x.sizes[0], x.sizes[1], x.sizes[2], 1, x.sizes[3], 1};
  const std::array<int64_t, 6> repeated = {
      x.sizes[0], x.sizes[1], x.sizes[2], call.context.Int("stride_h"), x.sizes[3], call.context.Int("stride_w")};
  const StridedView to = out.As(repeated);
  REPRISE_RETURN_IF_ERROR(call.Step(kSpread, {to, x.As(apart)}));
  const double scale = call.context.Real("scale");
  return scale == 1 ? Status() : call.Step(kMulScalar, {out, kernels::Scalar::Of<double>(scale), out});
}

// Each gradient is added to the element that it came from, columns first.
Status LowerNearestGradient(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const ResizeMode mode, ReadResize(call));
  const StridedView grad = call.Input("grads").view();
  const StridedView out = call.OutputView();
  if (out.sizes[2] < 1 || out.sizes[3] < 1) {
    return call.context.Wrong("size", "names sizes of 0", "pass height and width of 1 or more");
  }
  const DType wide = Wide(out.dtype);
  StridedView from = grad;
  for (const size_t dim : {size_t{3}, size_t{2}}) {
    Dims sizes = from.sizes;
    sizes[dim] = out.sizes[dim];
    const StridedView zeros = call.Temporary(wide, sizes);
    const StridedView sums = call.Temporary(wide, sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {zeros}));
    REPRISE_ASSIGN_OR_RETURN(const StridedView source, Converted(call, from, wide));
    REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnIndexAdd",
                                     {{"self", zeros},
                                      {"dim", static_cast<int64_t>(dim)},
                                      {"index", PlacesOf(call, out.sizes[dim], from.sizes[dim], mode)},
                                      {"source", source},
                                      {"alpha", kernels::Scalar::Of<int64_t>(1)},
                                      {"out", sums}}));
    from = sums;
  }
  return CopyTo(call, from, out);
}

constexpr DTypeSet kImageTypes = kSingleAndHalfTypes;

constexpr NamedOp kPoolingRows[] = {
    {"AdaptiveAvgPool2d", kImageTypes, LowerNamedAdaptivePool},
    {"AdaptiveAvgPool2dGrad", {}, LowerAdaptivePoolGradient},
    {"AvgPool", {}, LowerNamedAvgPool},
    {"AvgPoolGrad", {}, LowerAvgPoolGradient},
    {"AvgPoolV2", {}, LowerNamedAvgPool},
    {"AvgPoolV2Grad", {}, LowerAvgPoolGradient},
    {"GlobalAveragePool", kFloatingTypes, LowerGlobalMean},
    {"GridSampler2D", {}, LowerGrid},
    {"GridSampler2DGrad", {}, LowerGrid},
    {"GridSampler3D", {}, LowerGrid},
    {"MaxPool", kRealTypes, LowerNamedMaxPool},
    {"MaxPool3DWithArgmaxV2", {}, LowerLargest},
    {"MaxPoolGrad", kFloatingTypes, LowerMaxPoolGradient},
    {"MaxPoolGradWithArgmaxV1", {}, LowerLargestGradientWithMask},
    {"MaxPoolGradWithArgmaxV3", {}, LowerLargestGradient},
    {"MaxPoolV3", kRealTypes, LowerNamedMaxPool},
    {"MaxPoolV3Grad", kFloatingTypes, LowerMaxPoolGradient},
    {"MaxPoolWithArgmaxV1", {}, LowerLargestWithMask},
    {"MaxPoolWithArgmaxV3", {}, LowerLargest},
    {"Pooling", kSingleAndFloat16, LowerCaffePool},
    {"ResizeBilinearV2", kRealTypes, LowerBilinear},
    {"ResizeBilinearV2D", kSingleAndFloat16, LowerBilinear},
    {"ResizeNearestNeighborV2", {}, LowerNearest},
    {"ResizeNearestNeighborV2D", {}, LowerNearest},
    {"ResizeNearestNeighborV2Grad", {}, LowerNearestGradient},
    {"ResizeNearestNeighborV2GradD", {}, LowerNearestGradient},
    {"Upsample", kSingleAndFloat16, LowerUpsample},
};

}  // namespace

std::span<const NamedOp> PoolingRows() { return kPoolingRows; }

}  // namespace reprise::ops::named
