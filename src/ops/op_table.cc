// SPDX-License-Identifier: Apache-2.0
//
// The operator table: one row, one operator. To add one: a row in api/ops.csv, a row here, `scripts/gen_ops.py`.
#include <array>
#include <cstddef>

#include "kernels/elementwise.h"
#include "ops/op_schema.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::BinaryOp;
using kernels::UnaryOp;

constexpr uint8_t Code(BinaryOp op) { return static_cast<uint8_t>(op); }
constexpr uint8_t Code(UnaryOp op) { return static_cast<uint8_t>(op); }

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kAdd = {.types = kAllTypes,
                              .dtype_rule = PromoteInputs,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = Code(BinaryOp::kAdd)};
constexpr Computation kSub = {.types = kNumericTypes,
                              .dtype_rule = PromoteInputs,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = Code(BinaryOp::kSub)};
constexpr Computation kMul = {.types = kAllTypes,
                              .dtype_rule = PromoteInputs,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = Code(BinaryOp::kMul)};
constexpr Computation kDiv = {.types = kAllTypes,
                              .dtype_rule = PromoteInputsToFloating,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanBinary,
                              .code = Code(BinaryOp::kDiv)};
constexpr Computation kRelu = {.types = kRealTypes,
                               .dtype_rule = PromoteInputs,
                               .shape_rule = BroadcastInputs,
                               .aliasing = Aliasing::kSameView,
                               .plan = PlanUnary,
                               .code = Code(UnaryOp::kRelu)};
constexpr Computation kExp = {.types = kAllTypes,
                              .dtype_rule = PromoteInputsToFloating,
                              .shape_rule = BroadcastInputs,
                              .aliasing = Aliasing::kSameView,
                              .plan = PlanUnary,
                              .code = Code(UnaryOp::kExp)};
constexpr Computation kCast = {.types = kAllTypes,
                               .dtype_rule = TypeOfDTypeParam,
                               .shape_rule = BroadcastInputs,
                               .aliasing = Aliasing::kSameView,
                               .plan = PlanCopy};
constexpr Computation kCopy = {.types = kAllTypes,
                               .dtype_rule = TypeOfOutput,
                               .shape_rule = BroadcastInputs,
                               .aliasing = Aliasing::kSameView,
                               .plan = PlanCopy};
constexpr Computation kFill = {
    .types = kAllTypes, .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .plan = PlanFill};
constexpr Computation kZero = {
    .types = kAllTypes, .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .plan = PlanConstant, .code = 0};
constexpr Computation kOne = {
    .types = kAllTypes, .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .plan = PlanConstant, .code = 1};
constexpr Computation kMatmul = {.types = kNumericTypes,
                                 .dtype_rule = PromoteInputs,
                                 .shape_rule = MatmulShape,
                                 .engine = Engine::kCube,
                                 .plan = PlanMatmul};
constexpr Computation kMm = {.types = kNumericTypes,
                             .dtype_rule = PromoteInputs,
                             .shape_rule = MatrixShape,
                             .engine = Engine::kCube,
                             .plan = PlanMatmul};
constexpr Computation kBatchMatMul = {.types = kNumericTypes,
                                      .dtype_rule = PromoteInputs,
                                      .shape_rule = BatchMatrixShape,
                                      .engine = Engine::kCube,
                                      .plan = PlanMatmul};
constexpr Computation kSoftmax = {.types = kFloatingTypes,
                                  .dtype_rule = PromoteInputs,
                                  .shape_rule = BroadcastInputs,
                                  .aliasing = Aliasing::kSameView,
                                  .plan = PlanSoftmax};
constexpr Computation kReduceSum = {
    .types = kAllTypes, .dtype_rule = TypeOfDTypeParam, .shape_rule = ReducedShape, .plan = PlanReduceSum};
constexpr Computation kCat = {
    .types = kAllTypes, .dtype_rule = PromoteInputs, .shape_rule = ConcatenatedShape, .plan = PlanConcat};
constexpr Computation kPermute = {
    .types = kAllTypes, .dtype_rule = OneType, .shape_rule = PermutedShape, .plan = PlanPermute};

// ---- Rows, in the order of op_ids.def ---------------------------------------------------------------------------

// The parameters of a row: a view of an array that exists once for each place where this is written. (An
// initializer_list would read better; gcc takes none inside a constant expression.)
template <class Make>
struct ParamArray {
  static constexpr auto kParams = Make{}();
};
template <class Make>
constexpr std::span<const Param> ParamsOf(Make) {
  return ParamArray<Make>::kParams;
}
#define PARAMS(...) ParamsOf([] { return std::array{__VA_ARGS__}; })

constexpr Param kAlpha = Attr("alpha", ParamKind::kScalar);
constexpr Param kMathType = Attr("cubeMathType", ParamKind::kInt);
constexpr Param kDim = Attr("dim", ParamKind::kInt);
constexpr Param kDims = Attr("dims", ParamKind::kIntArray);
constexpr Param kDType = Attr("dtype", ParamKind::kDType);

constexpr OpSchema kTable[] = {
    {OpId::kAdd, "aclnnAdd", PARAMS(In("self"), In("other"), kAlpha, Out("out")), kAdd},
    {OpId::kAdds, "aclnnAdds", PARAMS(In("self"), ScalarIn("other"), kAlpha, Out("out")), kAdd},
    {OpId::kInplaceAdd, "aclnnInplaceAdd", PARAMS(InOut("selfRef"), In("other"), kAlpha), kAdd},
    {OpId::kInplaceAdds, "aclnnInplaceAdds", PARAMS(InOut("selfRef"), ScalarIn("other"), kAlpha), kAdd},
    {OpId::kSub, "aclnnSub", PARAMS(In("self"), In("other"), kAlpha, Out("out")), kSub},
    {OpId::kSubs, "aclnnSubs", PARAMS(In("self"), ScalarIn("other"), kAlpha, Out("out")), kSub},
    {OpId::kInplaceSub, "aclnnInplaceSub", PARAMS(InOut("selfRef"), In("other"), kAlpha), kSub},
    {OpId::kInplaceSubs, "aclnnInplaceSubs", PARAMS(InOut("selfRef"), ScalarIn("other"), kAlpha), kSub},
    {OpId::kMul, "aclnnMul", PARAMS(In("self"), In("other"), Out("out")), kMul},
    {OpId::kMuls, "aclnnMuls", PARAMS(In("self"), ScalarIn("other"), Out("out")), kMul},
    {OpId::kInplaceMul, "aclnnInplaceMul", PARAMS(InOut("selfRef"), In("other")), kMul},
    {OpId::kInplaceMuls, "aclnnInplaceMuls", PARAMS(InOut("selfRef"), ScalarIn("other")), kMul},
    {OpId::kDiv, "aclnnDiv", PARAMS(In("self"), In("other"), Out("out")), kDiv},
    {OpId::kDivs, "aclnnDivs", PARAMS(In("self"), ScalarIn("other"), Out("out")), kDiv},
    {OpId::kInplaceDiv, "aclnnInplaceDiv", PARAMS(InOut("selfRef"), In("other")), kDiv},
    {OpId::kInplaceDivs, "aclnnInplaceDivs", PARAMS(InOut("selfRef"), ScalarIn("other")), kDiv},
    {OpId::kRelu, "aclnnRelu", PARAMS(In("self"), Out("out")), kRelu},
    {OpId::kInplaceRelu, "aclnnInplaceRelu", PARAMS(InOut("selfRef")), kRelu},
    {OpId::kExp, "aclnnExp", PARAMS(In("self"), Out("out")), kExp},
    {OpId::kCast, "aclnnCast", PARAMS(In("self"), kDType, Out("out")), kCast},
    {OpId::kInplaceCopy, "aclnnInplaceCopy", PARAMS(InOut("selfRef"), In("src")), kCopy},
    {OpId::kInplaceFillScalar, "aclnnInplaceFillScalar", PARAMS(InOut("selfRef"), Attr("value", ParamKind::kScalar)),
     kFill},
    {OpId::kInplaceZero, "aclnnInplaceZero", PARAMS(InOut("selfRef")), kZero},
    {OpId::kInplaceOne, "aclnnInplaceOne", PARAMS(InOut("selfRef")), kOne},
    {OpId::kMatmul, "aclnnMatmul", PARAMS(In("self"), In("mat2"), Out("out"), kMathType), kMatmul},
    {OpId::kMm, "aclnnMm", PARAMS(In("self"), In("mat2"), Out("out"), kMathType), kMm},
    {OpId::kBatchMatMul, "aclnnBatchMatMul", PARAMS(In("self"), In("mat2"), Out("out"), kMathType), kBatchMatMul},
    {OpId::kSoftmax, "aclnnSoftmax", PARAMS(In("self"), kDim, Out("out")), kSoftmax},
    {OpId::kReduceSum, "aclnnReduceSum",
     PARAMS(In("self"), kDims, Attr("keepDims", ParamKind::kBool), kDType, Out("out")), kReduceSum},
    {OpId::kCat, "aclnnCat", PARAMS(InList("tensors"), kDim, Out("out")), kCat},
    {OpId::kPermute, "aclnnPermute", PARAMS(In("self"), kDims, Out("out")), kPermute},
};
#undef PARAMS

// ---- The table against the C signatures -------------------------------------------------------------------------

struct Declared {
  DTypeSet types;
  std::string_view signature;  // "self:tensor other:tensor alpha:scalar out:tensor"
};

constexpr Declared kDeclared[] = {
#define REPRISE_OP(id, types, signature) {types, signature},
#include "ops/op_ids.def"
#undef REPRISE_OP
};

constexpr std::string_view KindWord(ParamKind kind) {
  constexpr std::string_view kWords[] = {"tensor",     "scalar",      "int_array",   "float_array",
                                         "bool_array", "tensor_list", "scalar_list", "int",
                                         "bool",       "real",        "dtype",       "string"};
  return kWords[static_cast<size_t>(kind)];
}

constexpr bool TakeWord(std::string_view& text, std::string_view word) {
  if (text.substr(0, word.size()) != word) return false;
  text.remove_prefix(word.size());
  return true;
}

constexpr bool Fits(const OpSchema& op, const Declared& declared) {
  std::string_view rest = declared.signature;
  for (const Param& param : op.params) {
    TakeWord(rest, " ");
    if (!TakeWord(rest, param.name) || !TakeWord(rest, ":") || !TakeWord(rest, KindWord(param.kind))) return false;
  }
  return rest.empty() && declared.types == op.computation.types;
}

constexpr size_t FirstMisfit() {
  for (size_t i = 0; i < std::size(kTable); ++i) {
    if (kTable[i].id != static_cast<OpId>(i) || !Fits(kTable[i], kDeclared[i])) return i;
  }
  return std::size(kTable);
}

static_assert(std::size(kTable) == static_cast<size_t>(OpId::kCount), "each operator of api/ops.csv has one row");
static_assert(FirstMisfit() == std::size(kTable), "the row of this number does not fit its C signature or types");

}  // namespace

const OpSchema& SchemaOf(OpId id) { return kTable[static_cast<size_t>(id)]; }

}  // namespace reprise::ops
