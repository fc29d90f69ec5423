# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions of single elements."""
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.registry import converts


@converts("tanh_backward.default")
def _tanh_backward(grad_output, output, *, meta_outputs):
    return ge.operator("TanhGrad")(output, grad_output)


@converts("sigmoid_backward.default")
def _sigmoid_backward(grad_output, output, *, meta_outputs):
    return ge.operator("SigmoidGrad")(output, grad_output)


@converts("leaky_relu_backward.default")
def _leaky_relu_backward(grad_output, self, negative_slope, self_is_result, *, meta_outputs):
    return ge.operator("LeakyReluGrad")(grad_output, self, negative_slope=float(negative_slope))


@converts("elu_backward.default")
def _elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result, *, meta_outputs):
    return ge.operator("EluGradV2")(grad_output, self_or_result, alpha=float(alpha), scale=float(scale),
                                    input_scale=float(input_scale), is_result=bool(is_result))
