# SPDX-License-Identifier: Apache-2.0
"""The same model on the CPU and on `npu`, compared."""
import copy

import torch


def tensors(value):
    """All tensors in what a model returned, in order, with where they were."""
    if isinstance(value, torch.Tensor):
        return [("", value)]
    if hasattr(value, "items"):
        pairs = list(value.items())
    elif isinstance(value, (list, tuple)):
        pairs = list(enumerate(value))
    elif hasattr(value, "__dict__") and not callable(value):
        pairs = list(vars(value).items())
    else:
        return []
    return [(f".{key}{rest}", tensor) for key, part in pairs for rest, tensor in tensors(part)]


def to(value, device):
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if isinstance(value, dict):
        return {key: to(part, device) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to(part, device) for part in value)
    return value


def assert_same(there, here, rtol=1e-4, atol=1e-5, norm=None):
    """What was computed on the device, against the same of the CPU; not of no tensors, and not of the CPU's.

    ``norm``: tensors are compared as a whole, by the norm of their difference. Gradients through normalisation of
    batches need that: in single elements they are small differences of large numbers."""
    there, here = tensors(there), tensors(here)
    assert [name for name, _ in there] == [name for name, _ in here] and there
    assert any(tensor.is_floating_point() and tensor.numel() for _, tensor in here)
    for (name, got), (_, wanted) in zip(there, here):
        assert got.device.type == "npu", f"{name} is on {got.device}"
        if norm is not None and wanted.is_floating_point():
            apart, size = ((one.double().norm().item()) for one in (got.cpu() - wanted, wanted))
            assert got.dtype == wanted.dtype and apart <= norm * size + atol, f"{name}: {apart} apart, of {size}"
            continue
        torch.testing.assert_close(got.cpu(), wanted, rtol=rtol, atol=atol, msg=lambda text: f"{name}: {text}")


def without_dropout(config):
    """Random numbers of the two devices differ."""
    for name, value in vars(config).items():
        if isinstance(value, float) and ("drop" in name):
            setattr(config, name, 0.0)
    return config


def two(model):
    """The model on the CPU and the same on the device."""
    return model, copy.deepcopy(model).npu()


def check_forward(model, call, *inputs, **options):
    """``call(model, *inputs)`` gives the same without gradients."""
    here, there = two(model.eval())
    with torch.no_grad():
        wanted = call(here, *inputs)
        got = call(there, *to(inputs, "npu"))
    assert_same(got, wanted, **options)


def check_training(model, loss_of, *inputs, steps=2, lr=1e-2, **close):
    """Losses, gradients and parameters after steps of SGD are the same; ``loss_of(model, *inputs)`` is a number."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    close = {"rtol": 1e-3, "atol": 1e-5} | close
    here, there = two(model.train())
    losses = []
    for one, device in ((here, "cpu"), (there, "npu")):
        optimizer = torch.optim.SGD(one.parameters(), lr=lr, momentum=0.9)
        placed = to(inputs, device)
        mine = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of(one, *placed)
            loss.backward()
            optimizer.step()
            mine.append(loss.detach())
        losses.append(mine)
    assert_same(losses[1], losses[0], **close)
    gradients = [
        {name: p.grad for name, p in one.named_parameters() if p.grad is not None} for one in (there, here)
    ]
    assert_same(*gradients, **close)
    assert_same(there.state_dict(), here.state_dict(), **close)
    trained = [name for name, parameter in here.named_parameters() if parameter.requires_grad]
    assert any(not torch.equal(before[name], here.get_parameter(name)) for name in trained), "nothing was trained"
