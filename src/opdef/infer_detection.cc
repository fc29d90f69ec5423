// SPDX-License-Identifier: Apache-2.0
//
// Rules of boxes.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {

// Boxes [n, 4] and [m, 4] give [m, n], aligned ones [n, 1].
Status BoxOverlap(InferContext& call) {  // rule
  const InferTensor& first = call.In("bboxes");
  const InferTensor& second = call.In("gtboxes");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(first, 2));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(second, 2));
  const Dim rows = second.shape.has_rank() ? second.shape[0] : Dim::Unknown();
  if (call.Bool("aligned")) return call.SetRest(Sizes{rows, 1});
  return call.SetRest(Sizes{rows, first.shape.has_rank() ? first.shape[0] : Dim::Unknown()});
}

// Boxes [4, n] in pairs give [1, n].
Status BoxPairs(InferContext& call) {  // rule
  const InferTensor& boxes = call.In("bboxes");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(boxes, 2));
  return call.SetRest(Sizes{1, boxes.shape.has_rank() ? boxes.shape[1] : Dim::Unknown()});
}

}  // namespace reprise::opdef::infer
