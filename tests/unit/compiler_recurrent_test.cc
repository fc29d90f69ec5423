// SPDX-License-Identifier: Apache-2.0
//
// LSTM and GRU written out in steps become one operator for each layer and direction.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fusion_testing.h"

namespace reprise::compiler::testing {
namespace {

constexpr int kBatch = 2, kFeatures = 3, kHidden = 4;

// A layer as front ends write it; what it may look like.
struct Written {
  bool is_lstm = true;
  int steps = 3;
  bool has_bias = true;
  bool is_reversed = false;
  bool is_flat = false;  // states have two dims
  std::string type = "float32";
  std::string returns = "y";       // "y": all states joined; h2, c2 …: of a step
  std::string share_of_last = "";  // instead of the right one
  std::string more = "";           // lines at the end
};

std::string Number(int n) { return std::to_string(n); }

std::string TextOf(const Written& w) {
  const int gates = w.is_lstm ? 4 : 3;
  const std::string width = Number(gates * kHidden), type = " : " + w.type + " ";
  const std::string state = (w.is_flat ? "[" : "[1, ") + Number(kBatch) + ", " + Number(kHidden) + "]";
  std::string text =
      "x = Data()" + type + "[" + Number(w.steps) + ", " + Number(kBatch) + ", " + Number(kFeatures) + "]\n";
  text += "wi = Data()" + type + "[" + width + ", " + Number(kFeatures) + "]\n";
  text += "wh = Data()" + type + "[" + width + ", " + Number(kHidden) + "]\n";
  text += "bi = Data()" + type + "[" + width + "]\nbh = Data()" + type + "[" + width + "]\n";
  text += "h = Data()" + type + state + "\nc = Data()" + type + state + "\n";
  text += "perm = Const() : int64 [2] = 1, 0\nzero = Const() : int64 [1] = 0\nlast = Const() : int64 [] = -1\n";
  text += "first = Const() : int64 [] = 0\n";
  text += "flat_x = Const() : int64 [2] = " + Number(w.steps * kBatch) + ", " + Number(kFeatures) + "\n";
  text += "whole_x = Const() : int64 [3] = " + Number(w.steps) + ", " + Number(kBatch) + ", " + width + "\n";
  text += "flat_h = Const() : int64 [2] = " + Number(kBatch) + ", " + Number(kHidden) + "\n";
  text += "whole_h = Const() : int64 [3] = 1, " + Number(kBatch) + ", " + width + "\n";
  text += "parts = Const() : int64 [" + Number(gates) + "] = 4, 4, 4" + (w.is_lstm ? ", 4\n" : "\n");
  text += "rows = Reshape(x, flat_x)\nti = Transpose(wi, perm)\nth = Transpose(wh, perm)\np = MatMul(rows, ti)\n";
  text += "q = Reshape(p, whole_x)\n";
  std::string whole = "q";
  if (w.has_bias) text += "qb = Add(q, bi)\n", whole = "qb";
  if (w.is_reversed) text += "qr = ReverseV2(" + whole + ", zero)\n", whole = "qr";
  const std::string pieces = (w.is_flat ? "[" : "[1, ") + Number(kBatch) + ", " + Number(kHidden) + "]";
  const auto split = [&](const std::string& name, const std::string& from, const std::string& shape) {
    std::string outputs;
    for (int g = 0; g < gates; ++g) outputs += (g == 0 ? "y" : ", y") + Number(g) + " " + w.type + " " + shape;
    text += name + " = SplitV(x = " + from + ", size_splits = parts, split_dim = last) {num_split = " + Number(gates) +
            "} : " + outputs + "\n";
  };
  std::string shares;
  for (int t = 0; t < w.steps; ++t) {
    shares += (t == 0 ? "y" : ", y") + Number(t) + " " + w.type + " [" + Number(kBatch) + ", " + width + "]";
  }
  text += "u = Unpack(x = " + whole + ") {axis = 0, num = " + Number(w.steps) + "} : " + shares + "\n";
  std::string h = "h", c = "c";
  for (int t = 0; t < w.steps; ++t) {
    const std::string n = Number(t);
    const bool is_last = t + 1 == w.steps;
    const std::string share = is_last && !w.share_of_last.empty() ? w.share_of_last : "u:" + n;
    std::string from = h;
    if (!w.is_flat) text += "hf" + n + " = Reshape(" + h + ", flat_h)\n", from = "hf" + n;
    text += "m" + n + " = MatMulV2(x1 = " + from + ", x2 = th" + (w.has_bias ? ", bias = bh)\n" : ")\n");
    std::string product = "m" + n;
    if (!w.is_flat) text += "mw" + n + " = Reshape(m" + n + ", whole_h)\n", product = "mw" + n;
    if (w.is_lstm) {
      text += "s" + n + " = Add(" + product + ", " + share + ")\n";
      split("g" + n, "s" + n, pieces);
      text += "i" + n + " = Sigmoid(g" + n + ":0)\nf" + n + " = Sigmoid(g" + n + ":1)\ng_" + n + " = Tanh(g" + n +
              ":2)\no" + n + " = Sigmoid(g" + n + ":3)\n";
      text += "fc" + n + " = Mul(f" + n + ", " + c + ")\nig" + n + " = Mul(i" + n + ", g_" + n + ")\n";
      text += "c" + n + " = Add(fc" + n + ", ig" + n + ")\ntc" + n + " = Tanh(c" + n + ")\n";
      text += "h" + n + " = Mul(o" + n + ", tc" + n + ")\n";
    } else {
      split("a" + n, share, "[" + Number(kBatch) + ", " + Number(kHidden) + "]");
      split("g" + n, product, pieces);
      text += "rs" + n + " = Add(g" + n + ":0, a" + n + ":0)\nr" + n + " = Sigmoid(rs" + n + ")\n";
      text += "zs" + n + " = Add(g" + n + ":1, a" + n + ":1)\nz" + n + " = Sigmoid(zs" + n + ")\n";
      text += "gr" + n + " = Mul(g" + n + ":2, r" + n + ")\nns" + n + " = Add(a" + n + ":2, gr" + n + ")\n";
      text += "n" + n + " = Tanh(ns" + n + ")\nd" + n + " = Sub(" + h + ", n" + n + ")\n";
      text += "dz" + n + " = Mul(d" + n + ", z" + n + ")\nh" + n + " = Add(dz" + n + ", n" + n + ")\n";
    }
    h = "h" + n;
    c = "c" + n;
  }
  std::string joined;
  for (int t = 0; t < w.steps; ++t) {
    const int place = w.is_reversed ? w.steps - 1 - t : t;
    joined +=
        (w.is_flat ? "x" + Number(t) + " = h" : "h") + Number(place) + (w.is_flat && t + 1 == w.steps ? "" : ", ");
  }
  const std::string count = " {N = " + Number(w.steps);
  text += w.is_flat ? "y = Pack(" + joined + ")" + count + ", axis = 0}\n"
                    : "y = ConcatV2(" + joined + "first)" + count + "}\n";
  return "graph g\n" + text + w.more + "return " + w.returns + "\n";
}

int CountOf(const Graph& graph, std::string_view type) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return !node.is_removed && node.type == type; }));
}

const char* PassOf(const Written& w) { return w.is_lstm ? "LstmFusionPass" : "GruFusionPass"; }

// One operator in the place of all steps, which computes the same.
void ExpectOneLayer(const Written& w) {
  const std::string text = TextOf(w);
  SCOPED_TRACE(text);
  const std::unique_ptr<Graph> before = Read(text), after = Read(text);
  ASSERT_NE(after, nullptr);
  PassRecord record;
  const Status status = RunPass(*FindPass(PassOf(w)), *after, {}, &record);
  ASSERT_TRUE(status.ok()) << status.detail().what;
  ASSERT_EQ(record.changed, 1U) << (record.refusals.empty() ? "" : record.refusals[0]);
  EXPECT_TRUE(Check(*after).ok());
  EXPECT_EQ(CountOf(*after, w.is_lstm ? "LSTMFused" : "GRUFused"), 1);
  for (const char* const part : {"Sigmoid", "Tanh", "MatMul", "MatMulV2", "Mul"}) EXPECT_EQ(CountOf(*after, part), 0);
  ExpectNear(*before, *after);
}

void ExpectRefused(const Written& w, std::string_view reason) {
  const std::string text = TextOf(w);
  SCOPED_TRACE(text);
  const std::unique_ptr<Graph> graph = Read(text);
  ASSERT_NE(graph, nullptr);
  const std::string unchanged = Sorted(*graph);
  PassRecord record;
  ASSERT_TRUE(RunPass(*FindPass(PassOf(w)), *graph, {}, &record).ok());
  EXPECT_EQ(record.changed, 0U);
  EXPECT_EQ(Sorted(*graph), unchanged);
  if (reason.empty()) {
    EXPECT_EQ(record.matched, 0U);
    return;
  }
  ASSERT_FALSE(record.refusals.empty());
  EXPECT_NE(record.refusals[0].find(reason), std::string::npos) << record.refusals[0];
}

TEST(CompilerRecurrent, StepsBecomeOneOperator) {
  for (const bool is_lstm : {true, false}) {
    for (const bool has_bias : {true, false}) {
      for (const bool is_reversed : {true, false}) {
        for (const bool is_flat : {true, false}) {
          ExpectOneLayer({.is_lstm = is_lstm, .has_bias = has_bias, .is_reversed = is_reversed, .is_flat = is_flat});
        }
      }
    }
    ExpectOneLayer({.is_lstm = is_lstm, .steps = 1});
    ExpectOneLayer({.is_lstm = is_lstm, .type = "float16"});
    ExpectOneLayer({.is_lstm = is_lstm, .type = "bfloat16"});
  }
}

TEST(CompilerRecurrent, StatesOfStepsStayWhatTheyAre) {
  for (const bool is_flat : {true, false}) {
    ExpectOneLayer({.is_flat = is_flat, .returns = "y, h2, c2"});
    ExpectOneLayer({.is_flat = is_flat, .returns = "h2"});
    ExpectOneLayer({.is_flat = is_flat, .returns = "h0, h1, y"});
    ExpectOneLayer({.is_lstm = false, .is_flat = is_flat, .returns = "h2, h0"});
  }
  // The same states, joined in another order, stay their own node.
  ExpectOneLayer({.returns = "y, other", .more = "other = ConcatV2(h1, h0, h2, first) {N = 3}\n"});
}

TEST(CompilerRecurrent, WhatDoesNotFitStays) {
  ExpectRefused({.returns = "y, c1"}, "the cell state of a step has other users");
  ExpectRefused({.returns = "y, o1"}, "a part has other users");
  ExpectRefused({.is_lstm = false, .returns = "y, z1"}, "a part has other users");
  ExpectRefused({.share_of_last = "u:0"}, "takes its share in order");
  ExpectRefused({.is_lstm = false, .share_of_last = "u:1"}, "takes its share in order");
}

// Gates of a step in another order are another network.
TEST(CompilerRecurrent, OtherFormulasStay) {
  const std::string plain = TextOf({.steps = 1});
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = plain;
    text.replace(text.find(from), from.size(), to);
    const std::unique_ptr<Graph> graph = Read(text);
    ASSERT_NE(graph, nullptr);
    PassRecord record;
    ASSERT_TRUE(RunPass(*FindPass("LstmFusionPass"), *graph, {}, &record).ok());
    EXPECT_EQ(record.changed, 0U) << text;
  };
  changed("i0 = Sigmoid(g0:0)", "i0 = Sigmoid(g0:1)");
  changed("g_0 = Tanh(g0:2)", "g_0 = Sigmoid(g0:2)");
  changed("h0 = Mul(o0, tc0)", "h0 = Mul(o0, c0)");
  changed("c0 = Add(fc0, ig0)", "c0 = Sub(fc0, ig0)");
  changed("fc0 = Mul(f0, c)", "fc0 = Mul(i0, c)");
}

}  // namespace
}  // namespace reprise::compiler::testing
