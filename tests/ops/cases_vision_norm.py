# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F

from harness import Case, Check, Ref, cases, high


@cases("BatchNorm")
def batch_norm(op, g):
    for dtype in g.floating:
        stats = torch.float32 if dtype != torch.float64 else dtype
        for shape in ([4, 3, 5, 6], [9, 5], [2, 2, 700], [2, 3, 2, 3, 4], [80, 139, 1]):
            channels = shape[1]
            for training in (True, False):
                for has_weight in (True, False):
                    x = g.tensor(shape, dtype)
                    weight = g.tensor([channels], stats) if has_weight else None
                    bias = g.tensor([channels], dtype) if has_weight else None
                    mean = g.tensor([channels], stats)
                    var = g.tensor([channels], stats, "positive") + 0.5
                    running = [high(mean).clone(), high(var).clone()]
                    out, save_mean, save_invstd = torch.native_batch_norm(
                        high(x), None if weight is None else high(weight), None if bias is None else high(bias),
                        *running, training, 0.1, 1e-5)
                    args = {"input": x, "weight": weight, "bias": bias, "runningMean": mean, "runningVar": var,
                            "training": training, "momentum": 0.1, "eps": 1e-5}
                    expect = {"output": Ref(out, dtype), "runningMean": Ref(running[0], stats, bound="64/8 of max"),
                              "runningVar": Ref(running[1], stats, bound="64/8 of max")}
                    if training:
                        expect["saveMean"] = Ref(save_mean, stats, bound="64/8 of max")
                        expect["saveInvstd"] = Ref(save_invstd, stats, bound="64/8 of max")
                        yield Case(args, expect)
                        continue
                    expect["saveMean"] = Check([0], stats, lambda actual: None)
                    expect["saveInvstd"] = None
                    yield Case(args, expect, any_shape=("saveMean",))
    x = g.tensor([3, 2, 4], torch.float32)
    out, save_mean, save_invstd = torch.native_batch_norm(high(x), None, None, None, None, True, 0.1, 1e-5)
    yield Case({"input": x, "weight": None, "bias": None, "runningMean": None, "runningVar": None, "training": True,
                "momentum": 0.1, "eps": 1e-5},
               {"output": Ref(out, x.dtype), "runningMean": None, "runningVar": None, "saveMean": None,
                "saveInvstd": Ref(save_invstd, x.dtype)})


GROUPS = (([2, 6, 5, 4], 3), ([1, 4, 300], 1), ([3, 32], 4), ([2, 4, 2, 3, 2], 2))


@cases("GroupNorm")
def group_norm(op, g):
    for dtype in g.floating:
        for shape, groups in GROUPS:
            for has_weight in (True, False):
                x = g.tensor(shape, dtype)
                n, c, size = shape[0], shape[1], x[0, 0].numel()
                gamma = g.tensor([c], dtype) if has_weight else None
                beta = g.tensor([c], dtype) if has_weight else None
                out, mean, rstd = torch.native_group_norm(
                    high(x), None if gamma is None else high(gamma), None if beta is None else high(beta), n, c, size,
                    groups, 1e-5)
                yield Case({"self": x, "gamma": gamma, "beta": beta, "N": n, "C": c, "HxW": size, "group": groups,
                            "eps": 1e-5},
                           {"out": Ref(out, dtype), "meanOut": Ref(mean, torch.float32), "rstdOut": Ref(rstd, dtype)})


@cases("GroupNormBackward")
def group_norm_backward(op, g):
    for dtype in g.floating:
        for shape, groups in GROUPS:
            for mask in ([True, True, True], [True, False, False], [False, True, True]):
                x, grad = g.tensor(shape, dtype), g.tensor(shape, dtype)
                n, c, size = shape[0], shape[1], x[0, 0].numel()
                gamma = g.tensor([c], dtype) if mask[1] else None
                leaf = high(x).requires_grad_()
                scale = (high(gamma) if mask[1] else torch.ones(c, dtype=torch.float64)).requires_grad_()
                shift = torch.zeros(c, dtype=torch.float64).requires_grad_()
                stats = torch.float64 if dtype == torch.float64 else torch.float32
                _, mean, rstd = torch.native_group_norm(high(x), None, None, n, c, size, groups, 1e-5)
                out = F.group_norm(leaf, groups, scale, shift, 1e-5)
                grads = torch.autograd.grad(out, (leaf, scale, shift), high(grad))
                expect = {name: Ref(want, dtype) if wanted else None for name, want, wanted in
                          zip(("gradInput", "gradGammaOut", "gradBetaOut"), grads, mask)}
                yield Case({"gradOut": grad, "input": x, "mean": mean.to(stats), "rstd": rstd.to(stats),
                            "gamma": gamma, "N": n, "C": c, "HxW": size, "group": groups, "outputMask": mask}, expect)
