# SPDX-License-Identifier: Apache-2.0
"""torch.compile for npu: graphs of the graph engine, and captured programs."""
import google.protobuf as _protobuf

if tuple(int(part) for part in _protobuf.__version__.split(".")[:2]) < (3, 13):
    raise AssertionError(f"torchair needs protobuf 3.13 or newer, but {_protobuf.__version__} is installed")

import torch  # noqa: E402,F401

from torchair import ge, inference, llm_datadist, ops, scope  # noqa: E402,F401
from torchair._explain import explain  # noqa: E402
from torchair._fx_passes.patterns import register_replacement  # noqa: E402
from torchair._ge_concrete_graph.fx2ge_converter import register_fx_node_ge_converter  # noqa: E402
from torchair._hcom import patch_for_hcom  # noqa: E402
from torchair.configs.compiler_config import CompilerConfig  # noqa: E402
from torchair.core.utils import logger  # noqa: E402
from torchair.experimental.inference import npu_format_cast_via_cpu, use_internal_format_weight  # noqa: E402
from torchair.npu_export import dynamo_export  # noqa: E402
from torchair.npu_fx_compiler import get_compiler, get_npu_backend  # noqa: E402

__all__ = [
    "CompilerConfig",
    "dynamo_export",
    "explain",
    "get_compiler",
    "get_npu_backend",
    "logger",
    "npu_format_cast_via_cpu",
    "patch_for_hcom",
    "register_fx_node_ge_converter",
    "register_replacement",
    "use_internal_format_weight",
]
