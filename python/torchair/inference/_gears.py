# SPDX-License-Identifier: Apache-2.0
"""Sizes that a dim will have, told beforehand."""
import torch


def set_dim_gears(t, dim_gears):
    """``dim_gears``: {dim: [sizes]}. The dims become dynamic, and each combination of gears is compiled at once."""
    if not isinstance(t, torch.Tensor):
        raise AssertionError(f"set_dim_gears: t must be a tensor, not {type(t)}")
    if not isinstance(dim_gears, dict):
        raise AssertionError(f"set_dim_gears: dim_gears must be a dict of dims and lists of sizes, not {type(dim_gears)}")
    for dim, sizes in dim_gears.items():
        where = f"set_dim_gears: dim {dim!r}"
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise AssertionError(f"{where} must be an integer, not {type(dim)}")
        if not 0 <= dim < t.dim():
            raise AssertionError(f"{where} must be in [0, {t.dim() - 1}], the dims of the tensor")
        if not isinstance(sizes, (list, tuple)):
            raise AssertionError(f"{where}: its gears must be a list or tuple, not {type(sizes)}")
        if not 2 <= len(sizes) <= 100:
            raise AssertionError(f"{where}: {len(sizes)} gears are given, but their number must be in [2, 100]")
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, int):
                raise AssertionError(f"{where}: the gear {size!r} must be an integer, not {type(size)}")
            if size == 0:
                raise AssertionError(f"{where}: a gear must not be 0")
    before = getattr(t, "dim_gears", None)
    if before is not None and before != dim_gears:
        raise AssertionError(f"set_dim_gears: the tensor has the gears {before} already, which {dim_gears} would change")
    for dim in dim_gears:
        torch._dynamo.mark_dynamic(t, dim)
    t.dim_gears = dim_gears
