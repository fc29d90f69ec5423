# SPDX-License-Identifier: Apache-2.0
"""``torch.compile(mode="reduce-overhead")``: compiled functions as graphs."""
import logging
import threading

import torch
from torch._inductor import config, cudagraph_utils
from torch_npu.npu.graphs import NPUGraph, graph

_log = logging.getLogger(__name__)

_MOST_GRAPHS = 32  # of one compiled function: for sizes, streams and places of its inputs


class _Recorded:
    """One graph of a compiled function, with the inputs that it reads."""

    def __init__(self, function, inputs, in_place):
        """``in_place``: indices of inputs that every call passes at the same address."""
        self.addresses = {index: inputs[index].data_ptr() for index in in_place}
        self.statics = [
            _like(value) if _is_device_tensor(value) and index not in self.addresses else value
            for index, value in enumerate(inputs)
        ]
        self.filled = [
            index
            for index, value in enumerate(inputs)
            if _is_device_tensor(value) and index not in self.addresses
        ]
        self.graph = NPUGraph()
        with graph(self.graph, capture_error_mode="thread_local"):
            outputs = function(list(self.statics))
        self.graph._forget_uses()  # what is read in place is compared with the inputs of each call
        places = {}
        for index in self.addresses:
            places.setdefault(inputs[index].untyped_storage().data_ptr(), index)
        self.outputs = [self._kept(value, places, inputs) for value in outputs]
        for index in self.addresses:
            self.statics[index] = None  # the callers' own: their memory is not kept for the graph

    @staticmethod
    def _kept(value, places, inputs):
        """(index of the input it belongs to or None, the result)"""
        if not _is_device_tensor(value):
            return None, value
        index = places.get(value.untyped_storage().data_ptr()) if value.numel() else None
        if index is None:
            return None, value
        behind = value.storage_offset() - inputs[index].storage_offset()
        return index, (value.size(), value.stride(), behind)

    def fits(self, inputs):
        return all(inputs[index].data_ptr() == address for index, address in self.addresses.items())

    def replay(self, inputs):
        for index in self.filled:
            _copy(self.statics[index], inputs[index])
        self.graph.replay()
        results = []
        for index, value in self.outputs:
            if index is not None:
                size, stride, behind = value
                base = inputs[index]
                results.append(torch.as_strided(base, size, stride, base.storage_offset() + behind))
            elif _is_device_tensor(value):
                results.append(_copy(_like(value), value))
            else:
                results.append(value)
        return results


def _is_device_tensor(value):
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


def _extent(tensor):
    """All memory between the first and the last element, as one row: also where elements overlap."""
    if tensor.numel() == 0:
        return tensor.reshape(-1)
    length = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride())) + 1
    return torch.as_strided(tensor, (length,), (1,))


def _like(tensor):
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _copy(to, tensor):
    _extent(to).copy_(_extent(tensor.detach()))
    return to


class GraphedFunction:
    """A compiled function that becomes a graph at its second call with inputs of a kind.

    Inputs are copied to the graph's own and results out of it, so results stay valid for ever. Inputs that come at the
    same address each time (parameters) are read where they are; when one has moved, there is a new graph.
    """

    def __init__(self, function, device, static_inputs, mutated_inputs):
        self._function = function
        self._device = device
        self._static = frozenset(static_inputs)
        self._mutated = frozenset(mutated_inputs)
        self._recorded = {}
        self._seen = {}  # addresses at the first call of a kind
        self._why_not = None
        self._lock = threading.Lock()

    def __call__(self, inputs):
        if self._why_not is not None:
            return self._function(inputs)
        with torch.npu.device(self._device):
            return self._call(inputs)

    def _call(self, inputs):
        if torch.npu.is_current_stream_capturing():
            return self._function(inputs)
        # What a graph keeps serves calls in and outside of inference mode.
        with self._lock, torch.inference_mode(False), torch.no_grad():
            values = list(inputs)
            key = (torch.npu.current_stream(), *(value for value in values if not isinstance(value, torch.Tensor)))
            recorded = self._recorded.get(key)
            if recorded is None or not recorded.fits(values):
                recorded = self._record(key, values, recorded)
            if recorded is not None:
                inputs.clear()  # as the function does with what it is given
                return recorded.replay(values)
        return self._function(inputs)

    def _record(self, key, values, before):
        """None: this call is not for a graph."""
        addresses = {
            index: values[index].data_ptr()
            for index in self._static | self._mutated
            if _is_device_tensor(values[index])
        }
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _MOST_GRAPHS:
                return self._give_up(f"it has been called with more than {_MOST_GRAPHS} kinds of inputs")
            self._seen[key] = addresses  # the warm-up
            return None
        self._seen[key] = {index: address for index, address in seen.items() if addresses.get(index) == address}
        in_place = self._seen[key]
        if before is not None and set(in_place) == set(before.addresses):
            return before  # unreachable: one of them has moved
        moved = self._mutated & (addresses.keys() - in_place.keys())
        if moved:
            return self._give_up(f"it writes input {min(moved)}, which is at another address at each call")
        self._recorded.pop(key, None)
        try:
            self._recorded[key] = _Recorded(self._function, values, in_place)
        except RuntimeError as error:
            return self._give_up(str(error))
        return self._recorded[key]

    def _give_up(self, why):
        self._why_not = why
        self._recorded.clear()
        _log.warning("a compiled function runs without a graph (mode=\"reduce-overhead\"): %s", why)


class Policy(cudagraph_utils.CUDAGraphPolicy):
    """In the place of inductor's graphs of CUDA: compiled functions of npu, all others run as they are."""

    def cudagraphify(self, model, example_inputs, static_input_idxs, *, device_index, mutated_input_idxs=(), **others):
        return GraphedFunction(model, device_index, static_input_idxs, mutated_input_idxs)

    def should_wrap(self, compiled_graph):
        info = getattr(compiled_graph, "cudagraph_info", None)
        why = getattr(compiled_graph, "disabled_cudagraphs_reason", None)
        why = why or ", ".join(info.cudagraph_fail_reasons if info is not None else ())
        if why and "npu" in getattr(compiled_graph, "device_types", ()):
            _log.warning("a compiled function runs without a graph (mode=\"reduce-overhead\"): %s", why)
        return not why


def register():
    check = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes

    def check_devices(device_node_mapping):
        devices = [device for device in device_node_mapping if device.type != "meta"]
        if not any(device.type == "npu" for device in devices):
            return check(device_node_mapping)
        if len(devices) == 1:
            return None
        return "it works on several devices: " + ", ".join(sorted(map(str, devices)))

    cudagraph_utils.check_multiple_devices_or_any_cpu_nodes = check_devices
    if config.cudagraph_policy is None:
        config.cudagraph_policy = Policy()
