// SPDX-License-Identifier: Apache-2.0
//
// What the rows of operators by type are made of: routines, and the step that is an aclnn function.
//
// To add an operator: a row in the file of its family, with the word line of its function where there is one:
//
//     As("ArgMaxWithValue", kSingleAndHalfTypes, "aclnnMaxDim", "x @dimension @keep_dims =values =indice"),
//
// The words are the arguments of the function in its order:
//
//     x             an input: a tensor, a list, or null where it is left out
//     =  =values    the first output; the output of that name. One that is an input written in place gets the input's
//                   elements first, where it lies elsewhere. Null where nobody wants it and the parameter is optional
//     ==values      the same, but never null: the function needs the memory, or computes something else without it
//     =type  =type:values    its type
//     @keep_dims    an attribute
//     #axes         the integers of an input that is known at the call, or of an attribute; null where it is left out
//     $value        the only number of an input that is known at the call
//     %1 %0.5 %true %null %text:none %[0,1]    these
//
// No words: all inputs, then all outputs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/named_call.h"

namespace reprise::ops::named {

// ---- Tables by family ----

std::span<const NamedOp> ActivationRows();
std::span<const NamedOp> AttentionRows();
std::span<const NamedOp> BlockRows();
std::span<const NamedOp> ChannelRows();
std::span<const NamedOp> ConvolutionRows();
std::span<const NamedOp> DeformableRows();
std::span<const NamedOp> DetectionRows();
std::span<const NamedOp> ElementwiseRows();
std::span<const NamedOp> ForeachRows();
std::span<const NamedOp> FormulaRows();
std::span<const NamedOp> FourierRows();
std::span<const NamedOp> IndexingRows();
std::span<const NamedOp> MatmulRows();
std::span<const NamedOp> MovementRows();
std::span<const NamedOp> NormalizationRows();
std::span<const NamedOp> PaddingRows();
std::span<const NamedOp> PlaceRows();
std::span<const NamedOp> PoolingRows();
std::span<const NamedOp> ProductRows();
std::span<const NamedOp> QuantizationRows();
std::span<const NamedOp> RandomRows();
std::span<const NamedOp> RecurrentRows();
std::span<const NamedOp> ReductionRows();
std::span<const NamedOp> RoutingRows();
std::span<const NamedOp> TextRows();
std::span<const NamedOp> TrainingRows();

// ---- As a function computes it ----

/// NamedOp::lower of rows with a function.
Status LowerAsFunction(NamedCall& call);
/// One step as the words say.
Status StepAsFunction(NamedCall& call, std::string_view function, std::string_view words);

/// One step with the arguments of an aclnn function.
inline Status StepOf(NamedCall& call, std::string_view function, std::initializer_list<StepArgument> arguments) {
  return call.Step(Routine::Of(function), arguments);
}

/// A row that is one function.
constexpr NamedOp As(std::string_view type, DTypeSet types, std::string_view function,
                     std::string_view arguments = {}) {
  return {type, types, LowerAsFunction, 0, function, arguments};
}

/// The same row for types that no kernel computes with: its steps move elements, or convert them.
constexpr NamedOp MovesBits(NamedOp row) {
  row.moves_bits = true;
  return row;
}

// ---- Routines that no function is: they compute in the type of the output, to which operands convert ----

extern const Routine kAdd;        ///< x1, x2, y
extern const Routine kAddScaled;  ///< x1, x2, alpha, y
extern const Routine kSubScaled;  ///< x1, x2, alpha, y
extern const Routine kAddScalar;  ///< x, value, y
extern const Routine kMulScalar;  ///< x, value, y
extern const Routine kPowScalar;  ///< x, value, y
extern const Routine kCopy;       ///< x, y
extern const Routine kConvert;    ///< x, y and the numbers of aclDataType that they hold, one of them small
extern const Routine kSpread;     ///< y, x: the input broadcasts to the output
extern const Routine kFill;       ///< y, value
extern const Routine kMatmul;     ///< x1, x2, y, 0
extern const Routine kSoftmax;    ///< x, dim, y
extern const Routine kReduceSum;  ///< x, dims, keep_dims, dtype, y
extern const Routine kConcat;     ///< x[], dim, y
extern const Routine kPermute;    ///< x, dims, y
extern const Routine kExp;        ///< x, y
extern const Routine kSetZero;    ///< y
extern const Routine kSetOne;     ///< y

/// NamedOp::code of rows that share a lowering function.
enum Code : int { kCodeAdd, kCodeSub, kCodeMul, kCodeDiv, kCodeRealDiv, kCodeRelu, kCodeNeg, kCodeAbs };
const Routine& BinaryRoutine(int code);  ///< x1, x2, y; kCodeAdd to kCodeRealDiv
const Routine& UnaryRoutine(int code);   ///< x, y; kCodeRelu to kCodeAbs
/// NamedOp::lower of rows that are one of these.
Status LowerNamedBinary(NamedCall& call);
Status LowerNamedUnary(NamedCall& call);
Status LowerNamedCopy(NamedCall& call);

// ---- What rows share ----

/// Type of intermediate results: the 16-bit floats round once, at the end.
kernels::DType Wide(kernels::DType type);
bool IsFloating(kernels::DType type);
int64_t CountOf(std::span<const int64_t> sizes);
/// The address so many elements further on; tensors without elements may have null.
void* Behind(void* data, int64_t elements, kernels::DType type);
/// Elements [begin, begin + count) of a dim.
StridedView Narrowed(StridedView view, size_t dim, int64_t begin, int64_t count);
/// One element of a row-major tensor, as a tensor of rank 0.
StridedView ElementOf(const StridedView& view, int64_t index);
/// The only element of an input, as a tensor of rank 0. 100021 for other numbers of elements.
StatusOr<StridedView> OneNumber(const NamedCall& call, std::string_view name);
/// What two shapes that fit broadcast to.
std::vector<int64_t> BroadcastOf(std::span<const int64_t> a, std::span<const int64_t> b);
/// The attribute `reduction` as the functions of losses count: none 0, mean 1, sum 2.
StatusOr<int64_t> ReductionOf(const NamedCall& call);
/// The tensors of a list, but for those left out.
std::vector<StridedView> ViewsOf(std::span<const NamedTensor> tensors);
/// All tensors of a list of outputs: those that nobody wants have memory of the call.
std::vector<StridedView> OutputViews(const NamedCall& call, std::string_view name);
/// The attribute as a number for tensors of `type`; integer ones take whole numbers only.
StatusOr<kernels::Scalar> ScalarFor(const NamedCall& call, std::string_view name, kernels::DType type);
/// Dims that an attribute or a value operand names, counted from the front of the first input.
StatusOr<std::vector<int64_t>> DimsOf(const NamedCall& call, std::string_view name);
StatusOr<int64_t> DimOf(const NamedCall& call, std::string_view name, size_t rank);

// ---- Sets of types ----

inline constexpr DTypeSet kUnary = kFloatingAndComplexTypes;
inline constexpr DTypeSet kArithmetic = kNumericTypes;
inline constexpr DTypeSet kNoBFloat16 = kFloatingTypes.Without({kernels::DType::kBFloat16});
inline constexpr DTypeSet kSingleAndFloat16 = {kernels::DType::kFloat, kernels::DType::kFloat16};
inline constexpr DTypeSet kWideOrFloat16 = {kernels::DType::kFloat, kernels::DType::kDouble, kernels::DType::kFloat16,
                                            kernels::DType::kInt32, kernels::DType::kInt64};
inline constexpr DTypeSet kNarrowOrUnsigned = {kernels::DType::kInt8,   kernels::DType::kUInt8,
                                               kernels::DType::kInt16,  kernels::DType::kUInt16,
                                               kernels::DType::kUInt32, kernels::DType::kUInt64};
inline constexpr DTypeSet kComparable =
    kAllTypes.Without({kernels::DType::kUInt16, kernels::DType::kUInt32, kernels::DType::kUInt64});
inline constexpr DTypeSet kNormTypes = {kernels::DType::kFloat, kernels::DType::kFloat16, kernels::DType::kBFloat16};

}  // namespace reprise::ops::named
