# SPDX-License-Identifier: Apache-2.0
"""Functions of one number."""

import torch

from harness import Case, Ref, cases, high


@cases("Exp")
def exp(op, g):
    for dtype in g.floating + g.complex:
        for shape in g.shapes:
            x = g.tensor(shape, dtype)
            yield Case({"self": x}, {"out": Ref(torch.exp(high(x)), dtype)})
    for dtype in g.integers:
        x = g.tensor([5, 7], dtype)
        yield Case({"self": x}, {"out": Ref(torch.exp(high(x).to(torch.float64)), torch.float32)})
