# SPDX-License-Identifier: Apache-2.0
"""The attention of an inference server in miniature.

Keys and values lie in pages. A request is read at once (prefill), then gets a token at a time, in one batch with all
others that are there (continuous batching). Batches are filled up to one of a few sizes, for each of which a step was
captured; the lengths of the sequences, which attention takes from the host, are set anew at every replay. The file runs
with the published package (tests/wheel) and with ours (tests/torch).
"""
import dataclasses

import pytest
import torch
import torch_npu

VOCABULARY, HIDDEN, HEADS, KEY_HEADS, SIZE, LAYERS = 61, 32, 4, 2, 8, 2
PAGE, PAGES, PAGES_OF_REQUEST, LONGEST = 4, 48, 10, 40
BATCHES = (1, 2, 4, 6)
SCALE = SIZE**-0.5


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(HIDDEN), torch.nn.LayerNorm(HIDDEN)])
        self.qkv = torch.nn.Linear(HIDDEN, (HEADS + 2 * KEY_HEADS) * SIZE)
        self.out = torch.nn.Linear(HEADS * SIZE, HIDDEN)
        self.up, self.down = torch.nn.Linear(HIDDEN, 64), torch.nn.Linear(64, HIDDEN)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, HIDDEN), torch.nn.Embedding(LONGEST, HIDDEN)
        self.layers = torch.nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens, positions, attend):
        x = self.tokens(tokens) + self.places(positions)
        for number, layer in enumerate(self.layers):
            q, k, v = layer.qkv(layer.norms[0](x)).split([HEADS * SIZE, KEY_HEADS * SIZE, KEY_HEADS * SIZE], -1)
            q, k, v = (each.reshape(-1, each.size(-1) // SIZE, SIZE) for each in (q, k, v))
            x = x + layer.out(attend(number, q, k, v).reshape(-1, HEADS * SIZE))
            x = x + layer.down(torch.nn.functional.silu(layer.up(layer.norms[1](x))))
        return self.head(x)


@dataclasses.dataclass
class Request:
    tokens: list
    wanted: int  # tokens to add
    arrives: int  # before this step
    pages: list = dataclasses.field(default_factory=list)

    def slot(self, place):
        while place // PAGE >= len(self.pages):
            self.pages.append(FREE.pop())
        return self.pages[place // PAGE] * PAGE + place % PAGE


FREE = []


class Step:
    """One step of a batch of fixed size: what it reads lies where a captured one finds it."""

    def __init__(self, server, batch):
        self.server, self.graph = server, None
        self.tokens = torch.zeros(batch, dtype=torch.int64, device="npu")
        self.positions = torch.zeros(batch, dtype=torch.int64, device="npu")
        self.slots = torch.zeros(batch, dtype=torch.int32, device="npu")
        self.table = torch.zeros(batch, PAGES_OF_REQUEST, dtype=torch.int32, device="npu")
        self.lengths = [1] * batch

    def forward(self):
        return self.server.model(self.tokens, self.positions, self.attend).argmax(-1)

    def attend(self, layer, q, k, v):
        keys, values = self.server.caches[layer]
        torch_npu._npu_reshape_and_cache(k, v, keys, values, self.slots)
        out, _ = torch_npu.npu_fused_infer_attention_score(
            q.reshape(-1, 1, HEADS * SIZE), keys.view(PAGES, PAGE, -1), values.view(PAGES, PAGE, -1),
            actual_seq_lengths_kv=self.lengths, block_table=self.table, block_size=PAGE, num_heads=HEADS,
            num_key_value_heads=KEY_HEADS, scale=SCALE, input_layout="BSH",
        )  # fmt: skip
        return out

    def capture(self, pool):
        self.forward()
        torch.npu.synchronize()
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph, pool=pool, auto_dispatch_capture=True):
            self.result = self.forward()

    def fill(self, requests):
        places = [len(request.tokens) - 1 for request in requests]
        slots = [request.slot(place) for request, place in zip(requests, places)]
        rest = self.tokens.numel() - len(requests)  # these write to page 0, which nobody reads
        self.lengths = [place + 1 for place in places] + [1] * rest
        rows = [request.pages + [0] * (PAGES_OF_REQUEST - len(request.pages)) for request in requests]
        self.tokens.copy_(torch.tensor([request.tokens[-1] for request in requests] + [0] * rest))
        self.positions.copy_(torch.tensor(places + [0] * rest))
        self.slots.copy_(torch.tensor(slots + [0] * rest, dtype=torch.int32))
        self.table.copy_(torch.tensor(rows + [[0] * PAGES_OF_REQUEST] * rest, dtype=torch.int32))

    def run(self, requests):
        self.fill(requests)
        if self.graph is None:
            result = self.forward()
        else:
            self.graph.replay()
            self.graph.update(cpu_update_input=[{"actual_seq_lengths_kv": self.lengths}])
            result = self.result
        return result[: len(requests)].tolist()


class Server:
    def __init__(self, model, is_captured):
        self.model = model
        self.caches = [torch.zeros(2, PAGES, PAGE, KEY_HEADS, SIZE, device="npu").unbind() for _ in range(LAYERS)]
        self.mask = torch.full([LONGEST, LONGEST], float("-inf"), device="npu").triu(1)
        FREE[:] = range(1, PAGES)
        self.steps = {}
        if is_captured:
            pool = torch.npu.graph_pool_handle()
            self.steps = {batch: Step(self, batch) for batch in BATCHES}
            for step in reversed(self.steps.values()):
                step.capture(pool)

    def prefill(self, requests):
        """The first tokens of new requests, end to end."""
        lengths = [len(request.tokens) for request in requests]
        slots = [request.slot(place) for request, length in zip(requests, lengths) for place in range(length)]
        slots = torch.tensor(slots, dtype=torch.int32).npu()

        def attend(layer, q, k, v):
            keys, values = self.caches[layer]
            torch_npu._npu_reshape_and_cache(k, v, keys, values, slots)
            out = torch.empty_like(q)
            torch_npu._npu_flash_attention(
                q, k, v, self.mask, torch.tensor(lengths, dtype=torch.int32), SCALE, HEADS, KEY_HEADS, out)  # fmt: skip
            return out

        tokens = torch.tensor([token for request in requests for token in request.tokens]).npu()
        positions = torch.cat([torch.arange(length) for length in lengths]).npu()
        logits = self.model(tokens, positions, attend)
        last = torch.tensor(lengths).cumsum(0) - 1
        for request, token in zip(requests, logits[last.npu()].argmax(-1).tolist()):
            request.tokens.append(token)

    def decode(self, requests):
        fitting = [batch for batch in self.steps if batch >= len(requests)]
        step = self.steps[min(fitting)] if fitting else Step(self, len(requests))
        for request, token in zip(requests, step.run(requests)):
            request.tokens.append(token)

    @torch.no_grad()
    def serve(self, arrivals, steps):
        """The tokens of all requests, and the sizes of the batches."""
        waiting, running, batches = list(arrivals), [], []
        for now in range(steps):
            room = max(BATCHES) - len(running) if len(FREE) >= max(BATCHES) * PAGES_OF_REQUEST // 2 else 0
            new = [request for request in waiting if request.arrives <= now][:room]
            waiting = waiting[len(new) :]
            if new:
                self.prefill(new)
            running += new
            batches.append(len(running))
            if running:
                self.decode(running)
            for request in running:
                request.wanted -= 1
                if request.wanted == 0:
                    FREE.extend(request.pages)
            running = [request for request in running if request.wanted > 0]
        return [request.tokens for request in arrivals], batches


def requests():
    generator = torch.Generator().manual_seed(7)

    def number(low, high):
        return int(torch.randint(low, high, [], generator=generator))

    result, now = [], 0
    for _ in range(64):
        prompt = torch.randint(0, VOCABULARY, [number(1, 12)], generator=generator)
        result.append(Request(prompt.tolist(), number(3, 26), now))
        now += number(0, 7)
    return result


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(11)
    return Model().requires_grad_(False)


def alone(model, prompt, count):
    """Token by token on the CPU, everything anew for each."""

    def attend(_, q, k, v):
        k, v = (each.repeat_interleave(HEADS // KEY_HEADS, 1) for each in (k, v))
        q, k, v = (each.transpose(0, 1) for each in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE).transpose(0, 1)

    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(torch.tensor(tokens), torch.arange(len(tokens)), attend)[-1].argmax()))
    return tokens


def test_captured_steps_give_the_tokens_of_eager_ones(model):
    device = Model().requires_grad_(False)
    device.load_state_dict(model.state_dict())
    device = device.npu()
    arrivals = requests()
    eager, sizes = Server(device, is_captured=False).serve(arrivals, 200)
    captured, captured_sizes = Server(device, is_captured=True).serve(requests(), 200)
    assert captured_sizes == sizes and len(sizes) == 200 and set(sizes) >= {1, 2, 3, 4, 5, 6}
    assert captured == eager
    for one, tokens in list(zip(requests(), eager))[:12]:
        prompt = one.tokens
        assert tokens == alone(model, prompt, len(tokens) - len(prompt))
