# SPDX-License-Identifier: Apache-2.0
"""What the published package asks for beyond PyTorch: overlaps of boxes, a cross entropy in parts, hyper-connections,
causal convolutions; against plain formulas in float64."""

import math

import torch

from harness import Case, Ref, cases, high


def corners(box, centred):
    a, b, c, d = high(box).unbind(0)
    return (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if centred else (a, b, c, d)


def overlap(first, second, mode, eps):
    width = (torch.minimum(first[2], second[2]) - torch.maximum(first[0], second[0])).clamp(min=0)
    height = (torch.minimum(first[3], second[3]) - torch.maximum(first[1], second[1])).clamp(min=0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    inter = width * height
    return inter / ((areas[0] + areas[1] - inter if mode == "iou" else areas[1]) + eps)


def some_boxes(g, count, dtype):
    """[4, count], by corners."""
    low, size = g.tensor([2, count], dtype), g.tensor([2, count], dtype, "positive")
    return torch.cat([low, low + size])


@cases("Iou")
def iou(op, g):
    for dtype in g.floating:
        for n, m, mode, eps, aligned in ((5, 3, "iou", 2.0**-10, False), (4, 4, "iof", 1.0, False), (3, 3, "iou", 0.5, True),
                                         (0, 2, "iou", 1.0, False), (1, 1, "iof", 2.0**-10, True)):
            first, second = (some_boxes(g, count, dtype).t().contiguous() for count in (n, m))
            pair = (corners(first.t(), False), corners(second.t(), False))
            if aligned:
                expected = overlap(*pair, mode, eps).unsqueeze(1)
            else:
                expected = overlap(pair[0], [part.unsqueeze(1) for part in pair[1]], mode, eps)
            yield Case({"bBoxes": first, "gtBoxes": second, "mode": mode, "eps": eps, "aligned": aligned},
                       {"overlap": Ref(expected, dtype)})


def complete(first, second, mode, centred):
    """The overlap and the difference of the angles; boxes [4, n] in float64."""
    a, b = corners(first, centred), corners(second, centred)
    apart = ((b[2] - b[0]) / (b[3] - b[1])).atan() - ((a[2] - a[0]) / (a[3] - a[1])).atan()
    plain = overlap(a, b, mode, 1e-10)
    across = a[0] + a[2] - b[0] - b[2], a[1] + a[3] - b[1] - b[3]
    hull = [torch.maximum(a[k + 2], b[k + 2]) - torch.minimum(a[k], b[k]) for k in (0, 1)]
    distance = (across[0] ** 2 + across[1] ** 2) / (4 * (hull[0] ** 2 + hull[1] ** 2) + 4e-10)
    ratio = apart ** 2 * 4 / math.pi ** 2
    weight = (ratio / (1 + 1e-10 - plain + ratio)).detach()
    return plain - distance - ratio * weight, apart


@cases("CIoU")
def ciou(op, g):
    for dtype in g.floating:
        for n, mode, centred, keeps in ((5, "iou", True, True), (3, "iof", False, True), (1, "iou", False, False),
                                        (0, "iou", True, True)):
            first, second = some_boxes(g, n, dtype), some_boxes(g, n, dtype)
            if centred:
                first, second = (torch.cat([box[:2], box[2:] - box[:2]]) for box in (first, second))
            value, apart = complete(first, second, mode, centred)
            yield Case({"bBoxes": first, "gtBoxes": second, "trans": centred, "isCross": False, "mode": mode},
                       {"overlap": Ref(value.unsqueeze(0), dtype), "atanSub": Ref(apart.unsqueeze(0), dtype) if keeps else None})


LAYERS = ((5, 7, 3, 2, 6), (16, 4, 2, 0, 3), (1, 1, 1, 0, 0), (9, 12, 5, 100, 111))  # rows, vocabulary, features, first, last


def bits(flags):
    """Eight to a byte, the first in the highest bit; ones behind the last."""
    flags = [bool(flag) for flag in flags] + [True] * (-len(flags) % 8)
    return torch.tensor([sum(flags[at + k] << (7 - k) for k in range(8)) for at in range(0, len(flags), 8)],
                        dtype=torch.uint8)


@cases("FusedLinearOnlineMaxSum")
def vocabulary_part(op, g):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for number, (rows, vocabulary, features, first, last) in enumerate(LAYERS):
            x, weight = g.tensor([rows, features], dtype, "small"), g.tensor([vocabulary, features], dtype, "small")
            target = g.index([rows], vocabulary + 2, (torch.int64, torch.int32)[number % 2]) + first - 1
            z = (high(x) @ high(weight).t()).to(dtype).double()
            out = (target < first) | (target > last)
            own = torch.where(out, 0, target - first)
            most = z.amax(1)
            rest = z - most.unsqueeze(1)
            predicted = torch.where(out, 0.0, rest.gather(1, own.long().unsqueeze(1)).squeeze(1))
            yield Case({"input": x, "weight": weight, "target": target, "vocabStartIndex": first, "vocabEndIndex": last},
                       {"logitsMaxLocalOut": Ref(most, torch.float32),
                        "sumExpLogitsLocalOut": Ref(rest.exp().sum(1), torch.float32),
                        "predictedLogitsLocalOut": Ref(predicted, torch.float32), "targetMaskOut": bits(out),
                        "maskedTargetOut": own, "vocabParallelLogitsOutOptional": Ref(z, dtype) if number % 2 == 0 else None})


@cases("FusedCrossEntropyLossWithMaxSum")
def vocabulary_loss(op, g):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, None):
        for rows, vocabulary in ((5, 7), (0, 3), (1, 1)):
            z = g.tensor([rows, vocabulary], dtype or torch.float32)
            most, sums = high(z).amax(1) if rows else torch.zeros(0).double(), None
            sums = (high(z) - most.unsqueeze(1)).exp().sum(1)
            most, sums, predicted = most.float(), sums.float(), -g.tensor([rows], torch.float32, "positive")
            softmax = (high(z) - high(most).unsqueeze(1)).exp() / high(sums).unsqueeze(1)
            yield Case({"logitsMax": most, "sumExpLogits": sums, "predictedLogits": predicted, "labelSmoothing": 0.0,
                        "inputOptional": None, "weightOptional": None, "vocabParallelLogitsOptional": z if dtype else None},
                       {"lossOut": Ref(high(sums).log() - high(predicted), torch.float32),
                        "softMaxOutOptional": Ref(softmax, torch.float32) if dtype else None})


@cases("FusedLinearCrossEntropyLossGrad")
def vocabulary_gradient(op, g):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for number, (rows, vocabulary, features, _, _) in enumerate(LAYERS):
            x, weight = g.tensor([rows, features], dtype, "small"), g.tensor([vocabulary, features], dtype, "small")
            z = high(x) @ high(weight).t()
            softmax, out, own = z.softmax(1), g.mask([rows]), g.index([rows], vocabulary)
            grad = g.tensor([rows], torch.float32)
            of_logits = softmax.clone()
            of_logits[torch.arange(rows)[~out], own[~out]] -= 1
            of_logits = of_logits * high(grad).unsqueeze(1)
            given = number % 2 == 0
            most = z.amax(1)
            sums = (z - most.unsqueeze(1)).exp().sum(1)
            yield Case({"grad": grad, "input": x, "weight": weight, "targetMask": bits(out),
                        "maskedTarget": own.to((torch.int64, torch.int32)[number // 2 % 2]), "labelSmoothing": 0.0,
                        "logitsMaxOptional": None if given else most.float(),
                        "sumExpLogitsOptional": None if given else sums.float(),
                        "softmaxOptional": softmax.float() if given else None},
                       {"inputGradOut": Ref(of_logits @ high(weight), dtype),
                        "weightGradOut": Ref(of_logits.t() @ high(x), dtype)})


@cases("MhcPost")
def stream_mix(op, g):
    for dtype in g.floating:
        for outer, n, size in (([3], 4, 5), ([2, 3], 6, 2), ([0], 4, 3), ([], 1, 1)):
            x, h_out, h_post = g.tensor([*outer, n, size], dtype), g.tensor([*outer, size], dtype), g.tensor([*outer, n], torch.float32)
            h_res = g.tensor([*outer, n, n], torch.float32, "positive") if n != 6 else None
            kept = high(x) if h_res is None else high(h_res).transpose(-1, -2) @ high(x)
            expected = kept + high(h_post).unsqueeze(-1) * high(h_out).unsqueeze(-2)
            yield Case({"x": x, "hRes": h_res, "hOut": h_out, "hPost": h_post}, {"out": Ref(expected, dtype)})


CAUSAL = (([5, 2, 3], 3, True), ([4, 3, 2], 1, False), ([2, 1, 4], 4, True), ([0, 2, 3], 2, False))


def convolved(x, weight, mask):
    window = weight.shape[0]
    padded = torch.cat([torch.zeros(window - 1, *x.shape[1:], dtype=x.dtype), x])
    y = sum(weight[w] * padded[w:w + x.shape[0]] for w in range(window))
    return y if mask is None else y * mask.t().unsqueeze(-1)


@cases("MaskedCausalConv1d")
def causal(op, g):
    for dtype in g.floating:
        for shape, window, masked in CAUSAL:
            x, weight = g.tensor(shape, dtype), g.tensor([window, shape[2]], dtype)
            mask = g.mask([shape[1], shape[0]]) if masked else None
            yield Case({"x": x, "weight": weight, "maskOptional": mask},
                       {"out": Ref(convolved(high(x), high(weight), mask), dtype)})


@cases("MaskedCausalConv1dBackward")
def causal_backward(op, g):
    for dtype in g.floating:
        for shape, window, masked in CAUSAL:
            x, weight, grad = g.tensor(shape, dtype), g.tensor([window, shape[2]], dtype), g.tensor(shape, dtype)
            mask = g.mask([shape[1], shape[0]]) if masked else None
            wide = [high(x).requires_grad_(), high(weight).requires_grad_()]
            convolved(*wide, mask).backward(high(grad))
            yield Case({"gradY": grad, "x": x, "weight": weight, "maskOptional": mask},
                       {"gradX": Ref(wide[0].grad, dtype), "gradWeight": Ref(wide[1].grad, dtype)})
