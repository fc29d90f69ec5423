# SPDX-License-Identifier: Apache-2.0
"""Operators whose kernels borrow their arguments (python/csrc/ops/unboxed.h): nobody owns more, or less, of a tensor
behind a call than before it, whatever becomes of the call; the results are those of the CPU."""
import gc
import sys
import threading

import pytest
import torch

F = torch.nn.functional
CALLS = {
    "add": lambda a, b: a + b,
    "add alpha": lambda a, b: torch.add(a, b, alpha=3),
    "add number": lambda a, b: a + 2,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "add_": lambda a, b: a.add_(b),
    "sub_": lambda a, b: a.sub_(b),
    "mul_": lambda a, b: a.mul_(b),
    "div_": lambda a, b: a.div_(b),
    "in place with itself": lambda a, b: a.mul_(a),
    "with itself": lambda a, b: a + a,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "ne": lambda a, b: a != 1,
    "lt": torch.lt,
    "le": lambda a, b: a <= 0.5,
    "gt": torch.gt,
    "ge": lambda a, b: a >= b,
    "pow": lambda a, b: a**2,
    "neg": lambda a, b: -a,
    "exp": lambda a, b: a.exp(),
    "sqrt": lambda a, b: a.abs().sqrt(),
    "rsqrt": lambda a, b: (a.abs() + 1).rsqrt(),
    "sin": lambda a, b: a.sin(),
    "cos": lambda a, b: a.cos(),
    "tanh": lambda a, b: a.tanh(),
    "sigmoid": lambda a, b: a.sigmoid(),
    "relu": lambda a, b: a.relu(),
    "relu_": lambda a, b: a.relu_(),
    "silu": lambda a, b: F.silu(a),
    "gelu": lambda a, b: F.gelu(a),
    "gelu tanh": lambda a, b: F.gelu(a, approximate="tanh"),
    "mm": lambda a, b: a @ b,
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "addmm": lambda a, b: torch.addmm(a, a, b, beta=0.5),
    "cat": lambda a, b: torch.cat((a, b)),
    "cat with itself": lambda a, b: torch.cat([a, b, a], 1),
    "cat of one": lambda a, b: torch.cat((a,)),
    "linear": lambda a, b: F.linear(a, b, a[0]),
    "softmax": lambda a, b: a.softmax(-1),
    "sum": lambda a, b: a.sum(),
    "sum dims": lambda a, b: a.sum((0, 1), keepdim=True, dtype=torch.float64),
    "mean": lambda a, b: a.mean(1),
}


def owners(*tensors):
    return [(sys.getrefcount(x), x._use_count()) for x in tensors]


@pytest.mark.parametrize("name", CALLS)
def test_calls_leave_their_arguments_as_they_were_owned(npu, name):
    torch.manual_seed(3)
    a, b = torch.randn(6, 6), torch.rand(6, 6) + 0.5
    x, y = a.to("npu"), b.to("npu")
    before = owners(x, y)
    for _ in range(4):  # from the third on the plan is kept
        expected, got = CALLS[name](a, b), CALLS[name](x, y)
        assert (got is x) == (expected is a)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(x.cpu(), a, rtol=1e-5, atol=1e-5)
        del expected, got
    assert owners(x, y) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x + y,
        lambda x, y: x.add_(y),
        lambda x, y: x @ y,
        lambda x, y: torch.addmm(x, x, y),
        lambda x, y: torch.bmm(x, x),
        lambda x, y: x.sum(7),
        lambda x, y: x.softmax(5),
        lambda x, y: torch.maximum(x, torch.ones(4, 4)),
        lambda x, y: torch.cat((x, y)),
        lambda x, y: torch.cat((x, y, torch.ones(4, 2)), 1),
    ],
)
def test_calls_that_are_refused_leave_them_so_too(npu, call):
    x, y = torch.ones(4, 5, device="npu"), torch.ones(4, 7, device="npu")
    before = owners(x, y)
    for _ in range(3):
        with pytest.raises((RuntimeError, IndexError)):
            call(x, y)
    gc.collect()
    assert owners(x, y) == before
    assert x.sum().item() == 20 and y.sum().item() == 28


@pytest.mark.parametrize("name", ["add.Tensor", "mul_.Tensor", "relu", "addmm", "cat", "sum.dim_IntList"])
def test_their_kernels_have_their_own_signatures(npu, name):
    kernels = torch._C._dispatch_dump(f"aten::{name}").splitlines()
    (ours,) = [line for line in kernels if line.startswith("PrivateUse1:")]
    assert ours.endswith("[ boxed unboxed ]")


def test_tensors_that_only_the_call_knows(npu):
    for _ in range(5):
        assert (torch.full((8,), 2.0, device="npu") + torch.full((8,), 3.0, device="npu")).tolist() == [5.0] * 8
        assert torch.ones(8, device="npu").add_(torch.ones(8, device="npu")).tolist() == [2.0] * 8


def test_lists_within_calls_of_lists(npu):
    """A call that another one makes on the way has a list of its own, and so has each thread."""
    x = torch.arange(6.0, device="npu")
    for count in (1, 5, 2, 40, 2):
        parts = [torch.cat((x[:2], torch.cat((x[2:4], x[4:])))) for _ in range(count)]
        assert torch.cat(parts).tolist() == list(range(6)) * count
    assert torch.cat((x.new_empty(0), x)).tolist() == list(range(6))
    got = []
    threads = [threading.Thread(target=lambda: got.append(torch.cat((x, x)).cpu())) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.tolist() for each in got] == [list(range(6)) * 2] * 4


def test_gradients_reach_their_operands(npu):
    torch.manual_seed(4)
    values = [torch.randn(5, 5) for _ in range(3)]
    results = []
    for device in ("cpu", "npu"):
        a, b, c = (v.clone().to(device).requires_grad_() for v in values)
        loss = (torch.addmm(c, a, b).relu() * (a / (b.abs() + 1)) - F.gelu(c)).softmax(0).mean(1).pow(2).sum()
        loss.backward()
        results.append([x.grad.cpu() for x in (a, b, c)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)
