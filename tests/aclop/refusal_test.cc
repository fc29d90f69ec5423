// SPDX-License-Identifier: Apache-2.0
//
// Calls by type that are refused: number, function, culprit; nothing is written, nothing is queued.
#include <random>

#include "../unit/scale.h"
#include "harness.h"

namespace aclop_test {
namespace {

class RefusalTest : public AclopTest {
 protected:
  // A call that is refused, and whose output stays as it was.
  void Refuse(int code, const char* type, const std::vector<const Tensor*>& inputs, const Tensor& output,
              const std::vector<std::string>& words, const Attr* attr = nullptr) {
    SCOPED_TRACE(type);
    std::vector<char> before(output.bytes());
    if (!before.empty()) std::memcpy(before.data(), output.memory(), before.size());
    ExpectRefused(code, Run(type, inputs, output, attr), words);
    if (!before.empty()) {
      EXPECT_EQ(0, std::memcmp(before.data(), output.memory(), before.size()));
    }
  }
};

TEST_F(RefusalTest, UnknownTypesNameTheirNeighbours) {
  const Tensor x(ACL_FLOAT, {2});
  Refuse(100024, "MatMulV3", {&x, &x}, x, {"MatMulV3", "MatMulV2"});
  Refuse(100024, "relu", {&x}, x, {"near names: Relu"});
  Refuse(100024, "", {&x}, x, {"opType"});
  Refuse(100024, std::string(100000, 'a').c_str(), {&x}, x, {"opType"});
}

TEST_F(RefusalTest, TypesOfGraphsWithoutAKernelSaySo) {
  const Tensor x(ACL_FLOAT, {2});
  Refuse(100024, "Const", {&x}, x,
         {"the operator Const has no kernel: it is part of how a graph is built", "put it into a graph"});
}

TEST_F(RefusalTest, WrongInputs) {
  const Tensor f2(ACL_FLOAT, {2});
  const Tensor f3(ACL_FLOAT, {3});
  const Tensor f23(ACL_FLOAT, {2, 3});
  const Tensor h2(ACL_FLOAT16, {2});
  const Tensor b2(ACL_BOOL, {2});
  const Tensor deep(ACL_FLOAT, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  Refuse(100021, "Add", {&f2}, f2, {"1 inputs, expected 2", "x1, x2", "numInputs"});
  Refuse(100021, "Add", {&f2, &f2, &f2}, f2, {"3 inputs"});
  Refuse(100021, "MatMulV2", {&f23}, f2, {"expected 2 to 4"});
  Refuse(100021, "AddN", {}, f2, {"1 or more"});
  Refuse(100021, "Add", {&f2, &h2}, f2, {"x2 is float16, but x1 is float32", "inputs[1]"});
  Refuse(100021, "Exp", {&b2}, b2, {"bool", "float16", "inputs[0]"});
  Refuse(100021, "Add", {&f2, &f3}, f2, {"[3]", "[2]", "broadcast"});
  Refuse(100021, "MatMul", {&f23, &f23}, f2, {"3 and 2"});
  Refuse(100021, "MatMul", {&f2, &f23}, f2, {"x1 has the shape [2]", "matrix"});
  Refuse(100021, "Relu", {&deep}, deep, {"9 dims", "8"});
  Refuse(100021, "AddN", {&f2, &f3}, f2, {"x[1]"});
  Refuse(100021, "ReduceSum", {&f23, &f2}, f2, {"axes is float32", "int64"});
  const auto absent = Tensor::Absent();
  Refuse(100021, "Relu", {absent.get()}, f2, {"x has the undefined type"});
  const Tensor axes(ACL_INT64, {1}, {0});
  Refuse(100021, "ReduceSum", {&f23, &axes}, f3, {"axes has no value that is known", "aclSetTensorConst"});
  const auto far_axis = Tensor::Constant(ACL_INT64, {1}, {2});
  Refuse(100021, "ReduceSum", {&f23, far_axis.get()}, f3, {"axes is 2, expected -2 to 1"});
  const auto twice = Tensor::Constant(ACL_INT64, {2}, {0, -2});
  Refuse(100021, "Transpose", {&f23, twice.get()}, f23, {"perm", "twice"});
  const auto short_constant = Tensor::Constant(ACL_INT64, {1}, {0});
  const int64_t three = 3;
  aclTensorDesc* lies = aclCreateTensorDesc(ACL_INT64, 1, &three, ACL_FORMAT_ND);
  const int64_t one_number = 1;
  ASSERT_EQ(0, aclSetTensorConst(lies, const_cast<int64_t*>(&one_number), sizeof(one_number)));
  aclTensorDesc* descs[] = {f23.desc(), lies};
  aclDataBuffer* buffers[] = {f23.buffer(), short_constant->buffer()};
  Arrays out({&f3});
  ExpectRefused(100021,
                aclopCompileAndExecute("Reshape", 2, descs, buffers, 1, out.descs.data(), out.buffers.data(), nullptr,
                                       0, 0, nullptr, stream),
                {"shape", "8 bytes"});
  aclDestroyTensorDesc(lies);
  const auto wrong_shape = Tensor::Constant(ACL_INT64, {2}, {4, -1});
  Refuse(100021, "Reshape", {&f23, wrong_shape.get()}, f23, {"[4, -1]", "[2, 3]"});
  const auto two_open = Tensor::Constant(ACL_INT64, {2}, {-1, -1});
  Refuse(100021, "Reshape", {&f23, two_open.get()}, f23, {"[-1, -1]"});
  const auto huge = Tensor::Constant(ACL_INT64, {2}, {int64_t{1} << 40, int64_t{1} << 40});
  const Tensor scalar(ACL_FLOAT, {}, {1});
  Refuse(100022, "Fill", {huge.get(), &scalar}, f2, {"too large"});
  Refuse(100021, "Fill", {huge.get(), &f2}, f2, {"value has the shape [2]"});
}

TEST_F(RefusalTest, WrongOutputs) {
  const Tensor f2(ACL_FLOAT, {2});
  const Tensor f3(ACL_FLOAT, {3});
  const Tensor h2(ACL_FLOAT16, {2});
  Refuse(100022, "Add", {&f2, &f2}, f3, {"y has the shape [3], but the result has [2]", "outputs[0]"});
  Refuse(100022, "Add", {&f2, &f2}, h2, {"y is float16, but x1 is float32"});
  Arrays in({&f2});
  Arrays two({&f2, &f3});
  ExpectRefused(100022,
                aclopCompileAndExecute("Relu", 1, in.descs.data(), in.buffers.data(), 2, two.descs.data(),
                                       two.buffers.data(), nullptr, 0, 0, nullptr, stream),
                {"2 outputs", "numOutputs"});
  ExpectRefused(100022,
                aclopCompileAndExecute("Relu", 1, in.descs.data(), in.buffers.data(), 0, nullptr, nullptr, nullptr, 0,
                                       0, nullptr, stream),
                {"0 outputs"});
  Attr attr;
  attr.Int("dst_type", ACL_INT32);
  Refuse(100022, "Cast", {&f2}, f2, {"float32", "int32"}, &attr);
}

TEST_F(RefusalTest, WrongAttributes) {
  const Tensor f23(ACL_FLOAT, {2, 3});
  const Tensor f33(ACL_FLOAT, {3, 3});
  const Tensor i23(ACL_INT32, {2, 3});
  const auto with = [](auto set) {
    auto attr = std::make_unique<Attr>();
    set(*attr);
    return attr;
  };
  Refuse(100023, "MatMul", {&f23, &f23}, f33, {"transpose_X1", "no attribute", "transpose_x1:Bool"},
         with([](Attr& attr) { attr.Bool("transpose_X1", true); }).get());
  Refuse(100023, "Relu", {&f23}, f23, {"alpha", "has none"}, with([](Attr& attr) { attr.Float("alpha", 1); }).get());
  Refuse(100023, "Muls", {&f23}, f23, {"value is not set"});
  Refuse(100023, "Muls", {&f23}, f23, {"value is set as text", "a float"},
         with([](Attr& attr) { attr.String("value", "2"); }).get());
  Refuse(100023, "Muls", {&i23}, i23, {"value is 0.5", "int32"},
         with([](Attr& attr) { attr.Float("value", 0.5f); }).get());
  Refuse(100023, "Muls", {&i23}, i23, {"value is nan"}, with([](Attr& attr) { attr.Float("value", NAN); }).get());
  Refuse(100023, "MatMul", {&f23, &f23}, f33, {"transpose_x1 is set as integer, 2", "boolean"},
         with([](Attr& attr) { attr.Int("transpose_x1", 2); }).get());
  Refuse(100023, "Cast", {&f23}, f23, {"dst_type is 99"}, with([](Attr& attr) { attr.Int("dst_type", 99); }).get());
  Refuse(100023, "Cast", {&f23}, f23, {"dst_type is -9223372036854775808"},
         with([](Attr& attr) { attr.Int("dst_type", INT64_MIN); }).get());
  Refuse(100023, "ConcatD", {&f23}, f23, {"concat_dim is 2, expected -2 to 1"},
         with([](Attr& attr) { attr.Int("concat_dim", 2); }).get());
  Refuse(100023, "ConcatD", {&f23}, f23, {"N is 2, but there are 1"},
         with([](Attr& attr) { attr.Int("concat_dim", 0).Int("N", 2); }).get());
  Refuse(100023, "TransposeD", {&f23}, f23, {"perm is [0], but x has 2 dims"},
         with([](Attr& attr) { attr.Ints("perm", {0}); }).get());
  Refuse(100023, "ReduceSumD", {&f23}, f23, {"axes", "twice"}, with([](Attr& attr) {
                                                                 attr.Ints("axes", {0, 0});
                                                               }).get());
  const Tensor f234(ACL_FLOAT, {2, 3, 4});
  Refuse(100023, "SoftmaxV2", {&f234}, f234, {"axes is [0, 2]"}, with([](Attr& attr) {
                                                                   attr.Ints("axes", {0, 2});
                                                                 }).get());
  Refuse(100023, "SoftmaxV2", {&f234}, f234, {"half_to_float", "float32"},
         with([](Attr& attr) { attr.Bool("half_to_float", true); }).get());
  Refuse(100023, "Exp", {&f23}, f23, {"base is -2"}, with([](Attr& attr) { attr.Float("base", -2); }).get());
  const Tensor f32(ACL_FLOAT, {3, 2});
  const Tensor f22(ACL_FLOAT, {2, 2});
  Refuse(100023, "MatMulV2", {&f23, &f32}, f22, {"offset_x is 3"},
         with([](Attr& attr) { attr.Int("offset_x", 3); }).get());
  Refuse(100021, "MatMulV2", {&f23, &f32, Tensor::Absent().get(), &f22}, f22, {"offset_w"});
  Refuse(100023, "Squeeze", {&f23}, f23, {"axis names dim 1 of [2, 3]"},
         with([](Attr& attr) { attr.Ints("axis", {1}); }).get());
  Refuse(100023, "Unsqueeze", {&f23}, f23, {"axes has 1000 entries"},
         with([](Attr& attr) { attr.Ints("axes", Dims(1000)); }).get());
  Refuse(100023, "FlattenV2", {&f234}, f234, {"axis is 2, behind end_axis 0"},
         with([](Attr& attr) { attr.Int("axis", 2).Int("end_axis", 0); }).get());
}

TEST_F(RefusalTest, StorageFormatsThatAreNoPlainMemory) {
  const Tensor x(ACL_FLOAT16, {16, 16});
  const Tensor y(ACL_FLOAT16, {16, 16});
  ASSERT_EQ(0, aclSetTensorFormat(x.desc(), ACL_FORMAT_FRACTAL_NZ));
  Refuse(100021, "Relu", {&x}, y, {"x has the storage format FRACTAL_NZ", "inputs[0]", "ND"});
  Refuse(100022, "Relu", {&y}, x, {"y has the storage format FRACTAL_NZ", "outputs[0]"});
  // Matrices may be fractals, which are plain memory here, too.
  EXPECT_EQ(0, Run("Identity", {&y}, x)) << RecentMessage();
  EXPECT_EQ(0, Run("MatMulV2", {&x, &x}, y)) << RecentMessage();
  ASSERT_EQ(0, aclSetTensorFormat(x.desc(), ACL_FORMAT_NCHW));
  EXPECT_EQ(0, Run("ZerosLike", {&x}, y)) << RecentMessage();
}

TEST_F(RefusalTest, BuffersThatDoNotFit) {
  const Tensor x(ACL_FLOAT, {4}, {1, 2, 3, 4});
  const Tensor y(ACL_FLOAT, {4}, {0, 0, 0, 0});
  aclDataBuffer* const small = aclCreateDataBuffer(x.memory(), 15);
  aclDataBuffer* const null = aclCreateDataBuffer(nullptr, 16);
  float pageable_memory[4] = {};
  aclDataBuffer* const pageable = aclCreateDataBuffer(pageable_memory, 16);
  aclDataBuffer* const wild = aclCreateDataBuffer(reinterpret_cast<void*>(0x10), 16);
  const auto run = [&](aclDataBuffer* in, aclDataBuffer* out) {
    Arrays inputs({&x});
    Arrays outputs({&y});
    return aclopCompileAndExecute("Neg", 1, inputs.descs.data(), &in, 1, outputs.descs.data(), &out, nullptr, 0, 0,
                                  nullptr, stream);
  };
  ExpectRefused(100000, run(small, y.buffer()), {"15 bytes", "need 16", "inputs[0]"});
  ExpectRefused(100000, run(x.buffer(), small), {"15 bytes", "outputs[0]"});
  ExpectRefused(100000, run(null, y.buffer()), {"inputs[0]"});
  ExpectRefused(107000, run(pageable, y.buffer()), {"x is not device memory", "inputs[0]", "aclSetTensorConst"});
  ExpectRefused(107000, run(x.buffer(), pageable), {"outputs[0]", "aclrtMalloc"});
  ExpectRefused(107000, run(wild, y.buffer()), {"inputs[0]"});
  ExpectRefused(100000, run(nullptr, y.buffer()), {"inputs[0] is null"});
  ExpectRefused(107017, run(reinterpret_cast<aclDataBuffer*>(&pageable_memory), y.buffer()),
                {"aclDataBuffer", "inputs[0]"});
  // Overlap that is not the same view.
  auto* const shifted = aclCreateDataBuffer(static_cast<char*>(x.memory()) + 4, 12);
  const int64_t three = 3;
  aclTensorDesc* desc = aclCreateTensorDesc(ACL_FLOAT, 1, &three, ACL_FORMAT_ND);
  aclDataBuffer* in = x.buffer();
  ExpectRefused(100000,
                aclopCompileAndExecute("Neg", 1, &desc, &in, 1, &desc, &shifted, nullptr, 0, 0, nullptr, stream),
                {"overlaps"});
  aclDestroyTensorDesc(desc);
  ASSERT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ((Values{1, 2, 3, 4}), x.Read());
  EXPECT_EQ(Values(4), y.Read());
  for (aclDataBuffer* buffer : {small, null, pageable, wild, shifted}) EXPECT_EQ(0, aclDestroyDataBuffer(buffer));
  ExpectRefused(107017, run(small, y.buffer()), {"destroyed", "inputs[0]"});
}

TEST_F(RefusalTest, NullAndStaleArguments) {
  const Tensor x(ACL_FLOAT, {2});
  Arrays in({&x});
  const auto run = [&](const char* type, int inputs, aclTensorDesc** descs, aclDataBuffer** buffers, int outputs,
                       aclTensorDesc** out_descs, aclDataBuffer** out_buffers, aclopAttr* attr, aclrtStream on) {
    return aclopCompileAndExecuteV2(type, inputs, descs, buffers, outputs, out_descs, out_buffers, attr, 0, 0, nullptr,
                                    on);
  };
  aclTensorDesc** const d = in.descs.data();
  aclDataBuffer** const b = in.buffers.data();
  const char* const f = "aclopCompileAndExecuteV2";
  ExpectRefused(100000, run(nullptr, 1, d, b, 1, d, b, nullptr, stream), {"opType"}, f);
  ExpectRefused(100000, run("Relu", 1, nullptr, b, 1, d, b, nullptr, stream), {"inputDesc"}, f);
  ExpectRefused(100000, run("Relu", 1, d, nullptr, 1, d, b, nullptr, stream), {"inputs"}, f);
  ExpectRefused(100000, run("Relu", 1, d, b, 1, nullptr, b, nullptr, stream), {"outputDesc"}, f);
  ExpectRefused(100000, run("Relu", 1, d, b, 1, d, nullptr, nullptr, stream), {"outputs"}, f);
  ExpectRefused(100000, run("Relu", -1, d, b, 1, d, b, nullptr, stream), {"numInputs is -1"}, f);
  ExpectRefused(100000, run("Relu", INT32_MAX, d, b, 1, d, b, nullptr, stream), {"numInputs"}, f);
  ExpectRefused(100000, run("Relu", 1, d, b, INT32_MIN, d, b, nullptr, stream), {"numOutputs"}, f);
  aclTensorDesc* const no_desc[] = {nullptr};
  ExpectRefused(100000, run("Relu", 1, const_cast<aclTensorDesc**>(no_desc), b, 1, d, b, nullptr, stream),
                {"inputDesc[0] is null"}, f);
  aclTensorDesc* stale = aclCreateTensorDesc(ACL_FLOAT, 0, nullptr, ACL_FORMAT_ND);
  aclDestroyTensorDesc(stale);
  ExpectRefused(107017, run("Relu", 1, d, b, 1, &stale, b, nullptr, stream), {"destroyed", "outputDesc[0]"}, f);
  ExpectRefused(107017, run("Relu", 1, d, b, 1, d, b, reinterpret_cast<aclopAttr*>(x.desc()), stream),
                {"aclTensorDesc", "aclopAttr"}, f);
  ExpectRefused(107017, run("Relu", 1, d, b, 1, d, b, nullptr, x.memory()), {}, f);

  // The other entries check the same things.
  ExpectRefused(100024, aclopExecute("Rely", 1, d, b, 1, d, b, nullptr, stream), {"Relu"}, "aclopExecute");
  ExpectRefused(100024, aclopExecuteV2("Rely", 1, d, b, 1, d, b, nullptr, stream), {"Relu"}, "aclopExecuteV2");
  ExpectRefused(100024, aclopCompile("Rely", 1, d, 1, d, nullptr, 0, 0, nullptr), {"Relu"}, "aclopCompile");
  ExpectRefused(100024, aclopInferShape("Rely", 1, d, b, 1, d, nullptr), {"Relu"}, "aclopInferShape");
  ExpectRefused(100000, aclopInferShape("Relu", 1, d, nullptr, 1, d, nullptr), {"inputs"}, "aclopInferShape");
  ExpectRefused(100000, aclopCast(nullptr, b[0], d[0], b[0], 0, stream), {"srcDesc"}, "aclopCast");
  ExpectRefused(100000, aclopCast(d[0], b[0], d[0], nullptr, 0, stream), {"dstBuffer"}, "aclopCast");
}

TEST_F(RefusalTest, Handles) {
  const Tensor x(ACL_FLOAT, {2}, {-1, 1});
  const Tensor y(ACL_FLOAT, {2}, {5, 5});
  Arrays in({&x});
  Arrays out({&y});
  aclopHandle* handle = reinterpret_cast<aclopHandle*>(&in);
  const char* const create = "aclopCreateHandle";
  ExpectRefused(100024, aclopCreateHandle("Rely", 1, in.descs.data(), 1, out.descs.data(), nullptr, &handle), {"Relu"},
                create);
  EXPECT_EQ(nullptr, handle);
  ExpectRefused(100000, aclopCreateHandle("Relu", 1, in.descs.data(), 1, out.descs.data(), nullptr, nullptr),
                {"handle"}, create);
  ExpectRefused(100000, aclopCreateHandleForCast(in.descs[0], nullptr, 0, &handle), {"dstDesc"},
                "aclopCreateHandleForCast");
  ASSERT_EQ(0, aclopCreateHandle("Relu", 1, in.descs.data(), 1, out.descs.data(), nullptr, &handle));
  const char* const run = "aclopExecWithHandle";
  aclDataBuffer* no_buffer = nullptr;
  ExpectRefused(100000, aclopExecWithHandle(nullptr, 1, in.buffers.data(), 1, out.buffers.data(), stream), {"handle"},
                run);
  ExpectRefused(100000, aclopExecWithHandle(handle, 0, nullptr, 1, out.buffers.data(), stream), {"0 inputs"}, run);
  ExpectRefused(100000, aclopExecWithHandle(handle, 1, nullptr, 1, out.buffers.data(), stream),
                {"parameter inputs is null"}, run);
  ExpectRefused(100000, aclopExecWithHandle(handle, 1, &no_buffer, 1, out.buffers.data(), stream), {"inputs[0]"}, run);
  ExpectRefused(100000, aclopExecWithHandle(handle, -4, in.buffers.data(), 1, out.buffers.data(), stream), {"-4"}, run);
  aclopDestroyHandle(handle);
  ExpectRefused(107017, aclopExecWithHandle(handle, 1, in.buffers.data(), 1, out.buffers.data(), stream), {"destroyed"},
                run);
  aclopDestroyHandle(handle);
  EXPECT_THAT(RecentMessage(), testing::HasSubstr("aclopDestroyHandle"));
  aclopDestroyHandle(nullptr);
  EXPECT_EQ("", RecentMessage());
  EXPECT_EQ((Values{5, 5}), y.Read());
}

// Whatever is passed, a call returns a number, and a refusal a message.
TEST_F(RefusalTest, RandomCalls) {
  std::mt19937 random(20261121);
  const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  std::vector<std::unique_ptr<Tensor>> tensors;
  for (const aclDataType type : {ACL_FLOAT, ACL_FLOAT16, ACL_INT32, ACL_BOOL}) {
    for (const Dims& dims : {Dims{}, Dims{3}, Dims{2, 3}, Dims{3, 3}, Dims{2, 0, 3}, Dims{1, 3, 3}}) {
      tensors.push_back(std::make_unique<Tensor>(type, dims, Values(static_cast<size_t>(Count(dims)), 1)));
    }
  }
  for (const Values& values : {Values{0}, Values{1, 0}, Values{-1, 3}, Values{1, 2, 0}, Values{}}) {
    tensors.push_back(Tensor::Constant(ACL_INT64, {static_cast<int64_t>(values.size())}, values));
  }
  tensors.push_back(Tensor::Absent());
  const char* const types[] = {"Add",       "MatMulV2",  "ReduceSum",   "Transpose",   "ConcatV2",
                               "SoftmaxV2", "Reshape",   "Fill",        "Pack",        "Squeeze",
                               "Unsqueeze", "FlattenV2", "Permute",     "BroadcastTo", "Assign",
                               "Exp",       "AxpyV2",    "BatchMatMul", "Cast",        "ExpandDims",
                               "AddN",      "Concat",    "Empty",       "Sxpy",        "ReduceSumD"};
  const char* const names[] = {"axes", "keep_dims", "transpose_x1", "perm",  "concat_dim",
                               "N",    "axis",      "dst_type",     "order", "adj_x2"};
  const Tensor room(ACL_FLOAT, {1024});
  int done = 0;
  const int loops = reprise::testing::Loops(20000, 1500);
  for (int i = 0; i < loops; ++i) {
    Attr attr;
    for (size_t n = pick(3); n > 0; --n) {
      const char* name = names[pick(std::size(names))];
      switch (pick(3)) {
        case 0: attr.Int(name, static_cast<int64_t>(pick(5)) - 2); break;
        case 1: attr.Bool(name, pick(2) != 0); break;
        default: attr.Ints(name, Dims(pick(4), static_cast<int64_t>(pick(4)) - 1)); break;
      }
    }
    std::vector<const Tensor*> inputs;
    for (size_t n = pick(4); n > 0; --n) inputs.push_back(tensors[pick(tensors.size())].get());
    const char* const type = types[pick(std::size(types))];
    aclError error = 0;
    if (pick(2) == 0) {
      error = Launch(type, inputs, *tensors[pick(tensors.size())], &attr);
    } else {  // whatever the result is, there is room for it
      const int64_t unknown = -2;
      aclTensorDesc* open = aclCreateTensorDesc(ACL_DT_UNDEFINED, 1, &unknown, ACL_FORMAT_ND);
      aclDataBuffer* buffer = room.buffer();
      Arrays in(inputs);
      error =
          aclopExecuteV2(type, in.count(), in.descs.data(), in.buffers.data(), 1, &open, &buffer, attr.get(), stream);
      aclDestroyTensorDesc(open);
    }
    if (error == 0) {
      ++done;
      continue;
    }
    const std::string message = RecentMessage();
    ASSERT_THAT(error, testing::AnyOf(100000, 100021, 100022, 100023)) << message;
    ASSERT_THAT(message, testing::HasSubstr(std::to_string(error)));
  }
  EXPECT_EQ(0, aclrtSynchronizeStream(stream));
  EXPECT_GT(done, loops / 100) << "nearly all calls were refused";
}

}  // namespace
}  // namespace aclop_test
