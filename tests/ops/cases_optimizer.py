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


def number(value, dtype=torch.float32):
    return torch.tensor([value], dtype=dtype)


@cases("ApplyAdam")
def apply_adam(op, g):
    for dtype in g.floating:
        for shape in ([], [7], [5, 33], [0, 3], [1100]):
            for nesterov in (False, True):
                var, m, grad = (g.tensor(shape, dtype) for _ in range(3))
                v = g.tensor(shape, dtype, "positive")
                power1, power2, rate, beta1, beta2, eps = 0.5, 0.75, 0.0625, 0.75, 0.875, 2**-10
                after_m = high(m) + (high(grad) - high(m)) * (1 - beta1)
                after_v = high(v) + (high(grad).square() - high(v)) * (1 - beta2)
                n = after_m * beta1 + (1 - beta1) * high(grad) if nesterov else after_m
                after = high(var) - rate * (1 - power2)**0.5 / (1 - power1) * n / (after_v.sqrt() + eps)
                yield Case({"varRef": var, "m": m, "v": v, "beta1Power": number(power1), "beta2Power": number(power2),
                            "lr": number(rate), "beta1": number(beta1), "beta2": number(beta2), "epsilon": number(eps),
                            "grad": grad, "useLocking": False, "useNesterov": nesterov},
                           {"varRef": Ref(after, dtype), "m": Ref(after_m, dtype), "v": Ref(after_v, dtype)})


@cases("ApplyAdamW")
def apply_adamw_of_tensors(op, g):
    for dtype in g.floating:
        for shape in ([], [7], [5, 33], [0, 3], [1100]):
            for amsgrad, maximize in ((False, False), (True, True), (False, True)):
                var, m, grad = (g.tensor(shape, dtype) for _ in range(3))
                v, largest = (g.tensor(shape, dtype, "positive") for _ in range(2))
                rate, beta1, beta2, decay, eps = 0.0625, 0.5, 0.75, 0.125, 2**-10
                after = adamw(var, m, v, largest if amsgrad else None, grad, 3, rate, beta1, beta2, decay, eps, maximize)
                yield Case({"varRef": var, "mRef": m, "vRef": v, "beta1Power": number(beta1**2, dtype),
                            "beta2Power": number(beta2**2, dtype), "lr": number(rate, dtype),
                            "weightDecay": number(decay, dtype), "beta1": number(beta1, dtype),
                            "beta2": number(beta2, dtype), "eps": number(eps, dtype), "grad": grad,
                            "maxGradNormOptional": largest if amsgrad else None, "amsgrad": amsgrad,
                            "maximize": maximize},
                           dict(zip(("varRef", "mRef", "vRef"), (Ref(t, dtype) for t in after[:3]))))


SHAPES = ([7], [5, 33], [], [0, 3], [600])


def stepped(optimizer, parameters, grads, states):
    for parameter, grad, state in zip(parameters, grads, states):
        optimizer.state[parameter] = state
        parameter.grad = grad
    optimizer.step()
    return [parameter.detach() for parameter in parameters]


@cases("FusedAdam")
def fused_adam(op, g):
    for dtype in g.floating:
        for amsgrad, maximize, scale, found in ((False, False, None, None), (True, True, 4.0, 0.0), (True, False, 2.0, 1.0)):
            var, m, grad = ([g.tensor(shape, dtype) for shape in SHAPES] for _ in range(3))
            v, largest = ([g.tensor(shape, dtype, "positive") for shape in SHAPES] for _ in range(2))
            numbers = {"lr": 0.0625, "weight_decay": 0.125, "eps": 2**-10}
            steps = [2.0 + i for i in range(len(SHAPES))]
            parameters = [torch.nn.Parameter(high(t).clone()) for t in var]
            optimizer = torch.optim.Adam(parameters, betas=(0.5, 0.75), amsgrad=amsgrad, maximize=maximize, foreach=False,
                                         **numbers)
            plain = [high(t) / (scale or 1) for t in grad]
            states = [{"step": torch.tensor(s), "exp_avg": high(a).clone(), "exp_avg_sq": high(b).clone(),
                       **({"max_exp_avg_sq": high(c).clone()} if amsgrad else {})} for s, a, b, c in zip(steps, m, v, largest)]
            after = {"paramsRef": stepped(optimizer, parameters, [t.clone() for t in plain], states), "gradsRef": plain,
                     "expAvgsRef": [s["exp_avg"] for s in states], "expAvgSqsRef": [s["exp_avg_sq"] for s in states],
                     "maxExpAvgSqsRef": [s["max_exp_avg_sq"] for s in states] if amsgrad else largest}
            before = {"paramsRef": var, "gradsRef": grad, "expAvgsRef": m, "expAvgSqsRef": v, "maxExpAvgSqsRef": largest}
            yield Case({**before, "stateSteps": [torch.tensor(s) for s in steps],
                        "gradScaleOptional": None if scale is None else number(scale),
                        "foundInfOptional": None if found is None else number(found), "lr": 0.0625, "beta1": 0.5,
                        "beta2": 0.75, "weightDecay": 0.125, "eps": 2**-10, "amsgrad": amsgrad, "maximize": maximize},
                       {name: [Ref(t, dtype) for t in (before if found else after)[name]] for name in before})


@cases("FusedSgd")
def fused_sgd(op, g):
    for dtype in g.floating:
        for momentum, nesterov, maximize, first, scale in ((0.0, False, False, False, None), (0.5, False, True, False, 4.0),
                                                          (0.5, True, False, False, None), (0.5, False, False, True, 2.0)):
            var, grad, buffer = ([g.tensor(shape, dtype) for shape in SHAPES] for _ in range(3))
            parameters = [torch.nn.Parameter(high(t).clone()) for t in var]
            optimizer = torch.optim.SGD(parameters, lr=0.0625, momentum=momentum, weight_decay=0.125, nesterov=nesterov,
                                        dampening=0.0 if nesterov else 0.25, maximize=maximize, foreach=False)
            plain = [high(t) / (scale or 1) for t in grad]
            states = [{} if first or not momentum else {"momentum_buffer": high(b).clone()} for b in buffer]
            after = stepped(optimizer, parameters, [t.clone() for t in plain], states)
            buffers = [optimizer.state[p].get("momentum_buffer") for p in parameters] if momentum else buffer
            yield Case({"paramsRef": var, "gradsRef": grad, "momentumBufferListOptionalRef": buffer,
                        "gradScaleOptional": None if scale is None else number(scale), "weightDecay": 0.125,
                        "momentum": momentum, "lr": 0.0625, "dampening": 0.0 if nesterov else 0.25, "nesterov": nesterov,
                        "maximize": maximize, "isFirstStep": first},
                       {"paramsRef": [Ref(t, dtype) for t in after],
                        "gradsRef": [Ref(t, dtype) for t in (plain if scale else [high(t) for t in grad])],
                        "momentumBufferListOptionalRef": [Ref(t, dtype) for t in buffers]})


@cases("AmpUpdateScale")
def update_scale(op, g):
    for scale, tracker, found, growth, interval in ((1024.0, 3, 0.0, 2.0, 10), (1024.0, 9, 0.0, 2.0, 10), (3.0, 9, 1.0, 2.0, 10),
                                                    (3e38, 0, 0.0, 2.0, 1), (1.1, 0, 0.0, 1.7, 1)):
        current, count = torch.tensor([scale]), torch.tensor([tracker], dtype=torch.int32)
        after, counted = current.clone(), count.clone()
        torch._amp_update_scale_(after, counted, torch.tensor([found]), growth, 0.3, interval)
        yield Case({"currentScale": current, "growthTracker": count, "foundInf": torch.tensor([found]),
                    "growthFactor": growth, "backoffFactor": 0.3, "growthInterval": interval},
                   {"updatedScale": after, "updatedGrowthTracker": counted})
