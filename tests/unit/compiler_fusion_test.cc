// SPDX-License-Identifier: Apache-2.0
//
// The fusions of the compiler: what each makes of its patterns, and what it leaves, with the reason.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/passes/fusion_list.h"
#include "fusion_testing.h"

namespace reprise::compiler {
namespace {

using testing::ExpectFusions;
using testing::ExpectRefusals;
using testing::Read;
using testing::Whole;

const std::string kX = "x = Data() : float32 [4, 8]\n";
const std::string kNumbers =
    "half = Const() : float32 [] = 0.5\n"
    "one = Const() : float32 [] = 1\n";

// ---- Activations ----

const std::string kErf = kX + kNumbers +
                         "root = Const() : float32 [] = 0.70710678\n"
                         "scaled = Mul(x, root)\n"
                         "erf = Erf(scaled)\n"
                         "sum = Add(erf, one)\n";

TEST(CompilerFusion, Activations) {
  const std::string gelu = kX + "y = GeluV2(x = x) {approximate = \"none\"}\nreturn y\n";
  const std::string tanh = kX + "y = GeluV2(x = x) {approximate = \"tanh\"}\nreturn y\n";
  const std::string swish = kX + "y = Swish(x = x)\nreturn y\n";
  const std::string tanh_numbers =
      kX + kNumbers + "a = Const() : float32 [] = 0.044715\nb = Const() : float32 [] = 0.797884561\n";
  ExpectFusions({
      {"GeluFusionPass", kErf + "first = Mul(x, half)\ny = Mul(first, sum)\nreturn y\n", gelu},
      {"GeluFusionPass", kErf + "first = Mul(sum, half)\ny = Mul(first, x)\nreturn y\n", gelu},
      {"GeluFusionPass", kErf + "first = Mul(x, sum)\ny = Muls(first) {value = 0.5}\nreturn y, half\n",
       kX + "half = Const() : float32 [] = 0.5\ny = GeluV2(x = x) {approximate = \"none\"}\nreturn y, half\n"},
      {"GeluFusionPass",
       kX + "two = Const() : float32 [] = 1.41421356\ndiv = RealDiv(x, two)\nerf = Erf(div)\n"
            "sum = Adds(erf) {value = 1.0}\nfirst = Muls(x) {value = 0.5}\ny = Mul(sum, first)\nreturn y\n",
       gelu},
      {"GeluFusionPass",
       tanh_numbers + "three = Const() : float32 [] = 3\ncube = Pow(x, three)\nc = Mul(cube, a)\nd = Add(x, c)\n"
                      "e = Mul(d, b)\nt = Tanh(e)\nsum = Add(one, t)\nf = Mul(x, half)\ny = Mul(f, sum)\nreturn y\n",
       tanh},
      {"GeluFusionPass",
       tanh_numbers + "square = Mul(x, x)\ncube = Mul(square, x)\nc = Mul(cube, a)\nd = Add(c, x)\n"
                      "e = Mul(b, d)\nt = Tanh(e)\nsum = Add(t, one)\nf = Mul(x, sum)\ny = Mul(half, f)\nreturn y\n",
       tanh},
      {"GeluFusionPass",
       tanh_numbers + "square = Square(x)\nc = Mul(square, a)\nd = Add(one, c)\ng = Mul(x, b)\n"
                      "e = Mul(g, d)\nt = Tanh(e)\nsum = Add(t, one)\nf = Mul(x, sum)\ny = Mul(half, f)\nreturn y\n",
       tanh},
      {"SwishFusionPass", kX + "s = Sigmoid(x)\ny = Mul(x, s)\nreturn y\n", swish},
      {"SwishFusionPass", kX + "s = Sigmoid(x)\ny = Mul(s, x)\nreturn y\n", swish},
      {"SwishFusionPass", kX + kNumbers + "n = Neg(x)\ne = Exp(n)\ns = Add(e, one)\ny = RealDiv(x, s)\nreturn y\n",
       kX + "half = Const() : float32 [] = 0.5\ny = Swish(x = x)\nreturn y\n"},
      {"SwishFusionPass", kX + "m = Muls(x) {value = 1.702}\ns = Sigmoid(m)\ny = Mul(x, s)\nreturn y\n",
       kX + "y = FastGelu(x = x)\nreturn y\n"},
      {"MishFusionPass", kX + "e = Exp(x)\nl = Log1p(e)\nt = Tanh(l)\ny = Mul(x, t)\nreturn y\n",
       kX + "y = Mish(x = x)\nreturn y\n"},
      {"MishFusionPass",
       kX + "e = Exp(x)\na = Adds(e) {value = 1.0}\nl = Log(a)\nt = Tanh(l)\ny = Mul(t, x)\nreturn y\n",
       kX + "y = Mish(x = x)\nreturn y\n"},
  });
}

const std::string kBounds = "a = Const() : float32 [] = -1.5\nb = Const() : float32 [1] = 6\n";

TEST(CompilerFusion, Bounds) {
  const std::string clip =
      "y_low = Const() : float32 [] = -1.5\ny_high = Const() : float32 [] = 6\n"
      "y = ClipByValueV2(x = x, clip_value_min = y_low, clip_value_max = y_high)\nreturn y\n";
  ExpectFusions({
      {"ClipFusionPass", kX + kBounds + "l = Maximum(x, a)\ny = Minimum(l, b)\nreturn y\n", kX + clip},
      {"ClipFusionPass", kX + kBounds + "l = Maximum(a, x)\ny = Minimum(b, l)\nreturn y\n", kX + clip},
      {"ClipFusionPass", kX + kBounds + "h = Minimum(x, b)\ny = Maximum(h, a)\nreturn y\n", kX + clip},
  });
  ExpectRefusals({
      {"ClipFusionPass", kX + kBounds + "l = Maximum(x, b)\ny = Minimum(l, a)\nreturn y\n", "the bounds are none"},
      {"ClipFusionPass", kX + kBounds + "l = Maximum(x, a)\ny = Minimum(l, b)\nreturn y, l\n", "l has other users"},
      {"ClipFusionPass", kX + kBounds + "l = Maximum(x, a)\ny = Minimum(l, x)\nreturn y\n", ""},
      {"ClipFusionPass", kX + kBounds + "l = Maximum(x, a)\ny = Maximum(l, b)\nreturn y\n", ""},
  });
}

TEST(CompilerFusion, ActivationsThatStay) {
  ExpectRefusals({
      {"GeluFusionPass", kErf + "first = Mul(x, half)\ny = Mul(first, sum)\nreturn y, erf\n", "erf has other users"},
      {"GeluFusionPass", kErf + "first = Mul(x, one)\ny = Mul(first, sum)\nreturn y\n", ""},
      {"GeluFusionPass", kErf + "z = Data() : float32 [4, 8]\nfirst = Mul(z, half)\ny = Mul(first, sum)\nreturn y\n",
       ""},
      {"GeluFusionPass",
       kX + "m = Muls(x) {value = 0.7075}\nerf = Erf(m)\nsum = Adds(erf) {value = 1.0}\n"
            "first = Muls(x) {value = 0.5}\ny = Mul(sum, first)\nreturn y\n",
       ""},
      {"SwishFusionPass", kX + "s = Sigmoid(x)\ny = Mul(x, s)\nreturn y, s\n", "s has other users"},
      {"SwishFusionPass", kX + "m = Muls(x) {value = 2.0}\ns = Sigmoid(m)\ny = Mul(x, s)\nreturn y\n", "2 * x"},
      {"SwishFusionPass", "x = Data() : float64 [4]\ns = Sigmoid(x)\ny = Mul(x, s)\nreturn y\n",
       "none of its own types"},
      {"SwishFusionPass", kX + "s = Sigmoid(x) notes {_user_stream_label = \"a\"}\ny = Mul(x, s)\nreturn y\n",
       "another _user_stream_label"},
      {"SwishFusionPass", kX + "s = Sigmoid(x) notes {_cannot_be_deleted = true}\ny = Mul(x, s)\nreturn y\n",
       "s has to stay"},
      {"MishFusionPass", "x = Data() : bfloat16 [4]\ne = Exp(x)\nl = Log1p(e)\nt = Tanh(l)\ny = Mul(x, t)\nreturn y\n",
       "bfloat16"},
  });
}

// What ran behind a part runs behind what the part needed; what the parts ran behind, the whole does.
TEST(CompilerFusion, OrderStays) {
  ExpectFusions({{"SwishFusionPass",
                  kX + "w = Data() : float32 [2]\nz = Relu(w)\nv = Neg(w) after (s)\ns = Sigmoid(x) after (z)\n"
                       "u = Abs(w) after (y)\ny = Mul(x, s)\nreturn y, v, u, z\n",
                  kX + "w = Data() : float32 [2]\nz = Relu(w)\nv = Neg(w) after (x, z)\ny = Swish(x = x) after (z)\n"
                       "u = Abs(w) after (y)\nreturn y, v, u, z\n"}});
}

const std::string kSplit =
    "x = Data() : float16 [4, 8]\n"
    "sizes = Const() : int64 [2] = 4, 4\n"
    "dim = Const() : int32 [1] = -1\n"
    "p = SplitV(x = x, size_splits = sizes, split_dim = dim) {num_split = 2} : y0 float16 [4, 4], y1 float16 [4, 4]\n";

TEST(CompilerFusion, GatedUnits) {
  const std::string x = "x = Data() : float16 [4, 8]\n";
  ExpectFusions({
      {"SwiGluFusionPass", kSplit + "s = Swish(p:0)\ny = Mul(s, p:1)\nreturn y\n",
       x + "y = SwiGlu(x = x) {dim = 1}\nreturn y\n"},
      {"SwiGluFusionPass", kSplit + "s = Sigmoid(p:1)\ny = Mul(p:0, s)\nreturn y\n",
       x + "y = GLU(x = x) {dim = 1}\nreturn y\n"},
      {"SwiGluFusionPass", kSplit + "s = GeluV2(p:1)\ny = Mul(p:0, s)\nreturn y\n",
       x + "y = GeGluV2(x = x) {activate_left = false, approximate = 0, dim = 1}\nreturn y\n"},
      {"SwiGluFusionPass",
       x + "zero = Const() : int64 [1] = 0\nfour = Const() : int64 [1] = 4\nend = Const() : int64 [1] = "
           "9223372036854775807\naxis = Const() : int64 [1] = -1\na = StridedSliceV2(x, zero, four, axis)\n"
           "b = StridedSliceV2(x, four, end, axis)\ns = Swish(a)\ny = Mul(b, s)\nreturn y\n",
       x + "y = SwiGlu(x = x) {dim = 1}\nreturn y\n"},
  });
  ExpectRefusals({
      {"SwiGluFusionPass", kSplit + "s = Swish(p:1)\ny = Mul(s, p:0)\nreturn y\n", "Swish of the first half"},
      {"SwiGluFusionPass", kSplit + "s = Swish(p:0)\ny = Mul(s, p:1)\nreturn y, p:1\n", "p has other users"},
      {"SwiGluFusionPass", kSplit + "s = Swish(p:0)\ny = Mul(s, p:0)\nreturn y\n", ""},
      {"SwiGluFusionPass", kSplit + "s = Swish(p:0) {scale = 2.0}\ny = Mul(s, p:1)\nreturn y\n", "has a scale"},
  });
}

// ---- Norms ----

const std::string kRms =
    "x = Data() : float32 [s0, 8]\n"
    "g = Data() : float32 [8]\n"
    "last = Const() : int64 [1] = -1\n"
    "two = Const() : float32 [] = 2\n"
    "eps = Const() : float32 [] = 0.5\n"
    "p = Pow(x, two)\n"
    "m = ReduceMean(p, last) {keep_dims = true}\n"
    "v = Add(m, eps)\n";
const std::string kRmsNorm =
    "x = Data() : float32 [s0, 8]\n"
    "g = Data() : float32 [8]\n"
    "y = RmsNorm(x = x, gamma = g) {epsilon = 0.5}\nreturn y\n";

TEST(CompilerFusion, RmsNorms) {
  ExpectFusions({
      {"RmsNormFusionPass", kRms + "r = Rsqrt(v)\nn = Mul(x, r)\ny = Mul(n, g)\nreturn y\n", kRmsNorm},
      {"RmsNormFusionPass", kRms + "r = Rsqrt(v)\nn = Mul(x, r)\ny = Mul(g, n)\nreturn y\n", kRmsNorm},
      {"RmsNormFusionPass", kRms + "r = Sqrt(v)\nn = RealDiv(x, r)\ny = Mul(g, n)\nreturn y\n", kRmsNorm},
      {"RmsNormFusionPass",
       "h = Data() : float16 [2, 8]\ng = Data() : float16 [8]\nlast = Const() : int64 [1] = 1\n"
       "x = Cast(h) {dst_type = float32}\np = Mul(x, x)\nm = ReduceMean(p, last) {keep_dims = true}\n"
       "v = Adds(m) {value = 0.25}\nr = Rsqrt(v)\nn = Mul(x, r)\nc = Cast(n) {dst_type = float16}\ny = Mul(g, c)\n"
       "return y\n",
       "h = Data() : float16 [2, 8]\ng = Data() : float16 [8]\n"
       "y = RmsNorm(x = h, gamma = g) {epsilon = 0.25}\nreturn y\n"},
  });
  ExpectRefusals({
      {"RmsNormFusionPass", kRms + "r = Rsqrt(v)\nn = Mul(x, r)\ny = Mul(n, g)\nreturn y, n\n", ""},
      {"RmsNormFusionPass", kRms + "r = Rsqrt(v)\nn = Mul(x, r)\ny = Mul(n, g)\nreturn y, m\n", "m has other users"},
      {"RmsNormFusionPass",
       kRms + "f = Data() : float32 [1, 8]\nr = Rsqrt(v)\nn = Mul(x, r)\ny = Mul(n, f)\nreturn y, g\n",
       "gamma has not the sizes"},
      {"RmsNormFusionPass", kRms + "r = Rsqrt(v)\nn = Mul(x, r)\nz = Mul(n, n)\ny = Mul(z, g)\nreturn y\n", ""},
  });
}

const std::string kLayer =
    "x = Data() : float16 [4, 8]\n"
    "g = Data() : float16 [8]\n"
    "b = Data() : float16 [8]\n"
    "last = Const() : int32 [1] = -1\n"
    "mu = ReduceMean(x, last) {keep_dims = true}\n"
    "d = Sub(x, mu)\n"
    "p = Mul(d, d)\n"
    "m = ReduceMean(p, last) {keep_dims = true}\n"
    "v = Adds(m) {value = 0.125}\n"
    "r = Rsqrt(v)\n"
    "n = Mul(d, r)\n";
const std::string kLayerInputs =
    "x = Data() : float16 [4, 8]\n"
    "g = Data() : float16 [8]\n"
    "b = Data() : float16 [8]\n";

TEST(CompilerFusion, LayerNorms) {
  ExpectFusions({
      {"LayerNormFusionPass", kLayer + "s = Mul(n, g)\ny = Add(s, b)\nreturn y\n",
       kLayerInputs + "y_normalized_shape = Const() : int64 [1] = 8\ny = LayerNormV4(x = x, normalized_shape = "
                      "y_normalized_shape, gamma = g, beta = b) {epsilon = 0.125}\nreturn y\n"},
      {"LayerNormFusionPass", kLayer + "y = Mul(g, n)\nreturn y, b\n",
       kLayerInputs + "y_normalized_shape = Const() : int64 [1] = 8\ny = LayerNormV4(x = x, normalized_shape = "
                      "y_normalized_shape, gamma = g) {epsilon = 0.125}\nreturn y, b\n"},
      {"LayerNormFusionPass", kLayer + "return n, g, b\n",
       kLayerInputs + "n_normalized_shape = Const() : int64 [1] = 8\nn = LayerNormV4(x = x, normalized_shape = "
                      "n_normalized_shape) {epsilon = 0.125}\nreturn n, g, b\n"},
  });
  ExpectRefusals({
      {"LayerNormFusionPass", kLayer + "y = Mul(g, n)\nreturn y, b, mu\n", "mu has other users"},
      {"LayerNormFusionPass",
       "x = Data() : float32 [4, s0]\nlast = Const() : int32 [1] = -1\nmu = ReduceMean(x, last) {keep_dims = true}\n"
       "d = Sub(x, mu)\np = Mul(d, d)\nm = ReduceMean(p, last) {keep_dims = true}\nr = Rsqrt(m)\nn = Mul(d, r)\n"
       "return n\n",
       "are not known"},
  });
}

TEST(CompilerFusion, SumsIntoNorms) {
  const std::string inputs = "x = Data() : float16 [4, 8]\nz = Data() : float16 [4, 8]\ng = Data() : float16 [8]\n";
  const std::string fused = inputs + "n = AddRmsNorm(x1 = x, x2 = z, gamma = g) {epsilon = 0.5}\n";
  ExpectFusions({
      {"AddRmsNormFusionPass", inputs + "s = Add(x, z)\nn = RmsNorm(s, g) {epsilon = 0.5}\nreturn n\n",
       fused + "return n\n"},
      {"AddRmsNormFusionPass",
       inputs + "s = Add(x, z)\nn = RmsNorm(s, g) {epsilon = 0.5}\nt = Relu(s)\nreturn n, t, s, n:1\n",
       fused + "t = Relu(n:2)\nreturn n, t, n:2, n:1\n"},
  });
  ExpectRefusals({
      {"AddRmsNormFusionPass", inputs + "s = Add(x, g)\nn = RmsNorm(s, g)\nreturn n, z\n", "other shapes"},
      {"AddRmsNormFusionPass", inputs + "s = Add(x, z)\nh = Relu(g)\nn = RmsNorm(s, h)\nreturn n\n",
       "gamma is computed"},
      {"AddRmsNormFusionPass", inputs + "s = Add(x, z)\nt = Abs(s)\nn = RmsNorm(s, g) after (t)\nreturn n, t\n",
       "waits for other nodes"},
      {"AddRmsNormFusionPass",
       inputs + "s = Add(x, z) notes {_user_stream_label = \"a\"}\nn = RmsNorm(s, g)\nreturn n\n",
       "another _user_stream_label"},
  });
}

TEST(CompilerFusion, Softmax) {
  const std::string e = kX +
                        "last = Const() : int64 [1] = -1\nm = ReduceMax(x, last) {keep_dims = true}\nd = Sub(x, m)\n"
                        "e = Exp(d)\n";
  const std::string fused = kX + "y = SoftmaxV2(x = x) {axes = [1]}\nreturn y\n";
  ExpectFusions({
      {"SoftmaxFusionPass", e + "s = ReduceSum(e, last) {keep_dims = true}\ny = RealDiv(e, s)\nreturn y\n", fused},
      {"SoftmaxFusionPass",
       e + "s = ReduceSum(e, last) {keep_dims = true}\nr = Reciprocal(s)\ny = Mul(e, r)\nreturn y\n", fused},
      {"SoftmaxFusionPass",
       kX + "last = Const() : int64 [1] = 1\ne = Exp(x)\ns = ReduceSum(e, last) {keep_dims = true}\n"
            "y = RealDiv(e, s)\nreturn y\n",
       fused},
  });
  ExpectRefusals({
      {"SoftmaxFusionPass", e + "s = ReduceSum(e, last) {keep_dims = true}\ny = RealDiv(e, s)\nreturn y, e\n",
       "e has other users"},
      {"SoftmaxFusionPass",
       e + "k = Data() : int64 [1]\ns = ReduceSum(e, k) {keep_dims = true} : float32 [4, 1]\ny = RealDiv(e, s) : "
           "float32 [4, 8]\nreturn y\n",
       "not known"},
      {"SoftmaxFusionPass", kX + "z = Data() : float32 [4, 1]\ny = RealDiv(x, z)\nreturn y\n", ""},
  });
}

TEST(CompilerFusion, LogSoftmax) {
  const std::string parts =
      kX +
      "last = Const() : int64 [1] = -1\nm = ReduceMax(x, last) {keep_dims = true}\nd = Sub(x, m)\ne = Exp(d)\n"
      "s = ReduceSum(e, last) {keep_dims = true}\nl = Log(s)\ny = Sub(d, l)\n";
  ExpectFusions({
      {"LogSoftmaxFusionPass", parts + "return y\n", kX + "y = LogSoftmaxV2(logits = x) {axes = [1]}\nreturn y\n"},
      {"LogSoftmaxFusionPass", kX + "s = SoftmaxV2(x) {axes = [0]}\ny = Log(s)\nreturn y\n",
       kX + "y = LogSoftmaxV2(logits = x) {axes = [0]}\nreturn y\n"},
  });
  ExpectRefusals({
      {"LogSoftmaxFusionPass", parts + "return y, e\n", "e has other users"},
      {"LogSoftmaxFusionPass", kX + "s = SoftmaxV2(x)\ny = Log(s) {base = 2.0}\nreturn y\n", ""},
  });
}

// ---- Movement ----

TEST(CompilerFusion, Movement) {
  const std::string x = "x = Data() : float32 [2, 3, 4]\n";
  const std::string there = x + "p = Const() : int32 [3] = 2, 0, 1\nt = Transpose(x, p)\n";
  const std::string back = "q = Const() : int32 [3] = 1, 2, 0\n";
  const std::string quantised =
      "x = Data() : int8 [4, 2]\na = Const() : float32 [2] = 0.5, 0.25\nb = Const() : float32 [2] = 2, 4\n"
      "d = AscendAntiQuantV2(x, a) {dst_type = float16}\n";
  const std::string heads = "x = Data() : float32 [2, 3, 4, 5]\n";
  const std::string flat = heads +
                           "down = Const() : int64 [3] = 6, 4, 5\nup = Const() : int64 [4] = 2, 3, 5, 4\n"
                           "p = Const() : int64 [3] = 0, 2, 1\nf = Reshape(x, down)\nt = Transpose(f, p)\n";
  ExpectFusions({
      {"TransposeElementwiseFusionPass",
       there + back + "r = Relu(t)\nc = Cast(r) {dst_type = float16}\ny = Transpose(c, q)\nreturn y\n",
       x + "r = Relu(x)\ny = Cast(x = r) {dst_type = float16}\nreturn y\n"},
      {"TransposeElementwiseFusionPass", there + back + "r = Relu(t)\ny = Transpose(r, q)\nreturn y\n",
       x + "y = Relu(x = x)\nreturn y\n"},
      {"ReshapeFusionPass",
       x + "a = Const() : int64 [2] = 6, 4\nb = Const() : int64 [1] = -1\nr = Reshape(x, a)\ny = Reshape(r, b)\nreturn "
           "y\n",
       x + "b = Const() : int64 [1] = -1\ny = Reshape(x = x, shape = b)\nreturn y\n"},
      {"ScalarFusionPass", x + "c = Const() : float32 [] = 4\na = Muls(x) {value = 2.0}\ny = Mul(c, a)\nreturn y\n",
       x + "y = Muls(x = x) {value = 8.0}\nreturn y\n"},
      {"ScalarFusionPass", x + "c = Const() : float32 [] = 4\na = Adds(x) {value = 2.0}\ny = Sub(a, c)\nreturn y\n",
       x + "y = Adds(x = x) {value = -2.0}\nreturn y\n"},
      {"DequantQuantFusionPass", quantised + "y = AscendQuantV2(d, b)\nreturn y\n",
       "x = Data() : int8 [4, 2]\nreturn x\n"},
      {"TransposeReshapeFusionPass", flat + "y = Reshape(t, up)\nreturn y\n",
       heads + "y_perm = Const() : int64 [4] = 0, 1, 3, 2\ny = Transpose(x = x, perm = y_perm)\nreturn y\n"},
  });
  ExpectRefusals({
      {"TransposeReshapeFusionPass", flat + "y = Reshape(t, up)\nreturn y, t\n", "t has other users"},
      {"TransposeReshapeFusionPass",
       flat + "other = Const() : int64 [4] = 3, 2, 5, 4\ny = Reshape(t, other)\nreturn y\n", "dims in front"},
      {"TransposeElementwiseFusionPass", there + back + "r = Relu(t)\ny = Transpose(r, q)\nreturn y, t\n",
       "t has other users"},
      {"TransposeElementwiseFusionPass", there + back + "y = Transpose(t, q)\nreturn y\n", ""},
      {"TransposeElementwiseFusionPass", there + "r = Relu(t)\ny = Transpose(r, p)\nreturn y\n", "do not cancel"},
      {"TransposeElementwiseFusionPass", there + back + "r = Relu(t)\nz = Abs(r)\ny = Transpose(r, q)\nreturn y, z\n",
       "r has other users"},
      {"ScalarFusionPass", x + "y = Muls(x) {value = 2.0}\nreturn y\n", ""},
      {"ScalarFusionPass", x + "a = Muls(x) {value = 2.0}\ny = Muls(a) {value = 2.0}\nreturn y, a\n", ""},
      {"ScalarFusionPass", x + "c = Const() : float32 [] = 4\ny = Sub(c, x)\nreturn y\n", ""},
      {"DequantQuantFusionPass", quantised + "y = AscendQuantV2(d, a)\nreturn y\n", "each other's inverse"},
      {"DequantQuantFusionPass", quantised + "y = AscendQuantV2(d, b) {round_mode = \"floor\"}\nreturn y\n",
       "round_mode"},
      {"DequantQuantFusionPass", quantised + "o = Const() : float32 [2] = 1, 1\ny = AscendQuantV2(d, b, o)\nreturn y\n",
       "offsets do not cancel"},
  });
}

// ---- All together ----

// The types of operators, in order, that the stage of fusions leaves.
std::string TypesAfterFusions(const std::string& body, const PassOptions& options = {}) {
  const std::unique_ptr<Graph> graph = Read(Whole(body));
  if (graph == nullptr) return {};
  const Status status = RunPasses(*graph, options, nullptr);
  EXPECT_TRUE(status.ok()) << status.detail().what;
  std::string types;
  for (const NodeId id : TopologicalOrder(*graph)) {
    if (graph->at(id).kind == NodeKind::kOperator) types += (types.empty() ? "" : " ") + graph->at(id).type;
  }
  return types;
}

// A block of a transformer as front ends take it apart.
const std::string kBlock =
    "x = Data() : float32 [6, 16]\nres = Data() : float32 [6, 16]\ng = Data() : float32 [16]\n"
    "w = Data() : float32 [32, 16]\nwb = Data() : float32 [32]\n"
    "last = Const() : int64 [1] = -1\ntwo = Const() : float32 [] = 2\nperm = Const() : int64 [2] = 1, 0\n"
    "sizes = Const() : int64 [2] = 16, 16\ndim = Const() : int32 [1] = 1\n"
    "sum = Add(x, res)\np = Pow(sum, two)\nm = ReduceMean(p, last) {keep_dims = true}\nv = Adds(m) {value = 0.5}\n"
    "r = Rsqrt(v)\nn = Mul(sum, r)\nh = Mul(n, g)\nt = Transpose(w, perm)\nmm = MatMul(h, t)\nb = Add(mm, wb)\n"
    "s = SplitV(x = b, size_splits = sizes, split_dim = dim) {num_split = 2} : y0 float32 [6, 16], y1 float32 [6, 16]\n"
    "sig = Sigmoid(s:0)\nact = Mul(s:0, sig)\ngate = Mul(act, s:1)\nout = Add(gate, sum)\nreturn out\n";

TEST(CompilerFusion, WholesAreFoundInEachOther) {
  EXPECT_EQ(TypesAfterFusions(kBlock), "AddRmsNorm MatMulV2 SwiGlu Add");
}

// The forms of front ends that write out addmm with its factors, and attention with its heads as batches.
TEST(CompilerFusion, FactorsOfOneStandInNobodysWay) {
  // A Cast to the type that is there, behind each product.
  EXPECT_EQ(TypesAfterFusions("x = Data() : float32 [4, 8]\nsig = Sigmoid(x)\ns = Cast(sig) {dst_type = float32}\n"
                              "m = Mul(x, s)\ny = Cast(m) {dst_type = float32}\nreturn y\n"),
            "Swish");
  EXPECT_EQ(TypesAfterFusions("x = Data() : float32 [6, 16]\nw = Data() : float32 [16, 8]\nb = Data() : float32 [8]\n"
                              "one = Const() : float32 [] = 1\nmm = MatMulV2(x, w)\nscaled = Mul(mm, one)\n"
                              "bias = Mul(one, b)\ny = Add(scaled, bias)\nreturn y\n"),
            "MatMulV2");
  EXPECT_EQ(
      TypesAfterFusions(
          "q = Data() : float32 [1, 2, 6, 8]\nk = Data() : float32 [1, 2, 6, 8]\nv = Data() : float32 [1, 2, 6, 8]\n"
          "down = Const() : int64 [3] = 2, 6, 8\nup = Const() : int64 [4] = 1, 2, 8, 6\n"
          "p = Const() : int64 [3] = 0, 2, 1\nscale = Const() : float32 [] = 0.25\n"
          "f = Reshape(k, down)\nt = Transpose(f, p)\nkt = Reshape(t, up)\nqk = BatchMatMul(q, kt)\n"
          "s = Mul(qk, scale)\nw = SoftmaxV2(s) {axes = [-1]}\ny = BatchMatMul(w, v)\nreturn y\n"),
      "PromptFlashAttention");
}

TEST(CompilerFusion, SwitchesAndLevels) {
  PassOptions options;
  options.level = Level::kO1;
  const std::string parts = "Add Pow ReduceMean Adds Rsqrt Mul Mul Transpose MatMul Add SplitV Sigmoid Mul Mul Add";
  EXPECT_EQ(TypesAfterFusions(kBlock, options), parts);
  options.switched = {{"SwishFusionPass", true}, {"SwiGluFusionPass", true}};
  EXPECT_EQ(TypesAfterFusions(kBlock, options),
            "Add Pow ReduceMean Adds Rsqrt Mul Mul Transpose MatMul Add SwiGlu Add");
  options = {};
  options.graph_fusions = {{"ALL", false}};
  EXPECT_EQ(TypesAfterFusions(kBlock, options), parts);
  options.graph_fusions = {{"AddRmsNormFusionPass", false}};
  EXPECT_EQ(TypesAfterFusions(kBlock, options), "Add RmsNorm MatMulV2 SwiGlu Add");
}

// Parts of transformers in random order, some of whose values are results, too: whatever is fused or left, all passes
// together change no result.
class RandomBlocks {
 public:
  explicit RandomBlocks(uint32_t seed) : random_(seed) {}

  std::string Text() {
    text_ =
        "x = Data() : float32 [4, 8]\ng = Data() : float32 [8]\nb = Data() : float32 [8]\nw = Data() : float32 [8, 8]\n"
        "u = Data() : float32 [8, 16]\nlast = Const() : int64 [1] = -1\ntwo = Const() : float32 [] = 2\n"
        "half = Const() : float32 [] = 0.5\none = Const() : float32 [] = 1\nperm = Const() : int64 [2] = 1, 0\n"
        "sizes = Const() : int64 [2] = 8, 8\ndim = Const() : int32 [1] = 1\n";
    constexpr int kBlocks = 6;
    for (int i = 0; i < kBlocks; ++i) Block(static_cast<int>(random_() % 8));
    std::string results = values_.back();
    for (const std::string& value : values_) {
      if (random_() % 10 == 0 && value != values_.back()) results += ", " + value;
    }
    return Whole(text_ + "return " + results + "\n");
  }

 private:
  // A node of the value before, which `$` stands for, or of others.
  std::string Node(const std::string& call) {
    const std::string name = "n" + std::to_string(count_++);
    text_ += name + " = " + call + "\n";
    values_.push_back(name);
    return name;
  }

  std::string Mean(const std::string& of) { return Node("ReduceMean(" + of + ", last) {keep_dims = true}"); }

  void Block(int kind) {
    const std::string x = values_.empty() ? "x" : values_.back();
    switch (kind) {
      case 0: {
        const std::string erf = Node("Erf(" + Node("Muls(" + x + ") {value = 0.70710678}") + ")");
        Node("Mul(" + Node("Mul(" + x + ", half)") + ", " + Node("Add(" + erf + ", one)") + ")");
        return;
      }
      case 1: Node("Mul(" + x + ", " + Node("Sigmoid(" + x + ")") + ")"); return;
      case 2: {
        const std::string square = random_() % 2 == 0 ? Node("Pow(" + x + ", two)") : Node("Mul(" + x + ", " + x + ")");
        const std::string root = Node("Rsqrt(" + Node("Adds(" + Mean(square) + ") {value = 0.01}") + ")");
        Node("Mul(" + Node("Mul(" + x + ", " + root + ")") + ", g)");
        return;
      }
      case 3: {
        const std::string centred = Node("Sub(" + x + ", " + Mean(x) + ")");
        const std::string variance = Mean(Node("Mul(" + centred + ", " + centred + ")"));
        const std::string root = Node("Sqrt(" + Node("Adds(" + variance + ") {value = 0.01}") + ")");
        Node("Add(" + Node("Mul(" + Node("RealDiv(" + centred + ", " + root + ")") + ", g)") + ", b)");
        return;
      }
      case 4: {
        const std::string largest = Node("ReduceMax(" + x + ", last) {keep_dims = true}");
        const std::string power = Node("Exp(" + Node("Sub(" + x + ", " + largest + ")") + ")");
        Node("RealDiv(" + power + ", " + Node("ReduceSum(" + power + ", last) {keep_dims = true}") + ")");
        return;
      }
      case 5: Node("Add(b, " + Node("MatMul(" + x + ", " + Node("Transpose(w, perm)") + ")") + ")"); return;
      case 6: Node("Add(" + x + ", x)"); return;
      default: {
        const std::string wide = Node("MatMul(" + x + ", u)");
        const std::string parts = "n" + std::to_string(count_++);
        text_ += parts + " = SplitV(x = " + wide +
                 ", size_splits = sizes, split_dim = dim) {num_split = 2} : y0 float32 [4, 8], y1 float32 [4, 8]\n";
        const std::string gate = Node("Mul(" + parts + ":0, " + Node("Sigmoid(" + parts + ":0)") + ")");
        Node("Mul(" + gate + ", " + parts + ":1)");
        return;
      }
    }
  }

  std::mt19937 random_;
  std::string text_;
  std::vector<std::string> values_;
  int count_ = 0;
};

TEST(CompilerFusion, RandomBlocksComputeTheSame) {
  uint64_t fused = 0;
  constexpr uint32_t kGraphs = 60;
  for (uint32_t seed = 0; seed < kGraphs && !HasFailure(); ++seed) {
    const std::string text = RandomBlocks(seed).Text();
    SCOPED_TRACE(text);
    const std::unique_ptr<Graph> before = Read(text);
    const std::unique_ptr<Graph> after = Read(text);
    ASSERT_TRUE(before != nullptr && after != nullptr);
    PassRecords records;
    const Status status = RunPasses(*after, {}, &records);
    ASSERT_TRUE(status.ok()) << status.detail().what;
    for (const Pass& pass : FusionPasses()) fused += records[std::string(pass.name)].changed;
    testing::ExpectNear(*before, *after);
  }
  EXPECT_GT(fused, kGraphs);
}

// Names as options spell them, each once, all of the stage and level of fusions.
TEST(CompilerFusion, NamesOfPasses) {
  std::vector<std::string> names;
  for (const Pass& pass : FusionPasses()) {
    names.emplace_back(pass.name);
    EXPECT_TRUE(pass.name.ends_with("FusionPass"));
    EXPECT_EQ(pass.level, Level::kO3);
    EXPECT_FALSE(pass.about.empty());
    EXPECT_EQ(FindPass(pass.name)->run, pass.run);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

// A fusion looks at each node a bounded number of times: long chains of one pattern, and one long product.
TEST(CompilerFusion, LongChains) {
  std::string body = "x = Data() : float32 [4]\n";
  constexpr int kLength = 5000;
  std::string last = "x";
  for (int i = 0; i < kLength; ++i) {
    const std::string n = std::to_string(i);
    body += "s" + n + " = Sigmoid(" + last + ")\ny" + n + " = Mul(" + last + ", s" + n + ")\n";
    last = "y" + n;
  }
  std::string wanted;
  for (int i = 0; i < kLength; ++i) wanted += i == 0 ? "Swish" : " Swish";
  EXPECT_EQ(TypesAfterFusions(body + "return " + last + "\n"), wanted);
}

}  // namespace
}  // namespace reprise::compiler
