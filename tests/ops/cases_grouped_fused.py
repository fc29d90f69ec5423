# SPDX-License-Identifier: Apache-2.0
"""Products in groups with what models do before and after them."""

import torch
from torch.nn import functional

from cases_fused import Rounded, dynamic
from cases_matmul import rows_by_group
from cases_quant_rows import int8
from cases_quantization import packed_param
from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
# rows, depth, columns, rows of each group
SIZES = ((9, 16, 8, [4, 0, 5]), (3, 70, 300, [1, 2]), (0, 8, 4, [0, 0]), (40, 33, 6, [40]), (7, 12, 520, [2, 3, 1, 1]))


def groups_of(counts, ends):
    numbers = torch.tensor(counts)
    return numbers.cumsum(0) if ends else numbers


def group_of_row(counts):
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def sums_of(x, weights, counts):
    """int64 [m, n]."""
    which = group_of_row(counts).tolist()
    rows = [x[i].long() @ weights[e].long() for i, e in enumerate(which)]
    return torch.stack(rows) if rows else torch.zeros(0, weights.shape[2], dtype=torch.int64)


@cases("GroupedMatmul")
def grouped_with_numbers(op, g):
    """Groups that numbers of the caller tell."""
    number = 0
    none = dict.fromkeys(("scaleOptional", "offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional"))
    for dtype in g.floating:
        for sizes in ([3, 0, 20, 1], [1, 1, 0, 0], [0, 150, 2, 5]):
            k, n = 33, (40, 260, 7)[number % 3]
            x = g.tensor([sum(sizes), k], dtype)
            weights = g.tensor([4, k, n], dtype)
            bias = None if number % 2 else g.tensor([4, n], dtype)
            biases = None if bias is None else [b.clone() for b in bias]
            parts = rows_by_group(x, sizes, [high(w) for w in weights], [None] * 4 if bias is None else list(bias))
            ends, xs = torch.tensor(sizes).cumsum(0).tolist(), [part.clone() for part in x.split(sizes)]
            several, whole = [w.clone() for w in weights], [Ref(torch.cat(parts), dtype)]
            results = [Ref(part, dtype) for part in parts]
            for given, weight, one, groups, split, y in (
                    ([x], several, biases, ends, 3, whole), ([x], several, biases, ends, 1, results),
                    (xs, several, biases, None, 0, results), (xs, several, biases, None, 2, whole),
                    ([x], [weights], None if bias is None else [bias], ends, 3, whole)):
                yield Case(none | {"x": given, "weight": weight, "biasOptional": one, "groupListOptional": groups,
                                   "splitItem": split}, {"y": y})
            number += 1


@cases("GroupedMatmulAdd", "GroupedMatmulAddV2")
def grouped_add(op, g):
    number = 0
    for dtype in TYPES:
        for k, m, n, counts in ((9, 16, 8, [4, 0, 5]), (70, 3, 300, [1, 69]), (40, 33, 5, [40]), (6, 4, 3, [2, 1])):
            for flat in (True, False):
                number += 1
                ends = number % 3 != 0 or not op.endswith("V2")
                x, weight = g.tensor([k, m], dtype), g.tensor([k, n], dtype)
                y = g.tensor([len(counts), m, n], torch.float32)
                parts, at = [], 0
                for count in counts:
                    parts.append(high(x[at:at + count]).t() @ high(weight[at:at + count]))
                    at += count
                out = high(y) + torch.stack(parts)
                shape = [len(counts) * m, n] if flat else [len(counts), m, n]
                args = {"x": x, "weight": weight, "groupList": groups_of(counts, ends), "yRef": y.reshape(shape),
                        "transposeX": True, "transposeWeight": False, "groupType": 2}
                if op.endswith("V2"):
                    args["groupListType"] = 0 if ends else 1
                yield Case(args, {"yRef": Ref(out.reshape(shape), torch.float32)})


@cases("GroupedMatmulSwigluQuantWeightNZ", "GroupedMatmulSwigluQuantV2", "GroupedMatmulSwigluQuantWeightNzV2")
def grouped_swiglu(op, g):
    first, number = op.endswith("NZ"), 0
    for kind in TYPES:
        for m, k, n, counts in SIZES:
            number += 1
            ends = first or number % 2 == 0
            x, weights = int8(g, [m, k]), int8(g, [len(counts), k, 2 * n])
            scale = g.tensor([len(counts), 2 * n], kind, "positive") / 4000
            rows, which = g.tensor([m], torch.float32, "positive") + 0.1, group_of_row(counts)
            smooth = g.tensor([len(counts), n], torch.float32, "positive") if not first and number % 3 == 0 else None
            v = sums_of(x, weights, counts).double() * high(scale)[which] * high(rows).unsqueeze(-1)
            left, right = v.chunk(2, -1)
            s = functional.silu(left) * right
            numbers, step = dynamic(s if smooth is None else s * high(smooth)[which])
            expect = {"output": Rounded(numbers), "outputScale": Ref(step, torch.float32, bound="32/1 of max")}
            args = {"x": x, "xScale": rows, "groupList": groups_of(counts, ends)}
            if first:
                yield Case(args | {"weight": weights, "bias": None, "offset": None, "weightScale": scale},
                           expect | {"outputOffset": None})
                continue
            listed = number % 4 == 1
            yield Case(args | {"weight": [w.clone() for w in weights] if listed and len(counts) > 1 else [weights],
                               "weightScale": [scale], "weightAssistMatrixOptional": None, "biasOptional": None,
                               "smoothScaleOptional": smooth, "dequantMode": 0, "dequantDtype": 0, "quantMode": 0,
                               "groupListType": 0 if ends else 1, "tuningConfigOptional": [1] if number % 2 else None},
                       expect)


@cases("GroupedMatmulFinalizeRoutingV2", "GroupedMatmulFinalizeRoutingV3", "GroupedMatmulFinalizeRoutingWeightNz",
       "GroupedMatmulFinalizeRoutingWeightNzV2")
def finalize_routing(op, g):
    number = 0
    plain = not op.endswith(("RoutingV2", "RoutingV3"))
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        for m, k, n, counts in SIZES:
            for turned in (False, True):
                number += 1
                ends, batch = number % 2 == 0, max(1, m // 2)
                x, weights = int8(g, [m, k]), int8(g, [len(counts), k, n])
                scale = g.tensor([len(counts), n], torch.float32 if kind == torch.int64 else kind, "positive") / 4000
                given = scale
                if kind == torch.int64:
                    given = packed_param(scale.reshape(-1), None).reshape(len(counts), 1, n)
                    scale = (scale.view(torch.int32) & -8192).view(torch.float32)
                rows = g.tensor([m], torch.float32, "positive") if number % 3 else None
                logit = g.tensor([m], torch.float32) if number % 5 else None
                index = g.index([m], batch, torch.int32 if number % 2 else torch.int64)
                shared = g.tensor([max(1, batch // 2), n], torch.bfloat16) if number % 4 else None
                at = batch - shared.shape[0] if shared is not None else 0
                v = sums_of(x, weights, counts).double() * high(scale)[group_of_row(counts)]
                v = v * (1 if rows is None else high(rows).unsqueeze(-1)) * (1 if logit is None else high(logit).unsqueeze(-1))
                if m and number % 6 == 0:
                    index[0] = batch + 3  # goes nowhere
                out = torch.zeros(batch + 4, n, dtype=torch.float64)
                if shared is not None:
                    out[at:at + shared.shape[0]] = high(shared) * 0.5
                out = out.index_add(0, index.long(), v)[:batch]
                names = {"scale": given, "bias": None, "groupList": groups_of(counts, ends), "sharedInput": shared,
                         "logit": logit, "rowIndex": index}
                args = {name if plain else name + "Optional": value for name, value in names.items()}
                if not op.endswith("RoutingWeightNz"):
                    args |= dict.fromkeys(("offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional"))
                if op.endswith(("V3", "NzV2")):
                    args["tuningConfigOptional"] = None
                yield Case(args | {"x1": x, "x2": weights.transpose(1, 2).contiguous() if turned else weights,
                                   "pertokenScaleOptional": rows, "dtype": 0, "sharedInputWeight": 0.5,
                                   "sharedInputOffset": at, "transposeX1": False, "transposeX2": turned,
                                   "groupListType": 0 if ends else 1}, {"out": Ref(out, torch.float32)})


@cases("QuantMatmulDequant", "QuantGroupedMatmulDequant", "QuantGroupedMatmulDequantWeightNZ")
def quantized_rows(op, g):
    number, grouped = 0, "Grouped" in op
    for dtype in TYPES:
        for m, k, n, counts in SIZES:
            for mode in ("pertoken", "pertensor"):
                number += 1
                counts = counts if grouped else [m]
                x, weights = g.tensor([m, k], dtype), int8(g, [len(counts), k, n])
                scale = g.tensor([len(counts), n], torch.float32, "positive") / 400
                smooth = g.tensor([k], dtype, "positive") if number % 3 == 0 else None
                v = x.float() if smooth is None else x.float() * smooth.float()
                given = None
                if number % 4 == 0:
                    given = (g.tensor([m if mode == "pertoken" else 1], torch.float32, "positive") + 0.5) / 30
                    step = given.unsqueeze(-1)
                elif m:
                    step = v.abs().amax(-1, keepdim=True) / 127 if mode == "pertoken" else v.abs().max() / 127
                else:
                    step = torch.ones(1)
                numbers = (v / step).round().clamp(-128, 127).to(torch.int8)
                bias = g.index([len(counts), n], 900, torch.int32) if number % 5 == 0 else None
                which = group_of_row(counts)
                sums = sums_of(numbers, weights, counts) + (0 if bias is None else bias.long()[which])
                y = sums.double() * high(scale)[which] * step.double()
                turned = number % 2 == 0
                weight = weights.transpose(1, 2).contiguous() if turned else weights
                pick = (lambda t: t) if grouped else (lambda t: None if t is None else t[0].clone())
                args = {"x": x, "weight": pick(weight), "weightScale": pick(scale), "biasOptional": pick(bias),
                        "xScaleOptional": given, "xOffsetOptional": None, "smoothScaleOptional": smooth,
                        "xQuantMode": mode if number % 7 or mode == "pertensor" else None, "transposeWeight": turned}
                if grouped:
                    args["groupList"] = groups_of(counts, True)
                yield Case(args, {"out": Ref(y, dtype)})
