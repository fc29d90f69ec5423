# SPDX-License-Identifier: Apache-2.0
"""Devices, the first use of the runtime, processes that fork or end."""
import ctypes
import sys
import threading

import pytest
import torch
import torch_npu
from support import output_of, run_script

lifecycle = sys.modules["torch_npu.npu.device"]


def test_TN_011_the_first_use_happens_once():
    calls = []
    torch.npu.init()
    lifecycle._initialized = False
    torch.npu._lazy_call(lambda: (calls.append("outer"), torch.npu.init()))  # again, from inside
    torch.npu._lazy_call(lambda: torch.npu._lazy_call(lambda: calls.append("second")))
    assert calls == []
    threads = [threading.Thread(target=torch.npu.init) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["outer", "second"]
    torch.npu._lazy_call(lambda: calls.append("now"))
    assert calls[-1] == "now"


def test_TN_013_a_queued_call_that_fails_tells_where_it_was_queued():
    torch.npu.init()
    lifecycle._initialized = False

    def the_place_that_queued():
        torch.npu._lazy_call(lambda: 1 // 0)

    the_place_that_queued()
    try:
        with pytest.raises(torch.npu.DeferredNpuCallError) as failed:
            torch.npu.init()
    finally:
        torch.npu.init()
    assert "division" in str(failed.value) and "the_place_that_queued" in str(failed.value)


def test_TN_014_a_forked_child_is_refused():
    seen = output_of(
        """
        import os, torch
        held = torch.ones(3, device="npu")
        stream = torch.npu.Stream()
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (
                torch.npu.init,
                torch.npu.synchronize,
                torch.npu.Stream,
                lambda: torch.npu.set_device(0),
                lambda: torch.empty(2, device="npu"),
                lambda: held + 1,
                lambda: held.cpu(),
                lambda: stream.synchronize(),
            ):
                try:
                    use()
                except RuntimeError as error:
                    refused += "forked subprocess" in str(error) and "spawn" in str(error)
            asked = torch.npu._is_in_bad_fork() and not torch.npu.is_initialized()
            del held, stream
            raise SystemExit(0 if refused == 8 and asked else refused + 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, os.waitstatus_to_exitcode(status)
        assert (held + 1).cpu().tolist() == [2, 2, 2] and not torch.npu._is_in_bad_fork()
        print("parent works")
        """
    )
    assert seen == "parent works"


@pytest.mark.parametrize("nothing", [-1, None])
def test_TN_015_negative_devices_and_none_change_nothing(nothing):
    with torch.npu.device(nothing):
        assert torch.npu.current_device() == 0
    torch.npu.set_device(nothing)
    assert torch.npu.current_device() == 0


def test_TN_015_devices_that_do_not_exist():
    for wrong in (10**6, 70, 200):
        with pytest.raises(RuntimeError, match="invalid device index"):
            torch.npu.set_device(wrong)
        with pytest.raises(RuntimeError, match="invalid device index"):
            with torch.npu.device(wrong):
                pass
    assert torch.npu.current_device() == 0


def test_TN_016_index_of_a_device():
    index = torch.npu._get_device_index
    with pytest.raises(ValueError, match="Expected a npu device"):
        index(torch.device("cpu"))
    with pytest.raises(ValueError, match="Expected a npu device"):
        index(1.5)
    with pytest.raises(ValueError, match="Expected a npu device"):
        index(None)
    assert index(torch.device("cpu"), allow_cpu=True) == -1
    assert index("npu:3") == 3 and index(5) == 5 and index(torch.device("npu:1")) == 1
    assert index("npu", optional=True) == index(None, optional=True) == torch.npu.current_device()


def test_TN_017_TN_027_two_devices():
    seen = output_of(
        """
        import torch
        npu = torch.npu
        assert npu.device_count() == torch.accelerator.device_count() == 2
        first, second = npu.Stream(device=0), npu.Stream(device=1)
        assert second.device == torch.device("npu:1") and first.stream_id == second.stream_id and first != second
        with npu.device(1):
            npu.set_stream(npu.Stream(priority=-1))
            kept = npu.current_stream()
        assert npu.current_device() == 0 and npu.current_stream(1) == kept
        with npu.stream(first):
            with npu.device(1) as inside:
                assert inside.idx == 1 and npu.current_device() == 1
                with npu.stream(first):
                    assert npu.current_device() == 0
                    with npu.stream(second):
                        assert npu.current_device() == 1 and npu.current_stream() == second
                        assert npu.current_stream(0) == first
                    assert npu.current_device() == 0 and npu.current_stream(1) == kept
                assert npu.current_device() == 1
            assert npu.current_device() == 0 and npu.current_stream() == first
        assert npu.current_stream() == npu.default_stream() and npu.current_stream(1) == kept
        try:
            with npu.stream(second):
                raise KeyError
        except KeyError:
            assert npu.current_device() == 0 and npu.current_stream(1) == kept
        with npu.device_of(torch.ones(1, device="npu:1")):
            assert npu.current_device() == 1
            assert torch.ones(1, device="npu").device.index == 1
        with npu.device_of(torch.ones(1)):
            assert npu.current_device() == 0

        # TN-027
        event = npu.Event()
        event.record(first)
        try:
            event.record(second)
        except RuntimeError as error:
            assert "npu:0" in str(error) and "npu:1" in str(error), error
        else:
            raise SystemExit("recorded on another device")
        event.wait(second)  # waiting is fine
        second.synchronize()
        assert npu.can_device_access_peer(0, 1)
        there = torch.arange(3.0, device="npu:0").to("npu:1")
        assert there.device.index == 1 and (there + 1).tolist() == [1, 2, 3]
        with torch.accelerator.device_index(1):
            assert npu.current_device() == 1 and torch.accelerator.current_stream().device_index == 1
        assert npu.current_device() == 0
        npu.set_device("npu:1")
        assert torch.accelerator.current_device_index() == 1
        npu.synchronize("npu:0")
        print("restored")
        """,
        REPRISE_DEVICES="2",
        ASCEND_RT_VISIBLE_DEVICES=None,
    )
    assert seen == "restored"


def test_TN_018_free_memory_shrinks_by_what_is_reserved():
    torch.accelerator.empty_cache()
    free, total = torch.npu.mem_get_info()
    reserved = torch.accelerator.memory_reserved()
    held = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    free_then, total_then = torch.npu.mem_get_info(0)
    assert total_then == total and 0 < free_then < free
    assert free - free_then == torch.accelerator.memory_reserved() - reserved >= held.numel()


def test_TN_019_processes_end_well_in_the_midst_of_work():
    done = run_script(
        """
        import torch
        x = torch.zeros(1 << 20, device="npu")
        pinned = torch.empty(1 << 20, pin_memory=True)
        streams = [torch.npu.Stream() for _ in range(4)]
        events = [torch.npu.Event(enable_timing=True), torch.npu.ExternalEvent()]
        if hasattr(torch.npu, "NPUGraph"):
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph):
                x += 1
            graph.replay()
        for stream in streams:
            with torch.npu.stream(stream):
                torch.npu._sleep(50_000_000)
                pinned.copy_(x, non_blocking=True)
                stream.record_event(events[0])
        pool = torch.npu.ExternalStream
        torch.npu.set_stream(streams[0])
        """,
        REPRISE_STALL_MS=0,  # a busy machine is no news
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_synchronize_takes_every_kind_of_device():
    for device in (None, 0, "npu", "npu:0", torch.device("npu:0")):
        torch.npu.synchronize(device)
    with pytest.raises(RuntimeError):
        torch.npu.synchronize(40)


def test_properties():
    properties = torch.npu.get_device_properties(0)
    assert properties.name == torch.npu.get_device_name("npu:0") != ""
    assert properties.total_memory == torch.npu.mem_get_info()[1]
    assert properties.multi_processor_count == properties.cube_core_num > 0 and properties.vector_core_num > 0
    assert properties.L2_cache_size > 0 and properties.uuid.int != 0
    assert properties.name in repr(properties) and "total_memory=" in repr(properties)
    assert torch.npu.utilization() == 0
    for question in (torch.npu.get_device_properties, torch.npu.get_device_name):
        with pytest.raises(AssertionError, match="Invalid device id"):
            question(77)
    with pytest.raises(AssertionError):
        torch.npu.can_device_access_peer(0, 77)


def test_capability_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("TORCH_NPU_DEVICE_CAPABILITY", raising=False)
    with pytest.warns(UserWarning, match="TORCH_NPU_DEVICE_CAPABILITY"):
        assert torch.npu.get_device_capability() is None
    monkeypatch.setenv("TORCH_NPU_DEVICE_CAPABILITY", "9.2")
    assert torch.npu.get_device_capability() == (9, 2)


def test_sync_debug_mode_is_kept():
    assert torch.npu.get_sync_debug_mode() == 0
    try:
        for mode, number in (("warn", 1), ("error", 2), (1, 1), ("default", 0)):
            torch.npu.set_sync_debug_mode(mode)
            assert torch.npu.get_sync_debug_mode() == number
        for wrong in ("loud", 3):
            with pytest.raises(RuntimeError):
                torch.npu.set_sync_debug_mode(wrong)
    finally:
        torch.npu.set_sync_debug_mode(0)


def test_runtime_functions_by_number():
    runtime = torch.npu.npurt()
    invalid = 100000
    assert runtime.npuStreamCreate(0) == invalid and runtime.npuStreamDestroy(0) == invalid
    assert runtime.npuHostRegister(0, 16, 0) == invalid and runtime.npuHostUnregister(0) == invalid
    memory = ctypes.create_string_buffer(8192)
    page = (ctypes.addressof(memory) + 4095) & ~4095
    assert runtime.npuHostRegister(page, 4096, 0) == 0
    assert runtime.npuHostUnregister(page) == 0
    assert runtime.npuHostUnregister(page) != 0
    handle = ctypes.c_uint64(0)
    assert runtime.npuStreamCreate(ctypes.addressof(handle)) == 0 and handle.value != 0
    assert runtime.npuStreamDestroy(handle.value) == 0
    assert runtime.npuStreamDestroy(handle.value) != 0


def test_errors_carry_what_the_runtime_said():
    event = torch.npu.ExternalEvent()
    event.record()
    torch.npu.synchronize()
    with pytest.raises(torch_npu.NpuError) as failed:
        torch.npu.Event.from_ipc_handle(0, bytes(64))
    assert failed.value.code != 0 and failed.value.cause and str(failed.value.code) in str(failed.value)
