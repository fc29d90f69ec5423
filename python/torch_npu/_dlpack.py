# SPDX-License-Identifier: Apache-2.0
"""Exchange of tensors by DLPack: those of npu are of the device type kDLExtDev; the CPU can have them, too."""
import functools

import torch
from torch.utils.dlpack import DLDeviceType
from torch_npu import _C
from torch_npu._errors import refused

_device_of = torch.Tensor.__dlpack_device__
_export = torch.Tensor.__dlpack__


@functools.wraps(_device_of)
def _dlpack_device(self):
    if self.device.type == "npu":
        return DLDeviceType.kDLExtDev, self.device.index
    return _device_of(self)


@functools.wraps(_export)
def _dlpack(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
    if self.device.type != "npu":
        return _export(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if stream not in (None, -1):
        raise refused(BufferError("tensors of npu take no stream of the consumer; synchronize before the export"))
    # Whoever takes it knows nothing of streams of npu.
    torch.npu.current_stream(self.device).synchronize()
    if dl_device is not None and dl_device[0] == DLDeviceType.kDLCPU:
        if self.requires_grad:
            raise refused(BufferError("Can't export tensors that require gradient, use tensor.detach()"))
        here = self.cpu() if copy else _C._npu_hostView(self.resolve_conj().resolve_neg())
        return _export(here, stream=None, max_version=max_version, dl_device=dl_device, copy=False)
    return _export(self, stream=-1, max_version=max_version, dl_device=dl_device, copy=copy)


torch.Tensor.__dlpack_device__ = _dlpack_device
torch.Tensor.__dlpack__ = _dlpack
