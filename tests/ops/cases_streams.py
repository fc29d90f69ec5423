# SPDX-License-Identifier: Apache-2.0
"""Gates of hyper-connections, the gradients of these and of the mix behind a layer; against plain formulas in float64
and PyTorch's gradients of them."""

import torch

from harness import Case, Ref, cases, high

SIZES = (([3], 4, 5), ([2, 3], 6, 16), ([5], 1, 6), ([2], 2, 24))  # dims in front, streams, size


def gates_of(x, phi, alpha, bias, gamma, norm_eps, hc_eps):
    """hIn, hPost, hRes, invRms, hMix, hPre, as the operator names them."""
    n, flat = x.shape[-2], x.flatten(-2)
    inverse = (flat.square().mean(-1) + norm_eps).rsqrt()
    mix = (flat if gamma is None else flat * gamma.flatten()) @ phi.t()
    w = mix * inverse.unsqueeze(-1)
    factors = torch.cat([alpha[0].expand(n), alpha[1].expand(n), alpha[-1].expand(phi.shape[0] - 2 * n)])
    z = w * factors + bias
    only = alpha.shape[0] == 2
    pre, post = z[..., :n].sigmoid() + hc_eps, 2 * z[..., n:2 * n].sigmoid() + (hc_eps if only else 0)
    res = torch.zeros(*x.shape[:-1], n, dtype=x.dtype) if only else z[..., 2 * n:]
    if res.shape[-1] == n * n and not only:
        res = res.unflatten(-1, (n, n))
    return (pre.unsqueeze(-1) * x).sum(-2), post, res, inverse, mix, pre


def parameters(g, n, size, mixes=True, more=None):
    count = 2 * n + (n * n if more is None else more) * mixes
    single = torch.float32
    return (g.tensor([count, n * size], single, "unit"), g.tensor([3 if mixes else 2], single),
            g.tensor([count], single, "unit"), g.tensor([n, size], single))


@cases("MhcPre", "MhcPreV2")
def stream_gates(op, g):
    for dtype in g.floating:
        for number, (outer, n, size) in enumerate((*SIZES, ([0], 4, 3))):
            for mixes in (True, False):
                x = g.tensor([*outer, n, size], dtype)
                phi, alpha, bias, gamma = parameters(g, n, size, mixes)
                gamma = gamma if number % 2 == 0 else None
                wide = gates_of(high(x), high(phi), high(alpha), high(bias), gamma if gamma is None else high(gamma),
                                2.0**-20, 2.0**-10)
                read, post, res, inverse, mix, pre = wide
                single, keeps = torch.float32, number != 1
                args = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gammaOptional": gamma, "normEps": 2.0**-20,
                        "hcEps": 2.0**-10}
                if op == "MhcPreV2":
                    args["opImplMode"] = number % 2
                yield Case(args, {"hIn": Ref(read, dtype), "hPost": Ref(post, single),
                                  "hRes": Ref(res, single) if mixes or keeps else None,
                                  "invRmsOptional": Ref(inverse, single) if keeps else None,
                                  "hMixOptional": Ref(mix, single) if keeps else None,
                                  "hPreOptional": Ref(pre, single) if keeps else None})


@cases("MhcPreBackward", "MhcPreBackwardV2")
def stream_gates_backward(op, g):
    for dtype in g.floating:
        for number, (outer, n, size) in enumerate(SIZES):
            x, more = g.tensor([*outer, n, size], dtype), 3 if number == 3 else None  # gates of another mix
            phi, alpha, bias, gamma = parameters(g, n, size, more=more)
            gamma = gamma if number != 1 else None
            wide = [high(t).requires_grad_() for t in (x, phi, alpha, bias) + ((gamma,) if gamma is not None else ())]
            of_gamma = wide[4] if gamma is not None else None
            read, post, res, inverse, mix, pre = gates_of(*wide[:4], of_gamma, 2.0**-20, 2.0**-10)
            grads = [g.tensor(list(read.shape), dtype), g.tensor(list(post.shape), torch.float32),
                     g.tensor(list(res.shape), torch.float32)]
            torch.autograd.backward([read, post, res], [high(grad) for grad in grads])
            later = g.tensor(list(x.shape), dtype) if number % 2 == 0 else None
            single = torch.float32
            of_x = wide[0].grad if later is None else wide[0].grad + high(later)
            of_gamma = wide[4].grad if gamma is not None else torch.zeros(n, size)
            stored = torch.float64 if dtype == torch.float64 else single
            kept = [t.detach().to(stored) for t in (inverse, mix, pre, post)]
            mode = {"opImplMode": number % 2} if op == "MhcPreBackwardV2" else {}
            yield Case(mode | {"x": x, "phi": phi, "alpha": alpha, "gradHIn": grads[0],
                               "gradHPost": grads[1], "gradHRes": grads[2], "invRms": kept[0], "hMix": kept[1],
                               "hPre": kept[2], "hPost": kept[3], "gamma": gamma, "gradXPostOptional": later,
                               "hcEps": 2.0**-10},
                       {"gradX": Ref(of_x, dtype), "gradPhi": Ref(wide[1].grad, single),
                        "gradAlpha": Ref(wide[2].grad, single), "gradBias": Ref(wide[3].grad, single),
                        "gradGamma": None if number == 2 else Ref(of_gamma, single)})


@cases("MhcPostBackward")
def stream_mix_backward(op, g):
    for dtype in g.floating:
        for number, (outer, n, size) in enumerate((*SIZES, ([0], 4, 3), ([], 3, 9))):
            x, h_out = g.tensor([*outer, n, size], dtype), g.tensor([*outer, size], dtype)
            h_post = g.tensor([*outer, n], torch.float32)
            h_res = g.tensor([*outer, n, n], torch.float32, "positive") if number != 1 else None
            grad = g.tensor([*outer, n, size], dtype)
            wide = [high(t).requires_grad_() for t in (x, torch.eye(n).expand(*outer, n, n) if h_res is None else h_res,
                                                      h_out, h_post)]
            result = wide[1].transpose(-1, -2) @ wide[0] + wide[3].unsqueeze(-1) * wide[2].unsqueeze(-2)
            result.backward(high(grad))
            yield Case({"gradOutput": grad, "x": x, "hRes": h_res, "hOut": h_out, "hPost": h_post},
                       {"gradX": Ref(wide[0].grad, dtype), "gradHres": Ref(wide[1].grad, torch.float32),
                        "gradHout": Ref(wide[2].grad, dtype), "gradHpost": Ref(wide[3].grad, torch.float32)})


MATRICES = (([3, 4, 4], 20, 2.0**-20), ([2, 2, 6, 6], 1, 0.5), ([0, 4, 4], 3, 2.0**-20), ([1, 1], 2, 0.25),
            ([2, 9, 9], 2, 2.0**-10))  # shape, iterations, eps


def iterated(x, count, eps):
    """The result, the matrices behind each step, and what each step divided by."""
    wide = x.exp().sum(-1)
    norms, sums, y = [x.softmax(-1)], [wide], x.softmax(-1) + eps
    for step in range(1, 2 * count):
        total = y.sum(-2 if step % 2 else -1, keepdim=True) + eps
        y = y / total
        norms.append(y)
        sums.append(total.squeeze(-2 if step % 2 else -1))
    return y, norms, sums


def in_rows(steps, n):
    """The steps one after the other, in rows of a multiple of 8."""
    rows = torch.nn.functional.pad(torch.stack(steps), (0, -n % 8))
    return rows.flatten()


@cases("MhcSinkhorn")
def sinkhorn(op, g):
    for dtype in g.floating:
        for number, (shape, count, eps) in enumerate(MATRICES):
            x, keeps = g.tensor(shape, dtype), number % 2 == 0
            y, norms, sums = iterated(high(x), count, eps)
            top = high(x).amax(-1) if x.numel() else sums[0]
            sums[0] = (high(x) - top.unsqueeze(-1)).exp().sum(-1)  # of exponentials beside the greatest
            n, single = shape[-1], torch.float32
            yield Case({"x": x, "eps": eps, "numIters": count},
                       {"out": Ref(y, dtype), "normOutOptional": Ref(in_rows(norms, n), single) if keeps else None,
                        "sumOutOptional": Ref(in_rows(sums, n), single) if keeps else None})


@cases("MhcSinkhornBackward")
def sinkhorn_backward(op, g):
    for dtype in g.floating:
        kept = torch.float64 if dtype == torch.float64 else torch.float32
        for shape, count, eps in MATRICES:
            x = g.tensor(shape, torch.float64).requires_grad_()
            y, norms, sums = iterated(x, count, eps)
            grad = g.tensor(shape, dtype)
            y.backward(high(grad))
            n = shape[-1]
            yield Case({"gradOutput": grad, "normOut": in_rows(norms, n).detach().to(kept),
                        "sumOut": in_rows(sums, n).detach().to(kept)},
                       {"out": Ref(x.grad, dtype)})
