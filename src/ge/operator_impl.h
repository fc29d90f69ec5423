// SPDX-License-Identifier: Apache-2.0
//
// What is behind an Operator: its prototype, and an entry for each input and output that there is now.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ge/data.h"
#include "ge/prototype.h"
#include "graph/operator.h"

namespace ge {

/// Copies of an Operator share one. An operator keeps those alive that it takes values from, and knows those that take
/// its own; there are no circles, so that nothing is kept for ever.
struct Operator::Impl {
  struct Input {
    std::string name;
    TensorDesc desc;
    bool has_desc = false;  ///< somebody said what it is
    std::shared_ptr<Impl> source;
    uint32_t output = 0;  ///< of the source
  };
  struct Output {
    std::string name;
    TensorDesc desc;
    bool has_desc = false;
  };

  Impl(std::string own_name, std::string own_type);
  /// Entries and defaults of the prototype.
  void Fill();
  /// Somebody has changed it; graphs that follow it look again.
  void Touch();

  /// The first entry of an operand, which may be the place where a list without tensors would begin.
  size_t FirstInput(size_t operand) const;
  size_t FirstOutput(size_t operand) const;
  /// Prototype::kNone where there is none.
  size_t FindInput(std::string_view input_name) const;
  size_t FindOutput(std::string_view output_name) const;
  /// The prototype, which from here on is this operator's own.
  Prototype& Edit();
  /// "operator add (Add)".
  std::string text() const;

  std::string name;
  std::string type;
  std::shared_ptr<const Prototype> prototype;  ///< never null; without operands for types that have none
  std::vector<size_t> input_counts;            ///< by operand of the prototype: how many entries it has
  std::vector<size_t> output_counts;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  AttributeMap attributes;
  std::vector<std::shared_ptr<Impl>> after;  ///< control edges: these come first
  std::vector<std::weak_ptr<Impl>> users;    ///< of values and of order
  /// By name in the prototype and number there.
  std::map<std::pair<std::string, uint32_t>, SubgraphBuilder> builders;
  std::map<std::string, uint32_t> builder_counts;
  InferenceContextPtr context;
  uint64_t changed = 0;  ///< the number of the last change of any operator that was one of this

 private:
  bool has_own_prototype_ = false;
};

/// The number of the last change of any operator.
uint64_t LastChange();

/// Whether `first` comes before `then`, by edges, or is it.
bool ComesBefore(const Operator::Impl& first, const Operator::Impl& then);

/// The value of a constant that an input comes from; null for others.
const Tensor* ConstantOf(const Operator::Impl& op, size_t input);

}  // namespace ge
