# SPDX-License-Identifier: Apache-2.0
"""The plain steps of cases_recurrent.py are those of torch.nn; packed sequences and refusals of networks."""

import pytest
import torch

import aclnn
from cases_recurrent import NETWORKS, network
from harness import Call, Case, cases_of


@pytest.fixture(autouse=True)
def fresh_memory():
    aclnn.device().reset()


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_reference(kind):
    torch.manual_seed(3)
    for steps, batch, features, hidden, layers, both, _, biased, _, _ in NETWORKS:
        module = getattr(torch.nn, kind)(features, hidden, layers, bias=biased, bidirectional=both).double()
        x, directions = torch.randn(steps, batch, features).double(), 2 if both else 1
        h, c = (torch.randn(layers * directions, batch, hidden).double() for _ in range(2))
        y, last = module(x, (h, c) if kind == "LSTM" else h)
        params = [p.detach() for p in module.parameters()]
        ours = network(kind, x, params, h, c, layers, directions, [steps] * batch)
        torch.testing.assert_close(ours[0], y)
        torch.testing.assert_close(ours[1], last[0] if kind == "LSTM" else last)


def plan_with(name, **changes):
    """A network of two layers with some arguments changed."""
    case = [case for case in cases_of(name) if case.args["numLayers"] == 2][0]
    call = Call(aclnn.TABLE[name], Case({**case.args, **changes}, case.expect))
    try:
        aclnn.plan(call.op, call.packed())
    finally:
        call.destroy()


@pytest.mark.parametrize("name", ["LSTM", "LstmBackward", "GRU", "GRUBackward"])
@pytest.mark.parametrize("changes, words", [
    ({"numLayers": 3}, ["params has", "numLayers = 3"]), ({"numLayers": 0}, ["numLayers = 0"]),
    ({"hasBias": False}, ["params has"]), ({"dropout": 0.5}, ["dropout is 0.5"]),
    ({"batchFirst": False}, ["has shape"])])
def test_refusals(name, changes, words):
    if not set(changes) <= {p for _, p in aclnn.TABLE[name].parameters} or (name == "GRUBackward" and "dropout" in changes):
        return
    with pytest.raises(aclnn.AclError) as error:
        plan_with(name, **changes)
    assert error.value.status == aclnn.PARAM_INVALID
    assert all(word in error.value.message for word in words), error.value.message
