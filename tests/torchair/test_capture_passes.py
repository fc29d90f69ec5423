# SPDX-License-Identifier: Apache-2.0
"""Passes over the FX graphs of captured functions."""
import operator
import warnings

import pytest
import torch
import torch_npu  # noqa: F401
import torchair
from acl_support import compiled, config, graphs, log, operators
from torch._subclasses import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torchair import _fx_passes, scope
from torchair._acl_concrete_graph import reinplace
from torchair._acl_concrete_graph.cat_elimination import remove_cat_ops
from torchair._acl_concrete_graph.fx2acl_converter import key_inputs
from torchair._acl_concrete_graph.sizes import SizeNodes
from torchair._fx_passes import PassRunner, simple

aten, npu = torch.ops.aten, torch.ops.npu


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def traced(build, *shapes, dtype=torch.float32, dtypes=None):
    """A graph that ``build(graph, *inputs)`` makes of nodes; its values are fake."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"arg{i}") for i in range(len(shapes))]
    graph.output(build(graph, *inputs))
    gm = torch.fx.GraphModule({}, graph)
    with FakeTensorMode() as mode:
        values = [
            torch.empty(shape, device="npu", dtype=(dtypes[i] if dtypes else dtype)) for i, shape in enumerate(shapes)
        ]
        FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*values)
    return gm


def targets(gm):
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


def test_TA_123_operators_that_do_nothing():
    def build(graph, x, y):
        call = graph.call_function
        x = call(aten.add.Tensor, (x, 1))
        x = call(aten.slice.Tensor, (x, 0, 0, 9223372036854775807))
        x = call(aten.repeat.default, (x, [1, 1]))
        x = call(aten.constant_pad_nd.default, (x, [0, 0, 0, 0]))
        x = call(torch.ops.prims.convert_element_type.default, (x, torch.float32))
        x = call(aten.cat.default, ([x],))
        x = call(aten.pow.Tensor_Scalar, (x, 1))
        x = call(aten.clone.default, (x,))
        z = call(aten.slice_scatter.default, (call(aten.mul.Tensor, (y, 2)), call(aten.neg.default, (x,)), 0, 0, 9223372036854775807))
        return call(aten.mul.Tensor, (x, z))

    gm = traced(build, (4, 3), (4, 3))
    simple.remove_noop_ops(gm)
    gm.graph.eliminate_dead_code()
    assert targets(gm) == [aten.add.Tensor, aten.neg.default, aten.mul.Tensor]

    def written(graph, x):
        copy = graph.call_function(aten.clone.default, (x,))
        graph.call_function(aten.add_.Tensor, (copy, 1))
        return copy

    gm = traced(written, (4,))
    simple.remove_noop_ops(gm)
    assert targets(gm) == [aten.clone.default, aten.add_.Tensor]
    for on, count in ((True, 0), (False, 1)):
        torch._dynamo.reset()
        with graphs() as found:
            f = compiled(lambda x: (x * 2).repeat(1, 1) + 1, experimental_config__remove_noop_ops=on)
            x = torch.randn(3, 4, device="npu")
            torch.testing.assert_close(f(x), x * 2 + 1)
        assert operators(found[0]).get("aten.repeat.default", 0) == count


def test_TA_124_168_passes_of_the_program():
    order = []

    def before(gm, example_inputs, given):
        order.append(("before", len(example_inputs), type(given).__name__))
        for node in gm.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
            node.target = aten.add.Tensor

    def after(gm, example_inputs, given):
        order.append(("after", aten.add.Tensor in targets(gm)))

    f = compiled(lambda x: x * 3, post_grad_custom_pre_pass=before, post_grad_custom_post_pass=after)
    x = torch.randn(3, device="npu")
    torch.testing.assert_close(f(x), x + 3)
    f(x)
    assert order == [("before", 1, "CompilerConfig"), ("after", True)]


def test_TA_172_lines_of_passes():
    with log() as lines:
        compiled(lambda x: x * 3)(torch.ones(3, device="npu"))
    for name in ("optimize_noop_ops", "view_to_reshape", "remove_cat_ops", "eliminate_self_copy", "all npugraph_ex pass"):
        assert lines.count(f"After fx graph pass({name}) optimization") == 1
    assert any("nodes before 3, after 3" in line for line in lines.lines)
    torchair.logger.setLevel("INFO")
    runner = PassRunner(traced(lambda graph, x: graph.call_function(aten.neg.default, (x,)), (3,)))
    runner.run("nothing", lambda gm: None)
    torchair.logger.setLevel("ERROR")


def _update(second_view=True, more=False):
    def build(graph, x, index, value):
        call = graph.call_function
        view = call(aten.view.default, (x, [8, 4]))
        new = call(npu.npu_scatter_nd_update.default, (view, index, value))
        back = call(aten.view.default, (new, [2, 4, 4])) if second_view else call(aten.reshape.default, (new, [2, 4, 4]))
        copy = call(aten.copy_.default, (x, back))
        return (call(aten.neg.default, (x,)),) if more else (copy,)

    return traced(build, (2, 4, 4), (1, 1), (1, 4), dtypes=(torch.float32, torch.int64, torch.float32))


def test_TA_061_views_around_an_update():
    for arguments, count in (({}, 1), ({"second_view": False}, 0), ({"more": True}, 0)):
        gm = _update(**arguments)
        with log() as lines:
            simple.recover_view_inplace(gm, "ACL")
        assert lines.count(f"In fx_graph, find {count} matched patterns for view inplace optimization") == 1
        assert (npu.npu_scatter_nd_update_.default in targets(gm)) == bool(count)
        if count:
            assert lines.count("success to replace non_inplace node npu_scatter_nd_update_default with") == 1
            assert any(node.name.endswith("_inplace") for node in gm.graph.nodes)


# ---- In place ----


def _functional(*, later=False, view=None, back=True, other_view=False):
    """x + y into x, and something that stands in the way."""

    def build(graph, x, y):
        call = graph.call_function
        early = call(aten.view.default, (x, [-1]))
        new = call(aten.add.Tensor, (x, y))
        results = [call(aten.mul.Tensor, (new, 2))]
        if later:
            results.append(call(aten.mul.Tensor, (x, 3)))
        if view == "read":
            results.append(call(aten.mul.Tensor, (early, 3)))
        if view == "size":
            results.append(call(aten.sym_size.int, (early, 0)))
        if back:
            call(aten.copy_.default, (x, new))
        if view == "behind":
            results.append(call(aten.mul.Tensor, (x, 3)))
        return tuple(results)

    return traced(build, (4, 3), (4, 3))


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({}, 1), ({"later": True}, 0), ({"view": "read"}, 0), ({"view": "size"}, 1), ({"back": False}, 0),
    ],
)  # fmt: skip
def test_TA_157_158_159_inputs_written_in_place(arguments, expected):
    gm = _functional(**arguments)
    assert reinplace.reinplace_inputs(gm, True) == expected
    gm.graph.lint()
    assert (aten.add_.Tensor in targets(gm)) == bool(expected)
    assert (aten.copy_.default in targets(gm)) == (not expected and arguments.get("back", True))


def test_TA_157_intermediates_and_switches():
    def step(x, cache):
        cache.mul_(x)
        return (x + 1).relu()

    for switch, kept in (
        (None, ()),
        ("debug__aclgraph__disable_reinplace_inplaceable_ops_pass", ("aten.relu.default",)),
        ("debug__aclgraph__disable_reinplace_input_mutated_ops_pass", ("aten.mul.Tensor", "aten.copy_.default")),
    ):
        torch._dynamo.reset()
        with graphs() as found:
            f = compiled(step, **({switch: True} if switch else {}))
            x, cache = torch.randn(3, device="npu"), torch.randn(3, device="npu")
            want = cache * x
            torch.testing.assert_close(f(x, cache), (x + 1).relu())
            torch.testing.assert_close(cache, want)
        there = operators(found[0])
        assert all(name in there for name in kept)
        assert ("aten.relu_.default" in there) == ("aten.relu.default" not in kept)
        assert ("aten.mul_.Tensor" in there) == ("aten.mul.Tensor" not in kept)


def test_TA_157_views_of_what_was_written_in_place():
    """A view of a value that took the place of another one lies in that one's memory."""

    def step(x):
        y = (x * 2 + 1).view(-1)
        return y[:3].sigmoid() + y.exp()[:3] + y.relu().sum(), (x * 3).add(1).t().tanh().flatten()

    x = torch.randn(3, 4).npu()
    with graphs() as found:
        result = compiled(step)(x)
    torch.testing.assert_close(result, step(x))
    assert any(name.endswith("_.Tensor") for name in operators(found[0])), operators(found[0])


def test_TA_158_parts_of_inputs():
    def step(x, cache, i):
        cache[:, i : i + 2] = x
        cache[0] += 1
        return cache.sum() + cache[1]

    f = compiled(step)
    cache, twin = torch.zeros(3, 6, device="npu"), torch.zeros(3, 6, device="npu")
    for i in (0, 2, 2):
        x = torch.randn(3, 2, device="npu")
        torch.testing.assert_close(f(x, cache, i), step(x, twin, i))
        torch.testing.assert_close(cache, twin)


def _two_results(back=(True, True), same=False):
    def build(graph, x1, x2, gamma):
        call = graph.call_function
        node = call(npu.npu_add_rms_norm_v2_functional.default, (x1, x1 if same else x2, gamma))
        parts = [call(operator.getitem, (node, index)) for index in range(3)]
        for into, part, wanted in zip((x1, x2), parts[1:], back):
            if wanted:
                call(aten.copy_.default, (into, part))
        return (call(aten.mul.Tensor, (parts[0], 2)),)

    return traced(build, (4, 8), (4, 8), (8,))


def test_TA_158_160_several_written_arguments():
    gm = _two_results()
    assert reinplace.reinplace_inputs(gm, False) == 1
    assert targets(gm) == [npu.npu_add_rms_norm_v2.default, aten.mul.Tensor]
    for arguments in ({"back": (True, False)}, {"back": (True, False), "same": True}):
        gm = _two_results(**arguments)
        assert reinplace.reinplace_inputs(gm, False) == 0


def _on_two_streams(kind):
    """An update on one stream, a reader before it on another; ``kind``: the events between them."""
    air = torch.ops.air

    def build(graph, x, y):
        call = graph.call_function
        keys, values = ["_user_stream_label"], ["side"]

        def event(name, tag):
            call(getattr(air, f"tagged_event_{name}").default, (tag, True))

        call(air.scope_enter.default, (keys, values))
        seen = call(aten.mul.Tensor, (x, 2))
        if kind == "ordered":
            event("record", "a")
        if kind == "chained":
            event("record", "a")
        call(air.scope_exit.default, ())
        if kind == "chained":
            call(air.scope_enter.default, (keys, ["third"]))
            event("wait", "a")
            event("record", "b")
            call(air.scope_exit.default, ())
            event("wait", "b")
        if kind == "ordered":
            event("wait", "a")
        new = call(aten.add.Tensor, (x, y))
        call(aten.copy_.default, (x, new))
        return (seen,)

    gm = traced(build, (4,), (4,))
    return gm


def test_TA_161_streams_and_writing_in_place():
    for kind, torchairs, ex in (("none", 0, 0), ("ordered", 0, 1), ("chained", 0, 1)):
        for accepts, expected in ((False, torchairs), (True, ex)):
            with log() as lines:
                assert reinplace.reinplace_inputs(_on_two_streams(kind), accepts) == expected, (kind, accepts)
            phrase = "check stream safety" if accepts else "check no multi stream users"
            word = "success" if expected else "failed"
            assert lines.count(f"[multi_stream_single_reinplace] {phrase} {word} for reinplace") == 1


def test_TA_162_copies_to_itself():
    def build(graph, x, y):
        call = graph.call_function
        call(aten.copy_.default, (x, x))
        kept = call(aten.copy_.default, (y, y))
        call(aten.copy_.default, (x, y))
        return (kept,)

    gm = traced(build, (3,), (3,))
    reinplace.eliminate_self_copy(gm)
    assert len(targets(gm)) == 2
    f = compiled(lambda x, y: (x.copy_(x), x.copy_(y), x + 1)[2])
    x, y = torch.ones(3, device="npu"), torch.full((3,), 4.0, device="npu")
    torch.testing.assert_close(f(x, y), y + 1)
    torch.testing.assert_close(x, y)


# ---- Cat ----


def _cat(dim=0, swapped=False, second=aten.mul.Tensor, shared=False, shapes=((2, 3), (4, 3))):
    def build(graph, x, y):
        call = graph.call_function
        a = call(aten.add.Tensor, (x, 1))
        b = call(second, (y, *{aten.neg.default: (), aten.expand.default: ([4, 3],)}.get(second, (2,))))
        cat = call(aten.cat.default, ([b, a] if swapped else [a, b], dim))
        if shared:
            return (cat, call(aten.cat.default, ([a, x],)))
        return (cat, a)

    return traced(build, *shapes)


def test_TA_163_164_cat():
    for arguments, expected in (
        ({}, 1), ({"swapped": True}, 1), ({"second": aten.neg.default}, 1), ({"dim": 1, "shapes": ((4, 3), (4, 3))}, 0),
        ({"shared": True}, 0), ({"second": aten.expand.default}, 0),
    ):  # fmt: skip
        gm = _cat(**arguments)
        with log() as lines:
            assert remove_cat_ops(gm) == expected, arguments
        assert lines.count("Optimized 1 cat node(s)") == expected and lines.count("Skip cat") == (2 if arguments.get("shared") else 1 - expected)
        if expected:
            assert aten.cat.default not in targets(gm)

    def step(x):
        with scope.npu_stream_switch("cat"):
            a = x * 2
            b = x + 1
            c = torch.cat([b, a])
        torchair.ops.wait([c])
        return c + 0

    f = compiled(step)
    for _ in range(3):
        x = torch.randn(4, 3, device="npu")
        torch.testing.assert_close(f(x), torch.cat([x + 1, x * 2]))


# ---- Keys and sizes ----


def test_TA_128_147_keys_and_sizes_of_expressions():
    with graphs() as found:
        f = compiled(lambda x, n: x.new_ones(32 * (n // 32) + x.shape[0]) * 2, dynamic=True)
        for size, n in ((3, 70), (5, 130)):
            x = torch.zeros(size, 2, device="npu")
            assert f(x, n).shape == (32 * (n // 32) + size,)
    gm = found[0].gm
    inputs = list(gm.graph.find_nodes(op="placeholder"))
    assert [isinstance(inputs[index].meta["val"], torch.SymInt) for index in key_inputs(gm)] == [True] * len(key_inputs(gm))
    sizes = SizeNodes(gm.graph)
    symbol = next(node.meta["val"] for node in inputs if isinstance(node.meta["val"], torch.SymInt))
    before = len(gm.graph.nodes)
    one, again = sizes.node(32 * (symbol // 32)), sizes.node(32 * (symbol // 32))
    assert one is again and len(gm.graph.nodes) <= before + 2
    stranger = torch.fx.experimental.symbolic_shapes.ShapeEnv().create_unbacked_symint()
    with pytest.raises(RuntimeError, match="not an input of the graph"):
        sizes.node(stranger)


# ---- Patterns ----


def half(*shape):
    return torch.randn(*shape, device="npu", dtype=torch.float16)


def _fused(function, *args, **options):
    torch._dynamo.reset()
    with graphs() as found:
        got = compiled(function, **options)(*args)
        for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(function(*args))):
            torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=1.1)
    return operators(found[0])


def test_TA_165_norm_and_what_follows():
    x1, x2, gamma, smooth = half(2, 4, 64), half(2, 4, 64), half(64), half(64)

    def dynamic_quant(x1, x2, gamma, smooth):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma)
        return (*torch_npu.npu_dynamic_quant(y, smooth_scales=smooth), x)

    def flat(x1, x2, gamma):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma, 1e-5)
        return torch_npu.npu_dynamic_quant(y.flatten(0, 1))

    def cast(x1, x2, gamma):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma, 1e-5)
        return y.view(-1, 64).to(torch.float32), x

    def quant(x1, x2, gamma, scales, axis=-1):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma)
        return torch_npu.npu_quantize(y, scales, None, torch.qint8, axis), x

    def used_twice(x1, x2, gamma):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma)
        return y.to(torch.float32), y + 1

    scales = torch.rand(64, device="npu", dtype=torch.float16) + 1
    for function, args, name in (
        (dynamic_quant, (x1, x2, gamma, smooth), "npu.npu_add_rms_norm_dynamic_quant.default"),
        (flat, (x1, x2, gamma), "npu.npu_add_rms_norm_dynamic_quant.default"),
        (cast, (x1, x2, gamma), "npu.npu_add_rms_norm_cast.default"),
        (quant, (x1, x2, gamma, scales), "npu.npu_add_rms_norm_quant.default"),
    ):
        found = _fused(function, *args)
        assert name in found and "npu.npu_add_rms_norm.default" not in found, (function.__name__, found)
    assert "npu.npu_add_rms_norm.default" in _fused(used_twice, x1, x2, gamma)
    off = _fused(cast, x1, x2, gamma, experimental_config__pattern_fusion_pass=False)
    assert "npu.npu_add_rms_norm.default" in off


def test_TA_165_166_products_of_batches():
    def plain(x, w):
        return torch.bmm(x, w).transpose(0, 1)

    def both(x, w):
        return torch.matmul(x.transpose(0, 1), w).transpose(0, 1)

    name = "npu.npu_transpose_batchmatmul.default"
    x, w = half(2, 4, 128), half(2, 128, 128)
    assert name in _fused(plain, x, w)
    assert name in _fused(both, half(4, 2, 128), w)
    assert name not in _fused(plain, half(2, 4, 64), half(2, 64, 128))
    assert name not in _fused(lambda x, w: torch.bmm(x, w).transpose(1, 2), x, w)
    graph = torch.fx.Graph()
    gm = traced(lambda graph, x, w: (graph.call_function(aten.transpose.int, (graph.call_function(aten.bmm.default, (x, w)), 0, 1)),), (2, 4, 128), (2, 128, 128))
    _fx_passes.optimize(gm, [], config("max-autotune"))
    assert aten.bmm.default in targets(gm), graph


def test_TA_165_streams_keep_operators_apart():
    def step(x1, x2, gamma):
        y, _, x = torch_npu.npu_add_rms_norm(x1, x2, gamma)
        made = torchair.ops.record()
        with scope.npu_stream_switch("other"):
            torchair.ops.wait([made])
            z = y.to(torch.float32)
        torchair.ops.wait([z])
        return z + 0

    with log() as lines:
        found = _fused(step, half(2, 64), half(2, 64), half(64))
    assert "npu.npu_add_rms_norm.default" in found and lines.count("cross-stream operation detected")


def test_TA_167_patterns_of_the_program():
    def search(x, y):
        return torch.sinh(x) + torch.cosh(y)

    def replace(x, y):
        return torch.sinh(x) - torch.cosh(y)

    examples = [torch.randn(3, device="npu"), torch.randn(3, device="npu")]
    for _ in range(2):
        torchair.register_replacement(search, replace, examples, skip_duplicates=True)
    x, y = examples
    got = compiled(search)(x, y)
    torch.testing.assert_close(got, replace(x, y))
    gm = traced(
        lambda graph, x, y: (
            graph.call_function(
                aten.add.Tensor,
                (graph.call_function(aten.sinh.default, (x,)), graph.call_function(aten.cosh.default, (y,))),
            ),
        ),
        (3,), (3,),
    )  # fmt: skip
    _fx_passes.optimize(gm, [], config("max-autotune"))
    assert aten.sub.Tensor in targets(gm)




def test_constants_of_the_host_are_placed_ahead_of_the_capture():
    def function(x):
        number = torch.tensor(3, device=x.device)
        row = torch.tensor([1.0, 2.0, 4.0]).to(x.device)
        row += 1  # a copy for each call
        return x * number + row + torch.tensor(0.5, device="npu")

    made = compiled(function)
    for _ in range(3):
        x = torch.randn(4, 3, device="npu")
        assert torch.equal(made(x), function(x))


def test_inputs_of_the_host_are_placed_for_each_call():
    def function(x, count):
        return x[:, :2] + count.to(x.device, torch.float32) * 2, count.to(x.device, torch.float32) + 1

    made = compiled(function)
    x = torch.randn(4, 3, device="npu")
    for value in (1, 5, 2):
        count = torch.tensor(value)
        for got, wanted in zip(made(x, count), function(x, count)):
            assert torch.equal(got, wanted)

    def used_on_the_host(x, count):
        return x + (count * 2).to(x.device)

    with pytest.raises(RuntimeError, match="while the current stream is capturing"):  # computed on the host, and then copied
        compiled(used_on_the_host)(x, torch.tensor(1))
