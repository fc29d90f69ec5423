# SPDX-License-Identifier: Apache-2.0
"""Why the slow way was taken: counters, and the lines of REPRISE_VERBOSE."""

import torch

from support import run_script


def test_operators_without_a_kernel_of_the_device_are_counted():
    x = torch.rand(8, device="npu")
    before = torch.npu.event_counters()
    torch.digamma(x)
    x.nonzero()
    after = torch.npu.event_counters()
    assert after["dispatch.cpu_kernel"] == before["dispatch.cpu_kernel"] + 1
    assert after["dispatch.synchronous"] == before["dispatch.synchronous"] + 1
    x + x
    assert torch.npu.event_counters() == after, "the device adds"


def test_verbose_names_the_operator_and_the_reason():
    code = """
        import torch, torch_npu
        x = torch.rand(8, device="npu")
        x + x
        torch.digamma(x)
        torch.add(x, torch.ones(8, dtype=torch.int64, device="npu").bool())
        x.nonzero()
    """
    done = run_script(code, REPRISE_VERBOSE="dispatch;filter=aten::")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("reprise: dispatch: ")]
    assert any("cpu_kernel: aten::digamma" in line and "no kernel" in line for line in lines), done.stderr
    assert any("synchronous: aten::nonzero" in line for line in lines), done.stderr
    assert all(line.rstrip().split(": ", 3)[3] for line in lines), "each has a reason"


def test_verbose_tells_segments_and_captures():
    code = """
        import torch, torch_npu
        x = torch.zeros(1 << 20, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            x += 1
        del graph
    """
    done = run_script(code, REPRISE_VERBOSE="alloc,capture")
    assert done.returncode == 0, done.stderr
    assert "reprise: alloc: segment_allocated: " in done.stderr
    assert "reprise: capture: capture_ended: " in done.stderr
    assert "reprise: dispatch" not in done.stderr


def test_a_misspelt_category_is_told_once():
    done = run_script(
        """
        import torch, torch_npu
        x = torch.zeros(8, device="npu")
        torch.digamma(x)
        torch.digamma(x)
        """,
        REPRISE_VERBOSE="dispach",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("REPRISE_VERBOSE=dispach") == 1 and "dispatch, plan, capture, alloc" in done.stderr
