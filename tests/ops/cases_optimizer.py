# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers."""

import torch

from harness import Case, Ref, cases, high


def adamw(var, m, v, largest, grad, step, rate, beta1, beta2, decay, eps, maximize):
    """A step as torch.optim.AdamW takes it, in float64."""
    parameter = torch.nn.Parameter(high(var).clone())
    optimizer = torch.optim.AdamW([parameter], lr=rate, betas=(beta1, beta2), weight_decay=decay, eps=eps,
                                  amsgrad=largest is not None, maximize=maximize, foreach=False)
    state = {"step": torch.tensor(float(step - 1)), "exp_avg": high(m).clone(), "exp_avg_sq": high(v).clone()}
    if largest is not None:
        state["max_exp_avg_sq"] = high(largest).clone()
    optimizer.state[parameter] = state
    parameter.grad = high(grad).clone()
    optimizer.step()
    return [parameter.detach(), state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq")]


@cases("ApplyAdamWV2")
def apply_adamw(op, g):
    for dtype in g.floating:
        for shape in ([], [7], [5, 33], [2, 3, 65], [0, 3], [3000]):
            for amsgrad, maximize, given in ((False, False, False), (True, False, True), (True, True, True), (False, True, True)):
                var, m, grad = (g.tensor(shape, dtype) for _ in range(3))
                v, largest = (g.tensor(shape, dtype, "positive") for _ in range(2))
                step = 1 + len(shape) * 3
                numbers = (1e-2, 0.9, 0.99, 0.05, 1e-6)
                numbers = tuple(float(torch.tensor(number, dtype=torch.float32)) for number in numbers)
                after = adamw(var, m, v, largest if amsgrad else None, grad, step, *numbers, maximize)
                expected = [Ref(tensor, dtype) for tensor in after[:3]]
                expected.append(Ref(after[3], dtype) if amsgrad else largest if given else None)
                args = dict(zip(("lr", "beta1", "beta2", "weightDecay", "eps"), numbers))
                args.update(varRef=var, mRef=m, vRef=v, maxGradNormOptionalRef=largest if given else None, grad=grad,
                            amsgrad=amsgrad, maximize=maximize,
                            step=torch.tensor([step], dtype=torch.int64 if amsgrad else torch.float32))
                yield Case(args, dict(zip(("varRef", "mRef", "vRef", "maxGradNormOptionalRef"), expected)))
    # Statistics in float32 beside weights of 16 bits.
    var, grad = g.tensor([130], torch.bfloat16), g.tensor([130], torch.bfloat16)
    m, v = g.tensor([130], torch.float32), g.tensor([130], torch.float32, "positive")
    after = adamw(var, m, v, None, grad, 3, 0.0625, 0.5, 0.75, 0.125, 0.0, False)
    yield Case({"varRef": var, "mRef": m, "vRef": v, "maxGradNormOptionalRef": None, "grad": grad,
                "step": torch.tensor(3.0), "lr": 0.0625, "beta1": 0.5, "beta2": 0.75, "weightDecay": 0.125, "eps": 0.0,
                "amsgrad": False, "maximize": False},
               {"varRef": Ref(after[0], torch.bfloat16), "mRef": Ref(after[1], torch.float32),
                "vRef": Ref(after[2], torch.float32), "maxGradNormOptionalRef": None})
