# SPDX-License-Identifier: Apache-2.0
"""Bags of rows of a table, rows of a bounded norm, losses of label sequences and of sets of labels."""

import torch
from torch.nn import functional

from harness import Case, Check, Ref, cases, high


@cases("EmbeddingBag")
def embedding_bag(op, g):
    number = 0
    for dtype in g.floating:
        for offsets, items in (([0, 2, 2, 5], 9), ([0], 4), ([0, 3], 3), ([], 0), ([0, 0], 0)):
            for mode in range(3):
                for has_end in (False, True):
                    number += 1
                    if has_end and not offsets:
                        continue
                    ends = offsets + [items] if has_end else offsets
                    weight = g.tensor([7, 5], dtype)
                    indices = g.index([items], 7, (torch.int64, torch.int32)[number % 2])
                    padding = 3 if number % 3 == 0 else -1
                    scales = g.tensor([items], dtype) if mode == 0 and number % 2 else None
                    starts = torch.tensor(ends, dtype=indices.dtype)
                    bags = len(offsets)
                    of_item = torch.zeros(items, dtype=torch.int64)
                    y = torch.zeros([bags, 5], dtype=torch.float64)
                    sizes, places = torch.zeros(bags, dtype=torch.int64), torch.zeros([bags, 5], dtype=torch.int64)
                    for b, begin in enumerate(offsets):
                        end = (offsets + [items])[b + 1]
                        of_item[begin:end] = b
                        inside = [i for i in range(begin, end) if int(indices[i]) != padding]
                        sizes[b] = len(inside)
                        if not inside:
                            continue
                        rows = high(weight)[indices[inside].to(torch.int64)]
                        if scales is not None:
                            rows = rows * high(scales)[inside].unsqueeze(1)
                        if mode == 2:
                            y[b], where = rows.max(0)
                            places[b] = indices[inside].to(torch.int64)[where]
                        else:
                            y[b] = rows.sum(0) if mode == 0 else rows.mean(0)
                    if padding == -1 and items and bags and dtype == torch.float64:
                        against = functional.embedding_bag(
                            indices, weight, starts, mode=("sum", "mean", "max")[mode], per_sample_weights=scales,
                            include_last_offset=has_end)
                        assert torch.allclose(against, y)
                    args = {"weight": weight, "indices": indices, "offsets": starts, "scaleGradByFreq": False,
                            "mode": mode, "sparse": False, "perSampleWeights": scales, "includeLastOffset": has_end,
                            "paddingIdx": padding}
                    best = places if mode == 2 else torch.zeros([len(ends)], dtype=torch.int64)
                    of_item = of_item[:0] if number % 5 == 0 else of_item  # nobody wants it
                    yield Case(args, {"output": Ref(y, dtype), "offset2bag": of_item, "bagSize": sizes,
                                      "maxIndices": best})


@cases("EmbeddingRenorm")
def embedding_renorm(op, g):
    for dtype in g.floating:
        for order in (2.0, 1.0, 3.0, float("inf")):
            for count in (6, 0):
                table = g.tensor([9, 5], dtype) * 2
                indices = g.index([count], 9)
                expected = high(table).clone()
                if count:
                    torch.embedding_renorm_(expected, indices, 1.5, order)
                yield Case({"selfRef": table, "indices": indices, "maxNorm": 1.5, "normType": order},
                           {"selfRef": Ref(expected, dtype)})


def ctc_inputs(g, dtype):
    """Logarithms of probabilities, targets, lengths."""
    for times, items, classes, lengths, inputs in ((6, 3, 5, [2, 0, 3], [6, 4, 5]), (4, 1, 3, [2], [4]),
                                                   (5, 2, 4, [3, 2], [2, 5]), (1, 2, 2, [1, 1], [1, 1])):
        log_probs = torch.log_softmax(g.tensor([times, items, classes], torch.float64), -1).to(dtype)
        padded = g.index([items, max(lengths)], classes - 1) + 1
        if times == 6:
            padded[2, :2] = 2  # a label twice
        yield log_probs, padded, lengths, inputs
        flat = torch.cat([padded[n, :length] for n, length in enumerate(lengths)])
        yield log_probs, flat.to(torch.int32), lengths, inputs


def ctc_reference(log_probs, targets, inputs, lengths):
    padded = targets.to(torch.int64)
    return torch._ctc_loss(log_probs, padded, inputs, lengths, 0, False)


@cases("CtcLoss")
def ctc_loss(op, g):
    for dtype in g.floating:
        for log_probs, targets, lengths, inputs in ctc_inputs(g, dtype):
            loss, _ = ctc_reference(high(log_probs), targets, inputs, lengths)
            times, items, _ = log_probs.shape
            width = 2 * max(lengths) + 1 + (5 if dtype == torch.float64 else 0)

            def ends_in_loss(alpha, loss=loss, lengths=lengths, inputs=inputs):
                for n, (length, last) in enumerate(zip(lengths, inputs)):
                    ways = high(alpha)[n, last - 1, max(0, 2 * length - 1):2 * length + 1]
                    if not torch.isclose(-torch.logsumexp(ways, 0), loss[n], rtol=2e-2, atol=1e-2):
                        return False
                return True
            yield Case({"logProbs": log_probs, "targets": targets, "inputLengths": inputs, "targetlengths": lengths,
                        "blank": 0, "zeroInfinity": False},
                       {"negLogLikelihoodOut": Ref(loss, dtype), "logAlphaOut": Check([items, times, width], dtype,
                                                                                      ends_in_loss)})


@cases("CtcLossBackward")
def ctc_loss_backward(op, g):
    for dtype in (torch.float32, torch.float64):
        for log_probs, targets, lengths, inputs in ctc_inputs(g, dtype):
            for zero in (True, False):
                wide = high(log_probs).requires_grad_()
                loss, alpha = ctc_reference(wide, targets, inputs, lengths)
                if not zero and not bool(loss.isfinite().all()):
                    continue
                grad = g.tensor([log_probs.shape[1]], dtype)
                expected = torch.ops.aten._ctc_loss_backward(
                    high(grad), wide, targets.to(torch.int64), inputs, lengths, loss, alpha, 0, zero)
                yield Case({"gradOut": grad, "logProbs": log_probs, "targets": targets, "inputLengths": inputs,
                            "targetLengths": lengths, "negLogLikelihood": loss.detach().to(dtype),
                            "logAlpha": alpha.detach().to(dtype), "blank": 0, "zeroInfinity": zero},
                           {"out": Ref(expected.detach(), dtype)})


@cases("MultilabelMarginLoss")
def multilabel_margin_loss(op, g):
    for number, dtype in enumerate(g.floating):
        for shape in ([4, 6], [6], [1, 1], [3, 40]):
            for reduction in range(3):
                x = g.tensor(shape, dtype)
                classes = shape[-1]
                rows = []
                for _ in range(shape[0] if len(shape) == 2 else 1):
                    some = g.permutation(classes)
                    some[int(g.index([], classes + 1)):] = -1
                    rows.append(some)
                target = torch.stack(rows).reshape(shape)
                y = functional.multilabel_margin_loss(high(x), target, reduction=("none", "mean", "sum")[reduction])
                marks = torch.zeros([len(rows), classes + 1], dtype=dtype)
                for row, wanted in enumerate(rows):
                    marks[row, wanted] = 1
                marks = marks[:, :classes].reshape(shape)
                yield Case({"self": x, "target": target.to((torch.int64, torch.int32)[number % 2]),
                            "reduction": reduction}, {"out": Ref(y, dtype), "isTarget": marks})
