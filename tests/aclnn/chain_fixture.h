// SPDX-License-Identifier: Apache-2.0
//
// What tests of chains (src/ops/picture_chain.h) share: programs of few pictures, which run eagerly and captured.
#pragma once

#include <cmath>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

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
#include "reprise/operation.h"

namespace aclnn_test {

using reprise::EnvBytes;
using reprise::EnvInt;
using reprise::EnvVar;
using reprise::model::KeptTotals;
using reprise::model::TotalsOfKept;

// Whether this process runs chains at all.
inline bool Chains() {
  return reprise::device::WriteWatch::IsPossible() && EnvBytes(EnvVar::kKeptOperands) != 0 &&
         EnvInt(EnvVar::kChains) != 0;
}

// Pictures with patches, and sums of several blocks.
inline constexpr int64_t kChannels = 40;
inline constexpr int64_t kParts[] = {13, 27};          // of the channels
inline constexpr int64_t kShuffled[] = {2, 5, 40};     // groups, by weight
inline constexpr int64_t kSliceFirst[] = {27, 13, 5};  // by weight: of the last 13, of the last 27, of 13 in between
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
inline constexpr Sizes kLarge = {0, 13};
inline constexpr Sizes kSmall = {0, 7};  // whose filters of several taps are multiplied as they lie
inline constexpr Sizes kVolume = {4, 5};
inline constexpr Sizes kWide = {0, 61};  // whose pictures do not stay in the caches, so that convolutions go row by row

inline constexpr int kEnoughReplays = 5;

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

}  // namespace aclnn_test
