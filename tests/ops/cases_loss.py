# SPDX-License-Identifier: Apache-2.0
"""Losses and their gradients."""

import torch
import torch.nn.functional as F

from harness import Case, Ref, cases, high

REDUCTIONS = ("none", "mean", "sum")
SHAPES = ([5, 33], [2, 3, 350], [], [0, 3], [2, 10000])


def shapes_of(dtype):
    return SHAPES if dtype == torch.float32 else SHAPES[:1]


def is_too_much(shape, code):
    """Whether the large shape, which is summed in blocks, is left out for other reductions than the mean."""
    return shape == SHAPES[-1] and code != 1


def gradient(loss, x, grad):
    """The gradient of loss(x) with respect to x, in float64."""
    x = high(x).requires_grad_()
    loss(x).backward(high(grad))
    return x.grad


def grad_like(g, dtype, shape, reduction):
    return g.tensor(shape if reduction == "none" else [], dtype)


@cases("MseLoss", "L1Loss", "SmoothL1Loss")
def distances(op, g):
    function = {"MseLoss": F.mse_loss, "L1Loss": F.l1_loss, "SmoothL1Loss": F.smooth_l1_loss}[op]
    for dtype in g.floating:
        for number, shape in enumerate(shapes_of(dtype)):
            for code, reduction in enumerate(REDUCTIONS):
                if is_too_much(shape, code):
                    continue
                x, target = g.tensor(shape, dtype), g.tensor(shape, dtype)
                args, more = {"self": x, "target": target, "reduction": code}, {}
                if op == "SmoothL1Loss":
                    more = {"beta": (1.0, 0.25, 0.0)[number % 3]}
                expected = function(high(x), high(target), reduction=reduction, **more)
                yield Case(args | more, {"result" if more else "out": Ref(expected, dtype)})
        x, target = g.tensor([4, 1, 5], dtype), g.tensor([3, 1], dtype)
        for code, reduction in enumerate(REDUCTIONS):
            wide, other = torch.broadcast_tensors(high(x), high(target))
            more = {"beta": 1.0} if op == "SmoothL1Loss" else {}
            yield Case({"self": x, "target": target, "reduction": code} | more,
                       {"result" if more else "out": Ref(function(wide, other, reduction=reduction, **more), dtype)})


@cases("MseLossBackward")
def mse_backward(op, g):
    for dtype in g.floating:
        for shape in shapes_of(dtype):
            for code, reduction in enumerate(REDUCTIONS):
                if is_too_much(shape, code):
                    continue
                x, target, grad = g.tensor(shape, dtype), g.tensor(shape, dtype), grad_like(g, dtype, shape, reduction)
                expected = gradient(lambda v: F.mse_loss(v, high(target), reduction=reduction), x, grad)
                yield Case({"gradOutput": grad, "self": x, "target": target, "reduction": code},
                           {"out": Ref(expected, dtype)})


@cases("BinaryCrossEntropy")
def binary_cross_entropy(op, g):
    for dtype in g.floating:
        for shape in shapes_of(dtype):
            for code, reduction in enumerate(REDUCTIONS):
                if is_too_much(shape, code):
                    continue
                x, target = torch.sigmoid(3 * g.tensor(shape, dtype)), torch.sigmoid(g.tensor(shape, dtype))
                weight = g.tensor(shape, dtype, "positive") if code != 1 else None
                expected = F.binary_cross_entropy(high(x), high(target), None if weight is None else high(weight),
                                                  reduction=reduction)
                yield Case({"self": x, "target": target, "weight": weight, "reduction": code},
                           {"out": Ref(expected, dtype)})
        x, target = torch.tensor([0, 1, 0, 1, 0.5], dtype=dtype), torch.tensor([0, 1, 1, 0, 1], dtype=dtype)
        yield Case({"self": x, "target": target, "weight": None, "reduction": 0},
                   {"out": Ref(F.binary_cross_entropy(high(x), high(target), reduction="none"), dtype)})


def logits(g, dtype):
    for number, shape in enumerate(shapes_of(dtype)):
        for code, reduction in enumerate(REDUCTIONS):
            if is_too_much(shape, code):
                continue
            x, target = 4 * g.tensor(shape, dtype), torch.sigmoid(g.tensor(shape, dtype))
            weight = g.tensor(shape, dtype, "positive") if number % 2 == 0 else None
            pos_weight = g.tensor(shape[-1:], dtype, "positive") if code % 2 == 0 else None
            more = {"weight": None if weight is None else high(weight),
                    "pos_weight": None if pos_weight is None else high(pos_weight), "reduction": reduction}
            yield {"self": x, "target": target, "weightOptional": weight, "posWeightOptional": pos_weight,
                   "reduction": code}, more


@cases("BinaryCrossEntropyWithLogits")
def binary_cross_entropy_with_logits(op, g):
    for dtype in g.floating:
        for args, more in logits(g, dtype):
            expected = F.binary_cross_entropy_with_logits(high(args["self"]), high(args["target"]), **more)
            yield Case(args, {"out": Ref(expected, dtype)})
        x, target = g.tensor([40], dtype, "edge"), torch.sigmoid(g.tensor([40], dtype))
        expected = F.binary_cross_entropy_with_logits(high(x), high(target), reduction="none")
        yield Case({"self": x, "target": target, "weightOptional": None, "posWeightOptional": None, "reduction": 0},
                   {"out": Ref(expected, dtype)})


@cases("BinaryCrossEntropyWithLogitsBackward")
def binary_cross_entropy_with_logits_backward(op, g):
    for dtype in g.floating:
        for args, more in logits(g, dtype):
            grad = grad_like(g, dtype, list(args["self"].shape), more["reduction"])
            target = high(args["target"])
            expected = gradient(lambda v: F.binary_cross_entropy_with_logits(v, target, **more), args["self"], grad)
            yield Case({"gradOutput": grad} | args, {"out": Ref(expected, dtype)})


def divergences(g, dtype):
    for shape in shapes_of(dtype):
        for code, reduction in enumerate(REDUCTIONS + ("batchmean",)):
            for log_target in (False, True):
                if is_too_much(shape, code) or reduction == "batchmean" and (not shape or 0 in shape):
                    continue
                x, target = -g.tensor(shape, dtype, "positive"), torch.sigmoid(g.tensor(shape, dtype))
                target = target.log() if log_target else torch.where(target < 0.3, 0, target)
                yield ({"self": x, "target": target, "reduction": code, "logTarget": log_target},
                       {"reduction": reduction, "log_target": log_target})


@cases("KlDiv")
def kl_div(op, g):
    for dtype in g.floating:
        for args, more in divergences(g, dtype):
            yield Case(args, {"out": Ref(F.kl_div(high(args["self"]), high(args["target"]), **more), dtype)})


@cases("KlDivBackward")
def kl_div_backward(op, g):
    for dtype in g.floating:
        for args, more in divergences(g, dtype):
            grad = grad_like(g, dtype, list(args["self"].shape), more["reduction"])
            target = high(args["target"])
            expected = gradient(lambda v: F.kl_div(v, target, **more), args["self"], grad)
            yield Case({"gradOutput": grad} | args, {"out": Ref(expected, dtype)})


def class_cases(g, dtype, shapes):
    """Scores, targets of which some are ignored, weights."""
    for number, shape in enumerate(shapes):
        classes = shape[0] if len(shape) == 1 else shape[1]
        samples = [size for d, size in enumerate(shape) if d != (0 if len(shape) == 1 else 1)]
        for code, reduction in enumerate(REDUCTIONS):
            scores = torch.log_softmax(g.tensor(shape, dtype), 0 if len(shape) == 1 else 1)
            target = g.index(samples, classes, torch.int32 if number % 2 else torch.int64)
            weight = g.tensor([classes], dtype, "positive") if number % 3 != 2 else None
            ignored = int(target.flatten()[0]) if number == 0 and target.numel() > 1 else -100
            yield scores, target, weight, code, reduction, ignored


def nll(op, scores, target, weight, code, ignored):
    function = torch.ops.aten.nll_loss2d_forward if op == "NLLLoss2d" else torch.ops.aten.nll_loss_forward
    return function(high(scores), target.to(torch.int64), None if weight is None else high(weight), code, ignored)


NLL_SHAPES = ([6, 5], [1, 7], [33, 20], [4], [0, 3])


@cases("NLLLoss", "NLLLoss2d")
def nll_loss(op, g):
    for dtype in g.floating:
        shapes = NLL_SHAPES + (([17000, 3],) if dtype == torch.float32 else ())
        if op == "NLLLoss2d":
            shapes = ([2, 5, 3, 4], [1, 3, 1, 1]) + (([2, 3, 90, 95],) if dtype == torch.float32 else ())
        for scores, target, weight, code, _, ignored in class_cases(g, dtype, shapes):
            loss, total = nll(op, scores, target, weight, code, ignored)
            yield Case({"self": scores, "target": target, "weight": weight, "reduction": code, "ignoreIndex": ignored},
                       {"out": Ref(loss, dtype), "totalWeightOut": Ref(total, dtype)})
    scores, target = g.tensor([3, 4], torch.float32), torch.tensor([1, 4, -1])
    expected = torch.tensor([-float(scores[0, 1]), float("nan"), float("nan")])
    if op == "NLLLoss2d":
        scores, target, expected = scores.reshape(3, 4, 1, 1), target.reshape(3, 1, 1), expected.reshape(3, 1, 1)
    yield Case({"self": scores, "target": target, "weight": None, "reduction": 0, "ignoreIndex": -100},
               {"out": expected, "totalWeightOut": torch.tensor(0.0)})


@cases("NLLLossBackward")
def nll_loss_backward(op, g):
    for dtype in g.floating:
        for scores, target, weight, code, reduction, ignored in class_cases(g, dtype, NLL_SHAPES):
            total = nll("NLLLoss", scores, target, weight, code, ignored)[1].to(dtype)
            grad = grad_like(g, dtype, list(target.shape), reduction)
            expected = torch.ops.aten.nll_loss_backward(
                high(grad), high(scores), target.to(torch.int64), None if weight is None else high(weight), code, ignored,
                high(total))
            yield Case({"gradOutput": grad, "self": scores, "target": target, "weight": weight, "reduction": code,
                        "ignoreIndex": ignored, "totalWeight": total}, {"out": Ref(expected, dtype)})


def cross_entropy(scores, target, weight, reduction, ignored, smoothing):
    return F.cross_entropy(scores, target.to(torch.int64), None if weight is None else high(weight), reduction=reduction,
                           ignore_index=ignored, label_smoothing=smoothing)


def cross_entropy_cases(g, dtype):
    for scores, target, weight, code, reduction, ignored in class_cases(g, dtype, ([6, 5], [1, 7], [9, 2100])[:3 if dtype == torch.float32 else 2]):
        for smoothing in (0.0, 0.1) if dtype == torch.float32 else (0.1,):
            text = None if reduction == "mean" and smoothing else reduction
            yield 3 * scores, target, weight, reduction, text, ignored, smoothing


@cases("CrossEntropyLoss")
def cross_entropy_loss(op, g):
    for dtype in g.floating:
        for scores, target, weight, reduction, text, ignored, smoothing in cross_entropy_cases(g, dtype):
            loss = cross_entropy(high(scores), target, weight, reduction, ignored, smoothing)
            yield Case({"input": scores, "target": target, "weightOptional": weight, "reductionOptional": text,
                        "ignoreIndex": ignored, "labelSmoothing": smoothing, "lseSquareScaleForZloss": 0.0,
                        "returnZloss": False},
                       {"lossOut": Ref(loss if reduction == "none" else loss.reshape(1), dtype),
                        "logProbOut": Ref(torch.log_softmax(high(scores), 1), dtype), "zlossOut": None,
                        "lseForZlossOut": None})


def loss_of_log_prob(log_prob, target, weight, reduction, ignored, smoothing):
    """Cross entropy as a function of the log-probabilities, which need not add up to exactly 1."""
    target, weight = target.to(torch.int64), torch.ones(log_prob.shape[1]) if weight is None else weight
    likelihood = F.nll_loss(log_prob, target, high(weight), reduction="none", ignore_index=ignored)
    smooth = torch.where(target == ignored, 0, -(log_prob * high(weight)).sum(1)) / log_prob.shape[1]
    loss = (1 - smoothing) * likelihood + smoothing * smooth
    if reduction == "none":
        return loss
    return loss.sum() / (high(weight)[target] * (target != ignored)).sum() if reduction == "mean" else loss.sum()


@cases("CrossEntropyLossGrad")
def cross_entropy_loss_grad(op, g):
    for dtype in g.floating:
        for scores, target, weight, reduction, text, ignored, smoothing in cross_entropy_cases(g, dtype):
            log_prob = torch.log_softmax(high(scores), 1).to(dtype)
            grad = g.tensor([scores.shape[0]] if reduction == "none" else [1], dtype)
            of_log_prob = gradient(
                lambda v: loss_of_log_prob(v, target, weight, reduction, ignored, smoothing).reshape(grad.shape),
                log_prob, grad)
            expected = torch._log_softmax_backward_data(of_log_prob, high(log_prob), 1, torch.float64)
            yield Case({"gradLoss": grad, "logProb": log_prob, "target": target, "weightOptional": weight,
                        "gradZlossOptional": None, "lseForZlossOptional": None, "reductionOptional": text,
                        "ignoreIndex": ignored, "labelSmoothing": smoothing, "lseSquareScaleForZloss": 0.0},
                       {"out": Ref(expected, dtype)})


@cases("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy_with_logits(op, g):
    for dtype in g.floating:
        for shape in ([6, 5], [1, 7], [9, 2100], [2, 3, 4], [0, 4]):
            features, labels = 2 * g.tensor(shape, dtype), torch.softmax(high(g.tensor(shape, dtype)), -1).to(dtype)
            loss = -(high(labels) * torch.log_softmax(high(features), -1)).sum(-1)
            yield Case({"features": features, "labels": labels},
                       {"loss": Ref(loss, dtype),
                        "backprop": Ref(torch.softmax(high(features), -1) - high(labels), dtype)})
