# SPDX-License-Identifier: Apache-2.0
"""Operators that the engine does not have, between graphs of the engine: results, gradients and what is written are those
of eager calls."""
import pytest
import torch
import torchair
from acl_support import log
from support_ge import check, compiled, config_of, cloned, equal, numbers, tokens


def matrix():
    return numbers(3, 3) + 3 * torch.eye(3).npu()


def in_the_middle(x):
    turned = x.t()
    return torch.linalg.inv(turned).t() + 1, turned * 2, torch.linalg.svdvals(x + 1)[0].exp(), (x + 1).median(0)


def at_the_ends(x):
    return torch.histc(torch.linalg.inv(x), 4, 0, 3)


def constants(x):
    return torch.linalg.inv(x) * torch.tensor([1.0, 2.0, 3.0], device="npu") + torch.tensor(0.5), x.kthvalue(2)[0] + torch.tensor(0.5)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_results(dynamic, split):
    for function in (in_the_middle, at_the_ends, constants):
        check(function, matrix(), dynamic=dynamic)
    assert [len(each.alone) > 0 for each in split] == [True] * len(split) and len(split) >= 3
    assert {"aten.linalg_inv_ex", "aten._linalg_svd", "aten.median.dim"} <= set(split[0].fallbacks)


def test_types_that_the_engine_refuses(split):
    """That is found out by the first call; later ones take what was made then."""
    def step(i, x, w):
        return (i + 1).argmax(-1) * 2, torch.nn.functional.conv3d(x, w).relu()

    make = lambda: (tokens(9, 3, 5).int(), *(numbers(*shape, 4, 4).double() for shape in ((1, 2, 4), (3, 2, 3))))  # noqa: E731
    run = check(step, *make())
    for _ in range(2):
        arguments = make()
        equal(run(*arguments), step(*arguments))
    assert {"aten.argmax", "aten.convolution"} == set().union(*(each.fallbacks for each in split))
    assert run.backend.count == 1


def test_what_is_written(split):
    def step(x, y):
        part = x[1:].view(-1)
        inverse = torch.linalg.inv(x)
        y.copy_(inverse)
        x.add_(1)
        return inverse + 1, part + inverse.sum(), part * 1

    own = [matrix(), matrix()]
    other = cloned(own)
    run = compiled(step)
    for _ in range(2):
        equal(run(*own), step(*other))
        equal(own, other)
    assert split


def test_gradients(split):
    def step(p):
        return (torch.linalg.inv(p * 2).t() @ p).logsumexp(0).sum()

    p = matrix().requires_grad_()
    q = p.detach().clone().requires_grad_()
    compiled(step)(p).backward()
    step(q).backward()
    equal(p.grad, q.grad)
    assert split


def test_it_is_told():
    with log() as lines:
        compiled(lambda x: torch.linalg.inv(x) + 1)(matrix())
    assert lines.count("PyTorch itself runs aten.linalg_inv_ex.default: there is no converter") == 1
    told = torchair.explain(lambda x: torch.linalg.inv(x) + 1, matrix(), config=config_of())
    assert "aten.linalg_inv_ex" in told.graphs[0].fallbacks and "run by PyTorch: aten.linalg_inv_ex, with_effects" in str(told)


def test_a_stored_method_is_one_graph(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.call = torchair.inference.cache_compile(self.step, cache_dir=str(tmp_path))

        def step(self, x):
            return torch.linalg.inv(x) + 1

    with pytest.raises(Exception, match="(?s)linalg_inv_ex.*no converter"):
        Model().call(matrix())
