// SPDX-License-Identifier: Apache-2.0
//
// What operators do with images, tensors of two dims and one to three spatial ones, and how they do it with channels
// behind these: what ConvLayoutPass (image_layout.cc) knows of single nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph.h"
#include "compiler/passes/writes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {

/// What a node makes of its operands.
struct ImageMember {
  std::vector<uint32_t> images;     ///< inputs that come with channels behind, by index in Node::inputs
  std::vector<uint32_t> constants;  ///< inputs of as many dims that are constants
  uint32_t gives = 1;               ///< how many of its outputs, from the first on, have channels behind, too
  size_t rank = 4;                  ///< of its images
};

/// Where each dim comes from: {0, 2, 3, 1} of rank 4, and the way back {0, 3, 1, 2}.
std::vector<int64_t> OrderOfLast(size_t rank);
std::vector<int64_t> OrderOfFirst(size_t rank);
/// Ends of names: "_nhwc", and "_nchw".
const char* MarkOfLast(size_t rank);
const char* MarkOfFirst(size_t rank);

template <class T>
std::vector<T> InOrder(const std::vector<T>& from, const std::vector<int64_t>& order) {
  std::vector<T> to;
  for (const int64_t d : order) to.push_back(from[static_cast<size_t>(d)]);
  return to;
}
Tensor InOrder(Tensor tensor, const std::vector<int64_t>& order);

bool IsImageConvolution(const Node& node);
bool IsTransposedConvolution(const Node& node);

/// Threads: thread-compatible, as the rewriter's graph is.
class ImageMembers {
 public:
  explicit ImageMembers(Rewriter& rewriter) : rewriter_(rewriter), writes_(rewriter.graph()) {}

  /// Nothing for nodes that cannot be moved to another layout.
  std::optional<ImageMember> Of(NodeId id) const;
  /// The node's attributes and integers for channels behind; its operands and results are left to the caller.
  void TurnOperator(NodeId id, const ImageMember& member);

  /// A BNInfer of constants as what each channel is multiplied by, and what is added then.
  struct Factors {
    std::vector<double> scale, offset;
  };
  std::optional<Factors> FactorsOf(NodeId id) const;

  /// No mark keeps the node where it is, nobody writes what it reads and gives, and its output 0 is an image.
  bool IsFree(NodeId id) const;
  static bool IsMarked(const Node& node);
  bool IsWritten(Port port) const { return writes_.IsWritten(port); }
  bool IsImage(Port port) const;
  size_t RankOf(Port port) const { return TensorOf(port).shape.rank(); }
  /// Nothing where one is not known.
  std::optional<std::vector<int64_t>> SizesOf(Port port) const;
  const Constant* ConstantOf(Port port) const { return port.is_set() ? at(port.node).constant.get() : nullptr; }
  /// The input that is this operand.
  std::optional<uint32_t> InputOf(NodeId id, std::string_view operand) const;
  /// Another constant there, of the type and shape that it has; its name tells the layout of `rank`.
  void SetIntegers(const Use& use, const std::vector<int64_t>& numbers, size_t rank);

 private:
  using Member = ImageMember;

  const Node& at(NodeId id) const { return std::as_const(rewriter_).graph().at(id); }
  const Tensor& TensorOf(Port port) const { return std::as_const(rewriter_).graph().TensorOf(port); }
  const opdef::AttributeValue* AttributeOf(NodeId id, std::string_view name) const;
  std::string TextOf(NodeId id, std::string_view attribute) const;
  std::optional<std::vector<int64_t>> NumbersOf(NodeId id, std::string_view operand) const;
  std::optional<int64_t> DimOf(NodeId id, std::string_view name, size_t rank) const;
  void SetDim(NodeId id, std::string_view name, int64_t dim, size_t rank);
  void PermuteList(NodeId id, std::string_view attribute, size_t rank);
  /// The image that is operand x.
  std::optional<uint32_t> ImageOf(NodeId id) const;
  std::optional<std::vector<int64_t>> AxesOf(NodeId id, size_t rank) const;
  std::optional<Member> AsConvolution(NodeId id) const;
  std::optional<Member> AsPool(NodeId id) const;
  std::optional<Member> AsMean(NodeId id) const;
  std::optional<Member> AsJoin(NodeId id) const;
  std::optional<Member> AsSplit(NodeId id) const;
  std::optional<Member> AsSlice(NodeId id) const;
  std::optional<Member> AsPad(NodeId id) const;
  std::optional<Member> AsReshape(NodeId id) const;
  std::optional<Member> AsNorm(NodeId id) const;
  std::optional<Member> AsElementwise(NodeId id) const;

  Rewriter& rewriter_;
  Writes writes_;
};

}  // namespace reprise::compiler
