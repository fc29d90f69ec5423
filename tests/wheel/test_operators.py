# SPDX-License-Identifier: Apache-2.0
"""Operators as the package calls them, against the CPU: results, and gradients where there are any."""

import pytest
import torch
import torch.nn.functional as F


def g(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def at(*index):
    return torch.tensor(index)


def positive_definite(n):
    a = g(n, n)
    return a @ a.T + n * torch.eye(n)


LOG_PROBS = torch.log_softmax(g(6, 2, 5), -1)
WINDOW = torch.hann_window(8)
GAPS = torch.tensor([[1.0, float("nan"), 3.0, 2.0], [4.0, 0.0, 1.0, float("nan")]])
LABELS = torch.tensor([[1, 2, -1, 0], [3, -1, 0, 0]])
CASES = {
    "addbmm": (torch.addbmm, g(3, 4), g(2, 3, 5), g(2, 5, 4)),
    "affine_grid": (lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False), g(2, 2, 3)),
    "aminmax": (torch.aminmax, g(3, 4)),
    "aminmax dim": (lambda x: torch.aminmax(x, dim=1), g(3, 4)),
    "bucketize": (torch.bucketize, g(3, 4), torch.tensor([-1.0, 0.0, 1.0])),
    "cdist": (lambda a, b: torch.cdist(a, b, p=1.0), g(4, 3), g(5, 3)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), g(2, 4, 3, 3)),
    "cholesky": (torch.linalg.cholesky, positive_definite(4)),
    "chunk_cat": (lambda a, b: torch._chunk_cat([a, b], 0, 2), g(5, 3), g(3, 2)),
    "coalesce": (lambda v: torch.sparse_coo_tensor(at(0, 0, 1, 1, 1, 0).view(2, 3).to(v.device), v, (2, 2),
                                                   check_invariants=False).coalesce().values(), g(3)),
    "cross": (torch.linalg.cross, g(4, 3), g(4, 3)),
    "embedding_bag mean": (lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"), at(0, 1, 2, 3, 1), g(5, 4), at(0, 2)),
    "embedding_bag max": (lambda i, w, o: F.embedding_bag(i, w, o, mode="max"), at(0, 1, 2, 3, 1), g(5, 4), at(0, 2)),
    "embedding max_norm": (lambda i, w: F.embedding(i, w.clone(), max_norm=0.5), at(0, 2), g(4, 3)),
    "fill_diagonal_": (lambda x: x.clone().fill_diagonal_(3.0, True), g(7, 3)),
    "isin": (torch.isin, torch.arange(100), torch.arange(0, 100, 3)),
    "isin of a number": (lambda x: torch.isin(2, x), at(1, 2, 3)),
    "isin a number": (lambda x: torch.isin(x, 2), at(1, 2, 3)),
    "istft": (lambda x, w: torch.istft(x, 8, window=w),
              torch.stft(g(2, 32), 8, window=WINDOW, return_complex=True), WINDOW),
    "less or equal": (lambda x: torch.tensor(0.5) >= x, g(4)),
    "logspace": (lambda x: torch.logspace(0, 3, 5, device=x.device), g(1)),
    "multilabel_margin_loss": (lambda x, t: F.multilabel_margin_loss(x, t), g(2, 4), LABELS),
    "nanmedian": (torch.nanmedian, GAPS),
    "nanmedian dim": (lambda x: torch.nanmedian(x, 1), GAPS),
    "normal": (lambda m: torch.normal(m, 0.0), g(4)),
    "pdist": (F.pdist, g(5, 3)),
    "pinverse": (torch.pinverse, g(5, 3)),
    "put": (lambda x, i, s: torch.put(x, i, s, accumulate=True), g(3, 4), at(0, 5, 5), g(3)),
    "qr": (torch.linalg.qr, g(5, 3)),
    "renorm_": (lambda x: x.clone().renorm_(2, 0, 0.5), g(3, 4)),
    "repeat_interleave of places": (torch.repeat_interleave, at(2, 0, 3)),
    "rrelu": (lambda x: F.rrelu(x, 0.25, 0.25, True), g(5, 3)),
    "scatter_reduce": (lambda x, i, s: x.scatter_reduce(0, i, s, "amax", include_self=False), g(4), at(0, 1, 1), g(3)),
    "scatter_reduce_": (lambda x, i, s: x.clone().scatter_reduce_(0, i, s, "mean"), g(4), at(0, 1, 1), g(3)),
    "std_mean": (lambda x: torch.std_mean(x, 1), g(3, 5)),
    "svd": (lambda x: (lambda u, s, v: u @ torch.diag(s) @ v)(*torch.linalg.svd(x)), g(4, 4)),
    "take": (torch.take, g(3, 4), at(0, 5, 11)),
    "topk": (lambda x: torch.topk(x, 2), g(3, 5)),
    "unique": (torch.unique, at(1, 2, 1, 3)),
}
WITH_GRADIENTS = {
    "conv_tbc": (lambda x, w, b: torch.conv_tbc(x, w, b, 1), g(5, 2, 3), g(3, 3, 4), g(4)),
    "ctc_loss": (lambda x, t: F.ctc_loss(x, t, (6, 5), (3, 2)), LOG_PROBS, torch.tensor([[1, 2, 3], [2, 2, 0]])),
    "dropout": (lambda x: torch.native_dropout(x, 0.0, True)[0], g(5, 3)),
    "embedding_bag sum": (lambda i, w, o: F.embedding_bag(i, w, o, mode="sum"), at(0, 1, 2, 3, 1), g(5, 4), at(0, 2)),
    "fold": (lambda x: F.fold(x, (4, 4), 2), g(1, 8, 9)),
    "grid_sample 2d": (lambda x, p: F.grid_sample(x, p, align_corners=True), g(1, 2, 4, 5), g(1, 2, 2, 2)),
    "grid_sample 3d": (lambda x, p: F.grid_sample(x, p, align_corners=False), g(1, 2, 3, 4, 5), g(1, 2, 2, 2, 3)),
    "kthvalue": (lambda x: torch.kthvalue(x, 2, 1)[0], g(3, 5)),
    "repeat_interleave": (lambda x, r: torch.repeat_interleave(x, r, 0), g(3, 2), at(2, 0, 3)),
    "unfold": (lambda x: F.unfold(x, 2), g(1, 2, 4, 4)),
    "windows": (lambda x: x.unfold(1, 3, 2), g(2, 9)),
}


def close(a, b):
    if a.dtype == torch.bool:
        return torch.equal(a, b)
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("name", sorted(CASES))
def test_results(name):
    function, *args = CASES[name]
    expected, found = function(*args), function(*(x.npu() for x in args))
    for a, b in zip(*((x,) if isinstance(x, torch.Tensor) else x for x in (expected, found))):
        assert close(a, b.cpu()), (a, b.cpu())


@pytest.mark.parametrize("name", sorted(WITH_GRADIENTS))
def test_gradients(name):
    function, *args = WITH_GRADIENTS[name]
    sides = [[move(x).requires_grad_(x.is_floating_point()) for x in args] for move in (torch.clone, torch.Tensor.npu)]
    expected, found = (function(*side) for side in sides)
    assert close(expected.detach(), found.detach().cpu())
    expected.pow(2).sum().backward()
    found.pow(2).sum().backward()
    for a, b in zip(*sides):
        if a.grad is not None:
            assert close(a.grad, b.grad.cpu()), (a.grad, b.grad.cpu())
