/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator of the program's sees while it runs: tensors, memory, the stream. */
#ifndef REPRISE_EXE_GRAPH_RUNTIME_EAGER_OP_EXECUTION_CONTEXT_H_
#define REPRISE_EXE_GRAPH_RUNTIME_EAGER_OP_EXECUTION_CONTEXT_H_

#include <cstddef>
#include <cstdint>

#include "exe_graph/runtime/storage_format.h"
#include "exe_graph/runtime/storage_shape.h"
#include "exe_graph/runtime/tensor.h"
#include "graph/types.h"

#pragma GCC visibility push(default)

namespace gert {

/* Which tensors of the node belong to an operand of the prototype. */
class AnchorInstanceInfo {
 public:
  AnchorInstanceInfo() = default;
  AnchorInstanceInfo(uint32_t instance_start, uint32_t instance_num) : start_(instance_start), count_(instance_num) {}
  size_t GetInstanceStart() const { return start_; }
  size_t GetInstanceNum() const { return count_; }

 private:
  uint32_t start_ = 0;
  uint32_t count_ = 0;
};

/* One run of one node. It, and the tensors that it gives, end with Execute; memory stays until the stream has passed
   what Execute put there. */
class EagerOpExecutionContext {
 public:
  struct Data;
  explicit EagerOpExecutionContext(Data* data) : data_(data) {}
  EagerOpExecutionContext(const EagerOpExecutionContext&) = delete;
  EagerOpExecutionContext& operator=(const EagerOpExecutionContext&) = delete;

  const char* GetNodeName() const;
  const char* GetNodeType() const;
  size_t GetComputeNodeInputNum() const;
  size_t GetComputeNodeOutputNum() const;

  /* By place among the tensors of the node; null behind the last one. */
  const Tensor* GetInputTensor(size_t index) const;
  /* By operand of the prototype; null for one that is left out, and for operands of another kind. */
  const Tensor* GetRequiredInputTensor(size_t ir_index) const;
  const Tensor* GetOptionalInputTensor(size_t ir_index) const;
  const Tensor* GetDynamicInputTensor(size_t ir_index, size_t relative_index) const;
  const AnchorInstanceInfo* GetIrInputInstanceInfo(size_t ir_index) const;
  const AnchorInstanceInfo* GetIrOutputInstanceInfo(size_t ir_index) const;

  /* What an output is to be: as the graph tells it, without memory, until MallocOutputTensor has made it. */
  const Tensor* GetOutputTensor(size_t index) const;
  /* Device memory for an output. Null, and a message, where the shape is not known or there is no memory. */
  Tensor* MallocOutputTensor(size_t index, const StorageShape& shape, const StorageFormat& format, ge::DataType dtype);
  /* The output is the input, which the operator has written. */
  Tensor* MakeOutputRefInput(size_t output_index, size_t input_index) const;
  /* Device memory for this run; null where there is none. */
  void* MallocWorkSpace(size_t size);
  /* An aclrtStream: work that is put there runs in order with the graph. */
  void* GetStream() const;

 private:
  Data* const data_;
};

}  // namespace gert

#pragma GCC visibility pop

#endif  // REPRISE_EXE_GRAPH_RUNTIME_EAGER_OP_EXECUTION_CONTEXT_H_
