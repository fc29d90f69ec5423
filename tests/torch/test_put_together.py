# SPDX-License-Identifier: Apache-2.0
"""Operators that torch puts together of a result and a call of the form with out=: the first call of a kind goes that way,
further ones straight to the device. Both compute the same, and refuse the same."""
import itertools

import pytest
import torch

from torch_npu import _C

SIZES = (4, 6)


def hits():
    return _C._meta_pass_counts()[0]


def values(dtype, kind, seed):
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(SIZES, generator=generator) * 5 + 1).to(dtype)
    return {
        "plain": lambda: x,
        "turned": lambda: x.t().contiguous().t(),
        "every other": lambda: torch.cat([x, x], 1)[:, ::2],
        "expanded": lambda: x[:1].expand(SIZES),
        "one": lambda: x[0, 0].clone(),
    }[kind]()


def to_device(x):
    """With the strides that it has."""
    found = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="npu") if x.is_contiguous() or x.dim() == 0 else None
    if found is not None:
        return found.copy_(x)
    base = torch.empty(x.untyped_storage().nbytes() // x.element_size(), dtype=x.dtype)
    base.untyped_storage().copy_(x.untyped_storage())
    return base.npu().as_strided(x.size(), x.stride(), x.storage_offset())


def outcome(function, *arguments):
    try:
        result = function(*arguments)
    except (RuntimeError, IndexError) as error:
        return type(error)
    return result.dtype, result.stride(), result.cpu()


def check_like_cpu(function, *arguments):
    expected = outcome(function, *arguments)
    on_device = [to_device(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    for _ in range(2):
        found = outcome(function, *on_device)
        if isinstance(expected, type):
            assert isinstance(found, type)
            continue
        assert found[:2] == expected[:2]
        torch.testing.assert_close(found[2], expected[2], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["sub", "div", "eq"])
def test_two_types_and_layouts_are_like_the_cpu_each_time(name):
    function = getattr(torch, name)
    types = (torch.float32, torch.int64, torch.bool)
    kinds = ("turned", "every other", "expanded", "one")
    for (a, b), (first, second) in zip(itertools.cycle(itertools.product(types, types)), itertools.product(kinds, kinds)):
        check_like_cpu(function, values(a, first, 1), values(b, second, 2))


def test_numbers_are_not_remembered():
    x = torch.arange(6.0)
    for number in (1, 2, 2.5, -1):
        check_like_cpu(torch.add, x, number)
        check_like_cpu(torch.mul, x, number)
        check_like_cpu(torch.pow, x, number)
        check_like_cpu(lambda t, n: torch.add(t, t, alpha=n), x, number)
        check_like_cpu(lambda t, n: t.clone().add_(t, alpha=n), x, number)
    whole = torch.arange(1, 6)
    check_like_cpu(torch.pow, whole, 2)
    check_like_cpu(torch.pow, whole, -2)  # refused
    check_like_cpu(torch.pow, whole, 2)


def test_reductions_lists_and_pairs_are_like_the_cpu_each_time():
    x = values(torch.float32, "turned", 3)
    check_like_cpu(lambda t: t.sum(1), x)
    check_like_cpu(lambda t: t.sum(0, keepdim=True, dtype=torch.float64), x)
    check_like_cpu(lambda t: t.max(1)[0], x)
    check_like_cpu(lambda t: t.max(1)[1], x)
    check_like_cpu(lambda t: torch.cat([t, t[:1]]), x)
    check_like_cpu(lambda t: t @ t.t(), x)
    check_like_cpu(lambda t: torch.softmax(t, 1), x)
    check_like_cpu(lambda t: t.new_empty(0, 3) + 1, x)
    check_like_cpu(lambda t: t.cumsum(0), x)


def test_further_calls_are_remembered():
    a, b = torch.ones(3, 7, device="npu"), torch.ones(3, 7, device="npu")
    a + b
    before = hits()
    a + b
    a + b
    assert hits() == before + 2


def test_in_place_writes_its_argument_and_refuses_what_overlaps():
    a = torch.ones(3, 5, device="npu")
    for number in range(1, 4):
        assert a.add_(torch.ones(5, device="npu")) is a
        assert a.cpu().tolist() == [[1.0 + number] * 5] * 3
    spread = torch.ones(1, device="npu").expand(4)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="more than one element"):
            spread.add_(torch.ones(4, device="npu"))
    long = torch.ones(6, device="npu")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="some elements"):
            long[1:].add_(long[:-1])
        with pytest.raises(RuntimeError, match="broadcast"):
            long[:1].add_(torch.ones(6, device="npu"))


@pytest.mark.parametrize("warm", [False, True])
def test_mistakes_have_the_same_words_each_time(warm):
    a = torch.ones(2, 3, device="npu")
    if warm:
        a + a
    for _ in range(2):
        with pytest.raises(RuntimeError, match="must match the size"):
            a + torch.ones(4, device="npu")
        with pytest.raises(RuntimeError, match="not supported"):
            a - torch.ones(2, 3, dtype=torch.bool, device="npu")


def test_gradients_modes_and_views_are_as_ever():
    a = torch.ones(2, 3, device="npu")
    b = torch.ones(2, 3, device="npu", requires_grad=True)
    assert not (a + a).requires_grad
    for _ in range(2):
        (a * b + b).sum().backward()
    assert b.grad.cpu().tolist() == [[4.0] * 3] * 2
    with torch.no_grad():
        assert not (a + b).requires_grad
    with torch.inference_mode():
        assert (a + a).is_inference()
    assert not (a + a).is_inference()
    assert torch.func.vmap(torch.add)(a, a).cpu().tolist() == [[2.0] * 3] * 2
    assert torch.func.grad(lambda t: (t + t).sum())(a).cpu().tolist() == [[2.0] * 3] * 2


def test_captured_calls_look_the_same_whether_remembered_or_not(tmp_path):
    def recorded(a, b):
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            result = a + b
        graph.replay()
        graph.debug_dump(str(tmp_path / "graph.json"))
        return result.cpu(), (tmp_path / "graph.json").read_text(encoding="utf-8").count("aten::add.out")

    a, b = torch.full((3, 11), 2.0, device="npu"), torch.full((3, 11), 3.0, device="npu")
    value, count = recorded(a, b)
    assert value.tolist() == [[5.0] * 11] * 3 and count > 0
    a + b
    a + b
    again, count_again = recorded(a, b)
    assert torch.equal(again, value) and count_again == count


@pytest.mark.parametrize("reduce", [torch.Tensor.mean, torch.Tensor.prod, torch.Tensor.sum])
def test_captured_reductions_are_those_of_eager_calls(reduce):
    x = torch.rand((7, 33), generator=torch.Generator().manual_seed(4)).npu()
    for _ in range(2):
        eager = reduce(x, 1)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        captured = reduce(x, 1)
    graph.replay()
    assert torch.equal(captured.cpu(), eager.cpu())


def test_forms_with_out_find_the_kernel_of_their_own_form():
    x = torch.ones(3, 5, device="npu")
    before = torch.npu.event_counters()["dispatch.cpu_kernel"]
    values = torch.mean(x, 1, out=torch.empty(3, device="npu")), torch.prod(x, 1, out=torch.empty(3, device="npu"))
    truths = [f(x > 0, 1, out=torch.empty(3, dtype=torch.bool, device="npu")) for f in (torch.any, torch.all)]
    assert torch.npu.event_counters()["dispatch.cpu_kernel"] == before
    assert all(t.cpu().tolist() == [1] * 3 for t in (*values, *truths))
