# SPDX-License-Identifier: Apache-2.0
"""Operators that are taken apart before they are compiled: those without a converter, where PyTorch knows how."""
import functools

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

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


@functools.lru_cache(None)
def _for_engine():
    from torchair._ge_concrete_graph.fx2ge_converter import has_converter

    table = {**dict(core_aten_decompositions()), **{}}
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
