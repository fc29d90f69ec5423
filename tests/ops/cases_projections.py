# SPDX-License-Identifier: Apache-2.0
"""Matrix products with what models put behind and beside them."""

import torch
import torch.nn.functional as F

from harness import Case, Check, Ref, cases, high

FUSED = {"": lambda x: x, "16cast32": lambda x: x, "relu": torch.relu, "gelu_erf": F.gelu,
         "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


@cases("FusedMatmul")
def fused_matmul(op, g):
    for dtype in g.floating:
        for number, (left, right) in enumerate((([5, 7], [7, 9]), ([2, 40, 33], [2, 33, 20]), ([3, 1, 4], [4, 6]),
                                                ([0, 3], [3, 2]))):
            x1, x2 = g.tensor(left, dtype), g.tensor(right, dtype)
            for kind in (*FUSED, "add", "mul"):
                bias = g.tensor(right[-1:], dtype) if number % 2 == 0 else None
                total = high(x1) @ high(x2) + (0 if bias is None else high(bias))
                x3 = g.tensor(list(total.shape), dtype) if kind in ("add", "mul") else None
                want = FUSED[kind](total) if kind in FUSED else total + high(x3) if kind == "add" else total * high(x3)
                out = torch.float32 if kind == "16cast32" and dtype.itemsize == 2 else dtype
                yield Case({"x1": x1, "x2": x2, "bias": bias, "x3": x3, "fusedOpType": kind, "cubeMathType": 0},
                           {"y": Ref(want, out)})


ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu, "fastgelu": lambda x: x * torch.sigmoid(1.702 * x), "silu": F.silu}


@cases("FFNV2")
def ffn(op, g):
    nothing = dict.fromkeys(("scale", "offset", "deqScale1", "deqScale2", "antiquantScale1", "antiquantScale2",
                             "antiquantOffset1", "antiquantOffset2"))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for number, (shape, inner, columns, tokens) in enumerate((([5, 8], 16, 6, None), ([2, 3, 7], 33, 40, None),
                                                                  ([9, 8], 12, 5, [4, 0, 5]), ([3, 4], 2, 3, [1, 2]))):
            name = tuple(ACTIVATIONS)[number % 4]
            front = [len(tokens)] if tokens else []
            x = g.tensor(shape, dtype)
            w1, w2 = g.tensor([*front, shape[-1], inner], dtype), g.tensor([*front, inner, columns], dtype)
            b1, b2 = (g.tensor([*front, n], dtype) if number % 2 == 0 else None for n in (inner, columns))
            rows = high(x).reshape(-1, shape[-1])
            parts = []
            for e, part in enumerate(rows.split(tokens) if tokens else [rows]):
                one = [None if t is None else high(t[e] if tokens else t) for t in (w1, b1, w2, b2)]
                hidden = ACTIVATIONS[name](part @ one[0] + (0 if one[1] is None else one[1]))
                parts.append(hidden @ one[2] + (0 if one[3] is None else one[3]))
            by_end = number == 2
            given = torch.tensor(tokens).cumsum(0).tolist() if by_end else tokens
            yield Case({**nothing, "x": x, "weight1": w1, "weight2": w2, "expertTokens": given, "bias1": b1, "bias2": b2,
                        "activation": name, "innerPrecise": 0, "tokensIndexFlag": by_end},
                       {"y": Ref(torch.cat(parts).reshape(*shape[:-1], columns), dtype)})


@cases("AddLora")
def add_lora(op, g):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for batch, depth, rank, width, columns, offset, size in ((4, 6, 3, 5, 9, 2, 5), (3, 70, 8, 33, 40, 0, 30), (1, 1, 1, 1, 1, 0, 1)):
            for has_a in (True, False):
                y, x = g.tensor([batch, columns], dtype), g.tensor([batch, depth if has_a else rank], dtype)
                b = g.tensor([3, 2, width, rank], dtype)
                a = g.tensor([3, 2, rank, depth], dtype) if has_a else None
                indices = torch.tensor([2, -1, 0, 3][:batch], dtype=torch.int32)
                want = high(y).clone()
                for row, index in enumerate(indices.tolist()):
                    if not 0 <= index < 3:
                        continue
                    left = high(x[row]) if a is None else high(a[index, 1]) @ high(x[row])
                    want[row, offset:offset + size] += 0.5 * (high(b[index, 1]) @ left)[:size]
                yield Case({"y": y, "x": x, "weightB": b, "indices": indices, "weightAOptional": a, "layerIdx": 1,
                            "scale": 0.5, "yOffset": offset, "ySliceSize": size}, {"out": Ref(want, dtype)})
