# SPDX-License-Identifier: Apache-2.0
"""What FakeTensors say of the device, where torch knows the answer of its own devices only."""
import torch
import torch._meta_registrations

_of_torch = torch._C._conv_determine_backend_memory_format


def _conv_memory_format(input, weight, backend):
    """Convolutions keep channels_last, by the rule of the CPU (convolution.cc asks the same)."""
    if input.device.type == "npu":
        backend = torch._C._ConvBackend.Mkldnn
    return _of_torch(input, weight, backend)


torch._C._conv_determine_backend_memory_format = _conv_memory_format

_hint_of_torch = torch._meta_registrations.device_hint


def _device_hint(tensor):
    """What Meta kernels that look at the device ask: it is ours, not CUDA, where the tensor does not say."""
    hint = _hint_of_torch(tensor)
    return "npu" if hint == "cuda" and getattr(tensor, "device", None) == torch.device("meta") else hint


torch._meta_registrations.device_hint = _device_hint

# Graphs see the steps of these networks, as those of other devices do; only eager calls are one operator (rnn.cc).
for _network in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input):
    _steps = _network.py_kernels[torch._C.DispatchKey.CompositeImplicitAutograd]
    _network.py_impl(torch._C.DispatchKey.AutogradPrivateUse1)(_steps)
