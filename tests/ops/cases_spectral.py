# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of windows, and of real numbers along a dim."""

import torch

from harness import Case, Ref, cases, high

FLOATING = (torch.float32, torch.float64)
COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def pairs(value, dtype):
    """What a complex result is as a real one."""
    return Ref(torch.view_as_real(value.contiguous()), dtype)


@cases("Stft")
def windows(op, g):
    number = 0
    for real in FLOATING:
        for shape, n, hop, width in (([40], 16, 4, 16), ([2, 50], 15, 7, 10), ([3, 9], 9, 1, 3), ([1], 1, 1, 1), ([2, 400], 360, 20, 351),
                                     ([0, 8], 8, 2, 8), ([70], 67, 3, 60)):
            for form in ("plain", "window", "complex", "complex_window"):
                number += 1
                dtype = COMPLEX[real] if form == "complex" else real
                x = g.tensor(shape, dtype)
                window = (None if form == "plain" else g.tensor([width], COMPLEX[real] if form == "complex_window" else real))
                onesided = form in ("plain", "window") and number % 3 != 0
                normalized, keeps = number % 2 == 0, number % 4 < 2
                filled = torch.zeros(n, dtype=torch.complex128)
                before = (n - width) // 2
                filled[before:before + width] = 1 if window is None else high(window).to(torch.complex128)
                frames = high(x).to(torch.complex128).unfold(-1, n, hop) * filled
                value = frames if 0 in shape else torch.fft.fft(frames, norm="ortho" if normalized else "backward")
                value = value.transpose(-1, -2)
                value = value[..., :n // 2 + 1, :] if onesided else value
                if form == "window" and 0 not in shape:  # as PyTorch has it
                    torch.testing.assert_close(value, torch.stft(high(x), n, hop, width, high(window), False, normalized=normalized,
                                                                 onesided=onesided, return_complex=True))
                yield Case({"self": x, "windowOptional": window, "nFft": n, "hopLength": hop, "winLength": width,
                            "normalized": normalized, "onesided": onesided, "returnComplex": keeps},
                           {"out": Ref(value, COMPLEX[real]) if keeps else pairs(value, real)})


@cases("Rfft1D")
def real_transforms(op, g):
    number = 0
    for dtype in (*FLOATING, torch.float16, torch.bfloat16):
        for shape, dim in (([8], 0), ([3, 10], -1), ([3, 10, 4], 1), ([2, 7, 1], 0), ([0, 5], 1), ([5, 97], 1)):
            for norm, name in ((1, "backward"), (2, "forward"), (3, "ortho")):
                number += 1
                n = (shape[dim], shape[dim] + 3, max(1, shape[dim] // 2))[number % 3]
                x = g.tensor(shape, dtype)
                value = (torch.fft.rfft(high(x), n, dim, name) if 0 not in shape else
                         torch.zeros([0, n // 2 + 1], dtype=torch.complex128))
                yield Case({"self": x, "n": n, "dim": dim, "norm": norm}, {"out": pairs(value, dtype)})
