/* SPDX-License-Identifier: Apache-2.0 */
/* The graph engine: graphs are added to a session, compiled, and run.

   Every Status is a number of ge/ge_error_codes.h; GEGetErrorMsgV2 has the words. */
#ifndef REPRISE_GE_GE_API_H_
#define REPRISE_GE_GE_API_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ge/ge_allocator.h"
#include "ge/ge_api_types.h"
#include "ge/ge_graph_compile_summary.h"
#include "graph/ascend_string.h"
#include "graph/graph.h"
#include "graph/tensor.h"

#pragma GCC visibility push(default)

namespace gert {
class Tensor;
}

namespace ge {

/* Once for the process; called again it succeeds, with a warning. */
Status GEInitialize(const std::map<std::string, std::string>& options);
Status GEInitialize(const std::map<AscendString, AscendString>& options);
/* Ends all sessions. */
Status GEFinalize();

/* The calling thread's errors and warnings, which are then forgotten. */
std::string GEGetErrorMsg();
AscendString GEGetErrorMsgV2();
std::string GEGetWarningMsg();
AscendString GEGetWarningMsgV2();

class Session {
 public:
  using pCallBackFunc = Status (*)(uint32_t graph_id, const std::map<std::string, ge::Tensor>& params_list);
  using pAscendCallBackFunc = Status (*)(uint32_t graph_id, const std::map<AscendString, ge::Tensor>& params_list);

  explicit Session(const std::map<std::string, std::string>& options);
  explicit Session(const std::map<AscendString, AscendString>& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /* The graph itself, which compiling changes. */
  Status AddGraph(uint32_t graph_id, const Graph& graph);
  Status AddGraph(uint32_t graph_id, const Graph& graph, const std::map<std::string, std::string>& options);
  Status AddGraph(uint32_t graph_id, const Graph& graph, const std::map<AscendString, AscendString>& options);
  Status AddGraphWithCopy(uint32_t graph_id, const Graph& graph);
  Status AddGraphWithCopy(uint32_t graph_id, const Graph& graph, const std::map<AscendString, AscendString>& options);
  Status RemoveGraph(uint32_t graph_id);

  Status CompileGraph(uint32_t graph_id);
  Status BuildGraph(uint32_t graph_id, const std::vector<InputTensorInfo>& inputs);
  Status BuildGraph(uint32_t graph_id, const std::vector<ge::Tensor>& inputs);
  /* Null when the graph is not compiled. */
  CompiledGraphSummaryPtr GetCompiledGraphSummary(uint32_t graph_id);
  bool IsGraphNeedRebuild(uint32_t graph_id);

  Status SetGraphConstMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status UpdateGraphFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status UpdateGraphRefreshableFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status SetGraphFixedFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status SetGraphFixedFeatureMemoryBaseWithType(uint32_t graph_id, MemoryType type, const void* const memory,
                                                size_t size);

  Status LoadGraph(const uint32_t graph_id, const std::map<AscendString, AscendString>& options, void* stream) const;
  /* Queued on the stream. Outputs without data get memory of the stream's allocator. */
  Status ExecuteGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<gert::Tensor>& inputs,
                                     std::vector<gert::Tensor>& outputs);
  Status RunGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<Tensor>& inputs,
                                 std::vector<Tensor>& outputs);
  /* Waits; inputs and outputs in memory of the host. */
  Status RunGraph(uint32_t graph_id, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  /* The callback comes from a thread of the session. */
  Status RunGraphAsync(uint32_t graph_id, const std::vector<ge::Tensor>& inputs, RunAsyncCallback callback);

  Status RegisterExternalAllocator(const void* const stream, AllocatorPtr allocator) const;
  Status UnregisterExternalAllocator(const void* const stream) const;

  /* The tasks of a loaded graph, as events of a timeline in JSON. */
  Status GraphDebugJSONPrint(uint32_t graph_id, uint32_t flags, AscendString& json) const;
  uint64_t GetSessionId() const;

  /* Refused. */
  Status GetVariables(const std::vector<std::string>& var_names, std::vector<Tensor>& var_values);
  Status GetVariables(const std::vector<AscendString>& var_names, std::vector<Tensor>& var_values);
  Status RegisterCallBackFunc(const std::string& key, const pCallBackFunc& callback);
  Status RegisterCallBackFunc(const char* key, const pAscendCallBackFunc& callback);
  Status PaRemapped(const uint64_t va, const uint64_t new_pa, const uint64_t len) const;
  Status ShardGraphs();
  Status ShardGraphsToFile(const char* file_path = "./") const;
  Status SaveGraphsToPb(const char* file_path = "./") const;

 private:
  uint64_t session_id_ = 0;
};

}  // namespace ge

/* The same for callers that look functions up by name. */
extern "C" {
ge::Status GeSessionLoadGraph(ge::Session& session, uint32_t graph_id,
                              const std::map<ge::AscendString, ge::AscendString>& options, void* stream);
ge::Status GeSessionExecuteGraphWithStreamAsync(ge::Session& session, uint32_t graph_id, void* stream,
                                                const std::vector<gert::Tensor>& inputs,
                                                std::vector<gert::Tensor>& outputs);
ge::Status GeSessionGraphDebugJSONPrint(const ge::Session& session, uint32_t graph_id, uint32_t flags,
                                        ge::AscendString& json);
/* The prototype of an operator: names with kinds, in the order of the declaration. */
ge::Status GetRegisteredIrDef(const char* op_type,
                              std::vector<std::pair<ge::AscendString, ge::AscendString>>& inputs,
                              std::vector<std::pair<ge::AscendString, ge::AscendString>>& outputs,
                              std::vector<std::pair<ge::AscendString, ge::AscendString>>& attrs);
/* By name of graph, one entry for each logical stream. */
ge::Status GEStreamAllocationSummaryGetStringInfos(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<ge::AscendString>>& infos);
ge::Status GEStreamAllocationSummaryGetLogicalStreamIds(const ge::CompiledGraphSummary& summary,
                                                        std::map<ge::AscendString, std::vector<int64_t>>& ids);
ge::Status GEStreamAllocationSummaryGetUsrStreamLabels(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<ge::AscendString>>& labels);
ge::Status GEStreamAllocationSummaryIsAssignedByStreamPass(const ge::CompiledGraphSummary& summary,
                                                           std::map<ge::AscendString, std::vector<bool>>& assigned);
ge::Status GEStreamAllocationSummaryGetAttachedStreamIds(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<std::vector<int64_t>>>& ids);
ge::Status GEStreamAllocationSummaryGetPhysicalStreamNums(const ge::CompiledGraphSummary& summary,
                                                          std::map<ge::AscendString, std::vector<int64_t>>& numbers);
ge::Status GEStreamAllocationSummaryGetHcclFollowedStreamNums(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<int64_t>>& numbers);
ge::Status GEStreamAllocationSummaryGetAllNodes(
    const ge::CompiledGraphSummary& summary,
    std::map<ge::AscendString, std::vector<std::vector<ge::AscendString>>>& nodes);
ge::Status GEStreamAllocationSummaryGetStreamGraphs(const ge::CompiledGraphSummary& summary,
                                                    std::map<ge::AscendString, std::vector<ge::AscendString>>& graphs);
}

#pragma GCC visibility pop

#endif  // REPRISE_GE_GE_API_H_
