// SPDX-License-Identifier: Apache-2.0
#include "profile/markers.h"

#include <fmt/format.h>

#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "device/timeline.h"
#include "ir/task_info.h"
#include "profile/memory_marks.h"
#include "profile/profiler.h"
#include "runtime/stream.h"
#include "runtime/submission.h"

namespace reprise::profile {
namespace {

using device::Timeline;

constexpr size_t kMostMarkerDomains = 1u << 16;
constexpr size_t kMostMarkerRanges = 1u << 16;

// Shared with the tasks in streams and graphs, which may outlive the range.
struct StreamRange {
  std::string name;
  std::atomic<uint64_t> begin{0};
};

struct MarkerRange {
  uint64_t domain;
  uint64_t on_thread;  // of the timeline
  void* stream;        // handle, or null
  std::shared_ptr<StreamRange> on_stream;
};

struct MarkerTables {
  Mutex mutex;
  uint64_t next_domain REPRISE_GUARDED_BY(mutex) = 1;
  uint64_t next_range REPRISE_GUARDED_BY(mutex) = 1;
  std::map<uint64_t, std::string> domains REPRISE_GUARDED_BY(mutex);
  std::map<uint64_t, MarkerRange> ranges REPRISE_GUARDED_BY(mutex);
};

MarkerTables& Tables() {
  static auto* const tables = new MarkerTables;
  return *tables;
}

struct RangeEdgePayload {
  std::shared_ptr<StreamRange>* range;
  bool is_end;
};

constexpr ir::TaskType kRangeEdge = {
    .kind = ir::TaskKind::kMark,
    .name = "PROFILER_RANGE",
    .run =
        [](device::RunContext& context, void* payload) {
          const auto& p = *static_cast<const RangeEdgePayload*>(payload);
          StreamRange& range = **p.range;
          if (!p.is_end) {
            range.begin.store(Timeline::Now(), std::memory_order_relaxed);
          } else if (const uint64_t begin = range.begin.exchange(0, std::memory_order_relaxed);
                     begin != 0 && Timeline::on()) {
            Timeline::Get().Step(context, range.name, begin);
          }
          return ir::RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { delete static_cast<RangeEdgePayload*>(payload)->range; },
    .describe =
        [](const void* payload, ir::TaskInfo& info) {
          const auto& p = *static_cast<const RangeEdgePayload*>(payload);
          info.name = (**p.range).name + (p.is_end ? " end" : " start");
        },
    .operands = ir::NoOperands};

Status SubmitEdge(runtime::Stream& stream, const std::shared_ptr<StreamRange>& range, bool is_end) {
  RangeEdgePayload payload{new std::shared_ptr<StreamRange>(range), is_end};
  return runtime::Submit(stream, ir::MakeTask(kRangeEdge, payload));
}

// Null when there is none.
StatusOr<runtime::Stream*> StreamOrNone(void* handle) {
  if (handle == nullptr) return static_cast<runtime::Stream*>(nullptr);
  return runtime::FindStream(handle);
}

StatusOr<std::string> NameIn(uint64_t domain, const std::string& text) {
  if (domain == 0) return text;
  MarkerTables& tables = Tables();
  MutexLock lock(tables.mutex);
  if (const auto it = tables.domains.find(domain); it != tables.domains.end()) return it->second + ": " + text;
  return Error(kInvalidHandle, "domain is no domain that mstxDomainCreateA made and that still exists")
      .Culprit("parameter domain")
      .Hint("create the domain first, and destroy it last");
}

}  // namespace

StatusOr<uint64_t> Markers::CreateDomain(std::string name) {
  MarkerTables& tables = Tables();
  MutexLock lock(tables.mutex);
  if (tables.domains.size() >= kMostMarkerDomains) {
    return Error(kResourceExhausted, fmt::format("{} domains exist", kMostMarkerDomains))
        .Hint("destroy domains with mstxDomainDestroy, or create each once");
  }
  tables.domains.emplace(tables.next_domain, std::move(name));
  return tables.next_domain++;
}

Status Markers::CheckDomain(uint64_t domain) { return NameIn(domain, "").status(); }

Status Markers::DestroyDomain(uint64_t domain) {
  REPRISE_RETURN_IF_ERROR(CheckDomain(domain));
  MemoryMarks::EndDomain(domain);
  MarkerTables& tables = Tables();
  MutexLock lock(tables.mutex);
  tables.domains.erase(domain);
  for (auto it = tables.ranges.begin(); it != tables.ranges.end();) {
    const bool ends = it->second.domain == domain;
    if (ends) Timeline::Get().CloseRange(it->second.on_thread);
    it = ends ? tables.ranges.erase(it) : std::next(it);
  }
  return {};
}

Status Markers::Mark(uint64_t domain, const std::string& text, void* stream) {
  REPRISE_ASSIGN_OR_RETURN(const std::string name, NameIn(domain, text));
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, StreamOrNone(stream));
  if (on != nullptr) return Profiler::MarkOn(*on, name, true);
  if (Timeline::on()) Timeline::Get().Mark(name);
  return {};
}

StatusOr<uint64_t> Markers::Start(uint64_t domain, const std::string& text, void* stream) {
  REPRISE_ASSIGN_OR_RETURN(const std::string name, NameIn(domain, text));
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, StreamOrNone(stream));
  MarkerTables& tables = Tables();
  uint64_t number = 0;
  std::shared_ptr<StreamRange> on_stream;
  if (on != nullptr) {
    on_stream = std::make_shared<StreamRange>();
    on_stream->name = name;
  }
  {
    MutexLock lock(tables.mutex);
    if (tables.ranges.size() >= kMostMarkerRanges) {
      return Error(kResourceExhausted, fmt::format("{} ranges are open", kMostMarkerRanges))
          .Hint("end ranges with mstxRangeEnd");
    }
    number = tables.next_range++;
    tables.ranges.emplace(number, MarkerRange{domain, Timeline::Get().OpenRange(name, false), stream, on_stream});
  }
  if (on == nullptr) return number;
  if (Status submitted = SubmitEdge(*on, on_stream, false); !submitted.ok()) {
    MutexLock lock(tables.mutex);
    if (const auto it = tables.ranges.find(number); it != tables.ranges.end()) {  // its domain may be gone, and it too
      Timeline::Get().CloseRange(it->second.on_thread);
      tables.ranges.erase(it);
    }
    return submitted;
  }
  return number;
}

Status Markers::End(uint64_t domain, uint64_t range) {
  REPRISE_RETURN_IF_ERROR(NameIn(domain, "").status());
  MarkerTables& tables = Tables();
  MarkerRange ended;
  {
    MutexLock lock(tables.mutex);
    const auto it = tables.ranges.find(range);
    if (it == tables.ranges.end() || it->second.domain != domain) {
      return Error(kInvalidArgument, fmt::format("id is {}, which is no open range of {}", range,
                                                 domain != 0 ? "this domain" : "no domain"))
          .Culprit("parameter id")
          .Hint(domain != 0 ? "pass a number that mstxDomainRangeStartA returned for the domain, once"
                            : "pass a number that mstxRangeStartA returned, once");
    }
    ended = std::move(it->second);
    tables.ranges.erase(it);
  }
  Timeline::Get().CloseRange(ended.on_thread);
  if (ended.on_stream == nullptr) return {};
  // Whoever ends it need not have the stream's context.
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindAnyStream(ended.stream));
  return SubmitEdge(*on, ended.on_stream, true);
}

}  // namespace reprise::profile
