# SPDX-License-Identifier: Apache-2.0
"""What comes before latent attention."""

import torch

from cases_attention import TYPES, rotated
from cases_attention_quantised import Nearly, integers
from cases_paged_cache import cut, stored
from harness import Case, Ref, cases, high


def normed(x, gamma, epsilon):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * high(gamma)


def to_int8(x):
    return x.round().clamp(-128, 127)


def by_line(x):
    """Integers and factors of lines, by their greatest element."""
    scale = x.abs().amax(-1, keepdim=True) / 127
    return to_int8(x / scale), scale


SIZES = {"hidden": 32, "low": 24, "heads": 3, "depth": 16, "latent": 32, "rope": 16}


class Loosely(Ref):
    """Numbers behind a rounding to int8, which may go either way."""

    def verify(self, actual, op):
        error = (high(actual) - self.value).abs().max() / self.value.abs().max()
        assert list(actual.shape) == self.shape and error < 0.03, f"{op}: {error}"


def problem(g, dtype, outer, quantized):
    """quantized: 0 nothing, 1 weightUqQr, 2 tokenX and all weights but weightUk."""
    z = SIZES
    tokens = 1
    for size in outer:
        tokens *= size
    t = {"tokenX": g.tensor([*outer, z["hidden"]], dtype), "weightDq": g.tensor([z["hidden"], z["low"]], dtype),
         "weightUqQr": g.tensor([z["low"], z["heads"] * (z["depth"] + z["rope"])], dtype) / 4,
         "weightUk": g.tensor([z["heads"], z["depth"], z["latent"]], dtype) / 4,
         "weightDkvKr": g.tensor([z["hidden"], z["latent"] + z["rope"]], dtype),
         "rmsnormGammaCq": g.tensor([z["low"]], dtype), "rmsnormGammaCkv": g.tensor([z["latent"]], dtype),
         "ropeSin": g.tensor([*outer, z["rope"]], dtype, "unit"), "ropeCos": g.tensor([*outer, z["rope"]], dtype, "unit")}
    t |= {name: None for name in ("dequantScaleXOptional", "dequantScaleWDqOptional", "dequantScaleWUqQrOptional",
                                  "dequantScaleWDkvKrOptional", "smoothScalesCqOptional")}
    full = {name: high(value) for name, value in t.items() if value is not None}
    names = {0: [], 1: ["weightUqQr"], 2: ["tokenX", "weightDq", "weightUqQr", "weightDkvKr"]}[quantized]
    for name in names:
        t[name] = integers(g, list(t[name].shape))
        size = tokens if name == "tokenX" else t[name].shape[1]
        factor = g.tensor([size], torch.float32, "positive") * 0.01
        told = "dequantScaleXOptional" if name == "tokenX" else f"dequantScale{name.replace('weight', 'W')}Optional"
        t[told] = factor.reshape(-1, 1) if name == "tokenX" else factor.reshape(1, -1)
        full[name] = t[name].double() * (factor.double().reshape(*outer, 1) if name == "tokenX" else factor.double())
    if quantized:
        t["smoothScalesCqOptional"] = g.tensor([1, z["low"]], torch.float32, "positive")
    return t, full


def solve(t, full, quantized, query_scale, key_scale):
    z = SIZES
    x = full["tokenX"].reshape(-1, z["hidden"])
    c = normed(x @ full["weightDq"], full["rmsnormGammaCq"], 1e-5) * query_scale
    c_scale = None
    kept = c
    if quantized:
        kept, c_scale = by_line(c * high(t["smoothScalesCqOptional"]))
        c = kept * c_scale
    q = (c @ full["weightUqQr"]).reshape(-1, z["heads"], z["depth"] + z["rope"])
    cos, sin = (full[name].reshape(-1, 1, z["rope"]) for name in ("ropeCos", "ropeSin"))
    query = torch.einsum("tnd,ndl->tnl", q[..., : z["depth"]], full["weightUk"])
    kv = x @ full["weightDkvKr"]
    latent = normed(kv[:, : z["latent"]], full["rmsnormGammaCkv"], 1e-6) * key_scale
    turned = rotated(kv[:, z["latent"] :].unsqueeze(1), cos, sin, 3).squeeze(1)
    return query, rotated(q[..., z["depth"] :], cos, sin, 3), latent, turned, kept, c_scale


@cases("MlaPrologV2WeightNz", "MlaPrologV3WeightNz")
def prolog(op, g):
    v3 = "V3" in op
    z = SIZES
    modes = ["PA_BSND", "PA_NZ", "PA_BLK_BSND", "PA_BLK_NZ", "TND"]
    number = 0
    for dtype in TYPES:
        for quantized in (0, 1, 2):
            for int8_cache in (False, True):
                for mode in modes if dtype == torch.bfloat16 else modes[:1]:
                    number += 1
                    outer = [5] if mode == "TND" else ([2, 5], [6])[number % 2]
                    tokens = outer[0] * (outer[1] if len(outer) == 2 else 1)
                    t, full = problem(g, dtype, outer, quantized)
                    scales = (1.5, 0.5) if v3 else (1.0, 1.0)
                    query, query_rope, latent, turned, kept, c_scale = solve(t, full, quantized, *scales)
                    lines = [latent, turned]
                    factors = [None, None]
                    if int8_cache:
                        factors = [g.tensor([1], torch.float32, "positive") * 20,
                                   g.tensor([1, z["rope"]], torch.float32, "positive") * 20]
                        lines = [to_int8(line * high(f)) for line, f in zip(lines, factors)]
                    cache_type = torch.int8 if int8_cache else dtype
                    page, pages = 4, 8
                    if "BLK" in mode:
                        length = outer[-1]
                        blocks = -(-length // page)
                        index = g.permutation(pages)[: tokens // length * blocks] * page
                        slots = torch.cat([index[b * blocks + i // page].reshape(1) + i % page
                                           for b in range(tokens // length) for i in range(length)])
                    else:
                        index = slots = g.permutation(page * pages)[:tokens]
                    caches, wanted = [], []
                    for line in lines:
                        shape = [tokens, 1, line.shape[1]] if mode == "TND" else [pages, page, 1, line.shape[1]]
                        cache = g.tensor(shape, cache_type)
                        if mode == "TND":
                            result = line.unsqueeze(1)
                        elif mode.endswith("NZ") and int8_cache and line.shape[1] % 32:
                            continue
                        else:
                            result = stored(high(cache) if not int8_cache else cache.double(), slots, line)
                            if mode.endswith("NZ"):
                                cache = cut(cache).reshape(shape)
                                result = cut(result.to(cache_type)).reshape(shape)
                        caches.append(cache)
                        wanted.append(result)
                    if len(caches) < 2:
                        continue
                    int8_query = quantized == 2 and int8_cache
                    exact = Loosely if quantized else Ref
                    out_scale = None
                    if int8_query:
                        query, out_scale = by_line(query)
                    shaped = [x.reshape(*outer, *x.shape[1:]) for x in (query, query_rope)]
                    expect = {"queryOut": Roughly(shaped[0].to(torch.int8)) if int8_query else exact(shaped[0], dtype),
                              "queryRopeOut": exact(shaped[1], dtype),
                              "dequantScaleQNopeOutOptional": Loosely(out_scale, torch.float32) if int8_query else None}
                    for name, result in zip(("kvCacheRef", "krCacheRef"), wanted):
                        expect[name] = Nearly(result.to(torch.int8)) if int8_cache else Ref(result, dtype)
                    args = t | {"kvCacheRef": caches[0], "krCacheRef": caches[1], "quantScaleCkvOptional": factors[0],
                                "quantScaleCkrOptional": factors[1], "rmsnormEpsilonCq": 1e-5, "rmsnormEpsilonCkv": 1e-6,
                                "cacheModeOptional": mode}
                    index = index.to(torch.int64) if mode != "TND" or not v3 else None
                    if v3:
                        args |= {"cacheIndexOptional": index, "actualSeqLenOptional": None, "kNopeClipAlphaOptional": None,
                                 "weightQuantMode": quantized, "kvCacheQuantMode": int(int8_cache), "queryQuantMode": 0,
                                 "ckvkrRepoMode": 0, "quantScaleRepoMode": 0, "tileSize": 128, "qcQrScale": scales[0],
                                 "kcScale": scales[1]}
                        kept = kept.reshape(*outer, -1)
                        wants = number % 3 != 0
                        expect |= {"queryNormOutOptional": None if not wants else Nearly(kept.to(torch.int8)) if quantized
                                   else Ref(kept, dtype),
                                   "dequantScaleQNormOutOptional": Ref(c_scale, torch.float32) if quantized and wants else None}
                    else:
                        args["cacheIndex"] = index
                    yield Case(args, expect)


class Roughly(Ref):
    """int8 results behind another rounding to int8."""

    def verify(self, actual, op):
        off = (actual.int() - self.value.int()).abs()
        assert list(actual.shape) == self.shape and off.max() <= 4, f"{op}: {off.max()}"
