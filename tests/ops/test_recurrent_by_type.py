# SPDX-License-Identifier: Apache-2.0
"""LSTM layers by their type (DynamicRNN, DynamicRNNV2 and their gradients) against plain steps in float64: orders of the
gates, both directions, lengths and masks, operands that are left out; captured; refusals."""

import ctypes
from dataclasses import dataclass

import pytest
import torch

import aclnn

_compiler = ctypes.CDLL(str(aclnn.LIB_DIR / "libacl_op_compiler.so"))
_acl = ctypes.CDLL(str(aclnn.LIB_DIR / "libascendcl.so"))
for _name in ("aclCreateTensorDesc", "aclCreateDataBuffer", "aclopCreateAttr"):
    getattr(_acl, _name).restype = ctypes.c_void_p

SETTERS = {bool: ("Bool", ctypes.c_uint8), int: ("Int", ctypes.c_int64), float: ("Float", ctypes.c_float),
           str: ("String", lambda text: ctypes.c_char_p(text.encode()))}
SEQUENCES = ("y", "output_h", "output_c", "i", "j", "f", "o", "tanhc")
ATTRIBUTES_MISMATCH, INPUT_MISMATCH = 100023, 100021


@pytest.fixture(autouse=True)
def fresh_memory():
    aclnn.device().reset()


def descriptor(tensor):
    """Null tensors are left out."""
    if tensor is None:
        return ctypes.c_void_p(_acl.aclCreateTensorDesc(-1, 0, None, -1))
    sizes = (ctypes.c_int64 * max(1, tensor.dim()))(*tensor.shape)
    return ctypes.c_void_p(
        _acl.aclCreateTensorDesc(aclnn.NUMBERS[tensor.dtype], tensor.dim(), sizes, aclnn.FORMAT_ND))


class Call:
    """One call with its operands in device memory; results are read from `out`."""

    def __init__(self, kind, inputs, outputs, attributes):
        self.kind = kind.encode()
        self.placed = [self.place(t) for t in inputs]
        self.out = [self.place(t) for t in outputs]
        self.attributes = ctypes.c_void_p(_acl.aclopCreateAttr())
        for name, value in attributes.items():
            word, convert = SETTERS[type(value)]
            aclnn.check(getattr(_acl, f"aclopSetAttr{word}")(self.attributes, name.encode(), convert(value)), name)
        self.descs = [descriptor(t) for t in (*inputs, *outputs)]

    @staticmethod
    def place(tensor):
        if tensor is None:
            return None
        placed = aclnn.Placed(tensor.shape, tensor.dtype)
        placed.write(tensor)
        return placed

    def launch(self):
        buffers = [ctypes.c_void_p(_acl.aclCreateDataBuffer(
            ctypes.c_void_p(p.address if p else None), ctypes.c_size_t(p.count * p.item if p else 0)))
            for p in (*self.placed, *self.out)]
        n, m = len(self.placed), len(self.out)
        array = lambda values: (ctypes.c_void_p * len(values))(*[v.value for v in values])  # noqa: E731
        status = _compiler.aclopCompileAndExecute(
            self.kind, n, array(self.descs[:n]), array(buffers[:n]), m, array(self.descs[n:]), array(buffers[n:]),
            self.attributes, 0, 0, None, aclnn.device().stream)
        for buffer in buffers:
            _acl.aclDestroyDataBuffer(buffer)
        aclnn.check(status, self.kind.decode())

    def run(self):
        """Eagerly, then captured with other memory in the results."""
        self.launch()
        aclnn.device().synchronize()
        eager = [p.read().clone() for p in self.out]
        with aclnn.Capture() as capture:
            self.launch()
        for p in self.out:
            p.raw.fill_(p.PATTERN)
        capture.replay()
        aclnn.device().synchronize()
        for mine, first in zip(self.out, eager, strict=True):
            assert torch.equal(mine.read(), first), "a replay differs from the eager call"
        capture.destroy()
        return eager

    def destroy(self):
        for desc in self.descs:
            _acl.aclDestroyTensorDesc(desc)
        _acl.aclopDestroyAttr(self.attributes)


def compute(kind, inputs, outputs, attributes):
    call = Call(kind, inputs, outputs, attributes)
    try:
        return call.run()
    finally:
        call.destroy()


@dataclass
class Problem:
    steps: int
    batch: int
    features: int
    hidden: int
    dtype: torch.dtype = torch.float32
    order: str = "ifjo"
    reverse: bool = False
    lengths: tuple = ()
    presence: str = "mask"  # how lengths are passed
    biased: bool = True
    states: bool = True
    forget_bias: float = 0.0

    def make(self, seed=5):
        torch.manual_seed(seed)
        t, b, i, h = self.steps, self.batch, self.features, self.hidden
        made = {"x": (t, b, i), "wx": (i, 4 * h), "wh": (h, 4 * h), "b": (4 * h,), "h0": (b, h), "c0": (b, h)}
        values = {name: torch.randn(shape).to(self.dtype) for name, shape in made.items()}
        if not self.biased:
            values["b"].zero_()
        if not self.states:
            values["h0"].zero_(), values["c0"].zero_()
        return values

    def seq_length(self):
        if not self.lengths:
            return None
        if self.presence == "lengths":
            return torch.tensor(self.lengths, dtype=torch.int32)
        runs = torch.arange(self.steps).unsqueeze(1) < torch.tensor(self.lengths)
        return runs.unsqueeze(2).expand(-1, -1, self.hidden).to(torch.float16).contiguous()

    def attributes(self, **more):
        return {"cell_type": "LSTM", "direction": "REDIRECTIONAL" if self.reverse else "UNIDIRECTIONAL",
                "gate_order": self.order, **more}


def plain(problem, v):
    """Sequences by name, in the type of the values, and the last states."""
    h, c = v["h0"], v["c0"]
    lengths = torch.tensor(problem.lengths or (problem.steps,) * problem.batch)
    kept = {name: [None] * problem.steps for name in SEQUENCES}
    for t in (reversed(range(problem.steps)) if problem.reverse else range(problem.steps)):
        parts = dict(zip(problem.order.replace("c", "j"), (v["x"][t] @ v["wx"] + h @ v["wh"] + v["b"]).chunk(4, -1)))
        i, f, o = parts["i"].sigmoid(), (parts["f"] + problem.forget_bias).sigmoid(), parts["o"].sigmoid()
        j = parts["j"].tanh()
        cell = f * c + i * j
        runs = (t < lengths).unsqueeze(1)
        state, zero = o * cell.tanh(), torch.zeros_like(cell)
        h, c = torch.where(runs, state, h), torch.where(runs, cell, c)
        for name, value in zip(SEQUENCES, (state, None, None, i, j, f, o, cell.tanh())):
            kept[name][t] = None if value is None else torch.where(runs, value, zero)
        kept["output_h"][t], kept["output_c"][t] = h, c
    return {name: torch.stack(values) for name, values in kept.items()}, h, c


PROBLEMS = (
    Problem(3, 2, 3, 5),
    Problem(4, 9, 5, 3, order="ijfo", reverse=True, forget_bias=0.5),
    Problem(4, 3, 2, 4, lengths=(4, 2, 1)),
    Problem(4, 3, 2, 4, lengths=(1, 4, 3), presence="lengths", reverse=True),
    Problem(2, 3, 4, 2, dtype=torch.bfloat16, order="ifco"),
    Problem(3, 2, 4, 6, dtype=torch.float16, biased=False),
    Problem(1, 1, 1, 1, states=False),
)
IDS = [f"{p.dtype}-{p.order}-{'-'.join(map(str, p.lengths))}" for p in PROBLEMS]


def close(mine, expected, dtype):
    rough = dtype in (torch.float16, torch.bfloat16)
    torch.testing.assert_close(mine.double(), expected.double(), rtol=0.02 if rough else 1e-5, atol=0.03 if rough else 1e-5)


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
@pytest.mark.parametrize("kind", ["DynamicRNN", "DynamicRNNV2"])
def test_forward(kind, problem):
    v = problem.make()
    expected, _, _ = plain(problem, {name: value.double() for name, value in v.items()})
    weights = [torch.cat([v["wx"], v["wh"]])] if kind == "DynamicRNN" else [v["wx"], v["wh"]]
    bias = v["b"] if problem.biased or kind == "DynamicRNN" else None
    states = [v["h0"], v["c0"].unsqueeze(0)] if problem.states else [None, None]
    results = [torch.zeros(problem.steps, problem.batch, problem.hidden, dtype=problem.dtype) for _ in SEQUENCES]
    got = compute(kind, [v["x"], *weights, bias, problem.seq_length(), *states], results,
                  problem.attributes(forget_bias=problem.forget_bias, keep_prob=1.0, activation="tanh"))
    for name, mine in zip(SEQUENCES, got, strict=True):
        close(mine, expected[name], problem.dtype)


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
@pytest.mark.parametrize("kind", ["DynamicRNNGrad", "DynamicRNNV2Grad"])
def test_gradients(kind, problem):
    v = problem.make()
    double = {name: value.double().requires_grad_() for name, value in v.items()}
    sequences, h, c = plain(problem, double)
    dy, dh, dc = (torch.randn(shape.shape).to(problem.dtype) for shape in (sequences["y"], h, c))
    ((sequences["y"] * dy.double()).sum() + (h * dh.double()).sum() + (c * dc.double()).sum()).backward()
    grad = {name: value.grad for name, value in double.items()}
    saved = {name: value.detach().to(problem.dtype) for name, value in sequences.items()}
    one = kind == "DynamicRNNGrad"
    weights = [torch.cat([v["wx"], v["wh"]]), v["b"]] if one else [v["wx"], v["wh"]]
    tanh_c = None if one and not problem.lengths else saved["tanhc"]
    nothing = torch.zeros((), dtype=problem.dtype)
    peepholes, dropout = [nothing] * 3, torch.zeros((), dtype=torch.uint8)
    presence = problem.seq_length()
    inputs = [v["x"], *weights, saved["y"], v["h0"], v["c0"], saved["output_h"], saved["output_c"], dy, dh, dc,
              *(saved[name] for name in "ijfo"), tanh_c, nothing if presence is None else presence,
              *([dropout, *peepholes] if one else [*peepholes, dropout])]
    expected = [grad["wx"], grad["wh"], grad["b"], grad["x"], grad["h0"], grad["c0"]]
    if one:
        expected[:2] = [torch.cat(expected[:2])]
    results = [torch.zeros_like(value, dtype=problem.dtype) for value in expected]
    got = compute(kind, inputs, results, problem.attributes(keep_prob=-1.0 if one else 1.0))
    for mine, value in zip(got, expected, strict=True):
        close(mine, value, problem.dtype)


@pytest.mark.parametrize("attributes, words, status", [
    ({"direction": "BIDIRECTIONAL"}, ["direction is 'BIDIRECTIONAL'", "REDIRECTIONAL"], ATTRIBUTES_MISMATCH),
    ({"gate_order": "ojif"}, ["gate_order is 'ojif'", "ifjo"], ATTRIBUTES_MISMATCH),
    ({"cell_type": "GRU"}, ["cell_type is 'GRU'"], ATTRIBUTES_MISMATCH),
    ({"activation": "relu"}, ["activation is 'relu'"], ATTRIBUTES_MISMATCH),
    ({"use_peephole": True}, ["use_peephole"], ATTRIBUTES_MISMATCH),
    ({"time_major": False}, ["time_major", "[steps, batch, features]"], ATTRIBUTES_MISMATCH),
    ({"num_proj": 3}, ["num_proj is 3"], ATTRIBUTES_MISMATCH),
    ({"cell_clip": 1.0}, ["cell_clip is 1"], ATTRIBUTES_MISMATCH),
    ({"keep_prob": 0.5}, ["keep_prob is 0.5"], ATTRIBUTES_MISMATCH),
    ({}, ["w has the shape [7, 20]", "x has [3, 2, 3]"], INPUT_MISMATCH),
])
def test_refusals(attributes, words, status):
    problem = PROBLEMS[0]
    v = problem.make()
    weight = torch.cat([v["wx"], v["wh"]])
    results = [torch.zeros(problem.steps, problem.batch, problem.hidden) for _ in SEQUENCES]
    call = Call("DynamicRNN", [v["x"], weight if attributes else weight[:7], v["b"]], results,
                {"gate_order": "ifjo", **attributes})
    try:
        with pytest.raises(aclnn.AclError) as error:
            call.launch()
    finally:
        call.destroy()
    assert error.value.status == status
    assert all(word in error.value.message for word in words), error.value.message


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16))
@pytest.mark.parametrize("kind", ["LSTMFused", "GRUFused"])
def test_fused_layers(kind, dtype):
    torch.manual_seed(9)
    is_lstm = kind == "LSTMFused"
    for steps, batch, features, hidden, biased, stated in ((3, 2, 5, 7, True, True), (1, 9, 4, 33, False, True),
                                                           (4, 3, 6, 16, True, False)):
        module = (torch.nn.LSTM if is_lstm else torch.nn.GRU)(features, hidden, bias=biased).to(dtype)
        x = torch.randn(steps, batch, features).to(dtype)
        states = [torch.randn(1, batch, hidden).to(dtype) if stated else torch.zeros(1, batch, hidden, dtype=dtype)
                  for _ in range(2 if is_lstm else 1)]
        wide = [s.double() for s in states]
        params = [p.detach() for p in module.parameters()]
        y, last = module.double()(x.double(), tuple(wide) if is_lstm else wide[0])
        expected = [y, *(last if is_lstm else [last])]
        # States may have two dims.
        given = [s[0] if i == 1 else s for i, s in enumerate(states)] if stated else [None] * len(states)
        got = compute(kind, [x, *params, *([] if biased else [None, None]), *given],
                      [torch.zeros(e.shape, dtype=dtype) for e in expected], {})
        for mine, wanted in zip(got, expected, strict=True):
            close(mine, wanted.detach(), dtype)
