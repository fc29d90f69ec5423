// SPDX-License-Identifier: Apache-2.0
//
// LSTM and GRU. Without gradients a whole network is one operator of the device; else torch goes step by step, and
// calls the cells below, once for each: everything after the matrix products as one task, by the device's own kernel
// where it takes the tensors. Computed in float32 for 16-bit types.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/alias.h"
#include "ops/launch.h"
#include "ops/native.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool Has(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

at::Tensor AliasOf(Aliases& aliases, const OptionalTensor& tensor) {
  return Has(tensor) ? aliases.Of(*tensor) : at::Tensor();
}

at::ScalarType Computed(const at::Tensor& tensor) { return at::toOpMathType(tensor.scalar_type()); }

at::Tensor EmptyLike(const at::Tensor& tensor) { return Empty(tensor.sizes(), tensor.scalar_type(), tensor.device()); }

void CheckGates(const char* cell, const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                const at::Tensor& state, int64_t gates) {
  TORCH_CHECK(input_gates.dim() == 2 && input_gates.sizes() == hidden_gates.sizes() && state.dim() == 2 &&
                  input_gates.size(0) == state.size(0) && input_gates.size(1) == gates * state.size(1),
              cell, ": gates of sizes ", input_gates.sizes(), " and ", hidden_gates.sizes(),
              " do not fit a state of sizes ", state.sizes(), "; each row has ", gates, " gates for each of its units");
}

// A new tensor: the sum of those that are defined.
at::Tensor Sum(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias_a, const at::Tensor& bias_b,
               at::ScalarType type) {
  at::Tensor sum = a.to(type, /*non_blocking=*/false, /*copy=*/true);
  for (const at::Tensor* const term : {&b, &bias_a, &bias_b}) {
    if (term->defined()) sum.add_(*term);
  }
  return sum;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                        const at::Tensor& cx, const OptionalTensor& input_bias,
                                                        const OptionalTensor& hidden_bias) {
  CheckGates("LSTM cell", input_gates, hidden_gates, cx, 4);
  const c10::DeviceGuard guard(input_gates.device());
  at::Tensor hy = EmptyLike(cx);
  at::Tensor cy = EmptyLike(cx);
  at::Tensor workspace = EmptyLike(input_gates);
  if (hy.numel() == 0) return {hy, cy, workspace};
  const bool done = NativeCall("aclnnThnnFusedLstmCell", "aten::_thnn_fused_lstm_cell")
                        .Tensor(input_gates)
                        .Tensor(hidden_gates)
                        .Tensor(cx)
                        .Tensor(Has(input_bias) ? *input_bias : at::Tensor())
                        .Tensor(Has(hidden_bias) ? *hidden_bias : at::Tensor())
                        .Tensor(hy)
                        .Tensor(cy)
                        .Tensor(workspace)
                        .Launch();
  if (done) return {hy, cy, workspace};
  Aliases aliases(c10::kCPU);
  Launch("lstm_cell", [a = aliases.Of(input_gates), b = aliases.Of(hidden_gates), c = aliases.Of(cx),
                       bias_a = AliasOf(aliases, input_bias), bias_b = AliasOf(aliases, hidden_bias),
                       h_out = aliases.Of(hy), c_out = aliases.Of(cy), kept = aliases.Of(workspace)]() mutable {
    const at::ScalarType type = Computed(a);
    const at::Tensor gates = Sum(a, b, bias_a, bias_b, type);
    auto parts = gates.chunk(4, 1);  // input, forget, cell, output
    parts[0].sigmoid_();
    parts[1].sigmoid_();
    parts[2].tanh_();
    parts[3].sigmoid_();
    const at::Tensor cell = parts[1] * c.to(type) + parts[0] * parts[2];
    c_out.copy_(cell);
    h_out.copy_(parts[3] * cell.tanh());
    kept.copy_(gates);
  });
  return {hy, cy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LstmCellBackward(const OptionalTensor& grad_hy,
                                                                const OptionalTensor& grad_cy, const at::Tensor& cx,
                                                                const at::Tensor& cy, const at::Tensor& workspace,
                                                                bool has_bias) {
  if (!Has(grad_hy) && !Has(grad_cy)) return {};
  const c10::DeviceGuard guard(cx.device());
  at::Tensor grad_gates = EmptyLike(workspace);
  at::Tensor grad_cx = EmptyLike(cx);
  at::Tensor grad_bias;
  if (has_bias) grad_bias = Empty({workspace.size(1)}, workspace.scalar_type(), workspace.device());
  Aliases aliases(c10::kCPU);
  Launch("lstm_cell_backward", [dh = AliasOf(aliases, grad_hy), dc = AliasOf(aliases, grad_cy), c = aliases.Of(cx),
                                c_out = aliases.Of(cy), kept = aliases.Of(workspace), d_gates = aliases.Of(grad_gates),
                                d_cx = aliases.Of(grad_cx), d_bias = AliasOf(aliases, grad_bias)]() mutable {
    const at::ScalarType type = Computed(kept);
    const auto parts = kept.to(type).chunk(4, 1);
    const at::Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
    const at::Tensor tanh_c = c_out.to(type).tanh();
    const at::Tensor from_h = dh.defined() ? dh.to(type) : at::zeros_like(tanh_c);
    at::Tensor d_c = from_h * o * (1 - tanh_c * tanh_c);
    if (dc.defined()) d_c.add_(dc);
    const at::Tensor d = at::cat(
        {d_c * g * i * (1 - i), d_c * c.to(type) * f * (1 - f), d_c * i * (1 - g * g), from_h * tanh_c * o * (1 - o)},
        1);
    d_gates.copy_(d);
    d_cx.copy_(d_c * f);
    if (d_bias.defined()) d_bias.copy_(d.sum(0));
  });
  return {grad_gates, grad_cx, grad_bias};
}

// The workspace holds, for each unit: reset, update, new, the old state, and the hidden part of new.
std::tuple<at::Tensor, at::Tensor> GruCell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                           const at::Tensor& hx, const OptionalTensor& input_bias,
                                           const OptionalTensor& hidden_bias) {
  CheckGates("GRU cell", input_gates, hidden_gates, hx, 3);
  const c10::DeviceGuard guard(input_gates.device());
  at::Tensor hy = EmptyLike(hx);
  at::Tensor workspace = Empty({hx.size(0), hx.size(1) * 5}, hx.scalar_type(), hx.device());
  if (hy.numel() != 0) {
    Aliases aliases(c10::kCPU);
    Launch("gru_cell", [a = aliases.Of(input_gates), b = aliases.Of(hidden_gates), h = aliases.Of(hx),
                        bias_a = AliasOf(aliases, input_bias), bias_b = AliasOf(aliases, hidden_bias),
                        h_out = aliases.Of(hy), kept = aliases.Of(workspace)]() mutable {
      const at::ScalarType type = Computed(a);
      const auto from_input = Sum(a, {}, bias_a, {}, type).chunk(3, 1);
      const auto from_hidden = Sum(b, {}, bias_b, {}, type).chunk(3, 1);
      const at::Tensor old = h.to(type);
      const at::Tensor reset = (from_input[0] + from_hidden[0]).sigmoid_();
      const at::Tensor update = (from_input[1] + from_hidden[1]).sigmoid_();
      const at::Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh_();
      h_out.copy_(fresh + update * (old - fresh));
      kept.copy_(at::cat({reset, update, fresh, old, from_hidden[2]}, 1));
    });
  }
  return {hy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> GruCellBackward(const at::Tensor& grad_hy,
                                                                                       const at::Tensor& workspace,
                                                                                       bool has_bias) {
  const c10::DeviceGuard guard(workspace.device());
  const int64_t rows = workspace.size(0);
  const int64_t units = workspace.size(1) / 5;
  const auto make = [&](c10::IntArrayRef sizes) { return Empty(sizes, workspace.scalar_type(), workspace.device()); };
  at::Tensor grad_input_gates = make({rows, units * 3});
  at::Tensor grad_hidden_gates = make({rows, units * 3});
  at::Tensor grad_hx = make({rows, units});
  at::Tensor grad_input_bias, grad_hidden_bias;
  if (has_bias) {
    grad_input_bias = make({units * 3});
    grad_hidden_bias = make({units * 3});
  }
  Aliases aliases(c10::kCPU);
  Launch("gru_cell_backward", [dh = aliases.Of(grad_hy), kept = aliases.Of(workspace),
                               d_input = aliases.Of(grad_input_gates), d_hidden = aliases.Of(grad_hidden_gates),
                               d_hx = aliases.Of(grad_hx), d_input_bias = AliasOf(aliases, grad_input_bias),
                               d_hidden_bias = AliasOf(aliases, grad_hidden_bias)]() mutable {
    const at::ScalarType type = Computed(kept);
    const auto parts = kept.to(type).chunk(5, 1);
    const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &old = parts[3], &hidden = parts[4];
    const at::Tensor d = dh.to(type);
    const at::Tensor d_update = d * (old - fresh) * update * (1 - update);
    const at::Tensor d_fresh = d * (1 - update) * (1 - fresh * fresh);
    const at::Tensor d_reset = d_fresh * hidden * reset * (1 - reset);
    const at::Tensor by_input = at::cat({d_reset, d_update, d_fresh}, 1);
    const at::Tensor by_hidden = at::cat({d_reset, d_update, d_fresh * reset}, 1);
    d_input.copy_(by_input);
    d_hidden.copy_(by_hidden);
    d_hx.copy_(d * update);
    if (d_input_bias.defined()) {
      d_input_bias.copy_(by_input.sum(0));
      d_hidden_bias.copy_(by_hidden.sum(0));
    }
  });
  return {grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias};
}

// ---- Whole networks ----

// The arguments of at::lstm and at::gru alike. States: h and c, or h.
struct Network {
  const at::Tensor& input;
  at::TensorList states;
  at::TensorList params;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
};

bool HasGradient(const at::Tensor& tensor) { return tensor.requires_grad() || tensor._fw_grad(/*level=*/0).defined(); }

// Whether the device's operator computes what torch's steps would: nobody wants to see those (gradients, a trace,
// modes, classes of tensors, autocast), and the network has no parts that the operator does not have.
bool IsOneOperator(const Network& net) {
  if (net.train && net.dropout != 0 && net.layers > 1) return false;
  if (net.input.dim() != 3 || net.input.numel() == 0 || at::autocast::is_autocast_enabled(c10::kPrivateUse1)) {
    return false;
  }
  if (net.params.size() != static_cast<size_t>(net.layers * net.directions() * (net.has_biases ? 4 : 2))) return false;
  const bool wants_gradients = c10::GradMode::is_enabled();
  const auto fits = [&](const at::Tensor& tensor) {
    return IsOnDevice(tensor) && tensor.device() == net.input.device() &&
           tensor.scalar_type() == net.input.scalar_type() && !at::isTensorSubclassLike(tensor) &&
           !(wants_gradients && HasGradient(tensor));
  };
  const auto all_fit = [&](at::TensorList list) { return std::all_of(list.begin(), list.end(), fits); };
  if (!fits(net.input) || !all_fit(net.states) || !all_fit(net.params)) return false;
  // Projections make the hidden state narrower than the cell state.
  const at::Tensor& h = net.states.front();
  return h.dim() == 3 && h.numel() != 0 && net.states.back().sizes() == h.sizes() && net.params[1].dim() == 2 &&
         net.params[1].size(1) == h.size(2);
}

// The result of all steps and the last states; empty where the device does not take the tensors.
std::vector<at::Tensor> RunNetwork(const char* op, const char* name, const Network& net) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::DeviceGuard guard(net.input.device());
  const at::Tensor input = net.batch_first ? net.input.transpose(0, 1) : net.input;
  const at::Tensor& h = net.states.front();
  const auto make = [&](c10::IntArrayRef sizes) { return Empty(sizes, input.scalar_type(), input.device()); };
  const at::Tensor output = make({input.size(0), input.size(1), net.directions() * h.size(2)});
  std::vector<at::Tensor> results = {net.batch_first ? output.transpose(0, 1) : output, make(h.sizes())};
  const bool is_lstm = net.states.size() == 2;
  if (is_lstm) results.push_back(make(h.sizes()));
  NativeCall call(op, name);
  call.Tensor(input).Tensors(net.params);
  is_lstm ? call.Tensors(net.states) : call.Tensor(h);
  call.Null().Int(net.has_biases).Int(net.layers).Real(0).Int(false).Int(net.bidirectional).Int(false);
  call.Tensor(output).Tensor(results[1]);
  if (is_lstm) call.Tensor(results[2]);
  for (int list = 0; list < (is_lstm ? 7 : 5); ++list) call.Null();  // what a gradient would need
  if (!call.Launch()) results.clear();
  return results;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Lstm(const at::Tensor& input, at::TensorList hx, at::TensorList params,
                                                    bool has_biases, int64_t layers, double dropout, bool train,
                                                    bool bidirectional, bool batch_first) {
  const Network net{input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first};
  if (hx.size() == 2 && IsOneOperator(net)) {
    const std::vector<at::Tensor> results = RunNetwork("aclnnLSTM", "aten::lstm", net);
    if (!results.empty()) return {results[0], results[1], results[2]};
  }
  return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

std::tuple<at::Tensor, at::Tensor> Gru(const at::Tensor& input, const at::Tensor& hx, at::TensorList params,
                                       bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional,
                                       bool batch_first) {
  const Network net{input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first};
  if (IsOneOperator(net)) {
    const std::vector<at::Tensor> results = RunNetwork("aclnnGRU", "aten::gru", net);
    if (!results.empty()) return {results[0], results[1]};
  }
  return at::native::gru(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

// Both keys: in inference mode tensors have no key of derivatives, and a function for the device alone would have none.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", Lstm);
  m.impl("gru.input", Gru);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("lstm.input", Lstm);
  m.impl("gru.input", Gru);
  m.impl("_thnn_fused_lstm_cell", LstmCell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", LstmCellBackward);
  m.impl("_thnn_fused_gru_cell", GruCell);
  m.impl("_thnn_fused_gru_cell_backward", GruCellBackward);
}

}  // namespace
}  // namespace torch_npu
