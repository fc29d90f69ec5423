# SPDX-License-Identifier: Apache-2.0
"""Operators of users, scopes, prints, order."""
import pytest
import torch
import torchair
from support_ge import check, compiled, equal, graphs_of, numbers, types
from torchair import ops, scope
from torchair.ge import custom_op

library = torch.library.Library("torchair_tests", "DEF")
for schema in ("tanh(Tensor x) -> Tensor", "scaled(Tensor x, Scalar s) -> Tensor", "leaky_relu(Tensor x, float negative_slope) -> Tensor",
               "no_such_thing(Tensor x) -> Tensor", "add(Tensor x) -> Tensor", "exp(Tensor x, int a, int b, int c, int d) -> Tensor",
               "scatter_row_(Tensor(a!) x, Tensor indices, Tensor updates) -> ()"):
    library.define(schema)


def _scatter_row(x, indices, updates):
    x[indices] = updates


for name, function in {"tanh": torch.tanh, "scaled": lambda x, s: x * s, "leaky_relu": torch.nn.functional.leaky_relu,
                       "no_such_thing": torch.relu, "add": torch.relu, "exp": lambda x, *_: x.exp(), "scatter_row_": _scatter_row}.items():
    library.impl(name, function, "CompositeExplicitAutograd")
    if name != "scatter_row_":
        torch.library.register_fake(f"torchair_tests::{name}", lambda x, *_: torch.empty_like(x), lib=library)
    else:
        torch.library.register_fake(f"torchair_tests::{name}", lambda x, i, u: None, lib=library)
own = torch.ops.torchair_tests


def test_TA_076_operators_with_the_name_of_the_engines():
    check(lambda x: own.tanh(x) + 1, numbers(3))
    made, _ = graphs_of(lambda x: own.leaky_relu(x, 0.3), numbers(3))
    assert types(made[0]) == ["Data", "LeakyRelu", "NetOutput"]


@pytest.mark.parametrize("function, text", [
    (lambda x: own.scaled(x, 2), "scalar.*|Number"), (lambda x: own.no_such_thing(x), "NoSuchThing"),
    (lambda x: own.add(x), "1 tensor arguments"), (lambda x: own.exp(x, 1, 2, 3, 4), "4 other arguments"),
    (lambda x: torch.linalg.inv(x), "built-in ops not support auto-generate")], ids=["number", "name", "tensors", "attributes", "aten"])
def test_TA_077_refusals(function, text, monkeypatch):
    monkeypatch.setenv("REPRISE_STRICT", "1")  # else PyTorch runs operators of its own: test_split.py
    with pytest.raises(Exception, match=f"(?s){text}.*register_fx_node_ge_converter"):
        compiled(function)(numbers(3, 3))


def test_TA_061_062_operators_that_write():
    @torchair.register_fx_node_ge_converter(own.scatter_row_.default)
    def convert(x, indices, updates, *, meta_outputs=None):
        custom_op("ScatterNdUpdate", inputs={"var": x, "indices": indices, "updates": updates}, outputs=["var"])

    def whole(x, updates, rows):
        own.scatter_row_(x, rows, updates)
        return x + 1

    def part(x, updates, rows):
        own.scatter_row_(x[1:], rows, updates)
        return x * 2

    rows = torch.tensor([[2], [0]]).npu()
    for function in (whole, part):
        def eager(x, updates, rows, function=function):
            return function(x, updates, rows.squeeze(1))

        x, y, updates = numbers(4, 3), None, numbers(2, 3)
        y = x.clone()
        made, result = graphs_of(function, x, updates, rows)
        equal(result, eager(y, updates, rows))
        equal(x, y)
        assert ("ViewCopy" in types(made[0])) == (function is part)


def test_TA_097_098_099_100_101_scopes():
    def f(x):
        y = x + 1
        with scope.npu_stream_switch("outer", 3, False), scope.limit_core_num(4, 8):
            y = y * 2
            with scope.npu_stream_switch("inner"), scope.limit_core_num(2, 3), scope.op_never_timeout(True):
                y = y.relu()
            y = y.exp()
        with scope.super_kernel("fused", "a=1"):
            y = y - 1
            with scope.super_kernel(None):
                y = y.tanh()
        return y

    x = numbers(3)
    made, result = graphs_of(f, x)
    equal(result, ((x + 1) * 2).relu().exp().sub(1).tanh())
    ops_by_type = {op.type: op for op in made[0].graph.op}

    def attrs(kind):
        found = ops_by_type[kind].attr
        return {key: found[key].s.decode() or found[key].b for key in found
                if key.startswith("_") and "readable" not in key and "put_name" not in key}

    outer = {"_user_stream_label": "outer", "_user_stream_priority": "3", "_enable_inner_parallel": False, "_op_aicore_num": "4",
             "_op_vectorcore_num": "8"}
    assert attrs("Mul") == attrs("Exp") == outer
    assert attrs("Relu") == {"_user_stream_label": "inner", "_user_stream_priority": "0", "_enable_inner_parallel": True,
                             "_op_aicore_num": "2", "_op_vectorcore_num": "3", "_op_exec_never_timeout": True}
    assert attrs("Sub") == {"_super_kernel_scope": "fused", "_super_kernel_options": "a=1"} and attrs("Tanh") == {}
    with pytest.raises(TypeError, match="int"):
        scope.op_never_timeout(1)


def test_TA_103_scopes_are_paired():
    with pytest.raises(Exception, match="(?s)scope_enter.*custom passes.*graph breaks"):
        compiled(lambda x: (torch.ops.air.scope_exit(), x + 1)[1])(numbers(3))
    with pytest.raises(Exception, match="(?s)scope_exit.*custom passes.*graph breaks"):
        compiled(lambda x: (torch.ops.air.scope_enter(["_user_stream_label"], ["a"]), x + 1)[1])(numbers(3))


def test_TA_104_105_106_order():
    def f(x, y):
        a = x + 1
        token = ops.record()
        with scope.npu_stream_switch("side"):
            ops.wait([token, a])
            b = y.view(-1).t().mul(2).view(2, 3).permute(1, 0).sub(1)
        c = scope.npu_wait_tensor(a, b)
        return b.permute(1, 0) * 1, c + 1

    x, y = numbers(3), numbers(2, 3)
    made, result = graphs_of(f, x, y)
    equal(result, ((y * 2).sub(1), x + 2))
    graph = made[0].graph
    waiting = next(op for op in graph.op if op.attr["_user_stream_label"].s == b"side" and "Add:-1" in op.input)
    assert waiting.type != "Const"
    assert any(op.type == "Identity" and any(edge.endswith(":-1") for edge in op.input) for op in graph.op)


_PRINTED = [
    (lambda: torch.arange(9.0).view(3, 3), {"summarize_size": 1}),
    (lambda: torch.arange(24.0).view(2, 3, 4) / 7, {"summarize_size": 3}),
    (lambda: torch.arange(40), {"summarize_size": -1}),
    (lambda: torch.tensor(2.5), {}),
    (lambda: torch.tensor([True, False]), {}),
    (lambda: torch.tensor([1.5, -2.0, 1e20, float("nan"), float("inf"), -0.0]), {"summarize_size": 4}),
    (lambda: torch.ones(2, dtype=torch.bfloat16) * 1.25, {}),
    (lambda: torch.ones(2, dtype=torch.float16) / 3, {}),
    (lambda: torch.empty(0), {}),
    (lambda: torch.empty(2, 0), {"tensor_detail": True}),
    (lambda: torch.ones(2, 5, dtype=torch.bfloat16), {"tensor_detail": True, "summarize_size": 1}),
]


def printed(function, capfd):
    function()
    torch.npu.synchronize()
    out, err = capfd.readouterr()
    return out + err


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_TA_094_096_compiled_prints_are_those_of_eager_calls(capfd, dynamic):
    values = [make().npu() for make, _ in _PRINTED]

    def f(values):
        for value, (_, options) in zip(values, _PRINTED):
            ops.npu_print("a {x}", value, 3, "{}", **options)
        return values[0] + 1

    expected = printed(lambda: f(values), capfd)
    assert "a {x} [1 0] 3 {}" in expected and "tensor([], shape=[2, 0]" not in expected
    assert "tensor([[1 ... 1]\n [1 ... 1]], shape=[2, 5], dtype=torch.bfloat16)" in expected
    step = compiled(f, dynamic)
    for _ in range(2):
        assert printed(lambda: step(values), capfd) == expected


def test_TA_091_092_093_prints_keep_their_order(capfd):
    def f(x):
        ops.npu_print("before", x)
        x.add_(1)
        ops.npu_print("after", x)
        ops.npu_print("shape", x, tensor_detail=True)
        return x.sum()

    texts = []
    for function in (f, compiled(f, dynamic=True)):
        x = torch.arange(3.0).npu()
        texts.append(printed(lambda: function(x), capfd))
    assert texts[0] == texts[1] == "before [0 1 2]\nafter [1 2 3]\nshape tensor([1 2 3], shape=[3], dtype=torch.float32)\n"
    made, _ = graphs_of(f, torch.arange(3.0).npu())
    assert types(made[0]).count("StringFormat") == types(made[0]).count("PrintV2") == 3
    with pytest.raises(Exception, match="view_as_real"):
        compiled(lambda x: (ops.npu_print(x), x + 1)[1])(torch.ones(2, dtype=torch.complex64).npu())


def test_TA_095_prints_are_checked():
    x = torch.ones(2)
    for size in (0, -2):
        with pytest.raises(ValueError):
            ops.npu_print(x, summarize_size=size)
    for arguments in (dict(summarize_size="1"), dict(tensor_detail=1)):
        with pytest.raises(TypeError):
            ops.npu_print(x, **arguments)
    with pytest.raises(ValueError):
        ops.npu_print("nothing")
    with pytest.raises(TypeError):
        ops.npu_print(x, [])
