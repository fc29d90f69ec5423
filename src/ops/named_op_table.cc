// SPDX-License-Identifier: Apache-2.0
//
// The operators that can be called by their type: one row, one type, with the steps that compute it. What its operands
// and attributes are called, which types they have, and which shape the result has, stands in the table of graph
// operators (api/graph_ops); the rows are in named_ops/FAMILY.cc, by the families of that table.
#include <algorithm>

#include "ops/named_ops/steps.h"

namespace reprise::ops {
namespace {

// All rows, in the order of the alphabet. Never destroyed: schemas point to the rows.
const std::vector<NamedOp>& Rows() {
  static const auto* const rows = [] {
    auto* const all = new std::vector<NamedOp>;
    for (const std::span<const NamedOp> family :
         {named::ActivationRows(),  named::AttentionRows(),  named::BlockRows(),         named::ChannelRows(),
          named::ConvolutionRows(), named::DeformableRows(), named::DetectionRows(),     named::ElementwiseRows(),
          named::ForeachRows(),     named::FormulaRows(),    named::FourierRows(),       named::IndexingRows(),
          named::MatmulRows(),      named::MovementRows(),   named::NormalizationRows(), named::PaddingRows(),
          named::PlaceRows(),       named::PoolingRows(),    named::ProductRows(),       named::QuantizationRows(),
          named::RandomRows(),      named::RecurrentRows(),  named::ReductionRows(),     named::RoutingRows(),
          named::TextRows(),        named::TrainingRows()}) {
      all->insert(all->end(), family.begin(), family.end());
    }
    std::sort(all->begin(), all->end(), [](const NamedOp& a, const NamedOp& b) { return a.type < b.type; });
    return all;
  }();
  return *rows;
}

}  // namespace

const NamedOp* FindNamedOp(std::string_view type) {
  const std::vector<NamedOp>& rows = Rows();
  const auto found = std::lower_bound(rows.begin(), rows.end(), type,
                                      [](const NamedOp& row, std::string_view wanted) { return row.type < wanted; });
  return found != rows.end() && found->type == type ? &*found : nullptr;
}

std::span<const NamedOp> NamedOps() { return Rows(); }

}  // namespace reprise::ops
