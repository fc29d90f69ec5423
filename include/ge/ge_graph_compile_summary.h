/* SPDX-License-Identifier: Apache-2.0 */
/* What a compiled graph needs and gives. */
#ifndef REPRISE_GE_GE_GRAPH_COMPILE_SUMMARY_H_
#define REPRISE_GE_GE_GRAPH_COMPILE_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ge/ge_api_types.h"
#include "ge/ge_feature_memory.h"
#include "graph/ascend_string.h"
#include "graph/tensor.h"

#pragma GCC visibility push(default)

namespace ge {

struct SummaryAccess;

/* A constant in a file. */
class ExternalWeightDesc {
 public:
  ~ExternalWeightDesc();
  AscendString GetLocation() const;
  size_t GetSize() const;
  size_t GetOffset() const;
  AscendString GetId() const;

 private:
  friend class CompiledGraphSummary;
  ExternalWeightDesc();
  struct Data;
  std::shared_ptr<Data> data_;
};
using ExternalWeightDescPtr = std::shared_ptr<ExternalWeightDesc>;

/* Nodes that run one after another. */
class LogicalStreamAllocationInfo {
 public:
  LogicalStreamAllocationInfo();
  ~LogicalStreamAllocationInfo();
  AscendString ToStringInfo() const;
  int64_t GetLogicalStreamId() const;
  AscendString GetUsrStreamLabel() const;
  bool IsAssignedByStreamPass() const;
  std::vector<int64_t> GetAttachedStreamIds() const;
  size_t GetPhysicalStreamNum() const;
  size_t GetHcclFollowedStreamNum() const;
  std::vector<AscendString> GetAllNodes() const;

 private:
  friend class CompiledGraphSummary;
  struct Data;
  std::shared_ptr<Data> data_;
};

/* Streams by name of graph. */
class StreamAllocationSummary {
 public:
  StreamAllocationSummary();
  ~StreamAllocationSummary();
  /* In the language of Graphviz. */
  std::map<AscendString, AscendString> ToStreamGraph() const;
  const std::map<AscendString, std::vector<LogicalStreamAllocationInfo>>& GetAllLogicalStreamInfos() const;

 private:
  friend class CompiledGraphSummary;
  struct Data;
  std::shared_ptr<Data> data_;
};

/* Functions that only graphs with known shapes can answer fail for others, and set what they answer to nothing. */
class CompiledGraphSummary {
 public:
  ~CompiledGraphSummary();
  CompiledGraphSummary(const CompiledGraphSummary&) = delete;
  CompiledGraphSummary& operator=(const CompiledGraphSummary&) = delete;

  bool IsStatic() const;
  Status GetConstMemorySize(size_t& size) const;
  Status GetFeatureMemorySize(size_t& size) const;
  Status GetRefreshableFeatureMemorySize(size_t& size) const;
  Status GetFixedFeatureMemorySize(size_t& size) const;
  std::vector<FeatureMemoryPtr> GetAllFeatureMemoryTypeSize() const;
  Status GetFeatureMemoryBaseRefreshable(bool& v) const;
  Status GetStreamNum(size_t& num) const;
  Status GetEventNum(size_t& num) const;
  Status GetOutputShapes(std::vector<ge::Shape>& shapes) const;
  Status GetOutputDtypes(std::vector<ge::DataType>& dtypes) const;
  Status GetIOIndexesWithSameAddr(std::vector<std::pair<uint32_t, uint32_t>>& io_indexes) const;
  Status GetExternalWeightPaths(std::vector<ExternalWeightDescPtr>& paths) const;
  Status GetStreamAllocationSummary(std::shared_ptr<StreamAllocationSummary>& stream_allocation) const;

 private:
  friend struct SummaryAccess;
  CompiledGraphSummary();
  struct Data;
  std::shared_ptr<Data> data_;
};
using CompiledGraphSummaryPtr = std::shared_ptr<CompiledGraphSummary>;

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GE_GE_GRAPH_COMPILE_SUMMARY_H_
