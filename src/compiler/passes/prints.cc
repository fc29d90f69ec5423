// SPDX-License-Identifier: Apache-2.0
//
// Text is no memory: what formats it and what prints it become one node over the tensors.
#include <optional>

#include "compiler/passes/functions.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

bool IsFormat(const Node& node) { return node.type == "StringFormat" && !node.is_removed; }

}  // namespace

Status JoinPrints(Graph& graph, PassContext& context) {
  std::optional<Rewriter> rewriter;
  const size_t count = graph.nodes.size();
  for (NodeId id = 0; id < count; ++id) {
    const Node& print = graph.at(id);
    if (print.is_removed || print.type != "PrintV2" || print.inputs.empty() || !print.inputs[0].source.is_set())
      continue;
    const NodeId format = print.inputs[0].source.node;
    if (!IsFormat(graph.at(format))) {
      context.Refused(print, "its text comes from no StringFormat");
      continue;
    }
    if (!rewriter) rewriter.emplace(graph);
    Node joined = graph.at(format);
    joined.name = rewriter->FreshName(print.name);
    joined.type = "FormatAndPrint";
    joined.op = opdef::FindGraphOp(joined.type);
    joined.outputs.clear();
    joined.notes = print.notes;
    joined.unread = nullptr;
    if (const auto stream = print.attributes.find("output_stream"); stream != print.attributes.end()) {
      joined.attributes.insert_or_assign(stream->first, stream->second);
    }
    joined.after.insert(joined.after.end(), print.after.begin(), print.after.end());
    const NodeId added = rewriter->Add(std::move(joined));
    rewriter->MoveFollowers(id, added);
    rewriter->Set({id, 0}, {});
    rewriter->Remove(id);
    if (rewriter->IsUnused(format)) rewriter->Remove(format);
    context.Changed();
  }
  return {};
}

}  // namespace reprise::compiler
