// SPDX-License-Identifier: Apache-2.0
//
// Prototypes of operators as the classes need them: from the rows of graph operators, from api/graph_structures.csv
// (what a graph is made of beside operators: Data, Const, If …), and from the program (REG_OP).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ge/data.h"
#include "graph/operator.h"

namespace ge {

enum class OperandKind : uint8_t { kRequired, kOptional, kDynamic };

struct Prototype {
  struct Operand {
    std::string name;
    OperandKind kind = OperandKind::kRequired;
  };
  struct Attribute {
    std::string name;
    std::string kind;  ///< "VT_INT" …
    bool is_required = false;
    AttributeData value;  ///< the default; of no kind where there is none
  };
  struct Subgraph {
    std::string name;
    bool is_dynamic = false;
  };

  std::string type;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
  std::vector<Attribute> attributes;
  std::vector<Subgraph> subgraphs;
  InferShapeFunc infer;  ///< of the program
  VerifyFunc verify;     ///< of the program

  /// kNone where there is none.
  static constexpr size_t kNone = ~size_t{0};
  size_t FindInput(std::string_view name) const;
  size_t FindOutput(std::string_view name) const;
  const Attribute* FindAttribute(std::string_view name) const;
};

/// Null for a type that has none. Threads: thread-safe.
std::shared_ptr<const Prototype> FindPrototype(std::string_view type);
/// All types, in the order of the alphabet.
std::vector<std::string> AllTypes();

/// Prototypes of the program. Threads: thread-safe.
Status RegisterCreator(std::string type, const std::function<Operator(const AscendString&)>& creator);
Status RegisterInfer(const std::string& type, InferShapeFunc func);
Status RegisterVerify(const std::string& type, VerifyFunc func);
/// Empty where the program has none.
std::function<Operator(const AscendString&)> CreatorOf(std::string_view type);
InferShapeFunc InferOf(std::string_view type);
VerifyFunc VerifyOf(std::string_view type);

}  // namespace ge
