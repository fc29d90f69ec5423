// SPDX-License-Identifier: Apache-2.0
//
// Operators by type as a view of the graph operators: each row has one, and computes types that it has.
#include "ops/named_call.h"

#include <gtest/gtest.h>

namespace reprise::ops {
namespace {

TEST(NamedOpTest, EveryRowIsAGraphOperatorWithTheTypesOfItsSteps) {
  for (const NamedOp& row : NamedOps()) {
    SCOPED_TRACE(row.type);
    const opdef::GraphOp* const op = opdef::FindGraphOp(row.type);
    ASSERT_NE(nullptr, op);
    ASSERT_EQ(1u, op->outputs.size()) << "steps write one output";
    EXPECT_NE(nullptr, row.lower);
    const opdef::Operand* data = nullptr;  // Empty has none
    for (const opdef::Operand& input : op->inputs) {
      if (data == nullptr && !input.is_value()) data = &input;
    }
    for (const kernels::DType type : kernels::kAllDTypes) {
      if (!row.types.Has(type)) continue;
      EXPECT_TRUE(data == nullptr || data->types().Has(static_cast<int32_t>(type)))
          << opdef::TypeName(static_cast<int32_t>(type));
    }
    for (const opdef::AttributeDef& attribute : op->attributes) {
      EXPECT_NE(opdef::AttributeKind::kTensor, attribute.kind) << attribute.name;
    }
  }
}

}  // namespace
}  // namespace reprise::ops
