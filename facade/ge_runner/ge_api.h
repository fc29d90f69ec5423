// SPDX-License-Identifier: Apache-2.0
//
// Functions of the graph engine as callers link them. A Session is one number to them.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "graph/tensor.h"

#pragma GCC visibility push(default)

namespace ge {

using AscendStringMap = std::map<AscendString, AscendString>;
using Status = uint32_t;
constexpr Status SUCCESS = 0;
constexpr Status FAILED = 0xFFFFFFFF;
constexpr Status UNSUPPORTED = 0x50100064;

class Allocator;  // the caller's own

Status GEInitialize(const AscendStringMap& options);
Status GEFinalize();
/// The calling thread's pending message, which is then no longer pending; empty when there is none.
AscendString GEGetErrorMsgV2();
/// Empty: there are no warnings.
AscendString GEGetWarningMsgV2();

class CompiledGraphSummary {
 public:
  bool IsStatic() const;
  Status GetConstMemorySize(size_t& size) const;
  Status GetFeatureMemorySize(size_t& size) const;
  Status GetFixedFeatureMemorySize(size_t& size) const;
  Status GetFeatureMemoryBaseRefreshable(bool& refreshable) const;
  Status GetOutputShapes(std::vector<Shape>& shapes) const;
  Status GetOutputDtypes(std::vector<DataType>& types) const;
};

class Session {
 public:
  explicit Session(const AscendStringMap& options);
  ~Session();
  Status AddGraph(uint32_t id, const Graph& graph, const AscendStringMap& options);
  Status RemoveGraph(uint32_t id);
  Status CompileGraph(uint32_t id);
  std::shared_ptr<CompiledGraphSummary> GetCompiledGraphSummary(uint32_t id);
  Status SetGraphConstMemoryBase(uint32_t id, const void* memory, size_t size);
  Status UpdateGraphFeatureMemoryBase(uint32_t id, const void* memory, size_t size);
  Status UpdateGraphRefreshableFeatureMemoryBase(uint32_t id, const void* memory, size_t size);
  Status SetGraphFixedFeatureMemoryBase(uint32_t id, const void* memory, size_t size);
  Status RegisterExternalAllocator(const void* stream, std::shared_ptr<Allocator> allocator) const;
  Status RunGraph(uint32_t id, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs);
  Status RunGraphWithStreamAsync(uint32_t id, void* stream, const std::vector<Tensor>& inputs,
                                 std::vector<Tensor>& outputs);

 private:
  uint64_t id_ = 0;
};

}  // namespace ge

#pragma GCC visibility pop
