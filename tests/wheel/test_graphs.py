# SPDX-License-Identifier: Apache-2.0
"""Graphs of the published package: whole steps, callables, pools, updates of captured attention."""

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_npu
from torch import nn


def mlp(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 4)).npu()


def batches(count=4):
    generator = torch.Generator().manual_seed(9)
    return [(torch.randn(5, 8, generator=generator), torch.randn(5, 4, generator=generator)) for _ in range(count)]


def warm_up(step, times=3):
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        for _ in range(times):
            step()
    torch.npu.current_stream().wait_stream(side)


OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01, capturable=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_step_trains_as_eager_steps_do(name):
    losses = {}
    for way in ("eager", "captured"):
        model = mlp()
        optimizer = OPTIMIZERS[name](model.parameters())
        x, y = torch.zeros(5, 8).npu(), torch.zeros(5, 4).npu()

        def step(model=model, optimizer=optimizer, x=x, y=y):
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        warm_up(step)
        if way == "captured":
            graph = torch.npu.NPUGraph()
            optimizer.zero_grad(set_to_none=True)
            with torch.npu.graph(graph):
                loss = step()
        losses[way] = []
        for of_x, of_y in batches():
            x.copy_(of_x)
            y.copy_(of_y)
            if way == "captured":
                graph.replay()
            else:
                loss = step()
            losses[way].append(loss.item())
    torch.testing.assert_close(losses["captured"], losses["eager"], rtol=1e-6, atol=1e-7)
    assert losses["eager"][0] != losses["eager"][-1]


def test_dropout_of_replays_is_that_of_eager_calls():
    model = mlp(dropout=0.5)
    x = torch.randn(5, 8).npu()
    with torch.no_grad():
        torch.npu.manual_seed(3)
        eager = [model(x).cpu() for _ in range(3)]
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = model(x)
        torch.npu.manual_seed(3)
        for want in eager:
            graph.replay()
            torch.npu.synchronize()
            assert torch.equal(y.cpu(), want)
    assert not torch.equal(eager[0], eager[1])


def test_graphed_callables_train_as_the_module_does():
    model = mlp()
    sample = torch.randn(5, 8).npu()
    graphed = torch.npu.make_graphed_callables(copy.deepcopy(model), (sample,))
    losses = {}
    for way, module in (("eager", model), ("graphed", graphed)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        losses[way] = []
        for x, y in batches():
            optimizer.zero_grad()
            loss = F.mse_loss(module(x.npu()), y.npu())
            loss.backward()
            optimizer.step()
            losses[way].append(loss.item())
    torch.testing.assert_close(losses["graphed"], losses["eager"], rtol=1e-6, atol=1e-7)


def test_graphs_of_several_batch_sizes_share_a_pool():
    model, pool = mlp(), torch.npu.graph_pool_handle()
    graphs = {}
    with torch.no_grad():
        model(torch.zeros(8, 8).npu())
        for size in (8, 4, 2, 1):
            graph, x = torch.npu.NPUGraph(), torch.zeros(size, 8).npu()
            with torch.npu.graph(graph, pool=pool):
                y = model(x)
            graphs[size] = graph, x, y
        for size in (1, 8, 2, 4, 8):
            graph, x, y = graphs[size]
            x.copy_(torch.randn(size, 8))
            graph.replay()
            torch.npu.synchronize()
            torch.testing.assert_close(y.cpu(), model(x).cpu(), rtol=1e-6, atol=1e-6)


def test_branches_on_several_streams_are_one_graph():
    x, side, graph = torch.ones(1000).npu(), torch.npu.Stream(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with torch.npu.stream(side):
            a = x * 2
        b = x + 1
        main.wait_stream(side)
        y = a + b
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(y.cpu(), torch.full((1000,), 3 * value + 1))


def test_a_call_that_waits_is_refused_in_a_capture(run):
    """The capture is lost; the message says why, and the process goes on."""
    text = run("""
        import torch, torch_npu
        x = torch.ones(3).npu()
        x.sum().item()
        try:
            with torch.npu.graph(torch.npu.NPUGraph()):
                print((x + 1).sum().item())
        except RuntimeError as error:
            print("refused", error)
        torch.npu.synchronize()
        print((x + 1).sum().item())
    """)
    assert text.startswith("refused") and text.endswith("6.0")


# ---- Updates of captured attention ----

HEADS, SIZE, MOST = 2, 16, 64


class Decoder:
    """Attention of one query over a cache whose length changes from step to step."""

    def __init__(self):
        torch.manual_seed(1)
        self.q, self.k, self.v = (torch.randn(2, HEADS, n, SIZE).half().npu() for n in (1, MOST, MOST))
        self.options = {"num_heads": HEADS, "scale": SIZE ** -0.5, "input_layout": "BNSD"}
        self.out, self.lse = torch.empty_like(self.q), torch.empty(1).half().npu()
        self.workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
            self.q, self.k, self.v, actual_seq_lengths_kv=[MOST, MOST], **self.options)

    def call(self, lengths):
        torch_npu.npu_fused_infer_attention_score.out(
            self.q, self.k, self.v, actual_seq_lengths_kv=lengths, workspace=self.workspace,
            out=[self.out, self.lse], **self.options)

    def wanted(self, lengths):
        rows = []
        for i, n in enumerate(lengths):
            q, k, v = (x[i].cpu().float() for x in (self.q, self.k[:, :, :n], self.v[:, :, :n]))
            rows.append(F.scaled_dot_product_attention(q, k, v, scale=SIZE ** -0.5))
        return torch.stack(rows)


def test_task_groups_of_attention_take_new_lengths():
    decoder, graph = Decoder(), torch.npu.NPUGraph()
    event, update_stream = torch.npu.ExternalEvent(), torch.npu.Stream()
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        event.wait(stream)
        event.reset(stream)
        torch.npu.graph_task_group_begin(stream)
        decoder.call([5, 7])
        handle = torch.npu.graph_task_group_end(stream)
    for lengths in ([5, 7], [6, 8], [1, 64], [33, 2]):
        with torch.npu.stream(update_stream):
            torch.npu.graph_task_update_begin(update_stream, handle)
            decoder.call(lengths)
            torch.npu.graph_task_update_end(update_stream)
            event.record(update_stream)
        graph.replay()
        torch.npu.synchronize()
        torch.testing.assert_close(decoder.out.cpu().float(), decoder.wanted(lengths), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("form", ["result", "out"])
def test_updates_by_themselves(form):
    decoder, graph = Decoder(), torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        if form == "out":
            decoder.call([5, 7])
            out = decoder.out
        else:
            out, _ = torch_npu.npu_fused_infer_attention_score(
                decoder.q, decoder.k, decoder.v, actual_seq_lengths_kv=[5, 7], **decoder.options)
        scaled = out * 2
    for lengths in ([5, 7], [9, 3], [64, 64]):
        graph.replay()
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": lengths}])
        torch.npu.synchronize()
        torch.testing.assert_close(scaled.cpu().float(), 2 * decoder.wanted(lengths), rtol=2e-3, atol=4e-3)
