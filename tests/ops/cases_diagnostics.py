# SPDX-License-Identifier: Apache-2.0
"""Watch over values, pauses."""

import math

import torch

from harness import Case, cases

LIMITS = {"cMinSteps": 2, "cThreshL1": 1000.0, "cCoeffL1": 10.0, "cThreshL2": 100.0, "cCoeffL2": 3.0}


def verdict(value, history, step, limits):
    before, least, most = history

    def exceeds(level):
        jumps = step > 0 and step >= limits["cMinSteps"]
        return (abs(value) > limits[f"cThresh{level}"]
                or (jumps and abs(value - before) > limits[f"cCoeff{level}"] * (most - least)))
    if not math.isfinite(value) or exceeds("L1"):
        return 2
    return 1 if exceeds("L2") else 0


@cases("SilentCheck")
def silent_check(op, g):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for value in (1.0, 1.5, 5.0, 60.0, 300.0, 2000.0, float("nan"), float("inf")):
            for step in (0, 2) if dtype != torch.float32 else (0, 1, 2, 7):
                for detect in (1, 2):
                    history = [1.0, 0.5, 2.0]
                    result = verdict(value, history, step, LIMITS)
                    after, count = list(history), step
                    if result < 2 or detect == 1:
                        count += 1
                        if math.isfinite(value):
                            after = ([value, min(history[1], value), max(history[2], value)] if step
                                     else [value, value, value])
                    gradient = g.tensor([2, 3], dtype)
                    yield Case({"val": torch.tensor(value, dtype=dtype), "inputGradRef": gradient,
                                "sfdaRef": torch.tensor(history), "stepRef": torch.tensor([step]),
                                "npuAsdDetect": detect, **LIMITS},
                               {"inputGradRef": gradient, "sfdaRef": torch.tensor(after),
                                "stepRef": torch.tensor([count]), "result": torch.tensor([result], dtype=torch.int32)})


@cases("SilentCheckV2")
def silent_check_by_average(op, g):
    limits = {"cThreshL1": 100.0, "cThreshL2": 10.0, "beta1": 0.9}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for value in (1.0, 30.0, 500.0, float("nan"), float("inf")):
            for step, average in ((0, 1.0), (1, 0.1), (5, 2.0)):
                for detect in (1, 2) if dtype == torch.float32 else (1,):
                    expected = average / (1 - 0.9 ** step) if step else average
                    result = (2 if not math.isfinite(value) or value > expected * 100 else
                              1 if value > expected * 10 else 0)
                    goes_on = result < 2 or detect == 1
                    after = 0.9 * average + 0.1 * value if goes_on and math.isfinite(value) else average
                    gradient = g.tensor([2, 3], dtype)
                    seen = torch.zeros_like(gradient) if result == 2 and step == 0 and detect != 1 else gradient
                    yield Case({"val": torch.tensor(value, dtype=dtype), "avgRef": torch.tensor([average]),
                                "max": None if step == 1 else torch.ones([], dtype=dtype), "inputGradRef": gradient,
                                "stepRef": torch.tensor([step]), "npuAsdDetect": detect, "dstSize": [2, 3],
                                "dstStride": [3, 1], "dstOffset": [0], **limits},
                               {"avgRef": torch.tensor([after]), "inputGradRef": seen,
                                "stepRef": torch.tensor([step + goes_on]),
                                "result": torch.tensor([result], dtype=torch.int32)})


@cases("Sleep")
def sleep(op, g):
    for cycles in ([1000], [], [5, 70000]):
        yield Case({"cycles": cycles}, {})
