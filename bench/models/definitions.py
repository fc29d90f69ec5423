# SPDX-License-Identifier: Apache-2.0
"""Models for benchmarks, of our own definition and with random weights: MODELS has what makes each, and its inputs.

Shapes: mlp [8, 256]; recommendation 26 indices for each of 16 samples and [16, 13]; decoders [1, 1, 1024] with caches
[8 layers, 4 heads, 512, 64]; encoder [1, 128] tokens; gpt2 [1, 128] tokens; vit, resnet50 and mobilenet [1, 3, 224, 224];
lstm [8, 32, 256]; moe [64, 512]; unet [1, 64, 64, 64].
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Six linear layers with GELU and LayerNorm."""

    def __init__(self, width=256, layers=6):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x):
        for linear, norm in zip(self.linear, self.norm):
            x = norm(F.gelu(linear(x)))
        return x


class Recommendation(nn.Module):
    """Embeddings and numbers of a sample, mixed by two small networks."""

    def __init__(self, tables=26, rows=1000, width=32, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width * (tables + 1), 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense, sparse):
        rows = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        return torch.sigmoid(self.top(torch.cat([self.bottom(dense), *rows], dim=1)))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin


class WeightOnly(nn.Module):
    """A linear layer whose weight is stored in 8 bits with one scale for each column of out, or in 4 bits with one for each
    `GROUP` elements. Which kernel reads it is a matter of the engine: `form` says how this one is called.

        plain   the weight times its scales, then a product: the definition of the result
        cpu     PyTorch's kernels for such weights
        npu     torch_npu's operator
        onnx    ONNX Runtime's operator, for an export
    """

    GROUP = 32

    def __init__(self, taken, given, bits):
        super().__init__()
        self.taken, self.given, self.bits, self.form = taken, given, bits, "plain"
        top = 2 ** (bits - 1) - 1
        group = taken if bits == 8 else self.GROUP
        weight = (torch.rand(given, taken) * 2 - 1) / math.sqrt(taken)
        parts = weight.view(given, taken // group, group)
        scale = parts.abs().amax(-1) / top
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (parts / scale[..., None]).round().clamp(-top, top).to(torch.int8).view(given, taken))

    def use(self, form):
        """Brings the weight into the order that the kernels of `form` take. Once, before anything else."""
        self.form = form
        if form == "plain":
            return
        getattr(self, f"_store_for_{form}")()

    def forward(self, x):
        return getattr(self, f"_{self.form}")(x)

    def _plain(self, x):
        parts = self.weight.view(self.given, self.scale.shape[1], -1).to(x.dtype) * self.scale[..., None]
        return F.linear(x, parts.view(self.given, self.taken))

    def _store_for_cpu(self):
        if self.bits == 8:
            self.scale = self.scale[:, 0].contiguous()
            return
        codes = (self.weight + 8).to(torch.int32)
        self.weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        self.scale = torch.stack([self.scale, torch.zeros_like(self.scale)], dim=-1).transpose(0, 1).contiguous()

    def _cpu(self, x):
        rows = x.reshape(-1, self.taken)
        if self.bits == 8:
            y = torch.ops.aten._weight_int8pack_mm(rows, self.weight, self.scale)
        else:
            y = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.weight, self.GROUP, self.scale)
        return y.view(*x.shape[:-1], self.given)

    def _store_for_npu(self):
        import torch_npu

        self.scale = self.scale[:, 0].contiguous() if self.bits == 8 else self.scale.t().contiguous()
        if self.bits == 8:  # [taken, given] as a transposed view
            return
        self.weight = torch_npu.npu_convert_weight_to_int4pack(self.weight.t().contiguous().int().npu()).cpu()

    def _npu(self, x):
        import torch_npu

        rows = x.reshape(-1, self.taken)
        weight = self.weight.t() if self.bits == 8 else self.weight
        y = torch_npu.npu_weight_quant_batchmatmul(rows, weight, self.scale, antiquant_group_size=0 if self.bits == 8 else self.GROUP)
        return y.view(*x.shape[:-1], self.given)

    def _store_for_onnx(self):
        blocks = self.taken // self.GROUP
        codes = (self.weight.int() + (128 if self.bits == 8 else 8)).to(torch.uint8).view(self.given, blocks, self.GROUP)
        self.weight = codes if self.bits == 8 else codes[..., 0::2] | (codes[..., 1::2] << 4)
        self.scale = self.scale.expand(self.given, blocks).float().contiguous()

    def _onnx(self, x):
        attributes = dict(K=self.taken, N=self.given, bits=self.bits, block_size=self.GROUP, accuracy_level=4)
        return torch.onnx.ops.symbolic("com.microsoft::MatMulNBits", (x, self.weight, self.scale), attributes, dtype=x.dtype,
                                       shape=(*x.shape[:-1], self.given), version=1)


def use_form(model, form):
    for module in model.modules():
        if isinstance(module, WeightOnly):
            module.use(form)
    return model


def linear_of(bits):
    """What makes a linear layer without a bias whose weights take that many bits; 0: as any other."""
    return (lambda taken, given: WeightOnly(taken, given, bits)) if bits else (lambda taken, given: nn.Linear(taken, given, bias=False))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, groups, head, bits):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, head
        self.before, self.behind = RmsNorm(width), RmsNorm(width)
        linear = linear_of(bits)
        self.q = linear(width, heads * head)
        self.k = linear(width, groups * head)
        self.v = linear(width, groups * head)
        self.o = linear(heads * head, width)
        self.gate = linear(width, 4 * width)
        self.up = linear(width, 4 * width)
        self.down = linear(4 * width, width)

    def forward(self, x, keys, values, cos, sin):
        batch, length, _ = x.shape
        y = self.before(x)
        q = rotate(self.q(y).view(batch, length, self.heads, self.head).transpose(1, 2), cos, sin)
        k = rotate(self.k(y).view(batch, length, self.groups, self.head).transpose(1, 2), cos, sin)
        v = self.v(y).view(batch, length, self.groups, self.head).transpose(1, 2)
        share = self.heads // self.groups
        q = q.reshape(batch, self.groups, share * length, self.head)
        p = torch.softmax(torch.matmul(q, keys.transpose(-1, -2)) * (1 / math.sqrt(self.head)), dim=-1)
        attended = torch.matmul(p, values).reshape(batch, self.heads, length, self.head)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, length, -1))
        y = self.behind(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), k, v


class Decoder(nn.Module):
    """One step of a decoder over caches that are full. Gives the hidden state and the keys and values of the token."""

    def __init__(self, width=1024, layers=8, heads=16, groups=4, head=64, bits=0):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(width, heads, groups, head, bits) for _ in range(layers))
        self.norm = RmsNorm(width)

    def forward(self, x, keys, values, cos, sin):
        made = []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, keys[i : i + 1], values[i : i + 1], cos, sin)
            made += [k, v]
        return (self.norm(x), *made)


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        # Written out: torchair has no conversion for the function.
        attended = torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1])), dim=-1), v)
        x = self.norm1(x + self.out(attended.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.second(F.gelu(self.first(x))))


class Encoder(nn.Module):
    def __init__(self, width=768, layers=12, heads=12, words=30522):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))

    def forward(self, tokens, places):
        x = self.norm(self.words(tokens) + self.places(places))
        for layer in self.layers:
            x = layer(x)
        return x


class PreNormLayer(nn.Module):
    """A transformer layer that normalises before attention and before its two linear layers."""

    def __init__(self, width, heads, gelu="none"):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, mask=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1]))
        attended = torch.matmul(torch.softmax(scores if mask is None else scores + mask, dim=-1), v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.second(F.gelu(self.first(self.norm2(x)), approximate=self.gelu))


class Gpt2(nn.Module):
    """Reads a prompt, and gives the scores of the next word."""

    def __init__(self, width=768, layers=12, heads=12, words=50257):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(PreNormLayer(width, heads, "tanh") for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, places, mask):
        x = self.words(tokens) + self.places(places)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x[:, -1]))


class VisionTransformer(nn.Module):
    """ViT-B/16."""

    def __init__(self, width=768, layers=12, heads=12, patch=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.layers = nn.ModuleList(PreNormLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token, x], dim=1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


class Lstm(nn.Module):
    """Two layers over 32 steps, and a class for each sample."""

    def __init__(self, taken=256, width=256, layers=2):
        super().__init__()
        self.lstm, self.head = nn.LSTM(taken, width, layers, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class MixtureOfExperts(nn.Module):
    """A layer of eight experts, of which each token has two. All experts see all tokens, as exported models have it."""

    def __init__(self, width=512, inner=1024, experts=8, chosen=2):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.randn(experts, width, 2 * inner) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(experts, inner, width) / math.sqrt(inner))

    def forward(self, x):
        best, which = torch.topk(torch.softmax(self.router(x), dim=-1), self.chosen, dim=-1)
        shares = torch.zeros(x.shape[0], self.experts, dtype=x.dtype, device=x.device).scatter(1, which, best / best.sum(-1, keepdim=True))
        gate, up = torch.bmm(x.expand(self.experts, -1, -1), self.gate_up).chunk(2, dim=-1)
        y = torch.bmm(F.silu(gate) * up, self.down)
        return (y * shares.t().unsqueeze(-1)).sum(0)


class Bottleneck(nn.Module):
    def __init__(self, taken, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(taken, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        same = taken == 4 * width and stride == 1
        self.side = None if same else nn.Sequential(nn.Conv2d(taken, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return F.relu(self.body(x) + (x if self.side is None else self.side(x)))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, taken = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(taken, width, stride if i == 0 else 1))
                taken = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class InvertedResidual(nn.Module):
    def __init__(self, taken, given, stride, expansion):
        super().__init__()
        width = taken * expansion
        layers = [] if expansion == 1 else [nn.Conv2d(taken, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU6()]
        self.body = nn.Sequential(
            *layers, nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), nn.BatchNorm2d(width), nn.ReLU6(),
            nn.Conv2d(width, given, 1, bias=False), nn.BatchNorm2d(given))
        self.same = stride == 1 and taken == given

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        blocks, taken = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()], 32
        for expansion, given, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                                (6, 160, 3, 2), (6, 320, 1, 1)):
            for i in range(count):
                blocks.append(InvertedResidual(taken, given, stride if i == 0 else 1, expansion))
                taken = given
        self.blocks = nn.Sequential(*blocks, nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6())
        self.head = nn.Linear(1280, 1000)

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))


class UNetBlock(nn.Module):
    """Down and up again, with what was there before beside it."""

    def __init__(self, width=64):
        super().__init__()
        self.first, self.down = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.inner = nn.Conv2d(2 * width, 4 * width, 3, 1, 1)
        self.last, self.norm = nn.Conv2d(2 * width, width, 3, 1, 1), nn.BatchNorm2d(width)

    def forward(self, x):
        side = F.relu(self.first(x))
        x = F.relu(self.inner(F.relu(self.down(side))))
        n, c, h, w = x.shape  # pixel_shuffle, which the published package does not convert
        x = x.view(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)
        return F.relu(self.norm(self.last(torch.cat((side, x), 1))))


def decoder_inputs(dtype):
    angle = torch.arange(64, dtype=torch.float32) / 64
    caches = [torch.randn(8, 4, 512, 64, dtype=dtype) for _ in range(2)]
    return (torch.randn(1, 1, 1024, dtype=dtype), *caches, angle.cos().to(dtype), angle.sin().to(dtype))


def prepared(model, dtype=torch.float32):
    for module in model.modules():  # statistics as of a trained model, so that depth does not blow values up
        if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm3d)):
            module.running_var.fill_(2.0)
    return model.eval().to(dtype).requires_grad_(False)


def prompt(length=128):
    mask = torch.full((length, length), -1e9).triu(1).view(1, 1, length, length)
    return torch.randint(0, 50257, (1, length)), torch.arange(length).view(1, length), mask


# name: what makes (model, inputs); the seed is set before each
MODELS = {
    "mlp": lambda: (prepared(Mlp()), (torch.randn(8, 256),)),
    "recommendation": lambda: (prepared(Recommendation()), (torch.randn(16, 13), torch.randint(0, 1000, (16, 26)))),
    "decoder": lambda: (prepared(Decoder()), decoder_inputs(torch.float32)),
    "decoder bf16": lambda: (prepared(Decoder(), torch.bfloat16), decoder_inputs(torch.bfloat16)),
    "decoder w8a16": lambda: (prepared(Decoder(bits=8), torch.bfloat16), decoder_inputs(torch.bfloat16)),
    "decoder w4a16": lambda: (prepared(Decoder(bits=4), torch.bfloat16), decoder_inputs(torch.bfloat16)),
    "encoder": lambda: (prepared(Encoder()), (torch.randint(0, 30522, (1, 128)), torch.arange(128).view(1, 128))),
    "encoder bf16": lambda: (prepared(Encoder(), torch.bfloat16), (torch.randint(0, 30522, (1, 128)), torch.arange(128).view(1, 128))),
    "gpt2": lambda: (prepared(Gpt2()), prompt()),
    "vit": lambda: (prepared(VisionTransformer()), (torch.randn(1, 3, 224, 224),)),
    "lstm": lambda: (prepared(Lstm()), (torch.randn(8, 32, 256),)),
    "moe": lambda: (prepared(MixtureOfExperts()), (torch.randn(64, 512),)),
    "resnet50": lambda: (prepared(ResNet50()), (torch.randn(1, 3, 224, 224),)),
    "mobilenet": lambda: (prepared(MobileNetV2()), (torch.randn(1, 3, 224, 224),)),
    "unet": lambda: (prepared(UNetBlock()), (torch.randn(1, 64, 64, 64),)),
}

# How far a result may be from PyTorch's, as a share of its largest element.
BOUNDS = {"mlp": 2e-3, "recommendation": 1e-4, "encoder bf16": 6e-2, "decoder bf16": 6e-2, "decoder w8a16": 6e-2, "decoder w4a16": 6e-2}


def bound_of(name):
    return BOUNDS.get(name, 1e-3)
