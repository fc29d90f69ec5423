// SPDX-License-Identifier: Apache-2.0
//
// Every refusal: its number, and that its text names the operator and the argument.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_addmm.h"
#include "aclnnop/aclnn_batch_norm.h"
#include "aclnnop/aclnn_complex.h"
#include "aclnnop/aclnn_exp.h"
#include "aclnnop/aclnn_foreach_sqrt.h"
#include "aclnnop/aclnn_index_add.h"
#include "aclnnop/aclnn_index_copy.h"
#include "aclnnop/aclnn_mm.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_permute.h"
#include "harness.h"

namespace aclnn_test {
namespace {

class ErrorTest : public AclnnTest {
 protected:
  TestTensor a{{4, 2}, ACL_FLOAT};
  TestTensor b{{1, 2}, ACL_FLOAT};
  TestTensor out{{4, 2}, ACL_FLOAT};
  TestScalar alpha{ACL_FLOAT, {1}};

  // Phase one of Add refuses the arguments with `code` and a text that contains `words`.
  void ExpectRefused(const aclTensor* self, const aclTensor* other, const aclScalar* scale, aclTensor* result, int code,
                     const std::string& words) {
    uint64_t bytes = 77;
    auto* executor = reinterpret_cast<aclOpExecutor*>(&bytes);
    EXPECT_EQ(aclnnAddGetWorkspaceSize(self, other, scale, result, &bytes, &executor), code) << words;
    EXPECT_EQ(executor, nullptr);
    EXPECT_EQ(bytes, 0u);
    const std::string message = RecentMessage();
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("aclnnAdd"), std::string::npos) << message;
  }

  aclOpExecutor* PlanAdd(aclTensor* self, aclTensor* result) {
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnAddGetWorkspaceSize(self, b.get(), alpha.get(), result, &bytes, &executor), 0) << RecentMessage();
    return executor;
  }
};

TEST_F(ErrorTest, NullArgumentsAreNamed) {
  ExpectRefused(nullptr, b.get(), alpha.get(), out.get(), 161001, "aclnnAdd: self is null");
  ExpectRefused(a.get(), nullptr, alpha.get(), out.get(), 161001, "aclnnAdd: other is null");
  ExpectRefused(a.get(), b.get(), nullptr, out.get(), 161001, "aclnnAdd: alpha is null");
  ExpectRefused(a.get(), b.get(), alpha.get(), nullptr, 161001, "aclnnAdd: out is null");
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(aclnnAddGetWorkspaceSize(a.get(), b.get(), alpha.get(), out.get(), nullptr, &executor), 161001);
  EXPECT_EQ(aclnnAddGetWorkspaceSize(a.get(), b.get(), alpha.get(), out.get(), &bytes, nullptr), 161001);
}

TEST_F(ErrorTest, ShapesAreSpelledOut) {
  TestTensor wide({4, 3}, ACL_FLOAT);
  ExpectRefused(a.get(), b.get(), alpha.get(), wide.get(), 161002,
                "aclnnAdd: out has shape [4, 3], expected the broadcast shape [4, 2] of self [4, 2] and other [1, 2]");
  ExpectRefused(a.get(), wide.get(), alpha.get(), out.get(), 161002, "self [4, 2] and other [4, 3] do not broadcast");
  TestTensor flat({8}, ACL_FLOAT);
  ExpectRefused(a.get(), b.get(), alpha.get(), flat.get(), 161002, "out has shape [8]");
}

TEST_F(ErrorTest, TypesAreSpelledOut) {
  TestTensor ints({4, 2}, ACL_INT32);
  ExpectRefused(a.get(), b.get(), alpha.get(), ints.get(), 161002,
                "out has int32, which cannot hold the result type float32 of self float32 and other float32");
  TestTensor odd({4, 2}, ACL_UINT16);
  ExpectRefused(ints.get(), odd.get(), alpha.get(), ints.get(), 161002,
                "self int32 and other uint16 have no common type");
  const int64_t dims[] = {4, 2};
  aclTensor* fp8 = aclCreateTensor(dims, 2, ACL_FLOAT8_E5M2, nullptr, 0, ACL_FORMAT_ND, dims, 2, a.storage());
  ASSERT_NE(fp8, nullptr);
  ExpectRefused(fp8, b.get(), alpha.get(), out.get(), 161002, "self has type 35, which the operator does not take");
  EXPECT_EQ(aclDestroyTensor(fp8), 0);
}

TEST_F(ErrorTest, TypesComeBeforeShapes) {
  TestTensor wrong_both({9}, ACL_INT32);
  ExpectRefused(a.get(), b.get(), alpha.get(), wrong_both.get(), 161002, "out has int32");
}

TEST_F(ErrorTest, ViewsAreChecked) {
  const auto refuse = [&](std::vector<int64_t> dims, std::vector<int64_t> strides, int64_t offset, aclFormat format,
                          const std::string& words) {
    aclTensor* tensor =
        aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, strides.data(), offset, format, nullptr, 0, out.storage());
    ASSERT_NE(tensor, nullptr) << RecentMessage();
    ExpectRefused(a.get(), b.get(), alpha.get(), tensor, 161002, words);
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
  };
  refuse({4, 2}, {2, 1}, 0, ACL_FORMAT_FRACTAL_NZ, "out has the private format FRACTAL_NZ");
  refuse({1, 1, 1, 1, 1, 1, 1, 4, 2}, {8, 8, 8, 8, 8, 8, 8, 2, 1}, 0, ACL_FORMAT_ND, "out has 9 dimensions, at most 8");
  refuse({4, 2}, {-2, 1}, 0, ACL_FORMAT_ND, "out has stride -2 in dim 0");
  refuse({4, 2}, {0, 1}, 0, ACL_FORMAT_ND, "share memory (stride 0)");
  refuse({4, 2}, {INT64_MAX / 2, 1}, 0, ACL_FORMAT_ND, "reaches beyond the address space");
  refuse({4, 2}, {2, 1}, INT64_MAX, ACL_FORMAT_ND, "reaches beyond the address space");
}

TEST_F(ErrorTest, OverlapIsRefusedUnlessItIsTheSameView) {
  const int64_t dims[] = {4, 2};
  // One element on: overlaps self without being it.
  aclTensor* shifted = aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 1, ACL_FORMAT_ND, nullptr, 0, a.storage());
  ExpectRefused(a.get(), b.get(), alpha.get(), shifted, 161002, "overlaps self");
  EXPECT_EQ(aclDestroyTensor(shifted), 0);
}

// Without training the statistics are read alone: they may lie where other operands do. Compilers store equal constants
// once.
TEST_F(ErrorTest, StatisticsThatAreReadMayShareMemory) {
  TestTensor x({2, 3, 4}, ACL_FLOAT), result({2, 3, 4}, ACL_FLOAT), shared({3}, ACL_FLOAT), saved({3}, ACL_FLOAT);
  std::vector<Value> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i].re = static_cast<long double>(i);
  x.Write(values);
  shared.Write({{1}, {2}, {4}});
  const auto norm = [&](bool training) {
    return [&, training](uint64_t* ws, aclOpExecutor** ex) {
      return aclnnBatchNormGetWorkspaceSize(x.get(), shared.get(), shared.get(), shared.get(), shared.get(), training,
                                            0.1, 0, result.get(), saved.get(), saved.get(), ws, ex);
    };
  };
  ASSERT_EQ(RunOp(stream, norm(false), aclnnBatchNorm), 0) << RecentMessage();
  const std::vector<Value> found = result.Read();
  for (size_t i = 0; i < values.size(); ++i) {
    const double c = std::array{1.0, 2.0, 4.0}[i / 4 % 3];
    EXPECT_NEAR(static_cast<double>(found[i].re), (static_cast<double>(i) - c) / std::sqrt(c) * c + c, 1e-4);
  }
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(norm(true)(&workspace, &executor), 161002);
}

TEST_F(ErrorTest, WhatDependsOnTheOrderOfElementsIsRefusedAndNothingElse) {
  TestTensor memory({8, 12}, ACL_FLOAT);
  memory.FillSmall(random);
  const auto view = [&](Shape shape, Shape strides, int64_t offset) {
    return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), offset, ACL_FORMAT_ND, nullptr, 0,
                           memory.storage());
  };
  struct Row {
    const char* about;
    Shape shape, in_strides;
    int64_t in_offset;
    Shape out_strides;
    int64_t out_offset;
    const char* words;  // null: taken
  };
  const Row rows[] = {
      {"columns and the next ones", {8, 4}, {12, 1}, 0, {12, 1}, 1, "overlaps self"},
      {"columns beside columns", {8, 4}, {12, 1}, 0, {12, 1}, 4, nullptr},
      {"the very same columns", {8, 4}, {12, 1}, 3, {12, 1}, 3, nullptr},
      {"the same, transposed", {4, 4}, {12, 1}, 0, {1, 12}, 0, "overlaps self"},
      {"the same, a dim of one apart", {8, 1, 4}, {12, 7, 1}, 3, {12, 4, 1}, 3, nullptr},
      {"even and odd elements", {40}, {2}, 0, {2}, 1, nullptr},
      {"every second and every fourth", {20}, {2}, 0, {4}, 3, nullptr},
      {"every second and every fourth of these", {20}, {2}, 0, {4}, 2, "overlaps self"},
      {"a column for all of its row", {8, 12}, {12, 0}, 0, {12, 1}, 0, "overlaps self"},
      {"one element for all", {8, 12}, {0, 0}, 95, {12, 1}, 0, "overlaps self"},
      {"one element for all others", {8, 11}, {0, 0}, 95, {12, 1}, 0, nullptr},
      {"windows", {8, 4}, {12, 1}, 0, {2, 1}, 60, "is written, but some of its elements share memory"},
      {"an output of few strides", {3, 2}, {12, 1}, 0, {2, 3}, 60, nullptr},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.about);
    aclTensor* source = view(row.shape, row.in_strides, row.in_offset);
    aclTensor* result = view(row.shape, row.out_strides, row.out_offset);
    const TestScalar one(ACL_FLOAT, {1, 0});
    const aclnnStatus status = RUN(aclnnAdds, source, one.get(), one.get(), result);
    if (row.words == nullptr) {
      EXPECT_EQ(status, 0) << RecentMessage();
    } else {
      EXPECT_EQ(status, 161002);
      EXPECT_THAT(RecentMessage(), testing::HasSubstr(row.words));
    }
    EXPECT_EQ(aclDestroyTensor(source), 0);
    EXPECT_EQ(aclDestroyTensor(result), 0);
  }
}

TEST_F(ErrorTest, ComplexNumbersAreMadeInThePlaceOfTheirParts) {
  // Four complex numbers; real parts or imaginary ones are there already.
  struct Row {
    int64_t stride, offset;
    const char* words;  // null: taken
  };
  for (const Row& row : {Row{2, 0, nullptr}, {2, 1, nullptr}, {1, 0, "overlaps"}, {1, 4, "overlaps"}}) {
    SCOPED_TRACE(row.offset);
    TestTensor memory({8}, ACL_FLOAT);
    memory.Write({{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}});
    TestTensor apart({4}, ACL_FLOAT);
    apart.Write({{10, 0}, {20, 0}, {30, 0}, {40, 0}});
    const int64_t count = 4;
    const int64_t one = 1;
    aclTensor* part =
        aclCreateTensor(&count, 1, ACL_FLOAT, &row.stride, row.offset, ACL_FORMAT_ND, nullptr, 0, memory.storage());
    aclTensor* whole = aclCreateTensor(&count, 1, ACL_COMPLEX64, &one, 0, ACL_FORMAT_ND, nullptr, 0, memory.storage());
    const bool is_imaginary = row.offset == 1;
    const aclnnStatus status =
        is_imaginary ? RUN(aclnnComplex, apart.get(), part, whole) : RUN(aclnnComplex, part, apart.get(), whole);
    if (row.words == nullptr) {
      EXPECT_EQ(status, 0) << RecentMessage();
      std::vector<Value> expected;
      for (int i = 0; i < 4; ++i) {
        const double given = 2 * i + (is_imaginary ? 1 : 0);
        const double other = 10 * (i + 1);
        expected.push_back({is_imaginary ? other : given, 0});
        expected.push_back({is_imaginary ? given : other, 0});
      }
      ExpectValues(memory.Read(), expected, std::vector<long double>(8));
    } else {
      EXPECT_EQ(status, 161002);
      EXPECT_THAT(RecentMessage(), testing::HasSubstr(row.words));
    }
    EXPECT_EQ(aclDestroyTensor(part), 0);
    EXPECT_EQ(aclDestroyTensor(whole), 0);
  }
}

TEST_F(ErrorTest, SumsWithProductsMayReplaceTheirSummandAndNothingElse) {
  TestTensor left({3, 3}, ACL_FLOAT);
  TestTensor right({3, 3}, ACL_FLOAT);
  TestTensor summand({3, 3}, ACL_FLOAT);
  left.Write(std::vector<Value>(9, Value{1, 0}));
  right.Write(std::vector<Value>(9, Value{2, 0}));
  summand.Write(std::vector<Value>(9, Value{5, 0}));
  const auto again = [](const TestTensor& of) {
    const int64_t dims[] = {3, 3};
    return aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, of.storage());
  };
  aclTensor* in_place = again(summand);
  aclTensor* over_factor = again(left);
  EXPECT_EQ(RUN(aclnnAddmm, summand.get(), left.get(), right.get(), alpha.get(), alpha.get(), in_place, 0), 0)
      << RecentMessage();
  ExpectValues(summand.Read(), std::vector<Value>(9, Value{11, 0}), std::vector<long double>(9));
  EXPECT_EQ(RUN(aclnnAddmm, summand.get(), left.get(), right.get(), alpha.get(), alpha.get(), over_factor, 0), 161002);
  EXPECT_THAT(RecentMessage(), testing::HasSubstr("overlaps mat1"));
  EXPECT_EQ(aclDestroyTensor(in_place), 0);
  EXPECT_EQ(aclDestroyTensor(over_factor), 0);
}

TEST_F(ErrorTest, RowsThatAreMovedMustNotBeTheirOwnSource) {
  TestTensor index({4}, ACL_INT64);
  index.Write({{3, 0}, {2, 0}, {1, 0}, {0, 0}});
  EXPECT_EQ(RUN(aclnnInplaceIndexCopy, a.get(), 0, index.get(), a.get()), 161002);
  EXPECT_THAT(RecentMessage(), testing::ContainsRegex("selfRef \\[.* overlaps source"));
  // The tensor that rows are added to may be the result, the rows may not.
  EXPECT_EQ(RUN(aclnnIndexAdd, a.get(), 0, index.get(), out.get(), alpha.get(), a.get()), 0) << RecentMessage();
  EXPECT_EQ(RUN(aclnnIndexAdd, a.get(), 0, index.get(), out.get(), alpha.get(), out.get()), 161002);
}

TEST_F(ErrorTest, ListsGoTogetherByTheirPlaces) {
  const int64_t dims[] = {4, 2};
  const TestTensor other({4, 2}, ACL_FLOAT);
  const auto list = [&](std::initializer_list<const TestTensor*> of) {
    std::vector<const aclTensor*> tensors;
    for (const TestTensor* tensor : of) {
      tensors.push_back(aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, tensor->storage()));
    }
    return aclCreateTensorList(tensors.data(), tensors.size());
  };
  aclTensorList* straight = list({&a, &other});
  aclTensorList* crossed = list({&other, &a});
  aclTensorList* twice = list({&out, &out});
  EXPECT_EQ(RUN(aclnnForeachSqrt, straight, straight), 0) << RecentMessage();
  EXPECT_EQ(RUN(aclnnForeachSqrt, straight, crossed), 161002) << "one place reads what another writes";
  EXPECT_THAT(RecentMessage(), testing::ContainsRegex("out\\[0\\] \\[.* overlaps x\\[1\\]"));
  EXPECT_EQ(RUN(aclnnForeachSqrt, straight, twice), 161002) << "two places write the same";
  EXPECT_THAT(RecentMessage(), testing::ContainsRegex("out\\[1\\] \\[.* overlaps out\\[0\\]"));
  for (aclTensorList* each : {straight, crossed, twice}) EXPECT_EQ(aclDestroyTensorList(each), 0);
}

TEST_F(ErrorTest, StaleForeignAndMistakenPointersAreErrors) {
  const int64_t dims[] = {4, 2};
  aclTensor* gone = aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, a.storage());
  ASSERT_EQ(aclDestroyTensor(gone), 0);
  ExpectRefused(gone, b.get(), alpha.get(), out.get(), 161002, "was destroyed");
  EXPECT_EQ(aclDestroyTensor(gone), 161002);

  int64_t local[64] = {};
  ExpectRefused(reinterpret_cast<aclTensor*>(local), b.get(), alpha.get(), out.get(), 161002, "self");
  ExpectRefused(reinterpret_cast<aclTensor*>(alpha.get()), b.get(), alpha.get(), out.get(), 161002, "aclScalar");
  ExpectRefused(a.get(), b.get(), reinterpret_cast<aclScalar*>(a.get()), out.get(), 161002, "alpha");

  const float value = 1;
  aclFloatArray* floats = aclCreateFloatArray(&value, 1);
  EXPECT_EQ(RUN(aclnnPermute, a.get(), reinterpret_cast<aclIntArray*>(floats), out.get()), 161002);
  EXPECT_NE(RecentMessage().find("is an aclFloatArray, not an aclIntArray"), std::string::npos);
  EXPECT_EQ(aclDestroyFloatArray(floats), 0);
}

TEST_F(ErrorTest, MemoryThatIsNotDeviceMemoryIsRefusedBeforeAnythingRuns) {
  std::vector<float> pageable(8);
  const int64_t dims[] = {4, 2};
  const auto run = [&](void* data, int64_t offset, int64_t row_stride = 2) {
    const int64_t strides[] = {row_stride, 1};
    aclTensor* tensor = aclCreateTensor(dims, 2, ACL_FLOAT, strides, offset, ACL_FORMAT_ND, nullptr, 0, data);
    const aclnnStatus status = RUN(aclnnAdd, a.get(), b.get(), alpha.get(), tensor);
    EXPECT_EQ(aclDestroyTensor(tensor), 0);
    return status;
  };
  EXPECT_EQ(run(pageable.data(), 0), 361001);
  EXPECT_NE(RecentMessage().find("aclnnAdd failed: out needs 32 bytes at"), std::string::npos);
  EXPECT_EQ(run(reinterpret_cast<void*>(0x1000), 0), 361001);
  EXPECT_EQ(run(out.storage(), 1000), 361001) << "behind the end of its allocation";
  EXPECT_EQ(run(out.storage(), 0, 1 << 20), 361001) << "ends behind the end of its allocation";
  EXPECT_EQ(run(nullptr, 0), 161001);
  EXPECT_NE(RecentMessage().find("out has 8 elements and no data"), std::string::npos);

  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 32), 0);
  EXPECT_EQ(run(pinned, 0), 0) << RecentMessage();
  EXPECT_EQ(aclrtFreeHost(pinned), 0);
}

TEST_F(ErrorTest, FreedMemoryIsRefused) {
  auto memory = std::make_unique<Memory>(32);
  const int64_t dims[] = {4, 2};
  aclTensor* tensor = aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, memory->data());
  aclOpExecutor* executor = PlanAdd(a.get(), tensor);
  memory.reset();
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 361001);
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST_F(ErrorTest, EmptyTensorsNeedNoMemory) {
  const int64_t dims[] = {0, 2};
  aclTensor* empty = aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, nullptr);
  uint64_t bytes = 1;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnAddGetWorkspaceSize(empty, empty, alpha.get(), empty, &bytes, &executor), 0) << RecentMessage();
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
  EXPECT_EQ(aclDestroyTensor(empty), 0);
}

TEST_F(ErrorTest, AnExecutorIsUsedUpByPhaseTwoEvenIfItFails) {
  aclOpExecutor* executor = PlanAdd(a.get(), out.get());
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0);
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 561102);
  EXPECT_NE(RecentMessage().find("was destroyed"), std::string::npos);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 561102);

  executor = PlanAdd(a.get(), out.get());
  int not_a_stream = 0;
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, &not_a_stream), 361001);
  EXPECT_NE(RecentMessage().find("runtime error 107017"), std::string::npos);
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 561102);
}

TEST_F(ErrorTest, NullAndForeignExecutorsAreErrors) {
  EXPECT_EQ(aclnnAdd(nullptr, 0, nullptr, stream), 561103);
  EXPECT_EQ(aclnnAdd(nullptr, 0, reinterpret_cast<aclOpExecutor*>(a.get()), stream), 561102);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), 561103);
  EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), 561103);
  EXPECT_EQ(aclSetInputTensorAddr(nullptr, 0, a.get(), a.storage()), 561103);
}

TEST_F(ErrorTest, AnExecutorOfAnotherOperatorIsRefused) {
  aclOpExecutor* executor = PlanAdd(a.get(), out.get());
  EXPECT_EQ(aclnnMul(nullptr, 0, executor, stream), 161002);
  EXPECT_NE(RecentMessage().find("planned by aclnnAddGetWorkspaceSize"), std::string::npos);
}

TEST_F(ErrorTest, TooSmallAWorkspaceIsRefused) {
  TestTensor x({256, 256}, ACL_FLOAT);
  TestTensor y({256, 256}, ACL_FLOAT);
  TestTensor z({256, 256}, ACL_FLOAT);
  const auto plan = [&](uint64_t* bytes) {
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnMmGetWorkspaceSize(x.get(), y.get(), z.get(), 0, bytes, &executor), 0) << RecentMessage();
    return executor;
  };
  uint64_t bytes = 0;
  aclOpExecutor* executor = plan(&bytes);
  ASSERT_GT(bytes, 0u);
  const Memory workspace(bytes);
  const auto says = [](const char* words) { return RecentMessage().find(words) != std::string::npos; };
  EXPECT_EQ(aclnnMm(workspace.data(), bytes - 1, executor, stream), 161002);
  EXPECT_TRUE(says("is too small"));
  EXPECT_EQ(aclnnMm(nullptr, bytes, plan(&bytes), stream), 161002);
  const std::string null = RecentMessage();
  EXPECT_NE(null.find("the workspace is null"), std::string::npos) << null;
  EXPECT_EQ(null.find("too small"), std::string::npos) << null;
  EXPECT_EQ(aclnnMm(workspace.data() + bytes - 8, bytes, plan(&bytes), stream), 361001) << "reaches behind its end";
  const std::string beyond = RecentMessage();
  EXPECT_NE(beyond.find("with as many bytes as GetWorkspaceSize wrote"), std::string::npos) << beyond;
  EXPECT_EQ(beyond.find("strides"), std::string::npos) << "a workspace has none:\n" << beyond;
  EXPECT_EQ(aclnnMm(workspace.data(), bytes, plan(&bytes), stream), 0) << RecentMessage();
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
}

TEST_F(ErrorTest, AThreadWithoutAContextGetsTheRuntimesReason) {
  aclOpExecutor* executor = PlanAdd(a.get(), out.get());
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&context), 0);
  std::string message;
  aclnnStatus status = 0;
  std::thread([&] {
    status = aclnnAdd(nullptr, 0, executor, nullptr);
    message = RecentMessage();
  }).join();
  EXPECT_EQ(status, 361001);
  EXPECT_NE(message.find("runtime error 107002"), std::string::npos) << message;
}

}  // namespace
}  // namespace aclnn_test
