// SPDX-License-Identifier: Apache-2.0
//
// Inference rule by rule, with calls as text (infer_text.h).
#include "opdef/infer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "opdef/infer_text.h"

namespace reprise::opdef {
namespace {

using testing::Call;
using testing::Case;

// What is known of every rule: numbers, symbols, unknown sizes, unknown ranks, missing values.
constexpr Case kCases[] = {
    // Element by element.
    {"Relu", "x=float16[s0, ?]", "", "float16[s0, ?]"},
    {"Relu", "x=float16[..]", "", "float16[..]"},
    {"Identity", "x=int64[2]{s0, 3}", "", "int64[2]{s0, 3}"},
    {"Add", "x1=float32[s0, 1]; x2=float32[128]", "", "float32[s0, 128]"},
    {"Add", "x1=float32[?]; x2=float32[s0]", "", "float32[s0]"},
    {"Add", "x1=float32[..]; x2=float32[3]", "", "float32[..]"},
    {"Mul", "x1=int64[2]{s0, 3}; x2=int64[]{4}", "", "int64[2]{4*s0, 12}"},
    {"FloorDiv", "x1=int64[1]{s0}; x2=int64[1]{2}", "", "int64[1]{s0//2}"},
    {"Mul", "x1=int32[3]; x2=float16[2, 1]", "", "float16[2, 3]"},
    {"Less", "x1=int32[s0]; x2=int32[1]", "", "bool[s0]"},
    {"Exp", "x=float32[4]", "base=2.0", "float32[4]"},
    {"AddN", "x=float32[s0, ?] & float32[s0, 3]", "N=2", "float32[s0, 3]"},
    {"AxpyV2", "x1=float32[s0, 2]; x2=float32[2]; alpha=float32[]", "", "float32[s0, 2]"},
    {"Assign", "ref=float32[s0, 4]; value=float32[4]", "", "float32[s0, 4]"},
    {"Cast", "x=float32[s0]", "dst_type=1", "float16[s0]"},
    {"Cast", "x=int32[1]{s0}", "dst_type=9", "int64[1]{s0}"},
    {"Complex", "real=float64[2]; imag=float64[s0, 1]", "", "complex128[s0, 2]"},
    {"Real", "input=complex64[s0]", "", "float32[s0]"},
    {"MaskedFill", "x=float32[4]; mask=bool[s0, 1]; value=float32[]", "", "float32[s0, 4]"},
    {"ForeachExp", "x=float32[s0] & float32[2, 3]", "", "float32[s0] & float32[2, 3]"},
    {"ForeachNorm", "x1=float32[s0] & float32[2, 3]; scalar=float32[1]", "", "float32[] & float32[]"},
    {"SwiGlu", "x=float16[s0, 2*s1]", "", "float16[s0, s1]"},
    {"SwiGlu", "x=float16[s0, 8]", "dim=1", "float16[s0, 4]"},
    {"ScatterList", "var=float16[2, s0] & float16[3, s0]; indice=int64[2]; updates=float16[2, 2, 1]", "",
     "float16[2, s0] & float16[3, s0]"},
    {"PRelu", "x=float32[s0, 3]; weight=float32[3]", "", "float32[s0, 3]"},
    {"BatchNormV3",
     "x=float16[s0, 8, 4]; weight=float32[8]; bias=float32[8]; running_mean=float32[8]; running_var=float32[8]", "",
     "float16[s0, 8, 4]; float32[8]; float32[8]; float32[8]; float32[8]"},
    {"Quantize", "x=float32[s0, 3]; scales=float32[3]", "dtype='torch.quint8'", "uint8[s0, 3]"},
    {"FlashAttentionScoreGrad", "query=float16[1, 2]; key=float16[3, 4]; value=float16[5, 6]; dy=float16[1, 2]",
     "head_num=1 input_layout='BSH'", "float16[1, 2]; float16[3, 4]; float16[5, 6]; float16[0]"},
    // Reductions.
    {"ReduceSum", "x=float32[s0, 3, s1]; axes=int64[2]{-1, 0}", "", "float32[3]"},
    {"ReduceSum", "x=float32[s0, 3]; axes=int64[1]{1}", "keep_dims=true", "float32[s0, 1]"},
    {"ReduceSum", "x=float32[s0, 3]; axes=int64[1]", "", "float32[?]"},
    {"ReduceSum", "x=float32[s0, 3]; axes=int64[?]", "keep_dims=true", "float32[?, ?]"},
    {"ReduceSum", "x=float32[..]; axes=int64[1]{0}", "", "float32[..]"},
    {"ReduceMean", "x=float32[s0, 3]; axes=int64[0]{}", "", "float32[s0, 3]"},
    {"ReduceMeanWithCast", "x=float16[s0, 3]; axes=int64[1]{0}", "dtype=0", "float32[3]"},
    {"ReduceStdV2", "x=float32[s0, 3]", "dim=[1]", "float32[s0]; float32[s0]"},
    {"ArgMaxV2", "x=float32[s0, 3]; dimension=int64[]{1}", "", "int64[s0]"},
    {"ArgMaxV2", "x=float32[s0, 3]; dimension=int64[]", "dtype=3", "int32[?]"},
    {"ArgMaxWithValue", "x=float32[s0, 3]", "dimension=0 keep_dims=true", "int32[1, 3]; float32[1, 3]"},
    {"Cumsum", "x=float32[s0, 3]; axis=int64[]{-1}", "", "float32[s0, 3]"},
    {"SoftmaxV2", "x=float16[s0, 3]", "half_to_float=true", "float32[s0, 3]"},
    {"MseLoss", "predict=float32[s0, 1]; label=float32[3]", "reduction='none'", "float32[s0, 3]"},
    {"MseLoss", "predict=float32[s0]; label=float32[s0]", "", "float32[]"},
    {"NLLLoss", "x=float32[s0, 10]; target=int64[s0]", "reduction='none'", "float32[s0]; float32[]"},
    {"TopKV2", "x=float32[s0, 9]; k=int32[]{4}", "", "float32[s0, 4]; int32[s0, 4]"},
    {"TopKV2", "x=float32[s0, 9]; k=int32[]", "dim=0", "float32[?, 9]; int32[?, 9]"},
    {"Unique", "x=float32[s0, 3]", "", "float32[?] at most [3*s0]; int32[s0, 3]"},
    {"NonZero", "x=bool[s0, 3]", "", "int64[?, 2] at most [3*s0, 2]"},
    {"NonZero", "x=bool[s0, 3]", "transpose=true", "int64[2, ?] at most [2, 3*s0]"},
    {"Where", "x=bool[..]", "", "int64[?, ?]"},
    // Moves.
    {"Bitcast", "x=float32[s0, 3]", "type=4", "uint8[s0, 3, 4]"},
    {"Bitcast", "x=uint8[s0, 4]", "type=0", "float32[s0]"},
    {"Bitcast", "x=uint8[s0, 8]", "type=0 keep_dim=true", "float32[s0, 2]"},
    {"BroadcastTo", "x=float32[s0, 1]; shape=int64[3]{2, -1, 5}", "", "float32[2, s0, 5]"},
    {"BroadcastTo", "x=float32[s0, 1]; shape=int64[3]", "", "float32[?, ?, ?]"},
    {"Reshape", "x=float32[s0, 4, 8]; shape=int64[2]{-1, 16}", "", "float32[2*s0, 16]"},
    {"Reshape", "x=float32[s0, s1]; shape=int64[1]{s0*s1}", "", "float32[s0*s1]"},
    {"Reshape", "x=float32[s0, s1, 3]; shape=int64[2]{s0, -1}", "", "float32[s0, 3*s1]"},
    {"Reshape", "x=float32[?, 3]; shape=int64[2]{-1, 3}", "", "float32[?, 3]"},
    {"Reshape", "x=float32[s0]; shape=int64[?]", "", "float32[..]"},
    {"ExpandDims", "x=float32[s0]; axis=int64[]{-1}", "", "float32[s0, 1]"},
    {"ExpandDims", "x=float32[s0]; axis=int64[]", "", "float32[?, ?]"},
    {"Unsqueeze", "x=float32[s0, 3]", "axes=[0,-1]", "float32[1, s0, 3, 1]"},
    {"Squeeze", "x=float32[s0, 1, 3]", "", "float32[s0, 3]"},
    {"Squeeze", "x=float32[?, 1]", "", "float32[..]"},
    {"Squeeze", "x=float32[?, 1]", "axis=[0]", "float32[1]"},
    {"FlattenV2", "x=float32[s0, 3, s1]", "", "float32[s0, 3*s1]"},
    {"Transpose", "x=float32[s0, 3, s1]; perm=int64[3]{2, 0, 1}", "", "float32[s1, s0, 3]"},
    {"Transpose", "x=float32[s0, 3]; perm=int64[2]", "", "float32[?, ?]"},
    {"Permute", "x=float32[s0, 3]", "order=[1,0]", "float32[3, s0]"},
    {"ReverseV2", "x=float32[s0]; axis=int32[1]{0}", "", "float32[s0]"},
    // Attributes for values, and blocks.
    {"SplitD", "x=float32[s0, 4]", "split_dim=1 num_split=2", "float32[s0, 2] & float32[s0, 2]"},
    {"SqueezeV3", "x=float32[s0, 1, 3]; axes=int64[1]{1}", "", "float32[s0, 3]"},
    {"SqueezeV3", "x=float32[s0, 1, 3]; axes=int64[1]", "", "float32[..]"},
    {"UnsqueezeV3", "x=float32[s0]; axes=int64[1]{-1}", "", "float32[s0, 1]"},
    {"UnsqueezeV3", "x=float32[s0]; axes=int64[1]", "", "float32[?, ?]"},
    {"TileD", "x=float32[s0]", "multiples=[2]", "float32[2*s0]"},
    {"FillD", "value=float32[]", "dims=[2,3]", "float32[2, 3]"},
    {"EnsureShape", "input=float32[s0, ?]", "shape=[-1,3]", "float32[s0, 3]"},
    {"Eye", "", "num_rows=2 batch_shape=[3]", "float32[3, 2, 2]"},
    {"Flatten", "x=float32[s0, 3, s1]", "axis=2", "float32[3*s0, s1]"},
    {"Slice", "x=float32[s0, 8]; offsets=int64[2]{0, 3}; size=int64[2]{-1, 2}", "", "float32[s0, 2]"},
    {"Slice", "x=float32[s0, 8]; offsets=int64[2]; size=int64[2]", "", "float32[?, ?]"},
    {"DepthToSpace", "x=float32[s0, 3, s1, 8]", "block_size=2", "float32[s0, 6, 2*s1, 2]"},
    {"SpaceToDepth", "x=float32[s0, 2, 4*s1, 6]", "block_size=2 data_format='NCHW'", "float32[s0, 8, 2*s1, 3]"},
    {"BatchToSpaceND", "x=float32[2*s0, 3, s1]; block_shape=int64[1]{2}; crops=int64[1, 2]{0, 1}", "",
     "float32[s0, 5, s1]"},
    {"BatchToSpaceND", "x=float32[2*s0, 3]; block_shape=int64[1]; crops=int64[1, 2]", "", "float32[?, ?]"},
    {"SpaceToBatchND", "x=float32[s0, 3, s1]; block_shape=int64[1]{2}; paddings=int64[1, 2]{0, 1}", "",
     "float32[2*s0, 2, s1]"},
    {"BiasAdd", "x=float32[s0, 3]; bias=float32[3]", "", "float32[s0, 3]"},
    {"GatherNd", "x=float32[3, s0, s1]; indices=int64[s2, 2]", "", "float32[s2, s1]"},
    {"GatherNd", "x=float32[3, s0, s1]; indices=int64[s2, ?]", "", "float32[..]"},
    {"UnsortedSegmentSum", "x=float32[s0, s1]; segment_ids=int64[s0]; num_segments=int32[]{5}", "", "float32[5, s1]"},
    {"ConcatV2", "x=float32[s0, 3] & float32[s1, 3]; concat_dim=int64[]{0}", "", "float32[s0+s1, 3]"},
    {"ConcatV2", "x=int64[] & int64[2] & int64[]; concat_dim=int64[]{0}", "", "int64[4]"},
    {"ConcatV2", "x=float32[s0, ?] & float32[..] & float32[2, 3]; concat_dim=int64[]{0}", "", "float32[?, 3]"},
    {"Pack", "x=float32[s0] & float32[s0]", "axis=1", "float32[s0, 2]"},
    {"Pack", "x=int64[]{s0} & int64[]{7}", "", "int64[2]{s0, 7}"},
    {"SplitV", "x=float32[s0, 9]; size_splits=int64[2]{4, -1}; split_dim=int32[]{1}", "num_split=2",
     "float32[s0, 4] & float32[s0, 5]"},
    {"SplitV", "x=float32[s0, 9]; size_splits=int64[2]; split_dim=int32[]{0}", "num_split=2",
     "float32[?, 9] & float32[?, 9]"},
    {"Unpack", "x=float32[2, s0]", "num=2", "float32[s0] & float32[s0]"},
    {"Tile", "x=float32[s0, 3]; multiples=int64[3]{4, 1, s1}", "", "float32[4, s0, 3*s1]"},
    {"Tile", "x=float32[s0, 3]; multiples=int64[3]", "", "float32[?, ?, ?]"},
    {"PadV3", "x=float32[s0, 3]; paddings=int64[4]{1, 2, 0, 0}", "", "float32[s0+3, 3]"},
    {"PadV3", "x=float32[s0, 3]; paddings=int64[4]{1, 0, 2, 0}", "paddings_contiguous=false", "float32[s0+3, 3]"},
    {"PadV3Grad", "x=float32[s0+3, 3]; paddings=int64[4]{1, 2, 0, 0}", "", "float32[s0, 3]"},
    {"StridedSliceV2", "x=float32[s0, 9]; begin=int64[2]{1, -4}; end=int64[2]{9223372036854775807, -1}", "",
     "float32[s0-1, 3]"},
    {"StridedSliceV2", "x=float32[s0, 9]; begin=int64[1]{0}; end=int64[1]{9}; axes=int64[1]{1}; strides=int64[1]{2}",
     "", "float32[s0, 5]"},
    {"StridedSliceV2", "x=float32[9]; begin=int64[1]{8}; end=int64[1]{-10}; axes=int64[1]{0}; strides=int64[1]{-3}", "",
     "float32[3]"},
    {"StridedSliceV2", "x=float32[s0, 9]; begin=int64[1]{0}; end=int64[1]{128}", "", "float32[?, 9]"},
    {"StridedSliceV2", "x=float32[s0, 9]; begin=int64[1]; end=int64[1]", "", "float32[?, 9]"},
    {"StridedSliceV2", "x=int64[3]{s0, 5, s1}; begin=int64[1]{-2}; end=int64[1]{3}", "", "int64[2]{5, s1}"},
    {"StridedSliceV2", "x=int64[3]{s0, 5, s1}; begin=int64[1]{-1}; end=int64[1]{0}", "shrink_axis_mask=1",
     "int64[]{s1}"},
    {"StridedSliceV2", "x=float32[s0, 9, 4]; begin=int64[3]{0, 1, 0}; end=int64[3]{0, 2, 0}",
     "shrink_axis_mask=2 begin_mask=5 end_mask=5", "float32[s0, 4]"},
    {"StridedSliceV2", "x=float32[s0, 9, 4]; begin=int64[3]{0, 0, 1}; end=int64[3]{0, 0, 3}",
     "ellipsis_mask=1 new_axis_mask=2", "float32[s0, 9, 1, 2]"},
    // From values.
    {"AdaptiveAvgPool2dGrad", "input_grad=float32[1, 2, 3, 3]", "orig_input_shape=[1,2,9,9]", "float32[1, 2, 9, 9]"},
    {"Empty", "shape=int32[2]{s0, 3}", "dtype=1", "float16[s0, 3]"},
    {"Fill", "dims=int64[2]{s0, 3}; value=float32[]", "", "float32[s0, 3]"},
    {"Fill", "dims=int64[1]{2}; value=int64[]{s0}", "", "int64[2]{s0, s0}"},
    {"Fill", "dims=int64[2]; value=float32[]", "", "float32[?, ?]"},
    {"AsStrided", "x=float32[9]; size=int64[2]{s0, 2}; stride=int64[2]; storage_offset=int64[]", "", "float32[s0, 2]"},
    {"Const", "", "", "undefined[..]"},
    {"Shape", "x=float32[s0, 3]", "dtype=9", "int64[2]{s0, 3}"},
    {"Shape", "x=float32[..]", "", "int32[?]"},
    {"ShapeN", "x=float32[s0, 3]; x=int8[]", "dtype=9", "int64[2]{s0, 3} & int64[0]{}"},
    {"ShapeN", "x=float32[..]", "", "int32[?]"},
    {"Rank", "x=float32[s0, 3]", "", "int32[]{2}"},
    {"Rank", "x=float32[..]", "", "int32[]"},
    {"Size", "x=float32[s0, 3]", "dtype=9", "int64[]{3*s0}"},
    {"Size", "x=float32[?, 3]", "", "int32[]"},
    {"LinSpace", "start=float32[]; stop=float32[]; num=int64[]{s0}", "", "float32[s0]"},
    {"Range", "start=int64[]{1}; limit=int64[]{s0}; delta=int64[]{2}", "", "int64[s0//2]"},
    {"Range", "start=int32[]{9}; limit=int32[]{0}; delta=int32[]{-4}", "", "int32[3]"},
    {"Range", "start=float32[]{0.5}; limit=float32[]{2.0}; delta=float32[]{0.5}", "", "float32[3]"},
    {"Range", "start=float32[]; limit=float32[]; delta=float32[]", "", "float32[?]"},
    {"OneHot", "x=int64[s0]; depth=int32[]{5}; on_value=float32[]; off_value=float32[]", "", "float32[s0, 5]"},
    {"MultinomialWithReplacement", "x=float32[s0, 9]; seed=int64[]; offset=int64[]", "numsamples=4", "int64[s0, 4]"},
    {"StatelessRandperm", "n=int64[]{s0}; seed=int64[]; offset=int64[]", "", "int64[s0]"},
    {"Randperm", "", "n=7", "int64[7]"},
    {"StatelessDropOutGenMask", "shape=int64[2]{s0, 128}; prob=float32[]; seed=int64[]; seed1=int64[]", "",
     "uint8[16*s0]"},
    {"HcomAllGather", "x=float32[s0, 3]", "rank_size=4 group='g'", "float32[4*s0, 3]"},
    {"HcomReduceScatter", "x=float32[4*s0, 3]", "rank_size=4 group='g' reduction='sum'", "float32[s0, 3]"},
    {"HcomAllToAllV",
     "send_data=float32[s0, 4]; send_counts=int64[2]; send_displacements=int64[2]; recv_counts=int64[2]{8, 4}; "
     "recv_displacements=int64[2]{0, 8}",
     "group='g'", "float32[3, 4]"},
    {"HcomAllToAllV",
     "send_data=float32[s0, 4]; send_counts=int64[2]; send_displacements=int64[2]; recv_counts=int64[2]{8, 4}; "
     "recv_displacements=int64[2]{12, 0}",
     "group='g'", "float32[5, 4]"},
    {"HcomAllToAllV",
     "send_data=float32[s0]; send_counts=int64[2]; send_displacements=int64[2]; recv_counts=int64[2]{s0, 4}; "
     "recv_displacements=int64[2]{0, s0}",
     "group='g'", "float32[s0+4]"},
    {"HcomAllToAllV",
     "send_data=float32[s0]; send_counts=int64[2]; send_displacements=int64[2]; recv_counts=int64[2]{s0, 4}; "
     "recv_displacements=int64[2]{4, 0}",
     "group='g'", "float32[?]"},
    {"HcomAllToAllV",
     "send_data=float32[s0]; send_counts=int64[2]; send_displacements=int64[2]; recv_counts=int64[2]{8, 4}; "
     "recv_displacements=int64[2]",
     "group='g'", "float32[?]"},
    {"HcomAllToAllV",
     "send_data=float32[s0]; send_counts=int64[2]; send_displacements=int64[2]; recv_counts=int64[2]{8, 4}; "
     "recv_displacements=int64[2]{0, 9223372036854775806}",
     "group='g'", "float32[?]"},
    {"HcomAllGatherV",
     "x=bfloat16[s0, 4]; send_count=int64[1]; recv_counts=int64[3]{8, 0, 4}; recv_displacements=int64[3]{4, 99, 16}",
     "group='g'", "bfloat16[5, 4]"},
    {"HcomAllToAllVC", "send_data=float32[s0, 4]; send_count_matrix=int64[4]{8, 4, 12, 0}", "rank=0 group='g'",
     "float32[5, 4]"},
    {"HcomAllGatherV", "x=bfloat16[s0, 4]; send_count=int64[1]; recv_counts=int64[2]{8, 4}", "group='g'",
     "bfloat16[3, 4]"},
    {"HcomReduceScatterV", "x=float16[9]; recv_count=int64[1]{4}; send_counts=int64[2]", "reduction='max' group='g'",
     "float16[4]"},
    {"HcomReduceScatterV", "x=float16[9, 2]; recv_count=int64[1]; send_counts=int64[2]", "reduction='max' group='g'",
     "float16[?, 2]"},
    {"HcomReduce", "x=int64[s0]", "reduction='sum' group='g' root_rank=1", "int64[s0]"},
    {"HcomReceive", "", "group='g' sr_tag=0 src_rank=1 shape=[2,3] dtype=1", "float16[2, 3]"},
    {"HcomSend", "x=float32[2]", "group='g' sr_tag=0 dest_rank=1", ""},
    {"StringFormat", "x=float32[2]", "", "string[]"},
    // By index.
    {"EmbeddingBag", "weight=float32[9, s0]; indices=int64[s1]; offsets=int64[s2]", "",
     "float32[s2, s0]; int64[s1]; int64[s2]; int64[s2]"},
    {"EmbeddingDenseGrad", "grad=float32[s0, 4]; indices=int64[s0]", "num_weights=9", "float32[9, 4]"},
    {"Gather", "x=int64[3]{s0, 5, s1}; indices=int64[2]{2, 0}", "", "int64[2]{s1, s0}"},
    {"GatherV2", "x=float32[s0, 9, 4]; indices=int64[s1, 2]; axis=int64[1]{1}", "", "float32[s0, s1, 2, 4]"},
    {"GatherV2", "x=float32[s0, 9, 4]; indices=int64[s0, 2]; axis=int64[1]{2}", "batch_dims=1", "float32[s0, 9, 2]"},
    {"GatherV2", "x=float32[s0, 9]; indices=int64[]; axis=int64[1]", "", "float32[?]"},
    {"GatherElements", "x=float32[s0, 9]; index=int64[s0, 2]", "dim=1", "float32[s0, 2]"},
    {"IndexByTensor", "x=float32[s0, 9, 4]; indices=int64[s1, 1] & int64[2]", "indices_mask=[0,1,1]",
     "float32[s0, s1, 2]"},
    {"IndexByTensor", "x=float32[s0, 9, 4]; indices=int64[s1] & int64[s1]", "indices_mask=[1,0,1]", "float32[s1, 9]"},
    // Matrices.
    {"MatMulV2", "x1=float16[s0, 8]; x2=float16[s1, 8]; bias=float32[s1]", "transpose_x2=true", "float16[s0, s1]"},
    {"MatMul", "x1=int8[2, 3]; x2=int8[3, 4]", "", "int32[2, 4]"},
    {"MatMul", "x1=float32[..]; x2=float32[3, 4]", "", "float32[?, ?]"},
    {"BatchMatMulV2", "x1=float32[s0, 1, 2, 3]; x2=float32[5, 3, s1]", "", "float32[s0, 5, 2, s1]"},
    {"QuantBatchMatmulV3", "x1=int8[s0, 8]; x2=int8[8, 4]; scale=float32[4]", "dtype=27", "bfloat16[s0, 4]"},
    {"QuantMatmulReduceSum", "x1=int8[s0, 2, 3]; x2=int8[s0, 3, 4]; dims=int64[1]{0}", "dtype=27", "bfloat16[2, 4]"},
    {"TransposeBatchMatMul", "x1=float16[s0, 3, 8]; x2=float16[3, 8, 4]", "perm_x1=[1,0,2] perm_y=[1,0,2]",
     "float16[s0, 3, 4]"},
    {"FFN", "x=float16[s0, 8]; weight1=float16[8, 32]; weight2=float16[32, 8]", "activation='gelu'", "float16[s0, 8]"},
    {"GroupedMatmul", "x=float16[s0, 8]; weight=float16[4, 8, s1]; group_list=int64[4]", "split_item=3 group_type=0",
     "float16[s0, s1]"},
    {"GroupedMatmul", "x=float16[s0, 8] & float16[3, 4]; weight=float16[8, 2] & float16[4, 5]", "",
     "float16[s0, 2] & float16[3, 5]"},
    {"GroupedMatmulFinalizeRouting", "x=int8[s0, 8]; w=int8[4, 8, 16]", "output_bs=5", "float32[5, 16]"},
    {"GroupedMatmulSwigluQuantV2",
     "x=int8[s0, 8]; x_scale=float32[s0]; group_list=int64[4]; weight=int8[4, 8, 32]; "
     "weight_scale=float32[4, 32]",
     "", "int8[s0, 16]; float32[s0]"},
    {"QuantMatmulDequant", "x=float16[s0, 8]; quantized_weight=int8[4, 8]; weight_scale=float32[4]", "",
     "float16[s0, 4]"},
    // Convolutions.
    {"AdaptiveAvgPool2d", "x=float32[s0, 3, s1, 9]", "output_size=[2,4]", "float32[s0, 3, 2, 4]"},
    {"Conv2D", "x=float16[s0, 6, 32, 2*s1]; filter=float16[8, 3, 3, 3]",
     "strides=[1,1,2,2] pads=[1,1,1,1] groups=2 data_format='NCHW'", "float16[s0, 8, 16, s1]"},
    {"Conv3D", "x=float16[2, 9, 9, 9, 3]; filter=float16[8, 3, 3, 3, 3]",
     "strides=[1,1,1,1,1] pads=[0,0,0,0,0,0] dilations=[1,2,1,1,1]", "float16[2, 5, 7, 7, 8]"},
    {"Conv2DTranspose", "input_size=int64[4]{0, 0, 0, 0}; x=float16[s0, 8, 4, 4]; filter=float16[8, 6, 3, 3]",
     "strides=[1,1,2,2] pads=[1,1,1,1] output_padding=[0,0,1,1] data_format='NCHW'", "float16[s0, 6, 8, 8]"},
    {"Conv2DTranspose", "input_size=int64[4]{s0, 6, 8, 8}; x=float16[s0, 8, 4, 4]; filter=float16[8, 6, 3, 3]",
     "strides=[1,1,2,2] pads=[1,1,1,1]", "float16[s0, 6, 8, 8]"},
    {"AvgPoolV2", "x=float32[s0, 3, 32, 2*s1]", "ksize=[1,1,2,2] strides=[1,1,2,2]", "float32[s0, 3, 16, s1]"},
    {"AvgPoolV2", "x=float32[1, 3, 7, 7]", "ksize=[1,1,2,2] strides=[1,1,2,2] ceil_mode=true", "float32[1, 3, 4, 4]"},
    {"MaxPoolWithArgmaxV3", "x=float32[s0, 3, 9, 9]", "ksize=[3,3] strides=[2,2] pads=[1,1]",
     "float32[s0, 3, 5, 5]; int32[s0, 3, 5, 5]"},
    {"MaxPool3DWithArgmaxV2", "x=float32[s0, 3, 9, 9, 9]", "ksize=[3,3,3] strides=[3,3,3] pads=[0,0,0] dtype=9",
     "float32[s0, 3, 3, 3, 3]; int64[s0, 3, 3, 3, 3]"},
    {"MaxPoolWithArgmaxV1", "x=float32[s0, 3, 8, 8]", "ksize=[1,2,2,1] strides=[1,2,2,1] pads=[1,0,0,1]",
     "float32[s0, 3, 4, 4]; uint16[s0, 3, 4, 2]"},
    {"GridSampler2D", "x=float32[s0, 3, 9, 9]; grid=float32[s0, 4, s1, 2]", "", "float32[s0, 3, 4, s1]"},
    {"ResizeNearestNeighborV2", "x=float32[s0, 3, 9, 9]; size=int32[2]{18, s1}", "", "float32[s0, 3, 18, s1]"},
    // Norms and quantisation.
    {"AddRmsNorm", "x1=float16[s0, 8]; x2=float16[s0, 8]; gamma=float16[8]", "",
     "float16[s0, 8]; float32[s0, 1]; float16[s0, 8]"},
    {"LayerNormV4", "x=float16[s0, 3, 8]; normalized_shape=int64[2]{3, 8}", "",
     "float16[s0, 3, 8]; float32[s0, 1, 1]; float32[s0, 1, 1]"},
    {"GroupNormV2", "x=float16[s0, 8, 5]; gamma=float16[8]; beta=float16[8]", "num_groups=4",
     "float16[s0, 8, 5]; float16[s0, 4]; float16[s0, 4]"},
    {"DynamicQuant", "x=float16[s0, 3, 8]", "", "int8[s0, 3, 8]; float32[s0, 3]"},
    {"DequantSwigluQuant", "x=int32[s0, 16]", "quant_mode='dynamic'", "int8[s0, 8]; float32[s0]"},
    {"DynamicBlockQuant", "x=float16[s0, 200]", "", "float8_e5m2[s0, 200]; float32[s0, 2]"},
    {"FlatQuant", "x=float16[s0, 4, 8]; kronecker_p1=float16[4, 4]; kronecker_p2=float16[8, 8]", "",
     "int4[s0, 4, 8]; float32[s0]"},
    {"QuantMax", "x=float16[s0, 8]; scale=float32[1]", "", "float8_e5m2[s0, 8]; float16[1]"},
    // Attention.
    {"FlashAttentionScore", "query=float16[s0, 4, s1, 64]; key=float16[s0, 2, 9, 64]; value=float16[s0, 2, 9, 32]",
     "head_num=4 input_layout='BNSD'",
     "float32[s0, 4, s1, 8]; float32[s0, 4, s1, 8]; float16[0]; float16[s0, 4, s1, 32]"},
    {"FusedInferAttentionScore", "query=float16[s0, 4, s1, 64]; key=float16[s0, 2, 9, 64]; value=float16[s0, 2, 9, 64]",
     "num_heads=4 input_layout='BNSD_BSND' softmax_lse_flag=true", "float16[s0, s1, 4, 64]; float32[s0, 4, s1, 1]"},
    {"IncreFlashAttention", "query=float16[s0, 1, 256]; key=float16[s0, 9, 256]; value=float16[s0, 9, 256]",
     "num_heads=4", "float16[s0, 1, 256]"},
    {"KvRmsNormRopeCache",
     "kv=float16[s0, 1, s1, 576]; gamma=float16[512]; cos=float16[s0, 1, s1, 64]; sin=float16[s0, 1, s1, 64]; "
     "index=int64[s0]; k_cache=float16[9, 1, 4, 64]; ckv_cache=float16[9, 1, 4, 512]",
     "", "float16[9, 1, 4, 64]; float16[9, 1, 4, 512]; float16[s0, 1, s1, 64]; float16[s0, 1, s1, 512]"},
    {"QkvRmsNormRopeCache",
     "qkv=float16[s0, 1024]; q_gamma=float16[128]; k_gamma=float16[128]; cos=float16[s0, 128]; sin=float16[s0, 128]; "
     "index=int64[s0]; q_out=float16[s0, 512]; k_cache=float16[9, 2]; v_cache=float16[9, 2]",
     "qkv_size=[1,1,8,128] head_nums=[4,2,2] is_output_qkv=true",
     "float16[s0, 512]; float16[9, 2]; float16[9, 2]; float16[s0, 512]; float16[s0, 256]; float16[s0, 256]"},
    {"DequantRopeQuantKvcache",
     "x=float16[s0, 1, 1024]; cos=float16[s0, 1, 1, 128]; sin=float16[s0, 1, 1, 128]; k_cache=int8[9, 2]; "
     "v_cache=int8[9, 2]; indices=int32[s0]; scale_k=float32[2]; scale_v=float32[2]",
     "size_splits=[512,256,256]",
     "float16[s0, 1, 4, 128]; float16[s0, 1, 2, 128]; float16[s0, 1, 2, 128]; int8[9, 2]; int8[9, 2]"},
    {"MlaPrologV2",
     "token_x=bfloat16[s0, 1, 7168]; weight_dq=bfloat16[7168, 1536]; weight_uq_qr=bfloat16[1536, 6144]; "
     "weight_uk=bfloat16[32, 128, 512]; weight_dkv_kr=bfloat16[7168, 576]; rmsnorm_gamma_cq=bfloat16[1536]; "
     "rmsnorm_gamma_ckv=bfloat16[512]; rope_sin=bfloat16[s0, 1, 64]; rope_cos=bfloat16[s0, 1, 64]; "
     "cache_index=int64[s0]; "
     "kv_cache=bfloat16[9, 4, 1, 512]; kr_cache=bfloat16[9, 4, 1, 64]",
     "",
     "bfloat16[s0, 1, 32, 512]; bfloat16[s0, 1, 32, 64]; bfloat16[9, 4, 1, 512]; bfloat16[9, 4, 1, 64]; float32[0]"},
    // Boxes.
    {"Iou", "bboxes=float32[s0, 4]; gtboxes=float32[s1, 4]", "", "float32[s1, s0]"},
    {"Iou", "bboxes=float32[s0, 4]; gtboxes=float32[s0, 4]", "aligned=true", "float32[s0, 1]"},
    {"CIoU", "bboxes=float16[4, s0]; gtboxes=float16[4, s0]", "is_cross=false", "float16[1, s0]; float16[1, s0]"},
    {"DeformableOffsets", "x=float32[s0, 4, 7, 8]; offsets=float32[s0, 18, s1, 3]",
     "strides=[1,1,2,2] pads=[1,1,1,1] ksize=[3,2]", "float32[s0, 4, 3*s1, 6]"},
    // Recurrent networks.
    {"DynamicRNN", "x=float16[s0, s1, 3]; w=float16[8, 20]; b=float16[20]", "",
     "float16[s0, s1, 5]; float16[s0, s1, 5]; float16[s0, s1, 5]; float16[s0, s1, 5]; float16[s0, s1, 5]; "
     "float16[s0, s1, 5]; float16[s0, s1, 5]; float16[s0, s1, 5]"},
    {"DynamicRNNV2Grad",
     "x=float32[4, 3]; w_x=float32[3, 8]; w_h=float32[2, 8]; y=float32[1, 4, 2]; init_h=float32[4, 2]; "
     "init_c=float32[4, 2]; h=float32[4, 2]; c=float32[4, 2]; dy=float32[1, 4, 2]; dh=float32[4, 2]; dc=float32[4, 2]; "
     "i=float32[1, 4, 2]; j=float32[1, 4, 2]; f=float32[1, 4, 2]; o=float32[1, 4, 2]; tanhct=float32[1, 4, 2]",
     "", "float32[3, 8]; float32[2, 8]; float32[8]; float32[4, 3]; float32[4, 2]; float32[4, 2]; ; ; "},
    {"LSTMFused", "x=float16[s0, s1, 3]; weight_input=float16[20, 3]; weight_hidden=float16[20, 5]", "",
     "float16[s0, s1, 5]; float16[1, s1, 5]; float16[1, s1, 5]"},
    {"GRUFused", "x=float32[4, 2, 3]; weight_input=float32[15, 3]; weight_hidden=float32[15, 5]", "",
     "float32[4, 2, 5]; float32[1, 2, 5]"},
    // Nets of other frameworks.
    {"MaxPool", "x=float32[s0, 9, 9, 3]", "ksize=[1,2,2,1] strides=[1,2,2,1] padding='SAME'", "float32[s0, 5, 5, 3]"},
    {"MaxPool", "x=float32[s0, s1, 9, 3]", "ksize=[1,2,2,1] strides=[1,2,2,1] padding='VALID'",
     "float32[s0, s1//2, 4, 3]"},
    {"MaxPool", "x=float32[..]", "ksize=[1,2,2,1] strides=[1,2,2,1] padding='VALID'", "float32[?, ?, ?, ?]"},
    {"AvgPool", "x=float16[?, 3, 9, 9]", "ksize=[1,1,3,3] strides=[1,1,2,2] padding='VALID' data_format='NCHW'",
     "float16[?, 3, 4, 4]"},
    {"Pooling", "x=float16[s0, 3, 8, 8]", "window=[3,3] stride=[2,2]", "float16[s0, 3, 4, 4]"},
    {"Pooling", "x=int8[s0, 3, 8, 8]", "window=[3,3] stride=[2,2] ceil_mode=1", "int32[s0, 3, 3, 3]"},
    {"GlobalAveragePool", "x=float16[s0, 3, ?, s1]", "", "float16[s0, 3, 1, 1]"},
    {"GlobalAveragePool", "x=float16[..]", "", "float16[..]"},
    {"DepthwiseConv2D", "x=float16[s0, 9, 9, 6]; filter=float16[3, 3, 6, 2]", "strides=[1,1,1,1] pads=[1,1,0,0]",
     "float16[s0, 9, 7, 12]"},
    {"DepthwiseConv2D", "x=float16[s0, 6, 9, 9]; filter=float16[12, 1, 3, 3]",
     "strides=[1,1,2,2] pads=[1,1,1,1] data_format='NCHW'", "float16[s0, 12, 5, 5]"},
    {"DepthwiseConv2D", "x=float16[..]; filter=float16[12, 1, 3, 3]", "strides=[1,1,2,2] pads=[1,1,1,1]",
     "float16[?, ?, ?, ?]"},
    {"DepthwiseConv2DBackpropInput",
     "input_size=int64[4]{s0, 9, 9, 6}; filter=float16[3, 3, 6, 2]; out_backprop=float16[s0, 9, 7, 12]",
     "strides=[1,1,1,1] pads=[1,1,0,0]", "float16[s0, 9, 9, 6]"},
    {"Conv2DBackpropInputD", "filter=int8[6, 3, 2, 2]; out_backprop=int8[1, 6, 3, 3]",
     "input_size=[1,3,4,4] strides=[1,1,1,1] pads=[0,0,0,0] data_format='NCHW'", "int32[1, 3, 4, 4]"},
    {"Deconvolution", "x=float16[s0, 6, 5, 5]; filter=float16[6, 4, 3, 3]", "strides=[2,2] pads=[1,1,1,1] groups=2",
     "float16[s0, 8, 9, 9]"},
    {"BatchNorm", "x=float16[s0, ?, 8]; scale=float32[8]; offset=float32[8]", "",
     "float16[s0, ?, 8]; float32[8]; float32[8]; float32[8]; float32[8]; float32[0]"},
    {"BatchNorm", "x=float16[..]; scale=float32[s0]; offset=float32[s0]", "data_format='NCHW'",
     "float16[..]; float32[s0]; float32[s0]; float32[s0]; float32[s0]; float32[0]"},
    {"InstanceNorm", "x=float16[s0, s1, 5, 8]; gamma=float16[8]; beta=float16[8]", "data_format='NHWC'",
     "float16[s0, s1, 5, 8]; float16[s0, 1, 1, 8]; float16[s0, 1, 1, 8]"},
    {"InstanceNorm", "x=float16[..]; gamma=float16[8]; beta=float16[8]", "", "float16[..]; float16[..]; float16[..]"},
    {"LayerNorm", "x=float16[s0, 3, 8]; gamma=float32[8]; beta=float32[8]", "begin_norm_axis=1 begin_params_axis=-1",
     "float16[s0, 3, 8]; float16[s0, 1, 1]; float16[s0, 1, 1]"},
    {"BiasAddGrad", "x=float16[s0, 3, s1]", "", "float16[s1]"},
    {"BiasAddGrad", "x=float16[..]", "", "float16[?]"},
    {"Eltwise", "x=float16[s0, ?] & float16[?, 3]", "N=2 mode=0", "float16[s0, 3]"},
    {"FullyConnection", "x=float16[s0, 3, 4]; w=float16[5, 12]", "num_output=5", "float16[s0, 5]"},
    {"FullyConnection", "x=int8[s0, s1, 4]; w=int8[4, 5]", "num_output=5 axis=-1 transpose=true", "int32[s0, s1, 5]"},
    {"FullyConnection", "x=float16[..]; w=float16[4, 5]", "num_output=4", "float16[..]"},
    {"SoftmaxCrossEntropyWithLogits", "features=float32[s0, 10]; labels=float32[1, 10]", "",
     "float32[s0]; float32[s0, 10]"},
    {"SparseSoftmaxCrossEntropyWithLogits", "features=float32[s0, 10]; labels=int32[s0]", "",
     "float32[s0]; float32[s0, 10]"},
    {"SparseSoftmaxCrossEntropyWithLogits", "features=float32[..]; labels=int32[s0]", "", "float32[..]; float32[..]"},
    {"ApplyMomentum", "var=float32[s0, ?]; accum=float32[s0, 3]; lr=float32[]; grad=float32[..]; momentum=float32[1]",
     "use_nesterov=true", "float32[s0, ?]; float32[s0, 3]"},
    {"Upsample", "x=float16[s0, 3, s1, 5]", "stride_h=3", "float16[s0, 3, 3*s1, 10]"},
    {"ResizeBilinearV2", "x=uint8[s0, 3, 4, 5]; size=int32[2]", "", "float32[s0, 3, ?, ?]"},
    {"UnsortedSegmentMaxD", "x=float32[s0, 3]; segment_ids=int32[s0]", "num_segments=4", "float32[4, 3]"},
    {"MatrixInverse", "x=float32[s0, ?, 3]", "", "float32[s0, ?, 3]"},
    {"Cholesky", "x=float32[..]", "", "float32[..]"},
    {"LogMatrixDeterminant", "x=float32[s0, ?, 3]", "", "float32[s0]; float32[s0]"},
    {"Qr", "x=float32[s0, 5, 3]", "", "float32[s0, 5, 3]; float32[s0, 3, 3]"},
    {"Qr", "x=float32[s0, s1]", "full_matrices=true", "float32[s0, s0]; float32[s0, s1]"},
    {"Qr", "x=float32[s0, s1]", "", "float32[s0, ?]; float32[?, s1]"},
    // Experts.
    {"MoeComputeExpertTokens", "sorted_experts=int32[s0]", "num_experts=8", "int32[8]"},
    {"MoeGatingTopKSoftmax", "x=float16[s0, 8]", "k=2", "float16[s0, 2]; int32[s0, 2]; int32[s0, 2]"},
    {"MoeInitRouting", "x=float16[s0, 64]; row_idx=int32[s0, 2]; expert_idx=int32[s0, 2]", "active_num=1",
     "float16[2, 64]; int32[2*s0]; int32[2*s0]"},
    {"MoeInitRoutingV3", "x=float16[s0, 64]; expert_idx=int32[s0, 2]", "expert_num=8 quant_mode=1",
     "int8[2*s0, 64]; int32[2*s0]; int64[8]; float32[2*s0]"},
    {"MoeFinalizeRoutingV2", "expanded_x=float16[2*s0, 64]; expanded_row_idx=int32[2*s0]", "K=2", "float16[s0, 64]"},
    {"MoeReRouting", "tokens=float16[s0, 64]; expert_token_num_per_rank=int32[4, 8]", "",
     "float16[s0, 64]; float32[s0]; int32[s0]; int32[8]"},
};

TEST(InferTest, Cases) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(fmt::format("{}({}) {}", test.type, test.inputs, test.attributes));
    Call call(test);
    const Status status = Infer(call.context);
    ASSERT_TRUE(status.ok()) << status.detail().what;
    EXPECT_EQ(test.outputs, call.Text());
    EXPECT_TRUE(call.context.facts->empty()) << call.context.facts->text();
  }
}

// Every rule has a case.
TEST(InferTest, EveryRuleIsTried) {
  std::set<std::string_view> missing;
  for (const GraphOp& op : GraphOps()) missing.insert(op.rule);
  for (const Case& test : kCases) missing.erase(FindGraphOp(test.type)->rule);
  EXPECT_THAT(missing, ::testing::IsEmpty());
}

// Inferring with symbols and putting numbers in their place gives what inferring with the numbers gives.
TEST(InferTest, SubstitutingIsInferring) {
  for (const Case& test : kCases) {
    for (const auto& numbers :
         {std::map<int, Dim>{{0, 6}, {1, 4}, {2, 2}}, std::map<int, Dim>{{0, 8}, {1, 130}, {2, 3}}}) {
      SCOPED_TRACE(fmt::format("{}({}) {}", test.type, test.inputs, test.attributes));
      Call symbolic(test);
      ASSERT_TRUE(Infer(symbolic.context).ok());
      Call numeric(test);
      numeric.Substitute(numbers);
      const Status status = Infer(numeric.context);
      ASSERT_TRUE(status.ok()) << status.detail().what;
      for (size_t i = 0; i < symbolic.context.outputs.size(); ++i) {
        for (size_t n = 0; n < symbolic.context.outputs[i].size(); ++n) {
          const Shape& expected = numeric.context.outputs[i][n].shape;
          const Shape found = symbolic.context.outputs[i][n].shape.Substitute(numbers);
          ASSERT_EQ(expected.rank(), found.rank());
          for (size_t d = 0; d < found.rank(); ++d) {
            if (!found[d].is_unknown()) {
              EXPECT_EQ(expected[d], found[d]) << i << ": " << found.text();
            }
          }
        }
      }
    }
  }
}

// Slices of one dim, against the places that a walk along the dim finds.
TEST(InferTest, SlicesOfEveryKind) {
  for (const int64_t size : {0, 1, 3}) {
    for (int64_t begin = -4; begin <= 4; ++begin) {
      for (int64_t end = -4; end <= 4; ++end) {
        for (const int64_t stride : {-3, -1, 1, 2}) {
          const std::string inputs = fmt::format(
              "x=float32[{}]; begin=int64[1]{{{}}}; end=int64[1]{{{}}}; axes=int64[1]{{0}}; strides=int64[1]{{{}}}",
              size, begin, end, stride);
          Call call({"StridedSliceV2", inputs.c_str(), "", ""});
          ASSERT_TRUE(Infer(call.context).ok()) << inputs;
          // Both bounds from the front; the walk begins at the first place inside that is not before begin.
          const int64_t first = begin < 0 ? begin + size : begin;
          const int64_t last = end < 0 ? end + size : end;
          int64_t count = 0;
          int64_t next = stride > 0 ? std::max<int64_t>(first, 0) : std::min(first, size - 1);
          for (; next >= 0 && next < size && (stride > 0 ? next < last : next > last); next += stride) ++count;
          ASSERT_EQ(Dim(count), call.context.outputs[0][0].shape[0]) << inputs;
        }
      }
    }
  }
}

TEST(InferTest, SizesThatMustBeEqualBecomeFacts) {
  Call call({"MatMul", "x1=float32[s0, s1]; x2=float32[8, s2]", "", ""});
  ASSERT_TRUE(Infer(call.context).ok());
  EXPECT_EQ("float32[s0, s2]", call.Text());
  EXPECT_EQ("s1 = 8", call.context.facts->text());
}

constexpr Case kRefused[] = {
    {"Add", "x1=float32[3]; x2=float32[2]", "", "100021 Add: x2 has the shape [2], which does not broadcast with [3]"},
    {"Add", "x1=float32[s0]; x2=float32[s0+1]", "",
     "100021 Add: x2 has the shape [s0+1], which does not broadcast with [s0]"},
    {"Add", "x1=float32[3]; x2=int32[3]", "", "100021 Add: x2 is int32, but x1 is float32"},
    {"Erf", "x=int32[3]", "", "100021 Erf: x is int32, which the operator does not take"},
    {"Relu", "", "", "100021 Relu: there are 0 tensors for x"},
    {"Relu", "x=float32[1]", "slope=1", "100023 Relu: slope is no attribute of the operator"},
    {"Muls", "x=float32[1]", "", "100023 Muls: value is not set, but has no default"},
    {"MatMul", "x1=float32[2, 3]; x2=float32[2, 3]", "transpose_x1=[1]",
     "100023 MatMul: transpose_x1 is set as list of integers, [1]"},
    {"Cast", "x=float32[1]", "dst_type=99", "100023 Cast: dst_type is 99, which is no type that can be written"},
    {"Exp", "x=float32[1]", "base=-2.0", "100023 Exp: base is -2"},
    {"AddN", "x=float32[2] & float32[3]", "", "100021 AddN: x[1] has the shape [3], but x[0] has [2]"},
    {"Assign", "ref=float32[2]; value=float32[3, 2]", "",
     "100021 Assign: value has the shape [3, 2], which does not broadcast to [2] of ref"},
    {"SwiGlu", "x=float16[3]", "", "100021 SwiGlu: x has the shape [3], whose dim 0 is odd"},
    {"ForeachAddList", "x1=float32[2]; x2=float32[2] & float32[2]; alpha=float32[1]", "",
     "100021 ForeachAddList: x2 has 2 tensors, expected 1"},
    {"ReduceSum", "x=float32[2]; axes=int64[1]{1}", "", "100021 ReduceSum: axes is 1, expected -1 to 0"},
    {"ReduceSumD", "x=float32[2]", "axes=[0,0]", "100023 ReduceSumD: axes [0, 0] names dim 0 twice"},
    {"SoftmaxV2", "x=float32[2, 3, 4]", "axes=[0,2]", "100023 SoftmaxV2: axes is [0, 2]"},
    {"TopKV2", "x=float32[3]; k=int32[]{4}", "", "100021 TopKV2: k is 4, but dim 0 has 3 elements"},
    {"Reshape", "x=float32[2, 3]; shape=int64[2]{4, -1}", "",
     "100021 Reshape: shape is [4, -1], which does not hold the elements of [2, 3]"},
    {"Squeeze", "x=float32[s0]", "axis=[0]", "100023 Squeeze: axis names dim 0 of [s0], which is not 1"},
    {"Transpose", "x=float32[2, 3]; perm=int64[1]{0}", "", "100021 Transpose: perm is [0], but x has 2 dims"},
    {"ConcatV2", "x=float32[2, 3] & float32[2, 4]; concat_dim=int64[]{0}", "",
     "100021 ConcatV2: x[1] has the shape [2, 4], which cannot be joined to [2, 3] along dim 0"},
    {"SplitV", "x=float32[9]; size_splits=int64[2]{4, 4}; split_dim=int32[]{0}", "num_split=2",
     "100021 SplitV: size_splits is [4, 4], but dim 0 of x has 9"},
    {"Unpack", "x=float32[3]", "num=2", "100023 Unpack: num is 2, but dim 0 of x has 3"},
    {"PadV3", "x=float32[3]; paddings=int64[2]{-4, 0}", "",
     "100021 PadV3: paddings is [-4, 0], which leaves nothing of dim 0 of [3]"},
    {"StridedSliceV2", "x=float32[3]; begin=int64[1]{0}; end=int64[1]{3}; axes=int64[1]{0}; strides=int64[1]{0}", "",
     "100021 StridedSliceV2: strides is [0]"},
    {"StridedSliceV2", "x=float32[3]; begin=int64[1]{0}; end=int64[2]{3, 3}", "",
     "100021 StridedSliceV2: end has 2 entries, but begin has 1"},
    {"Range", "start=int64[]{0}; limit=int64[]{3}; delta=int64[]{0}", "", "100021 Range: delta is 0"},
    {"Fill", "dims=int64[1]{-3}; value=float32[]", "", "100021 Fill: dims is [-3], which has a negative size"},
    {"GatherV2", "x=float32[3]; indices=int64[2]; axis=int64[1]{1}", "",
     "100021 GatherV2: axis is 1, expected -1 to 0"},
    {"IndexByTensor", "x=float32[3]; indices=int64[2]", "indices_mask=[1,1]",
     "100023 IndexByTensor: indices_mask is [1, 1], but there are 1 tensors of indices"},
    {"MatMul", "x1=float32[2, 3]; x2=float32[2, 3]", "",
     "100021 MatMul: x2 is [2, 3], which cannot be multiplied from the right to [2, 3]: 3 and 2"},
    {"MatMulV2", "x1=float32[2, 3]; x2=float32[3, 4]; bias=float32[3]", "",
     "100021 MatMulV2: bias has the shape [3], expected [4]"},
    {"Conv2D", "x=float16[1, 6, 9, 9]; filter=float16[8, 6, 3, 3]",
     "strides=[1,1,1,1] pads=[0,0,0,0] groups=2 data_format='NCHW'",
     "100021 Conv2D: filter has the shape [8, 6, 3, 3], whose channels times groups is 12, expected 6"},
    {"Conv2D", "x=float16[1, 6, 9, 9]; filter=float16[8, 6, 3, 3]",
     "strides=[1,1,0,1] pads=[0,0,0,0] data_format='NCHW'", "100023 Conv2D: strides is [1, 1, 0, 1]"},
    {"AvgPoolV2", "x=float32[1, 3, 1, 1]", "ksize=[1,1,2,2] strides=[1,1,2,2]",
     "100021 AvgPoolV2: x has the shape [1, 3, 1, 1], whose dim 2 is smaller than the window of 2"},
    {"RmsNorm", "x=float16[2, 8]; gamma=float16[4]", "", "100021 RmsNorm: gamma has the shape [4], but x has [2, 8]"},
    {"LayerNormV4", "x=float16[2, 8]; normalized_shape=int64[1]{4}", "",
     "100021 LayerNormV4: normalized_shape is [4], but x has [2, 8]"},
    {"GroupNorm", "x=float16[2, 6]; gamma=float16[6]; beta=float16[6]", "num_groups=4",
     "100021 GroupNorm: x has the shape [2, 6], whose channels do not make 4 groups"},
    {"FlashAttentionScore", "query=float16[1, 2, 3, 8]; key=float16[1, 2, 3, 8]; value=float16[1, 2, 3, 8]",
     "head_num=4 input_layout='BNSD'",
     "100021 FlashAttentionScore: query has the shape [1, 2, 3, 8], whose number of heads is 2, expected 4"},
    {"FlashAttentionScore", "query=float16[1, 2]; key=float16[1, 2]; value=float16[1, 2]",
     "head_num=1 input_layout='XY'", "100023 FlashAttentionScore: input_layout is \"XY\""},
    {"MoeGatingTopKSoftmax", "x=float16[s0, 4]", "k=5",
     "100023 MoeGatingTopKSoftmax: k is 5, but x has the shape [s0, 4]"},
    {"MaxPool", "x=float32[1, 3, 3, 1]", "ksize=[1,2,2,1] strides=[1,2,2,1] padding='CALCULATED'",
     "100023 MaxPool: padding is \"CALCULATED\""},
    {"MaxPool", "x=float32[1, 3, 3, 1]", "ksize=[1,2,2,1] strides=[1,1,1,2] padding='SAME'",
     "100023 MaxPool: strides is [1, 1, 1, 2]"},
    {"DepthwiseConv2D", "x=float16[1, 9, 9, 6]; filter=float16[3, 3, 5, 2]", "strides=[1,1,1,1] pads=[0,0,0,0]",
     "100021 DepthwiseConv2D: filter has the shape [3, 3, 5, 2], whose number of channels is 5, expected 6"},
    {"BatchNorm", "x=float16[2, 8]; scale=float32[8]; offset=float32[8]", "is_training=false",
     "100021 BatchNorm: mean and variance are left out, but is_training is false"},
    {"ApplyMomentum", "var=float32[2]; accum=float32[2]; lr=float32[2]; grad=float32[2]; momentum=float32[]", "",
     "100021 ApplyMomentum: lr has the shape [2]"},
    {"ApplyMomentum", "var=float32[2]; accum=float32[3]; lr=float32[]; grad=float32[2]; momentum=float32[]", "",
     "100021 ApplyMomentum: accum has the shape [3], but var has [2]"},
    {"Eltwise", "x=float32[2] & float32[2]", "N=2 coeff='1'", "100023 Eltwise: coeff is set as text, \"1\""},
    {"HcomReduceScatter", "x=float32[5]", "rank_size=4 group='g' reduction='sum'",
     "100021 HcomReduceScatter: x has the shape [5], which has no equal parts for 4 processes"},
    {"HcomAllToAllVC", "send_data=float32[5]; send_count_matrix=int64[3]{1, 1, 1}", "rank=0 group='g'",
     "100023 HcomAllToAllVC: rank is 0, for a matrix of 3 numbers"},
};

// The number, what is wrong with what, whose fault it is, and what to do.
TEST(InferTest, Refusals) {
  for (const Case& test : kRefused) {
    SCOPED_TRACE(fmt::format("{}({}) {}", test.type, test.inputs, test.attributes));
    Call call(test);
    const Status status = Infer(call.context);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(test.outputs, fmt::format("{} {}", status.code(), status.detail().what));
    EXPECT_FALSE(status.detail().culprit.empty());
    EXPECT_FALSE(SolutionOf(status.detail()).empty());
  }
}

TEST(InferTest, TheTypeThatTheUserGaveIsHeldAgainstTheResult) {
  Call call({"Relu", "x=float32[2]", "", ""});
  call.context.outputs[0].resize(1);
  call.context.outputs[0][0].wanted = 1;
  const Status status = Infer(call.context);
  ASSERT_EQ(100022, status.code());
  EXPECT_EQ("Relu: y is float16, but x is float32", status.detail().what);
}

TEST(GraphOpTest, TheTable) {
  EXPECT_GE(GraphOps().size(), 362u);
  EXPECT_EQ(nullptr, FindGraphOp("MatMulV9"));
  const GraphOp* op = FindGraphOp("MatMulV2");
  ASSERT_NE(nullptr, op);
  EXPECT_EQ("x1, x2, bias?, offset_w?", InputsText(*op));
  EXPECT_EQ("transpose_x1:Bool, transpose_x2:Bool, offset_x:Int", AttributesText(*op));
  EXPECT_EQ("x[], concat_dim#", InputsText(*FindGraphOp("ConcatV2")));
  EXPECT_EQ("float32, float16, bfloat16", TypeMask(1ull << 27 | 3).text());
  EXPECT_EQ(4, TypeBits(29));
  EXPECT_EQ("type 63", TypeName(63));
}

}  // namespace
}  // namespace reprise::opdef
