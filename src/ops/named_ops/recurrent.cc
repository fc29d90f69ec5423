// SPDX-License-Identifier: Apache-2.0
//
// LSTM layers by type. Columns of weights are gates in the order that gate_order says, i being the input's, j or c the
// candidate's, f the forget gate's, o the output's. seq_length is a tensor [batch] of int32, the number of steps of
// each entry, or a mask [steps, batch, hidden]; frameworks leave optional operands out by tensors of rank 0, too.
#include <string_view>

#include "ops/families/recurrent_parts.h"
#include "ops/named_ops/steps.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

constexpr Param Optional(Param param) {
  param.optional = true;
  return param;
}
// Any type, without a say in that of the computation.
constexpr Param Apart(Param param) {
  param.types = kAllTypes;
  return param;
}

constexpr Computation kLayer = {.dtype_rule = TypeOfSelf,
                                .shape_rule = recurrent::DynamicRnnShape,
                                .engine = Engine::kCube,
                                .lower = recurrent::LowerDynamicRnn};
constexpr Computation kLayerGradient = {.dtype_rule = TypeOfSelf,
                                        .shape_rule = recurrent::DynamicRnnShape,
                                        .engine = Engine::kCube,
                                        .lower = recurrent::LowerDynamicRnnGrad};

constexpr std::array kLayerParams = {In("x"),
                                     In("wx"),
                                     In("wh"),
                                     Optional(In("b")),
                                     Optional(Apart(In("presence"))),
                                     Optional(In("firstH")),
                                     Optional(In("firstC")),
                                     Attr("reverse", ParamKind::kBool),
                                     Attr("cellBeforeForget", ParamKind::kBool),
                                     Attr("forgetBias", ParamKind::kReal),
                                     Out("y"),
                                     Optional(Out("h")),
                                     Optional(Out("c")),
                                     Optional(Out("i")),
                                     Optional(Out("j")),
                                     Optional(Out("f")),
                                     Optional(Out("o")),
                                     Optional(Out("tanhc"))};
constexpr std::array kLayerGradientParams = {In("x"),
                                             In("wx"),
                                             In("wh"),
                                             In("firstH"),
                                             In("firstC"),
                                             In("h"),
                                             In("c"),
                                             In("dy"),
                                             In("dh"),
                                             In("dc"),
                                             In("i"),
                                             In("j"),
                                             In("f"),
                                             In("o"),
                                             In("tanhc"),
                                             Optional(Apart(In("presence"))),
                                             Attr("reverse", ParamKind::kBool),
                                             Attr("cellBeforeForget", ParamKind::kBool),
                                             Out("dwx"),
                                             Out("dwh"),
                                             Out("db"),
                                             Out("dx"),
                                             Out("dFirstH"),
                                             Out("dFirstC")};
constexpr Routine kLayerRoutine = {kLayerParams, kLayer};
constexpr Routine kLayerGradientRoutine = {kLayerGradientParams, kLayerGradient};

// ---- Attributes ----

struct Settings {
  bool reverse = false;
  bool cell_before_forget = false;
};

Status OnlyText(const NamedCall& call, std::string_view name, std::string_view known) {
  if (call.context.op.FindAttribute(name) == nullptr || call.context.Text(name) == known) return {};
  return call.context.WrongAttribute(name, fmt::format("is '{}', which is not computed", call.context.Text(name)),
                                     fmt::format("set it to '{}'", known));
}

StatusOr<Settings> SettingsOf(const NamedCall& call) {
  const opdef::InferContext& context = call.context;
  REPRISE_RETURN_IF_ERROR(OnlyText(call, "cell_type", "LSTM"));
  REPRISE_RETURN_IF_ERROR(OnlyText(call, "activation", "tanh"));
  REPRISE_RETURN_IF_ERROR(OnlyText(call, "recurrent_activation", "sigmoid"));
  Settings settings;
  const std::string direction = context.Text("direction");
  settings.reverse = direction == "REDIRECTIONAL";
  if (!settings.reverse && direction != "UNIDIRECTIONAL") {
    return context.WrongAttribute("direction", fmt::format("is '{}', which is not computed", direction),
                                  "set it to UNIDIRECTIONAL or REDIRECTIONAL, and make two calls for both");
  }
  const std::string order = context.Text("gate_order");
  settings.cell_before_forget = order == "ijfo" || order == "icfo";
  if (!settings.cell_before_forget && order != "ifjo" && order != "ifco") {
    return context.WrongAttribute("gate_order", fmt::format("is '{}'", order), "set it to ijfo or ifjo");
  }
  if (context.Bool("use_peephole")) {
    return context.WrongAttribute("use_peephole", "is true, which is not computed", "set it to false");
  }
  if (!context.Bool("time_major")) {
    return context.WrongAttribute("time_major", "is false, which is not computed",
                                  "set it to true, and pass x as [steps, batch, features]");
  }
  if (context.Int("num_proj") > 0) {
    return context.WrongAttribute("num_proj", fmt::format("is {}, which is not computed", context.Int("num_proj")),
                                  "set it to 0");
  }
  if (context.Real("cell_clip") > 0) {
    return context.WrongAttribute("cell_clip", fmt::format("is {}, which is not computed", context.Real("cell_clip")),
                                  "set it to -1, which does not clip");
  }
  const double kept = context.Real("keep_prob");
  if (kept >= 0 && kept != 1) {
    return context.WrongAttribute("keep_prob", fmt::format("is {}, which is not computed", kept),
                                  "set it to 1, and drop elements by an operator of its own");
  }
  return settings;
}

// ---- Operands ----

// The input, unless it is left out.
StepArgument OptionalInput(const NamedCall& call, std::string_view name) {
  if (!call.Has(name)) return nullptr;
  return call.Input(name).view();
}

// The output, unless nobody wants it.
StepArgument OptionalOutput(const NamedCall& call, std::string_view name) {
  if (call.Output(name).is_absent) return nullptr;
  return call.Output(name).view();
}

StepArgument PresenceOf(const NamedCall& call) {
  if (!call.Has("seq_length") || call.Input("seq_length").rank() == 0) return nullptr;
  return call.Input("seq_length").view();
}

// A state [batch, hidden], which may have a first dim of size 1.
StridedView StateOf(const NamedTensor& state) {
  const StridedView view = state.view();
  if (state.rank() != 3 || state.dims[0] != 1) return view;
  return view.As(std::span(state.dims).subspan(1));
}

StepArgument OptionalState(const NamedCall& call, std::string_view name) {
  if (!call.Has(name)) return nullptr;
  return StateOf(call.Input(name));
}

// A sequence [steps, batch, n], whose steps may be missing where there is one.
StridedView SequenceOf(const NamedTensor& sequence) {
  const StridedView view = sequence.view();
  if (sequence.rank() != 2) return view;
  const int64_t sizes[] = {1, sequence.dims[0], sequence.dims[1]};
  return view.As(sizes);
}

struct Weights {
  StridedView of_input, of_hidden;
};

// Rows of a matrix: those of the input, then those of the hidden state.
StatusOr<Weights> SplitWeight(const NamedCall& call, const NamedTensor& weight) {
  const NamedTensor& x = call.Input("x");
  const int64_t features = x.rank() == 0 ? 0 : x.dims.back();
  if (weight.rank() != 2 || weight.dims[0] < features || weight.dims[1] != 4 * (weight.dims[0] - features)) {
    return call.WrongInput(call.Input("w"),
                           fmt::format("has the shape {}, but x has {}", ShapeText(weight.dims), ShapeText(x.dims)),
                           "pass the weights [features + hidden, 4 * hidden]");
  }
  StridedView of_input = weight.view(), of_hidden = of_input;
  of_input.sizes[0] = features;
  of_hidden.sizes[0] -= features;
  const int64_t bytes = features * weight.dims[1] * kernels::ItemSize(weight.dtype());
  of_hidden.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(of_hidden.data) + static_cast<uintptr_t>(bytes));
  return Weights{std::move(of_input), std::move(of_hidden)};
}

// ---- Steps ----

Status AddLayer(NamedCall& call, const Weights& weights) {
  REPRISE_ASSIGN_OR_RETURN(const Settings settings, SettingsOf(call));
  const auto out = [&](std::string_view name) { return OptionalOutput(call, name); };
  return call.Step(kLayerRoutine,
                   {call.Input("x").view(), weights.of_input, weights.of_hidden, OptionalInput(call, "b"),
                    PresenceOf(call), OptionalState(call, "init_h"), OptionalState(call, "init_c"), settings.reverse,
                    settings.cell_before_forget, call.context.Real("forget_bias"), call.Output("y").view(),
                    out("output_h"), out("output_c"), out("i"), out("j"), out("f"), out("o"), out("tanhc")});
}

Status AddLayerGradient(NamedCall& call, const Weights& weights, const Weights& of_weights) {
  REPRISE_ASSIGN_OR_RETURN(const Settings settings, SettingsOf(call));
  for (const std::string_view name : {"dwci", "dwcf", "dwco"}) {
    if (call.OutputList(name).empty()) continue;
    return call.WrongOutput(call.OutputList(name)[0], "is a gradient of peepholes, which are not computed",
                            "leave it out");
  }
  const auto sequence = [&](std::string_view name) { return SequenceOf(call.Input(name)); };
  const auto state = [&](std::string_view name) { return StateOf(call.Input(name)); };
  StridedView tanh_c;
  if (call.Has("tanhct")) {
    tanh_c = sequence("tanhct");
  } else {
    const StridedView cells = sequence("c");
    tanh_c = call.Temporary(Wide(cells.dtype), cells.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(Routine::Of("aclnnTanh"), {cells, tanh_c}));
  }
  return call.Step(kLayerGradientRoutine, {sequence("x"),
                                           weights.of_input,
                                           weights.of_hidden,
                                           state("init_h"),
                                           state("init_c"),
                                           sequence("h"),
                                           sequence("c"),
                                           sequence("dy"),
                                           state("dh"),
                                           state("dc"),
                                           sequence("i"),
                                           sequence("j"),
                                           sequence("f"),
                                           sequence("o"),
                                           tanh_c,
                                           PresenceOf(call),
                                           settings.reverse,
                                           settings.cell_before_forget,
                                           of_weights.of_input,
                                           of_weights.of_hidden,
                                           call.Output("db").view(),
                                           SequenceOf(call.Output("dx")),
                                           StateOf(call.Output("dh_prev")),
                                           StateOf(call.Output("dc_prev"))});
}

Status LowerOneWeight(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Weights weights, SplitWeight(call, call.Input("w")));
  return AddLayer(call, weights);
}

Status LowerTwoWeights(NamedCall& call) {
  return AddLayer(call, {call.Input("weight_input").view(), call.Input("weight_hidden").view()});
}

Status LowerOneWeightGradient(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Weights weights, SplitWeight(call, call.Input("w")));
  REPRISE_ASSIGN_OR_RETURN(const Weights of_weights, SplitWeight(call, call.Output("dw")));
  return AddLayerGradient(call, weights, of_weights);
}

Status LowerTwoWeightsGradient(NamedCall& call) {
  return AddLayerGradient(call, {call.Input("w_x").view(), call.Input("w_h").view()},
                          {call.Output("dw_x").view(), call.Output("dw_h").view()});
}

// ---- Layers with the weights of aclnnLSTM and aclnnGRU ----

Status LowerFusedLayer(NamedCall& call) {
  const bool is_lstm = call.op.code == 0;
  const bool has_bias = call.Has("bias_input");
  if (has_bias != call.Has("bias_hidden")) {
    return call.WrongInput(call.Input("x"), "has one of two biases beside it", "pass both biases, or none");
  }
  std::vector<StridedView> params = {call.Input("weight_input").view(), call.Input("weight_hidden").view()};
  if (has_bias) {
    params.push_back(call.Input("bias_input").view());
    params.push_back(call.Input("bias_hidden").view());
  }
  // States [batch, hidden] as [1, batch, hidden].
  const auto state = [&](std::string_view name) {
    const NamedTensor& given = call.Input(name);
    if (given.rank() != 2) return given.view();
    const int64_t sizes[] = {1, given.dims[0], given.dims[1]};
    return given.view().As(sizes);
  };
  const bool has_state = call.Has("init_h");
  if (is_lstm && has_state != call.Has("init_c")) {
    return call.WrongInput(call.Input("x"), "has one of two states beside it", "pass both states, or none");
  }
  const StridedView x = call.Input("x").view(), y = call.Output("y").view(), last_h = call.Output("last_h").view();
  if (!is_lstm) {
    return StepOf(call, "aclnnGRU",
                  {x, params, has_state ? StepArgument(state("init_h")) : nullptr, nullptr, has_bias, int64_t{1}, 0.0,
                   false, false, false, y, last_h, nullptr, nullptr, nullptr, nullptr, nullptr});
  }
  StepArgument states = nullptr;
  if (has_state) states = std::vector<StridedView>{state("init_h"), state("init_c")};
  return StepOf(call, "aclnnLSTM",
                {x,
                 params,
                 states,
                 nullptr,
                 has_bias,
                 int64_t{1},
                 0.0,
                 false,
                 false,
                 false,
                 y,
                 last_h,
                 call.Output("last_c").view(),
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr});
}

constexpr NamedOp kRecurrentRows[] = {
    {"GRUFused", {}, LowerFusedLayer, 1},
    {"LSTMFused", {}, LowerFusedLayer},
    {"DynamicRNN", kSingleAndHalfTypes, LowerOneWeight},
    {"DynamicRNNGrad", kSingleAndHalfTypes, LowerOneWeightGradient},
    {"DynamicRNNV2", kSingleAndHalfTypes, LowerTwoWeights},
    {"DynamicRNNV2Grad", kSingleAndHalfTypes, LowerTwoWeightsGradient},
};

}  // namespace

std::span<const NamedOp> RecurrentRows() { return kRecurrentRows; }

}  // namespace reprise::ops::named
