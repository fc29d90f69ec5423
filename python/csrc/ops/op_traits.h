// SPDX-License-Identifier: Apache-2.0
//
// What an operator's schema says of how to run it.
//
//     kView         returns a part of an argument        at once; no data is touched
//     kAsync        writes arguments, or makes results   queued, or recorded
//     kSynchronous  its result depends on data           waits for the stream; refused in captures
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/checks.h"
#include "ops/direct_kernel.h"
#include "ops/native.h"

namespace torch_npu {

/// A result with the sizes of an argument, for operators without a Meta kernel.
struct LikeArgument {
  int argument;
  std::optional<at::ScalarType> dtype;  // none: that of the argument
};

enum class OpKind { kView, kAsync, kSynchronous };

/// When torch puts an operator together of others: the first time that it is called in some way, where it has a form
/// with out= that the same kernels of the device compute.
enum class Putting { kNever, kOnce, kAlways };

struct OpTraits {
  c10::OperatorHandle op;
  std::string name;
  OpKind kind = OpKind::kAsync;
  Putting putting = Putting::kNever;
  bool makes_tensors = false;  // returns new ones
  bool has_meta = false;
  bool has_cpu = false;
  bool is_pointwise = false;       // values of scalars do not change what is returned
  bool masks_are_dynamic = false;  // indexing: with a mask the sizes of the result depend on data
  bool is_out_form = false;        // writes what another form of it returns
  bool is_in_place = false;        // reads and writes its first argument, and refuses one that overlaps itself
  bool draws = false;
  int generator = -1;                 // argument
  std::vector<bool> is_written;       // by argument
  std::vector<bool> takes_host;       // by argument: tensors of indices may be on the host
  std::vector<int> returns_argument;  // by return; -1: a new one
  std::vector<LikeArgument> like;     // by return, instead of a Meta kernel
  /// The form of the operator that writes existing results, if the CPU has a kernel for it.
  std::optional<c10::OperatorHandle> out;
  ArgumentCheck check = nullptr;                             // what its Meta kernel does not look for
  const NativeOp* native = nullptr;                          // kernels of the device, if it has some
  DirectKernel direct = nullptr;                             // in the place of the CPU's, where it takes the arguments
  std::shared_ptr<const reprise::OperationInfo> name_alone;  // for launches whose place nobody asks for

  explicit OpTraits(const c10::OperatorHandle& handle) : op(handle) {}
};

/// An operator that torch makes, for devices that it does not know, of a result and a call of its form with out=. Ours
/// has a kernel of its own for PrivateUse1; what torch would do is called under the key of a device that nobody has.
bool IsPutTogether(const c10::OperatorHandle& op);
inline constexpr c10::DispatchKeySet kPutTogether(c10::DispatchKey::PrivateUse2);

/// Lives for ever. Takes no lock but at the first call of an operator in a thread.
const OpTraits& TraitsOf(const c10::OperatorHandle& op);

}  // namespace torch_npu
