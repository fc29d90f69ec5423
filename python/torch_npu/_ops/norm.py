# SPDX-License-Identifier: Apache-2.0
"""Norms, gated activations and rotary embeddings."""
import torch
from torch_npu._ops.checks import check, check_dims, refuse
from torch_npu._ops.registry import composite, declare, derivative, meta

ops = torch.ops.npu

# ---- Norms ----

derivative("npu_rms_norm", "npu_rms_norm_backward", "grad input gamma @1", "input gamma")


def statistics_like(name, x, gamma):
    outer = x.dim() - gamma.dim()
    check(
        0 <= outer and x.shape[outer:] == gamma.shape,
        name,
        f"gamma has shape {list(gamma.shape)}, expected the last dims of {list(x.shape)}",
    )
    return x.new_empty([*x.shape[:outer], *[1] * gamma.dim()], dtype=torch.float32)


@meta("npu_rms_norm")
def _(input, gamma, epsilon=1e-6):
    return input.new_empty(input.shape), statistics_like("npu_rms_norm", input, gamma)


@meta("npu_rms_norm_backward")
def _(dy, input, gamma, rstd):
    return input.new_empty(input.shape), gamma.new_empty(gamma.shape, dtype=torch.float32)


@meta("npu_add_rms_norm")
def _(x1, x2, gamma, epsilon=1e-6):
    check(x1.shape == x2.shape, "npu_add_rms_norm", f"x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}")
    return x1.new_empty(x1.shape), statistics_like("npu_add_rms_norm", x1, gamma), x1.new_empty(x1.shape)


# ---- Activations ----

derivative("npu_swiglu", "npu_swiglu_backward", "grad input dim", "input")
derivative("npu_fast_gelu", "npu_fast_gelu_backward", "grad input", "input")
derivative("npu_gelu", "npu_gelu_backward", "grad input approximate", "input")


def half_of(name, x, dim):
    check(
        -x.dim() <= dim < x.dim() and x.size(dim) % 2 == 0,
        name,
        f"input has shape {list(x.shape)}, of whose dim {dim} no halves can be made",
    )
    shape = list(x.shape)
    shape[dim] //= 2
    return shape


@meta("npu_swiglu")
def _(input, dim=-1):
    return input.new_empty(half_of("npu_swiglu", input, dim))


@meta("npu_swiglu_backward")
def _(grad_output, input, dim=-1):
    return input.new_empty(input.shape)


@meta("npu_fast_gelu", "npu_gelu")
def _(input, **rest):
    return torch.empty_like(input)


@meta("npu_gelu_backward")
def _(grad_output, input, **rest):
    return torch.empty_like(input)


@composite("npu_fast_gelu_backward")
def _(grad, input):
    # Of x / (1 + exp(-1.702 |x|)) * exp(0.851 (x - |x|)), which is x * sigmoid(1.702 x).
    wide = input.float()
    gate = torch.sigmoid(1.702 * wide)
    return (grad.float() * (gate + 1.702 * wide * gate * (1 - gate))).to(input.dtype)


declare("_clipped_swiglu(Tensor x, float alpha, float limit, float bias, bool interleaved) -> Tensor")


@meta("_clipped_swiglu")
def _(x, alpha, limit, bias, interleaved):
    return x.new_empty(half_of("npu_clipped_swiglu", x, -1))


@composite("npu_clipped_swiglu")
def npu_clipped_swiglu(x, *, group_index=None, dim=-1, alpha=1.702, limit=7.0, bias=1.0, interleaved=True):
    name = "npu_clipped_swiglu"
    half_of(name, x, dim)
    if group_index is None and dim in (-1, x.dim() - 1) and x.dtype != torch.float64:
        return ops._clipped_swiglu(x, alpha, limit, bias, interleaved)
    moved = x.movedim(dim, -1)
    if interleaved:
        gate, linear = moved[..., ::2], moved[..., 1::2]
    else:
        gate, linear = moved.chunk(2, -1)
    gate = gate.float().clamp(max=limit)
    linear = linear.float().clamp(-limit, limit)
    result = (gate * torch.sigmoid(alpha * gate) * (linear + bias)).to(x.dtype)
    if group_index is not None:  # rows behind the last group: nothing was asked for
        rows = result.flatten(0, -2)
        rest = torch.arange(rows.size(0), device=x.device) >= group_index.sum()
        result = rows.masked_fill(rest.unsqueeze(-1), 0).view(result.shape)
    return result.movedim(-1, dim).contiguous()


# ---- Rotary embeddings ----

derivative("npu_rotary_mul", "npu_rotary_mul_backward", "grad input r1 r2 rotary_mode", "input r1 r2")


@meta("npu_rotary_mul")
def _(input, r1, r2, rotary_mode="half", rotate=None):
    refuse("npu_rotary_mul", rotate=rotate)
    check(
        r1.shape == r2.shape,
        "npu_rotary_mul",
        f"r1 has shape {list(r1.shape)} and r2 {list(r2.shape)}, expected the same",
    )
    return input.new_empty(input.shape)


@meta("npu_rotary_mul_backward")
def _(grad, input, r1, r2, rotary_mode="half"):
    return input.new_empty(input.shape), r1.new_empty(r1.shape), r2.new_empty(r2.shape)


def turn(x, cos, sin, mode):
    """x * cos + turned(x) * sin, in float32; cos and sin broadcast."""
    x = x.float()
    if mode == "half":
        first, second = x.chunk(2, -1)
        turned = torch.cat([-second, first], -1)
    else:
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos.float() + turned * sin.float()


@composite("npu_apply_rotary_pos_emb")
def npu_apply_rotary_pos_emb(query, key, cos, sin, layout="BSND", rotary_mode="half"):
    name = "npu_apply_rotary_pos_emb"
    check(layout in ("BSND", "BSH", "SBND", "BNSD", "TND", "1", "2", "3", "4"), name, f"layout is '{layout}'")
    check(rotary_mode in ("half", "interleave"), name, f"rotary_mode is '{rotary_mode}', expected half or interleave")
    # Results of their own, and what is given stays: programs use what is returned.
    return ops.npu_rotary_mul(query, cos, sin, rotary_mode), ops.npu_rotary_mul(key, cos, sin, rotary_mode)


@meta("npu_interleave_rope")
def _(x, cos, sin):
    name = "npu_interleave_rope"
    check_dims(name, "x", x, 4)
    check(x.size(-1) % 2 == 0, name, f"x has shape {list(x.shape)}, whose last dim is odd")
    return x.new_empty(x.shape)


def npu_interleave_rope(x, cos, sin):
    """Neighbours become halves, and these turn."""
    return ops.npu_interleave_rope(x, cos, sin)


def rotate_some(x, cos, sin, neox):
    """The first dims of each head, as many as twice cos has; the rest stays. x: [tokens, heads, head size]."""
    count = 2 * cos.size(-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    if neox:
        full_cos, full_sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    else:
        full_cos, full_sin = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    turned = turn(x[..., :count], full_cos, full_sin, "half" if neox else "interleave").to(x.dtype)
    return turned if count == x.size(-1) else torch.cat([turned, x[..., count:]], -1)


declare(
    "_rope_of_table(Tensor positions, Tensor query, Tensor key, Tensor table, int[]? section, int head_size, "
    "bool halves) -> (Tensor, Tensor)"
)


@meta("_rope_of_table")
def _(positions, query, key, table, section, head_size, halves):
    return query.new_empty(query.shape), key.new_empty(key.shape)


def rope_of_table(positions, query, key, table, section, head_size, halves):
    """One task, or none where the operator of the device does not take these tensors."""
    rows = positions.size(-1) if positions.dim() else 0
    plain = positions.dtype in (torch.int32, torch.int64) and query.dtype == key.dtype == table.dtype
    plain = plain and query.dtype in (torch.float32, torch.float16, torch.bfloat16) and table.dim() == 2
    plain = plain and query.dim() == key.dim() == 2 and query.size(0) == key.size(0) == rows > 0
    plain = plain and query.size(1) % head_size == key.size(1) % head_size == 0
    if not plain or positions.dim() not in (1, 2) or positions.dim() == 2 and positions.size(0) != 3:
        return None
    section = None if positions.dim() == 1 else section
    return ops._rope_of_table(positions, query, key, table, section, head_size, halves)


@composite("npu_mrope")
def npu_mrope(
    positions, query, key, cos_sin_cache, head_size, *, mrope_section=None, rotary_mode="half", cache_mode="default"
):
    name = "npu_mrope"
    check(rotary_mode in ("half", "interleave"), name, f"rotary_mode is '{rotary_mode}', expected half or interleave")
    check(head_size > 0 and query.size(-1) % head_size == 0, name, f"head_size is {head_size}")
    sections = list(mrope_section or [])
    angles = cos_sin_cache.size(-1) // 2
    check(
        positions.dim() != 2 or len(sections) == positions.size(0) and sum(sections) == angles,
        name,
        f"mrope_section is {sections}, expected {positions.size(0)} sizes with the sum {angles}",
    )
    if cache_mode == "default":
        turned = rope_of_table(positions, query, key, cos_sin_cache, sections, head_size, rotary_mode == "half")
        if turned is not None:
            return turned
    cos_sin = cos_sin_cache[positions]  # [tokens, d] or [kinds of positions, tokens, d]
    cos, sin = cos_sin.chunk(2, -1)
    if positions.dim() == 2:
        if cache_mode == "interleave":
            kinds = torch.zeros(cos.size(-1), dtype=torch.int64)
            for kind in range(1, len(sections)):
                kinds[kind : 3 * sections[kind] : 3] = kind
            pick = [int(kind) for kind in kinds]
            cos = torch.stack([cos[kind, :, i] for i, kind in enumerate(pick)], -1)
            sin = torch.stack([sin[kind, :, i] for i, kind in enumerate(pick)], -1)
        else:
            cos = torch.cat([part[kind] for kind, part in enumerate(cos.split(sections, -1))], -1)
            sin = torch.cat([part[kind] for kind, part in enumerate(sin.split(sections, -1))], -1)
    neox = rotary_mode == "half"

    def apply(x):
        return rotate_some(x.reshape(x.size(0), -1, head_size), cos, sin, neox).reshape(x.shape)

    return apply(query), apply(key)
