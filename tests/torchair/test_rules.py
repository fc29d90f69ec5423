# SPDX-License-Identifier: Apache-2.0
"""What the engine is told of operators of users, and which types their results have."""
import json

import pytest
import torch
import torchair
from acl_support import log
from support_ge import check, compiled, equal, graphs_of, numbers
from torchair._ge_concrete_graph import inference_rule
from torchair._ge_concrete_graph.dtypes import DataType
from torchair.ge import attr, custom_op

library = torch.library.Library("torchair_rules", "DEF")
own = torch.ops.torchair_rules


def define(schema, function, fake=None):
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchair_rules::{name}", fake or function, lib=library)
    return getattr(own, name).default


def converted(target):
    return torchair.register_fx_node_ge_converter(target)


rows = define("rows(Tensor x, SymInt n) -> Tensor", lambda x, n: x.narrow(0, 0, n).clone(), lambda x, n: x.new_empty(n, *x.shape[1:]))
halves = define("halves(Tensor x, Tensor y) -> (Tensor, Tensor)", lambda x, y: (x[: x.shape[0] // 2] + 1, y.t().contiguous()),
                lambda x, y: (x.new_empty(x.shape[0] // 2, *x.shape[1:]), y.new_empty(y.shape[1], y.shape[0])))
odd = define("odd(Tensor x) -> Tensor", torch.relu, lambda x: x.new_empty(torch.sym_max(x.shape[0] * 2, 5)))


def rules(made):
    return [json.loads(op.attr["_inference_rule"].s) for op in made[0].graph.op if "_inference_rule" in op.attr]


def _stop(*_):
    raise RuntimeError("stopped")


def without_run(function, *args, monkeypatch):
    """The graph, as far as it gets: the engine has no such operators."""
    from torchair._ge_concrete_graph.program import Program

    monkeypatch.setattr(Program, "first_run", _stop)
    from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph

    made, optimize = [], GeConcreteGraph.optimize
    monkeypatch.setattr(GeConcreteGraph, "optimize", lambda self: (made.append(self), optimize(self))[1])
    with pytest.raises(Exception, match="stopped"):
        compiled(function, dynamic=True)(*args)
    return made


def test_TA_078_rules_of_shapes(monkeypatch):
    monkeypatch.setattr(inference_rule, "is_known", lambda kind: kind not in ("Relu", "Sigmoid", "SplitV"))

    @converted(rows)
    def convert_rows(x, n, *, meta_outputs):
        return torchair.ge.Cast(custom_op("Relu", inputs={"x": torchair.ge.Clone(x), "n": n}, outputs=["y"]), dst_type=DataType.DT_FLOAT)

    @converted(halves)
    def convert_halves(x, y, *, meta_outputs):
        return custom_op("SplitV", inputs={"x": x, "y": y}, outputs=[("y", 2)], attrs={"num_split": attr.Int(2)})

    x, y = numbers(6, 3), numbers(4, 5)
    made = without_run(lambda x, y: own.halves(x, y), x, y, monkeypatch=monkeypatch)
    assert rules(made) == [
        {"shape": {"inputs": [["s0", "s1"], ["s2", "s3"]], "outputs": [["Floor(Div(s0, 2))", "s1"], ["s3", "s2"]]}, "dtype": [0, 0]}
    ]
    made = without_run(lambda x, y: own.rows(x, y.shape[0]), x, y, monkeypatch=monkeypatch)
    found = rules(made)[0]["shape"]
    assert found["outputs"] == [["v1", "s0"]] and found["inputs"][1] == ["v1"] and found["inputs"][0][1] == "s0"

    @converted(odd)
    def convert_odd(x, *, meta_outputs):
        return custom_op("Sigmoid", inputs={"x": x}, outputs=["y"])

    with log() as lines:
        made = without_run(lambda x: own.odd(x), numbers(4), monkeypatch=monkeypatch)
    assert rules(made) == [] and lines.count("torchair_rules.odd") >= 1


def test_TA_078_the_engine_reads_the_rules(monkeypatch):
    """The rule is that of an operator that the engine knows, so that it holds both against each other."""
    monkeypatch.setattr(inference_rule, "is_known", lambda kind: kind != "ConcatD")
    joined = define("joined(Tensor x, Tensor y) -> Tensor", lambda x, y: torch.cat([x, y], 1),
                    lambda x, y: x.new_empty(x.shape[0], x.shape[1] + y.shape[1]))

    @converted(joined)
    def convert(x, y, *, meta_outputs):
        return custom_op("ConcatD", inputs={"x": [x, y]}, outputs=["y"], attrs={"concat_dim": attr.Int(1), "N": attr.Int(2)})

    step = compiled(lambda x, y: own.joined(x, y) * 2, dynamic=True)
    for n in (3, 5):
        x, y = numbers(n, 2), numbers(n, n)
        equal(step(x, y), torch.cat([x, y], 1) * 2)
    made, _ = graphs_of(lambda x, y: own.joined(x, y) * 2, numbers(3, 2), numbers(3, 4), dynamic=True)
    assert rules(made)[0]["shape"]["outputs"] == [["s0", "(s1 + s3)"]] or "+" in rules(made)[0]["shape"]["outputs"][0][1]


def test_TA_044_types_of_results():
    plain = define("plain(Tensor x) -> Tensor", lambda x: x.to(torch.float16), lambda x: x.new_empty(x.shape, dtype=torch.float16))

    @converted(plain)
    def convert(x, *, meta_outputs):
        y = custom_op("Cast", inputs={"x": x}, outputs=["y"], attrs={"dst_type": attr.Int(1)})
        assert y.dtype == DataType.DT_UNDEFINED
        return y

    check(own.plain, numbers(3))
    made, _ = graphs_of(own.plain, numbers(3))
    assert list(made[0].graph.attr["_output_dtypes"].list.i) == [int(DataType.DT_FLOAT16)]


@pytest.mark.parametrize("special", ["DT_FLOAT8_E8M0", "DT_FLOAT4_E2M1", "DT_FLOAT4_E1M2", "DT_HIFLOAT8"])
def test_TA_044_048_special_types_are_kept(special, monkeypatch):
    getattr(own, "packed", None) or define("packed(Tensor x) -> Tensor", lambda x: x.to(torch.uint8, copy=True))
    packed = own.packed.default

    @converted(packed)
    def convert(x, *, meta_outputs):
        y = torchair.ge.Clone(x)
        y.desc.dtype = torchair._ge_concrete_graph.dtypes.to_proto(DataType[special])
        return y

    made = without_run(own.packed, numbers(3).to(torch.uint8), monkeypatch=monkeypatch)
    assert list(made[0].graph.attr["_output_dtypes"].list.i) == [int(DataType[special])]
    move = next(op for op in made[0].graph.op if op.type == "TensorMove")
    assert torchair._ge_concrete_graph.dtypes.from_proto(move.output_desc[0].dtype) == DataType[special]


def test_TA_085_small_and_unsigned_types():
    for dtype in (torch.float8_e5m2, torch.float8_e4m3fn):
        x = torch.tensor([0.3, -1.7, 250.0, 1e-3]).npu()
        check(lambda x: x.to(dtype).float(), x)
        small = x.to(dtype)
        equal(compiled(lambda x: x.float() * 2)(small), small.float() * 2)
        made, result = graphs_of(lambda x: x.to(dtype), x)
        assert result.dtype == dtype
        equal(result.float(), x.to(dtype).float())
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        check(lambda x: x.to(dtype), torch.tensor([1, 2, 60000], dtype=torch.int32).npu())
        check(lambda x: (x.to(torch.int64) + 1, x.to(torch.float32)), torch.tensor([1, 2, 60000]).npu().to(dtype))
        check(lambda x: x.clone(), torch.tensor([1, 2, 60000]).npu().to(dtype))


# ---- Operators that write, as functional graphs have them ----


def written(schema, function):
    name = schema.split("(")[0]
    library.define(schema)
    library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"torchair_rules::{name}", lambda *args, **kwargs: None, lib=library)
    return getattr(own, name).default


def assigned(x, value):
    """A node that writes ``x``: ScatterNdUpdate of all of its rows."""
    rows = torchair.ge.Const([[i] for i in range(x.symsize[0])])
    return custom_op("ScatterNdUpdate", inputs={"var": x, "indices": rows, "updates": value}, outputs=["var"])


def test_TA_063_operators_that_write_and_return_nothing():
    def both(x, y, kind, *, count, other=None):
        x.copy_(y * count if kind == "mul" else y)
        y.copy_(x + 1 if other is None else x + other)

    target = written("both(Tensor(a!) x, Tensor(b!) y, str kind, *, int count, Tensor? other=None) -> ()", both)

    @converted(target)
    def convert(x, y, kind, *, count, other=None, meta_outputs=None):
        assert kind == "mul" and isinstance(count, int)
        # The second write first: the last node is the only one of this call whose result replaces a copy by its name.
        value = torchair._ge_concrete_graph.ge_apis.Mul(y, float(count)) if kind == "mul" else y
        first = assigned(x, value)
        assigned(y, torchair._ge_concrete_graph.ge_apis.Add(first, 1.0 if other is None else other))

    def f(x, y, other):
        own.both(x, y, "mul", count=3)
        z = x + y
        own.both(x[1:], y[1:], "mul", count=2, other=other)
        return z, x * 1

    with log() as lines:
        check(f, numbers(3, 2), numbers(3, 2), numbers(2, 2))
    assert lines.count("no output of the operator is") >= 1


def test_TA_064_several_operators_stand_for_one():
    def halve(x):
        x.mul_(0.5)

    target = written("halved(Tensor(a!) x) -> ()", halve)

    @converted(target)
    def convert(x, *, meta_outputs=None):
        from torchair._ge_concrete_graph import ge_apis

        assigned(x, ge_apis.Mul(x, 0.5))

    def f(x):
        own.halved(x)
        return x + 1

    with log() as lines:
        step = check(f, numbers(3, 2))
        made, _ = graphs_of(f, numbers(3, 2))
    identity = next(op for op in made[0].graph.op if op.type == "Identity")
    assert identity.input[0].startswith("TensorMove") and identity.input[1] == "ScatterNdUpdate:-1"
    assert lines.count("the copy itself stands for it") >= 1 and step.backend.count == 1


# ---- What stays whole, and what is taken apart ----


def test_TA_090_decompositions_of_the_program(tmp_path):
    table = {torch.ops.aten.tanh.default: lambda x: 2 * torch.sigmoid(2 * x) - 1}
    x = numbers(3, 4)
    kinds = []
    for custom in (None, table):
        from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph

        made, optimize = [], GeConcreteGraph.optimize
        try:
            GeConcreteGraph.optimize = lambda self, made=made, optimize=optimize: (made.append(self), optimize(self))[1]
            equal(compiled(torch.tanh, custom_decompositions=custom)(x), torch.tanh(x))
        finally:
            GeConcreteGraph.optimize = optimize
        kinds.append({op.type for op in made[0].graph.op})
        torch._dynamo.reset()
    assert "Tanh" in kinds[0] and "Tanh" not in kinds[1] and "Sigmoid" in kinds[1]

    class Model(torch.nn.Module):
        def step(self, x):
            return torch.tanh(x)

    model = Model()
    step = torchair.inference.cache_compile(model.step, cache_dir=str(tmp_path), custom_decompositions=table)
    with torch.no_grad():
        equal(step(x), torch.tanh(x))
    text = torchair.inference.readable_cache(step.path, print_output=False)
    assert "Sigmoid" in text and "Tanh" not in text
