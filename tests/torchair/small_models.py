# SPDX-License-Identifier: Apache-2.0
"""Small models as people write them, without any package beside PyTorch: each a function that makes one, and one that
makes its arguments for a batch size."""
import math

import torch
import torch.nn.functional as F
from torch import nn

# ---- Images ----


class Residual(nn.Module):
    """Two convolutions and a shortcut, as in ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    def __init__(self, classes=7):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.body = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1))
        self.pool, self.head = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(16, classes)

    def forward(self, images):
        return self.head(torch.flatten(self.pool(self.body(self.stem(images))), 1))


class Inverted(nn.Module):
    """Wide, by channel, weighed by channel, narrow, as in MobileNet."""

    def __init__(self, inputs, outputs, stride, factor):
        super().__init__()
        wide = inputs * factor
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish())
        self.depth = nn.Sequential(nn.Conv2d(wide, wide, 5, stride, 2, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6())
        self.weigh = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), nn.ReLU(), nn.Conv2d(4, wide, 1), nn.Hardsigmoid())
        self.narrow = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.keeps = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.depth(self.expand(x))
        y = self.narrow(y * self.weigh(y))
        return x + y if self.keeps else y


class MobileNet(nn.Module):
    def __init__(self, classes=7):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.body = nn.Sequential(Inverted(8, 8, 1, 2), Inverted(8, 12, 2, 3), Inverted(12, 12, 1, 2))
        self.head = nn.Sequential(nn.Linear(12, 24), nn.Hardswish(), nn.Dropout(0.0), nn.Linear(24, classes))

    def forward(self, images):
        return self.head(self.body(self.stem(images)).mean([2, 3]))


class UNet(nn.Module):
    """Down, and up again with what was there before: transposed convolutions, interpolation, padding to fit."""

    def __init__(self, classes=3):
        super().__init__()
        twice = lambda i, o: nn.Sequential(  # noqa: E731
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.LeakyReLU(0.1), nn.Conv2d(o, o, 3, padding=1), nn.SiLU())
        self.down1, self.down2, self.bottom = twice(3, 8), twice(8, 16), twice(16, 16)
        self.up2, self.join2 = nn.ConvTranspose2d(16, 16, 2, 2), twice(32, 8)
        self.join1, self.head = twice(16, 8), nn.Conv2d(8, classes, 1)

    def forward(self, images):
        first = self.down1(images)
        second = self.down2(F.max_pool2d(first, 2))
        up = self.up2(self.bottom(F.avg_pool2d(second, 2)))
        rows, columns = second.shape[2] - up.shape[2], second.shape[3] - up.shape[3]
        up = F.pad(up, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
        up = self.join2(torch.cat([up, second], 1))
        up = F.interpolate(up, size=first.shape[2:], mode="bilinear", align_corners=False)
        return self.head(self.join1(torch.cat([up, first], 1)))


class Diffusion(nn.Module):
    """A block that removes noise: the time as waves, text by attention, groups that are normalised."""

    def __init__(self, channels=8, text=12):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2 * channels))
        self.first, self.norm1 = nn.Conv2d(4, channels, 3, padding=1), nn.GroupNorm(4, channels)
        self.second, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels)
        self.q, self.k, self.v = nn.Linear(channels, 16), nn.Linear(text, 16), nn.Linear(text, 16)
        self.out, self.last = nn.Linear(16, channels), nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, noise, time, text):
        rates = torch.exp(-math.log(10000.0) * torch.arange(8, device=time.device) / 8)
        angles = time[:, None].float() * rates
        shift, scale = self.time(torch.cat([angles.cos(), angles.sin()], -1)).chunk(2, 1)
        x = F.silu(self.norm1(self.first(noise)))
        x = self.norm2(self.second(x)) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        batch, channels, rows, columns = x.shape
        flat = x.flatten(2).transpose(1, 2)
        heads = lambda y: y.view(batch, -1, 2, 8).transpose(1, 2)  # noqa: E731
        seen = F.scaled_dot_product_attention(heads(self.q(flat)), heads(self.k(text)), heads(self.v(text)))
        flat = flat + self.out(seen.transpose(1, 2).reshape(batch, -1, 16))
        return self.last(F.gelu(flat.transpose(1, 2).reshape(batch, channels, rows, columns)))


# ---- Sequences ----


class Lstm(nn.Module):
    """Gates by hand, over steps that dynamo unrolls."""

    def __init__(self, words=20, width=8):
        super().__init__()
        self.words, self.gates = nn.Embedding(words, width), nn.Linear(2 * width, 4 * width)
        self.head, self.width = nn.Linear(width, words), width

    def forward(self, tokens):
        x = self.words(tokens)
        h = c = x.new_zeros(x.shape[0], self.width)
        seen = []
        for step in x.unbind(1):
            i, f, g, o = self.gates(torch.cat([step, h], -1)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            seen.append(h)
        return self.head(torch.stack(seen, 1))


class Decoder(nn.Module):
    """A layer of a language model: rotated keys and queries, fewer heads of keys, a gated network, experts."""

    def __init__(self, words=24, width=16, heads=4, groups=2, experts=4):
        super().__init__()
        self.words, self.norm1, self.norm2 = nn.Embedding(words, width), nn.RMSNorm(width), nn.RMSNorm(width)
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.kv, self.out = (nn.Linear(width, w, bias=False) for w in (width, 2 * groups * self.size, width))
        self.router = nn.Linear(width, experts, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(experts, *each) * 0.2) for each in ((width, 24), (12, width)))
        self.head = nn.Linear(width, words, bias=False)

    def rotate(self, x):
        places = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)
        angles = torch.outer(places, 1.0 / 100 ** (torch.arange(0, self.size, 2, device=x.device) / self.size)).repeat(1, 2)
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * angles.cos() + turned * angles.sin()

    def forward(self, tokens):
        x = self.words(tokens)
        batch, length, width = x.shape
        y = self.norm1(x)
        q = self.rotate(self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2))
        k, v = self.kv(y).view(batch, length, 2, self.groups, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        k, v = (each.repeat_interleave(self.heads // self.groups, 1) for each in (self.rotate(k), v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        weights, chosen = torch.topk(self.router(y).softmax(-1), 2, -1)
        gates = torch.zeros_like(self.router(y)).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))
        gate, value = torch.einsum("blw,ewh->eblh", y, self.up).chunk(2, -1)
        x = x + torch.einsum("eblh,ehw,ble->blw", F.silu(gate) * value, self.down, gates)
        return self.head(x)


class Generating(nn.Module):
    """Writes keys and values of one token into caches that stay where they are."""

    def __init__(self, words=24, width=16, length=8):
        super().__init__()
        self.words, self.qkv, self.head = nn.Embedding(words, width), nn.Linear(width, 3 * width), nn.Linear(width, words)
        self.register_buffer("keys", torch.zeros(1, length, width), persistent=False)
        self.register_buffer("values", torch.zeros(1, length, width), persistent=False)

    def forward(self, token, place):
        q, k, v = self.qkv(self.words(token)).chunk(3, -1)
        self.keys.index_copy_(1, place, k)
        self.values.index_copy_(1, place, v)
        seen = torch.arange(self.keys.shape[1], device=place.device)[None] <= place[:, None]
        scores = (q @ self.keys.transpose(1, 2)).masked_fill(~seen[None], float("-inf"))
        return self.head(scores.softmax(-1) @ self.values).argmax(-1)


def _images(batch, size=16):
    return (torch.randn(batch, 3, size, size),)


def _tokens(high, length):
    return lambda batch: (torch.randint(0, high, (batch, length)),)


MODELS = {
    "resnet": (ResNet, lambda batch: _images(batch, 32)),
    "mobilenet": (MobileNet, _images),
    "unet": (UNet, lambda batch: _images(batch, 10)),
    "diffusion": (Diffusion, lambda batch: (torch.randn(batch, 4, 6, 6), torch.arange(batch) * 7, torch.randn(batch, 5, 12))),
    "lstm": (Lstm, _tokens(20, 5)),
    "decoder": (Decoder, _tokens(24, 6)),
}


def loss_of(result, seed=5):
    """A number that depends on all of a result in another way."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(result.shape[1:], generator=generator).to(result.device)
    return (result.float() * weights).square().mean()
