# SPDX-License-Identifier: Apache-2.0
"""Attributes for a part of a compiled function."""
from torchair.scope import limit_core_num

__all__ = ["limit_core_num"]
