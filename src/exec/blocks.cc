// SPDX-License-Identifier: Apache-2.0
#include "exec/blocks.h"

#include <algorithm>
#include <map>

#include "base/env.h"
#include "exec/plan.h"

namespace reprise::exec {
namespace {

using ir::Elementwise;
using ir::kRowUnit;

// Fewer elements than two units cannot be split, so there is nothing that a group could do for them.
constexpr int64_t kLeastElements = 2 * kRowUnit;
// What the ranges of a group may have of the first cache. 32 KiB is what it has at least; the rest is for arguments,
// and for ranges that push each other out of their sets.
constexpr int64_t kCacheBytes = 24 * 1024;
// A group with more ranges than this cannot keep all of them there, and need not: neighbours use the same ones. Shorter
// blocks would cost more in calls than they save.
constexpr int64_t kMostRanges = 8;
// Work, in grains (Elementwise::grain), from which a group of rows that are too short for two threads on their own is
// worth waking a worker: about 20 us.
constexpr double kLeastParallelWork = 8;
// Work after which a group ends, so that an abort is seen: about 10 ms.
constexpr double kMostWork = 2048;

constexpr int64_t RoundUp(int64_t elements) { return (elements + kRowUnit - 1) / kRowUnit * kRowUnit; }
// Units of a row; the last one has what is left over.
constexpr int64_t UnitsOf(int64_t elements) { return std::max<int64_t>(elements / kRowUnit, 1); }

// The memory that a group touches, as disjoint intervals.
class Ranges {
 public:
  // Takes the operands of one more row. False when they do not fit the others; the group must end then.
  bool Add(const Elementwise& rows) {
    ++row_;
    for (uint32_t i = 0; i < rows.operand_count; ++i) {
      if (!Add(rows.operands[i], rows.call.count)) return false;
    }
    return true;
  }

  void Clear() { *this = Ranges(); }

  // Whether rows find in the cache what earlier ones had there, if it has not been pushed out.
  bool is_reused() const { return is_reused_; }
  // Most elements of a block of which all ranges that neighbours use stay in the cache.
  int64_t Block() const {
    if (bytes_ == 0) return kRowUnit;
    const int64_t kept = std::min(ranges_, kMostRanges);
    return std::max(kCacheBytes * ranges_ / (bytes_ * kept) / kRowUnit * kRowUnit, kRowUnit);
  }

 private:
  struct Interval {
    uintptr_t end;
    uint32_t item_bytes;  // 0: operands that are not the same share it, and all of them read
    bool is_written;
    uint32_t row;  // that used it last
  };

  bool Add(const Elementwise::Operand& operand, int64_t count) {
    const auto begin = reinterpret_cast<uintptr_t>(operand.base);
    const uint32_t item = operand.is_single ? 0 : operand.item_bytes;
    Interval added{begin + operand.item_bytes * (operand.is_single ? 1 : static_cast<uint64_t>(count)), item,
                   operand.is_write, row_};
    // All that overlap.
    auto first = intervals_.upper_bound(begin);
    if (first != intervals_.begin() && std::prev(first)->second.end > begin) --first;
    const auto last = intervals_.lower_bound(added.end);
    if (first != last && first->first == begin && first->second.end == added.end && item != 0 &&
        first->second.item_bytes == item) {
      Interval& same = first->second;
      is_reused_ |= same.row != row_;
      same.row = row_;
      same.is_written |= operand.is_write;
      return true;
    }
    uintptr_t from = begin;
    for (auto at = first; at != last; ++at) {
      if (operand.is_write || at->second.is_written) return false;
      is_reused_ |= at->second.row != row_ && !operand.is_single;
      added.item_bytes = 0;
      added.end = std::max(added.end, at->second.end);
      from = std::min(from, at->first);
    }
    intervals_.erase(first, last);
    intervals_.emplace(from, added);
    if (!operand.is_single) {
      bytes_ += operand.item_bytes;
      ++ranges_;
    }
    return true;
  }

  std::map<uintptr_t, Interval> intervals_;
  uint32_t row_ = 0;
  bool is_reused_ = false;
  int64_t bytes_ = 0;  // of one element of each range
  int64_t ranges_ = 0;
};

// Rebuilds the steps of a lane.
class Fuser {
 public:
  Fuser(Steps& steps, size_t begin, std::vector<Row>& rows, uint32_t lane, FusionLog* log)
      : steps_(steps), out_(begin), rows_(rows), lane_(lane), log_(log) {}

  void Run() {
    const size_t end = steps_.size();
    for (size_t at = out_; at != end; ++at) {
      const Step step = steps_[at];
      Elementwise declared;
      if (step.kind == Step::kRun && step.type->elementwise != nullptr && step.type->elementwise(step.data, declared) &&
          TakeRow(step, declared)) {
        continue;
      }
      EndGroup();
      EndLine();
      steps_[out_++] = step;
    }
    EndGroup();
    EndLine();
    steps_.erase(steps_.begin() + static_cast<ptrdiff_t>(out_), steps_.end());
  }

 private:
  // Rows that wait to become a step: first those that run one after another, behind them a group, which may join them.
  bool TakeRow(const Step& step, const Elementwise& declared) {
    const bool can_split = declared.call.count >= kLeastElements && declared.grain > 0;
    const char* const apart = !can_split                      ? "it has too few elements to be split"
                              : declared.call.count != count_ ? "it has another number of elements"
                              : work_ >= kMostWork            ? "the group has all the work that one may have"
                              : !ranges_.Add(declared)        ? "memory that both touch overlaps in part"
                                                              : nullptr;
    if (apart != nullptr) {
      if (group_rows_ != 0) NoteApart(step, apart);
      EndGroup();
      if (can_split && !ranges_.Add(declared)) {  // overlaps itself, against the declaration
        ranges_.Clear();
        return false;
      }
    }
    rows_.push_back({declared.call, step.task_id});
    if (!can_split) {
      ++line_rows_;
      return true;
    }
    if (group_rows_++ == 0) count_ = declared.call.count;
    const double work = static_cast<double>(count_) / static_cast<double>(declared.grain);
    work_ += work;
    is_long_ |= work >= 2;
    grain_ = std::max(grain_, declared.grain);
    return true;
  }

  void NoteApart(const Step& step, const char* why) {
    if (log_ == nullptr) return;
    ++log_->not_fused;
    if (log_->wants_reasons) log_->apart.push_back({lane_, step.task_id, why});
  }

  // The group becomes a step where that pays, otherwise part of the line before it.
  void EndGroup() {
    if (group_rows_ == 0) return;
    const bool is_parallel = is_long_ || work_ >= kLeastParallelWork;
    const bool is_cached = group_rows_ > 1 && ranges_.is_reused();
    const int64_t block = std::min(RoundUp(count_), is_cached ? ranges_.Block() : RoundUp(grain_));
    if (is_parallel || (is_cached && block < count_)) {
      EndLine();
      if (log_ != nullptr && group_rows_ > 1) log_->fused += group_rows_;
      Step& step = Emit(Step::kBlocks, group_rows_);
      step.block = block;
      step.is_parallel = is_parallel;
    } else {
      line_rows_ += group_rows_;
    }
    ranges_.Clear();
    group_rows_ = 0;
    count_ = 0;
    work_ = 0;
    is_long_ = false;
    grain_ = 0;
  }

  void EndLine() {
    if (line_rows_ != 0) Emit(Step::kRows, line_rows_);
    line_rows_ = 0;
  }

  Step& Emit(Step::Kind kind, uint32_t rows) {
    Step& step = steps_[out_++];
    step.kind = kind;
    step.task_id = rows_[emitted_].task_id;
    step.rows = {emitted_, rows};
    step.args_bytes = 0;
    step.block = 0;
    step.is_parallel = false;
    emitted_ += rows;
    return step;
  }

  Steps& steps_;
  size_t out_;  // steps that are done
  std::vector<Row>& rows_;
  const uint32_t lane_;
  FusionLog* const log_;
  uint32_t emitted_ = static_cast<uint32_t>(rows_.size());  // rows that some step has
  uint32_t line_rows_ = 0;
  // The group.
  uint32_t group_rows_ = 0;
  int64_t count_ = 0;
  double work_ = 0;
  bool is_long_ = false;  // a row alone would be worth two threads
  int64_t grain_ = 0;
  Ranges ranges_;
};

struct Blocks {
  const Row* rows;
  uint32_t count;
  int64_t elements;
  int64_t units;
  int64_t block;  // in units

  void Run(int64_t begin, int64_t end) const {
    for (int64_t at = begin; at < end; at += block) {
      const int64_t next = std::min(at + block, end);
      const int64_t to = next == units ? elements : next * kRowUnit;
      for (const Row* row = rows; row != rows + count; ++row) row->call.function(row->call.args, at * kRowUnit, to);
    }
  }
};

}  // namespace

void FuseRows(Steps& steps, size_t begin, std::vector<Row>& rows, uint32_t lane, FusionLog* log) {
  static const bool is_on = EnvInt(EnvVar::kFuse) != 0;
  if (is_on) Fuser(steps, begin, rows, lane, log).Run();
}

void RunBlocks(device::Scheduler& scheduler, const Row* rows, uint32_t count, int64_t block, bool is_parallel) {
  const int64_t units = UnitsOf(rows->call.count);
  Blocks blocks{rows, count, rows->call.count, units, block / kRowUnit};
  const int64_t threads = scheduler.workers();
  if (!is_parallel || threads <= 1) return blocks.Run(0, units);
  // As many blocks for each thread, as far as they go.
  const int64_t wanted = ((units + blocks.block - 1) / blocks.block + threads - 1) / threads * threads;
  blocks.block = (units + wanted - 1) / wanted;
  const auto body = [](void* arg, int64_t first, int64_t last) { static_cast<const Blocks*>(arg)->Run(first, last); };
  scheduler.ParallelFor(units, blocks.block, body, &blocks);
}

}  // namespace reprise::exec
