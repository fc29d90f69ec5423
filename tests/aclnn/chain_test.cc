// SPDX-License-Identifier: Apache-2.0
//
// Replays that run convolutions together with what follows them (src/ops/picture_chain.h) leave in memory, all of it,
// what eager calls leave, to the bit.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "../unit/scale.h"
#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_avgpool2d.h"
#include "aclnnop/aclnn_batch_norm.h"
#include "aclnnop/aclnn_cat.h"
#include "aclnnop/aclnn_convolution.h"
#include "aclnnop/aclnn_copy.h"
#include "aclnnop/aclnn_hardtanh.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_leaky_relu.h"
#include "aclnnop/aclnn_max_pool.h"
#include "aclnnop/aclnn_mean.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_relu.h"
#include "aclnnop/aclnn_silu.h"
#include "aclnnop/aclnn_upsample_nearest_2d_v2.h"
#include "aclnnop/aclnn_upsample_nearest_3d.h"
#include "base/env.h"
#include "device/write_watch.h"
#include "harness.h"
#include "model/kept_operands.h"
#include "reprise/graph.h"
#include "reprise/memory.h"
#include "reprise/operation.h"

namespace aclnn_test {
namespace {

using reprise::EnvBytes;
using reprise::EnvInt;
using reprise::EnvVar;
using reprise::model::KeptTotals;
using reprise::model::TotalsOfKept;

// Whether this process runs chains at all.
bool Chains() {
  return reprise::device::WriteWatch::IsPossible() && EnvBytes(EnvVar::kKeptOperands) != 0 &&
         EnvInt(EnvVar::kChains) != 0;
}

// Pictures with patches, and sums of several blocks.
constexpr int64_t kChannels = 40;
constexpr int64_t kParts[] = {13, 27};          // of the channels
constexpr int64_t kShuffled[] = {2, 5, 40};     // groups, by weight
constexpr int64_t kSliceFirst[] = {27, 13, 5};  // by weight: of the last 13, of the last 27, of 13 in between
struct Sizes {
  int64_t depth;  // 0: none
  int64_t side;

  int64_t plane() const { return std::max<int64_t>(1, depth) * side * side; }
  Shape Filter(int64_t inner, int64_t taps) const {
    return depth == 0 ? Shape{kChannels, inner, taps, taps} : Shape{kChannels, inner, taps, taps, taps};
  }
  // A number for each channel of each picture.
  Shape Gate() const { return depth == 0 ? Shape{2, kChannels, 1, 1} : Shape{2, kChannels, 1, 1, 1}; }
  Shape Rows() const { return depth == 0 ? Shape{2, side, side, kChannels} : Shape{2, depth, side, side, kChannels}; }
  Shape Picture() const {
    return depth == 0 ? Shape{2, kChannels, side, side} : Shape{2, kChannels, depth, side, side};
  }
};
constexpr Sizes kLarge = {0, 13};
constexpr Sizes kSmall = {0, 7};  // whose filters of several taps are multiplied as they lie
constexpr Sizes kVolume = {4, 5};
constexpr Sizes kWide = {0, 61};  // whose pictures do not stay in the caches, so that convolutions go row by row

constexpr int kEnoughReplays = 5;

enum Kind {
  kThreeTaps,
  kOneTap,
  kOwnChannels,
  kTransposed,
  kMean,
  kRows,        // a layer norm of the channels of each pixel
  kPart,        // some channels, of one tap
  kJoin,        // of these parts
  kSlice,       // some channels of a picture, through one tap
  kShuffle,     // channels of groups one after the other
  kJoinSlices,  // some channels of one picture behind some of another
  kGate,
  kLargest,  // of neighbours, as all pools of planes
  kAverage,
  kNearest,  // each pixel is the one at half of its place, or at another share of it
  kNorm,
  kRelu,
  kHardtanh,
  kSilu,
  kLeakyRelu,
  kAdd,
  kMul,
  kOperation,  // foreign code, which tells what it touches
  kKinds
};

// Everything with its sign changed.
class Opposite final : public reprise::Operation {
 public:
  Opposite(const float* from, float* to, int64_t count) : from_(from), to_(to), count_(count) {}
  void Run(uint64_t) override {
    for (int64_t i = 0; i < count_; ++i) to_[i] = -from_[i];
  }
  reprise::OperationInfo Describe() const override { return {"opposite", {}}; }

 private:
  const float* const from_;
  float* const to_;
  const int64_t count_;
};
struct Call {
  Kind kind;
  size_t a, b, out;  // pictures
  size_t weight;
};
using Program = std::vector<Call>;

class ChainTest : public RecordingTest, public testing::WithParamInterface<Sizes> {
 protected:
  static constexpr size_t kPictures = 5;
  static constexpr size_t kWeights = 3;  // of each sort

  void SetUp() override {
    AclnnTest::SetUp();
    const auto make = [&](Shape shape, float scale, float least) {
      auto tensor = std::make_unique<TestTensor>(std::move(shape), ACL_FLOAT);
      std::vector<Value> values(static_cast<size_t>(tensor->count()));
      for (Value& value : values) {
        const float number = scale * static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 7777.0F;
        value.re = least > 0 ? std::abs(number) + least : number;
      }
      tensor->Write(values);
      return tensor;
    };
    for (size_t i = 0; i < kPictures; ++i) pictures.push_back(make(GetParam().Picture(), 1, 0));
    for (size_t i = 0; i < kWeights; ++i) {
      weights[kThreeTaps].push_back(make(GetParam().Filter(kChannels, 3), 0.1F, 0));
      weights[kOneTap].push_back(make(GetParam().Filter(kChannels, 1), 0.2F, 0));
      weights[kOwnChannels].push_back(make(GetParam().Filter(1, 3), 0.4F, 0));
      weights[kTransposed].push_back(make(GetParam().Filter(kChannels, 3), 0.1F, 0));
      for (const float least : {0.0F, 0.0F, 0.0F, 0.5F}) vectors.push_back(make({kChannels}, 1, least));
      gates.push_back(make(GetParam().Gate(), 1, 0));
      rows.push_back(make(GetParam().Rows(), 1, 0));
    }
    for (const int64_t some : kParts) {
      Shape filter = GetParam().Filter(kChannels, 1);
      Shape part = GetParam().Picture();
      filter[0] = part[1] = some;
      part_filters.push_back(make(filter, 0.2F, 0));
      slice_filters.push_back(make(GetParam().Filter(some, 1), 0.2F, 0));
      parts.push_back(make(part, 1, 0));
    }
    for (int i = 0; i < 2; ++i) saved.push_back(make({kChannels}, 1, 0));
    for (const auto& picture : pictures) before.push_back(BytesOf(*picture));
    for (const auto& gate : gates) before.push_back(BytesOf(*gate));
    for (const auto& each : rows) before.push_back(BytesOf(*each));
    for (const auto& part : parts) before.push_back(BytesOf(*part));
    std::vector<aclTensor*> joined;  // which the list owns
    for (const auto& part : parts) {
      const Shape& shape = part->shape();
      joined.push_back(aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                                       shape.size(), part->storage()));
    }
    part_list = aclCreateTensorList(joined.data(), joined.size());
    const int64_t ones[3] = {1, 1, 1};
    const int64_t zeros[3] = {0, 0, 0};
    const int64_t threes[2] = {3, 3};
    const uint64_t dims = GetParam().depth == 0 ? 2 : 3;
    const int64_t spatial[3] = {2, 3, 4};
    plane_dims = aclCreateIntArray(spatial, dims);
    channels = aclCreateIntArray(&kChannels, 1);
    one = aclCreateIntArray(ones, dims);
    zero = aclCreateIntArray(zeros, dims);
    three = aclCreateIntArray(threes, 2);
    sides = aclCreateIntArray(GetParam().Picture().data() + 2, dims);
    before_all = TotalsOfKept();
  }
  void TearDown() override {
    EXPECT_EQ(aclDestroyTensorList(part_list), 0);
    for (aclIntArray* const array : {one, zero, three, sides, plane_dims, channels}) {
      EXPECT_EQ(aclDestroyIntArray(array), 0);
    }
    AclnnTest::TearDown();
  }

  static std::vector<char> BytesOf(const TestTensor& tensor) {
    std::vector<char> bytes = tensor.ReadStorage();
    bytes.resize(static_cast<size_t>(tensor.count()) * sizeof(float));
    return bytes;
  }
  void Reset() {
    for (size_t i = 0; i < kPictures; ++i) std::memcpy(pictures[i]->storage(), before[i].data(), before[i].size());
    for (size_t i = 0; i < kWeights; ++i) {
      const std::vector<char>& bytes = before[kPictures + i];
      std::memcpy(gates[i]->storage(), bytes.data(), bytes.size());
      const std::vector<char>& of_rows = before[kPictures + kWeights + i];
      std::memcpy(rows[i]->storage(), of_rows.data(), of_rows.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::vector<char>& bytes = before[kPictures + 2 * kWeights + i];
      std::memcpy(parts[i]->storage(), bytes.data(), bytes.size());
    }
  }
  std::vector<std::vector<char>> All() const {
    std::vector<std::vector<char>> all;
    for (const auto& picture : pictures) all.push_back(BytesOf(*picture));
    for (const auto& gate : gates) all.push_back(BytesOf(*gate));
    for (const auto& each : rows) all.push_back(BytesOf(*each));
    for (const auto& part : parts) all.push_back(BytesOf(*part));
    return all;
  }

  virtual aclTensor* TensorOf(size_t picture) const { return pictures[picture]->get(); }
  virtual void* StorageOf(size_t picture) const { return pictures[picture]->storage(); }
  // The picture as [2, .., kChannels], where it lies.
  aclTensor* PixelsOf(size_t picture) const {
    const Shape shape = GetParam().Rows();
    const Shape planes = GetParam().Picture();
    Shape strides(shape.size(), kChannels * GetParam().plane());
    strides.back() = GetParam().plane();
    int64_t step = 1;
    for (size_t d = shape.size() - 2; d > 0; step *= shape[d--]) strides[d] = step;
    return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND, planes.data(),
                           planes.size(), StorageOf(picture));
  }

  // Some channels of the picture, where they lie.
  aclTensor* ChannelsOf(size_t picture, int64_t first, int64_t count) const {
    const Shape& planes = GetParam().Picture();
    Shape shape = planes;
    shape[1] = count;
    const int64_t plane = GetParam().plane();
    Shape strides(shape.size(), 1);
    for (size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * planes[d];
    return aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), first * plane, ACL_FORMAT_ND,
                           planes.data(), planes.size(), StorageOf(picture));
  }

  template <class Issue>
  void Each(const Call& call, const Issue& issue) {
    aclTensor* const a = TensorOf(call.a);
    aclTensor* const b = TensorOf(call.b);
    aclTensor* const out = TensorOf(call.out);
    const auto vector = [&](size_t i) { return vectors[4 * call.weight + i]->get(); };
    switch (call.kind) {
      case kThreeTaps:
      case kOneTap:
      case kOwnChannels:
      case kTransposed: {
        aclTensor* const weight = weights[call.kind][call.weight]->get();
        aclIntArray* const pad = call.kind == kOneTap ? zero : one;
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnConvolutionGetWorkspaceSize(a, weight, call.weight == 0 ? nullptr : vector(0), one, pad, one,
                                                      call.kind == kTransposed, zero,
                                                      call.kind == kOwnChannels ? kChannels : 1, out, 0, ws, ex);
            },
            aclnnConvolution);
        return;
      }
      case kMean:
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnMeanGetWorkspaceSize(a, plane_dims, true, ACL_FLOAT, gates[call.weight]->get(), ws, ex);
            },
            aclnnMean);
        return;
      case kPart: {
        const size_t which = call.weight % parts.size();
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnConvolutionGetWorkspaceSize(a, part_filters[which]->get(), nullptr, one, zero, one, false,
                                                      zero, 1, parts[which]->get(), 0, ws, ex);
            },
            aclnnConvolution);
        return;
      }
      case kJoin:
        issue([&](uint64_t* ws, aclOpExecutor** ex) { return aclnnCatGetWorkspaceSize(part_list, 1, out, ws, ex); },
              aclnnCat);
        return;
      case kSlice: {
        const size_t which = call.weight % parts.size();
        aclTensor* const some = ChannelsOf(call.a, kSliceFirst[call.weight], kParts[which]);
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnConvolutionGetWorkspaceSize(some, slice_filters[which]->get(), vector(0), one, zero, one,
                                                      false, zero, 1, out, 0, ws, ex);
            },
            aclnnConvolution);
        EXPECT_EQ(aclDestroyTensor(some), 0);
        return;
      }
      case kShuffle: {
        const int64_t groups = kShuffled[call.weight];
        const int64_t plane = GetParam().plane();
        const int64_t of_group = kChannels / groups;
        const auto view = [&](size_t picture, int64_t group_step, int64_t channel_step) {
          const int64_t shape[] = {2, of_group, groups, plane};
          const int64_t strides[] = {kChannels * plane, channel_step * plane, group_step * plane, 1};
          return aclCreateTensor(shape, 4, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, shape, 4, StorageOf(picture));
        };
        aclTensor* const from = view(call.a, of_group, 1);
        aclTensor* const to = view(call.out, 1, groups);
        issue([&](uint64_t* ws, aclOpExecutor** ex) { return aclnnInplaceCopyGetWorkspaceSize(to, from, ws, ex); },
              aclnnInplaceCopy);
        for (aclTensor* const each : {from, to}) EXPECT_EQ(aclDestroyTensor(each), 0);
        return;
      }
      case kJoinSlices: {
        const int64_t first = call.weight == 2 ? kParts[1] : kParts[0];
        aclTensor* const both[] = {ChannelsOf(call.a, kChannels - first, first),
                                   ChannelsOf(call.b, call.weight == 1 ? first : 0, kChannels - first)};
        aclTensorList* const list = aclCreateTensorList(both, 2);
        issue([&](uint64_t* ws, aclOpExecutor** ex) { return aclnnCatGetWorkspaceSize(list, 1, out, ws, ex); },
              aclnnCat);
        EXPECT_EQ(aclDestroyTensorList(list), 0);
        return;
      }
      case kRows: {
        aclTensor* const pixels = PixelsOf(call.a);
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnLayerNormGetWorkspaceSize(pixels, channels, vector(0), vector(1), 1e-5,
                                                    rows[call.weight]->get(), nullptr, nullptr, ws, ex);
            },
            aclnnLayerNorm);
        EXPECT_EQ(aclDestroyTensor(pixels), 0);
        return;
      }
      case kGate:
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              aclTensor* const gate = gates[call.weight]->get();
              return call.weight == 1 ? aclnnMulGetWorkspaceSize(gate, a, out, ws, ex)
                                      : aclnnMulGetWorkspaceSize(a, gate, out, ws, ex);
            },
            aclnnMul);
        return;
      case kLargest:
        if (GetParam().depth != 0) return;
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnMaxPoolGetWorkspaceSize(a, three, one, 0, one, one, 0, out, ws, ex);
            },
            aclnnMaxPool);
        return;
      case kAverage:
        if (GetParam().depth != 0) return;
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnAvgPool2dGetWorkspaceSize(a, three, one, one, false, call.weight == 0, 0, 0, out, ws, ex);
            },
            aclnnAvgPool2d);
        return;
      case kNearest:
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              if (GetParam().depth == 0) {
                return aclnnUpsampleNearest2dV2GetWorkspaceSize(a, sides, call.weight == 0 ? 1.5f : 2.0f,
                                                                call.weight == 1 ? 0.0f : 2.0f, out, ws, ex);
              }
              return aclnnUpsampleNearest3dGetWorkspaceSize(a, sides, 2.0, call.weight == 0 ? 1.5 : 0.0, 2.0, out, ws,
                                                            ex);
            },
            GetParam().depth == 0 ? aclnnUpsampleNearest2dV2 : aclnnUpsampleNearest3d);
        return;
      case kOperation: {
        const auto size = static_cast<uint64_t>(pictures[0]->count()) * sizeof(float);
        auto* const from = static_cast<const float*>(StorageOf(call.a));
        auto* const to = static_cast<float*>(StorageOf(call.out));
        reprise::OperationOptions options;
        options.operands = {{from, size, REPRISE_ACCESS_READ}, {to, size, REPRISE_ACCESS_WRITE}};
        if (call.weight == 2) options.operands.reset();
        reprise::LaunchOperation(stream, std::make_unique<Opposite>(from, to, pictures[0]->count()), options);
        return;
      }
      case kNorm:
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) {
              return aclnnBatchNormGetWorkspaceSize(a, vector(0), vector(1), vector(2), vector(3), false, 0.1, 1e-5,
                                                    out, saved[0]->get(), saved[1]->get(), ws, ex);
            },
            aclnnBatchNorm);
        return;
      case kRelu:
        issue([&](uint64_t* ws, aclOpExecutor** ex) { return aclnnReluGetWorkspaceSize(a, out, ws, ex); }, aclnnRelu);
        return;
      case kHardtanh:
        issue([&](uint64_t* ws,
                  aclOpExecutor** ex) { return aclnnHardtanhGetWorkspaceSize(a, low.get(), high.get(), out, ws, ex); },
              aclnnHardtanh);
        return;
      case kSilu:
        issue([&](uint64_t* ws, aclOpExecutor** ex) { return aclnnSiluGetWorkspaceSize(a, out, ws, ex); }, aclnnSilu);
        return;
      case kLeakyRelu:
        issue([&](uint64_t* ws,
                  aclOpExecutor** ex) { return aclnnLeakyReluGetWorkspaceSize(a, slope.get(), out, ws, ex); },
              aclnnLeakyRelu);
        return;
      case kAdd:
        issue(
            [&](uint64_t* ws, aclOpExecutor** ex) { return aclnnAddGetWorkspaceSize(a, b, alpha.get(), out, ws, ex); },
            aclnnAdd);
        return;
      default:
        issue([&](uint64_t* ws, aclOpExecutor** ex) { return aclnnMulGetWorkspaceSize(a, b, out, ws, ex); }, aclnnMul);
    }
  }
  std::vector<std::vector<char>> Eager(const Program& program) {
    Reset();
    for (const Call& call : program) {
      Each(call, [&](const PhaseOne& first, PhaseTwo second) {
        EXPECT_EQ(RunOp(stream, first, second), 0) << RecentMessage();
      });
    }
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
    return All();
  }
  aclmdlRI Capture(const Program& program) {
    aclmdlRI model = nullptr;
    EXPECT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
    for (const Call& call : program) Each(call, [&](const PhaseOne& first, PhaseTwo second) { Record(first, second); });
    EXPECT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    return model;
  }
  // Which of two NaNs a sum of them has, and its sign, is up to the instruction.
  static std::vector<char> WithOneNan(std::vector<char> bytes) {
    for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data() + at, sizeof value);
      if (!std::isnan(value)) continue;
      value = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
    return bytes;
  }
  void Check(aclmdlRI model, const std::vector<std::vector<char>>& expected, int replays) {
    for (int i = 0; i < replays; ++i) {
      Reset();
      Replay(model);
      const auto found = All();
      for (size_t p = 0; p < found.size(); ++p) {
        ASSERT_EQ(WithOneNan(found[p]), WithOneNan(expected[p])) << "replay " << i << ", picture " << p;
      }
    }
  }
  // Memory after replays of a program as after eager calls.
  void CheckAll(const Program& program) {
    const aclmdlRI model = Capture(program);
    Check(model, Eager(program), kEnoughReplays);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }
  uint64_t executions() const { return TotalsOfKept().chained - before_all.chained; }
  // Tasks of such a convolution: filters that lie as they are need no turned pictures.
  static uint64_t three_taps() { return GetParam().plane() == kSmall.plane() ? 2 : 4; }
  // All executions of chains since the test began had so many links, in place of so many tasks.
  void ExpectChains(uint64_t links, uint64_t tasks) const {
    const KeptTotals now = TotalsOfKept();
    const uint64_t count = executions();
    EXPECT_EQ(count != 0, Chains());
    EXPECT_EQ(now.links - before_all.links, links * count);
    EXPECT_EQ(now.linked - before_all.linked, tasks * count);
  }

  const TestScalar alpha{ACL_FLOAT, {1}}, low{ACL_FLOAT, {-0.25L}}, high{ACL_FLOAT, {1.5L}}, slope{ACL_FLOAT, {0.125L}};
  std::vector<std::unique_ptr<TestTensor>> pictures, vectors, gates, rows, saved, parts, part_filters, slice_filters;
  std::vector<std::unique_ptr<TestTensor>> weights[4];
  std::vector<std::vector<char>> before;
  aclIntArray* one = nullptr;
  aclIntArray* zero = nullptr;
  aclIntArray* three = nullptr;
  aclIntArray* sides = nullptr;
  aclIntArray* plane_dims = nullptr;
  aclIntArray* channels = nullptr;
  aclTensorList* part_list = nullptr;
  KeptTotals before_all;
};

// A residual block whose intermediate results are written over, in the order of a network.
const Program kBlock = {{kOneTap, 0, 0, 1, 1},      {kNorm, 1, 1, 2, 0},     {kRelu, 2, 2, 1, 0},
                        {kThreeTaps, 1, 1, 2, 0},   {kNorm, 2, 2, 3, 1},     {kRelu, 3, 3, 3, 0},
                        {kOneTap, 3, 3, 2, 2},      {kNorm, 2, 2, 3, 2},     {kOneTap, 0, 0, 2, 0},
                        {kNorm, 2, 2, 4, 1},        {kAdd, 3, 4, 2, 0},      {kRelu, 2, 2, 2, 0},
                        {kOwnChannels, 2, 2, 3, 1}, {kHardtanh, 3, 3, 4, 0}, {kOneTap, 4, 4, 1, 1},
                        {kAdd, 1, 2, 3, 0},         {kMul, 3, 3, 4, 0}};

TEST_P(ChainTest, ABlockGivesTheBitsOfEagerCalls) {
  const aclmdlRI model = Capture(kBlock);
  Check(model, Eager(kBlock), kEnoughReplays + 3);
  ExpectChains(6, 14 + three_taps());
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kBlock), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Activations that are a pass of their own, behind a norm, a sum and a split: the first stays until the end.
const Program kPasses = {{kOneTap, 0, 0, 1, 1},    {kNorm, 1, 1, 2, 0},   {kSilu, 2, 2, 3, 0},
                         {kThreeTaps, 3, 3, 1, 0}, {kSilu, 1, 1, 1, 0},   {kOwnChannels, 1, 1, 4, 1},
                         {kLeakyRelu, 4, 4, 4, 0}, {kOneTap, 4, 4, 1, 1}, {kAdd, 1, 3, 1, 0},
                         {kSilu, 1, 1, 1, 0}};

TEST_P(ChainTest, ActivationsInAPassOfTheirOwnAreOfTheLink) {
  const aclmdlRI model = Capture(kPasses);
  Check(model, Eager(kPasses), kEnoughReplays + 3);
  ExpectChains(4, 9 + three_taps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Each result of the first block stays until the end: it is written to memory, and the chain goes on all the same.
const Program kStays = {{kOneTap, 0, 0, 1, 1}, {kRelu, 1, 1, 2, 0}, {kThreeTaps, 2, 2, 3, 0},
                        {kNorm, 3, 3, 4, 1},   {kRelu, 4, 4, 4, 0}, {kOwnChannels, 4, 4, 0, 2}};

TEST_P(ChainTest, ResultsThatStayDoNotEndALink) {
  const aclmdlRI model = Capture(kStays);
  Check(model, Eager(kStays), kEnoughReplays + 3);
  ExpectChains(3, 5 + three_taps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A squeeze and what it excites: means of a picture, and the picture times a number for each channel, are links. Tasks
// beside the product, in the same step of the plan, run as they did.
const Program kSqueeze = {{kOwnChannels, 0, 0, 1, 1}, {kSilu, 1, 1, 2, 0},  {kMean, 2, 2, 0, 0},   {kRelu, 4, 4, 4, 0},
                          {kGate, 2, 2, 3, 0},        {kAdd, 4, 4, 4, 0},   {kOneTap, 3, 3, 1, 1}, {kRelu, 1, 1, 2, 0},
                          {kGate, 2, 2, 2, 1},        {kOneTap, 2, 2, 3, 2}};

TEST_P(ChainTest, MeansAndGatesAreLinks) {
  const aclmdlRI model = Capture(kSqueeze);
  Check(model, Eager(kSqueeze), kEnoughReplays + 3);
  ExpectChains(6, 8);
  for (auto& values : before) std::rotate(values.begin(), values.begin() + 28, values.end());
  Check(model, Eager(kSqueeze), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A norm of the channels of each pixel reads them where a convolution of channels by themselves leaves them.
const Program kNormalised = {{kOwnChannels, 0, 0, 1, 1}, {kRows, 1, 1, 1, 2}, {kOneTap, 2, 2, 1, 0}};

TEST_P(ChainTest, NormsOfPixelsAreLinks) {
  const aclmdlRI model = Capture(kNormalised);
  Check(model, Eager(kNormalised), kEnoughReplays + 3);
  ExpectChains(2, 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// As in networks that put what was there beside what is new, and norms in front of convolutions: one part of the first
// picture lies in memory alone.
const Program kJoined = {
    {kPart, 0, 0, 0, 0},   {kJoin, 0, 0, 1, 0},     {kNorm, 1, 1, 2, 0},   {kRelu, 2, 2, 2, 0},
    {kOneTap, 2, 2, 3, 0}, {kNorm, 3, 3, 2, 1},     {kSilu, 2, 2, 2, 0},   {kThreeTaps, 2, 2, 3, 0},
    {kPart, 3, 3, 0, 1},   {kPart, 1, 1, 0, 0},     {kJoin, 0, 0, 4, 0},   {kNorm, 4, 4, 2, 2},
    {kAdd, 2, 4, 2, 0},    {kHardtanh, 2, 2, 2, 0}, {kOneTap, 2, 2, 3, 1}, {kRelu, 3, 3, 4, 0}};

TEST_P(ChainTest, JoinsAndNormsInFrontAreLinks) {
  const aclmdlRI model = Capture(kJoined);
  Check(model, Eager(kJoined), kEnoughReplays + 3);
  // Part, join, norm, convolution, convolution, two parts, join, norm, convolution.
  ExpectChains(10, 14 + three_taps());
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Pools read pixels where convolutions leave them, and leave them for convolutions; one reads planes that lie in
// memory.
const Program kPooled = {{kLargest, 0, 0, 4, 0}, {kOneTap, 0, 0, 1, 1},      {kRelu, 1, 1, 1, 0},
                         {kLargest, 1, 1, 2, 0}, {kOwnChannels, 2, 2, 1, 1}, {kAverage, 1, 1, 3, 0},
                         {kAverage, 3, 3, 2, 1}, {kOneTap, 2, 2, 3, 2},      {kRelu, 3, 3, 3, 0}};

TEST_P(ChainTest, PoolsAreLinks) {
  if (GetParam().depth != 0) return CheckAll(kPooled);  // without the pools, which are those of planes
  const aclmdlRI model = Capture(kPooled);
  Check(model, Eager(kPooled), kEnoughReplays + 3);
  ExpectChains(6, 8);
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kPooled), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// As in networks whose units compute half of the channels, and join them with the other half.
const Program kSliced = {{kOneTap, 0, 0, 1, 1},     {kRelu, 1, 1, 1, 0},      {kSlice, 1, 1, 2, 1},
                         {kRelu, 2, 2, 2, 0},       {kThreeTaps, 2, 2, 3, 2}, {kJoinSlices, 1, 3, 4, 1},
                         {kShuffle, 4, 4, 0, 0},    {kSlice, 0, 0, 2, 2},     {kRelu, 2, 2, 2, 0},
                         {kJoinSlices, 2, 0, 1, 2}, {kShuffle, 1, 1, 3, 1},   {kOneTap, 3, 3, 2, 0}};

TEST_P(ChainTest, SomeChannelsAreReadFromLinks) {
  const aclmdlRI model = Capture(kSliced);
  Check(model, Eager(kSliced), kEnoughReplays + 3);
  ExpectChains(9, 11 + three_taps());
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kSliced), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

const Program kResized = {{kNearest, 0, 0, 4, 1}, {kOneTap, 4, 4, 1, 1}, {kRelu, 1, 1, 1, 0}, {kNearest, 1, 1, 2, 0},
                          {kNearest, 2, 2, 3, 1}, {kOneTap, 3, 3, 2, 2}, {kRelu, 2, 2, 2, 0}, {kNearest, 2, 2, 1, 2}};

TEST_P(ChainTest, ResizesToTheNearestAreLinks) {
  const aclmdlRI model = Capture(kResized);
  Check(model, Eager(kResized), kEnoughReplays + 3);
  ExpectChains(4, 6);  // the first reads planes, nobody reads the last
  for (auto& values : before) std::reverse(values.begin(), values.end());
  Check(model, Eager(kResized), 2);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// It may read and write pictures that are in mirrors, too.
Program AroundOperation(size_t told) {
  return {{kOneTap, 0, 0, 1, 1}, {kRelu, 1, 1, 1, 0},         {kOneTap, 1, 1, 2, 2},
          {kRelu, 2, 2, 2, 0},   {kOperation, 1, 1, 2, told}, {kOneTap, 2, 2, 3, 0},
          {kRelu, 3, 3, 3, 0},   {kOneTap, 3, 3, 4, 1},       {kRelu, 4, 4, 4, 0}};
}

TEST_P(ChainTest, OperationsThatTellWhatTheyTouchDoNotEndAChain) {
  const aclmdlRI model = Capture(AroundOperation(0));
  Check(model, Eager(AroundOperation(0)), kEnoughReplays + 3);
  ExpectChains(4, 8);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_P(ChainTest, OperationsThatDoNotTellEndAChain) {
  const aclmdlRI model = Capture(AroundOperation(2));
  Check(model, Eager(AroundOperation(2)), kEnoughReplays + 3);
  ExpectChains(2, 4);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// What is added is what the convolution itself gave, where an older result of a link has lain before.
const Program kOwnSum = {{kThreeTaps, 4, 4, 2, 2}, {kThreeTaps, 2, 2, 1, 0}, {kAdd, 1, 1, 4, 0},
                         {kOneTap, 4, 4, 2, 2},    {kNorm, 2, 2, 3, 0},      {kAdd, 3, 2, 1, 0},
                         {kThreeTaps, 1, 1, 3, 2}, {kThreeTaps, 3, 3, 4, 0}};

TEST_P(ChainTest, ASumWithTheConvolutionItselfIsOfNow) {
  const aclmdlRI model = Capture(kOwnSum);
  Check(model, Eager(kOwnSum), kEnoughReplays + 3);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A product with a number for each picture, or for each column, is none of channels.
TEST_P(ChainTest, OtherProductsAreNoLinks) {
  const std::vector<int64_t> ones(GetParam().Picture().size() - 1, 1);
  std::vector<int64_t> of_pictures = ones;
  of_pictures.insert(of_pictures.begin(), 2);
  for (const std::vector<int64_t>& shape : {of_pictures, std::vector<int64_t>{GetParam().side}}) {
    SCOPED_TRACE(shape.size());
    const std::vector<int64_t> strides(shape.size(), 1);
    aclTensor* const factors = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, strides.data(), 0, ACL_FORMAT_ND,
                                               shape.data(), shape.size(), gates[0]->storage());
    const PhaseOne product = [&](uint64_t* ws, aclOpExecutor** ex) {
      return aclnnMulGetWorkspaceSize(pictures[1]->get(), factors, pictures[2]->get(), ws, ex);
    };
    const Program before_it = {{kOneTap, 0, 0, 1, 1}};
    const Program behind_it = {{kOneTap, 2, 2, 3, 1}};
    (void)Eager(before_it);
    EXPECT_EQ(RunOp(stream, product, aclnnMul), 0) << RecentMessage();
    Each(behind_it[0], [&](const PhaseOne& first, PhaseTwo second) {
      EXPECT_EQ(RunOp(stream, first, second), 0) << RecentMessage();
    });
    const auto expected = All();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
    Each(before_it[0], [&](const PhaseOne& first, PhaseTwo second) { Record(first, second); });
    Record(product, aclnnMul);
    Each(behind_it[0], [&](const PhaseOne& first, PhaseTwo second) { Record(first, second); });
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Check(model, expected, kEnoughReplays + 3);
    EXPECT_EQ(executions(), 0u);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
    EXPECT_EQ(aclDestroyTensor(factors), 0);
  }
}

// What is written over in part stays in part, however its rest lies in planes.
TEST_P(ChainTest, APartThatIsWrittenOverNeedNotBeThere) {
  const int64_t plane = GetParam().plane();
  const int64_t count = pictures[1]->count();
  const struct {
    int64_t begin, end;
  } ranges[] = {{0, 3 * plane + 5}, {plane + 1, plane + 2}, {2 * plane, count - plane}, {count - 7, count}, {0, count}};
  for (const auto& part : ranges) {
    SCOPED_TRACE(part.begin);
    const int64_t elements[1] = {part.end - part.begin};
    const int64_t stride[1] = {1};
    const auto view = [&](size_t picture) {
      return aclCreateTensor(elements, 1, ACL_FLOAT, stride, part.begin, ACL_FORMAT_ND, &count, 1,
                             pictures[picture]->storage());
    };
    aclTensor* const from = view(4);
    aclTensor* const to = view(1);
    const PhaseOne over = [&](uint64_t* ws, aclOpExecutor** ex) { return aclnnReluGetWorkspaceSize(from, to, ws, ex); };
    const Program program = {{kOneTap, 0, 0, 1, 1}, {kRelu, 1, 1, 2, 0}, {kThreeTaps, 2, 2, 3, 0}};
    (void)Eager(program);
    EXPECT_EQ(RunOp(stream, over, aclnnRelu), 0) << RecentMessage();
    const auto expected = All();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
    for (const Call& call : program) Each(call, [&](const PhaseOne& a, PhaseTwo b) { Record(a, b); });
    Record(over, aclnnRelu);
    ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
    Check(model, expected, kEnoughReplays);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
    EXPECT_EQ(aclDestroyTensor(from), 0);
    EXPECT_EQ(aclDestroyTensor(to), 0);
  }
  EXPECT_EQ(executions() != 0, Chains());
}

// Any calls in any order on few pictures: results that others read, that stay, that are computed in place or twice.
TEST_P(ChainTest, RandomProgramsLeaveAllOfMemoryAsEagerCallsDo) {
  const int rounds = reprise::testing::InForm(reprise::testing::Loops(700, 10));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Program program;
    size_t last = 0;
    for (int i = 0; i < 14; ++i) {
      Call call{};
      call.kind = static_cast<Kind>(random() % kKinds);
      // Mostly what was computed last, as networks do.
      call.a = random() % 4 != 0 ? last : random() % kPictures;
      call.b = random() % kPictures;
      call.out = random() % kPictures;
      call.weight = random() % kWeights;
      if (call.kind <= kNorm && call.kind != kGate && call.out == call.a) call.out = (call.a + 1) % kPictures;
      while (call.kind == kJoinSlices && (call.out == call.a || call.out == call.b)) call.out = random() % kPictures;
      last = call.out;
      program.push_back(call);
    }
    CheckAll(program);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(executions() >= static_cast<uint64_t>(rounds), Chains());
}

TEST_P(ChainTest, WrittenWeightsAndStatisticsAreSeen) {
  const aclmdlRI model = Capture(kBlock);
  Check(model, Eager(kBlock), kEnoughReplays);
  for (TestTensor* const written : {weights[kOneTap][1].get(), weights[kThreeTaps][0].get(), vectors[3].get()}) {
    reinterpret_cast<float*>(written->storage())[7] += 1;
    Check(model, Eager(kBlock), 2);
  }
  Check(model, Eager(kBlock), 30);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_P(ChainTest, ChangedTasksAreRunAsTheyAreNow) {
  const Program program = {{kOneTap, 0, 0, 1, 1}, {kNorm, 1, 1, 2, 0}, {kRelu, 2, 2, 1, 0},
                           {kOneTap, 1, 1, 2, 2}, {kRelu, 2, 2, 3, 0}, {kNorm, 3, 3, 1, 1}};
  const aclmdlRI model = Capture(program);
  Check(model, Eager(program), kEnoughReplays);
  const uint64_t until = executions();
  EXPECT_EQ(until != 0, Chains());
  aclrtStream captured = nullptr;
  uint32_t count = 1;
  ASSERT_EQ(aclmdlRIGetStreams(model, &captured, &count), 0) << RecentMessage();
  aclmdlRITask tasks[6] = {};
  count = 6;
  ASSERT_EQ(aclmdlRIGetTasksByStream(captured, tasks, &count), 0) << RecentMessage();
  ASSERT_EQ(count, 6U);
  ASSERT_EQ(aclmdlRITaskDisable(tasks[2]), 0) << RecentMessage();
  ASSERT_EQ(aclmdlRIUpdate(model), 0) << RecentMessage();
  Program changed = program;
  changed.erase(changed.begin() + 2);
  Check(model, Eager(changed), 30);
  EXPECT_EQ(executions() > until, Chains()) << "a chain of the tasks as they are now";
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// What a host function reads and writes nobody knows: behind it each task runs by itself.
struct Reader {
  const TestTensor* from;
  std::vector<char> seen;
  float* changes;
  static void Read(void* self) {
    auto& reader = *static_cast<Reader*>(self);
    reader.seen.assign(reader.from->storage(), reader.from->storage() + reader.seen.size());
    *reader.changes += 1;
  }
};

TEST_P(ChainTest, AHostFunctionSeesWhatIsWrittenOverBehindIt) {
  const Program first = {{kOneTap, 0, 0, 1, 1}, {kNorm, 1, 1, 2, 0}, {kRelu, 2, 2, 1, 0}, {kThreeTaps, 1, 1, 3, 1}};
  const Program second = {{kOneTap, 3, 3, 1, 1}, {kRelu, 1, 1, 2, 0}, {kAdd, 2, 3, 1, 0}, {kRelu, 1, 1, 3, 0}};
  Reader reader{pictures[2].get(), std::vector<char>(before[2].size()),
                reinterpret_cast<float*>(weights[kOneTap][1]->storage())};
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  const auto record = [&](const PhaseOne& one_, PhaseTwo two) { Record(one_, two); };
  for (const Call& call : first) Each(call, record);
  ASSERT_EQ(aclrtLaunchHostFunc(stream, Reader::Read, &reader), 0) << RecentMessage();
  for (const Call& call : second) Each(call, record);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  for (int i = 0; i < 12; ++i) {
    Reset();
    for (const Call& call : first) {
      Each(call, [&](const PhaseOne& a, PhaseTwo b) { EXPECT_EQ(RunOp(stream, a, b), 0) << RecentMessage(); });
    }
    const std::vector<char> wanted = BytesOf(*pictures[2]);
    const float unchanged = std::exchange(*reader.changes, *reader.changes + 1);
    for (const Call& call : second) {
      Each(call, [&](const PhaseOne& a, PhaseTwo b) { EXPECT_EQ(RunOp(stream, a, b), 0) << RecentMessage(); });
    }
    const auto all = All();
    *reader.changes = unchanged;
    Reset();
    Replay(model);
    ASSERT_EQ(reader.seen, wanted) << i;
    ASSERT_EQ(All(), all) << i;
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Holds a host function until it is opened.
class Gate {
 public:
  static void Wait(void* self) {
    auto& gate = *static_cast<Gate*>(self);
    std::unique_lock lock(gate.mutex_);
    gate.is_reached_ = true;
    gate.changed_.notify_all();
    gate.changed_.wait(lock, [&] { return gate.is_open_; });
  }
  void WaitUntilReached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_reached_; });
  }
  void Open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    is_reached_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true, is_reached_ = false;
};

TEST_P(ChainTest, AnAbortBehindTheLinksLeavesTheModelReady) {
  const Program first(kStays.begin(), kStays.begin() + 3);
  const Program second(kStays.begin() + 3, kStays.end());
  Gate gate;
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  const auto record = [&](const PhaseOne& a, PhaseTwo b) { Record(a, b); };
  for (const Call& call : first) Each(call, record);
  ASSERT_EQ(aclrtLaunchHostFunc(stream, Gate::Wait, &gate), 0) << RecentMessage();
  for (const Call& call : second) Each(call, record);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  const auto expected = Eager(kStays);
  Check(model, expected, kEnoughReplays);
  EXPECT_EQ(executions() != 0, Chains());
  for (int i = 0; i < 3; ++i) {
    Reset();
    gate.Open(false);
    aclrtStream other = nullptr;
    ASSERT_EQ(aclrtCreateStream(&other), 0) << RecentMessage();
    ASSERT_EQ(aclmdlRIExecuteAsync(model, other), 0) << RecentMessage();
    gate.WaitUntilReached();
    EXPECT_EQ(aclrtStreamAbort(other), 0) << RecentMessage();
    gate.Open(true);
    (void)aclrtSynchronizeStream(other);
    EXPECT_EQ(aclrtDestroyStream(other), 0) << RecentMessage();
    Check(model, expected, 2);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// Wherever it comes: before the links, between two of them or behind all.
TEST_P(ChainTest, AnAbortAmongTheLinksLeavesTheModelReady) {
  const aclmdlRI model = Capture(kBlock);
  const auto expected = Eager(kBlock);
  Check(model, expected, kEnoughReplays);
  EXPECT_EQ(executions() != 0, Chains());
  for (int i = 0; i < 20; ++i) {
    Reset();
    aclrtStream other = nullptr;
    ASSERT_EQ(aclrtCreateStream(&other), 0) << RecentMessage();
    ASSERT_EQ(aclmdlRIExecuteAsync(model, other), 0) << RecentMessage();
    for (int turn = 0; turn < 50 * i; ++turn) std::this_thread::yield();
    EXPECT_EQ(aclrtStreamAbort(other), 0) << RecentMessage();
    (void)aclrtSynchronizeStream(other);
    EXPECT_EQ(aclrtDestroyStream(other), 0) << RecentMessage();
    Check(model, expected, 1);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

// A transposed convolution between others: of pictures whose sides it doubles, which nobody turns.
class DoublingTest : public ChainTest {};

TEST_P(DoublingTest, TransposedConvolutionsAreLinks) {
  const int64_t side = GetParam().side;
  const auto make = [&](Shape shape) {
    auto tensor = std::make_unique<TestTensor>(std::move(shape), ACL_FLOAT);
    std::vector<Value> values(static_cast<size_t>(tensor->count()));
    for (Value& value : values) value.re = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7777.0F;
    tensor->Write(values);
    return tensor;
  };
  const auto filter = make({kChannels, kChannels, 4, 4});
  std::vector<std::unique_ptr<TestTensor>> doubled;
  for (int i = 0; i < 3; ++i) doubled.push_back(make({2, kChannels, 2 * side, 2 * side}));
  const int64_t twos[2] = {2, 2};
  aclIntArray* const two = aclCreateIntArray(twos, 2);
  aclTensor* const norm[] = {vectors[0]->get(), vectors[1]->get(), vectors[2]->get(), vectors[3]->get()};
  const std::pair<PhaseOne, PhaseTwo> calls[] = {
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnConvolutionGetWorkspaceSize(pictures[0]->get(), weights[kOneTap][0]->get(), nullptr, one, zero,
                                                 one, false, zero, 1, pictures[1]->get(), 0, ws, ex);
       },
       aclnnConvolution},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnConvolutionGetWorkspaceSize(pictures[1]->get(), filter->get(), vectors[0]->get(), two, one, one,
                                                 true, zero, 1, doubled[0]->get(), 0, ws, ex);
       },
       aclnnConvolution},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnBatchNormGetWorkspaceSize(doubled[0]->get(), norm[0], norm[1], norm[2], norm[3], false, 0.1, 1e-5,
                                               doubled[1]->get(), saved[0]->get(), saved[1]->get(), ws, ex);
       },
       aclnnBatchNorm},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnAddGetWorkspaceSize(doubled[1]->get(), doubled[2]->get(), alpha.get(), doubled[1]->get(), ws, ex);
       },
       aclnnAdd},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnSiluGetWorkspaceSize(doubled[1]->get(), doubled[1]->get(), ws, ex);
       },
       aclnnSilu},
      {[&](uint64_t* ws, aclOpExecutor** ex) {
         return aclnnConvolutionGetWorkspaceSize(doubled[1]->get(), weights[kThreeTaps][0]->get(), nullptr, one, one,
                                                 one, false, zero, 1, doubled[0]->get(), 0, ws, ex);
       },
       aclnnConvolution}};
  const auto all = [&] {
    std::vector<std::vector<char>> bytes = All();
    for (const auto& tensor : doubled) bytes.push_back(BytesOf(*tensor));
    return bytes;
  };
  Reset();
  for (const auto& [first, second] : calls) EXPECT_EQ(RunOp(stream, first, second), 0) << RecentMessage();
  const auto expected = all();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  for (const auto& [first, second] : calls) Record(first, second);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  for (int i = 0; i < kEnoughReplays + 3; ++i) {
    Reset();
    for (const size_t which : {0, 1}) std::memset(doubled[which]->storage(), 0x5A, expected.back().size());
    Replay(model);
    ASSERT_EQ(all(), expected) << "replay " << i;
  }
  // An addend that is in memory alone ends the link of the transposed convolution before the sum.
  ExpectChains(3, 10);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_EQ(aclDestroyIntArray(two), 0);
}

// ---- Convolutions row by row ----

class WideTest : public ChainTest {};

// What is between the convolutions is written over in the end: with norms, a sum, results that others read or that
// stay.
const Program kWidePrograms[] = {
    {{kOneTap, 0, 0, 1, 1},
     {kNorm, 1, 1, 2, 0},
     {kRelu, 2, 2, 1, 0},
     {kOwnChannels, 1, 1, 2, 1},
     {kNorm, 2, 2, 3, 1},
     {kHardtanh, 3, 3, 2, 0},
     {kOneTap, 2, 2, 3, 2},
     {kAdd, 3, 0, 3, 0},
     {kRelu, 4, 4, 1, 0},
     {kRelu, 4, 4, 2, 0}},
    {{kOwnChannels, 0, 0, 1, 1},
     {kSilu, 1, 1, 1, 0},
     {kOneTap, 1, 1, 2, 1},
     {kNorm, 2, 2, 3, 2},
     {kSilu, 3, 3, 4, 0},
     {kRelu, 0, 0, 1, 0}},
    {{kOneTap, 0, 0, 1, 0},
     {kOwnChannels, 1, 1, 2, 0},
     {kOneTap, 2, 2, 3, 0},
     {kAdd, 3, 1, 3, 0},
     {kRelu, 0, 0, 1, 0},
     {kRelu, 0, 0, 2, 0}},
    {{kThreeTaps, 0, 0, 1, 1},
     {kOwnChannels, 1, 1, 2, 2},
     {kRelu, 2, 2, 2, 0},
     {kOneTap, 2, 2, 1, 1},
     {kOneTap, 1, 1, 2, 0}},
};

TEST_P(WideTest, LinksRowByRowGiveTheBitsOfEagerCalls) {
  for (const Program& program : kWidePrograms) {
    SCOPED_TRACE(&program - kWidePrograms);
    const aclmdlRI model = Capture(program);
    Check(model, Eager(program), kEnoughReplays);
    for (auto& values : before) std::reverse(values.begin(), values.end());
    Check(model, Eager(program), 2);
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }
  EXPECT_EQ(executions() != 0, Chains());
}

TEST_P(WideTest, RandomProgramsLeaveAllOfMemoryAsEagerCallsDo) {
  constexpr Kind kOfRows[] = {kOneTap, kOneTap, kOwnChannels, kOwnChannels, kNorm, kRelu, kSilu, kAdd};
  const int rounds = reprise::testing::InForm(reprise::testing::Loops(16, 2));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    Program program;
    size_t last = 0;
    for (int i = 0; i < 9; ++i) {
      Call call{};
      call.kind = kOfRows[random() % std::size(kOfRows)];
      call.a = last;
      call.b = random() % kPictures;
      call.out = (call.a + 1 + random() % 2) % kPictures;
      call.weight = random() % kWeights;
      last = call.out;
      program.push_back(call);
    }
    CheckAll(program);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(executions() != 0, Chains());
}

INSTANTIATE_TEST_SUITE_P(Sizes, WideTest, testing::Values(kWide));
INSTANTIATE_TEST_SUITE_P(Sizes, ChainTest, testing::Values(kLarge, kSmall, kVolume));
INSTANTIATE_TEST_SUITE_P(Sizes, DoublingTest, testing::Values(kLarge, kSmall));

// ---- Blocks of the caching allocator ----

// Programs whose pictures lie in the pool of a graph, from kPictures on: what need not be stored there is known by what
// stood there before, which is left.
class PoolTest : public ChainTest {
 protected:
  static constexpr char kSign = 0x5A;

  void TearDown() override {
    Clear();
    ChainTest::TearDown();
  }
  void Clear() {
    for (Place& place : places) {
      EXPECT_EQ(aclDestroyTensor(place.tensor), 0);
      if (place.is_held) reprise::device_memory::Free(place.block);
    }
    for (char* const block : others) reprise::device_memory::Free(block);
    places.clear();
    others.clear();
  }

  void* StorageOf(size_t picture) const override {
    return picture < kPictures ? ChainTest::StorageOf(picture) : places[picture - kPictures].block;
  }
  aclTensor* TensorOf(size_t picture) const override {
    return picture < kPictures ? ChainTest::TensorOf(picture) : places[picture - kPictures].tensor;
  }
  uint64_t bytes() const { return before[0].size(); }
  char* Allocate(uint64_t count) const { return static_cast<char*>(reprise::device_memory::Allocate(count, stream)); }
  // The number of a picture.
  size_t Make() {
    char* const block = Allocate(bytes());
    const Shape& shape = pictures[0]->shape();
    aclTensor* const tensor = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, pictures[0]->strides().data(), 0,
                                              ACL_FORMAT_NCHW, shape.data(), shape.size(), block);
    places.push_back({block, tensor, true, {}});
    return kPictures + places.size() - 1;
  }
  void Drop(size_t picture) {
    Place& place = places[picture - kPictures];
    reprise::device_memory::Free(place.block);
    place.is_held = false;
  }
  // A few bytes of what was freed first, as a rule: it is the smallest block that fits.
  void TakeSome() { others.push_back(Allocate(512)); }

  void Call(Kind kind, size_t a, size_t b, size_t out, size_t weight = 1) {
    Each({kind, a, b, out, weight}, [&](const PhaseOne& one_, PhaseTwo two) { Record(one_, two); });
  }

  void Sign() {
    Reset();
    for (const Place& place : places) std::memset(place.block, kSign, bytes());
  }
  void Execute(reprise::Graph& graph) {
    graph.Replay(stream);
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
  }
  std::vector<char> BytesAt(size_t picture) const {
    const char* const block = places[picture - kPictures].block;
    return {block, block + bytes()};
  }
  bool IsSigned(size_t picture) const { return BytesAt(picture) == std::vector<char>(bytes(), kSign); }

  // The first execution runs each task by itself: what it leaves is what all others leave, but for pictures that are
  // not stored.
  void Check(reprise::Graph& graph, const std::vector<size_t>& not_stored, int replays = kEnoughReplays + 12) {
    Sign();
    Execute(graph);
    const auto expected = All();
    for (size_t i = 0; i < places.size(); ++i) places[i].expected = BytesAt(kPictures + i);
    for (int i = 1; i < replays; ++i) {
      Sign();
      Execute(graph);
      EXPECT_EQ(All(), expected) << i;
      for (size_t p = kPictures; p < kPictures + places.size(); ++p) {
        if (std::find(not_stored.begin(), not_stored.end(), p) != not_stored.end()) continue;
        ASSERT_EQ(BytesAt(p), places[p - kPictures].expected) << "replay " << i << ", picture " << p;
      }
    }
    for (const size_t picture : not_stored) EXPECT_EQ(IsSigned(picture), Chains()) << picture;
    EXPECT_EQ(executions() != 0, Chains());
  }

  struct Place {
    char* block;
    aclTensor* tensor;
    bool is_held;
    std::vector<char> expected;
  };
  std::vector<Place> places;
  std::vector<char*> others;
};

TEST_P(PoolTest, ResultsInBlocksThatWereUsedAgainAreNotStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Drop(second);
  others.push_back(Allocate(bytes()));  // the rest of the first one, and a part of the second
  Call(kRelu, 1, 1, 1);
  capture.End();
  Check(graph, {first, second});
}

TEST_P(PoolTest, ResultsThatTheProgramHoldsAreStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  capture.End();
  Drop(first);
  TakeSome();
  Check(graph, {});
}

// References that own nothing are good for as long as nobody else gets the memory.
TEST_P(PoolTest, ResultsInBlocksThatWereFreedAreStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Call(kOneTap, second, second, 1, 2);
  Drop(first);
  Drop(second);
  capture.End();
  Check(graph, {});
}

TEST_P(PoolTest, ResultsThatALaterCaptureWritesOverAreStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Call(kOneTap, second, second, 1, 2);
  Drop(first);
  capture.End();
  reprise::Graph later;
  reprise::Graph::CaptureOptions options;
  options.stream = stream;
  options.pool = graph.pool();
  reprise::Capture after(later, options);
  const size_t third = Make();
  EXPECT_EQ(places[third - kPictures].block, places[first - kPictures].block);
  Call(kRelu, 0, 0, third);
  Drop(second);
  TakeSome();
  after.End();
  Check(graph, {});
}

// A block of an earlier graph that ends in this one: who holds that graph may still look at it.
TEST_P(PoolTest, ResultsInBlocksOfAnEarlierCaptureAreStored) {
  reprise::Graph earlier;
  reprise::Capture before_it(earlier, stream);
  const size_t first = Make();
  Call(kRelu, 0, 0, first);
  before_it.End();
  reprise::Graph graph;
  reprise::Graph::CaptureOptions options;
  options.stream = stream;
  options.pool = earlier.pool();
  reprise::Capture capture(graph, options);
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  capture.End();
  Check(graph, {});
}

// Whoever wrote there last may be looked at: it is the picture of the second owner.
TEST_P(PoolTest, TheLastOwnerOfABlockIsStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  const size_t third = Make();
  EXPECT_EQ(places[third - kPictures].block, places[first - kPictures].block);
  Call(kOneTap, second, second, third, 2);
  Call(kRelu, third, third, 1);
  Drop(second);
  TakeSome();
  Call(kOneTap, 1, 1, 2, 0);
  capture.End();
  Check(graph, {second});
}

// By an address that it has kept.
TEST_P(PoolTest, WhatATaskReadsBehindThatIsStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Call(kMul, first, 1, 2);
  capture.End();
  Check(graph, {});
}

TEST_P(PoolTest, WhatAHostFunctionMayReadIsStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(stream, Gate::Wait, &gate), 0) << RecentMessage();
  capture.End();
  Check(graph, {});
}

// The program may have put its new arguments anywhere.
TEST_P(PoolTest, AGraphWhoseTasksHaveChangedStoresAll) {
  reprise::Graph graph(reprise::Graph::Options{true});
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Call(kRelu, 1, 1, 2);
  capture.End();
  graph.Instantiate();
  Check(graph, {first});
  aclmdlRI const model = graph.raw_graph();
  aclrtStream captured = nullptr;
  uint32_t count = 1;
  ASSERT_EQ(aclmdlRIGetStreams(model, &captured, &count), 0) << RecentMessage();
  aclmdlRITask tasks[4] = {};
  count = 4;
  ASSERT_EQ(aclmdlRIGetTasksByStream(captured, tasks, &count), 0) << RecentMessage();
  ASSERT_EQ(aclmdlRITaskDisable(tasks[3]), 0) << RecentMessage();
  graph.Instantiate();
  Sign();
  Execute(graph);
  EXPECT_FALSE(IsSigned(first));
  const uint64_t until = executions();
  Check(graph, {}, 30);
  EXPECT_EQ(executions() > until, Chains());
}

// Which of the two blocks a later one is a part of is the allocator's business.
TEST_P(PoolTest, ResultsInBlocksThatWerePassedOverAreNotStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Call(kOneTap, second, second, 1, 2);
  Drop(first);
  Drop(second);
  TakeSome();
  capture.End();
  Check(graph, {first, second});
}

// Allocations and calls in any order. Of all blocks but those that could have been used again all bytes are as the
// tasks leave them, one by one.
TEST_P(PoolTest, RandomProgramsLeaveWhatAnybodyMayLookAt) {
  size_t not_stored = 0;
  const int rounds = reprise::testing::InForm(reprise::testing::Loops(400, 24));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    reprise::Graph graph;
    reprise::Capture capture(graph, stream);
    std::vector<size_t> held = {0};
    std::set<size_t> reused;
    // What is taken would fit into any of them.
    const auto note_taken = [&] {
      for (size_t i = 0; i < places.size(); ++i) {
        if (!places[i].is_held) reused.insert(kPictures + i);
      }
    };
    for (int i = 0; i < 14; ++i) {
      const auto kind = static_cast<Kind>(random() % kKinds);
      const size_t a = random() % 4 != 0 ? held.back() : held[random() % held.size()];
      const size_t b = held[random() % held.size()];
      if (kind == kMean || kind == kRows || kind == kPart) {  // which write no picture
        Call(kind, a, a, a, random() % kWeights);
        continue;
      }
      const size_t out = Make();
      note_taken();
      Call(kind, a, b, out, random() % kWeights);
      held.push_back(out);
      while (held.size() > 2 && random() % 3 != 0) {
        const size_t which = random() % (held.size() - 1);  // mostly not what was computed last
        if (held[which] < kPictures) break;
        Drop(held[which]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      }
      if (random() % 4 == 0) {
        TakeSome();
        note_taken();
      }
    }
    capture.End();
    for (int replay = 0; replay < kEnoughReplays; ++replay) {
      Sign();
      Execute(graph);
      for (size_t p = kPictures; p < kPictures + places.size(); ++p) {
        Place& place = places[p - kPictures];
        if (replay == 0) place.expected = BytesAt(p);
        if (reused.count(p) != 0) {
          not_stored += IsSigned(p) ? 1 : 0;
          continue;
        }
        ASSERT_EQ(BytesAt(p), place.expected) << "replay " << replay << ", picture " << p;
      }
    }
    Clear();
  }
  EXPECT_EQ(executions() >= static_cast<uint64_t>(rounds), Chains());
  EXPECT_EQ(not_stored != 0, Chains());
}

INSTANTIATE_TEST_SUITE_P(Sizes, PoolTest, testing::Values(kLarge));

}  // namespace
}  // namespace aclnn_test
