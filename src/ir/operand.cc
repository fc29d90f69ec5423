// SPDX-License-Identifier: Apache-2.0
#include "ir/operand.h"

#include "ir/graph.h"

namespace reprise::ir {

void VisitOperands(const TaskType& type, const void* payload, OperandSink& sink) { type.operands(payload, sink); }

void VisitOperands(const Node& node, OperandSink& sink) { VisitOperands(*node.type, node.payload, sink); }

bool TellsAll(const TaskType& type, const void* payload) {
  class Look final : public OperandSink {
   public:
    bool tells_all = true;
    void Take(const Operand&) override {}
    void TakeWords(const uint64_t*, size_t) override { tells_all = false; }
    void TakeOpaque() override { tells_all = false; }
  };
  Look look;
  VisitOperands(type, payload, look);
  return look.tells_all;
}

}  // namespace reprise::ir
