// SPDX-License-Identifier: Apache-2.0
//
// Drawn numbers: Philox, keyed by the seed, counting from the offset. Both may be known only when the kernels run.
#include <array>
#include <atomic>

#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;

// The draws of functions that take seed and offset as numbers alone, with both as tensors.
constexpr Param kSeed = {"seedTensor", ParamKind::kTensor, Role::kInput, false, kIntegerTypes};
constexpr Param kOffset = {"offsetTensor", ParamKind::kTensor, Role::kInput, false, kIntegerTypes};
constexpr std::array kBernoulliParams = {InOut("selfRef"),
                                         Param{"prob", ParamKind::kTensor, Role::kInput, false, kFloatingTypes}, kSeed,
                                         kOffset, Attr("offset", ParamKind::kInt)};
constexpr std::array kPermutationParams = {Attr("n", ParamKind::kInt), kSeed, kOffset, Attr("offset", ParamKind::kInt),
                                           Out("out")};

// The first number of a seed, the last one of a counter: some have two, of which the first is 0.
StatusOr<StridedView> NumberOf(const NamedCall& call, std::string_view name, bool is_last) {
  const NamedTensor& input = call.Input(name);
  const int64_t count = CountOf(input.dims);
  if (count > 0) return ElementOf(input.view(), is_last ? count - 1 : 0);
  return call.WrongInput(input, "has no elements", "pass a number");
}

struct Place {
  StridedView seed, offset;
};

StatusOr<Place> PlaceIn(const NamedCall& call, std::string_view seed, std::string_view offset) {
  REPRISE_ASSIGN_OR_RETURN(StridedView first, NumberOf(call, seed, false));
  REPRISE_ASSIGN_OR_RETURN(StridedView last, NumberOf(call, offset, true));
  return Place{std::move(first), std::move(last)};
}

Status LowerUniformNumbers(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceIn(call, "key", "counter"));
  return StepOf(call, "aclnnInplaceUniformTensor", {call.OutputView(), 0.0, 1.0, place.seed, place.offset, int64_t{0}});
}

Status LowerNormalNumbers(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceIn(call, "key", "counter"));
  return StepOf(call, "aclnnInplaceNormalTensor", {call.OutputView(), 0.0, 1.0, place.seed, place.offset, int64_t{0}});
}

Status LowerBernoulliNumbers(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceIn(call, "seed", "offset"));
  const Routine routine = {kBernoulliParams, Routine::Of("aclnnInplaceBernoulliTensor").computation};
  return call.Step(routine, {call.OutputView(), call.Input("prob").view(), place.seed, place.offset, int64_t{0}});
}

// Permutations are drawn as integers.
Status Permute(NamedCall& call, const StridedView& seed, const StridedView& offset, int64_t n) {
  const Routine routine = {kPermutationParams, Routine::Of("aclnnRandperm").computation};
  const StridedView out = call.OutputView();
  if (!IsFloating(out.dtype)) return call.Step(routine, {n, seed, offset, int64_t{0}, out});
  const StridedView numbers = call.Temporary(DType::kInt64, out.sizes);
  REPRISE_RETURN_IF_ERROR(call.Step(routine, {n, seed, offset, int64_t{0}, numbers}));
  return call.Step(kCopy, {numbers, out});
}

Status LowerPermutation(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceIn(call, "seed", "offset"));
  return Permute(call, place.seed, place.offset, call.shape()[0]);
}

Status LowerSamples(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceIn(call, "seed", "offset"));
  return StepOf(call, "aclnnMultinomialTensor",
                {call.Input("x").view(), call.context.Int("numsamples"), call.context.Bool("replacement"), place.seed,
                 place.offset, int64_t{0}, call.OutputView()});
}

// Bits that keep an element with the probability `prob`. Without an offset, seed1 is where the counter begins.
Status LowerDropoutMaskBits(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::Scalar keep, call.ConstantScalar("prob"));
  REPRISE_ASSIGN_OR_RETURN(const Place place, PlaceIn(call, "seed", call.Has("offset") ? "offset" : "seed1"));
  return StepOf(call, "aclnnDropoutGenMaskV2Tensor",
                {*call.context.Numbers("shape"), 1 - keep.As<double>(), place.seed, place.offset, int64_t{0},
                 DType::kFloat, call.OutputView()});
}

// Kept elements through the probability, which may be known only on the device.
Status LowerDropoutByMask(NamedCall& call) {
  const StridedView x = call.Input("x").view();
  const StridedView mask = call.Input("mask").view();
  const StridedView out = call.OutputView();
  const NamedTensor& keep = call.Input("keep_prob");
  if (keep.has_constant) {
    REPRISE_ASSIGN_OR_RETURN(const kernels::Scalar value, call.ConstantScalar("keep_prob"));
    return StepOf(call, "aclnnDropoutDoMask", {x, mask, 1 - value.As<double>(), out});
  }
  REPRISE_ASSIGN_OR_RETURN(const StridedView factor, OneNumber(call, "keep_prob"));
  const StridedView kept = call.Temporary(x.dtype, x.sizes);
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnDropoutDoMask", {x, mask, 0.0, kept}));
  return call.Step(BinaryRoutine(kCodeRealDiv), {kept, factor, out});
}

// ---- Without a seed: each planned call draws other numbers, and draws them again whenever its kernels run ----

StridedView NextSeed(NamedCall& call) {
  static std::atomic<int64_t> planned{0};
  const int64_t seed = planned.fetch_add(1, std::memory_order_relaxed);
  return call.Numbers(DType::kInt64, {}, &seed);
}

Status LowerUnseededPermutation(NamedCall& call) {
  const StridedView seed = NextSeed(call);
  constexpr int64_t kZero = 0;
  return Permute(call, seed, call.Numbers(DType::kInt64, {}, &kZero), call.context.Int("n"));
}

// y = x / (1 - ratio) or 0; scale_train false leaves kept elements as they are. Then alpha * y + beta.
Status LowerUnseededDropout(NamedCall& call) {
  const double ratio = call.context.Real("dropout_ratio");
  if (!(ratio >= 0 && ratio <= 1)) {
    return call.context.WrongAttribute("dropout_ratio", fmt::format("is {}", ratio), "set it from 0 to 1");
  }
  const StridedView x = call.Input("x").view();
  const StridedView out = call.OutputView();
  const std::vector<int64_t> shape(x.sizes.begin(), x.sizes.end());
  const std::array bytes = {(CountOf(shape) + 127) / 128 * 16};
  const StridedView mask = call.Temporary(DType::kUInt8, bytes);
  const StridedView seed = NextSeed(call);
  constexpr int64_t kZero = 0;
  REPRISE_RETURN_IF_ERROR(
      StepOf(call, "aclnnDropoutGenMaskV2Tensor",
             {shape, ratio, seed, call.Numbers(DType::kInt64, {}, &kZero), int64_t{0}, DType::kFloat, mask}));
  const double alpha = call.context.Real("alpha");
  const double beta = call.context.Real("beta");
  REPRISE_RETURN_IF_ERROR(
      StepOf(call, "aclnnDropoutDoMask", {x, mask, call.context.Bool("scale_train") ? ratio : 0.0, out}));
  if (alpha != 1) REPRISE_RETURN_IF_ERROR(call.Step(kMulScalar, {out, kernels::Scalar::Of<double>(alpha), out}));
  if (beta != 0) REPRISE_RETURN_IF_ERROR(call.Step(kAddScalar, {out, kernels::Scalar::Of<double>(beta), out}));
  return {};
}

constexpr NamedOp kRandomRows[] = {
    {"DropOutDoMask", {}, LowerDropoutByMask},           {"Dropout", {}, LowerUnseededDropout},
    {"MultinomialWithReplacement", {}, LowerSamples},    {"Randperm", {}, LowerUnseededPermutation},
    {"StatelessBernoulli", {}, LowerBernoulliNumbers},   {"StatelessDropOutGenMask", {}, LowerDropoutMaskBits},
    {"StatelessRandomNormalV2", {}, LowerNormalNumbers}, {"StatelessRandomUniformV2", {}, LowerUniformNumbers},
    {"StatelessRandperm", {}, LowerPermutation},
};

}  // namespace

std::span<const NamedOp> RandomRows() { return kRandomRows; }

}  // namespace reprise::ops::named
