// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "atb/atb_infer.h"

extern "C" {
int AtbPagedCacheLoadGetWorkspaceSize(const aclTensor* keyCache, const aclTensor* valueCache,
                                      const aclTensor* blockTables, const aclTensor* contextLens, const aclTensor* key,
                                      const aclTensor* value, const aclTensor* seqStarts, int8_t kvCacheCfg,
                                      bool isSeqLensCumsumType, bool hasSeqStarts, uint64_t* workspaceSize,
                                      atb::Operation** op, atb::Context* context);
int AtbPagedCacheLoad(void* workspace, uint64_t workspaceSize, atb::Operation* op, atb::Context* context);
int AtbMLAPreprocess(void* workspace, uint64_t workspaceSize, atb::Operation* op, atb::Context* context);
}

namespace {

namespace infer = atb::infer;
using Floats = std::vector<float>;

constexpr int kInvalid = 161002;
constexpr int kNull = 161001;
constexpr int kUnsupported = 207000;

std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

/// Memory of the device, or of the host, and the tensor over it.
template <class T>
struct Memory {
  Memory(std::vector<int64_t> sizes, std::vector<T> values, bool on_host = false)
      : values_(std::move(values)), on_host_(on_host), sizes_(std::move(sizes)) {
    if (!on_host) aclrtMalloc(&data_, Bytes() + 1, ACL_MEM_MALLOC_HUGE_FIRST);
    Write(values_);
  }
  ~Memory() {
    if (data_ != nullptr) aclrtFree(data_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  size_t Bytes() const { return values_.size() * sizeof(T); }
  void Write(const std::vector<T>& values) {
    if (!on_host_) std::memcpy(data_, values.data(), Bytes());
  }
  std::vector<T> Read() const {
    std::vector<T> result(values_.size());
    std::memcpy(result.data(), data_, Bytes());
    return result;
  }
  atb::Tensor Tensor() {
    atb::Tensor tensor;
    tensor.desc.dtype = std::is_same_v<T, float> ? ACL_FLOAT : std::is_same_v<T, int8_t> ? ACL_INT8 : ACL_INT32;
    tensor.desc.format = ACL_FORMAT_ND;
    tensor.desc.shape.dimNum = sizes_.size();
    std::copy(sizes_.begin(), sizes_.end(), tensor.desc.shape.dims);
    (on_host_ ? tensor.hostData : tensor.deviceData) = on_host_ ? static_cast<void*>(values_.data()) : data_;
    tensor.dataSize = atb::Utils::GetTensorSize(tensor);
    return tensor;
  }

 private:
  std::vector<T> values_;
  bool on_host_;
  std::vector<int64_t> sizes_;
  void* data_ = nullptr;
};

Floats Numbers(size_t count, float seed) {
  Floats values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(seed + 1.7f * static_cast<float>(i));
  return values;
}

class Atb : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), 0);
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtCreateStream(&stream_), 0);
    ASSERT_EQ(atb::CreateContext(&context_), 0);
    ASSERT_EQ(context_->SetExecuteStream(stream_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(atb::DestroyContext(context_), 0);
    EXPECT_EQ(aclrtDestroyStream(stream_), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
    EXPECT_EQ(aclFinalize(), 0);
  }

  template <class Param>
  atb::Operation* Make(const Param& param) {
    atb::Operation* operation = nullptr;
    EXPECT_EQ(atb::CreateOperation(param, &operation), 0) << Message();
    return operation;
  }

  void Launch(atb::Operation* operation, const atb::VariantPack& pack) {
    uint64_t bytes = 99;
    ASSERT_EQ(operation->Setup(pack, bytes, context_), 0) << Message();
    EXPECT_EQ(bytes, 0u);
    ASSERT_EQ(operation->Execute(pack, nullptr, bytes, context_), 0) << Message();
  }

  /// Runs an operation eagerly; then captures it, calls `change`, and replays it. `check` is called after each.
  template <class Param>
  void RunTwice(const Param& param, const atb::VariantPack& pack, const std::function<void()>& check,
                const std::function<void()>& change) {
    atb::Operation* const operation = Make(param);
    ASSERT_NE(operation, nullptr);
    EXPECT_EQ(operation->GetInputNum(), pack.inTensors.size());
    EXPECT_EQ(operation->GetOutputNum(), pack.outTensors.size());
    Launch(operation, pack);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << Message();
    check();
    change();
    aclmdlRI model = nullptr;
    ASSERT_EQ(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0);
    Launch(operation, pack);
    ASSERT_EQ(aclmdlRICaptureEnd(stream_, &model), 0);
    ASSERT_EQ(atb::DestroyOperation(operation), 0);  // the model keeps what it needs
    ASSERT_EQ(aclmdlRIExecuteAsync(model, stream_), 0);
    ASSERT_EQ(aclrtSynchronizeStream(stream_), 0) << Message();
    check();
    EXPECT_EQ(aclmdlRIDestroy(model), 0);
  }

  static void ExpectNear(const Floats& got, const Floats& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4f * (1 + std::abs(want[i]))) << i;
  }

  aclrtStream stream_ = nullptr;
  atb::Context* context_ = nullptr;
};

// ---- Contexts and parameters ----

TEST_F(Atb, ContextKeepsItsStreams) {
  EXPECT_EQ(context_->GetExecuteStream(), stream_);
  EXPECT_EQ(context_->SetExecuteStreams({nullptr, stream_}), 0);
  EXPECT_EQ(context_->GetExecuteStream(), nullptr);
  EXPECT_EQ(context_->GetExecuteStreams(), (std::vector<aclrtStream>{nullptr, stream_}));
  EXPECT_EQ(context_->SetAsyncTilingCopyStatus(true), 0);
  EXPECT_TRUE(context_->GetAsyncTilingCopyStatus());
  EXPECT_EQ(context_->SetExecuteType(atb::EXECUTE_NORMAL), 0);
  EXPECT_EQ(context_->SetExecuteType(atb::EXECUTE_LAUNCH), kUnsupported);
  EXPECT_EQ(context_->SetLaunchMode(atb::GRAPH_LAUNCH_MODE), kUnsupported);
  EXPECT_NE(Message().find("aclmdlRICaptureBegin"), std::string::npos);
  EXPECT_EQ(context_->GetLaunchMode(), atb::KERNEL_LAUNCH_MODE);
  EXPECT_EQ(atb::CreateContext(nullptr), kNull);
  EXPECT_EQ(atb::DestroyContext(nullptr), 0);
}

TEST_F(Atb, TensorsHaveSizes) {
  atb::Tensor tensor;
  EXPECT_EQ(atb::Utils::GetTensorSize(tensor), 0u);
  tensor.desc.dtype = ACL_FLOAT16;
  EXPECT_EQ(atb::Utils::GetTensorSize(tensor), 2u);
  tensor.desc.shape.dimNum = 2;
  tensor.desc.shape.dims[0] = 3;
  tensor.desc.shape.dims[1] = 5;
  EXPECT_EQ(atb::Utils::GetTensorSize(tensor), 30u);
  tensor.desc.shape.dims[1] = INT64_MAX;
  EXPECT_EQ(atb::Utils::GetTensorSize(tensor), 0u);
  tensor.desc.shape.dimNum = 9;
  EXPECT_EQ(atb::Utils::GetTensorSize(tensor), 0u);
}

TEST(AtbList, HoldsSixtyFourInPlace) {
  atb::SVector<int> list;
  for (int i = 0; i < 64; ++i) list.push_back(i);
  EXPECT_THROW(list.push_back(64), atb::MaxSizeExceeded);
  list.reserve(70);
  for (int i = 64; i < 70; ++i) list.push_back(i);
  const atb::SVector<int> copy = list;
  EXPECT_EQ(copy.size(), 70u);
  EXPECT_EQ(std::accumulate(copy.begin(), copy.end(), 0), 69 * 35);
  EXPECT_THROW(copy.at(70), atb::MaxSizeExceeded);
}

template <class Param>
void ExpectRefused(const std::function<void(Param&)>& change, const char* text) {
  Param param;
  change(param);
  auto* operation = reinterpret_cast<atb::Operation*>(&param);
  EXPECT_EQ(atb::CreateOperation(param, &operation), kUnsupported) << text;
  EXPECT_EQ(operation, nullptr);
  EXPECT_NE(Message().find(text), std::string::npos) << text;
}

TEST_F(Atb, RefusesParametersByName) {
  using Paged = infer::PagedAttentionParam;
  using Self = infer::SelfAttentionParam;
  ExpectRefused<Paged>([](Paged& p) { p.quantType = Paged::TYPE_DEQUANT_FUSION; }, "quantType is 1");
  ExpectRefused<Paged>([](Paged& p) { p.scaleType = Paged::SCALE_TYPE_LOGN; }, "scaleType is 1");
  ExpectRefused<Paged>([](Paged& p) { p.maskType = Paged::MASK_TYPE_SPEC; }, "maskType with calcType 0 is 3");
  ExpectRefused<Paged>([](Paged& p) { p.maskType = Paged::MASK_TYPE_MASK_FREE; }, "maskType is 4");
  ExpectRefused<Paged>([](Paged& p) { p.rsv[67] = 3; }, "a reserved byte is 3");
  ExpectRefused<Self>([](Self&) {}, "calcType is 0");
  ExpectRefused<Self>([](Self& p) { p.calcType = Self::PA_ENCODER, p.windowSize = 4; }, "windowSize is 4");
  ExpectRefused<Self>([](Self& p) { p.calcType = Self::PA_ENCODER, p.maskType = Self::MASK_TYPE_ALIBI_COMPRESS; },
                      "maskType is 4");
  ExpectRefused<infer::ElewiseParam>([](infer::ElewiseParam&) {}, "elewiseType is 0");
  ExpectRefused<infer::LinearParam>([](infer::LinearParam& p) { p.outDataType = ACL_FLOAT16; }, "outDataType is 1");
  ExpectRefused<infer::LinearParam>([](infer::LinearParam& p) { p.enAccum = true; }, "hasBias with enAccum");
  ExpectRefused<infer::RmsNormParam>([](infer::RmsNormParam&) {}, "layerType is 0");
  ExpectRefused<infer::RopeParam>([](infer::RopeParam& p) { p.cosFormat = 1; }, "cosFormat is 1");
  ExpectRefused<infer::ReshapeAndCacheParam>(
      [](infer::ReshapeAndCacheParam& p) { p.compressType = infer::ReshapeAndCacheParam::COMPRESS_TYPE_KVHEAD; },
      "compressType is 1");
  EXPECT_EQ(atb::CreateOperation(infer::RopeParam(), nullptr), kNull);
  EXPECT_EQ(AtbMLAPreprocess(nullptr, 0, nullptr, nullptr), kUnsupported);
}

TEST_F(Atb, InfersShapes) {
  infer::LinearParam param;
  param.transposeA = true;
  atb::Operation* const linear = Make(param);
  EXPECT_EQ(linear->GetName(), "LinearOperation");
  atb::SVector<atb::TensorDesc> in, out;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 3}, {7, 5}, {7}}) {
    atb::TensorDesc desc;
    desc.dtype = ACL_BF16;
    desc.shape.dimNum = sizes.size();
    std::copy(sizes.begin(), sizes.end(), desc.shape.dims);
    in.push_back(desc);
  }
  ASSERT_EQ(linear->InferShape(in, out), 0) << Message();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].dtype, ACL_BF16);
  EXPECT_EQ(out[0].shape.dimNum, 2u);
  EXPECT_EQ(out[0].shape.dims[0], 3);
  EXPECT_EQ(out[0].shape.dims[1], 7);
  in.push_back(in[0]);
  EXPECT_EQ(linear->InferShape(in, out), kInvalid);
  EXPECT_NE(Message().find("there are 4 input tensors, expected 3 (x, weight, bias)"), std::string::npos);
  EXPECT_EQ(atb::DestroyOperation(linear), 0);
}

// ---- Operations, eager and captured ----

TEST_F(Atb, PagedAttentionReadsPages) {
  constexpr int64_t kHeads = 2, kSize = 4, kPage = 2, kPages = 5;
  Memory<float> query({2, kHeads, kSize}, Numbers(2 * kHeads * kSize, 1)),
      keys({kPages, kPage, 1, kSize}, Numbers(40, 2)), values({kPages, kPage, 1, kSize}, Numbers(40, 3)),
      out({2, kHeads, kSize}, Floats(16));
  Memory<int32_t> table({2, 2}, {3, 1, 0, 4}), lengths({2}, {3, 1}, true);
  infer::PagedAttentionParam param;
  param.headNum = kHeads;
  param.kvHeadNum = 1;
  param.qkScale = 0.5f;
  const auto check = [&] {
    const Floats q = query.Read(), k = keys.Read(), v = values.Read();
    const int32_t pages[2][2] = {{3, 1}, {0, 4}}, counts[2] = {3, 1};
    Floats want;
    for (int s = 0; s < 2; ++s) {
      for (int64_t h = 0; h < kHeads; ++h) {
        Floats weights, result(kSize);
        float sum = 0;
        for (int n = 0; n < counts[s]; ++n) {
          float score = 0;
          const int64_t at = (pages[s][n / kPage] * kPage + n % kPage) * kSize;
          for (int64_t d = 0; d < kSize; ++d) score += q[(s * kHeads + h) * kSize + d] * k[at + d];
          weights.push_back(std::exp(0.5f * score));
          sum += weights.back();
          for (int64_t d = 0; d < kSize; ++d) result[d] += weights.back() * v[at + d];
        }
        for (const float one : result) want.push_back(one / sum);
      }
    }
    ExpectNear(out.Read(), want);
  };
  RunTwice(param, {{query.Tensor(), keys.Tensor(), values.Tensor(), table.Tensor(), lengths.Tensor()}, {out.Tensor()}},
           check, [&] { query.Write(Numbers(16, 9)); });
}

TEST_F(Atb, RopeTurnsPartsOfHeads) {
  constexpr int64_t kSize = 8;
  for (const int32_t parts : {2, 4, 8}) {
    Memory<float> query({2, 2 * kSize}, Numbers(32, 1)), key({2, kSize}, Numbers(16, 2)),
        cos({2, kSize}, Numbers(16, 3)), sin({2, kSize}, Numbers(16, 4)), turned_query({2, 2 * kSize}, Floats(32)),
        turned_key({2, kSize}, Floats(16));
    Memory<int32_t> lengths({1}, {2});
    infer::RopeParam param;
    param.rotaryCoeff = parts;
    const auto turned = [&](const Floats& x, int64_t heads) {
      const Floats c = cos.Read(), s = sin.Read();
      Floats want(x.size());
      const int64_t part = kSize / parts;
      for (size_t i = 0; i < x.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t token = at / (heads * kSize), d = at % kSize;
        const bool is_first = d / part % 2 == 0;
        const float other = is_first ? -x[static_cast<size_t>(at + part)] : x[static_cast<size_t>(at - part)];
        const auto angle = static_cast<size_t>(token * kSize + d);
        want[i] = x[i] * c[angle] + other * s[angle];
      }
      return want;
    };
    const auto check = [&] {
      ExpectNear(turned_query.Read(), turned(query.Read(), 2));
      ExpectNear(turned_key.Read(), turned(key.Read(), 1));
    };
    RunTwice(param,
             {{query.Tensor(), key.Tensor(), cos.Tensor(), sin.Tensor(), lengths.Tensor()},
              {turned_query.Tensor(), turned_key.Tensor()}},
             check, [&] { query.Write(Numbers(32, 5)); });
  }
}

TEST_F(Atb, NormsAndProducts) {
  Memory<float> x({3, 4}, Numbers(12, 1)), other({3, 4}, Numbers(12, 2)), gamma({4}, Numbers(4, 3)),
      y({3, 4}, Floats(12)), sum({3, 4}, Floats(12));
  const auto norm_of = [&](const Floats& values) {
    const Floats g = gamma.Read();
    Floats want(12);
    for (size_t row = 0; row < 3; ++row) {
      float squares = 0;
      for (size_t i = 0; i < 4; ++i) squares += values[row * 4 + i] * values[row * 4 + i] / 4;
      for (size_t i = 0; i < 4; ++i) want[row * 4 + i] = values[row * 4 + i] / std::sqrt(squares + 1e-5f) * g[i];
    }
    return want;
  };
  const auto total = [&] {
    Floats a = x.Read();
    const Floats b = other.Read();
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  const auto change = [&] { x.Write(Numbers(12, 7)); };
  infer::RmsNormParam param;
  param.layerType = infer::RmsNormParam::RMS_NORM_NORM;
  RunTwice(
      param, {{x.Tensor(), gamma.Tensor()}, {y.Tensor()}}, [&] { ExpectNear(y.Read(), norm_of(x.Read())); }, change);
  param.layerType = infer::RmsNormParam::RMS_NORM_PRENORM;
  RunTwice(
      param, {{x.Tensor(), other.Tensor(), gamma.Tensor()}, {y.Tensor(), sum.Tensor()}},
      [&] {
        ExpectNear(sum.Read(), total());
        ExpectNear(y.Read(), norm_of(total()));
      },
      change);

  Memory<float> product({3, 3}, Floats(9));
  infer::LinearParam linear;
  linear.hasBias = false;
  const auto matrix = [&] {
    const Floats a = x.Read(), b = other.Read();
    Floats want(9);
    for (size_t i = 0; i < 9; ++i) {
      for (size_t k = 0; k < 4; ++k) want[i] += a[i / 3 * 4 + k] * b[i % 3 * 4 + k];
    }
    return want;
  };
  RunTwice(
      linear, {{x.Tensor(), other.Tensor()}, {product.Tensor()}}, [&] { ExpectNear(product.Read(), matrix()); },
      change);
  linear.enAccum = true;
  Floats expected = product.Read();
  RunTwice(
      linear, {{x.Tensor(), other.Tensor(), product.Tensor()}, {product.Tensor()}},
      [&] {
        const Floats more = matrix();
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += more[i];
        ExpectNear(product.Read(), expected);
      },
      [&] { x.Write(Numbers(12, 8)); });
}

TEST_F(Atb, ElementsAndGroups) {
  using Param = infer::ElewiseParam;
  struct Row {
    Param::ElewiseType type;
    float (*want)(float, float);
    bool is_binary;
  };
  const Row rows[] = {{Param::ELEWISE_MULS, [](float x, float) { return x * 3; }, false},
                      {Param::ELEWISE_COS, [](float x, float) { return std::cos(x); }, false},
                      {Param::ELEWISE_NEG, [](float x, float) { return -x; }, false},
                      {Param::ELEWISE_TANH, [](float x, float) { return std::tanh(x); }, false},
                      {Param::ELEWISE_ADD, [](float x, float y) { return x + y; }, true},
                      {Param::ELEWISE_SUB, [](float x, float y) { return x - y; }, true},
                      {Param::ELEWISE_MUL, [](float x, float y) { return x * y; }, true},
                      {Param::ELEWISE_REALDIV, [](float x, float y) { return x / y; }, true}};
  Memory<float> x({2, 4}, Numbers(8, 1)), y({2, 4}, Numbers(8, 2)), out({2, 4}, Floats(8));
  for (const Row& row : rows) {
    Param param;
    param.elewiseType = row.type;
    param.mulsParam.varAttr = 3;
    atb::VariantPack pack = {{x.Tensor()}, {out.Tensor()}};
    if (row.is_binary) pack.inTensors.push_back(y.Tensor());
    const auto check = [&] {
      const Floats a = x.Read(), b = y.Read();
      Floats want(8);
      for (size_t i = 0; i < 8; ++i) want[i] = row.want(a[i], b[i]);
      ExpectNear(out.Read(), want);
    };
    RunTwice(param, pack, check, [&] { x.Write(Numbers(8, 6)); });
  }

  Memory<float> scores({1, 6}, {1, 5, 2, 2, 4, 3}), kept({1, 6}, Floats(6));
  Memory<int32_t> places({1024}, std::vector<int32_t>(1024));
  infer::GroupTopkParam groups;
  groups.groupNum = 3;
  groups.k = 2;
  Floats want = {1, 5, 0, 0, 4, 3};
  RunTwice(
      groups, {{scores.Tensor(), places.Tensor()}, {kept.Tensor()}}, [&] { EXPECT_EQ(kept.Read(), want); },
      [&] {
        scores.Write({1, 1, 9, 0, 4, 3});
        want = {0, 0, 9, 0, 4, 3};
      });
}

TEST_F(Atb, CachesAreWrittenAndRead) {
  Memory<float> key({2, 1, 2}, {1, 2, 3, 4}), value({2, 1, 2}, {5, 6, 7, 8}), keys({2, 2, 1, 2}, Floats(8)),
      values({2, 2, 1, 2}, Floats(8));
  Memory<int32_t> slots({2}, {3, 0});
  const infer::ReshapeAndCacheParam param;
  RunTwice(
      param,
      {{key.Tensor(), value.Tensor(), keys.Tensor(), values.Tensor(), slots.Tensor()},
       {keys.Tensor(), values.Tensor()}},
      [&] {
        EXPECT_EQ(keys.Read(), (Floats{3, 4, 0, 0, 0, 0, 1, 2}));
        EXPECT_EQ(values.Read(), (Floats{7, 8, 0, 0, 0, 0, 5, 6}));
      },
      [&] { keys.Write(Floats(8)); });

  // Tiles of 32 bytes: eight elements, of which a line of both heads has two.
  Memory<float> wide({2, 2, 8}, Numbers(32, 1)), tiles({1, 2, 4, 8}, Floats(64)), more_tiles({1, 2, 4, 8}, Floats(64));
  infer::ReshapeAndCacheParam tiled;
  tiled.kvCacheCfg = infer::ReshapeAndCacheParam::K_CACHE_V_CACHE_NZ;
  const auto check_tiles = [&] {
    const Floats rows = wide.Read(), cache = tiles.Read();
    EXPECT_EQ(cache, more_tiles.Read());
    const size_t places[] = {3, 0};
    for (size_t token = 0; token < 2; ++token) {
      for (size_t i = 0; i < 16; ++i) EXPECT_EQ(cache[i / 8 * 32 + places[token] * 8 + i % 8], rows[token * 16 + i]);
    }
  };
  RunTwice(tiled,
           {{wide.Tensor(), wide.Tensor(), tiles.Tensor(), more_tiles.Tensor(), slots.Tensor()},
            {tiles.Tensor(), more_tiles.Tensor()}},
           check_tiles, [&] { tiles.Write(Floats(64)); });

  Memory<int32_t> table({1, 2}, {1, 0}), lengths({1}, {3});
  Memory<float> read_keys({3, 1, 2}, Floats(6)), read_values({3, 1, 2}, Floats(6));
  std::vector<aclTensor*> tensors;
  const auto tensor = [&](const atb::Tensor& from) {
    const atb::Dims& shape = from.desc.shape;
    std::vector<int64_t> strides(shape.dimNum, 1);
    for (size_t d = shape.dimNum; d-- > 1;) strides[d - 1] = strides[d] * shape.dims[d];
    tensors.push_back(aclCreateTensor(shape.dims, shape.dimNum, from.desc.dtype, strides.data(), 0, ACL_FORMAT_ND,
                                      shape.dims, shape.dimNum, from.deviceData));
    return tensors.back();
  };
  uint64_t bytes = 0;
  atb::Operation* load = nullptr;
  ASSERT_EQ(AtbPagedCacheLoadGetWorkspaceSize(tensor(keys.Tensor()), tensor(values.Tensor()), tensor(table.Tensor()),
                                              tensor(lengths.Tensor()), tensor(read_keys.Tensor()),
                                              tensor(read_values.Tensor()), nullptr, 1, false, false, &bytes, &load,
                                              context_),
            0)
      << Message();
  for (aclTensor* one : tensors) EXPECT_EQ(aclDestroyTensor(one), 0);
  EXPECT_EQ(AtbPagedCacheLoad(nullptr, bytes, load, nullptr), kNull);
  ASSERT_EQ(AtbPagedCacheLoad(nullptr, bytes, load, context_), 0) << Message();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(read_keys.Read(), (Floats{0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(read_values.Read(), (Floats{0, 0, 5, 6, 7, 8}));
  uint64_t more = 0;
  EXPECT_EQ(load->Setup({}, more, context_), kUnsupported);
  EXPECT_EQ(atb::DestroyOperation(load), 0);
  atb::Operation* const other = Make(param);
  EXPECT_EQ(AtbPagedCacheLoad(nullptr, 0, other, context_), kInvalid);
  EXPECT_EQ(AtbPagedCacheLoad(nullptr, 0, nullptr, context_), kNull);
  EXPECT_EQ(atb::DestroyOperation(other), 0);
}

// ---- Tensors that do not fit ----

TEST_F(Atb, RefusesTensorsByName) {
  Memory<float> query({2, 2, 4}, Floats(16)), keys({3, 2, 1, 4}, Floats(24)), out({2, 2, 4}, Floats(16));
  Memory<int32_t> table({2, 2}, {0, 1, 2, 0}), lengths({2}, {3, 1}, true), far({2}, {3, 5}, true);
  infer::PagedAttentionParam param;
  param.headNum = 2;
  param.kvHeadNum = 1;
  atb::Operation* const paged = Make(param);
  const atb::VariantPack good = {{query.Tensor(), keys.Tensor(), keys.Tensor(), table.Tensor(), lengths.Tensor()},
                                 {out.Tensor()}};
  struct Row {
    std::function<void(atb::VariantPack&)> change;
    int number;
    const char* text;
  };
  const Row rows[] = {
      {[](auto& pack) { pack.inTensors.resize(4); }, kInvalid, "there are 4 input tensors, expected 5"},
      {[](auto& pack) { pack.outTensors.clear(); }, kInvalid, "there are 0 output tensors, expected 1 (attnOut)"},
      {[](auto& pack) { pack.inTensors[1] = atb::Tensor(); }, kInvalid, "keyCache is missing"},
      {[](auto& pack) { pack.inTensors[0].desc.shape.dimNum = 9; }, kInvalid, "9 dims"},
      {[](auto& pack) { pack.inTensors[0].desc.shape.dims[0] = -1; }, kInvalid, "query has shape [-1, 2, 4]"},
      {[](auto& pack) { pack.inTensors[0].desc.shape.dims[0] = INT64_MAX; }, kInvalid, "which no memory holds"},
      {[](auto& pack) { pack.inTensors[0].desc.shape.dims[1] = 1; }, kInvalid, "query has shape [2, 1, 4]"},
      {[](auto& pack) { pack.inTensors[0].desc.dtype = static_cast<aclDataType>(77); }, kInvalid, "query is type 77"},
      {[&](auto& pack) { pack.inTensors[4] = far.Tensor(); }, kInvalid, "is 5, expected a value from 0 to 4"},
      {[&](auto& pack) { pack.inTensors[4] = table.Tensor(); }, kInvalid, "contextLens is in device memory"},
      {[](auto& pack) { pack.inTensors[3].desc.dtype = ACL_FLOAT; }, kInvalid,
       "blockTables is float32, expected int32"},
      {[](auto& pack) { pack.inTensors[1].desc.shape.dims[0] = 1 << 20; }, 107000, "keyCache"},
  };
  for (const Row& row : rows) {
    atb::VariantPack pack = good;
    row.change(pack);
    uint64_t bytes = 0;
    EXPECT_EQ(paged->Setup(pack, bytes, context_), row.number) << row.text;
    EXPECT_NE(Message().find(row.text), std::string::npos) << row.text;
    EXPECT_EQ(paged->Execute(pack, nullptr, 0, context_), row.number) << row.text;
  }
  uint64_t bytes = 0;
  EXPECT_EQ(paged->Setup(good, bytes, nullptr), kNull);
  EXPECT_EQ(paged->Execute(good, nullptr, 0, nullptr), kNull);
  Launch(paged, good);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(atb::DestroyOperation(paged), 0);
}

}  // namespace
