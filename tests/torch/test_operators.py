# SPDX-License-Identifier: Apache-2.0
"""Operators without a kernel of their own: CPU kernels as tasks of a stream."""
import copy
import io
import pickle
import time
import warnings

import pytest
import torch
import torch_npu
from support import Gate
from torch import nn

F = nn.functional


def wait():
    torch.accelerator.synchronize()


def late(values):
    """A tensor that gets its values after a pause of the current stream: who does not wait sees zeros."""
    values = npu(values)
    result = torch.zeros_like(values)
    wait()
    torch.npu._sleep(20_000_000)
    return result.copy_(values)


class Captured:
    """A graph of ``work()``, made on a side stream after one eager call."""

    def __init__(self, work):
        work()
        self.graph = torch.npu.NPUGraph()
        stream = torch.Stream(device="npu")
        before = torch.accelerator.current_stream()
        stream.wait_stream(before)
        with stream:
            self.graph.capture_begin()
            try:
                self.result = work()
            finally:
                self.graph.capture_end()
        before.wait_stream(stream)

    def replay(self):
        self.graph.replay()
        wait()
        return self.result


def npu(*values, **kwargs):
    return torch.tensor(*values, device="npu", **kwargs)


# Eager calls


def test_TN_301_results_of_the_cpu():
    x = torch.randn(5, 7)
    y = x.npu()
    for work in (
        lambda t: torch.logcumsumexp(t, 1),
        lambda t: torch.special.i0e(t).sum(0),
        lambda t: F.gelu(t, approximate="tanh"),
        lambda t: torch.std_mean(t, dim=1),
        lambda t: torch.kthvalue(t, 3),
        lambda t: torch.median(t, dim=0),
        lambda t: torch.cdist(t, t + 1),
        lambda t: F.grid_sample(t.view(1, 1, 5, 7), torch.linspace(-1, 1, 16).to(t.device).view(1, 2, 4, 2), align_corners=False),
    ):
        expected, actual = work(x), work(y)
        if isinstance(expected, torch.Tensor):
            expected, actual = (expected,), (actual,)
        for a, b in zip(actual, expected):
            assert a.device.type == "npu"
            torch.testing.assert_close(a.cpu(), b)


def test_TN_301_calls_return_before_the_work_is_done():
    x = torch.ones(4, device="npu")
    torch.cumsum(x, 0)
    wait()
    with Gate():
        y = torch.cumsum(x, 0)
        assert not torch.accelerator.current_stream().query()
    wait()
    assert torch.accelerator.current_stream().query()
    assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("sizes, warns", [((3,), False), ((0,), False), ((2,), True), ((7,), True)])
def test_TN_302_out_is_resized_as_on_the_cpu(sizes, warns):
    for function in (torch.cumsum, torch.logcumsumexp):  # with a Meta kernel in C++; in Python
        for device in ("cpu", "npu"):
            out = torch.empty(sizes, device=device)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch._C._set_warnAlways(True)
                try:
                    returned = function(torch.ones(3, device=device), 0, out=out)
                finally:
                    torch._C._set_warnAlways(False)
            assert returned is out and out.shape == (3,)
            assert warns == any("was resized" in str(w.message) for w in seen), (function, device)
        assert out.exp().shape == (3,)
    torch.cumsum(npu([1.0, 2.0, 3.0]), 0, out=out)
    assert out.tolist() == [1, 3, 6]


def test_TN_302_a_wrong_type_of_out_is_an_error():
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(npu([1.5]), 1, out=torch.empty(1, dtype=torch.int64, device="npu"))


def test_TN_303_writes_through_views():
    base = torch.zeros(4, 6, device="npu")
    base[1].add_(1)
    base.t()[2:4, 2].mul_(0).sub_(3)
    base.view(24)[::5].cumsum_(0)
    base.unfold(0, 2, 2)[1].relu_()
    expected = torch.zeros(4, 6)
    expected[1].add_(1)
    expected.t()[2:4, 2].mul_(0).sub_(3)
    expected.view(24)[::5].cumsum_(0)
    expected.unfold(0, 2, 2)[1].relu_()
    torch.testing.assert_close(base.cpu(), expected)


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_TN_304_overlaps_are_refused(device):
    x = torch.arange(6.0, device=device)
    with pytest.raises(RuntimeError, match="unsupported operation: some elements of the input tensor"):
        x[1:].add_(x[:-1])
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.ones(1, device=device).expand(4).mul_(2)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        torch.cumsum(x[:-1], 0, out=x[1:])
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    assert x.add_(x).tolist() == [0, 2, 4, 6, 8, 10]


def test_TN_304_views_of_one_tensor():
    """What the CPU takes, the device takes, with the same result: its own kernels where views do not meet."""
    def work(device):
        x = torch.arange(48.0, device=device).reshape(6, 8)
        x[::2].add_(x[1::2])
        x[:, :4].mul_(x[:, 4:])
        x[:, 1::2].copy_(x[:, ::2])
        x -= x[:, :1]
        torch.cumsum(x[:, :4], 1, out=x[:, 4:])
        a, b = x.clone(), x + 1
        torch._foreach_add_([a, b], [b, a])
        torch._foreach_add_([a, a], 1.0)
        return torch.stack([x, a, b]).cpu()

    assert torch.equal(work("npu"), work("cpu"))


def test_TN_305_devices_do_not_mix():
    x = torch.ones(3, device="npu")
    for work in (
        lambda: x + torch.ones(3),
        lambda: torch.ones(3) * x,
        lambda: torch.where(x > 0, x, torch.ones(3)),
        lambda: torch.cat([x, torch.ones(3)]),
        lambda: torch.index_select(x, 0, torch.tensor([1])),
        lambda: torch._foreach_add([x], [torch.ones(3)]),
    ):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            work()
    # Scalars of the host are taken, and their values are those of the call.
    scalar = torch.tensor(2.0)
    y = x * scalar
    z = torch.where(x > 5, x, scalar)
    scalar.fill_(9)
    assert y.tolist() == [2, 2, 2] and z.tolist() == [2, 2, 2]
    assert (x + torch.tensor(1, dtype=torch.float64)).dtype == torch.float32
    assert (torch.tensor(1.5) + x).tolist() == [2.5, 2.5, 2.5]


def test_TN_305_indices_may_be_on_the_host():
    x = torch.arange(12.0, device="npu").view(3, 4)
    assert x[torch.tensor([2, 0]), torch.tensor([1, 3])].tolist() == [9, 3]
    x[torch.tensor([1])] = 0
    assert x.sum().item() == 66 - 22


def test_TN_306_mistakes_are_found_at_the_call():
    x = torch.ones(2, 3, device="npu")
    for work, words in (
        (lambda: x + torch.ones(4, device="npu"), "must match the size"),
        (lambda: x @ x, "shapes cannot be multiplied"),
        (lambda: torch.cumsum(x, 5), "Dimension out of range"),
        (lambda: torch.cat([x, torch.ones(2, 2, 2, device="npu")]), "same number of dimensions"),
        (lambda: x.add_(1.5 + 2j), "can't be cast"),
        (lambda: torch.gather(x, 0, torch.zeros(1, 3, device="npu")), "int64"),
        (lambda: F.layer_norm(x, (4,)), "normalized_shape"),
    ):
        with pytest.raises((RuntimeError, IndexError), match=words):
            work()
    assert (x + x).sum().item() == 12


def test_TN_306_types_that_only_the_kernel_refuses_are_refused_at_the_call():
    x = torch.ones(2, device="npu")
    large = torch.ones(3000, 3000, device="npu")
    count = torch.ones(7, dtype=torch.int32, device="npu")
    before, own = torch.random.get_rng_state(), torch.npu.get_rng_state()
    for work, words in (
        (lambda: torch.bitwise_and(x, x), "bitwise_and.*not implemented for 'Float'"),
        (lambda: torch.bitwise_and(x[:1], x[:1]), "bitwise_and.*not implemented for 'Float'"),  # remembered
        (lambda: torch.bitwise_xor(large, large), "bitwise_xor.*not implemented for 'Float'"),
        (lambda: torch.histc(count.bool(), 4), "histc.*not implemented for 'Bool'"),
        (lambda: torch.bitwise_or(x, x, out=torch.empty_like(x)), "bitwise_or.*not implemented for 'Float'"),
        # Neither element by element nor small.
        (lambda: torch.histc(large.bool(), 4), "histc.*not implemented for 'Bool'"),
        (lambda: torch.softmax(large.int(), 1), "softmax.*not implemented for 'Int'"),
        (lambda: torch.log_softmax(large.long(), 0), "softmax.*not implemented for 'Long'"),
        (lambda: F.avg_pool2d(large.int().view(1, 1, 3000, 3000), 5), "avg_pool2d.*not implemented for 'Int'"),
        (lambda: torch.trace(large.bool()), "trace.*not implemented for 'Bool'"),
        (lambda: torch.poisson(large.int()), "poisson.*not implemented for 'Int'"),
        (lambda: torch.rand_like(large.int()), "uniform_.*not implemented for 'Int'"),
        (lambda: count.normal_(), "normal_.*not implemented for 'Int'"),
        (lambda: torch.randperm(5, dtype=torch.complex64, device="npu"), "randperm.*not implemented for 'ComplexFloat'"),
        (lambda: torch.kthvalue(large.bool(), 300), "kthvalue.*not implemented for 'Bool'"),  # two are not enough
        (lambda: Captured(lambda: torch.bitwise_and(x, x)), "bitwise_and.*not implemented for 'Float'"),
    ):
        with pytest.raises(NotImplementedError, match=words):
            work()
        wait()
    assert torch.bitwise_and(count, 3).tolist() == [1] * 7
    for numbers in (count, count.float(), count.long()):  # integers: more than the kernel of the CPU takes
        histogram = torch.histc(numbers, 4, 0, 2)
        assert histogram.tolist() == [0, 0, 7, 0] and histogram.dtype == numbers.dtype
    assert torch.equal(torch.random.get_rng_state(), before) and torch.equal(torch.npu.get_rng_state(), own)


def test_TN_307_errors_of_values_name_the_operator_and_come_once():
    x = torch.arange(4.0, device="npu")
    bad = torch.index_select(x, 0, npu([9]))
    assert bad.shape == (1,)
    with pytest.raises(RuntimeError, match="index_select"):
        wait()
    wait()
    assert torch.index_select(x, 0, npu([3])).tolist() == [3]


def test_TN_307_errors_of_replays_name_the_place():
    x = torch.arange(4.0, device="npu")
    where = npu([1])
    # Frames below a folder "torch", such as those of this file, are passed over.
    line = compile("torch.index_select(x, 0, where)", "program.py", "eval")
    captured = Captured(lambda: eval(line, {"torch": torch, "x": x, "where": where}))
    assert captured.replay().tolist() == [1]
    where.fill_(9)
    with pytest.raises(RuntimeError, match="index_select") as failure:
        captured.replay()
    assert "program.py:1" in str(failure.value)
    where.fill_(2)
    assert captured.replay().tolist() == [2]


def test_TN_307_work_behind_a_failure_is_done():
    x = torch.arange(4.0, device="npu")
    torch.gather(x, 0, npu([7]))
    y = x + 1
    with pytest.raises(torch_npu.NpuError, match="gather"):
        wait()
    assert y.tolist() == [1, 2, 3, 4]


def test_TN_308_sizes_that_depend_on_data():
    assert torch.nonzero(late([3, 0, 1, 3, 0])).flatten().tolist() == [0, 2, 3]
    x = late([3, 0, 1, 3, 0])
    assert torch.unique(x).tolist() == [0, 1, 3]
    assert x[x > 0].tolist() == [3, 1, 3]
    assert torch.masked_select(x, x == 3).tolist() == [3, 3]
    assert torch.bincount(x).tolist() == [2, 1, 0, 2]
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
    assert torch.repeat_interleave(npu([1, 2])).tolist() == [0, 1, 1]
    values, counts = torch.unique_consecutive(npu([1, 1, 2]), return_counts=True)
    assert values.tolist() == [1, 2] and counts.tolist() == [2, 1]


def test_TN_308_results_given_by_out():
    for size in (0, 3, 9):
        x = late([3, 0, 1, 3, 0])
        out = torch.empty(size, dtype=torch.int64, device="npu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.nonzero(x, out=out) is out
        assert out.flatten().tolist() == [0, 2, 3]
        x = late([3, 0, 1, 3, 0])  # `out` is of this stream, whatever it did
        assert torch.masked_select(x, x > 0, out=out).tolist() == [3, 1, 3]


def test_TN_308_is_refused_in_a_capture_which_goes_on():
    x = npu([3.0, 0.0, 1.0])
    seen = []

    def work():
        for bad in (lambda: torch.nonzero(x), lambda: x[x > 0], lambda: torch.equal(x, x)):
            try:
                bad()
            except RuntimeError as error:
                seen.append(str(error))
        return x * 2

    captured = Captured(work)
    assert len(seen) == 3 and "nonzero" in seen[0] and "equal" in seen[2]
    assert all("depends on data" in words or "wait" in words for words in seen)
    assert captured.replay().tolist() == [6, 0, 2]


# Inputs of all kinds


def test_TN_309_strides_and_views():
    x = torch.randn(4, 6)
    for change in (
        lambda t: t.t(),
        lambda t: t[::2, 1::2],
        lambda t: t[1:2].expand(5, 6),
        lambda t: t[:0],
        lambda t: t[2, 3],
        lambda t: t.as_strided((3, 2), (5, 1), 2),
        lambda t: t.to(torch.bfloat16),
        lambda t: t > 0,
        lambda t: torch.complex(t, t.flip(0)),
        lambda t: torch.complex(t, t.flip(0)).mH,
        lambda t: torch.complex(t, t.flip(0)).conj().imag,
    ):
        a, b = change(x), change(x.npu())
        for work in (lambda t: t + 1, lambda t: t.sum(), lambda t: t.flatten().flip(0), lambda t: t.clone().mul_(True)):
            expected, actual = work(a), work(b)
            assert actual.dtype == expected.dtype and actual.stride() == expected.stride()
            torch.testing.assert_close(actual.cpu(), expected)


def test_TN_309_conjugates_in_products():
    a, b = torch.randn(3, 3, dtype=torch.cfloat), torch.randn(3, 3, dtype=torch.cfloat)
    x, y = a.npu(), b.npu()
    assert torch.equal((x.mH @ y).cpu(), a.mH @ b)
    assert torch.equal((x @ y.conj()).cpu(), a @ b.conj())
    assert torch.equal(torch.vdot(x[0], y[1]).cpu(), torch.vdot(a[0], b[1]))
    assert torch.equal(x.conj().resolve_conj().cpu(), a.conj().resolve_conj())
    assert torch.equal(torch.imag(x.conj()).neg().cpu(), torch.imag(a.conj()).neg())


@pytest.mark.parametrize("adjoint", (False, True))
@pytest.mark.parametrize("left", (False, True))
def test_TN_309_conjugates_that_a_kernel_leaves_for_later(left, adjoint):
    a = torch.randn(3, 3, dtype=torch.complex64)
    b = torch.randn(3, 3, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)
    on_device = lu.npu(), pivots.npu(), b.npu()

    def solve(b):
        return torch.linalg.lu_solve(on_device[0], on_device[1], b, left=left, adjoint=adjoint)

    wanted = torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint)
    torch.testing.assert_close(solve(on_device[2]).cpu(), wanted.resolve_conj())
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = solve(on_device[2])
    for factor in (1, 2, 3):  # each replay finds its tensors marked as the first did
        on_device[2].copy_(b * factor)
        graph.replay()
        torch.testing.assert_close(y.cpu(), wanted.resolve_conj() * factor)


def test_TN_309_results_that_are_not_there():
    x = torch.randn(1, 2, 5, 5)
    w = torch.randn(3, 2, 3, 3)
    grad = torch.randn(1, 3, 3, 3)

    def backward(mask, *tensors):
        return torch.ops.aten.convolution_backward(*tensors, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)

    for mask in ([True, False, True], [False, True, False]):
        expected = backward(mask, grad, x, w)
        try:
            actual = backward(mask, grad.npu(), x.npu(), w.npu())
        except NotImplementedError:
            pytest.skip("convolutions are not there yet")
        for a, b in zip(actual, expected):
            assert (a is None) == (b is None)
            if b is not None:
                torch.testing.assert_close(a.cpu(), b)
    x = torch.randn(4, 6)
    _, mean, rstd = torch.native_layer_norm(x, (6,), None, None, 1e-5)
    for mask in ([True, False, False], [False, False, False]):
        results = torch.ops.aten.native_layer_norm_backward(
            x.npu(), x.npu(), (6,), mean.npu(), rstd.npu(), torch.ones(6, device="npu"), None, mask
        )
        assert [r is not None for r in results] == mask


def test_TN_309_what_is_not_dense_is_refused():
    x = torch.eye(3, device="npu")
    for work in (lambda: x.to_sparse(), lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)):
        with pytest.raises((NotImplementedError, RuntimeError), match="npu"):
            work()
    assert (x + x).sum().item() == 6


def test_TN_309_operators_of_others_wait():
    with torch.library._scoped_library("reprise_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("add_one(Tensor(a!) x) -> ()")
        library.define("nowhere(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("add_one", lambda x: x.add_(1) and None if x.numel() == 0 else (x.add_(1), None)[1], "CPU")
        x = late([1.0, 2.0])
        assert torch.ops.reprise_test.twice(x + 1).tolist() == [4, 6]
        torch.ops.reprise_test.add_one(x)
        assert x.tolist() == [2, 3]
        with pytest.raises(NotImplementedError, match="no kernel for npu"):
            torch.ops.reprise_test.nowhere(x)


def test_TN_309_factories():
    for make in (
        lambda d: torch.arange(7, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.eye(3, 4, device=d),
        lambda d: torch.tril_indices(3, 4, device=d),
        lambda d: torch.full((2, 3), 5, device=d),
        lambda d: torch.hann_window(6, device=d),
        lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
        lambda d: torch.zeros(0, 3, device=d),
        lambda d: torch.vander(torch.arange(3.0, device=d)),
    ):
        made = make("npu")
        assert made.device == torch.device("npu:0")
        assert torch.equal(made.cpu(), make("cpu"))


def test_TN_309_modes_of_python_do_not_reach_the_meta_pass():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.devices = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.devices.add(result.device.type)
            return result

    x = torch.rand(3, 11, device="npu", requires_grad=True)
    with Seen() as seen, torch.device("npu"):
        torch.logcumsumexp(x, 1).sum().backward()
        made = torch.logspace(0, 1, 13)
    assert seen.devices == {"npu"} and made.device.type == "npu"
    assert x.grad is not None


def test_TN_309_answers_of_the_meta_pass_are_remembered():
    x = torch.rand(3, 17, device="npu")
    torch.logcumsumexp(x, 1)
    hits, misses = torch_npu._C._meta_pass_counts()
    for _ in range(10):
        torch.logcumsumexp(x, 1)
    more_hits, more_misses = torch_npu._C._meta_pass_counts()
    assert more_hits - hits >= 10 and more_misses == misses
    # What decides about the result decides about the answer, too.
    assert torch.logcumsumexp(x, 0).shape == (3, 17)
    assert torch.logcumsumexp(x.double(), 1).dtype == torch.float64
    assert torch.logcumsumexp(x[:2], 1).shape == (2, 17)
    assert (x.int() + 1).dtype == torch.int32 and (x.int() + 1.5).dtype == torch.float32
    assert (x[0].int() + torch.tensor(1.5)).dtype == torch.float32
    assert torch.logcumsumexp(x.t(), 1).shape == (17, 3)
    y = x.flatten().clone()
    assert y[1:].add_(x.flatten()[:-1]).shape == (50,)
    with pytest.raises(RuntimeError, match="unsupported operation"):  # the same sizes, one storage
        y[1:].add_(y[:-1])


# Memory


def test_TN_310_memory_is_used_again_in_order():
    x = torch.arange(1000.0, device="npu")
    results = []
    for i in range(50):
        temporary = x + i
        results.append(temporary.cumsum(0)[-1])
        del temporary  # its memory is the next one's
    total = 1000 * 999 / 2
    torch.testing.assert_close(torch.stack(results).cpu(), torch.tensor([total + 1000.0 * i for i in range(50)]))


def test_TN_311_memory_on_two_streams():
    side = torch.Stream(device="npu")
    here = torch.accelerator.current_stream()
    for _ in range(10):
        x = torch.full((4096,), 3.0, device="npu")
        side.wait_stream(here)
        with side:
            with Gate():
                y = x.cumsum(0)
                x.record_stream(side)
                del x
                with torch.npu.stream(here):
                    z = torch.full((4096,), 9.0, device="npu")  # must not be where x is still read
                    assert y.device.type == "npu" and z[0].item() == 9
        side.synchronize()
        assert y[-1].item() == 3 * 4096
        # Without record_stream it is the program's hazard, which must do no more than give other numbers.
        with side:
            z.cumsum(0)
        del z
    wait()
    here.wait_stream(side)


# Captures


def test_TN_312_index_put_with_a_mask_is_captured():
    x = torch.arange(6.0, device="npu")
    limit = npu(2.0)

    def work():
        y = x.clone()
        y[y > limit] = -1.0
        y.index_put_((y == 0,), npu_ten)
        return y

    npu_ten = npu(10.0)
    captured = Captured(work)
    assert captured.replay().tolist() == [10, 1, 2, -1, -1, -1]
    limit.fill_(4)
    x[1] = 0
    assert captured.replay().tolist() == [10, 10, 2, 3, 4, -1]


def test_TN_313_foreach_and_fused_optimizers_are_captured():
    xs = [torch.full((n,), float(n), device="npu") for n in (1, 2, 3)]
    ys = [torch.ones(n, device="npu") for n in (1, 2, 3)]

    def work():
        sums = torch._foreach_add(xs, ys, alpha=2)
        torch._foreach_mul_(sums, 0.5)
        torch._foreach_addcmul_(sums, xs, ys, 1.0)
        return torch._foreach_norm(sums)

    captured = Captured(work)
    xs[1].fill_(8)
    norms = captured.replay()
    torch.testing.assert_close(torch.stack(norms).cpu(), torch.stack(work()).cpu(), rtol=0, atol=0)


def fused_adam(captured):
    torch.manual_seed(3)
    parameters = [torch.randn(4, 3).npu().requires_grad_(), torch.randn(3).npu().requires_grad_()]
    optimizer = torch.optim.Adam(parameters, lr=0.1, fused=True, capturable=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    if captured:
        optimizer.step()
        graph = torch.npu.NPUGraph()
        stream = torch.Stream(device="npu")
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            graph.capture_begin()
            optimizer.step()
            graph.capture_end()
        torch.accelerator.current_stream().wait_stream(stream)
        for _ in range(2):
            graph.replay()
    else:
        for _ in range(3):
            optimizer.step()
    wait()
    return [parameter.detach().cpu() for parameter in parameters]


def test_TN_313_fused_adam_is_captured():
    for eager, replayed in zip(fused_adam(False), fused_adam(True)):
        assert torch.equal(eager, replayed)


def test_TN_314_sync_debug_mode():
    if not hasattr(torch.npu, "set_sync_debug_mode"):
        pytest.skip("torch.npu.set_sync_debug_mode is not there yet")
    x = npu([1.0, 0.0])
    try:
        torch.npu.set_sync_debug_mode("error")
        for work in (lambda: torch.equal(x, x), lambda: torch.nonzero(x)):
            with pytest.raises(RuntimeError, match="synchroniz"):
                work()
        assert torch.npu.get_sync_debug_mode() == 2
        torch.npu.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchroniz"):
            assert torch.nonzero(x).tolist() == [[0]]
    finally:
        torch.npu.set_sync_debug_mode("default")
    assert torch.equal(x, x)


def test_TN_315_replays_are_bitwise_equal():
    torch.manual_seed(11)
    x = torch.randn(33, 65).npu()
    w = torch.randn(65, 65).npu()

    def work():
        y = F.softmax(x @ w, dim=1)
        y = F.layer_norm(y + x, (65,))
        return torch.logcumsumexp(y, 1), y.std(1), torch.sort(y, dim=1)[0]

    eager = [t.cpu() for t in work()]
    captured = Captured(work)
    first = [t.cpu() for t in captured.replay()]
    second = [t.cpu() for t in captured.replay()]
    for a, b, c in zip(eager, first, second):
        assert torch.equal(a, b) and torch.equal(b, c)


def test_TN_315_random_operators_replay_what_eager_calls_draw():
    x = torch.full((64,), 0.5, device="npu")
    result = torch.zeros(64, device="npu")

    def work():
        result.copy_(torch.bernoulli(x) + torch.poisson(x * 6))
        return torch.multinomial(x, 5)

    captured = Captured(work)
    torch.manual_seed(5)
    replayed = [(captured.replay().cpu(), result.cpu()) for _ in range(3)]
    torch.manual_seed(5)
    for chosen, drawn in replayed:
        assert torch.equal(work().cpu(), chosen) and torch.equal(result.cpu(), drawn)
    assert not torch.equal(replayed[0][1], replayed[1][1])
    with pytest.raises(RuntimeError, match="expected a 'npu' generator"):
        torch.bernoulli(x, generator=torch.Generator())


# Between devices and files


def test_TN_317_numpy_is_refused():
    with pytest.raises(TypeError):
        torch.ones(2, device="npu").numpy()


def test_TN_318_copies_pickles_and_files():
    x = torch.arange(6.0, device="npu").view(2, 3)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).npu()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.device == x.device and torch.equal(again.cpu(), x.cpu())
        again.add_(1)
        assert x[0, 0].item() == 0
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x).cpu(), model(x).cpu())
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1], "model": model.state_dict()}, file)
    for where in (None, "cpu", "npu:0"):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["x"].device.type == ("cpu" if where == "cpu" else "npu")
        assert torch.equal(loaded["x"].cpu(), x.cpu())
        assert loaded["view"].untyped_storage().data_ptr() == loaded["x"].untyped_storage().data_ptr()
        assert loaded["model"]["0.weight"].device.type == loaded["x"].device.type


def test_the_fallback_is_fast():
    """What a call costs the program, beside the same call on the CPU.

    CPU time of this thread, in which others on its core do not show. What does, such as caches that they have emptied,
    only adds: so the least of many counts, and the limit is ten times what is usual.
    """

    def cost(work):
        begun = time.thread_time()
        for _ in range(100):
            work()
        spent = time.thread_time() - begun
        wait()
        return spent

    for function in (torch.add, torch.mul):
        a, b = torch.ones(8), torch.ones(8)
        x, y = a.npu(), b.npu()
        on_cpu = on_npu = float("inf")
        for count in range(300):
            on_cpu = min(on_cpu, cost(lambda: function(a, b)))  # noqa: B023
            on_npu = min(on_npu, cost(lambda: function(x, y)))  # noqa: B023
            if count > 5 and on_npu < 25 * on_cpu:
                break
        else:
            pytest.fail(f"{function.__name__}: {on_npu / on_cpu:.1f} times the CPU")


def test_assertions_on_the_device():
    for make, words in ((lambda: torch.ones(2), "more than one value"), (lambda: torch.ones(0), "no values")):
        with pytest.raises(RuntimeError, match=words):  # at the call
            torch._assert_async(make().npu())
    torch._assert_async(torch.ones(1, 1, device="npu"))
    torch.npu.synchronize()
    flag = torch.ones((), dtype=torch.bool, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch._assert_async(flag, "the flag is down")
    graph.replay()
    torch.npu.synchronize()
    flag.zero_()
    graph.replay()
    with pytest.raises(RuntimeError, match="the flag is down"):
        torch.npu.synchronize()


def test_an_encoder_in_evaluation_takes_padded_batches():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 5, 16)
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padded)
        result = encoder.npu()(x.npu(), src_key_padding_mask=padded.npu())
    kept = ~padded
    torch.testing.assert_close(result.cpu()[kept], expected[kept], rtol=1e-4, atol=1e-5)
    encoder.mask_check = False
    with torch.no_grad(), pytest.raises(NotImplementedError, match="enable_nested_tensor=False"):
        encoder(x.npu(), src_key_padding_mask=padded.npu())
