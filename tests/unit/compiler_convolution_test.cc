// SPDX-License-Identifier: Apache-2.0
//
// Convolutions: what follows them becomes a part of them, and chains of them get channels behind the spatial dims.
#include <gtest/gtest.h>

#include <string>

#include "fusion_testing.h"

namespace reprise::compiler::testing {
namespace {

const std::string kPlain = "data_format = \"NCHW\", pads = [1, 1, 1, 1], strides = [1, 1, 1, 1]}\n";
const std::string kImage = "x = Data() : float32 [1, 16, 6, 5] format 0\n";
const std::string kFilter = "f = Const() : float32 [16, 16, 3, 3] = 0.5, -0.25, 1, 0.125 ...\n";

TEST(CompilerConvolution, WhatFollowsIsFused) {
  const std::string conv = "p = Conv2D(x = x, filter = f) {" + kPlain;
  const std::string other = "r = Data() : float32 [1, 16, 6, 5]\n";
  const std::string begin = kImage + kFilter;
  ExpectFusions({
      {"ConvAddFusionPass", begin + other + conv + "y = Add(p, r)\nreturn y\n",
       begin + other + "y = Conv2DFused(x = x, filter = f, addend = r) {" + kPlain + "return y\n"},
      {"ConvAddFusionPass", begin + other + conv + "y = AddV2(r, p)\nreturn y\n",
       begin + other + "y = Conv2DFused(x = x, filter = f, addend = r) {" + kPlain + "return y\n"},
      {"ConvAddFusionPass", begin + conv + "q = Conv2D(x = p, filter = f) {" + kPlain + "y = Add(p, q)\nreturn y\n",
       begin + conv + "y = Conv2DFused(x = p, filter = f, addend = p) {" + kPlain + "return y\n"},
      {"ConvActivationFusionPass", begin + conv + "y = Relu(p)\nreturn y\n",
       begin + "y = Conv2DFused(x = x, filter = f) {activation = \"Relu\", " + kPlain + "return y\n"},
      {"ConvActivationFusionPass",
       begin + other + "p = Conv2DFused(x = x, filter = f, addend = r) {" + kPlain + "y = Relu(p)\nreturn y\n",
       begin + other + "y = Conv2DFused(x = x, filter = f, addend = r) {activation = \"Relu\", " + kPlain +
           "return y\n"},
      {"ConvActivationFusionPass",
       begin + "a = Const() : float32 [] = 0\nb = Const() : float32 [] = 6\n" + conv +
           "y = ClipByValueV2(p, a, b)\nreturn y\n",
       begin +
           "y = Conv2DFused(x = x, filter = f) {activation = \"Clip\", data_format = \"NCHW\", high = 6, low = 0, " +
           "pads = [1, 1, 1, 1], strides = [1, 1, 1, 1]}\nreturn y\n"},
      {"ConvActivationFusionPass", begin + conv + "y = HardSwish(p)\nreturn y\n",
       begin + "y = Conv2DFused(x = x, filter = f) {activation = \"HardSwish\", " + kPlain + "return y\n"},
      {"ConvActivationFusionPass", begin + conv + "y = Swish(p)\nreturn y\n",
       begin + "y = Conv2DFused(x = x, filter = f) {activation = \"Swish\", " + kPlain + "return y\n"},
  });
  const std::string volume =
      "x = Data() : float32 [1, 4, 5, 6, 5]\nf = Const() : float32 [4, 4, 3, 3, 3] = 0.5, -1 ...\n";
  const std::string three = "data_format = \"NCDHW\", pads = [1, 1, 1, 1, 1, 1], strides = [1, 1, 1, 1, 1]}\n";
  ExpectFusions({
      {"ConvAddFusionPass", volume + "p = Conv3DFused(x = x, filter = f) {" + three + "y = Add(p, x)\nreturn y\n",
       volume + "y = Conv3DFused(x = x, filter = f, addend = x) {" + three + "return y\n"},
      {"ConvActivationFusionPass",
       volume + "p = Conv3DFused(x = x, filter = f, addend = x) {" + three + "y = Relu(p)\nreturn y\n",
       volume + "y = Conv3DFused(x = x, filter = f, addend = x) {activation = \"Relu\", " + three + "return y\n"},
  });
  ExpectRefusals({
      {"ConvAddFusionPass",
       kImage + "f = Data() : float32 [16, 16, 3, 3]\n" + other + conv + "y = Add(p, r)\nreturn y\n",
       "filter is not constant"},
      {"ConvAddFusionPass", begin + "r = Data() : float32 [1, 16, 1, 5]\n" + conv + "y = Add(p, r)\nreturn y\n", ""},
      {"ConvActivationFusionPass", begin + conv + "y = Relu(p)\nreturn y, p\n", "p has other users"},
      {"ConvActivationFusionPass", begin + conv + "y = Swish(p) {scale = 2.0}\nreturn y\n", "the Swish has a scale"},
      {"ConvActivationFusionPass",
       begin + "a = Const() : float32 [] = 0\nb = Data() : float32 []\n" + conv +
           "y = ClipByValueV2(p, a, b)\nreturn y\n",
       "a bound is no constant number"},
      {"ConvActivationFusionPass",
       begin + "p = Conv2DFused(x = x, filter = f) {activation = \"Relu\", " + kPlain + "y = Relu(p)\nreturn y\n", ""},
  });
}

// Zeros around an image become pads, also in front of the reshape of a convolution over a single dim.
TEST(CompilerConvolution, BordersBecomePads) {
  const std::string zero = "v = Const() : float32 [] = 0\n";
  const std::string border = "e = Const() : int64 [8] = 0, 0, 0, 0, 0, 1, 0, 1\n";
  const std::string pad = "q = PadV3(x = x, paddings = e, constant_values = v)\n";
  const std::string conv = "y = Conv2D(x = q, filter = f) {" + kPlain + "return y\n";
  const std::string row = "x = Data() : float32 [1, 16, 9]\nf = Const() : float32 [16, 16, 1, 3] = 0.5, -0.25 ...\n";
  const std::string none = "data_format = \"NCHW\", pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}\n";
  ExpectFusions({
      {"ConvPadFusionPass", kImage + kFilter + zero + border + pad + conv,
       kImage + kFilter +
           "y = Conv2D(x = x, filter = f) {data_format = \"NCHW\", pads = [1, 2, 1, 2], strides = [1, 1, "
           "1, 1]}\nreturn y\n"},
      {"ConvPadFusionPass",
       "x = Data() : float32 [1, 6, 5, 16]\nf = Const() : float32 [16, 3, 3, 16] = 0.5, -0.25 ...\n"
       "e = Const() : int64 [8] = 0, 0, 2, 0, 0, 1, 0, 0\nq = PadV3(x = x, paddings = e)\n"
       "y = Conv2D(x = q, filter = f) {data_format = \"NHWC\", pads = [0, 0, 0, 0], strides = [1, 2, 2, 1]}\nreturn "
       "y\n",
       "x = Data() : float32 [1, 6, 5, 16]\nf = Const() : float32 [16, 3, 3, 16] = 0.5, -0.25 ...\n"
       "y = Conv2D(x = x, filter = f) {data_format = \"NHWC\", pads = [2, 0, 0, 1], strides = [1, 2, 2, 1]}\nreturn "
       "y\n"},
      {"ConvPadFusionPass",
       row + zero +
           "s = Const() : int64 [4] = 1, 16, 1, 11\ne = Const() : int64 [6] = 0, 0, 0, 0, 2, 0\n"
           "q = PadV3(x = x, paddings = e, constant_values = v)\nr = Reshape(x = q, shape = s)\n"
           "y = Conv2D(x = r, filter = f) {" +
           none + "return y\n",
       row + "y_shape = Const() : int64 [4] = 1, 16, 1, 9\ny_image = Reshape(x = x, shape = y_shape)\n" +
           "y = Conv2D(x = y_image, filter = f) {data_format = \"NCHW\", pads = [0, 0, 2, 0], strides = [1, 1, 1, " +
           "1]}\nreturn y\n"},
  });
  const std::string begin = kImage + kFilter;
  ExpectRefusals({
      {"ConvPadFusionPass", begin + "v = Const() : float32 [] = 1\n" + border + pad + conv, "not of zeros"},
      {"ConvPadFusionPass", begin + zero + "e = Const() : int64 [8] = 0, 0, 0, 0, 0, 1, 0, -1\n" + pad + conv,
       "not of zeros"},
      {"ConvPadFusionPass",
       begin + zero + border + "q = PadV3(x = x, paddings = e, constant_values = v) {mode = \"edge\"}\n" + conv,
       "not of zeros"},
      {"ConvPadFusionPass", begin + zero + "e = Const() : int64 [8] = 0, 1, 0, 0, 0, 1, 0, 1\n" + pad + conv,
       "adds channels, or images"},
      {"ConvPadFusionPass", begin + zero + border + pad + "y = Conv2D(x = q, filter = f) {" + kPlain + "return y, q\n",
       "other users"},
  });
}

// Parts of the channels become convolutions, also behind the reshape of one over a single dim.
TEST(CompilerConvolution, SplitsBecomeConvolutions) {
  const std::string one = "one = Const() : int64 [1] = 1\n";
  const std::string filter = "f = Const() : float32 [48, 16, 3, 3] = 0.5, -0.25, 1, 0.125 ...\n";
  const std::string bias =
      "b = Const() : float32 [48] = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 ...\n";
  const std::string conv = "p = Conv2D(x = x, filter = f, bias = b) {" + kPlain;
  const std::string split = "n = Const() : int64 [2] = 16, 32\n";
  const std::string splits = "q = SplitV(x = p, size_splits = n, split_dim = one) {num_split = 2}\n";
  const std::string row = "x = Data() : float32 [1, 16, 1, 9]\n";
  const std::string list = "data_format = \"NCHW\", pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}\n";
  ExpectFusions({
      {"ConvSplitFusionPass",
       kImage + filter + bias + one + split + conv + splits + "y = Sub(q:0, q:0)\nreturn y, q:1\n",
       kImage + "f_0 = Const() : float32 [16, 16, 3, 3] = 0.5, -0.25, 1, 0.125 ...\n" +
           "b_0 = Const() : float32 [16] = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16\n" +
           "f_1 = Const() : float32 [32, 16, 3, 3] = 0.125 ...\n" + "b_1 = Const() : float32 [32] = 17, 18, 19 ...\n" +
           "p_0 = Conv2D(x = x, filter = f_0, bias = b_0) {" + kPlain +
           "p_1 = Conv2D(x = x, filter = f_1, bias = b_1) {" + kPlain + "y = Sub(p_0, p_0)\nreturn y, p_1\n"},
      {"ConvSplitFusionPass",
       row + "f = Const() : float32 [32, 16, 1, 1] = 0.5, -0.25 ...\ns = Const() : int64 [3] = 1, 32, 9\n" +
           "p = Conv2D(x = x, filter = f) {" + list + "r = Reshape(x = p, shape = s)\n" +
           "q = SplitD(x = r) {num_split = 2, split_dim = -2}\nreturn q:1, q:0\n",
       row + "f_0 = Const() : float32 [16, 16, 1, 1] = 0.5, -0.25 ...\n" +
           "f_1 = Const() : float32 [16, 16, 1, 1] = -0.25 ...\np_0_shape = Const() : int64 [3] = 1, 16, 9\n" +
           "p_1_shape = Const() : int64 [3] = 1, 16, 9\n" + "p_0 = Conv2D(x = x, filter = f_0) {" + list +
           "p_1 = Conv2D(x = x, filter = f_1) {" + list +
           "p_0_view = Reshape(x = p_0, shape = p_0_shape)\np_1_view = Reshape(x = p_1, shape = p_1_shape)\n" +
           "return p_1_view, p_0_view\n"},
  });
  const std::string head = kImage + filter + one;
  ExpectRefusals({
      {"ConvSplitFusionPass", head + split + "b = Data() : float32 [48]\n" + conv + splits + "return q, q:1\n",
       "the bias is not constant"},
      {"ConvSplitFusionPass", head + bias + split + conv + splits + "return q, q:1, p\n", "other users"},
      {"ConvSplitFusionPass", head + bias + "n = Const() : int64 [2] = 8, 40\n" + conv + splits + "return q, q:1\n",
       "no multiple of 16 channels"},
      {"ConvSplitFusionPass",
       "x = Data() : float32 [1, 128, 6, 5]\nf = Const() : float32 [48, 128, 3, 3] = 0.5 ...\n" + one + bias + split +
           conv + splits + "return q, q:1\n",
       "to read the input for each part"},
      {"ConvSplitFusionPass",
       kImage + one + "f = Data() : float32 [48, 16, 3, 3]\n" + bias + split + conv + splits + "return q, q:1\n",
       "the filter is not constant"},
      {"ConvSplitFusionPass",
       kImage + "f = Const() : float32 [48, 8, 3, 3] = 0.5 ...\n" + one + bias + split +
           "p = Conv2D(x = x, filter = f, bias = b) {groups = 2, " + kPlain + splits + "return q, q:1\n",
       "has groups"},
      {"ConvSplitFusionPass",
       head + bias + "two = Const() : int64 [1] = 2\nn = Const() : int64 [2] = 2, 4\n" + conv +
           "q = SplitV(x = p, size_splits = n, split_dim = two) {num_split = 2}\nreturn q, q:1\n",
       ""},
  });
}

TEST(CompilerConvolution, ChainsGetChannelsBehind) {
  const std::string last = "data_format = \"NHWC\", pads = [1, 1, 1, 1], strides = [1, 1, 1, 1]}\n";
  const std::string turned = "f_nhwc = Const() : float32 [16, 3, 3, 16] = 0.5, -0.25, 1, 0.125 ...\n";
  const std::string to_last = "x_nhwc = TransposeD(x = x) {perm = [0, 2, 3, 1]}\n";
  ExpectPass(
      "ConvLayoutPass",
      Whole(kImage + kFilter + "p = Conv2D(x = x, filter = f) {" + kPlain + "q = Sigmoid(p)\n" +
            "s = Conv2D(x = q, filter = f) {" + kPlain + "t = Add(s, q)\nreturn t, q\n"),
      Whole(kImage + kFilter + turned + to_last + "p = Conv2D(x = x_nhwc, filter = f_nhwc) {" + last +
            "q = Sigmoid(p)\ns = Conv2D(x = q, filter = f_nhwc) {" + last + "t = Add(s, q)\n" +
            "q_nchw = TransposeD(x = q) {perm = [0, 3, 1, 2]}\nt_nchw = TransposeD(x = t) {perm = [0, 3, 1, 2]}\n" +
            "return t_nchw, q_nchw\n"));
}

// What moves channels only moves them at their new place.
TEST(CompilerConvolution, PartsOfChannelsStayInChains) {
  const std::string last = "data_format = \"NHWC\", pads = [1, 1, 1, 1], strides = [1, 1, 1, 1]}\n";
  const std::string one = "one = Const() : int64 [1] = 1\n";
  ExpectPass(
      "ConvLayoutPass",
      Whole(kImage + kFilter + one + "n = Const() : int64 [2] = 6, 10\np = Conv2D(x = x, filter = f) {" + kPlain +
            "q = SplitV(x = p, size_splits = n, split_dim = one) {num_split = 2}\n"
            "r = ConcatV2(x0 = q:1, x1 = q:0, concat_dim = one) {N = 2}\ns = Conv2D(x = r, filter = f) {" +
            kPlain + "return s\n"),
      Whole(kImage + kFilter + "f_nhwc = Const() : float32 [16, 3, 3, 16] = 0.5, -0.25, 1, 0.125 ...\n" + one +
            "one_nhwc = Const() : int64 [1] = 3\none_nhwc_1 = Const() : int64 [1] = 3\nn = Const() : int64 [2] = 6, "
            "10\n" +
            "x_nhwc = TransposeD(x = x) {perm = [0, 2, 3, 1]}\np = Conv2D(x = x_nhwc, filter = f_nhwc) {" + last +
            "q = SplitV(x = p, size_splits = n, split_dim = one_nhwc) {num_split = 2}\n"
            "r = ConcatV2(x0 = q:1, x1 = q:0, concat_dim = one_nhwc_1) {N = 2}\ns = Conv2D(x = r, filter = f_nhwc) {" +
            last + "s_nchw = TransposeD(x = s) {perm = [0, 3, 1, 2]}\nreturn s_nchw\n"));
}

// Convolutions over one dim, which are such over two with one row.
TEST(CompilerConvolution, RowsOfPixelsStayInChains) {
  const std::string image =
      "x = Data() : float32 [1, 16, 1, 9]\nf = Const() : float32 [16, 16, 1, 3] = 0.5, -0.25 ...\n";
  const std::string list = "pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}\n";
  const std::string first = "data_format = \"NCHW\", " + list, last = "data_format = \"NHWC\", " + list;
  ExpectPass("ConvLayoutPass",
             Whole(image +
                   "a = Const() : int64 [3] = 1, 16, 7\nb = Const() : int64 [4] = 1, 16, 1, 9\n"
                   "e = Const() : int64 [6] = 0, 0, 0, 0, 2, 0\nv = Const() : float32 [] = 0\n"
                   "p = Conv2D(x = x, filter = f) {" +
                   first +
                   "q = Reshape(x = p, shape = a)\nr = PadV3(x = q, paddings = e, constant_values = v)\n"
                   "s = Reshape(x = r, shape = b)\nt = Conv2D(x = s, filter = f) {" +
                   first + "return t, q\n"),
             Whole(image +
                   "f_nhwc = Const() : float32 [16, 1, 3, 16] = 0.5, -0.25 ...\n"
                   "a = Const() : int64 [3] = 1, 16, 7\nb = Const() : int64 [4] = 1, 16, 1, 9\n"
                   "e = Const() : int64 [6] = 0, 0, 0, 0, 2, 0\nv = Const() : float32 [] = 0\n"
                   "a_nwc = Const() : int64 [3] = 1, 7, 16\nb_nhwc = Const() : int64 [4] = 1, 1, 9, 16\n"
                   "e_nwc = Const() : int64 [6] = 0, 0, 2, 0, 0, 0\n"
                   "x_nhwc = TransposeD(x = x) {perm = [0, 2, 3, 1]}\np = Conv2D(x = x_nhwc, filter = f_nhwc) {" +
                   last +
                   "q = Reshape(x = p, shape = a_nwc)\nr = PadV3(x = q, paddings = e_nwc, constant_values = v)\n"
                   "s = Reshape(x = r, shape = b_nhwc)\nt = Conv2D(x = s, filter = f_nhwc) {" +
                   last +
                   "q_ncw = TransposeD(x = q) {perm = [0, 2, 1]}\nt_nchw = TransposeD(x = t) {perm = [0, 3, 1, 2]}\n"
                   "return t_nchw, q_ncw\n"));
}

// What the program turns itself, as ConvNeXt does, and what the pass has turned cancel out; for one picture torchair
// writes such transposes without its dim of one element.
TEST(CompilerConvolution, TransposesOfTheProgramCancelOut) {
  const std::string numbers =
      "a = Const() : int64 [4] = 0, 2, 3, 1\nb = Const() : int64 [4] = 0, 3, 1, 2\nc = Const() : int64 [2] = 16, 30\n"
      "d = Const() : int64 [4] = 1, 6, 5, 16\ne = Const() : int64 [2] = 30, 16\ng = Const() : int64 [4] = 1, 16, 6, 5\n"
      "h = Const() : int64 [2] = 1, 0\n";
  const std::string begin = kImage + kFilter + numbers + "p = Conv2D(x = x, filter = f) {" + kPlain;
  for (const std::string& body : {
           std::string("q = Transpose(x = p, perm = a)\nr = SoftmaxV2(q)\ns = Transpose(x = r, perm = b)\n"),
           std::string("k = Reshape(x = p, shape = c)\nl = Transpose(x = k, perm = h)\nq = Reshape(x = l, shape = d)\n"
                       "r = SoftmaxV2(q)\nm = Reshape(x = r, shape = e)\nn = Transpose(x = m, perm = h)\n"
                       "s = Reshape(x = n, shape = g)\n"),
       }) {
    const std::string text =
        Whole(begin + body + "t = Add(s, p)\nu = Conv2D(x = t, filter = f) {" + kPlain + "return u\n");
    const std::unique_ptr<Graph> before = Read(text);
    const std::unique_ptr<Graph> after = Read(text);
    ASSERT_TRUE(before != nullptr && after != nullptr) << text;
    PassRecords records;
    ASSERT_TRUE(RunPasses(*after, {}, &records).ok());
    size_t transposes = 0;
    for (const Node& node : after->nodes) transposes += node.is_removed ? 0 : node.type.starts_with("Transpose");
    EXPECT_EQ(transposes, 2u) << "of the input and of the result\n" << ToText(*after);
    ExpectNear(*before, *after);
  }
}

TEST(CompilerConvolution, ShufflesAndNormsStayInChains) {
  const std::string last = "data_format = \"NHWC\", pads = [1, 1, 1, 1], strides = [1, 1, 1, 1]}\n";
  const std::string filter = "f_nhwc = Const() : float32 [16, 3, 3, 16] = 0.5, -0.25, 1, 0.125 ...\n";
  ExpectPass("ConvLayoutPass",
             Whole(kImage + kFilter + "p = Conv2D(x = x, filter = f) {" + kPlain +
                   "a = Const() : int64 [4] = 2, 8, 6, 5\nb = Const() : int64 [4] = 1, 16, 6, 5\n"
                   "q = Reshape(x = p, shape = a)\nr = TransposeD(x = q) {perm = [1, 0, 2, 3]}\n"
                   "s = Reshape(x = r, shape = b)\nt = Conv2D(x = s, filter = f) {" +
                   kPlain + "return t\n"),
             Whole(kImage + kFilter + filter +
                   "a = Const() : int64 [4] = 2, 8, 6, 5\nb = Const() : int64 [4] = 1, 16, 6, 5\n"
                   "s_groups = Const() : int64 [5] = 1, 6, 5, 2, 8\nb_nhwc = Const() : int64 [4] = 1, 6, 5, 16\n"
                   "x_nhwc = TransposeD(x = x) {perm = [0, 2, 3, 1]}\np = Conv2D(x = x_nhwc, filter = f_nhwc) {" +
                   last + "s_cut = Reshape(x = p, shape = s_groups)\n" +
                   "s_swap = TransposeD(x = s_cut) {perm = [0, 1, 2, 4, 3]}\ns = Reshape(x = s_swap, shape = b_nhwc)\n"
                   "t = Conv2D(x = s, filter = f_nhwc) {" +
                   last + "t_nchw = TransposeD(x = t) {perm = [0, 3, 1, 2]}\nreturn t_nchw\n"));
  const std::string numbers =
      "m = Const() : float32 [16] = 1, -1, 0.5, 2 ...\nv = Const() : float32 [16] = 4, 1, 4, 1 ...\n";
  const std::string norm = "r = BNInfer(x = q, scale = m, offset = v, mean = m, variance = v) {epsilon = 0}\n";
  ExpectPass("ConvLayoutPass",
             Whole(kImage + kFilter + numbers + "p = Conv2D(x = x, filter = f) {" + kPlain + "q = Relu(p)\n" + norm +
                   "return r\n"),
             Whole(kImage + kFilter + filter + numbers +
                   "x_nhwc = TransposeD(x = x) {perm = [0, 2, 3, 1]}\n"
                   "p = Conv2D(x = x_nhwc, filter = f_nhwc) {" +
                   last +
                   "q = Relu(p)\n"
                   "r_scale = Const() : float32 [1, 16, 1, 1] = 0.5, -1, 0.25, 2 ...\n"
                   "r_offset = Const() : float32 [1, 16, 1, 1] = 3.5, 0, 3.875, -3 ...\n"
                   "r_scale_nhwc = Const() : float32 [1, 1, 1, 16] = 0.5, -1, 0.25, 2 ...\n"
                   "r_offset_nhwc = Const() : float32 [1, 1, 1, 16] = 3.5, 0, 3.875, -3 ...\n"
                   "r_1 = Mul(x1 = q, x2 = r_scale_nhwc)\nr_2 = Add(x1 = r_1, x2 = r_offset_nhwc)\n"
                   "r_2_nchw = TransposeD(x = r_2) {perm = [0, 3, 1, 2]}\nreturn r_2_nchw\n"));
}

// Values of the whole list of passes, against none: chains with all that may stand in them.
TEST(CompilerConvolution, ChainsComputeTheSame) {
  const std::string conv = "Conv2D(x = x, filter = f) {" + kPlain;
  const std::string begin = kImage + kFilter;
  const std::string strided =
      "g = Const() : float32 [8, 16, 1, 1] = 1, -0.5, 0.25 ...\nh = Const() : float32 [8] = 1, -1 ...\n";
  const std::string windows = "ksize = [1, 1, 3, 3], pads = [1, 1, 1, 1], strides = [1, 1, 2, 2]}\n";
  for (
      const std::string& body : {
          "p = " + conv +
              "q = Relu(p)\ns = Conv2D(x = q, filter = g, bias = h) {data_format = \"NCHW\", pads = [0, 0, 0, 0], "
              "strides = [1, 1, 2, 1]}\nreturn s\n",
          "p = " + conv +
              "q = MaxPoolWithArgmaxV3(x = p) {ksize = [3, 3], pads = [1, 1], strides = [2, 2]}\nreturn q\n",
          "p = " + conv +
              "q = MaxPoolWithArgmaxV1(x = p) {ksize = [1, 3, 3, 1], pads = [1, 1, 1, 1], strides = [1, 2, 2, 1]}\n"
              "return q\n",
          "p = " + conv + "q = AvgPoolV2(x = p) {" + windows + "return q\n",
          "p = " + conv + "q = Swish(p)\nr = AvgPoolV2(x = q) {" + windows + "s = HardSwish(r)\nreturn s\n",
          "p = " + conv + "q = ReduceMeanD(x = p) {axes = [2, 3], keep_dims = false}\nreturn q\n",
          "p = " + conv +
              "a = Const() : int64 [2] = -1, -2\nq = ReduceMean(x = p, axes = a) {keep_dims = true}\n"
              "s = Mul(p, q)\nreturn s\n",
          "p = " + conv +
              "c = Const() : float32 [1, 16, 1, 1] = 2, -3 ...\nq = Mul(p, c)\nn = Const() : float32 [] = 3\n"
              "s = Add(q, n)\nreturn s\n",
          "p = " + conv + "q = ConcatD(p, x) {N = 2, concat_dim = 1}\nreturn q\n",
          "p = " + conv +
              "d = Const() : int64 [1] = -3\nq = ConcatV2(x0 = p, x1 = x, concat_dim = d) {N = 2}\nr = Relu(q)\n"
              "return r\n",
          "p = " + conv +
              "n = Const() : int64 [3] = 3, 5, 8\nd = Const() : int64 [] = 1\n"
              "q = SplitV(x = p, size_splits = n, split_dim = d) {num_split = 3}\nr = Relu(q:1)\n"
              "s = ConcatD(r, q:0) {N = 2, concat_dim = 1}\nreturn s, q:2\n",
          "p = " + conv + "q = SplitD(x = p) {num_split = 2, split_dim = 1}\nr = Mul(q:0, q:1)\nreturn r\n",
          "p = " + conv +
              "a = Const() : int64 [3] = 1, 0, -1\nb = Const() : int64 [3] = 2, 0, 1\ne = Const() : int64 [3] = 11, 1, "
              "5\nw = Const() : int64 [3] = 3, 1, 2\nq = StridedSliceV2(x = p, begin = b, end = e, axes = a, strides = "
              "w)\nr = Relu(q)\nreturn r\n",
          "p = " + conv +
              "s = Relu(p)\nm = Const() : float32 [16] = 1, -1, 0.5 ...\nv = Const() : float32 [16] = 1, 2, 3 ...\n"
              "q = BNInfer(x = s, scale = m, offset = v, mean = m, variance = v) {epsilon = 0.001}\nr = Relu(q)\n"
              "return r\n",
      }) {
    const std::unique_ptr<Graph> before = Read(Whole(begin + strided + body));
    const std::unique_ptr<Graph> after = Read(Whole(begin + strided + body));
    ASSERT_TRUE(before != nullptr && after != nullptr) << body;
    PassRecords records;
    Status status = RunPasses(*after, {}, &records);
    ASSERT_TRUE(status.ok()) << status.detail().what << "\n" << body;
    EXPECT_GE(records["ConvLayoutPass"].changed, 1u) << body;
    ExpectNear(*before, *after);
  }
}

// Three dims, and transposed ones, between others.
TEST(CompilerConvolution, ChainsOfVolumesAndTransposedOnesComputeTheSame) {
  const std::string volume =
      "x = Data() : float32 [1, 16, 5, 6, 5]\nf = Const() : float32 [16, 16, 3, 3, 3] = 0.5, -0.25, 1, 0.125 ...\n";
  const std::string norm =
      "k = Const() : float32 [16] = 2, -1, 0.5 ...\nm = Const() : float32 [16] = 0.25, 1 ...\n"
      "v = Const() : float32 [16] = 0.5, 2 ...\n";
  const std::string three = "data_format = \"NCDHW\", pads = [1, 1, 1, 1, 1, 1], strides = [1, 1, 1, 1, 1]}\n";
  const std::string conv =
      volume + norm + "p = Conv3DFused(x = x, filter = f) {" + three + "n = BNInfer(p, k, m, m, v) {epsilon = 0.25}\n";
  const std::string doubled =
      kImage + norm +
      "z = Const() : int64 [4] = 1, 16, 12, 10\nt = Const() : float32 [16, 16, 4, 4] = 0.5, -0.25, 1 ...\n" +
      "p = Conv2DBackpropInput(z, t, x) {data_format = \"NCHW\", pads = [1, 1, 1, 1], strides = [1, 1, 2, 2]}\n";
  const std::string sums = "n = BNInfer(p, k, m, m, v) {epsilon = 0.25}\n";
  for (const std::string& text : {
           conv + "q = Relu(n)\ns = Conv3DFused(x = q, filter = f) {" + three + "t = Add(s, q)\nreturn t\n",
           conv + "q = ReduceMeanD(x = n) {axes = [2, 3, 4], keep_dims = false}\nreturn q\n",
           conv + "a = Const() : int64 [3] = -1, 2, -2\nq = ReduceMean(x = n, axes = a) {keep_dims = true}\n"
                  "s = Mul(n, q)\nreturn s\n",
           conv + "q = ConcatD(n, x) {N = 2, concat_dim = -4}\nc = Const() : float32 [1, 32, 1, 1, 1] = 2, -3 ...\n"
                  "s = Mul(q, c)\nreturn s, n\n",
           doubled + "return p\n",
           doubled + sums + "q = Relu(n)\nreturn q\n",
           doubled + sums + kFilter + "q = Tanh(n)\ns = Conv2D(x = q, filter = f) {" + kPlain + "return s\n",
       }) {
    const std::unique_ptr<Graph> before = Read(Whole(text));
    const std::unique_ptr<Graph> after = Read(Whole(text));
    ASSERT_TRUE(before != nullptr && after != nullptr) << text;
    PassRecords records;
    Status status = RunPasses(*after, {}, &records);
    ASSERT_TRUE(status.ok()) << status.detail().what << "\n" << text;
    EXPECT_GE(records["ConvLayoutPass"].changed, 1u) << text;
    const uint32_t norms = text.find("BNInfer") == std::string::npos ? 0 : 1;
    EXPECT_EQ(records["ConvBatchnormFusionPass"].changed, norms) << text;
    ExpectNear(*before, *after);
  }
}

// Pictures that are large enough for products by patches, with all that may follow.
TEST(CompilerConvolution, ProductsByPatchesComputeTheSame) {
  const std::string begin =
      "x = Data() : float32 [1, 32, 13, 12] format 0\nr = Data() : float32 [1, 40, 13, 12]\n"
      "f = Const() : float32 [40, 32, 3, 3] = 0.5, -0.25, 1, 0.125, -0.75 ...\nb = Const() : float32 [40] = 1, -2, 3 "
      "...\n"
      "l = Const() : float32 [] = 0\nh = Const() : float32 [] = 6\n";
  const std::string conv = "p = Conv2D(x = x, filter = f, bias = b) {" + kPlain;
  for (const std::string& body : {
           conv + "return p\n",
           conv + "q = Add(r, p)\ns = Relu(q)\nreturn s\n",
           conv + "q = Add(r, p)\ns = HardSwish(q)\nreturn s\n",
           conv + "s = Swish(p)\nreturn s\n",
           conv + "q = Maximum(p, l)\ns = Minimum(q, h)\nreturn s\n",
       }) {
    const std::unique_ptr<Graph> before = Read(Whole(begin + body));
    const std::unique_ptr<Graph> after = Read(Whole(begin + body));
    ASSERT_TRUE(before != nullptr && after != nullptr) << body;
    PassRecords records;
    Status status = RunPasses(*after, {}, &records);
    ASSERT_TRUE(status.ok()) << status.detail().what << "\n" << body;
    EXPECT_GE(records["ConvLayoutPass"].changed, 1u) << body;
    ExpectNear(*before, *after);
  }
}

// Too few pixels for channels behind: the parts are computed one by one.
TEST(CompilerConvolution, ActivationsFollowInSmallPictures) {
  for (const std::string activation : {"HardSwish", "Swish", "Relu"}) {
    for (const std::string type : {"float32", "float16"}) {
      const std::string text = Whole("x = Data() : " + type + " [1, 16, 3, 3] format 0\nf = Const() : " + type +
                                     " [16, 16, 3, 3] = 0.5, -0.25, 1, 0.125 ...\np = Conv2D(x = x, filter = f) {" +
                                     kPlain + "q = " + activation + "(p)\nreturn q\n");
      const std::unique_ptr<Graph> before = Read(text);
      const std::unique_ptr<Graph> after = Read(text);
      ASSERT_TRUE(before != nullptr && after != nullptr) << text;
      PassRecords records;
      ASSERT_TRUE(RunPasses(*after, {}, &records).ok()) << text;
      EXPECT_EQ(records["ConvActivationFusionPass"].changed, 1u) << text;
      ExpectNear(*before, *after);
    }
  }
}

TEST(CompilerConvolution, PoolsWithoutUsersOfTheirMaskNeedNone) {
  const std::string lists = "ksize = [1, 3, 2, 1], pads = [1, 1, 0, 1], strides = [1, 2, 1, 1]";
  ExpectFusions(
      {{"MaxPoolMaskFusionPass",
        kImage + "y = MaxPoolWithArgmaxV1(x = x) {" + lists +
            ", dilation = [1, 1, 2, 1], ceil_mode = true}\nreturn y\n",
        kImage + "y = MaxPoolWithArgmaxV3(x = x) {ceil_mode = true, data_format = \"NCHW\", dilation = [1, 2], ksize = "
                 "[3, 2], pads = [1, 0], strides = [2, 1]}\nreturn y\n"}});
  ExpectRefusals(
      {{"MaxPoolMaskFusionPass", kImage + "y = MaxPoolWithArgmaxV1(x = x) {" + lists + "}\nreturn y:0, y:1\n", ""}});
}

TEST(CompilerConvolution, StaysWhereTransposesCostMore) {
  ExpectRefusals({
      {"ConvLayoutPass",
       "x = Data() : float32 [1, 2, 6, 5] format 0\nf = Const() : float32 [2, 2, 1, 1] = 1, 2, 3, 4\n"
       "y = Conv2D(x = x, filter = f) {data_format = \"NCHW\", pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}\nreturn "
       "y\n",
       "costs more than it saves"},
      {"ConvLayoutPass",
       kImage + "f = Data() : float32 [16, 16, 3, 3]\ny = Conv2D(x = x, filter = f) {" + kPlain + "return y\n", ""},
      {"ConvLayoutPass",
       "x = Data() : float32 [1, 6, 5, 16]\nf = Const() : float32 [16, 3, 3, 16] = 1 ...\n"
       "y = Conv2D(x = x, filter = f) {data_format = \"NHWC\", pads = [1, 1, 1, 1], strides = [1, 1, 1, 1]}\nreturn "
       "y\n",
       ""},
  });
}

}  // namespace
}  // namespace reprise::compiler::testing
