// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/steps.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "kernels/activation_functions.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/math_functions.h"
#include "ops/families/movement.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

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
Status LowerConvert(OpCall& call) {
  AddConvertSmall(call, static_cast<int32_t>(call.Int("from")), static_cast<int32_t>(call.Int("to")));
  return {};
}

constexpr Computation kSmallConversion = Elementwise(LowerConvert, 0);
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
constexpr std::array kConvertParams = {In("x"), Out("y"), Attr("from", ParamKind::kInt), Attr("to", ParamKind::kInt)};
constexpr std::array kSpreadParams = {InOut("y"), In("x")};
constexpr std::array kResultParams = {InOut("y")};
constexpr std::array kFillParams = {InOut("y"), Attr("value", ParamKind::kScalar)};
constexpr std::array kMatmulParams = {In("x1"), In("x2"), Out("y"), Attr("cubeMathType", ParamKind::kInt)};
constexpr std::array kSoftmaxParams = {In("x"), Attr("dim", ParamKind::kInt), Out("y")};
constexpr std::array kSumParams = {In("x"), Attr("dims", ParamKind::kIntArray), Attr("keepDims", ParamKind::kBool),
                                   Attr("dtype", ParamKind::kDType), Out("y")};
constexpr std::array kJoinParams = {InList("x"), Attr("dim", ParamKind::kInt), Out("y")};
constexpr std::array kPermuteParams = {In("x"), Attr("dims", ParamKind::kIntArray), Out("y")};

constexpr Routine kBinaryRoutines[] = {{kBinaryParams, kAddition},
                                       {kBinaryParams, kSubtraction},
                                       {kBinaryParams, kElementwiseProduct},
                                       {kBinaryParams, kQuotient},
                                       {kBinaryParams, kTrueQuotient}};
constexpr Routine kUnaryRoutines[] = {
    {kUnaryParams, kReluFunction}, {kUnaryParams, kNegation}, {kUnaryParams, kMagnitude}};

}  // namespace

const Routine kAdd = {kBinaryParams, kAddition};
const Routine kAddScaled = {kScaledParams, kAddition};
const Routine kSubScaled = {kScaledParams, kSubtraction};
const Routine kAddScalar = {kScalarParams, kAddition};
const Routine kMulScalar = {kScalarParams, kElementwiseProduct};
const Routine kPowScalar = {kScalarParams, kPower};
const Routine kCopy = {kUnaryParams, kConversion};
const Routine kConvert = {kConvertParams, kSmallConversion};
const Routine kSpread = {kSpreadParams, kConversion};  // the input broadcasts to the output
const Routine kFill = {kFillParams, kFilling};
const Routine kMatmul = {kMatmulParams, kMatrixProduct};
const Routine kSoftmax = {kSoftmaxParams, kSoftmaxRows};
const Routine kReduceSum = {kSumParams, kSum};
const Routine kConcat = {kJoinParams, kJoin};
const Routine kPermute = {kPermuteParams, kPermutation};
const Routine kExp = {kUnaryParams, kExponential};
const Routine kSetZero = {kResultParams, kZeros};
const Routine kSetOne = {kResultParams, kOnes};

const Routine& BinaryRoutine(int code) { return kBinaryRoutines[code]; }
const Routine& UnaryRoutine(int code) { return kUnaryRoutines[code - kCodeRelu]; }

// ---- What rows share ----

Status LowerNamedCopy(NamedCall& call) { return call.Step(kCopy, {call.inputs[0].view(), call.OutputView()}); }

Status LowerNamedBinary(NamedCall& call) {
  return call.Step(BinaryRoutine(call.op.code), {call.inputs[0].view(), call.inputs[1].view(), call.OutputView()});
}

Status LowerNamedUnary(NamedCall& call) {
  return call.Step(UnaryRoutine(call.op.code), {call.inputs[0].view(), call.OutputView()});
}

DType Wide(DType type) { return type == DType::kFloat16 || type == DType::kBFloat16 ? DType::kFloat : type; }

bool IsFloating(DType type) { return kernels::CategoryOf(type) >= kernels::Category::kFloating; }

int64_t CountOf(std::span<const int64_t> sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

void* Behind(void* data, int64_t elements, DType type) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) +
                                 static_cast<uintptr_t>(elements * kernels::ItemSize(type)));
}

StridedView Narrowed(StridedView view, size_t dim, int64_t begin, int64_t count) {
  view.data = Behind(view.data, begin * view.strides[dim], view.dtype);
  view.sizes[dim] = count;
  return view;
}

StridedView ElementOf(const StridedView& view, int64_t index) {
  return StridedView::Of(view.dtype, {}, Behind(view.data, index, view.dtype));
}

StatusOr<StridedView> OneNumber(const NamedCall& call, std::string_view name) {
  const NamedTensor& input = call.Input(name);
  if (CountOf(input.dims) == 1) return input.view().As({});
  return call.WrongInput(input, fmt::format("has the shape {}", ShapeText(input.dims)), "pass one number");
}

std::vector<int64_t> BroadcastOf(std::span<const int64_t> a, std::span<const int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  std::vector<int64_t> shape(a.begin(), a.end());
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t& size = shape[a.size() - b.size() + i];
    if (size == 1) size = b[i];
  }
  return shape;
}

StatusOr<int64_t> ReductionOf(const NamedCall& call) {
  const std::string text = call.context.Text("reduction");
  if (text == "none") return 0;
  if (text == "mean") return 1;
  if (text == "sum") return 2;
  return call.context.WrongAttribute("reduction", fmt::format("is '{}'", text), "set it to none, mean or sum");
}

StatusOr<Scalar> ScalarFor(const NamedCall& call, std::string_view name, DType type) {
  const double value = call.context.Real(name);
  if (IsFloating(type)) return Scalar::Of<double>(value);
  if (value == std::trunc(value) && std::abs(value) < 9.0e15) return Scalar::Of<int64_t>(static_cast<int64_t>(value));
  return call.context.WrongAttribute(name, fmt::format("is {}, but the tensors are {}", value, kernels::Name(type)),
                                     "pass a whole number, or cast the tensors to a floating type");
}

StatusOr<std::vector<int64_t>> DimsOf(const NamedCall& call, std::string_view name) {
  const bool is_attribute = call.context.op.FindAttribute(name) != nullptr;
  const std::vector<int64_t> given = is_attribute ? call.context.Ints(name) : *call.context.Numbers(name);
  return call.context.WrapDims(name, given, call.context.First().shape.rank());
}

StatusOr<int64_t> DimOf(const NamedCall& call, std::string_view name, size_t rank) {
  const bool is_attribute = call.context.op.FindAttribute(name) != nullptr;
  const int64_t given = is_attribute ? call.context.Int(name) : call.context.Numbers(name)->front();
  return call.context.WrapDim(name, given, rank);
}

std::vector<StridedView> ViewsOf(std::span<const NamedTensor> tensors) {
  std::vector<StridedView> views;
  for (const NamedTensor& tensor : tensors) {
    if (!tensor.is_absent) views.push_back(tensor.view());
  }
  return views;
}

std::vector<StridedView> OutputViews(const NamedCall& call, std::string_view name) {
  std::vector<StridedView> views;
  for (const NamedTensor& tensor : call.OutputList(name)) views.push_back(tensor.view());
  return views;
}

// ---- As a function computes it ----

namespace {

StatusOr<StepArgument> AttributeAs(const NamedCall& call, std::string_view name, ParamKind kind) {
  switch (kind) {
    case ParamKind::kScalar: {
      REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, name, call.inputs[0].dtype()));
      return StepArgument(value);
    }
    case ParamKind::kBool: return StepArgument(call.context.Bool(name));
    case ParamKind::kReal: return StepArgument(call.context.Real(name));
    case ParamKind::kString: return StepArgument(call.context.Text(name));
    case ParamKind::kIntArray:
    case ParamKind::kFloatArray:
    case ParamKind::kBoolArray: return StepArgument(call.context.Ints(name));
    default: return StepArgument(call.context.Int(name));
  }
}

// "%1", "%0.5", "%true", "%null", "%text:none", "%[0,1]".
StepArgument Literal(std::string_view text) {
  if (text == "null") return nullptr;
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.starts_with("text:")) return std::string(text.substr(5));
  if (text.starts_with('[')) {
    std::vector<int64_t> values;
    for (text.remove_prefix(1); text.size() > 1;) {
      int64_t value = 0;
      const auto* const end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
      values.push_back(value);
      text.remove_prefix(std::min(text.size(), static_cast<size_t>(end - text.data()) + 1));
    }
    return values;
  }
  if (text.find_first_of(".e") == std::string_view::npos) {
    int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

template <class Operands>
const opdef::Operand* FindOperand(const Operands& operands, std::string_view name) {
  const auto found = std::find_if(operands.begin(), operands.end(),
                                  [&](const opdef::Operand& operand) { return operand.name == name; });
  return found != operands.end() ? &*found : nullptr;
}

StepArgument InputAs(const NamedCall& call, const opdef::Operand& operand) {
  if (operand.is_list()) return ViewsOf(call.List(operand.name));
  if (!call.Has(operand.name)) return nullptr;
  return call.Input(operand.name).view();
}

StatusOr<StepArgument> OutputAs(NamedCall& call, const opdef::Operand& operand, const Param& param) {
  if (operand.is_list()) {
    if (!operand.is_ref()) return StepArgument(OutputViews(call, operand.name));
    REPRISE_ASSIGN_OR_RETURN(std::vector<StridedView> views, call.InPlaceList(operand.name));
    return StepArgument(std::move(views));
  }
  if (param.optional && !call.Wants(operand.name)) return StepArgument(nullptr);
  // What is written without being read need not be copied first.
  if (!operand.is_ref() || param.role == Role::kOutput) return StepArgument(call.Output(operand.name).view());
  REPRISE_ASSIGN_OR_RETURN(StridedView view, call.InPlace(operand.name));
  return StepArgument(std::move(view));
}

StatusOr<StepArgument> ValuesAs(const NamedCall& call, std::string_view name, ParamKind kind) {
  if (!call.Has(name) && call.context.op.FindAttribute(name) == nullptr) return StepArgument(nullptr);
  std::vector<int64_t> values = *call.context.Numbers(name);
  if (kind == ParamKind::kIntArray) return StepArgument(std::move(values));
  if (values.size() == 1) return StepArgument(values[0]);
  return call.context.Wrong(name, fmt::format("has {} numbers", values.size()), "pass one number");
}

StatusOr<StepArgument> WordAs(NamedCall& call, std::string_view word, const Param& param) {
  const opdef::GraphOp& row = call.context.op;
  const std::string_view name = word.substr(1);
  switch (word[0]) {
    case '@': return AttributeAs(call, name, param.kind);
    case '%': return Literal(name);
    case '#': return ValuesAs(call, name, param.kind);
    case '$': {
      REPRISE_ASSIGN_OR_RETURN(const Scalar value, call.ConstantScalar(name));
      if (param.kind == ParamKind::kReal) return StepArgument(value.As<double>());
      if (param.kind == ParamKind::kScalar) return StepArgument(value);
      return StepArgument(value.As<int64_t>());
    }
    case '=': {
      if (name == "type") return StepArgument(call.output().dtype());
      if (name.starts_with("type:")) return StepArgument(call.Output(name.substr(5)).dtype());
      if (name.starts_with('=')) return StepArgument(call.Output(name.substr(1)).view());
      return OutputAs(call, name.empty() ? row.outputs[0] : *FindOperand(row.outputs, name), param);
    }
    default: return InputAs(call, *FindOperand(row.inputs, word));
  }
}

}  // namespace

Status LowerAsFunction(NamedCall& call) { return StepAsFunction(call, call.op.function, call.op.arguments); }

Status StepAsFunction(NamedCall& call, std::string_view function, std::string_view words) {
  const Routine routine = Routine::Of(function);
  const opdef::GraphOp& row = call.context.op;
  std::vector<StepArgument> arguments;
  const auto param = [&]() -> const Param& {
    return routine.params[std::min(arguments.size(), routine.params.size() - 1)];
  };
  if (words.empty()) {
    for (const opdef::Operand& operand : row.inputs) arguments.push_back(InputAs(call, operand));
    for (const opdef::Operand& operand : row.outputs) {
      REPRISE_ASSIGN_OR_RETURN(StepArgument value, OutputAs(call, operand, param()));
      arguments.push_back(std::move(value));
    }
  }
  for (std::string_view rest = words; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    REPRISE_ASSIGN_OR_RETURN(StepArgument value, WordAs(call, word, param()));
    arguments.push_back(std::move(value));
  }
  return call.Step(routine, arguments);
}

}  // namespace reprise::ops::named
