// SPDX-License-Identifier: Apache-2.0
//
// Memory and streams of compiled graphs, item by item.
#include <cmath>

#include "compiler/storage.h"
#include "compiler_run_fixture.h"

namespace reprise::compiler {
namespace {

using Floats = std::vector<float>;

class CompilerMemory : public CompilerRun {};

constexpr const char* kTwoChains =
    "graph g\nx = Data() : float32 [256]\n"
    "a = Abs(x) notes {_user_stream_label = \"left\"}\n"
    "ap = Abs(a) notes {_user_stream_label = \"left\"}\n"
    "aq = Mul(ap, a) notes {_user_stream_label = \"left\"}\n"
    "b = Neg(x) notes {_user_stream_label = \"right\"}\n"
    "bp = Abs(b) notes {_user_stream_label = \"right\"}\n"
    "bq = Mul(bp, b) notes {_user_stream_label = \"right\"}\n"
    "c = Add(aq, bq)\nreturn c\n";

// The plan of a text, without passes.
struct Planned {
  Lowered lowered;
  MemoryNeeds needs;
};
StatusOr<Planned> PlanOf(const std::string& text, bool reuses = true) {
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph, FromText(text));
  opdef::Facts facts;
  REPRISE_RETURN_IF_ERROR(InferShapes(*graph, facts));
  REPRISE_ASSIGN_OR_RETURN(Lowered lowered, Lower(*graph, false));
  CompileOptions options;
  options.reuses_memory = reuses;
  REPRISE_ASSIGN_OR_RETURN(const MemoryNeeds needs, PlanMemory(lowered, options));
  return Planned{std::move(lowered), needs};
}

std::vector<StorageId> FeaturesOf(const Planned& planned) {
  std::vector<StorageId> features;
  for (StorageId id = 0; id < planned.lowered.storages.size(); ++id) {
    if (planned.lowered.storages[id].kind == Storage::Kind::kFeature) features.push_back(id);
  }
  return features;
}

TEST_F(CompilerMemory, GE_071_WrongPlansAreFound) {
  for (const std::string& text :
       {std::string("graph g\nx = Data() : float32 [8, 8]\na = TransposeD(x) {perm = [1, 0]}\n"
                    "b = TransposeD(a) {perm = [1, 0]}\nc = Add(a, b)\nreturn c\n"),
        std::string(kTwoChains)}) {
    auto planned = PlanOf(text);
    ASSERT_TRUE(planned.ok());
    EXPECT_OK(ValidateMemory(planned->lowered, planned->needs));
    // All features at one place.
    Planned wrong = std::move(planned).value();
    for (const StorageId id : FeaturesOf(wrong)) wrong.lowered.storages[id].offset = 0;
    Status status = ValidateMemory(wrong.lowered, wrong.needs);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), 500000);
    EXPECT_NE(status.detail().what.find("share bytes at 0"), std::string::npos) << status.detail().what;
    // Out of the region; not at a multiple of 512.
    for (const uint64_t offset : {wrong.needs.features, uint64_t{4}}) {
      wrong.lowered.storages[FeaturesOf(wrong)[0]].offset = offset;
      EXPECT_FALSE(ValidateMemory(wrong.lowered, wrong.needs).ok()) << offset;
    }
  }
}

// A product of 8 rows with the numbers of a 40 x 32 weight as they lie in `rows`, by hand.
Floats ProductOf(const Floats& x, const Floats& weight, bool transposed) {
  Floats product(8 * 32, 0.0f);
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 32; ++j) {
      for (size_t k = 0; k < 40; ++k)
        product[i * 32 + j] += x[i * 40 + k] * weight[transposed ? j * 40 + k : k * 32 + j];
    }
  }
  return product;
}

TEST_F(CompilerMemory, WeightsOfProductsAreThereOnceInTheFormThatKernelsRead) {
  Floats weight(32 * 40);
  Floats x(8 * 40);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 7) - 3;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 2;
  constexpr uint64_t kForm = 40 * 32 * 4;  // as many columns as whole panels have
  for (const bool transposed : {true, false}) {
    std::string numbers;
    for (const float value : weight) numbers += (numbers.empty() ? "" : ", ") + std::to_string(static_cast<int>(value));
    const std::string shape = transposed ? "[32, 40]" : "[40, 32]";
    const std::string flag = transposed ? "true" : "false";
    const std::string graph = "graph g\nx = Data() : float32 [8, 40]\nw = Const() : float32 " + shape + " = " +
                              numbers + "\na = MatMulV2(x1 = x, x2 = w) {transpose_x2 = " + flag + "}\n" +
                              "b = Neg(x)\nc = MatMulV2(x1 = b, x2 = w) {transpose_x2 = " + flag + "}\n";
    EXPECT_OK(Compile(graph + "return a, c\n"));
    EXPECT_EQ(executable_->needs().constants, kForm) << "one form for both, nothing else";
    const Floats expected = ProductOf(x, weight, transposed);
    const auto out = Run({In(x, {8, 40})});
    EXPECT_EQ(Values(out[0]), expected);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(Values(out[1])[i], -expected[i]);

    EXPECT_OK(Compile(graph + "d = Abs(w)\nd2 = Neg(d)\nreturn a, c, d2\n", [] {
      CompileOptions options;
      options.passes.folds_constants = false;
      return options;
    }()));
    EXPECT_EQ(executable_->needs().constants, kForm + weight.size() * 4) << "others read the weight";
    EXPECT_EQ(Values(Run({In(x, {8, 40})})[0]), expected);
  }
}

// Few rows read a weight as it is; a weight that is an input may change.
TEST_F(CompilerMemory, WeightsThatAreNoConstantsOrForFewRowsStayAsTheyAre) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [8, 2]\nw = Data() : float32 [2, 16]\ny = MatMulV2(x1 = x, x2 = w)\n"
              "return y\n"));
  Floats rows(32, 1.0f);
  const RunTensor w = In(rows, {2, 16});
  const RunTensor x = In(Floats(16, 1.0f), {8, 2});
  EXPECT_EQ(Values(Run({x, w})[0]), Floats(128, 2.0f));
  static_cast<float*>(w.data)[0] = 5;
  EXPECT_EQ(Values(Run({x, w})[0])[0], 6.0f);

  std::string numbers = "1";
  for (int i = 1; i < 32; ++i) numbers += ", 1";
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [2, 2]\nw = Const() : float32 [2, 16] = " + numbers +
                    "\ny = MatMulV2(x1 = x, x2 = w)\nreturn y\n"));
  EXPECT_EQ(executable_->needs().constants, 512U);
  EXPECT_EQ(Values(Run({In({1, 2, 3, 4}, {2, 2})})[0])[16], 7.0f);
}

// Heads out of a tensor of all of them, ways to say so, and how many tasks are left.
struct Heads {
  const char* nodes;  // make q, k and v of x
  size_t tasks;       // of them; 0: attention reads them where x lies
};

TEST_F(CompilerMemory, AttentionReadsHeadsWhereTheyLie) {
  constexpr const char* kSource = "graph g\nx = Data() : float32 [2, 6, 96]\nh = Abs(x)\n";
  constexpr const char* kAttention =
      "y = PromptFlashAttention(query = q, key = k, value = v) {input_layout = \"BNSD\", num_heads = 4, "
      "num_key_value_heads = 4, scale_value = 0.3}\n";
  constexpr const char* kCut =
      "n = Const() : int64 [3] = 32, 32, 32\ndim = Const() : int64 [1] = 2\nparts = SplitV(x = h, size_splits = n, "
      "split_dim = dim) {num_split = 3} : y0 float32 [2, 6, 32], y1 float32 [2, 6, 32], y2 float32 [2, 6, 32]\n"
      "s = Const() : int64 [4] = 2, 6, 4, 8\np = Const() : int64 [4] = 0, 2, 1, 3\n"
      "q4 = Reshape(x = parts:0, shape = s)\nk4 = Reshape(x = parts:1, shape = s)\n"
      "v4 = Reshape(x = parts:2, shape = s)\nq = Transpose(x = q4, perm = p)\n";
  const Heads cases[] = {
      {"s = Const() : int64 [5] = 2, 6, 3, 4, 8\np = Const() : int64 [5] = 2, 0, 3, 1, 4\n"
       "r = Reshape(x = h, shape = s)\nt = Transpose(x = r, perm = p)\nu = Unpack(x = t) {num = 3} : y0 float32 "
       "[2, 4, 6, 8], y1 float32 [2, 4, 6, 8], y2 float32 [2, 4, 6, 8]\n"
       "q = Reshape(x = u:0, shape = s4)\nk = Reshape(x = u:1, shape = s4)\nv = Reshape(x = u:2, shape = s4)\n",
       0},
      {"k = TransposeD(x = k4) {perm = [0, 2, 1, 3]}\nv = Permute(x = v4) {order = [0, -2, 1, 3]}\n", 0},
      // Keys and values of some tokens only.
      {"b = Const() : int64 [1] = 1\ne = Const() : int64 [1] = 5\naxis = Const() : int64 [1] = 1\n"
       "kt = StridedSliceV2(x = k4, begin = b, end = e, axes = axis)\nk = Transpose(x = kt, perm = p)\n"
       "vt = StridedSliceV2(x = v4, begin = b, end = e, axes = axis)\nv = Transpose(x = vt, perm = p)\n",
       0},
      // Elements of a head that do not lie back to back: keys are copied, and what stands in front of them.
      {"last = Const() : int64 [4] = 0, 1, 3, 2\ns8 = Const() : int64 [4] = 2, 6, 8, 4\n"
       "k8 = Reshape(x = parts:1, shape = s8)\nkt = Transpose(x = k8, perm = last)\nk = Transpose(x = kt, perm = p)\n"
       "v = Transpose(x = v4, perm = p)\n",
       3},
      // Heads and tokens as one dim: two strides.
      {"flat = Const() : int64 [3] = 2, 24, 8\nkt = Transpose(x = k4, perm = p)\nkf = Reshape(x = kt, shape = flat)\n"
       "k = Reshape(x = kf, shape = s4)\nv = Transpose(x = v4, perm = p)\n",
       2},
      // Another reader wants rows that lie back to back.
      {"k = Transpose(x = k4, perm = p)\nz = Neg(k)\nv = Transpose(x = v4, perm = p)\n", 3},
  };
  for (const Heads& each : cases) {
    const std::string nodes = each.nodes;
    const bool is_cut = nodes.find("Unpack") == std::string::npos;
    std::string text = std::string(kSource) + "s4 = Const() : int64 [4] = 2, 4, 6, 8\n" + (is_cut ? kCut : "") + nodes +
                       kAttention + "return y" + (nodes.find("z = ") == std::string::npos ? "" : ", z");
    SCOPED_TRACE(text);
    auto planned = PlanOf(text + "\n");
    ASSERT_TRUE(planned.ok()) << std::move(planned).status().detail().what;
    EXPECT_OK(ValidateMemory(planned->lowered, planned->needs));
    EXPECT_EQ(planned->lowered.tasks.size(), each.tasks + 2) << "beside Abs and attention";
    Floats x(2 * 6 * 96);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 37) % 101) / 50 - 1;
    CompileOptions options;
    options.passes.level = Level::kO0;
    EXPECT_OK(Compile(text + "\n", options));
    const Floats found = Values(Run({In(x, {2, 6, 96})})[0]);
    // Results are copies, so that nothing is read where it lies.
    EXPECT_OK(Compile(text + ", q, k, v\n", options));
    EXPECT_EQ(found, Values(Run({In(x, {2, 6, 96})})[0]));
  }
}

// What somebody writes is copied first.
TEST_F(CompilerMemory, HeadsThatAreWrittenAreCopied) {
  const auto text = [](bool writes) {
    return std::string("graph g\nx = Data() : float32 [2, 6, 4, 8]\nn = Data() : float32 [2, 6, 4, 8]\n") +
           "h = Abs(x)\np = Const() : int64 [4] = 0, 2, 1, 3\n" + "q = Transpose(x = h, perm = p)\n" +
           "y = PromptFlashAttention(query = q, key = q, value = q) {input_layout = \"BNSD\", num_heads = 4, "
           "num_key_value_heads = 4}\n" +
           (writes ? "w = AssignAdd(h, n)\nreturn y, w\n" : "return y, n\n");
  };
  auto read = PlanOf(text(false));
  ASSERT_TRUE(read.ok()) << std::move(read).status().detail().what;
  auto written = PlanOf(text(true));
  ASSERT_TRUE(written.ok()) << std::move(written).status().detail().what;
  EXPECT_EQ(read->lowered.tasks.size(), 3U) << "Abs, attention, the copy to a result";
  EXPECT_GE(written->lowered.tasks.size(), 4U) << "Abs, Transpose, attention, AssignAdd";
}

// Rows of tables and of small networks, joined: gathers are one task, which reads columns of indices where they lie,
// and everything is written where the joined tensor will be.
TEST_F(CompilerMemory, JoinedRowsAreWrittenInPlace) {
  constexpr const char* kHead =
      "graph g\nx = Data() : float32 [3, 5]\ni = Data() : int64 [3, 2]\nt = Data() : float32 [7, 4]\n"
      "u = Data() : float32 [4, 2, 3]\nzero = Const() : int64 [1] = 0\none = Const() : int64 [1] = 1\n"
      "two = Const() : int64 [1] = 2\nn = Const() : int64 [1] = 3\n";
  constexpr const char* kFirst =
      "a = StridedSliceV2(x = i, begin = zero, end = one, axes = one)\nai = Reshape(x = a, shape = n)\n";
  constexpr const char* kSecond =
      "b = StridedSliceV2(x = i, begin = one, end = two, axes = one)\nbi = Reshape(x = b, shape = n)\n";
  struct Joined {
    const char* nodes;
    size_t tasks;
  };
  const Joined cases[] = {
      {"r = Relu(x)\ng = GatherV2(x = t, indices = ai, axis = zero)\nh = GatherV2(x = t, indices = bi, axis = zero)\n"
       "y = ConcatD(g, r, h) {N = 3, concat_dim = 1}\nreturn y",
       2},
      {"r = Relu(x)\ng = IndexByTensor(indices0 = ai, x = t) {indices_mask = [1]}\n"
       "h = IndexByTensor(indices0 = bi, x = t) {indices_mask = [1]}\ny = ConcatD(g, r, h) {N = 3, concat_dim = 1}\n"
       "return y",
       4},
      // Rows of two dims, seen as one; a product.
      {"m = MatMulV2(x1 = x, x2 = x) {transpose_x2 = true}\nh = GatherV2(x = u, indices = bi, axis = zero)\n"
       "s = Const() : int64 [2] = 3, 6\nf = Reshape(x = h, shape = s)\ny = ConcatV2(x0 = f, x1 = m, concat_dim = one) "
       "{N = 2}\nreturn y",
       2},
      // Halves of heads: three dims, the last of which is joined.
      {"h = GatherV2(x = u, indices = bi, axis = zero)\ng = Tanh(h)\nk = Sigmoid(h)\n"
       "y = ConcatD(g, k) {N = 2, concat_dim = -1}\nreturn y",
       3},
      // Parts that somebody else reads, and such whose operators write rows that lie back to back: a copy.
      {"g = GatherV2(x = t, indices = ai, axis = zero)\nh = GatherV2(x = t, indices = bi, axis = zero)\n"
       "y = ConcatD(g, h) {N = 2, concat_dim = 1}\nz = Neg(h)\nreturn y, z",
       3},
      {"g = GatherV2(x = t, indices = ai, axis = zero)\nh = Cumsum(x = x, axis = one)\n"
       "y = ConcatD(g, h) {N = 2, concat_dim = 1}\nreturn y",
       3},
      // Indices that were gathered themselves, from a column that is copied; a table that somebody writes in between.
      {"g = GatherV2(x = t, indices = ai, axis = zero)\nj = GatherV2(x = bi, indices = ai, axis = zero)\n"
       "h = GatherV2(x = t, indices = j, axis = zero)\ny = ConcatD(g, h) {N = 2, concat_dim = 1}\nreturn y",
       3},
      {"v = Abs(t)\ng = GatherV2(x = v, indices = ai, axis = zero)\nw = AssignAdd(v, t) after (g)\n"
       "h = GatherV2(x = w, indices = bi, axis = zero)\ny = ConcatD(g, h) {N = 2, concat_dim = 1}\nreturn y, w",
       5},
  };
  for (const Joined& each : cases) {
    const std::string nodes = each.nodes;
    const std::string text = std::string(kHead) + (nodes.find("ai,") != std::string::npos ? kFirst : "") +
                             (nodes.find("bi,") != std::string::npos ? kSecond : "") + nodes;
    SCOPED_TRACE(text);
    CompileOptions options;
    options.passes.level = Level::kO0;
    auto planned = PlanOf(text + "\n");
    ASSERT_TRUE(planned.ok()) << std::move(planned).status().detail().what;
    EXPECT_OK(ValidateMemory(planned->lowered, planned->needs));
    EXPECT_EQ(planned->lowered.tasks.size(), each.tasks);
    Floats x(15), t(28), u(24);
    for (size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k) - 7;
    for (size_t k = 0; k < t.size(); ++k) t[k] = static_cast<float>(k) + 100;
    for (size_t k = 0; k < u.size(); ++k) u[k] = static_cast<float>(k) / 16 - 1;
    const std::vector<RunTensor> inputs = {In(x, {3, 5}), In(std::vector<int64_t>{2, 1, 0, 2, 1, 0}, {3, 2}, kInt64),
                                           In(t, {7, 4}), In(u, {4, 2, 3})};
    EXPECT_OK(Compile(text + "\n", options));
    const Floats found = Values(Run(inputs)[0]);
    EXPECT_EQ(found, Values(Run(inputs)[0])) << "also in another run, whose results lie elsewhere";
    // Parts that are results are computed elsewhere, and copied.
    std::string parts;
    for (const char* const name : {"r", "g", "h", "m", "k", "j"}) {
      if (text.find(std::string("\n") + name + " = ") != std::string::npos) parts += std::string(", ") + name;
    }
    EXPECT_OK(Compile(text + parts + "\n", options));
    EXPECT_EQ(found, Values(Run(inputs)[0]));
  }
}

TEST_F(CompilerMemory, GE_072_AChainNeedsTwoBlocksAtMost) {
  std::string text = "graph g\nx = Data() : float32 [512]\nn0 = Abs(x)\n";
  for (int i = 0; i < 20; ++i) text += "n" + std::to_string(i + 1) + " = Add(n" + std::to_string(i) + ", x)\n";
  text += "return n20\n";
  CompileOptions options;
  EXPECT_OK(Compile(text, options));
  EXPECT_LE(executable_->needs().features, 2 * 2048U);
  options.reuses_memory = false;
  EXPECT_OK(Compile(text, options));
  EXPECT_EQ(executable_->needs().features, 20 * 2048U);
}

TEST_F(CompilerMemory, GE_073_StreamsShareNoBlockWithoutAnEvent) {
  auto planned = PlanOf(kTwoChains);
  ASSERT_TRUE(planned.ok());
  const Lowered& lowered = planned->lowered;
  for (const StorageId a : FeaturesOf(*planned)) {
    for (const StorageId b : FeaturesOf(*planned)) {
      const Storage& one = lowered.storages[a];
      const Storage& other = lowered.storages[b];
      ASSERT_FALSE(one.touches.empty());
      const bool are_apart = one.touches[0].stream != other.touches[0].stream;
      EXPECT_TRUE(!are_apart || one.offset != other.offset);
    }
  }
  // With an event between the streams the second one takes over what the first has left.
  auto ordered = PlanOf(
      "graph g\nx = Data() : float32 [16, 16]\n"
      "a = TransposeD(x) {perm = [1, 0]} notes {_stream_label = \"l\"}\n"
      "b = TransposeD(a) {perm = [1, 0]} notes {_stream_label = \"l\"}\n"
      "c = TransposeD(b) {perm = [1, 0]} notes {_stream_label = \"r\"}\n"
      "d = TransposeD(c) {perm = [1, 0]} notes {_stream_label = \"r\"}\nreturn d\n");
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(ordered->needs.features, 2 * 1024U) << "c lies where a was";
}

TEST_F(CompilerMemory, GE_074_PlacesAreMultiplesOf512AndInputsAreNoFeatures) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [1000]\nw = Const() : float32 [3] = 1, 2, 3\n"
              "k = Const() : float32 [1000] = 2 ...\na = Mul(x, k)\ns = Const() : int64 [1] = 0\n"
              "t = ReduceSum(a, s) {keep_dims = true}\nu = Mul(w, t)\nreturn u, a\n"));
  EXPECT_EQ(executable_->needs().constants % 512, 0U);
  EXPECT_EQ(executable_->needs().features % 512, 0U);
  EXPECT_LE(executable_->needs().features, 8192U) << "neither the input nor the result of 4000 bytes";
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [1000]\na = Neg(x)\nreturn a\n"));
  EXPECT_EQ(executable_->needs().features, 0U);
}

// Whatever features and outputs held before: sums begin with zero.
TEST_F(CompilerMemory, GE_076_OperatorsThatAddBeginWithZero) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [64, 48]\nw = Data() : float32 [48, 40]\n"
              "p = MatMulV2(x1 = x, x2 = w)\na = Const() : int64 [1] = 0\n"
              "s = ReduceSum(p, a) {keep_dims = false}\nc = Cumsum(p, a)\n"
              "r = ReduceMean(c, a) {keep_dims = true}\nreturn s, r\n"));
  ASSERT_GT(executable_->needs().features, 0U);
  void* const features = Block(executable_->needs().features);
  EXPECT_OK(executable_->SetFeatures(features, executable_->needs().features));
  std::vector<Floats> expected;
  for (const int fill : {0, 0xFF, 0x7F}) {
    std::memset(features, fill, executable_->needs().features);
    std::vector<RunTensor> outputs(2);
    for (RunTensor& output : outputs) {
      output.bytes = 64 * 48 * 4;
      output.data = Block(output.bytes);
      std::memset(output.data, fill, output.bytes);
    }
    EXPECT_OK(Queue({In(Floats(64 * 48, 0.5F), {64, 48}), In(Floats(48 * 40, 0.25F), {48, 40})}, outputs));
    ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    EXPECT_EQ(Values(outputs[0])[0], 64 * 48 * 0.125F);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (fill == 0) expected.push_back(Values(outputs[i]));
      EXPECT_EQ(Values(outputs[i]), expected[i]) << i;
    }
  }
}

TEST_F(CompilerMemory, GE_080_EachLabelIsAStream) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [4]\n"
              "a = Abs(x) notes {_user_stream_label = \"one\", _user_stream_priority = \"3\"}\n"
              "b = Neg(x) notes {_user_stream_label = \"two\", _stream_label = \"other\"}\n"
              "c = Neg(a) notes {_user_stream_label = \"one\"}\n"
              "d = Add(b, c) notes {_stream_label = \"three\"}\nreturn d\n"));
  const auto streams = executable_->logical_streams();
  ASSERT_EQ(streams.size(), 4U);
  std::vector<std::string> labels;
  for (const LogicalStream& stream : streams) labels.push_back(stream.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"", "one", "two", "three"}));
  EXPECT_EQ(streams[1].nodes.size(), 2U);
  EXPECT_EQ(streams[1].priority, "3");
  EXPECT_EQ(streams[2].priority, "");
}

TEST_F(CompilerMemory, GE_081_OneStreamWithoutLabels) {
  CompileOptions options;
  options.has_single_stream = true;
  EXPECT_OK(Compile("graph g\nx = Data() : float32 [4]\na = Abs(x)\nb = Neg(x)\nc = Add(a, b)\nreturn c\n", options));
  EXPECT_EQ(executable_->streams(), 1U);
  EXPECT_EQ(executable_->events(), 0U);
  const Status status = Compile(kTwoChains, options);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.detail().what.find("left"), std::string::npos) << status.detail().what;
}

TEST_F(CompilerMemory, GE_082_EventsStandWhereStreamsMeetAndNowhereElse) {
  auto planned = PlanOf(kTwoChains);
  ASSERT_TRUE(planned.ok());
  const TaskOrder& order = planned->lowered.order;
  EXPECT_EQ(order.events(), 2U) << "one from each label to the last node";
  const auto last = order.size() - 1;
  for (uint32_t task = 0; task < last; ++task) EXPECT_TRUE(order.IsBefore(task, last)) << task;
  for (uint32_t a = 0; a < last; ++a) {
    for (uint32_t b = 0; b < last; ++b) {
      EXPECT_TRUE(order.stream_of(a) == order.stream_of(b) || !order.IsBefore(a, b));
    }
  }
  EXPECT_OK(Compile(kTwoChains));
  for (int again = 0; again < 50; ++again) {
    EXPECT_EQ(Values(Run({In(Floats(256, -3), {256})})[0]), Floats(256, 9 + 9));
  }
}

// A result that is memory which others write is read when all have written it, on whichever stream.
TEST_F(CompilerMemory, GE_082_ResultsAreReadBehindAllWriters) {
  auto planned = PlanOf(
      "graph g\nx = Data() : float32 [4]\nt = Data() : float32 [4]\n"
      "a = AssignAdd(ref = t, value = x) notes {_stream_label = \"one\"}\n"
      "b = AssignAdd(ref = a, value = x) notes {_stream_label = \"two\"}\nreturn a\n");
  ASSERT_TRUE(planned.ok());
  const TaskOrder& order = planned->lowered.order;
  ASSERT_EQ(order.size(), 3U);
  EXPECT_TRUE(order.IsBefore(1, 2)) << "the copy of a waits for b";
}

// Pieces and other shapes of a tensor are copies where somebody writes one of the two.
TEST_F(CompilerMemory, GE_075_PiecesOfWrittenMemoryAreCopies) {
  EXPECT_OK(
      Compile("graph g\nv = Data() : float32 [4]\nx = Data() : float32 [4]\n"
              "z = Const() : int64 [2] = 2, 2\nd = Const() : int64 [1] = 0\n"
              "s = SplitV(v, z, d) {num_split = 2} : y0 float32 [2], y1 float32 [2]\n"
              "a = AssignAdd(ref = v, value = x)\ny = Abs(s:1)\nreturn s:0, y\n"));
  const RunTensor v = In({1, 2, 3, 4}, {4});
  const auto out = Run({v, In({10, 10, 10, 10}, {4})});
  EXPECT_EQ(Values(out[0]), (Floats{1, 2}));
  EXPECT_EQ(Values(out[1]), (Floats{3, 4}));
  EXPECT_EQ(Values(v), (Floats{11, 12, 13, 14}));
  EXPECT_OK(
      Compile("graph g\nv = Data() : float32 [4]\nx = Data() : float32 [2, 2]\n"
              "n = Const() : int64 [2] = 2, 2\nr = Reshape(v, n)\na = AssignAdd(ref = r, value = x)\nreturn a\n"));
  const RunTensor w = In({1, 2, 3, 4}, {4});
  EXPECT_EQ(Values(Run({w, In({10, 10, 10, 10}, {2, 2})})[0]), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(Values(w), (Floats{1, 2, 3, 4}));
}

// A block that lies back to back is the memory of its source, whose other readers see nothing of it.
TEST_F(CompilerMemory, BlocksAreNoCopies) {
  const auto expect = [&](const std::string& slice, const Floats& block) {
    EXPECT_OK(
        Compile("graph g\nx = Data() : float32 [1, 4, 2]\nb = Const() : int64 [1] = 1\nn = Const() : int64 [1] = -1\n"
                "e = Const() : int64 [1] = 3\no = Const() : int64 [1] = 1\nt = Const() : int64 [1] = 2\n"
                "a = Neg(x)\ns = StridedSliceV2(" +
                slice + "\nr = Relu(s)\nw = Abs(a)\nreturn r, w, s\n"));
    const auto out = Run({In({1, -2, 3, -4, 5, -6, 7, -8}, {1, 4, 2})});
    Floats positive = block;
    for (float& value : positive) value = std::max(value, 0.0F);
    EXPECT_EQ(Values(out[0]), positive) << slice;
    EXPECT_EQ(Values(out[1]), (Floats{1, 2, 3, 4, 5, 6, 7, 8})) << slice;
    EXPECT_EQ(Values(out[2]), block) << slice;
  };
  expect("a, b, e, o, o)", {-3, 4, -5, 6});
  expect("a, n, e, n, o) {end_mask = 1}", {2, 4, 6, 8});  // the last column, which does not lie back to back
  expect("a, n, e, o) {end_mask = 1}", {-7, 8});          // the last row
  expect("a, b, e, o, t)", {-3, 4});                      // every other row
}

// Blocks that are views run nothing, those that do not lie back to back are one copy each.
TEST_F(CompilerMemory, BlocksRunNothing) {
  const auto tasks = [&](const std::string& slice) {
    auto planned = PlanOf(
        "graph g\nx = Data() : float32 [1, 4, 2]\nb = Const() : int64 [1] = 1\nn = Const() : int64 [1] = -1\n"
        "e = Const() : int64 [1] = 3\no = Const() : int64 [1] = 1\nt = Const() : int64 [1] = 2\n"
        "f = Const() : int64 [1] = 4\n"
        "a = Neg(x)\ns = StridedSliceV2(x = a, " +
        slice + "\nr = Relu(s)\nreturn r\n");
    EXPECT_TRUE(planned.ok()) << slice;
    return planned.ok() ? planned->lowered.tasks.size() : 0;
  };
  EXPECT_EQ(tasks("begin = b, end = e, axes = o, strides = o)"), 2U) << "the negation and what reads the block";
  EXPECT_EQ(tasks("begin = n, end = f, axes = o, strides = o)"), 2U) << "the last row";
  EXPECT_EQ(tasks("begin = o, end = t, axes = t, strides = o)"), 3U) << "the last column";
}

// The matrices of a batch times one matrix are rows of one product; those times one each are a batch of products.
TEST_F(CompilerMemory, ABatchTimesOneMatrixIsOneProduct) {
  const auto rank = [&](const std::string& weight) {
    auto planned = PlanOf("graph g\nx = Data() : float32 [6, 4, 8]\nw = Data() : float32 " + weight +
                          "\ny = BatchMatMulV2(x, w)\nreturn y\n");
    EXPECT_TRUE(planned.ok()) << weight;
    if (!planned.ok()) return 0;
    EXPECT_EQ(planned->lowered.tasks.size(), 1U) << weight;
    const ops::Launch& launch = *planned->lowered.tasks[0].launch;
    EXPECT_EQ(kernels::ElementCount(launch.refs[0]), 6 * 4 * 5) << weight;
    return static_cast<int>(launch.refs[0].rank);
  };
  EXPECT_EQ(rank("[8, 5]"), 2);
  EXPECT_EQ(rank("[1, 8, 5]"), 2);
  EXPECT_EQ(rank("[6, 8, 5]"), 3);
}

TEST_F(CompilerMemory, StatisticsOfRowsWithoutElements) {
  EXPECT_OK(
      Compile("graph g\nx = Data() : float32 [2, 0]\ng = Data() : float32 [0]\nn = Const() : int64 [1] = 0\n"
              "r = RmsNorm(x, g) : y float32 [2, 0], rstd float32 [2, 1]\n"
              "l = LayerNormV4(x, n, g, g) : y float32 [2, 0], mean float32 [2, 1], rstd float32 [2, 1]\n"
              "return r:1, l:1, l:2\n"));
  const auto out = Run({In(Floats{}, {2, 0}), In(Floats{}, {0})});
  for (const size_t i : {size_t{0}, size_t{2}}) {
    ASSERT_EQ(Values(out[i]).size(), 2U);
    for (const float value : Values(out[i])) EXPECT_TRUE(std::isnan(value)) << i;
  }
  EXPECT_EQ(Values(out[1]), (Floats{0, 0}));
}

// Convolutions that are computed row by row: what is between them takes no memory.
TEST_F(CompilerMemory, RowsBetweenConvolutionsAreNotStored) {
  constexpr int64_t kSide = 90;
  constexpr uint64_t kBetween = 64U * kSide * kSide * sizeof(float);
  const std::string plain = "data_format = \"NCHW\", pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}\n";
  const std::string text =
      "graph \"rows\"\nx = Data() : float32 [1, 8, 90, 90] format 0\n"
      "e = Const() : float32 [64, 8, 1, 1] = 0.5, -0.25, 1, 0.125, -0.75 ...\n"
      "d = Const() : float32 [64, 1, 3, 3] = 0.5, -0.25, 1, 0.125, -0.75 ...\n"
      "p = Const() : float32 [8, 64, 1, 1] = 0.5, -0.25, 1, 0.125, -0.75 ...\n"
      "b = Const() : float32 [64] = 1, -2, 3 ...\nc = Const() : float32 [8] = 1, -2, 3 ...\n"
      "g = Conv2D(x = x, filter = e, bias = b) {" +
      plain +
      "h = Relu(g)\n"
      "i = Conv2D(x = h, filter = d, bias = b) {data_format = \"NCHW\", groups = 64, pads = [1, 1, 1, 1], "
      "strides = [1, 1, 1, 1]}\nj = Relu(i)\nk = Conv2D(x = j, filter = p, bias = c) {" +
      plain + "l = Add(k, x)\n";
  std::vector<float> values(8 * kSide * kSide);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 1024) / 512 - 1;
  const RunTensor input = In(values, {1, 8, kSide, kSide});
  ASSERT_TRUE(Compile(text + "return l, h, j\n").ok());
  const std::vector<float> stored = Values(Run({input})[0]);
  EXPECT_GE(executable_->needs().features, kBetween) << "somebody else reads what is between";
  ASSERT_TRUE(Compile(text + "return l\n").ok());
  const std::vector<float> found = Values(Run({input})[0]);
  EXPECT_LT(executable_->needs().features, kBetween);
  ASSERT_EQ(found.size(), values.size());
  ASSERT_EQ(stored.size(), values.size());
  EXPECT_EQ(std::memcmp(found.data(), stored.data(), found.size() * sizeof(float)), 0);
}

// An input that a convolution reads row by row until its end is no place for the result.
TEST_F(CompilerMemory, RowsAreReadBeforeTheResultLiesThere) {
  constexpr int64_t kSide = 90;
  const std::string point = ") {data_format = \"NHWC\", pads = [0, 0, 0, 0], strides = [1, 1, 1, 1]}\n";
  const std::string text =
      "graph \"rows\"\nx = Data() : float32 [1, 90, 90, 8] format 1\n"
      "e = Const() : float32 [64, 1, 1, 8] = 0.5, -0.25, 1, 0.125, -0.75 ...\n"
      "d = Const() : float32 [64, 3, 3, 1] = 0.5, -0.25, 1, 0.125, -0.75 ...\n"
      "p = Const() : float32 [8, 1, 1, 64] = 0.5, -0.25, 1, 0.125, -0.75 ...\n"
      "g = Conv2DFused(x = x, filter = e" +
      point +
      "h = Conv2DFused(x = g, filter = d) {data_format = \"NHWC\", groups = 64, pads = [1, 1, 1, 1], "
      "strides = [1, 1, 1, 1]}\nk = Conv2DFused(x = h, filter = p" +
      point + "return k\n";
  std::vector<float> values(8 * kSide * kSide);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 1024) / 512 - 1;
  const std::vector<int64_t> shape = {1, kSide, kSide, 8};
  ASSERT_TRUE(Compile(text).ok());
  const std::vector<float> apart = Values(Run({In(values, shape)})[0]);
  CompileOptions options;
  options.shared_inputs = {{0, 0}};
  ASSERT_TRUE(Compile(text, options).ok());
  const RunTensor input = In(values, shape);
  std::vector<RunTensor> outputs(1);
  outputs[0].data = input.data;
  outputs[0].bytes = input.bytes;
  ASSERT_TRUE(Queue({input}, outputs).ok());
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  ASSERT_EQ(apart.size(), values.size());
  EXPECT_EQ(std::memcmp(apart.data(), input.data, apart.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace reprise::compiler
