# SPDX-License-Identifier: Apache-2.0
"""What is measured: problems as transformers (decode, prefill) and vision models have them.

Row(name, operator, arguments, PyTorch's call). Arguments by parameter; outputs are tensors, too. `small`: under 64 KiB.
"""

import torch
import torch.nn.functional as F

ROWS = []


def row(name, operator, torch_call, **arguments):
    ROWS.append((name, operator, arguments, torch_call))


def rand(*shape, dtype=torch.float32):
    return torch.rand(*shape, generator=GENERATOR).add_(0.1).to(dtype)


GENERATOR = torch.Generator().manual_seed(7)


def out(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype)


def unary(operator, call, shape, note, parameter="self", result="out", dtype=torch.float32, **more):
    x, y = rand(*shape, dtype=dtype), out(*shape, dtype=dtype)
    row(f"{operator} {'x'.join(map(str, shape))}{note}", operator, lambda: call(x), **{parameter: x, result: y, **more})


def binary(operator, call, shape, other_shape=None, dtype=torch.float32, result=None, **more):
    a, b = rand(*shape, dtype=dtype), rand(*(other_shape or shape), dtype=dtype)
    y = out(*shape, dtype=result or dtype)
    label = "" if dtype == torch.float32 else f" {str(dtype).removeprefix('torch.')}"
    row(f"{operator} {'x'.join(map(str, shape))}{label}", operator, lambda: call(a, b, y), self=a, other=b, out=y, **more)


def elementwise():
    for shape in ((64, 64), (2048, 2048)):
        binary("Add", lambda a, b, y: torch.add(a, b, out=y), shape, alpha=1)
        binary("Mul", lambda a, b, y: torch.mul(a, b, out=y), shape)
        binary("Div", lambda a, b, y: torch.div(a, b, out=y), shape)
        binary("Maximum", lambda a, b, y: torch.maximum(a, b, out=y), shape)
        binary("GtTensor", lambda a, b, y: torch.gt(a, b, out=y), shape, result=torch.bool)
        for operator, call in (("Relu", torch.relu), ("Exp", torch.exp), ("Sigmoid", torch.sigmoid), ("Silu", F.silu),
                               ("Tanh", torch.tanh), ("Sqrt", torch.sqrt), ("Rsqrt", torch.rsqrt), ("Log", torch.log),
                               ("Erf", torch.erf), ("Neg", torch.neg)):
            unary(operator, call, shape, "")
        for operator, call in (("Sin", torch.sin), ("Cos", torch.cos)):
            unary(operator, call, shape, "", parameter="self" if operator == "Sin" else "input")
        unary("GeluV2", F.gelu, shape, "", parameter="x", result="y", approximate=0)
        unary("GeluV2", lambda x: F.gelu(x, approximate="tanh"), shape, " tanh", parameter="x", result="y", approximate=1)
        unary("Adds", lambda x: x + 2.0, shape, "", other=2.0, alpha=1)
        unary("Muls", lambda x: x * 2.0, shape, "", other=2.0)
        unary("Clamp", lambda x: x.clamp(0.2, 0.8), shape, "", clipValueMin=0.2, clipValueMax=0.8)
        unary("PowTensorScalar", lambda x: x.pow(2.0), shape, "", exponent=2.0)
        x, y = rand(*shape), out(*shape)
        mask = rand(*shape) > 0.6
        row(f"SWhere {shape[0]}x{shape[1]}", "SWhere", lambda m=mask, a=x, b=rand(*shape): torch.where(m, a, b),
            condition=mask, self=x, other=rand(*shape), out=y)
        half = out(*shape, dtype=torch.bfloat16)
        row(f"Cast {shape[0]}x{shape[1]} to bfloat16", "Cast", lambda a=x, h=half: h.copy_(a), self=x, dtype=torch.bfloat16,
            out=half)
        binary("Add", lambda a, b, y: torch.add(a, b, out=y), shape, dtype=torch.bfloat16, alpha=1)
    binary("Add", lambda a, b, y: torch.add(a, b, out=y), (512, 4096), (4096,), alpha=1)
    x, y = rand(8, 2 * 688), out(8, 688)
    row("SwiGlu 8x1376", "SwiGlu", lambda: F.silu(x[:, :688]) * x[:, 688:], x=x, dim=-1, out=y)
    x2, y2 = rand(512, 2 * 4096), out(512, 4096)
    row("SwiGlu 512x8192", "SwiGlu", lambda: F.silu(x2[:, :4096]) * x2[:, 4096:], x=x2, dim=-1, out=y2)


def reductions():
    for shape in ((32, 128), (2048, 2048)):
        label = "x".join(map(str, shape))
        x = rand(*shape)
        rows, columns, one = out(shape[0]), out(shape[1]), out()
        f32 = torch.float32
        row(f"ReduceSum {label} rows", "ReduceSum", lambda a=x, y=rows: torch.sum(a, 1, out=y), self=x, dims=[1],
            keepDims=False, dtype=f32, out=rows)
        row(f"ReduceSum {label} columns", "ReduceSum", lambda a=x, y=columns: torch.sum(a, 0, out=y), self=x, dims=[0],
            keepDims=False, dtype=f32, out=columns)
        row(f"ReduceSum {label} all", "ReduceSum", lambda a=x: a.sum(), self=x, dims=[0, 1], keepDims=False, dtype=f32,
            out=one)
        row(f"Mean {label} rows", "Mean", lambda a=x: a.mean(1), self=x, dim=[1], keepDim=False, dtype=f32, out=out(shape[0]))
        row(f"Amax {label} rows", "Amax", lambda a=x: a.amax(1), self=x, dim=[1], keepDim=False, out=out(shape[0]))
        row(f"ArgMax {label} rows", "ArgMax", lambda a=x: a.argmax(1), self=x, dim=1, keepdim=False,
            out=out(shape[0], dtype=torch.int64))
        row(f"VarCorrection {label} rows", "VarCorrection", lambda a=x: a.var(1), self=x, dim=[1], correction=1,
            keepdim=False, out=out(shape[0]))
        row(f"Cumsum {label}", "Cumsum", lambda a=x: a.cumsum(1), self=x, dim=1, dtype=f32, out=out(*shape))
        row(f"Softmax {label}", "Softmax", lambda a=x: a.softmax(1), self=x, dim=1, out=out(*shape))
        row(f"LogSoftmax {label}", "LogSoftmax", lambda a=x: a.log_softmax(1), self=x, dim=1, out=out(*shape))
        row(f"Sort {label}", "Sort", lambda a=x: a.sort(1), self=x, stable=True, dim=1, descending=False,
            valuesOut=out(*shape), indicesOut=out(*shape, dtype=torch.int64))
    for shape, k in (((1, 8192), 50), ((64, 32000), 50)):
        x = rand(*shape)
        row(f"Topk {shape[0]}x{shape[1]} k={k}", "Topk", lambda a=x, n=k: a.topk(n), self=x, k=k, dim=-1, largest=True,
            sorted=True, valuesOut=out(shape[0], k), indicesOut=out(shape[0], k, dtype=torch.int64))


def normalizations():
    for shape in ((8, 768), (512, 4096)):
        label = "x".join(map(str, shape))
        x, w, b = rand(*shape), rand(shape[1]), rand(shape[1])
        row(f"LayerNorm {label}", "LayerNorm", lambda x=x, w=w, b=b, n=shape[1]: torch.native_layer_norm(x, [n], w, b, 1e-5),
            input=x, normalizedShape=[shape[1]], weightOptional=w, biasOptional=b, eps=1e-5, out=out(*shape),
            meanOutOptional=out(shape[0], 1), rstdOutOptional=out(shape[0], 1))
        row(f"RmsNorm {label}", "RmsNorm", lambda x=x, w=w, n=shape[1]: F.rms_norm(x, [n], w, 1e-5), x=x, gamma=w,
            epsilon=1e-5, yOut=out(*shape), rstdOut=out(shape[0], 1))
        y = rand(*shape)
        row(f"AddRmsNorm {label}", "AddRmsNorm", lambda x=x, y=y, w=w, n=shape[1]: F.rms_norm(x + y, [n], w, 1e-5), x1=x, x2=y,
            gamma=w, epsilon=1e-5, yOut=out(*shape), rstdOut=out(shape[0], 1), xOut=out(*shape))


def products():
    for m, k, n in ((8, 64, 64), (1, 4096, 4096), (8, 4096, 4096), (128, 768, 3072), (512, 1024, 1024)):
        a, w, y = rand(m, k), rand(n, k), out(m, n)
        row(f"Mm {m}x{k}x{n} (weight transposed)", "Mm", lambda a=a, w=w, y=y: torch.mm(a, w.t(), out=y), self=a, mat2=w.t(),
            out=y, cubeMathType=0)
    a, b, y = rand(512, 1024), rand(1024, 1024), out(512, 1024)
    row("Mm 512x1024x1024", "Mm", lambda: torch.mm(a, b, out=y), self=a, mat2=b, out=y, cubeMathType=0)
    a16, w16, y16 = (t.to(torch.bfloat16) for t in (rand(1, 4096), rand(4096, 4096), rand(1, 4096)))
    row("Mm 1x4096x4096 bfloat16 (weight transposed)", "Mm", lambda: torch.mm(a16, w16.t(), out=y16), self=a16, mat2=w16.t(),
        out=y16, cubeMathType=0)
    bias, x, w, z = rand(256), rand(16, 128), rand(128, 256), out(16, 256)
    row("Addmm 16x128x256", "Addmm", lambda: torch.addmm(bias, x, w, out=z), self=bias, mat1=x, mat2=w, beta=1, alpha=1,
        out=z, cubeMathType=0)
    p, q, r = rand(96, 64, 64), rand(96, 64, 64), out(96, 64, 64)
    row("BatchMatMul 96x64x64x64", "BatchMatMul", lambda: torch.bmm(p, q, out=r), self=p, mat2=q, out=r, cubeMathType=0)


def movement():
    for count, width in ((8, 256), (2048, 512)):
        table = rand(32000, width)
        index = torch.randint(0, 32000, (count,), generator=GENERATOR)
        row(f"Embedding {count} of 32000x{width}", "Embedding", lambda t=table, i=index: F.embedding(i, t), weight=table,
            indices=index, out=out(count, width))
        row(f"IndexSelect {count} of 32000x{width}", "IndexSelect", lambda t=table, i=index: t.index_select(0, i), self=table,
            dim=0, index=index, out=out(count, width))
    for shape in ((32, 64), (1024, 2048)):
        label = "x".join(map(str, shape))
        a, b = rand(*shape), rand(*shape)
        row(f"Cat 2 of {label}", "Cat", lambda a=a, b=b: torch.cat([a, b], 1), tensors=[a, b], dim=1,
            out=out(shape[0], 2 * shape[1]))
        row(f"Permute {label}", "Permute", lambda a=a: a.t().contiguous(), self=a, dims=[1, 0], out=out(shape[1], shape[0]))
        row(f"Tril {label}", "Tril", lambda a=a: a.tril(), self=a, diagonal=0, out=out(*shape))
        index = torch.randint(0, shape[1], shape, generator=GENERATOR)
        row(f"Gather {label}", "Gather", lambda a=a, i=index: a.gather(1, i), self=a, dim=1, index=index, out=out(*shape))
        row(f"InplaceCopy {label}", "InplaceCopy", lambda a=a, b=b: a.copy_(b), selfRef=a, src=b)
        mask = rand(*shape) > 0.6
        row(f"InplaceMaskedFillScalar {label}", "InplaceMaskedFillScalar", lambda a=a, m=mask: a.masked_fill_(m, 0.5),
            selfRef=a, mask=mask, value=0.5)
    x = rand(8, 64, 56, 56)
    row("Permute 8x64x56x56 to NHWC", "Permute", lambda: x.permute(0, 2, 3, 1).contiguous(), self=x, dims=[0, 2, 3, 1],
        out=out(8, 56, 56, 64))


def attention():
    for name, queries, keys, causal in (("decode 1 of 1024", 1, 1024, False), ("prefill 512", 512, 512, True)):
        q, k, v = rand(1, 16, queries, 64), rand(1, 16, keys, 64), rand(1, 16, keys, 64)
        mask = torch.ones(queries, keys, dtype=torch.bool).triu(1) if causal else None
        row(f"PromptFlashAttention {name}" if causal else f"IncreFlashAttentionV4 {name}",
            "FlashAttentionScore",
            lambda q=q, k=k, v=v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
            query=q, key=k, value=v, realShiftOptional=None, dropMaskOptional=None, paddingMaskOptional=None,
            attenMaskOptional=mask, prefixOptional=None, scaleValue=0.125, keepProb=1.0, preTokens=2147483647,
            nextTokens=2147483647, headNum=16, inputLayout="BNSD", innerPrecise=0, sparseMode=0,
            softmaxMaxOut=out(1, 16, queries, 8), softmaxSumOut=out(1, 16, queries, 8), softmaxOutOut=None,
            attentionOutOut=out(1, 16, queries, 64))
        ROWS[-1] = (f"FlashAttentionScore {name}", *ROWS[-1][1:])
    x, c, s = rand(1, 32, 8, 128), rand(1, 32, 1, 128), rand(1, 32, 1, 128)

    def rotate():
        a, b = x.chunk(2, -1)
        return x * c + torch.cat((-b, a), -1) * s
    row("RotaryPositionEmbedding 32x8x128", "RotaryPositionEmbedding", rotate, x=x, cos=c, sin=s, mode=0, out=out(1, 32, 8, 128))


def vision():
    def conv(name, n, cin, size, cout, kernel, stride, padding, groups=1):
        x, w, b = rand(n, cin, size, size), rand(cout, cin // groups, kernel, kernel), rand(cout)
        side = (size + 2 * padding - kernel) // stride + 1
        row(f"Convolution {name}", "Convolution", lambda: F.conv2d(x, w, b, stride, padding, 1, groups), input=x, weight=w,
            bias=b, stride=[stride] * 2, padding=[padding] * 2, dilation=[1, 1], transposed=False, outputPadding=[0, 0],
            groups=groups, output=out(n, cout, side, side), cubeMathType=0)
    conv("1x3x224x224 7x7/2 to 64", 1, 3, 224, 64, 7, 2, 3)
    conv("1x64x56x56 3x3", 1, 64, 56, 64, 3, 1, 1)
    conv("8x64x56x56 3x3", 8, 64, 56, 64, 3, 1, 1)
    conv("1x256x14x14 3x3", 1, 256, 14, 256, 3, 1, 1)
    conv("1x256x14x14 1x1 to 1024", 1, 256, 14, 1024, 1, 1, 0)
    conv("1x96x56x56 3x3 depthwise", 1, 96, 56, 96, 3, 1, 1, 96)
    conv("1x8x8x8 3x3", 1, 8, 8, 8, 3, 1, 1)
    for shape in ((1, 8, 16, 16), (8, 64, 112, 112)):
        n, c, h, w = shape
        label = "x".join(map(str, shape))
        x = rand(*shape)
        row(f"MaxPool2dWithMask {label}", "MaxPool2dWithIndices", lambda x=x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
            self=x, kernelSize=[3, 3], stride=[2, 2], padding=[1, 1], dilation=[1, 1], ceilMode=False,
            out=out(n, c, h // 2, w // 2), indices=out(n, c, h // 2, w // 2, dtype=torch.int32))
        ROWS[-1] = (f"MaxPool2dWithIndices {label}", *ROWS[-1][1:])
        row(f"AvgPool2d {label}", "AvgPool2d", lambda x=x: F.avg_pool2d(x, 2, 2), self=x, kernelSize=[2, 2], strides=[2, 2],
            paddings=[0, 0], ceilMode=False, countIncludePad=True, divisorOverride=0, cubeMathType=0,
            out=out(n, c, h // 2, w // 2))
        row(f"AdaptiveAvgPool2d {label}", "AdaptiveAvgPool2d", lambda x=x: F.adaptive_avg_pool2d(x, 1), self=x,
            outputSize=[1, 1], out=out(n, c, 1, 1))
        g, b, m, v = rand(c), rand(c), rand(c), rand(c)
        row(f"BatchNorm {label}", "BatchNorm", lambda x=x, g=g, b=b, m=m, v=v: F.batch_norm(x, m, v, g, b, False), input=x,
            weight=g, bias=b, runningMean=m, runningVar=v, training=False, momentum=0.1, eps=1e-5, output=out(*shape),
            saveMean=out(c), saveInvstd=out(c))
        row(f"UpsampleBilinear2d {label}", "UpsampleBilinear2d",
            lambda x=x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), self=x,
            outputSize=[2 * h, 2 * w], alignCorners=False, scalesH=2.0, scalesW=2.0, out=out(n, c, 2 * h, 2 * w))


for part in (elementwise, reductions, normalizations, products, movement, attention, vision):
    part()
