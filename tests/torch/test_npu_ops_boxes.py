# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: boxes in images; npu_ops.py says how cases are run."""
import math

import pytest
import torch
import torch_npu
from npu_ops import F32, HALF, Call, Cases, npu
from test_npu_ops_gradients import backward, box_formula, boxes_of

case = Cases()


def corners(g, count):
    """[boxes, 4]"""
    first = g(count, 2, dtype=F32).abs() * 10
    return torch.cat([first, first + g(count, 2, dtype=F32).abs() * 8 + 1], 1)


def shared(a, b):
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    return (high - low).clamp(0).prod(-1)


def area(a):
    return (a[..., 2:] - a[..., :2]).prod(-1)


@case(F32)
def iou(g):
    a, b = corners(g, 5), corners(g, 3)

    def op(a, b):
        return torch_npu.npu_iou(a, b), torch_npu.npu_ptiou(a, b, 1)

    inter = shared(a.unsqueeze(0), b.unsqueeze(1))
    return Call(op, (a, b), want=(inter / (area(a) + area(b)[:, None] - inter), inter / area(b)[:, None]))


@case(F32)
def pairs(g):
    a, b = boxes_of(g(4, 9)), boxes_of(g(4, 9))

    def op(a, b):
        return (
            torch_npu.npu_giou(a, b, True),
            torch_npu.npu_diou(a, b, True),
            torch_npu.npu_ciou(a, b, True, False),
            *torch_npu._npu_ciou(a, b, True, False, 0, True),
        )

    ciou = box_formula("ciou")(a, b)
    apart = torch.atan(b[2] / b[3]) - torch.atan(a[2] / a[3])
    want = (box_formula("giou")(a, b), box_formula("diou")(a, b), ciou, ciou, apart.unsqueeze(0))
    return Call(op, (a, b), want=want)


@case(F32)
def pair_gradients(g):
    a, b, grad = boxes_of(g(4, 9)), boxes_of(g(4, 9)), g(9)

    def op(a, b, grad):
        return (
            *torch_npu.npu_giou_backward(grad.unsqueeze(1), a, b, True),
            *torch_npu.npu_diou_backward(grad.unsqueeze(0), a, b, True),
            *torch_npu.npu_ciou_backward(grad.unsqueeze(0), a, b, None, True, False),
        )

    want = backward(box_formula("giou"), grad.unsqueeze(1), a, b)
    for kind in ("diou", "ciou"):
        want += backward(box_formula(kind), grad.unsqueeze(0), a, b)
    return Call(op, (a, b, grad), want=want, bounds=HALF)


@case(F32)
def encoded_and_back(g):
    anchors, boxes = corners(g, 6), corners(g, 6)
    means, stds = (0.1, 0, 0.2, 0), (0.5, 0.5, 0.25, 1.0)

    def op(anchors, boxes):
        deltas = torch_npu.npu_bounding_box_encode(anchors, boxes, *means, *stds)
        return deltas, torch_npu.npu_bounding_box_decode(anchors, deltas, *means, *stds, (900, 1000), 16 / 1000)

    size, own = (t[:, 2:] - t[:, :2] + 1 for t in (anchors, boxes))
    shift = ((boxes[:, :2] + boxes[:, 2:]) / 2 - (anchors[:, :2] + anchors[:, 2:]) / 2) / size
    deltas = (torch.cat([shift, (own / size).log()], 1) - torch.tensor(means)) / torch.tensor(stds)
    return Call(op, (anchors, boxes), want=(deltas, boxes), bounds=HALF)


@case(F32)
def decoded_within(g):
    """Growth and corners have bounds."""
    boxes, deltas = torch.tensor([[0.0, 0, 9, 9]]), torch.tensor([[0.0, 0, 99, -99]])
    args = (boxes, deltas, 0, 0, 0, 0, 1, 1, 1, 1, (50, 60), 0.5)
    return Call(npu("npu_bounding_box_decode"), args, want=torch.tensor([[0.0, 2.5, 14.0, 6.5]]))


@case(F32)
def yolo(g):
    anchors, boxes, stride = corners(g, 6), corners(g, 6), torch.full([6], 8, dtype=torch.int32)
    centres = [(t[:, :2] + t[:, 2:]) / 2 for t in (anchors, boxes)]
    shift = ((centres[1] - centres[0]) / 8 + 0.5).clamp(1e-6, 1 - 1e-6)
    growth = ((boxes[:, 2:] - boxes[:, :2]) / (anchors[:, 2:] - anchors[:, :2])).log()
    return Call(npu("npu_yolo_boxes_encode"), (anchors, boxes, stride), want=torch.cat([shift, growth], 1))


@case(F32)
def response(g):
    boxes = corners(g, 4)
    marks = torch.zeros(10, 12, dtype=torch.uint8)
    for x1, y1, x2, y2 in boxes.tolist():
        row, column = math.floor((y1 + y2) / 8), math.floor((x1 + x2) / 8)
        if row < 10 and column < 12:
            marks[row, column] = 1
    want = marks.view(-1, 1).expand(-1, 3).reshape(-1)
    return Call(npu("npu_anchor_response_flags"), (boxes, [10, 12], [4, 4], 3), want=want)


def kept(boxes, order, limit):
    chosen = []
    for i in order:
        own = boxes[i]
        parts = [(shared(own, boxes[j]), area(own) + area(boxes[j])) for j in chosen]
        if all(inter <= limit * (both - inter) for inter, both in parts):
            chosen.append(i)
    return chosen


@case(F32)
def nms(g):
    boxes, scores = corners(g, 12), g(12).sigmoid()
    order = [i for i in scores.argsort(descending=True).tolist() if scores[i] > 0.4]
    chosen = kept(boxes, order, 0.3)[:8]
    want = torch.zeros(8, dtype=torch.int32)
    want[: len(chosen)] = torch.tensor(chosen, dtype=torch.int32)
    args = (boxes, scores, 8, torch.tensor(0.3), torch.tensor(0.4))
    return Call(npu("npu_nms_v4"), args, want=(want, torch.tensor(len(chosen), dtype=torch.int32)))


@case(F32)
def nms_mask(g):
    boxes = torch.cat([corners(g, 9), g(9, 1)], 1)
    mask = torch.zeros(9, dtype=torch.uint8)
    mask[kept(boxes[:, :4], range(9), 0.25)] = 1
    want = (boxes, torch.arange(9, dtype=torch.int32), mask)
    return Call(npu("npu_nms_with_mask"), (boxes, 0.25), want=want)


def align(x, rois, scale, bins, count):
    """Samples one by one."""
    out = torch.zeros(rois.size(0), x.size(1), bins, bins)
    rows, columns = x.shape[2:]

    def sample(image, v, u):
        if v < -1 or v > rows or u < -1 or u > columns:
            return torch.zeros(x.size(1))
        v, u = min(max(v, 0), rows - 1), min(max(u, 0), columns - 1)
        top, left = math.floor(v), math.floor(u)
        low, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
        a, b = v - top, u - left
        above = (1 - b) * image[:, top, left] + b * image[:, top, right]
        return (1 - a) * above + a * ((1 - b) * image[:, low, left] + b * image[:, low, right])

    for number, (index, x1, y1, x2, y2) in enumerate(rois.tolist()):
        width, height = (max((b - a) * scale, 1) / bins / count for a, b in ((x1, x2), (y1, y2)))
        for i in range(bins):
            for j in range(bins):
                out[number, :, i, j] = sum(
                    sample(
                        x[int(index)],
                        y1 * scale + (i * count + p + 0.5) * height,
                        x1 * scale + (j * count + q + 0.5) * width,
                    )
                    for p in range(count) for q in range(count)
                ) / count**2  # fmt: skip
    return out


@case(F32)
def roi(g):
    x, grad = g(2, 3, 6, 7), g(2, 3, 2, 2)
    rois = torch.tensor([[0.0, -2, -2, 22, 22], [1, 3, 4, 17, 11]])

    def op(x, rois, grad):
        return (
            torch_npu.npu_roi_align(x, rois, 0.25, 2, 2, 2, 0),
            torch_npu.npu_roi_alignbk(grad, rois, x.shape, 2, 2, 0.25, 2),
        )

    want = (align(x, rois, 0.25, 2, 2), *backward(lambda x: align(x, rois, 0.25, 2, 2), grad, x))
    return Call(op, (x, rois, grad), want=want)


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


def test_gradient_of_roi_align():
    x = torch.randn(1, 2, 5, 5, device="npu", requires_grad=True)
    rois = torch.tensor([[0.0, 0, 0, 12, 12]], device="npu")
    torch_npu.npu_roi_align(x, rois, 0.25, 2, 2, 2, 0).sum().backward()
    torch.testing.assert_close(x.grad.sum().cpu(), torch.tensor(8.0))


def test_wrong_boxes():
    box, pair = torch.ones(3, 4, device="npu"), torch.ones(4, 3, device="npu")
    wrong = [
        (lambda: torch_npu.npu_iou(box, pair), "gtboxes has shape"),
        (lambda: torch_npu.npu_iou(box, box, 2), "mode is 2"),
        (lambda: torch_npu.npu_giou(pair, pair, False, True), "is_cross is True"),
        (lambda: torch_npu.npu_ciou(box, pair, True, False), "expected \\[4, boxes\\]"),
        (lambda: torch_npu.npu_nms_v4(box, box[:, 0], 0, box[0, 0], box[0, 0]), "max_output_size is 0"),
        (lambda: torch_npu.npu_roi_align(torch.ones(1, 1, 4, 4, device="npu"), box, 1.0, 2, 2, 2, 0), "rois has shape"),
    ]
    for call, text in wrong:
        with pytest.raises((RuntimeError, NotImplementedError), match=text):
            call()
