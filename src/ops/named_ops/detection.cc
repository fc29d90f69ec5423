// SPDX-License-Identifier: Apache-2.0
//
// Overlaps of boxes by type.
#include "ops/families/boxes.h"
#include "ops/named_ops/steps.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops::named {
namespace {

constexpr Computation kGradient = {
    .dtype_rule = TypeOfSelf, .shape_rule = boxes::CompleteShape, .lower = boxes::LowerCompleteGradient};
constexpr std::array kGradientParams = {In("dy"),
                                        In("bBoxes"),
                                        In("gtBoxes"),
                                        Attr("trans", ParamKind::kBool),
                                        Attr("isCross", ParamKind::kBool),
                                        Attr("mode", ParamKind::kString),
                                        Out("dBoxes"),
                                        Out("dGtBoxes")};
constexpr Routine kGradientRoutine = {kGradientParams, kGradient};

Status LowerOverlapGradient(NamedCall& call) {
  const opdef::InferContext& context = call.context;
  return call.Step(
      kGradientRoutine,
      {call.Input("dy").view(), call.Input("bboxes").view(), call.Input("gtboxes").view(), context.Bool("trans"),
       context.Bool("is_cross"), context.Text("mode"), call.Output("dbboxes").view(), call.Output("dgtboxes").view()});
}

constexpr NamedOp kDetectionRows[] = {
    As("CIoU", kSingleAndHalfTypes, "aclnnCIoU", "bboxes gtboxes @trans @is_cross @mode =overlap =atan_sub"),
    {"CIoUGrad", kSingleAndHalfTypes, LowerOverlapGradient},
    As("Iou", kSingleAndHalfTypes, "aclnnIou", "bboxes gtboxes @mode @eps @aligned ="),
};

}  // namespace

std::span<const NamedOp> DetectionRows() { return kDetectionRows; }

}  // namespace reprise::ops::named
