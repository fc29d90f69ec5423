// SPDX-License-Identifier: Apache-2.0
//
// The operators that can be called by their type: one row, one type, with the steps that compute it. What its operands
// and attributes are called, which types they have, and which shape the result has, stands in the table of graph
// operators (api/graph_ops). To add one: a row below, with the lowering function of a row of the same kind, if there is
// one.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/activation_functions.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/math_functions.h"
#include "ops/lowerings.h"
#include "ops/named_call.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Routines: what steps are made of ----

// The output alone says how to compute. Operands convert to its type, as the kernels do it.
Status ComputeInOutput(OpCall& call) { return TypeOfOutput(call); }

// Quotients of integers as true ones, converted to whatever the output is.
Status ComputeQuotient(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  if (kernels::CategoryOf(call.compute) < kernels::Category::kFloating) call.compute = DType::kFloat;
  return {};
}

constexpr Computation Elementwise(Status (*lower)(OpCall&), uint8_t code = 0,
                                  Status (*rule)(OpCall&) = ComputeInOutput) {
  return ElementwiseWith(lower, rule, code);
}

constexpr Computation kAddition = Elementwise(LowerAdd);
constexpr Computation kSubtraction = Elementwise(LowerSub);
constexpr Computation kElementwiseProduct = ElementwiseOf<kernels::kMulFn>(ComputeInOutput);
constexpr Computation kQuotient = ElementwiseOf<kernels::kDivFn>(ComputeInOutput);
constexpr Computation kTrueQuotient = ElementwiseOf<kernels::kDivFn>(ComputeQuotient);
constexpr Computation kReluFunction = ElementwiseOf<kernels::kReluFn>(ComputeInOutput);
constexpr Computation kExponential = ElementwiseOf<kernels::kExpFn>(ComputeInOutput);
constexpr Computation kNegation = ElementwiseOf<kernels::kNegFn>(ComputeInOutput);
constexpr Computation kMagnitude = ElementwiseOf<kernels::kAbsFn>(ComputeInOutput);
constexpr Computation kPower = ElementwiseOf<kernels::kPowFn>(ComputeInOutput);
constexpr Computation kConversion = Elementwise(LowerCopy, 0);
constexpr Computation kZeros = Elementwise(LowerConstant, 0);
constexpr Computation kOnes = Elementwise(LowerConstant, 1);
constexpr Computation kFilling = Elementwise(LowerFill, 0);
constexpr Computation kMatrixProduct = {
    .dtype_rule = ComputeInOutput, .shape_rule = MatmulShape, .engine = Engine::kCube, .lower = LowerMatmul};
constexpr Computation kSoftmaxRows = {
    .dtype_rule = PromoteInputs, .shape_rule = BroadcastInputs, .aliasing = Aliasing::kSameView, .lower = LowerSoftmax};
constexpr Computation kSum = {.dtype_rule = TypeOfDTypeParam, .shape_rule = ReducedShape, .lower = LowerReduceSum};
constexpr Computation kJoin = {.dtype_rule = ComputeInOutput, .shape_rule = ConcatenatedShape, .lower = LowerConcat};
constexpr Computation kPermutation = {.dtype_rule = OneType, .shape_rule = PermutedShape, .lower = LowerPermute};

constexpr std::array kBinaryParams = {In("x1"), In("x2"), Out("y")};
constexpr std::array kScaledParams = {In("x1"), In("x2"), Attr("alpha", ParamKind::kScalar), Out("y")};
constexpr std::array kScalarParams = {In("x"), ScalarIn("value"), Out("y")};
constexpr std::array kUnaryParams = {In("x"), Out("y")};
constexpr std::array kSpreadParams = {InOut("y"), In("x")};
constexpr std::array kResultParams = {InOut("y")};
constexpr std::array kFillParams = {InOut("y"), Attr("value", ParamKind::kScalar)};
constexpr std::array kMatmulParams = {In("x1"), In("x2"), Out("y"), Attr("cubeMathType", ParamKind::kInt)};
constexpr std::array kSoftmaxParams = {In("x"), Attr("dim", ParamKind::kInt), Out("y")};
constexpr std::array kSumParams = {In("x"), Attr("dims", ParamKind::kIntArray), Attr("keepDims", ParamKind::kBool),
                                   Attr("dtype", ParamKind::kDType), Out("y")};
constexpr std::array kJoinParams = {InList("x"), Attr("dim", ParamKind::kInt), Out("y")};
constexpr std::array kPermuteParams = {In("x"), Attr("dims", ParamKind::kIntArray), Out("y")};

constexpr Routine kAdd = {kBinaryParams, kAddition};
constexpr Routine kAddScaled = {kScaledParams, kAddition};
constexpr Routine kSubScaled = {kScaledParams, kSubtraction};
constexpr Routine kAddScalar = {kScalarParams, kAddition};
constexpr Routine kMulScalar = {kScalarParams, kElementwiseProduct};
constexpr Routine kPowScalar = {kScalarParams, kPower};
constexpr Routine kCopy = {kUnaryParams, kConversion};
constexpr Routine kSpread = {kSpreadParams, kConversion};  // the input broadcasts to the output
constexpr Routine kFill = {kFillParams, kFilling};
constexpr Routine kMatmul = {kMatmulParams, kMatrixProduct};
constexpr Routine kSoftmax = {kSoftmaxParams, kSoftmaxRows};
constexpr Routine kReduceSum = {kSumParams, kSum};
constexpr Routine kConcat = {kJoinParams, kJoin};
constexpr Routine kPermute = {kPermuteParams, kPermutation};

// Chosen by NamedOp::code.
enum Code : int { kCodeAdd, kCodeSub, kCodeMul, kCodeDiv, kCodeRealDiv, kCodeRelu, kCodeNeg, kCodeAbs };
constexpr Routine kBinaryRoutines[] = {{kBinaryParams, kAddition},
                                       {kBinaryParams, kSubtraction},
                                       {kBinaryParams, kElementwiseProduct},
                                       {kBinaryParams, kQuotient},
                                       {kBinaryParams, kTrueQuotient}};
constexpr Routine kUnaryRoutines[] = {
    {kUnaryParams, kReluFunction}, {kUnaryParams, kNegation}, {kUnaryParams, kMagnitude}};

// Type of intermediate results: the 16-bit floats round once, at the end.
DType Wide(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat : type; }

bool IsFloating(DType type) { return kernels::CategoryOf(type) >= kernels::Category::kFloating; }

// ---- Element by element ----

Status LowerNamedBinary(NamedCall& call) {
  return call.Step(kBinaryRoutines[call.op.code], {call.inputs[0].view(), call.inputs[1].view(), call.OutputView()});
}

Status LowerNamedUnary(NamedCall& call) {
  return call.Step(kUnaryRoutines[call.op.code - kCodeRelu], {call.inputs[0].view(), call.OutputView()});
}

// The number as an element of `type`; integer tensors take whole numbers only.
StatusOr<Scalar> ScalarFor(const NamedCall& call, std::string_view name, DType type) {
  const double value = call.context.Real(name);
  if (IsFloating(type)) return Scalar::Of<double>(value);
  if (value == std::trunc(value) && std::abs(value) < 9.0e15) return Scalar::Of<int64_t>(static_cast<int64_t>(value));
  return call.context.WrongAttribute(name, fmt::format("is {}, but the tensors are {}", value, kernels::Name(type)),
                                     "pass a whole number, or cast the tensors to a floating type");
}

// x1 + alpha * x2, x1 - alpha * x2 with alpha as an attribute.
Status LowerAxpy(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar alpha, ScalarFor(call, "alpha", call.output().dtype()));
  return call.Step(kAddScaled, {call.inputs[0].view(), call.inputs[1].view(), alpha, call.OutputView()});
}

// As LowerAxpy, with alpha on the device, which is there only when the kernels run.
Status LowerAxpyV2(NamedCall& call) {
  const StridedView x1 = call.Input("x1").view();
  StridedView x2 = call.Input("x2").view();
  if (call.Has("alpha")) {
    const StridedView product = call.Temporary(Wide(x2.dtype), x2.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kBinaryRoutines[kCodeMul], {x2, call.Input("alpha").view().As({}), product}));
    x2 = product;
  }
  const Routine& last = call.op.code == kCodeSub ? kSubScaled : kAddScaled;
  // With alpha 1 the scaled forms are the plain ones.
  if (x2.dtype == x1.dtype) return call.Step(last, {x1, x2, Scalar::Of<int64_t>(1), call.OutputView()});
  const StridedView sum = call.Temporary(x2.dtype, call.shape);
  REPRISE_RETURN_IF_ERROR(call.Step(last, {x1, x2, Scalar::Of<int64_t>(1), sum}));
  return call.Step(kCopy, {sum, call.OutputView()});
}

Status LowerMuls(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, "value", call.output().dtype()));
  return call.Step(call.op.code == kCodeMul ? kMulScalar : kAddScalar,
                   {call.inputs[0].view(), value, call.OutputView()});
}

// base^(scale * x + shift); base -1 is e.
Status LowerNamedExp(NamedCall& call) {
  constexpr Routine kExp = {kUnaryParams, kExponential};
  const double base = call.context.Real("base");
  const double scale = call.context.Real("scale");
  const double shift = call.context.Real("shift");
  const double log_base = base == -1 ? 1 : std::log(base);
  const StridedView x = call.inputs[0].view();
  if (scale * log_base == 1 && shift == 0) return call.Step(kExp, {x, call.OutputView()});
  const StridedView exponent = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(scale * log_base), exponent}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {exponent, Scalar::Of<double>(shift * log_base), exponent}));
  // The exponential is computed in the type of its result.
  REPRISE_RETURN_IF_ERROR(call.Step(kExp, {exponent, exponent}));
  return call.Step(kCopy, {exponent, call.OutputView()});
}

Status LowerAddN(NamedCall& call) {
  if (call.inputs.size() == 1) return call.Step(kCopy, {call.inputs[0].view(), call.OutputView()});
  const StridedView sum = call.Temporary(Wide(call.output().dtype()), call.shape);
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {call.inputs[0].view(), call.inputs[1].view(), sum}));
  for (size_t i = 2; i < call.inputs.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {sum, call.inputs[i].view(), sum}));
  }
  return call.Step(kCopy, {sum, call.OutputView()});
}

Status LowerSquare(NamedCall& call) {
  const StridedView x = call.inputs[0].view();
  return call.Step(kBinaryRoutines[kCodeMul], {x, x, call.OutputView()});
}

// ---- As a function computes it ----

StatusOr<StepArgument> AttributeAs(const NamedCall& call, std::string_view name, ParamKind kind) {
  switch (kind) {
    case ParamKind::kScalar: {
      REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, name, call.inputs[0].dtype()));
      return StepArgument(value);
    }
    case ParamKind::kBool: return StepArgument(call.context.Bool(name));
    case ParamKind::kReal: return StepArgument(call.context.Real(name));
    case ParamKind::kIntArray: return StepArgument(call.context.Ints(name));
    default: return StepArgument(call.context.Int(name));
  }
}

Status LowerAsFunction(NamedCall& call) {
  const OpSchema& function = ops::SchemaOf(FindOp(call.op.function));
  std::vector<StepArgument> arguments;
  if (call.op.arguments.empty()) {
    for (const NamedTensor& input : call.inputs) arguments.emplace_back(input.view());
    arguments.emplace_back(call.OutputView());
  }
  for (std::string_view rest = call.op.arguments; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (word == "=") {
      arguments.emplace_back(call.OutputView());
    } else if (word == "=type") {
      arguments.emplace_back(call.output().dtype());
    } else if (word[0] == '@') {
      const ParamKind kind = function.params[arguments.size()].kind;
      REPRISE_ASSIGN_OR_RETURN(StepArgument value, AttributeAs(call, word.substr(1), kind));
      arguments.push_back(std::move(value));
    } else if (word[0] == '#') {
      arguments.emplace_back(*call.context.Numbers(word.substr(1)));
    } else {
      arguments.emplace_back(call.Input(word).view());
    }
  }
  return call.Step({function.params, function.computation}, arguments);
}

constexpr NamedOp As(std::string_view type, DTypeSet types, std::string_view function,
                     std::string_view arguments = {}) {
  return {type, types, LowerAsFunction, 0, function, arguments};
}

// ---- Copies and constants ----

Status LowerNamedCopy(NamedCall& call) { return call.Step(kCopy, {call.inputs[0].view(), call.OutputView()}); }

// The elements in their order under another shape.
Status LowerReshape(NamedCall& call) {
  int64_t count = 1;
  for (const int64_t dim : call.shape) count *= dim;
  const std::array flat = {count};
  return call.Step(kCopy, {call.inputs[0].view().As(flat), call.OutputView().As(flat)});
}

Status LowerConstants(NamedCall& call) {
  constexpr Routine kRoutines[] = {{kResultParams, kZeros}, {kResultParams, kOnes}};
  return call.Step(kRoutines[call.op.code], {call.OutputView()});
}

Status LowerFills(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, "value", call.output().dtype()));
  return call.Step(kFill, {call.OutputView(), value});
}

Status LowerNamedFill(NamedCall& call) {
  return call.Step(kSpread, {call.OutputView(), call.Input("value").view().As({})});
}

Status LowerAssign(NamedCall& call) { return call.Step(kSpread, {call.OutputView(), call.Input("value").view()}); }

Status LowerBroadcast(NamedCall& call) { return call.Step(kSpread, {call.OutputView(), call.Input("x").view()}); }

// ---- Order of the dims ----

// Dims that an attribute or an input names, counted from the front.
StatusOr<std::vector<int64_t>> DimsOf(const NamedCall& call, std::string_view name) {
  const bool is_attribute = call.context.op.FindAttribute(name) != nullptr;
  const std::vector<int64_t> given = is_attribute ? call.context.Ints(name) : *call.context.Numbers(name);
  return call.context.WrapDims(name, given, call.context.First().shape.rank());
}

Status LowerTranspose(NamedCall& call) {
  const std::string_view name = call.op.type == "Permute" ? "order" : "perm";
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> perm, DimsOf(call, name));
  return call.Step(kPermute, {call.inputs[0].view(), std::move(perm), call.OutputView()});
}

// ---- Joining ----

Status LowerJoin(NamedCall& call) {
  const std::span<const NamedTensor> list = call.List("x");
  const bool is_pack = call.op.type == "Pack";
  const std::string_view name = is_pack ? "axis" : "concat_dim";
  const bool is_attribute = call.context.op.FindAttribute(name) != nullptr;
  const int64_t given = is_attribute ? call.context.Int(name) : call.context.Numbers(name)->front();
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.context.WrapDim(name, given, call.shape.size()));
  std::vector<StridedView> views;
  for (const NamedTensor& input : list) {
    std::vector<int64_t> sizes = input.dims;
    if (is_pack) sizes.insert(sizes.begin() + dim, 1);
    views.push_back(input.view().As(sizes));
  }
  return call.Step(kConcat, {std::move(views), dim, call.OutputView()});
}

// ---- Matrices ----

bool IsTransposed(const NamedCall& call, int operand) {
  const char* const names[2][2] = {{"transpose_x1", "transpose_x2"}, {"adj_x1", "adj_x2"}};
  return call.context.Bool(names[call.op.type.starts_with("Batch")][operand]);
}

StridedView MatrixOf(const NamedCall& call, int operand) {
  const StridedView view = call.inputs[static_cast<size_t>(operand)].view();
  return IsTransposed(call, operand) ? view.Transposed() : view;
}

Status LowerProduct(NamedCall& call) {
  constexpr int64_t kKeepPrecision = 0;
  const StridedView out = call.OutputView();
  if (!call.Has("bias")) {
    return call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), out, kKeepPrecision});
  }
  const StridedView product = call.Temporary(Wide(out.dtype), call.shape);
  REPRISE_RETURN_IF_ERROR(call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), product, kKeepPrecision}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {product, call.Input("bias").view(), product}));
  return call.Step(kCopy, {product, out});
}

// ---- Reductions ----

Status LowerSum(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  const StridedView out = call.OutputView();
  return call.Step(kReduceSum,
                   {call.inputs[0].view(), std::move(dims), call.context.Bool("keep_dims"), out.dtype, out});
}

// The exponent of a norm in two halves. Sums of powers do not lead to the norms that count or take the largest.
StatusOr<double> NormExponent(const NamedCall& call) {
  constexpr double kStandsForInfinity = 2147483648.0;
  const double p = call.context.Real("p");
  if (p != 0 && std::abs(p) < kStandsForInfinity) return p;
  return call.context.WrongAttribute("p", fmt::format("is {}, whose norm is no root of a sum of powers", p),
                                     "call aclnnLinalgVectorNorm");
}

// sum(|x|^p)
Status LowerNormSums(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const double p, NormExponent(call));
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsOf(call, "axes"));
  const StridedView x = call.inputs[0].view();
  const StridedView power = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kUnaryRoutines[kCodeAbs - kCodeRelu], {x, power}));
  REPRISE_RETURN_IF_ERROR(call.Step(kPowScalar, {power, Scalar::Of<double>(p), power}));
  const StridedView out = call.OutputView();
  return call.Step(kReduceSum, {power, std::move(dims), call.context.Bool("keepdim"), out.dtype, out});
}

// x^(1/p)
Status LowerNormRoot(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const double p, NormExponent(call));
  return call.Step(kPowScalar, {call.inputs[0].view(), Scalar::Of<double>(1 / p), call.OutputView()});
}

Status LowerNamedSoftmax(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, DimsOf(call, "axes"));
  std::sort(axes.begin(), axes.end());
  // Neighbours are one dim: tensors lie without gaps.
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t size = x.dims[static_cast<size_t>(d)];
    if (d > axes.front() && d <= axes.back()) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
  }
  return call.Step(kSoftmax, {x.view().As(sizes), axes.front(), call.OutputView().As(sizes)});
}

// ---- The table ----

constexpr DTypeSet kArithmetic = kNumericTypes;
// Of operators that have fewer types than the functions that compute them.
constexpr DTypeSet kNoBFloat16 = kFloatingTypes.Without({DType::kBFloat16});
constexpr DTypeSet kSingleAndFloat16 = {DType::kFloat, DType::kFloat16};
constexpr DTypeSet kWideOrFloat16 = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kInt32, DType::kInt64};
constexpr DTypeSet kNarrowOrUnsigned = {DType::kInt8,   DType::kUInt8,  DType::kInt16,
                                        DType::kUInt16, DType::kUInt32, DType::kUInt64};
constexpr DTypeSet kComparable = kAllTypes.Without({DType::kUInt16, DType::kUInt32, DType::kUInt64});
constexpr DTypeSet kNormTypes = {DType::kFloat, DType::kFloat16, DType::kBFloat16};

// In the order of the alphabet.
constexpr NamedOp kNamedOps[] = {
    {"Abs", kRealTypes, LowerNamedUnary, kCodeAbs},
    As("Acos", kNoBFloat16, "aclnnAcos"),
    {"Add", kAllTypes, LowerNamedBinary, kCodeAdd},
    {"AddN", kArithmetic, LowerAddN},
    {"AddV2", kAllTypes, LowerNamedBinary, kCodeAdd},
    {"Adds", kRealTypes, LowerMuls, kCodeAdd},
    As("Asin", kNoBFloat16, "aclnnAsin"),
    {"Assign", kAllTypes, LowerAssign},
    {"AssignAdd", kArithmetic, LowerNamedBinary, kCodeAdd},
    {"AssignSub", kArithmetic, LowerNamedBinary, kCodeSub},
    As("Atan", kFloatingTypes, "aclnnAtan"),
    As("Atan2", kFloatingTypes, "aclnnAtan2"),
    {"Axpy", kRealTypes, LowerAxpy},
    {"AxpyV2", kArithmetic, LowerAxpyV2, kCodeAdd},
    {"BatchMatMul", kArithmetic, LowerProduct},
    {"BatchMatMulV2", kArithmetic, LowerProduct},
    As("BitwiseAnd", kIntegerTypes, "aclnnBitwiseAndTensor"),
    As("BitwiseOr", kIntegerTypes, "aclnnBitwiseOrTensor"),
    {"BroadcastTo", kAllTypes, LowerBroadcast},
    {"Cast", kAllTypes, LowerNamedCopy},
    As("Ceil", kFloatingTypes, "aclnnCeil"),
    As("CeluV2", kSingleAndFloat16, "aclnnCelu", "x @alpha ="),
    As("ClipByValue", kRealTypes, "aclnnClampTensor"),
    As("ClipByValueV2", kRealTypes, "aclnnClampTensor"),
    {"Concat", kAllTypes, LowerJoin},
    {"ConcatD", kAllTypes, LowerJoin},
    {"ConcatV2", kAllTypes, LowerJoin},
    As("Cos", kFloatingTypes, "aclnnCos"),
    As("Cosh", kFloatingTypes, "aclnnCosh"),
    {"Div", kArithmetic, LowerNamedBinary, kCodeDiv},
    As("Elu", kFloatingTypes, "aclnnElu", "x @alpha @scale @input_scale ="),
    {"Empty", kAllTypes, LowerConstants, 0},
    As("Equal", kComparable, "aclnnEqTensor"),
    As("Erf", kFloatingTypes, "aclnnErf"),
    {"Exp", kFloatingTypes, LowerNamedExp},
    {"Expand", kAllTypes, LowerBroadcast},
    {"ExpandDims", kAllTypes, LowerReshape},
    As("Expm1", kFloatingTypes, "aclnnExpm1"),
    {"Fill", kAllTypes, LowerNamedFill},
    {"Fills", kRealTypes, LowerFills},
    {"FlattenV2", kAllTypes, LowerReshape},
    As("Floor", kFloatingTypes, "aclnnFloor"),
    As("FloorDiv", kRealTypes.Without({DType::kUInt32, DType::kUInt64}), "aclnnFloorDivide"),
    As("FloorMod", kWideOrFloat16, "aclnnRemainderTensorTensor"),
    As("Greater", kRealTypes, "aclnnGtTensor"),
    As("GreaterEqual", kRealTypes, "aclnnGeTensor"),
    As("HardShrink", kSingleAndFloat16, "aclnnHardshrink", "input_x @lambd ="),
    As("HardSwish", kSingleAndFloat16, "aclnnHardswish"),
    {"Identity", kAllTypes, LowerNamedCopy},
    As("Invert", kIntegerTypes, "aclnnBitwiseNot"),
    As("IsClose", kRealTypes, "aclnnIsClose", "x1 x2 @rtol @atol @equal_nan ="),
    As("IsFinite", kFloatingTypes, "aclnnIsFinite"),
    As("LeakyRelu", kNoBFloat16, "aclnnLeakyRelu", "x @negative_slope ="),
    As("Lerp", kSingleAndHalfTypes, "aclnnLerp"),
    As("Less", kRealTypes, "aclnnLtTensor"),
    As("LessEqual", kRealTypes, "aclnnLeTensor"),
    As("Log1p", kFloatingTypes, "aclnnLog1p"),
    As("LogicalAnd", kBoolType, "aclnnLogicalAnd"),
    As("LogicalNot", kBoolType, "aclnnLogicalNot"),
    As("LogicalOr", kBoolType, "aclnnLogicalOr"),
    {"LpNormReduceV2", kNormTypes, LowerNormSums},
    {"LpNormUpdateV2", kNormTypes, LowerNormRoot},
    {"MatMul", kArithmetic, LowerProduct},
    {"MatMulV2", kArithmetic, LowerProduct},
    As("Maximum", kWideOrFloat16, "aclnnMaximum"),
    As("Minimum", kWideOrFloat16, "aclnnMinimum"),
    As("Mish", kSingleAndFloat16, "aclnnMish"),
    As("Mod", kWideOrFloat16, "aclnnFmodTensor"),
    {"Mul", kAllTypes, LowerNamedBinary, kCodeMul},
    {"Muls", kRealTypes, LowerMuls, kCodeMul},
    {"Neg", kArithmetic, LowerNamedUnary, kCodeNeg},
    As("NotEqual", kRealTypes, "aclnnNeTensor"),
    {"OnesLike", kAllTypes, LowerConstants, 1},
    {"Pack", kAllTypes, LowerJoin},
    {"Permute", kAllTypes, LowerTranspose},
    As("Pow", kArithmetic, "aclnnPowTensorTensor"),
    {"RealDiv", kArithmetic, LowerNamedBinary, kCodeRealDiv},
    As("Reciprocal", kFloatingTypes, "aclnnReciprocal"),
    As("ReduceAll", kBoolType, "aclnnAll", "x #axes @keep_dims ="),
    As("ReduceAny", kBoolType, "aclnnAny", "x #axes @keep_dims ="),
    As("ReduceLogSumExp", kFloatingTypes, "aclnnLogSumExp", "x #axes @keep_dims ="),
    As("ReduceMax", kRealTypes, "aclnnAmax", "x #axes @keep_dims ="),
    As("ReduceMean", kFloatingTypes, "aclnnMean", "x #axes @keep_dims =type ="),
    As("ReduceMeanD", kSingleAndHalfTypes, "aclnnMean", "x @axes @keep_dims =type ="),
    As("ReduceMin", kRealTypes, "aclnnAmin", "x #axes @keep_dims ="),
    {"ReduceSum", kArithmetic, LowerSum},
    {"ReduceSumD", kArithmetic, LowerSum},
    {"Relu", kRealTypes, LowerNamedUnary, kCodeRelu},
    {"Reshape", kAllTypes, LowerReshape},
    As("Roll", kAllTypes, "aclnnRoll", "x @shifts @dims ="),
    As("Round", kWideOrFloat16, "aclnnRound"),
    As("Rsqrt", kFloatingTypes, "aclnnRsqrt"),
    As("Sigmoid", kFloatingTypes, "aclnnSigmoid"),
    As("Sign", kWideOrFloat16, "aclnnSign"),
    As("Sin", kFloatingTypes, "aclnnSin"),
    As("Sinh", kFloatingTypes, "aclnnSinh"),
    As("SoftShrink", kSingleAndFloat16, "aclnnSoftshrink", "input_x @lambd ="),
    {"SoftmaxV2", kFloatingTypes, LowerNamedSoftmax},
    As("Sqrt", kFloatingTypes, "aclnnSqrt"),
    {"Square", kArithmetic.Without(kNarrowOrUnsigned), LowerSquare},
    {"Squeeze", kAllTypes, LowerReshape},
    {"Sub", kArithmetic, LowerNamedBinary, kCodeSub},
    {"Sxpy", kArithmetic, LowerAxpyV2, kCodeSub},
    As("Tan", kNoBFloat16, "aclnnTan"),
    As("Tanh", kFloatingTypes, "aclnnTanh"),
    {"TensorMove", kAllTypes, LowerNamedCopy},
    As("ThresholdV2D", kRealTypes, "aclnnThreshold", "x @threshold @value ="),
    {"Transpose", kAllTypes, LowerTranspose},
    {"TransposeD", kAllTypes, LowerTranspose},
    As("Trunc", kSingleAndHalfTypes, "aclnnTrunc"),
    {"Unsqueeze", kAllTypes, LowerReshape},
    {"ZerosLike", kAllTypes, LowerConstants, 0},
};
static_assert(std::is_sorted(std::begin(kNamedOps), std::end(kNamedOps),
                             [](const NamedOp& a, const NamedOp& b) { return a.type < b.type; }),
              "FindNamedOp searches by halves");

}  // namespace

const NamedOp* FindNamedOp(std::string_view type) {
  const auto* found = std::lower_bound(std::begin(kNamedOps), std::end(kNamedOps), type,
                                       [](const NamedOp& row, std::string_view wanted) { return row.type < wanted; });
  return found != std::end(kNamedOps) && found->type == type ? found : nullptr;
}

std::span<const NamedOp> NamedOps() { return kNamedOps; }

}  // namespace reprise::ops
