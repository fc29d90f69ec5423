// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace aclnn_test {

const std::vector<Type>& AllTypes() {
  static const std::vector<Type> types = {
      {ACL_FLOAT, "float32", 4, Class::kFloat, true, std::ldexp(1, -23)},
      {ACL_FLOAT16, "float16", 2, Class::kFloat, true, std::ldexp(1, -10)},
      {ACL_BF16, "bfloat16", 2, Class::kFloat, true, std::ldexp(1, -7)},
      {ACL_DOUBLE, "float64", 8, Class::kFloat, true, std::ldexp(1, -52)},
      {ACL_INT8, "int8", 1, Class::kInt, true, 0},
      {ACL_INT16, "int16", 2, Class::kInt, true, 0},
      {ACL_INT32, "int32", 4, Class::kInt, true, 0},
      {ACL_INT64, "int64", 8, Class::kInt, true, 0},
      {ACL_UINT8, "uint8", 1, Class::kInt, false, 0},
      {ACL_UINT16, "uint16", 2, Class::kInt, false, 0},
      {ACL_UINT32, "uint32", 4, Class::kInt, false, 0},
      {ACL_UINT64, "uint64", 8, Class::kInt, false, 0},
      {ACL_BOOL, "bool", 1, Class::kBool, false, 0},
      {ACL_COMPLEX64, "complex64", 8, Class::kComplex, true, std::ldexp(1, -23)},
      {ACL_COMPLEX128, "complex128", 16, Class::kComplex, true, std::ldexp(1, -52)},
  };
  return types;
}

const Type& TypeOf(aclDataType id) {
  for (const Type& type : AllTypes()) {
    if (type.id == id) return type;
  }
  ADD_FAILURE() << "unknown type " << id;
  return AllTypes()[0];
}

namespace {

// 16-bit floats: sign, exponent, fraction; written for clarity, not for speed.
long double DecodeSmallFloat(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  long double value;
  if (exponent == (1 << exponent_bits) - 1) {
    value = fraction != 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<long double>(fraction), 1 - bias - fraction_bits);
  } else {
    value = std::ldexp(static_cast<long double>(fraction + (1 << fraction_bits)), exponent - bias - fraction_bits);
  }
  return bits >> 15 != 0 ? -value : value;
}

uint16_t EncodeSmallFloat(long double value, int exponent_bits, int fraction_bits) {
  // The finite numbers of one sign are ordered like their bits: the nearest is found by bisection.
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  if (std::isnan(value)) return static_cast<uint16_t>(infinity | 1);
  value = std::fabs(value);
  uint16_t low = 0;
  uint16_t high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (DecodeSmallFloat(middle, exponent_bits, fraction_bits) <= value ? low : high) = middle;
  }
  const long double low_value = DecodeSmallFloat(low, exponent_bits, fraction_bits);
  const long double step = std::ldexp(1.0L, 1 - ((1 << (exponent_bits - 1)) - 1) - fraction_bits);
  const long double high_value =
      high == infinity ? low_value + std::fmax(step, low_value - DecodeSmallFloat(static_cast<uint16_t>(low - 1),
                                                                                  exponent_bits, fraction_bits))
                       : DecodeSmallFloat(high, exponent_bits, fraction_bits);
  const bool up = value - low_value > high_value - value || (value - low_value == high_value - value && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

template <class T>
T Get(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}
template <class T>
void Put(void* bytes, T value) {
  std::memcpy(bytes, &value, sizeof value);
}

uint64_t ToBits(long double value) {
  return value < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

}  // namespace

Value Load(const void* bytes, aclDataType id) {
  switch (id) {
    case ACL_FLOAT: return {Get<float>(bytes)};
    case ACL_FLOAT16: return {DecodeSmallFloat(Get<uint16_t>(bytes), 5, 10)};
    case ACL_BF16: return {DecodeSmallFloat(Get<uint16_t>(bytes), 8, 7)};
    case ACL_DOUBLE: return {Get<double>(bytes)};
    case ACL_INT8: return {static_cast<long double>(Get<int8_t>(bytes))};
    case ACL_INT16: return {static_cast<long double>(Get<int16_t>(bytes))};
    case ACL_INT32: return {static_cast<long double>(Get<int32_t>(bytes))};
    case ACL_INT64: return {static_cast<long double>(Get<int64_t>(bytes))};
    case ACL_UINT8: return {static_cast<long double>(Get<uint8_t>(bytes))};
    case ACL_UINT16: return {static_cast<long double>(Get<uint16_t>(bytes))};
    case ACL_UINT32: return {static_cast<long double>(Get<uint32_t>(bytes))};
    case ACL_UINT64: return {static_cast<long double>(Get<uint64_t>(bytes))};
    case ACL_BOOL: return {static_cast<long double>(Get<uint8_t>(bytes))};
    case ACL_COMPLEX64: return {Get<float>(bytes), Get<float>(static_cast<const char*>(bytes) + 4)};
    case ACL_COMPLEX128: return {Get<double>(bytes), Get<double>(static_cast<const char*>(bytes) + 8)};
    default: ADD_FAILURE() << "unknown type " << id; return {};
  }
}

void Store(void* bytes, aclDataType id, Value value) {
  switch (id) {
    case ACL_FLOAT: return Put(bytes, static_cast<float>(value.re));
    case ACL_FLOAT16: return Put(bytes, EncodeSmallFloat(value.re, 5, 10));
    case ACL_BF16: return Put(bytes, EncodeSmallFloat(value.re, 8, 7));
    case ACL_DOUBLE: return Put(bytes, static_cast<double>(value.re));
    case ACL_INT8: return Put(bytes, static_cast<int8_t>(ToBits(value.re)));
    case ACL_INT16: return Put(bytes, static_cast<int16_t>(ToBits(value.re)));
    case ACL_INT32: return Put(bytes, static_cast<int32_t>(ToBits(value.re)));
    case ACL_INT64: return Put(bytes, static_cast<int64_t>(ToBits(value.re)));
    case ACL_UINT8: return Put(bytes, static_cast<uint8_t>(ToBits(value.re)));
    case ACL_UINT16: return Put(bytes, static_cast<uint16_t>(ToBits(value.re)));
    case ACL_UINT32: return Put(bytes, static_cast<uint32_t>(ToBits(value.re)));
    case ACL_UINT64: return Put(bytes, ToBits(value.re));
    case ACL_BOOL: return Put(bytes, static_cast<uint8_t>(value.re != 0 || value.im != 0));
    case ACL_COMPLEX64:
      Put(bytes, static_cast<float>(value.re));
      return Put(static_cast<char*>(bytes) + 4, static_cast<float>(value.im));
    case ACL_COMPLEX128:
      Put(bytes, static_cast<double>(value.re));
      return Put(static_cast<char*>(bytes) + 8, static_cast<double>(value.im));
    default: ADD_FAILURE() << "unknown type " << id;
  }
}

Value Wrap(Value value, aclDataType id) {
  char bytes[16];
  Store(bytes, id, value);
  return Load(bytes, id);
}

aclDataType Meet(aclDataType a, aclDataType b) {
  if (a == b) return a;
  const Type& x = TypeOf(a);
  const Type& y = TypeOf(b);
  if (x.cls == Class::kComplex || y.cls == Class::kComplex) {
    for (aclDataType id : {a, b}) {
      if (id == ACL_COMPLEX128 || id == ACL_DOUBLE) return ACL_COMPLEX128;
    }
    return ACL_COMPLEX64;
  }
  if (x.cls != y.cls) return x.cls > y.cls ? a : b;
  if (x.cls == Class::kFloat) return a == ACL_DOUBLE || b == ACL_DOUBLE ? ACL_DOUBLE : ACL_FLOAT;
  for (aclDataType id : {a, b}) {
    if (id == ACL_UINT16 || id == ACL_UINT32 || id == ACL_UINT64) return ACL_DT_UNDEFINED;
  }
  switch (std::max({x.bytes, y.bytes, size_t{2}})) {  // uint8 with int8 is the only pair that needs more than both
    case 2: return ACL_INT16;
    case 4: return ACL_INT32;
    default: return ACL_INT64;
  }
}

aclDataType MeetScalar(aclDataType tensor, aclDataType scalar) {
  const Class cls = TypeOf(scalar).cls;
  if (cls <= TypeOf(tensor).cls) return tensor;
  if (cls == Class::kInt) return ACL_INT64;
  if (cls == Class::kFloat) return ACL_FLOAT;
  return tensor == ACL_DOUBLE ? ACL_COMPLEX128 : ACL_COMPLEX64;
}

bool Converts(aclDataType from, aclDataType to) { return TypeOf(from).cls <= TypeOf(to).cls; }

int64_t Count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

void AclnnTest::SetUpTestSuite() {
  static const bool ready = [] { return aclInit(nullptr) == 0 && aclrtSetDevice(0) == 0; }();
  ASSERT_TRUE(ready) << RecentMessage();
}

void AclnnTest::SetUp() { ASSERT_EQ(aclrtCreateStream(&stream), 0) << RecentMessage(); }
void AclnnTest::TearDown() { EXPECT_EQ(aclrtDestroyStream(stream), 0) << RecentMessage(); }

Memory::Memory(size_t bytes) : bytes_(bytes) {
  void* data = nullptr;
  if (bytes != 0) {
    EXPECT_EQ(aclrtMalloc(&data, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0) << RecentMessage();
  }
  data_ = static_cast<char*>(data);
}
Memory::~Memory() {
  if (data_ != nullptr) {
    EXPECT_EQ(aclrtFree(data_), 0);
  }
}

namespace {

Shape RowMajor(const Shape& shape) {
  Shape strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, shape[d]);
  }
  return strides;
}

Shape RandomStrides(const Shape& shape, std::mt19937& random) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  Shape strides(shape.size());
  int64_t stride = 1 + static_cast<int64_t>(random() % 2);
  for (size_t d : order) {
    strides[d] = stride;
    stride = stride * std::max<int64_t>(1, shape[d]) + static_cast<int64_t>(random() % 2);
  }
  return strides;
}

// Elements of storage, with some behind the last one of the view.
size_t StorageElements(const Shape& shape, const Shape& strides, int64_t offset) {
  int64_t last = offset;
  for (size_t d = 0; d < shape.size(); ++d) last += std::max<int64_t>(0, shape[d] - 1) * strides[d];
  return static_cast<size_t>(last) + 3;
}

}  // namespace

TestTensor::TestTensor(Shape shape, aclDataType type)
    : shape_(std::move(shape)),
      type_(type),
      strides_(RowMajor(shape_)),
      memory_(StorageElements(shape_, strides_, 0) * TypeOf(type).bytes) {
  Allocate();
}

TestTensor::TestTensor(Shape shape, aclDataType type, std::mt19937& random)
    : shape_(std::move(shape)),
      type_(type),
      strides_(RandomStrides(shape_, random)),
      offset_(static_cast<int64_t>(random() % 5)),
      memory_(StorageElements(shape_, strides_, offset_) * TypeOf(type).bytes) {
  Allocate();
}

TestTensor::~TestTensor() { EXPECT_EQ(aclDestroyTensor(tensor_), 0) << RecentMessage(); }

void TestTensor::Allocate() {
  mirror_.assign(memory_.bytes(), 0x11);
  EXPECT_EQ(aclrtMemcpy(storage(), mirror_.size(), mirror_.data(), mirror_.size(), ACL_MEMCPY_HOST_TO_DEVICE), 0);
  const auto elements = static_cast<int64_t>(memory_.bytes() / TypeOf(type_).bytes);
  tensor_ = aclCreateTensor(shape_.data(), shape_.size(), type_, strides_.data(), offset_, ACL_FORMAT_ND, &elements, 1,
                            storage());
  EXPECT_NE(tensor_, nullptr) << RecentMessage();
}

std::vector<int64_t> TestTensor::ElementOffsets() const {
  std::vector<int64_t> offsets(static_cast<size_t>(count()));
  for (size_t i = 0; i < offsets.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    offsets[i] = offset_;
    for (size_t d = shape_.size(); d-- > 0;) {
      offsets[i] += rest % shape_[d] * strides_[d];
      rest /= shape_[d];
    }
    offsets[i] *= static_cast<int64_t>(TypeOf(type_).bytes);
  }
  return offsets;
}

void TestTensor::Write(const std::vector<Value>& values) {
  const std::vector<int64_t> offsets = ElementOffsets();
  ASSERT_EQ(values.size(), offsets.size());
  for (size_t i = 0; i < values.size(); ++i) Store(mirror_.data() + offsets[i], type_, values[i]);
  ASSERT_EQ(aclrtMemcpy(storage(), mirror_.size(), mirror_.data(), mirror_.size(), ACL_MEMCPY_HOST_TO_DEVICE), 0);
}

std::vector<char> TestTensor::ReadStorage() const {
  std::vector<char> bytes(mirror_.size());
  EXPECT_EQ(aclrtMemcpy(bytes.data(), bytes.size(), storage(), bytes.size(), ACL_MEMCPY_DEVICE_TO_HOST), 0);
  return bytes;
}

std::vector<Value> TestTensor::Read() const {
  const std::vector<char> bytes = ReadStorage();
  std::vector<Value> values;
  for (int64_t offset : ElementOffsets()) values.push_back(Load(bytes.data() + offset, type_));
  return values;
}

void TestTensor::FillSmall(std::mt19937& random) {
  const Type& type = TypeOf(type_);
  std::vector<Value> values(static_cast<size_t>(count()));
  for (Value& value : values) {
    const auto draw = [&] {
      const int n = static_cast<int>(random() % 33);
      if (type.cls == Class::kBool) return static_cast<long double>(n % 2);
      if (type.cls == Class::kInt) return static_cast<long double>(type.is_signed ? n / 2 - 8 : n / 2);
      return (n - 16) / 2.0L;
    };
    value.re = draw();
    if (type.cls == Class::kComplex) value.im = draw();
  }
  Write(values);
}

bool TestTensor::SurroundingsAreIntact() const {
  std::vector<char> now = ReadStorage();
  std::vector<char> then = mirror_;
  for (int64_t offset : ElementOffsets()) {
    std::memset(now.data() + offset, 0, TypeOf(type_).bytes);
    std::memset(then.data() + offset, 0, TypeOf(type_).bytes);
  }
  return now == then;
}

TestScalar::TestScalar(aclDataType type, Value value) {
  alignas(16) char bytes[16];
  Store(bytes, type, value);
  scalar_ = aclCreateScalar(bytes, type);
  EXPECT_NE(scalar_, nullptr) << RecentMessage();
}

aclnnStatus RunOp(aclrtStream stream, const PhaseOne& one, PhaseTwo two) {
  uint64_t bytes = 1;
  aclOpExecutor* executor = nullptr;
  if (const aclnnStatus status = one(&bytes, &executor); status != 0) {
    EXPECT_EQ(executor, nullptr);
    return status;
  }
  const Memory workspace(bytes);
  if (const aclnnStatus status = two(workspace.data(), bytes, executor, stream); status != 0) return status;
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
  return 0;
}

void RecordingTest::Record(const PhaseOne& one, PhaseTwo two) {
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(one(&bytes, &executor), 0) << RecentMessage();
  workspaces.push_back(std::make_unique<Memory>(bytes));
  ASSERT_EQ(two(workspaces.back()->data(), bytes, executor, stream), 0) << RecentMessage();
}

void RecordingTest::Replay(aclmdlRI model) {
  ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
}

std::string RecentMessage() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

void ExpectValues(const std::vector<Value>& actual, const std::vector<Value>& expected,
                  const std::vector<long double>& tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const long double allowed = tolerance.empty() ? 0 : tolerance[i];
    const auto fits = [allowed](long double a, long double b) {
      return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed;
    };
    if (fits(actual[i].re, expected[i].re) && fits(actual[i].im, expected[i].im)) continue;
    ADD_FAILURE() << "element " << i << " is (" << actual[i].re << ", " << actual[i].im << "), expected ("
                  << expected[i].re << ", " << expected[i].im << ") within " << allowed;
    return;  // one is enough
  }
}

std::vector<int64_t> BroadcastIndices(const Shape& shape, const Shape& out_shape) {
  std::vector<int64_t> indices(static_cast<size_t>(Count(out_shape)));
  for (size_t i = 0; i < indices.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t step = 1;
    for (size_t back = 1; back <= out_shape.size(); ++back) {
      const int64_t size = out_shape[out_shape.size() - back];
      if (back <= shape.size()) {
        const int64_t own = shape[shape.size() - back];
        if (own != 1) indices[i] += rest % size * step;
        step *= own;
      }
      rest /= size;
    }
  }
  return indices;
}

}  // namespace aclnn_test
