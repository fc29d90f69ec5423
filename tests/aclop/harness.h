// SPDX-License-Identifier: Apache-2.0
//
// What the tests of operators called by their type share: tensors as descriptor, buffer and memory; attributes.
#pragma once

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace aclop_test {

using Dims = std::vector<int64_t>;
using Values = std::vector<double>;

inline int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

inline std::string RecentMessage() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

/// Numbers of the element types that the tests use.
inline std::vector<char> Encode(aclDataType type, const Values& values) {
  const size_t item = aclDataTypeSize(type);
  std::vector<char> bytes(values.size() * item);
  const auto put = [&](size_t i, auto value) { std::memcpy(&bytes[i * item], &value, item); };
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    switch (type) {
      case ACL_FLOAT: put(i, static_cast<float>(value)); break;
      case ACL_DOUBLE: put(i, value); break;
      case ACL_FLOAT16: put(i, aclFloatToFloat16(static_cast<float>(value))); break;
      case ACL_INT8: put(i, static_cast<int8_t>(value)); break;
      case ACL_INT32: put(i, static_cast<int32_t>(value)); break;
      case ACL_INT64: put(i, static_cast<int64_t>(value)); break;
      case ACL_BOOL: put(i, static_cast<uint8_t>(value != 0)); break;
      default: ADD_FAILURE() << "type " << type;
    }
  }
  return bytes;
}

inline Values Decode(aclDataType type, const void* bytes, int64_t count) {
  Values values;
  const size_t item = aclDataTypeSize(type);
  for (int64_t i = 0; i < count; ++i) {
    const char* at = static_cast<const char*>(bytes) + static_cast<size_t>(i) * item;
    const auto get = [&](auto value) {
      std::memcpy(&value, at, sizeof(value));
      return value;
    };
    switch (type) {
      case ACL_FLOAT: values.push_back(get(float{})); break;
      case ACL_DOUBLE: values.push_back(get(double{})); break;
      case ACL_FLOAT16: values.push_back(aclFloat16ToFloat(get(aclFloat16{}))); break;
      case ACL_INT8: values.push_back(get(int8_t{})); break;
      case ACL_INT32: values.push_back(get(int32_t{})); break;
      case ACL_INT64: values.push_back(static_cast<double>(get(int64_t{}))); break;
      case ACL_BOOL: values.push_back(get(uint8_t{})); break;
      default: ADD_FAILURE() << "type " << type;
    }
  }
  return values;
}

/// Descriptor, buffer and device memory of one tensor.
class Tensor {
 public:
  Tensor(aclDataType type, Dims dims, const Values& values = {}) : type_(type), dims_(std::move(dims)) {
    desc_ = aclCreateTensorDesc(type, static_cast<int>(dims_.size()), dims_.data(), ACL_FORMAT_ND);
    bytes_ = static_cast<size_t>(Count(dims_)) * aclDataTypeSize(type);
    if (bytes_ != 0) {
      EXPECT_EQ(0, aclrtMalloc(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
      std::memset(memory_, 0x5A, bytes_);  // the CPU device's memory is host memory
    }
    buffer_ = aclCreateDataBuffer(memory_, bytes_);
    if (!values.empty()) Write(values);
  }
  /// A list of numbers that is known at the call and has no device memory.
  static std::unique_ptr<Tensor> Constant(aclDataType type, const Dims& dims, const Values& values) {
    auto tensor = std::make_unique<Tensor>(type, Dims{0});
    aclDestroyTensorDesc(tensor->desc_);
    tensor->dims_ = dims;
    tensor->desc_ = aclCreateTensorDesc(type, static_cast<int>(dims.size()), dims.data(), ACL_FORMAT_ND);
    std::vector<char> bytes = Encode(type, values);
    if (bytes.empty()) bytes.push_back(0);  // a constant without elements still has to be told
    EXPECT_EQ(0, aclSetTensorConst(tensor->desc_, bytes.data(), bytes.size()));
    return tensor;
  }
  /// An optional input that is left out.
  static std::unique_ptr<Tensor> Absent() {
    auto tensor = std::make_unique<Tensor>(ACL_FLOAT, Dims{0});
    aclDestroyTensorDesc(tensor->desc_);
    tensor->desc_ = aclCreateTensorDesc(ACL_DT_UNDEFINED, 0, nullptr, ACL_FORMAT_UNDEFINED);
    return tensor;
  }
  ~Tensor() {
    aclDestroyTensorDesc(desc_);
    EXPECT_EQ(0, aclDestroyDataBuffer(buffer_));
    if (memory_ != nullptr) {
      EXPECT_EQ(0, aclrtFree(memory_));
    }
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  aclTensorDesc* desc() const { return desc_; }
  aclDataBuffer* buffer() const { return buffer_; }
  void* memory() const { return memory_; }
  size_t bytes() const { return bytes_; }
  aclDataType type() const { return type_; }
  const Dims& dims() const { return dims_; }

  void Write(const Values& values) {
    const std::vector<char> bytes = Encode(type_, values);
    ASSERT_EQ(bytes.size(), bytes_);
    if (!bytes.empty()) std::memcpy(memory_, bytes.data(), bytes.size());
  }
  Values Read() const { return Decode(type_, memory_, Count(dims_)); }

 private:
  aclDataType type_;
  Dims dims_;
  aclTensorDesc* desc_ = nullptr;
  aclDataBuffer* buffer_ = nullptr;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

class Attr {
 public:
  Attr() : attr_(aclopCreateAttr()) { EXPECT_NE(attr_, nullptr); }
  ~Attr() { aclopDestroyAttr(attr_); }
  Attr(const Attr&) = delete;
  Attr& operator=(const Attr&) = delete;

  aclopAttr* get() const { return attr_; }
  Attr& Int(const char* name, int64_t value) { return Check(aclopSetAttrInt(attr_, name, value)); }
  Attr& Bool(const char* name, bool value) { return Check(aclopSetAttrBool(attr_, name, value)); }
  Attr& Float(const char* name, float value) { return Check(aclopSetAttrFloat(attr_, name, value)); }
  Attr& Type(const char* name, aclDataType value) { return Check(aclopSetAttrDataType(attr_, name, value)); }
  Attr& String(const char* name, const char* value) { return Check(aclopSetAttrString(attr_, name, value)); }
  Attr& Ints(const char* name, const Dims& values) {
    return Check(aclopSetAttrListInt(attr_, name, static_cast<int>(values.size()), values.data()));
  }

 private:
  Attr& Check(aclError error) {
    EXPECT_EQ(0, error) << RecentMessage();
    return *this;
  }
  aclopAttr* attr_;
};

/// Arrays of descriptors and buffers, as the functions take them.
struct Arrays {
  std::vector<aclTensorDesc*> descs;
  std::vector<aclDataBuffer*> buffers;

  explicit Arrays(const std::vector<const Tensor*>& tensors) {
    for (const Tensor* tensor : tensors) {
      descs.push_back(tensor->desc());
      buffers.push_back(tensor->buffer());
    }
  }
  int count() const { return static_cast<int>(descs.size()); }
};

class AclopTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_EQ(0, aclrtSetDevice(0)); }
  void SetUp() override {
    ASSERT_EQ(0, aclrtSetDevice(0));
    ASSERT_EQ(0, aclrtCreateStream(&stream));
    (void)aclGetRecentErrMsg();
  }
  void TearDown() override { EXPECT_EQ(0, aclrtDestroyStream(stream)); }

  /// Queues a call.
  aclError Launch(const char* type, const std::vector<const Tensor*>& inputs, const Tensor& output,
                  const Attr* attr = nullptr) {
    Arrays in(inputs);
    Arrays out({&output});
    return aclopCompileAndExecute(type, in.count(), in.descs.data(), in.buffers.data(), 1, out.descs.data(),
                                  out.buffers.data(), attr != nullptr ? attr->get() : nullptr, 0, 0, nullptr, stream);
  }
  /// And waits for its end.
  aclError Run(const char* type, const std::vector<const Tensor*>& inputs, const Tensor& output,
               const Attr* attr = nullptr) {
    const aclError error = Launch(type, inputs, output, attr);
    EXPECT_EQ(0, aclrtSynchronizeStream(stream));
    return error;
  }
  /// The number, and a message that names it, the function and the words.
  void ExpectRefused(int code, aclError got, const std::vector<std::string>& words,
                     const char* function = "aclopCompileAndExecute") {
    const std::string message = RecentMessage();
    EXPECT_EQ(code, got) << message;
    EXPECT_THAT(message, testing::HasSubstr(std::to_string(code)));
    EXPECT_THAT(message, testing::HasSubstr(function));
    EXPECT_THAT(message, testing::HasSubstr("Solution: "));
    for (const std::string& word : words) EXPECT_THAT(message, testing::HasSubstr(word));
  }

  aclrtStream stream = nullptr;
};

inline void ExpectClose(const Values& actual, const Values& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << what << ": element " << i << " is " << actual[i];
    } else {
      EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i])))
          << what << ": element " << i;
    }
  }
}

}  // namespace aclop_test
