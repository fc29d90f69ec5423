/* SPDX-License-Identifier: Apache-2.0
 *
 * Operation: what CreateOperation makes of parameters; infer_op_params.h has those.
 *
 *     atb::infer::RopeParam param;
 *     param.rotaryCoeff = 2;
 *     atb::Operation* rope = nullptr;
 *     atb::CreateOperation(param, &rope);
 *     uint64_t bytes = 0;
 *     rope->Setup(tensors, bytes, context);
 *     rope->Execute(tensors, workspace, bytes, context);
 */
#ifndef ATB_OPERATION_H_
#define ATB_OPERATION_H_

#include <string>

#include "context.h"
#include "types.h"

namespace atb {

/** Keeps nothing between calls: thread-safe, and tensors may change from one call to the next. */
class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  virtual std::string GetName() const = 0;
  virtual Status InferShape(const SVector<TensorDesc>& inTensorDescs, SVector<TensorDesc>& outTensorDescs) const = 0;
  virtual uint32_t GetInputNum() const = 0;
  virtual uint32_t GetOutputNum() const = 0;
  /** Checks the tensors. `workspaceSize` becomes 0: memory between the kernels belongs to these. */
  virtual Status Setup(const VariantPack& variantPack, uint64_t& workspaceSize, Context* context) = 0;
  /** Queues the kernels on the context's stream, or records them in its capture. */
  virtual Status Execute(const VariantPack& variantPack, uint8_t* workspace, uint64_t workspaceSize,
                         Context* context) = 0;
};

/** There is one for each of the parameters in infer_op_params.h. */
template <class OpParam>
Status CreateOperation(const OpParam& opParam, Operation** operation);
Status DestroyOperation(Operation* operation);

}  // namespace atb

#endif  // ATB_OPERATION_H_
