// SPDX-License-Identifier: Apache-2.0
//
// OperatorChain: calls of operators, one behind the other, that are one call for whoever asked for it.
//
//     OperatorChain chain("RmsNormOperation", false);
//     const Tensor sum = chain.Temporary(DType::kFloat, sizes);
//     REPRISE_RETURN_IF_ERROR(chain.Add("aclnnAdd", {{"self", &a}, {"other", &b}, {"out", &sum}}));
//     REPRISE_RETURN_IF_ERROR(chain.Submit(stream));
//
// Each call is checked and planned as the aclnn function of that name is. Memory between the calls, and their
// workspaces, belong to the tasks: past the run of a queued one, as long as the model of a captured one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "kernels/cast.h"
#include "ops/executor.h"
#include "ops/tensor.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::ops {

// ---- Views of row-major tensors ----

/// Row-major; `data` may be null.
Tensor RowMajor(kernels::DType dtype, std::span<const int64_t> sizes, void* data);
/// Row-major memory seen with other sizes, of as many elements.
Tensor Reshaped(const Tensor& tensor, std::initializer_list<int64_t> sizes);
/// Two dims exchanged.
Tensor Exchanged(const Tensor& tensor, size_t first, size_t second);
/// Elements [begin, begin + count) of a dim.
Tensor Narrowed(const Tensor& tensor, size_t dim, int64_t begin, int64_t count);
/// Every element of `sizes` is the only element of `tensor`.
Tensor Repeated(const Tensor& tensor, std::initializer_list<int64_t> sizes);

/// Threads: belongs to the thread that makes the call.
class OperatorChain {
 public:
  using Value = std::variant<const Tensor*, std::vector<Tensor>, std::vector<int64_t>, kernels::Scalar, const char*,
                             double, int64_t, bool, kernels::DType>;
  /// A parameter by its name. Tensors are borrowed for the call of Add.
  struct Setting {
    std::string_view name;
    Value value;
  };

  /// `name`: begins every message, and what dumps of graphs show. `only_checks`: nothing is allocated, Submit is not
  /// allowed.
  OperatorChain(std::string name, bool only_checks);
  ~OperatorChain();
  OperatorChain(const OperatorChain&) = delete;
  OperatorChain& operator=(const OperatorChain&) = delete;

  /// Row-major memory for what one call leaves to another.
  Tensor Temporary(kernels::DType dtype, std::span<const int64_t> sizes);
  Tensor Temporary(kernels::DType dtype, std::initializer_list<int64_t> sizes) {
    return Temporary(dtype, std::span<const int64_t>(sizes.begin(), sizes.size()));
  }
  /// As Temporary, of zeros that no call writes.
  Tensor Zeros(kernels::DType dtype, std::initializer_list<int64_t> sizes);

  /// Plans a call. Parameters that are not set are null or have their default.
  /// Errors: those of the operator, behind the name of the chain.
  Status Add(std::string_view op, std::initializer_list<Setting> settings);

  /// Queues or records all calls, in their order.
  Status Submit(runtime::Stream& stream);

 private:
  struct Planned {
    std::unique_ptr<Executor> executor;
    void* workspace;
  };

  const std::string name_;
  const bool only_checks_;
  uintptr_t next_;  // address of the next Temporary of a chain that only checks
  TaskMemory* memory_;
  std::shared_ptr<const OperationInfo> site_;
  std::vector<Planned> calls_;
};

}  // namespace reprise::ops
