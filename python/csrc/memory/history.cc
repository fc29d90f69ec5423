// SPDX-License-Identifier: Apache-2.0
#include "memory/history.h"

#include <c10/util/Exception.h>
#include <reprise/memory.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "memory/pluggable.h"

namespace torch_npu {
namespace {

constexpr size_t kMostFrames = 64;

// Owns no Python object: contexts end under the lock of the allocator, which must not wait for the GIL.
class Place final : public reprise::TraceContext {
 public:
  Place(std::vector<reprise::Frame> frames, std::string metadata)
      : frames_(std::move(frames)), metadata_(std::move(metadata)) {}
  std::vector<reprise::Frame> Frames() const override { return frames_; }
  const std::string& metadata() const { return metadata_; }

 private:
  const std::vector<reprise::Frame> frames_;
  const std::string metadata_;
};

struct State {
  std::mutex mutex;
  HistoryMode mode;
  std::string metadata;
  std::unordered_map<std::string, std::shared_ptr<const Place>> places;  // loops allocate at the same ones
};

State& Of() {
  static auto* const state = new State;
  return *state;
}

// One load for each free while nothing is recorded.
std::atomic<bool> g_records{false};
std::atomic<bool> g_records_stacks{false}, g_records_stacks_of_frees{false};

reprise::TraceContextPtr RecordWith(bool stack) {
  std::vector<reprise::Frame> frames;
  if (stack) frames = PythonStack(kMostFrames);
  std::string metadata = MemoryMetadata();
  if (!stack && metadata.empty()) return nullptr;
  std::string key = metadata + "\n";
  for (const reprise::Frame& frame : frames) {
    key += frame.filename + ":" + std::to_string(frame.line) + " " + frame.name + "\n";
  }
  State& state = Of();
  const std::lock_guard lock(state.mutex);
  std::shared_ptr<const Place>& place = state.places[std::move(key)];
  if (place == nullptr) place = std::make_shared<Place>(std::move(frames), std::move(metadata));
  return place;
}

reprise::TraceContextPtr RecordPlace() { return RecordWith(g_records_stacks.load(std::memory_order_relaxed)); }

constexpr reprise::TraceAction kActions[] = {
    reprise::TraceAction::kAlloc,        reprise::TraceAction::kFreeRequested, reprise::TraceAction::kFreeCompleted,
    reprise::TraceAction::kSegmentAlloc, reprise::TraceAction::kSegmentFree,   reprise::TraceAction::kSegmentMap,
    reprise::TraceAction::kSegmentUnmap, reprise::TraceAction::kSnapshot,      reprise::TraceAction::kOom};

uint32_t BitsOf(const std::vector<std::string>& actions) {
  uint32_t bits = 0;
  for (const std::string& name : actions) {
    uint32_t bit = 0;
    std::string all;
    for (const reprise::TraceAction action : kActions) {
      if (name == Name(action)) bit = 1u << static_cast<uint32_t>(action);
      all += (all.empty() ? "'" : ", '") + std::string(Name(action)) + "'";
    }
    TORCH_CHECK_VALUE(bit != 0, "skip_actions of the memory history knows no action '", name, "', but ", all);
    bits |= bit;
  }
  return bits;
}

HistoryContext ContextOf(const std::optional<std::string>& context) {
  if (!context.has_value()) return HistoryContext::kNone;
  if (*context == "state") return HistoryContext::kState;
  if (*context == "alloc") return HistoryContext::kAlloc;
  if (*context == "all") return HistoryContext::kAll;
  TORCH_CHECK_VALUE(false, "context of the memory history must be None, 'state', 'alloc' or 'all', not '", *context,
                    "'");
}

}  // namespace

void RecordHistory(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
                   uint64_t entries, const std::vector<std::string>& skip_actions) {
  RefusePluggable("the history of device memory");
  TORCH_CHECK_VALUE(!enabled.has_value() || *enabled == "state" || *enabled == "all",
                    "enabled of the memory history must be None, 'state' or 'all', not '", enabled.value_or(""), "'");
  HistoryMode mode;
  if (enabled.has_value()) mode = {*enabled == "all", ContextOf(context)};
  const uint32_t skipped = BitsOf(skip_actions);
  LazyInit();
  // Places come with blocks only while events are recorded; of the state alone, none is kept.
  const uint64_t kept = !enabled.has_value() ? 0 : mode.keeps_trace ? entries : 1;
  g_records_stacks.store(mode.context != HistoryContext::kNone);
  g_records_stacks_of_frees.store(mode.keeps_trace && mode.context == HistoryContext::kAll);
  g_records.store(kept != 0);
  Guarded([&] {
    reprise::device_memory::RecordHistory(kept, kept == 0 ? nullptr : &RecordPlace,
                                          mode.keeps_trace ? skipped : ~uint32_t{0});
  });
  State& state = Of();
  const std::lock_guard lock(state.mutex);
  state.mode = mode;
  state.places.clear();
}

HistoryMode CurrentHistoryMode() {
  State& state = Of();
  const std::lock_guard lock(state.mutex);
  return state.mode;
}

reprise::TraceContextPtr ContextOfFree() {
  if (!g_records.load(std::memory_order_relaxed)) [[likely]]
    return nullptr;
  return RecordWith(g_records_stacks_of_frees.load(std::memory_order_relaxed));
}

void SetMemoryMetadata(std::string metadata) {
  State& state = Of();
  const std::lock_guard lock(state.mutex);
  state.metadata.swap(metadata);
}

std::string MemoryMetadata() {
  State& state = Of();
  const std::lock_guard lock(state.mutex);
  return state.metadata;
}

std::string MetadataOf(const reprise::TraceContext* context) {
  const auto* const place = dynamic_cast<const Place*>(context);
  return place == nullptr ? "" : place->metadata();
}

const char* Name(reprise::TraceAction action) {
  switch (action) {
    case reprise::TraceAction::kAlloc: return "alloc";
    case reprise::TraceAction::kFreeRequested: return "free_requested";
    case reprise::TraceAction::kFreeCompleted: return "free_completed";
    case reprise::TraceAction::kSegmentAlloc: return "segment_alloc";
    case reprise::TraceAction::kSegmentFree: return "segment_free";
    case reprise::TraceAction::kSegmentMap: return "segment_map";
    case reprise::TraceAction::kSegmentUnmap: return "segment_unmap";
    case reprise::TraceAction::kSnapshot: return "snapshot";
    case reprise::TraceAction::kOom: return "oom";
  }
  return "";
}

}  // namespace torch_npu
