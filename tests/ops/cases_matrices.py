# SPDX-License-Identifier: Apache-2.0
"""Factors of matrices, cross products, distances between rows, products of batches added up."""

import torch

from harness import Case, Check, Ref, Scalar, cases, high

TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ([1, 1], [2, 2], [5, 3], [3, 5], [2, 2, 7, 4], [2, 4, 7], [33, 20], [20, 33], [40, 40], [0, 3, 3], [2, 0, 3],
          [2, 3, 0])


@cases("Addbmm")
def addbmm(op, g):
    for number, dtype in enumerate(g.floating + g.complex + (torch.int32, torch.int64)):
        for b, n, k, m in ((1, 1, 1, 1), (3, 5, 4, 6), (2, 1, 70, 3), (0, 2, 3, 4), (2, 3, 0, 4), (4, 0, 3, 2)):
            left, right = g.tensor([b, n, k], dtype, "small"), g.tensor([b, k, m], dtype, "small")
            x = g.tensor(([n, m], [m], [n, 1], [])[(number + b) % 4], dtype, "small")
            beta, alpha = ((1, 1), (0, 2), (3, -1))[(number + n) % 3]
            y = torch.addbmm(high(x), high(left), high(right), beta=beta, alpha=alpha)
            yield Case({"self": x, "batch1": left, "batch2": right, "beta": Scalar(beta), "alpha": Scalar(alpha),
                        "cubeMathType": 0}, {"out": Ref(y.to(dtype) if not dtype.is_floating_point else y, dtype)})
    lost = torch.full([2, 2], float("nan"))
    left, right = g.tensor([3, 2, 4], torch.float32), g.tensor([3, 4, 2], torch.float32)
    yield Case({"self": lost, "batch1": left, "batch2": right, "beta": Scalar(0.0), "alpha": Scalar(1.0),
                "cubeMathType": 1}, {"out": Ref((high(left) @ high(right)).sum(0), torch.float32)})


@cases("LinalgCholesky")
def cholesky(op, g):
    for dtype in TYPES:
        for shape in ([1, 1], [2, 2], [3, 5, 5], [33, 33], [0, 3, 3], [2, 0, 0]):
            for upper in (False, True):
                a = high(g.tensor(shape, dtype))
                a = a @ a.mH + shape[-1] * torch.eye(shape[-1])
                a = a.to(dtype)
                factor = torch.linalg.cholesky((high(a) + high(a).mH) / 2, upper=upper)
                # The other triangle is not read.
                junk = torch.full_like(a, float("nan"))
                a = torch.triu(a) + torch.tril(junk, -1).nan_to_num(7.0) if upper else (
                    torch.tril(a) + torch.triu(junk, 1).nan_to_num(7.0))
                yield Case({"self": a, "upper": upper}, {"out": Ref(factor, dtype)})
    nan = float("nan")
    yield Case({"self": torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "upper": False},
               {"out": torch.tensor([[nan, 0.0], [nan, nan]])})


@cases("LinalgQr")
def qr(op, g):
    for dtype in TYPES:
        for shape in SHAPES:
            for mode in range(3):
                a = g.tensor(shape, dtype)
                m, n = shape[-2:]
                complete = mode == 1
                q, r = torch.linalg.qr(high(a), mode="complete" if complete else "reduced")
                if complete and m > n:  # what completes Q is not unique
                    full = list(q.shape)

                    def orthonormal(found, a=a, r=r):
                        q = high(found)
                        eye = torch.eye(q.shape[-1], dtype=q.dtype)
                        small = 200 * torch.finfo(found.dtype).eps
                        return bool(((q.mH @ q - eye).abs() <= small).all()
                                    and ((q @ r - high(a)).abs() <= small * (1 + high(a).abs().sum())).all())
                    expected = Check(full, dtype, orthonormal)
                else:
                    expected = Ref(q, dtype) if mode != 2 else Check([0], dtype, lambda found: True)
                yield Case({"self": a, "mode": mode}, {"Q": expected, "R": Ref(r, dtype)},
                           any_shape=("Q",) if mode == 2 else ())


def decomposition(a, sigma, full):
    """Checks u and v together: v is kept until u comes."""
    kept = {}

    def verify(name):
        def check(found):
            kept[name] = high(found)
            small = 300 * torch.finfo(found.dtype).eps
            eye = torch.eye(found.shape[-1], dtype=kept[name].dtype)
            good = bool(((kept[name].mH @ kept[name] - eye).abs() <= small).all())
            if name == "v" and "u" in kept:
                k = sigma.shape[-1]
                product = kept["u"][..., :k] * sigma.unsqueeze(-2) @ kept["v"][..., :k].mT
                error = (product - high(a)).abs()
                good = good and bool((error <= small * (1 + sigma.amax(-1)[..., None, None] if k else 1)).all())
            return good
        return check
    return verify


@cases("Svd")
def svd(op, g):
    for dtype in TYPES:
        for number, shape in enumerate(SHAPES):
            for full in (False, True):
                for vectors in (True, False):
                    a = g.tensor(shape, dtype)
                    if number % 3 == 2 and shape[-1] > 1:
                        a[..., -1] = a[..., 0]  # rank deficient
                    sigma = torch.linalg.svdvals(high(a)).to(torch.float64)
                    m, n, k = shape[-2], shape[-1], min(shape[-2:])
                    u = shape[:-1] + [m if full else k] if vectors else [0]
                    v = shape[:-2] + [n, n if full else k] if vectors else [0]
                    verify = decomposition(a, sigma, full) if vectors else (lambda name: lambda found: True)
                    yield Case({"input": a, "fullMatrices": full, "computeUV": vectors},
                               {"sigma": Ref(sigma, dtype.to_real() if dtype.is_complex else dtype),
                                "u": Check(u, dtype, verify("u")), "v": Check(v, dtype, verify("v"))},
                               any_shape=() if vectors else ("u", "v"))
    large = torch.diag(torch.tensor([1e200, 1e-200, 0.0], dtype=torch.float64))
    yield Case({"input": large, "fullMatrices": False, "computeUV": False},
               {"sigma": torch.tensor([1e200, 1e-200, 0.0], dtype=torch.float64),
                "u": Check([0], torch.float64, lambda found: True),
                "v": Check([0], torch.float64, lambda found: True)}, any_shape=("u", "v"))


@cases("LinalgCross")
def cross(op, g):
    for dtype in g.numeric:
        for a, b, dim in (([3], [3], -1), ([4, 3], [3], 1), ([3, 5], [3, 1], 0), ([2, 3, 33], [1, 3, 33], -2),
                          ([0, 3], [0, 3], 1)):
            x, y = g.tensor(a, dtype, "small"), g.tensor(b, dtype, "small")
            z = torch.linalg.cross(*torch.broadcast_tensors(high(x), high(y)), dim=dim)
            yield Case({"self": x, "other": y, "dim": dim}, {"out": Ref(z.to(dtype), dtype)})


ORDERS = (2.0, 1.0, 0.0, float("inf"), 0.5, 3.0)


@cases("Cdist")
def cdist(op, g):
    for dtype in g.floating:
        for number, (a, b) in enumerate((([4, 3], [5, 3]), ([2, 4, 33], [2, 1, 33]), ([1, 6, 9], [3, 2, 5, 9]),
                                         ([4, 0], [3, 0]), ([0, 3], [2, 3]), ([1, 1], [1, 1]))):
            for p in ORDERS if number == 0 else ORDERS[:3]:
                x, y = g.tensor(a, dtype), g.tensor(b, dtype)
                d = torch.cdist(high(x), high(y), p=p, compute_mode="donot_use_mm_for_euclid_dist")
                passed = -1.0 if p == float("inf") and dtype == torch.float64 else p
                yield Case({"x1": x, "x2": y, "p": passed, "compute_mode": number % 3}, {"out": Ref(d, dtype)})


@cases("CdistBackward")
def cdist_backward(op, g):
    for dtype in g.floating:
        for number, (a, b) in enumerate((([4, 3], [5, 3]), ([2, 4, 33], [2, 1, 33]), ([6, 9], [6, 9]),
                                         ([0, 3], [2, 3]))):
            for p in (2.0, 1.0, 0.0, float("inf"), 1.5, 3.0):
                x, y = g.tensor(a, dtype), g.tensor(b, dtype)
                if number == 2:
                    y = x.clone()  # distances of 0
                if a[-1] == 33 and p == 0:
                    continue
                wide = high(x).requires_grad_()
                d = torch.cdist(wide, high(y), p=p, compute_mode="donot_use_mm_for_euclid_dist")
                grad = g.tensor(list(d.shape), dtype)
                distances = d.detach().to(dtype)
                if p not in (2.0, 1.0, 0.0) and dtype in (torch.float16, torch.bfloat16):
                    continue  # the distances are rounded, so that none is the largest difference
                if p == float("inf"):
                    distances = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().amax(-1) if x.numel() else distances
                (expected,) = torch.autograd.grad(d, wide, high(grad)) if d.numel() else (torch.zeros(a),)
                yield Case({"grad": grad, "x1": x, "x2": y, "cdist": distances, "p": p}, {"out": Ref(expected, dtype)})


@cases("Pdist")
def pdist(op, g):
    for dtype in g.floating:
        for shape in ([4, 3], [2, 1], [1, 5], [0, 2], [20, 33]):
            for p in ORDERS:
                x = g.tensor(shape, dtype)
                d = (torch.nn.functional.pdist(high(x), p) if shape[0] > 1 else torch.zeros(0, dtype=torch.float64))
                yield Case({"self": x, "p": p}, {"out": Ref(d, dtype)})
