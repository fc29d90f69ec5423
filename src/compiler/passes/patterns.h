// SPDX-License-Identifier: Apache-2.0
//
// Patterns of operators: what the fusions (fuse_*.cc) are written with.
//
// A fusion looks at one node after the other, the last one of its pattern, and walks from there towards the inputs.
// Match remembers what it walked over. Replace() turns the last node into the fused operator, which keeps its name and
// its users, and removes the others: they must have no users beside the pattern.
//
//     void FuseSquareRoot(Match& match) {
//       const NodeId sum = match.Maker(match.In("x"), {"ReduceSum"});
//       if (sum == kNoNode) return;
//       if (!match.IsClosed()) return;  // refused, with the reason
//       match.Replace("Norm", {{"x", match.In(sum, "x")}});
//     }
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/graph.h"
#include "compiler/passes/passes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

// Numbers of types (aclDataType) that patterns speak of.
inline constexpr int32_t kFloat32 = 0;
inline constexpr int32_t kFloat16 = 1;
inline constexpr int32_t kBFloat16 = 27;
constexpr bool IsSingleOrHalf(int32_t dtype) { return dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16; }

/// Known to be equal, without assuming anything.
inline bool AreEqual(const opdef::Dim& a, const opdef::Dim& b) { return opdef::IsEqual(a, b) == opdef::Answer::kYes; }

/// factor * ports[0] * ports[1] … / divisors[0] / …
struct Product {
  double factor = 1;
  std::vector<Port> ports;
  std::vector<Port> divisors;
};

/// number + terms[0] + … - minus[0] - …
struct Sum {
  double number = 0;
  std::vector<Port> terms;
  std::vector<Port> minus;
};

/// A part of a tensor: half of the elements along a dim.
struct Half {
  Port whole;
  int64_t dim = 0;  ///< from the front
  int index = 0;    ///< 0: the first half, or the even elements
  bool is_interleaved = false;
};

class Match {
 public:
  Match(Rewriter& rewriter, PassContext& context, NodeId root) : rewriter_(rewriter), context_(context), root_(root) {}

  const Graph& graph() const { return std::as_const(rewriter_).graph(); }
  NodeId root() const { return root_; }
  const Node& node() const { return graph().at(root_); }
  const Tensor& Result() const { return node().outputs[0].tensor; }
  const Tensor& TensorOf(Port port) const { return graph().TensorOf(port); }

  /// The source of an operand; not set where it is left out.
  Port In(NodeId node, std::string_view operand) const;
  Port In(std::string_view operand) const { return In(root_, operand); }
  /// The tensors of a list.
  std::vector<Port> List(NodeId node, std::string_view operand) const;
  /// Both operands of a node that does not care which is which.
  std::pair<Port, Port> Both(NodeId node) const { return {In(node, "x1"), In(node, "x2")}; }

  /// The node whose only output, or output 0, this is, when its type is one of these. It becomes part of the pattern.
  NodeId Maker(Port port, std::initializer_list<std::string_view> types);
  /// Whether Maker would find a node; none becomes part of the pattern.
  bool IsMadeBy(Port port, std::initializer_list<std::string_view> types) const;
  /// Whether exactly one node reads it, and it is no result.
  bool HasOneReader(Port port) const { return rewriter_.HasOneReader(port); }
  /// What stands before a Cast of one user, or the port itself.
  Port BeforeCast(Port port);

  /// What a port [b * .., m, k] of three dims was before its dims in front were made one: [b, .., m, k] of `rank` dims.
  /// Not set where it is no such port.
  Port BeforeFlattening(Port port, size_t rank);

  /// The only element of a constant with one dim at most.
  std::optional<double> Number(Port port) const;
  std::optional<std::vector<double>> Numbers(Port port) const;
  std::optional<std::vector<int64_t>> Integers(Port port) const;
  bool IsConstant(Port port) const;

  std::optional<double> Real(NodeId node, std::string_view attribute) const;
  int64_t Int(NodeId node, std::string_view attribute) const;
  bool Flag(NodeId node, std::string_view attribute) const;
  std::vector<int64_t> Ints(NodeId node, std::string_view attribute) const;
  std::string Text(NodeId node, std::string_view attribute) const;

  /// The factors of a product of any number of nodes, each of which has one user; `port` counts as a factor itself
  /// where it is no product, or has other users. The outermost node may have any number.
  Product Factors(Port port, bool is_outermost = false);
  Sum Terms(Port port, bool is_outermost = false);
  /// The half of a tensor that a port is, by SplitV or StridedSliceV2.
  std::optional<Half> HalfOf(Port port);
  /// What is reduced over its last dims, which are kept with size 1, by one of these types ("ReduceMean"); and how many
  /// dims these are.
  std::optional<std::pair<Port, size_t>> OverLastDims(Port port, std::initializer_list<std::string_view> types);

  /// Whether outputs of the root behind the first have neither users nor are results.
  bool HasUsersOfFirstOutputOnly();

  /// What the pattern has so far, to go back to when one of several forms does not fit.
  size_t Mark() const { return inner_.size(); }
  void BackTo(size_t mark) { inner_.resize(mark); }

  /// Whether nobody else uses the inner nodes, and all of the pattern may be one node. Says why not in the record.
  /// `shared` may have other users.
  bool IsClosed(NodeId shared = kNoNode);
  void Refuse(std::string_view reason);

  /// A constant that the fused node needs, with the name of the root and of the operand.
  Port AddConstant(std::string_view operand, int32_t dtype, std::vector<int64_t> shape, std::span<const double> values);
  Port AddIntegers(std::string_view operand, std::span<const int64_t> values);

  /// What `transpose` reads, with its dims in this order; another node, with the name of `transpose` and a number.
  Port AddTranspose(NodeId transpose, std::span<const int64_t> perm);

  struct NewInput {
    std::string_view name;
    Port source;  ///< not set: left out
  };
  /// Another node, with the name of the root and `suffix`: a part of what the root becomes.
  Port AddOperator(std::string_view suffix, std::string_view type, std::initializer_list<NewInput> inputs,
                   Tensor result, opdef::Attributes attributes = {});
  /// Turns the root into the operator. Its output 0 stays what it is; the outputs behind follow from the operator.
  /// \pre IsClosed().
  void Replace(std::string_view type, std::initializer_list<NewInput> inputs, opdef::Attributes attributes = {});
  /// As Replace, and users of output 0 of `other`, which goes, read this output of the new node. \pre
  /// IsClosed(other); nothing that the new node needs depends on the other one, but by the nodes of the pattern.
  void ReplaceBoth(NodeId other, uint32_t output, std::string_view type, std::initializer_list<NewInput> inputs,
                   opdef::Attributes attributes = {});
  /// The pattern goes: users of the root read this. \pre IsClosed().
  void Forward(Port source);
  /// The root goes, and what stands in front of these operators, of one operand x each, the last one first: they
  /// compute from x and keep its shape. The last of them takes the name of the root. \pre IsClosed().
  void SpliceAround(const std::vector<NodeId>& operators, Port x);

 private:
  bool IsInner(NodeId node) const;

  bool IsPlain(NodeId node) const;
  Node NewNode(std::string_view type, std::initializer_list<NewInput> inputs, Tensor result,
               opdef::Attributes attributes) const;
  NodeId Become(std::string_view type, std::initializer_list<NewInput> inputs, opdef::Attributes attributes);
  void RemoveInner(NodeId replacement);

  Rewriter& rewriter_;
  PassContext& context_;
  NodeId root_;
  std::vector<NodeId> inner_;
};

/// Whether a number is a constant of a formula, as people write it (0.7071) and the type keeps it.
bool IsNear(double value, double expected, int32_t dtype);

/// Looks at the operators of these types, the last ones first, so that the largest pattern is found before its parts.
/// Those that the fusion makes come in the next round.
Status RunFusion(Graph& graph, PassContext& context, std::initializer_list<std::string_view> roots,
                 void (*fuse)(Match& match));

}  // namespace reprise::compiler
