// SPDX-License-Identifier: Apache-2.0
//
// The passes of the compiler: what each does, and what it must leave.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pass_testing.h"

namespace reprise::compiler {
namespace {

using testing::ExpectNoPass;
using testing::ExpectPass;

// ---- Nodes that nobody needs ----

TEST(Passes, GE_056_UnreachableNodesDisappear) {
  ExpectPass("PrunePass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "unused = Data() : float32 [4]\n"
             "a = Relu(x)\n"
             "dead1 = Abs(a)\n"
             "dead2 = Neg(dead1)\n"
             "forced = Neg(x) notes {_force_skip_prune = true}\n"
             "ordered = Abs(x)\n"
             "print = PrintV2(text)\n"
             "text = Data() : string []\n"
             "written = Assign(unused, x)\n"
             "return a after (ordered)\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "unused = Data() : float32 [4]\n"
             "a = Relu(x)\n"
             "forced = Neg(x) notes {_force_skip_prune = true}\n"
             "ordered = Abs(x)\n"
             "print = PrintV2(text)\n"
             "text = Data() : string []\n"
             "written = Assign(unused, x)\n"
             "return a after (ordered)\n");
}

TEST(Passes, IdentitiesDisappear) {
  const PassRecord record = ExpectPass("IdentityPass",
                                       "graph g\n"
                                       "x = Data() : float32 [4]\n"
                                       "w = Data() : float32 [4]\n"
                                       "a = Identity(x) after (w)\n"
                                       "b = Identity(x) notes {_cannot_be_deleted = true}\n"
                                       "c = Add(a, b)\n"
                                       "return c, a\n",
                                       "graph g\n"
                                       "x = Data() : float32 [4]\n"
                                       "w = Data() : float32 [4]\n"
                                       "b = Identity(x) notes {_cannot_be_deleted = true}\n"
                                       "c = Add(x, b) after (w)\n"
                                       "return c, x after (w)\n");
  EXPECT_EQ(record.matched, 2U);
  ASSERT_EQ(record.refusals.size(), 1U);
  EXPECT_EQ(record.refusals[0], "node b (Identity): it is marked as one that must stay");
}

TEST(Passes, GE_055_EqualSiblingsMergeAndCascade) {
  ExpectPass("CommonSubexpressionEliminationPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "w = Data() : float32 [4]\n"
             "a1 = Abs(x)\n"
             "a2 = Abs(x)\n"
             "b1 = Add(a1, w)\n"
             "b2 = Add(a2, w)\n"
             "late = Neg(w) after (b2)\n"
             "return b1, b2, late\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "w = Data() : float32 [4]\n"
             "a1 = Abs(x)\n"
             "b1 = Add(a1, w)\n"
             "late = Neg(w) after (b1)\n"
             "return b1, b1, late\n");
}

TEST(Passes, GE_055_WhatDiffersStays) {
  ExpectNoPass("CommonSubexpressionEliminationPass",
               "graph g\n"
               "x = Data() : float32 [4, 1]\n"
               "w = Data() : float32 [4, 1]\n"
               "n = Const() : int64 [] = 4\n"
               "attribute1 = Muls(x) {value = 2}\n"
               "attribute2 = Muls(x) {value = 3}\n"
               "control1 = Abs(x)\n"
               "control2 = Abs(x) after (w)\n"
               "port1 = Sub(x, w)\n"
               "port2 = Sub(w, x)\n"
               "out1 = Neg(x) notes {no_need_constant_folding = true}\n"
               "out2 = Neg(x) notes {no_need_constant_folding = true}\n"
               "note1 = Relu(x) notes {_user_stream_label = \"a\"}\n"
               "note2 = Relu(x)\n"
               "random1 = Dropout(x)\n"
               "random2 = Dropout(x)\n"
               "state1 = AssignAdd(x, w)\n"
               "state2 = AssignAdd(x, w)\n"
               "fresh1 = Square(w)\n"
               "fresh2 = Square(w)\n"
               "written = Assign(fresh1, w)\n"
               "return attribute1, attribute2, control1, control2, port1, port2, out1, out2, note1, note2, random1, "
               "random2, state1, state2, fresh2, written\n");
}

TEST(Passes, EqualConstantsMerge) {
  for (const char* pass : {"RemoveSameConstPass", "ConstantFuseSamePass"}) {
    ExpectPass(pass,
               "graph g\n"
               "a = Const() : float32 [2] = 1, 2\n"
               "b = Const() : float32 [2] = 1, 2\n"
               "c = Const() : float32 [2, 1] = 1, 2\n"
               "d = Const() : float32 [2] = 1, 3\n"
               "e = Const() : int32 [2] = 1, 2\n"
               "return a, b, c, d, e\n",
               "graph g\n"
               "a = Const() : float32 [2] = 1, 2\n"
               "c = Const() : float32 [2, 1] = 1, 2\n"
               "d = Const() : float32 [2] = 1, 3\n"
               "e = Const() : int32 [2] = 1, 2\n"
               "return a, a, c, d, e\n");
  }
}

// ---- Constants ----

TEST(Passes, GE_050_ConstantsFold) {
  ExpectPass("ConstantFoldingPass",
             "graph g\n"
             "x = Data() : float32 [2]\n"
             "a = Const() after (x) : float32 [2] = 1, 2\n"
             "b = Const() : float32 [2] = 10, 20\n"
             "sum = Add(a, b) notes {_user_stream_label = \"s\"} after (x)\n"
             "twice = Add(sum, b)\n"
             "kept = Mul(sum, b) notes {_do_not_constant_folding = true}\n"
             "present = Sub(a, b) notes {no_need_constant_folding = false}\n"
             "late = Abs(x) after (sum)\n"
             "return twice, kept, present, late\n",
             "graph g\n"
             "x = Data() : float32 [2]\n"
             "a = Const() after (x) : float32 [2] = 1, 2\n"
             "b = Const() : float32 [2] = 10, 20\n"
             "sum_folded_0 = Const() notes {_is_from_constant_folding = true, _user_stream_label = \"s\"} after (x) : "
             "float32 [2] = 11, 22\n"
             "twice_folded_0 = Const() notes {_is_from_constant_folding = true} after (x) : float32 [2] = 21, 42\n"
             "kept = Mul(sum_folded_0, b) notes {_do_not_constant_folding = true}\n"
             "present = Sub(a, b) notes {no_need_constant_folding = false}\n"
             "late = Abs(x) after (sum_folded_0)\n"
             "return twice_folded_0, kept, present, late\n");
}

TEST(Passes, GE_050_ConstantsThatNobodyNeedsAnyMoreGo) {
  const PassRecord record = ExpectPass("ConstantFoldingPass",
                                       "graph g\n"
                                       "x = Data() : float32 [2, 2]\n"
                                       "a = Const() : float32 [2, 2] = 1, 2, 3, 4\n"
                                       "perm = Const() : int64 [2] = 1, 0\n"
                                       "t = Transpose(a, perm)\n"
                                       "product = MatMulV2(x, t)\n"
                                       "unknown = Mystery(a) : float32 [2]\n"
                                       "written = Abs(a)\n"
                                       "assigned = Assign(written, x)\n"
                                       "return product, assigned\n",
                                       "graph g\n"
                                       "x = Data() : float32 [2, 2]\n"
                                       "a = Const() : float32 [2, 2] = 1, 2, 3, 4\n"
                                       "t_folded_0 = Const() notes {_is_from_constant_folding = true} : float32 [2, 2] "
                                       "= 1, 3, 2, 4\n"
                                       "product = MatMulV2(x, t_folded_0)\n"
                                       "unknown = Mystery(a) : float32 [2]\n"
                                       "written = Abs(a)\n"
                                       "assigned = Assign(written, x)\n"
                                       "return product, assigned\n");
  ASSERT_EQ(record.refusals.size(), 1U);
  EXPECT_EQ(record.refusals[0], "node written (Abs): an output is written in place");
}

TEST(Passes, GE_051_SizesOfStaticShapesFold) {
  ExpectPass("DimensionComputePass",
             "graph g\n"
             "x = Data() : float32 [2, 3]\n"
             "open = Data() : float32 [?, 3]\n"
             "symbol = Data() : float32 [s0, 3]\n"
             "shape = Shape(x)\n"
             "wide = Shape(x) {dtype = 9} after (open)\n"
             "size = Size(x)\n"
             "rank = Rank(x)\n"
             "both = ShapeN(x, x) : y0 int32 [2], y1 int32 [2]\n"
             "open_shape = Shape(open)\n"
             "open_rank = Rank(open) : int32 []\n"
             "symbol_size = Size(symbol) : int32 []\n"
             "kept = Shape(x) notes {_do_not_constant_folding = true}\n"
             "late = Abs(open) after (shape)\n"
             "return late, shape, wide, size, rank, both:1, open_shape, open_rank, symbol_size, kept\n",
             "graph g\n"
             "x = Data() : float32 [2, 3]\n"
             "open = Data() : float32 [?, 3]\n"
             "symbol = Data() : float32 [s0, 3]\n"
             "shape_folded_0 = Const() notes {_is_from_constant_folding = true} : int32 [2] = 2, 3\n"
             "wide_folded_0 = Const() notes {_is_from_constant_folding = true} after (open) : int64 [2] = 2, 3\n"
             "size_folded_0 = Const() notes {_is_from_constant_folding = true} : int32 [] = 6\n"
             "rank_folded_0 = Const() notes {_is_from_constant_folding = true} : int32 [] = 2\n"
             "both_folded_1 = Const() notes {_is_from_constant_folding = true} : int32 [2] = 2, 3\n"
             "open_shape = Shape(open)\n"
             "open_rank = Rank(open) : int32 []\n"
             "symbol_size = Size(symbol) : int32 []\n"
             "kept = Shape(x) notes {_do_not_constant_folding = true}\n"
             "late = Abs(open) after (shape_folded_0, x)\n"
             "return late, shape_folded_0, wide_folded_0, size_folded_0, rank_folded_0, both_folded_1, open_shape, "
             "open_rank, symbol_size, kept\n");
}

constexpr const char* kFoldable =
    "graph g\n"
    "a = Const() : float32 [9] = 1 ...\n"
    "b = Const() : float32 [9] = 2 ...\n"
    "sum = Add(a, b)\n"
    "return sum, b\n";

TEST(Passes, GE_052_SwitchesKeepNodes) {
  const auto folds = [](const PassOptions& options) {
    const auto graph = testing::Read(kFoldable);
    EXPECT_TRUE(RunPasses(*graph, options, nullptr).ok());
    return graph->Find("sum") == kNoNode;
  };
  PassOptions options;
  EXPECT_TRUE(folds(options));
  options.disabled = {"ConstantFoldingPass"};
  EXPECT_FALSE(folds(options)) << "beats ge.oo.constantFolding, which is true";
  options.disabled = {"RemoveSameConstPass", "NoSuchPass"};
  EXPECT_TRUE(folds(options));
  options.folds_constants = false;
  EXPECT_FALSE(folds(options));
  options.switched["ConstantFoldingPass"] = true;
  EXPECT_TRUE(folds(options)) << "the switch by name comes last";
  options.folds_constants = true;
  options.switched["ConstantFoldingPass"] = false;
  EXPECT_FALSE(folds(options));
}

TEST(Passes, GE_053_MemoryPriorityKeepsLargeSharedConstants) {
  PassOptions options;
  options.prefers_memory = true;
  const PassRecord record = ExpectNoPass("ConstantFoldingPass", kFoldable, options);
  ASSERT_EQ(record.refusals.size(), 1U);
  EXPECT_EQ(record.refusals[0], "node sum (Add): memory comes first, and others use the constant b");
  ExpectPass("ConstantFoldingPass",
             "graph g\n"
             "a = Const() : float32 [8] = 1 ...\n"
             "sum = Add(a, a)\n"
             "return sum, a\n",
             "graph g\n"
             "a = Const() : float32 [8] = 1 ...\n"
             "sum_folded_0 = Const() notes {_is_from_constant_folding = true} : float32 [8] = 2 ...\n"
             "return sum_folded_0, a\n",
             options);
}

TEST(Passes, GE_054_EmptyOutputsBecomeConstants) {
  ExpectPass("ReplaceWithEmptyConstPass",
             "graph g\n"
             "x = Data() : float32 [0, 3]\n"
             "w = Data() : float32 [3, 2]\n"
             "product = MatMulV2(x, w) after (w)\n"
             "sent = HcomAllReduce(x) {reduction = \"sum\", group = \"g\"}\n"
             "stacked = StackPush(x) : float32 [0]\n"
             "called = PartitionedCall(x) calls (h) : float32 [0, 3]\n"
             "full = Abs(w)\n"
             "return product, sent, stacked, called, full\n"
             "graph h\n"
             "a = Data() : float32 [0, 3]\n"
             "return a\n",
             "graph g\n"
             "x = Data() : float32 [0, 3]\n"
             "w = Data() : float32 [3, 2]\n"
             "product_folded_0 = Const() notes {_is_from_constant_folding = true} after (w) : float32 [0, 2] =\n"
             "sent = HcomAllReduce(x) {reduction = \"sum\", group = \"g\"}\n"
             "stacked = StackPush(x) : float32 [0]\n"
             "called = PartitionedCall(x) calls (h) : float32 [0, 3]\n"
             "full = Abs(w)\n"
             "return product_folded_0, sent, stacked, called, full\n"
             "graph h\n"
             "a = Data() : float32 [0, 3]\n"
             "return a\n");
}

// ---- Branches ----

constexpr const char* kBranches =
    "\ngraph yes\n"
    "a = Data() : float32 [4]\n"
    "b = Abs(a)\n"
    "c = Neg(b) after (a)\n"
    "return c\n"
    "graph no\n"
    "a = Data() : float32 [4]\n"
    "return a\n";

std::string Branch(const std::string& choice, const std::string& type) {
  return "graph g\n"
         "x = Data() : float32 [4]\n" +
         choice + "\ntaken = " + type +
         "(choice, x) calls (yes, no) after (x) : float32 [4]\n"
         "late = Relu(x) after (taken)\n"
         "return taken, late" +
         kBranches;
}

TEST(Passes, GE_057_OnlyTheTakenBranchStays) {
  const std::string by_yes =
      "taken/b = Abs(x) after (x)\n"
      "taken/c = Neg(taken/b) after (x)\n"
      "late = Relu(x) after (taken/b, taken/c)\n"
      "return taken/c, late\n";
  const std::string by_no = "late = Relu(x)\nreturn x, late\n";
  struct Row {
    const char* type;
    const char* choice;
    bool is_yes;
  };
  for (const Row& row : std::vector<Row>{{"If", "choice = Const() : bool [] = true", true},
                                         {"If", "choice = Const() : int32 [] = 0", false},
                                         {"If", "choice = Const() : float32 [] = 0.5", true},
                                         {"If", "choice = Const() : int32 [2] = 0, 0", true},
                                         {"If", "choice = Const() : int32 [0] =", false},
                                         {"Case", "choice = Const() : int32 [] = 0", true},
                                         {"Case", "choice = Const() : int32 [] = 1", false},
                                         {"Case", "choice = Const() : int32 [] = -3", false},
                                         {"Case", "choice = Const() : int32 [] = 7", false}}) {
    const std::string before = Branch(row.choice, row.type);
    ExpectPass("DeadBranchPass", before,
               "graph g\nx = Data() : float32 [4]\n" + std::string(row.choice) + "\n" + (row.is_yes ? by_yes : by_no));
  }
  ExpectNoPass("DeadBranchPass", Branch("choice = Data() : bool []", "If"));
}

TEST(Passes, GE_057_WithTheSwitchOffBothRemain) {
  for (const bool is_on : {true, false}) {
    const auto graph = testing::Read(Branch("choice = Const() : bool [] = true", "If"));
    PassOptions options;
    options.drops_dead_code = is_on;
    ASSERT_TRUE(RunPasses(*graph, options, nullptr).ok());
    EXPECT_EQ(graph->Find("taken") == kNoNode, is_on);
  }
}

TEST(Passes, DeadSidesOfSwitchesGoUpToTheMerge) {
  ExpectPass("DeadBranchPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "p = Const() : bool [] = true\n"
             "s = Switch(x, p) : output_false float32 [4], output_true float32 [4]\n"
             "no = Abs(s:0)\n"
             "yes = Neg(s:1)\n"
             "m = Merge(no, yes) : y float32 [4], value_index int32 []\n"
             "return m, m:1\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "p = Const() : bool [] = true\n"
             "yes = Neg(x)\n"
             "m_value_index = Const() : int32 [] = 1\n"
             "return yes, m_value_index\n");
  const std::string unmerged =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "p = Const() : bool [] = true\n"
      "s = Switch(x, p) : output_false float32 [4], output_true float32 [4]\n"
      "no = Abs(s:0)\n"
      "return no, s:1\n";
  ExpectNoPass("DeadBranchPass", unmerged);
}

// ---- Casts ----

TEST(Passes, GE_058_CastsThatChangeNothingGo) {
  ExpectPass("CastRemovePass",
             "graph g\n"
             "x = Data() : float16 [4]\n"
             "same = Cast(x) {dst_type = float16}\n"
             "wide = Cast(x) {dst_type = float32}\n"
             "back = Cast(wide) {dst_type = float16}\n"
             "return same, back\n",
             "graph g\n"
             "x = Data() : float16 [4]\n"
             "return x, x\n");
  ExpectNoPass("CastRemovePass",
               "graph g\n"
               "x = Data() : float32 [4]\n"
               "n = Data() : int32 [4]\n"
               "half = Cast(x) {dst_type = float16}\n"
               "back = Cast(half) {dst_type = float32}\n"
               "real = Cast(n) {dst_type = float32}\n"
               "whole = Cast(real) {dst_type = int32}\n"
               "other = Cast(real) {dst_type = int64}\n"
               "return back, whole, other\n");
}

TEST(Passes, GE_058_CastsGoAroundWhatMovesElements) {
  ExpectPass("CastRemovePass",
             "graph g\n"
             "x = Data() : bfloat16 [2, 3]\n"
             "perm = Const() : int64 [2] = 1, 0\n"
             "wide = Cast(x) {dst_type = float32}\n"
             "t = Transpose(wide, perm)\n"
             "u = Unsqueeze(t) {axes = [0]}\n"
             "back = Cast(u) {dst_type = bfloat16}\n"
             "return back\n",
             "graph g\n"
             "x = Data() : bfloat16 [2, 3]\n"
             "perm = Const() : int64 [2] = 1, 0\n"
             "t = Transpose(x, perm)\n"
             "u = Unsqueeze(t) {axes = [0]}\n"
             "return u\n");
  ExpectNoPass("CastRemovePass",
               "graph g\n"
               "x = Data() : bfloat16 [2, 3]\n"
               "wide = Cast(x) {dst_type = float32}\n"
               "u = Unsqueeze(wide) {axes = [0]}\n"
               "back = Cast(u) {dst_type = bfloat16}\n"
               "return back, u\n");
}

// ---- Transposes ----

TEST(Passes, GE_059_TransposesThatMoveNothingGo) {
  ExpectPass("TransposeUnchangedPass",
             "graph g\n"
             "x = Data() : float32 [1, 1, 3]\n"
             "a = TransposeD(x) {perm = [1, 0, 2]}\n"
             "b = Permute(x) {order = [0, 1, 2]}\n"
             "c = TransposeD(x) {perm = [0, 2, 1]}\n"
             "return a, b, c\n",
             "graph g\n"
             "x = Data() : float32 [1, 1, 3]\n"
             "c = TransposeD(x) {perm = [0, 2, 1]}\n"
             "return x, x, c\n");
}

TEST(Passes, GE_059_TransposesOfUnitDimsBecomeShapeChanges) {
  ExpectPass("TransposeToSqueezePass",
             "graph g\n"
             "x = Data() : float32 [2, 1, 3]\n"
             "a = TransposeD(x) {perm = [1, 0, 2]}\n"
             "b = TransposeD(x) {perm = [2, 1, 0]}\n"
             "return a, b\n",
             "graph g\n"
             "x = Data() : float32 [2, 1, 3]\n"
             "a_squeeze = Squeeze(x = x) {axis = [1]}\n"
             "a_unsqueeze = Unsqueeze(x = a_squeeze) {axes = [0]}\n"
             "b = TransposeD(x) {perm = [2, 1, 0]}\n"
             "return a_unsqueeze, b\n");
}

TEST(Passes, GE_059_InverseTransposesCancel) {
  for (const char* pass : {"TransOpSymmetryEliminationPass", "TransOpWithoutReshapeFusionPass"}) {
    ExpectPass(pass,
               "graph g\n"
               "x = Data() : float32 [2, 3, 4]\n"
               "there = Const() : int64 [3] = 1, 2, 0\n"
               "back = Const() : int32 [3] = 2, 0, 1\n"
               "a = Transpose(x, there)\n"
               "b = Transpose(a, back)\n"
               "c = Abs(a)\n"
               "return b, c\n",
               "graph g\n"
               "x = Data() : float32 [2, 3, 4]\n"
               "there = Const() : int64 [3] = 1, 2, 0\n"
               "back = Const() : int32 [3] = 2, 0, 1\n"
               "a = Transpose(x, there)\n"
               "c = Abs(a)\n"
               "return x, c\n");
    ExpectPass(pass,
               "graph g\n"
               "x = Data() : float32 [1, 16, 4, 4] format 0\n"
               "a = TransData(x) {src_format = \"NCHW\", dst_format = \"NHWC\"}\n"
               "b = TransData(a) {src_format = \"NHWC\", dst_format = \"NCHW\"}\n"
               "return b\n",
               "graph g\n"
               "x = Data() : float32 [1, 16, 4, 4] format 0\n"
               "return x\n");
  }
}

TEST(Passes, ChainsOfTransposesBecomeOne) {
  const char* chain =
      "graph g\n"
      "x = Data() : float32 [2, 3, 4]\n"
      "a = TransposeD(x) {perm = [1, 2, 0]}\n"
      "b = TransposeD(a) {perm = [1, 2, 0]}\n"
      "c = TransposeD(b) {perm = [0, 2, 1]}\n"
      "return c\n";
  ExpectPass("TransOpWithoutReshapeFusionPass", chain,
             "graph g\n"
             "x = Data() : float32 [2, 3, 4]\n"
             "c_1 = TransposeD(x) {perm = [2, 1, 0]}\n"
             "return c_1\n");
  ExpectNoPass("TransOpSymmetryEliminationPass", chain);
}

// ---- Reshapes and the like ----

TEST(Passes, GE_060_ReshapesJoinAndAreMarked) {
  ExpectPass("ReshapeRemovePass",
             "graph g\n"
             "x = Data() : float32 [2, 6]\n"
             "s1 = Const() : int32 [2] = 3, 4\n"
             "s2 = Const() : int32 [2] = 4, -1\n"
             "a = Reshape(x, s1)\n"
             "b = Reshape(a, s2)\n"
             "c = Unsqueeze(x) {axes = [0]}\n"
             "return b, c\n",
             "graph g\n"
             "x = Data() : float32 [2, 6]\n"
             "s2 = Const() : int32 [2] = 4, -1\n"
             "b_shape = Const() : int64 [2] = 4, 3\n"
             "b = Reshape(x, b_shape) notes {_no_task = true}\n"
             "c = Unsqueeze(x) {axes = [0]} notes {_no_task = true}\n"
             "return b, c\n");
  ExpectPass("ReshapeIdlePass",
             "graph g\n"
             "x = Data() : float32 [2, s0]\n"
             "s = Const() : int32 [2] = 2, -1\n"
             "a = Reshape(x, s)\n"
             "return a\n",
             "graph g\n"
             "x = Data() : float32 [2, s0]\n"
             "s = Const() : int32 [2] = 2, -1\n"
             "return x\n");
}

TEST(Passes, GE_060_ReshapesStayWhereShapesAreRead) {
  ExpectNoPass("ReshapeRemovePass",
               "graph g\n"
               "x = Data() : float32 [2, 6]\n"
               "a = Unsqueeze(x) {axes = [0]}\n"
               "read = GatherShapes(a) {axes = [[0, 1]]} : int32 [1]\n"
               "b = Unsqueeze(x) {axes = [0]} after (a)\n"
               "into = Assign(b, x)\n"
               "called = PartitionedCall(x) calls (h) : float32 [12]\n"
               "return read, into, called\n"
               "graph h\n"
               "a = Data() : float32 [2, 6]\n"
               "b = FlattenV2(a) {axis = 0}\n"
               "return b\n");
  ExpectNoPass("ReshapeRemovePass",
               "graph g\n"
               "x = Data() : float32 [?, 6]\n"
               "a = Unsqueeze(x) {axes = [0]}\n"
               "return a\n");
}

TEST(Passes, ConstantAxesBecomeAttributes) {
  ExpectPass("DimensionAdjustPass",
             "graph g\n"
             "x = Data() : float32 [2, 6]\n"
             "axis = Const() : int32 [] = -1\n"
             "open = Data() : int32 []\n"
             "a = ExpandDims(x, axis) after (open)\n"
             "b = ExpandDims(x, open)\n"
             "return a, b\n",
             "graph g\n"
             "x = Data() : float32 [2, 6]\n"
             "axis = Const() : int32 [] = -1\n"
             "open = Data() : int32 []\n"
             "a_1 = Unsqueeze(x = x) {axes = [-1]} after (open)\n"
             "b = ExpandDims(x, open)\n"
             "return a_1, b\n");
}

TEST(Passes, MarkersDropoutsAndAssertsGo) {
  ExpectPass("MarkerPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "a = StopGradient(x) : float32 [4]\n"
             "b = Snapshot(a) : float32 [4]\n"
             "return b\n",
             "graph g\nx = Data() : float32 [4]\nreturn x\n");
  const char* dropout = "graph g\nx = Data() : float32 [4]\na = Dropout(x)\nreturn a\n";
  ExpectPass("DropoutPass", dropout, "graph g\nx = Data() : float32 [4]\nreturn x\n");
  const char* asserts =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "p = Data() : bool []\n"
      "check = Assert(p, x)\n"
      "a = Abs(x) after (check)\n"
      "text = Data() : string []\n"
      "print = PrintV2(text)\n"
      "return a after (check)\n";
  ExpectPass("AssertPass", asserts,
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "p = Data() : bool []\n"
             "a = Abs(x) after (p, x)\n"
             "text = Data() : string []\n"
             "print = PrintV2(text)\n"
             "return a after (p, x)\n");
  ExpectPass("PrintPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "text = StringFormat(x, x) {summarize = 2, template = \"a %s b %s\"}\n"
             "print = PrintV2(text) {output_stream = \"stdout\"} after (x)\n"
             "a = Abs(x)\n"
             "return a after (print)\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "print_1 = FormatAndPrint(x, x) {output_stream = \"stdout\", summarize = 2, template = \"a %s b %s\"} "
             "after (x)\n"
             "a = Abs(x)\n"
             "return a after (print_1)\n");
  ExpectNoPass("PrintPass", "graph g\ntext = Data() : string []\np = PrintV2(text)\nreturn text after (p)\n");
  PassOptions training;
  training.is_inference = false;
  ExpectNoPass("DropoutPass", dropout, training);
  ExpectNoPass("AssertPass", asserts, training);
}

TEST(Passes, ProductsWithOneGo) {
  const std::string head =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "h = Data() : float16 [4]\n"
      "one = Const() : float32 [] = 1\n"
      "ones = Const() : float32 [2, 4] = 1 ...\n"
      "zero = Const() : float32 [] = 0\n";
  ExpectPass("NeutralElementPass",
             head +
                 "a = Mul(x, one)\n"
                 "b = Mul(one, a)\n"
                 "c = RealDiv(b, one)\n"
                 "d = Sub(c, zero)\n"
                 "e = Muls(d) {value = 1.0}\n"
                 "y = Abs(e)\n"
                 "return y, h, ones, zero\n",
             head + "y = Abs(x)\nreturn y, h, ones, zero\n");
  // Others are not what they get: another shape, the reciprocal, the sign of 0.
  ExpectNoPass("NeutralElementPass", head +
                                         "a = Mul(x, ones)\n"
                                         "c = RealDiv(one, x)\n"
                                         "d = Add(x, zero)\n"
                                         "e = Sub(zero, x)\n"
                                         "f = Muls(x) {value = 2.0}\n"
                                         "return a, c, d, e, f, h\n");
  const PassRecord record = ExpectNoPass("NeutralElementPass", head +
                                                                   "a = Mul(x, one)\n"
                                                                   "s = AssignAdd(x, x)\n"
                                                                   "return a, h\n");
  EXPECT_EQ(record.refusals.size(), 1U);
}

TEST(Passes, SumsOfOneAndUselessOrderGo) {
  ExpectPass("AddNPass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "a = AddN(x) {N = 1}\n"
             "b = AddN(x, a) {N = 2}\n"
             "return b\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "b = AddN(x, x) {N = 2}\n"
             "return b\n");
  ExpectPass("UselessControlEdgePass",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "a = Abs(x) after (x)\n"
             "b = Neg(x)\n"
             "c = Relu(a) after (a, b)\n"
             "return c\n",
             "graph g\n"
             "x = Data() : float32 [4]\n"
             "a = Abs(x)\n"
             "b = Neg(x)\n"
             "c = Relu(a) after (b)\n"
             "return c\n");
}

// ---- Copies that must stay ----

TEST(Passes, CopiesOfWhatIsWrittenStay) {
  const char* graph =
      "graph g\n"
      "x = Data() : float32 [4]\n"
      "w = Data() : float32 [4]\n"
      "old = Identity(x)\n"
      "target = Identity(w)\n"
      "first = Assign(x, w) after (old)\n"
      "second = Assign(target, x)\n"
      "return old, first, second\n";
  const PassRecord record = ExpectNoPass("IdentityPass", graph);
  EXPECT_EQ(record.matched, 2U);
}

}  // namespace
}  // namespace reprise::compiler
