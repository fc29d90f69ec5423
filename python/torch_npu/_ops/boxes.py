# SPDX-License-Identifier: Apache-2.0
"""Boxes in images: how far they overlap, how they are encoded, which ones are kept, and what lies in them."""
import math

import torch
from torch_npu._errors import refused
from torch_npu._ops.checks import check, check_same
from torch_npu._ops.registry import composite, declare, derivative, host_kernel, meta

ops = torch.ops.npu

# ---- Overlaps ----


class _Dual:
    """A number for each pair of boxes, and its derivatives with respect to the eight coordinates, [8, pairs]."""

    def __init__(self, value, slope):
        self.value, self.slope = value, slope

    def __add__(self, other):
        value, slope = _parts(other)
        return _Dual(self.value + value, self.slope + slope)

    def __sub__(self, other):
        value, slope = _parts(other)
        return _Dual(self.value - value, self.slope - slope)

    def __mul__(self, other):
        value, slope = _parts(other)
        return _Dual(self.value * value, self.slope * value + slope * self.value)

    def __truediv__(self, other):
        value, slope = _parts(other)
        return _Dual(self.value / value, (self.slope * value - slope * self.value) / (value * value))


def _parts(number):
    return (number.value, number.slope) if isinstance(number, _Dual) else (number, 0)


def _chosen(first, second, function):
    """The least or the greatest; where both are equal each counts half."""
    if not isinstance(first, _Dual):
        return function(first, second)
    value = function(first.value, second.value)
    share = ((first.value == value).float() + 1 - (second.value == value).float()) / 2
    return _Dual(value, first.slope * share + second.slope * (1 - share))


def _least(first, second):
    return _chosen(first, second, torch.minimum)


def _most(first, second):
    return _chosen(first, second, torch.maximum)


def _positive(number):
    if isinstance(number, _Dual):
        return _Dual(number.value.clamp(min=0), number.slope * (number.value >= 0))
    return number.clamp(min=0)


def _atan(number):
    if isinstance(number, _Dual):
        return _Dual(number.value.atan(), number.slope / (1 + number.value.square()))
    return number.atan()


def _corners(box, trans):
    """x1, y1, x2, y2; ``trans``: boxes are given by centre and size."""
    a, b, c, d = box
    if trans:
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return a, b, c, d


def _area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def _overlap(first, second, mode, epsilon):
    """What both share, over the union or over the second box, and the union."""
    inter = _positive(_least(first[2], second[2]) - _most(first[0], second[0])) * _positive(
        _least(first[3], second[3]) - _most(first[1], second[1])
    )
    union = _area(first) + _area(second) - inter + epsilon
    return inter / (union if mode == 0 else _area(second) + epsilon), union


def _hull(first, second):
    """Width and height of the smallest box around both."""
    width = _most(first[2], second[2]) - _least(first[0], second[0])
    return width, _most(first[3], second[3]) - _least(first[1], second[1])


_EPSILON = 1e-10


def _giou(first, second, mode):
    overlap, union = _overlap(first, second, mode, _EPSILON)
    width, height = _hull(first, second)
    whole = width * height + _EPSILON
    return overlap - (whole - union) / whole


def _diou(first, second, mode):
    overlap, _ = _overlap(first, second, mode, _EPSILON)
    width, height = _hull(first, second)
    across = first[0] + first[2] - second[0] - second[2]
    down = first[1] + first[3] - second[1] - second[3]
    return overlap - (across * across + down * down) / ((width * width + height * height + _EPSILON) * 4)


def _angles(first, second):
    angles = [_atan((box[2] - box[0]) / (box[3] - box[1])) for box in (first, second)]
    return angles[1] - angles[0]


def _ciou(first, second, mode):
    apart = _angles(first, second)
    v = apart * apart * (4 / math.pi**2)
    overlap, _ = _overlap(first, second, mode, _EPSILON)
    # How much it counts is no part of the gradient.
    measure = _parts(v)[0]
    return _diou(first, second, mode) - v * (measure / (1 + _EPSILON - _parts(overlap)[0] + measure))


def _check_pairs(name, bboxes, gtboxes, is_cross, mode):
    check(mode in (0, 1), name, f"mode is {mode}, expected 0 (over the union) or 1 (over gtboxes)")
    if is_cross:
        raise refused(NotImplementedError(f"{name}: is_cross is True, which is not supported yet; pass pairs of boxes"))
    check(
        bboxes.dim() == 2 and bboxes.size(0) == 4 and bboxes.shape == gtboxes.shape,
        name,
        f"the boxes have shapes {list(bboxes.shape)} and {list(gtboxes.shape)}, expected [4, boxes] of both",
    )


def _pairs(bboxes, gtboxes, trans):
    return _corners(bboxes.float().unbind(0), trans), _corners(gtboxes.float().unbind(0), trans)


def _backward(name, formula, grad, bboxes, gtboxes, trans, is_cross, mode):
    _check_pairs(name, bboxes, gtboxes, is_cross, mode)
    values = [*bboxes.float().unbind(0), *gtboxes.float().unbind(0)]
    slopes = torch.eye(8, device=bboxes.device).unsqueeze(-1)
    duals = [_Dual(value, slope.expand(8, value.size(0))) for value, slope in zip(values, slopes.unbind(0))]

    def halved(box):
        a, b, c, d = box
        return (a, b, c * 0.5, d * 0.5) if trans else box

    def corners(box):
        a, b, c, d = halved(box)
        return (a - c, b - d, a + c, b + d) if trans else box

    slope = formula(corners(duals[:4]), corners(duals[4:]), mode).slope * grad.float().reshape(1, -1)
    return slope[:4].to(bboxes.dtype), slope[4:].to(gtboxes.dtype)


@composite("npu_iou", "npu_ptiou")
def _(bboxes, gtboxes, mode=0):
    name = "npu_iou"
    check(mode in (0, 1), name, f"mode is {mode}, expected 0 (over the union) or 1 (over gtboxes)")
    for argument, boxes in (("bboxes", bboxes), ("gtboxes", gtboxes)):
        check(
            boxes.dim() == 2 and boxes.size(1) == 4,
            name,
            f"{argument} has shape {list(boxes.shape)}, expected [boxes, 4]",
        )
    first, second = bboxes.float().unbind(1), [part.unsqueeze(1) for part in gtboxes.float().unbind(1)]
    return _overlap(first, second, mode, 1e-7)[0].to(bboxes.dtype)


def _register_pairs(name, formula, dim):
    """``name`` and its gradients; results stand along the other one of two dims than ``dim``."""

    @composite(name)
    def _(input, gtboxes, trans=False, is_cross=False, mode=0):
        _check_pairs(name, input, gtboxes, is_cross, mode)
        return formula(*_pairs(input, gtboxes, trans), mode).unsqueeze(dim).to(input.dtype)

    @composite(f"{name}_backward")
    def _(grad, bboxes, gtboxes, trans=False, is_cross=False, mode=0):
        return _backward(f"{name}_backward", formula, grad, bboxes, gtboxes, trans, is_cross, mode)

    derivative(name, f"{name}_backward", "grad input gtboxes trans is_cross mode", "input gtboxes")


_register_pairs("npu_giou", _giou, 1)
_register_pairs("npu_diou", _diou, 0)


@composite("_npu_ciou")
def _(input, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False):
    _check_pairs("npu_ciou", input, gtboxes, is_cross, mode)
    pairs = _pairs(input, gtboxes, trans)
    apart = _angles(*pairs).unsqueeze(0) if atan_sub_flag else input.new_empty([0])
    return _ciou(*pairs, mode).unsqueeze(0).to(input.dtype), apart.to(input.dtype)


@composite("npu_ciou", differentiable=True)
def _(input, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False):
    return ops._npu_ciou(input, gtboxes, trans, is_cross, mode, True)[0]


@composite("npu_ciou_backward")
def _(grad, bboxes, gtboxes, atan_sub, trans=False, is_cross=True, mode=0):
    return _backward("npu_ciou_backward", _ciou, grad, bboxes, gtboxes, trans, is_cross, mode)


derivative("_npu_ciou", "npu_ciou_backward", "grad input gtboxes @1 trans is_cross mode", "input gtboxes")

# ---- Encodings ----


def _row(values, like):
    return torch.stack([torch.full([], value, dtype=torch.float32, device=like.device) for value in values])


def _four(name, **boxes):
    for argument, tensor in boxes.items():
        check(
            tensor.dim() == 2 and tensor.size(1) == 4,
            name,
            f"{argument} has shape {list(tensor.shape)}, expected [boxes, 4]",
        )


@composite("npu_bounding_box_encode")
def _(anchor_box, ground_truth_box, means0, means1, means2, means3, stds0, stds1, stds2, stds3):
    name = "npu_bounding_box_encode"
    _four(name, anchor_box=anchor_box, ground_truth_box=ground_truth_box)
    check_same(name, anchor_box=anchor_box, ground_truth_box=ground_truth_box)
    anchor, truth = anchor_box.float(), ground_truth_box.float()
    epsilon = 1e-7
    size = anchor[:, 2:] - anchor[:, :2] + 1 + epsilon
    shift = (truth[:, :2] + truth[:, 2:] - anchor[:, :2] - anchor[:, 2:]) / 2 / size
    growth = ((truth[:, 2:] - truth[:, :2] + 1).abs() / size.abs()).log()
    deltas = torch.cat([shift, growth], 1)
    means, stds = (means0, means1, means2, means3), (stds0, stds1, stds2, stds3)
    return ((deltas - _row(means, deltas)) / _row(stds, deltas)).to(anchor_box.dtype)


@composite("npu_bounding_box_decode")
def _(
    rois, deltas, means0, means1, means2, means3, stds0, stds1, stds2, stds3, max_shape, wh_ratio_clip
):  # fmt: skip
    name = "npu_bounding_box_decode"
    _four(name, rois=rois, deltas=deltas)
    check_same(name, rois=rois, deltas=deltas)
    check(wh_ratio_clip > 0, name, f"wh_ratio_clip is {wh_ratio_clip}, expected a value above 0")
    check(len(max_shape) == 2, name, f"max_shape is {list(max_shape)}, expected height and width")
    means, stds = (means0, means1, means2, means3), (stds0, stds1, stds2, stds3)
    given = deltas.float() * _row(stds, deltas) + _row(means, deltas)
    limit = abs(math.log(wh_ratio_clip))
    boxes = rois.float()
    size = boxes[:, 2:] - boxes[:, :2] + 1
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2 + size * given[:, :2]
    half = size * given[:, 2:].clamp(-limit, limit).exp() / 2 - 0.5
    result = torch.cat([centre - half, centre + half], 1)
    most = _row([max_shape[1] - 1, max_shape[0] - 1] * 2, result)
    return torch.minimum(result.clamp(min=0), most).to(rois.dtype)


@composite("npu_yolo_boxes_encode")
def _(input, gt_bboxes, stride, performance_mode=False):
    name = "npu_yolo_boxes_encode"
    _four(name, input=input, gt_bboxes=gt_bboxes)
    check_same(name, input=input, gt_bboxes=gt_bboxes)
    check(stride.shape == input.shape[:1], name, f"stride has shape {list(stride.shape)}, expected [{input.size(0)}]")
    anchor, truth = input.float(), gt_bboxes.float()
    epsilon = 1e-6
    size = anchor[:, 2:] - anchor[:, :2]
    apart = (truth[:, :2] + truth[:, 2:] - anchor[:, :2] - anchor[:, 2:]) / 2
    shift = (apart / stride.float().unsqueeze(1) + 0.5).clamp(epsilon, 1 - epsilon)
    growth = ((truth[:, 2:] - truth[:, :2]) / size.clamp(min=epsilon)).clamp(min=epsilon).log()
    return torch.cat([shift, growth], 1).to(input.dtype)


@composite("npu_anchor_response_flags")
def _(input, featmap_size, stride, num_base_anchors):
    name = "npu_anchor_response_flags"
    _four(name, input=input)
    height, width = featmap_size
    check(min(height, width, *stride, num_base_anchors) > 0, name, "sizes are above 0")
    boxes = input.float()
    column = ((boxes[:, 0] + boxes[:, 2]) / 2 / stride[0]).floor().to(torch.int64)
    row = ((boxes[:, 1] + boxes[:, 3]) / 2 / stride[1]).floor().to(torch.int64)
    place = row * width + column
    # A box whose centre is outside marks a place behind the others.
    place = torch.where((place >= 0) & (place < height * width), place, torch.full_like(place, height * width))
    marks = torch.zeros(height * width + 1, dtype=torch.uint8, device=input.device)
    marks = marks.scatter(0, place, torch.ones_like(place, dtype=torch.uint8))[:-1]
    return marks.unsqueeze(1).expand(-1, num_base_anchors).reshape(-1)


# ---- Which boxes are kept ----

declare(
    "_keep_boxes(Tensor boxes, Tensor scores, Tensor iou_threshold, Tensor? scores_threshold, float epsilon) "
    "-> (Tensor, Tensor)"
)
host_kernel("_keep_boxes")


@meta("_keep_boxes")
def _(boxes, scores, iou_threshold, scores_threshold, epsilon):
    count = boxes.size(0)
    return boxes.new_empty([count], dtype=torch.int32), boxes.new_empty([count], dtype=torch.uint8)


@composite("npu_nms_with_mask")
def _(input, iou_threshold):
    name = "npu_nms_with_mask"
    check(
        input.dim() == 2 and input.size(1) in (5, 8),
        name,
        f"input has shape {list(input.shape)}, expected [boxes, 5] or [boxes, 8]: corners and scores",
    )
    threshold = torch.full([], float(iou_threshold), dtype=torch.float32, device=input.device)
    # In the order in which they are given.
    scores = torch.arange(input.size(0), 0, -1, device=input.device).float()
    _, kept = ops._keep_boxes(input[:, :4].float().contiguous(), scores, threshold, None, 0.0)
    index = torch.arange(input.size(0), dtype=torch.int32, device=input.device)
    return input[:, :5].clone(memory_format=torch.contiguous_format), index, kept


@composite("npu_nms_v4")
def _(input, scores, max_output_size, iou_threshold, scores_threshold, pad_to_max_output_size=False):
    name = "npu_nms_v4"
    _four(name, input=input)
    check(scores.shape == input.shape[:1], name, f"scores has shape {list(scores.shape)}, expected [{input.size(0)}]")
    most = int(max_output_size)
    check(most > 0, name, f"max_output_size is {most}, expected a value above 0")
    order, kept = ops._keep_boxes(
        input.float().contiguous(), scores.float().contiguous(), iou_threshold.float(), scores_threshold.float(), 0.0
    )
    # Those that are kept first, by descending score: so many places, zeros behind the last one.
    first = (kept == 0).to(torch.int32).argsort(stable=True)[:most]
    chosen = order[first].masked_fill(kept[first] == 0, 0)
    if chosen.size(0) < most:
        chosen = torch.nn.functional.pad(chosen, (0, most - chosen.size(0)))
    return chosen, kept.sum(dtype=torch.int32).clamp(max=most)
