# SPDX-License-Identifier: Apache-2.0
"""Compilation for services: compiled methods in files, sizes in gears."""
from torchair.inference._cache_compiler import cache_compile, readable_cache
from torchair.inference._gears import set_dim_gears

__all__ = ["cache_compile", "readable_cache", "set_dim_gears"]
