// SPDX-License-Identifier: Apache-2.0
//
// The fusions of the compiler around products: biases, convolutions, attention, rotary position embedding.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fusion_testing.h"

namespace reprise::compiler {
namespace {

using testing::ExpectFusions;
using testing::ExpectRefusals;

TEST(CompilerFusion, TransposesIntoProducts) {
  const std::string a =
      "a = Data() : float32 [4, 8]\nb = Data() : float32 [16, 8]\nperm = Const() : int32 [2] = 1, 0\n";
  const std::string batches =
      "a = Data() : float32 [2, 8, 4]\nb = Data() : float32 [2, 8, 16]\nperm = Const() : int64 [3] = 0, 2, 1\n";
  ExpectFusions({
      {"TransposeMatMulFusionPass", a + "t = Transpose(b, perm)\ny = MatMul(a, t)\nreturn y\n",
       "a = Data() : float32 [4, 8]\nb = Data() : float32 [16, 8]\n"
       "y = MatMul(x1 = a, x2 = b) {transpose_x1 = false, transpose_x2 = true}\nreturn y\n"},
      {"TransposeMatMulFusionPass", batches + "t = Transpose(a, perm)\ny = BatchMatMul(t, b)\nreturn y\n",
       "a = Data() : float32 [2, 8, 4]\nb = Data() : float32 [2, 8, 16]\n"
       "y = BatchMatMul(x1 = a, x2 = b) {adj_x1 = true, adj_x2 = false}\nreturn y\n"},
      {"TransposeMatMulFusionPass",
       a + "t = TransposeD(b) {perm = [1, 0]}\nc = Data() : float32 [8]\n"
           "y = MatMulV2(b, t, bias = c) {transpose_x1 = true, transpose_x2 = true}\nreturn y, a, perm\n",
       a + "c = Data() : float32 [8]\n"
           "y = MatMulV2(x1 = b, x2 = b, bias = c) {transpose_x1 = true, transpose_x2 = false}\nreturn y, a, perm\n"},
  });
  // Keys [b, s, n, d] that are turned to [b, n, d, s]: what is left keeps d together.
  const std::string heads = "q = Data() : float32 [2, 4, 6, 8]\nk = Data() : float32 [2, 5, 4, 8]\n";
  ExpectFusions(
      {{"TransposeMatMulFusionPass",
        heads + "perm = Const() : int64 [4] = 0, 2, 3, 1\nt = Transpose(k, perm)\ny = BatchMatMul(q, t)\nreturn y\n",
        heads + "t_perm = Const() : int64 [4] = 0, 2, 1, 3\nt_1 = Transpose(x = k, perm = t_perm)\n"
                "y = BatchMatMul(x1 = q, x2 = t_1) {adj_x1 = false, adj_x2 = true}\nreturn y\n"}});
  ExpectRefusals({
      {"TransposeMatMulFusionPass", a + "t = Transpose(b, perm)\ny = MatMul(a, t)\nreturn y, t\n", "t has other users"},
      {"TransposeMatMulFusionPass",
       "a = Data() : float32 [8, 2, 4]\nb = Data() : float32 [2, 4, 16]\nperm = Const() : int64 [3] = 1, 0, 2\n"
       "t = Transpose(a, perm)\ny = BatchMatMul(t, b)\nreturn y\n",
       ""},
  });
}

TEST(CompilerFusion, TransposesIntoProductsOfInt8) {
  const std::string x = "x = Data() : float16 [3, 8]\nw = Data() : int8 [16, 8]\ns = Data() : float16 [16]\n";
  const std::string perm = "perm = Const() : int64 [2] = 1, 0\nt = Transpose(w, perm)\n";
  const std::string groups = "x = Data() : float16 [3, 8]\nw = Data() : int8 [16, 8]\ns = Data() : float16 [16, 2]\n";
  ExpectFusions({
      {"TransposeQuantMatMulFusionPass", x + perm + "y = WeightQuantBatchMatmulV2(x, t, s)\nreturn y\n",
       x + "y = WeightQuantBatchMatmulV2(x = x, weight = w, antiquant_scale = s) {transpose_weight = true}\nreturn "
           "y\n"},
      {"TransposeQuantMatMulFusionPass",
       groups + perm +
           "u = TransposeD(s) {perm = [1, 0]}\ny = WeightQuantBatchMatmulV2(x, t, u) {antiquant_group_size = 4}\n"
           "return y\n",
       groups + "y = WeightQuantBatchMatmulV2(x = x, weight = w, antiquant_scale = s) {antiquant_group_size = 4, "
                "transpose_weight = true}\nreturn y\n"},
      {"TransposeQuantMatMulFusionPass",
       "x = Data() : int8 [3, 8]\nw = Data() : int8 [16, 8]\ns = Data() : float32 [16]\n" + perm +
           "y = QuantBatchMatmulV3(x, t, s) {dtype = 1}\nreturn y\n",
       "x = Data() : int8 [3, 8]\nw = Data() : int8 [16, 8]\ns = Data() : float32 [16]\n"
       "y = QuantBatchMatmulV3(x1 = x, x2 = w, scale = s) {dtype = 1, transpose_x2 = true}\nreturn y\n"},
  });
  ExpectRefusals({
      {"TransposeQuantMatMulFusionPass",
       "x = Data() : float16 [3, 8]\nw = Data() : int8 [16, 8]\ns = Data() : float16 [2, 16]\n" + perm +
           "y = WeightQuantBatchMatmulV2(x, t, s) {antiquant_group_size = 4}\nreturn y\n",
       "the scales of groups are not transposed"},
  });
}

TEST(CompilerFusion, RepeatedOperandsOfProducts) {
  const std::string inputs = "a = Data() : float32 [6, 4, 8]\nb = Data() : float32 [8, 5]\n";
  const std::string shape = "s = Const() : int64 [3] = 6, 8, 5\n";
  ExpectFusions({
      {"BatchMatMulBroadcastFusionPass", inputs + shape + "e = BroadcastTo(b, s)\ny = BatchMatMul(a, e)\nreturn y\n",
       inputs + "y = BatchMatMul(x1 = a, x2 = b)\nreturn y\n"},
      {"BatchMatMulBroadcastFusionPass",
       "a = Data() : float32 [6, 8, 4]\nb = Data() : float32 [1, 8, 5]\n" + shape +
           "e = Expand(b, s)\ny = BatchMatMulV2(e, a) {adj_x1 = true}\nreturn y\n",
       "a = Data() : float32 [6, 8, 4]\nb = Data() : float32 [1, 8, 5]\n"
       "y = BatchMatMulV2(x1 = b, x2 = a) {adj_x1 = true}\nreturn y\n"},
  });
  ExpectRefusals({
      {"BatchMatMulBroadcastFusionPass", inputs + shape + "e = BroadcastTo(b, s)\ny = BatchMatMul(a, e)\nreturn y, e\n",
       "e has other users"},
      // Nothing else has the batch of the result.
      {"BatchMatMulBroadcastFusionPass",
       "a = Data() : float32 [1, 4, 8]\nb = Data() : float32 [8, 5]\n" + shape +
           "e = BroadcastTo(b, s)\ny = BatchMatMul(a, e)\nreturn y\n",
       ""},
      // The matrix itself was repeated.
      {"BatchMatMulBroadcastFusionPass",
       "a = Data() : float32 [6, 4, 8]\nb = Data() : float32 [1, 5]\n" + shape +
           "e = BroadcastTo(b, s)\ny = BatchMatMul(a, e)\nreturn y\n",
       ""},
  });
}

TEST(CompilerFusion, ReshapesAroundProducts) {
  const std::string inputs = "a = Data() : float32 [2, 3, 4, 8]\nb = Data() : float32 [2, 3, 8, 5]\n";
  const std::string shapes =
      "sa = Const() : int64 [3] = 6, 4, 8\nsb = Const() : int64 [3] = -1, 8, 5\nsy = Const() : int64 [4] = 2, 3, 4, "
      "5\n";
  const std::string flat = "fb = Reshape(b, sb)\np = BatchMatMul(fa, fb)\ny = Reshape(p, sy)\n";
  const std::string fused = inputs + "y = BatchMatMul(x1 = a, x2 = b)\nreturn y\n";
  ExpectFusions({
      {"BatchMatMulReshapeFusionPass", inputs + shapes + "fa = Reshape(a, sa)\n" + flat + "return y\n", fused},
      {"BatchMatMulReshapeFusionPass",
       inputs + shapes + "se = Const() : int64 [4] = 2, 3, 4, 8\ne = Expand(a, se)\nfa = Reshape(e, sa)\n" + flat +
           "return y\n",
       fused},
  });
  ExpectRefusals({
      {"BatchMatMulReshapeFusionPass", inputs + shapes + "fa = Reshape(a, sa)\n" + flat + "return y, p\n",
       "p has other users"},
      {"BatchMatMulReshapeFusionPass",
       "a = Data() : float32 [3, 2, 4, 8]\nb = Data() : float32 [2, 3, 8, 5]\n" + shapes + "fa = Reshape(a, sa)\n" +
           flat + "return y\n",
       "are not those of the result"},
  });
}

TEST(CompilerFusion, BiasesOfProducts) {
  const std::string a = "a = Data() : float16 [4, 8]\nb = Data() : float16 [8, 16]\nc = Data() : float16 [16]\n";
  const std::string product = "p = MatMul(a, b)\n";
  const std::string batches =
      "a = Data() : float32 [2, 4, 8]\nb = Data() : float32 [2, 8, 16]\nc = Data() : float32 [16]\n";
  ExpectFusions({
      {"MatMulBiasAddFusionPass", a + product + "y = Add(p, c)\nreturn y\n",
       a + "y = MatMulV2(x1 = a, x2 = b, bias = c)\nreturn y\n"},
      {"MatMulBiasAddFusionPass", a + "p = MatMulV2(a, b)\ny = Add(c, p)\nreturn y\n",
       a + "y = MatMulV2(x1 = a, x2 = b, bias = c)\nreturn y\n"},
      {"MatMulBiasAddFusionPass", batches + "p = BatchMatMul(a, b) {adj_x1 = false}\ny = Add(p, c)\nreturn y\n",
       batches + "y = BatchMatMulV2(x1 = a, x2 = b, bias = c) {adj_x1 = false}\nreturn y\n"},
  });
  ExpectRefusals({
      {"MatMulBiasAddFusionPass", a + product + "y = Add(p, c)\nreturn y, p\n", "p has other users"},
      {"MatMulBiasAddFusionPass", a + product + "z = Data() : float16 [4, 16]\ny = Add(p, z)\nreturn y, c\n",
       "z:0 is no row"},
      {"MatMulBiasAddFusionPass", a + product + "z = Data() : float16 [2, 4, 16]\ny = Add(p, z)\nreturn y, c\n",
       "another shape"},
      {"MatMulBiasAddFusionPass", a + "p = MatMulV2(a, b, bias = c)\ny = Add(p, c)\nreturn y\n", ""},
  });
}

TEST(CompilerFusion, ScalesOfProductsOfInt8) {
  const std::string inputs = "a = Data() : int8 [4, 8]\nb = Data() : int8 [16, 8]\n";
  const std::string row = "c = Data() : float32 [16]\n";
  const std::string sums = "p = MatMulV2(a, b) {transpose_x2 = true}\nf = Cast(p) {dst_type = float32}\n";
  const std::string attributes = "{dtype = 1, transpose_x1 = false, transpose_x2 = true}\nreturn y\n";
  ExpectFusions({
      {"QuantBatchMatmulFusionPass",
       inputs + row + sums + "s = Mul(c, f)\ny = Cast(s) {dst_type = float16}\nreturn y\n",
       inputs + row + "y = QuantBatchMatmulV3(x1 = a, x2 = b, scale = c) " + attributes},
      {"QuantBatchMatmulFusionPass",
       inputs + sums + "s = Muls(f) {value = 0.125}\ny = Cast(s) {dst_type = float16}\nreturn y\n",
       inputs + "y_scale = Const() : float32 [1] = 0.125\ny = QuantBatchMatmulV3(x1 = a, x2 = b, scale = y_scale) " +
           attributes},
  });
  ExpectRefusals({
      {"QuantBatchMatmulFusionPass",
       inputs + row + sums + "s = Mul(c, f)\ny = Cast(s) {dst_type = float16}\nreturn y, f\n", ""},
      {"QuantBatchMatmulFusionPass",
       inputs + "c = Data() : float32 [4, 1]\n" + sums + "s = Mul(c, f)\ny = Cast(s) {dst_type = float16}\nreturn y\n",
       "no row of float32"},
      {"QuantBatchMatmulFusionPass", inputs + row + sums + "s = Mul(c, f)\nreturn s\n", ""},
  });
}

TEST(CompilerFusion, Convolutions) {
  const std::string conv = "{data_format = \"NCHW\", pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}";
  const std::string x = "x = Data() : float32 [1, 1, 4, 4] format 0\n";
  const std::string filter = "f = Const() : float32 [2, 1, 1, 2] = 1, 2, 3, 4\n";
  const std::string norm =
      "scale = Const() : float32 [2] = 2, 6\noffset = Const() : float32 [2] = 1, 2\n"
      "mean = Const() : float32 [2] = 3, 1\nvariance = Const() : float32 [2] = 0.75, 3.75\n";
  const std::string bias = "c = Const() : float32 [2] = 1, -1\n";
  const std::string plain = "p = Conv2D(x = x, filter = f) " + conv + "\n";
  ExpectFusions({
      // The roots are 1 and 2: scales of 2 and 3.
      {"ConvBatchnormFusionPass",
       x + filter + norm + plain + "y = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y\n",
       x + "y_filter = Const() : float32 [2, 1, 1, 2] = 2, 4, 9, 12\ny_bias = Const() : float32 [2] = -5, -1\n" +
           "y = Conv2D(x = x, filter = y_filter, bias = y_bias) " + conv + "\nreturn y\n"},
      {"ConvBatchnormFusionPass",
       x + filter + norm + bias + "p = Conv2D(x = x, filter = f, bias = c) " + conv +
           "\ny = BatchNormV3(p, scale, offset, mean, variance) {epsilon = 0.25, is_training = false}\nreturn y\n",
       x + "y_filter = Const() : float32 [2, 1, 1, 2] = 2, 4, 9, 12\ny_bias = Const() : float32 [2] = -3, -4\n" +
           "y = Conv2D(x = x, filter = y_filter, bias = y_bias) " + conv + "\nreturn y\n"},
      {"ConvScaleFusionPass",
       x + filter + plain + "b = Const() : float32 [1, 2, 1, 1] = 5, 7\ny = Add(p, b)\nreturn y\n",
       x + "y_filter = Const() : float32 [2, 1, 1, 2] = 1, 2, 3, 4\ny_bias = Const() : float32 [2] = 5, 7\n" +
           "y = Conv2D(x = x, filter = y_filter, bias = y_bias) " + conv + "\nreturn y\n"},
      {"ConvScaleFusionPass",
       x + filter + bias + "p = Conv2D(x = x, filter = f, bias = c) " + conv +
           "\nb = Const() : float32 [2, 1, 1] = 5, 7\ny = Mul(b, p)\nreturn y\n",
       x + "y_filter = Const() : float32 [2, 1, 1, 2] = 5, 10, 21, 28\ny_bias = Const() : float32 [2] = 5, -7\n" +
           "y = Conv2D(x = x, filter = y_filter, bias = y_bias) " + conv + "\nreturn y\n"},
  });
  // Of a transposed convolution dims 0 and 1 of the filter are those of a group's inputs and of its outputs.
  const std::string behind = "data_format = \"NCHW\", ";
  const std::string pads = "pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}";
  const std::string sizes = "n = Const() : int64 [4] = 1, 2, 4, 5\n";
  const std::string folded = "y_filter = Const() : float32 [1, 2, 1, 2] = 2, 4, 9, 12\n";
  const std::string grouped = "y_filter = Const() : float32 [2, 1, 1, 2] = 2, 4, 9, 12\n";
  const std::string two = "x = Data() : float32 [1, 2, 4, 4] format 0\n";
  const std::string call = "y = Conv2DTransposeD(x = x, filter = y_filter, bias = y_bias) {" + behind;
  ExpectFusions({
      {"ConvBatchnormFusionPass",
       x + sizes + "f = Const() : float32 [1, 2, 1, 2] = 1, 2, 3, 4\n" + norm + "p = Conv2DBackpropInput(n, f, x) {" +
           behind + pads + "\ny = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y\n",
       x + folded + "y_bias = Const() : float32 [2] = -5, -1\n" + call + "input_size = [1, 2, 4, 5], " + pads +
           "\nreturn y\n"},
      {"ConvBatchnormFusionPass",
       two + sizes + filter + norm + "p = Conv2DBackpropInput(n, f, x) {" + behind + "groups = 2, " + pads +
           "\ny = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y\n",
       two + grouped + "y_bias = Const() : float32 [2] = -5, -1\n" + call + "groups = 2, input_size = [1, 2, 4, 5], " +
           pads + "\nreturn y\n"},
      {"ConvScaleFusionPass",
       x + bias +
           "f = Const() : float32 [1, 2, 1, 2] = 2, 4, 9, 12\np = Conv2DTransposeD(x = x, filter = f, bias = c) {" +
           behind + "input_size = [1, 2, 4, 5], " + pads +
           "\nb = Const() : float32 [1, 2, 1, 1] = 5, 7\ny = Add(p, b)\nreturn y\n",
       x + folded + "y_bias = Const() : float32 [2] = 6, 6\n" + call + "input_size = [1, 2, 4, 5], " + pads +
           "\nreturn y\n"},
  });
  ExpectRefusals({
      {"ConvBatchnormFusionPass",
       "x = Data() : float32 [-1, 1, 4, 4] format 0\nn = Data() : int64 [4]\n"
       "f = Const() : float32 [1, 2, 1, 2] = 1, 2, 3, 4\n" +
           norm + "p = Conv2DBackpropInput(n, f, x) {" + behind + pads +
           "\ny = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y\n",
       "sizes that are not known"},
      {"ConvBatchnormFusionPass",
       "x = Data() : float32 [1, 1, 2, 4, 4]\nf = Const() : float32 [2, 1, 1, 1, 2] = 1, 2, 3, 4\n" + norm +
           "p = Conv3DFused(x = x, filter = f) {activation = \"Relu\", data_format = \"NCDHW\", pads = [0, 0, 0, 0, 0, "
           "0], strides = [1, 1, 1, 1, 1]}\n"
           "y = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y\n",
       "something follows"},
  });
  ExpectRefusals({
      {"ConvBatchnormFusionPass",
       x + "f = Data() : float32 [2, 1, 1, 2]\n" + norm + plain +
           "y = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y\n",
       "filter is not constant"},
      {"ConvBatchnormFusionPass",
       x + filter + norm + plain + "y = BNInfer(p, scale, offset, mean, variance) {epsilon = 0.25}\nreturn y, p\n",
       "p has other users"},
      {"ConvBatchnormFusionPass",
       x + filter + norm + plain + "y = BatchNormV3(p, scale, offset, mean, variance)\nreturn y\n", "of training"},
      {"ConvScaleFusionPass", x + filter + plain + "b = Const() : float32 [3] = 5, 7, 9\ny = Add(p, b)\nreturn y\n",
       "one element for each channel"},
      {"ConvScaleFusionPass", x + filter + plain + "y = Add(p, p)\nreturn y\n", "not constant"},
  });
}

// ---- Attention ----

std::string Attention(const std::string& type, const std::string& scores) {
  return "q = Data() : " + type + " [2, 4, 6, 8]\nk = Data() : " + type + " [2, 4, 10, 8]\nv = Data() : " + type +
         " [2, 4, 10, 8]\nqk = BatchMatMul(q, k) {adj_x2 = true}\n" + scores +
         "w = SoftmaxV2(s) {axes = [-1]}\ny = BatchMatMul(w, v)\nreturn y\n";
}

std::string Fused(const std::string& type, const std::string& more, const std::string& attributes) {
  const bool is_bfloat16 = type == "bfloat16";
  return "q = Data() : " + type + " [2, 4, 6, 8]\nk = Data() : " + type + " [2, 4, 10, 8]\nv = Data() : " + type +
         " [2, 4, 10, 8]\n" + more + "y = " +
         (is_bfloat16 ? "FusedInferAttentionScore(query = q, key0 = k, value0 = v"
                      : "PromptFlashAttention(query = q, key = k, value = v") +
         (more.empty() ? "" : ", pse_shift = m") +
         ") {input_layout = \"BNSD\", next_tokens = 2147483647, num_heads = 4, num_key_value_heads = 4, pre_tokens = "
         "2147483647, " +
         attributes + "}\nreturn y\n";
}

TEST(CompilerFusion, Attention) {
  const std::string mask = "m = Data() : float16 [2, 1, 6, 10]\n";
  ExpectFusions({
      {"FlashAttentionFusionPass", Attention("float32", "s = Muls(qk) {value = 0.25}\n"),
       Fused("float32", "", "scale_value = 0.25")},
      {"FlashAttentionFusionPass",
       Attention("float16", mask + "c = Const() : float16 [] = 4\nd = RealDiv(qk, c)\ns = Add(d, m)\n"),
       Fused("float16", mask, "scale_value = 0.25")},
      {"FlashAttentionFusionPass",
       Attention("bfloat16", "m = Data() : bfloat16 [1, 1, 6, 10]\nd = Muls(qk) {value = 0.5}\ns = Add(m, d)\n"),
       Fused("bfloat16", "m = Data() : bfloat16 [1, 1, 6, 10]\n", "scale = 0.5")},
      {"FlashAttentionFusionPass",
       "q = Data() : float32 [8, 6, 16]\nk = Data() : float32 [8, 6, 16]\nv = Data() : float32 [8, 6, 16]\n"
       "a = Muls(q) {value = 0.5}\nb = Muls(k) {value = 0.5}\ns = BatchMatMul(a, b) {adj_x2 = true}\n"
       "w = SoftmaxV2(s) {axes = [2]}\ny = BatchMatMul(w, v)\nreturn y\n",
       "q = Data() : float32 [8, 6, 16]\nk = Data() : float32 [8, 6, 16]\nv = Data() : float32 [8, 6, 16]\n"
       "y = PromptFlashAttention(query = q, key = k, value = v) {input_layout = \"BSH\", next_tokens = 2147483647, "
       "num_heads = 1, num_key_value_heads = 1, pre_tokens = 2147483647, scale_value = 0.25}\nreturn y\n"},
  });
  const auto with = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string plain = Attention("float32", "s = Muls(qk) {value = 0.25}\n");
  ExpectRefusals({
      {"FlashAttentionFusionPass", with(plain, "return y", "return y, w"), "w has other users"},
      {"FlashAttentionFusionPass", with(plain, "axes = [-1]", "axes = [2]"), "not one over the keys"},
      {"FlashAttentionFusionPass", with(plain, "return y", "a = Relu(qk)\nreturn y, a"), "qk has other users"},
      {"FlashAttentionFusionPass",
       with(plain, "v = Data() : float32 [2, 4, 10, 8]", "v = Data() : float32 [2, 4, 10, 6]"),
       "widths of queries, keys and values differ"},
      {"FlashAttentionFusionPass", Attention("float32", "m = Data() : float32 [10]\ns = Add(qk, m)\n"),
       "the mask has not 2 to 4 dims"},
      {"FlashAttentionFusionPass", Attention("float64", "s = Muls(qk) {value = 0.25}\n"), "does not take"},
      {"FlashAttentionFusionPass",
       "w = Data() : float32 [2, 4, 4]\nv = Data() : float32 [2, 4, 8]\ny = BatchMatMul(w, v)\nreturn y\n", ""},
  });
}

// A mask of scores counts from the last dim on, whatever attention takes one of three dims for.
TEST(CompilerFusion, MasksOfFewDims) {
  for (const auto& [mask, axes] : {std::pair("[6, 10]", "0, 1"), {"[4, 6, 10]", "0"}, {"[1, 10]", "0, 1"}}) {
    const std::string input = "m = Data() : float32 " + std::string(mask) + "\n";
    ExpectFusions({{"FlashAttentionFusionPass", Attention("float32", input + "s = Add(qk, m)\n"),
                    "q = Data() : float32 [2, 4, 6, 8]\nk = Data() : float32 [2, 4, 10, 8]\nv = Data() : float32 "
                    "[2, 4, 10, 8]\n" +
                        input + "y_mask = Unsqueeze(x = m) {axes = [" + axes +
                        "]}\ny = PromptFlashAttention(query = q, key = k, value = v, pse_shift = y_mask) {input_layout "
                        "= \"BNSD\", next_tokens = 2147483647, num_heads = 4, num_key_value_heads = 4, pre_tokens = "
                        "2147483647, scale_value = 1.0}\nreturn y\n"}});
  }
}

std::vector<std::string> TypesOf(const Graph& graph) {
  std::vector<std::string> types;
  for (const NodeId id : TopologicalOrder(graph)) {
    if (graph.at(id).kind == NodeKind::kOperator) types.push_back(graph.at(id).type);
  }
  return types;
}

// Masks of bytes: a number that hides any score is added, which is the same bit for bit, also in rows without a key.
TEST(CompilerFusion, MasksOfBytes) {
  const std::string source =
      "g = Data() : float32 [2, 1, 6, 10]\nrow = Data() : float32 [6, 1]\nzero = Const() : float32 [] = 0\n"
      "some = Greater(g, zero)\nany = Greater(row, zero)\nb = LogicalAnd(some, any)\n";
  const auto number = [](const std::string& value) { return "n = Const() : float32 [] = " + value + "\n"; };
  const std::string least = number("-3.4028234e38");
  const auto fused = [&](const std::string& choice) {
    return "q = Data() : float32 [2, 4, 6, 8]\nk = Data() : float32 [2, 4, 10, 8]\nv = Data() : float32 [2, 4, 10, "
           "8]\n" +
           source + "y_kept = Const() : float32 [] = 0\ny_hidden = Const() : float32 [] = -3.4028234e38\n" +
           "y_added = SelectV2(condition = b, " + choice +
           ")\ny = PromptFlashAttention(query = q, key = k, value = v, pse_shift = y_added) {input_layout = \"BNSD\", "
           "next_tokens = 2147483647, num_heads = 4, num_key_value_heads = 4, pre_tokens = 2147483647, scale_value = "
           "0.25}\nreturn y\n";
  };
  const std::string scaled = "d = Muls(qk) {value = 0.25}\n";
  ExpectFusions({
      {"FlashAttentionFusionPass", Attention("float32", source + least + scaled + "s = SelectV2(b, d, n)\n"),
       fused("then = y_kept, else = y_hidden")},
      {"FlashAttentionFusionPass", Attention("float32", source + least + scaled + "s = SelectV2(b, n, d)\n"),
       fused("then = y_hidden, else = y_kept")},
      {"FlashAttentionFusionPass", Attention("float32", source + least + scaled + "s = MaskedFill(d, b, n)\n"),
       fused("then = y_hidden, else = y_kept")},
  });
  for (const char* value : {"-1e9", "-inf", "3.4028234e38"}) {
    ExpectRefusals(
        {{"FlashAttentionFusionPass", Attention("float32", source + number(value) + scaled + "s = SelectV2(b, d, n)\n"),
          "does not hide them in a sum"}});
  }
}

// As PyTorch takes scaled_dot_product_attention apart: half of the scale on either side, zeros for rows without a key.
TEST(CompilerFusion, ScaledDotProductAttention) {
  constexpr const char* kHeads = "k = Data() : float32 [2, 4, 10, 8]\np = Const() : int64 [4] = 0, 1, 3, 2\n";
  // Tokens first, as nn.MultiheadAttention has them.
  constexpr const char* kTokens = "k = Data() : float32 [10, 2, 4, 8]\np = Const() : int64 [4] = 1, 2, 3, 0\n";
  const auto text = [](const std::string& choice, const std::string& keys) {
    return "graph g\nq = Data() : float32 [2, 4, 6, 8]\n" + keys +
           "v = Data() : float32 [2, 4, 10, 8]\ng = Data() : float32 [6, 10]\nrow = Data() : float32 [6, 1]\n"
           "zero = Const() : float32 [] = 0\nnever = Const() : float32 [] = -inf\n"
           "some = Greater(g, zero)\nany = Greater(row, zero)\nb = LogicalAnd(some, any)\nm = SelectV2(b, zero, "
           "never)\n"
           "c = Const() : float32 [] = 0.5946\nlast = Const() : int64 [1] = -1\n"
           "sq = Mul(q, c)\nkt = Transpose(k, p)\nsk = Mul(kt, c)\nqk = BatchMatMul(sq, sk)\ns = Add(qk, m)\n"
           "h = Equal(s, never)\ne = ReduceAll(h, last) {keep_dims = true}\nw = SoftmaxV2(s)\n" +
           choice + "y = BatchMatMul(z, v)\nreturn y\n";
  };
  const std::string safe = "z = SelectV2(e, zero, w)\n";
  for (const char* keys : {kHeads, kTokens}) {
    const std::unique_ptr<Graph> before = testing::Read(text(safe, keys));
    const std::unique_ptr<Graph> after = testing::Read(text(safe, keys));
    ASSERT_TRUE(before != nullptr && after != nullptr);
    ASSERT_TRUE(RunPasses(*after, {}, nullptr).ok());
    const std::vector<std::string> types = TypesOf(*after);
    EXPECT_EQ(types.back(), "PromptFlashAttention") << ToText(*after);
    EXPECT_EQ(std::count(types.begin(), types.end(), "SoftmaxV2"), 0);
    testing::ExpectNear(*before, *after);
  }
  for (const char* other : {"z = SelectV2(e, c, w)\n", "z = SelectV2(e, w, zero)\n"}) {
    const std::unique_ptr<Graph> kept = testing::Read(text(other, kHeads));
    ASSERT_TRUE(kept != nullptr && RunPasses(*kept, {}, nullptr).ok());
    const std::vector<std::string> left = TypesOf(*kept);
    EXPECT_EQ(std::count(left.begin(), left.end(), "SoftmaxV2"), 1) << other;
  }
}

// Softmax in float32, heads of keys and values for two heads of queries each.
TEST(CompilerFusion, GroupedAttention) {
  const std::string inputs =
      "q = Data() : float16 [1, 4, 6, 8]\nk = Data() : float16 [1, 2, 10, 8]\nv = Data() : float16 [1, 2, 10, 8]\n";
  const std::string repeated =
      "shape = Const() : int64 [5] = 1, 2, 2, 10, 8\nflat = Const() : int64 [4] = 1, 4, 10, 8\n"
      "k1 = Unsqueeze(k) {axes = [2]}\nk2 = BroadcastTo(k1, shape)\nk3 = Reshape(k2, flat)\n"
      "v1 = Unsqueeze(v) {axes = [2]}\nv2 = BroadcastTo(v1, shape)\nv3 = Reshape(v2, flat)\n"
      "qk = BatchMatMul(q, k3) {adj_x2 = true}\nd = Muls(qk) {value = 0.5}\nf = Cast(d) {dst_type = float32}\n"
      "w = SoftmaxV2(f)\nh = Cast(w) {dst_type = float16}\ny = BatchMatMul(h, v3)\n";
  ExpectFusions(
      {{"FlashAttentionFusionPass", inputs + repeated + "return y\n",
        inputs + "y = PromptFlashAttention(query = q, key = k, value = v) {input_layout = \"BNSD\", next_tokens = "
                 "2147483647, num_heads = 4, num_key_value_heads = 2, pre_tokens = 2147483647, scale_value = "
                 "0.5}\nreturn y\n"}});
  ExpectRefusals({{"FlashAttentionFusionPass", inputs + repeated + "return y, k3\n", "k3 has other users"}});
}

// Attention of heads [b, s, n, d] as PyTorch takes it apart: products of three dims, with reshapes around them.
TEST(CompilerFusion, AttentionOutOfProductsOfThreeDims) {
  const std::string text =
      "graph g\n"
      "q = Data() : float32 [2, 6, 4, 8]\nk = Data() : float32 [2, 6, 4, 8]\nv = Data() : float32 [2, 6, 4, 8]\n"
      "m = Data() : float32 [2, 1, 6, 6]\np = Const() : int64 [4] = 0, 2, 1, 3\np2 = Const() : int64 [4] = 0, 1, 3, 2\n"
      "s3 = Const() : int64 [3] = 8, 6, 8\ns3t = Const() : int64 [3] = 8, 8, 6\ns3w = Const() : int64 [3] = 8, 6, 6\n"
      "s4w = Const() : int64 [4] = 2, 4, 6, 6\ns4 = Const() : int64 [4] = 2, 4, 6, 8\n"
      "flat = Const() : int64 [2] = 12, 32\nroot = Const() : float32 [] = 2.828427\n"
      "tq = Transpose(q, p)\ntk = Transpose(k, p)\ntv = Transpose(v, p)\nkt = Transpose(tk, p2)\n"
      "eq = Expand(tq, s4)\nfq = Reshape(eq, s3)\nfk = Reshape(kt, s3t)\nw3 = BatchMatMul(fq, fk)\nw4 = Reshape(w3, "
      "s4w)\n"
      "sc = RealDiv(w4, root)\nsm = Add(sc, m)\nsw = SoftmaxV2(sm) {axes = [-1]}\nfw = Reshape(sw, s3w)\n"
      "fv = Reshape(tv, s3)\no3 = BatchMatMul(fw, fv)\no4 = Reshape(o3, s4)\nto = Transpose(o4, p)\n"
      "y = Reshape(to, flat)\nreturn y\n";
  const std::unique_ptr<Graph> before = testing::Read(text);
  const std::unique_ptr<Graph> after = testing::Read(text);
  ASSERT_TRUE(before != nullptr && after != nullptr);
  const Status status = RunPasses(*after, {}, nullptr);
  ASSERT_TRUE(status.ok()) << status.detail().what;
  EXPECT_EQ(TypesOf(*after), (std::vector<std::string>{"PromptFlashAttention", "Reshape"})) << ToText(*after);
  testing::ExpectNear(*before, *after);
}

// A batch of 1 as torchair writes it: its dim comes and goes with reshapes, and the second product has none.
TEST(CompilerFusion, AttentionOfABatchOfOne) {
  const auto text = [](const std::string& results) {
    return "graph g\nqkv = Data() : float32 [6, 96]\nm = Data() : float32 [1, 1, 6, 6]\n"
           "s4 = Const() : int64 [4] = 6, 3, 4, 8\ns5 = Const() : int64 [5] = 3, 1, 4, 6, 8\n"
           "s3 = Const() : int64 [3] = 4, 6, 8\ns3t = Const() : int64 [3] = 4, 8, 6\n"
           "s4t = Const() : int64 [4] = 1, 4, 8, 6\ns3w = Const() : int64 [3] = 4, 6, 6\n"
           "s4w = Const() : int64 [4] = 1, 4, 6, 6\nflat = Const() : int64 [2] = 6, 32\n"
           "p4 = Const() : int64 [4] = 1, 2, 0, 3\np = Const() : int64 [3] = 0, 2, 1\n"
           "back = Const() : int64 [3] = 1, 0, 2\nc = Const() : float32 [] = 0.25\n"
           "r = Reshape(qkv, s4)\nt = Transpose(r, p4)\nr5 = Reshape(t, s5)\n"
           "u = Unpack(x = r5) {num = 3} : y0 float32 [1, 4, 6, 8], y1 float32 [1, 4, 6, 8], y2 float32 [1, 4, 6, 8]\n"
           "k3 = Reshape(u:1, s3)\nkt = Transpose(k3, p)\nk4 = Reshape(kt, s4t)\nq = Reshape(u:0, s3)\n"
           "k = Reshape(k4, s3t)\nqk = BatchMatMul(q, k)\nw4 = Reshape(qk, s4w)\nsc = Mul(w4, c)\n"
           "sm = Add(sc, m)\nsw = SoftmaxV2(sm)\nw = Reshape(sw, s3w)\nv = Reshape(u:2, s3)\n"
           "o = BatchMatMul(w, v)\nto = Transpose(o, back)\ny = Reshape(to, flat)\nreturn " +
           results + "\n";
  };
  const std::unique_ptr<Graph> before = testing::Read(text("y"));
  const std::unique_ptr<Graph> after = testing::Read(text("y"));
  ASSERT_TRUE(before != nullptr && after != nullptr);
  const Status status = RunPasses(*after, {}, nullptr);
  ASSERT_TRUE(status.ok()) << status.detail().what;
  EXPECT_EQ(TypesOf(*after),
            (std::vector<std::string>{"Reshape", "Transpose", "Reshape", "Unpack", "PromptFlashAttention", "Reshape"}))
      << ToText(*after);
  testing::ExpectNear(*before, *after);
  const std::unique_ptr<Graph> kept = testing::Read(text("y, sw"));
  ASSERT_TRUE(kept != nullptr && RunPasses(*kept, {}, nullptr).ok());
  const std::vector<std::string> types = TypesOf(*kept);
  EXPECT_EQ(std::count(types.begin(), types.end(), "SoftmaxV2"), 1) << "a result";
}

// Heads of [b, s, n, d] without copies.
TEST(CompilerFusion, LayoutsOfAttention) {
  const std::string inputs =
      "q = Data() : float16 [2, 6, 4, 8]\nk = Data() : float16 [2, 6, 4, 8]\nv = Data() : float16 [2, 6, 4, 8]\n";
  const std::string perm = "p = Const() : int64 [4] = 0, 2, 1, 3\n";
  const std::string before = inputs + perm +
                             "tq = Transpose(q, p)\ntk = Transpose(k, p)\ntv = Transpose(v, p)\n"
                             "a = PromptFlashAttention(tq, tk, tv) {input_layout = \"BNSD\", num_heads = 4, "
                             "num_key_value_heads = 4}\ny = Transpose(a, p)\n";
  const auto fused = [](const std::string& layout, const std::string& q, const std::string& k, const std::string& v) {
    return "y = PromptFlashAttention(query = " + q + ", key = " + k + ", value = " + v + ") {input_layout = \"" +
           layout + "\", num_heads = 4, num_key_value_heads = 4}\n";
  };
  ExpectFusions({
      {"FlashAttentionLayoutFusionPass", before + "return y\n", inputs + fused("BSND", "q", "k", "v") + "return y\n"},
      {"FlashAttentionLayoutFusionPass",
       "q = Data() : float16 [2, 4, 6, 8]\nk = Data() : float16 [2, 4, 6, 8]\nv = Data() : float16 [2, 4, 6, 8]\n" +
           perm +
           "a = PromptFlashAttention(q, k, v) {input_layout = \"BNSD\", num_heads = 4, num_key_value_heads = 4}\n"
           "y = Transpose(a, p)\nreturn y\n",
       "q = Data() : float16 [2, 4, 6, 8]\nk = Data() : float16 [2, 4, 6, 8]\nv = Data() : float16 [2, 4, 6, 8]\n" +
           fused("BNSD_BSND", "q", "k", "v") + "return y\n"},
  });
  ExpectRefusals({
      {"FlashAttentionLayoutFusionPass", before + "return y, a\n", "a has other users"},
      {"FlashAttentionLayoutFusionPass", before + "return y, tk\n", "tk has other users"},
  });
}

TEST(CompilerFusion, Rotary) {
  const std::string inputs =
      "x = Data() : float32 [2, 3, 4, 8]\nc = Data() : float32 [1, 3, 1, 8]\ns = Data() : float32 [1, 3, 1, 8]\n";
  const std::string halves =
      inputs +
      "sizes = Const() : int64 [2] = 4, 4\ndim = Const() : int32 [1] = 3\nend = Const() : int32 [1] = -1\n"
      "p = SplitV(x = x, size_splits = sizes, split_dim = dim) {num_split = 2} : y0 float32 [2, 3, 4, 4], y1 float32 "
      "[2, 3, 4, 4]\nn = Neg(p:1)\nr = ConcatV2(x0 = n, x1 = p:0, concat_dim = end) {N = 2}\n";
  const std::string turned = "a = Mul(x, c)\nb = Mul(r, s)\ny = Add(a, b)\n";
  const std::string pairs =
      inputs +
      "zero = Const() : int64 [1] = 0\none = Const() : int64 [1] = 1\ntwo = Const() : int64 [1] = 2\n"
      "end = Const() : int64 [1] = 8\naxis = Const() : int64 [1] = 3\nshape = Const() : int64 [4] = 2, 3, 4, 8\n"
      "even = StridedSliceV2(x, zero, end, axis, two)\nodd = StridedSliceV2(x, one, end, axis, two)\n"
      "n = Muls(odd) {value = -1.0}\nt = Pack(x0 = n, x1 = even) {N = 2, axis = -1}\nr = Reshape(t, shape)\n";
  ExpectFusions({
      {"RotaryMulFusionPass", halves + turned + "return y\n",
       inputs + "y = RotaryMul(x = x, r1 = c, r2 = s)\nreturn y\n"},
      {"RotaryMulFusionPass", halves + "a = Mul(c, x)\nb = Mul(s, r)\ny = Add(b, a)\nreturn y\n",
       inputs + "y = RotaryMul(x = x, r1 = c, r2 = s)\nreturn y\n"},
      {"RotaryMulFusionPass", pairs + turned + "return y\n",
       inputs + "y = RotaryPositionEmbedding(x = x, cos = c, sin = s) {mode = 1}\nreturn y\n"},
  });
  ExpectRefusals({
      {"RotaryMulFusionPass", halves + turned + "return y, r\n", "r has other users"},
      {"RotaryMulFusionPass",
       halves + "z = Data() : float32 [1, 3, 1, 1]\na = Mul(x, z)\nb = Mul(r, s)\ny = Add(a, b)\nreturn y, c\n",
       "another width"},
      {"RotaryMulFusionPass",
       halves + "w = Data() : float32 [2, 3, 4, 8]\na = Mul(w, c)\nb = Mul(r, s)\ny = Add(a, b)\nreturn y\n", ""},
  });
}

}  // namespace
}  // namespace reprise::compiler
