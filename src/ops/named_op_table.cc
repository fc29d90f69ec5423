// SPDX-License-Identifier: Apache-2.0
//
// The operators that can be called by their type: one row, one type. Names of types, inputs and attributes are those
// of the graph engine. To add one: a row below; shape and plan functions that a row of the same kind has, if it does.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/activation_functions.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/math_functions.h"
#include "ops/named_call.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::Scalar;

// ---- Routines: what steps are made of ---------------------------------------------------------------------------

// The output alone says how to compute. Operands convert to its type, as the kernels do it.
Status ComputeInOutput(OpCall& call) { return TypeOfOutput(call); }

// Quotients of integers as true ones, converted to whatever the output is.
Status ComputeQuotient(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  if (kernels::CategoryOf(call.compute) < kernels::Category::kFloating) call.compute = DType::kFloat;
  return {};
}

constexpr Computation Elementwise(Status (*plan)(OpCall&), uint8_t code = 0,
                                  Status (*rule)(OpCall&) = ComputeInOutput) {
  return ElementwiseWith(plan, rule, code);
}

constexpr Computation kAddition = Elementwise(PlanAdd);
constexpr Computation kSubtraction = Elementwise(PlanSub);
constexpr Computation kElementwiseProduct = ElementwiseOf<kernels::kMulFn>(ComputeInOutput);
constexpr Computation kQuotient = ElementwiseOf<kernels::kDivFn>(ComputeInOutput);
constexpr Computation kTrueQuotient = ElementwiseOf<kernels::kDivFn>(ComputeQuotient);
constexpr Computation kReluFunction = ElementwiseOf<kernels::kReluFn>(ComputeInOutput);
constexpr Computation kExponential = ElementwiseOf<kernels::kExpFn>(ComputeInOutput);
constexpr Computation kNegation = ElementwiseOf<kernels::kNegFn>(ComputeInOutput);
constexpr Computation kMagnitude = ElementwiseOf<kernels::kAbsFn>(ComputeInOutput);
constexpr Computation kConversion = Elementwise(PlanCopy, 0);
constexpr Computation kZeros = Elementwise(PlanConstant, 0);
constexpr Computation kOnes = Elementwise(PlanConstant, 1);
constexpr Computation kFilling = Elementwise(PlanFill, 0);
constexpr Computation kMatrixProduct = {
    .dtype_rule = ComputeInOutput, .shape_rule = MatmulShape, .engine = Engine::kCube, .plan = PlanMatmul};
constexpr Computation kSoftmaxRows = {
    .dtype_rule = PromoteInputs, .shape_rule = BroadcastInputs, .aliasing = Aliasing::kSameView, .plan = PlanSoftmax};
constexpr Computation kSum = {.dtype_rule = TypeOfDTypeParam, .shape_rule = ReducedShape, .plan = PlanReduceSum};
constexpr Computation kJoin = {.dtype_rule = ComputeInOutput, .shape_rule = ConcatenatedShape, .plan = PlanConcat};
constexpr Computation kPermutation = {.dtype_rule = OneType, .shape_rule = PermutedShape, .plan = PlanPermute};

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

// The first input of the row, whatever its name.
const NamedTensor& FirstInput(const NamedCall& call) { return call.inputs[0]; }

// ---- Element by element -----------------------------------------------------------------------------------------

Status ShapeOfFirst(NamedCall& call) {
  call.shape = FirstInput(call).dims;
  return {};
}

Status BroadcastShape(NamedCall& call) {
  const std::vector<int64_t>& first = FirstInput(call).dims;
  Dims shape(first.data(), first.size());
  for (const NamedTensor& input : call.inputs) {
    if (Broadcast(shape, input.dims, shape)) continue;
    return call.WrongInput(
        input,
        fmt::format("has the shape {}, which does not broadcast with {}", ShapeText(input.dims), ShapeText(shape)),
        "sizes, aligned at the last dim, must be equal or 1");
  }
  call.shape.assign(shape.begin(), shape.end());
  return {};
}

Status PlanNamedBinary(NamedCall& call) {
  return call.Step(kBinaryRoutines[call.op.code], {call.inputs[0].view(), call.inputs[1].view(), call.OutputView()});
}

Status PlanNamedUnary(NamedCall& call) {
  return call.Step(kUnaryRoutines[call.op.code - kCodeRelu], {call.inputs[0].view(), call.OutputView()});
}

// The number as an element of `type`; integer tensors take whole numbers only.
StatusOr<Scalar> ScalarFor(const NamedCall& call, std::string_view name, DType type) {
  const double value = call.Real(name, 0);
  if (IsFloating(type)) return Scalar::Of<double>(value);
  if (value == std::trunc(value) && std::abs(value) < 9.0e15) return Scalar::Of<int64_t>(static_cast<int64_t>(value));
  return call.WrongAttribute(name, fmt::format("is {}, but the tensors are {}", value, kernels::Name(type)),
                             "pass a whole number, or cast the tensors to a floating type");
}

// x1 + alpha * x2, x1 - alpha * x2 with alpha as an attribute.
Status PlanAxpy(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar alpha, ScalarFor(call, "alpha", call.output().dtype()));
  return call.Step(kAddScaled, {call.inputs[0].view(), call.inputs[1].view(), alpha, call.OutputView()});
}

Status AxpyV2Shape(NamedCall& call) {
  if (call.Has("alpha")) {
    const NamedTensor& alpha = call.Input("alpha");
    if (std::any_of(alpha.dims.begin(), alpha.dims.end(), [](int64_t dim) { return dim != 1; })) {
      return call.WrongInput(alpha, fmt::format("has the shape {}", ShapeText(alpha.dims)), "pass one number");
    }
    if (alpha.dtype_number != call.inputs[0].dtype_number) {
      return call.WrongInput(alpha, fmt::format("is {}, but {} is {}", DTypeText(alpha.dtype_number),
                                                call.inputs[0].name, DTypeText(call.inputs[0].dtype_number)));
    }
  }
  const NamedTensor& x1 = call.Input("x1");
  const NamedTensor& x2 = call.Input("x2");
  Dims shape;
  if (!Broadcast(x1.dims, x2.dims, shape)) {
    return call.WrongInput(
        x2, fmt::format("has the shape {}, which does not broadcast with {}", ShapeText(x2.dims), ShapeText(x1.dims)),
        "sizes, aligned at the last dim, must be equal or 1");
  }
  call.shape.assign(shape.begin(), shape.end());
  return {};
}

// The same with alpha on the device, which is there only when the kernels run.
Status PlanAxpyV2(NamedCall& call) {
  const View x1 = call.Input("x1").view();
  View x2 = call.Input("x2").view();
  if (call.Has("alpha")) {
    const View product = call.Temporary(Wide(x2.dtype), x2.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kBinaryRoutines[kCodeMul], {x2, call.Input("alpha").view().As({}), product}));
    x2 = product;
  }
  const Routine& last = call.op.code == kCodeSub ? kSubScaled : kAddScaled;
  // With alpha 1 the scaled forms are the plain ones.
  if (x2.dtype == x1.dtype) return call.Step(last, {x1, x2, Scalar::Of<int64_t>(1), call.OutputView()});
  const View sum = call.Temporary(x2.dtype, call.shape);
  REPRISE_RETURN_IF_ERROR(call.Step(last, {x1, x2, Scalar::Of<int64_t>(1), sum}));
  return call.Step(kCopy, {sum, call.OutputView()});
}

Status PlanMuls(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, "value", call.output().dtype()));
  return call.Step(call.op.code == kCodeMul ? kMulScalar : kAddScalar,
                   {call.inputs[0].view(), value, call.OutputView()});
}

// base^(scale * x + shift); base -1 is e.
Status PlanNamedExp(NamedCall& call) {
  constexpr Routine kExp = {kUnaryParams, kExponential};
  const double base = call.Real("base", -1);
  const double scale = call.Real("scale", 1);
  const double shift = call.Real("shift", 0);
  if (base <= 0 && base != -1) {
    return call.WrongAttribute("base", fmt::format("is {}", base), "pass a base above 0, or -1 for e");
  }
  const double log_base = base == -1 ? 1 : std::log(base);
  const View x = call.inputs[0].view();
  if (scale * log_base == 1 && shift == 0) return call.Step(kExp, {x, call.OutputView()});
  const View exponent = call.Temporary(Wide(x.dtype), x.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {x, Scalar::Of<double>(scale * log_base), exponent}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {exponent, Scalar::Of<double>(shift * log_base), exponent}));
  // The exponential is computed in the type of its result.
  REPRISE_RETURN_IF_ERROR(call.Step(kExp, {exponent, exponent}));
  return call.Step(kCopy, {exponent, call.OutputView()});
}

Status AddNShape(NamedCall& call) {
  for (const NamedTensor& input : call.inputs) {
    if (input.dims == FirstInput(call).dims) continue;
    return call.WrongInput(input,
                           fmt::format("has the shape {}, but {} has {}", ShapeText(input.dims), FirstInput(call).name,
                                       ShapeText(FirstInput(call).dims)),
                           "pass tensors of one shape");
  }
  const int64_t count = call.Int("N", static_cast<int64_t>(call.inputs.size()));
  if (count != static_cast<int64_t>(call.inputs.size())) {
    return call.WrongAttribute("N", fmt::format("is {}, but there are {} tensors", count, call.inputs.size()),
                               "set it to the number of inputs, or leave it out");
  }
  return ShapeOfFirst(call);
}

Status PlanAddN(NamedCall& call) {
  if (call.inputs.size() == 1) return call.Step(kCopy, {call.inputs[0].view(), call.OutputView()});
  const View sum = call.Temporary(Wide(call.output().dtype()), call.shape);
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {call.inputs[0].view(), call.inputs[1].view(), sum}));
  for (size_t i = 2; i < call.inputs.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {sum, call.inputs[i].view(), sum}));
  }
  return call.Step(kCopy, {sum, call.OutputView()});
}

// ---- Copies and constants ---------------------------------------------------------------------------------------

// Without dst_type, the output says it.
Status CastShape(NamedCall& call) {
  const int64_t wanted = call.Int("dst_type", call.output().dtype_number);
  const auto type = static_cast<DType>(wanted);
  if (wanted < 0 || wanted > INT32_MAX || !kernels::IsKnown(type)) {
    return call.WrongAttribute("dst_type", fmt::format("is {}, which is no type that can be written", wanted),
                               "set it to the aclDataType of the output");
  }
  if (call.output().dtype_number != -1 && call.output().dtype() != type) {
    return call.WrongOutput(
        fmt::format("is {}, but dst_type is {}", DTypeText(call.output().dtype_number), kernels::Name(type)),
        "create the descriptor with the type of dst_type");
  }
  call.result_type = type;
  return ShapeOfFirst(call);
}

Status PlanNamedCopy(NamedCall& call) { return call.Step(kCopy, {call.inputs[0].view(), call.OutputView()}); }

// The elements in their order under another shape.
Status PlanReshape(NamedCall& call) {
  int64_t count = 1;
  for (const int64_t dim : call.shape) count *= dim;
  const std::array flat = {count};
  return call.Step(kCopy, {call.inputs[0].view().As(flat), call.OutputView().As(flat)});
}

Status PlanConstants(NamedCall& call) {
  constexpr Routine kRoutines[] = {{kResultParams, kZeros}, {kResultParams, kOnes}};
  return call.Step(kRoutines[call.op.code], {call.OutputView()});
}

Status PlanFills(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, "value", call.output().dtype()));
  return call.Step(kFill, {call.OutputView(), value});
}

// Sizes as an input, none negative.
StatusOr<std::vector<int64_t>> SizesOf(const NamedCall& call, std::string_view name) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, call.Constant(name));
  for (const int64_t size : sizes) {
    if (size < 0)
      return call.WrongInput(call.Input(name), fmt::format("is {}, which has a negative size", ShapeText(sizes)),
                             "pass sizes of 0 or more");
  }
  return sizes;
}

Status FillShape(NamedCall& call) {
  const NamedTensor& value = call.Input("value");
  if (std::any_of(value.dims.begin(), value.dims.end(), [](int64_t dim) { return dim != 1; })) {
    return call.WrongInput(value, fmt::format("has the shape {}", ShapeText(value.dims)), "pass one number");
  }
  REPRISE_ASSIGN_OR_RETURN(call.shape, SizesOf(call, "dims"));
  call.result_type = value.dtype();
  return {};
}

Status PlanNamedFill(NamedCall& call) {
  return call.Step(kSpread, {call.OutputView(), call.Input("value").view().As({})});
}

// Contents that nobody may rely on: zeros.
Status EmptyShape(NamedCall& call) {
  const int64_t wanted = call.Int("dtype", static_cast<int64_t>(DType::kInt32));
  if (call.output().dtype_number != -1 && call.output().dtype_number != wanted) {
    return call.WrongOutput(fmt::format("is {}, but dtype is {}", DTypeText(call.output().dtype_number), wanted),
                            "set dtype to the type of the output's descriptor");
  }
  if (wanted < 0 || wanted > INT32_MAX || !kernels::IsKnown(static_cast<DType>(wanted))) {
    return call.WrongAttribute("dtype", fmt::format("is {}, which is no type that can be written", wanted),
                               "set it to the type of the output's descriptor");
  }
  call.result_type = static_cast<DType>(wanted);
  REPRISE_ASSIGN_OR_RETURN(call.shape, SizesOf(call, "shape"));
  return {};
}

Status BroadcastToShape(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(call.shape, call.Constant("shape"));
  const size_t fresh = call.shape.size() - std::min(call.shape.size(), x.dims.size());
  bool fits = call.shape.size() >= x.dims.size();
  for (size_t d = 0; fits && d < call.shape.size(); ++d) {
    const int64_t own = d < fresh ? 1 : x.dims[d - fresh];
    if (call.shape[d] == -1 && d >= fresh) call.shape[d] = own;  // keeps the size
    fits = call.shape[d] >= 0 && (own == 1 || own == call.shape[d]);
  }
  if (fits) return {};
  return call.WrongInput(call.Input("shape"),
                         fmt::format("is {}, to which {} does not broadcast", ShapeText(call.shape), ShapeText(x.dims)),
                         "sizes of x, aligned at the last dim, must be equal to those of shape or 1");
}

Status ReshapeShape(NamedCall& call) {
  for (const auto& [name, plain] : {std::pair<std::string_view, int64_t>{"axis", 0}, {"num_axes", -1}}) {
    if (call.Int(name, plain) == plain) continue;
    return call.WrongAttribute(name, fmt::format("is {}, only {} is possible", call.Int(name, plain), plain),
                               "give the whole shape");
  }
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(call.shape, call.Constant("shape"));
  const auto wrong = [&] {
    return call.WrongInput(
        call.Input("shape"),
        fmt::format("is {}, which does not hold the elements of {}", ShapeText(call.shape), ShapeText(x.dims)),
        "the elements stay the same; one size may be -1");
  };
  int64_t count = 1;
  for (const int64_t dim : x.dims) count *= dim;
  int64_t known = 1;
  int64_t* open = nullptr;
  for (int64_t& dim : call.shape) {
    if (dim == -1 && open == nullptr) {
      open = &dim;
    } else if (dim < 0 || __builtin_mul_overflow(known, dim, &known)) {
      return wrong();
    }
  }
  if (open != nullptr) {
    if (known == 0 || count % known != 0) return wrong();
    const int64_t rest = count / known;
    *open = rest;
  } else if (known != count) {
    return wrong();
  }
  return {};
}

Status ExpandDimsShape(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(const int64_t given, call.ConstantInt("axis"));
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis, call.WrapDim("axis", given, x.rank() + 1));
  call.shape = x.dims;
  call.shape.insert(call.shape.begin() + axis, 1);
  return {};
}

Status UnsqueezeShape(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  const std::vector<int64_t> given = call.Ints("axes", {});
  if (given.size() > kernels::kMaxRank) {
    return call.WrongAttribute("axes", fmt::format("has {} entries, more than there may be dims", given.size()),
                               "name each dim once");
  }
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes,
                           call.WrapDims("axes", given, x.rank() + static_cast<int>(given.size())));
  std::sort(axes.begin(), axes.end());
  call.shape = x.dims;
  for (const int64_t axis : axes) call.shape.insert(call.shape.begin() + axis, 1);
  return {};
}

Status SqueezeShape(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, call.WrapDims("axis", call.Ints("axis", {}), x.rank()));
  call.shape.clear();
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t size = x.dims[static_cast<size_t>(d)];
    const bool named = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (named && size != 1) {
      return call.WrongAttribute("axis", fmt::format("names dim {} of {}, which is not 1", d, ShapeText(x.dims)),
                                 "name dims of size 1 only, or none for all of them");
    }
    if (!(named || (axes.empty() && size == 1))) call.shape.push_back(size);
  }
  return {};
}

Status FlattenShape(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(const int64_t first, call.WrapDim("axis", call.Int("axis", 1), x.rank()));
  REPRISE_ASSIGN_OR_RETURN(const int64_t last, call.WrapDim("end_axis", call.Int("end_axis", -1), x.rank()));
  if (first > last) {
    return call.WrongAttribute("axis", fmt::format("is {}, behind end_axis {}", first, last),
                               "let axis be the first of the dims to join");
  }
  call.shape.clear();
  int64_t joined = 1;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t size = x.dims[static_cast<size_t>(d)];
    if (d < first || d > last) call.shape.push_back(size);
    if (d >= first && d <= last) joined *= size;
    if (d == last) call.shape.push_back(joined);
  }
  if (x.rank() == 0) call.shape.push_back(1);
  return {};
}

Status AssignShape(NamedCall& call) {
  const NamedTensor& ref = call.Input("ref");
  const NamedTensor& value = call.Input("value");
  Dims shape;
  if (!Broadcast(ref.dims, value.dims, shape) ||
      !std::equal(shape.begin(), shape.end(), ref.dims.begin(), ref.dims.end())) {
    return call.WrongInput(value, fmt::format("has the shape {}, which does not broadcast to {} of ref",
                                              ShapeText(value.dims), ShapeText(ref.dims)));
  }
  return ShapeOfFirst(call);
}

Status PlanAssign(NamedCall& call) { return call.Step(kSpread, {call.OutputView(), call.Input("value").view()}); }

Status PlanBroadcast(NamedCall& call) { return call.Step(kSpread, {call.OutputView(), call.Input("x").view()}); }

// ---- Order of the dims ------------------------------------------------------------------------------------------

// The permutation, from the input or the attribute that the row has, counted from the front.
StatusOr<std::vector<int64_t>> PermOf(const NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  const bool is_input = call.op.type == "Transpose";
  const std::string_view name = call.op.type == "Permute" ? "order" : "perm";
  std::vector<int64_t> given;
  if (is_input) {
    REPRISE_ASSIGN_OR_RETURN(given, call.Constant(name));
  } else {
    given = call.Ints(name, {0});
  }
  if (static_cast<int>(given.size()) != x.rank()) {
    const std::string text = fmt::format("is {}, but {} has {} dims", ShapeText(given), x.name, x.rank());
    if (is_input) return call.WrongInput(call.Input(name), text, "name each dim once");
    return call.WrongAttribute(name, text, "name each dim once");
  }
  return call.WrapDims(name, given, x.rank());
}

Status TransposedShape(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> perm, PermOf(call));
  call.shape.clear();
  for (const int64_t dim : perm) call.shape.push_back(call.Input("x").dims[static_cast<size_t>(dim)]);
  return {};
}

Status PlanTranspose(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> perm, PermOf(call));
  return call.Step(kPermute, {call.inputs[0].view(), std::move(perm), call.OutputView()});
}

// ---- Joining ----------------------------------------------------------------------------------------------------

// The joined dim, from the input or the attribute that the row has, counted from the front.
StatusOr<int64_t> JoinDimOf(const NamedCall& call, int rank) {
  if (call.op.type == "Pack") return call.WrapDim("axis", call.Int("axis", 0), rank + 1);
  int64_t given = call.Int("concat_dim", 0);
  if (call.op.type != "ConcatD") {
    REPRISE_ASSIGN_OR_RETURN(given, call.ConstantInt("concat_dim"));
  }
  return call.WrapDim("concat_dim", given, rank);
}

Status JoinedShape(NamedCall& call) {
  const std::span<const NamedTensor> list = call.List("x");
  const auto count = static_cast<int64_t>(list.size());
  if (call.HasAttribute("N") && call.Int("N", 1) != count) {
    return call.WrongAttribute("N", fmt::format("is {}, but there are {} tensors", call.Int("N", 1), count),
                               "set N to the number of tensors");
  }
  const bool is_pack = call.op.type == "Pack";
  if (!is_pack && list[0].rank() == 0) {
    return call.WrongInput(list[0], "has no dims, tensors to be joined need one", "give it the shape [1], or use Pack");
  }
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, JoinDimOf(call, list[0].rank()));
  call.shape = list[0].dims;
  if (is_pack) call.shape.insert(call.shape.begin() + dim, 0);
  int64_t& total = call.shape[static_cast<size_t>(dim)];
  total = 0;
  for (const NamedTensor& input : list) {
    bool fits = input.rank() == list[0].rank();
    for (int64_t d = 0; fits && d < input.rank(); ++d) {
      fits = (!is_pack && d == dim) || input.dims[static_cast<size_t>(d)] == list[0].dims[static_cast<size_t>(d)];
    }
    if (!fits) {
      return call.WrongInput(input,
                             fmt::format("has the shape {}, which cannot be joined to {} along dim {}",
                                         ShapeText(input.dims), ShapeText(list[0].dims), dim),
                             "tensors to be joined differ in the joined dim only");
    }
    if (__builtin_add_overflow(total, is_pack ? 1 : input.dims[static_cast<size_t>(dim)], &total)) {
      return call.WrongInput(input, "makes the joined dim larger than 64 bits hold",
                             "create the descriptors with the shapes of the data");
    }
  }
  return {};
}

Status PlanJoin(NamedCall& call) {
  const std::span<const NamedTensor> list = call.List("x");
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, JoinDimOf(call, list[0].rank()));
  std::vector<View> views;
  for (const NamedTensor& input : list) {
    std::vector<int64_t> sizes = input.dims;
    if (call.op.type == "Pack") sizes.insert(sizes.begin() + dim, 1);
    views.push_back(input.view().As(sizes));
  }
  return call.Step(kConcat, {std::move(views), dim, call.OutputView()});
}

// ---- Matrices ---------------------------------------------------------------------------------------------------

bool IsTransposed(const NamedCall& call, int operand) {
  const char* const names[2][2] = {{"transpose_x1", "transpose_x2"}, {"adj_x1", "adj_x2"}};
  return call.Bool(names[call.op.type.starts_with("Batch")][operand], false);
}

View MatrixOf(const NamedCall& call, int operand) {
  const View view = call.inputs[static_cast<size_t>(operand)].view();
  return IsTransposed(call, operand) ? view.Transposed() : view;
}

Status ProductShape(NamedCall& call) {
  const bool is_batch = call.op.type.starts_with("Batch");
  for (const NamedTensor* input : {&call.Input("x1"), &call.Input("x2")}) {
    if (is_batch ? input->rank() >= 2 : input->rank() == 2) continue;
    return call.WrongInput(*input,
                           fmt::format("has the shape {}, expected a matrix{}", ShapeText(input->dims),
                                       is_batch ? " or a batch of them" : ""),
                           is_batch ? "give it two dims at least" : "use BatchMatMulV2 for more dims");
  }
  const View x1 = MatrixOf(call, 0);
  const View x2 = MatrixOf(call, 1);
  const size_t rank1 = x1.sizes.size();
  const size_t rank2 = x2.sizes.size();
  if (x1.sizes[rank1 - 1] != x2.sizes[rank2 - 2]) {
    return call.WrongInput(
        call.Input("x2"),
        fmt::format("is {}, which cannot be multiplied from the right to {}: {} and {}{}",
                    ShapeText(call.inputs[1].dims), ShapeText(call.inputs[0].dims), x1.sizes[rank1 - 1],
                    x2.sizes[rank2 - 2], IsTransposed(call, 0) || IsTransposed(call, 1) ? " after transposition" : ""),
        "the last size of x1 must be the last but one of x2; attributes transpose them");
  }
  Dims batch;
  if (!Broadcast(std::span<const int64_t>(x1.sizes).first(rank1 - 2),
                 std::span<const int64_t>(x2.sizes).first(rank2 - 2), batch)) {
    return call.WrongInput(call.Input("x2"),
                           fmt::format("is {}, whose batch does not broadcast with {}", ShapeText(call.inputs[1].dims),
                                       ShapeText(call.inputs[0].dims)));
  }
  call.shape.assign(batch.begin(), batch.end());
  call.shape.push_back(x1.sizes[rank1 - 2]);
  call.shape.push_back(x2.sizes[rank2 - 1]);

  if (call.Int("offset_x", 0) != 0) {
    return call.WrongAttribute("offset_x", fmt::format("is {}, only 0 is possible", call.Int("offset_x", 0)),
                               "subtract the offset before the product");
  }
  if (call.Has("offset_w")) {
    return call.WrongInput(call.Input("offset_w"), "is not possible here", "leave it out");
  }
  const DType in = x1.dtype;
  const DType out = call.output().dtype();
  // Sums of int8 need more than 8 bits.
  call.result_type = in == DType::kInt8 ? DType::kInt32 : in;
  const bool fits = out == call.result_type || (out == DType::kFloat && Wide(in) == DType::kFloat);
  if (call.output().dtype_number != -1 && !fits) {
    return call.WrongOutput(fmt::format("is {}, but the product of {} is {}", DTypeText(call.output().dtype_number),
                                        kernels::Name(in), kernels::Name(call.result_type)),
                            "create the descriptor with the type of the product");
  }
  if (call.Has("bias")) {
    const NamedTensor& bias = call.Input("bias");
    const int64_t width = call.shape.back();
    const bool is_row =
        (bias.rank() == 1 && bias.dims[0] == width) || (bias.rank() == 2 && bias.dims[0] == 1 && bias.dims[1] == width);
    if (!is_row) {
      return call.WrongInput(bias, fmt::format("has the shape {}, expected [{}]", ShapeText(bias.dims), width),
                             "pass one bias for each column of the product");
    }
    if (bias.dtype() != call.result_type && !(bias.dtype() == DType::kFloat && Wide(in) == DType::kFloat)) {
      return call.WrongInput(bias, fmt::format("is {}, but the product is {}", DTypeText(bias.dtype_number),
                                               kernels::Name(call.result_type)));
    }
  }
  return {};
}

Status PlanProduct(NamedCall& call) {
  constexpr int64_t kKeepPrecision = 0;
  const View out = call.OutputView();
  if (!call.Has("bias")) {
    return call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), out, kKeepPrecision});
  }
  const View product = call.Temporary(Wide(out.dtype), call.shape);
  REPRISE_RETURN_IF_ERROR(call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), product, kKeepPrecision}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {product, call.Input("bias").view(), product}));
  return call.Step(kCopy, {product, out});
}

// ---- Reductions -------------------------------------------------------------------------------------------------

// The reduced dims, counted from the front; none named means all.
StatusOr<std::vector<int64_t>> ReducedDims(const NamedCall& call) {
  std::vector<int64_t> given;
  if (call.op.type == "ReduceSum") {
    REPRISE_ASSIGN_OR_RETURN(given, call.Constant("axes"));
  } else {
    given = call.Ints("axes", {});
  }
  return call.WrapDims("axes", given, call.Input("x").rank());
}

Status SumShape(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, ReducedDims(call));
  const NamedTensor& x = call.Input("x");
  call.shape.clear();
  for (int64_t d = 0; d < x.rank(); ++d) {
    const bool is_reduced = dims.empty() || std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!is_reduced) call.shape.push_back(x.dims[static_cast<size_t>(d)]);
    if (is_reduced && call.Bool("keep_dims", false)) call.shape.push_back(1);
  }
  return {};
}

Status PlanSum(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> dims, ReducedDims(call));
  const View out = call.OutputView();
  return call.Step(kReduceSum, {call.inputs[0].view(), std::move(dims), call.Bool("keep_dims", false), out.dtype, out});
}

Status SoftmaxShape(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, call.WrapDims("axes", call.Ints("axes", {-1}), x.rank()));
  std::sort(axes.begin(), axes.end());
  if (axes.empty() || axes.back() - axes.front() + 1 != static_cast<int64_t>(axes.size())) {
    return call.WrongAttribute("axes", fmt::format("is {}", ShapeText(call.Ints("axes", {-1}))),
                               "name one dim, or dims that follow each other");
  }
  const bool widens = call.Bool("half_to_float", false);
  if (widens && x.dtype() != DType::kFloat16) {
    return call.WrongAttribute("half_to_float", fmt::format("is set, but x is {}", DTypeText(x.dtype_number)),
                               "pass x as float16, or leave the attribute out");
  }
  call.result_type = widens ? DType::kFloat : x.dtype();
  if (call.output().dtype_number != -1 && call.output().dtype() != call.result_type) {
    return call.WrongOutput(fmt::format("is {}, but the result is {}", DTypeText(call.output().dtype_number),
                                        kernels::Name(call.result_type)));
  }
  return ShapeOfFirst(call);
}

Status PlanNamedSoftmax(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, call.WrapDims("axes", call.Ints("axes", {-1}), x.rank()));
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

// ---- The table --------------------------------------------------------------------------------------------------

constexpr DTypeSet kArithmetic = kNumericTypes;
constexpr auto kSame = NamedTypes::kSame;
constexpr auto kByRow = NamedTypes::kOutputByRow;
constexpr auto kFree = NamedTypes::kFree;
constexpr std::string_view kTransposes = "transpose_x1:Bool, transpose_x2:Bool";
constexpr std::string_view kTransposesAndOffset = "transpose_x1:Bool, transpose_x2:Bool, offset_x:Int";

// In the order of the alphabet.
constexpr NamedOp kNamedOps[] = {
    {"Abs", "x", "y", "", kRealTypes, kSame, ShapeOfFirst, PlanNamedUnary, kCodeAbs},
    {"Add", "x1, x2", "y", "", kAllTypes, kSame, BroadcastShape, PlanNamedBinary, kCodeAdd},
    {"AddN", "x[]", "y", "N:Int", kArithmetic, kSame, AddNShape, PlanAddN},
    {"AddV2", "x1, x2", "y", "", kAllTypes, kSame, BroadcastShape, PlanNamedBinary, kCodeAdd},
    {"Adds", "x", "y", "value:Float!", kRealTypes, kSame, ShapeOfFirst, PlanMuls, kCodeAdd},
    {"Assign", "ref, value", "ref", "validate_shape:Bool, use_locking:Bool", kAllTypes, kSame, AssignShape, PlanAssign},
    {"AssignAdd", "ref, value", "ref", "use_locking:Bool", kArithmetic, kSame, AssignShape, PlanNamedBinary, kCodeAdd},
    {"AssignSub", "ref, value", "ref", "use_locking:Bool", kArithmetic, kSame, AssignShape, PlanNamedBinary, kCodeSub},
    {"Axpy", "x1, x2", "y", "alpha:Float!", kRealTypes, kSame, BroadcastShape, PlanAxpy},
    {"AxpyV2", "x1, x2, alpha", "y", "", kArithmetic, kSame, AxpyV2Shape, PlanAxpyV2, kCodeAdd},
    {"BatchMatMul", "x1, x2", "y", "adj_x1:Bool, adj_x2:Bool", kArithmetic, kByRow, ProductShape, PlanProduct},
    {"BatchMatMulV2", "x1, x2, bias?, offset_w?", "y", "adj_x1:Bool, adj_x2:Bool, offset_x:Int", kArithmetic, kByRow,
     ProductShape, PlanProduct},
    {"BroadcastTo", "x, shape#", "y", "", kAllTypes, kSame, BroadcastToShape, PlanBroadcast},
    {"Cast", "x", "y", "dst_type:Int, truncate:Bool", kAllTypes, kFree, CastShape, PlanNamedCopy},
    {"Concat", "concat_dim#, x[]", "y", "N:Int", kAllTypes, kSame, JoinedShape, PlanJoin},
    {"ConcatD", "x[]", "y", "concat_dim:Int!, N:Int", kAllTypes, kSame, JoinedShape, PlanJoin},
    {"ConcatV2", "x[], concat_dim#", "y", "N:Int", kAllTypes, kSame, JoinedShape, PlanJoin},
    {"Div", "x1, x2", "y", "", kArithmetic, kSame, BroadcastShape, PlanNamedBinary, kCodeDiv},
    {"Empty", "shape#", "y", "dtype:Int, init:Bool", kAllTypes, kFree, EmptyShape, PlanConstants, 0},
    {"Exp", "x", "y", "base:Float, scale:Float, shift:Float", kFloatingTypes, kSame, ShapeOfFirst, PlanNamedExp},
    {"Expand", "x, shape#", "y", "", kAllTypes, kSame, BroadcastToShape, PlanBroadcast},
    {"ExpandDims", "x, axis#", "y", "", kAllTypes, kSame, ExpandDimsShape, PlanReshape},
    {"Fill", "dims#, value", "y", "", kAllTypes, kSame, FillShape, PlanNamedFill},
    {"Fills", "x", "y", "value:Float!", kRealTypes, kSame, ShapeOfFirst, PlanFills},
    {"FlattenV2", "x", "y", "axis:Int, end_axis:Int", kAllTypes, kSame, FlattenShape, PlanReshape},
    {"Identity", "x", "y", "", kAllTypes, kSame, ShapeOfFirst, PlanNamedCopy},
    {"MatMul", "x1, x2, bias?", "y", kTransposes, kArithmetic, kByRow, ProductShape, PlanProduct},
    {"MatMulV2", "x1, x2, bias?, offset_w?", "y", kTransposesAndOffset, kArithmetic, kByRow, ProductShape, PlanProduct},
    {"Mul", "x1, x2", "y", "", kAllTypes, kSame, BroadcastShape, PlanNamedBinary, kCodeMul},
    {"Muls", "x", "y", "value:Float!", kRealTypes, kSame, ShapeOfFirst, PlanMuls, kCodeMul},
    {"Neg", "x", "y", "", kArithmetic, kSame, ShapeOfFirst, PlanNamedUnary, kCodeNeg},
    {"OnesLike", "x", "y", "", kAllTypes, kSame, ShapeOfFirst, PlanConstants, 1},
    {"Pack", "x[]", "y", "axis:Int, N:Int", kAllTypes, kSame, JoinedShape, PlanJoin},
    {"Permute", "x", "y", "order:Ints", kAllTypes, kSame, TransposedShape, PlanTranspose},
    {"RealDiv", "x1, x2", "y", "", kArithmetic, kSame, BroadcastShape, PlanNamedBinary, kCodeRealDiv},
    {"ReduceSum", "x, axes#", "y", "keep_dims:Bool", kArithmetic, kSame, SumShape, PlanSum},
    {"ReduceSumD", "x", "y", "axes:Ints!, keep_dims:Bool", kArithmetic, kSame, SumShape, PlanSum},
    {"Relu", "x", "y", "", kRealTypes, kSame, ShapeOfFirst, PlanNamedUnary, kCodeRelu},
    {"Reshape", "x, shape#", "y", "axis:Int, num_axes:Int", kAllTypes, kSame, ReshapeShape, PlanReshape},
    {"SoftmaxV2", "x", "y", "axes:Ints, half_to_float:Bool", kFloatingTypes, kFree, SoftmaxShape, PlanNamedSoftmax},
    {"Squeeze", "x", "y", "axis:Ints", kAllTypes, kSame, SqueezeShape, PlanReshape},
    {"Sub", "x1, x2", "y", "", kArithmetic, kSame, BroadcastShape, PlanNamedBinary, kCodeSub},
    {"Sxpy", "x1, x2, alpha?", "y", "", kArithmetic, kSame, AxpyV2Shape, PlanAxpyV2, kCodeSub},
    {"TensorMove", "x", "y", "", kAllTypes, kSame, ShapeOfFirst, PlanNamedCopy},
    {"Transpose", "x, perm#", "y", "", kAllTypes, kSame, TransposedShape, PlanTranspose},
    {"TransposeD", "x", "y", "perm:Ints!", kAllTypes, kSame, TransposedShape, PlanTranspose},
    {"Unsqueeze", "x", "y", "axes:Ints", kAllTypes, kSame, UnsqueezeShape, PlanReshape},
    {"ZerosLike", "x", "y", "", kAllTypes, kSame, ShapeOfFirst, PlanConstants, 0},
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
