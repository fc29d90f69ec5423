// SPDX-License-Identifier: Apache-2.0
#include "engine/result_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/numbers.h"
#include "opdef/graph_op.h"

namespace reprise::engine {
namespace {

// As the option spells them, with the numbers of aclDataType.
constexpr std::pair<std::string_view, int32_t> kTypes[] = {{"FP32", 0},  {"FP16", 1},    {"INT8", 2},   {"INT32", 3},
                                                           {"UINT8", 4}, {"INT16", 6},   {"UINT16", 7}, {"UINT32", 8},
                                                           {"INT64", 9}, {"UINT64", 10}, {"DOUBLE", 11}};

}  // namespace

Status CastResults(compiler::Graph& graph, std::string_view type) {
  if (type.empty()) return {};
  const auto known = std::ranges::find(kTypes, type, [](const auto& entry) { return entry.first; });
  if (known == std::end(kTypes)) {
    return Fail(kParamInvalid, kBadValue, fmt::format("ge.outputDatatype is {}, which results cannot have here", type))
        .Culprit("option ge.outputDatatype")
        .Hint("use FP32, FP16, DOUBLE, or a type of integers such as INT32 or UINT8");
  }
  for (size_t i = 0; i < graph.results.size(); ++i) {
    const compiler::Tensor& tensor = graph.TensorOf(graph.results[i]);
    if (tensor.dtype == known->second) continue;
    compiler::Node cast;
    for (size_t number = i; cast.name.empty() || graph.Find(cast.name) != compiler::kNoNode; ++number) {
      cast.name = fmt::format("output_{}_as_{}", number, type);
    }
    cast.type = "Cast";
    cast.op = opdef::FindGraphOp(cast.type);
    cast.inputs.push_back({"x", graph.results[i]});
    cast.outputs.push_back({"y", {known->second, tensor.format, tensor.shape}});
    cast.attributes["dst_type"] = int64_t{known->second};
    graph.results[i] = {graph.Add(std::move(cast)), 0};
  }
  return {};
}

}  // namespace reprise::engine
