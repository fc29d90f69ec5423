// SPDX-License-Identifier: Apache-2.0
//
// A fixture that compiles graphs given as text and runs them on a stream.
#pragma once

#include <acl/acl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/executable.h"
#include "compiler/text.h"
#include "runtime/stream.h"

namespace reprise::compiler {

constexpr int32_t kFloat = 0;
constexpr int32_t kInt32 = 3;
constexpr int32_t kInt64 = 9;
constexpr int32_t kBool = 12;

class CompilerRun : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
  }
  void TearDown() override {
    executable_.reset();
    for (void* block : blocks_) aclrtFree(block);
    aclrtDestroyStream(stream_);
    aclrtResetDevice(0);
    aclFinalize();
  }

  void* Block(uint64_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(aclrtMalloc(&block, bytes + 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    blocks_.push_back(block);
    return block;
  }

  template <class T>
  RunTensor In(const std::vector<T>& values, std::vector<int64_t> shape, int32_t dtype) {
    RunTensor tensor;
    tensor.bytes = values.size() * sizeof(T);
    tensor.data = Block(tensor.bytes);
    std::memcpy(tensor.data, values.data(), tensor.bytes);
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    return tensor;
  }
  RunTensor In(const std::vector<float>& values, std::vector<int64_t> shape) {
    return In(values, std::move(shape), kFloat);
  }

  Status Compile(const std::string& text, CompileOptions options = {}) {
    auto graph = FromText(text);
    if (!graph.ok()) return std::move(graph).status();
    REPRISE_RETURN_IF_ERROR(Verify(**graph));
    options.validates_memory = true;
    auto compiled = Executable::Compile(std::move(**graph), options);
    if (!compiled.ok()) return std::move(compiled).status();
    executable_ = compiled.value();
    return {};
  }

  struct AnyMemory final : OutputAllocator {
    explicit AnyMemory(CompilerRun& in_test) : test(in_test) {}
    void* Allocate(size_t, uint64_t bytes) override { return test.Block(bytes); }
    CompilerRun& test;
  };

  Status Queue(const std::vector<RunTensor>& inputs, std::vector<RunTensor>& outputs) {
    auto found = runtime::FindStream(stream_);
    if (!found.ok()) return std::move(found).status();
    outputs.resize(executable_->graph().results.size());
    AnyMemory memory(*this);
    RunRequest request;
    request.inputs = inputs;
    request.outputs = outputs;
    request.allocator = &memory;
    return executable_->Run(*found.value(), request);
  }
  std::vector<RunTensor> Run(const std::vector<RunTensor>& inputs) {
    std::vector<RunTensor> outputs;
    const Status status = Queue(inputs, outputs);
    EXPECT_TRUE(status.ok()) << status.detail().what;
    EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
    return outputs;
  }
  template <class T = float>
  static std::vector<T> Values(const RunTensor& tensor) {
    if (tensor.data == nullptr) return {};
    const auto* const first = static_cast<const T*>(tensor.data);
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    return count == 0 ? std::vector<T>() : std::vector<T>(first, first + count);
  }

  aclrtStream stream_ = nullptr;
  std::vector<void*> blocks_;
  std::shared_ptr<Executable> executable_;
};

#define EXPECT_OK(expr)                                               \
  do {                                                                \
    const Status status_of_expr = (expr);                             \
    ASSERT_TRUE(status_of_expr.ok()) << status_of_expr.detail().what; \
  } while (false)

}  // namespace reprise::compiler
