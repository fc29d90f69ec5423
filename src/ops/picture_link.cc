// SPDX-License-Identifier: Apache-2.0
#include "ops/picture_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/scheduler.h"
#include "kernels/channels_last_pool.h"
#include "kernels/conv_band.h"
#include "kernels/picture_layout.h"
#include "kernels/simd/channels_last.h"
#include "kernels/simd/matmul_tile.h"
#include "ops/families/picture_reader.h"
#include "ops/rules.h"

namespace reprise::ops::pictures {

namespace simd = kernels::simd;

using kernels::ChannelsLastConv;
using kernels::DType;
using kernels::TensorRef;

namespace {

constexpr int64_t kTurned = 64;      // pixels, and channels, that are turned in one go
constexpr int64_t kTurningCost = 2;  // of an element, in light operations

}  // namespace

Views ViewsOf(const LinkPlan& plan, float* input, float* out, float* columns) {
  const PlaneConvolution& conv = plan.conv;
  Views views{conv.shape, conv.input, Behind(conv.out, plan.result.channels, out), conv.weight};
  if (plan.input != kNone) views.input = Behind(conv.input, plan.input_channels, input);
  if (!conv.unfolds) return views;
  const int64_t depth = conv.shape.in_channels * conv.shape.dims[1].kernel * conv.shape.dims[2].kernel;
  const int64_t pixels = plan.result.batch * plan.result.plane;
  views.shape = {};
  views.shape.in_channels = depth;
  views.shape.out_channels = conv.shape.out_channels;
  views.shape.dims[2].in = views.shape.dims[2].out = pixels;
  views.input = RowsOf(columns, pixels, depth);
  views.out = RowsOf(out, pixels, conv.shape.out_channels);
  views.weight = kernels::MakeContiguous(conv.weight.data, DType::kFloat, {conv.weight.sizes[0], depth, 1, 1, 1});
  views.weight.strides[0] = conv.weight.strides[0];
  return views;
}

// ---- What follows ----

void Aftermath::Run(kernels::Range pixels, kernels::Range of, const simd::ChannelScaling& scaling) const {
  for (const Store& store : before) Write(store, pixels, of);
  if (finishes) {
    simd::FinishedPixels block = rest;
    const int64_t at = pixels.begin * channels + of.begin;
    block.in += at;
    block.out += at;
    block.pixels = pixels.end - pixels.begin;
    block.columns = of.end - of.begin;
    if (scales) {
      block.epilogue.scaling = {scaling.centre + of.begin, scaling.scale + of.begin, scaling.shift + of.begin};
    }
    if (block.epilogue.addend != nullptr) block.epilogue.addend += at;
    simd::FinishPixels(block);
    activate.Run(block.out, block.stride, block.pixels, block.columns);
  }
  for (const Store& store : behind) Write(store, pixels, of);
}

void Aftermath::Write(const Store& store, kernels::Range pixels, kernels::Range of) const {
  const int64_t begin = store.picture * plane;
  const kernels::Range common = {std::max(pixels.begin, begin), std::min(pixels.end, begin + plane)};
  const kernels::Range planes = {std::max(of.begin, store.first), std::min(of.end, store.end)};
  for (int64_t p = common.begin; p < common.end; p += kTurned) {
    for (int64_t c = planes.begin; c < planes.end; c += kTurned) {
      simd::Transpose(store.pixels + p * channels + c, channels, std::min(kTurned, common.end - p),
                      std::min(kTurned, planes.end - c), store.planes + (c - store.first) * plane + p - begin, plane);
    }
  }
}

NormScaling::NormScaling(const Launch& norm, int64_t channels)
    : channels_(static_cast<size_t>(channels)), rows_(3 * channels_), seen_(kParameters * channels_) {
  norm.Retain();
  norm_.reset(&norm);
}

void NormScaling::Update() {
  kernels::BatchNormArgs args;
  FindElementNorm(*norm_, args);
  float* const rows = rows_.data();
  if (!HaveChanged(args)) return;
  kernels::BatchNormScaling(args, static_cast<int64_t>(channels_), rows, rows + channels_, rows + 2 * channels_);
}

simd::ChannelScaling NormScaling::Get() const {
  return {rows_.data(), rows_.data() + channels_, rows_.data() + 2 * channels_};
}

// True also where that cannot be told at a glance. Knows the numbers from now on.
bool NormScaling::HaveChanged(const kernels::BatchNormArgs& args) {
  const size_t bytes = channels_ * sizeof(float);
  bool changed = !std::exchange(has_seen_, true);
  float* seen = seen_.data();
  for (const TensorRef* ref : {args.weight, args.bias, args.running_mean, args.running_var}) {
    if (ref == nullptr) continue;
    if (ref->dtype != DType::kFloat || (ref->strides[0] != 1 && channels_ > 1)) return true;
    if (std::memcmp(seen, ref->data, bytes) != 0) {
      std::memcpy(seen, ref->data, bytes);
      changed = true;
    }
    seen += channels_;
  }
  return changed;
}

// ---- Links of launches ----

namespace {

// Of a launch of PictureLink::AddOfPixels.
kernels::Range PixelsOf(const Launch& launch, kernels::Range range) {
  return {range.begin * kTurned, std::min(launch.refs[0].sizes[0], range.end * kTurned)};
}

// body(picture, some): the pixels of each picture among them.
template <class Body>
void ForEachPicture(kernels::Range pixels, int64_t plane, const Body& body) {
  while (pixels.begin < pixels.end) {
    const int64_t picture = pixels.begin / plane;
    const int64_t end = std::min(pixels.end, (picture + 1) * plane);
    body(picture, kernels::Range{pixels.begin, end});
    pixels.begin = end;
  }
}

struct Product {
  const float* from;
  const float* numbers;
  int64_t plane;
};

void RunProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& product = launch.State<Product>();
  const int64_t channels = launch.refs[0].sizes[1];
  auto* const to = static_cast<float*>(launch.refs[0].data);
  ForEachPicture(PixelsOf(launch, range), product.plane, [&](int64_t picture, kernels::Range some) {
    simd::ScalePixels({product.from + some.begin * channels, some.end - some.begin, channels,
                       to + some.begin * channels, product.numbers + picture * channels});
  });
}

void RunFinishing(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& finishing = launch.State<Finishing>();
  finishing.after.Run(PixelsOf(launch, range), {0, finishing.after.channels}, finishing.Scaling());
}

struct Join {
  std::vector<JoinedPicture> parts;
  int64_t plane;
};

// `to`: of the first of all pixels, `step` elements before the next.
void CopyPixels(const JoinedPicture& part, kernels::Range pixels, float* to, int64_t step) {
  for (int64_t p = pixels.begin; p < pixels.end; ++p) {
    std::copy_n(part.data + p * part.step, part.channels, to + p * step);
  }
}

void TurnPlanes(const JoinedPicture& part, int64_t plane, kernels::Range pixels, float* to, int64_t step) {
  ForEachPicture(pixels, plane, [&](int64_t picture, kernels::Range some) {
    const float* const from = part.data + picture * part.channels * plane + some.begin % plane;
    for (int64_t c = 0; c < part.channels; c += kTurned) {
      simd::Transpose(from + c * plane, plane, std::min(kTurned, part.channels - c), some.end - some.begin,
                      to + some.begin * step + c, step);
    }
  });
}

// refs: values, picture.
template <auto kPool>
void RunPool(const Launch& launch, kernels::Range rows, const Launch::KernelMemory& memory) {
  kPool(launch.State<kernels::PoolShape>(), launch.refs[1], launch.refs[0], rows, memory.scratch);
}

// Each pixel [d, h, w] of `out` is the one of `in` that index says for each dim.
struct PixelMap {
  const float* from;
  int64_t in[3], out[3];
  std::vector<int32_t> index[3];
};

void RunPixelMap(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& pixel_map = launch.State<PixelMap>();
  const int64_t channels = launch.refs[0].sizes[1];
  const auto& [depth, height, width] = pixel_map.out;
  auto* const to = static_cast<float*>(launch.refs[0].data);
  const kernels::Range pixels = PixelsOf(launch, range);
  for (int64_t p = pixels.begin; p < pixels.end;) {
    const int64_t row = p / width;
    const int64_t plane = row / height;
    const int64_t in_plane = plane / depth * pixel_map.in[0] + pixel_map.index[0][static_cast<size_t>(plane % depth)];
    const int64_t in_row = in_plane * pixel_map.in[1] + pixel_map.index[1][static_cast<size_t>(row % height)];
    const float* const from = pixel_map.from + in_row * pixel_map.in[2] * channels;
    for (const int64_t end = std::min(pixels.end, (row + 1) * width); p < end; ++p) {
      const int64_t x = pixel_map.index[2][static_cast<size_t>(p - row * width)];
      std::copy_n(from + x * channels, channels, to + p * channels);
    }
  }
}

struct Order {
  const float* from;
  int64_t channels;  // of it
  std::vector<int32_t> order;
  bool is_of_two;  // channels of two runs in turn, as a shuffle of two groups has them
};

bool IsOfTwoRuns(const std::vector<int32_t>& order) {
  if (order.size() < 8 || order.size() % 2 != 0) return false;
  for (size_t c = 2; c < order.size(); ++c) {
    if (order[c] != order[c - 2] + 1) return false;
  }
  return true;
}

// to[0], to[2] .. are of one run, to[1], to[3] .. of the other.
void Interleave(const float* one, const float* other, int64_t count, float* to) {
  using Four = float __attribute__((vector_size(16)));
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    Four a, b;
    std::memcpy(&a, one + i, sizeof a);
    std::memcpy(&b, other + i, sizeof b);
    const Four low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Four high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    std::memcpy(to + 2 * i, &low, sizeof low);
    std::memcpy(to + 2 * i + 4, &high, sizeof high);
  }
  for (; i < count; ++i) {
    to[2 * i] = one[i];
    to[2 * i + 1] = other[i];
  }
}

void RunOrder(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& order = launch.State<Order>();
  const kernels::Range pixels = PixelsOf(launch, range);
  const auto channels = static_cast<int64_t>(order.order.size());
  const int32_t* const source = order.order.data();
  float* to = static_cast<float*>(launch.refs[0].data) + pixels.begin * channels;
  for (int64_t p = pixels.begin; p < pixels.end; ++p, to += channels) {
    const float* const from = order.from + p * order.channels;
    if (order.is_of_two) {
      Interleave(from + source[0], from + source[1], channels / 2, to);
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) to[c] = from[source[c]];
  }
}

void RunJoin(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& join = launch.State<Join>();
  const int64_t channels = launch.refs[0].sizes[1];
  const kernels::Range pixels = PixelsOf(launch, range);
  auto* to = static_cast<float*>(launch.refs[0].data);
  for (const JoinedPicture& part : join.parts) {
    part.is_mirror ? CopyPixels(part, pixels, to, channels) : TurnPlanes(part, join.plane, pixels, to, channels);
    to += part.channels;
  }
}

}  // namespace

uint64_t PictureLink::ScratchOf(const Launch& launch) {
  return launch.has_scratch_on_stack() ? 0 : launch.scratch_bytes * static_cast<uint64_t>(launch.parts());
}

uint64_t PictureLink::scratch_bytes() const {
  uint64_t bytes = 0;
  for (const LaunchPtr& launch : launches_) bytes = std::max(bytes, ScratchOf(*launch));
  return bytes;
}

void PictureLink::Own(std::shared_ptr<ChainMemory> memory, void* scratch) {
  memory_ = std::move(memory);
  scratch_ = scratch;
}

void PictureLink::AddReader(const Launch& launch, const TensorRef& source) {
  launches_.emplace_back(new Launch(launch));
  launches_.back()->refs[1] = source;
  launches_.back()->scratch_offset = 0;  // in the memory of the chain
  if (ReducesAnyStrides(launch)) SplitReduction(*launches_.back());
  launches_.back()->Seal();
}

void PictureLink::AddProduct(const Picture& picture, float* to, const float* from, const float* numbers) {
  AddOfPixels(RunProduct, picture, to, std::make_shared<const Product>(Product{from, numbers, picture.plane}), 1);
}

void PictureLink::AddPool(const PicturePool& pool, const TensorRef& to, const TensorRef& from) {
  Launch& launch =
      Add(pool.is_max ? RunPool<kernels::ChannelsLastMaxPool> : RunPool<kernels::ChannelsLastAvgPool>, {to, from});
  launch.state = std::make_shared<const kernels::PoolShape>(*pool.shape);
  launch.units = kernels::ChannelsLastPoolRows(to);
  launch.grain = GrainOf(kernels::ChannelsLastPoolCost(*pool.shape, to));
  launch.scratch_bytes = static_cast<uint64_t>(kernels::ChannelsLastPoolScratchBytes(to));
  launch.Seal();
}

void PictureLink::AddOrder(const Picture& picture, float* to, const float* from, int64_t channels,
                           std::vector<int32_t> order) {
  const bool is_of_two = IsOfTwoRuns(order);
  AddOfPixels(RunOrder, picture, to, std::make_shared<const Order>(Order{from, channels, std::move(order), is_of_two}),
              1);
}

void PictureLink::AddPixelMap(const kernels::Separable& map, const Picture& picture, float* to, const float* from) {
  PixelMap pixel_map{from, {}, {}, {}};
  for (size_t d = 0; d < 3; ++d) {
    pixel_map.in[d] = map.dims[d].in;
    pixel_map.out[d] = map.dims[d].out;
    pixel_map.index[d] = map.dims[d].index;
  }
  AddOfPixels(RunPixelMap, picture, to, std::make_shared<const PixelMap>(std::move(pixel_map)), 1);
}

void PictureLink::AddJoin(const Picture& picture, float* to, std::vector<JoinedPicture> parts) {
  AddOfPixels(RunJoin, picture, to, std::make_shared<const Join>(Join{std::move(parts), picture.plane}), 1);
}

void PictureLink::AddFinishing(std::shared_ptr<const Finishing> finishing, const Picture& picture, float* pixels) {
  if (finishing->after.IsNothing()) return;
  SetNorm(finishing->norm);
  AddOfPixels(RunFinishing, picture, pixels, std::move(finishing), kTurningCost);
}

void PictureLink::AddOfPixels(Launch::Kernel kernel, const Picture& picture, float* pixels,
                              std::shared_ptr<const void> state, int64_t cost) {
  const int64_t count = picture.batch * picture.plane;
  Launch& launch = Add(kernel, {kernels::MakeContiguous(pixels, DType::kFloat, {count, picture.channels})});
  launch.state = std::move(state);
  launch.units = (count + kTurned - 1) / kTurned;
  launch.grain = GrainOf(kTurned * picture.channels * cost);
  launch.Seal();
}

void PictureLink::Run(device::RunContext& context) {
  if (norm_ != nullptr) norm_->Update();
  for (const auto& norm : more_norms_) norm->Update();
  for (const LaunchPtr& launch : launches_) launch->Run(context, scratch_);
}

LaunchPtr PictureLink::Replace(const Launch& launch, LaunchPtr by) {
  const auto at =
      std::find_if(launches_.begin(), launches_.end(), [&](const LaunchPtr& each) { return each.get() == &launch; });
  LaunchPtr taken = std::exchange(*at, std::move(by));
  if (*at == nullptr) launches_.erase(at);
  return taken;
}

Launch& PictureLink::Add(Launch::Kernel kernel, std::initializer_list<TensorRef> refs) {
  launches_.push_back(Make(kernel, refs));
  return *launches_.back();
}

LaunchPtr PictureLink::Make(Launch::Kernel kernel, std::initializer_list<TensorRef> refs) const {
  LaunchPtr launch(new Launch(schema_, kernel));
  for (const TensorRef& ref : refs) {
    launch->refs.push_back(ref);
    OperandUse use;
    use.slot = 0;
    use.is_write = launch->uses.empty();
    launch->uses.push_back(use);
  }
  return launch;
}

// ---- Convolutions ----

struct ConvolutionLink::State {
  ChannelsLastConv conv;
  kernels::ConvShape unfolded;
  bool scales = false;  // the convolution does, by the norm
  Finishing rest;
  // While the pixels of a unit are in the caches.
  bool FollowsUnits() const { return !rest.after.IsNothing() && conv.has_tiles(); }
};

namespace {

// refs: out, input or what was prepared of it, packed, bias, addend.
void RunLink(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<ConvolutionLink::State>();
  const auto* const source =
      state.conv.source_elements() != 0 ? static_cast<const float*>(launch.refs[1].data) : nullptr;
  const auto convolve = [&](kernels::Range units) {
    state.conv.Convolve(launch.refs[1], source, static_cast<const float*>(launch.refs[2].data), launch.RefOrNull(3),
                        launch.RefOrNull(4), launch.refs[0], units, memory.scratch,
                        state.scales ? state.rest.Scaling() : simd::ChannelScaling());
  };
  if (!state.FollowsUnits()) return convolve(range);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    convolve({unit, unit + 1});
    const ChannelsLastConv::Tile tile = state.conv.TileOf(unit);
    state.rest.after.Run(tile.pixels, tile.channels, state.rest.Scaling());
  }
}

// Convolutions that run row by row, with their launches, which know where their filters are.
struct BandOfLinks {
  struct Part {
    std::shared_ptr<const ConvolutionLink::State> state;
    const Launch* convolution;  // of a link of the same chain
  };
  std::shared_ptr<const kernels::ConvBand> band;
  std::vector<Part> parts;
};

// refs: out, input.
void RunBandOfLinks(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& all = launch.State<BandOfLinks>();
  ChannelsLastConv::RowOperands operands[kernels::ConvBand::kMostConvs];
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const auto& [state, convolution] = all.parts[i];
    operands[i].packed = static_cast<const float*>(convolution->refs[2].data);
    operands[i].bias = convolution->RefOrNull(3);
    operands[i].addend = convolution->RefOrNull(4);
    if (state->scales) operands[i].scaling = state->rest.Scaling();
  }
  operands[0].input = launch.refs[1];
  if (all.parts[0].state->conv.source_elements() != 0) {
    operands[0].source = static_cast<const float*>(launch.refs[1].data);
  }
  const ConvolutionLink::State& last = *all.parts.back().state;
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    all.band->Run({operands, all.parts.size()}, launch.refs[0], {unit, unit + 1}, memory.scratch);
    if (!last.FollowsUnits()) continue;
    last.rest.after.Run(all.band->PixelsOf(unit), {0, last.rest.after.channels}, last.rest.Scaling());
  }
}

// refs: prepared, input.
void RunPrepareLink(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  launch.State<ConvolutionLink::State>().conv.Prepare(launch.refs[1], static_cast<float*>(launch.refs[0].data), range);
}

// refs: columns, input.
void RunUnfold(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Unfold(launch.State<ConvolutionLink::State>().unfolded, launch.refs[1],
                  static_cast<float*>(launch.refs[0].data), range);
}

}  // namespace

ConvolutionLink::ConvolutionLink(const LinkPlan& plan, const Views& views)
    : PictureLink(*plan.begins),
      state_(std::make_shared<State>(State{ChannelsLastConv(views.shape, views.input, views.out,
                                                            plan.split == 0 ? plan.epilogue : kernels::ConvEpilogue()),
                                           plan.conv.shape,
                                           plan.IsInHead(plan.norm_task),
                                           {}})),
      weight_(views.weight),
      unfolded_elements_(plan.conv.unfolds ? kernels::ElementCount(views.input) : 0) {
  if (plan.norm == nullptr) return;
  state_->rest.norm = std::make_shared<NormScaling>(*plan.norm, plan.result.channels);
  SetNorm(state_->rest.norm);
}

const ChannelsLastConv& ConvolutionLink::conv() const { return state_->conv; }

uint64_t ConvolutionLink::scratch_bytes() const {
  return std::max(PictureLink::scratch_bytes(), ScratchOf(*MakePack(nullptr)));
}

int64_t ConvolutionLink::prepared_elements() const { return std::max(conv().source_elements(), unfolded_elements_); }

void ConvolutionLink::AddTurn(const TensorRef& to, const TensorRef& from) {
  Launch& launch = Add(channels_last::RunPixelsOfPlanes, {to, from});
  channels_last::SplitTurning(launch, from);
  launch.Seal();
}

void ConvolutionLink::AddPrepare(const TensorRef& to, const TensorRef& from) {
  Launch& launch = Add(RunPrepareLink, {to, from});
  launch.state = state_;
  launch.units = conv().prepare_units();
  launch.grain = GrainOf(conv().prepare_cost());
  launch.Seal();
}

// Elements of one pixel.
void ConvolutionLink::AddUnfold(const TensorRef& to, const TensorRef& from) {
  Launch& launch = Add(RunUnfold, {to, from});
  launch.state = state_;
  launch.units = to.sizes[4];
  launch.grain = GrainOf(to.sizes[1]);
  launch.Seal();
}

void ConvolutionLink::AddConvolution(const TensorRef& out, const TensorRef& input, const TensorRef* bias,
                                     const TensorRef* addend) {
  TensorRef packed;
  packed.dtype = DType::kFloat;
  convolution_ = &Add(
      RunLink, {out, input, packed, bias == nullptr ? TensorRef() : *bias, addend == nullptr ? TensorRef() : *addend});
  convolution_->state = state_;
  if (bias == nullptr) convolution_->uses[3].slot = OperandUse::kAbsent;
  if (addend == nullptr) convolution_->uses[4].slot = OperandUse::kAbsent;
  convolution_->units = conv().units();
  convolution_->grain = GrainOfProduct(conv().unit_cost());
  convolution_->has_cheap_calls = true;
  convolution_->scratch_bytes = static_cast<uint64_t>(conv().ScratchBytes());
  convolution_->Seal();
}

void ConvolutionLink::SetAftermath(Aftermath after, const Picture& picture, float* pixels) {
  state_->rest.after = std::move(after);
  if (state_->FollowsUnits()) return;
  AddFinishing(std::shared_ptr<const Finishing>(state_, &state_->rest), picture, pixels);
}

bool ConvolutionLink::MakeBand(std::span<ConvolutionLink* const> links) {
  kernels::ConvBand::Convs convs;
  for (const ConvolutionLink* link : links) {
    const State& state = *link->state_;
    if (link != links.back() && (!state.rest.after.IsNothing() || link->convolution_->HasOperand(4))) return false;
    convs.emplace_back(link->state_, &state.conv);
  }
  auto all = std::make_shared<BandOfLinks>();
  all->band = kernels::ConvBand::Of(std::move(convs), Launch::Parallelism());
  if (all->band == nullptr) return false;
  ConvolutionLink& first = *links.front();
  LaunchPtr launch = first.Make(RunBandOfLinks, {links.back()->convolution_->refs[0], first.convolution_->refs[1]});
  launch->units = all->band->units();
  launch->grain = GrainOfProduct(all->band->unit_cost());
  launch->scratch_bytes = static_cast<uint64_t>(all->band->ScratchBytes());
  launch->state = all;
  launch->Seal();
  for (ConvolutionLink* link : links) {
    all->parts.push_back({link->state_, link->convolution_});
    if (link != &first) first.AddNormOf(*link);
    link->in_band_ = link->Replace(*link->convolution_, link == &first ? std::move(launch) : nullptr);
  }
  return true;
}

bool ConvolutionLink::FindOperand(ir::KeptOperand& operand) const {
  operand.form_bytes = static_cast<uint64_t>(conv().packed_elements()) * sizeof(float);
  operand.key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(&channels_last::RunPack))};
  conv().TellPacking(operand.key);
  TellOperand(weight_, operand);
  return true;
}

void ConvolutionLink::WriteForm(device::RunContext& context, void* to) const {
  const LaunchPtr pack = MakePack(to);
  pack->Run(context, scratch());
}

LaunchPtr ConvolutionLink::MakePack(void* to) const {
  TensorRef packed = weight_;
  packed.data = to;
  LaunchPtr launch = Make(channels_last::RunPack, {packed, weight_});
  launch->state = std::shared_ptr<const ChannelsLastConv>(state_, &state_->conv);
  launch->units = conv().pack_units();
  launch->grain = GrainOf(conv().pack_cost());
  const auto bytes = static_cast<uint64_t>(conv().PackScratchBytes());
  launch->scratch_bytes = (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  launch->Seal();
  return launch;
}

}  // namespace reprise::ops::pictures
