// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

constexpr NamedOp kActivationRows[] = {
    As("CeluV2", kSingleAndFloat16, "aclnnCelu", "x @alpha ="),
    As("Elu", kFloatingTypes, "aclnnElu", "x @alpha @scale @input_scale ="),
    As("HardShrink", kSingleAndFloat16, "aclnnHardshrink", "input_x @lambd ="),
    As("HardSwish", kSingleAndFloat16, "aclnnHardswish"),
    As("LeakyRelu", kNoBFloat16, "aclnnLeakyRelu", "x @negative_slope ="),
    As("Mish", kSingleAndFloat16, "aclnnMish"),
    {"Relu", kRealTypes, LowerNamedUnary, kCodeRelu},
    As("Sigmoid", kFloatingTypes, "aclnnSigmoid"),
    As("SoftShrink", kSingleAndFloat16, "aclnnSoftshrink", "input_x @lambd ="),
    As("ThresholdV2D", kRealTypes, "aclnnThreshold", "x @threshold @value ="),
};

}  // namespace

std::span<const NamedOp> ActivationRows() { return kActivationRows; }

}  // namespace reprise::ops::named
