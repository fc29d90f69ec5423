# SPDX-License-Identifier: Apache-2.0
"""make_graphed_callables."""
import copy

import pytest
import torch
from torch import nn


def model(dropout=0.0):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 4))
    return layers.npu()


def batch(*sizes, requires_grad=False, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=generator).npu().requires_grad_(requires_grad)


def train(module, loss_of, steps=5):
    """Losses and final parameters."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x, y = batch(5, 8, seed=step), batch(5, 4, seed=100 + step)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(module(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in module.parameters()]


def assert_same_training(got, right):
    torch.testing.assert_close(got[0], right[0])
    torch.testing.assert_close(got[1], right[1])


def test_TN_255_a_module_trains():
    eager = model()
    module = copy.deepcopy(eager)
    graphed = torch.npu.make_graphed_callables(module, (batch(5, 8),))
    assert graphed is module
    assert_same_training(train(module, nn.MSELoss()), train(eager, nn.MSELoss()))


def test_TN_256_a_tuple_of_callables(monkeypatch):
    first, second = model(), torch.nn.Linear(4, 4).npu()
    eager = nn.Sequential(copy.deepcopy(first), copy.deepcopy(second))
    graphs = []
    begin = torch.npu.NPUGraph.capture_begin

    def spy(self, *args, **kwargs):
        graphs.append(self)
        return begin(self, *args, **kwargs)

    order = []

    def double(x):
        order.append("double")
        return x * 2

    def loss(x, y):
        order.append("loss")
        return (x - y).square().mean()

    monkeypatch.setattr(torch.npu.NPUGraph, "capture_begin", spy)
    samples = [batch(5, 4, requires_grad=True) for _ in range(3)]
    callables = torch.npu.make_graphed_callables(
        (first, second, double, loss),
        ((batch(5, 8),), (samples[0],), (samples[1],), (samples[2], batch(5, 4))),
    )
    monkeypatch.undo()
    assert len(graphs) == 8  # four forwards, four backwards
    assert len({tuple(graph.pool()) for graph in graphs}) == 1
    assert order == ["double"] * 3 + ["loss"] * 3 + ["double", "loss"]
    assert callables[:2] == (first, second)
    both = nn.Sequential(first, second)
    got = train(both, lambda x, y: callables[3](callables[2](x), y))
    right = train(eager, lambda x, y: loss(double(x), y))
    assert_same_training(got, right)


def test_TN_257_structure_is_kept():
    def function(pair, named):
        a, b = pair
        return {"sum": a + b, "more": (named["c"] * 2, [a - b])}

    a, b, c = (batch(3, seed=seed) for seed in range(3))
    graphed = torch.npu.make_graphed_callables(function, ((a.clone(), b.clone()), {"c": c.clone()}))
    result = graphed((a, b), {"c": c})
    right = function((a, b), {"c": c})
    assert list(result) == ["sum", "more"] and isinstance(result["more"], tuple) and isinstance(result["more"][1], list)
    torch.testing.assert_close(result["sum"].cpu(), right["sum"].cpu())
    torch.testing.assert_close(result["more"][0].cpu(), right["more"][0].cpu())
    torch.testing.assert_close(result["more"][1][0].cpu(), right["more"][1][0].cpu())
    with pytest.raises(RuntimeError, match="graphed for arguments"):
        graphed((a, b), c)


@pytest.mark.parametrize("allow", [False, True])
def test_TN_258_unused_inputs(allow):
    def function(x, y):
        return x * 3

    sample = (batch(3, requires_grad=True), batch(3, requires_grad=True))
    if not allow:
        with pytest.raises(RuntimeError, match="unused|not have been used"):
            torch.npu.make_graphed_callables(function, sample)
        return
    graphed = torch.npu.make_graphed_callables(function, sample, allow_unused_input=True)
    x, y = batch(3, requires_grad=True), batch(3, requires_grad=True)
    graphed(x, y).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    assert y.grad is None


def test_TN_259_eval_runs_the_module_itself():
    module = model(dropout=0.5)
    graphed = torch.npu.make_graphed_callables(module, (batch(5, 8),))
    x = batch(5, 8)
    trained = graphed(x).cpu()
    assert not torch.equal(trained, graphed(x).cpu())  # dropout draws anew in each replay
    module.eval()
    with torch.no_grad():
        right = x @ module[0].weight.t() + module[0].bias
        right = right.relu() @ module[3].weight.t() + module[3].bias
    torch.testing.assert_close(module(x).cpu(), right.cpu())
    small = module(batch(2, 8))  # any shape: no graph
    assert small.shape == (2, 4)
    module.train()
    with pytest.raises(RuntimeError):
        module(batch(2, 8))


def test_TN_260_what_is_refused():
    x = batch(5, 8)
    for register in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        module = model()
        getattr(module, register)(lambda *_: None)
        with pytest.raises(RuntimeError, match="hooks"):
            torch.npu.make_graphed_callables(module, (x,))
    module = model()
    module.register_buffer("state", torch.zeros(2, device="npu", requires_grad=True))
    with pytest.raises(RuntimeError, match="state"):
        torch.npu.make_graphed_callables(module, (x,))
    with pytest.raises(RuntimeError, match="int"):
        torch.npu.make_graphed_callables(lambda x, n: x * n, (x, 3))
    with torch.autocast("npu", dtype=torch.float16):
        with pytest.raises(RuntimeError, match="cache_enabled=False"):
            torch.npu.make_graphed_callables(model(), (x,))
    with torch.autocast("npu", dtype=torch.bfloat16, cache_enabled=False):
        graphed = torch.npu.make_graphed_callables(model(), (x,))
        result = graphed(x)
    assert torch.isfinite(result.float()).all()


def test_TN_261_no_gradients():
    module = model().requires_grad_(False)
    graphed = torch.npu.make_graphed_callables(module, (batch(5, 8),))
    x = batch(5, 8, seed=9)
    result = graphed(x)
    assert not result.requires_grad
    torch.testing.assert_close(result.cpu(), module.cpu().eval()(x.cpu()))


def test_TN_261_some_results_without_gradients():
    def function(x):
        return x * 2, (x > 0)

    graphed = torch.npu.make_graphed_callables(function, (batch(3, requires_grad=True),))
    x = batch(3, requires_grad=True, seed=4)
    y, sign = graphed(x)
    assert y.requires_grad and not sign.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert sign.tolist() == (x > 0).tolist()


def test_TN_262_a_given_pool(monkeypatch):
    pool = torch.npu.graph_pool_handle()
    pools = []
    begin = torch.npu.NPUGraph.capture_begin

    def spy(self, pool=None, **kwargs):
        pools.append(pool)
        return begin(self, pool=pool, **kwargs)

    monkeypatch.setattr(torch.npu.NPUGraph, "capture_begin", spy)
    module = torch.npu.make_graphed_callables(model(), (batch(5, 8),), pool=pool)
    assert pools == [pool, pool]
    assert module(batch(5, 8)).data_ptr() != 0


def test_TN_263_static_input_is_not_copied():
    static = batch(4)
    graphed = torch.npu.make_graphed_callables(lambda x: x + 1, (static,))
    static.fill_(3)
    version = static._version
    assert graphed(static).tolist() == [4] * 4
    assert static._version == version
    assert graphed(torch.full_like(static, 8)).tolist() == [9] * 4
    assert static._version > version
    assert static.tolist() == [8] * 4


def test_TN_264_no_double_backward():
    graphed = torch.npu.make_graphed_callables(lambda x: x.pow(3), (batch(3, requires_grad=True),))
    x = batch(3, requires_grad=True)
    (grad,) = torch.autograd.grad(graphed(x).sum(), x, create_graph=True)
    torch.testing.assert_close(grad.cpu(), 3 * x.detach().cpu().square())
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), x)


def test_TN_265_warm_up_runs():
    captures = []

    def function(x):
        captures.append(torch.npu.is_current_stream_capturing())
        return x * 2

    torch.npu.make_graphed_callables(function, (batch(3),), num_warmup_iters=11)
    assert captures == [False] * 11 + [True]


def test_TN_266_hooks_after_graphing():
    module = torch.npu.make_graphed_callables(model(), (batch(5, 8),))
    seen = []
    module.register_forward_pre_hook(lambda *_: seen.append("before"))
    module.register_forward_hook(lambda *_: seen.append("after"))
    module.register_full_backward_hook(lambda *_: seen.append("backward"))
    module(batch(5, 8)).sum().backward()
    assert seen == ["before", "after", "backward"]
