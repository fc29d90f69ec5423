# SPDX-License-Identifier: Apache-2.0
"""Versions: of PyTorch, whose release this package belongs to, and of the package itself."""

reprise_version = "0.1.0"
# Programs compare the first part with releases of torch_npu, which carry the number of PyTorch's.
__version__ = f"2.13.0+reprise{reprise_version}"
git_version = "unknown"
