// SPDX-License-Identifier: Apache-2.0
//
// Rules of operators that go element by element, and of those whose outputs are like an input.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

// The one number that alpha or value is.
Status ExpectOneNumber(const InferContext& call, const InferTensor& tensor) {
  if (MayBeOneNumber(tensor.shape)) return {};
  return call.WrongInput(tensor, fmt::format("has the shape {}", tensor.shape.text()), "pass one number");
}

Status BroadcastAll(InferContext& call, std::string_view left_out) {
  Sizes shape = call.First().shape;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.op.inputs[i].is_value() || call.op.inputs[i].name == left_out) continue;
    for (const InferTensor& input : call.inputs[i]) REPRISE_RETURN_IF_ERROR(call.BroadcastWith(input, &shape));
  }
  return call.SetRest(shape);
}

Status ExpectSameShape(const InferContext& call, const InferTensor& tensor, const InferTensor& first) {
  bool fits = true;
  if (tensor.shape.has_rank() && first.shape.has_rank()) {
    fits = tensor.shape.rank() == first.shape.rank();
    for (size_t d = 0; fits && d < tensor.shape.rank(); ++d) fits = call.facts->Unify(tensor.shape[d], first.shape[d]);
  }
  if (fits) return {};
  return call.WrongInput(
      tensor, fmt::format("has the shape {}, but {} has {}", tensor.shape.text(), first.name, first.shape.text()),
      "pass tensors of one shape");
}

}  // namespace

Status None(InferContext& call) {  // rule
  return call.SetRest({});         // has no outputs
}

Status Scalar(InferContext& call) {  // rule
  return call.SetRest({});
}

// Each output has the shape of the first input, where the row names none.
Status Same(InferContext& call) {  // rule
  if (call.op.type == "Quantize") {
    constexpr std::pair<std::string_view, int32_t> kNames[] = {{"torch.qint8", 2},
                                                               {"torch.quint8", 4},
                                                               {"torch.qint32", 3},
                                                               {"torch.float8_e5m2", 35},
                                                               {"torch.float8_e4m3fn", 36}};
    for (const auto& [name, type] : kNames) {
      if (call.Text("dtype") == name) call.Out(0).dtype = type;
    }
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    for (size_t n = 0; n < call.outputs[i].size(); ++n) {
      InferResult& result = call.outputs[i][n];
      const bool from_list = call.op.outputs[i].is_list() && n < call.inputs[0].size();
      if (result.dtype == -1 && call.op.outputs[i].source == TypeSource::kRule) {
        result.dtype = result.wanted != -1 ? result.wanted : from_list ? call.inputs[0][n].dtype : call.First().dtype;
      }
      if (result.is_set) continue;
      REPRISE_RETURN_IF_ERROR(call.Set(result, from_list ? call.inputs[0][n].shape : call.First().shape));
    }
  }
  InferResult* const only = call.outputs.empty() || call.outputs[0].empty() ? nullptr : &call.outputs[0][0];
  if (only != nullptr && (call.op.type == "Identity" || call.op.type == "TensorMove" || call.op.type == "StopGradient"))
    only->value = call.First().value;
  return {};
}

namespace {

// Arithmetic of sizes, as graphs compute shapes from shapes. Lists of numbers and single ones.
void ComputeValue(InferContext& call) {
  using Compute = Dim (*)(const Dim&, const Dim&);
  constexpr std::pair<std::string_view, Compute> kKnown[] = {
      {"Add", [](const Dim& a, const Dim& b) { return a + b; }},
      {"Sub", [](const Dim& a, const Dim& b) { return a - b; }},
      {"Mul", [](const Dim& a, const Dim& b) { return a * b; }},
      {"FloorDiv", [](const Dim& a, const Dim& b) { return FloorDiv(a, b); }}};
  const auto* known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const auto& k) { return k.first == call.op.type; });
  if (known == std::end(kKnown) || !call.Out(0).shape.has_rank() || call.Out(0).shape.rank() > 1) return;
  const std::optional<std::vector<Dim>>& a = call.inputs[0][0].value;
  const std::optional<std::vector<Dim>>& b = call.inputs[1][0].value;
  if (!a.has_value() || !b.has_value() || a->empty() || b->empty()) return;
  const size_t count = std::max(a->size(), b->size());
  if ((a->size() != count && a->size() != 1) || (b->size() != count && b->size() != 1)) return;
  std::vector<Dim> value;
  for (size_t i = 0; i < count; ++i) {
    value.push_back(known->second((*a)[a->size() == 1 ? 0 : i], (*b)[b->size() == 1 ? 0 : i]));
  }
  call.Out(0).value = std::move(value);
}

}  // namespace

Status Broadcast(InferContext& call) {  // rule
  REPRISE_RETURN_IF_ERROR(BroadcastAll(call, ""));
  ComputeValue(call);
  return {};
}

// base^(scale * x + shift); base -1 is e.
Status Exp(InferContext& call) {  // rule
  const double base = call.Real("base");
  if (base <= 0 && base != -1) {
    return call.WrongAttribute("base", fmt::format("is {}", base), "pass a base above 0, or -1 for e");
  }
  return Same(call);
}

Status AddN(InferContext& call) {  // rule
  const std::span<const InferTensor> list = call.List("x");
  if (list.empty()) return call.WrongInputs("there are no tensors", "pass one at least");
  Sizes shape = list[0].shape;
  for (const InferTensor& input : list) {
    REPRISE_RETURN_IF_ERROR(ExpectSameShape(call, input, list[0]));
    if (!shape.has_rank()) shape = input.shape;
    for (size_t d = 0; input.shape.has_rank() && d < shape.rank(); ++d) shape[d] = Known(shape[d], input.shape[d]);
  }
  const auto count = static_cast<int64_t>(list.size());
  if (call.HasAttribute("N") && call.Int("N") != count) {
    return call.WrongAttribute("N", fmt::format("is {}, but there are {} tensors", call.Int("N"), count),
                               "set it to the number of inputs, or leave it out");
  }
  return call.SetRest(shape);
}

// x1 + alpha * x2 with alpha as a tensor of one element.
Status Axpy(InferContext& call) {  // rule
  if (call.Has("alpha")) REPRISE_RETURN_IF_ERROR(ExpectOneNumber(call, call.In("alpha")));
  return BroadcastAll(call, "alpha");
}

// The value broadcasts to the shape of the variable, which stays.
Status Assign(InferContext& call) {  // rule
  const InferTensor& ref = call.In("ref");
  const InferTensor& value = call.In("value");
  const std::optional<Sizes> both = opdef::Broadcast(ref.shape, value.shape, *call.facts);
  bool fits = both.has_value();
  if (fits && both->has_rank()) {
    fits = both->rank() == ref.shape.rank();
    for (size_t d = 0; fits && d < ref.shape.rank(); ++d) fits = IsEqual((*both)[d], ref.shape[d]) != Answer::kNo;
  }
  if (fits) return {};
  return call.WrongInput(value, fmt::format("has the shape {}, which does not broadcast to {} of ref",
                                            value.shape.text(), ref.shape.text()));
}

Status Cast(InferContext& call) {  // rule
  call.Out(0).value = call.Out(0).dtype == 3 || call.Out(0).dtype == 9 ? call.First().value : std::nullopt;
  return Same(call);
}

Status Complex(InferContext& call) {  // rule
  // float64 gives complex128 whatever the attribute says by default.
  if (!call.HasAttribute("Tout") && call.First().dtype == 11) call.Out(0).dtype = 17;
  return BroadcastAll(call, "");
}

Status ComplexPart(InferContext& call) {  // rule
  call.Out(0).dtype = call.First().dtype == 17 ? 11 : 0;
  return Same(call);
}

Status MaskedFill(InferContext& call) {  // rule
  REPRISE_RETURN_IF_ERROR(ExpectOneNumber(call, call.In("value")));
  return BroadcastAll(call, "value");
}

// Lists of one length; tensor n of the result is like tensor n of the first list.
Status Foreach(InferContext& call) {  // rule
  const std::vector<InferTensor>* first = nullptr;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.op.inputs[i].is_list()) continue;
    if (first == nullptr) first = &call.inputs[i];
    if (call.inputs[i].size() == first->size()) {
      for (size_t n = 0; n < first->size(); ++n)
        REPRISE_RETURN_IF_ERROR(ExpectSameShape(call, call.inputs[i][n], (*first)[n]));
      continue;
    }
    return call.WrongInputs(
        fmt::format("{} has {} tensors, expected {}", call.op.inputs[i].name, call.inputs[i].size(), first->size()),
        "pass lists of one length");
  }
  if (call.outputs[0].size() != first->size()) {
    return call.WrongOutput(0, fmt::format("has {} tensors, expected {}", call.outputs[0].size(), first->size()),
                            "pass as many outputs as inputs");
  }
  for (size_t n = 0; n < first->size(); ++n) {
    REPRISE_RETURN_IF_ERROR(call.Set(call.outputs[0][n], (*first)[n].shape));
    if (call.outputs[0][n].dtype == -1 || call.op.outputs[0].source == TypeSource::kVariable) {
      call.outputs[0][n].dtype = (*first)[n].dtype;
    }
  }
  return {};
}

Status ForeachNorm(InferContext& call) {  // rule
  return call.SetRest({});
}

// Writes to the tensors of a list, which the generic part has set.
Status ScatterList(InferContext& call) {  // rule
  return call.SetRest({});                // nothing is left to set
}

// Two halves along dim make one.
Status Halve(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0) return call.WrongInput(x, "has no dims", "pass a tensor whose dim can be halved");
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.WrapDim("dim", call.Int("dim"), x.shape.rank()));
  Sizes shape = x.shape;
  Dim& size = shape[static_cast<size_t>(dim)];
  if (size.is_number() && size.number() % 2 != 0) {
    return call.WrongInput(x, fmt::format("has the shape {}, whose dim {} is odd", x.shape.text(), dim),
                           "pass two halves of equal size along dim");
  }
  size = FloorDiv(size, 2);
  return call.SetRest(shape);
}

}  // namespace reprise::opdef::infer
