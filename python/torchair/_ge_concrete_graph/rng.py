# SPDX-License-Identifier: Apache-2.0
"""Random numbers in graphs: a seed that is a constant, and offsets that each call hands in."""
import torch

from torchair._ge_concrete_graph import ge_ir_pb2
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import Input, Tensor, default_graph
from torchair.ge import attr as ge_attr

_GROUP = 4  # numbers come in groups of so many


class State:
    """Of one generator in one graph."""

    def __init__(self, graph, generator):
        self.graph = graph
        self.generator = generator
        self.starts = []
        self.total = 0
        from torchair._ge_concrete_graph.ge_apis import Const

        self.seed = Const(generator.initial_seed() & (2**63 - 1), DataType.DT_INT64, node_name="initial_seed")
        self.data = graph.data("offset_list", DataType.DT_INT64, [0], host=True)
        graph.inputs["offset_list"] = Input("rng", None, self.data.node)
        self.unpack = graph.add("Unpack", [("x", self.data)], [], {"num": ge_attr.Int(0)}, "unpack_generator_offsets")

    def consume(self, count):
        """(seed, offset) for so many numbers."""
        place = len(self.starts)
        self.starts.append(self.total)
        self.total += -(-max(count, 1) // _GROUP) * _GROUP if count >= 0 else _GROUP
        self.unpack.attr["num"].i = place + 1
        self.unpack.output_desc.add(name=f"y{place}", dtype=ge_ir_pb2.DT_INT64, layout="ND").shape.SetInParent()
        for desc in (self.data.node.output_desc[0], self.data.node.input_desc[0], self.unpack.input_desc[0]):
            desc.shape.dim[:] = [place + 1]
        offset = Tensor(self.unpack, place)
        offset.symsize = []
        return self.seed, offset

    def offsets(self):
        """Of one call; the generator goes on by all that the call draws."""
        start = self.generator.get_offset()
        self.generator.set_offset(start + self.total)
        return torch.tensor([start + each for each in self.starts])


def _default_generator():
    import sys

    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is not None:
        torch_npu.npu.init()
        return torch_npu.npu.default_generators[torch_npu.npu.current_device()]
    return _HostGenerator()


class _HostGenerator:
    def __init__(self):
        self.offset = 0

    def initial_seed(self):
        return 10

    def get_offset(self):
        return self.offset

    def set_offset(self, offset):
        self.offset = offset


def get_ge_rng_state(philox_num=-1, gen=None):
    """(seed, offset): Tensors for an operator that draws so many numbers."""
    graph = default_graph()
    if graph.rng is None:
        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            graph.rng = State(graph, gen or _default_generator())
    return graph.rng.consume(philox_num)
