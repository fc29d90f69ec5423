// SPDX-License-Identifier: Apache-2.0
#include "ops/picture_chain.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "device/scheduler.h"
#include "ir/graph.h"
#include "kernels/activation_functions.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/channels_last_conv.h"
#include "kernels/math_functions.h"
#include "kernels/picture_layout.h"
#include "kernels/simd/channels_last.h"
#include "kernels/simd/matmul_tile.h"
#include "ops/families/plane_convolution.h"
#include "ops/launch.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

namespace simd = kernels::simd;

using ir::ChainTask;
using kernels::ChannelsLastConv;
using kernels::ConvActivation;
using kernels::DType;
using kernels::TensorRef;

constexpr size_t kNone = SIZE_MAX;
// Tasks that are looked at behind a result for somebody who writes over it: networks use memory again soon.
constexpr size_t kFarthest = 4096;
constexpr int64_t kTurned = 64;      // pixels, and channels, that are turned in one go
constexpr int64_t kTurningCost = 2;  // of an element, in light operations

// ---- What tasks touch ----

struct Bytes {
  uintptr_t begin = 0, end = 0;
  bool Overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
  bool Contains(const Bytes& other) const { return begin <= other.begin && other.end <= end; }
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

Bytes BytesOf(const TensorRef& ref) {
  const auto begin = reinterpret_cast<uintptr_t>(ref.data);
  return {begin, begin + ExtentBytes(ref)};
}

struct Task {
  const Launch* launch = nullptr;  // null: some other task
  std::vector<Bytes> reads, writes;
  Bytes covers;  // every byte of it is written, whatever was there
  size_t link = kNone;
};

class Touched final : public ir::OperandSink {
 public:
  explicit Touched(Task& task) : task_(task) {}
  void Take(const ir::Operand& operand) override {
    if (operand.bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(operand.begin);
    if (operand.is_read()) task_.reads.push_back({begin, begin + operand.bytes});
    if (operand.is_written()) task_.writes.push_back({begin, begin + operand.bytes});
  }
  void TakeWords(const uint64_t*, size_t) override { tells_all_ = false; }
  void TakeOpaque() override { tells_all_ = false; }
  bool tells_all() const { return tells_all_; }

 private:
  Task& task_;
  bool tells_all_ = true;
};

// Nobody looks at memory, or writes to it, because such a task runs.
bool IsQuiet(const ir::TaskType& type) {
  if (type.run == nullptr || type.kind == ir::TaskKind::kNop) return true;
  return type.never_waits && (type.kind == ir::TaskKind::kKernel || type.kind == ir::TaskKind::kCopy ||
                              type.kind == ir::TaskKind::kFill || type.kind == ir::TaskKind::kReduce);
}

bool IsLaunch(const ir::TaskType& type) { return type.chain == MakePictureChain; }

bool IsDense(const TensorRef& ref) { return kernels::IsContiguous(ref); }

// A contiguous tensor [N, C, ..].
struct Picture {
  Bytes bytes;
  int64_t batch = 0, channels = 0, plane = 0;

  int64_t count() const { return batch * channels * plane; }
  bool IsRow(const TensorRef& ref) const {
    return ref.dtype == DType::kFloat && BytesOf(ref) == bytes && IsDense(ref) && kernels::ElementCount(ref) == count();
  }
  void* data() const { return reinterpret_cast<void*>(bytes.begin); }
};

// Of a view of rank 5 that is one.
std::optional<Picture> PictureOf(const TensorRef& ref) {
  if (ref.dtype != DType::kFloat || !IsDense(ref)) return std::nullopt;
  return Picture{BytesOf(ref), ref.sizes[0], ref.sizes[1], ref.sizes[2] * ref.sizes[3] * ref.sizes[4]};
}

// Whether the view reads the picture, whole or by steps.
bool IsViewOf(const Picture& picture, const TensorRef& ref) {
  return ref.dtype == DType::kFloat && ref.data == picture.data() && ref.sizes[0] == picture.batch &&
         ref.sizes[1] == picture.channels && (ref.sizes[1] == 1 || ref.strides[1] == picture.plane) &&
         (ref.sizes[0] == 1 || ref.strides[0] == picture.plane * picture.channels) &&
         picture.bytes.Contains(BytesOf(ref));
}

// The same view of a picture whose channels lie behind, at `pixels`.
TensorRef Behind(TensorRef ref, int64_t channels, float* pixels) {
  ref.data = pixels;
  ref.strides[1] = 1;
  for (int d = 2; d < 5; ++d) ref.strides[d] *= channels;
  return ref;
}

TensorRef PlanesOf(const Picture& picture) {
  return kernels::MakeContiguous(picture.data(), DType::kFloat, {picture.batch, picture.channels, 1, 1, picture.plane});
}

// Whether an activation is applied in a pass of its own. Its rows give an element the same bits wherever it lies.
bool IsActivation(kernels::RowFn row) {
  static constexpr const kernels::ElementFn* kFunctions[] = {
      &kernels::kEluFn,         &kernels::kFastGeluFn,  &kernels::kGeluFn,      &kernels::kGeluTanhFn,
      &kernels::kHardsigmoidFn, &kernels::kHardswishFn, &kernels::kLeakyReluFn, &kernels::kMishFn,
      &kernels::kSigmoidFn,     &kernels::kSiluFn,      &kernels::kSoftplusFn,  &kernels::kTanhFn,
  };
  return row != nullptr && std::any_of(std::begin(kFunctions), std::end(kFunctions), [row](const auto* function) {
           return function->find(DType::kFloat).function == row;
         });
}

// ---- Links ----

struct LaunchRelease {
  void operator()(const Launch* launch) const { launch->Release(); }
};
using LaunchPtr = std::unique_ptr<Launch, LaunchRelease>;

// Mirrors, prepared inputs and scratch of all links of a chain, which run one after another.
struct ChainMemory {
  explicit ChainMemory(uint64_t bytes)
      : block(static_cast<char*>(::operator new (std::max<uint64_t>(1, bytes), std::align_val_t{kScratchAlignment}))) {}
  ~ChainMemory() { ::operator delete (block, std::align_val_t{kScratchAlignment}); }
  ChainMemory(const ChainMemory&) = delete;
  ChainMemory& operator=(const ChainMemory&) = delete;
  char* const block;
};

// What a link is to compute.
struct Plan {
  PlaneConvolution conv;
  size_t first = 0, count = 0;     // tasks
  const Launch* begins = nullptr;  // the launches of the tasks
  const Launch* norm = nullptr;    // a batch norm
  size_t norm_task = kNone;
  size_t sum = kNone;    // the task of a sum
  TensorRef addend_ref;  // of it
  kernels::ConvEpilogue epilogue;
  Picture result;
  // Tasks whose result has to be in memory although others of the link follow; 0: there are none.
  size_t split = 0;
  Picture split_result;
  // Places in the table of mirrors.
  size_t input = kNone, addend = kNone, out = kNone;
  size_t split_out = kNone;   // of what is there behind the first tasks, where it is split
  bool reads_planes = false;  // the input is prepared from memory
  bool turns_input = false;   // and written to its mirror
  // As far as they have to be in memory: the result, and what is there behind the first tasks.
  std::vector<Bytes> stored, stored_split;
  bool is_read = false;  // its mirror

  // Whether the convolution itself goes on with what the task does.
  bool IsInHead(size_t task) const { return task != kNone && (split == 0 || task < first + split); }
};

// What a link computes, on pictures with channels behind.
struct Views {
  kernels::ConvShape shape;
  TensorRef input, out, weight;
};

// Rows of channels for all pixels.
TensorRef RowsOf(float* data, int64_t pixels, int64_t channels) {
  TensorRef ref = kernels::MakeContiguous(data, DType::kFloat, {1, pixels, 1, 1, channels});
  std::swap(ref.sizes[1], ref.sizes[4]);
  std::swap(ref.strides[1], ref.strides[4]);
  return ref;
}

// `columns`: what is unfolded, where it is.
Views ViewsOf(const Plan& plan, float* input, float* out, float* columns) {
  const PlaneConvolution& conv = plan.conv;
  Views views{conv.shape, conv.input, Behind(conv.out, plan.result.channels, out), conv.weight};
  if (plan.input != kNone) views.input = Behind(conv.input, conv.input.sizes[1], input);
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

// What becomes of the pixels of a convolution when they are there: results that have to be in memory are written to
// their planes, and what follows a split is computed.
struct Aftermath {
  // Planes [first, end) of a picture, and where its pixels lie.
  struct Store {
    int64_t picture, first, end;
    const float* pixels;
    float* planes;  // the first one
  };
  int64_t channels = 0, plane = 0;
  std::vector<Store> before, behind;  // what is there before the rest is computed, and behind that
  bool finishes = false;              // there is a rest
  simd::FinishedPixels rest{};        // of all pixels; without the scaling
  kernels::ActivationPass activate;   // behind it
  bool scales = false;

  bool IsNothing() const { return before.empty() && behind.empty() && !finishes; }

  void Run(kernels::Range pixels, kernels::Range of, const simd::ChannelScaling& scaling) const {
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

 private:
  void Write(const Store& store, kernels::Range pixels, kernels::Range of) const {
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
};

struct LinkState {
  ChannelsLastConv conv;
  kernels::ConvShape unfolded;
  std::vector<float> scaling;  // three rows; none: there is no norm
  bool scales = false;         // the convolution does
  Aftermath after;
  simd::ChannelScaling Scaling() const {
    const size_t channels = scaling.size() / 3;
    if (channels == 0) return {};
    return {scaling.data(), scaling.data() + channels, scaling.data() + 2 * channels};
  }
  // While the pixels of a unit are in the caches.
  bool FollowsUnits() const { return !after.IsNothing() && conv.has_tiles(); }
};

// refs: out, input or what was prepared of it, packed, bias, addend.
void RunLink(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<LinkState>();
  const auto* const source =
      state.conv.source_elements() != 0 ? static_cast<const float*>(launch.refs[1].data) : nullptr;
  const auto convolve = [&](kernels::Range units) {
    state.conv.Convolve(launch.refs[1], source, static_cast<const float*>(launch.refs[2].data), launch.RefOrNull(3),
                        launch.RefOrNull(4), launch.refs[0], units, memory.scratch,
                        state.scales ? state.Scaling() : simd::ChannelScaling());
  };
  if (!state.FollowsUnits()) return convolve(range);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    convolve({unit, unit + 1});
    const ChannelsLastConv::Tile tile = state.conv.TileOf(unit);
    state.after.Run(tile.pixels, tile.channels, state.Scaling());
  }
}

// refs: the pixels.
void RunAftermath(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& state = launch.State<LinkState>();
  const int64_t pixels = launch.refs[0].sizes[0];
  state.after.Run({range.begin * kTurned, std::min(pixels, range.end * kTurned)}, {0, state.after.channels},
                  state.Scaling());
}

// refs: prepared, input.
void RunPrepareLink(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  launch.State<LinkState>().conv.Prepare(launch.refs[1], static_cast<float*>(launch.refs[0].data), range);
}

// refs: columns, input.
void RunUnfold(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Unfold(launch.State<LinkState>().unfolded, launch.refs[1], static_cast<float*>(launch.refs[0].data), range);
}

// What a norm of inference computes its scales from, as it was the last time.
class NormNumbers {
 public:
  explicit NormNumbers(int64_t channels = 0)
      : channels_(channels), seen_(static_cast<size_t>(kParameters * channels)) {}

  // True also where that cannot be told at a glance. Knows the numbers from now on.
  bool HaveChanged(const kernels::BatchNormArgs& args) {
    const auto bytes = static_cast<size_t>(channels_) * sizeof(float);
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

 private:
  static constexpr int64_t kParameters = 4;
  int64_t channels_;
  bool has_seen_ = false;
  std::vector<float> seen_;
};

class PictureLink final : public ir::Link {
 public:
  PictureLink(const Plan& plan, const Views& views)
      : schema_(plan.begins->op),
        state_(std::make_shared<LinkState>(
            LinkState{ChannelsLastConv(views.shape, views.input, views.out,
                                       plan.split == 0 ? plan.epilogue : kernels::ConvEpilogue()),
                      plan.conv.shape,
                      {},
                      plan.IsInHead(plan.norm_task),
                      {}})),
        weight_(views.weight) {
    if (plan.norm == nullptr) return;
    plan.norm->Retain();
    norm_.reset(plan.norm);
    state_->scaling.resize(static_cast<size_t>(3 * plan.result.channels));
    norm_numbers_ = NormNumbers(plan.result.channels);
  }

  const ChannelsLastConv& conv() const { return state_->conv; }
  uint64_t scratch_bytes() const {
    uint64_t bytes = 0;
    for (const LaunchPtr& launch : launches_) bytes = std::max(bytes, ScratchOf(*launch));
    const LaunchPtr pack = MakePack(nullptr);
    return std::max(bytes, ScratchOf(*pack));
  }
  // `scratch`: of all links.
  void Own(std::shared_ptr<ChainMemory> memory, void* scratch) {
    memory_ = std::move(memory);
    scratch_ = scratch;
  }

  void AddTurn(const TensorRef& to, const TensorRef& from) {
    Launch& launch = Add(channels_last::RunPixelsOfPlanes, {to, from});
    channels_last::SplitTurning(launch, from);
    launch.Seal();
  }
  void AddPrepare(const TensorRef& to, const TensorRef& from) {
    Launch& launch = Add(RunPrepareLink, {to, from});
    launch.units = conv().prepare_units();
    launch.grain = GrainOf(conv().prepare_cost());
    launch.Seal();
  }
  // Elements of one pixel.
  void AddUnfold(const TensorRef& to, const TensorRef& from) {
    Launch& launch = Add(RunUnfold, {to, from});
    launch.units = to.sizes[4];
    launch.grain = GrainOf(to.sizes[1]);
    launch.Seal();
  }
  void AddConvolution(const TensorRef& out, const TensorRef& input, const TensorRef* bias, const TensorRef* addend) {
    TensorRef packed;
    packed.dtype = DType::kFloat;
    convolution_ = &Add(RunLink, {out, input, packed, bias == nullptr ? TensorRef() : *bias,
                                  addend == nullptr ? TensorRef() : *addend});
    if (bias == nullptr) convolution_->uses[3].slot = OperandUse::kAbsent;
    if (addend == nullptr) convolution_->uses[4].slot = OperandUse::kAbsent;
    convolution_->units = conv().units();
    convolution_->grain = GrainOfProduct(conv().unit_cost());
    convolution_->scratch_bytes = static_cast<uint64_t>(conv().ScratchBytes());
    convolution_->Seal();
  }

  // Behind the convolution.
  void SetAftermath(Aftermath after, float* pixels, int64_t count) {
    state_->after = std::move(after);
    if (state_->after.IsNothing() || state_->FollowsUnits()) return;
    Launch& launch =
        Add(RunAftermath, {kernels::MakeContiguous(pixels, DType::kFloat, {count, state_->after.channels})});
    launch.units = (count + kTurned - 1) / kTurned;
    launch.grain = GrainOf(kTurned * state_->after.channels * kTurningCost);
    launch.Seal();
  }

  void Run(device::RunContext& context) override {
    if (norm_ != nullptr) {
      kernels::BatchNormArgs args;
      FindElementNorm(*norm_, args);
      float* const rows = state_->scaling.data();
      const auto channels = static_cast<int64_t>(state_->scaling.size() / 3);
      if (norm_numbers_.HaveChanged(args)) {
        kernels::BatchNormScaling(args, channels, rows, rows + channels, rows + 2 * channels);
      }
    }
    for (const LaunchPtr& launch : launches_) launch->Run(context, scratch_);
  }
  bool FindOperand(ir::KeptOperand& operand) const override {
    operand.form_bytes = static_cast<uint64_t>(conv().packed_elements()) * sizeof(float);
    operand.key = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(&channels_last::RunPack))};
    conv().TellPacking(operand.key);
    TellOperand(weight_, operand);
    return true;
  }
  void WriteForm(device::RunContext& context, void* to) const override {
    const LaunchPtr pack = MakePack(to);
    pack->Run(context, scratch_);
  }
  void SetForm(const void* form) override { convolution_->refs[2].data = const_cast<void*>(form); }

 private:
  static uint64_t ScratchOf(const Launch& launch) {
    return launch.has_scratch_on_stack() ? 0 : launch.scratch_bytes * static_cast<uint64_t>(launch.parts());
  }
  Launch& Add(Launch::Kernel kernel, std::initializer_list<TensorRef> refs) {
    launches_.push_back(Make(kernel, refs));
    return *launches_.back();
  }
  LaunchPtr Make(Launch::Kernel kernel, std::initializer_list<TensorRef> refs) const {
    LaunchPtr launch(new Launch(schema_, kernel));
    for (const TensorRef& ref : refs) {
      launch->refs.push_back(ref);
      OperandUse use;
      use.slot = 0;
      use.is_write = launch->uses.empty();
      launch->uses.push_back(use);
    }
    launch->state = state_;
    return launch;
  }
  LaunchPtr MakePack(void* to) const {
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

  const OpSchema& schema_;
  const std::shared_ptr<LinkState> state_;
  const TensorRef weight_;
  std::unique_ptr<const Launch, LaunchRelease> norm_;
  NormNumbers norm_numbers_;
  std::vector<LaunchPtr> launches_;  // in the order in which they run
  Launch* convolution_ = nullptr;
  std::shared_ptr<ChainMemory> memory_;
  void* scratch_ = nullptr;
};

// ---- The chain ----

class ChainMaker {
 public:
  ChainMaker(std::span<const ChainTask> tasks, std::span<const ir::ReusedBlock> reused)
      : tasks_(tasks), reused_(reused) {}

  ir::Chain Make() {
    ir::Chain chain;
    Look();
    FindPlans();
    // Each that goes may take what others were there for.
    do Connect();
    while (DropUseless());
    if (!plans_.empty()) Build(chain);
    return chain;
  }

 private:
  // A picture that lies in a mirror, too.
  struct Mirror {
    Picture picture;
    size_t first, last;  // plans, between which it is needed
    uint64_t offset = 0;
    bool is_left_out = false;
    uint64_t bytes() const {
      const auto count = static_cast<uint64_t>(picture.count()) * sizeof(float);
      return (count + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
    }
  };

  // The tasks before the first that others may look in at: it reads and writes what it does not tell, or waits.
  void Look() {
    all_.reserve(tasks_.size());
    for (const ChainTask& each : tasks_) {
      if (!IsQuiet(*each.type)) return;
      Task task;
      Touched touched(task);
      ir::VisitOperands(*each.type, each.payload, touched);
      if (!touched.tells_all()) return;
      if (IsLaunch(*each.type)) {
        task.launch = static_cast<const LaunchTask*>(each.payload)->launch;
        if (task.launch->call != nullptr) return;  // somebody dumps its tensors
        ir::Elementwise rows;
        if (task.launch->Rows(rows) && task.launch->uses[0].slot >= 0) task.covers = BytesOf(task.launch->refs[0]);
      }
      all_.push_back(std::move(task));
    }
  }

  // Launches from a task on, as many as a convolution may have.
  std::vector<const Launch*> LaunchesFrom(size_t at) const {
    std::vector<const Launch*> launches;
    for (; at < all_.size() && launches.size() < 4 && all_[at].launch != nullptr; ++at) {
      launches.push_back(all_[at].launch);
    }
    return launches;
  }

  void FindPlans() {
    for (size_t at = 0; at < all_.size();) {
      Plan plan;
      const std::vector<const Launch*> launches = LaunchesFrom(at);
      if (!FindPlaneConvolution(launches, plan.conv)) {
        ++at;
        continue;
      }
      all_[at + plan.conv.launches - 1].covers = BytesOf(plan.conv.out);
      plan.first = at;
      plan.count = plan.conv.launches;
      plan.begins = launches[0];
      at += plan.count;
      const std::optional<Picture> result = PictureOf(plan.conv.out);
      if (!result) {
        all_[at - 1].covers = {};
        continue;
      }
      plan.result = *result;
      plans_.push_back(plan);
    }
    for (Plan& plan : plans_) {
      while (TakeFollower(plan)) {
      }
    }
  }

  // The next task computes each element of the result by itself, and nobody else needs that.
  bool TakeFollower(Plan& plan) {
    const size_t at = plan.first + plan.count;
    if (at >= all_.size() || all_[at].launch == nullptr) return false;
    const Launch& launch = *all_[at].launch;
    Plan with = plan;
    kernels::BatchNormArgs norm;
    const bool is_first = plan.sum == kNone && plan.epilogue.activation == ConvActivation::kNone;
    if (FindElementNorm(launch, norm)) {
      if (!is_first || plan.norm != nullptr || !plan.result.IsRow(*norm.self)) return false;
      if (norm.self->sizes[0] != plan.result.batch || norm.self->sizes[1] != plan.result.channels) return false;
      with.norm = &launch;
      with.norm_task = at;
    } else if (!TakeFunction(launch, at, with)) {
      return false;
    }
    const TensorRef& out = launch.refs[0];
    if (launch.uses[0].slot < 0 || out.dtype != DType::kFloat || !IsDense(out)) return false;
    if (kernels::ElementCount(out) != plan.result.count()) return false;
    if (IsNeeded(plan.result.bytes, at, at)) {
      // Whole planes are stored, of some pixels before what follows is stored of others.
      if (plan.split != 0 || BytesOf(out).Overlaps(plan.result.bytes)) return false;
      with.split = plan.count;
      with.split_result = plan.result;
    }
    if (with.split != 0 && BytesOf(out).Overlaps(with.split_result.bytes)) return false;
    with.result.bytes = BytesOf(out);
    ++with.count;
    plan = with;
    return true;
  }

  // A sum or an activation.
  static bool TakeFunction(const Launch& launch, size_t at, Plan& plan) {
    ir::Elementwise rows;
    if (plan.epilogue.activation != ConvActivation::kNone || !launch.Rows(rows) || rows.broadcast != 0) return false;
    const kernels::RowFn function = launch.element.row.function;
    const auto is = [&](const kernels::ElementFn& fn) {
      return function != nullptr && fn.find(DType::kFloat).function == function;
    };
    if (is(kernels::kAddFn)) {
      if (plan.sum != kNone || launch.refs.size() != 3) return false;
      const bool is_left = plan.result.IsRow(launch.refs[1]);
      const TensorRef& other = launch.refs[is_left ? 2 : 1];
      if (!plan.result.IsRow(launch.refs[is_left ? 1 : 2]) || BytesOf(other) == plan.result.bytes) return false;
      if (launch.uses[1].slot < 0 || launch.uses[2].slot < 0) return false;
      plan.sum = at;
      plan.addend_ref = other;
      return true;
    }
    if (launch.refs.size() != 2 || !plan.result.IsRow(launch.refs[1])) return false;
    if (is(kernels::kReluFn)) {
      plan.epilogue.activation = ConvActivation::kRelu;
      return true;
    }
    if (is(kernels::kHardtanhFn) || is(kernels::kClampFn)) {
      float bounds[2];
      std::memcpy(bounds, launch.element.numbers, sizeof bounds);
      plan.epilogue = {ConvActivation::kClamp, bounds[0], bounds[1]};
      return true;
    }
    if (!IsActivation(function)) return false;
    plan.epilogue = {};
    plan.epilogue.activation = ConvActivation::kRow;
    plan.epilogue.row = function;
    std::memcpy(plan.epilogue.numbers, launch.element.numbers, sizeof plan.epilogue.numbers);
    return true;
  }

  // Bytes that the task in front of `at` has written, as far as they are read by any task but those that `is_spared`
  // names, or remain at the end, so that they have to be in memory. Bytes that are covered are gone.
  template <class IsSpared>
  std::vector<Bytes> Needed(const Bytes& bytes, size_t at, const IsSpared& is_spared) const {
    std::vector<Bytes> needed;
    std::vector<Bytes> left = {bytes};
    const size_t writer = at - 1;
    const size_t end = std::min(all_.size(), at + kFarthest);
    for (; at < end && !left.empty(); ++at) {
      const Task& task = all_[at];
      for (const Bytes& read : task.reads) {
        if (!is_spared(at, read)) Move(read, left, &needed);
      }
      Move(task.covers, left, nullptr);
    }
    if (end == tasks_.size()) ForgetReused(writer, left);
    needed.insert(needed.end(), left.begin(), left.end());
    return needed;
  }
  bool IsNeeded(const Bytes& bytes, size_t at, size_t spared) const {
    return !Needed(bytes, at, [spared](size_t task, const Bytes&) { return task == spared; }).empty();
  }

  // What nobody reads behind the last task.
  void ForgetReused(size_t writer, std::vector<Bytes>& left) const {
    for (const ir::ReusedBlock& block : reused_) {
      if (block.first <= writer && writer < block.behind) Move({block.begin, block.end}, left, nullptr);
    }
  }

  // What the parts have in common with `with` goes from them to `to`.
  static void Move(const Bytes& with, std::vector<Bytes>& parts, std::vector<Bytes>* to) {
    if (with.begin == with.end) return;
    std::vector<Bytes> rest;
    for (const Bytes& part : parts) {
      const Bytes before = {part.begin, std::min(part.end, with.begin)};
      const Bytes common = {std::max(part.begin, with.begin), std::min(part.end, with.end)};
      const Bytes behind = {std::max(part.begin, with.end), part.end};
      if (before.begin < before.end) rest.push_back(before);
      if (common.begin < common.end && to != nullptr) to->push_back(common);
      if (behind.begin < behind.end) rest.push_back(behind);
    }
    parts = std::move(rest);
  }

  // The mirror of what a task would read at `ref` if all before had run.
  size_t FindMirror(const TensorRef& ref) const {
    const auto at = current_.find(reinterpret_cast<uintptr_t>(ref.data));
    return at != current_.end() && IsViewOf(mirrors_[at->second].picture, ref) ? at->second : kNone;
  }
  size_t FindMirrorOfRow(const TensorRef& ref) const {
    const auto at = current_.find(reinterpret_cast<uintptr_t>(ref.data));
    return at != current_.end() && mirrors_[at->second].picture.IsRow(ref) ? at->second : kNone;
  }
  // From here on the picture lies there.
  size_t AddMirror(const Picture& picture, size_t plan) {
    mirrors_.push_back({picture, plan, plan});
    current_[picture.bytes.begin] = mirrors_.size() - 1;
    return mirrors_.size() - 1;
  }
  void Forget(const Bytes& written) {
    std::erase_if(current_, [&](const auto& each) { return mirrors_[each.second].picture.bytes.Overlaps(written); });
  }

  // Which results go where, given the plans that there are.
  void Connect() {
    mirrors_.clear();
    current_.clear();
    for (Task& task : all_) task.link = kNone;
    size_t at = 0;
    for (size_t i = 0; i < plans_.size(); ++i) {
      Plan& plan = plans_[i];
      for (; at < plan.first; ++at) {
        for (const Bytes& written : all_[at].writes) Forget(written);
      }
      plan.input = FindMirror(plan.conv.input);
      plan.turns_input = plan.reads_planes = false;
      const std::optional<Picture> whole = PictureOf(plan.conv.input);
      if (plan.input == kNone && whole) {
        plan.reads_planes = true;
        plan.turns_input = !plan.conv.unfolds && (!plan.conv.is_turned || !CopiesInput(plan));
        if (plan.turns_input) plan.input = AddMirror(*whole, i);
      }
      plan.addend = plan.sum == kNone ? kNone : FindMirrorOfRow(plan.addend_ref);
      // An addend that lies in memory only.
      if (plan.addend == kNone && plan.sum != kNone) EndAt(plan, plan.sum - plan.first);
      for (size_t mirror : {plan.input, plan.addend}) {
        if (mirror != kNone) mirrors_[mirror].last = i;
      }
      plan.split_out = kNone;
      for (; at < plan.first + plan.count; ++at) {
        if (plan.split != 0 && at == plan.first + plan.split) plan.split_out = AddMirror(plan.split_result, i);
        all_[at].link = i;
        for (const Bytes& written : all_[at].writes) Forget(written);
      }
      plan.out = AddMirror(plan.result, i);
    }
    for (Plan& plan : plans_) {
      plan.is_read = IsRead(plan.out);
      plan.stored = NeededBesideMirror(plan.result.bytes, plan.first + plan.count, plan.out);
      if (plan.split == 0) continue;
      plan.stored_split = NeededBesideMirror(plan.split_result.bytes, plan.first + plan.split, plan.split_out);
      // Where no other link reads it, what follows is computed in place.
      mirrors_[plan.split_out].is_left_out = !IsRead(plan.split_out);
    }
  }

  bool IsRead(size_t mirror) const { return mirrors_[mirror].last != mirrors_[mirror].first; }

  // What of a result has to be in memory, too, given that it is in a mirror.
  std::vector<Bytes> NeededBesideMirror(const Bytes& bytes, size_t at, size_t mirror) const {
    return Needed(bytes, at, [&](size_t task, const Bytes& read) {
      if (all_[task].link == kNone) return false;
      const Plan& reader = plans_[all_[task].link];
      const bool is_addend = task == reader.sum && read == BytesOf(reader.addend_ref);
      // The first launch of a convolution reads its input, and nothing else that could be a result.
      const bool is_input = task == reader.first && read == BytesOf(reader.conv.input);
      const bool goes_on = reader.split_out == mirror && task == reader.first + reader.split && read == bytes;
      return (is_input && reader.input == mirror) || (is_addend && reader.addend == mirror) || goes_on;
    });
  }

  // A convolution that copies its input anyway may read it wherever it lies.
  static bool CopiesInput(const Plan& plan) {
    return ChannelsLastConv(plan.conv.shape, plan.conv.input, plan.conv.out, {}).source_elements() != 0;
  }

  // Ends after that many tasks.
  void EndAt(Plan& plan, size_t count) {
    if (plan.sum != kNone && plan.sum >= plan.first + count) plan.sum = kNone;
    if (plan.norm_task != kNone && plan.norm_task >= plan.first + count) {
      plan.norm = nullptr;
      plan.norm_task = kNone;
    }
    plan.count = count;
    if (plan.split >= count) plan.split = 0;
    plan.epilogue = {};  // which is the last one
    // What the last task that is left writes.
    plan.result.bytes = BytesOf(all_[plan.first + count - 1].launch->refs[0]);
  }

  bool DropUseless() {
    const size_t before = plans_.size();
    bool any = false;
    // What nobody reads from a mirror costs another pass.
    for (Plan& plan : plans_) {
      if (plan.split != 0 && !plan.is_read) {
        EndAt(plan, plan.split);
        any = true;
      }
    }
    if (any) return true;
    std::erase_if(plans_, [&](const Plan& plan) {
      if (plan.input == kNone && !plan.reads_planes) return true;  // a part of something
      Views views = ViewsOf(plan, nullptr, nullptr, nullptr);
      if (plan.input == kNone && !plan.conv.unfolds) views.input = Behind(views.input, views.input.sizes[1], nullptr);
      if (!ChannelsLastConv::Fits(views.shape, views.input, views.out)) return true;
      return plan.reads_planes && !plan.is_read && !plan.conv.is_turned;
    });
    return plans_.size() != before;
  }

  // Mirrors that are needed at the same time lie apart. Returns the bytes of all.
  uint64_t Place() {
    uint64_t all = 0;
    std::vector<const Mirror*> placed;
    for (Mirror& mirror : mirrors_) {
      if (mirror.is_left_out) continue;
      std::vector<std::pair<uint64_t, uint64_t>> taken;
      std::erase_if(placed, [&](const Mirror* other) { return other->last < mirror.first; });
      for (const Mirror* other : placed) taken.emplace_back(other->offset, other->offset + other->bytes());
      std::sort(taken.begin(), taken.end());
      uint64_t at = 0;
      for (const auto& [begin, end] : taken) {
        if (begin >= at + mirror.bytes()) break;
        at = std::max(at, end);
      }
      mirror.offset = at;
      placed.push_back(&mirror);
      all = std::max(all, at + mirror.bytes());
    }
    return all;
  }

  void Build(ir::Chain& chain) {
    const uint64_t mirror_bytes = Place();
    std::vector<std::unique_ptr<PictureLink>> links;
    uint64_t prepared_bytes = 0;
    uint64_t scratch_bytes = 0;
    // Twice: how much memory it takes, and where everything lies there.
    for (std::shared_ptr<ChainMemory> memory;;) {
      links.clear();
      for (const Plan& plan : plans_) {
        links.push_back(MakeLink(plan, memory.get(), mirror_bytes));
        const int64_t unfolded =
            plan.conv.unfolds ? kernels::ElementCount(ViewsOf(plan, nullptr, nullptr, nullptr).input) : 0;
        const int64_t prepared = std::max(links.back()->conv().source_elements(), unfolded);
        prepared_bytes = std::max(prepared_bytes, static_cast<uint64_t>(prepared) * sizeof(float));
        scratch_bytes = std::max(scratch_bytes, links.back()->scratch_bytes());
      }
      prepared_bytes = (prepared_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
      if (memory != nullptr) {
        for (const auto& link : links) link->Own(memory, memory->block + mirror_bytes + prepared_bytes);
        break;
      }
      memory = std::make_shared<ChainMemory>(mirror_bytes + prepared_bytes + scratch_bytes + kScratchAlignment);
    }
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Plan& plan = plans_[i];
      chain.left_out += static_cast<uint32_t>(plan.count - plan.conv.launches) + (plan.stored.empty() ? 1 : 0);
      chain.parts.push_back(
          {static_cast<uint32_t>(plan.first), static_cast<uint32_t>(plan.count), std::move(links[i])});
    }
  }

  std::unique_ptr<PictureLink> MakeLink(const Plan& plan, const ChainMemory* memory, uint64_t mirror_bytes) const {
    const auto at = [&](uint64_t offset) {
      return memory == nullptr ? nullptr : reinterpret_cast<float*>(memory->block + offset);
    };
    const auto pixels_of = [&](size_t mirror) { return at(mirrors_[mirror].offset); };
    const bool splits = plan.split != 0 && !mirrors_[plan.split_out].is_left_out;
    float* const result = pixels_of(plan.out);
    float* const convolved = splits ? pixels_of(plan.split_out) : result;
    const Views views =
        ViewsOf(plan, plan.input == kNone ? nullptr : pixels_of(plan.input), convolved, at(mirror_bytes));
    const TensorRef& out = views.out;
    TensorRef input = views.input;
    auto link = std::make_unique<PictureLink>(plan, views);
    if (plan.turns_input) {
      const Picture& picture = mirrors_[plan.input].picture;
      TensorRef to = PlanesOf(picture);
      to.data = pixels_of(plan.input);
      link->AddTurn(to, PlanesOf(picture));
    }
    if (plan.conv.unfolds) {
      TensorRef from = plan.conv.input;
      if (plan.input != kNone) from = Behind(from, from.sizes[1], pixels_of(plan.input));
      link->AddUnfold(input, from);
    } else if (link->conv().source_elements() != 0) {
      TensorRef prepared = input;
      prepared.data = at(mirror_bytes);
      link->AddPrepare(prepared, input);
      input = prepared;
    }
    TensorRef addend = out;
    if (plan.addend != kNone) addend.data = pixels_of(plan.addend);
    link->AddConvolution(out, input, plan.conv.bias, plan.IsInHead(plan.sum) ? &addend : nullptr);
    Aftermath after;
    after.channels = plan.result.channels;
    after.plane = plan.result.plane;
    if (plan.split != 0) {
      AddStores(plan.split_result, convolved, plan.stored_split, after.before);
      after.finishes = true;
      after.scales = plan.norm_task != kNone && !plan.IsInHead(plan.norm_task);
      after.rest.in = convolved;
      after.rest.out = result;
      after.rest.stride = plan.result.channels;
      after.rest.epilogue = EpilogueOf(plan.epilogue);
      after.activate = kernels::ActivationPass(plan.epilogue);
      if (plan.sum != kNone && !plan.IsInHead(plan.sum)) {
        after.rest.epilogue.addend = static_cast<const float*>(addend.data);
        after.rest.epilogue.addend_stride = plan.result.channels;
      }
    }
    AddStores(plan.result, result, plan.stored, after.behind);
    link->SetAftermath(std::move(after), convolved, plan.result.batch * plan.result.plane);
    return link;
  }

  static simd::PixelEpilogue EpilogueOf(const kernels::ConvEpilogue& epilogue) {
    simd::PixelEpilogue same;
    same.is_relu = epilogue.activation == ConvActivation::kRelu;
    same.clamps = epilogue.activation == ConvActivation::kClamp;
    same.low = epilogue.low;
    same.high = epilogue.high;
    return same;
  }

  // All planes that `bytes` touch, which the tasks of the link write, too.
  static void AddStores(const Picture& picture, const float* pixels, const std::vector<Bytes>& bytes,
                        std::vector<Aftermath::Store>& stores) {
    const uintptr_t plane_bytes = static_cast<uintptr_t>(picture.plane) * sizeof(float);
    const uintptr_t one_bytes = static_cast<uintptr_t>(picture.channels) * plane_bytes;
    for (int64_t n = 0; n < picture.batch; ++n) {
      const uintptr_t begin = picture.bytes.begin + static_cast<uintptr_t>(n) * one_bytes;
      const Bytes all = {begin, begin + one_bytes};
      Bytes touched = {all.end, all.begin};
      for (const Bytes& each : bytes) {
        if (!each.Overlaps(all)) continue;
        touched = {std::min(touched.begin, each.begin), std::max(touched.end, each.end)};
      }
      if (touched.begin >= touched.end) continue;
      const auto first = static_cast<int64_t>((std::max(touched.begin, begin) - begin) / plane_bytes);
      const auto end = static_cast<int64_t>((std::min(touched.end, all.end) - begin + plane_bytes - 1) / plane_bytes);
      float* const planes = static_cast<float*>(picture.data()) + (n * picture.channels + first) * picture.plane;
      stores.push_back({n, first, end, pixels, planes});
    }
  }

  const std::span<const ChainTask> tasks_;
  const std::span<const ir::ReusedBlock> reused_;
  std::vector<Task> all_;
  std::vector<Plan> plans_;
  std::vector<Mirror> mirrors_;
  std::map<uintptr_t, size_t> current_;  // mirrors of what memory would hold, by its begin
};

}  // namespace

ir::Chain MakePictureChain(std::span<const ChainTask> tasks, std::span<const ir::ReusedBlock> reused) {
  return ChainMaker(tasks, reused).Make();
}

}  // namespace reprise::ops
