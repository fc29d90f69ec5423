# SPDX-License-Identifier: Apache-2.0
"""Shapes and types that graph operators infer, against PyTorch's meta kernels. Calls are written as text; src/opdef/infer_text.h
says how, and the program opdef_infer reads them."""

import subprocess

import pytest
import torch
import torch.nn.functional as F

from aclnn import LIB_DIR

NAMES = {torch.float32: "float32", torch.float16: "float16", torch.int64: "int64", torch.int32: "int32", torch.bool: "bool"}


def meta(*sizes, dtype=torch.float32):
    return torch.empty(sizes, dtype=dtype, device="meta")


def text(tensor):
    return f"{NAMES[tensor.dtype]}[{', '.join(map(str, tensor.shape))}]"


X = meta(2, 3, 4)
IMAGE = meta(2, 6, 17, 19)
INDEX = meta(5, 1, dtype=torch.int64)

# A call, and what computes the same in PyTorch: a tensor or several.
CASES = {
    "Add|x1=float32[2, 3, 4]; x2=float32[3, 1]|": lambda: X + meta(3, 1),
    "Less|x1=float32[2, 3, 4]; x2=float32[4]|": lambda: X < meta(4),
    "SelectV2|condition=bool[3, 1]; then=float32[2, 3, 4]; else=float32[1]|":
        lambda: torch.where(meta(3, 1, dtype=torch.bool), X, meta(1)),
    "Cast|x=float32[2, 3, 4]|dst_type=1": lambda: X.half(),
    "GLU|x=float32[2, 3, 4]|": lambda: F.glu(X),
    "ReduceSum|x=float32[2, 3, 4]; axes=int64[2]{0, -1}|": lambda: X.sum((0, -1)),
    "ReduceMax|x=float32[2, 3, 4]; axes=int64[1]{1}|keep_dims=true": lambda: X.amax(1, keepdim=True),
    "ReduceAny|x=bool[2, 3]; axes=int64[1]{1}|": lambda: meta(2, 3, dtype=torch.bool).any(1),
    "ArgMaxV2|x=float32[2, 3, 4]; dimension=int64[]{1}|": lambda: X.argmax(1),
    "LpNormV2|x=float32[2, 3, 4]|axes=[1] keepdim=true": lambda: torch.linalg.vector_norm(X, dim=1, keepdim=True),
    "TopKV2|x=float32[2, 3, 4]; k=int32[]{2}|dim=1": lambda: X.topk(2, 1).values,
    "MseLoss|predict=float32[2, 3, 4]; label=float32[2, 3, 4]|reduction='none'": lambda: F.mse_loss(X, X, reduction="none"),
    "NLLLoss|x=float32[5, 3]; target=int64[5]|": lambda: F.nll_loss(meta(5, 3), meta(5, dtype=torch.int64)),
    "Transpose|x=float32[2, 3, 4]; perm=int64[3]{2, 0, 1}|": lambda: X.permute(2, 0, 1),
    "Reshape|x=float32[2, 3, 4]; shape=int64[2]{-1, 8}|": lambda: X.reshape(-1, 8),
    "FlattenV2|x=float32[2, 3, 4]|axis=1 end_axis=-1": lambda: X.flatten(1),
    "Squeeze|x=float32[1, 3, 1]|": lambda: meta(1, 3, 1).squeeze(),
    "ConcatV2|x=float32[2, 3] & float32[5, 3]; concat_dim=int64[]{0}|": lambda: torch.cat([meta(2, 3), meta(5, 3)]),
    "Pack|x=float32[2, 3] & float32[2, 3]|axis=-1": lambda: torch.stack([meta(2, 3)] * 2, -1),
    "SplitV|x=float32[2, 9]; size_splits=int64[3]{2, 3, -1}; split_dim=int32[]{1}|num_split=3":
        lambda: meta(2, 9).split([2, 3, 4], 1),
    "Unpack|x=float32[2, 3]|num=3 axis=1": lambda: meta(2, 3).unbind(1),
    "Tile|x=float32[2, 3]; multiples=int64[3]{2, 1, 4}|": lambda: meta(2, 3).repeat(2, 1, 4),
    "BroadcastTo|x=float32[3, 1]; shape=int64[3]{2, -1, 4}|": lambda: meta(3, 1).expand(2, -1, 4),
    "PadV3|x=float32[2, 3]; paddings=int64[4]{0, 0, 2, 1}|": lambda: F.pad(meta(2, 3), (2, 1)),
    "StridedSliceV2|x=float32[9, 7]; begin=int64[2]{2, -3}; end=int64[2]{99, -1}; axes=int64[2]{0, 1}; strides=int64[2]{3, 1}|":
        lambda: meta(9, 7)[2:99:3, -3:-1],
    "Range|start=int64[]{1}; limit=int64[]{10}; delta=int64[]{4}|": lambda: torch.arange(1, 10, 4, device="meta"),
    "Tril|x=float32[2, 3, 4]|": lambda: X.tril(),
    "GatherV2|x=float32[2, 3, 4]; indices=int64[5]; axis=int64[1]{1}|": lambda: X.index_select(1, meta(5, dtype=torch.int64)),
    "GatherElements|x=float32[2, 3]; index=int64[2, 2]|dim=1": lambda: meta(2, 3).gather(1, meta(2, 2, dtype=torch.int64)),
    "IndexByTensor|x=float32[2, 3, 4]; indices=int64[5, 1] & int64[4]|indices_mask=[0,1,1]":
        lambda: X[:, INDEX, meta(4, dtype=torch.int64)],
    "IndexByTensor|x=float32[2, 3, 4]; indices=int64[5, 1] & int64[4]|indices_mask=[1,0,1]":
        lambda: X[INDEX, :, meta(4, dtype=torch.int64)],
    "EmbeddingDenseGrad|grad=float32[5, 4]; indices=int64[5]|num_weights=9":
        lambda: torch.ops.aten.embedding_dense_backward(meta(5, 4), meta(5, dtype=torch.int64), 9, -1, False),
    "MatMulV2|x1=float32[3, 2]; x2=float32[4, 3]|transpose_x1=true transpose_x2=true": lambda: meta(3, 2).T @ meta(4, 3).T,
    "BatchMatMulV2|x1=float32[5, 1, 2, 3]; x2=float32[4, 3, 6]|": lambda: meta(5, 1, 2, 3) @ meta(4, 3, 6),
    "Conv2D|x=float32[2, 6, 17, 19]; filter=float32[8, 3, 3, 5]|"
    "strides=[1,1,2,3] pads=[1,1,2,2] dilations=[1,1,2,1] groups=2 data_format='NCHW'":
        lambda: F.conv2d(IMAGE, meta(8, 3, 3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=2),
    "Conv2DTranspose|input_size=int64[4]{0, 0, 0, 0}; x=float16[2, 6, 17, 19]; filter=float16[6, 4, 3, 3]|"
    "strides=[1,1,2,2] pads=[1,1,1,1] output_padding=[0,0,1,1] data_format='NCHW'":
        lambda: F.conv_transpose2d(IMAGE.half(), meta(6, 4, 3, 3).half(), stride=2, padding=1, output_padding=1),
    "AvgPoolV2|x=float32[2, 6, 17, 19]|ksize=[1,1,3,3] strides=[1,1,2,2] pads=[1,1,1,1] ceil_mode=true":
        lambda: F.avg_pool2d(IMAGE, 3, 2, 1, ceil_mode=True),
    "AdaptiveAvgPool2d|x=float32[2, 6, 17, 19]|output_size=[5,7]": lambda: torch.ops.aten._adaptive_avg_pool2d(IMAGE, (5, 7)),
    "GridSampler2D|x=float32[2, 6, 17, 19]; grid=float32[2, 5, 7, 2]|": lambda: F.grid_sample(IMAGE, meta(2, 5, 7, 2), align_corners=False),
    "ResizeNearestNeighborV2|x=float32[2, 6, 17, 19]; size=int32[2]{34, 5}|": lambda: F.interpolate(IMAGE, (34, 5)),
    "LayerNormV4|x=float32[2, 3, 4]; normalized_shape=int64[2]{3, 4}|": lambda: torch.native_layer_norm(X, (3, 4), None, None, 1e-5),
    "SoftmaxV2|x=float32[2, 3, 4]|axes=[1]": lambda: X.softmax(1),
}


@pytest.fixture(scope="module")
def inferred():
    lines = "".join(call + "\n" for call in CASES)
    done = subprocess.run([str(LIB_DIR.parent / "bin" / "opdef_infer")], input=lines, capture_output=True, text=True, check=True)
    return dict(zip(CASES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("call", CASES)
def test_as_pytorch(inferred, call):
    expected = CASES[call]()
    tensors = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    found = inferred[call].replace(" & ", "; ").split("; ")
    assert found[: len(tensors)] == [text(tensor) for tensor in tensors]
