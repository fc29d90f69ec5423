// SPDX-License-Identifier: Apache-2.0
//
// Rules of convolutions, pools and grids. Sizes lie as data_format says, those of filters, too: N is the number of
// output channels there and C that of the input channels of a group.
#include "opdef/infer_util.h"
#include "opdef/windows.h"

namespace reprise::opdef {

using infer::TextOf;

StatusOr<ImageLayout> LayoutOf(const InferContext& call, size_t spatial) {
  std::string format = spatial == 2 ? "NCHW" : "NCDHW";
  if (call.op.FindAttribute("data_format") != nullptr) format = call.Text("data_format");
  const bool is_known = spatial == 2 ? format == "NCHW" || format == "NHWC" : format == "NCDHW" || format == "NDHWC";
  if (!is_known) {
    return call.WrongAttribute("data_format", fmt::format("is \"{}\"", format),
                               spatial == 2 ? "use NCHW or NHWC" : "use NCDHW or NDHWC");
  }
  ImageLayout layout;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] == 'C') layout.channel = i;
    if (format[i] != 'C' && format[i] != 'N') layout.spatial.push_back(i);
  }
  return layout;
}

StatusOr<std::vector<int64_t>> SpatialOf(const InferContext& call, std::string_view name, const ImageLayout& layout) {
  const std::vector<int64_t> given = call.Ints(name);
  const size_t count = layout.spatial.size();
  std::vector<int64_t> out;
  if (given.size() == count) out = given;
  if (given.size() == 1) out.assign(count, given[0]);
  if (given.size() == count + 2) {
    for (const size_t place : layout.spatial) out.push_back(given[place]);
  }
  if (!out.empty() && std::all_of(out.begin(), out.end(), [](int64_t value) { return value > 0; })) return out;
  return call.WrongAttribute(name, "is " + TextOf(given), fmt::format("give {} numbers above 0", count + 2));
}

StatusOr<Pads> PadsOf(const InferContext& call, size_t count, std::string_view name) {
  const std::vector<int64_t> given = call.Ints(name);
  Pads out;
  for (size_t d = 0; d < count && given.size() == 2 * count; ++d) out.emplace_back(given[2 * d], given[2 * d + 1]);
  for (size_t d = 0; d < count && given.size() == count; ++d) out.emplace_back(given[d], given[d]);
  for (size_t d = 0; d < count && given.size() == 1; ++d) out.emplace_back(given[0], given[0]);
  if (!out.empty() && std::all_of(given.begin(), given.end(), [](int64_t pad) { return pad >= 0; })) return out;
  return call.WrongAttribute(name, "is " + TextOf(given), fmt::format("give {} numbers of 0 or more", 2 * count));
}

StatusOr<PoolWindows> MaxPoolWindows(const InferContext& call, const ImageLayout& lists) {
  const size_t spatial = lists.spatial.size();
  PoolWindows out;
  REPRISE_ASSIGN_OR_RETURN(out.sizes, SpatialOf(call, "ksize", lists));
  REPRISE_ASSIGN_OR_RETURN(out.strides, SpatialOf(call, "strides", lists));
  REPRISE_ASSIGN_OR_RETURN(out.dilations, SpatialOf(call, "dilation", lists));
  const std::vector<int64_t> given = call.Ints("pads");
  if (given.size() == spatial + 2 && spatial == 2) {
    for (const size_t place : lists.spatial) out.pads.emplace_back(given[place], given[place]);
  } else {
    REPRISE_ASSIGN_OR_RETURN(out.pads, PadsOf(call, spatial));
  }
  return out;
}

StatusOr<NamedWindows> NamedWindowsOf(const InferContext& call) {
  const bool is_caffe = call.op.FindAttribute("window") != nullptr;
  const std::string_view lists[] = {is_caffe ? "window" : "ksize", is_caffe ? "stride" : "strides"};
  NamedWindows out;
  REPRISE_ASSIGN_OR_RETURN(out.layout, LayoutOf(call, 2));
  REPRISE_ASSIGN_OR_RETURN(out.sizes, SpatialOf(call, lists[0], out.layout));
  REPRISE_ASSIGN_OR_RETURN(out.strides, SpatialOf(call, lists[1], out.layout));
  for (const std::string_view list : lists) {
    const std::vector<int64_t> given = call.Ints(list);
    if (given.size() != 4 || (given[out.layout.batch] == 1 && given[out.layout.channel] == 1)) continue;
    return call.WrongAttribute(list, "is " + TextOf(given), "give 1 for batch and channels: windows lie in one plane");
  }
  out.pads.assign(2, {0, 0});
  out.mode = "CALCULATED";
  const std::string_view mode = call.op.FindAttribute("padding") != nullptr ? "padding" : "padding_mode";
  if (!is_caffe) out.mode = call.Text(mode);
  const bool has_pads = is_caffe || call.op.FindAttribute("pads") != nullptr;
  if (out.mode != "SAME" && out.mode != "VALID" && (out.mode != "CALCULATED" || !has_pads)) {
    return call.WrongAttribute(mode, fmt::format("is \"{}\"", out.mode),
                               has_pads ? "use CALCULATED, SAME or VALID" : "use SAME or VALID");
  }
  if (has_pads) {  // wrong ones are refused even where they do not count
    REPRISE_ASSIGN_OR_RETURN(const Pads pads, PadsOf(call, 2, is_caffe ? "pad" : "pads"));
    if (out.mode == "CALCULATED") out.pads = pads;
  }
  out.is_global = call.op.FindAttribute("global_pooling") != nullptr && call.Bool("global_pooling");
  if (is_caffe) {
    out.ceil = call.Int("ceil_mode") == 0;
  } else if (call.op.FindAttribute("ceil_mode") != nullptr) {
    out.ceil = call.Bool("ceil_mode");
  }
  return out;
}

std::pair<int64_t, int64_t> SamePads(int64_t size, int64_t window, int64_t stride) {
  const int64_t windows = (size + stride - 1) / stride;
  const int64_t all = std::max<int64_t>(0, (windows - 1) * stride + window - size);
  return {all / 2, all - all / 2};
}

ImageLayout MaxPoolMaskLists() { return {.batch = 0, .channel = 3, .spatial = {1, 2}}; }

size_t SpatialDims(const InferContext& call) { return call.op.type.find("3D") != std::string_view::npos ? 3 : 2; }

namespace infer {
namespace {

struct Window {
  Dim size;  // of the window, dilation counted
  int64_t stride = 1;
  std::pair<int64_t, int64_t> pads;
  bool ceil = false;
};

// How many windows fit.
Dim WindowsIn(const Dim& size, const Window& window) {
  const Dim span = size + window.pads.first + window.pads.second - window.size;
  if (span.is_number() && span.number() < 0) return 0;
  if (!window.ceil) return FloorDiv(span, window.stride) + 1;
  const Dim count = CeilDiv(span, window.stride) + 1;
  // The last window begins within the elements and the pads in front of them.
  if (count.is_number() && size.is_number()) {
    const bool begins_behind = (count.number() - 1) * window.stride >= size.number() + window.pads.first;
    return begins_behind ? count - 1 : count;
  }
  const bool never = window.size.is_number() && window.stride + window.pads.second <= window.size.number();
  return never ? count : Dim::Unknown();
}

// The sizes of the result of windows over x, or that they are not known.
Status SetWindows(InferContext& call, const InferTensor& x, const ImageLayout& layout, const Dim& channels,
                  const std::vector<Window>& windows, Sizes* out) {
  *out = x.shape;
  (*out)[layout.channel] = channels;
  for (size_t d = 0; d < windows.size(); ++d) {
    const size_t place = layout.spatial[d];
    (*out)[place] = WindowsIn(x.shape[place], windows[d]);
    if (!(*out)[place].is_number() || (*out)[place].number() > 0) continue;
    return call.WrongInput(x,
                           fmt::format("has the shape {}, whose dim {} is smaller than the window of {}",
                                       x.shape.text(), place, windows[d].size.text()),
                           "pass a larger tensor or pads");
  }
  return {};
}

void SetConvolutionType(InferContext& call, int32_t type) {
  if (call.Out(0).dtype != -1) return;
  constexpr int32_t kInt8 = 2;
  const int32_t wanted = call.Out(0).wanted;
  call.Out(0).dtype = type == kInt8 ? 3 : wanted == 0 && IsSingleOrHalf(type) ? wanted : type;
}

}  // namespace

Status Convolution(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& filter = call.In("filter");
  const size_t spatial = SpatialDims(call);
  SetConvolutionType(call, x.dtype);
  REPRISE_ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(call, spatial));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, spatial + 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(filter, spatial + 2));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, SpatialOf(call, "strides", layout));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations, SpatialOf(call, "dilations", layout));
  REPRISE_ASSIGN_OR_RETURN(const auto pads, PadsOf(call, spatial));
  const int64_t groups = call.Int("groups");
  if (groups < 1) return call.WrongAttribute("groups", fmt::format("is {}", groups), "set it to 1 or more");
  if (!x.shape.has_rank() || !filter.shape.has_rank()) return call.SetRest(Sizes::Unknown(spatial + 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectEqual(filter, filter.shape[layout.channel] * groups, x.shape[layout.channel],
                                           "channels times groups"));
  std::vector<Window> windows;
  for (size_t d = 0; d < spatial; ++d) {
    windows.push_back({(filter.shape[layout.spatial[d]] - 1) * dilations[d] + 1, strides[d], pads[d]});
  }
  Sizes out;
  REPRISE_RETURN_IF_ERROR(SetWindows(call, x, layout, filter.shape[layout.batch], windows, &out));
  return call.SetRest(out);
}

// The filter is [h, w, c, m] beside NHWC, and [c * m, 1, h, w] or [m, c, h, w] beside NCHW: m results for each channel.
Status DepthwiseConvolution(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& filter = call.In("filter");
  SetConvolutionType(call, x.dtype);
  REPRISE_ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(call, 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(filter, 4));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, SpatialOf(call, "strides", layout));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations, SpatialOf(call, "dilations", layout));
  REPRISE_ASSIGN_OR_RETURN(const auto pads, PadsOf(call, 2));
  if (!x.shape.has_rank() || !filter.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  const bool is_last = layout.channel == 3;
  const size_t place = is_last ? 0 : 2;  // of height and width in the filter
  const size_t channels = is_last ? 2 : 0;
  const Dim& in = x.shape[layout.channel];
  const Dim& first = filter.shape[channels];
  const Dim& second = filter.shape[channels + 1];
  if (is_last) {
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(filter, first, in, "number of channels"));
  } else if (second.is_number() && !second.Is(1)) {
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(filter, second, in, "number of channels"));
  }
  const Dim all = first * second;
  if (all.is_number() && in.is_number() && (in.number() == 0 || all.number() % in.number() != 0)) {
    return call.WrongInput(filter,
                           fmt::format("has the shape {}, but x has {} channels", filter.shape.text(), in.text()),
                           "pass as many filters for each channel");
  }
  std::vector<Window> windows;
  for (size_t d = 0; d < 2; ++d) {
    windows.push_back({(filter.shape[place + d] - 1) * dilations[d] + 1, strides[d], pads[d]});
  }
  Sizes out;
  REPRISE_RETURN_IF_ERROR(SetWindows(call, x, layout, all, windows, &out));
  return call.SetRest(out);
}

// The sizes that an input or an attribute names.
Status ConvolutionGradient(InferContext& call) {  // rule
  SetConvolutionType(call, call.In("out_backprop").dtype);
  return ValueSizes(call);
}

// The sizes of an input; where they are 0, those that follow from the attributes.
Status TransposedConvolution(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& filter = call.In("filter");
  const size_t spatial = SpatialDims(call);
  SetConvolutionType(call, x.dtype);
  const std::vector<Dim>* sizes = call.Value("input_size");
  const bool may_be_given = call.Has("input_size") || call.op.FindAttribute("input_size") != nullptr;
  const bool is_given =
      sizes != nullptr && !std::all_of(sizes->begin(), sizes->end(), [](const Dim& dim) { return dim.Is(0); });
  if (is_given) {
    if (sizes->size() == spatial + 2) return call.SetRest(Sizes(*sizes));
    return call.Wrong("input_size", "is " + TextOf(*sizes), fmt::format("give {} sizes", spatial + 2));
  }
  REPRISE_ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(call, spatial));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, spatial + 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(filter, spatial + 2));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, SpatialOf(call, "strides", layout));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations, SpatialOf(call, "dilations", layout));
  REPRISE_ASSIGN_OR_RETURN(const auto pads, PadsOf(call, spatial));
  if ((may_be_given && sizes == nullptr) || !x.shape.has_rank() || !filter.shape.has_rank()) {
    return call.SetRest(Sizes::Unknown(spatial + 2));
  }
  const bool has_more = call.op.FindAttribute("output_padding") != nullptr;
  const std::vector<int64_t> more = has_more ? call.Ints("output_padding") : std::vector<int64_t>();
  Sizes out = x.shape;
  out[layout.channel] = filter.shape[layout.channel] * call.Int("groups");
  for (size_t d = 0; d < spatial; ++d) {
    const size_t place = layout.spatial[d];
    const int64_t extra = more.size() == spatial + 2 ? more[place] : more.size() == spatial ? more[d] : 0;
    out[place] = (x.shape[place] - 1) * strides[d] - pads[d].first - pads[d].second +
                 (filter.shape[place] - 1) * dilations[d] + 1 + extra;
  }
  return call.SetRest(out);
}

Status WindowPool(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (call.Out(0).dtype == -1) {  // whole numbers of Pooling add up in int32
    constexpr int32_t kInt8 = 2;
    call.Out(0).dtype = x.dtype == kInt8 ? 3 : x.dtype;
  }
  REPRISE_ASSIGN_OR_RETURN(const NamedWindows pool, NamedWindowsOf(call));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  Sizes out = x.shape;
  if (pool.is_global) {
    for (const size_t place : pool.layout.spatial) out[place] = 1;
    return call.SetRest(out);
  }
  if (pool.mode == "SAME") {
    for (size_t d = 0; d < 2; ++d) {
      const size_t place = pool.layout.spatial[d];
      out[place] = CeilDiv(x.shape[place], pool.strides[d]);
    }
    return call.SetRest(out);
  }
  std::vector<Window> windows;
  for (size_t d = 0; d < 2; ++d) windows.push_back({pool.sizes[d], pool.strides[d], pool.pads[d], pool.ceil});
  REPRISE_RETURN_IF_ERROR(SetWindows(call, x, pool.layout, x.shape[pool.layout.channel], windows, &out));
  return call.SetRest(out);
}

// One number for each channel of a tensor [n, c, ..].
Status GlobalPool(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() < 3) {
    return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()),
                           "pass [n, c, ..] with dims to pool over");
  }
  Sizes out = x.shape;
  for (size_t d = 2; d < out.rank(); ++d) out[d] = 1;
  return call.SetRest(out);
}

Status AdaptivePool(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::vector<int64_t> wanted = call.Ints("output_size");
  if (!x.shape.has_rank()) return call.Open();
  if (wanted.empty() || wanted.size() > 2 || x.shape.rank() < 3) {
    return call.WrongAttribute("output_size", fmt::format("is {} for the shape {}", TextOf(wanted), x.shape.text()),
                               "give height and width for a tensor of three or four dims");
  }
  Sizes out = x.shape;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t size = wanted[std::min(d, wanted.size() - 1)];
    if (size >= 0) out[x.shape.rank() - 2 + d] = size;
  }
  return call.SetRest(out);
}

namespace {

std::vector<Window> WindowsOf(const InferContext& call, const PoolWindows& pool) {
  std::vector<Window> windows;
  for (size_t d = 0; d < pool.sizes.size(); ++d) {
    windows.push_back(
        {(pool.sizes[d] - 1) * pool.dilations[d] + 1, pool.strides[d], pool.pads[d], call.Bool("ceil_mode")});
  }
  return windows;
}

}  // namespace

Status MaxPool(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const size_t spatial = SpatialDims(call);
  REPRISE_ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(call, spatial));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, spatial + 2));
  REPRISE_ASSIGN_OR_RETURN(const PoolWindows pool, MaxPoolWindows(call, layout));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(spatial + 2));
  Sizes out;
  REPRISE_RETURN_IF_ERROR(SetWindows(call, x, layout, x.shape[layout.channel], WindowsOf(call, pool), &out));
  return call.SetRest(out);
}

// Windows lie in elements 1 and 2 of the lists although x is NCHW. The mask has a bit for each element of a window and
// each window, those of 16 windows in an entry, and one entry more.
Status MaxPoolMask(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const ImageLayout layout = {.batch = 0, .channel = 1, .spatial = {2, 3}};
  if (call.Out("argmax").dtype == -1) {
    call.Out("argmax").dtype = call.Out("argmax").wanted != -1 ? call.Out("argmax").wanted : 7;  // uint16
  }
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  REPRISE_ASSIGN_OR_RETURN(const PoolWindows pool, MaxPoolWindows(call, MaxPoolMaskLists()));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  Sizes out;
  REPRISE_RETURN_IF_ERROR(SetWindows(call, x, layout, x.shape[1], WindowsOf(call, pool), &out));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), out));
  constexpr int64_t kBits = 16;
  return call.Set(call.Out("argmax"),
                  Sizes{out[0], out[1], pool.sizes[0] * pool.sizes[1], CeilDiv(out[2] * out[3], kBits) + 1});
}

// Batch and channels of x, and the sizes of the grid.
Status GridSample(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& grid = call.In("grid");
  const size_t spatial = SpatialDims(call);
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, spatial + 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(grid, spatial + 2));
  if (!x.shape.has_rank() || !grid.shape.has_rank()) return call.SetRest(Sizes::Unknown(spatial + 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectEqual(grid, grid.shape[0], x.shape[0], "batch"));
  REPRISE_RETURN_IF_ERROR(
      call.ExpectEqual(grid, grid.shape.back(), static_cast<int64_t>(spatial), "number of coordinates"));
  std::vector<Dim> dims = Part(x.shape, 0, 2);
  Append(dims, Part(grid.shape, 1, spatial + 1));
  return call.SetRest(Sizes(std::move(dims)));
}

// The last two sizes of [n, c, h, w] are those of the value.
Status Resize(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  Sizes out = x.shape;
  const std::vector<Dim>* size = call.Value("size");
  const size_t count = size != nullptr ? size->size() : 2;
  if (count != 2 && count != 4) {
    return call.Wrong("size", fmt::format("has {} numbers", count), "give height and width");
  }
  for (size_t d = 0; d < 2; ++d) out[2 + d] = size != nullptr ? (*size)[count - 2 + d] : Dim::Unknown();
  return call.SetRest(out);
}

// Height and width times strides.
Status Upsample(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  for (const std::string_view name : {"stride_h", "stride_w"}) {
    if (call.Int(name) >= 1) continue;
    return call.WrongAttribute(name, fmt::format("is {}", call.Int(name)), "set it to 1 or more");
  }
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  Sizes out = x.shape;
  out[2] = out[2] * call.Int("stride_h");
  out[3] = out[3] * call.Int("stride_w");
  return call.SetRest(out);
}

// The sizes of the result are those of offsets, with a kernel in each place.
Status DeformableOffsets(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& offsets = call.In("offsets");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(offsets, 4));
  REPRISE_ASSIGN_OR_RETURN(const ImageLayout layout, LayoutOf(call, 2));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, SpatialOf(call, "ksize", layout));
  Sizes sizes = x.shape.has_rank() ? x.shape : Sizes::Unknown(4);
  for (size_t d = 0; d < 2; ++d) {
    const size_t place = layout.spatial[d];
    sizes[place] = offsets.shape.has_rank() ? offsets.shape[place] * Dim(kernel[d]) : Dim::Unknown();
  }
  return call.SetRest(sizes);
}

}  // namespace infer
}  // namespace reprise::opdef
