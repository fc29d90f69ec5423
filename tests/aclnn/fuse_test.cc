// SPDX-License-Identifier: Apache-2.0
//
// Random programs of element-wise operators over memory that they share: what a replay computes, element-wise
// neighbours together and block by block, is bit for bit what the operators compute one by one on a stream.
#include <cstring>
#include <memory>
#include <set>

#include "../unit/product_generator.h"
#include "../unit/scale.h"
#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_batch_norm.h"
#include "aclnnop/aclnn_cast.h"
#include "aclnnop/aclnn_copy.h"
#include "aclnnop/aclnn_div.h"
#include "aclnnop/aclnn_exp.h"
#include "aclnnop/aclnn_fill_scalar.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_relu.h"
#include "aclnnop/aclnn_sub.h"
#include "aclnnop/aclnn_zero.h"
#include "harness.h"

namespace aclnn_test {
namespace {

using reprise::testing::Loops;

constexpr int64_t kSlots = 5;
constexpr int64_t kSlotBytes = 160 * 1024;
using Dims = std::vector<int64_t>;
constexpr int64_t kCounts[] = {1,   7,    8,    9,    31,   33,   255,  256,  257, 511,
                               513, 1000, 1024, 3071, 3072, 3073, 6200, 8176, 9999};

// One operator with its planned operands; made once, run as often as asked.
struct Call {
  aclOpExecutor* executor;
  PhaseTwo two;
};

class FuseTest : public AclnnTest {
 protected:
  FuseTest() : memory_(kSlots * kSlotBytes) {}

  // A view mostly at the beginning of a slot, so that programs meet the same ranges often.
  aclTensor* View(const Dims& dims, aclDataType type) {
    const auto bytes = static_cast<int64_t>(TypeOf(type).bytes);
    int64_t offset = static_cast<int64_t>(random() % kSlots) * kSlotBytes;
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    const bool is_strided = random() % 12 == 0 && 2 * count * bytes < kSlotBytes / 2;
    if (random() % 8 == 0) offset += static_cast<int64_t>(random() % 100) * bytes;
    Dims strides(dims.size(), is_strided ? 2 : 1);
    for (size_t d = dims.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * dims[d];
    char* at = memory_.data() + std::min(offset, kSlots * kSlotBytes - (is_strided ? 2 : 1) * count * bytes);
    aclTensor* tensor =
        aclCreateTensor(dims.data(), dims.size(), type, strides.data(), 0, ACL_FORMAT_ND, &count, 1, at);
    EXPECT_NE(tensor, nullptr);
    tensors_.push_back(tensor);
    return tensor;
  }

  const aclScalar* Scalar() {
    static constexpr double kValues[] = {1, 1, 2, -0.3, 0};
    const double value = kValues[random() % std::size(kValues)];
    const auto small = static_cast<int32_t>(value);
    scalars_.push_back(random() % 2 == 0 ? aclCreateScalar(const_cast<double*>(&value), ACL_DOUBLE)
                                         : aclCreateScalar(const_cast<int32_t*>(&small), ACL_INT32));
    return scalars_.back();
  }

  // Plans one random operator; false when it is refused (types that do not meet, operands that overlap in part).
  bool Plan(int64_t count, aclDataType type) {
    const auto other = [&] { return random() % 8 == 0 ? AllTypes()[random() % AllTypes().size()].id : type; };
    Dims dims = {count};
    Dims of_b = random() % 8 == 0 ? Dims{1} : dims;
    // A matrix and one of its rows, columns or both.
    const int64_t columns = std::vector<int64_t>{2, 8, 31, 64, 511, 1024}[random() % 6];
    if (count % columns == 0 && random() % 2 == 0) {
      dims = {count / columns, columns};
      of_b = std::vector<Dims>{{columns}, {count / columns, 1}, {1, 1}, dims}[random() % 4];
    }
    aclTensor* out = View(dims, other());
    aclTensor* a = random() % 3 == 0 ? out : View(dims, other());
    aclTensor* b = View(of_b, other());
    const aclScalar* alpha = Scalar();
    uint64_t workspace = 0;
    Call call{};
#define PLAN(op, ...)                                                                   \
  call.two = op;                                                                        \
  if (op##GetWorkspaceSize(__VA_ARGS__, &workspace, &call.executor) != 0) return false; \
  break
    switch (random() % 16) {
      case 0:
      case 1: PLAN(aclnnAdd, a, b, alpha, out);
      case 2: PLAN(aclnnInplaceAdd, out, b, alpha);
      case 3: PLAN(aclnnAdds, a, alpha, alpha, out);
      case 4: PLAN(aclnnSub, a, b, alpha, out);
      case 5: PLAN(aclnnInplaceSubs, out, alpha, alpha);
      case 6: PLAN(aclnnMul, a, b, out);
      case 7: PLAN(aclnnMuls, a, alpha, out);
      case 8: PLAN(aclnnInplaceMul, out, b);
      case 9: PLAN(aclnnDiv, a, b, out);
      case 10: PLAN(aclnnRelu, a, out);
      case 11: PLAN(aclnnInplaceRelu, out);
      case 12: PLAN(aclnnExp, a, out);
      case 13: PLAN(aclnnInplaceCopy, out, b);
      case 14: PLAN(aclnnInplaceFillScalar, out, alpha);
      default: PLAN(aclnnInplaceZero, out);
    }
#undef PLAN
    EXPECT_EQ(workspace, 0u);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(call.executor), 0);
    calls_.push_back(call);
    return true;
  }

  // A product, or zeros, of float32 without a gap between elements.
  void PlanProduct(int64_t count) {
    const auto view = [&](const Dims& dims) {
      char* const at = memory_.data() + static_cast<int64_t>(random() % kSlots) * kSlotBytes;
      tensors_.push_back(aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                                         dims.size(), at));
      return tensors_.back();
    };
    const Dims dims = {count / 8, 8};
    aclTensor* out = view(dims);
    aclTensor* b = view(random() % 3 == 0 ? Dims{count / 8, 1} : random() % 2 == 0 ? Dims{8} : dims);
    uint64_t workspace = 0;
    Call call{};
    aclnnStatus status = 0;
    switch (random() % 5) {
      case 0:
        call.two = aclnnInplaceZero;
        status = aclnnInplaceZeroGetWorkspaceSize(out, &workspace, &call.executor);
        break;
      case 1:
        call.two = aclnnInplaceMul;
        status = aclnnInplaceMulGetWorkspaceSize(out, b, &workspace, &call.executor);
        break;
      default: call.two = aclnnMul; status = aclnnMulGetWorkspaceSize(view(dims), b, out, &workspace, &call.executor);
    }
    if (status != 0) return;  // operands that overlap in part
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(call.executor), 0);
    calls_.push_back(call);
  }

  void Submit() {
    for (const Call& call : calls_) ASSERT_EQ(call.two(nullptr, 0, call.executor, stream), 0) << RecentMessage();
  }

  void Clear() {
    for (const Call& call : calls_) EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), 0);
    for (const aclTensor* tensor : tensors_) EXPECT_EQ(aclDestroyTensor(tensor), 0);
    for (const aclScalar* scalar : scalars_) EXPECT_EQ(aclDestroyScalar(scalar), 0);
    calls_.clear();
    tensors_.clear();
    scalars_.clear();
  }

  std::vector<char> Bytes() const { return {memory_.data(), memory_.data() + memory_.bytes()}; }
  // Any bits, or small whole numbers of the type, which stay numbers for longer.
  std::vector<char> Start(aclDataType type, bool any) {
    std::vector<char> bytes(memory_.bytes());
    if (any) {
      for (char& byte : bytes) byte = static_cast<char>(random());
      return bytes;
    }
    const size_t item = TypeOf(type).bytes;
    for (size_t at = 0; at + item <= bytes.size(); at += item) {
      Store(bytes.data() + at, type, {static_cast<long double>(random() % 9), 0});
    }
    return bytes;
  }
  void Restore(const std::vector<char>& bytes) { std::memcpy(memory_.data(), bytes.data(), bytes.size()); }

  Memory memory_;
  std::vector<Call> calls_;
  std::vector<aclTensor*> tensors_;
  std::vector<const aclScalar*> scalars_;
};

// What a generator makes of a group is run for it, and what it declines as ever.
TEST_F(FuseTest, GeneratedFunctionsTakeThePlaceOfGroups) {
  reprise::testing::ProductGenerator generator;
  for (int program = 0; program < Loops(60, 6); ++program) {
    SCOPED_TRACE(program);
    random.seed(static_cast<unsigned>(program) + 5001);
    std::vector<int64_t> counts = {3072, 6200, 8176, 24000};
    const int64_t count = counts[random() % counts.size()];
    const bool is_mixed = program % 3 == 0;
    for (int tries = 0; calls_.size() < 12 && tries < 400; ++tries) {
      if (is_mixed) {
        Plan(count, ACL_FLOAT);
      } else {
        PlanProduct(count);
      }
    }
    ASSERT_FALSE(calls_.empty());
    const std::vector<char> start = Start(ACL_FLOAT, false);
    Restore(start);
    Submit();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
    const std::vector<char> expected = Bytes();
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    Submit();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Clear();
    for (int replay = 0; replay < 5; ++replay) {  // laid out again before the fourth
      Restore(start);
      ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
      ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
      ASSERT_TRUE(Bytes() == expected) << replay;
    }
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }
  const char* const is_fused = std::getenv("REPRISE_FUSE");
  const bool fuses = is_fused == nullptr || std::string_view(is_fused) != "0";
  EXPECT_EQ(generator.made > 0, fuses);
  EXPECT_EQ(generator.declined > 0, fuses);
}

// A norm of inference is computed with what follows it, and reads values of channels for all elements.
TEST_F(FuseTest, NormsRunWithTheirNeighbours) {
  const TestScalar alpha(ACL_FLOAT, {0.7L});
  for (const Shape& shape :
       std::vector<Shape>{{1, 6, 40, 41}, {2, 5, 7, 9}, {3, 2, 300}, {1, 3, 128, 128}, {4, 6, 3, 2}}) {
    SCOPED_TRACE(shape[2]);
    const auto random_tensor = [&](const Shape& sizes, bool positive) {
      auto tensor = std::make_unique<TestTensor>(sizes, ACL_FLOAT);
      std::vector<Value> values(static_cast<size_t>(tensor->count()));
      for (Value& value : values) {
        value.re = static_cast<float>(static_cast<int>(random() % 20001) - (positive ? -1 : 10000)) / 7777.0F;
      }
      tensor->Write(values);
      return tensor;
    };
    const auto x = random_tensor(shape, false), other = random_tensor(shape, false);
    const auto weight = random_tensor({shape[1]}, false), bias = random_tensor({shape[1]}, false);
    const auto mean = random_tensor({shape[1]}, false), var = random_tensor({shape[1]}, true);
    TestTensor norm(shape, ACL_FLOAT);
    TestTensor out(shape, ACL_FLOAT);
    std::vector<Call> calls;
    const auto plan = [&](const PhaseOne& one, PhaseTwo two) {
      uint64_t bytes = 0;
      Call call{nullptr, two};
      ASSERT_EQ(one(&bytes, &call.executor), 0) << RecentMessage();
      ASSERT_EQ(bytes, 0U);
      ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), 0);
      calls.push_back(call);
    };
#define PLAN(op, ...) \
  plan([&](uint64_t* ws, aclOpExecutor** ex) { return op##GetWorkspaceSize(__VA_ARGS__, ws, ex); }, op)
    PLAN(aclnnBatchNorm, x->get(), weight->get(), bias->get(), mean->get(), var->get(), false, 0.1, 1e-5, norm.get(),
         nullptr, nullptr);
    PLAN(aclnnAdd, norm.get(), other->get(), alpha.get(), out.get());
    PLAN(aclnnInplaceRelu, out.get());
#undef PLAN
    const auto submit = [&] {
      for (const Call& call : calls) ASSERT_EQ(call.two(nullptr, 0, call.executor, stream), 0) << RecentMessage();
    };
    submit();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
    const std::vector<char> wanted = out.ReadStorage(), wanted_norm = norm.ReadStorage();
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    submit();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    for (int replay = 0; replay < 5; ++replay) {
      std::memset(out.storage(), 0xEE, static_cast<size_t>(out.count()) * sizeof(float));
      std::memset(norm.storage(), 0xEE, static_cast<size_t>(out.count()) * sizeof(float));
      ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
      ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
      ASSERT_TRUE(out.ReadStorage() == wanted && norm.ReadStorage() == wanted_norm) << replay;
    }
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
    for (const Call& call : calls) EXPECT_EQ(aclDestroyAclOpExecutor(call.executor), 0);
  }
}

TEST_F(FuseTest, RandomProgramsReplayedEqualEagerBitForBit) {
  std::set<int> types;
  for (int program = 0; program < Loops(250, 25); ++program) {
    SCOPED_TRACE(program);
    random.seed(static_cast<unsigned>(program) + 1);
    const Type& type = random() % 2 == 0 ? TypeOf(ACL_FLOAT) : AllTypes()[random() % AllTypes().size()];
    types.insert(type.id);
    int64_t count = kCounts[random() % std::size(kCounts)];
    const size_t length = 1 + random() % 40;
    for (int tries = 0; calls_.size() < length && tries < 400; ++tries) {
      if (random() % 10 == 0) count = kCounts[random() % std::size(kCounts)];
      Plan(count, type.id);
    }
    ASSERT_FALSE(calls_.empty());
    const std::vector<char> start = Start(type.id, random() % 2 == 0);
    Restore(start);
    Submit();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
    const std::vector<char> once = Bytes();
    Submit();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
    const std::vector<char> twice = Bytes();

    Restore(start);
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    Submit();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Clear();
    ASSERT_TRUE(Bytes() == start) << "nothing runs while it is captured";
    for (const std::vector<char>* expected : {&once, &twice}) {
      ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
      ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
      ASSERT_TRUE(Bytes() == *expected) << type.name;
    }
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }
  EXPECT_GT(types.size(), static_cast<size_t>(Loops(12, 4)));
}

// The program goes to and fro between two streams, so that tasks of both follow each other in the plan.
TEST_F(FuseTest, ProgramsOfTwoStreamsReplayedEqualEagerBitForBit) {
  aclrtStream other = nullptr;
  aclrtEvent handover = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  ASSERT_EQ(aclrtCreateEventExWithFlag(&handover, ACL_EVENT_SYNC), 0);
  for (int program = 0; program < Loops(40, 6); ++program) {
    SCOPED_TRACE(program);
    random.seed(static_cast<unsigned>(program) + 1001);
    const int64_t count = kCounts[random() % std::size(kCounts)];
    for (int tries = 0; calls_.size() < 30 && tries < 400; ++tries) Plan(count, ACL_FLOAT);
    const std::vector<char> start = Start(ACL_FLOAT, false);
    Restore(start);
    Submit();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
    const std::vector<char> expected = Bytes();

    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
    aclrtStream at = stream;
    const auto go_to = [&](aclrtStream to) {
      ASSERT_EQ(aclrtRecordEvent(handover, at), 0) << RecentMessage();
      ASSERT_EQ(aclrtStreamWaitEvent(to, handover), 0) << RecentMessage();
      at = to;
    };
    for (const Call& call : calls_) {
      if (random() % 4 == 0) go_to(at == stream ? other : stream);
      ASSERT_EQ(call.two(nullptr, 0, call.executor, at), 0) << RecentMessage();
    }
    if (at != stream) go_to(stream);
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Clear();
    for (int replay = 0; replay < 5; ++replay) {  // laid out again before the fourth
      Restore(start);
      ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
      ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
      ASSERT_TRUE(Bytes() == expected) << replay;
    }
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }
  EXPECT_EQ(aclrtDestroyEvent(handover), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
}

// Large enough that threads share each group.
TEST_F(FuseTest, LongChainsAreSharedAndStayTheSame) {
  random.seed(7);
  const int64_t count = 40000;
  for (int tries = 0; calls_.size() < static_cast<size_t>(Loops(120, 30)) && tries < 2000; ++tries) {
    Plan(count, ACL_FLOAT);
  }
  const std::vector<char> start = Start(ACL_FLOAT, false);
  Restore(start);
  Submit();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  const std::vector<char> expected = Bytes();
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  Submit();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  Clear();
  for (int replay = 0; replay < Loops(10, 3); ++replay) {
    Restore(start);
    ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
    ASSERT_TRUE(Bytes() == expected);
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A repeatable executor whose tensors were moved onto each other in part: such a task is not cut, and comes out as on a
// stream.
TEST_F(FuseTest, OperandsMovedOntoEachOtherAreNotCut) {
  const int64_t count = 9000;
  const auto view = [&](int64_t offset) {
    tensors_.push_back(
        aclCreateTensor(&count, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &count, 1, memory_.data() + offset));
    return tensors_.back();
  };
  aclTensor* a = view(0);
  aclTensor* b = view(kSlotBytes);
  aclTensor* out = view(2 * kSlotBytes);
  const TestScalar alpha(ACL_FLOAT, {1});
  uint64_t workspace = 0;
  Call call{nullptr, aclnnAdd};
  ASSERT_EQ(aclnnAddGetWorkspaceSize(a, b, alpha.get(), out, &workspace, &call.executor), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(call.executor), 0);
  ASSERT_EQ(aclSetInputTensorAddr(call.executor, 0, a, memory_.data() + 2 * kSlotBytes + 4 * 512), 0)
      << RecentMessage();
  calls_.assign(3, call);
  const std::vector<char> start = Start(ACL_FLOAT, false);
  Restore(start);
  Submit();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  const std::vector<char> expected = Bytes();
  Restore(start);
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  Submit();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  calls_.resize(1);
  Clear();
  ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
  EXPECT_TRUE(Bytes() == expected);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

}  // namespace
}  // namespace aclnn_test
