# SPDX-License-Identifier: Apache-2.0
"""Operators of torch.ops.npu in graphs of the engine, with the calls and results of the tests of these operators."""
import importlib
import os
import pathlib
import sys

import pytest
import torch
import torchair
from support_ge import compiled
from torchair._ge_concrete_graph.registry import find

_FOLDER = pathlib.Path(__file__).parents[1] / "torch"
sys.path.insert(0, str(_FOLDER))
try:
    import npu_ops

    for _path in sorted(_FOLDER.glob("test_npu_ops_*.py")):
        importlib.import_module(_path.stem)
finally:
    sys.path.remove(str(_FOLDER))

# Cases that graphs refuse in words.
_TYPE = "which the operator does not take"
REFUSED = {
    "dynamic_quant_int4-float16": "int4|y is int32, but dst_type is int8",
    "dynamic_quant_tensor-bfloat16": "quant_mode is 'pertensor'",
    "fused_causal-float32": _TYPE,
    "fused_causal_in_place-float32": _TYPE,
    "fused_infer-float32": _TYPE,
    "fused_infer_v2-float16": _TYPE,
    "fusion-float32": _TYPE,
    "interleave_rope-bfloat16": _TYPE,
    "interleave_rope-float32": _TYPE,
    "mla_prolog_functional-float32": _TYPE,
    "prompt-bfloat16": _TYPE,
    "prompt-float16": _TYPE,
    "qkv_rms_norm_functional-float32": _TYPE,
    "quant_matmul_int4-float16": _TYPE,
    "quantize_int4-float16": "dtype says int4",
}


def overload_of(call):
    """The operator behind a function torch_npu.npu_…; None: it is not one operator."""
    if isinstance(call.op, torch._ops.OpOverloadPacket):
        packet = call.op
    elif isinstance(call.op, torch._ops.OpOverload):
        return call.op
    else:
        packet = getattr(torch.ops.npu, getattr(call.op, "__name__", ""), None)
    return packet


def is_converted(call):
    packet = overload_of(call)
    if packet is None:
        return False
    overloads = [packet] if isinstance(packet, torch._ops.OpOverload) else [getattr(packet, name) for name in packet.overloads()]
    return any(find(each) is not None for each in overloads)


def cases():
    from torchair._ge_concrete_graph import ge_converter  # noqa: F401

    found = {}
    for (_, key), (build, dtype) in npu_ops.ALL_CASES.items():
        call = build(npu_ops.Source(1, dtype))
        if call.traced and is_converted(call):
            found[key] = call
    return found


CASES = cases()


def run(call):
    args, kwargs = (npu_ops.mapped(each, lambda t: t.npu()) for each in (call.args, call.kwargs))
    step = compiled(lambda args, kwargs: call.op(*args, **kwargs))
    with torch.no_grad():
        results = step(args, kwargs)
    npu_ops.check(call, results, args, kwargs)


def test_one_graph_of_many_operators():
    """A case of each operator; those of one graph stand beside each other."""
    chosen = {}
    for key, call in CASES.items():
        if key not in REFUSED:
            chosen.setdefault(str(overload_of(call)), call)
    calls = list(chosen.values())
    inputs = [tuple(npu_ops.mapped(each, lambda t: t.npu()) for each in (call.args, call.kwargs)) for call in calls]
    step = compiled(lambda inputs: [call.op(*args, **kwargs) for call, (args, kwargs) in zip(calls, inputs)])
    with torch.no_grad():
        results = step(inputs)
    for call, result, (args, kwargs) in zip(calls, results, inputs):
        npu_ops.check(call, result, args, kwargs)
    assert len(calls) >= 30


@pytest.mark.skipif(os.environ.get("REPRISE_TEST_FORM") != "full", reason="one graph for each case: in the full form")
@pytest.mark.parametrize("key", sorted(CASES))
def test_each_case(key):
    if key not in REFUSED:
        run(CASES[key])
        return
    with pytest.raises(Exception, match=REFUSED[key]):
        run(CASES[key])


_ = torchair
