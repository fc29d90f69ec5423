// SPDX-License-Identifier: Apache-2.0
//
// Runs of a compiled graph take no memory of the host once the graph has run. A program of its own, because it counts
// the blocks of the whole process.
#include <acl/acl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "all_ops.h"
#include "exe_graph/runtime/tensor.h"
#include "ge/ge_api.h"
#include "ge/ge_api_v2.h"
#include "graph/graph.h"

namespace {
std::atomic<int64_t> g_blocks{0};
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define REPRISE_COUNTS_BLOCKS 1
#define REPRISE_EXPORT __attribute__((visibility("default")))
extern "C" {
void* __libc_malloc(size_t bytes);                      // NOLINT: names of glibc
void* __libc_calloc(size_t count, size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, size_t bytes);       // NOLINT
void* __libc_memalign(size_t alignment, size_t bytes);  // NOLINT

REPRISE_EXPORT void* malloc(size_t bytes) {
  g_blocks.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
REPRISE_EXPORT void* calloc(size_t count, size_t bytes) {
  g_blocks.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
REPRISE_EXPORT void* realloc(void* memory, size_t bytes) {
  g_blocks.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
REPRISE_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  g_blocks.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
REPRISE_EXPORT int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  g_blocks.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
}
#endif

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;
constexpr int64_t kElements = 16;
constexpr int kRuns = 100;
constexpr int kAttempts = 9;

ge::TensorDesc Desc() { return ge::TensorDesc(ge::Shape({kElements}), ge::FORMAT_ND, ge::DT_FLOAT); }

// y = (x0 + x1) * x1
ge::Graph Small() {
  std::vector<ge::Operator> inputs;
  for (int i = 0; i < 2; ++i) {
    ge::op::Data data(("x" + std::to_string(i)).c_str());
    data.set_attr_index(i);
    data.update_input_desc_x(Desc());
    data.update_output_desc_y(Desc());
    inputs.push_back(data);
  }
  ge::op::Add add("add");
  add.set_input_x1(inputs[0], "y").set_input_x2(inputs[1], "y");
  ge::op::Mul mul("mul");
  mul.set_input_x1(add).set_input_x2(inputs[1], "y");
  ge::Graph graph("small");
  graph.SetInputs(inputs).SetOutputs({mul});
  return graph;
}

gert::Tensor OnDevice(void* address) {
  gert::Tensor tensor;
  for (gert::Shape* shape : {&tensor.MutableStorageShape(), &tensor.MutableOriginShape()}) {
    shape->SetDimNum(0);
    shape->AppendDim(kElements);
  }
  tensor.SetDataType(ge::DT_FLOAT);
  tensor.SetPlacement(gert::kOnDeviceHbm);
  tensor.SetData(gert::TensorData(address, nullptr, kElements * 4, gert::kOnDeviceHbm));
  return tensor;
}

TEST(RunCounts, RunsTakeNoMemoryOfTheHost) {
  ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  ASSERT_EQ(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}}), ge::SUCCESS);
  float* blocks[4];
  for (int b = 0; b < 4; ++b) {
    ASSERT_EQ(aclrtMalloc(reinterpret_cast<void**>(&blocks[b]), kElements * 4, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    for (int64_t i = 0; i < kElements; ++i) blocks[b][i] = static_cast<float>(b + 2);
  }
  {
    ge::Session first(Options{});
    ge::GeSession second(Options{});
    ASSERT_EQ(first.AddGraphWithCopy(1, Small()), ge::SUCCESS);
    ASSERT_EQ(first.CompileGraph(1), ge::SUCCESS);
    ASSERT_EQ(first.LoadGraph(1, Options{{"ge.exec.frozenInputIndexes", "1"}}, stream), ge::SUCCESS);
    ASSERT_EQ(first.AddGraphWithCopy(2, Small()), ge::SUCCESS);
    ASSERT_EQ(second.AddGraphClone(3, Small()), ge::SUCCESS);
    std::vector<gert::Tensor> gert_inputs(2);
    std::vector<ge::Tensor> inputs(2, ge::Tensor(Desc()));
    std::vector<gert::Tensor> gert_outputs[2];
    std::vector<ge::Tensor> outputs[2];
    for (size_t i = 0; i < 2; ++i) {
      gert_inputs[i] = OnDevice(blocks[i]);
      inputs[i] = ge::Tensor(Desc());
      ASSERT_EQ(inputs[i].SetData(reinterpret_cast<uint8_t*>(blocks[i]), kElements * 4, [](uint8_t*) {}),
                ge::GRAPH_SUCCESS);
      gert_outputs[i].resize(1);
      gert_outputs[i][0] = OnDevice(blocks[2 + i]);
      outputs[i].emplace_back(Desc());
      ASSERT_EQ(outputs[i][0].SetData(reinterpret_cast<uint8_t*>(blocks[2 + i]), kElements * 4, [](uint8_t*) {}),
                ge::GRAPH_SUCCESS);
    }
    int failures = 0;
    const auto run = [&](size_t i) {
      failures += first.ExecuteGraphWithStreamAsync(1, stream, gert_inputs, gert_outputs[i]) != ge::SUCCESS;
      failures += first.RunGraphWithStreamAsync(2, stream, inputs, outputs[i]) != ge::SUCCESS;
      failures += second.RunGraphWithStreamAsync(3, stream, gert_inputs, gert_outputs[i]) != ge::SUCCESS;
      failures += aclrtSynchronizeStream(stream) != ACL_SUCCESS;
    };
    // Workers and queues take their memory while they get to know the work, which a busy machine draws out.
    int64_t taken = -1;
    for (int attempt = 0; attempt < kAttempts && taken != 0; ++attempt) {
      const int64_t before = g_blocks.load();
      for (size_t i = 0; i < kRuns; ++i) run(i & 1);
      taken = g_blocks.load() - before;
    }
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(blocks[2][0], 15);
    EXPECT_EQ(blocks[3][kElements - 1], 15);
#ifdef REPRISE_COUNTS_BLOCKS
    EXPECT_EQ(taken, 0);
#else
    static_cast<void>(taken);
#endif
  }
  for (float* block : blocks) EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

}  // namespace
