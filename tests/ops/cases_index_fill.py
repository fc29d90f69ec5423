# SPDX-License-Identifier: Apache-2.0
"""Positions along a dim that are filled with a value."""

from harness import Case, Ref, Scalar, cases

import torch


@cases("IndexFill", "InplaceIndexFill")
def index_fill(op, g):
    me, out = ("selfRef", "selfRef") if op.startswith("Inplace") else ("self", "out")
    for dtype in g.all:
        for number, (shape, dim) in enumerate((([5, 33], 0), ([2, 3, 65], -1), ([4, 1, 6, 5], 2), ([7], 0), ([0, 3], 1))):
            x = g.tensor(shape, dtype)
            index = g.index([3] if number != 3 else [], shape[dim], (torch.int64, torch.int32)[number % 2])
            value = 1 if dtype == torch.bool else 3
            yield Case({me: x, "dim": dim, "index": index, "value": Scalar(value)},
                       {out: Ref(x.index_fill(dim, index.long(), value), dtype)})
    x = g.tensor([6, 40], torch.float32)
    expected = x.clone()
    expected[4] = 2.5
    yield Case({me: x, "dim": 0, "index": torch.tensor([-2, 9, -7]), "value": Scalar(2.5)}, {out: expected})
    x = g.tensor([300, 300], torch.float16)
    index = g.permutation(300)[:100]
    yield Case({me: x, "dim": 1, "index": index, "value": Scalar(0.5)}, {out: x.index_fill(1, index, 0.5)})
