# SPDX-License-Identifier: Apache-2.0
"""Operators that are taken apart before they are compiled: those without a converter, where PyTorch knows how."""
import functools
import math

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.nn import functional as F

# One primitive each, or a program that writes: what takes their place is no better known, or no part of a functional graph.
_NO_BETTER = (
    "complex copysign diagonal_scatter digamma erfcx fmax fmin frexp gcd heaviside hypot i0 igamma igammac lcm lgamma nextafter polar "
    "signbit special_bessel_j0 special_bessel_j1 special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr "
    "special_ndtri special_spherical_bessel_j0 special_zeta"
).split()
# As one operator they would be lost in a functional graph, or what takes their place is no better known.
_KEPT = {
    *(getattr(packet, each) for packet in (getattr(torch.ops.aten, name, None) for name in _NO_BETTER) if packet
      for each in packet.overloads()),
    torch.ops.aten.upsample_nearest2d.default,
    torch.ops.aten.upsample_nearest2d.vec,
    torch.ops.aten.lift.default,
    torch.ops.aten.lift_fresh.default,
}


def _attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None, need_weights=True,
               average_attn_weights=True, mask_type=None):
    """As python/csrc/ops/transformer_layer.cc puts it together."""
    def by_head(x):
        return x.reshape(x.shape[0], x.shape[1], num_head, embed_dim // num_head).transpose(1, 2)

    if query is key and key is value:
        projected = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        weights = qkv_weight.chunk(3)
        biases = (None,) * 3 if qkv_bias is None else qkv_bias.chunk(3)
        projected = [F.linear(*each) for each in zip((query, key, value), weights, biases)]
    q, k, v = (by_head(x) for x in projected)
    scores = torch.matmul(q * (embed_dim // num_head) ** -0.5, k.transpose(-2, -1))
    if mask is not None:
        mask = mask.bool()
        if mask.dim() == 2:  # of positions for each other, or of those of each sample
            mask = mask[:, None, None, :] if mask_type == 1 else mask[None, None]
        scores = scores.masked_fill(mask, -math.inf)
    weights = torch.softmax(scores, -1)  # NaN for those that may look nowhere, as torch has it
    out = F.linear(torch.matmul(weights, v).transpose(1, 2).reshape(query.shape), proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


def _encoder_layer(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1,
                   norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None):
    def normalize(x, weight, bias):
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = normalize(src, norm_weight_1, norm_bias_1) if norm_first else src
    x = src + _attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type)[0]
    if not norm_first:
        x = normalize(x, norm_weight_1, norm_bias_1)
    inner = F.linear(normalize(x, norm_weight_2, norm_bias_2) if norm_first else x, ffn_weight_1, ffn_bias_1)
    x = x + F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)
    return x if norm_first else normalize(x, norm_weight_2, norm_bias_2)


# What torch.nn calls in place of a layer when no gradients are wanted.
_LAYERS = {
    torch.ops.aten._native_multi_head_attention.default: _attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer,
}


@functools.lru_cache(None)
def _for_engine():
    from torchair._ge_concrete_graph.fx2ge_converter import has_converter

    table = {**dict(core_aten_decompositions()), **_LAYERS}
    for op, function in decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten":
            table.setdefault(op, function)
    return {
        op: function
        for op, function in table.items()
        if op not in _KEPT and not has_converter(op) and not op._schema.is_mutable
        and not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    }


@functools.lru_cache(None)
def _for_capture():
    """Eager calls of these read numbers of the device, which a capture must not."""
    packets = (torch.ops.aten.linspace, torch.ops.aten.logspace)
    return {
        op: decomposition_table[op] for packet in packets for op in (getattr(packet, each) for each in packet.overloads())
        if "Tensor" in op._overloadname and op in decomposition_table and not op._schema.is_mutable
    }


def decompositions_of(config, custom):
    table = dict(_for_capture() if config.captures() else _for_engine())
    table.update(custom or {})
    return table
