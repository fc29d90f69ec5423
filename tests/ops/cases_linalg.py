# SPDX-License-Identifier: Apache-2.0
"""Inverse, determinant, triangular systems."""

import torch

from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def good_matrix(g, shape, dtype):
    """Far from singular, so that errors do not grow much."""
    return g.tensor(shape, dtype) + 2 * shape[-1] ** 0.5 * torch.eye(shape[-1], dtype=dtype)


@cases("Inverse")
def inverse(op, g):
    for dtype in TYPES:
        for shape in ([1, 1], [2, 2], [3, 5, 5], [2, 2, 7, 7], [33, 33], [0, 3, 3], [2, 0, 0]):
            a = good_matrix(g, shape, dtype)
            yield Case({"self": a}, {"out": Ref(torch.linalg.inv(high(a)), dtype)})
        # Pivots are not on the diagonal.
        a = good_matrix(g, [4, 4], dtype).flip(0)
        yield Case({"self": a}, {"out": Ref(torch.linalg.inv(high(a)), dtype)})


@cases("Slogdet")
def slogdet(op, g):
    for dtype in TYPES:
        for shape in ([1, 1], [2, 2], [3, 5, 5], [2, 2, 7, 7], [33, 33], [0, 3, 3], [2, 0, 0]):
            a = good_matrix(g, shape, dtype)
            for matrix in (a, a.flip(-1)):
                sign, log = torch.linalg.slogdet(high(matrix))
                yield Case({"self": matrix}, {"signOut": Ref(sign, dtype), "logOut": Ref(log, dtype.to_real())})
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    yield Case({"self": singular}, {"signOut": torch.tensor(0.0), "logOut": torch.tensor(-float("inf"))})


@cases("TriangularSolve")
def triangular_solve(op, g):
    for number, dtype in enumerate(TYPES * 2):
        for n, columns in ((1, 1), (5, 3), (17, 1), (0, 2)):
            for flags in range(8):
                upper, transpose, unit = bool(flags & 1), bool(flags & 2), bool(flags & 4)
                if (flags + number) % 2:
                    continue
                a = good_matrix(g, [n, n], dtype)
                if unit:
                    a = a / (2 * max(n, 1))
                b = g.tensor([n, columns], dtype)
                turned = high(a).mT if transpose else high(a)
                x = torch.linalg.solve_triangular(turned, high(b), upper=upper != transpose, unitriangular=unit)
                yield Case({"self": b, "A": a, "upper": upper, "transpose": transpose, "unitriangular": unit},
                           {"xOut": Ref(x, dtype), "mOut": a})
    for left, right in (([3, 1, 4, 4], [2, 4, 5]), ([4, 4], [2, 4, 2])):
        a, b = good_matrix(g, left, torch.float32), g.tensor(right, torch.float32)
        x = torch.linalg.solve_triangular(high(a), high(b), upper=True)
        yield Case({"self": b, "A": a, "upper": True, "transpose": False, "unitriangular": False},
                   {"xOut": Ref(x, torch.float32), "mOut": a.expand(x.shape[:-2] + a.shape[-2:]).contiguous()})
