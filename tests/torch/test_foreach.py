# SPDX-License-Identifier: Apache-2.0
"""Operators on lists of tensors: every overload against the CPU, eagerly; those of the device as one task of a graph."""

import json

import pytest
import torch
import torch_npu  # noqa: F401

SHAPES = ((3, 4), (), (7,), (0,), (2, 3, 4))


def overloads():
    names = {s.name.split("::")[1] for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::_foreach_")}
    for name in sorted(names):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            if "out" not in overload:
                yield getattr(packet, overload)


def tensors(dtype, device, seed=1):
    g = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=g) * 0.8 + 0.1).to(dtype).to(device) for shape in SHAPES]


def arguments(op, dtype, device):
    values = []
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if kind == "List[Tensor]":
            values.append(tensors(dtype, device, len(values)))
        elif kind == "Tensor":
            values.append(torch.tensor(0.5).to(dtype).to(device))
        elif kind == "number":
            values.append(2)
        elif kind == "List[number]":
            values.append([1, 2, 3, 4, 5] if not dtype.is_floating_point else [1.5, 2, 3.25, 4, 5])
        else:
            break
    return values


def call(op, dtype, device):
    """Results, or those lists that are written, or the kind of refusal."""
    values = arguments(op, dtype, device)
    try:
        result = op(*values)
    except (NotImplementedError, RuntimeError) as error:
        return type(error).__name__
    result = values[0] if result is None else result
    return [t.cpu() for t in (result if isinstance(result, (list, tuple)) else [result])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_every_overload_is_that_of_the_cpu(dtype):
    tried = 0
    for op in overloads():
        wanted, got = call(op, dtype, "cpu"), call(op, dtype, "npu")
        if isinstance(wanted, str) or "powsum" in op.name():  # which the CPU lacks for some types
            continue
        assert not isinstance(got, str), f"{op}: {got}"
        tried += 1
        rough = {"rtol": 1e-2, "atol": 1e-3} if dtype == torch.bfloat16 else {}
        for mine, value in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, value, equal_nan=True, msg=lambda text, op=op: f"{op}: {text}", **rough)
    assert tried > 90


def test_lists_are_looked_at_in_full():
    """Several types, numbers of the host, and shapes that differ go tensor by tensor."""
    x, y = tensors(torch.float32, "npu"), tensors(torch.float32, "npu")
    mixed = [t.double() if i == 2 else t for i, t in enumerate(y)]
    wanted = [a.cpu() + b.cpu() for a, b in zip(x, mixed, strict=True)]
    for mine, value in zip(torch._foreach_add(x, mixed), wanted, strict=True):
        torch.testing.assert_close(mine.cpu(), value)
    broadcast = [torch.tensor([2.0] * t.numel()).reshape(t.shape) if t.dim() == 1 else torch.tensor(3.0) for t in x]
    for mine, a, b in zip(torch._foreach_mul(x, [t.npu() for t in broadcast]), x, broadcast, strict=True):
        torch.testing.assert_close(mine.cpu(), a.cpu() * b)
    with pytest.raises(RuntimeError, match="same number of tensors"):
        torch._foreach_add(x, y[:2])


def test_one_task_for_a_list(tmp_path):
    x, y = tensors(torch.float32, "npu"), tensors(torch.float32, "npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        torch._foreach_add_(x, 1.0)
        torch._foreach_addcdiv_(x, y, y, 0.5)
        roots = torch._foreach_sqrt(x)
    before = [t.cpu() for t in x]
    graph.replay()
    torch.npu.synchronize()
    for mine, root, value in zip(x, roots, before, strict=True):
        torch.testing.assert_close(mine.cpu(), value + 1.5)
        torch.testing.assert_close(root.cpu(), (value + 1.5).sqrt())
    graph.debug_dump(str(tmp_path / "graph.json"))
    events = json.loads((tmp_path / "graph.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    names = [event["name"] for event in events if event.get("ph") == "X"]
    assert names == ["aten::_foreach_add_.Scalar", "aten::_foreach_addcdiv_.Scalar", "aten::_foreach_sqrt"]
