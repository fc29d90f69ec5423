# SPDX-License-Identifier: Apache-2.0
"""Patterns of programs."""
from torchair._missing import not_there

register_replacement = not_there("register_replacement", "patterns are not replaced yet")
