# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel decoder on 2 and 4 ranks: captured with its collectives on npu, beside eager calls on npu, the same
model on gloo and CPU, and one rank.

    python bench/collectives/decoder.py [--ranks 2,4] [--models small,larger] [--tokens 48] [--rounds 9] [--markdown FILE]

The model is Llama-like with random weights: rotary positions, grouped-query attention, RMSNorm, SwiGLU. Each rank has some
of the heads, of the columns of the feed-forward and of the vocabulary: two all-reduces a layer, one all-gather of logits.
A step reads its token and writes the next one by itself, so that a replay needs nothing from the host.

Before anything is timed, the tokens of all contestants are compared. Those of npu must be those of one process that
computes the parts of all ranks one after the other and adds them in the order of the ranks, as a collective does: equal
without condition. Another order of the sums (one rank that does not cut the weights, gloo) may decide otherwise where two
logits are close: tokens are equal up to there, and the table says how many are.

Contestants take turns within the same processes; a figure is the median of the rounds, a ratio that of the ratios within a
round, with the quartiles.
"""
import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F

import torch_npu  # noqa: F401


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    positions: int = 64

    @property
    def head(self):
        return self.width // self.heads


MODELS = {
    "small": Shape(layers=4, width=128, heads=8, kv_heads=4, hidden=384, vocabulary=1024),
    "larger": Shape(layers=6, width=512, heads=8, kv_heads=4, hidden=1408, vocabulary=4096),
}
PROMPT = [3, 14, 15, 92, 65]


def weights_of(shape, seed=5):
    """Of the whole model, on the host; the same for every process."""
    random = torch.Generator().manual_seed(seed)

    def draw(rows, columns):
        return torch.randn(rows, columns, generator=random) / columns**0.5

    return {
        "embedding": torch.randn(shape.vocabulary, shape.width, generator=random),
        "head": draw(shape.vocabulary, shape.width),
        "layers": [
            {
                "q": draw(shape.heads * shape.head, shape.width),
                "k": draw(shape.kv_heads * shape.head, shape.width),
                "v": draw(shape.kv_heads * shape.head, shape.width),
                "o": draw(shape.width, shape.heads * shape.head),
                "gate": draw(shape.hidden, shape.width),
                "up": draw(shape.hidden, shape.width),
                "down": draw(shape.width, shape.hidden),
            }
            for _ in range(shape.layers)
        ],
    }


class Part:
    """What one rank of ``size`` has: weights and caches. Rows of what makes heads, columns of what adds up."""

    def __init__(self, shape, weights, rank, size, device):
        def rows(weight):
            return weight.chunk(size, 0)[rank].contiguous().to(device)

        def columns(weight):
            return weight.chunk(size, 1)[rank].contiguous().to(device)

        self.layers = [
            {name: (columns if name in ("o", "down") else rows)(weight) for name, weight in layer.items()}
            for layer in weights["layers"]
        ]
        self.head = rows(weights["head"])
        cache = (shape.positions, shape.kv_heads // size, shape.head)
        self.keys = [torch.zeros(cache, device=device) for _ in self.layers]
        self.values = [torch.zeros(cache, device=device) for _ in self.layers]


class Decoder:
    """``parts``: those of the model that this process computes. ``add`` and ``gather`` combine what they give."""

    def __init__(self, shape, parts, weights, add, gather, device):
        self.shape, self.parts, self.add, self.gather = shape, parts, add, gather
        self.embedding = weights["embedding"].to(device)
        angle = torch.outer(
            torch.arange(shape.positions).float(), 10000.0 ** (-torch.arange(0, shape.head, 2).float() / shape.head)
        ).repeat(1, 2)
        self.cos, self.sin = angle.cos().to(device), angle.sin().to(device)
        self.places = torch.arange(shape.positions, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(shape.positions, dtype=torch.int64, device=device)
        self.logits = torch.zeros(shape.vocabulary, device=device)
        self.reset()

    def reset(self):
        self.position.zero_()
        self.tokens.zero_()
        self.tokens[: len(PROMPT)] = torch.tensor(PROMPT, device=self.tokens.device)
        for part in self.parts:
            for cache in part.keys + part.values:
                cache.zero_()

    def rotated(self, x):
        cos, sin = self.cos.index_select(0, self.position), self.sin.index_select(0, self.position)
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat([-right, left], -1) * sin

    def attention(self, part, index, x):
        weights, head = part.layers[index], self.shape.head
        query = self.rotated(F.linear(x, weights["q"]).view(-1, head))
        key = self.rotated(F.linear(x, weights["k"]).view(-1, head))
        value = F.linear(x, weights["v"]).view(-1, head)
        part.keys[index].index_copy_(0, self.position, key.unsqueeze(0))
        part.values[index].index_copy_(0, self.position, value.unsqueeze(0))
        groups = query.view(key.shape[0], -1, head)
        scores = torch.matmul(groups, part.keys[index].permute(1, 2, 0)) / head**0.5
        scores = scores.masked_fill(self.places > self.position, float("-inf"))
        mixed = torch.matmul(torch.softmax(scores, -1), part.values[index].transpose(0, 1))
        return F.linear(mixed.reshape(1, -1), weights["o"])

    @staticmethod
    def feed_forward(part, index, x):
        weights = part.layers[index]
        return F.linear(F.silu(F.linear(x, weights["gate"])) * F.linear(x, weights["up"]), weights["down"])

    @staticmethod
    def norm(x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

    def step(self):
        """From the token at the position to the next one; a prompt's stay."""
        x = self.embedding.index_select(0, self.tokens.index_select(0, self.position))
        for index in range(self.shape.layers):
            y = self.norm(x)
            x = x + self.add([self.attention(part, index, y) for part in self.parts])
            y = self.norm(x)
            x = x + self.add([self.feed_forward(part, index, y) for part in self.parts])
        x = self.norm(x)
        self.logits.copy_(self.gather([F.linear(x, part.head).view(-1) for part in self.parts]))
        following = self.position + 1
        given = self.tokens.index_select(0, following)
        chosen = torch.where(following < len(PROMPT), given, self.logits.argmax().view(1))
        self.tokens.index_copy_(0, following, chosen)
        self.position.add_(1)


def in_order(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def alone(shape, weights, size, device):
    """One process with the parts of ``size`` ranks."""
    parts = [Part(shape, weights, rank, size, device) for rank in range(size)]
    return Decoder(shape, parts, weights, in_order, torch.cat, device)


def member(shape, weights, rank, size, device, group=None):
    """A rank of a process group."""

    def add(parts):
        dist.all_reduce(parts[0], group=group)
        return parts[0]

    def gather(parts):
        whole = torch.empty(shape.vocabulary, device=device)
        dist.all_gather_into_tensor(whole, parts[0], group=group)
        return whole

    return Decoder(shape, [Part(shape, weights, rank, size, device)], weights, add, gather, device)


def captured(decoder):
    """A function that replays a step."""
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        for _ in range(2):
            decoder.step()
    torch.npu.current_stream().wait_stream(side)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        decoder.step()
    return graph.replay


def generate(decoder, step, count, wait=lambda: None):
    """``count`` tokens, the prompt's among them, each waited for; seconds of a token."""
    decoder.reset()
    wait()
    start = time.perf_counter()
    for _ in range(count - 1):
        step()
        wait()
    return (time.perf_counter() - start) / (count - 1)


def tokens_of(decoder, step, count):
    generate(decoder, step, count)
    return decoder.tokens[:count].tolist()


# ---- The benchmark ----


def contestants(shape, weights, rank, size, group):
    """name: (decoder, step, wait, whether all ranks take part)."""
    npu = torch.npu.synchronize
    split, eager = (member(shape, weights, rank, size, "npu", group) for _ in range(2))
    ways = {
        "npu captured": (split, captured(split), npu, True),
        "npu eager": (eager, eager.step, npu, True),
    }
    gloo = member(shape, weights, rank, size, "cpu")
    ways["CPU and gloo"] = (gloo, gloo.step, lambda: None, True)
    if rank == 0:
        one = alone(shape, weights, 1, "npu")
        ways["npu captured, 1 rank"] = (one, captured(one), npu, False)
        cpu = alone(shape, weights, 1, "cpu")
        ways["CPU, 1 rank"] = (cpu, cpu.step, lambda: None, False)
    return ways


def common(a, b):
    """How many of the first tokens are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def run_rank(arguments):
    rank, size = arguments.rank, arguments.of
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*all_gather_into_tensor", category=FutureWarning)
    dist.init_process_group("gloo", init_method=f"file://{arguments.folder}/store", rank=rank, world_size=size)
    group = dist.new_group(backend="hccl")
    figures = {}
    for name in arguments.models.split(","):
        shape = MODELS[name]
        weights = weights_of(shape)
        ways = contestants(shape, weights, rank, size, group)
        order = ["npu captured", "npu eager", "CPU and gloo", "npu captured, 1 rank", "CPU, 1 rank"]
        said = {way: tokens_of(*ways[way][:2], arguments.tokens) for way in order if way in ways}
        if rank == 0:
            reference = alone(shape, weights, size, "npu")
            wanted = tokens_of(reference, reference.step, arguments.tokens)
            for way in ("npu captured", "npu eager"):
                assert said[way] == wanted, f"{way}: {said[way]}, but one process with all parts: {wanted}"
        times = {way: [] for way in order}
        for turn in range(arguments.rounds):
            for way in order[turn % len(order) :] + order[: turn % len(order)]:
                dist.barrier()
                if way in ways:
                    decoder, step, wait, _ = ways[way]
                    times[way].append(generate(decoder, step, arguments.tokens, wait) * 1e6)
        if rank == 0:
            figures[name] = {
                way: {"us": times[way], "equal": common(said[way], said["npu captured"])} for way in order
            }
    if rank == 0:
        with open(f"{arguments.folder}/figures", "w") as file:
            json.dump(figures, file)
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(arguments, size):
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *sys.argv[1:], "--of", str(size), "--folder", folder]
        environment = {**os.environ, "REPRISE_DEVICES": "1", "OMP_NUM_THREADS": "1"}
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(size)]
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            raise SystemExit(f"{size} ranks ended with {codes}")
        with open(f"{folder}/figures") as file:
            return json.load(file)


def busy():
    """CPU seconds of the whole machine."""
    with open("/proc/stat") as file:
        numbers = [int(number) for number in file.readline().split()[1:9]]
    return (sum(numbers) - numbers[3] - numbers[4]) / os.sysconf("SC_CLK_TCK")


def own():
    times = os.times()
    return sum(times[:4])


def table(results, tokens):
    lines = [
        "| Model | Ranks | Contestant | µs per token | quartiles | times the captured one | first tokens equal |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    for size, models in results.items():
        for model, ways in models.items():
            base = ways["npu captured"]["us"]
            for way, figure in ways.items():
                low, middle, high = statistics.quantiles(figure["us"], n=4)
                ratios = [value / own_time for value, own_time in zip(figure["us"], base)]
                least, ratio, most = statistics.quantiles(ratios, n=4)
                lines.append(
                    f"| {model} | {size} | {way} | {middle:.0f} | {low:.0f} to {high:.0f} "
                    f"| {ratio:.2f} ({least:.2f} to {most:.2f}) | {figure['equal']} of {tokens} |"
                )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks, by comma; they must divide the heads of keys")
    parser.add_argument("--models", default=",".join(MODELS), help="by comma")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--markdown", help="write the table here, too")
    for hidden in ("--rank", "--of"):
        parser.add_argument(hidden, type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank >= 0:
        with torch.no_grad():
            return run_rank(arguments)
    start, others, mine = time.monotonic(), busy(), own()
    results = {size: run_ranks(arguments, size) for size in map(int, arguments.ranks.split(","))}
    wall = time.monotonic() - start
    load = max(0.0, (busy() - others - (own() - mine)) / wall)
    text = (
        f"{os.cpu_count()} cores; PyTorch has one thread in each process, npu its workers; other processes used {load:.2f} cores meanwhile. "
        "Compare ratios, not times.\n\n" + table(results, arguments.tokens)
    )
    print(text, end="")
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
