# SPDX-License-Identifier: Apache-2.0
"""Settings of profiles. A CPU has no counters of the hardware's units: those settings are kept and change nothing."""
import enum
from torch_npu._errors import refused


class ProfilerLevel(enum.Enum):
    """Whether there is a timeline of the device: with Level_none there is none; the others give the same."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(enum.Enum):
    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType(enum.Enum):
    Text = "text"
    Db = "db"


class HostSystem(enum.Enum):
    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"
    NUMA = "numa"


def supported_profiler_level():
    return set(ProfilerLevel)


def supported_ai_core_metrics():
    """Those that can be asked for; only AiCoreNone is ever measured."""
    return set(AiCMetrics)


def supported_export_type():
    return {ExportType.Text}


class _ExperimentalConfig:
    """Keeps what it is given; refuses what is no setting, and results that cannot be written."""

    def __init__(
        self,
        profiler_level=ProfilerLevel.Level0,
        aic_metrics=AiCMetrics.AiCoreNone,
        l2_cache=False,
        msprof_tx=False,
        mstx=False,
        data_simplification=True,
        record_op_args=False,
        op_attr=False,
        gc_detect_threshold=None,
        export_type=ExportType.Text,
        host_sys=None,
        mstx_domain_include=None,
        mstx_domain_exclude=None,
        sys_io=False,
        sys_interconnection=False,
    ):
        exports = list(export_type) if isinstance(export_type, (list, tuple)) else [export_type]
        for name, value, kind in (
            ("profiler_level", profiler_level, ProfilerLevel),
            ("aic_metrics", aic_metrics, AiCMetrics),
            *(("export_type", one, ExportType) for one in exports),
            *(("host_sys", one, HostSystem) for one in host_sys or ()),
        ):
            if not isinstance(value, kind):
                raise refused(TypeError(f"{name} takes values of torch_npu.profiler.{kind.__name__}, not {value!r}"))
        if ExportType.Db in exports:
            raise refused(
                RuntimeError(
                    "profiles are not written as databases; use export_type=torch_npu.profiler.ExportType.Text"
                )
            )
        self.profiler_level, self.aic_metrics, self.export_type = profiler_level, aic_metrics, exports
        self.l2_cache, self.msprof_tx, self.mstx = l2_cache, msprof_tx, mstx
        self.data_simplification, self.record_op_args, self.op_attr = data_simplification, record_op_args, op_attr
        self.gc_detect_threshold, self.host_sys = gc_detect_threshold, host_sys or []
        self.mstx_domain_include, self.mstx_domain_exclude = mstx_domain_include or [], mstx_domain_exclude or []
        self.sys_io, self.sys_interconnection = sys_io, sys_interconnection
