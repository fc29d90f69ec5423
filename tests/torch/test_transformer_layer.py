# SPDX-License-Identifier: Apache-2.0
"""Layers of torch.nn that PyTorch computes by one operator where no gradients are wanted."""
import itertools

import pytest
import torch
import torch_npu  # noqa: F401
from torch import nn

DEVICE = "npu:0"


def close(ours, expected):
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)  # of positions that may look nowhere


def masks_of(kind, batch, length):
    generator = torch.Generator().manual_seed(3)
    padding = torch.zeros(batch, length, dtype=torch.bool)
    padding[0, length - 3:] = True
    look_ahead = torch.rand(length, length, generator=generator) < 0.3
    look_ahead.fill_diagonal_(False)
    return {"none": {}, "padding": {"src_key_padding_mask": padding}, "positions": {"src_mask": look_ahead},
            "numbers": {"src_mask": torch.zeros(length, length).masked_fill(look_ahead, float("-inf"))},
            "both": {"src_mask": look_ahead, "src_key_padding_mask": padding}}[kind]


def moved(arguments):
    return {name: x.to(DEVICE) for name, x in arguments.items()}


@pytest.mark.parametrize("activation, norm_first, kind",
                         [*itertools.product(("relu", "gelu"), (False, True), ("none", "padding")),
                          ("relu", True, "positions"), ("relu", False, "numbers"), ("gelu", False, "both")])
@torch.no_grad()
def test_an_encoder_layer(activation, norm_first, kind):
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(24, 3, 40, activation=activation, batch_first=True, norm_first=norm_first).eval()
    x = torch.randn(2, 9, 24)
    arguments = masks_of(kind, 2, 9)
    expected = layer(x, **arguments)
    close(layer.to(DEVICE)(x.to(DEVICE), **moved(arguments)), expected)


@torch.no_grad()
def test_layers_in_a_graph():
    torch.manual_seed(8)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3, enable_nested_tensor=False).eval()
    first, second = torch.randn(2, 3, 5, 16)
    expected = model(second)
    model = model.to(DEVICE)
    x = first.to(DEVICE)
    before = torch.npu.event_counters()["dispatch.cpu_kernel"]
    model(x)
    assert torch.npu.event_counters()["dispatch.cpu_kernel"] == before
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = model(x)
    x.copy_(second)
    graph.replay()
    close(y, expected)


@pytest.mark.parametrize("same, need_weights, average, masked",
                         [*itertools.product((True, False), (True, False), (True,), (True, False)), (True, True, False, False)])
@torch.no_grad()
def test_attention_by_heads(same, need_weights, average, masked):
    torch.manual_seed(9)
    layer = nn.MultiheadAttention(24, 4, batch_first=True).eval()
    x, y = torch.randn(2, 7, 24), torch.randn(2, 7, 24)
    arguments = {"need_weights": need_weights, "average_attn_weights": average}
    mask = masks_of("padding", 2, 7)["src_key_padding_mask"] if masked else None
    inputs = (x, x, x) if same else (x, y, y)
    expected = layer(*inputs, key_padding_mask=mask, **arguments)
    on_device = {id(each): each.to(DEVICE) for each in inputs}
    ours = layer.to(DEVICE)(*(on_device[id(each)] for each in inputs), key_padding_mask=mask if mask is None else mask.to(DEVICE), **arguments)
    close(ours[0], expected[0])
    assert (ours[1] is None) == (expected[1] is None)
    if need_weights:
        close(ours[1], expected[1])


def test_an_operator_of_other_sizes_is_refused():
    x = torch.zeros(2, 3, 8, device=DEVICE)
    weight, bias = torch.zeros(24, 8, device=DEVICE), torch.zeros(24, device=DEVICE)
    proj = torch.zeros(8, 8, device=DEVICE)
    call = torch.ops.aten._native_multi_head_attention
    with pytest.raises(RuntimeError, match="3, which does not divide by num_head, 2|8, which does not divide by num_head, 3"):
        call(x, x, x, 8, 3, weight, bias, proj, bias[:8])
    with pytest.raises(RuntimeError, match="embed_dim is 6, but the last dim of an input has 8 elements"):
        call(x, x, x, 6, 2, weight, bias, proj, bias[:8])
    with pytest.raises(RuntimeError, match="three times embed_dim"):
        call(x, x, x, 8, 2, weight[:8], bias, proj, bias[:8])
    with pytest.raises(RuntimeError, match="of three dims"):
        call(x[0], x[0], x[0], 8, 2, weight, bias, proj, bias[:8])


@pytest.mark.parametrize("kind", ["none", "padding", "both"])
@torch.no_grad()
def test_layers_are_compiled(kind):
    import torchair

    torch.manual_seed(10)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=kind == "padding").eval()
    heads = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 6, 16)
    arguments = masks_of(kind, 2, 6)
    padding = arguments.get("src_key_padding_mask")

    def program(x, padding, arguments):
        y, weights = heads(x, x, x, key_padding_mask=padding)
        return layer(y, **arguments), weights

    expected = program(x, padding, arguments)
    layer, heads = layer.to(DEVICE), heads.to(DEVICE)
    backend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())
    compiled = torch.compile(program, backend=backend, dynamic=False, fullgraph=True)
    ours = compiled(x.to(DEVICE), padding if padding is None else padding.to(DEVICE), moved(arguments))
    for mine, other in zip(ours, expected):
        close(mine, other)
