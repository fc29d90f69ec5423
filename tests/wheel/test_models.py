# SPDX-License-Identifier: Apache-2.0
"""Layers and training as users write them, against the same program on the CPU."""

import copy
import ctypes

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def leaves(value):
    return [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def run_layer(layer, inputs, device):
    """Results, and gradients of the inputs and the weights."""
    layer = copy.deepcopy(layer).to(device)
    inputs = [x.detach().to(device) for x in inputs]
    for x in inputs:
        x.requires_grad_()
    results = leaves(layer(*inputs))
    sum((x * torch.linspace(-1, 1, x.numel()).view(x.shape).to(device)).sum() for x in results).backward()
    grads = [x.grad for x in (*inputs, *layer.parameters()) if x.grad is not None]
    return [x.detach().cpu() for x in results + grads]


class Attention(nn.Module):
    """Scaled products of heads, with a mask or causal."""

    def __init__(self, causal):
        super().__init__()
        self.weight = nn.Linear(16, 48)
        self.causal = causal

    def forward(self, x):
        q, k, v = self.weight(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


def needs(name):
    has = hasattr(ctypes.CDLL("libopapi.so"), name + "GetWorkspaceSize")
    return pytest.mark.skipif(not has, reason=f"not there yet: {name}")


LAYERS = {
    "linear": (lambda: nn.Linear(6, 4), [(3, 5, 6)]),
    "linear without bias": (lambda: nn.Linear(6, 4, bias=False), [(6,)]),
    "bilinear": (lambda: nn.Bilinear(3, 4, 5), [(2, 3), (2, 4)]),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), [(2, 4, 9)]),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), [(2, 4, 9, 8)]),
    "conv2d dilated": (lambda: nn.Conv2d(3, 5, (3, 2), dilation=2, bias=False), [(2, 3, 9, 8)]),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), [(1, 2, 4, 5, 4)]),
    "conv transpose": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), [(2, 4, 5, 4)]),
    "batch norm": (lambda: nn.BatchNorm2d(3), [(4, 3, 5, 5)]),
    "layer norm": (lambda: nn.LayerNorm((4, 6)), [(3, 4, 6)]),
    "group norm": (lambda: nn.GroupNorm(2, 4), [(3, 4, 5)]),
    "rms norm": (lambda: nn.RMSNorm(8), [(3, 8)]),
    "prelu": (lambda: nn.PReLU(4), [(3, 4, 5)]),
    "prelu of one slope": (lambda: nn.PReLU(), [(3, 4)]),
    "pools": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2)), [(2, 3, 16, 16)]),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), [(2, 3, 5, 4)]),
    "attention": (lambda: Attention(False), [(2, 5, 16)]),
    "causal attention": (lambda: Attention(True), [(2, 5, 16)]),
    "multihead attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), [(2, 5, 16)] * 3),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=True), [(2, 5, 16)]),
    "decoder layer": (lambda: nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True), [(2, 5, 16), (2, 3, 16)]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_the_cpu_gives(name):
    make, shapes = LAYERS[name]
    torch.manual_seed(5)
    layer, inputs = make(), [torch.randn(shape) for shape in shapes]
    wanted = run_layer(layer, inputs, "cpu")
    for got, want in zip(run_layer(layer, inputs, "npu"), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


# ---- Training ----


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Parameter(torch.randn(6, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 20)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(6, device=x.device)
        return self.head(self.layers(self.words(x) + self.places, mask=mask)).flatten(0, 1)


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4)),
            lambda: (torch.randn(12, 8), torch.randint(4, (12,)))),
    "cnn": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(8, 8, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)),
            lambda: (torch.randn(6, 3, 10, 10), torch.randint(4, (6,)))),
    "transformer": (Transformer, lambda: (torch.randint(20, (4, 6)), torch.randint(20, (24,)))),
}
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def train(name, device, precision, steps=6):
    make, data = MODELS[name]
    torch.manual_seed(11)
    model, (x, y) = make(), data()
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    scaler = torch.amp.GradScaler(device, enabled=precision == torch.float16, init_scale=256.0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=precision or torch.bfloat16, enabled=precision is not None):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("precision", [
    "float32", "bfloat16", pytest.param("float16", marks=needs("aclnnAmpUpdateScale"))])
@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_the_cpu(name, precision):
    got, want = (train(name, device, PRECISIONS[precision]) for device in ("npu", "cpu"))
    assert want[-1] < want[0]
    bound = 1e-4 if precision == "float32" else 2e-2
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)


def test_checkpoints_go_from_device_to_device(tmp_path):
    torch.manual_seed(2)
    model = nn.Linear(4, 4).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4).npu()).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", map_location="cpu")
    other = nn.Linear(4, 4)
    other.load_state_dict(state["model"])
    torch.optim.AdamW(other.parameters()).load_state_dict(state["optimizer"])
    assert torch.equal(other.weight, model.weight.detach().cpu())
    back = torch.load(tmp_path / "state.pt", map_location="npu:0")
    assert back["model"]["weight"].device.type == "npu"
