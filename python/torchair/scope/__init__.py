# SPDX-License-Identifier: Apache-2.0
"""Attributes for all operators of a part of a compiled function."""
