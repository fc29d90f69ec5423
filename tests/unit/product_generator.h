// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for a generator of machine code: it interprets the formulas of a group, so that tests see what a generator
// is told, and that its function is called.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "exec/block_generator.h"

namespace reprise::testing {

// Makes one function of groups that only multiply and clear float32, and declines the others.
class ProductGenerator final : public exec::BlockGenerator {
 public:
  ProductGenerator() { exec::SetBlockGenerator(this); }
  ~ProductGenerator() override { exec::SetBlockGenerator(nullptr); }

  std::optional<Block> Generate(std::span<const ir::ElementFormula> tasks, int64_t elements) override {
    EXPECT_GE(tasks.size(), 2U);
    auto code = std::make_shared<std::vector<Task>>();
    size_t address = 0;
    for (const auto& formula : tasks) {
      Task task;
      task.is_product =
          formula.operation == "aclnnMul" || formula.operation == "aclnnInplaceMul" || formula.operation == "Mul";
      const bool is_known = task.is_product || formula.operation == "aclnnInplaceZero";
      for (const auto& operand : formula.operands) {
        if (!is_known || operand.dtype != ACL_FLOAT || operand.is_written != task.operands.empty()) return Decline();
        task.operands.push_back({address++,
                                 {operand.sizes.begin(), operand.sizes.end()},
                                 {operand.strides.begin(), operand.strides.end()}});
      }
      if (task.operands.size() != (task.is_product ? 3U : 1U)) return Decline();
      int64_t count = 1;
      for (const int64_t size : formula.operands[0].sizes) count *= size;
      EXPECT_EQ(count, elements);
      code->push_back(std::move(task));
    }
    ++made;
    return Block{Run, code};
  }

  std::atomic<int> made{0};
  std::atomic<int> declined{0};

 private:
  struct Operand {
    size_t address;
    std::vector<int64_t> sizes, strides;

    int64_t At(int64_t element) const {
      int64_t at = 0;
      for (size_t d = sizes.size(); d-- > 0; element /= sizes[d]) at += element % sizes[d] * strides[d];
      return at;
    }
  };
  struct Task {
    bool is_product = false;
    std::vector<Operand> operands;
  };

  static void Run(void* const* addresses, const void* code, int64_t begin, int64_t end) {
    const auto load = [&](const Operand& operand, int64_t i) {
      return static_cast<const float*>(addresses[operand.address])[operand.At(i)];
    };
    for (const Task& task : *static_cast<const std::vector<Task>*>(code)) {
      auto* const out = static_cast<float*>(addresses[task.operands[0].address]);
      for (int64_t i = begin; i < end; ++i) {
        out[task.operands[0].At(i)] = task.is_product ? load(task.operands[1], i) * load(task.operands[2], i) : 0.0F;
      }
    }
  }
  std::optional<Block> Decline() {
    ++declined;
    return std::nullopt;
  }
};

}  // namespace reprise::testing
