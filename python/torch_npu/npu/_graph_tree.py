# SPDX-License-Identifier: Apache-2.0
"""Trees of graphs for torch.compile, which this device does not have."""
from torch_npu._names import refused_module

__getattr__ = refused_module(
    __name__,
    ("npugraphify", "npugraphify_impl", "NPUGraphTreeManager", "get_manager", "get_container", "reset_npugraph_trees"),
    "there are no trees of graphs here; use torch.npu.make_graphed_callables or torch.npu.graph",
)
