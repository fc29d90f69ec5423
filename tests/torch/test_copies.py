# SPDX-License-Identifier: Apache-2.0
"""Copies: every direction, type and layout, eagerly and captured."""
import pytest
import torch

from support import output_of

DEVICE = "npu"


def layouts():
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return {
        "contiguous": x,
        "transposed": x.t(),
        "sliced": x[:, ::2],
        "expanded": x[:1].expand(5, 6),
        "scalar": torch.tensor(7.0),
        "empty": x[:0],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
@pytest.mark.parametrize("name", list(layouts()))
def test_copies_of_every_layout_and_type(name, dtype):
    source = layouts()[name]
    on_device = source.to(DEVICE)
    assert torch.equal(on_device.cpu(), source)
    assert torch.equal(on_device.to(dtype).cpu(), source.to(dtype))
    assert torch.equal(source.to(DEVICE, dtype).cpu(), source.to(dtype))
    # Into memory that does not lie back to back.
    target = torch.zeros(source.shape + (2,), dtype=dtype, device=DEVICE)[..., 1]
    target.copy_(source)
    assert torch.equal(target.cpu(), source.to(dtype))
    target.zero_()
    target.copy_(on_device)
    back = torch.zeros(source.shape + (2,), dtype=dtype)[..., 1]
    back.copy_(target)
    assert torch.equal(back, source.to(dtype))


def test_copies_broadcast():
    target = torch.zeros(3, 4, device=DEVICE)
    target.copy_(torch.arange(4.0))
    assert torch.equal(target.cpu(), torch.arange(4.0).expand(3, 4))
    target.copy_(torch.arange(3.0, device=DEVICE)[:, None])
    assert torch.equal(target.cpu(), torch.arange(3.0)[:, None].expand(3, 4))


def test_copies_conjugate_and_negate():
    c = torch.randn(3, 4, dtype=torch.complex64)
    d = c.to(DEVICE)
    assert torch.equal(d.conj().cpu().resolve_conj(), c.conj().resolve_conj())
    assert torch.equal(c.conj().to(DEVICE).cpu().resolve_conj(), c.conj().resolve_conj())
    assert torch.equal(d.t().conj().contiguous().cpu().resolve_conj(), c.t().conj().resolve_conj())
    assert torch.equal(d.conj().imag.cpu().resolve_neg(), c.conj().imag.resolve_neg())
    target = torch.zeros(3, 4, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(c)
    assert torch.equal(target.cpu(), c.conj().resolve_conj())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pinned_copies_follow_the_stream(dtype):
    source = torch.arange(1 << 14, dtype=torch.float32).pin_memory()
    on_device = source.to(DEVICE, dtype, non_blocking=True)
    back = on_device.to("cpu", non_blocking=True)
    assert back.is_pinned()
    torch.accelerator.synchronize()
    assert torch.equal(back, source.to(dtype))
    pinned = torch.empty(1 << 14, dtype=torch.float64).pin_memory()
    pinned.copy_(on_device, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(pinned, source.to(dtype).double())


def test_pinned_memory_stays_until_the_stream_has_passed():
    results = []
    for i in range(30):
        pinned = torch.full((1 << 14,), float(i)).pin_memory()
        results.append(pinned.to(DEVICE, non_blocking=True).sum())
        del pinned  # the next one must not overwrite it while the copy waits
    assert [x.item() for x in results] == [float(i << 14) for i in range(30)]


def test_captured_copies():
    source = torch.arange(64, dtype=torch.float32).pin_memory()
    target = torch.zeros(64, dtype=torch.float64).pin_memory()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x = source.to(DEVICE, non_blocking=True)
        y = x.to(torch.float16) * 2
        target.copy_(y, non_blocking=True)
        host = y.to("cpu", non_blocking=True)
    for i in range(3):
        source.fill_(i)
        graph.replay()
        torch.accelerator.synchronize()
        assert host.is_pinned() and host.tolist() == [2.0 * i] * 64 and target.tolist() == [2.0 * i] * 64


def test_copies_that_a_capture_refuses_leave_it_intact():
    x = torch.ones(4, device=DEVICE)
    pageable, pinned = torch.ones(4), torch.ones(4).pin_memory()
    refused = 0
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x + 1
        for call in [
            lambda: x.cpu(),
            lambda: x.item() if x.numel() == 1 else x[0].item(),
            lambda: x.tolist(),
            lambda: x.copy_(pageable),
            lambda: x.copy_(pageable, non_blocking=True),
            lambda: pageable.copy_(x, non_blocking=True),
            lambda: x.copy_(pinned),
            lambda: pinned.copy_(x),
        ]:
            with pytest.raises(RuntimeError, match="captur"):
                call()
            refused += 1
        y += 1
    graph.replay()
    assert refused == 8 and y.tolist() == [3.0] * 4


def test_TN_316_copies_between_devices():
    result = output_of(
        """
        import torch
        a = torch.arange(1 << 16, dtype=torch.float32, device="npu:0")
        for i in range(20):
            a += 1
            b = a.to("npu:1")
            a.zero_()                       # ordered behind the copy
            b *= 2                          # so is this
            a.copy_(b)                      # and back
            b.fill_(-1)
            a /= 2
        assert b.device.index == 1 and b[0].item() == -1
        assert torch.equal(a.cpu(), torch.arange(1 << 16, dtype=torch.float32) + 20)
        c = torch.zeros(6, 4, dtype=torch.float64, device="npu:1").t()
        c.copy_(torch.arange(24., device="npu:0").reshape(4, 6))
        assert torch.equal(c.cpu(), torch.arange(24.).double().reshape(4, 6))
        assert torch.accelerator.current_device_index() == 0
        graph = torch.npu.NPUGraph()
        refusals = 0
        with torch.npu.graph(graph):
            d = a + 1
            for call in (lambda: a.to("npu:1"), lambda: a.copy_(b)):
                try:
                    call()
                except RuntimeError as error:
                    assert "between devices" in str(error), error
                    refusals += 1
            d += 1
        graph.replay()
        assert torch.equal(d.cpu(), a.cpu() + 2)
        print("refused", refusals)
        """,
        REPRISE_DEVICES=2,
    )
    assert result == "refused 2"
