// SPDX-License-Identifier: Apache-2.0
#include "memory/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/fault.h"
#include "base/json_text.h"
#include "base/text_file.h"
#include "memory/pickle.h"
#include "memory/utf8.h"

namespace reprise::memory {
namespace {

// The calls of PickleWriter, in JSON.
class JsonWriter {
 public:
  void BeginDict() { Begin('{', '}'); }
  void BeginList() { Begin('[', ']'); }
  void End() {
    out_ += ends_.back();
    ends_.pop_back();
    first_ = false;
  }
  void Key(std::string_view text) {
    Text(text);
    out_ += ':';
    first_ = true;
  }
  void Text(std::string_view text) {
    Item();
    fmt::format_to(std::back_inserter(out_), "\"{}\"", JsonEscape(text));
  }
  void Int(int64_t value) {
    Item();
    fmt::format_to(std::back_inserter(out_), "{}", value);
  }
  void Unsigned(uint64_t value) {
    Item();
    fmt::format_to(std::back_inserter(out_), "{}", value);
  }
  void Pair(uint64_t first, uint64_t second) {
    Item();
    fmt::format_to(std::back_inserter(out_), "[{},{}]", first, second);
  }
  void Bool(bool value) {
    Item();
    out_ += value ? "true" : "false";
  }
  std::string Finish() { return std::move(out_) + "\n"; }

 private:
  void Item() {
    if (!first_) out_ += ends_.size() <= 2 ? ",\n" : ",";
    first_ = false;
  }
  void Begin(char begin, char end) {
    Item();
    out_ += begin;
    ends_ += end;
    first_ = true;
  }

  std::string out_;
  std::string ends_;
  bool first_ = true;
};

std::string_view Name(BlockState state) {
  switch (state) {
    case BlockState::kActiveAllocated: return "active_allocated";
    case BlockState::kActivePendingFree: return "active_pending_free";
    case BlockState::kInactive: return "inactive";
  }
  return "";
}

std::string_view Name(TraceAction action) {
  switch (action) {
    case TraceAction::kAlloc: return "alloc";
    case TraceAction::kFreeRequested: return "free_requested";
    case TraceAction::kFreeCompleted: return "free_completed";
    case TraceAction::kSegmentAlloc: return "segment_alloc";
    case TraceAction::kSegmentFree: return "segment_free";
    case TraceAction::kSegmentMap: return "segment_map";
    case TraceAction::kSegmentUnmap: return "segment_unmap";
    case TraceAction::kSnapshot: return "snapshot";
    case TraceAction::kOom: return "oom";
  }
  return "";
}

template <class Writer>
class SnapshotWriter {
 public:
  std::string Write(const MemorySnapshot& snapshot) {
    out_.BeginDict();
    out_.Key("segments");
    out_.BeginList();
    size_t devices = snapshot.device_traces.size();
    for (const SegmentInfo& segment : snapshot.segments) {
      devices = std::max(devices, static_cast<size_t>(segment.device) + 1);
      Segment(segment);
    }
    out_.End();
    // Viewers offer the devices that have a list here.
    out_.Key("device_traces");
    out_.BeginList();
    for (size_t i = 0; i < devices; ++i) {
      out_.BeginList();
      if (i < snapshot.device_traces.size()) {
        for (const TraceEntry& entry : snapshot.device_traces[i]) Trace(entry);
      }
      out_.End();
    }
    out_.End();
    out_.Key("allocator_settings");
    out_.BeginDict();
    for (const auto& [key, value] : snapshot.settings) {
      out_.Key(Utf8(key));
      out_.Text(Utf8(value));
    }
    out_.End();
    out_.Key("external_annotations");
    out_.BeginList();
    out_.End();
    out_.End();
    return out_.Finish();
  }

 private:
  void Segment(const SegmentInfo& segment) {
    out_.BeginDict();
    Int("device", segment.device);
    Unsigned("address", segment.address);
    Unsigned("total_size", segment.total_size);
    Unsigned("allocated_size", segment.allocated_size);
    Unsigned("active_size", segment.active_size);
    Unsigned("requested_size", segment.requested_size);
    Unsigned("stream", reinterpret_cast<uintptr_t>(segment.stream));
    Pool("segment_pool_id", segment.pool);
    Text("segment_type", segment.is_large ? "large" : "small");
    out_.Key("is_expandable");
    out_.Bool(segment.is_expandable);
    Frames(segment.context);
    out_.Key("blocks");
    out_.BeginList();
    for (const BlockInfo& block : segment.blocks) {
      out_.BeginDict();
      Unsigned("address", block.address);
      Unsigned("size", block.size);
      Unsigned("requested_size", block.requested_size);
      Text("state", Name(block.state));
      Frames(block.context);
      out_.End();
    }
    out_.End();
    out_.End();
  }

  void Trace(const TraceEntry& entry) {
    out_.BeginDict();
    Text("action", Name(entry.action));
    Unsigned(entry.action == TraceAction::kOom ? "device_free" : "addr", entry.address);
    Unsigned("size", entry.size);
    Unsigned("stream", reinterpret_cast<uintptr_t>(entry.stream));
    Pool("pool_id", entry.pool);
    Frames(entry.context);
    Int("time_us", entry.time_us);
    out_.End();
  }

  // Most entries come from few places; where the format allows, each place is written once.
  void Frames(const TraceContextPtr& context) {
    out_.Key("frames");
    if constexpr (requires(Writer & w) { w.Remember(); }) {
      const auto it = written_.find(context.get());
      if (it != written_.end()) return out_.Recall(it->second);
    }
    out_.BeginList();
    if (context != nullptr) {
      auto it = frames_.find(context.get());
      if (it == frames_.end()) it = frames_.emplace(context.get(), context->Frames()).first;
      for (const Frame& frame : it->second) {
        out_.BeginDict();
        Text("filename", Utf8(frame.filename));
        Int("line", frame.line);
        Text("name", Utf8(frame.name));
        out_.End();
      }
    }
    out_.End();
    if constexpr (requires(Writer & w) { w.Remember(); }) written_.emplace(context.get(), out_.Remember());
  }

  void Int(std::string_view key, int64_t value) {
    out_.Key(key);
    out_.Int(value);
  }
  void Unsigned(std::string_view key, uint64_t value) {
    out_.Key(key);
    out_.Unsigned(value);
  }
  void Text(std::string_view key, std::string_view value) {
    out_.Key(key);
    out_.Text(value);
  }
  void Pool(std::string_view key, PoolId pool) {
    out_.Key(key);
    out_.Pair(pool.capture, pool.handle);
  }

  Writer out_;
  std::unordered_map<const TraceContext*, std::vector<Frame>> frames_;
  std::unordered_map<const TraceContext*, uint32_t> written_;
};

}  // namespace

std::string SnapshotPickle(const MemorySnapshot& snapshot) { return SnapshotWriter<PickleWriter>().Write(snapshot); }

std::string SnapshotJson(const MemorySnapshot& snapshot) { return SnapshotWriter<JsonWriter>().Write(snapshot); }

Status WriteSnapshot(const MemorySnapshot& snapshot, const std::string& path, const TimelineOptions& options) {
  const std::string_view name = path;
  std::string bytes;
  if (name.ends_with(".json")) {
    bytes = SnapshotJson(snapshot);
  } else if (name.ends_with(".svg")) {
    bytes = TimelineSvg(snapshot, options);
  } else if (name.ends_with(".html")) {
    bytes = TimelineHtml(snapshot, options);
  } else {
    bytes = SnapshotPickle(snapshot);
  }
  Status status = FaultPoint("snapshot.file") ? Error(kFileOpen, fmt::format("{} cannot be opened for writing", path))
                                              : WriteTextFile(path, bytes);
  if (status.ok()) return {};
  return std::move(status)
      .Culprit(fmt::format("memory snapshot {}", path))
      .Hint("check the folder, its permissions and the room on it");
}

}  // namespace reprise::memory
