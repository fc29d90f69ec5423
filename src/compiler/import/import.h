// SPDX-License-Identifier: Apache-2.0
//
// From models of front ends (api/ge.proto) to graphs of the compiler.
//
// Edges are texts: "name:0" for a value, "name:-1" for order, "" for an input that is left out. The k-th value pairs
// with the k-th description of an input, whose name is that of the operand. Data nodes are numbered by their attribute
// `index`; the inputs of the one NetOutput are the results.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "compiler/graph.h"

namespace ge::proto {
class ModelDef;
}

namespace reprise::compiler {

/// The root graph, verified; its subgraphs hang below the nodes that call them. Refuses (100000) bytes that are no
/// model, edges to nothing, numbers of inputs with gaps, and what Verify refuses, with node and port.
StatusOr<std::unique_ptr<Graph>> Import(const ge::proto::ModelDef& model);
/// Of a serialised model.
StatusOr<std::unique_ptr<Graph>> ImportBytes(std::string_view bytes);

/// aclDataType of a number of ge.proto.DataType; -1 for one that it does not have.
int32_t TypeOfProto(int type);
/// The other way round; 0 (DT_UNDEFINED) for one that it does not have.
int ProtoOfType(int32_t dtype);

}  // namespace reprise::compiler
