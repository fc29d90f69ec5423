// SPDX-License-Identifier: Apache-2.0
#include "exec/fuse.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/env.h"
#include "device/split.h"
#include "device/work_cost.h"

namespace reprise::exec {
namespace {

using ir::Elementwise;
using ir::kRangeUnit;

// Fewer elements than two units cannot be split, so there is nothing that a group could do for them.
constexpr int64_t kLeastElements = 2 * kRangeUnit;
// What the ranges of a group may have of the first cache. 32 KiB is what it has at least; the rest is for arguments,
// and for ranges that push each other out of their sets.
constexpr int64_t kCacheBytes = 24 * 1024;
// A group with more ranges than this cannot keep all of them there, and need not: neighbours use the same ones. Shorter
// blocks would cost more in calls than they save.
constexpr int64_t kMostRanges = 8;
// A call over what is broadcast begins by finding its place in it, which costs as much as some hundred elements.
constexpr int64_t kLeastBroadcastBlock = 8 * kRangeUnit;
// Work after which a group ends, so that an abort is seen.
constexpr double kMostWorkNs = 4e6;

constexpr int64_t RoundUp(int64_t elements) { return (elements + kRangeUnit - 1) / kRangeUnit * kRangeUnit; }
// Units of a row; the last one has what is left over.
constexpr int64_t UnitsOf(int64_t elements) { return std::max<int64_t>(elements / kRangeUnit, 1); }

// The memory of one task, as operands of an element-wise computation.
class Operands final : public ir::OperandSink {
 public:
  struct Range {
    uintptr_t begin;
    uintptr_t end;
    uint32_t item_bytes;
    bool is_written;
    bool is_single;     // one element, read for all
    bool is_broadcast;  // read at other places than the elements that are written
  };

  // False when the task does not tell all that it touches, or tells what no element-wise task may touch.
  bool Look(const Step& step, const Elementwise& declared) {
    ranges_.clear();
    count_ = static_cast<uint64_t>(declared.call.count);
    broadcast_ = declared.broadcast;
    fits_ = true;
    ir::VisitOperands(*step.type, step.data, *this);
    return fits_;
  }
  const std::vector<Range>& ranges() const { return ranges_; }

  void Take(const ir::Operand& operand) override {
    const bool is_broadcast = (broadcast_ & 1) != 0;
    broadcast_ >>= 1;
    if (operand.bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(operand.begin);
    // Groups have more elements than an element has bytes.
    const bool is_single = !is_broadcast && operand.bytes < count_;
    fits_ &= is_broadcast || is_single ? !operand.is_written() : operand.bytes % count_ == 0;
    const uint64_t item_bytes = is_single || is_broadcast ? 0 : operand.bytes / count_;
    ranges_.push_back({begin, begin + operand.bytes, static_cast<uint32_t>(item_bytes), operand.is_written(), is_single,
                       is_broadcast});
  }
  void TakeWords(const uint64_t*, size_t) override { fits_ = false; }
  void TakeOpaque() override { fits_ = false; }

 private:
  std::vector<Range> ranges_;
  uint64_t count_ = 0;
  uint64_t broadcast_ = 0;
  bool fits_ = true;
};

// The memory that a group touches, as disjoint intervals.
class Ranges {
 public:
  // Takes the operands of one more row. False when they do not fit the others; the group must end then.
  bool Add(const Operands& operands) {
    ++row_;
    for (const Operands::Range& operand : operands.ranges()) {
      if (!Add(operand)) return false;
    }
    return true;
  }

  void Clear() { *this = Ranges(); }

  // Whether rows find in the cache what earlier ones had there, if it has not been pushed out.
  bool is_reused() const { return is_reused_; }
  // Most elements of a block of which all ranges that neighbours use stay in the cache.
  int64_t Block() const {
    if (bytes_ == 0) return kRangeUnit;
    const int64_t kept = std::min(ranges_, kMostRanges);
    // What is broadcast may stay there, too, as far as it leaves the others half.
    const int64_t bytes = kCacheBytes - std::min(broadcast_bytes_, kCacheBytes / 2);
    const int64_t least = broadcast_bytes_ != 0 ? kLeastBroadcastBlock : kRangeUnit;
    return std::max(bytes * ranges_ / (bytes_ * kept) / kRangeUnit * kRangeUnit, least);
  }

 private:
  struct Interval {
    uintptr_t end;
    uint32_t item_bytes;  // 0: operands that are not the same share it, or all read any of it; nobody writes it
    bool is_written;
    uint32_t row;  // that used it last
  };

  bool Add(const Operands::Range& operand) {
    const uintptr_t begin = operand.begin;
    const bool is_by_element = !operand.is_single && !operand.is_broadcast;
    const uint32_t item = operand.item_bytes;
    Interval added{operand.end, item, operand.is_written, row_};
    // All that overlap.
    auto first = intervals_.upper_bound(begin);
    if (first != intervals_.begin() && std::prev(first)->second.end > begin) --first;
    const auto last = intervals_.lower_bound(added.end);
    if (first != last && first->first == begin && first->second.end == added.end && item != 0 &&
        first->second.item_bytes == item) {
      Interval& same = first->second;
      is_reused_ |= same.row != row_;
      same.row = row_;
      same.is_written |= operand.is_written;
      return true;
    }
    uintptr_t from = begin;
    for (auto at = first; at != last; ++at) {
      if (operand.is_written || at->second.is_written) return false;
      is_reused_ |= at->second.row != row_ && is_by_element;
      added.item_bytes = 0;
      added.end = std::max(added.end, at->second.end);
      from = std::min(from, at->first);
    }
    intervals_.erase(first, last);
    intervals_.emplace(from, added);
    if (is_by_element) {
      bytes_ += operand.item_bytes;
      ++ranges_;
    }
    if (operand.is_broadcast && first == last) broadcast_bytes_ += static_cast<int64_t>(operand.end - operand.begin);
    return true;
  }

  std::map<uintptr_t, Interval> intervals_;
  uint32_t row_ = 0;
  bool is_reused_ = false;
  int64_t bytes_ = 0;  // of one element of each range
  int64_t ranges_ = 0;
  int64_t broadcast_bytes_ = 0;
};

std::atomic<BlockGenerator*> g_generator{nullptr};

void AppendAddresses(const ir::ElementFormula& formula, std::vector<void*>& addresses) {
  for (const ir::ElementFormula::Operand& operand : formula.operands) addresses.push_back(operand.data);
}

void RunGenerated(const void* args, int64_t begin, int64_t end) {
  const auto* const made = reinterpret_cast<const GeneratedRun*>(*static_cast<const uint64_t*>(args));
  made->block.function(made->addresses.data(), made->block.code.get(), begin, end);
}

// Rebuilds the steps of all lanes, in place.
class Fuser {
 public:
  Fuser(PlanParts& parts, FusionLog* log) : parts_(parts), log_(log), generator_(TheBlockGenerator()) {}

  void Run() {
    for (uint32_t lane = 0; lane < parts_.lanes.size(); ++lane) {
      PlanLane& planned = parts_.lanes[lane];
      const uint32_t begin = out_;
      RunLane(lane, planned.begin, planned.end);
      planned.begin = begin;
      planned.end = out_;
    }
    parts_.steps.erase(parts_.steps.begin() + out_, parts_.steps.end());
    if (parts_.rows.empty()) return;
    parts_.rows.shrink_to_fit();  // many steps have become few
    parts_.steps.shrink_to_fit();
  }

 private:
  void RunLane(uint32_t lane, uint32_t begin, uint32_t end) {
    for (uint32_t at = begin; at != end; ++at) {
      const Step step = parts_.steps[at];
      Elementwise declared;
      if (step.kind == Step::kRun && step.type->elementwise != nullptr && step.type->elementwise(step.data, declared) &&
          TakeRow(step, parts_.CapturedLane(lane, step), declared)) {
        continue;
      }
      EndGroup();
      EndLine();
      parts_.steps[out_++] = step;
    }
    EndGroup();
    EndLine();
  }

  // Rows that wait to become a step: first those that run one after another, behind them a group, which may join them.
  bool TakeRow(const Step& step, uint32_t lane, const Elementwise& declared) {
    const bool can_split = declared.call.count >= kLeastElements && declared.grain > 0;
    if (can_split && !operands_.Look(step, declared)) return false;
    const char* const apart = !can_split                      ? "it has too few elements to be split"
                              : declared.call.count != count_ ? "it has another number of elements"
                              : work_ >= kMostWorkNs          ? "the group has all the work that one may have"
                              : !ranges_.Add(operands_)       ? "memory that both touch overlaps in part"
                                                              : nullptr;
    if (apart != nullptr) {
      if (group_rows_ != 0) NoteApart(lane, step, apart);
      EndGroup();
      if (can_split && !ranges_.Add(operands_)) {  // overlaps itself, against the declaration
        ranges_.Clear();
        return false;
      }
    }
    parts_.rows.push_back({declared.call, step.task_id, lane});
    if (!can_split) {
      ++line_rows_;
      return true;
    }
    if (group_rows_++ == 0) count_ = declared.call.count;
    if (generator_ != nullptr) tasks_.push_back({step.type, step.data});
    const double grains = static_cast<double>(count_) / static_cast<double>(declared.grain);
    work_ += grains * static_cast<double>(costs_.thread_ns);
    is_long_ |= grains >= 2;
    grain_ = std::max(grain_, declared.grain);
    return true;
  }

  void NoteApart(uint32_t lane, const Step& step, const char* why) {
    if (log_ == nullptr) return;
    ++log_->not_fused;
    if (log_->wants_reasons) log_->apart.push_back({lane, step.task_id, why});
  }

  // The group becomes a step where that pays, otherwise part of the line before it.
  void EndGroup() {
    if (group_rows_ == 0) return;
    const bool is_parallel = is_long_ || work_ >= static_cast<double>(costs_.wake_ns);
    const bool is_cached = group_rows_ > 1 && ranges_.is_reused();
    const int64_t block = std::min(RoundUp(count_), is_cached ? ranges_.Block() : RoundUp(grain_));
    const uint32_t generated = Generate();
    if (is_parallel || generated != 0 || (is_cached && block < count_)) {
      EndLine();
      if (log_ != nullptr && group_rows_ > 1) log_->fused += group_rows_;
      Step& step = Emit(Step::kBlocks, group_rows_);
      step.block = block;
      step.blocks = {is_parallel, generated};
    } else {
      line_rows_ += group_rows_;
    }
    ranges_.Clear();
    group_rows_ = 0;
    count_ = 0;
    work_ = 0;
    is_long_ = false;
    grain_ = 0;
    tasks_.clear();
  }

  // One function for the group, if there is somebody who makes it. Step::Blocks::generated.
  uint32_t Generate() {
    if (generator_ == nullptr || group_rows_ < 2) return 0;
    std::vector<ir::ElementFormula> formulas(tasks_.size());
    auto made = std::make_unique<GeneratedRun>();
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const auto& [type, payload] = tasks_[i];
      if (type->formula == nullptr || !type->formula(payload, formulas[i])) return 0;
      AppendAddresses(formulas[i], made->addresses);
    }
    std::optional<BlockGenerator::Block> block = generator_->Generate(formulas, count_);
    if (!block) return 0;
    made->block = std::move(*block);
    made->run.call = {RunGenerated, count_, {reinterpret_cast<uint64_t>(made.get())}};
    parts_.generated.push_back(std::move(made));
    return static_cast<uint32_t>(parts_.generated.size());
  }

  void EndLine() {
    if (line_rows_ != 0) Emit(Step::kElements, line_rows_);
    line_rows_ = 0;
  }

  Step& Emit(Step::Kind kind, uint32_t rows) {
    const ElementRun& first = parts_.rows[emitted_];
    Step& step = parts_.steps[out_++];
    step.kind = kind;
    step.task_id = first.task_id;
    step.lane = first.lane & kMaxScheduledLanes;
    step.rows = {emitted_, rows};
    step.args_bytes = 0;
    step.block = 0;
    step.blocks = {};
    emitted_ += rows;
    return step;
  }

  PlanParts& parts_;
  FusionLog* const log_;
  const device::Costs& costs_ = device::TheCosts();
  BlockGenerator* const generator_;
  uint32_t out_ = 0;      // steps that are done
  uint32_t emitted_ = 0;  // rows that some step has
  uint32_t line_rows_ = 0;
  // The group.
  uint32_t group_rows_ = 0;
  int64_t count_ = 0;
  double work_ = 0;       // ns
  bool is_long_ = false;  // a row alone would be worth two threads
  int64_t grain_ = 0;
  Ranges ranges_;
  std::vector<std::pair<const ir::TaskType*, const void*>> tasks_;  // for the generator, if there is one
  Operands operands_;                                               // of the task that is looked at
};

struct Blocks {
  std::span<const ElementRun> rows;
  int64_t elements;
  int64_t units;
  int64_t block;  // in units

  void Run(int64_t begin, int64_t end) const {
    for (int64_t at = begin; at < end; at += block) {
      const int64_t next = std::min(at + block, end);
      const int64_t to = next == units ? elements : next * kRangeUnit;
      for (const ElementRun& row : rows) row.call.function(row.call.args, at * kRangeUnit, to);
    }
  }
};

}  // namespace

void SetBlockGenerator(BlockGenerator* generator) { g_generator.store(generator, std::memory_order_release); }
BlockGenerator* TheBlockGenerator() { return g_generator.load(std::memory_order_acquire); }

void MoveGenerated(const Plan& plan, const Step& step, GeneratedRun& generated) {
  generated.addresses.clear();
  for (const ElementRun& row : plan.rows_of(step)) {
    const ir::Node node = plan.node(row);
    ir::ElementFormula formula;
    node.type->formula(node.payload, formula);
    AppendAddresses(formula, generated.addresses);
  }
}

void Fuse(PlanParts& parts, FusionLog* log) {
  static const bool is_on = EnvInt(EnvVar::kFuse) != 0;
  if (is_on && parts.has_elementwise) Fuser(parts, log).Run();
}

void RunBlocks(device::Scheduler& scheduler, std::span<const ElementRun> rows, int64_t block, bool is_parallel) {
  const int64_t elements = rows.front().call.count;
  const int64_t units = UnitsOf(elements);
  Blocks blocks{rows, elements, units, block / kRangeUnit};
  const int64_t threads = scheduler.workers();
  if (!is_parallel || threads <= 1) return blocks.Run(0, units);
  // As many blocks for each thread, as far as they go; a thread takes several that follow each other at a time.
  const int64_t wanted = ((units + blocks.block - 1) / blocks.block + threads - 1) / threads * threads;
  blocks.block = (units + wanted - 1) / wanted;
  const auto body = [](void* arg, int64_t first, int64_t last) { static_cast<const Blocks*>(arg)->Run(first, last); };
  scheduler.ParallelFor(units, device::EvenGrain(units, units / wanted, threads), body, &blocks);
}

}  // namespace reprise::exec
