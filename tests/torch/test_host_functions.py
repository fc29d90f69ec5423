# SPDX-License-Identifier: Apache-2.0
"""Python functions in streams and graphs, and the operators that show tensors by them."""
import gc
import glob
import os
import re
import sys
import threading
import weakref

import pytest
import torch
from support import output_of, run_script, wait_until

print_tensor = torch.ops.npu.print_npugraph_tensor
save_tensor = torch.ops.npu.save_npugraph_tensor


class Log(list):
    """A host function that notes what it got."""

    def __call__(self, data):
        self.append(data)


def replays(graph, count):
    for _ in range(count):
        graph.replay()
    torch.npu.synchronize()


def test_TN_246_host_function_in_a_graph():
    log = Log()
    x = torch.zeros(4, device="npu")
    seen = []
    host = torch.zeros(4, pin_memory=True)
    graph = torch.npu.NPUGraph()
    stream = torch.npu.Stream()
    torch.npu._subscribe_report(stream)
    with torch.npu.graph(graph, stream=stream):
        torch.npu._launch_host_func(stream, log, "begin")
        x.add_(1)
        host.copy_(x, non_blocking=True)
        torch.npu._launch_host_func(stream, lambda data: seen.append(host[0].item()), None)
        torch.npu._launch_host_func(stream, log, "end")
    assert log == [] and seen == []
    replays(graph, 3)
    torch.npu._unsubscribe_report(stream)
    assert log == ["begin", "end"] * 3
    assert seen == [1.0, 2.0, 3.0]


def test_TN_246_host_function_eager():
    log = Log()
    stream = torch.npu.Stream()
    for value in range(100):
        torch.npu._launch_host_func(stream, log, value)
    stream.synchronize()
    assert log == list(range(100))


def test_a_host_function_that_waits_for_itself_is_told():
    stream = torch.npu.Stream()
    behind = torch.npu.Event()
    said = []

    def wait(call):
        try:
            call()
            said.append("")
        except RuntimeError as error:
            said.append(str(error))

    calls = (torch.npu.synchronize, stream.synchronize, behind.synchronize)
    gate = threading.Event()
    torch.npu._launch_host_func(stream, lambda data: gate.wait(), None)
    for call in calls:
        torch.npu._launch_host_func(stream, wait, call)
    behind.record(stream)
    gate.set()
    stream.synchronize()
    assert len(said) == len(calls)
    for text in said:
        assert "507000" in text and "and so for itself" in text, text


def test_TN_246_callbacks_need_a_subscription():
    log = Log()
    stream, other = torch.npu.Stream(), torch.npu.Stream()
    with pytest.raises(RuntimeError):
        torch.npu._launch_callback(stream, log, 1)
    with pytest.raises(RuntimeError, match="not subscribed"):
        torch.npu._unsubscribe_report(stream)
    for _ in range(3):
        torch.npu._subscribe_report(stream)
        torch.npu._subscribe_report(other)
        with pytest.raises(RuntimeError):
            torch.npu._subscribe_report(stream)
        torch.npu._launch_callback(stream, log, "a")
        torch.npu._unsubscribe_report(stream)
        torch.npu._launch_callback(other, log, "b")
        torch.npu._unsubscribe_report(other)
    assert log == ["a", "b"] * 3
    graph = torch.npu.NPUGraph()
    x = torch.zeros(4, device="npu")
    with torch.npu.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match="_launch_host_func"):
            torch.npu._launch_callback(torch.npu.current_stream(), log, 1)


def test_TN_246_only_callables():
    stream = torch.npu.Stream()
    for launch in (torch.npu._launch_host_func, torch.npu._launch_callback):
        with pytest.raises(TypeError, match="callable"):
            launch(stream, 3, None)
    with pytest.raises(TypeError, match="callable"):
        torch.npu._launch_host_func_pending(stream, 3, ())


def test_TN_247_exceptions_are_unraisable(monkeypatch):
    caught = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: caught.append((info.exc_type, str(info.exc_value))))
    log = Log()

    def fails(data):
        raise ValueError(f"no {data}")

    x = torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        torch.npu._launch_host_func(stream, fails, "good")
        x.add_(1)
        torch.npu._launch_host_func(stream, log, "after")
        torch.npu._launch_host_func_pending(stream, fails, ("better",))
    replays(graph, 2)
    assert sorted(caught) == [(ValueError, "no better")] * 2 + [(ValueError, "no good")] * 2
    assert log == ["after"] * 2
    assert x.tolist() == [2.0] * 4


def test_TN_246_pending_functions_copy_buffers_at_their_turn():
    calls = []
    thread = []

    def fn(*args):
        calls.append(args)
        thread.append(threading.current_thread())

    stream = torch.npu.Stream()
    host = torch.zeros(3, dtype=torch.int16, pin_memory=True)
    x = torch.zeros(3, dtype=torch.int16, device="npu")
    pointer = ("host_tensor_ptr", host.data_ptr(), host.nbytes, (3,), torch.int16)
    args = [1, [pointer, ("a", pointer)], {"kept": pointer}]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=stream):
        x.add_(1)
        host.copy_(x, non_blocking=True)
        torch.npu._launch_host_func_pending(stream, fn, tuple(args))
        args[1].clear()
    replays(graph, 3)
    assert len(calls) == 3 and set(thread) == {threading.main_thread()}
    for count, (one, (buffer, (a, again)), kept) in enumerate(calls, start=1):
        assert one == 1 and a == "a" and kept == {"kept": pointer}
        for name, data, shape, dtype in (buffer, again):
            assert (name, shape, dtype) == ("host_tensor_buffer", (3,), torch.int16)
            assert torch.frombuffer(data, dtype=dtype).tolist() == [count] * 3


@pytest.mark.parametrize("pointer", [("host_tensor_ptr", 4096, -1, (), None), ("host_tensor_ptr", 0, 8, (), None)])
def test_TN_246_pending_functions_check_sizes(pointer):
    with pytest.raises(ValueError, match="bytes"):
        torch.npu._launch_host_func_pending(torch.npu.Stream(), print, ([pointer],))


def test_TN_246_pending_functions_from_many_streams_keep_their_order():
    log = []
    streams = [torch.npu.Stream() for _ in range(4)]
    for value in range(200):
        for index, stream in enumerate(streams):
            torch.npu._launch_host_func_pending(stream, lambda *call: log.append(call), (index, value))
    torch.npu.synchronize()
    for index in range(4):
        assert [value for place, value in log if place == index] == list(range(200))


def test_TN_248_print(capsys):
    x = torch.zeros(2, dtype=torch.float16, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        print_tensor(x, tensor_name="a")
        x.mul_(2)
    capsys.readouterr()
    replays(graph, 1)
    replays(graph, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line, value in zip(lines, (1, 3)):
        assert re.fullmatch(rf"a=tensor\(\[{value}., {value}.\], dtype=torch.float16\), shape=.*2.*, dtype=.*16", line)
    print_tensor(x)
    torch.npu.synchronize()
    assert "=tensor([6., 6.]" in capsys.readouterr().out


def test_TN_249_save(tmp_path):
    x = torch.zeros(2, device="npu")
    path = str(tmp_path / "new" / "x.bin")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        save_tensor(x, save_path=path)
        save_tensor(x, save_path=str(tmp_path / "same"), overwrite=True)
    replays(graph, 1)
    replays(graph, 1)
    files = sorted(os.path.relpath(file, tmp_path) for file in glob.glob(f"{tmp_path}/**/*.*", recursive=True))
    assert files == ["new/x_device_0_0.bin", "new/x_device_0_1.bin", "same_device_0.pt"]
    assert [torch.load(tmp_path / file).tolist() for file in files] == [[1, 1], [2, 2], [2, 2]]


def test_TN_250_save_lists(tmp_path):
    x, y = torch.zeros(2, device="npu"), torch.ones(3, 2, dtype=torch.int64, device="npu").t()
    path = str(tmp_path / "list.pt")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        save_tensor.tensor_list([x, y], save_path=path)
    replays(graph, 2)
    a, b = torch.load(tmp_path / "list_device_0_1.pt")
    assert a.tolist() == [2, 2] and torch.equal(b, y.cpu())


def test_TN_250_wrong_arguments(tmp_path):
    x = torch.zeros(2, device="npu")
    path = str(tmp_path / "x.pt")
    with pytest.raises(ValueError, match="empty list"):
        save_tensor.tensor_list([], save_path=path)
    with pytest.raises(ValueError, match="devices"):
        save_tensor.tensor_list([x, torch.zeros(2)], save_path=path)
    for value in (x, torch.zeros(2)):
        with pytest.raises(ValueError, match="file name"):
            save_tensor(value, save_path=str(tmp_path) + "/")
        with pytest.raises((TypeError, RuntimeError), match="save_path"):
            save_tensor(value, save_path=3)
        with pytest.raises((TypeError, RuntimeError), match="overwrite"):
            save_tensor(value, save_path=path, overwrite="yes")
    assert not glob.glob(f"{tmp_path}/*")


def test_TN_251_default_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tensor(torch.ones(2, device="npu"))
    torch.npu.synchronize()
    save_tensor(torch.ones(2))
    on_npu, on_cpu = sorted(glob.glob("*"), key=lambda name: "device" not in name)
    assert re.fullmatch(r"tensor_[0-9_]+_device_0_0\.pt", on_npu)
    assert re.fullmatch(r"tensor_[0-9_]+\.pt", on_cpu)


def test_TN_252_cpu_tensors(tmp_path, capsys):
    x = torch.ones(2, requires_grad=True)
    print_tensor(x, tensor_name="x")
    assert capsys.readouterr().out.startswith("x=tensor([1., 1.])")
    path = str(tmp_path / "x")
    save_tensor(x, save_path=path)
    save_tensor(x, save_path=path)
    save_tensor(x, save_path=path, overwrite=True)
    save_tensor.tensor_list([x, x], save_path=path)
    assert sorted(os.listdir(tmp_path)) == ["x.pt", "x_0.pt", "x_1.pt", "x_2.pt"]
    assert torch.load(tmp_path / "x_1.pt").tolist() == [1, 1]
    meta = torch.ones(2, device="meta")
    print_tensor(meta)
    save_tensor(meta, save_path=path)
    assert capsys.readouterr().out == "" and len(os.listdir(tmp_path)) == 4


def test_TN_253_callables_go_with_their_graph():
    class Function:
        def __call__(self, *data):
            self.data = data

    function, data = Function(), Function()
    pending, callback = Function(), Function()
    alive = [weakref.ref(value) for value in (function, data, pending, callback)]
    graph = torch.npu.NPUGraph()
    x = torch.zeros(4, device="npu")
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        torch.npu._launch_host_func(stream, function, data)
        torch.npu._launch_host_func_pending(stream, pending, (data,))
        x.add_(1)
    torch.npu._subscribe_report(stream)
    torch.npu._launch_callback(stream, callback, None)
    torch.npu._unsubscribe_report(stream)
    replays(graph, 2)
    del function, data, pending, callback, stream
    wait_until(lambda: alive[3]() is None)  # a worker drops it after the call
    gc.collect()
    assert [value() is None for value in alive] == [False, False, False, True]
    del graph
    wait_until(lambda: all(value() is None for value in alive))


def test_TN_253_eager_callables_go_after_their_run():
    class Function:
        def __call__(self, data):
            pass

    function = Function()
    alive = weakref.ref(function)
    stream = torch.npu.Stream()
    torch.npu._launch_host_func(stream, function, None)
    del function
    stream.synchronize()
    wait_until(lambda: alive() is None)  # a worker drops it after the call


def test_TN_254_no_capture():
    with pytest.raises(RuntimeError, match="not currently capturing"):
        torch.npu.NPUGraph.get_currently_capturing_graph()


def test_TN_246_work_left_at_exit():
    code = """
        import os
        import torch
        stream = torch.npu.Stream()
        held = torch.npu.ExternalEvent()
        def fn(*args):
            os.write(1, f"ran {args[-1]}\\n".encode())  # a line at once: two threads may be in this function
        torch.npu._launch_host_func(stream, lambda data: [i for i in range(200000)], None)
        torch.npu._launch_host_func_pending(stream, fn, (1,))
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            torch.npu._launch_host_func(torch.npu.current_stream(), fn, 2)
        graph.replay()
        torch.npu._launch_host_func_pending(stream, fn, (3,))
    """
    done = run_script(code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines) == ["ran 1", "ran 2", "ran 3"], done.stdout
    assert lines.index("ran 1") < lines.index("ran 3")  # of one stream; the graph was on another


# ---- Deadlocks ----


def slow(data):
    """Gives the GIL up and takes it again, over and over."""
    total = 0
    for value in range(3000):
        total += value
    data.append(total)


def busy_graph(log):
    graph = torch.npu.NPUGraph()
    x = torch.zeros(1000, device="npu")
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        for _ in range(3):
            torch.npu._launch_host_func(stream, slow, log)
            x.add_(1)
    return graph, x


def test_TN_296_many_threads_replay():
    log = []
    graph, x = busy_graph(log)
    errors = []

    def work():
        try:
            with torch.npu.stream(torch.npu.Stream()):
                for _ in range(10):
                    graph.replay()
                torch.npu.current_stream().synchronize()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.npu.synchronize()
    assert not errors
    assert len(log) == 3 * 60
    assert x[0].item() == 3 * 60


def test_TN_297_waiting_while_host_functions_need_the_gil(tmp_path):
    log, other_log = [], []
    graph, x = busy_graph(log)
    other, _ = busy_graph(other_log)
    event = torch.npu.Event()
    side = torch.npu.Stream()
    waits = [
        torch.npu.synchronize,
        torch.npu.empty_cache,
        torch.npu.host_empty_cache,
        event.synchronize,
        torch.npu.current_stream().synchronize,
        lambda: x[0].item(),
        x.cpu,
        lambda: torch.zeros(3, device="npu"),
        lambda: torch.zeros(3, pin_memory=True),
        lambda: graph.debug_dump(tmp_path / "graph.json"),
        event.query,
        side.query,
        lambda: side.wait_event(event),
        torch.npu.memory_snapshot,
        gc.collect,
    ]
    for wait in waits:
        graph.replay()
        with torch.npu.stream(side):
            other.replay()
        event.record()
        torch.npu._launch_host_func(side, slow, other_log)
        wait()
    graph.replay()
    graph.reset()  # waits for its executions
    assert len(log) == 3 * (len(waits) + 1)
    torch.npu.synchronize()
    assert len(other_log) == 4 * len(waits)


def test_TN_297_update_while_host_functions_need_the_gil():
    log = []
    x, out = torch.zeros(4, device="npu"), torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()
    event = torch.npu.ExternalEvent()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        torch.npu._launch_host_func(stream, slow, log)
        event.wait(stream)
        event.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        torch.add(x, 1, out=out)
        handle = torch.npu.graph_task_group_end(stream)
        torch.npu._launch_host_func(stream, slow, log)
    update = torch.npu.Stream()
    for value in range(20):
        graph.replay()
        torch.npu._launch_host_func(update, slow, log)
        with torch.npu.stream(update):
            torch.npu.graph_task_update_begin(update, handle)
            torch.add(x, value, out=out)
            torch.npu.graph_task_update_end(update)
            event.record(update)
        torch.npu.synchronize()  # one record for one wait
        assert out[0].item() == value
    assert len(log) == 60


@pytest.mark.parametrize("way", ["del", "reset", "thread", "cycle"])
def test_TN_299_graph_deleted_while_it_runs(way):
    for _ in range(5):
        log = []
        graph, x = busy_graph(log)
        graph.replay()
        graph.replay()
        if way == "reset":
            graph.reset()
        elif way == "cycle":
            graph.itself = graph
            del graph
            gc.collect()
        elif way == "thread":
            holder = [graph]
            del graph
            thread = threading.Thread(target=holder.clear)
            thread.start()
            thread.join()
        else:
            del graph
        torch.npu.synchronize()
        assert len(log) == 6
        assert x[0].item() == 6
