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
#include "kernels/conv_band.h"
#include "kernels/math_functions.h"
#include "ops/families/picture_reader.h"
#include "ops/families/plane_convolution.h"
#include "ops/launch.h"
#include "ops/picture.h"
#include "ops/picture_link.h"

namespace reprise::ops {
namespace {

using namespace pictures;

using ir::ChainTask;
using kernels::ChannelsLastConv;
using kernels::ConvActivation;
using kernels::DType;
using kernels::TensorRef;

// Tasks that are looked at behind a result for somebody who writes over it: networks use memory again soon.
constexpr size_t kFarthest = 4096;
// Pictures that are asked whether a view reads some of their channels.
constexpr int kMostEnclosing = 8;

// ---- What tasks touch ----

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
  return type.never_waits &&
         (type.kind == ir::TaskKind::kKernel || type.kind == ir::TaskKind::kCopy || type.kind == ir::TaskKind::kFill ||
          type.kind == ir::TaskKind::kReduce || type.kind == ir::TaskKind::kClosure);
}

bool IsLaunch(const ir::TaskType& type) { return type.chain == MakePictureChain; }

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
    size_t readers = 0;
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
      LinkPlan plan;
      const std::vector<const Launch*> launches = LaunchesFrom(at);
      if (!FindPlaneConvolution(launches, plan.conv)) {
        FindMirrorTask(at++);
        continue;
      }
      // Temporaries, too, are written as a whole.
      for (size_t launch = at; launch < at + plan.conv.launches; ++launch) {
        if (all_[launch].writes.size() == 1) all_[launch].covers = all_[launch].writes[0];
      }
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
    std::erase_if(plans_, [&](const LinkPlan& plan) {
      return plan.kind == LinkPlan::Kind::kPool && plan.pool.indices != 0 &&
             IsNeeded(BytesOf(plan.begins->refs[plan.pool.indices]), plan.first + 1, kNone);
    });
    for (LinkPlan& plan : plans_) {
      const bool has_followers = plan.kind == LinkPlan::Kind::kConvolution || plan.kind == LinkPlan::Kind::kFinish;
      while (has_followers && TakeFollower(plan)) {
      }
    }
    // A task that follows in a link is no reader of its own.
    size_t behind = 0;
    std::erase_if(plans_, [&](const LinkPlan& plan) {
      if (plan.kind != LinkPlan::Kind::kConvolution && plan.first < behind) return true;
      behind = plan.first + plan.count;
      return false;
    });
  }

  // A task that may read a mirror: which one there is, if any, Connect finds.
  void FindMirrorTask(size_t at) {
    if (all_[at].launch == nullptr) return;
    const Launch& launch = *all_[at].launch;
    LinkPlan plan;
    plan.first = at;
    plan.count = 1;
    plan.begins = &launch;
    if (ReducesAnyStrides(launch) || NormalisesAnyStrides(launch)) {
      plan.kind = LinkPlan::Kind::kReader;
      plan.operand = 1;
      plans_.push_back(plan);
      return;
    }
    kernels::BatchNormArgs norm;
    if (FindElementNorm(launch, norm)) {
      plan.kind = LinkPlan::Kind::kFinish;
      plan.norm = &launch;
      plan.norm_task = at;
      plan.operand = static_cast<size_t>(norm.self - launch.refs.begin());
      const TensorRef& out = launch.refs[0];
      const int64_t rows = norm.self->sizes[0] * norm.self->sizes[1];
      if (launch.uses[0].slot < 0 || out.dtype != DType::kFloat || !kernels::IsContiguous(out) || rows == 0) return;
      plan.result = {BytesOf(out), norm.self->sizes[0], norm.self->sizes[1], kernels::ElementCount(out) / rows};
      plans_.push_back(plan);
      return;
    }
    if (JoinsChannels(launch)) {
      const TensorRef& out = launch.refs[0];
      all_[at].covers = BytesOf(out);
      const int64_t rows = out.sizes[0] * out.sizes[1];
      if (rows == 0) return;
      plan.kind = LinkPlan::Kind::kJoin;
      plan.result = {BytesOf(out), out.sizes[0], out.sizes[1], kernels::ElementCount(out) / rows};
      plans_.push_back(plan);
      return;
    }
    if (FindPool(launch, plan.pool)) {
      plan.kind = LinkPlan::Kind::kPool;
      plan.operand = plan.pool.self;
      plan.result = *PictureOf(launch.refs[0]);
      all_[at].covers = plan.result.bytes;
      plans_.push_back(plan);
      return;
    }
    plan.map = FindPixelMap(launch);
    if (plan.map != nullptr) {
      plan.kind = LinkPlan::Kind::kPixelMap;
      plan.operand = 1;
      plan.result = *PictureOf(launch.refs[0]);
      all_[at].covers = plan.result.bytes;
      plans_.push_back(plan);
      return;
    }
    if (CopiesToRow(launch)) {
      plan.kind = LinkPlan::Kind::kOrder;
      plan.operand = 1;
      all_[at].covers = BytesOf(launch.refs[0]);
      plans_.push_back(plan);
      return;
    }
    ir::Elementwise rows;
    if (!launch.Rows(rows) || launch.element.row.function != kernels::kMulFn.find(DType::kFloat).function) return;
    if (launch.refs.size() != 3 || launch.refs[0].dtype != DType::kFloat) return;
    for (const OperandUse& use : launch.uses) {
      if (use.slot < 0) return;
    }
    // The one whose elements are read again and again.
    const size_t numbers = rows.broadcast == 1u << 1 ? 1 : rows.broadcast == 1u << 2 ? 2 : 0;
    if (numbers == 0) return;
    plan.kind = LinkPlan::Kind::kProduct;
    plan.operand = 3 - numbers;
    plans_.push_back(plan);
  }

  static bool CopiesToRow(const Launch& launch) {
    if (launch.kernel != RunCopy || launch.refs.size() != 2) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (launch.uses[i].slot < 0 || launch.refs[i].dtype != DType::kFloat) return false;
    }
    return kernels::IsContiguous(launch.refs[0]);
  }

  // Whether a product is one of each channel of the picture and a number.
  static bool IsByChannel(const LinkPlan& plan, const Picture& picture) {
    const TensorRef& numbers = plan.begins->refs[3 - plan.operand];
    const int64_t rows = picture.batch * picture.channels;
    return numbers.dtype == DType::kFloat && numbers.rank == 2 && numbers.sizes[0] == rows &&
           numbers.sizes[1] == picture.plane && numbers.strides[0] == 1 && numbers.strides[1] == 0;
  }

  // The next task computes each element of the result by itself, and nobody else needs that.
  bool TakeFollower(LinkPlan& plan) {
    const size_t at = plan.first + plan.count;
    if (at >= all_.size() || all_[at].launch == nullptr) return false;
    const Launch& launch = *all_[at].launch;
    LinkPlan with = plan;
    kernels::BatchNormArgs norm;
    const bool is_first = plan.sum == kNone && plan.epilogue.activation == ConvActivation::kNone;
    if (FindElementNorm(launch, norm)) {
      if (!is_first || plan.norm != nullptr || !plan.result.IsRow(*norm.self)) return false;
      if (norm.self->sizes[0] != plan.result.batch || norm.self->sizes[1] != plan.result.channels) return false;
      with.norm = &launch;
      with.norm_task = at;
    } else if (!TakeFunction(launch, at, with) || (with.sum == at && IsWrittenSince(plan.first, at, with.addend_ref))) {
      return false;
    }
    const TensorRef& out = launch.refs[0];
    if (launch.uses[0].slot < 0 || out.dtype != DType::kFloat || !kernels::IsContiguous(out)) return false;
    if (kernels::ElementCount(out) != plan.result.count()) return false;
    if (IsNeeded(plan.result.bytes, at, at)) {
      if (plan.kind == LinkPlan::Kind::kFinish) return false;
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

  // Whether tasks [first, end) write what the view reads: then a mirror of it from before them is none any more.
  bool IsWrittenSince(size_t first, size_t end, const TensorRef& ref) const {
    const Bytes bytes = BytesOf(ref);
    for (size_t at = first; at < end; ++at) {
      for (const Bytes& written : all_[at].writes) {
        if (written.Overlaps(bytes)) return true;
      }
    }
    return false;
  }

  // A sum or an activation.
  static bool TakeFunction(const Launch& launch, size_t at, LinkPlan& plan) {
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

  // Calls is_it(mirror, picture) for pictures that begin at the address, or before it, the nearest first, until it says
  // so: pictures may be part of others.
  template <class IsIt>
  void FindAround(const void* address, const IsIt& is_it) const {
    int left = kMostEnclosing;
    for (auto at = current_.upper_bound(reinterpret_cast<uintptr_t>(address)); at != current_.begin() && left-- > 0;) {
      --at;
      if (is_it(at->second, mirrors_[at->second].picture)) return;
    }
  }
  // The mirror of what a task would read at `ref` if all before had run: of a picture of which it reads some channels.
  LinkPlan::Channels FindChannels(const TensorRef& ref) const {
    LinkPlan::Channels found;
    FindAround(ref.data, [&](size_t mirror, const Picture& picture) {
      const int64_t first = FirstChannelOf(picture, ref);
      if (first >= 0) found = {mirror, first, picture.channels};
      return first >= 0;
    });
    return found;
  }
  // The same where it reads all channels.
  size_t FindMirror(const TensorRef& ref) const {
    const LinkPlan::Channels found = FindChannels(ref);
    return found.channels == ref.sizes[1] ? found.mirror : kNone;
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
      LinkPlan& plan = plans_[i];
      for (; at < plan.first; ++at) {
        for (const Bytes& written : all_[at].writes) Forget(written);
      }
      if (plan.kind != LinkPlan::Kind::kConvolution) {
        ConnectMirrors(plan, i);
        at = plan.first + plan.count;
        continue;
      }
      const LinkPlan::Channels found = FindChannels(plan.conv.input);
      plan.input = found.mirror;
      plan.input_channel = found.channel;
      plan.input_channels = found.mirror == kNone ? plan.conv.input.sizes[1] : found.channels;
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
      for (size_t mirror : {plan.input, plan.addend}) Extend(mirror, i);
      plan.split_out = kNone;
      for (; at < plan.first + plan.count; ++at) {
        if (plan.split != 0 && at == plan.first + plan.split) plan.split_out = AddMirror(plan.split_result, i);
        all_[at].link = i;
        for (const Bytes& written : all_[at].writes) Forget(written);
      }
      plan.out = AddMirror(plan.result, i);
    }
    for (LinkPlan& plan : plans_) {
      if (plan.out == kNone) continue;
      plan.is_read = IsRead(plan.out);
      plan.stored = NeededBesideMirror(plan.result.bytes, plan.first + plan.count, plan.out);
      if (plan.split == 0) continue;
      plan.stored_split = NeededBesideMirror(plan.split_result.bytes, plan.first + plan.split, plan.split_out);
      // Where no other link reads it, what follows is computed in place.
      mirrors_[plan.split_out].is_left_out = !IsRead(plan.split_out);
    }
  }

  // Others than convolutions, which mirrors they read, if any.
  void ConnectMirrors(LinkPlan& plan, size_t i) {
    plan.input = plan.addend = plan.out = kNone;
    plan.joined.clear();
    FindInputs(plan);
    for (size_t at = plan.first; at < plan.first + plan.count; ++at) {
      for (const Bytes& written : all_[at].writes) Forget(written);
      if (plan.input != kNone) all_[at].link = i;
    }
    if (plan.input == kNone) return;
    for (const LinkPlan::Channels& each : plan.joined) Extend(each.mirror, i);
    Extend(plan.input, i);
    Extend(plan.addend, i);
    if (plan.kind != LinkPlan::Kind::kReader) plan.out = AddMirror(plan.result, i);
  }
  void Extend(size_t mirror, size_t plan) {
    if (mirror == kNone) return;
    mirrors_[mirror].last = plan;
    ++mirrors_[mirror].readers;
  }

  void FindInputs(LinkPlan& plan) {
    const Launch& launch = *plan.begins;
    const TensorRef& ref = launch.refs[plan.operand];
    switch (plan.kind) {
      case LinkPlan::Kind::kReader:
        if (ref.rank < 3) return;
        // A norm of rows of a plane would find their elements apart.
        if (ReducesAnyStrides(launch)) plan.input = FindMirror(ref);
        plan.has_channels_last = plan.input == kNone;
        if (plan.has_channels_last) plan.input = FindMirror(ChannelsSecond(ref));
        return;
      case LinkPlan::Kind::kPool: plan.input = FindMirror(ref); return;
      case LinkPlan::Kind::kOrder: FindOrder(plan); return;
      case LinkPlan::Kind::kPixelMap:
        plan.input = FindMirror(ref);
        if (plan.input != kNone && !mirrors_[plan.input].picture.IsRow(ref)) plan.input = kNone;
        return;
      case LinkPlan::Kind::kProduct:
        plan.input = FindMirrorOfRow(ref);
        if (plan.input == kNone) return;
        if (!IsByChannel(plan, mirrors_[plan.input].picture)) plan.input = kNone;
        if (plan.input == kNone) return;
        plan.result = mirrors_[plan.input].picture;
        plan.result.bytes = BytesOf(launch.refs[0]);
        return;
      case LinkPlan::Kind::kFinish: {
        plan.input = FindMirrorOfRow(ref);
        if (plan.input == kNone) return;
        const Picture& picture = mirrors_[plan.input].picture;
        if (picture.batch != plan.result.batch || picture.channels != plan.result.channels) plan.input = kNone;
        if (plan.sum == kNone) return;
        plan.addend = FindMirrorOfRow(plan.addend_ref);
        if (plan.addend == kNone) EndAt(plan, plan.sum - plan.first);
        return;
      }
      case LinkPlan::Kind::kJoin:
        for (size_t k = 1; k < launch.refs.size(); ++k) {
          const TensorRef& part = launch.refs[k];
          LinkPlan::Channels found = FindChannels(part);
          if (found.mirror != kNone && !HasPlanes(part, plan.result.plane)) found = {};
          if (found.mirror == kNone && !kernels::IsContiguous(part)) {
            plan.input = kNone;
            return;
          }
          if (found.mirror != kNone) plan.input = found.mirror;
          plan.joined.push_back(found);
        }
        return;
      default: return;
    }
  }

  void FindOrder(LinkPlan& plan) const {
    const Refs& refs = plan.begins->refs;
    FindAround(refs[1].data, [&](size_t mirror, const Picture& picture) {
      plan.order = OrderOfChannels(picture, refs[1], refs[0]);
      if (plan.order.empty()) return false;
      plan.input = mirror;
      plan.result = {BytesOf(refs[0]), picture.batch, static_cast<int64_t>(plan.order.size()), picture.plane};
      return true;
    });
  }

  bool IsRead(size_t mirror) const { return mirrors_[mirror].last != mirrors_[mirror].first; }

  // What of a result has to be in memory, too, given that it is in a mirror.
  std::vector<Bytes> NeededBesideMirror(const Bytes& bytes, size_t at, size_t mirror) const {
    return Needed(bytes, at, [&](size_t task, const Bytes& read) {
      if (all_[task].link == kNone) return false;
      const LinkPlan& reader = plans_[all_[task].link];
      const bool is_addend = task == reader.sum && read == BytesOf(reader.addend_ref);
      // The first launch of a convolution reads its input, and nothing else that could be a result.
      const bool goes_on = reader.split_out == mirror && task == reader.first + reader.split && read == bytes;
      const bool is_input = task == reader.first && ReadsAsInput(reader, read, mirror);
      return is_input || (is_addend && reader.addend == mirror) || goes_on;
    });
  }

  // Whether what the first task of a link reads there comes from the mirror.
  static bool ReadsAsInput(const LinkPlan& reader, const Bytes& read, size_t mirror) {
    if (reader.kind == LinkPlan::Kind::kConvolution)
      return reader.input == mirror && read == BytesOf(reader.conv.input);
    const Refs& refs = reader.begins->refs;
    for (size_t k = 0; k < reader.joined.size(); ++k) {
      if (reader.joined[k].mirror == mirror && read == BytesOf(refs[1 + k])) return true;
    }
    return reader.joined.empty() && reader.input == mirror && read == BytesOf(refs[reader.operand]);
  }

  // A convolution that copies its input anyway may read it wherever it lies.
  static bool CopiesInput(const LinkPlan& plan) {
    return ChannelsLastConv(plan.conv.shape, plan.conv.input, plan.conv.out, {}).source_elements() != 0;
  }

  // Ends after that many tasks.
  void EndAt(LinkPlan& plan, size_t count) {
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
    for (LinkPlan& plan : plans_) {
      if (plan.split != 0 && !plan.is_read) {
        EndAt(plan, plan.split);
        any = true;
      }
    }
    if (any) return true;
    std::erase_if(plans_, [&](const LinkPlan& plan) {
      if (plan.input == kNone && !plan.reads_planes) return true;  // a part of something
      if (plan.kind == LinkPlan::Kind::kReader) return false;
      if (plan.kind != LinkPlan::Kind::kConvolution) return !plan.is_read;
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
    uint64_t mirror_bytes = 0;
    std::vector<std::unique_ptr<PictureLink>> links;
    uint64_t prepared_bytes = 0;
    uint64_t scratch_bytes = 0;
    // Twice: how much memory it takes, and where everything lies there.
    for (std::shared_ptr<ChainMemory> memory;;) {
      links.clear();
      for (const LinkPlan& plan : plans_) links.push_back(MakeLink(plan, memory.get(), mirror_bytes));
      MakeBands(links);
      if (memory == nullptr) mirror_bytes = Place();
      for (const auto& link : links) {
        const auto prepared = static_cast<uint64_t>(link->prepared_elements());
        prepared_bytes = std::max(prepared_bytes, prepared * sizeof(float));
        scratch_bytes = std::max(scratch_bytes, link->scratch_bytes());
      }
      prepared_bytes = (prepared_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
      if (memory != nullptr) {
        for (const auto& link : links) link->Own(memory, memory->block + mirror_bytes + prepared_bytes);
        break;
      }
      memory = std::make_shared<ChainMemory>(mirror_bytes + prepared_bytes + scratch_bytes + kScratchAlignment);
    }
    for (size_t i = 0; i < plans_.size(); ++i) {
      const LinkPlan& plan = plans_[i];
      if (plan.kind != LinkPlan::Kind::kReader) chain.left_out += plan.stored.empty() ? 1 : 0;
      if (plan.kind == LinkPlan::Kind::kConvolution) {
        chain.left_out += static_cast<uint32_t>(plan.count - plan.conv.launches);
      }
      chain.parts.push_back({static_cast<uint32_t>(plan.first), static_cast<uint32_t>(plan.count), std::move(links[i]),
                             static_cast<uint32_t>(std::max(plan.runs, plan.count))});
    }
  }

  // Whether the convolution reads what the one before gives, which nobody else needs, not even memory.
  bool GoesOn(size_t plan) const {
    const LinkPlan& before = plans_[plan - 1];
    const LinkPlan& then = plans_[plan];
    return before.kind == LinkPlan::Kind::kConvolution && then.kind == LinkPlan::Kind::kConvolution &&
           before.first + before.count == then.first && then.input == before.out && !then.turns_input &&
           then.input_channels == then.conv.input.sizes[1] && mirrors_[before.out].readers == 1 &&
           before.stored.empty() && before.split == 0;
  }

  // Convolutions that go row by row read the first input, and their biases, until they have written the last result.
  void MakeBands(const std::vector<std::unique_ptr<PictureLink>>& links) {
    for (size_t i = 0; i < plans_.size();) {
      std::vector<ConvolutionLink*> band;
      for (size_t k = i; k < plans_.size() && band.size() < kernels::ConvBand::kMostConvs; ++k) {
        if (plans_[k].kind != LinkPlan::Kind::kConvolution || (k != i && !GoesOn(k)) || WritesBias(i, k)) break;
        band.push_back(static_cast<ConvolutionLink*>(links[k].get()));
      }
      while (band.size() > 1 && !ConvolutionLink::MakeBand(band)) band.pop_back();
      if (band.size() > 1) {
        const size_t last = i + band.size() - 1;
        plans_[i].runs = plans_[last].first + plans_[last].count - plans_[i].first;
        if (plans_[i].input != kNone) {
          mirrors_[plans_[i].input].last = std::max(mirrors_[plans_[i].input].last, last);
        }
        for (const size_t written : {plans_[last].out, plans_[last].split_out}) {
          if (written != kNone) mirrors_[written].first = i;
        }
      }
      i += std::max<size_t>(1, band.size());
    }
  }

  // Whether one of the plans writes the bias of one of them.
  bool WritesBias(size_t first, size_t last) const {
    for (size_t writer = first; writer <= last; ++writer) {
      for (size_t reader = first; reader <= last; ++reader) {
        const TensorRef* const bias = plans_[reader].conv.bias;
        if (bias == nullptr) continue;
        const Bytes bytes = BytesOf(*bias);
        if (plans_[writer].result.bytes.Overlaps(bytes) || plans_[writer].split_result.bytes.Overlaps(bytes))
          return true;
      }
    }
    return false;
  }

  std::unique_ptr<PictureLink> MakeLink(const LinkPlan& plan, const ChainMemory* memory, uint64_t mirror_bytes) const {
    const auto at = [&](uint64_t offset) {
      return memory == nullptr ? nullptr : reinterpret_cast<float*>(memory->block + offset);
    };
    const auto pixels_of = [&](size_t mirror, int64_t channel = 0) {
      return at(mirrors_[mirror].offset + static_cast<uint64_t>(channel) * sizeof(float));
    };
    if (plan.kind != LinkPlan::Kind::kConvolution) return MakeLinkOfMirrors(plan, pixels_of);
    const bool splits = plan.split != 0 && !mirrors_[plan.split_out].is_left_out;
    float* const result = pixels_of(plan.out);
    float* const convolved = splits ? pixels_of(plan.split_out) : result;
    float* const read = plan.input == kNone ? nullptr : pixels_of(plan.input, plan.input_channel);
    const Views views = ViewsOf(plan, read, convolved, at(mirror_bytes));
    const TensorRef& out = views.out;
    TensorRef input = views.input;
    auto link = std::make_unique<ConvolutionLink>(plan, views);
    if (plan.turns_input) {
      const Picture& picture = mirrors_[plan.input].picture;
      TensorRef to = PlanesOf(picture);
      to.data = pixels_of(plan.input);
      link->AddTurn(to, PlanesOf(picture));
    }
    if (plan.conv.unfolds) {
      TensorRef from = plan.conv.input;
      if (plan.input != kNone) from = Behind(from, plan.input_channels, read);
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
      const bool adds = plan.sum != kNone && !plan.IsInHead(plan.sum);
      SetRest(plan, convolved, result, adds ? static_cast<const float*>(addend.data) : nullptr, after);
      after.scales = plan.norm_task != kNone && !plan.IsInHead(plan.norm_task);
    }
    AddStores(plan.result, result, plan.stored, after.behind);
    link->SetAftermath(std::move(after), plan.result, convolved);
    return link;
  }

  // A link that is no convolution.
  template <class PixelsOf>
  std::unique_ptr<PictureLink> MakeLinkOfMirrors(const LinkPlan& plan, const PixelsOf& pixels_of) const {
    auto link = std::make_unique<PictureLink>(*plan.begins);
    const Refs& refs = plan.begins->refs;
    float* const pixels = pixels_of(plan.input);
    if (plan.kind == LinkPlan::Kind::kReader) {
      const TensorRef& ref = refs[plan.operand];
      const TensorRef planes = plan.has_channels_last ? ChannelsSecond(ref) : ref;
      const TensorRef behind = Behind(planes, planes.sizes[1], pixels);
      link->AddReader(*plan.begins, plan.has_channels_last ? ChannelsLast(behind) : behind);
      return link;
    }
    float* const result = pixels_of(plan.out);
    auto finishing = std::make_shared<Finishing>();
    finishing->after.channels = plan.result.channels;
    finishing->after.plane = plan.result.plane;
    if (plan.kind == LinkPlan::Kind::kProduct) {
      link->AddProduct(plan.result, result, pixels, static_cast<const float*>(refs[3 - plan.operand].data));
    } else if (plan.kind == LinkPlan::Kind::kJoin) {
      std::vector<JoinedPicture> parts;
      for (size_t k = 0; k < plan.joined.size(); ++k) {
        const TensorRef& ref = refs[1 + k];
        const LinkPlan::Channels& from = plan.joined[k];
        const bool is_mirror = from.mirror != kNone;
        const float* const data =
            is_mirror ? pixels_of(from.mirror, from.channel) : static_cast<const float*>(ref.data);
        parts.push_back({data, ref.sizes[1], is_mirror, from.channels});
      }
      link->AddJoin(plan.result, result, std::move(parts));
    } else if (plan.kind == LinkPlan::Kind::kPool) {
      const TensorRef& self = refs[plan.operand];
      link->AddPool(plan.pool, Behind(refs[0], plan.result.channels, result), Behind(self, self.sizes[1], pixels));
    } else if (plan.kind == LinkPlan::Kind::kOrder) {
      link->AddOrder(plan.result, result, pixels, mirrors_[plan.input].picture.channels, plan.order);
    } else if (plan.kind == LinkPlan::Kind::kPixelMap) {
      link->AddPixelMap(*plan.map, plan.result, result, pixels);
    } else {
      finishing->norm = std::make_shared<NormScaling>(*plan.norm, plan.result.channels);
      SetRest(plan, pixels, result, plan.addend == kNone ? nullptr : pixels_of(plan.addend), finishing->after);
      finishing->after.scales = true;
    }
    AddStores(plan.result, result, plan.stored, finishing->after.behind);
    link->AddFinishing(std::move(finishing), plan.result, result);
    return link;
  }

  // What is computed of pixels that are there.
  static void SetRest(const LinkPlan& plan, const float* from, float* to, const float* addend, Aftermath& after) {
    after.finishes = true;
    after.rest.in = from;
    after.rest.out = to;
    after.rest.stride = plan.result.channels;
    after.rest.epilogue = EpilogueOf(plan.epilogue);
    after.activate = kernels::ActivationPass(plan.epilogue);
    after.rest.epilogue.addend = addend;
    after.rest.epilogue.addend_stride = plan.result.channels;
  }

  static kernels::simd::PixelEpilogue EpilogueOf(const kernels::ConvEpilogue& epilogue) {
    kernels::simd::PixelEpilogue same;
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
  std::vector<LinkPlan> plans_;
  std::vector<Mirror> mirrors_;
  std::map<uintptr_t, size_t> current_;  // mirrors of what memory would hold, by its begin
};

}  // namespace

ir::Chain MakePictureChain(std::span<const ChainTask> tasks, std::span<const ir::ReusedBlock> reused) {
  return ChainMaker(tasks, reused).Make();
}

}  // namespace reprise::ops
