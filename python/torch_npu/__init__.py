# SPDX-License-Identifier: Apache-2.0
"""The device ``npu`` for PyTorch, on the CPU: streams, captured graphs, pools, random numbers."""
import os as _os
import sys as _sys

# Importing torch loads this package again through its entry point: once is enough.
_saved_autoload = _os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
_os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch  # noqa: E402

_other = torch.accelerator.current_accelerator(check_available=True)
if _other is not None and _other.type not in ("npu", "privateuseone"):
    raise RuntimeError(f"torch_npu cannot be loaded: there is another accelerator, {_other.type}")

import torch._meta_registrations  # noqa: E402,F401  results of operators are asked of these first

from torch_npu import _C  # noqa: E402


def _restore_autoload():
    if _saved_autoload is None:
        _os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    else:
        _os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = _saved_autoload


def _autoload():
    """Called by ``import torch``; importing the package has done everything."""
    _restore_autoload()


_restore_autoload()
torch.utils.rename_privateuse1_backend("npu")

from torch_npu import _fake  # noqa: E402,F401

from torch_npu import npu  # noqa: E402
from torch_npu import _distribution, _names  # noqa: E402
from torch_npu._errors import NpuError  # noqa: E402,F401
from torch_npu.npu.memory import erase_stream  # noqa: E402,F401
from torch_npu.version import __version__  # noqa: E402,F401

torch._register_device_module("npu", npu)
torch.utils.generate_methods_for_privateuse1_backend(
    for_tensor=True,
    for_module=True,
    for_packed_sequence=True,
    for_storage=True,
    unsupported_dtype=[torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8],
)

from torch_npu import _ops  # noqa: E402

_ops.export(_sys.modules[__name__])

torch.nn.parameter.UninitializedTensorMixin._allowed_methods.append(torch.Tensor.npu)

import torch.utils.checkpoint as _checkpoint  # noqa: E402

_checkpoint.DefaultDeviceType.set_device_type("npu")

# What lies around the device: types in messages between processes, collectives, dlpack; modules that programs reach by
# torch_npu.NAME without an import of their own.
from torch_npu import (  # noqa: E402,F401
    _dlpack,
    contrib,
    distributed,
    multiprocessing,
    op_plugin,
    optim,
    profiler,
    testing,
    utils,
)
from torch_npu.multiprocessing import reductions as _reductions  # noqa: E402,F401


def __getattr__(name):
    return _names.lookup(__name__, name)


_distribution.warn_of_another()

import atexit as _atexit  # noqa: E402

_atexit.register(_C._npu_runPendingHostFuncs)  # after the devices have finished: hooks run last to first
_atexit.register(_C._npu_shutdown)
