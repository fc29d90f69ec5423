// SPDX-License-Identifier: Apache-2.0
#include "ops/named_lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <string>
#include <utility>

namespace reprise::ops {
namespace {

// Letters that have to change to make one word the other, however they are written.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const bool same =
          std::tolower(static_cast<unsigned char>(a[i])) == std::tolower(static_cast<unsigned char>(b[j]));
      const size_t next = std::min({row[j] + 1, row[j + 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = row[j + 1];
      row[j + 1] = next;
    }
  }
  return row.back();
}

// A type of graphs that has no row here.
Status OnlyInGraphs(const opdef::GraphOp& op) {
  if (const NamedReason* reason = FindReason(op.type); reason != nullptr) {
    return Error(kOpNotFound, fmt::format("the operator {} has no kernel: it {}", op.type, reason->why))
        .Culprit("parameter opType")
        .Hint(std::string(reason->next));
  }
  return Error(kOpNotFound, fmt::format("the operator {} is known to graphs, but has no kernel by type yet", op.type))
      .Culprit("parameter opType")
      .Hint(op.functions.empty() ? std::string("compute it with other operators")
                                 : "call " + std::string(op.functions.substr(0, op.functions.find(' '))) + " instead");
}

}  // namespace

Status NoSteps(std::string_view type) {
  if (const opdef::GraphOp* op = opdef::FindGraphOp(type); op != nullptr) return OnlyInGraphs(*op);
  constexpr size_t kShown = 100;
  const std::string_view shown = type.substr(0, kShown);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const NamedOp& row : NamedOps()) near.emplace_back(Distance(shown, row.type), row.type);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string names;
  for (size_t i = 0; i < 4; ++i) names.append(i == 0 ? "" : ", ").append(near[i].second);
  return Error(kOpNotFound, fmt::format("no operator has the type \"{}\"; near names: {}", shown, names))
      .Culprit("parameter opType")
      .Hint(fmt::format("use an aclnn function, or one of the {} types that docs/graph-operators.md lists",
                        NamedOps().size()));
}

NamedTensor OperandOf(int32_t dtype, std::vector<int64_t> dims, void* data, std::span<const char> constant) {
  NamedTensor tensor;
  tensor.dtype_number = dtype;
  tensor.dims = std::move(dims);
  tensor.data = data;
  tensor.constant.assign(constant.begin(), constant.end());
  // An empty list is a value, too.
  tensor.has_constant = !constant.empty() || std::find(tensor.dims.begin(), tensor.dims.end(), 0) != tensor.dims.end();
  return tensor;
}

bool HasSteps(std::string_view type) { return FindNamedOp(type) != nullptr; }

namespace {

// One side of the request in the order of the operands.
void Flatten(std::vector<std::vector<NamedTensor>>&& given, std::span<const opdef::Operand> operands,
             const char* parameter, bool is_output, std::vector<NamedTensor>* tensors, std::vector<size_t>* counts) {
  given.resize(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (is_output && given[i].empty() && !operands[i].is_list()) given[i].emplace_back().is_absent = true;
    counts->push_back(given[i].size());
    for (NamedTensor& tensor : given[i]) {
      tensor.parameter = parameter;
      tensor.index = static_cast<int>(tensors->size());
      tensors->push_back(std::move(tensor));
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<NamedCall>> LowerNamed(NamedRequest&& request) {
  const NamedOp* row = FindNamedOp(request.type);
  if (row == nullptr) return NoSteps(request.type);
  const opdef::GraphOp& op = *opdef::FindGraphOp(row->type);
  auto call = std::make_unique<NamedCall>(*row, op, request.arena);
  Flatten(std::move(request.inputs), op.inputs, "inputs", false, &call->inputs, &call->input_counts);
  Flatten(std::move(request.outputs), op.outputs, "outputs", true, &call->outputs, &call->output_counts);
  call->attributes = request.attributes;
  call->trusts_memory = true;
  REPRISE_RETURN_IF_ERROR(call->Bind());
  bool inferred = false;
  REPRISE_RETURN_IF_ERROR(call->Infer(true, &inferred));
  REPRISE_RETURN_IF_ERROR(call->CheckBuffers());
  REPRISE_RETURN_IF_ERROR(call->Lower());
  return call;
}

}  // namespace reprise::ops
