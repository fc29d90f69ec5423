// SPDX-License-Identifier: Apache-2.0
//
// Images read beside the places of a window, by type: what convolutions of them are made of.
#include "ops/families/deformable.h"

#include "ops/named_ops/image.h"
#include "ops/named_ops/steps.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops::named {
namespace {

constexpr Computation kRead = {
    .dtype_rule = TypeOfSelf, .shape_rule = deformable::DeformableShape, .lower = deformable::LowerOffsets};
constexpr std::array kReadParams = {In("x"),
                                    In("offset"),
                                    Attr("kernelSize", ParamKind::kIntArray),
                                    Attr("stride", ParamKind::kIntArray),
                                    Attr("padding", ParamKind::kIntArray),
                                    Attr("dilation", ParamKind::kIntArray),
                                    Attr("groups", ParamKind::kInt),
                                    Attr("deformableGroups", ParamKind::kInt),
                                    Attr("modulated", ParamKind::kBool),
                                    Out("offsetOut")};
constexpr Routine kReadRoutine = {kReadParams, kRead};

constexpr Computation kReadGradient = {
    .dtype_rule = TypeOfSelf, .shape_rule = deformable::DeformableShape, .lower = deformable::LowerOffsetsGradient};
constexpr std::array kReadGradientParams = {In("x"),
                                            In("offset"),
                                            In("offsetOut"),
                                            Attr("kernelSize", ParamKind::kIntArray),
                                            Attr("stride", ParamKind::kIntArray),
                                            Attr("padding", ParamKind::kIntArray),
                                            Attr("dilation", ParamKind::kIntArray),
                                            Attr("groups", ParamKind::kInt),
                                            Attr("deformableGroups", ParamKind::kInt),
                                            Attr("modulated", ParamKind::kBool),
                                            Out("gradInput"),
                                            Out("gradOffset")};
constexpr Routine kReadGradientRoutine = {kReadGradientParams, kReadGradient};

struct ReadingWindow {
  opdef::ImageLayout layout;
  std::vector<int64_t> kernel, strides, padding, dilations;
};

StatusOr<ReadingWindow> ReadWindow(const opdef::InferContext& context) {
  ReadingWindow window;
  REPRISE_ASSIGN_OR_RETURN(window.layout, opdef::LayoutOf(context, 2));
  REPRISE_ASSIGN_OR_RETURN(window.kernel, opdef::SpatialOf(context, "ksize", window.layout));
  for (const auto& [name, values] : {std::pair{"strides", &window.strides}, {"dilations", &window.dilations}}) {
    REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> spatial, opdef::SpatialOf(context, name, window.layout));
    *values = {1, 1, spatial[0], spatial[1]};
  }
  REPRISE_ASSIGN_OR_RETURN(const opdef::Pads pads, opdef::PadsOf(context, 2));
  window.padding = {pads[0].first, pads[0].second, pads[1].first, pads[1].second};
  return window;
}

Status LowerRead(NamedCall& call) {
  const opdef::InferContext& context = call.context;
  REPRISE_ASSIGN_OR_RETURN(const ReadingWindow window, ReadWindow(context));
  const auto image = [&](const NamedTensor& tensor) { return ChannelsFirst(tensor.view(), window.layout); };
  return call.Step(kReadRoutine, {image(call.Input("x")), image(call.Input("offsets")), window.kernel, window.strides,
                                  window.padding, window.dilations, int64_t{1}, context.Int("deformable_groups"),
                                  context.Bool("modulated"), image(call.Output("y"))});
}

Status LowerReadGradient(NamedCall& call) {
  const opdef::InferContext& context = call.context;
  REPRISE_ASSIGN_OR_RETURN(const ReadingWindow window, ReadWindow(context));
  const auto image = [&](const NamedTensor& tensor) { return ChannelsFirst(tensor.view(), window.layout); };
  for (const std::string_view name : {"grad", "x", "offsets"}) {
    const NamedTensor& tensor = call.Input(name);
    if (tensor.dims.size() == 4) continue;
    return call.WrongInput(tensor, fmt::format("has {} dims", tensor.dims.size()),
                           "pass 4 dims: batch, channels and image");
  }
  return call.Step(kReadGradientRoutine,
                   {image(call.Input("x")), image(call.Input("offsets")), image(call.Input("grad")), window.kernel,
                    window.strides, window.padding, window.dilations, int64_t{1}, context.Int("deformable_groups"),
                    context.Bool("modulated"), image(call.Output("grad_x")), image(call.Output("grad_offsets"))});
}

constexpr NamedOp kDeformableRows[] = {
    {"DeformableOffsets", kSingleAndHalfTypes, LowerRead},
    {"DeformableOffsetsGrad", kSingleAndHalfTypes, LowerReadGradient},
};

}  // namespace

std::span<const NamedOp> DeformableRows() { return kDeformableRows; }

}  // namespace reprise::ops::named
