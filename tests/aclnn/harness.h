// SPDX-License-Identifier: Apache-2.0
//
// What the operator tests share: a device with a stream, tensors of any type and layout with a host mirror, and a naive
// model of the element types that shares no code with the library.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

namespace aclnn_test {

enum class Class { kBool, kInt, kFloat, kComplex };

struct Type {
  aclDataType id;
  const char* name;
  size_t bytes;
  Class cls;
  bool is_signed;
  double epsilon;  // relative spacing; of each part for complex types; 0: exact
};

const std::vector<Type>& AllTypes();
const Type& TypeOf(aclDataType id);

/// One element; every integer of 64 bits fits a long double of x86.
struct Value {
  long double re = 0;
  long double im = 0;
};

Value Load(const void* bytes, aclDataType id);
void Store(void* bytes, aclDataType id, Value value);
/// What remains of `value` in the type, for values whose only loss is wrapping or truth.
Value Wrap(Value value, aclDataType id);

/// The type in which two tensors meet, by the rules of the specification written out once more; UNDEFINED if none.
aclDataType Meet(aclDataType a, aclDataType b);
/// The same for a tensor and a scalar.
aclDataType MeetScalar(aclDataType tensor, aclDataType scalar);
bool Converts(aclDataType from, aclDataType to);

using Shape = std::vector<int64_t>;
int64_t Count(const Shape& shape);

/// One process-wide device and stream.
class AclnnTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  void SetUp() override;
  void TearDown() override;

  std::mt19937 random{20261121};
  aclrtStream stream = nullptr;
};

/// Device memory that is freed with the object.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

/// A tensor with memory of its own and what must be in it.
class TestTensor {
 public:
  /// Row-major, no gaps.
  TestTensor(Shape shape, aclDataType type);
  /// Dims stored in a random order with random gaps, at a random offset.
  TestTensor(Shape shape, aclDataType type, std::mt19937& random);
  ~TestTensor();
  TestTensor(const TestTensor&) = delete;

  aclTensor* get() const { return tensor_; }
  const Shape& shape() const { return shape_; }
  aclDataType type() const { return type_; }
  int64_t count() const { return Count(shape_); }
  char* storage() const { return memory_.data(); }
  size_t storage_bytes() const { return memory_.bytes(); }
  const Shape& strides() const { return strides_; }
  int64_t offset() const { return offset_; }

  /// Row-major elements of the view.
  void Write(const std::vector<Value>& values);
  std::vector<Value> Read() const;
  /// Bytes of the whole storage as they are now.
  std::vector<char> ReadStorage() const;
  /// Small values: halves from -8 to 8 for floats, integers from -8 to 8 or 0 to 16, any bool.
  void FillSmall(std::mt19937& random);
  /// Storage bytes outside of the view are as they were last written.
  bool SurroundingsAreIntact() const;

 private:
  void Allocate();
  std::vector<int64_t> ElementOffsets() const;

  Shape shape_;
  aclDataType type_;
  Shape strides_;
  int64_t offset_ = 0;
  Memory memory_;
  std::vector<char> mirror_;
  aclTensor* tensor_ = nullptr;
};

/// A scalar object that is destroyed with this.
class TestScalar {
 public:
  TestScalar(aclDataType type, Value value);
  ~TestScalar() { aclDestroyScalar(scalar_); }
  TestScalar(const TestScalar&) = delete;
  aclScalar* get() const { return scalar_; }

 private:
  aclScalar* scalar_;
};

using PhaseOne = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;
using PhaseTwo = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

/// Both phases, with a workspace, and a wait for the end. The status of the first phase that fails.
aclnnStatus RunOp(aclrtStream stream, const PhaseOne& one, PhaseTwo two);

/// Puts operators into captures.
class RecordingTest : public AclnnTest {
 protected:
  /// Both phases without a wait. The workspace must outlive the graph.
  void Record(const PhaseOne& one, PhaseTwo two);
  /// And waits for it.
  void Replay(aclmdlRI model);

  std::vector<std::unique_ptr<Memory>> workspaces;
};

#define RECORD(op, ...) \
  Record([&](uint64_t* ws, aclOpExecutor** ex) { return op##GetWorkspaceSize(__VA_ARGS__, ws, ex); }, op)

/// RUN(aclnnAdd, a, b, alpha, out): status of the whole call on the fixture's stream.
#define RUN(op, ...)   \
  ::aclnn_test::RunOp( \
      stream, [&](uint64_t* ws, aclOpExecutor** ex) { return op##GetWorkspaceSize(__VA_ARGS__, ws, ex); }, op)

/// The recent message; empty when there is none.
std::string RecentMessage();

/// Elements of `out` against `expected`; tolerance[i] is absolute, empty means exact. NaN equals NaN.
void ExpectValues(const std::vector<Value>& actual, const std::vector<Value>& expected,
                  const std::vector<long double>& tolerance = {});

/// For each element of `out_shape` the row-major index in a tensor of `shape` that broadcasts to it.
std::vector<int64_t> BroadcastIndices(const Shape& shape, const Shape& out_shape);

}  // namespace aclnn_test
