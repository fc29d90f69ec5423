// SPDX-License-Identifier: Apache-2.0
//
// Rules of recurrent networks.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {

// Every output is a sequence [steps, batch, hidden]; the last weight has four gates of hidden columns.
Status DynamicRnn(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& weight = call.In(call.op.type == "DynamicRNN" ? "w" : "weight_hidden");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 3));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(weight, 2));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(3));
  const Dim hidden = weight.shape.has_rank() ? FloorDiv(weight.shape[1], 4) : Dim::Unknown();
  return call.SetRest(Sizes{x.shape[0], x.shape[1], hidden});
}

// The gradient of the bias has as many numbers as a weight has columns.
Status DynamicRnnGradient(InferContext& call) {  // rule
  const InferTensor& weight = call.In("w_h");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(weight, 2));
  return call.Set(call.Out("db"), weight.shape.has_rank() ? Sizes{weight.shape[1]} : Sizes::Unknown(1));
}

// A sequence [steps, batch, hidden], then the last states [1, batch, hidden].
Status RecurrentLayer(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& weight = call.In("weight_hidden");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 3));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(weight, 2));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(3));
  const Dim hidden = weight.shape.has_rank() ? weight.shape[1] : Dim::Unknown();
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), Sizes{x.shape[0], x.shape[1], hidden}));
  return call.SetRest(Sizes{Dim(1), x.shape[1], hidden});
}

}  // namespace reprise::opdef::infer
