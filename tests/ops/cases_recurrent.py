# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU against plain steps in float64, which test_reference holds against torch.nn."""

import torch

from harness import Case, Ref, cases, high

LISTS = {"LSTM": ("i", "j", "f", "o", "h", "c", "tanhC"), "GRU": ("r", "z", "n", "hn", "h")}
# steps, batch, features, hidden, layers, bidirectional, batch first, biases, first states, lengths; negative: padded
NETWORKS = (
    (5, 3, 4, 6, 1, False, False, True, True, None),
    (4, 2, 5, 3, 2, True, True, True, True, None),
    (3, 11, 7, 10, 2, False, False, False, False, None),
    (1, 1, 1, 1, 1, True, False, True, True, None),
    (4, 3, 5, 4, 2, True, False, True, True, (4, 2, 1)),
    (3, 2, 3, 5, 1, False, False, False, True, (3, 3)),
    (3, 4, 2, 3, 2, True, False, True, True, (-3, -2, -2, -1)),
)


def step(kind, x, h, c, w_ih, w_hh, b_ih, b_hh):
    """The states behind a step and what it saves, in the order of LISTS."""
    inner, outer = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
    if kind == "LSTM":
        i, f, g, o = (inner + outer).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        return o * c.tanh(), c, (i, g, f, o, o * c.tanh(), c, c.tanh())
    (r, z, n), (hr, hz, hn) = inner.chunk(3, -1), outer.chunk(3, -1)
    r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
    n = (n + r * hn).tanh()
    h = (1 - z) * n + z * h
    return h, c, (r, z, n, hn, h)


def network(kind, x, params, h0, c0, layers, directions, lengths):
    """x [T, B, I]; gives y, h, c and the saved values [T, B, H], one list for each kind of them."""
    lengths = [abs(n) for n in lengths]
    each, saved, last = len(params) // (layers * directions), [[] for _ in LISTS[kind]], ([], [])
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            stack = layer * directions + direction
            w_ih, w_hh, *biases = params[stack * each:stack * each + each]
            biases = biases or [torch.zeros(w_ih.shape[0], dtype=x.dtype)] * 2
            h, c = h0[stack], c0[stack]
            values = [[torch.zeros_like(h)] * len(x) for _ in saved]
            for t in (range(len(x)) if direction == 0 else reversed(range(len(x)))):
                h_new, c_new, kept = step(kind, x[t], h, c, w_ih, w_hh, *biases)
                runs = torch.tensor([t < n for n in lengths]).unsqueeze(1)
                h, c = torch.where(runs, h_new, h), torch.where(runs, c_new, c)
                for k, value in enumerate(kept):
                    values[k][t] = torch.where(runs, value, torch.zeros_like(value))
            for k, value in enumerate(values):
                saved[k].append(torch.stack(value))
            sides.append(saved[LISTS[kind].index("h")][-1])
            last[0].append(h)
            last[1].append(c)
        x = torch.cat(sides, -1)
    return x, torch.stack(last[0]), torch.stack(last[1]), saved


def pack(x, lengths):
    if lengths[0] < 0:
        return x.flatten(0, 1)
    return torch.cat([x[t, :sum(n > t for n in lengths)] for t in range(len(x))])


def networks(kind, g):
    gates = 4 if kind == "LSTM" else 3
    for dtype in (torch.float32, torch.float16, torch.float64, torch.bfloat16):
        for steps, batch, features, hidden, layers, both, first, biased, stated, lengths in NETWORKS:
            directions = 2 if both else 1
            params = []
            for layer in range(layers):
                for _ in range(directions):
                    width = features if layer == 0 else directions * hidden
                    shapes = [[gates * hidden, width], [gates * hidden, hidden], *[[gates * hidden]] * (2 * biased)]
                    params += [(g.tensor(shape, torch.float64) / 2).to(dtype) for shape in shapes]
            x = g.tensor([steps, batch, features], dtype)
            states = [g.tensor([layers * directions, batch, hidden], dtype) for _ in range(2)]
            if not stated:
                states = [torch.zeros_like(s) for s in states]
            yield dtype, x, params, states, layers, directions, first, biased, stated, lengths


def given(kind, x, params, states, layers, directions, first, biased, stated, lengths):
    both = "bidirectional" if kind == "LSTM" else "bidirection"
    sizes = None if lengths is None else torch.tensor([sum(abs(n) > t for n in lengths) for t in range(len(x))])
    hx = None if not stated else states if kind == "LSTM" else states[0]
    shaped = pack(x, lengths) if lengths else x.transpose(0, 1).contiguous() if first else x
    return {"input": shaped, "params": params, "hx": hx, "hasBias": biased, "numLayers": layers, both: directions == 2,
            "batchFirst": first}, sizes


def sequence(value, first, lengths):
    return pack(value, lengths) if lengths else value.transpose(0, 1) if first else value


@cases("LSTM", "GRU")
def forward(kind, g):
    for number, (dtype, x, params, states, *shape) in enumerate(networks(kind, g)):
        layers, directions, first, biased, stated, lengths = shape
        y, h, c, saved = network(kind, high(x), [high(p) for p in params], *(high(s) for s in states), layers, directions,
                                 lengths or [len(x)] * x.shape[1])
        args, sizes = given(kind, x, params, states, *shape)
        train = number % 4 != 3
        results = {"output": Ref(sequence(y, first, lengths), dtype), "hy": Ref(h, dtype)}
        if kind == "LSTM":
            results["cy"] = Ref(c, dtype)
        for name, values in zip(LISTS[kind], saved):
            kept = [pack(v, lengths) if lengths else v for v in values]
            results[f"{name}Out"] = [Ref(v, dtype) for v in kept] if train else None
        yield Case({**args, "batchSizes": sizes, "dropout": 0.0, "train": train}, results)


@cases("LstmBackward", "GRUBackward")
def backward(op, g):
    kind = "GRU" if op.startswith("GRU") else "LSTM"
    names = {"j": "g", "tanhC": "tanhc"}
    for number, (dtype, x, params, states, *shape) in enumerate(networks(kind, g)):
        layers, directions, first, biased, stated, lengths = shape
        leaves = [high(t).requires_grad_() for t in (x, *states, *params)]
        y, h, c, saved = network(kind, leaves[0], leaves[3:], leaves[1], leaves[2], layers, directions,
                                 lengths or [len(x)] * x.shape[1])
        dy, dh, dc = (g.tensor(list(t.shape), dtype) for t in (y, h, c))
        outputs = [(y, dy), (h, dh), (c, dc)][:3 if kind == "LSTM" else 2]
        if number % 3 == 1:
            outputs, dh, dc = outputs[:1], None, None
        of = torch.autograd.grad([o for o, _ in outputs], leaves, [high(d) for _, d in outputs], allow_unused=True,
                                 materialize_grads=True)
        args, sizes = given(kind, x, params, states, *shape)
        for name, values in zip(LISTS[kind], saved):
            kept = [pack(v, lengths) if lengths else v for v in values]
            args[names.get(name, name)] = [v.detach().to(dtype) for v in kept]
        results = {"dxOut": Ref(sequence(of[0], first, lengths), dtype), "dhPrevOut": Ref(of[1], dtype),
                   "dparamsOut": [Ref(t, dtype) for t in of[3:]]}
        args.update({"dy": sequence(dy, first, lengths).contiguous(), "dh": dh})
        if kind == "GRU":
            yield Case({**args, "batchSizes": sizes}, results)
            continue
        results["dcPrevOut"] = Ref(of[2], dtype)
        yield Case({**args, "dc": dc, "batchSizesOptional": sizes, "dropout": 0.0, "train": True, "outputMask": None},
                   results)


CELLS = ((3, 5), (1, 1), (7, 600), (0, 4))


@cases("ThnnFusedLstmCell")
def cell(op, g):
    for dtype in g.floating:
        for batch, hidden in CELLS:
            inner, outer = (g.tensor([batch, 4 * hidden], dtype) for _ in range(2))
            c = g.tensor([batch, hidden], dtype)
            for biased in (True, False):
                biases = [g.tensor([4 * hidden], dtype) if biased else None for _ in range(2)]
                total = high(inner) + high(outer) + sum(high(b) for b in biases if biased)
                i, f, g_, o = total.chunk(4, -1)
                i, f, g_, o = i.sigmoid(), f.sigmoid(), g_.tanh(), o.sigmoid()
                cy = f * high(c) + i * g_
                yield Case({"inputGates": inner, "hiddenGates": outer, "cx": c, "inputBiasOptional": biases[0],
                            "hiddenBiasOptional": biases[1]},
                           {"hyOut": Ref(o * cy.tanh(), dtype), "cyOut": Ref(cy, dtype),
                            "storageOut": Ref(torch.cat([i, f, g_, o], -1), dtype)})


@cases("ThnnFusedLstmCellBackward")
def cell_backward(op, g):
    for dtype in g.floating:
        for number, (batch, hidden) in enumerate(CELLS[:3]):
            c, cy, dh, dc = (g.tensor([batch, hidden], dtype) for _ in range(4))
            i, f, o = (g.tensor([batch, hidden], dtype).sigmoid() for _ in range(3))
            g_ = g.tensor([batch, hidden], dtype).tanh()
            dh, dc = (None if number == 1 else dh), (None if number == 2 else dc)
            storage = torch.cat([i, f, g_, o], -1)
            i, f, g_, o = high(storage).chunk(4, -1)
            t = high(cy).tanh()
            of_h = 0 if dh is None else high(dh)
            of_c = (0 if dc is None else high(dc)) + of_h * o * (1 - t * t)
            gates = torch.cat([of_c * g_ * i * (1 - i), of_c * high(c) * f * (1 - f), of_c * i * (1 - g_ * g_),
                               of_h * t * o * (1 - o) + torch.zeros_like(o)], -1)
            yield Case({"gradHyOptional": dh, "gradCOptional": dc, "cx": c, "cy": cy, "storage": storage,
                        "hasBias": number != 1},
                       {"gradGatesOut": Ref(gates, dtype), "gradCxOut": Ref(of_c * f, dtype),
                        "gradBiasOut": Ref(gates.to(dtype).double().sum(0), dtype, bound="512/64 of max")
                        if number != 1 else None})
