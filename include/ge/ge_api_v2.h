/* SPDX-License-Identifier: Apache-2.0 */
/* The graph engine, second form: what is missing is done, and a graph is run in one way. Not beside ge/ge_api.h in one
   program. */
#ifndef REPRISE_GE_GE_API_V2_H_
#define REPRISE_GE_GE_API_V2_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

Status GEInitializeV2(const std::map<AscendString, AscendString>& options);
Status GEFinalizeV2();
AscendString GEGetErrorMsgV3();
AscendString GEGetWarningMsgV3();

using RunAsyncCallbackV2 = std::function<void(Status, std::vector<gert::Tensor>&)>;

class GeSession {
 public:
  explicit GeSession(const std::map<AscendString, AscendString>& options);
  ~GeSession();
  GeSession(const GeSession&) = delete;
  GeSession& operator=(const GeSession&) = delete;

  Status AddGraph(uint32_t graph_id, const Graph& graph);
  Status AddGraph(uint32_t graph_id, const Graph& graph, const std::map<AscendString, AscendString>& options);
  Status AddGraphClone(uint32_t graph_id, const Graph& graph);
  Status AddGraphClone(uint32_t graph_id, const Graph& graph, const std::map<AscendString, AscendString>& options);
  Status RemoveGraph(uint32_t graph_id);

  Status CompileGraph(uint32_t graph_id);
  /* Shapes and types of the inputs count, not their data. */
  Status CompileGraph(uint32_t graph_id, const std::vector<ge::Tensor>& inputs);
  CompiledGraphSummaryPtr GetCompiledGraphSummary(uint32_t graph_id);
  Status GetCompiledModel(uint32_t graph_id, ModelBufferData& model_buffer);
  bool IsGraphNeedRebuild(uint32_t graph_id);

  Status SetGraphConstMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status UpdateGraphFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status UpdateGraphRefreshableFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size);
  Status SetGraphFixedFeatureMemoryBaseWithType(uint32_t graph_id, MemoryType type, const void* const memory,
                                                size_t size);

  Status LoadGraph(const uint32_t graph_id, const std::map<AscendString, AscendString>& options, void* stream) const;
  /* Inputs anywhere, outputs in memory of the host. */
  Status RunGraph(uint32_t graph_id, const std::vector<gert::Tensor>& inputs, std::vector<gert::Tensor>& outputs);
  Status RunGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<gert::Tensor>& inputs,
                                 std::vector<gert::Tensor>& outputs);
  /* All failures come by the callback. */
  Status RunGraphAsync(uint32_t graph_id, const std::vector<gert::Tensor>& inputs, RunAsyncCallbackV2 callback);

  Status RegisterExternalAllocator(const void* const stream, AllocatorPtr allocator) const;
  Status UnregisterExternalAllocator(const void* const stream) const;
  uint64_t GetSessionId() const;

 private:
  uint64_t session_id_ = 0;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GE_GE_API_V2_H_
