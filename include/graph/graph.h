/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of operators. */
#ifndef REPRISE_GRAPH_GRAPH_H_
#define REPRISE_GRAPH_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/attr_value.h"
#include "graph/ge_error_codes.h"
#include "graph/gnode.h"
#include "graph/operator.h"

#pragma GCC visibility push(default)

namespace ge {

struct GraphAccess;

/* Copies are the same graph; CopyFrom makes another one.

   A graph comes from operators (SetInputs, SetOutputs) or from a model (LoadFrom…). One that comes from operators
   follows them: what is set on an operator afterwards counts, until a function below that changes nodes or edges is
   called, or the graph is compiled. */
class Graph {
 public:
  enum class DumpFormat : uint32_t { kOnnx, kTxt, kReadable };

  Graph();
  explicit Graph(const char* name);
  explicit Graph(const AscendString& name);
  explicit Graph(const std::string& name) : Graph(name.c_str()) {}
  ~Graph() = default;

  Graph& SetInputs(const std::vector<Operator>& inputs);
  Graph& SetOutputs(const std::vector<Operator>& outputs);
  Graph& SetOutputs(const std::vector<std::pair<Operator, std::vector<size_t>>>& output_indexs);
  Graph& SetOutputs(const std::vector<std::pair<Operator, AscendString>>& outputs);
  Graph& SetOutputs(const std::vector<std::pair<ge::Operator, std::string>>& outputs) {
    std::vector<std::pair<Operator, AscendString>> named;
    for (const auto& output : outputs) named.emplace_back(output.first, AscendString(output.second.c_str()));
    return SetOutputs(named);
  }
  /* Operators that are computed although nothing needs their outputs. */
  Graph& SetTargets(const std::vector<Operator>& targets);
  graphStatus AddOp(const Operator& op);

  bool IsValid() const;
  graphStatus GetName(AscendString& name) const;
  std::string GetName() const {
    AscendString name;
    (void)GetName(name);
    return name.GetString();
  }
  /* The graph runs many times in one call; nothing here loops, so that this is kept and has no effect. */
  void SetNeedIteration(bool need_iteration);

  graphStatus FindOpByName(const char* name, Operator& op) const;
  graphStatus FindOpByName(const std::string& name, Operator& op) const { return FindOpByName(name.c_str(), op); }
  graphStatus FindOpByType(const char* type, std::vector<Operator>& ops) const;
  graphStatus FindOpByType(const std::string& type, std::vector<Operator>& ops) const {
    return FindOpByType(type.c_str(), ops);
  }
  graphStatus GetAllOpName(std::vector<AscendString>& op_name) const;
  graphStatus GetAllOpName(std::vector<std::string>& op_name) const {
    std::vector<AscendString> names;
    const graphStatus status = GetAllOpName(names);
    for (const AscendString& name : names) op_name.emplace_back(name.GetString());
    return status;
  }

  /* Nodes of this graph, and of those that its nodes call. */
  std::vector<GNode> GetAllNodes() const;
  /* Nodes of this graph. */
  std::vector<GNode> GetDirectNode() const;
  GNodePtr FindNodeByName(const AscendString& name) const;
  GNode AddNodeByOp(const Operator& op);
  graphStatus RemoveNode(GNode& node);
  graphStatus RemoveNode(GNode& node, bool contain_subgraph);
  graphStatus AddDataEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node, const int32_t dst_port_index);
  graphStatus AddControlEdge(GNode& src_node, GNode& dst_node);
  /* Both indexes -1: the control edge. */
  graphStatus RemoveEdge(GNode& src_node, const int32_t src_port_index, GNode& dst_node, const int32_t dst_port_index);

  graphStatus AddSubgraph(const Graph& subgraph);
  GraphPtr GetSubgraph(const char* name) const;
  std::vector<GraphPtr> GetAllSubgraphs() const;
  graphStatus RemoveSubgraph(const char* name);

  graphStatus CopyFrom(const Graph& src_graph);
  static GraphPtr ConstructFromInputs(const std::vector<Operator>& inputs, const AscendString& name);

  graphStatus SetAttr(const AscendString& name, const AttrValue& attr_value);
  graphStatus GetAttr(const AscendString& name, AttrValue& attr_value) const;

  /* Serialised models. A graph that could not be read stays as it was. */
  graphStatus SaveToFile(const char* file_name) const;
  graphStatus SaveToFile(const std::string& file_name) const { return SaveToFile(file_name.c_str()); }
  graphStatus LoadFromFile(const char* file_name);
  graphStatus LoadFromFile(const std::string& file_name) { return LoadFromFile(file_name.c_str()); }
  graphStatus SaveToMem(std::vector<uint8_t>& buffer) const;
  graphStatus LoadFromMem(const uint8_t* data, size_t size);
  graphStatus LoadFromSerializedModelArray(const void* serialized_model, size_t size);

  graphStatus Dump(DumpFormat format, std::ostream& o_stream) const;
  /* Into a file whose name holds `suffix`, in the folder of dumps (the working folder, if none is set). */
  graphStatus DumpToFile(DumpFormat format, const AscendString& suffix) const;

  struct Impl;  // src/ge/graph_impl.h

 private:
  friend class GNode;
  friend class Operator;
  friend struct GraphAccess;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_GRAPH_H_
