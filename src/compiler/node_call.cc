// SPDX-License-Identifier: Apache-2.0
#include "compiler/node_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/operands.h"
#include "compiler/storage.h"
#include "ops/named_lowering.h"

namespace reprise::compiler {
namespace {

constexpr size_t kNowhere = SIZE_MAX;
constexpr size_t kMostBytesOfNumber = 16;

}  // namespace

NodeCall::NodeCall(const Graph& graph, NodeId node, ops::Arena* arena) : graph_(graph), node_(graph.at(node)) {
  const ops::NamedOp* const steps = node_.op != nullptr ? ops::FindNamedOp(node_.type) : nullptr;
  if (steps == nullptr) {
    status_ = Named(ops::NoSteps(node_.type));
    return;
  }
  call_ = std::make_unique<ops::NamedCall>(*steps, *node_.op, arena);
  StatusOr<Operands> operands = BindOperands(graph, node);
  if (!operands.ok()) {
    status_ = std::move(operands).status();
    return;
  }
  places_.assign(node_.inputs.size(), kNowhere);
  is_value_.assign(node_.inputs.size(), false);
  for (size_t o = 0; o < operands.value().size(); ++o) {
    const opdef::Operand& operand = node_.op->inputs[o];
    const std::vector<uint32_t>& inputs = operands.value()[o];
    for (const uint32_t input : inputs) {
      ops::NamedTensor& tensor = call_->inputs.emplace_back();
      places_[input] = call_->inputs.size() - 1;
      Fill(tensor, graph_.TensorOf(node_.inputs[input].source));
      is_value_[input] = operand.is_value();
      const Node& source = graph_.at(node_.inputs[input].source.node);
      if (source.constant != nullptr) tensor.known = source.constant->bytes;
      // Numbers are told beyond those that the row asks for: functions take some as they are, such as probabilities.
      if (source.constant != nullptr && (operand.is_value() || source.constant->bytes.size() <= kMostBytesOfNumber)) {
        SetValue(input, source.constant->bytes);
      }
    }
    if (inputs.empty() && !operand.is_list()) call_->inputs.emplace_back();  // left out: its type is undefined
    call_->input_counts.push_back(operand.is_list() ? inputs.size() : 1);
  }
  size_t next = 0;
  for (const size_t count : OutputCounts(node_)) {
    for (size_t i = 0; i < count; ++i, ++next) {
      ops::NamedTensor& tensor = call_->outputs.emplace_back();
      if (next < node_.outputs.size()) {
        Fill(tensor, node_.outputs[next].tensor);
      } else {
        tensor.is_absent = true;
      }
    }
    call_->output_counts.push_back(count);
  }
  const auto number = [](std::vector<ops::NamedTensor>& tensors, const char* parameter) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].parameter = parameter;
      tensors[i].index = static_cast<int>(i);
    }
  };
  number(call_->inputs, "inputs");
  number(call_->outputs, "outputs");
  call_->attributes = &node_.attributes;
  call_->trusts_memory = true;
}

void NodeCall::Fill(ops::NamedTensor& tensor, const Tensor& known) const {
  tensor.dtype_number = known.dtype;
  tensor.format = known.format;
  tensor.dims = known.shape.numbers();
  tensor.has_buffer = true;
  tensor.buffer_bytes = BytesOf(known).value_or(0);
}

void NodeCall::SetInput(uint32_t input, void* data, std::span<const int64_t> strides) {
  if (places_[input] == kNowhere) return;
  ops::NamedTensor& tensor = call_->inputs[places_[input]];
  tensor.data = data;
  tensor.strides.assign(strides.begin(), strides.end());
}

void NodeCall::SetOutput(uint32_t output, void* data, uint64_t bytes, std::span<const int64_t> strides) {
  ops::NamedTensor& tensor = call_->outputs[output];
  tensor.data = data;
  tensor.buffer_bytes = bytes;
  tensor.strides.assign(strides.begin(), strides.end());
}

void NodeCall::LeaveOut(uint32_t output) {
  call_->outputs[output].is_absent = true;
  call_->outputs[output].has_buffer = false;
}

void NodeCall::SetValue(uint32_t input, std::span<const char> bytes) {
  ops::NamedTensor& tensor = call_->inputs[places_[input]];
  tensor.has_constant = true;
  tensor.constant.assign(bytes.begin(), bytes.end());
}

Status NodeCall::Named(Status&& status) const {
  if (status.ok()) return {};
  const Status::Detail& detail = status.detail();
  return Error(detail.code, fmt::format("node {}: {}", node_.name, detail.what))
      .Culprit(fmt::format("graph {}, {}", graph_.name, detail.culprit))
      .Hint(detail.hint);
}

Status NodeCall::Infer() {
  bool inferred = false;
  Status status = call_->Bind();
  if (status.ok()) status = call_->Infer(true, &inferred);
  return Named(std::move(status));
}

Status NodeCall::Plan() {
  Status status = call_->CheckBuffers();
  if (status.ok()) status = call_->Lower();
  return Named(std::move(status));
}

bool IsValueInput(const Graph& graph, NodeId node, uint32_t input) {
  if (graph.at(node).op == nullptr) return false;
  StatusOr<Operands> operands = BindOperands(graph, node);
  if (!operands.ok()) return false;
  for (size_t o = 0; o < operands.value().size(); ++o) {
    const std::vector<uint32_t>& inputs = operands.value()[o];
    if (std::find(inputs.begin(), inputs.end(), input) != inputs.end()) return graph.at(node).op->inputs[o].is_value();
  }
  return false;
}

}  // namespace reprise::compiler
