// SPDX-License-Identifier: Apache-2.0
//
// The cells that torch's LSTM and GRU call on devices, once for each step: everything after the matrix products as one
// task. Computed in float32 for 16-bit types.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>

#include "ops/alias.h"
#include "ops/launch.h"
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
  if (hy.numel() != 0) {
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
  }
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", LstmCell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", LstmCellBackward);
  m.impl("_thnn_fused_gru_cell", GruCell);
  m.impl("_thnn_fused_gru_cell_backward", GruCellBackward);
}

}  // namespace
}  // namespace torch_npu
