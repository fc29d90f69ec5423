/* SPDX-License-Identifier: Apache-2.0
 *
 * The operators of the aclnn library from C++, for layers that have descriptions of tensors of their own: no objects,
 * no handles, one plan for each call.
 *
 *     static const int add = reprise::FindOperator("aclnnAdd");
 *     const reprise::OperatorArgument args[] = {Tensor(a), Tensor(b), Scalar(&one, ACL_INT64), Tensor(out)};
 *     if (auto plan = reprise::PreparedOperator::Make(add, args, 4)) plan->Launch(stream, workspace);
 */
#ifndef REPRISE_OPERATOR_H_
#define REPRISE_OPERATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "operation.h"

namespace reprise {

/** Strided memory. Borrowed for the call that it is passed to, but for `data`, which the kernels use. */
struct TensorView {
  void* data = nullptr;  ///< of the first element
  int32_t dtype = 0;     ///< aclDataType
  int rank = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  ///< elements
};

/** One parameter of an operator, in the order of its C function. Borrowed: what it points to lives until Make
 *  returns. */
struct OperatorArgument {
  enum class Kind : uint8_t { kNull, kTensor, kTensors, kScalar, kScalars, kInts, kFloats, kBools, kInt, kReal, kText };
  struct ScalarValue {
    const void* value;  ///< on the host
    int32_t dtype;
  };

  Kind kind = Kind::kNull;
  const void* values = nullptr;  ///< TensorView, ScalarValue, int64_t, float, bool: an array; char: a text
  size_t count = 0;              ///< of the array
  int64_t integer = 0;           ///< integers, bools, types
  double real = 0;
};

/** Number of the operator with this C name ("aclnnAdd"); -1: there is none. Thread-safe; look it up once. */
int FindOperator(std::string_view name) noexcept;

/** A checked call, ready to be queued. Thread-compatible. */
class PreparedOperator {
 public:
  /** Null when the operator does not take the arguments; `why`, if given, says which one and what it should be.
   *  An argument of a kind that its parameter does not have counts as such, too. */
  static std::unique_ptr<PreparedOperator> Make(int op, const OperatorArgument* args, size_t count,
                                                std::string* why = nullptr);
  /** Bytes of workspace that a call with these arguments needs, whatever its lists of lengths say; they may be missing,
   *  and memory may be null. 0 and a text in `why` when the operator does not take them. */
  static uint64_t MostWorkspaceBytes(int op, const OperatorArgument* args, size_t count, std::string* why = nullptr);
  ~PreparedOperator();
  PreparedOperator(const PreparedOperator&) = delete;
  PreparedOperator& operator=(const PreparedOperator&) = delete;

  /** Device memory that the launch needs until the stream has passed it, of any alignment. */
  uint64_t workspace_bytes() const;
  /** Queues the kernels on `stream` (null: the calling thread's current stream), or records them. Once, and once more
   *  after each Move. `info`: what dumps and errors show instead of the operator's own name. The kernels hold no memory:
   *  views and workspace live as the stream's order asks. Throws Exception: those of any submission. */
  void Launch(void* stream, void* workspace, const std::shared_ptr<const OperationInfo>& info = {});

  /** Whether a further call of this kind may be made by Move instead of Make: neither plan nor workspace belong to this
   *  one call. */
  bool can_move() const;
  /** For a call with the same arguments, all but the memory of tensors: `data[i]` is where the first element of the i-th
   *  one lies, elements of lists one by one, null ones left out. What was launched before keeps its memory. False, and
   *  nothing has changed, when Make is needed: the tensors overlap otherwise than those of the plan, or are aligned
   *  otherwise. */
  bool Move(void* const* data, size_t count);

 private:
  struct Impl;
  static std::unique_ptr<Impl> Prepare(int op, const OperatorArgument* args, size_t count, bool only_tells_size,
                                       std::string* why);
  explicit PreparedOperator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // REPRISE_OPERATOR_H_
