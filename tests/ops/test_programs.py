# SPDX-License-Identifier: Apache-2.0
"""Random programs of operators: eager and captured work leave the same bits in every tensor."""

import random

import pytest
import torch

import aclnn
from harness import same

SHAPE = [6, 16]
TENSORS = 8

# Operators over tensors of one shape: name -> values of the parameters that are no tensors.
STEPS = {
    "Add": {"alpha": 1}, "Sub": {"alpha": 0.5}, "Mul": {}, "Maximum": {}, "Minimum": {}, "Adds": {"other": 0.25, "alpha": 1},
    "Muls": {"other": 0.75}, "InplaceAdd": {"alpha": 0.5}, "InplaceMul": {}, "InplaceMuls": {"other": 0.5}, "Relu": {},
    "InplaceRelu": {}, "Sigmoid": {}, "Silu": {}, "Tanh": {}, "GeluV2": {"approximate": 0}, "Sin": {}, "Cos": {}, "Erf": {},
    "Abs": {}, "Neg": {}, "Softmax": {"dim": -1}, "LogSoftmax": {"dim": 0}, "Cumsum": {"dim": 1, "dtype": torch.float32},
    "Clamp": {"clipValueMin": -1.0, "clipValueMax": 1.0}, "Lerps": {"weight": 0.3}, "Addcmul": {"value": 0.1},
    "Tril": {"diagonal": 1}, "Triu": {"diagonal": -2}, "Flip": {"dims": [1]}, "Roll": {"shifts": [3], "dims": [1]},
    "InplaceCopy": {}, "InplaceFillScalar": {"value": 0.125}, "InplaceZero": {}, "Hardswish": {}, "Elu": {
        "alpha": 1.0, "scale": 1.0, "inputScale": 1.0}, "LeakyRelu": {"negativeSlope": 0.1}, "Atan": {}, "Sign": {},
    "Floor": {}, "Round": {}, "Exp2": {},
}


def program(seed):
    """A list of (operator, values, positions of its tensors)."""
    source = random.Random(seed)
    known = [name for name in STEPS if name in aclnn.TABLE]
    steps = []
    for _ in range(source.randrange(5, 60)):
        name = source.choice(known)
        op = aclnn.TABLE[name]
        tensors = [parameter for c_type, parameter in op.parameters if c_type.endswith("aclTensor*")]
        steps.append((op, STEPS[name], dict(zip(tensors, source.sample(range(TENSORS), len(tensors))))))
    return steps


def submit(steps, tensors):
    objects = aclnn.Objects()
    for op, values, positions in steps:
        given = {**values, **{name: tensors[position] for name, position in positions.items()}}
        packed = aclnn.pack(op, given, objects)
        objects.owned = [(kind, handle) for kind, handle in objects.owned if kind != "Tensor"]  # used again
        aclnn.run(op, packed)
    objects.destroy()


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    aclnn.device().reset()
    generator = torch.Generator().manual_seed(seed)
    steps = program(seed)
    layouts = aclnn.layout_source(seed) if seed % 2 else None
    tensors = [aclnn.Placed(SHAPE, torch.float32, layouts) for _ in range(TENSORS)]
    start = [torch.randn(SHAPE, generator=generator) for _ in range(TENSORS)]

    def reset():
        for tensor, value in zip(tensors, start):
            tensor.write(value)

    with aclnn.Capture() as graph:
        submit(steps, tensors)
    reset()
    submit(steps, tensors)
    aclnn.device().synchronize()
    eager = [tensor.read() for tensor in tensors]
    for _ in range(5):  # the plan is laid out again after the first replays
        reset()
        graph.replay()
        for number, (tensor, expected) in enumerate(zip(tensors, eager)):
            assert same(tensor.read(), expected).all(), f"seed {seed}: tensor {number} differs"
            assert tensor.gaps_are_intact()
    graph.destroy()
