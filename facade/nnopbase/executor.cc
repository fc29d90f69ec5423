// SPDX-License-Identifier: Apache-2.0
//
// The executor functions of aclnn/acl_meta.h; each has a second name with a capital first letter.
#include "ops/executor.h"
#include "aclnn/acl_meta.h"
#include "runtime/report.h"

using reprise::ops::TensorRange;
using reprise::runtime::Api;
namespace ops = reprise::ops;

namespace {

aclnnStatus Move(const char* api, aclOpExecutor* executor, TensorRange range, size_t index, const aclTensor* tensor,
                 void* addr) noexcept {
  return Api(api, [&] { return ops::MoveTensor(executor, range, index, -1, tensor, addr); });
}

aclnnStatus MoveElement(const char* api, aclOpExecutor* executor, TensorRange range, size_t index, size_t element,
                        const aclTensorList* tensors, void* addr) noexcept {
  // A list has less than 2^63 elements: what is beyond is out of range, too.
  const auto position = static_cast<int64_t>(element & ~(size_t{1} << 63));
  return Api(api, [&] { return ops::MoveTensor(executor, range, index, position, tensors, addr); });
}

}  // namespace

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return Api("aclSetAclOpExecutorRepeatable", [&] { return ops::SetRepeatable(executor); });
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return Api("aclDestroyAclOpExecutor", [&] { return ops::DestroyExecutor(executor); });
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return Move("aclSetInputTensorAddr", executor, TensorRange::kInputs, index, tensor, addr);
}
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return Move("aclSetOutputTensorAddr", executor, TensorRange::kOutputs, index, tensor, addr);
}
aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return Move("aclSetTensorAddr", executor, TensorRange::kInputsThenOutputs, index, tensor, addr);
}
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                         aclTensorList* tensors, void* addr) {
  return MoveElement("aclSetDynamicInputTensorAddr", executor, TensorRange::kInputs, irIndex, relativeIndex, tensors,
                     addr);
}
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                          aclTensorList* tensors, void* addr) {
  return MoveElement("aclSetDynamicOutputTensorAddr", executor, TensorRange::kOutputs, irIndex, relativeIndex, tensors,
                     addr);
}
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                    aclTensorList* tensors, void* addr) {
  return MoveElement("aclSetDynamicTensorAddr", executor, TensorRange::kInputsThenOutputs, irIndex, relativeIndex,
                     tensors, addr);
}

aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return aclSetInputTensorAddr(executor, index, tensor, addr);
}
aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return aclSetOutputTensorAddr(executor, index, tensor, addr);
}
aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return aclSetTensorAddr(executor, index, tensor, addr);
}
aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                         aclTensorList* tensors, void* addr) {
  return aclSetDynamicInputTensorAddr(executor, irIndex, relativeIndex, tensors, addr);
}
aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                          aclTensorList* tensors, void* addr) {
  return aclSetDynamicOutputTensorAddr(executor, irIndex, relativeIndex, tensors, addr);
}
aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex, const size_t relativeIndex,
                                    aclTensorList* tensors, void* addr) {
  return aclSetDynamicTensorAddr(executor, irIndex, relativeIndex, tensors, addr);
}
