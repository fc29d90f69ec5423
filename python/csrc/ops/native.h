// SPDX-License-Identifier: Apache-2.0
//
// Operators of torch that the device computes with kernels of its own: the operators of libopapi.so, called through
// reprise/operator.h. What those do not take (mixed types, broadcast scalars of the host, …) runs as the CPU kernel.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <reprise/operator.h>

#include <array>
#include <forward_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/stream.h"

namespace torch_npu {

struct NativeOp;

/// A call of an operator of the device, its arguments in the order of the C function.
class NativeCall {
 public:
  /// "aclnnAdd"; `name`: what dumps and errors show.
  NativeCall(const char* op, const char* name);
  NativeCall& Tensor(const at::Tensor& tensor);  ///< undefined: null
  NativeCall& Tensors(const at::Tensor& only);   ///< a list of one, which is defined
  NativeCall& Tensors(c10::ArrayRef<at::Tensor> list);
  NativeCall& Number(const at::Scalar& number);  ///< real
  NativeCall& Numbers(c10::ArrayRef<at::Scalar> numbers);
  NativeCall& Null();
  NativeCall& Ints(c10::IntArrayRef values);  ///< borrowed until Launch
  NativeCall& Int(int64_t value);
  NativeCall& Real(double value);
  NativeCall& Text(const char* value);
  /// Queues it on the current stream. False, and nothing is done, when the device does not take the arguments.
  bool Launch();

 private:
  static constexpr size_t kMost = 32;
  reprise::OperatorArgument& Next(reprise::OperatorArgument::Kind kind);

  int op_;
  const char* name_;
  bool is_possible_ = true;
  size_t count_ = 0;
  std::array<reprise::OperatorArgument, kMost> arguments_;
  std::array<reprise::TensorView, kMost> views_;
  // Of lists; what arguments point to stays where it is.
  std::forward_list<std::vector<reprise::TensorView>> lists_;
  struct Value {
    union {
      int64_t integer;
      double real;
    };
  };
  std::forward_list<std::pair<std::vector<Value>, std::vector<reprise::OperatorArgument::ScalarValue>>> numbers_;
};

/// Names of torch's operators that have a row, "add.Tensor".
std::vector<std::string> NativeOperators();
/// Operators that torch_npu defines and the device computes, with the C name of what computes each.
std::vector<std::pair<std::string, std::string>> DeclaredOperators();
/// The row of such an operator. Null when the device does not have what it names. Lives for ever.
const NativeOp* DeclareNative(const c10::FunctionSchema& schema);
/// Made by DeclareNative: the device alone says which arguments it takes, and nothing else runs in its place.
bool IsDeclared(const NativeOp& native);

/// Bytes of workspace for a call, whatever lengths it is given later. `why`: empty, or what is wrong with it.
uint64_t NativeWorkspace(const NativeOp& native, c10::ArrayRef<c10::IValue> arguments,
                         c10::ArrayRef<at::Tensor> results, std::string& why);

/// The row of api/torch_ops.csv for the operator, as far as the device has what it names; null: none. Lives for ever.
const NativeOp* FindNative(const c10::FunctionSchema& schema);

/// What LaunchNative has prepared, for further calls with the same arguments in other memory.
struct NativePlan {
  struct Place {
    int16_t index;    // of the argument, or the result
    int16_t element;  // of a list; -1: no list
    bool is_result;
  };
  std::unique_ptr<reprise::PreparedOperator> prepared;  // null: nothing yet, or nothing that could be used again
  c10::SmallVector<Place, 4> places;                    // where its tensors are
  uint64_t times_moved = 0;                             // launches since then that took other memory
};

/// Queues the device's own kernels. False, and nothing is done, when they do not take these arguments.
/// \param why  what they do not take
/// \param results  what the operator returns, in order; the elements of lists one by one
/// \param plan  takes what was prepared
bool LaunchNative(const NativeOp& native, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> results,
                  const std::shared_ptr<const reprise::OperationInfo>& info, std::string* why = nullptr,
                  NativePlan* plan = nullptr);
/// The call of a plan over again on the current stream, with arguments that differ in memory alone. False, and nothing
/// is done, when it must be prepared for the memory that it has now. \pre plan.prepared
bool LaunchAgain(NativePlan& plan, const NPUStream& stream, c10::ArrayRef<c10::IValue> arguments,
                 c10::ArrayRef<const at::Tensor*> results, const std::shared_ptr<const reprise::OperationInfo>& info);

}  // namespace torch_npu
