# SPDX-License-Identifier: Apache-2.0
"""Groups of captured tasks, and new host arguments for them."""
import contextlib

import pytest
import torch
import torch_npu
from support import output_of
from torch.multiprocessing.reductions import StorageWeakRef
from torch_npu.npu import _graph_handlers

# Operators with host integers, in the two forms that handlers know. Each is one kernel task on the device.
library = torch.library.Library("npu", "FRAGMENT")
library.define("toy_shift(Tensor x, int by) -> Tensor")
library.define("toy_shift.out(Tensor x, int by, *, Tensor(a!) out) -> Tensor(a!)")
library.define("toy_scale.out(Tensor x, *, int factor, Tensor(a!) out) -> Tensor(a!)")
library.define("toy_both.out(Tensor x, int by, int factor, *, Tensor(a!) out) -> Tensor(a!)")


def _shift_out(x, by, *, out):
    return torch.add(x, by, out=out)


def _scale_out(x, *, factor, out):
    return torch.mul(x, factor, out=out)


def _both_out(x, by, factor, *, out):
    torch.add(x, by, out=out)
    return out.mul_(factor)


library.impl("toy_shift", lambda x, by: x + by, "PrivateUse1")
library.impl("toy_shift", lambda x, by: torch.empty_like(x), "Meta")
library.impl("toy_shift.out", _shift_out, "PrivateUse1")
library.impl("toy_scale.out", _scale_out, "PrivateUse1")
library.impl("toy_both.out", _both_out, "PrivateUse1")

library.define("toy_quiet(Tensor x, int by) -> Tensor")
library.define("toy_quiet.out(Tensor x, int by, *, Tensor(a!) out) -> ()")


def _quiet_out(x, by, *, out):
    torch.add(x, by, out=out)


library.impl("toy_quiet.out", _quiet_out, "PrivateUse1")
library.impl("toy_quiet", lambda x, by: x + by, "CompositeExplicitAutograd")

shift_out = torch.ops.npu.toy_shift.out
scale_out = torch.ops.npu.toy_scale.out
both_out = torch.ops.npu.toy_both.out


@contextlib.contextmanager
def handlers(**classes):
    """Registers handlers for one test; names have a double underscore for the dot."""
    before = dict(_graph_handlers._handlers)
    for name, cls in classes.items():
        torch.npu.register_npu_graph_handler(name.replace("__", "."))(cls)
    try:
        yield
    finally:
        _graph_handlers._handlers.clear()
        _graph_handlers._handlers.update(before)


class ShiftOut(torch.npu.NpuGraphOpHandler):
    UPDATE_SPECS = {"toy_shift.out": [("arg", 1, "by")]}


class Captured:
    """``count`` handled shifts of one input, captured with automatic dispatch."""

    def __init__(self, count=1, by=1):
        self.x = torch.zeros(4, device="npu")
        self.out = [torch.zeros(4, device="npu") for _ in range(count)]
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph, auto_dispatch_capture=True):
            for out in self.out:
                shift_out(self.x, by, out=out)

    def values(self):
        torch.npu.synchronize()
        return [int(out[0]) for out in self.out]


class Manual:
    """The same by hand: event, group and handle."""

    def __init__(self, op=shift_out, args=(1,)):
        self.x = torch.zeros(4, device="npu")
        self.out = torch.zeros(4, device="npu")
        self.op = op
        self.update_stream = torch.npu.Stream()
        self.event = torch.npu.ExternalEvent()
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph):
            stream = torch.npu.current_stream()
            self.event.wait(stream)
            self.event.reset(stream)
            torch.npu.graph_task_group_begin(stream)
            op(self.x, *args, out=self.out)
            self.handle = torch.npu.graph_task_group_end(stream)

    def update(self, *args):
        with torch.npu.stream(self.update_stream):
            torch.npu.graph_task_update_begin(self.update_stream, self.handle)
            self.op(self.x, *args, out=self.out)
            torch.npu.graph_task_update_end(self.update_stream)
            self.event.record(self.update_stream)

    def value(self):
        torch.npu.synchronize()
        return int(self.out[0])


def test_TN_212_update_by_hand():
    captured = Manual()
    assert captured.handle.task_group != 0
    captured.update(42)
    captured.graph.replay()
    assert captured.value() == 42


def test_TN_213_ten_rounds():
    captured = Manual()
    for value in range(10):
        captured.x.fill_(value)
        captured.update(100 * value)
        captured.graph.replay()
        assert captured.value() == 101 * value


def test_TN_213_groups_of_several_tasks():
    captured = Manual(both_out, (1, 2))
    for value in range(10):
        captured.update(value, 3)
        captured.graph.replay()
        assert captured.value() == 3 * value


def test_TN_214_replay_before_update_waits():
    captured = Manual()
    captured.out.fill_(-1)
    captured.graph.replay()
    done = torch.npu.current_stream().record_event()
    assert not done.query()
    captured.update(7)
    done.synchronize()
    assert captured.value() == 7


def test_TN_215_update_of_a_recorded_operator():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured()
        for value in (5, 6):
            captured.graph.replay()
            captured.graph.update([{"by": value}])
            assert captured.values() == [value]
        captured.graph.update([{"by": 9}])
        captured.graph.replay()
        assert captured.values() == [9]


def test_TN_215_keyword_arguments():
    class Scale(torch.npu.NpuGraphOpHandler):
        UPDATE_SPECS = {"toy_scale.out": [("kwarg", "factor", "times")]}

    with handlers(toy_scale__out=Scale):
        x = torch.ones(4, device="npu")
        out = torch.zeros(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            scale_out(x, factor=2, out=out)
        for inputs in ({"times": 3}, {"factor": 3}):  # by its specification, or by the argument's own name
            out.zero_()
            torch.npu.synchronize()
            graph.update([inputs])
            graph.replay()
            assert out.tolist() == [3.0] * 4


def test_TN_216_one_dictionary_for_all():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured(3)
        captured.graph.replay()
        captured.graph.update([{"by": 4}])
        assert captured.values() == [4, 4, 4]


def test_TN_216_one_dictionary_for_each():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured(3)
        captured.graph.update([{"by": 4}, {"by": 5}, {}])
        captured.graph.replay()
        assert captured.values() == [4, 5, 1]


def test_TN_217_wrong_number_of_dictionaries():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured(3)
        with pytest.raises(RuntimeError, match="2 .* 3"):
            captured.graph.update([{"by": 1}, {"by": 2}])
        captured.graph.update([{"by": 3}])
        captured.graph.replay()
        assert captured.values() == [3, 3, 3]


def test_TN_218_update_needs_automatic_dispatch():
    graph = torch.npu.NPUGraph()
    x = torch.ones(4, device="npu")
    with torch.npu.graph(graph):
        x.add_(1)
    with pytest.raises(RuntimeError, match="auto_dispatch_capture"):
        graph.update([{"by": 1}])


def test_TN_219_one_update_stream():
    a, b = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    assert a.graph_dispatch_mode is not b.graph_dispatch_mode
    assert a.graph_dispatch_mode.update_stream is b.graph_dispatch_mode.update_stream


def test_TN_220_default_becomes_out():
    seen = []

    class Shift(torch.npu.NpuGraphOpHandler):
        UPDATE_SPECS = {"toy_shift.default": [("arg", 1, "by")]}

        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            func, args, kwargs = _graph_handlers.to_out_variant(func, args, kwargs)
            seen.append((func, kwargs["out"]))
            return func, args, kwargs

    with handlers(toy_shift__default=Shift):
        x = torch.zeros(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            result = torch.ops.npu.toy_shift(x, 1)
        assert seen[0][0] is shift_out
        assert seen[0][1].data_ptr() == result.data_ptr()
        graph.replay()
        graph.update([{"by": 8}])
        assert result.tolist() == [8.0] * 4


def test_operators_whose_out_form_returns_nothing():
    class Fill(torch.npu.NpuGraphOpHandler):
        UPDATE_SPECS = {name: [("arg", 1, "by")] for name in ("toy_quiet.default", "toy_quiet.out")}

        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            if func is torch.ops.npu.toy_quiet.default:
                return _graph_handlers.to_out_variant(func, args, kwargs)
            return func, args, kwargs

    with handlers(toy_quiet__default=Fill, toy_quiet__out=Fill):
        x = torch.zeros(4, device="npu")
        out = torch.zeros(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            assert torch.ops.npu.toy_quiet.out(x, 1, out=out) is None
            result = torch.ops.npu.toy_quiet(x, 2) + 0
        graph.replay()
        graph.update([{"by": 8}, {"by": 9}])
        assert out.tolist() == [8.0] * 4
        assert result.tolist() == [9.0] * 4


def test_TN_221_a_handler_may_decline():
    class OnlyLarge(ShiftOut):
        @classmethod
        def should_handle(cls, func, args, kwargs):
            return args[1] > 10

    with handlers(toy_shift__out=OnlyLarge):
        captured = Captured(by=3)
        assert captured.graph.graph_dispatch_mode.graph_dispatch_records == []
        captured.graph.replay()
        assert captured.values() == [3]


def test_TN_222_records_hold_no_memory():
    with handlers(toy_shift__out=ShiftOut):
        graph = torch.npu.NPUGraph()
        x = torch.zeros(4, 3, device="npu").t()
        places = (x.data_ptr(), x.shape, x.stride())
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            out = torch.empty(3, 4, device="npu")
            shift_out(x, 1, out=out)
        storages = [StorageWeakRef(x.untyped_storage()), StorageWeakRef(out.untyped_storage())]
        (record,) = graph.graph_dispatch_mode.graph_dispatch_records
        del x, out
        assert all(storage.expired() for storage in storages)
        weak = record.args[0]
        assert (weak.data_ptr(), weak.shape, weak.stride()) == places


def test_TN_222_host_arguments_are_copied():
    class Any(torch.npu.NpuGraphOpHandler):
        pass

    with handlers(toy_scale__out=Any):
        value = [torch.zeros(2), (1, None)]
        kept = _graph_handlers.without_ownership(value)
        value[0].add_(1)
        assert kept[0].tolist() == [0, 0] and kept[1] == (1, None)


def test_TN_223_unknown_keys_are_ignored():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured(by=6)
        captured.graph.update([{"nothing": 1}])
        captured.graph.replay()
        assert captured.values() == [6]


def test_TN_224_handler_gone():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured()
        del _graph_handlers._handlers["toy_shift.out"]
        with pytest.raises(RuntimeError, match="toy_shift.out"):
            captured.graph.update([{"by": 1}])


def test_TN_225_registering_twice():
    class Later(ShiftOut):
        pass

    with handlers(toy_shift__out=ShiftOut):
        with pytest.warns(UserWarning, match="toy_shift.out"):
            assert torch.npu.register_npu_graph_handler(["toy_shift.out"])(Later) is Later
        assert _graph_handlers.find_handler("toy_shift.out") is Later


def test_TN_226_built_in_handlers():
    expected = {
        ("npu_fused_infer_attention_score", "", ".default", ".out"): {
            5: "actual_seq_lengths",
            6: "actual_seq_lengths_kv",
        },
        ("npu_fused_infer_attention_score_v2", "", ".default", ".out"): {7: "actual_seq_qlen", 8: "actual_seq_kvlen"},
        ("_npu_paged_attention", ".default"): {7: "context_lens"},
        ("npu_multi_head_latent_attention", ".out"): {5: "context_lens"},
        ("npu_fusion_attention_v3", ".default", ".out"): {14: "actual_seq_qlen", 15: "actual_seq_kvlen"},
        ("npu_fusion_attention_grad_v3", "", ".default", ".out"): {21: "actual_seq_qlen", 22: "actual_seq_kvlen"},
    }
    for (name, *endings), places in expected.items():
        for ending in endings:
            handler = _graph_handlers.find_handler(name + ending)
            specs = handler.get_update_specs(name + ending)
            assert specs == [("arg", index, key) for index, key in places.items()]


def test_TN_226_a_built_in_handler_binds():
    """Handlers go by the name; the operator comes later, from a library of the program."""
    late = torch.library.Library("servers_own", "FRAGMENT")
    signature = "Tensor q, Tensor k, Tensor v, int a, int b, int[] context_lens"
    late.define(f"npu_multi_head_latent_attention.out({signature}, *, Tensor(a!) out) -> Tensor(a!)")
    late.impl(
        "npu_multi_head_latent_attention.out",
        lambda q, k, v, a, b, context_lens, *, out: torch.add(q, sum(context_lens), out=out),
        "PrivateUse1",
    )
    x = torch.zeros(2, device="npu")
    out = torch.zeros(2, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        torch.ops.servers_own.npu_multi_head_latent_attention.out(x, x, x, 0, 0, [1, 2], out=out)
    graph.update([{"context_lens": [10, 20, 30]}])
    graph.replay()
    assert out.tolist() == [60.0, 60.0]


def test_TN_227_wrong_states():
    stream = torch.npu.Stream()
    for function in (torch.npu.graph_task_group_begin, torch.npu.graph_task_group_end):
        with pytest.raises(torch_npu._errors.NpuError) as raised:
            function(stream)
        assert raised.value.code == 107029
    captured = Manual()
    with pytest.raises(RuntimeError):
        torch.npu.graph_task_update_end(stream)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        captured.x.add_(1)
        current = torch.npu.current_stream()
        with pytest.raises(RuntimeError):
            torch.npu.graph_task_group_end(current)
        with pytest.raises(RuntimeError, match="captur"):
            torch.npu.graph_task_update_begin(current, captured.handle)
    torch.npu.graph_task_update_begin(stream, captured.handle)
    with pytest.raises(RuntimeError):
        torch.npu.graph_task_update_begin(captured.update_stream, captured.handle)
    with pytest.raises(RuntimeError):
        torch.npu.graph_task_update_end(stream)  # nothing was submitted
    captured.update(3)
    captured.graph.replay()
    assert captured.value() == 3


def test_TN_227_external_streams():
    ours = torch.npu.Stream()
    theirs = torch.npu.ExternalStream(ours.npu_stream)
    captured = Manual()
    calls = [
        lambda: torch.npu.graph_task_group_begin(theirs),
        lambda: torch.npu.graph_task_group_end(theirs),
        lambda: torch.npu.graph_task_update_begin(theirs, captured.handle),
        lambda: torch.npu.graph_task_update_end(theirs),
        lambda: torch.npu._subscribe_report(theirs),
        lambda: torch.npu._unsubscribe_report(theirs),
        lambda: torch.npu._launch_callback(theirs, print, None),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="External NPU stream is not supported"):
            call()


def test_TN_228_fewer_launches_than_tasks():
    captured = Manual(both_out, (1, 2))
    stream = captured.update_stream
    with torch.npu.stream(stream):
        torch.npu.graph_task_update_begin(stream, captured.handle)
        torch.add(captured.x, 5, out=captured.out)
        with pytest.raises(RuntimeError):
            torch.npu.graph_task_update_end(stream)
        captured.event.record(stream)
    captured.graph.replay()
    assert captured.value() == 10  # the first task was replaced, the second was not
    captured.update(1, 1)  # and the stream takes updates again
    captured.graph.replay()
    assert captured.value() == 1


def test_TN_228_more_launches_than_tasks():
    captured = Manual()
    stream = captured.update_stream
    with torch.npu.stream(stream):
        torch.npu.graph_task_update_begin(stream, captured.handle)
        torch.add(captured.x, 5, out=captured.out)
        with pytest.raises(RuntimeError):
            torch.add(captured.x, 6, out=captured.out)
        torch.npu.graph_task_update_end(stream)
        captured.event.record(stream)
    captured.graph.replay()
    assert captured.value() == 5


def test_TN_228_an_update_that_raises_can_be_repeated():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured(2)
        captured.graph.replay()
        with pytest.raises(RuntimeError):
            captured.graph.update([{"by": 2}, {"by": "two"}])
        assert not torch.npu.current_stream().query()
        captured.graph.update([{"by": 3}])
        assert captured.values() == [3, 3]


def test_TN_228_a_capture_that_raises_does_not_stall_replays():
    with handlers(toy_shift__out=ShiftOut):
        x, out = torch.zeros(4, device="npu"), torch.zeros(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            with pytest.raises(RuntimeError):
                shift_out(x, 1, out=torch.zeros(4))
            shift_out(x, 1, out=out)
        for value in (2, 3):
            graph.replay()
            graph.update([{"by": value}])
            assert out.tolist() == [value] * 4


def test_TN_229_blocking_launches():
    code = """
        import sys
        sys.path.insert(0, %r)
        import torch, test_task_update as t
        with t.handlers(toy_shift__out=t.ShiftOut):
            captured = t.Captured(2)
            for value in range(3):
                captured.graph.update([{"by": value}])
                captured.graph.replay()
                torch.npu.synchronize()  # the next record must not come before this one was waited for
            assert captured.values() == [2, 2]
            captured.graph.replay()  # must not wait: the update comes after it
            captured.graph.update([{"by": 5}])
            print(captured.values())
    """
    folder = __file__.rsplit("/", 1)[0]
    assert output_of(code % folder, ASCEND_LAUNCH_BLOCKING=1) == "[5, 5]"


def test_TN_230_reset_forgets_records():
    with handlers(toy_shift__out=ShiftOut):
        captured = Captured(2)
        mode = captured.graph.graph_dispatch_mode
        assert len(mode.graph_dispatch_records) == 2
        captured.graph.reset()
        assert mode.graph_dispatch_records == []
        with torch.npu.graph(captured.graph, auto_dispatch_capture=True):
            shift_out(captured.x, 1, out=captured.out[0])
        assert len(mode.graph_dispatch_records) == 1
        captured.graph.update([{"by": 12}])
        captured.graph.replay()
        assert captured.values()[0] == 12
