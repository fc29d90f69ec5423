// SPDX-License-Identifier: Apache-2.0
//
// Tables of graphs for the fusions of the compiler: what each makes of them, and what it leaves, with the reason.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/constant.h"
#include "compiler/evaluate.h"
#include "pass_testing.h"

namespace reprise::compiler::testing {

struct Case {
  const char* pass;
  std::string before;
  std::string after;
};

// Leaves the graph as it is, and says why; empty: it is no place of the pass.
struct Refusal {
  const char* pass;
  std::string before;
  std::string reason;
};

inline std::string Whole(const std::string& body) { return "graph g\n" + body; }

/// Numbers for the inputs of a graph: normal ones, small integers where the type is one of integers.
inline std::vector<ConstantPtr> RandomInputs(const Graph& graph, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<ConstantPtr> inputs;
  for (const NodeId id : graph.inputs) {
    const Tensor& tensor = graph.at(id).outputs[0].tensor;
    std::vector<double> elements(static_cast<size_t>(tensor.shape.elements().number()));
    const bool is_integer = tensor.dtype == 2;
    for (double& element : elements) element = is_integer ? std::round(normal(random) * 50) : normal(random);
    inputs.push_back(MakeConstant(tensor.dtype, tensor.shape.numbers(), elements));
  }
  return inputs;
}

/// Results of both graphs, computed from the same numbers, are near each other.
inline void ExpectNear(const Graph& before, const Graph& after) {
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    StatusOr<std::vector<ConstantPtr>> wanted = EvaluateGraph(before, RandomInputs(before, seed));
    StatusOr<std::vector<ConstantPtr>> found = EvaluateGraph(after, RandomInputs(after, seed));
    ASSERT_TRUE(wanted.ok()) << std::move(wanted).status().detail().what;
    ASSERT_TRUE(found.ok()) << std::move(found).status().detail().what;
    ASSERT_EQ(wanted->size(), found->size());
    for (size_t i = 0; i < wanted->size(); ++i) {
      const std::vector<double> a = *RealsOf(*(*wanted)[i]);
      const std::vector<double> b = *RealsOf(*(*found)[i]);
      ASSERT_EQ((*wanted)[i]->dtype, (*found)[i]->dtype);
      ASSERT_EQ((*wanted)[i]->shape, (*found)[i]->shape);
      // Parts round after each step: some units in the last place.
      const double unit = (*wanted)[i]->dtype == 0 ? 1e-5 : (*wanted)[i]->dtype == 1 ? 4e-3 : 3e-2;
      // Elements of a result share the rounding of the sums that they come from, also where these nearly cancel.
      double largest = 0;
      for (const double element : a) largest = std::isfinite(element) ? std::max(largest, std::abs(element)) : largest;
      for (size_t n = 0; n < a.size(); ++n) {
        ASSERT_NEAR(a[n], b[n], unit * (1 + std::max(std::abs(a[n]), largest / 8)))
            << "result " << i << ", element " << n;
      }
    }
  }
}

/// Symbols are this size where results are computed.
inline std::string WithSizes(std::string text) {
  for (const auto& [symbol, size] : {std::pair("s0", "3"), std::pair("s1", "5")}) {
    for (size_t at = text.find(symbol); at != std::string::npos; at = text.find(symbol, at + 1)) {
      const char before = at == 0 ? ' ' : text[at - 1];
      if (before == '[' || before == ' ') text.replace(at, 2, size);
    }
  }
  return text;
}

/// Each pass makes one graph of the other, and both compute the same.
inline void ExpectFusions(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    SCOPED_TRACE(each.before);
    const PassRecord record = ExpectPass(each.pass, Whole(each.before), Whole(each.after));
    EXPECT_EQ(record.changed, 1U);
    const std::unique_ptr<Graph> before = Read(WithSizes(Whole(each.before)));
    const std::unique_ptr<Graph> after = Read(WithSizes(Whole(each.after)));
    if (before != nullptr && after != nullptr) ExpectNear(*before, *after);
  }
}

inline void ExpectRefusals(const std::vector<Refusal>& cases) {
  for (const Refusal& each : cases) {
    SCOPED_TRACE(each.before);
    const PassRecord record = ExpectPass(each.pass, Whole(each.before), Whole(each.before));
    if (each.reason.empty()) {
      EXPECT_EQ(record.matched, 0U);
      continue;
    }
    std::string all;
    for (const std::string& refusal : record.refusals) all += refusal + "\n";
    EXPECT_NE(all.find(each.reason), std::string::npos) << all;
  }
}

}  // namespace reprise::compiler::testing
