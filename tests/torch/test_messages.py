# SPDX-License-Identifier: Apache-2.0
"""Mistakes as people make them, and what they read then: what is to blame, on which line, and what to do next."""
import ast
import importlib.util
import io
import json
import pathlib
import re
import threading

import pytest
import torch
import torch_npu
from support import run_script

npu = torch.npu
HERE = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
MISTAKES = []


def mistake(*words, kind=RuntimeError, code=None):
    """A function that goes wrong. ``words``: what its message says. Lines that it names end in "# named"."""

    def add(function):
        MISTAKES.append(pytest.param(function, words, kind, code, id=function.__name__))
        return function

    return add


def ones(*sizes, **options):
    return torch.ones(*(sizes or (4,)), device="npu", **options)


def captured():
    x = ones()
    g = npu.NPUGraph()
    with npu.graph(g):
        x + 1
    g.kept = x
    return g


# ---- Values on the host, within a capture ----


@mistake("item() cannot run while the current stream is capturing", "after the capture and a replay", "torch.where")
def loss_as_a_number():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        x.sum().item()  # named


@mistake("item() cannot run", "torch.where(condition, a, b) in the place of `if`", code=107027)
def branch_on_a_value():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        if x.sum() > 0:  # named
            x.add_(1)


@mistake("from npu:0 to cpu", ".cpu", "memory is pageable, and the copy is blocking", "after the capture", "pin_memory")
def to_the_host():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        (x + 1).cpu()  # named


@mistake(".tolist", "memory is pageable", "after the capture and a replay", code=107027)
def to_a_list():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        x.tolist()  # named


@mistake("the host's memory is pinned, but the copy is blocking", "next step: pass non_blocking=True")
def into_pinned_memory_without_non_blocking():
    x, host = ones(), torch.empty(4).pin_memory()
    with npu.graph(npu.NPUGraph()):
        host.copy_(x)  # named


@mistake("from cpu to npu:0", "the host's memory is pageable", "copy before the capture", "x.copy_(new) between replays")
def input_moved_in_the_capture():
    host = torch.ones(4)
    with npu.graph(npu.NPUGraph()):
        host.npu()  # named


@mistake("the host's memory is pageable, so", "pinned memory, host = torch.empty(..., pin_memory=True)")
def non_blocking_alone():
    host = torch.ones(4)
    with npu.graph(npu.NPUGraph()):
        host.to("npu", non_blocking=True)  # named


@mistake("the host's memory is pinned, but the copy is blocking", "pass non_blocking=True")
def pinned_alone():
    host = torch.ones(4).pin_memory()
    with npu.graph(npu.NPUGraph()):
        host.to("npu")  # named


@mistake('torch.tensor(..., device="npu")', "copy before the capture")
def tensor_of_numbers():
    with npu.graph(npu.NPUGraph()):
        torch.tensor([1.0, 2.0], device="npu")  # named


@mistake("an index that is a list", "copy before the capture")
def list_as_index():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        x[[0, 1]] = 1.0  # named


@mistake("printing a tensor", "copies the values to the host", "print after the capture and a replay", "shape")
def print_for_debugging():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        y = x + 1
        print(y)  # named


@mistake("printing a tensor", "f-string", "print after the capture and a replay")
def f_string():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        f"{x}"  # named


@mistake("torch.save", "after the capture and a replay")
def checkpoint_in_the_capture():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        torch.save(x, io.BytesIO())  # named


@mistake("aten::nonzero", "its result depends on data", "torch.where(condition, a, b)", "a boolean mask as index")
def boolean_mask():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        x[x > 0]  # named


@mistake("repeat_interleave", "output_size=")
def repeats_that_the_device_knows():
    x, repeats = ones(), ones(dtype=torch.int64)
    with npu.graph(npu.NPUGraph()):
        x.repeat_interleave(repeats)  # named


@mistake("aten::equal", "(a == b).all()")
def compare_in_the_capture():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        torch.equal(x, x)  # named


@mistake("_unique2", "a shape that the arguments tell")
def unique_in_the_capture():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        x.unique()  # named


# ---- Waiting, within a capture ----


@mistake("torch.npu.synchronize failed with 107027: not allowed while", "begun at", "after the `with torch.npu.graph(...)` block")
def wait_for_the_device():
    with npu.graph(npu.NPUGraph()):  # named
        npu.synchronize()  # named


@mistake("Stream.synchronize failed with 107027: not allowed on stream", "stream_id=", "after the `with torch.npu.graph(...)` block")
def wait_for_the_stream():
    with npu.graph(npu.NPUGraph()):
        npu.current_stream().synchronize()  # named


@mistake("Stream.query failed with 107027: not allowed", "after the `with torch.npu.graph(...)` block")
def ask_the_stream():
    with npu.graph(npu.NPUGraph()):
        npu.current_stream().query()  # named


@mistake("Event.synchronize failed with 107028: not allowed on event", "with an event that is not recorded in it", code=107028)
def wait_for_an_event():
    event = npu.Event()
    with npu.graph(npu.NPUGraph()):
        event.record()
        event.synchronize()  # named


@mistake("Event.query failed with 107028: not allowed", "with an event that is not recorded in it")
def ask_an_event():
    event = npu.Event()
    with npu.graph(npu.NPUGraph()):
        event.record()
        event.query()  # named


@mistake("torch.npu.synchronize failed with 107027: not allowed", "begun at")
def another_thread_waits():
    errors = []

    def wait():
        try:
            npu.synchronize()  # named
        except RuntimeError as error:
            errors.append(error)

    with npu.graph(npu.NPUGraph()):  # named
        ones()
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    raise errors[0]


# ---- Forks and joins ----


@mistake(
    "was forked into the capture and not joined back",
    "call torch.npu.current_stream().wait_stream(s) before the capture ends",
    "its last task is number 1 (aten::add.out, at",
    "it was forked at",
    code=107025,
)
def forgotten_join():
    x, side = ones(), npu.Stream()
    with npu.graph(npu.NPUGraph()):  # named
        side.wait_stream(npu.current_stream())  # named
        with npu.stream(side):
            x + 1  # named


@mistake("not joined back", "it was forked at", "torch.npu.current_stream().wait_stream(s)")
def forgotten_join_of_an_event():
    x, side, event = ones(), npu.Stream(), npu.Event()
    with npu.graph(npu.NPUGraph()):
        event.record()
        side.wait_event(event)  # named
        with npu.stream(side):
            x + 1


@mistake("recorded outside of the capture", "s.wait_stream(torch.npu.current_stream()) before `with torch.npu.stream(s):`")
def forgotten_fork():
    x, side = ones(), npu.Stream()
    with npu.graph(npu.NPUGraph()):
        with npu.stream(side):
            x + 1
        npu.current_stream().wait_stream(side)  # named


@mistake("recorded outside of the capture", "torch.npu.ExternalEvent()", code=107024)
def event_from_before():
    event = npu.Event()
    event.record(npu.Stream())
    with npu.graph(npu.NPUGraph()):
        event.wait()  # named


@mistake("default stream", "would join a capture", "use a stream of torch.npu.Stream()", code=107031)
def default_stream_waits():
    x = ones()
    with npu.graph(npu.NPUGraph()):
        x + 1
        npu.default_stream().wait_stream(npu.current_stream())  # named


@mistake("which belongs to another capture", "wait only for events of the same capture", code=107032)
def two_captures_meet():
    x, event, streams, graphs = ones(), npu.Event(), [npu.Stream() for _ in range(2)], []
    for stream in streams:
        graphs.append(npu.NPUGraph())
        with npu.stream(stream):
            graphs[-1].capture_begin(capture_error_mode="relaxed")
            x + 1
    event.record(streams[0])
    try:
        event.wait(streams[1])  # named
    finally:
        for stream, graph in zip(streams, graphs):
            with npu.stream(stream), pytest.raises(RuntimeError, match="mend the call that the text names"):
                graph.capture_end()


@mistake("made with interprocess=True", "use torch.npu.Event()", code=207000)
def shared_event():
    with npu.graph(npu.NPUGraph()):
        npu.Event(interprocess=True).record()  # named


# ---- Captures and graphs ----


@mistake("capture on a non-default stream", "use `with torch.npu.graph(g):`", "torch.npu.stream(torch.npu.Stream())")
def capture_on_the_default_stream():
    npu.NPUGraph().capture_begin()  # named


@mistake("captures do not nest", "leave the outer `with torch.npu.graph(...)` block first")
def graph_in_a_graph():
    with npu.graph(npu.NPUGraph()):
        with npu.graph(npu.NPUGraph()):
            pass


@mistake("is being captured already", "captures do not nest", code=107027)
def begin_in_a_graph():
    with npu.graph(npu.NPUGraph()):
        npu.NPUGraph().capture_begin()  # named


@mistake("already capturing", "leave its `with torch.npu.graph(...)` block first")
def begin_twice():
    g = npu.NPUGraph()
    with npu.graph(g):
        g.capture_begin()  # named


@mistake("already owns a captured graph", "call g.reset() first, or use another torch.npu.NPUGraph()", code=107026)
def capture_twice():
    g = captured()
    with npu.graph(g):  # named
        pass


@mistake("replay() without a preceding successful capture", "nothing was captured", "`with torch.npu.graph(g):`")
def replay_before_the_capture():
    npu.NPUGraph().replay()  # named


@mistake("the capture is still open", "leave the `with torch.npu.graph(...)` block")
def replay_within_its_capture():
    g = npu.NPUGraph()
    with npu.graph(g):
        g.replay()  # named


@mistake("NPUGraph.replay is not allowed on stream", "call g.replay() after the `with torch.npu.graph(...)` block")
def replay_within_another_capture():
    g = captured()
    with npu.graph(npu.NPUGraph()):
        g.replay()  # named


@mistake("not capturing", "capture_begin first", "`with torch.npu.graph(g):`", code=107029)
def end_without_a_begin():
    npu.NPUGraph().capture_end()  # named


@mistake("must end on the same stream", "torch.npu.set_stream", "call capture_end once more")
def end_on_another_stream():
    g, stream = npu.NPUGraph(), npu.Stream()
    with npu.stream(stream):
        g.capture_begin()
    try:
        g.capture_end()  # named
    finally:
        with npu.stream(stream):
            ones()
            g.capture_end()


@mistake("its capture was left by an exception (KeyError: 'weight')", "cannot be replayed until it is captured again")
def replay_of_half_a_capture():
    g = npu.NPUGraph()
    with pytest.raises(KeyError), npu.graph(g):
        raise KeyError("weight")
    g.replay()  # named


@mistake("the capture has failed: stream", "not joined back", "cannot be replayed until it is captured again", code=507011)
def replay_of_a_failed_capture():
    g, x, side = npu.NPUGraph(), ones(), npu.Stream()
    with pytest.raises(RuntimeError):
        with npu.graph(g):  # named
            side.wait_stream(npu.current_stream())
            with npu.stream(side):
                x + 1
    g.replay()  # named


@mistake("was freed after it was captured", "a tensor that was captured at", "by copy_()", code=107000)
def input_that_is_gone():
    x, g = ones(), npu.NPUGraph()
    with npu.graph(g):
        y = x + 1  # named
    del x  # named
    g.replay()  # named
    return y


@mistake("NPUGraph object, not NoneType", "g = torch.npu.NPUGraph()", kind=TypeError)
def graph_of_nothing():
    with npu.graph(None):
        pass


@mistake("NPUGraph object, not <class", "g = torch.npu.NPUGraph()", kind=TypeError)
def graph_class_in_place_of_a_graph():
    with npu.graph(npu.NPUGraph):
        pass


@mistake('capture_error_mode is "strict"', '"global", "thread_local" or "relaxed"')
def unknown_mode():
    with npu.graph(npu.NPUGraph(), capture_error_mode="strict"):
        pass


@mistake("(7, 7) is not a pool", "torch.npu.graph_pool_handle()")
def pool_of_ones_own():
    with npu.graph(npu.NPUGraph(), pool=(7, 7)):  # named
        pass


@mistake("pool() without a preceding successful capture", "capture first")
def pool_before_the_capture():
    npu.NPUGraph().pool()  # named


@mistake("only kept with keep_graph=True", "torch.npu.NPUGraph(keep_graph=True)")
def raw_graph_that_was_not_kept():
    captured().raw_npu_graph()  # named


@mistake("auto_dispatch_capture=True", "torch.npu.graph(g, auto_dispatch_capture=True)")
def update_of_a_plain_graph():
    captured().update([{}])


@mistake("all on the CPU", "module.npu() and tensor.npu()")
def callable_of_the_cpu():
    npu.make_graphed_callables(torch.nn.Linear(4, 4), (torch.ones(4),))


@mistake("capturable=True")
def optimizer_that_is_not_capturable():
    model = torch.nn.Linear(4, 4).npu()
    optimizer = torch.optim.Adam(model.parameters())
    model(ones()).sum().backward()
    with npu.graph(npu.NPUGraph()):
        optimizer.step()


# ---- Random numbers ----


@mistake("making a generator is not allowed", "before the capture or after it", code=107027)
def generator_made_late():
    with npu.graph(npu.NPUGraph()):
        torch.Generator(device="npu")  # named


@mistake("a new seed", "seed the generator before the capture, or between replays", code=107030)
def seed_in_the_capture():
    with npu.graph(npu.NPUGraph()):
        torch.manual_seed(77)  # named


@mistake("expected a 'npu' generator, got one on cpu", "torch.Generator(device='npu')")
def generator_of_the_cpu():
    torch.rand(4, device="npu", generator=torch.Generator())


@mistake("a generator of npu cannot fill a tensor on cpu", 'device="npu"')
def tensor_of_the_cpu():
    torch.rand(4, generator=torch.Generator(device="npu"))


@mistake("RNG state is wrong size", "torch.npu.get_rng_state()")
def state_of_another_size():
    npu.set_rng_state(torch.zeros(3, dtype=torch.uint8))  # named


# ---- Devices, streams, memory ----


@mistake("npu:0 and cpu", 'tensor.to("npu:0")')
def model_on_npu_input_on_the_host():
    torch.nn.Linear(4, 4).npu()(torch.ones(4))


@mistake("invalid device index 1: there is 1 npu device", "REPRISE_DEVICES=2")
def second_device():
    torch.ones(4, device="npu:1")


@mistake("invalid device index 3", "REPRISE_DEVICES=4")
def current_device_that_is_not_there():
    npu.set_device(3)


@mistake("npu:1", "REPRISE_DEVICES=2")
def stream_of_a_second_device():
    npu.Stream(device=1)


@mistake("Invalid device id 1", "REPRISE_DEVICES", kind=AssertionError)
def properties_of_a_second_device():
    npu.get_device_properties(1)


@mistake("expected a torch.npu.Stream, not int", "torch.npu.Stream()")
def number_as_a_stream():
    with npu.stream(3):
        pass


@mistake("enable_timing=True")
def events_without_timing():
    begin, end = npu.Event(), npu.Event()
    begin.record()
    end.record()
    begin.elapsed_time(end)


@mistake("call record() on both first")
def time_before_the_record():
    npu.Event(enable_timing=True).elapsed_time(npu.Event(enable_timing=True))


@mistake("NPU out of memory: tried to allocate", "take a smaller batch", kind=torch.OutOfMemoryError, code=207001)
def too_much_memory():
    graph = npu.NPUGraph()
    with npu.graph(graph):
        ones() + 1
    torch.empty(1 << 50, device="npu")  # named; to reset the graph would not help


@mistake("fraction must lie between 0 and 1", kind=ValueError)
def fraction_above_one():
    npu.set_per_process_memory_fraction(2.0)


@mistake("aten::_to_sparse", "do this on the CPU", kind=NotImplementedError)
def sparse_tensor():
    ones().to_sparse()


@mistake("index out of range", "aten::index_select", "ASCEND_LAUNCH_BLOCKING=1", code=507015)
def index_out_of_range():
    torch.nn.Embedding(4, 4).npu()(torch.tensor([9], device="npu"))
    npu.synchronize()  # named


@mistake("index out of range", "culprit: at ", code=507015)
def index_out_of_range_in_a_replay():
    embedding, index, g = torch.nn.Embedding(4, 4).npu(), torch.tensor([1], device="npu"), npu.NPUGraph()
    with npu.graph(g):
        embedding(index)  # named
    index.fill_(9)
    g.replay()
    npu.synchronize()  # named


def named_lines(function):
    first = function.__code__.co_firstlineno
    last = max(line for code in [function.__code__, *nested(function.__code__)] for *_, line in code.co_lines() if line)
    return [number for number in range(first, last + 1) if HERE[number - 1].endswith("# named")]


def nested(code):
    return [each for each in code.co_consts if isinstance(each, type(code))]


# The interface of C, which a Python program cannot call.
OF_C = re.compile(r"\bacl[a-z]*[A-Z]\w*|\breprise::\w+|\b(Capture(Begin|End)|Options|Reset)\b|\bEx event")


@pytest.mark.filterwarnings("ignore:.*NPU Graph is empty")
@pytest.mark.parametrize("function, words, kind, code", MISTAKES)
def test_mistakes_are_named_in_python(npu, function, words, kind, code):
    with pytest.raises(kind) as info:
        function()
    text = str(info.value)
    for word in words:
        assert word in text, text
    for line in named_lines(function):
        assert f"{__file__}:{line} " in text, text
    assert not OF_C.search(text), f"speaks of C: {text}"
    if code is not None:
        assert info.value.code == code
    if isinstance(info.value, torch_npu.NpuError):
        assert info.value.cause and info.value.hint and info.value.code
        assert not OF_C.search(info.value.cause + info.value.culprit + info.value.hint)
        assert info.value.place.startswith(__file__)


def test_there_are_many_mistakes():
    assert len(MISTAKES) >= 60


def test_empty_cache_in_a_capture_does_no_harm():
    x, g = ones(), npu.NPUGraph()
    with npu.graph(g):
        y = x + 1
        npu.empty_cache()
        z = y * 2
    g.replay()
    assert z.tolist() == [4.0] * 4


def test_exception_of_the_body_is_what_the_user_sees():
    x, g = ones(), npu.NPUGraph()
    with pytest.raises(KeyError, match="weight"):
        with npu.graph(g):
            x + 1
            raise KeyError("weight")
    with pytest.raises(torch_npu.NpuError, match="captured again"):
        g.replay()
    with npu.graph(g):
        y = x + 1
    g.replay()
    assert y.tolist() == [2.0] * 4


def test_two_devices_and_blocking_launches():
    done = run_script(
        """
        import torch
        npu = torch.npu
        x, y = torch.ones(4, device="npu:0"), torch.ones(4, device="npu:1")
        table, index = torch.nn.Embedding(4, 4).npu(), torch.tensor([9], device="npu")

        def fails(work):
            try:
                work()
            except RuntimeError as error:
                print(str(error).replace("\\n", " "))
            else:
                print("nothing")

        def capture_a_stream_of_another_device():
            with npu.graph(npu.NPUGraph(), stream=npu.Stream(device=1)):
                x + 1

        def copy_to_another_device_in_a_capture():
            with npu.graph(npu.NPUGraph()):
                y.copy_(x)

        def record_an_event_of_another_device():
            event = npu.Event()
            event.record(npu.Stream(device=0))
            event.record(npu.Stream(device=1))

        fails(lambda: x + y)
        fails(capture_a_stream_of_another_device)
        fails(copy_to_another_device_in_a_capture)
        fails(record_an_event_of_another_device)
        fails(lambda: npu.set_device(2))
        fails(lambda: table(index))
        """,
        ASCEND_LAUNCH_BLOCKING=1,
        REPRISE_DEVICES=2,
    )
    assert done.returncode == 0, done.stderr
    mixed, stream, copy, event, third, blocking = done.stdout.splitlines()
    assert "npu:0 and npu:1" in mixed
    assert "belongs to npu:1, but npu:0 is the current device" in stream and "with torch.npu.device(1):" in stream
    assert "a copy between devices" in copy and "keep the whole capture on one device" in copy
    assert "an event of npu:0 cannot be recorded on a stream of npu:1" in event and "record another event" in event
    assert "there are 2 npu devices" in third and "REPRISE_DEVICES=3" in third
    # The call itself raises, so that nobody needs to look for its line.
    assert "index out of range" in blocking and "ASCEND_LAUNCH_BLOCKING" not in blocking
    assert "(called at <string>:33 in <lambda>)" in blocking


# ---- Names that are not there ----

# What public programs write, most used first.
NAMES = """
torch_npu.float4_e2m1fn_x2 torch_npu.float8_e8m0fnu torch_npu._npu_paged_attention
torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options torch_npu._npu_flash_attention_unpad
torch_npu._npu_matmul_add_fp32 torch_npu._npu_paged_attention_get_workspace torch_npu._npu_paged_attention_splitfuse
torch_npu.multiprocessing.reductions torch_npu.profiler torch_npu.profiler.ExportType.Text
torch_npu.profiler.ProfilerLevel.Level1 torch_npu.profiler._ExperimentalConfig torch_npu.profiler.profile
torch_npu.profiler.tensorboard_trace_handler torch.npu.get_soc_version torch.npu.lightning_indexer
torch_npu.Format.FRACTAL_NZ torch_npu._C._distributed_c10d torch_npu.__version__ torch_npu._inductor
torch_npu._npu_flash_attention torch_npu._npu_flash_attention_unpad_v2 torch_npu._npu_flash_attention_v3
torch_npu._npu_group_topk torch_npu._npu_paged_attention_mla torch_npu._npu_paged_attention_splitfuse_v2
torch_npu._npu_reshape_and_cache torch_npu._npu_rotary_embedding torch_npu.empty_with_format torch_npu.hifloat8
torch_npu.op_plugin.atb._atb_ops torch_npu.profiler.AiCMetrics.PipeUtilization torch_npu.profiler.ProfilerActivity
torch_npu.profiler.ProfilerActivity.CPU torch_npu.profiler.with_modules torch_npu.dynamo torch_npu.onnx torch_npu.asd
torch_npu.npu.no_such_name torch_npu.npu_no_such_operator torch_npu.contrib.ROIAlign torch_npu.utils.save_async
torch_npu.optim.NpuFusedLamb torch_npu.profiler.no_such_name torch_npu.contrib.no_such_module
""".split()


@pytest.mark.parametrize("path", NAMES)
def test_names_are_there_or_are_refused_in_one_sentence(path):
    owner, parts = (torch, path.split(".")[1:]) if path.startswith("torch.") else (torch_npu, path.split(".")[1:])
    for part in parts:
        try:
            owner = getattr(owner, part)
        except AttributeError as error:
            if hasattr(owner, "__path__") and importlib.util.find_spec(f"{owner.__name__}.{part}") is not None:
                return  # a module to import by its name
            assert part in str(error) and "\n" not in str(error)
            assert not hasattr(owner, part) and getattr(owner, part, None) is None
            module = getattr(owner, "__name__", None)
            if isinstance(owner, type(torch)) and module:
                with pytest.raises(ImportError, match=part):
                    exec(f"from {module} import {part}")
            return


@pytest.mark.parametrize("module", ["torch_npu.onnx", "torch_npu.asd", "torch_npu.utils.FlopsCounter"])
def test_modules_that_are_absent_say_why(module):
    with pytest.raises(ModuleNotFoundError, match=f"{module} does not exist in Reprise.*: ") as info:
        importlib.import_module(module)
    assert info.value.name == module
    assert importlib.util.find_spec(module) is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'torch_npu.no_such_module'"):
        importlib.import_module("torch_npu.no_such_module")


# ---- Errors as JSON ----


def test_every_refusal_in_python_is_one_line_of_json(tmp_path):
    path = tmp_path / "errors.jsonl"
    done = run_script(
        """
        import torch, torch_npu
        npu = torch.npu
        x = torch.ones(4, device="npu")
        table = torch.nn.Embedding(4, 4).npu()

        def in_a_capture(work):
            with npu.graph(npu.NPUGraph()):
                work()

        def unjoined():
            side = npu.Stream()
            side.wait_stream(npu.current_stream())
            with npu.stream(side):
                x + 1

        mistakes = [
            lambda: in_a_capture(npu.synchronize),                     # the runtime
            lambda: in_a_capture(unjoined),                            # the graph
            lambda: in_a_capture(x.cpu),                               # the extension
            lambda: npu.NPUGraph().replay(),
            lambda: npu.Event().elapsed_time(npu.Event()),             # its checks
            lambda: torch.ones(4, device="npu:1"),
            lambda: x.to_sparse(),
            lambda: torch.nn.functional.layer_norm(x, (3,)),           # torch, asked by the extension
            lambda: torch.empty(1 << 50, device="npu"),
            lambda: npu.set_per_process_memory_fraction(2.0),          # Python
            lambda: npu.graph(None),
            lambda: npu.Stream().priority,
            lambda: (table(torch.tensor([9], device="npu")), npu.synchronize()),  # a kernel
        ]
        for _ in range(2):
            for number, wrong in enumerate(mistakes):
                try:
                    wrong()
                except Exception as error:
                    print(type(error).__name__, getattr(error, "code", 0), str(error).split("\\n")[0][-40:], sep="|")
                else:
                    print("nothing", number)
        hasattr(npu, "no_such_name"), hasattr(torch_npu, "dynamo")
        """,
        REPRISE_ERROR_JSON=path,
    )
    assert done.returncode == 0, done.stderr
    raised = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 2]
    assert len(raised) == 26, done.stdout
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == len(raised), [line["what"] for line in lines]
    for (kind, code, _), line in zip(raised, lines):
        assert line["type"] == kind, line
        assert line["code"] == int(code) or code == "0"
        assert line["code"] > 0 and line["what"] and line["api"] and line["pid"] and line["tid"]
        assert re.fullmatch(r"<string>:\d+ in \S+", line["python"]), line
        assert re.fullmatch(r"npu:0 stream_id=\d+", line["stream"]), line
        assert not OF_C.search(line["what"] + line["culprit"] + line["solution"]), line
    assert "it was forked at <string>:13 in unjoined" in lines[1]["culprit"]


def test_every_raise_of_the_package_is_written():
    """Python code raises through ``refused``; what ``hasattr`` and ``import`` look for is no refusal."""
    package = pathlib.Path(torch_npu.__file__).parent
    asks = {"AttributeError", "ImportError", "ModuleNotFoundError", "StopIteration"}
    bare = []
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
                continue
            name = getattr(node.exc.func, "id", getattr(node.exc.func, "attr", ""))
            if name not in asks and not name.startswith(("_", "refused")):
                bare.append(f"{file.relative_to(package)}:{node.lineno}: raise {name}")
    assert bare == ["__init__.py:13: raise RuntimeError"], "without the extension there is nobody to write"
