# SPDX-License-Identifier: Apache-2.0
"""What code that torch.compile generates for the hardware calls. Nothing here generates such code."""
from torch_npu._names import refused_module

__getattr__ = refused_module(
    __name__,
    (
        "ACLGRAPH_UPDATE_PLAN_GLOBAL",
        "build_cpu_update_input_for_graph",
        "resolve_aclgraph_update_plan",
        "update_aclgraph_records_for_graph",
        "validate_aclgraph_update_plan",
        "validate_aclgraph_update_plan_for_graph",
    ),
    "code that torch.compile generates here has no update plans; use NPUGraph.update",
)
