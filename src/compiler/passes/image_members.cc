// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/image_members.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

constexpr std::string_view kImageConvolutions[] = {"Conv2D", "Conv2DBackpropInput", "Conv2DFused", "Conv2DTransposeD",
                                                   "Conv3D", "Conv3DFused"};
constexpr std::string_view kTransposedConvolutions[] = {"Conv2DBackpropInput", "Conv2DTransposeD"};
constexpr std::string_view kImagePools[] = {"AvgPoolV2", "MaxPoolWithArgmaxV3"};
constexpr std::string_view kImageMeans[] = {"ReduceMean", "ReduceMeanD"};
constexpr std::string_view kImageJoins[] = {"ConcatD", "ConcatV2"};
constexpr std::string_view kImageSplits[] = {"SplitD", "SplitV"};
constexpr std::string_view kImageElementwise[] = {
    "Abs",    "Add",         "AddV2",     "Adds",      "Cast",    "Ceil",     "ClipByValue", "ClipByValueV2",
    "Div",    "Elu",         "Erf",       "Exp",       "Expm1",   "FastGelu", "Floor",       "Gelu",
    "GeluV2", "HardSigmoid", "HardSwish", "LeakyRelu", "Log",     "Log1p",    "Maximum",     "Minimum",
    "Mish",   "Mul",         "Muls",      "Neg",       "Pow",     "RealDiv",  "Reciprocal",  "Relu",
    "Relu6",  "Round",       "Rsqrt",     "Selu",      "Sigmoid", "Sign",     "Softplus",    "SoftplusV2",
    "Sqrt",   "Square",      "Sub",       "Swish",     "Tanh"};
// One, two and three spatial dims.
constexpr size_t kLeastRank = 3, kMostRank = 5;

template <size_t kCount>
bool IsTypeOf(const std::string_view (&types)[kCount], const std::string& type) {
  return std::find(std::begin(types), std::end(types), type) != std::end(types);
}

// The spatial dims, the first of which is `first`.
std::vector<int64_t> SpatialOf(size_t rank, int64_t first) {
  std::vector<int64_t> dims(rank - 2);
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

}  // namespace

std::vector<int64_t> OrderOfLast(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}
std::vector<int64_t> OrderOfFirst(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + 1, order.end() - 1, order.end());
  return order;
}

const char* MarkOfLast(size_t rank) { return rank == 3 ? "_nwc" : rank == 4 ? "_nhwc" : "_ndhwc"; }
const char* MarkOfFirst(size_t rank) { return rank == 3 ? "_ncw" : rank == 4 ? "_nchw" : "_ncdhw"; }

Tensor InOrder(Tensor tensor, const std::vector<int64_t>& order) {
  opdef::Shape shape = tensor.shape;
  for (size_t d = 0; d < order.size(); ++d) shape[d] = tensor.shape[static_cast<size_t>(order[d])];
  tensor.shape = std::move(shape);
  tensor.format = kFormatNd;
  return tensor;
}

bool IsImageConvolution(const Node& node) { return IsTypeOf(kImageConvolutions, node.type); }
bool IsTransposedConvolution(const Node& node) { return IsTypeOf(kTransposedConvolutions, node.type); }

// ---- What nodes say ----

bool ImageMembers::IsImage(Port port) const {
  if (!port.is_set()) return false;
  const opdef::Shape& shape = TensorOf(port).shape;
  return shape.has_rank() && shape.rank() >= kLeastRank && shape.rank() <= kMostRank;
}

std::optional<std::vector<int64_t>> ImageMembers::SizesOf(Port port) const {
  const opdef::Shape& shape = TensorOf(port).shape;
  return shape.is_static() ? std::optional(shape.numbers()) : std::nullopt;
}

std::optional<uint32_t> ImageMembers::InputOf(NodeId id, std::string_view operand) const {
  StatusOr<Operands> operands = BindOperands(rewriter_.graph(), id);
  if (!operands.ok()) return std::nullopt;
  for (size_t o = 0; o < operands.value().size(); ++o) {
    if (at(id).op->inputs[o].name == operand && operands.value()[o].size() == 1) return operands.value()[o][0];
  }
  return std::nullopt;
}

const opdef::AttributeValue* ImageMembers::AttributeOf(NodeId id, std::string_view name) const {
  const auto found = at(id).attributes.find(name);
  return found == at(id).attributes.end() ? nullptr : &found->second;
}

std::string ImageMembers::TextOf(NodeId id, std::string_view attribute) const {
  const opdef::AttributeValue* const value = AttributeOf(id, attribute);
  const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::string() : *text;
}

// The integers of a constant operand.
std::optional<std::vector<int64_t>> ImageMembers::NumbersOf(NodeId id, std::string_view operand) const {
  const auto input = InputOf(id, operand);
  const Constant* const constant = input ? ConstantOf(at(id).inputs[*input].source) : nullptr;
  return constant == nullptr ? std::nullopt : IntegersOf(*constant);
}

// The dim that an attribute or a constant of that name tells, from the front.
std::optional<int64_t> ImageMembers::DimOf(NodeId id, std::string_view name, size_t rank) const {
  std::optional<int64_t> dim;
  if (const opdef::AttributeValue* const value = AttributeOf(id, name)) {
    if (const auto* const number = std::get_if<int64_t>(value)) dim = *number;
  } else if (const auto numbers = NumbersOf(id, name); numbers && numbers->size() == 1) {
    dim = numbers->front();
  }
  if (dim && *dim < 0) *dim += static_cast<int64_t>(rank);
  return dim;
}

std::optional<uint32_t> ImageMembers::ImageOf(NodeId id) const {
  const auto x = InputOf(id, "x");
  return x && IsImage(at(id).inputs[*x].source) ? x : std::nullopt;
}

bool ImageMembers::IsMarked(const Node& node) {
  const char* const marks[] = {"_cannot_be_deleted", "_user_stream_label", "_stream_label", "_batch_label"};
  return std::any_of(std::begin(marks), std::end(marks), [&](auto mark) { return FindNote(node, mark) != nullptr; });
}

bool ImageMembers::IsFree(NodeId id) const {
  const Node& node = at(id);
  if (node.is_removed || node.op == nullptr || node.outputs.empty() || !IsImage({id, 0}) || IsMarked(node))
    return false;
  for (const Input& input : node.inputs) {
    if (input.source.is_set() && IsWritten(input.source)) return false;
  }
  for (uint32_t output = 0; output < node.outputs.size(); ++output) {
    if (IsWritten({id, output})) return false;
  }
  return true;
}

// ---- What nodes make of images ----

std::optional<ImageMember> ImageMembers::AsConvolution(NodeId id) const {
  if (!IsFree(id)) return std::nullopt;
  const size_t rank = RankOf({id, 0});
  if (rank < 4 || TextOf(id, "data_format") != (rank == 4 ? "NCHW" : "NCDHW")) return std::nullopt;
  const bool is_gradient = at(id).type == "Conv2DBackpropInput";
  const auto x = InputOf(id, is_gradient ? "out_backprop" : "x");
  const auto filter = InputOf(id, "filter");
  if (is_gradient) {
    const auto sizes = NumbersOf(id, "input_size");
    if (!sizes || sizes->size() != rank) return std::nullopt;
  }
  if (!x || !filter || !IsImage(at(id).inputs[*x].source)) return std::nullopt;
  const Constant* const weights = ConstantOf(at(id).inputs[*filter].source);
  if (weights == nullptr || weights->shape.size() != rank || !IsSingleOrHalf(weights->dtype)) return std::nullopt;
  Member member{{*x}, {*filter}};
  if (const auto addend = InputOf(id, "addend"); addend && at(id).inputs[*addend].source.is_set()) {
    if (!IsImage(at(id).inputs[*addend].source)) return std::nullopt;
    member.images.push_back(*addend);
  }
  return member;
}

std::optional<ImageMember> ImageMembers::AsPool(NodeId id) const {
  const bool has_format = AttributeOf(id, "data_format") != nullptr;  // NCHW without
  if (!IsFree(id) || RankOf({id, 0}) != 4) return std::nullopt;
  if (has_format && TextOf(id, "data_format") != "NCHW") return std::nullopt;
  for (uint32_t output = 1; output < at(id).outputs.size(); ++output) {
    if (rewriter_.UseCount(Port{id, output}) != 0) return std::nullopt;
  }
  const auto x = InputOf(id, "x");
  return x ? std::optional(Member{{*x}, {}}) : std::nullopt;
}

// The dims of `rank` that a mean takes away, in order; nothing where they are not known.
std::optional<std::vector<int64_t>> ImageMembers::AxesOf(NodeId id, size_t rank) const {
  std::optional<std::vector<int64_t>> axes;
  if (at(id).type == "ReduceMeanD") {
    const opdef::AttributeValue* const value = AttributeOf(id, "axes");
    const auto* const list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
    if (list != nullptr) axes = *list;
  } else {
    axes = NumbersOf(id, "axes");
  }
  if (!axes) return std::nullopt;
  for (int64_t& axis : *axes) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  std::sort(axes->begin(), axes->end());
  return axes;
}

std::optional<ImageMember> ImageMembers::AsMean(NodeId id) const {
  const auto x = ImageOf(id);
  if (!x || IsWritten({id, 0})) return std::nullopt;
  const size_t rank = RankOf(at(id).inputs[*x].source);
  const auto axes = AxesOf(id, rank);
  if (!axes || *axes != SpatialOf(rank, 2)) return std::nullopt;
  const opdef::Shape& result = TensorOf({id, 0}).shape;
  if (!result.has_rank()) return std::nullopt;
  const bool keeps = result.rank() == rank;
  if (keeps && !IsFree(id)) return std::nullopt;
  return Member{{*x}, {}, keeps ? 1u : 0u};
}

// Channel behind channel.
std::optional<ImageMember> ImageMembers::AsJoin(NodeId id) const {
  if (!IsFree(id) || DimOf(id, "concat_dim", RankOf({id, 0})) != 1) return std::nullopt;
  const auto dim = InputOf(id, "concat_dim");
  Member member;
  for (uint32_t i = 0; i < at(id).inputs.size(); ++i) {
    if (dim == i) continue;
    if (!IsImage(at(id).inputs[i].source)) return std::nullopt;
    member.images.push_back(i);
  }
  return member.images.empty() ? std::nullopt : std::optional(member);
}

// Into some of the channels each.
std::optional<ImageMember> ImageMembers::AsSplit(NodeId id) const {
  const auto x = ImageOf(id);
  if (!IsFree(id) || !x || DimOf(id, "split_dim", RankOf({id, 0})) != 1) return std::nullopt;
  return Member{{*x}, {}, static_cast<uint32_t>(at(id).outputs.size())};
}

// Some elements of some dims.
std::optional<ImageMember> ImageMembers::AsSlice(NodeId id) const {
  const auto x = ImageOf(id);
  if (!IsFree(id) || !x) return std::nullopt;
  for (const auto& [name, value] : at(id).attributes) {
    const auto* const mask = std::get_if<int64_t>(&value);
    if (name.ends_with("_mask") && (mask == nullptr || *mask != 0)) return std::nullopt;
  }
  const auto axes = NumbersOf(id, "axes");
  const auto rank = static_cast<int64_t>(RankOf({id, 0}));
  const bool are_dims =
      axes && std::all_of(axes->begin(), axes->end(), [&](int64_t axis) { return axis >= -rank && axis < rank; });
  return are_dims ? std::optional(Member{{*x}, {}}) : std::nullopt;
}

// Borders of a constant.
std::optional<ImageMember> ImageMembers::AsPad(NodeId id) const {
  const auto x = ImageOf(id);
  if (!IsFree(id) || !x) return std::nullopt;
  if (const std::string mode = TextOf(id, "mode"); !mode.empty() && mode != "constant") return std::nullopt;
  const opdef::AttributeValue* const are_pairs = AttributeOf(id, "paddings_contiguous");
  if (are_pairs != nullptr && *are_pairs != opdef::AttributeValue(true)) return std::nullopt;
  const auto paddings = NumbersOf(id, "paddings");
  return paddings && paddings->size() == 2 * RankOf({id, 0}) ? std::optional(Member{{*x}, {}}) : std::nullopt;
}

// Pixels in another form: [n, c, h, w] as [n, c, h * w].
std::optional<ImageMember> ImageMembers::AsReshape(NodeId id) const {
  const auto x = ImageOf(id);
  if (!IsFree(id) || !x || !NumbersOf(id, "shape")) return std::nullopt;
  const auto before = SizesOf(at(id).inputs[*x].source);
  const auto after = SizesOf({id, 0});
  const bool keeps_channels = before && after && (*before)[0] == (*after)[0] && (*before)[1] == (*after)[1];
  return keeps_channels ? std::optional(Member{{*x}, {}}) : std::nullopt;
}

// Of inference.
std::optional<ImageMember> ImageMembers::AsNorm(NodeId id) const {
  const auto x = ImageOf(id);
  return IsFree(id) && x && FactorsOf(id) ? std::optional(Member{{*x}, {}}) : std::nullopt;
}

std::optional<ImageMembers::Factors> ImageMembers::FactorsOf(NodeId id) const {
  constexpr const char* kParameters[] = {"scale", "offset", "mean", "variance"};
  const Tensor& result = TensorOf({id, 0});
  if (result.dtype != kFloat32 || !result.shape[1].is_number()) return std::nullopt;
  const auto channels = static_cast<size_t>(result.shape[1].number());
  std::vector<double> numbers[4];
  for (size_t i = 0; i < 4; ++i) {
    const auto input = InputOf(id, kParameters[i]);
    const Constant* const constant = input ? ConstantOf(at(id).inputs[*input].source) : nullptr;
    auto elements = constant == nullptr ? std::nullopt : RealsOf(*constant);
    if (!elements || elements->size() != channels) return std::nullopt;
    numbers[i] = std::move(*elements);
  }
  const opdef::AttributeValue* const value = AttributeOf(id, "epsilon");
  const auto* const epsilon = value == nullptr ? nullptr : std::get_if<float>(value);
  if (epsilon == nullptr) return std::nullopt;
  Factors factors;
  for (size_t c = 0; c < channels; ++c) {
    const double scale = numbers[0][c] / std::sqrt(numbers[3][c] + static_cast<double>(*epsilon));
    const double offset = numbers[1][c] - numbers[2][c] * scale;
    if (!std::isfinite(scale) || !std::isfinite(offset)) return std::nullopt;
    factors.scale.push_back(scale);
    factors.offset.push_back(offset);
  }
  return factors;
}

std::optional<ImageMember> ImageMembers::AsElementwise(NodeId id) const {
  if (!IsFree(id) || at(id).outputs.size() != 1) return std::nullopt;
  Member member;
  const size_t rank = RankOf({id, 0});
  for (uint32_t i = 0; i < at(id).inputs.size(); ++i) {
    const Port source = at(id).inputs[i].source;
    if (!source.is_set()) continue;
    const opdef::Shape& shape = TensorOf(source).shape;
    if (!shape.has_rank()) return std::nullopt;
    if (shape.elements().Is(1) && shape.rank() < rank) continue;  // a number
    if (shape.rank() != rank) return std::nullopt;
    (ConstantOf(source) != nullptr ? member.constants : member.images).push_back(i);
  }
  return member.images.empty() ? std::nullopt : std::optional(member);
}

std::optional<ImageMember> ImageMembers::Of(NodeId id) const {
  const std::string& type = at(id).type;
  if (at(id).is_removed || at(id).op == nullptr) return std::nullopt;
  std::optional<Member> member;
  if (IsTypeOf(kImageConvolutions, type)) member = AsConvolution(id);
  if (IsTypeOf(kImagePools, type)) member = AsPool(id);
  if (IsTypeOf(kImageMeans, type)) member = AsMean(id);
  if (IsTypeOf(kImageJoins, type)) member = AsJoin(id);
  if (IsTypeOf(kImageSplits, type)) member = AsSplit(id);
  if (type == "StridedSliceV2") member = AsSlice(id);
  if (type == "PadV3") member = AsPad(id);
  if (type == "Reshape") member = AsReshape(id);
  if (type == "BNInfer") member = AsNorm(id);
  if (IsTypeOf(kImageElementwise, type)) member = AsElementwise(id);
  if (member) member->rank = RankOf(at(id).inputs[member->images[0]].source);
  return member;
}

// ---- The same with channels behind ----

void ImageMembers::SetIntegers(const Use& use, const std::vector<int64_t>& numbers, size_t rank) {
  const Node& old = at(at(use.node).inputs[use.index].source.node);
  const NodeId now =
      rewriter_.AddConstant(old.name + MarkOfLast(rank),
                            MakeConstant(old.constant->dtype, old.constant->shape, std::span<const int64_t>(numbers)));
  rewriter_.Set(use, {now, 0});
}

void ImageMembers::SetDim(NodeId id, std::string_view name, int64_t dim, size_t rank) {
  if (const auto input = InputOf(id, name)) {
    SetIntegers({id, *input}, {dim}, rank);
  } else {
    rewriter_.graph().at(id).attributes.insert_or_assign(std::string(name), dim);
  }
}

void ImageMembers::PermuteList(NodeId id, std::string_view attribute, size_t rank) {
  opdef::Attributes& attributes = rewriter_.graph().at(id).attributes;
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return;
  auto* const list = std::get_if<std::vector<int64_t>>(&found->second);
  if (list != nullptr && list->size() == rank) *list = InOrder(*list, OrderOfLast(rank));
}

void ImageMembers::TurnOperator(NodeId id, const ImageMember& member) {
  const size_t rank = member.rank;
  const auto last = static_cast<int64_t>(rank) - 1;
  const std::string type = at(id).type;
  opdef::Attributes& attributes = rewriter_.graph().at(id).attributes;
  if (IsTypeOf(kImageConvolutions, type) || IsTypeOf(kImagePools, type)) {
    attributes.insert_or_assign("data_format", std::string(rank == 4 ? "NHWC" : "NDHWC"));
    for (const char* list : {"strides", "dilations", "ksize", "dilation", "input_size", "output_padding"}) {
      PermuteList(id, list, rank);
    }
    if (type == "MaxPoolWithArgmaxV3") PermuteList(id, "pads", rank);
    if (type == "Conv2DBackpropInput") {
      SetIntegers({id, *InputOf(id, "input_size")}, InOrder(*NumbersOf(id, "input_size"), OrderOfLast(rank)), rank);
    }
  } else if (IsTypeOf(kImageJoins, type)) {
    SetDim(id, "concat_dim", last, rank);
  } else if (IsTypeOf(kImageSplits, type)) {
    SetDim(id, "split_dim", last, rank);
  } else if (type == "ReduceMeanD") {
    attributes.insert_or_assign("axes", SpatialOf(rank, 1));
  } else if (type == "ReduceMean") {
    SetIntegers({id, *InputOf(id, "axes")}, SpatialOf(rank, 1), rank);
  } else if (type == "StridedSliceV2") {
    std::vector<int64_t> axes = *NumbersOf(id, "axes");
    const std::vector<int64_t> now = OrderOfFirst(rank);  // where each dim is
    for (int64_t& axis : axes) axis = now[static_cast<size_t>(axis < 0 ? axis + last + 1 : axis)];
    SetIntegers({id, *InputOf(id, "axes")}, axes, rank);
  } else if (type == "PadV3") {
    const std::vector<int64_t> before = *NumbersOf(id, "paddings");
    std::vector<int64_t> paddings;
    for (const int64_t dim : OrderOfLast(rank)) {
      paddings.insert(paddings.end(), before.begin() + 2 * dim, before.begin() + 2 * dim + 2);
    }
    SetIntegers({id, *InputOf(id, "paddings")}, paddings, rank);
  } else if (type == "Reshape") {
    const std::vector<int64_t> sizes = *SizesOf({id, 0});
    SetIntegers({id, *InputOf(id, "shape")}, InOrder(sizes, OrderOfLast(sizes.size())), sizes.size());
  }
}

}  // namespace reprise::compiler
