# SPDX-License-Identifier: Apache-2.0
"""Operators for use within compiled functions."""
