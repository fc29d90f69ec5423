# SPDX-License-Identifier: Apache-2.0
"""Convolutional networks in graphs: replays store results that somebody may look at, and only those.

A chain (docs/design/replay.md) keeps results to itself. Whether one was stored shows in memory that was filled before the
replay: it still has that, or it has the result."""
import collections
import copy
import json

import pytest
import torch
import torch_npu
from torch import nn

from support import output_of

weak = torch_npu._C._weak_ref_tensor
ENOUGH = 6  # replays until chains run


class Block(nn.Module):
    """Results become smaller and smaller, so that they take parts of the blocks of earlier ones."""

    def __init__(self):
        super().__init__()
        widths = (32, 48, 32, 16, 8)
        self.convs = nn.ModuleList(nn.Conv2d(taken, given, 1, bias=False) for taken, given in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm2d(given) for given in widths[1:])

    def forward(self, x, see):
        for conv, norm in zip(self.convs, self.norms):
            x = torch.relu(norm(see(conv(x))))
            see(x)
        return x


class Captured:
    """The network in a graph, and what the program has kept of its results."""

    def __init__(self, keep, end=lambda result: result, **options):
        self.net, self.x = Block().eval().requires_grad_(False).npu(), torch.randn(1, 32, 32, 32).npu()
        self.kept = []

        def see(value):
            self.kept.append(keep(value))
            return value

        self.net(self.x, lambda value: value)
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph, **options):
            self.result = end(self.net(self.x, see))
        self.graph.replay()
        self.expected = [value.clone() for value in self.kept]  # each task has run by itself
        self.wanted = self.net(self.x, lambda value: value)

    def replay(self):
        for value in self.kept:
            value.fill_(77)
        self.result.fill_(77)
        self.graph.replay()
        torch.npu.synchronize()
        return [torch.equal(value, expected) for value, expected in zip(self.kept, self.expected)]

    def check(self, stored):
        """``stored``: whether each result that the program has kept is stored; None: some are not."""
        for i in range(ENOUGH):
            is_stored = self.replay()
            assert torch.equal(self.result, self.wanted), i
            if stored is not None:
                assert is_stored == [True] * len(self.kept), i
        if stored is None and all(is_stored):
            pytest.skip("no chains here: the C++ tests know whether there should be some")


def test_results_whose_memory_was_used_again_are_not_stored(npu):
    Captured(weak).check(None)


def test_results_that_the_program_holds_are_stored(npu):
    Captured(lambda value: value).check(True)


@pytest.mark.parametrize("view", [lambda x: x[0, 3:5], lambda x: x.detach(), lambda x: x.view(-1)[5:6]], ids=["part", "alias", "one"])
def test_results_of_which_the_program_holds_a_view_are_stored(npu, view):
    Captured(view).check(True)


def test_a_result_that_is_only_referred_to_is_stored(npu):
    """Inference engines let go of the last result while they still capture, and look at it after each replay."""
    captured = Captured(lambda value: value[0, 0], end=weak)
    captured.check(True)


def test_captures_that_follow_in_the_same_pool_take_no_result_away(npu):
    first = Captured(lambda value: value[0, 0], end=weak)
    second = Captured(weak, end=weak, pool=first.graph.pool())
    first.check(True)
    second.check(None)
    first.check(True)


def test_results_that_another_stream_reads_are_seen_by_it(npu):
    side = torch.npu.Stream()
    net, x = Block().eval().requires_grad_(False).npu(), torch.randn(1, 32, 32, 32).npu()
    seen = []

    def see(value):
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            seen.append(value.sum())
            value.record_stream(side)
        return value

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = net(x, see)
        torch.npu.current_stream().wait_stream(side)
    sums = []
    wanted = net(x, lambda value: sums.append(value.sum()) or value)
    for _ in range(ENOUGH):
        for value in [result, *seen]:
            value.fill_(77)
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(result, wanted)
        assert all(torch.equal(one, other) for one, other in zip(seen, sums))


class Pooled(nn.Module):
    """A stem as networks have it, and a squeeze with its excitation, to one picture and to several."""

    def __init__(self, gives_indices):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1, return_indices=gives_indices)
        self.conv, self.mean = nn.Conv2d(24, 32, 1), nn.AvgPool2d(2)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 8, 1), nn.SiLU(), nn.Conv2d(8, 32, 1), nn.Sigmoid())
        self.last = nn.Conv2d(32, 16, 3, padding=1)

    def forward(self, x):
        x = self.pool(self.stem(x))
        x, indices = x if self.pool.return_indices else (x, None)
        x = torch.relu(self.conv(x))
        return self.last(self.mean(x * self.gate(x))), indices


@pytest.mark.parametrize("batch", (1, 3))
@pytest.mark.parametrize("gives_indices", (False, True))
def test_pools_and_squeezes_give_what_the_cpu_gives(npu, batch, gives_indices):
    net = Pooled(gives_indices).eval().requires_grad_(False)
    given = [torch.randn(batch, 3, 60, 44) for _ in range(2)]
    expected = [net(each) for each in given]
    net, x = net.npu(), given[0].npu()
    net(x)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result, indices = net(x)
    for i in range(ENOUGH + 2):
        x.copy_(given[i % 2])
        result.fill_(77)
        if gives_indices:
            indices.fill_(77)
        graph.replay()
        torch.testing.assert_close(result.cpu(), expected[i % 2][0], rtol=1e-4, atol=1e-5)
        if gives_indices:
            assert torch.equal(indices.cpu().long(), expected[i % 2][1]), i


class Pyramid(nn.Module):
    """Features of two sizes brought together, as in detectors; kernels of the CPU among them."""

    def __init__(self, between):
        super().__init__()
        self.between = between
        self.down = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.LeakyReLU(0.1))
        self.deep = nn.Sequential(nn.Conv2d(24, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(), nn.Conv2d(32, 16, 1), nn.ReLU())
        self.up = nn.Upsample(scale_factor=2)
        self.pad = nn.ReplicationPad2d(1)
        self.heads = nn.Sequential(nn.Conv2d(40, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 1))

    def forward(self, x):
        x = self.down(x)
        y = self.between(self.deep(x))
        return self.heads(self.pad(torch.cat([x, self.up(y)], 1)))


def check_changing(net, shape, bound=2e-5):
    """Results of replays are the CPU's, whatever x holds."""
    given = [torch.randn(shape) for _ in range(2)]
    net = net.eval().requires_grad_(False)
    expected = [net(each) for each in given]
    net, x = net.npu(), given[0].npu()
    net(x)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = net(x)
    for i in range(ENOUGH + 2):
        x.copy_(given[i % 2])
        result.fill_(77)
        graph.replay()
        torch.testing.assert_close(result.cpu(), expected[i % 2], rtol=10 * bound, atol=bound)


BETWEEN = {
    "nothing": lambda x: x,
    "a kernel of the CPU": torch.special.bessel_j0,
    "one that works in place": lambda x: x.erfinv_().nan_to_num_(0.5, 1.0, -1.0),
    "one that fills": lambda x: x + torch.zeros_like(x).fill_(0.25),
    "rows of a table": lambda x: x.flatten(2)[:, :, torch.arange(x.shape[2] * x.shape[3] - 1, -1, -1, device=x.device)].view_as(x),
}


@pytest.mark.parametrize("batch", (1, 3))
@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN.keys())
def test_pyramids_with_kernels_of_the_cpu_among_them(npu, batch, between):
    check_changing(Pyramid(between), (batch, 3, 64, 48))


class Scaling(nn.Module):
    """Changes a weight in each call, by a kernel of the CPU, between two convolutions that read it."""

    def __init__(self):
        super().__init__()
        self.first, self.conv = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.conv(torch.relu(self.first(x))))
        self.conv.weight.copy_(torch.special.bessel_j0(self.conv.weight))
        return self.conv(x)


def test_weights_that_the_graph_itself_changes_are_read_anew(npu):
    net, x = Scaling().requires_grad_(False), torch.randn(1, 3, 32, 32)
    on_cpu = copy.deepcopy(net)
    expected = [on_cpu(x) for _ in range(ENOUGH + 3)]
    net, x = net.npu(), x.npu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = net(x)
    for i in range(ENOUGH + 3):
        graph.replay()
        torch.testing.assert_close(result.cpu(), expected[i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("resize", [dict(scale_factor=2), dict(scale_factor=(1.5, 0.7)), dict(size=(17, 40)),
                                    dict(scale_factor=2.5, recompute_scale_factor=True)], ids=str)
@pytest.mark.parametrize("mode", ("nearest", "nearest-exact"))
def test_resizes_to_the_nearest_among_convolutions(npu, mode, resize):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 20, 3, padding=1), nn.Conv2d(20, 6, 1)

        def forward(self, x):
            return self.last(nn.functional.interpolate(torch.relu(self.first(x)), mode=mode, **resize))

    check_changing(Net(), (2, 3, 23, 31))
    x = torch.randn(2, 5, 23, 31)
    for given in (x, x.half(), (9 * x).to(torch.uint8), x.permute(0, 1, 3, 2), x.contiguous(memory_format=torch.channels_last)):
        found = nn.functional.interpolate(given.npu(), mode=mode, **resize)
        assert torch.equal(found.cpu(), nn.functional.interpolate(given, mode=mode, **resize))


@pytest.mark.parametrize("scale", (2, (2, 1.5, 0.5)), ids=str)
def test_volumes_resized_to_the_nearest(npu, scale):
    x = torch.randn(1, 4, 6, 7, 8)
    assert torch.equal(nn.functional.interpolate(x.npu(), scale_factor=scale).cpu(), nn.functional.interpolate(x, scale_factor=scale))


class Halves(nn.Module):
    """Units that compute some of the channels and join them with the others, in their order and in another one."""

    def __init__(self, width=24):
        super().__init__()
        half = width // 2
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU())
        self.units = nn.ModuleList(nn.Sequential(nn.Conv2d(half, half, 3, padding=1), nn.ReLU()) for _ in range(2))
        self.own = nn.Sequential(nn.Conv2d(half, half, 1), nn.BatchNorm2d(half), nn.Conv2d(half, half, 3, padding=1, groups=half))
        self.join, self.last = nn.Conv2d(2 * width, width, 1), nn.Conv2d(width // 3, 5, 1)

    def forward(self, x):
        x = self.first(x)
        parts = list(x.chunk(2, 1))
        for unit in self.units:
            parts.append(unit(parts[-1]))
        x = torch.relu(self.join(torch.cat(parts, 1)))
        a, b = x.split(x.shape[1] // 2, 1)
        x = torch.cat([a, self.own(b)], 1)
        x = nn.functional.channel_shuffle(x, 2)
        n, c, h, w = x.shape
        x = x.view(n, 3, c // 3, h, w).transpose(1, 2).reshape(n, c, h, w)
        return self.last(x[:, ::3].contiguous()) + self.last(x[:, 4:4 + c // 3])


@pytest.mark.parametrize("batch", (1, 2))
def test_halves_of_channels(npu, batch):
    check_changing(Halves(), (batch, 3, 48, 40))


# Prints the names of what ran in the last replays, of convolution, norm and activation.
TRACED = """
    import json
    import torch, torch_npu
    from torch import nn
    net = nn.Sequential(nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 1)).eval().npu()
    x = torch.randn(1, 16, 20, 20).npu()
    with torch.no_grad():
        net(x)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            result = net(x)
    for _ in range(6):
        graph.replay()
    torch.npu.synchronize()
"""


def names_in(trace):
    """Of tasks of graphs, by how often they ran."""
    events = json.loads(trace.read_text())["traceEvents"]
    return collections.Counter(e["name"] for e in events if e.get("cat") == "task" and "graph" in e.get("args", {}))


def test_the_profile_of_a_process_shows_what_runs_in_place_of_tasks(npu, tmp_path):
    trace = tmp_path / "trace.json"
    output_of(TRACED, REPRISE_PROFILE=trace)
    names = names_in(trace)
    together = "aten::convolution, aten::native_batch_norm, aten::relu"
    linked = sum(count for name, count in names.items() if name.startswith(together))
    if linked == 0:
        pytest.skip("no chains here: the C++ tests know whether there should be some")
    alone = sum(count for name, count in names.items() if name.startswith("aten::relu"))
    assert alone > 0, "the first replays run each task"
    assert linked + alone == 6


def test_a_recording_shows_each_task(npu, tmp_path):
    code = TRACED + f"""
    with torch_npu.profiler.profile(on_trace_ready=torch_npu.profiler.tensorboard_trace_handler({str(tmp_path)!r})):
        graph.replay()
        torch.npu.synchronize()
    """
    output_of(code, REPRISE_PROFILE=None)
    traces = list(tmp_path.rglob("trace_view.json"))
    assert len(traces) == 1
    text = traces[0].read_text()
    assert '"aten::relu_"' in text or '"aten::relu"' in text
    assert "aten::native_batch_norm, " not in text
