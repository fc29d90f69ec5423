# SPDX-License-Identifier: Apache-2.0
"""More models, of other kinds than those of definitions.py, with random weights: no kernel was written for one of them.

Shapes: pictures [1, 3, 224, 224], or [1, 3, 128, 128] where the docstring says so; tokens [1, 128], of t5 [1, 96] and [1, 32]; sounds
[1, 80, 400]; the rest stands with the class.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from definitions import RmsNorm, prepared


class SqueezeExcite(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class MbConv(nn.Module):
    def __init__(self, taken, given, kernel, stride, expansion):
        super().__init__()
        width = taken * expansion
        layers = [] if expansion == 1 else [nn.Conv2d(taken, width, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()]
        self.body = nn.Sequential(
            *layers, nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=width, bias=False), nn.BatchNorm2d(width), nn.SiLU(),
            SqueezeExcite(width, max(1, taken // 4)), nn.Conv2d(width, given, 1, bias=False), nn.BatchNorm2d(given))
        self.same = stride == 1 and taken == given

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


class EfficientNet(nn.Module):
    """B0."""

    def __init__(self):
        super().__init__()
        layers, taken = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()], 32
        for expansion, given, count, stride, kernel in ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
                                                        (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
            for i in range(count):
                layers.append(MbConv(taken, given, kernel, stride if i == 0 else 1, expansion))
                taken = given
        self.features = nn.Sequential(*layers, nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU())
        self.head = nn.Linear(1280, 1000)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """The tiny one, pictures of 128."""

    def __init__(self, widths=(96, 192, 384, 768), depths=(3, 3, 9, 3)):
        super().__init__()
        layers = [nn.Conv2d(3, widths[0], 4, 4), nn.GroupNorm(1, widths[0])]
        for i, (width, depth) in enumerate(zip(widths, depths)):
            if i:
                layers += [nn.GroupNorm(1, widths[i - 1]), nn.Conv2d(widths[i - 1], width, 2, 2)]
            layers += [ConvNextBlock(width) for _ in range(depth)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 1000)

    def forward(self, x):
        return self.head(self.norm(self.layers(x).mean([-2, -1])))


class DenseLayer(nn.Module):
    def __init__(self, taken, growth):
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm2d(taken), nn.ReLU(inplace=True), nn.Conv2d(taken, 4 * growth, 1, bias=False),
                                    nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.layers(x)], 1)


class DenseNet(nn.Module):
    """Norms before convolutions, and everything beside everything before it. Pictures of 128."""

    def __init__(self, growth=32, depths=(6, 12, 12)):
        super().__init__()
        width = 64
        layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        for i, depth in enumerate(depths):
            if i:
                layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
            for _ in range(depth):
                layers.append(DenseLayer(width, growth))
                width += growth
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.layers(x), (1, 1)), 1))


class WindowAttention(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", apart[..., 0] * (2 * window - 1) + apart[..., 1])

    def forward(self, x, mask):
        windows, n, width = x.shape
        q, k, v = self.qkv(x).reshape(windows, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            scores = scores.view(windows // mask.shape[0], mask.shape[0], self.heads, n, n) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, self.heads, n, n)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(windows, n, width)
        return self.out(x)


class SwinBlock(nn.Module):
    def __init__(self, width, heads, size, window, shift):
        super().__init__()
        self.size, self.window, self.shift = size, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, window)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        mask = None
        if shift:
            region = torch.zeros(1, size, size, 1)
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for i, h in enumerate(cuts):
                for j, w in enumerate(cuts):
                    region[:, h, w] = 3 * i + j
            parts = self.parted(region).squeeze(-1)
            mask = (parts[:, None, :] != parts[:, :, None]).float() * -100.0
        self.register_buffer("mask", mask)

    def parted(self, x):
        b, h, w, c = x.shape
        n = self.window
        return x.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)

    def forward(self, x):
        b, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.attention(self.parted(y), self.mask)
        n = self.window
        y = y.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """Two stages of the tiny one: windows of 7 in maps of 56 and 28."""

    def __init__(self, width=96):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.first = nn.Sequential(SwinBlock(width, 3, 56, 7, 0), SwinBlock(width, 3, 56, 7, 3))
        self.merge = nn.Sequential(nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False))
        self.second = nn.Sequential(SwinBlock(2 * width, 6, 28, 7, 0), SwinBlock(2 * width, 6, 28, 7, 3))
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 1000)

    def forward(self, x):
        x = self.first(self.patch(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.norm(self.second(self.merge(x))).mean((1, 2)))


class Mixer(nn.Module):
    """Products along both axes."""

    def __init__(self, width=256, tokens=196, depth=6):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.across = nn.ModuleList(nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)) for _ in range(depth))
        self.along = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for i, (across, along) in enumerate(zip(self.across, self.along)):
            x = x + across(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + along(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


class Whisper(nn.Module):
    """The encoder of the tiny one: convolutions along time, then four layers."""

    def __init__(self, width=384, depth=4, heads=6, frames=400):
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("place", torch.randn(frames // 2, width) * 0.02)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                                                              norm_first=True) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        x = F.gelu(self.second(F.gelu(self.first(x)))).permute(0, 2, 1) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class T5Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, other, bias):
        def split(y):
            return y.view(y.shape[0], -1, self.heads, y.shape[-1] // self.heads).transpose(1, 2)

        scores = torch.matmul(split(self.q(x)), split(self.k(other)).transpose(3, 2))
        if bias is not None:
            scores = scores + bias
        y = torch.matmul(F.softmax(scores.float(), -1).type_as(scores), split(self.v(other)))
        return self.o(y.transpose(1, 2).contiguous().view(x.shape))


class T5(nn.Module):
    """Two layers of an encoder, two of a decoder that looks at it; biases by distance in place of positions."""

    def __init__(self, width=512, heads=8, depth=2, words=32128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.bias = nn.ModuleList(nn.Embedding(32, heads) for _ in range(2))
        kinds = [["own"] * depth, ["own", "cross"] * depth]
        self.attention = nn.ModuleList(nn.ModuleList(T5Attention(width, heads) for _ in each) for each in kinds)
        self.attention_norm = nn.ModuleList(nn.ModuleList(RmsNorm(width) for _ in each) for each in kinds)
        self.up = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(2 * depth))
        self.down = nn.ModuleList(nn.Linear(4 * width, width, bias=False) for _ in range(2 * depth))
        self.norm = nn.ModuleList(RmsNorm(width) for _ in range(2 * depth))
        self.last = nn.ModuleList(RmsNorm(width) for _ in range(2))
        self.depth, self.width = depth, width

    def distances(self, n, device):
        apart = (torch.arange(n, device=device)[None, :] - torch.arange(n, device=device)[:, None]).clamp(-15, 15)
        return apart + 15

    def forward(self, source, target):
        x = self.words(source)
        bias = self.bias[0](self.distances(source.shape[1], source.device)).permute(2, 0, 1).unsqueeze(0)
        for i in range(self.depth):
            y = self.attention_norm[0][i](x)
            x = x + self.attention[0][i](y, y, bias)
            x = x + self.down[i](F.relu(self.up[i](self.norm[i](x))))
        side, x = self.last[0](x), self.words(target)
        n = target.shape[1]
        bias = self.bias[1](self.distances(n, target.device)).permute(2, 0, 1).unsqueeze(0)
        bias = bias + torch.full((n, n), -1e9, device=target.device).triu(1)
        for i in range(self.depth):
            y = self.attention_norm[1][2 * i](x)
            x = x + self.attention[1][2 * i](y, y, bias)
            x = x + self.attention[1][2 * i + 1](self.attention_norm[1][2 * i + 1](x), side, None)
            j = self.depth + i
            x = x + self.down[j](F.relu(self.up[j](self.norm[j](x))))
        return (self.last[1](x) * self.width ** -0.5) @ self.words.weight[:4096].t()


class Gru(nn.Module):
    """Two layers, both directions, batch 4, 40 steps of 128."""

    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(128, 192, 2, batch_first=True, bidirectional=True), nn.Linear(384, 30)

    def forward(self, x):
        return F.log_softmax(self.head(self.gru(x)[0]), -1)


class WaveNet(nn.Module):
    """Causal convolutions at growing distances, with gates. [1, 64, 1024]"""

    def __init__(self, width=64, depth=8):
        super().__init__()
        self.dilated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2 ** i) for i in range(depth))
        self.mixed = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x):
        total = 0
        for i, (dilated, mixed) in enumerate(zip(self.dilated, self.mixed)):
            a, b = dilated(F.pad(x, (2 ** i, 0))).chunk(2, 1)
            kept, skipped = mixed(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + kept, total + skipped
        return self.head(total)


class DiffusionBlock(nn.Module):
    def __init__(self, taken, given, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, taken), nn.Conv2d(taken, given, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(32, given), nn.Conv2d(given, given, 3, padding=1)
        self.time = nn.Linear(time, given)
        self.side = nn.Conv2d(taken, given, 1) if taken != given else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.side(x) + self.conv2(F.silu(self.norm2(y)))


class Diffusion(nn.Module):
    """A step of a small diffusion model. [1, 4, 32, 32] and a time"""

    def __init__(self, width=128, time=512):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down1, self.down2 = DiffusionBlock(width, width, time), DiffusionBlock(width, 2 * width, time)
        self.halve, self.up = nn.Conv2d(width, width, 3, stride=2, padding=1), nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.norm, self.qkv, self.out = nn.GroupNorm(32, 2 * width), nn.Conv1d(2 * width, 6 * width, 1), nn.Conv1d(2 * width, 2 * width, 1)
        self.up1 = DiffusionBlock(3 * width, width, time)
        self.last = nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def attend(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x).view(b, c, -1)).view(b, 3, 4, c // 4, h * w).unbind(1)
        y = F.scaled_dot_product_attention(q.transpose(-1, -2), k.transpose(-1, -2), v.transpose(-1, -2))
        return x + self.out(y.transpose(-1, -2).reshape(b, c, -1)).view(b, c, h, w)

    def forward(self, x, t):
        half = self.width // 2
        angle = t[:, None] * torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
        time = self.time(torch.cat([angle.cos(), angle.sin()], -1))
        side = self.down1(self.first(x), time)
        x = self.attend(self.down2(self.halve(side), time))
        x = self.up(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(self.up1(torch.cat([x, side], 1), time))


class LlamaLayer(nn.Module):
    def __init__(self, width=768, heads=12, groups=4, inner=2048):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * self.size, bias=False) for n in (heads, groups, groups))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)

    def turned(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(b, n, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = self.turned(q, cos, sin), self.turned(k, cos, sin)
        k, v = (z[:, :, None].expand(b, self.groups, self.heads // self.groups, n, self.size).reshape(q.shape) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, n, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LlamaPrefill(nn.Module):
    """Four layers over 128 tokens."""

    def __init__(self, depth=4, width=768, words=8000):
        super().__init__()
        self.words, self.layers = nn.Embedding(words, width), nn.ModuleList(LlamaLayer(width) for _ in range(depth))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, words, bias=False)
        angle = torch.outer(torch.arange(128).float(), 10000 ** (-torch.arange(0, 64, 2).float() / 64))
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x)[:, -1])


class Video(nn.Module):
    """Convolutions in three dimensions. [1, 3, 8, 56, 56]"""

    def __init__(self):
        super().__init__()
        layers, taken = [], 3
        for given, stride in ((32, 1), (64, 2), (128, 2)):
            layers += [nn.Conv3d(taken, given, 3, stride, 1, bias=False), nn.BatchNorm3d(given), nn.ReLU(inplace=True)]
            taken = given
        self.layers, self.head = nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1)), nn.Linear(128, 100)

    def forward(self, x):
        return self.head(self.layers(x).flatten(1))


class GraphNet(nn.Module):
    """Messages along 8192 edges between 1024 nodes of 64."""

    def __init__(self, width=64, depth=3):
        super().__init__()
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.update = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, 8)

    def forward(self, x, source, target):
        for message, update in zip(self.message, self.update):
            sent = F.relu(message(torch.cat([x[source], x[target]], -1)))
            got = torch.zeros_like(x).index_add(0, target, sent)
            x = F.relu(update(torch.cat([x, got], -1))) + x
        return self.head(x)


class Generator(nn.Module):
    """Transposed convolutions. [4, 64, 1, 1]"""

    def __init__(self, width=48):
        super().__init__()
        layers, taken = [], 64
        for i, given in enumerate((8 * width, 4 * width, 2 * width, width)):
            layers += [nn.ConvTranspose2d(taken, given, 4, 2 if i else 1, 1 if i else 0, bias=False), nn.BatchNorm2d(given), nn.ReLU(True)]
            taken = given
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(taken, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, x):
        return self.layers(x)


class Detector(nn.Module):
    """A small backbone, a pyramid and heads, LeakyReLU. Pictures of 128."""

    def __init__(self):
        super().__init__()
        def conv(taken, given, kernel=3, stride=1):
            return nn.Sequential(nn.Conv2d(taken, given, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(given), nn.LeakyReLU(0.1))

        self.first = nn.Sequential(conv(3, 16), conv(16, 32, 3, 2), conv(32, 64, 3, 2), conv(64, 32, 1), conv(32, 64))
        self.second = nn.Sequential(conv(64, 128, 3, 2), conv(128, 64, 1), conv(64, 128))
        self.third = nn.Sequential(conv(128, 256, 3, 2), conv(256, 128, 1), conv(128, 256))
        self.side = conv(256, 128, 1)
        self.joined = conv(256, 128)
        self.heads = nn.ModuleList([nn.Conv2d(256, 255, 1), nn.Conv2d(128, 255, 1)])

    def forward(self, x):
        middle = self.second(self.first(x))
        deep = self.third(middle)
        up = F.interpolate(self.side(deep), scale_factor=2, mode="nearest")
        found = []
        for head, y in zip(self.heads, (deep, self.joined(torch.cat([up, middle], 1)))):
            y = head(y)
            b, _, h, w = y.shape
            y = y.view(b, 3, 85, h, w).permute(0, 1, 3, 4, 2)
            found.append(torch.cat([y[..., :2].sigmoid(), y[..., 2:4].exp(), y[..., 4:].sigmoid()], -1).reshape(b, -1, 85))
        return torch.cat(found, 1)


class MobileV3Block(nn.Module):
    def __init__(self, taken, inner, given, kernel, stride, excites, hard):
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU
        self.body = nn.Sequential(nn.Conv2d(taken, inner, 1, bias=False), nn.BatchNorm2d(inner), act(),
                                  nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False), nn.BatchNorm2d(inner), act())
        self.excite = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner // 4, 1), nn.ReLU(), nn.Conv2d(inner // 4, inner, 1),
                                    nn.Hardsigmoid()) if excites else None
        self.last = nn.Sequential(nn.Conv2d(inner, given, 1, bias=False), nn.BatchNorm2d(given))
        self.same = stride == 1 and taken == given

    def forward(self, x):
        y = self.body(x)
        if self.excite is not None:
            y = y * self.excite(y)
        y = self.last(y)
        return x + y if self.same else y


class MobileNetV3(nn.Module):
    """The small one."""

    def __init__(self):
        super().__init__()
        rows = ((16, 16, 3, 2, True, False), (72, 24, 3, 2, False, False), (88, 24, 3, 1, False, False), (96, 40, 5, 2, True, True),
                (240, 40, 5, 1, True, True), (240, 40, 5, 1, True, True), (120, 48, 5, 1, True, True), (144, 48, 5, 1, True, True),
                (288, 96, 5, 2, True, True), (576, 96, 5, 1, True, True), (576, 96, 5, 1, True, True))
        layers, taken = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()], 16
        for inner, given, kernel, stride, excites, hard in rows:
            layers.append(MobileV3Block(taken, inner, given, kernel, stride, excites, hard))
            taken = given
        self.layers = nn.Sequential(*layers, nn.Conv2d(96, 576, 1, bias=False), nn.BatchNorm2d(576), nn.Hardswish(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))

    def forward(self, x):
        return self.head(self.layers(x).flatten(1))


class ShuffleBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
                                  nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half),
                                  nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        y = torch.cat([a, self.body(b)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


class ShuffleNet(nn.Module):
    """Halves that change places; a grouped convolution between the stages."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        taken = 24
        for width, depth in ((120, 3), (232, 7), (464, 3)):
            layers += [nn.Conv2d(taken, width, 3, 2, 1, groups=8 if taken % 8 == 0 and width % 8 == 0 else 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [ShuffleBlock(width) for _ in range(depth)]
            taken = width
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(464, 1000)

    def forward(self, x):
        return self.head(self.layers(x).mean([2, 3]))


class StateSpace(nn.Module):
    """A scan over 64 steps, with a short convolution and gates in front. [2, 64, 256]"""

    def __init__(self, width=256, state=16, rank=16):
        super().__init__()
        self.width, self.state, self.rank = width, state, rank
        self.taken, self.given = nn.Linear(width, 4 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.conv = nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.mixed, self.step = nn.Linear(2 * width, rank + 2 * state, bias=False), nn.Linear(rank, 2 * width)
        self.a = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(2 * width, 1))
        self.d = nn.Parameter(torch.ones(2 * width))

    def forward(self, x):
        n = x.shape[1]
        x, gate = self.taken(x).chunk(2, -1)
        x = F.silu(self.conv(x.transpose(1, 2))[..., :n].transpose(1, 2))
        step, b, c = self.mixed(x).split([self.rank, self.state, self.state], -1)
        step = F.softplus(self.step(step))
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.a))
        fresh = (step * x).unsqueeze(-1) * b.unsqueeze(2)
        state, rows = torch.zeros_like(fresh[:, 0]), []
        for i in range(n):
            state = decay[:, i] * state + fresh[:, i]
            rows.append((state @ c[:, i].unsqueeze(-1)).squeeze(-1))
        return self.given((torch.stack(rows, 1) + x * self.d) * F.silu(gate))


class Autoencoder(nn.Module):
    """Many rows: [512, 784] through small layers and back."""

    def __init__(self):
        super().__init__()
        sizes = (784, 256, 64, 16)
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.ELU()]
        for a, b in zip(sizes[::-1], sizes[-2::-1]):
            layers += [nn.Linear(a, b), nn.ELU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return torch.sigmoid(self.layers(x))


class Vgg(nn.Module):
    """Plain convolutions and pools. Pictures of 128."""

    def __init__(self):
        super().__init__()
        layers, taken = [], 3
        for given in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
            if given == "pool":
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(taken, given, 3, padding=1), nn.ReLU(inplace=True)]
            taken = given
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(512 * 16, 1024), nn.ReLU(True), nn.Dropout(), nn.Linear(1024, 1000))

    def forward(self, x):
        return self.head(torch.flatten(self.layers(x), 1))


def picture(size=224):
    return (torch.randn(1, 3, size, size),)


MODELS = {
    "efficientnet": lambda: (prepared(EfficientNet()), picture()),
    "convnext": lambda: (prepared(ConvNext()), picture(128)),
    "densenet": lambda: (prepared(DenseNet()), picture(128)),
    "swin": lambda: (prepared(Swin()), picture()),
    "mixer": lambda: (prepared(Mixer()), picture()),
    "whisper": lambda: (prepared(Whisper()), (torch.randn(1, 80, 400),)),
    "t5": lambda: (prepared(T5()), tuple(torch.randint(0, 32128, (1, n)) for n in (96, 32))),
    "gru": lambda: (prepared(Gru()), (torch.randn(4, 40, 128),)),
    "wavenet": lambda: (prepared(WaveNet()), (torch.randn(1, 64, 1024),)),
    "diffusion": lambda: (prepared(Diffusion()), (torch.randn(1, 4, 32, 32), torch.full((1,), 500.0))),
    "llama": lambda: (prepared(LlamaPrefill()), (torch.randint(0, 8000, (1, 128)),)),
    "video": lambda: (prepared(Video()), (torch.randn(1, 3, 8, 56, 56),)),
    "graphnet": lambda: (prepared(GraphNet()), (torch.randn(1024, 64), *(torch.randint(0, 1024, (8192,)) for _ in range(2)))),
    "generator": lambda: (prepared(Generator()), (torch.randn(4, 64, 1, 1),)),
    "detector": lambda: (prepared(Detector()), picture(128)),
    "mobilenetv3": lambda: (prepared(MobileNetV3()), picture()),
    "shufflenet": lambda: (prepared(ShuffleNet()), picture()),
    "statespace": lambda: (prepared(StateSpace()), (torch.randn(2, 64, 256),)),
    "autoencoder": lambda: (prepared(Autoencoder()), (torch.rand(512, 784),)),
    "vgg": lambda: (prepared(Vgg()), picture(128)),
}
