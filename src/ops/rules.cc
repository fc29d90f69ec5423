// SPDX-License-Identifier: Apache-2.0
#include "ops/rules.h"

#include <algorithm>

namespace reprise::ops {
namespace {

using kernels::DType;

// Promotes all inputs into call.compute without looking at the outputs.
Status Promote(OpCall& call) {
  DType type = DType::kUndefined;
  for (const Operand& input : call.inputs) {
    if (input.tensor == nullptr || input.apart) continue;
    type = type == DType::kUndefined ? input.dtype : kernels::Promote(type, input.dtype);
    if (type == DType::kUndefined) {
      return call.Invalid(fmt::format("{} have no common type", call.InputTypes()),
                          "cast one input to the other's type");
    }
  }
  for (const Operand& input : call.inputs) {
    if (input.tensor == nullptr && !input.apart) type = kernels::PromoteWithScalar(type, input.dtype);
  }
  call.compute = type;
  return {};
}

}  // namespace

Status PromoteInputs(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(Promote(call));
  return call.CheckOutputsHold();
}

Status PromoteInputsAlone(OpCall& call) { return Promote(call); }

Status PromoteInputsToFloating(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(Promote(call));
  if (kernels::CategoryOf(call.compute) < kernels::Category::kFloating) call.compute = DType::kFloat;
  return call.CheckOutputsHold();
}

Status OneType(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  for (const Operand& output : call.outputs) {
    if (output.apart || output.dtype == call.compute) continue;
    return call.InvalidOperand(output, fmt::format("has {}, expected the type {} of {}", kernels::Name(output.dtype),
                                                   kernels::Name(call.compute), call.NameOf(call.inputs[0])));
  }
  return {};
}

Status TypeOfOutput(OpCall& call) {
  call.compute = call.outputs[0].dtype;
  return {};
}

Status TypeOfDTypeParam(OpCall& call) {
  call.compute = call.outputs[0].dtype;
  const auto wanted = static_cast<int32_t>(call.Type("dtype"));
  const int32_t given = call.outputs[0].type_number;
  if (wanted == given) return {};
  return call.Invalid(
      fmt::format("dtype is {}, but {} has {}", DTypeText(wanted), call.NameOf(call.outputs[0]), DTypeText(given)),
      "pass the type of the output");
}

Status TypeOfSelf(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  return {};
}

Status ComputeInFloat(OpCall& call) {
  call.compute = DType::kFloat;
  return {};
}

bool Broadcast(std::span<const int64_t> a, std::span<const int64_t> b, Dims& result) {
  if (a.size() < b.size()) std::swap(a, b);
  Dims wide(a.data(), a.size());
  for (size_t back = 1; back <= b.size(); ++back) {
    int64_t& size = wide[a.size() - back];
    const int64_t other = b[b.size() - back];
    if (size == 1) {
      size = other;
    } else if (other != 1 && other != size) {
      return false;
    }
  }
  result = wide;
  return true;
}

Status BroadcastInputs(OpCall& call) {
  const std::span<const int64_t> first = call.inputs[0].sizes();
  Dims shape(first.data(), first.size());
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const std::span<const int64_t> sizes = call.inputs[i].sizes();
    if (!Broadcast(shape, sizes, shape)) {
      return call.Invalid(fmt::format("{} do not broadcast: {} {} does not fit {}", call.InputShapes(),
                                      call.NameOf(call.inputs[i]), ShapeText(sizes), ShapeText(shape)),
                          "sizes, aligned at the last dim, must be equal or 1");
    }
  }
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(output, shape, [&] { return call.inputs.size() == 1 ? "the shape" : "the broadcast shape"; }));
  }
  return {};
}

Status AnyShape(OpCall&) { return {}; }

Status ShapeOfFirstInput(OpCall& call) {
  return call.CheckShape(call.outputs[0], call.inputs[0].sizes(), [] { return "the shape"; });
}

StatusOr<const Operand*> WantedGradient(const OpCall& call, size_t which) {
  static constexpr std::string_view kGradients[] = {"gradInput", "gradWeight", "gradBias"};
  const std::vector<bool> mask = call.Bools("outputMask");
  if (mask.size() != 3) {
    return call.Invalid(fmt::format("outputMask has {} entries, expected 3", mask.size()),
                        "one for each of gradInput, gradWeight and gradBias");
  }
  if (!mask[which]) return static_cast<const Operand*>(nullptr);
  const auto found = std::find_if(call.outputs.begin(), call.outputs.end(), [&](const Operand& output) {
    return call.op.params[output.param].name == kGradients[which];
  });
  if (found != call.outputs.end()) return &*found;
  return call.Invalid(fmt::format("{} is null, and entry {} of outputMask asks for it", kGradients[which], which),
                      "pass a tensor or false");
}

kernels::TensorRef AtLeastOneDim(kernels::TensorRef ref) {
  if (ref.rank == 0) {
    ref.rank = 1;
    ref.sizes[0] = 1;
    ref.strides[0] = 1;
  }
  return ref;
}

Status CheckIndexFits(const OpCall& call, const Operand& index, const Operand& tensor, int but_dim) {
  const kernels::TensorRef small = AtLeastOneDim(call.RefOf(index));
  const kernels::TensorRef large = AtLeastOneDim(call.RefOf(tensor));
  bool fits = small.rank == large.rank;
  if (index.tensor->count != 0) {
    for (int d = 0; fits && d < small.rank; ++d) fits = d == but_dim || small.sizes[d] <= large.sizes[d];
  }
  if (fits) return {};
  return call.InvalidOperand(
      index,
      fmt::format("has shape {}, which is not within {} {}{}", ShapeText(index.sizes()), call.NameOf(tensor),
                  ShapeText(tensor.sizes()), but_dim < 0 ? "" : fmt::format(" but for dim {}", but_dim)),
      "index needs as many dims, and no greater sizes");
}

}  // namespace reprise::ops
