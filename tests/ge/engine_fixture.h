// SPDX-License-Identifier: Apache-2.0
//
// Sessions of the engine with graphs from texts.
#pragma once

#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/text.h"
#include "engine/engine.h"
#include "engine/numbers.h"
#include "engine/warnings.h"
#include "runtime/report.h"

namespace reprise::engine {

inline constexpr const char* kAddText = R"(graph add
x = Data() : float32 [4]
w = Const() : float32 [4] = 1, 2, 3, 4
t = Add(x, w)
y = Mul(t, x)
return y
)";
inline constexpr const char* kOpenText = R"(graph open
x = Data() : float32 [?, 3]
y = Add(x, x)
return y
)";

/// An allocator that counts, of plain device memory.
class CountingAllocator final : public ExternalAllocator {
 public:
  Block Malloc(uint64_t bytes) override {
    if (on_malloc) on_malloc();
    void* block = nullptr;
    if (refuses || aclrtMalloc(&block, bytes + 64, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) return {};
    ++taken;
    live[block] = bytes;
    return {block, block};
  }
  void Free(void* handle) override {
    live.erase(handle);
    EXPECT_EQ(aclrtFree(handle), ACL_SUCCESS);
  }
  std::function<void()> on_malloc;
  bool refuses = false;
  int taken = 0;
  std::map<void*, uint64_t> live;
};

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
    folder_ = std::filesystem::temp_directory_path() / ("ge_session_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    TakeWarnings();
    Begin({}, {});
  }
  void TearDown() override {
    session_.reset();
    EXPECT_EQ(Finalize().code(), 0);
    SetCompileFunction(nullptr);
    for (void* block : blocks_) aclrtFree(block);
    aclrtDestroyStream(stream_);
    aclrtResetDevice(0);
    aclFinalize();
    std::filesystem::remove_all(folder_);
  }

  /// The engine and its session anew, with these options.
  void Begin(const OptionMap& process, const OptionMap& options, Interface interface = Interface::kFirst) {
    session_.reset();
    ASSERT_EQ(Finalize().code(), 0);
    ASSERT_EQ(Text(Initialize(process)), "");
    auto id = OpenSession(interface, options);
    ASSERT_EQ(Text(std::move(id).status()), "");
    auto found = FindSession(*id, "test");
    ASSERT_TRUE(found.ok());
    session_ = *found;
  }

  static std::string Text(const Status& status) {
    return status.ok() ? "" : std::to_string(static_cast<uint32_t>(status.code())) + " " + status.detail().what;
  }
  static std::shared_ptr<compiler::Graph> Parse(const std::string& text) {
    auto graph = compiler::FromText(text);
    EXPECT_TRUE(graph.ok()) << Text(std::move(graph).status());
    return graph.ok() ? std::shared_ptr<compiler::Graph>(std::move(graph).value()) : nullptr;
  }
  Status Add(uint32_t id, const std::string& text, const OptionMap& options = {}) {
    auto graph = Parse(text);
    return session_->AddGraph(id, graph, graph, options);
  }
  void AddCompiled(uint32_t id, const std::string& text, const OptionMap& options = {}) {
    ASSERT_EQ(Text(Add(id, text, options)), "");
    ASSERT_EQ(Text(session_->CompileGraph(id)), "");
  }

  void* Block(uint64_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(aclrtMalloc(&block, bytes, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    blocks_.push_back(block);
    return block;
  }
  InputTensor OnDevice(const std::vector<float>& values, std::vector<int64_t> shape) {
    InputTensor tensor{Block(values.size() * 4 + 64), values.size() * 4, {0, std::move(shape)}};
    std::memcpy(tensor.data, values.data(), tensor.bytes);
    return tensor;
  }
  static InputTensor OnHost(std::vector<float>& values, std::vector<int64_t> shape) {
    return {values.data(), values.size() * 4, {0, std::move(shape)}};
  }
  static std::vector<float> Floats(const void* data, uint64_t bytes) {
    std::vector<float> values(bytes / 4);
    if (bytes > 0) std::memcpy(values.data(), data, bytes);
    return values;
  }
  static std::vector<float> Floats(const HostTensor& tensor) { return Floats(tensor.bytes.data(), tensor.bytes.size()); }
  void Sync() { ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS); }

  void* stream_ = nullptr;
  std::filesystem::path folder_;
  std::shared_ptr<Session> session_;
  std::vector<void*> blocks_;
};

}  // namespace reprise::engine
