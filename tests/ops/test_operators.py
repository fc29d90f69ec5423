# SPDX-License-Identifier: Apache-2.0
"""Every operator of the table: values, layouts, replays, refusals."""

import ctypes

import pytest
import torch

import aclnn
from harness import CASES, COUNTS, Call, cases_of, chosen_cases_of, load_cases, same

load_cases()
NAMES = sorted(aclnn.TABLE)


def test_every_operator_has_cases():
    assert sorted(set(NAMES) - set(CASES)) == []


def with_cases(names):
    return [name for name in names if name in CASES]


@pytest.mark.parametrize("name", with_cases(NAMES))
def test_values(name):
    """Row-major and scattered tensors give what PyTorch gives; nothing outside of the views changes."""
    op, count = aclnn.TABLE[name], 0
    for case in chosen_cases_of(name):
        layouts = [None] if case.waits_for_host() else [None, aclnn.layout_source(count)]
        for scatter in layouts:
            call = Call(op, case, scatter)
            call.write_inputs()
            aclnn.run(op, call.packed())
            aclnn.device().synchronize()
            call.verify()
            call.destroy()
        count += 1
    COUNTS[name] = count
    assert count > 0


@pytest.mark.parametrize("name", with_cases(NAMES))
def test_replays(name):
    """A replay reads the inputs that are there then, and gives the bits of an eager call."""
    op = aclnn.TABLE[name]
    for number, case in enumerate(cases_of(name)):
        if number % 3 and number > 6:
            continue
        call = Call(op, case)
        packed = call.packed()
        for placed, _ in call.inputs:
            placed.view.zero_()
        if case.waits_for_host():
            with pytest.raises(aclnn.AclError) as refused, aclnn.Capture():
                aclnn.run(op, packed)
            assert refused.value.status == aclnn.RUNTIME_ERROR and op.name in refused.value.message
            call.destroy()
            continue
        with aclnn.Capture() as graph:
            aclnn.run(op, packed)
        replayed = []
        for _ in range(2):
            call.write_inputs()
            graph.replay()
            replayed.append(call.results())
        graph.destroy()
        call.write_inputs()
        aclnn.run(op, packed)
        aclnn.device().synchronize()
        eager = call.results()
        for first, second, expected in zip(*replayed, eager):
            assert bits_equal(first, expected) and bits_equal(second, expected), f"{name}: a replay differs"
        call.destroy()


def bits_equal(a, b):
    return bool(same(a, b).all())


def pointers(op):
    for (c_type, name), role in zip(op.parameters, op.roles):
        if c_type.endswith("*") and not c_type.endswith("char*"):
            yield c_type.removeprefix("const "), name, role


def plan_of(op, call, **changed):
    """Phase one with some arguments replaced; destroys what it made."""
    values = dict(call.values, **changed)
    objects = aclnn.Objects()
    try:
        _, executor = aclnn.plan(op, aclnn.pack(op, values, objects))
        aclnn.drop(executor)
    finally:
        objects.owned = [(kind, handle) for kind, handle in objects.owned if kind != "Tensor"]
        objects.owned = [(kind, handle) for kind, handle in objects.owned if kind != "TensorList"]
        objects.destroy()


def representative(name):
    """A case with elements in every tensor."""
    for case in cases_of(name):
        tensors = [value for value in case.args.values() if isinstance(value, torch.Tensor)]
        if all(tensor.numel() > 0 for tensor in tensors) and (not tensors or max(t.numel() for t in tensors) > 1):
            return case
    return None


def expect_refusal(op, call, name, status, **changed):
    with pytest.raises(aclnn.AclError) as refused:
        plan_of(op, call, **changed)
    assert refused.value.status == status, f"{op.name}: {name}: {refused.value}"
    assert op.name in refused.value.message, refused.value
    assert name in refused.value.message, f"{op.name}: the message does not name {name}: {refused.value.message}"


def set_of(op, role):
    return role.partition("=")[2] or op.types


def types_in(set_name):
    """Names of types as the header texts list them."""
    text = aclnn.gen_ops.TYPES[set_name]
    every_integer = "int8, uint8, int16, int32, int64, uint16, uint32, uint64"
    return set(text.replace("all integers", every_integer).split(", "))


@pytest.mark.parametrize("name", with_cases(NAMES))
def test_refusals(name):
    """Null, a foreign type, a destroyed object, a wrong shape: the number, the operator and the argument are named."""
    op, case = aclnn.TABLE[name], representative(name)
    if case is None:
        pytest.skip("no case with elements")
    call = Call(op, case)
    call.write_inputs()
    plan_of(op, call)
    for base, parameter, role in pointers(op):
        word = role.partition("=")[0]
        if call.values[parameter] is None:
            continue
        if not word.endswith("?"):
            expect_refusal(op, call, parameter, aclnn.PARAM_NULLPTR, **{parameter: None})
        if base != "aclTensor*":
            continue
        placed = call.values[parameter]
        foreign = [dtype for dtype in aclnn.NUMBERS if str(dtype).removeprefix("torch.") not in types_in(set_of(op, role))]
        if foreign:
            other = aclnn.Placed(placed.shape, foreign[0])
            expect_refusal(op, call, parameter, aclnn.PARAM_INVALID, **{parameter: other})
        gone = aclnn.Placed(placed.shape, placed.dtype)
        aclnn._base.aclDestroyTensor(ctypes.c_void_p(gone.handle))
        expect_refusal(op, call, parameter, aclnn.PARAM_INVALID, **{parameter: gone})
        if word.rstrip("?") == "out" and parameter not in case.any_shape and not case.waits_for_host():
            wrong = aclnn.Placed(placed.shape + [2], placed.dtype)
            expect_refusal(op, call, parameter, aclnn.PARAM_INVALID, **{parameter: wrong})
    call.destroy()
