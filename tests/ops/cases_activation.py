# SPDX-License-Identifier: Apache-2.0
"""Activation functions and their gradients."""

import torch

from harness import Case, cases


@cases("Relu", "InplaceRelu")
def relu(op, g):
    for dtype in g.real:
        for kind in ("normal", "edge"):
            for shape in g.shapes:
                x = g.tensor(shape, dtype, kind)
                if op == "Relu":
                    yield Case({"self": x}, {"out": torch.relu(x)})
                else:
                    yield Case({"selfRef": x}, {"selfRef": torch.relu(x)})
