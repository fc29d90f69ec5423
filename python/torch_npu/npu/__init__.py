# SPDX-License-Identifier: Apache-2.0
"""``torch.npu``."""
import torch
from torch_npu import _C, _names
from torch_npu.npu._compat import *  # noqa: F403
from torch_npu.npu.device import (
    DeferredNpuCallError,
    _get_device_index,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _sleep,
    current_device,
    device,
    device_count,
    device_of,
    init,
    is_available,
    is_current_stream_capturing,
    is_initialized,
    npurt,
    set_device,
    synchronize,
)
from torch_npu.npu.streams import (
    Event,
    ExternalEvent,
    ExternalStream,
    Stream,
    StreamContext,
    SyncLaunchStream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from torch_npu.npu.utils import (
    can_device_access_peer,
    get_amp_supported_dtype,
    get_autocast_dtype,
    get_cann_version,
    get_device_capability,
    get_device_name,
    get_soc_version,
    get_device_properties,
    event_counters,
    get_sync_debug_mode,
    is_autocast_enabled,
    is_bf16_supported,
    mem_get_info,
    set_autocast_dtype,
    set_autocast_enabled,
    set_sync_debug_mode,
    utilization,
)
from torch_npu.npu import _graph_debug_ops, _npugraph_conditional_nodes, _optim, _super_kernel, amp, memory, random
from torch_npu.npu._graph_dispatch import *  # noqa: F403
from torch_npu.npu._graph_handlers import *  # noqa: F403
from torch_npu.npu._graphed_callables import *  # noqa: F403
from torch_npu.npu._host_functions import *  # noqa: F403
from torch_npu.npu.graphs import NPUGraph, graph, graph_pool_handle
from torch_npu.npu.memory import *  # noqa: F403
from torch_npu.npu.random import *  # noqa: F403

OutOfMemoryError = torch.OutOfMemoryError


_ABSENT = {"lightning_indexer": "the operator is torch_npu.npu_lightning_indexer"}


def __getattr__(name):
    # torch.utils.checkpoint looks whether there are random numbers of the device to keep.
    if name == "_initialized":
        return is_initialized()
    if name == "npugraph_ex":
        from torch_npu.npu import npugraph_ex

        return npugraph_ex
    # torch.compile asks for it when it compiles for the first time. The module registers all that inductor needs.
    if name == "Scheduling":
        from torch_npu.npu import _inductor  # noqa: F401
    raise _names._error(__name__, name, _ABSENT)
