# SPDX-License-Identifier: Apache-2.0
"""Compilation for services: kept programs, sizes in gears."""
from torchair.inference._gears import set_dim_gears

__all__ = ["set_dim_gears"]
