# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs import by these names."""
