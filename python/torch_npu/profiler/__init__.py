# SPDX-License-Identifier: Apache-2.0
"""Profiles: what the host called (PyTorch's profiler) and when the device worked (the runtime's timeline), in one trace."""
from torch_npu._names import refused_module
from torch_npu.profiler.experimental_config import (
    AiCMetrics,
    ExportType,
    HostSystem,
    ProfilerLevel,
    _ExperimentalConfig,
    supported_ai_core_metrics,
    supported_export_type,
    supported_profiler_level,
)
from torch_npu.profiler.profiler import (
    ProfilerAction,
    ProfilerActivity,
    _KinetoProfile,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "profile",
    "schedule",
    "supported_activities",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
    "tensorboard_trace_handler",
]

# Arguments of profile, which programs have written as names of the module.
__getattr__ = refused_module(
    __name__,
    ("with_modules", "with_stack", "with_flops", "record_shapes", "profile_memory"),
    "it is an argument of torch_npu.profiler.profile",
)
