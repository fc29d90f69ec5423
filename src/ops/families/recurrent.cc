// SPDX-License-Identifier: Apache-2.0
//
// LSTM and GRU over sequences, and their gradients (kernels/recurrent.h): for each layer and direction a product of the
// whole input with the weight, then the steps.
#include "kernels/recurrent.h"

#include "ops/computations.h"
#include "ops/families/recurrent_parts.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace recurrent {
namespace {

using kernels::DType;
using kernels::RecurrentArgs;

// ---- The network ----

struct Network {
  bool is_gru = false;
  bool has_bias = false;
  bool batch_first = false;
  int64_t layers = 0;
  int64_t directions = 1;
  int64_t steps = 0;
  int64_t batch = 0;
  int64_t hidden = 0;
  int64_t rows = 0;  // steps * batch, or those of the packed sequence
  DType math = DType::kFloat;
  const Operand* batch_sizes = nullptr;

  int64_t width() const { return (is_gru ? 3 : 4) * hidden; }
  int64_t stacks() const { return layers * directions; }
  size_t each() const { return has_bias ? 4 : 2; }
};

bool IsGru(const OpCall& call) { return call.op.computation.code != 0; }

const Operand* BatchSizesOf(const OpCall& call) {
  for (const std::string_view name : {"batchSizes", "batchSizesOptional"}) {
    if (!call.Has(name)) continue;
    const Operand* const sizes = call.Find(name);
    return sizes != nullptr && sizes->tensor->count != 0 ? sizes : nullptr;
  }
  return nullptr;
}

// The state before the first step: of LSTM a list of h and c, of GRU one tensor.
const Operand* FirstState(const OpCall& call, size_t which) {
  if (IsGru(call)) return which == 0 ? call.Find("hx") : nullptr;
  const std::span<const Operand> list = call.List("hx");
  return which < list.size() ? &list[which] : nullptr;
}

StatusOr<Network> NetworkOf(const OpCall& call) {
  Network net;
  net.is_gru = IsGru(call);
  net.has_bias = call.Bool("hasBias");
  net.batch_first = call.Bool("batchFirst");
  net.layers = call.Int("numLayers");
  net.directions = call.Bool(net.is_gru ? "bidirection" : "bidirectional") ? 2 : 1;
  net.math = call.compute == DType::kDouble ? DType::kDouble : DType::kFloat;
  net.batch_sizes = BatchSizesOf(call);
  const std::span<const Operand> params = call.List("params");
  if (net.layers < 1 || net.layers > INT16_MAX || params.size() != static_cast<size_t>(net.stacks()) * net.each()) {
    return call.Invalid(fmt::format("params has {} tensors, expected {} for each direction of numLayers = {}",
                                    params.size(), net.each(), net.layers),
                        "pass the weights of input and hidden state, then with hasBias their biases");
  }
  const Operand& input = call.Get("input");
  const Operand& weight = params[1];
  if (weight.rank() != 2) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected 2 dims", ShapeText(weight.sizes())));
  }
  net.hidden = weight.sizes()[1];
  if (net.batch_sizes != nullptr) {
    if (net.batch_sizes->rank() != 1 || input.rank() != 2) {
      return call.InvalidOperand(
          input, fmt::format("has shape {}, expected [rows, features] beside batchSizes", ShapeText(input.sizes())));
    }
    const Operand* const first = FirstState(call, 0);
    const Operand& last = call.Has("hy") ? call.Get("hy") : call.Get("dhPrevOut");
    const Operand& state = first != nullptr ? *first : last;
    if (state.rank() != 3) {
      return call.InvalidOperand(
          state, fmt::format("has shape {}, expected [layers, batch, hidden]", ShapeText(state.sizes())));
    }
    net.batch_first = false;
    net.steps = net.batch_sizes->sizes()[0];
    net.batch = state.sizes()[1];
    net.rows = input.sizes()[0];
    return net;
  }
  if (input.rank() != 3) {
    return call.InvalidOperand(input, fmt::format("has shape {}, expected 3 dims", ShapeText(input.sizes())),
                               "pass [steps, batch, features], or the other way round with batchFirst");
  }
  net.steps = input.sizes()[net.batch_first ? 1 : 0];
  net.batch = input.sizes()[net.batch_first ? 0 : 1];
  net.rows = net.steps * net.batch;
  return net;
}

Status CheckParams(OpCall& call, const Network& net, std::span<const Operand> params, int64_t features) {
  for (int64_t s = 0; s < net.stacks(); ++s) {
    const int64_t width = s / net.directions == 0 ? features : net.directions * net.hidden;
    const int64_t shapes[3][2] = {{net.width(), width}, {net.width(), net.hidden}, {net.width(), 0}};
    for (size_t i = 0; i < net.each(); ++i) {
      const Operand& param = params[static_cast<size_t>(s) * net.each() + i];
      const std::span<const int64_t> expected(shapes[std::min<size_t>(i, 2)], i < 2 ? 2 : 1);
      REPRISE_RETURN_IF_ERROR(call.CheckShape(param, expected, [] { return "of its place in the network"; }));
    }
  }
  return {};
}

// Sequences [T, B, n], as batchFirst has it, or packed [rows, n].
Status CheckSequence(OpCall& call, const Network& net, const Operand* operand, int64_t n, bool may_swap) {
  if (operand == nullptr) return {};
  const auto what = [] { return "that of the sequence,"; };
  const int64_t packed[] = {net.rows, n};
  const bool is_padded = net.rows == net.steps * net.batch;
  if (net.batch_sizes != nullptr && (operand->rank() == 2 || !is_padded))
    return call.CheckShape(*operand, packed, what);
  const int64_t plain[] = {net.steps, net.batch, n};
  const int64_t swapped[] = {net.batch, net.steps, n};
  return call.CheckShape(*operand, may_swap && net.batch_first ? swapped : plain, what);
}

Status CheckStates(OpCall& call, const Network& net, const Operand* operand) {
  if (operand == nullptr) return {};
  const int64_t shape[] = {net.stacks(), net.batch, net.hidden};
  return call.CheckShape(*operand, shape, [] { return "[layers * directions, batch, hidden]:"; });
}

constexpr std::string_view kLstmLists[2][7] = {{"iOut", "jOut", "fOut", "oOut", "hOut", "cOut", "tanhCOut"},
                                               {"i", "g", "f", "o", "h", "c", "tanhc"}};
constexpr std::string_view kGruLists[2][5] = {{"rOut", "zOut", "nOut", "hnOut", "hOut"}, {"r", "z", "n", "hn", "h"}};

std::span<const std::string_view> ListsOf(const OpCall& call, bool gradient) {
  if (IsGru(call)) return kGruLists[gradient ? 1 : 0];
  return kLstmLists[gradient ? 1 : 0];
}

// What the steps save has one tensor for each direction of each layer, or nobody wants it.
Status CheckLists(OpCall& call, const Network& net, bool gradient) {
  for (const std::string_view name : ListsOf(call, gradient)) {
    const std::span<const Operand> list = call.List(name);
    if (list.empty() && !gradient) continue;
    if (!gradient && !call.Bool("train")) continue;
    if (list.size() != static_cast<size_t>(net.stacks())) {
      return call.Invalid(fmt::format("{} has {} tensors, expected {}", name, list.size(), net.stacks()),
                          "pass one for each direction of each layer");
    }
    for (const Operand& operand : list) {
      REPRISE_RETURN_IF_ERROR(CheckSequence(call, net, &operand, net.hidden, false));
    }
  }
  return {};
}

Status RecurrentShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Network net, NetworkOf(call));
  const Operand& input = call.Get("input");
  REPRISE_RETURN_IF_ERROR(CheckParams(call, net, call.List("params"), input.sizes().back()));
  for (size_t i = 0; i < 2; ++i) REPRISE_RETURN_IF_ERROR(CheckStates(call, net, FirstState(call, i)));
  if (!net.is_gru && !call.List("hx").empty() && call.List("hx").size() != 2) {
    return call.Invalid(fmt::format("hx has {} tensors, expected 2", call.List("hx").size()),
                        "pass the hidden and the cell state, or null");
  }
  const bool gradient = call.Has("dxOut");
  REPRISE_RETURN_IF_ERROR(CheckLists(call, net, gradient));
  for (const std::string_view name : {"hy", "cy", "dh", "dc", "dhPrevOut", "dcPrevOut"}) {
    if (call.Has(name)) REPRISE_RETURN_IF_ERROR(CheckStates(call, net, call.Find(name)));
  }
  const int64_t features = net.directions * net.hidden;
  if (!gradient) return CheckSequence(call, net, &call.Get("output"), features, true);
  REPRISE_RETURN_IF_ERROR(CheckSequence(call, net, call.Find("dy"), features, true));
  REPRISE_RETURN_IF_ERROR(CheckSequence(call, net, call.Find("dxOut"), input.sizes().back(), true));
  const std::span<const Operand> results = call.List("dparamsOut");
  if (results.size() != call.List("params").size()) {
    return call.Invalid(fmt::format("dparamsOut has {} tensors, params {}", results.size(), call.List("params").size()),
                        "pass one result for each parameter");
  }
  return CheckParams(call, net, results, input.sizes().back());
}

Status CheckDropout(const OpCall& call, const Network& net) {
  if (!call.Has("dropout") || call.Real("dropout") == 0 || net.layers == 1) return {};
  if (call.Has("train") && !call.Bool("train")) return {};
  return call.Invalid(
      fmt::format("dropout is {}, which takes random numbers that no parameter seeds", call.Real("dropout")),
      "pass 0, and put a dropout of its own between networks of one layer each");
}

// Attributes that every launch of a network shares.
RecurrentArgs SettingsOf(const Network& net, int64_t direction) {
  RecurrentArgs settings;
  settings.is_gru = net.is_gru;
  settings.reverse = direction == 1;
  settings.steps = net.steps;
  settings.batch = net.batch;
  settings.hidden = net.hidden;
  return settings;
}

// The input of the whole network as rows [rows, features].
Part InputRows(OpCall& call, const Network& net) {
  Part input = PartOf(call, &call.Get("input"));
  if (net.batch_first) input = Swapped(input, 0, 1);
  Part flat = input;
  if (Flatten(flat.ref)) return flat;
  const int64_t features = input.ref.sizes[2];
  Part rows = NewPart(call, net.math, {net.steps, net.batch, features});
  AddCopyOf(call, rows, input);
  Flatten(rows.ref);
  return rows;
}

Part ListPart(const OpCall& call, std::string_view name, int64_t index) {
  const std::span<const Operand> list = call.List(name);
  return list.empty() ? Part() : PartOf(call, &list[static_cast<size_t>(index)]);
}

Part StatePart(const OpCall& call, const Operand* states, int64_t index) {
  return states == nullptr ? Part() : EntryOfFirst(PartOf(call, states), index);
}

Part ParamPart(const OpCall& call, const Network& net, std::string_view list, int64_t stack, size_t which) {
  return PartOf(call, &call.List(list)[static_cast<size_t>(stack) * net.each() + which]);
}

// The columns of direction `d` of a sequence [.., directions * hidden].
Part DirectionOf(const Part& part, const Network& net, int64_t d) {
  if (part.operand == nullptr && !part.is_temporary) return part;
  return Narrow(part, part.ref.rank - 1, d * net.hidden, net.hidden);
}

Part SequencePart(const OpCall& call, const Network& net, const Operand* operand) {
  const Part part = PartOf(call, operand);
  return operand != nullptr && net.batch_first ? Swapped(part, 0, 1) : part;
}

void AddLayer(OpCall& call, const Network& net, int64_t stack, const Part& input, const Part& output) {
  const int64_t direction = stack % net.directions;
  const Part gates = NewPart(call, net.math, {net.rows, net.width()});
  const Part bias = net.has_bias ? ParamPart(call, net, "params", stack, 2) : Part();
  // To all gates of an LSTM it is added with the other bias; a GRU has a gate that takes it alone.
  Part addend;
  if (net.is_gru && net.has_bias) {  // [width] as [1, width]
    addend = bias;
    addend.ref.rank = 2;
    addend.ref.sizes[1] = addend.ref.sizes[0];
    addend.ref.strides[1] = addend.ref.strides[0];
    addend.ref.sizes[0] = 1;
    addend.ref.strides[0] = 0;
  }
  AddProduct(call, gates, input, Swapped(ParamPart(call, net, "params", stack, 0), 0, 1), addend);
  using A = RecurrentArgs;
  const bool saves = call.Bool("train");
  const auto list = [&](std::string_view name) { return saves ? ListPart(call, name, stack) : Part(); };
  std::vector<StepPart> results = {
      {&A::y, -1, output}, {&A::last_h, -1, StatePart(call, &call.Get("hy"), stack)}, {&A::h, -1, list("hOut")}};
  const std::span<const std::string_view> lists = ListsOf(call, false);
  for (int k = 0; k < kernels::kMostGates; ++k) results.push_back({nullptr, k, list(lists[static_cast<size_t>(k)])});
  if (!net.is_gru) {
    results.push_back({&A::last_c, -1, StatePart(call, &call.Get("cy"), stack)});
    results.push_back({&A::c, -1, list("cOut")});
    results.push_back({&A::tanh_c, -1, list("tanhCOut")});
  }
  const StepPart inputs[] = {{&A::input_part, -1, gates},
                             {&A::weight, -1, Swapped(ParamPart(call, net, "params", stack, 1), 0, 1)},
                             {&A::bias, -1, net.has_bias ? ParamPart(call, net, "params", stack, 3) : Part()},
                             {&A::input_bias, -1, net.is_gru ? Part() : bias},
                             {&A::first_h, -1, StatePart(call, FirstState(call, 0), stack)},
                             {&A::first_c, -1, StatePart(call, FirstState(call, 1), stack)},
                             {&A::batch_sizes, -1, PartOf(call, net.batch_sizes)}};
  AddSteps(call, SettingsOf(net, direction), results, inputs);
}

Status LowerRecurrent(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Network net, NetworkOf(call));
  REPRISE_RETURN_IF_ERROR(CheckDropout(call, net));
  Part input = InputRows(call, net);
  for (int64_t layer = 0; layer < net.layers; ++layer) {
    const bool is_last = layer + 1 == net.layers;
    const Part output = is_last ? SequencePart(call, net, &call.Get("output"))
                                : NewPart(call, net.math, {net.rows, net.directions * net.hidden});
    Part rows = output;
    if (!is_last && net.batch_sizes == nullptr) {  // as [steps, batch, ..]
      const int64_t width = net.directions * net.hidden;
      rows.ref = kernels::MakeContiguous(output.ref.data, output.ref.dtype, {net.steps, net.batch, width});
    }
    for (int64_t d = 0; d < net.directions; ++d) {
      AddLayer(call, net, layer * net.directions + d, input, DirectionOf(rows, net, d));
    }
    input = output;
  }
  return {};
}

// ---- Gradients ----

// The input of a layer as rows: that of the network, or what the layer below saved.
Part LayerInput(OpCall& call, const Network& net, int64_t layer, const Part& input) {
  if (layer == 0) return input;
  const int64_t width = net.directions * net.hidden;
  Part rows = NewPart(call, net.math, {net.rows, width});
  for (int64_t d = 0; d < net.directions; ++d) {
    const Part saved = ListPart(call, "h", (layer - 1) * net.directions + d);
    Part shaped = rows;
    if (saved.ref.rank == 3) {
      shaped.ref = kernels::MakeContiguous(rows.ref.data, rows.ref.dtype, {net.steps, net.batch, width});
    }
    AddCopyOf(call, DirectionOf(shaped, net, d), saved);
  }
  return rows;
}

// Adds what one direction of a layer contributes; of_input = its gradient + addend.
void AddLayerGradient(OpCall& call, const Network& net, int64_t stack, const Part& input, const Part& of_output,
                      const Part& of_input, const Part& addend) {
  const Part of_gates = NewPart(call, net.math, {net.rows, net.width()});
  const Part of_hidden = net.is_gru ? NewPart(call, net.math, {net.rows, net.width()}) : of_gates;
  const Part before = NewPart(call, net.math, {net.rows, net.hidden});
  const Part weight = NewPart(call, net.math, {net.width(), net.hidden});
  AddCopyOf(call, weight, ParamPart(call, net, "params", stack, 1));
  using A = RecurrentArgs;
  std::vector<StepPart> results = {{&A::of_input_part, -1, of_gates},
                                   {&A::h_before, -1, before},
                                   {&A::of_first_h, -1, StatePart(call, call.Find("dhPrevOut"), stack)}};
  if (net.is_gru) {
    results.push_back({&A::of_hidden_part, -1, of_hidden});
  } else {
    results.push_back({&A::of_first_c, -1, StatePart(call, call.Find("dcPrevOut"), stack)});
  }
  std::vector<StepPart> inputs = {{&A::weight, -1, weight},
                                  {&A::of_y, -1, of_output},
                                  {&A::of_last_h, -1, StatePart(call, call.Find("dh"), stack)},
                                  {&A::first_h, -1, StatePart(call, FirstState(call, 0), stack)},
                                  {&A::first_c, -1, StatePart(call, FirstState(call, 1), stack)},
                                  {&A::h, -1, ListPart(call, "h", stack)},
                                  {&A::batch_sizes, -1, PartOf(call, net.batch_sizes)}};
  const std::span<const std::string_view> lists = ListsOf(call, true);
  for (int k = 0; k < kernels::kMostGates; ++k) {
    inputs.push_back({nullptr, k, ListPart(call, lists[static_cast<size_t>(k)], stack)});
  }
  if (!net.is_gru) {
    inputs.push_back({&A::of_last_c, -1, StatePart(call, call.Find("dc"), stack)});
    inputs.push_back({&A::c, -1, ListPart(call, "c", stack)});
    inputs.push_back({&A::tanh_c, -1, ListPart(call, "tanhc", stack)});
  }
  AddGradients(call, SettingsOf(net, stack % net.directions), results, inputs);
  AddProduct(call, of_input, of_gates, ParamPart(call, net, "params", stack, 0), addend);
  AddProduct(call, ParamPart(call, net, "dparamsOut", stack, 0), Swapped(of_gates, 0, 1), input, {});
  AddProduct(call, ParamPart(call, net, "dparamsOut", stack, 1), Swapped(of_hidden, 0, 1), before, {});
  if (!net.has_bias) return;
  AddSumOfRows(call, ParamPart(call, net, "dparamsOut", stack, 2), of_gates);
  AddSumOfRows(call, ParamPart(call, net, "dparamsOut", stack, 3), of_hidden);
}

Status LowerRecurrentBackward(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Network net, NetworkOf(call));
  REPRISE_RETURN_IF_ERROR(CheckDropout(call, net));
  const Part network_input = InputRows(call, net);
  const int64_t features = network_input.ref.sizes[1];
  const int64_t width = net.directions * net.hidden;
  Part of_output = SequencePart(call, net, call.Find("dy"));
  for (int64_t layer = net.layers - 1; layer >= 0; --layer) {
    const Part input = LayerInput(call, net, layer, network_input);
    Part of_input;
    for (int64_t d = 0; d < net.directions; ++d) {
      const Part result = NewPart(call, net.math, {net.rows, layer == 0 ? features : width});
      AddLayerGradient(call, net, layer * net.directions + d, input, DirectionOf(of_output, net, d), result, of_input);
      of_input = result;
    }
    if (net.batch_sizes == nullptr) {
      of_input.ref = kernels::MakeContiguous(of_input.ref.data, of_input.ref.dtype,
                                             {net.steps, net.batch, layer == 0 ? features : width});
    }
    of_output = of_input;
  }
  AddCopyOf(call, SequencePart(call, net, &call.Get("dxOut")), of_output);
  return {};
}

// ---- One cell ----

Status LstmCellShape(OpCall& call) {
  const Operand& before = call.Get("cx");
  if (before.rank() != 2) {
    return call.InvalidOperand(before,
                               fmt::format("has shape {}, expected [batch, hidden]", ShapeText(before.sizes())));
  }
  const int64_t states[] = {before.sizes()[0], before.sizes()[1]};
  const int64_t gates[] = {states[0], 4 * states[1]};
  for (const std::string_view name : {"cy", "hyOut", "cyOut", "gradHyOptional", "gradCOptional", "gradCxOut"}) {
    if (!call.Has(name) || call.Find(name) == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), states, [] { return "the shape of cx,"; }));
  }
  for (const std::string_view name : {"inputGates", "hiddenGates", "storageOut", "storage", "gradGatesOut"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), gates, [] { return "[batch, 4 * hidden]:"; }));
  }
  for (const std::string_view name : {"inputBiasOptional", "hiddenBiasOptional", "gradBiasOut"}) {
    if (!call.Has(name) || call.Find(name) == nullptr || (name == "gradBiasOut" && !call.Bool("hasBias"))) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {gates + 1, 1}, [] { return "[4 * hidden]:"; }));
  }
  return {};
}

void RunLstmCell(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::LstmCell({.input_gates = &launch.refs[3],
                     .hidden_gates = &launch.refs[4],
                     .c_before = &launch.refs[5],
                     .input_bias = launch.RefOrNull(6),
                     .hidden_bias = launch.RefOrNull(7),
                     .h = &launch.refs[0],
                     .c = &launch.refs[1],
                     .storage = &launch.refs[2]},
                    MathOf(launch.compute), range);
}

Status LowerLstmCell(OpCall& call) {
  Launch& launch = call.AddLaunch(RunLstmCell);
  for (const std::string_view name : {"hyOut", "cyOut", "storageOut"}) call.Write(launch, call.Get(name));
  for (const std::string_view name : {"inputGates", "hiddenGates", "cx", "inputBiasOptional", "hiddenBiasOptional"}) {
    call.ReadOptional(launch, call.Find(name));
  }
  launch.units = call.Get("cx").sizes()[0];
  launch.grain = GrainOf(call.Get("cx").sizes()[1] * kCellCost);
  return {};
}

void RunLstmCellGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::LstmCellGrad({.of_h = launch.RefOrNull(2),
                         .of_c = launch.RefOrNull(3),
                         .c_before = &launch.refs[4],
                         .c = &launch.refs[5],
                         .storage = &launch.refs[6],
                         .of_gates = &launch.refs[0],
                         .of_c_before = &launch.refs[1]},
                        range);
}

Status LowerLstmCellBackward(OpCall& call) {
  Launch& launch = call.AddLaunch(RunLstmCellGrad);
  for (const std::string_view name : {"gradGatesOut", "gradCxOut"}) call.Write(launch, call.Get(name));
  for (const std::string_view name : {"gradHyOptional", "gradCOptional", "cx", "cy", "storage"}) {
    call.ReadOptional(launch, call.Find(name));
  }
  launch.units = call.Get("cx").sizes()[0];
  launch.grain = GrainOf(call.Get("cx").sizes()[1] * kCellCost);
  if (!call.Bool("hasBias")) return {};
  const Operand* const bias = call.Find("gradBiasOut");
  if (bias == nullptr) return call.Invalid("gradBiasOut is null, and hasBias is true", "pass a tensor or false");
  // The gradient as it was stored.
  AddSumOfRows(call, PartOf(call, bias), PartOf(call, &call.Get("gradGatesOut")));
  return {};
}

}  // namespace
}  // namespace recurrent

using recurrent::LowerLstmCell;
using recurrent::LowerLstmCellBackward;
using recurrent::LowerRecurrent;
using recurrent::LowerRecurrentBackward;
using recurrent::LstmCellShape;
using recurrent::RecurrentShape;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/recurrent.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
