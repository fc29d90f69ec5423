// SPDX-License-Identifier: Apache-2.0
//
// From models of front ends (api/ge.proto) to graphs of the compiler.
//
// Edges are texts: "name:0" for a value, "name:-1" for order, "" for an input that is left out. The k-th value pairs
// with the k-th description of an input, whose name is that of the operand. Data nodes are numbered by their attribute
// `index`; the inputs of the one NetOutput are the results. What a graph has no place for stays with it as bytes
// (Unread), so that a model that is read and written again is the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// The root graph of a serialised model, verified; its subgraphs hang below the nodes that call them. Refuses (100000)
/// bytes that are no model, edges to nothing, numbers of inputs with gaps, and what Verify refuses, with node and port.
StatusOr<std::unique_ptr<Graph>> ImportBytes(std::string_view bytes);
/// Of a model, or of one graph, in protobuf's text form. Refuses (100006) other texts, with line and column.
StatusOr<std::unique_ptr<Graph>> FromProtoText(std::string_view text);

/// A serialised model in protobuf's text form, and back; without a look at what it says.
StatusOr<std::string> TextOfModel(std::string_view bytes);
StatusOr<std::string> ModelOfText(std::string_view text);

/// aclDataType of a number of DataType in api/ge.proto; -1 for one that it does not have.
int32_t TypeOfProto(int type);
/// The other way round; 0 (DT_UNDEFINED) for one that it does not have.
int ProtoOfType(int32_t dtype);
/// "NCHW"; "FORMAT_63" for a number without a name. Sub-formats, in the upper bits, have no names of their own.
std::string FormatName(int32_t format);
/// -1 for a text that is no name of a format.
int32_t FormatOfName(std::string_view name);

}  // namespace reprise::compiler
