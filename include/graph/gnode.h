/* SPDX-License-Identifier: Apache-2.0 */
/* A node of a graph. */
#ifndef REPRISE_GRAPH_GNODE_H_
#define REPRISE_GRAPH_GNODE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/attr_value.h"
#include "graph/ge_error_codes.h"
#include "graph/tensor.h"
#include "graph/types.h"

#pragma GCC visibility push(default)

namespace ge {

class GNode;
class Graph;
struct GraphAccess;
using GNodePtr = std::shared_ptr<GNode>;
using GraphPtr = std::shared_ptr<Graph>;

/* Copies are the same node. Functions answer GRAPH_FAILED once the node is removed, and for one that was made empty. */
class GNode {
 public:
  GNode();

  graphStatus GetType(AscendString& type) const;
  graphStatus GetName(AscendString& name) const;

  /* The node and output that an input comes from; null and -1 where it is left out. */
  std::pair<GNodePtr, int32_t> GetInDataNodesAndPortIndexs(const int32_t index) const;
  std::vector<GNodePtr> GetInControlNodes() const;
  /* The nodes and inputs that an output goes to. */
  std::vector<std::pair<GNodePtr, int32_t>> GetOutDataNodesAndPortIndexs(const int32_t index) const;
  std::vector<GNodePtr> GetOutControlNodes() const;

  size_t GetInputsSize() const;
  size_t GetOutputsSize() const;
  graphStatus GetInputDesc(const int32_t index, TensorDesc& tensor_desc) const;
  graphStatus UpdateInputDesc(const int32_t index, const TensorDesc& tensor_desc);
  graphStatus GetOutputDesc(const int32_t index, TensorDesc& tensor_desc) const;
  graphStatus UpdateOutputDesc(const int32_t index, const TensorDesc& tensor_desc);
  graphStatus GetInputIndexByName(const AscendString& name, int32_t& index);
  graphStatus GetOutputIndexByName(const AscendString& name, int32_t& index);
  /* The value of an input that comes from a constant. */
  graphStatus GetInputConstData(const int32_t index, Tensor& data) const;
  graphStatus GetDynamicInputIndexesByName(const AscendString& name, std::vector<int32_t>& indexes);
  graphStatus GetDynamicOutputIndexesByName(const AscendString& name, std::vector<int32_t>& indexes);

  bool HasAttr(const AscendString& name);
  graphStatus GetAttr(const AscendString& name, AttrValue& attr_value) const;
  graphStatus SetAttr(const AscendString& name, AttrValue& attr_value) const;

  graphStatus GetAttr(const AscendString& name, int64_t& attr_value) const;
  graphStatus SetAttr(const AscendString& name, int64_t& attr_value) const;
  graphStatus GetAttr(const AscendString& name, int32_t& attr_value) const;
  graphStatus SetAttr(const AscendString& name, int32_t& attr_value) const;
  graphStatus GetAttr(const AscendString& name, uint32_t& attr_value) const;
  graphStatus SetAttr(const AscendString& name, uint32_t& attr_value) const;
  graphStatus GetAttr(const AscendString& name, float& attr_value) const;
  graphStatus SetAttr(const AscendString& name, float& attr_value) const;
  graphStatus GetAttr(const AscendString& name, bool& attr_value) const;
  graphStatus SetAttr(const AscendString& name, bool& attr_value) const;
  graphStatus GetAttr(const AscendString& name, AscendString& attr_value) const;
  graphStatus SetAttr(const AscendString& name, AscendString& attr_value) const;
  graphStatus GetAttr(const AscendString& name, Tensor& attr_value) const;
  graphStatus SetAttr(const AscendString& name, Tensor& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<int64_t>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<int64_t>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<int32_t>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<int32_t>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<uint32_t>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<uint32_t>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<float>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<float>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<bool>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<bool>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<AscendString>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<AscendString>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<Tensor>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<Tensor>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, OpBytes& attr_value) const;
  graphStatus SetAttr(const AscendString& name, OpBytes& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<std::vector<int64_t>>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<std::vector<int64_t>>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, std::vector<DataType>& attr_value) const;
  graphStatus SetAttr(const AscendString& name, std::vector<DataType>& attr_value) const;
  graphStatus GetAttr(const AscendString& name, DataType& attr_value) const;
  graphStatus SetAttr(const AscendString& name, DataType& attr_value) const;

  graphStatus GetSubgraph(uint32_t index, GraphPtr& graph) const;
  graphStatus GetALLSubgraphs(std::vector<GraphPtr>& graph_list) const;
  graphStatus SetSubgraph(uint32_t index, const Graph& graph);

  struct Impl;  // src/ge/graph_impl.h

 private:
  friend class Graph;
  friend struct GraphAccess;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_GNODE_H_
