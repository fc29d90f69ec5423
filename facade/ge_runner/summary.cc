// SPDX-License-Identifier: Apache-2.0
//
// Summaries of compiled graphs.
#include "engine/summary.h"

#include <string>
#include <utility>

#include "call.h"
#include "ge/ge_api.h"
#include "summary_access.h"

using namespace reprise::ge_runner;  // NOLINT: its functions are all that follows uses
namespace engine = reprise::engine;
using Reason = reprise::Status;
using reprise::runtime::Api;

namespace reprise::ge_runner {

ge::Status SetFixedBase(uint64_t session, const char* api, uint32_t graph_id, ge::MemoryType type, const void* memory,
                        size_t size) {
  return OnSession(session, api, [&](engine::Session& found) -> Status {
    if (type != ge::MemoryType::MEMORY_TYPE_DEFAULT && type != ge::MemoryType::MEMORY_TYPE_P2P) {
      return engine::Fail(engine::kParamInvalid, engine::kBadValue, "type is no type of memory")
          .Culprit("parameter type")
          .Hint("pass MEMORY_TYPE_DEFAULT or MEMORY_TYPE_P2P");
    }
    return found.SetFixedBase(graph_id, static_cast<engine::MemoryType>(type), memory, size);
  });
}

Status CheckCallback(bool is_there) {
  if (is_there) return {};
  return engine::Fail(engine::kParamInvalid, engine::kNullValue, "callback is empty")
      .Culprit("parameter callback")
      .Hint("pass a function, which gets the outputs");
}

}  // namespace reprise::ge_runner

namespace ge {

struct CompiledGraphSummary::Data {
  std::shared_ptr<const engine::CompiledGraph> compiled;
  const engine::Summary& summary() const { return compiled->summary(); }
};

CompiledGraphSummary::CompiledGraphSummary() : data_(std::make_shared<Data>()) {}
CompiledGraphSummary::~CompiledGraphSummary() = default;

CompiledGraphSummaryPtr SummaryAccess::Of(uint64_t session, const char* api, uint32_t graph_id) {
  CompiledGraphSummaryPtr summary;
  OnSession(session, api, [&](engine::Session& found) -> Reason {
    REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<const engine::CompiledGraph> compiled, found.Compiled(graph_id));
    summary.reset(new CompiledGraphSummary);
    summary->data_->compiled = std::move(compiled);
    return {};
  });
  return summary;
}

namespace {

// What only graphs with known shapes tell; `value` is set to nothing for others.
template <class T, class Read>
Status Tell(const char* api, const engine::Summary& summary, const char* what, T& value, Read read) {
  return static_cast<Status>(Api(api, [&]() -> Reason {
    value = T();
    REPRISE_RETURN_IF_ERROR(summary.CheckStatic(what));
    value = read(summary);
    return {};
  }));
}

}  // namespace

bool CompiledGraphSummary::IsStatic() const { return data_->summary().is_static; }
Status CompiledGraphSummary::GetConstMemorySize(size_t& size) const {
  return Tell("ge::CompiledGraphSummary::GetConstMemorySize", data_->summary(), "a size of constants", size,
              [](const engine::Summary& s) -> size_t { return s.const_size(); });
}
Status CompiledGraphSummary::GetFeatureMemorySize(size_t& size) const {
  return Tell("ge::CompiledGraphSummary::GetFeatureMemorySize", data_->summary(), "a size of features", size,
              [](const engine::Summary& s) -> size_t { return s.feature_size(); });
}
Status CompiledGraphSummary::GetRefreshableFeatureMemorySize(size_t& size) const {
  return Tell("ge::CompiledGraphSummary::GetRefreshableFeatureMemorySize", data_->summary(), "a size of features", size,
              [](const engine::Summary& s) -> size_t { return s.refreshable_size(); });
}
Status CompiledGraphSummary::GetFixedFeatureMemorySize(size_t& size) const {
  size = data_->summary().needs.fixed_features;
  return SUCCESS;
}
std::vector<FeatureMemoryPtr> CompiledGraphSummary::GetAllFeatureMemoryTypeSize() const {
  std::vector<FeatureMemoryPtr> parts;
  if (const size_t fixed = data_->summary().needs.fixed_features; fixed > 0) {
    parts.emplace_back(new FeatureMemory(MemoryType::MEMORY_TYPE_DEFAULT, fixed, true));
  }
  return parts;
}
Status CompiledGraphSummary::GetFeatureMemoryBaseRefreshable(bool& v) const {
  return Tell("ge::CompiledGraphSummary::GetFeatureMemoryBaseRefreshable", data_->summary(), "a base of features", v,
              [](const engine::Summary& s) { return s.is_refreshable; });
}
Status CompiledGraphSummary::GetStreamNum(size_t& num) const {
  num = data_->summary().stream_count;
  return SUCCESS;
}
Status CompiledGraphSummary::GetEventNum(size_t& num) const {
  return Tell("ge::CompiledGraphSummary::GetEventNum", data_->summary(), "events", num,
              [](const engine::Summary& s) { return s.event_count; });
}
Status CompiledGraphSummary::GetOutputShapes(std::vector<ge::Shape>& shapes) const {
  return Tell(
      "ge::CompiledGraphSummary::GetOutputShapes", data_->summary(), "shapes of outputs", shapes,
      [](const engine::Summary& s) { return std::vector<ge::Shape>(s.output_shapes.begin(), s.output_shapes.end()); });
}
Status CompiledGraphSummary::GetOutputDtypes(std::vector<ge::DataType>& dtypes) const {
  return Tell("ge::CompiledGraphSummary::GetOutputDtypes", data_->summary(), "types of outputs", dtypes,
              [](const engine::Summary& s) {
                std::vector<ge::DataType> types;
                for (const int32_t type : s.output_types) types.push_back(static_cast<ge::DataType>(type));
                return types;
              });
}
Status CompiledGraphSummary::GetIOIndexesWithSameAddr(std::vector<std::pair<uint32_t, uint32_t>>& io_indexes) const {
  return Tell("ge::CompiledGraphSummary::GetIOIndexesWithSameAddr", data_->summary(), "addresses", io_indexes,
              [](const engine::Summary& s) { return s.shared; });
}

// ---- Parts of a summary ----

struct FeatureMemory::Data {
  MemoryType type;
  size_t size;
  bool is_fixed;
};
FeatureMemory::FeatureMemory(MemoryType type, size_t size, bool is_fixed)
    : data_(std::make_shared<Data>(Data{type, size, is_fixed})) {}
FeatureMemory::~FeatureMemory() = default;
MemoryType FeatureMemory::GetType() const { return data_->type; }
size_t FeatureMemory::GetSize() const { return data_->size; }
bool FeatureMemory::IsFixed() const { return data_->is_fixed; }

struct ExternalWeightDesc::Data {
  engine::WeightFile file;
};
ExternalWeightDesc::ExternalWeightDesc() : data_(std::make_shared<Data>()) {}
ExternalWeightDesc::~ExternalWeightDesc() = default;
AscendString ExternalWeightDesc::GetLocation() const { return {data_->file.path.c_str()}; }
size_t ExternalWeightDesc::GetSize() const { return data_->file.bytes; }
size_t ExternalWeightDesc::GetOffset() const { return data_->file.offset; }
AscendString ExternalWeightDesc::GetId() const { return {data_->file.id.c_str()}; }

Status CompiledGraphSummary::GetExternalWeightPaths(std::vector<ExternalWeightDescPtr>& paths) const {
  paths.clear();
  for (const engine::WeightFile& file : data_->summary().weights) {
    paths.emplace_back(new ExternalWeightDesc);
    paths.back()->data_->file = file;
  }
  return SUCCESS;
}

struct LogicalStreamAllocationInfo::Data {
  engine::LogicalStream stream;
};
LogicalStreamAllocationInfo::LogicalStreamAllocationInfo() : data_(std::make_shared<Data>()) {}
LogicalStreamAllocationInfo::~LogicalStreamAllocationInfo() = default;
AscendString LogicalStreamAllocationInfo::ToStringInfo() const { return {data_->stream.Text().c_str()}; }
int64_t LogicalStreamAllocationInfo::GetLogicalStreamId() const { return data_->stream.id; }
AscendString LogicalStreamAllocationInfo::GetUsrStreamLabel() const { return {data_->stream.label.c_str()}; }
bool LogicalStreamAllocationInfo::IsAssignedByStreamPass() const { return data_->stream.is_assigned_by_pass; }
std::vector<int64_t> LogicalStreamAllocationInfo::GetAttachedStreamIds() const { return data_->stream.attached; }
size_t LogicalStreamAllocationInfo::GetPhysicalStreamNum() const { return data_->stream.physical_count; }
size_t LogicalStreamAllocationInfo::GetHcclFollowedStreamNum() const { return data_->stream.followed_count; }
std::vector<AscendString> LogicalStreamAllocationInfo::GetAllNodes() const {
  std::vector<AscendString> names;
  for (const std::string& node : data_->stream.nodes) names.emplace_back(node.c_str());
  return names;
}

struct StreamAllocationSummary::Data {
  std::map<AscendString, AscendString> graphs;
  std::map<AscendString, std::vector<LogicalStreamAllocationInfo>> streams;
};
StreamAllocationSummary::StreamAllocationSummary() : data_(std::make_shared<Data>()) {}
StreamAllocationSummary::~StreamAllocationSummary() = default;
std::map<AscendString, AscendString> StreamAllocationSummary::ToStreamGraph() const { return data_->graphs; }
const std::map<AscendString, std::vector<LogicalStreamAllocationInfo>>&
StreamAllocationSummary::GetAllLogicalStreamInfos() const {
  return data_->streams;
}

Status CompiledGraphSummary::GetStreamAllocationSummary(
    std::shared_ptr<StreamAllocationSummary>& stream_allocation) const {
  const engine::Summary& summary = data_->summary();
  const AscendString name(summary.name.c_str());
  stream_allocation = std::make_shared<StreamAllocationSummary>();
  stream_allocation->data_->graphs[name] = AscendString(summary.stream_graph.c_str());
  for (const engine::LogicalStream& stream : summary.streams) {
    LogicalStreamAllocationInfo info;
    info.data_->stream = stream;
    stream_allocation->data_->streams[name].push_back(std::move(info));
  }
  return SUCCESS;
}

}  // namespace ge
