# SPDX-License-Identifier: Apache-2.0
"""Streams, events, core limits and updates at replays in captured functions."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import torch_npu  # noqa: F401
from acl_support import compiled, graphs, log, operators
from torch._dynamo.utils import counters
from torchair import ops, scope
from torchair._acl_concrete_graph import updatable
from torchair.ops import _tables as tables

RECORD = "air.tagged_event_record.default"


@pytest.fixture(autouse=True)
def without_gradients():
    counters.clear()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _gate(stream):
    """The gate of the tests of torch_npu, which are in another folder."""
    spec = importlib.util.spec_from_file_location("torch_support", pathlib.Path(__file__).parents[1] / "torch" / "support.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Gate(stream)


def rand(*shape):
    return torch.randn(*shape, device="npu")


def same_as_eager(function, *args, times=3, **options):
    with graphs() as found:
        f = compiled(function, **options)
        for _ in range(times):
            torch.testing.assert_close(f(*args), function(*args))
    return found[0]


def test_TA_150_scopes_run_on_other_streams():
    def step(x):
        y = x + 1
        begin = ops.record()
        with scope.npu_stream_switch("one"):
            ops.wait([begin])
            with scope.super_kernel("kernel"):
                z = y @ y
        with scope.npu_stream_switch("two", 1):
            ops.wait([begin])
            w = y * 3
        ops.wait([z, w])
        return z + w

    for mode in ("npugraph_ex", "reduce-overhead"):
        torch._dynamo.reset()
        graph = same_as_eager(step, rand(16, 16), mode=mode)
        assert operators(graph)[RECORD] == 3
        assert graph.info.user_stream_label == ["one", "two"]
        assert "torch.npu.stream" not in graph.source and graph.source.count("with tables.scope_context") == 2


def test_TA_171_streams_in_eager_runs():
    def step(x):
        with scope.npu_stream_switch("eager"):
            y = x * 2
        ops.wait([y])
        return y + 1

    same_as_eager(step, rand(4), debug__run_eagerly=True)


@pytest.mark.parametrize("mode", ["npugraph_ex", "reduce-overhead"])
@pytest.mark.parametrize("eagerly", [True, False])
def test_TA_171_what_waits_is_behind_a_slow_stream(mode, eagerly):
    """However late the scope's stream comes: what the function computes of it waits."""
    label = f"late {mode} {eagerly}"

    def step(x):
        with scope.npu_stream_switch(label):
            y = x * 2
        ops.wait([y])
        return y + 1

    f = compiled(step, mode=mode, debug__run_eagerly=eagerly)
    x = rand(4)
    f(x)  # compiles, and captures
    torch.npu.synchronize()
    with _gate(tables.label_stream(label) if eagerly else torch.npu.current_stream()) as gate:
        result = f(x)
        assert not torch.npu.current_stream().query()
        gate.open()
        torch.testing.assert_close(result, x * 2 + 1)


def test_TA_171_without_a_wait_nothing_is_ordered():
    """Between scopes the program keeps order: what it does not wait for may not be there yet."""
    behind = ops.npu_create_tagged_event("behind the sum")

    def step(x):
        with scope.npu_stream_switch("nobody waits"):
            y = x * 2
        z = y + 1
        ops.npu_tagged_event_record(behind)
        return z

    f = compiled(step, debug__run_eagerly=True)
    x = rand(4)
    f(x)
    torch.npu.synchronize()
    with _gate(tables.label_stream("nobody waits")) as gate:
        f(x)
        behind.synchronize()  # the sum has run, and its operand has not
        assert not torch.npu.current_stream().query()  # the function ends behind both
        gate.open()
    torch.npu.synchronize()


def test_TA_151_wait_tensor_is_for_the_engine():
    with pytest.raises(NotImplementedError, match="npu_wait_tensor"):
        scope.npu_wait_tensor(rand(3), rand(3))
    with pytest.raises(Exception, match="NotImplementedError.*npu_wait_tensor|npu_wait_tensor is for graphs"):
        compiled(lambda x: scope.npu_wait_tensor(x + 1, x))(rand(3))


def test_TA_152_tagged_events():
    first, second = ops.npu_create_tagged_event("test one"), ops.npu_create_tagged_event("test two")
    with pytest.raises(ValueError, match="test one"):
        ops.npu_create_tagged_event("test one")
    for call in (ops.npu_tagged_event_record, ops.npu_tagged_event_wait):
        with pytest.raises(ValueError, match="npu_create_tagged_event"):
            call(torch.npu.Event())
    with pytest.raises(AssertionError, match="nobody"):
        torch.ops.air.tagged_event_wait("nobody")

    def step(x):
        y = x + 1
        ops.npu_tagged_event_record(first)
        with scope.npu_stream_switch("tagged"):
            ops.npu_tagged_event_wait(first)
            z = y * 2
            ops.npu_record_tagged_stream(y, "tagged")
            ops.npu_tagged_event_record(second)
        ops.npu_tagged_event_wait(second)
        return z - 1

    same_as_eager(step, rand(8))
    for wrong in ([], None, [1]):
        with pytest.raises(ValueError):
            ops.wait(wrong)


def test_TA_153_155_156_streams_of_the_program():
    side, done = torch.npu.Stream(), torch.npu.Event()

    def step(x):
        y = x + 1
        mine, made = torch.npu.Stream(), torch.npu.Event()
        made.record()
        with torch.npu.stream(mine):
            made.wait()
            z = y @ y
        torch.npu.current_stream().wait_stream(mine)
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            w = z * 2
            done.record(side)
        torch.npu.current_stream().wait_event(done)
        y.record_stream(side)
        again = side.record_event()
        torch.npu.current_stream().wait_event(again)
        return w + y

    x = rand(8, 8)
    one = same_as_eager(step, x)
    torch._dynamo.reset()
    two = same_as_eager(step, x)
    assert not set(one.info.user_stream_label) & set(two.info.user_stream_label)
    there = operators(one)
    assert there["air.tagged_stream_wait_stream.default"] == 2
    assert there["air.record_tagged_on_stream.default"] == 1 and "aten.clone.default" not in there
    # From the text alone, as a cached program is run.
    module = {"__name__": "again"}
    exec(one.source, module)  # noqa: S102
    torch.testing.assert_close(module["kernel"](x)[0], step(x))


def test_TA_153_154_streams_that_are_set():
    one, two = torch.npu.Stream(), torch.npu.Stream()

    def step(x):
        first = torch.npu.current_stream()
        made, done = torch.npu.Event(), torch.npu.Event()
        y = x + 1
        made.record()
        torch.npu.set_stream(one)
        made.wait()
        z = y @ y
        torch.npu.set_stream(two)
        two.wait_stream(one)
        w = z * 2
        torch.npu.set_stream(one)
        v = z - 1
        done.record(two)
        one.wait_event(done)
        u = v + w
        torch.npu.set_stream(first)
        first.wait_stream(one)
        return u * 2

    graph = same_as_eager(step, rand(8, 8))
    assert operators(graph)["air.scope_enter.default"] >= 2
    assert torch.npu.current_stream() == torch.npu.default_stream()

    def lost(x):
        y = x + 1
        torch.npu.set_stream(one)
        return y * 2

    torch._dynamo.reset()
    with pytest.raises(Exception, match="(?s)set the first stream again.*with torch.npu.stream"):
        compiled(lost)(rand(3))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="with torch.npu.stream"):  # other backends do not know where the caller is then
        torch.compile(lost, backend="aot_eager", fullgraph=True)(rand(3))


def test_TA_155_waiting_on_the_host_is_refused():
    def step(x):
        event = torch.npu.Event()
        event.record()
        y = x + 1
        event.synchronize()
        return y

    with pytest.raises(Exception, match="waits on the host"):
        compiled(step)(rand(3))


def test_TA_168_core_limits():
    def step(x):
        with scope.limit_core_num(4, 8):
            y = x + 1
            begin = ops.record()
            with scope.npu_stream_switch("limited"):
                ops.wait([begin])
                z = y * 2
        ops.wait([z])
        return z + 0

    calls = []
    set_limit = torch.npu.set_stream_limit

    def watched(stream, cube=-1, vector=-1):
        calls.append((cube, vector))
        set_limit(stream, cube, vector)

    before = torch.npu.get_stream_limit(torch.npu.current_stream())
    torch.npu.set_stream_limit = watched
    try:
        x = rand(4)
        torch.testing.assert_close(compiled(step)(x), step(x))
    finally:
        torch.npu.set_stream_limit = set_limit
    whole = before["cube_core_num"], before["vector_core_num"]
    # The capturing stream gets the caller's limits first where somebody has set limits before.
    assert calls in ([(4, 8), (4, 8), whole, whole], [whole, (4, 8), (4, 8), whole, whole])

    f = compiled(lambda x: x + 1)
    x = rand(3)
    f(x)
    stream = torch.npu.current_stream()
    torch.npu.set_stream_limit(stream, 2, 3)
    try:
        torch.testing.assert_close(f(x), x + 1)
        f(x)
    finally:
        torch.npu.reset_stream_limit(stream)
    found = [value for key, value in counters["npugraph_ex"].items() if "global_limit_core_change" in key]
    assert found == [1]


@pytest.mark.parametrize("mode", ["npugraph_ex", "reduce-overhead"])
def test_TA_168_scopes_without_streams(mode):
    """Where there is one stream alone, memory is let go of as soon as it may; scopes and waits are no values."""

    def step(x):
        with scope.limit_core_num(4, 8):
            y = x + 1
        with scope.super_kernel("kernel"):
            z = y @ y
        ops.wait([z])
        return z * 2

    same_as_eager(step, rand(4, 4), mode=mode)


# ---- Updates at replays ----


def _attention_inputs(batch=2, heads=2, length=16, depth=16):
    shape = (batch, heads, length, depth)
    query = torch.randn(batch, heads, 1, depth, device="npu", dtype=torch.float16)
    return query, *(torch.randn(shape, device="npu", dtype=torch.float16) for _ in range(2))


def _attend(query, key, value, lengths):
    out, _ = torch_npu.npu_fused_infer_attention_score(
        query, key, value, num_heads=2, num_key_value_heads=2, input_layout="BNSD", scale=0.25,
        actual_seq_lengths_kv=lengths,
    )  # fmt: skip
    return out * 2


def test_TA_128_143_lengths_are_updated():
    query, key, value = _attention_inputs()

    def step(query, key, value, a, b):
        return _attend(query, key, value, [a, b]), _attend(query + 1, key, value, [a, b])

    with graphs() as found, log() as lines:
        f = compiled(step, dynamic=True)
        for a, b in ((3, 9), (16, 4), (7, 7), (3, 9)):
            got = f(query, key, value, a, b)
            torch.testing.assert_close(list(got), list(step(query, key, value, a, b)))
    assert lines.count("Success to capture fx_graph") == 1
    there = operators(found[0])
    assert there["npu.npu_fused_infer_attention_score.out"] == 2
    assert there["npu._npu_fused_infer_attention_score_get_max_workspace.default"] == 2
    updater = updatable.Updater(found[0].info.ops_update_rulers)
    assert updater and len(updater._shared) == 1
    module = {"__name__": "again"}  # TA-192
    exec(found[0].source, module)  # noqa: S102
    assert module["acl_graph_cache_info"].ops_update_rulers == found[0].info.ops_update_rulers


def test_TA_146_computed_lengths_are_refused():
    query, key, value = _attention_inputs()

    def step(query, key, value, a):
        return _attend(query, key, value, [a, a + 1])

    with pytest.raises(Exception, match="computed in the graph"):
        compiled(step, dynamic=True)(query, key, value, 5)


def test_TA_144_the_update_stream_is_another():
    torch.npu.synchronize()
    stream = updatable.update_stream()
    with torch.npu.stream(stream):
        assert updatable.update_stream() != torch.npu.current_stream()
    query, key, value = _attention_inputs()
    f = compiled(lambda q, k, v, a: _attend(q, k, v, [a, a]), dynamic=True)
    with torch.npu.stream(updatable.update_stream()):
        for a in (3, 8):
            torch.testing.assert_close(f(query, key, value, a), _attend(query, key, value, [a, a]))


def test_TA_145_lengths_as_a_tensor():
    blocks = torch.randn(4, 16, 2, 32, device="npu", dtype=torch.float16)
    values = torch.randn_like(blocks)
    query = torch.randn(2, 2, 32, device="npu", dtype=torch.float16)
    table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32, device="npu")

    def step(query, lengths):
        out = torch.empty_like(query)
        torch.ops.atb._npu_paged_attention(query, blocks, values, 2, 2, 0.2, table, lengths, out)
        return out * 1

    with log() as lines:
        f = compiled(step)
        for pair in ((5, 20), (17, 3), (32, 32)):
            lengths = torch.tensor(pair, dtype=torch.int32)
            torch.testing.assert_close(f(query, lengths), step(query, lengths))
    assert lines.count("Success to capture fx_graph") == 1


def test_TA_174_blocking_launches():
    """The variable is read with the first device, so that a process of its own has it."""
    code = """
import torch, torch_npu
x = torch.randn(4, 4, device="npu")
f = torch.compile(lambda x: (x @ x).relu(), backend="npugraph_ex", fullgraph=True)
with torch.no_grad():
    for _ in range(3):
        y = f(x)
        assert torch.npu.current_stream().query()
        torch.testing.assert_close(y, (x @ x).relu())
        assert torch.npu.current_stream().query()
"""
    environment = {**os.environ, "ASCEND_LAUNCH_BLOCKING": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_TA_169_static_kernels_and_core_limits(monkeypatch):
    from torchair._acl_concrete_graph import static_kernel

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.air.scope_enter.default, (["_op_aicore_num", "_op_vectorcore_num"], ["4", "8"]))
    graph.output(x)
    limited = torch.fx.GraphModule({}, graph)
    for version, said in (((8, 5, 0), True), ((9, 0, 0), False)):
        monkeypatch.setattr(static_kernel, "_engine_version", lambda version=version: version)
        settings = {"aclnn_static_shape_kernel": "1"}
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            static_kernel.check_core_limits(limited, settings)
        assert any("static kernels are off" in str(each.message) for each in found) is said
        assert settings == {"aclnn_static_shape_kernel": "0" if said else "1"}


# ---- npu_print ----


def test_TA_094_096_print(capsys):
    x = torch.arange(8, device="npu", dtype=torch.float32)

    def step(x):
        ops.npu_print("x", x, 1.5, True, summarize_size=2)
        return x * 2

    f = compiled(step)
    f(x), f(x + 0.25)
    torch.npu.synchronize()
    assert capsys.readouterr().out == "x [0 1 ... 6 7] 1.5 True\nx [0.25 1.25 ... 6.25 7.25] 1.5 True\n"
    step(x)
    assert capsys.readouterr().out == "x [0 1 ... 6 7] 1.5 True\n"
    for value, options, text in (
        (torch.tensor(2.5), {}, "2.5"),
        (torch.tensor(True), {}, "1"),
        (torch.ones(2, dtype=torch.bfloat16), {}, "[1 1]"),
        (torch.empty(0), {}, "[]"),
        (torch.arange(4).view(2, 2), {"summarize_size": -1}, "[[0 1]\n [2 3]]"),
        (torch.arange(3), {"summarize_size": 1}, "[0 ... 2]"),
        (torch.ones(1), {"tensor_detail": True}, "tensor([1], shape=[1], dtype=torch.float32)"),
    ):
        ops.npu_print(value, **options)
        assert capsys.readouterr().out == text + "\n"


def test_TA_095_print_refuses():
    x = torch.ones(1)
    for args, options, error, text in (
        ((x,), {"summarize_size": 0}, ValueError, "1"), ((x,), {"summarize_size": -2}, ValueError, "-1"),
        ((x,), {"summarize_size": 1.0}, TypeError, "int"), ((x,), {"tensor_detail": 1}, TypeError, "bool, got int"),
        (("a",), {}, ValueError, "tensor"), ((x, None), {}, TypeError, "argument 1"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            ops.npu_print(*args, **options)
    with pytest.raises(TypeError, match="str"):
        scope.op_never_timeout("yes")


def test_TA_103_scopes_must_be_closed():
    def step(x):
        torch.ops.air.scope_enter(["_user_stream_label"], ["open"])
        return x + 1

    with pytest.raises(Exception, match="scope_enter"):
        compiled(step)(rand(3))

    def other(x):
        torch.ops.air.scope_exit()
        return x + 1

    torch._dynamo.reset()
    with pytest.raises(Exception, match="scope_exit.*custom pass"):
        compiled(other)(rand(3))


