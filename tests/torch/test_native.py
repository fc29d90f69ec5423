# SPDX-License-Identifier: Apache-2.0
"""Operators with kernels of their own: results against the CPU, draws, and captures against eager calls."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "npu"


def gradients(module, inputs):
    """Output and gradients of a loss that gives every output another weight."""
    output = module(*inputs)
    output = output[0] if isinstance(output, tuple) else output
    (output * output).sum().backward()
    leaves = list(module.parameters()) + [x for x in inputs if x.requires_grad]
    return [output.detach()] + [leaf.grad for leaf in leaves]


MODULES = {
    "conv1d": (lambda: nn.Conv1d(3, 5, 3, padding=1), [(2, 3, 9)]),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), [(2, 4, 9, 9)]),
    "conv2d-unbatched": (lambda: nn.Conv2d(4, 6, (1, 3), dilation=2), [(4, 9, 9)]),
    "conv2d-channels-last": (lambda: nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last), [(2, 4, 9, 9)]),
    "conv3d": (lambda: nn.Conv3d(2, 3, 3, bias=False), [(1, 2, 5, 5, 5)]),
    "conv-transpose": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), [(2, 4, 5, 5)]),
    "lstm": (lambda: nn.LSTM(5, 7, 2, bidirectional=True), [(4, 3, 5)]),
    "lstm-no-bias": (lambda: nn.LSTM(5, 7, bias=False), [(4, 3, 5)]),
    "gru": (lambda: nn.GRU(5, 7, 2), [(4, 3, 5)]),
    "gru-no-bias": (lambda: nn.GRU(5, 7, bias=False, batch_first=True), [(4, 3, 5)]),
    "lstm-cell": (lambda: nn.LSTMCell(5, 7), [(3, 5)]),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), [(3, 4, 8)]),
    "batch-norm": (lambda: nn.BatchNorm2d(4), [(3, 4, 5, 5)]),
}


@pytest.mark.parametrize("name", MODULES)
def test_TN_290_layers_compute_what_the_cpu_computes(name):
    make, shapes = MODULES[name]
    torch.manual_seed(1)
    module = make()
    on_device = copy.deepcopy(module).to(DEVICE)
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    moved = [x.detach().to(DEVICE).requires_grad_() for x in inputs]
    for ours, cpu in zip(gradients(on_device, moved), gradients(module, inputs)):
        torch.testing.assert_close(ours.cpu(), cpu, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["conv2d", "lstm", "gru", "attention", "embedding"])
def test_TN_290_captured_layers_equal_eager_ones(name):
    torch.manual_seed(2)
    if name == "embedding":
        module = nn.Embedding(11, 4).to(DEVICE)
        data = [torch.randint(11, (3, 5)) for _ in range(3)]
    else:
        make, (shape,) = MODULES[name]
        module = make().to(DEVICE)
        data = [torch.randn(shape) for _ in range(3)]
    eager = copy.deepcopy(module)
    static = data[0].to(DEVICE)

    def step(layer, x):
        layer.zero_grad(set_to_none=False)
        return gradients(layer, [x])

    step(module, static)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        results = step(module, static)
    for batch in data:
        static.copy_(batch)
        graph.replay()
        for ours, expected in zip(results, step(eager, batch.to(DEVICE))):
            assert torch.equal(ours.cpu(), expected.cpu())


def test_TN_290_packed_sequences_and_16_bit_cells():
    torch.manual_seed(3)
    lstm = nn.LSTM(5, 7)
    x = torch.randn(6, 3, 5)
    packed = nn.utils.rnn.pack_padded_sequence(x, [6, 4, 2])
    expected, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])
    lstm = lstm.to(DEVICE)
    ours, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed.to(DEVICE))[0])
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-5)
    half = lstm.to(torch.bfloat16)(x.to(DEVICE, torch.bfloat16))[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float().cpu(), lstm.float()(x.to(DEVICE))[0].cpu(), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_selected_rows(dtype):
    torch.manual_seed(5)
    whole = torch.randn(9, 4, 6).mul(3).to(dtype)
    tables = [whole, whole[:, 1:3], whole[::2], whole.transpose(1, 2), whole[:, 0, 0], whole[:, :0], whole[1:8, :, 2:3]]
    numbers = torch.randint(4, (3, 5))
    indices = [numbers[0], numbers[:, 2], numbers.int()[:, 1], numbers[0, :0], torch.tensor(2)]
    for table in tables:
        for index in indices:
            expected = table.index_select(0, index)
            ours = table.to(DEVICE).index_select(0, index.to(DEVICE))
            assert torch.equal(ours.cpu(), expected)
            on_device = whole.to(DEVICE).as_strided(table.size(), table.stride(), table.storage_offset())
            places = numbers.to(DEVICE, index.dtype).as_strided(index.size(), index.stride(), index.storage_offset())
            if index.dim() == 1:
                index = numbers.to(index.dtype).as_strided(index.size(), index.stride(), index.storage_offset())
                assert torch.equal(on_device.index_select(0, places).cpu(), table.index_select(0, index))


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_selected_rows_out_of_range(bad):
    table = torch.randn(3, 4, device=DEVICE)
    table.index_select(0, torch.tensor([0, bad], device=DEVICE))
    with pytest.raises(RuntimeError, match="index_select.*index out of range in self"):
        torch.npu.synchronize()
    torch.npu.synchronize()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_indexed_rows(dtype):
    torch.manual_seed(6)
    whole = torch.randn(9, 4, 6).mul(3).to(dtype)
    on_device = whole.to(DEVICE)
    numbers = torch.randint(-4, 4, (3, 5))
    before = torch.npu.event_counters()["dispatch.cpu_kernel"]
    for places in (numbers[0], numbers, numbers[:, 2], numbers.int(), numbers[0, :0], torch.tensor(-2)):
        assert torch.equal(on_device[places.to(DEVICE)].cpu(), whole[places])
        assert torch.equal(on_device[2:8][places.to(DEVICE)].cpu(), whole[2:8][places])
    assert torch.npu.event_counters()["dispatch.cpu_kernel"] == before
    # What PyTorch's kernel does.
    on_device_numbers = numbers.to(DEVICE)
    for view in (lambda x: x, lambda x: x.transpose(0, 2), lambda x: x[..., ::2]):
        assert torch.equal(view(on_device)[on_device_numbers.t()].cpu(), view(whole)[numbers.t()])
        assert torch.equal(view(on_device)[:, on_device_numbers].cpu(), view(whole)[:, numbers])
        assert torch.equal(view(on_device)[on_device_numbers[0], on_device_numbers[1]].cpu(), view(whole)[numbers[0], numbers[1]])


@pytest.mark.parametrize("bad", [-4, 3, 2**40])
def test_indexed_rows_out_of_range(bad):
    table = torch.randn(3, 4, device=DEVICE)
    table[torch.tensor([0, bad], device=DEVICE)]
    with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds for dimension 0 with size 3"):
        torch.npu.synchronize()
    torch.npu.synchronize()


@pytest.mark.parametrize("count", [1, 7, 3000])
@pytest.mark.parametrize("shape", [(9, 4), (5, 3, 70), (200, 64), (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_rows_added_by_their_numbers(dtype, shape, count):
    torch.manual_seed(7)
    table, given = (8 * torch.randn(shape)).to(dtype), (8 * torch.randn(count, *shape[1:])).to(dtype)
    numbers = torch.randint(shape[0], (count, 2))
    ours, ours_given, ours_numbers = table.to(DEVICE), given.to(DEVICE), numbers.to(DEVICE)
    for places, theirs in ((numbers[:, 0], ours_numbers[:, 0]), (numbers[:, 1].int(), ours_numbers[:, 1].int())):
        for alpha in (1, 2):
            expected = table.index_add(0, places, given, alpha=alpha)
            assert torch.equal(ours.index_add(0, theirs, ours_given, alpha=alpha).cpu(), expected)
            assert torch.equal(ours.clone().index_add_(0, theirs, ours_given, alpha=alpha).cpu(), expected)
        out = torch.full_like(ours, 77)
        torch.index_add(ours, 0, theirs, ours_given, out=out)
        assert torch.equal(out.cpu(), table.index_add(0, places, given))
    # What PyTorch's kernel does: views, other dims.
    sideways, sideways_given = table.transpose(0, 1), given.transpose(0, 1)
    assert torch.equal(ours.transpose(0, 1).clone().index_add_(1, ours_numbers[:, 1], ours_given.transpose(0, 1)).cpu(),
                       sideways.clone().index_add_(1, numbers[:, 1], sideways_given))
    part = given[:, :1].expand(count, *shape[1:])
    assert torch.equal(ours.index_add(0, ours_numbers[:, 1], ours_given[:, :1].expand(count, *shape[1:])).cpu(),
                       table.index_add(0, numbers[:, 1], part))


def test_rows_added_in_a_graph():
    torch.manual_seed(8)
    table, given, numbers = torch.randn(300, 48), torch.randn(5000, 48), torch.randint(300, (5000,))
    ours, ours_given, ours_numbers = table.to(DEVICE), given.to(DEVICE), numbers.to(DEVICE)
    before = torch.npu.event_counters()["dispatch.cpu_kernel"]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = torch.relu(ours[ours_numbers] + ours_given)
        result = torch.zeros_like(ours).index_add_(0, ours_numbers, result)
        ours_given.index_add_(0, torch.arange(10, device=DEVICE), ours_given[20:30].clone())
    assert torch.npu.event_counters()["dispatch.cpu_kernel"] <= before + 1  # the range
    for _ in range(4):
        graph.replay()
        expected = torch.zeros_like(table).index_add_(0, numbers, torch.relu(table[numbers] + given))
        given.index_add_(0, torch.arange(10), given[20:30].clone())
        assert torch.equal(result.cpu(), expected)
        assert torch.equal(ours_given.cpu(), given)


@pytest.mark.parametrize("bad", [-1, 3, 2**40])
def test_rows_added_out_of_range(bad):
    table = torch.ones(3, 4, device=DEVICE)
    places = torch.tensor([0, bad], device=DEVICE)
    table.index_add_(0, places, torch.ones(2, 4, device=DEVICE))
    with pytest.raises(RuntimeError, match=f"index_add.*index {bad} is out of bounds for dimension 0 with size 3"):
        torch.npu.synchronize()
    assert torch.equal(table.cpu(), torch.ones(3, 4))
    with pytest.raises(RuntimeError, match="source|index|dim"):
        table.index_add_(0, places, torch.ones(3, 4, device=DEVICE))


def test_convolution_refuses_tensors_of_other_devices():
    with pytest.raises(RuntimeError, match="same device"):
        F.conv2d(torch.zeros(1, 2, 4, 4, device=DEVICE), torch.zeros(3, 2, 3, 3))


def test_attention_takes_the_composite():
    torch.manual_seed(4)
    q, k, v = torch.randn(3, 2, 2, 5, 8)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    ours = F.scaled_dot_product_attention(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), is_causal=True)
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_fills():
    x = torch.ones(10, 3, device=DEVICE)
    x[:, 1].fill_(4)
    assert x.sum().item() == 60
    x.t()[0].zero_()
    assert x.sum().item() == 50
    for dtype, value in [
        (torch.bfloat16, 1.5),
        (torch.int16, -3),
        (torch.bool, True),
        (torch.uint8, 200),
        (torch.float64, 0.1),
        (torch.complex64, 2 + 1j),
        (torch.complex128, 2 - 1j),
    ]:
        ours = torch.full((5,), value, dtype=dtype, device=DEVICE)
        assert torch.equal(ours.cpu(), torch.full((5,), value, dtype=dtype))
    assert torch.zeros(2, device=DEVICE).fill_(torch.tensor(3.0, device=DEVICE)).tolist() == [3, 3]
    assert torch.zeros(2, device=DEVICE).fill_(torch.tensor(3.0)).tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.empty(2, dtype=torch.uint8, device=DEVICE).fill_(300)
    with pytest.raises(RuntimeError, match="0-dimension"):
        torch.empty(2, device=DEVICE).fill_(torch.zeros(2))
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device=DEVICE).expand(3).fill_(torch.ones((), device=DEVICE))
    assert torch.zeros(1, device=DEVICE).expand(3).fill_(1).tolist() == [1, 1, 1]  # as the CPU does


DRAWS = {
    "uniform": (lambda: torch.empty(4000, device=DEVICE).uniform_(-1, 3), 1, 1.155),
    "uniform-double": (lambda: torch.empty(4000, device=DEVICE, dtype=torch.float64).uniform_(), 0.5, 0.289),
    "uniform-bfloat16": (lambda: torch.empty(4000, device=DEVICE, dtype=torch.bfloat16).uniform_(), 0.5, 0.289),
    "uniform-strided": (lambda: torch.zeros(4000, 2, device=DEVICE)[:, 0].uniform_(), 0.5, 0.289),
    "normal": (lambda: torch.empty(4000, device=DEVICE).normal_(1, 2), 1, 2),
    "complex": (lambda: torch.randn(4000, device=DEVICE, dtype=torch.complex64).real, 0, 0.707),
    "log-normal": (lambda: torch.empty(4000, device=DEVICE).log_normal_(0, 0.5), 1.133, 0.604),
    "exponential": (lambda: torch.empty(4000, device=DEVICE).exponential_(2), 0.5, 0.5),
    "cauchy": (lambda: (torch.empty(4000, device=DEVICE).cauchy_() > 1).float(), 0.25, 0.433),
    "geometric": (lambda: torch.empty(4000, device=DEVICE).geometric_(0.3), 3.333, 2.789),
    "geometric-int": (lambda: torch.empty(4000, device=DEVICE, dtype=torch.int64).geometric_(0.3), 3.333, 2.789),
    "bernoulli": (lambda: torch.empty(4000, device=DEVICE, dtype=torch.bool).bernoulli_(0.3), 0.3, 0.458),
    "bernoulli-each": (lambda: torch.bernoulli(torch.full((4000,), 0.3, device=DEVICE)), 0.3, 0.458),
    "random": (lambda: torch.empty(4000, device=DEVICE, dtype=torch.int16).random_(), 16383, 9459),
    "random-float": (lambda: torch.empty(4000, device=DEVICE).random_() / 2**24, 0.5, 0.289),
    "random-range": (
        lambda: torch.empty(4000, device=DEVICE, dtype=torch.int64).random_(-(2**63), None) / 2.0**63,
        0,
        0.577,
    ),
    "randint": (lambda: torch.randint(-5, 9, (4000,), device=DEVICE), 1.5, 4.031),
    "randperm": (lambda: torch.randperm(4000, device=DEVICE), 1999.5, 1154.8),
    "randperm-float": (lambda: torch.randperm(4000, device=DEVICE, dtype=torch.float32), 1999.5, 1154.8),
    "multinomial": (lambda: torch.multinomial(torch.ones(40, device=DEVICE), 4000, replacement=True), 19.5, 11.54),
    "poisson": (lambda: torch.poisson(torch.full((4000,), 3.0, device=DEVICE)), 3, 1.732),
    "gamma": (lambda: torch._standard_gamma(torch.full((4000,), 3.0, device=DEVICE)), 3, 1.732),
    "dropout": (lambda: F.dropout(torch.ones(4000, device=DEVICE), 0.25), 1, 0.577),
    "dropout-strided": (lambda: F.dropout(torch.ones(4000, 2, device=DEVICE)[:, 0], 0.25), 1, 0.577),
    "dropout-channels": (lambda: F.dropout2d(torch.ones(4000, 1, 1, 1, device=DEVICE), 0.25), 1, 0.577),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_follow_the_seed_eagerly_and_replayed(name):
    draw, mean, deviation = DRAWS[name]
    seed = torch.npu.manual_seed_all
    seed(5)
    eager = [draw().cpu() for _ in range(3)]
    sample = eager[0].double()
    assert abs(sample.mean().item() - mean) < 5 * deviation / 4000**0.5
    assert abs(sample.std().item() / deviation - 1) < 0.12
    assert not torch.equal(eager[0], eager[1])
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = draw()
    seed(5)
    for expected in eager:
        graph.replay()
        assert torch.equal(result.cpu(), expected)


def test_permutations_are_permutations():
    for dtype in (torch.int64, torch.int32, torch.float32):
        assert torch.randperm(1000, device=DEVICE, dtype=dtype).sort()[0].cpu().tolist() == list(range(1000))
    with pytest.raises(RuntimeError, match="too large"):
        torch.randperm(300, device=DEVICE, dtype=torch.uint8)


def test_draws_refuse_what_makes_no_sense():
    x = torch.empty(4, device=DEVICE)
    for call, words in [
        (lambda: x.uniform_(2, 1), "uniform_ expects"),
        (lambda: x.normal_(0, -1), "std >= 0"),
        (lambda: x.exponential_(-1), "lambda > 0"),
        (lambda: x.bernoulli_(1.5), "p to be in"),
        (lambda: x.random_(3, 3), "less than 'to'"),
        (lambda: torch.empty(4, device=DEVICE, dtype=torch.uint8).random_(0, 300), "out of bounds"),
        (lambda: x.uniform_(generator=torch.Generator()), "'npu' generator"),
        (lambda: torch.zeros(1, device=DEVICE).expand(4).uniform_(), "single memory location"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()


def test_dropout_and_its_gradient_agree():
    x = torch.ones(1000, device=DEVICE, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert set(y.detach().cpu().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert torch.equal(F.dropout(x, 0.25, training=False).detach(), x.detach())
    assert F.dropout(x, 1.0).sum().item() == 0
    ones, mask = torch.native_dropout(x.detach(), 0.5, False)
    assert torch.equal(ones, x.detach()) and mask.all().item()


def test_TN_310_memory_of_a_freed_tensor_is_reused_in_stream_order():
    x = torch.arange(1 << 16, dtype=torch.float32, device=DEVICE)
    sums = []
    for i in range(50):
        y = x + i
        sums.append(y.sum())
        del y  # its memory goes to the next iteration, whose task runs later on the same stream
    expected = x.cpu().sum().item()
    for i, total in enumerate(sums):
        assert total.item() == pytest.approx(expected + i * (1 << 16), rel=1e-5)


def test_TN_311_memory_used_on_another_stream():
    side = torch.Stream(device=DEVICE)
    main = torch.accelerator.current_stream()
    for _ in range(20):
        x = torch.full((1 << 16,), 3.0, device=DEVICE)
        side.wait_stream(main)
        with side:
            total = (x * 2).sum()
        x.record_stream(side)
        address = x.data_ptr()
        del x
        other = torch.full((1 << 16,), 5.0, device=DEVICE)
        assert other.data_ptr() != address or side.query()
        side.synchronize()
        assert total.item() == 6 * (1 << 16)
    # Without record_stream: a hazard, but none for the process.
    for _ in range(20):
        x = torch.full((1 << 16,), 3.0, device=DEVICE)
        side.wait_stream(main)
        with side:
            total = (x * 2).sum()
        del x
        torch.full((1 << 16,), 5.0, device=DEVICE)
    torch.accelerator.synchronize()


def test_factorisations_are_captured_and_say_when_they_fail():
    good, bad = torch.eye(3) * 2, torch.zeros(3, 3)
    a = good.npu()
    torch.linalg.inv(a)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        inverse = torch.linalg.inv(a)
    graph.replay()
    assert torch.equal(inverse.cpu(), torch.linalg.inv(good))
    a.copy_(bad)
    graph.replay()
    with pytest.raises(RuntimeError, match="singular"):
        torch.npu.synchronize()
    a.copy_(good)
    graph.replay()
    assert torch.equal(inverse.cpu(), torch.linalg.inv(good))
    with pytest.raises(RuntimeError, match="singular"):
        torch.linalg.inv(bad.npu())  # eagerly at the call
