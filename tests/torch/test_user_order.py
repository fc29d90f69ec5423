# SPDX-License-Identifier: Apache-2.0
"""Programs in the order in which their authors write them: optimizer before the move, hooks before the move, classes of
torch replaced by those of the device, layouts other than row-major, more devices than one."""
import copy

import pytest
import torch
import torch.nn.functional as F
from support import output_of
from torch import nn

DEVICE = "npu"


def mlp():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def train(model, optimizer, device, steps=5):
    generator = torch.Generator().manual_seed(4)
    for _ in range(steps):
        x, y = torch.randn(16, 6, generator=generator).to(device), torch.randn(16, 2, generator=generator).to(device)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


MOVES = {
    "to": lambda model: model.to(DEVICE),
    "to_index": lambda model: model.to("npu:0"),
    "npu": lambda model: model.npu(),
    "to_and_back_and_to": lambda model: model.to(DEVICE).cpu().to(DEVICE),
    "to_dtype": lambda model: model.double().to(DEVICE, torch.float32),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW], ids=lambda make: make.__name__)
def test_an_optimizer_made_before_the_move_trains(make, move):
    expected_model = mlp()
    expected = train(expected_model, make(expected_model.parameters(), lr=0.1), "cpu")
    model = mlp()
    optimizer = make(model.parameters(), lr=0.1)
    before = list(model.parameters())
    model = move(model)
    assert all(now is then for now, then in zip(model.parameters(), before))
    assert all(parameter.is_npu and parameter.is_leaf for parameter in model.parameters())
    for got, want in zip(train(model, optimizer, DEVICE), expected):
        torch.testing.assert_close(got, want)


def test_an_optimizer_that_has_stepped_goes_on_after_the_move():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, "cpu", steps=1)
    moved = model.to(DEVICE)
    assert all(parameter.grad.is_npu for parameter in moved.parameters())
    expected = mlp()
    other = torch.optim.SGD(expected.parameters(), lr=0.1)
    train(expected, other, "cpu", steps=1)
    want = train(expected, other, "cpu")
    for got, each in zip(train(moved, optimizer, DEVICE), want):
        torch.testing.assert_close(got, each)


def test_tied_weights_stay_tied():
    embedding, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = embedding.weight
    model = nn.ModuleList([embedding, head]).to(DEVICE)
    assert model[0].weight is model[1].weight
    model[1](model[0](torch.arange(7, device=DEVICE))).sum().backward()
    assert model[0].weight.grad is model[1].weight.grad
    assert len(list(model.parameters())) == 1


def test_hooks_made_before_the_move_are_called():
    model = mlp()
    calls = []
    model[0].weight.register_hook(lambda grad: calls.append(("hook", grad.device.type)))
    model[2].weight.register_post_accumulate_grad_hook(lambda p: calls.append(("accumulated", p.grad.device.type)))
    model = model.to(DEVICE)
    model(torch.ones(3, 6, device=DEVICE)).sum().backward()
    assert sorted(calls) == [("accumulated", "npu"), ("hook", "npu")]


def test_data_of_a_parameter_can_be_moved():
    parameter = nn.Parameter(torch.arange(6.0).view(2, 3))
    view_of_old = parameter.data
    parameter.data = parameter.data.npu()
    assert parameter.is_npu and parameter.is_leaf and parameter.requires_grad
    (parameter * 2).sum().backward()
    assert torch.equal(parameter.grad.cpu(), torch.full((2, 3), 2.0))
    parameter.data = parameter.data.t()
    parameter.data = parameter.data.cpu()
    assert torch.equal(parameter, view_of_old.t())


def test_what_is_not_strided_stays_apart():
    parameter = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        parameter.data = torch.eye(3).to_sparse()
    assert parameter.is_npu


def test_a_copied_module_is_its_own():
    model = mlp().to(DEVICE)
    other = copy.deepcopy(model).cpu()
    assert all(parameter.is_npu for parameter in model.parameters())
    assert not any(parameter.is_npu for parameter in other.parameters())


def test_the_classes_of_torch_replaced_by_those_of_the_device():
    code = """
    import torch, torch_npu
    torch.Event = torch.npu.Event
    torch.Stream = torch.npu.Stream
    torch.cuda.Event, torch.cuda.Stream = torch.npu.Event, torch.npu.Stream
    stream, event = torch.Stream(), torch.Event(enable_timing=True)
    late = torch.npu.Event(enable_timing=True)
    with torch.npu.stream(stream):
        event.record()
        x = torch.ones(4, device="npu") * 2
        late.record()
    torch.npu.current_stream().wait_event(late)
    stream.wait_stream(torch.npu.current_stream())
    late.synchronize()
    assert event.query() and event.elapsed_time(late) >= 0 and event.device == torch.device("npu", 0)
    assert stream.record_event().query() in (True, False)
    block = torch.npu.caching_allocator_alloc(64, stream=stream)
    torch.npu.caching_allocator_delete(block)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x + 1
        torch.Event().record()
    graph.replay()
    assert y.tolist() == [3, 3, 3, 3] and isinstance(event, torch.Event) and isinstance(stream, torch.Stream)
    print("done")
    """
    assert output_of(code) == "done"


def test_each_device_has_its_own_capture_stream():
    code = """
    import torch
    replayed = []
    for index in (0, 1, 0, 1):
        torch.npu.set_device(index)
        x = torch.zeros(3, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            x += 1
        assert torch.npu.graph.default_capture_stream.device.index == index
        graph.replay()
        replayed.append((x.device.index, x.tolist()))
    assert replayed == [(index, [1, 1, 1]) for index in (0, 1, 0, 1)], replayed
    other = torch.npu.Stream(0)
    try:
        with torch.npu.graph(torch.npu.NPUGraph(), stream=other):
            x += 1
    except RuntimeError as error:
        assert "npu:0" in str(error) and "npu:1" in str(error), error
    else:
        raise AssertionError("captured a stream of another device")
    assert not torch.npu.is_current_stream_capturing() and torch.npu.current_device() == 1
    graph = torch.npu.NPUGraph()
    with torch.npu.device(0), torch.npu.graph(graph, stream=other):
        y = torch.ones(2, device="npu") * 3
    graph.replay()
    torch.npu.synchronize(0)
    assert y.tolist() == [3, 3]
    print("done")
    """
    assert output_of(code, REPRISE_DEVICES=2) == "done"


# Name: what it computes; shape of the input. Forward, and backward where it has one.
LAYOUT_CASES = {
    "reflection_pad2d": (lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), (2, 3, 4, 5)),
    "replication_pad2d": (lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), (2, 3, 4, 5)),
    "reflection_pad3d": (lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect"), (2, 3, 4, 5, 3)),
    "replication_pad3d": (lambda x: F.pad(x, (1, 2, 1, 2, 2, 1), mode="replicate"), (2, 3, 4, 5, 3)),
    "reflection_pad1d": (lambda x: F.pad(x, (1, 2), mode="reflect"), (2, 3, 4)),
    "logsigmoid": (F.logsigmoid, (4, 5)),
    "max_unpool2d": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (2, 3, 4, 6)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (2, 3, 4, 4, 4)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), (2, 3, 4, 6)),
    "upsample_nearest": (lambda x: F.interpolate(x, scale_factor=2), (2, 3, 4, 5)),
    "im2col": (lambda x: F.unfold(x, 2), (2, 3, 4, 5)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 4, 3, 3)),
    "glu": (lambda x: F.glu(x, 1), (2, 4, 3, 3)),
    "softshrink": (F.softshrink, (3, 4)),
    "cumsum": (lambda x: x.cumsum(1), (3, 4, 5)),
    "renorm": (lambda x: x.renorm(2, 0, 1.0), (3, 4, 5)),
}


def layouts(x):
    yield "permuted", x.permute(*range(x.dim() - 1, -1, -1)).contiguous().permute(*range(x.dim() - 1, -1, -1))
    if x.dim() in (4, 5):
        format = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        yield "channels_last", x.contiguous(memory_format=format)
    wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1])
    wide[..., ::2] = x
    yield "strided", wide[..., ::2]
    longer = torch.zeros(x.shape[0] + 1, *x.shape[1:])
    longer[1:] = x
    yield "offset", longer[1:]
    yield "expanded", x[:1].expand_as(x)


def on_device(x):
    """The same strides there; `.to()` would make some layouts dense."""
    storage = torch.empty(x.untyped_storage().nbytes() // x.element_size()).set_(x.untyped_storage()).to(DEVICE)
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


@pytest.mark.parametrize("name", LAYOUT_CASES)
def test_layouts_change_no_value(name):
    function, shape = LAYOUT_CASES[name]
    generator = torch.Generator().manual_seed(8)
    for layout, x in layouts(torch.randn(shape, generator=generator)):
        y = on_device(x)
        assert y.stride() == x.stride()
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        want, got = function(x), function(y)
        torch.testing.assert_close(got.cpu(), want, msg=lambda text, layout=layout: f"{layout}: {text}")
        seed = torch.randn(want.shape, generator=generator)
        # Gradients come in other layouts than row-major, too.
        for gradient in (seed, seed.transpose(0, -1).contiguous().transpose(0, -1)):
            x.grad = y.grad = None
            want.backward(gradient, retain_graph=True)
            got.backward(on_device(gradient), retain_graph=True)
            torch.testing.assert_close(y.grad.cpu(), x.grad, msg=lambda text, layout=layout: f"{layout}: {text}")


def test_a_network_with_reflected_borders_trains_in_channels_last():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.Conv2d(4, 2, 3))
    x = torch.randn(2, 3, 6, 6)
    expected = copy.deepcopy(model)
    expected(x).square().sum().backward()
    model = model.to(DEVICE, memory_format=torch.channels_last)
    model(x.to(DEVICE, memory_format=torch.channels_last)).square().sum().backward()
    for got, want in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(got.grad.cpu(), want.grad)


TOO_SMALL = {
    "logical_and_": (lambda x, y: x.logical_and_(y), torch.bool),
    "logical_or_": (lambda x, y: x.logical_or_(y), torch.bool),
    "logical_xor_": (lambda x, y: x.logical_xor_(y), torch.bool),
    "floor_divide_": (lambda x, y: x.floor_divide_(y), torch.float32),
    "ldexp_": (lambda x, y: x.ldexp_(y), torch.float32),
    "add_out": (lambda x, y: torch.add(x, y, out=x), torch.float32),
    "mul_": (lambda x, y: x.mul_(y), torch.float32),
    "atan2_": (lambda x, y: x.atan2_(y), torch.float32),
    "eq_": (lambda x, y: x.eq_(y), torch.float32),
    "copysign_": (lambda x, y: x.copysign_(y), torch.float32),
}


@pytest.mark.parametrize("name", TOO_SMALL)
def test_what_works_in_place_never_grows(name):
    function, dtype = TOO_SMALL[name]
    memory = torch.ones(8, 3, device=DEVICE).to(dtype)
    x, y = memory[0], torch.zeros(4, 3, device=DEVICE).to(dtype)
    with pytest.raises(RuntimeError, match="(?i)shape|size"):
        function(x, y)
    assert x.shape == (3,)
    assert torch.equal(memory.cpu(), torch.ones(8, 3).to(dtype))
    function(x, y[0])  # the same call with what fits
    assert torch.equal(memory[1:].cpu(), torch.ones(7, 3).to(dtype))
