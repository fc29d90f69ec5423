// SPDX-License-Identifier: Apache-2.0
#include "memory/history.h"

#include <c10/util/Exception.h>
#include <reprise/memory.h>

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
  explicit Place(std::vector<reprise::Frame> frames) : frames_(std::move(frames)) {}
  std::vector<reprise::Frame> Frames() const override { return frames_; }

 private:
  const std::vector<reprise::Frame> frames_;
};

struct State {
  std::mutex mutex;
  HistoryMode mode;
  std::unordered_map<std::string, std::shared_ptr<const Place>> places;  // loops allocate at the same ones
};

State& Of() {
  static auto* const state = new State;
  return *state;
}

reprise::TraceContextPtr RecordPlace() {
  std::vector<reprise::Frame> frames = PythonStack(kMostFrames);
  std::string key;
  for (const reprise::Frame& frame : frames) {
    key += frame.filename + ":" + std::to_string(frame.line) + " " + frame.name + "\n";
  }
  State& state = Of();
  const std::lock_guard lock(state.mutex);
  std::shared_ptr<const Place>& place = state.places[std::move(key)];
  if (place == nullptr) place = std::make_shared<Place>(std::move(frames));
  return place;
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
                   uint64_t entries) {
  RefusePluggable("the history of device memory");
  TORCH_CHECK_VALUE(!enabled.has_value() || *enabled == "state" || *enabled == "all",
                    "enabled of the memory history must be None, 'state' or 'all', not '", enabled.value_or(""), "'");
  HistoryMode mode;
  if (enabled.has_value()) mode = {*enabled == "all", ContextOf(context)};
  LazyInit();
  // Places come with blocks only while events are recorded; of the state alone, one is enough.
  const uint64_t kept = !enabled.has_value() ? 0 : mode.keeps_trace ? entries : 1;
  Guarded([&] {
    reprise::device_memory::RecordHistory(kept, mode.context == HistoryContext::kNone ? nullptr : &RecordPlace);
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

}  // namespace torch_npu
