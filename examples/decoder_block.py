# SPDX-License-Identifier: Apache-2.0
"""The decoder block of decoder_block.cc in PyTorch, eagerly on the CPU: the same numbers, and the time beside it.

    decoder_block FOLDER && python decoder_block.py FOLDER
"""

import os
import struct
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

BOUND = 1e-4  # of the largest output


def read(path):
    data = path.read_bytes()
    width, heads, key_heads, inner, context, tokens = struct.unpack_from("6q", data)
    times = struct.unpack_from("2d", data, 48)
    values = torch.frombuffer(bytearray(data[64:]), dtype=torch.float32)
    cached = width // heads * key_heads
    shapes = {"norm1": [width], "project": [width, width + 2 * cached], "join": [width, width], "norm2": [width],
              "open": [width, 2 * inner], "close": [inner, width], "inputs": [tokens, 1, width],
              "outputs": [tokens, 1, width]}
    tensors, at = {}, 0
    for name, shape in shapes.items():
        count = torch.Size(shape).numel()
        tensors[name] = values[at:at + count].reshape(shape)
        at += count
    return (width, heads, key_heads, context), times, tensors


class Decoder:
    def __init__(self, sizes, tensors):
        self.width, self.heads, self.key_heads, context = sizes
        self.depth = self.width // self.heads
        self.w = tensors
        self.keys = torch.zeros(1, self.key_heads, context, self.depth)
        self.values = torch.zeros_like(self.keys)
        half = self.depth // 2
        angles = (torch.arange(context, dtype=torch.float64).unsqueeze(1)
                  * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half))
        angles = torch.cat((angles, angles), -1)
        self.cos, self.sin = angles.cos().float(), angles.sin().float()

    def turned(self, x, position):
        a, b = x.chunk(2, -1)
        return x * self.cos[position] + torch.cat((-b, a), -1) * self.sin[position]

    def step(self, x, position):
        w, cached = self.w, self.key_heads * self.depth
        normed = F.rms_norm(x, [self.width], w["norm1"], 1e-6)
        query, key, value = (normed @ w["project"]).split((self.width, cached, cached), -1)
        query = self.turned(query.view(1, self.heads, 1, self.depth), position)
        self.keys[:, :, position] = self.turned(key.view(1, self.key_heads, self.depth), position)
        self.values[:, :, position] = value.view(1, self.key_heads, self.depth)
        seen = slice(0, position + 1)
        attended = F.scaled_dot_product_attention(query, self.keys[:, :, seen], self.values[:, :, seen],
                                                  enable_gqa=self.heads != self.key_heads)
        x = x + attended.reshape(1, self.width) @ w["join"]
        normed = F.rms_norm(x, [self.width], w["norm2"], 1e-6)
        gate, up = (normed @ w["open"]).chunk(2, -1)
        return x + (F.silu(gate) * up) @ w["close"]


def main(folder):
    sizes, (eager, captured), tensors = read(Path(folder) / "decoder_block.bin")
    decoder = Decoder(sizes, tensors)
    times, worst = [], 0.0
    scale = tensors["outputs"].abs().max().item()
    with torch.inference_mode():
        for position, (x, expected) in enumerate(zip(tensors["inputs"], tensors["outputs"])):
            start = time.perf_counter()
            y = decoder.step(x, position)
            times.append((time.perf_counter() - start) * 1e6)
            worst = max(worst, (y - expected).abs().max().item() / scale)
    times = sorted(times[len(times) // 4:])
    print(f"largest difference from PyTorch: {worst:.2g} of the largest output, allowed {BOUND:g}")
    print(f"microseconds for a token, median: PyTorch eager {times[len(times) // 2]:.1f}, Reprise eager {eager:.1f}, "
          f"captured {captured:.1f}")
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("REPRISE_WORKERS") or os.cpu_count()))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
