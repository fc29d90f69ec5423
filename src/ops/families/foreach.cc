// SPDX-License-Identifier: Apache-2.0
//
// Operators on lists of tensors. One launch goes over the elements of all tensors, one behind the other, so that many
// small tensors cost no more than one large one.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <memory>
#include <vector>

#include "kernels/activation_functions.h"
#include "kernels/arithmetic_functions.h"
#include "kernels/copy.h"
#include "kernels/math_functions.h"
#include "kernels/special_functions.h"
#include "kernels/staged.h"
#include "kernels/vector_norm.h"
#include "ops/computations.h"
#include "ops/lowerings.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// Operands per tensor of the lists: the output and up to three inputs; they stand behind each other in Launch::refs.
constexpr size_t kMostLists = 1 + kernels::kMaxElementInputs;

std::vector<std::span<const Operand>> InputLists(const OpCall& call) {
  std::vector<std::span<const Operand>> lists;
  for (const Param& param : call.op.params) {
    if (param.kind == ParamKind::kTensorList && param.role == Role::kInput) lists.push_back(call.List(param.name));
  }
  return lists;
}

// ---- Rules ----

// The lists have one length, and what they have in one place has one type.
Status CheckLists(OpCall& call, bool one_type) {
  call.compute = call.outputs.empty() ? DType::kFloat : call.outputs[0].dtype;
  for (const Param& param : call.op.params) {
    if (param.kind != ParamKind::kTensorList || param.role != Role::kInput) continue;
    const std::span<const Operand> list = call.List(param.name);
    if (list.size() != call.outputs.size()) {
      return call.Invalid(fmt::format("{} has {} tensors, out has {}", param.name, list.size(), call.outputs.size()),
                          "pass lists of one length");
    }
    if (!one_type) continue;
    for (size_t i = 0; i < list.size(); ++i) {
      const Operand& out = call.outputs[i];
      if (list[i].dtype == out.dtype) continue;
      return call.InvalidOperand(out, fmt::format("has {}, expected the type {} of {}", kernels::Name(out.dtype),
                                                  kernels::Name(list[i].dtype), call.NameOf(list[i])));
    }
  }
  return {};
}

Status ListTypes(OpCall& call) { return CheckLists(call, true); }
Status AnyTypes(OpCall& call) { return CheckLists(call, false); }

// The tensor of numbers, if there is one, has `count` elements.
Status CheckNumbers(OpCall& call, const char* name, int64_t count) {
  if (!call.Has(name)) return {};
  const Operand* numbers = call.Find(name);
  if (numbers == nullptr || numbers->tensor == nullptr) return {};
  const std::string what = fmt::format("{} element{}, as", count, count == 1 ? "" : "s");
  return call.CheckCount(*numbers, {&count, 1}, [&] { return what; });
}

Status ListShapes(OpCall& call) {
  const auto lists = InputLists(call);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Operand& first = lists[0][i];
    const auto name = [&] { return fmt::format("the shape of {},", call.NameOf(first)); };
    for (size_t k = 1; k < lists.size(); ++k) {
      REPRISE_RETURN_IF_ERROR(call.CheckShape(lists[k][i], first.sizes(), name));
    }
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.outputs[i], first.sizes(), name));
  }
  REPRISE_RETURN_IF_ERROR(CheckNumbers(call, "scalar", 1));
  REPRISE_RETURN_IF_ERROR(CheckNumbers(call, "alpha", 1));
  REPRISE_RETURN_IF_ERROR(CheckNumbers(call, "roundMode", 1));
  return CheckNumbers(call, "scalars", static_cast<int64_t>(call.outputs.size()));
}

Status NormShapes(OpCall& call) {
  for (const Operand& out : call.outputs) {
    if (out.tensor->count == 1) continue;
    return call.InvalidOperand(out, fmt::format("has shape {}, expected [] or [1]", ShapeText(out.sizes())));
  }
  return {};
}

// ---- Element by element ----

struct ListSetup {
  struct Item {
    kernels::ElementCall call;  // undefined: a copy
    int64_t first = 0;          // of its elements among those of all
  };
  std::vector<Item> items;
  size_t operands = 0;             // of an item
  bool number_is_operand = false;  // the number of ref operands * items.size() is the last operand, else a number
  bool has_numbers = false;        // there is such a ref
};

// Calls fn(item, range of its elements) for what `range` holds of each.
template <class Fn>
void ForEachItem(const ListSetup& setup, kernels::Range range, Fn&& fn) {
  auto item = std::upper_bound(setup.items.begin(), setup.items.end(), range.begin,
                               [](int64_t at, const ListSetup::Item& other) { return at < other.first; });
  --item;
  for (; item != setup.items.end() && item->first < range.end; ++item) {
    const int64_t end = item + 1 != setup.items.end() ? (item + 1)->first : INT64_MAX;
    const kernels::Range part{std::max(range.begin, item->first) - item->first, std::min(range.end, end) - item->first};
    if (part.begin < part.end) fn(static_cast<size_t>(item - setup.items.begin()), part);
  }
}

// Element `index` of a tensor of numbers.
kernels::Scalar ReadNumber(const kernels::TensorRef& ref, size_t index) {
  const int64_t stride = ref.rank == 0 ? 0 : ref.strides[ref.rank - 1];
  const char* at =
      static_cast<const char*>(ref.data) + static_cast<int64_t>(index) * stride * kernels::ItemSize(ref.dtype);
  return {ref.dtype, at};
}

void RunLists(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& setup = launch.State<ListSetup>();
  ForEachItem(setup, range, [&](size_t index, kernels::Range part) {
    const kernels::TensorRef* refs = launch.refs.data() + index * setup.operands;
    const kernels::ElementCall& prepared = setup.items[index].call;
    if (prepared.row.function == nullptr) {
      kernels::Copy(refs[1], refs[0], part);
      return;
    }
    if (!setup.has_numbers) {
      prepared.Run(refs, part);
      return;
    }
    const kernels::TensorRef& numbers = launch.refs[setup.operands * setup.items.size()];
    const size_t which = kernels::ElementCount(numbers) == 1 ? 0 : index;
    kernels::Scalar number = prepared.ToMath(ReadNumber(numbers, which));
    kernels::ElementCall call = prepared;
    if (!setup.number_is_operand) {
      std::copy_n(number.bytes, sizeof number.bytes, call.numbers);
      call.Run(refs, part);
      return;
    }
    call.has_scalar = true;
    kernels::TensorRef own[kMostLists];
    std::copy_n(refs, setup.operands, own);
    own[setup.operands] = kernels::MakeContiguous(number.bytes, number.dtype, {});
    call.Run(own, part);
  });
}

// What the functions of the lists take besides their tensors.
struct ListNumbers {
  std::span<const kernels::Scalar> fixed = {};      // for all tensors
  std::span<const kernels::Scalar> by_tensor = {};  // one for each; the last operand of fn, or its only number
  const Operand* tensor = nullptr;                  // read when it runs: one number, or one for each tensor
};

// A number as the last operand of a function, in the type of its arithmetic.
void ReadNumberOperand(const OpCall& call, Launch& launch, kernels::ElementCall& element,
                       const kernels::Scalar& number) {
  call.Read(launch, Operand{nullptr, &number, number.dtype, -1, 0, -1, true});
  kernels::Scalar& copy = launch.scalars[launch.scalars.size() - 1];
  copy = element.ToMath(copy);
  launch.refs[launch.refs.size() - 1].dtype = copy.dtype;
  element.has_scalar = true;
}

// out[i] = fn(x1[i], ...); the numbers of fn, or its last operand, from `numbers`.
Status LowerLists(OpCall& call, const kernels::ElementFn* fn, const ListNumbers& numbers) {
  const Operand* tensor = numbers.tensor;
  const auto lists = InputLists(call);
  auto setup = std::make_shared<ListSetup>();
  setup->operands = 1 + lists.size();
  setup->has_numbers = tensor != nullptr;
  setup->number_is_operand = fn != nullptr && fn->inputs == static_cast<int>(lists.size()) + 1;
  const bool takes_operand = !numbers.by_tensor.empty() && setup->number_is_operand;
  if (takes_operand) ++setup->operands;
  setup->items.reserve(call.outputs.size());
  Launch& launch = call.AddLaunch(RunLists);
  launch.refs.reserve(setup->operands * call.outputs.size() + 1);
  launch.uses.reserve(setup->operands * call.outputs.size() + 1);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Operand& out = call.outputs[i];
    ListSetup::Item& item = setup->items.emplace_back();
    if (fn != nullptr) {
      const bool is_own = !numbers.by_tensor.empty() && !takes_operand;
      item.call = kernels::ElementCall(*fn, out.dtype, is_own ? numbers.by_tensor.subspan(i, 1) : numbers.fixed);
      if (item.call.row.function == nullptr) {
        return call.InvalidOperand(out, fmt::format("has {}, for which this is not defined", kernels::Name(out.dtype)));
      }
    }
    item.first = launch.units;
    launch.units += out.tensor->count;
    call.Write(launch, out);
    for (const std::span<const Operand>& list : lists) call.Read(launch, list[i]);
    if (takes_operand) ReadNumberOperand(call, launch, item.call, numbers.by_tensor[i]);
  }
  if (tensor != nullptr) call.Read(launch, *tensor);
  launch.grain = GrainOf(fn != nullptr ? fn->cost : 1);
  launch.state = std::move(setup);
  return {};
}

// A number of the host, which every type of the outputs can hold but for its precision.
Status CheckNumber(const OpCall& call, std::string_view name, const kernels::Scalar& number) {
  for (const Operand& out : call.outputs) {
    if (Survives(number, out.dtype)) continue;
    return call.Invalid(fmt::format("{} is a {} whose value the type {} of {} cannot hold", name,
                                    kernels::Name(number.dtype), kernels::Name(out.dtype), call.NameOf(out)),
                        "pass an integer for integer tensors and a real number for real ones");
  }
  return {};
}

template <const kernels::ElementFn& kFn>
Status LowerForeach(OpCall& call) {
  return LowerLists(call, &kFn, {});
}
// The number is a tensor of the device: read whenever it runs.
template <const kernels::ElementFn& kFn>
Status LowerForeachScalar(OpCall& call) {
  return LowerLists(call, &kFn, {.tensor = &call.Get("scalar")});
}
template <const kernels::ElementFn& kFn>
Status LowerForeachScalars(OpCall& call) {
  return LowerLists(call, &kFn, {.tensor = &call.Get("scalars")});
}
// The number is one of the host, for all tensors.
Status LowerForeachNumber(OpCall& call, const kernels::ElementFn& fn, std::string_view name) {
  const kernels::Scalar& number = *call.Scalar(name);
  REPRISE_RETURN_IF_ERROR(CheckNumber(call, name, number));
  const std::vector<kernels::Scalar> numbers(call.outputs.size(), number);
  return LowerLists(call, &fn, {.by_tensor = numbers});
}
template <const kernels::ElementFn& kFn>
Status LowerForeachScalarV2(OpCall& call) {
  return LowerForeachNumber(call, kFn, "scalar");
}
// The numbers are those of the host, one for each tensor.
template <const kernels::ElementFn& kFn>
Status LowerForeachScalarList(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<kernels::Scalar> numbers, call.Scalars("scalars"));
  if (numbers.size() != call.outputs.size()) {
    return call.Invalid(fmt::format("scalars has {} numbers, x has {} tensors", numbers.size(), call.outputs.size()),
                        "pass one number for each tensor");
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(CheckNumber(call, fmt::format("scalars[{}]", i), numbers[i]));
  }
  return LowerLists(call, &kFn, {.by_tensor = numbers});
}
template <const kernels::ElementFn& kFn>
Status LowerForeachAlpha(OpCall& call) {
  return LowerLists(call, &kFn, {.tensor = &call.Get("alpha")});
}
template <const kernels::ElementFn& kFn>
Status LowerForeachAlphaV2(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNumber(call, "alpha", *call.Scalar("alpha")));
  return LowerLists(call, &kFn, {.fixed = {call.Scalar("alpha"), 1}});
}
Status LowerForeachLerpScalar(OpCall& call) {
  return LowerLists(call, &kernels::kLerpByFn, {.fixed = {call.Scalar("weight"), 1}});
}
Status LowerForeachCopy(OpCall& call) { return LowerLists(call, nullptr, {}); }

// Ways to round, see kernels::kRoundByFn.
Status LowerForeachRound(OpCall& call) {
  return LowerLists(call, &kernels::kRoundByFn, {.tensor = &call.Get("roundMode")});
}
Status LowerForeachRoundV2(OpCall& call) {
  const kernels::Scalar& given = *call.Scalar("roundMode");
  const auto mode = given.As<int64_t>();
  if (mode < 1 || mode > 7) {
    return call.Invalid(fmt::format("roundMode is {}, expected a value from 1 to 7", mode),
                        "1 rounds halves to even, 2 down, 3 up, 4 halves away from 0, 5 towards 0, 6 halves to odd; 7 "
                        "gives the fraction");
  }
  const kernels::Scalar number = kernels::Scalar::Of(mode);
  return LowerLists(call, &kernels::kRoundByFn, {.fixed = {&number, 1}});
}

// ---- Norms ----

// Items are pieces of the tensors, in order; each leaves one number.
struct NormSetup {
  struct Item {
    size_t tensor;
    kernels::Range range;
  };
  std::vector<Item> pieces;
  std::vector<size_t> first;  // piece of each tensor
  double order = 2;
};
constexpr int64_t kNormPiece = 16384;

void RunNormPieces(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& setup = launch.State<NormSetup>();
  auto* partial = static_cast<double*>(launch.Ref(0, memory).data);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const NormSetup::Item& piece = setup.pieces[static_cast<size_t>(i)];
    partial[i] = kernels::NormPart(launch.refs[1 + piece.tensor], setup.order, piece.range);
  }
}

void RunNormEnds(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& setup = launch.State<NormSetup>();
  const size_t count = launch.refs.size() - 1;
  const auto* partial = static_cast<const double*>(launch.Ref(count, memory).data);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto index = static_cast<size_t>(i);
    const size_t end = index + 1 < count ? setup.first[index + 1] : setup.pieces.size();
    const double norm = kernels::JoinNorms({partial + setup.first[index], partial + end}, setup.order);
    const kernels::TensorRef& out = launch.refs[index];
    kernels::FindCast(DType::kDouble, out.dtype)(reinterpret_cast<const char*>(&norm), 0, static_cast<char*>(out.data),
                                                 0, 1);
  }
}

Status LowerForeachNorm(OpCall& call) {
  const kernels::Scalar& order = *call.Scalar("scalar");
  if (kernels::CategoryOf(order.dtype) == kernels::Category::kComplex) {
    return call.Invalid("scalar is complex, expected the order of the norm, a real number");
  }
  auto setup = std::make_shared<NormSetup>();
  setup->order = order.As<double>();
  if (std::isnan(setup->order)) return call.Invalid("scalar is NaN, expected the order of the norm");
  const std::span<const Operand> inputs = InputLists(call)[0];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t count = inputs[i].tensor->count;
    if (count == 0 && (setup->order < 0)) {
      return call.InvalidOperand(inputs[i], "has no elements, and so no norm of a negative order");
    }
    setup->first.push_back(setup->pieces.size());
    for (int64_t begin = 0; begin < count; begin += kNormPiece) {
      setup->pieces.push_back({i, {begin, std::min(count, begin + kNormPiece)}});
    }
  }
  const auto pieces = static_cast<int64_t>(setup->pieces.size());
  const kernels::TensorRef partial = call.Temporary(DType::kDouble, {&pieces, 1});
  Launch& parts = call.AddLaunch(RunNormPieces);
  call.WriteTemporary(parts, partial);
  for (const Operand& input : inputs) call.Read(parts, input);
  parts.units = pieces;
  parts.grain = 2;
  parts.state = setup;
  Launch& ends = call.AddLaunch(RunNormEnds);
  for (const Operand& out : call.outputs) call.Write(ends, out);
  call.ReadTemporary(ends, partial);
  ends.units = static_cast<int64_t>(call.outputs.size());
  ends.state = std::move(setup);
  return {};
}

// ---- Gradients of a scaled loss ----

struct UnscaleSetup {
  std::vector<int64_t> first;  // element of each tensor among those of all
};

// Multiplies the elements of a part of `ref`; whether all of them were finite.
template <class T>
bool Unscale(const kernels::TensorRef& ref, kernels::Range range, T factor) {
  constexpr int64_t kChunk = 1024;
  const kernels::Staged<T> staged(ref);
  alignas(64) T from[kChunk], to[kChunk];
  bool is_finite = true;
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    const T* x = staged.Read(begin, n, from);
    for (int64_t i = 0; i < n; ++i) is_finite &= std::isfinite(x[i]);
    if (factor == 1) continue;
    T* y = staged.Target(begin, to);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
    staged.Write(begin, n, to);
  }
  return is_finite;
}

// refs: the tensors, foundInf, invScale.
void RunUnscale(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& first = launch.State<UnscaleSetup>().first;
  const float factor = *static_cast<const float*>(launch.refs[first.size() + 1].data);
  bool is_finite = true;
  size_t i = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), range.begin) - first.begin()) - 1;
  for (; i < first.size() && first[i] < range.end; ++i) {
    const kernels::TensorRef& ref = launch.refs[i];
    const kernels::Range part{std::max(range.begin, first[i]) - first[i],
                              std::min(range.end - first[i], kernels::ElementCount(ref))};
    if (part.begin >= part.end) continue;
    is_finite &= ref.dtype == DType::kDouble ? Unscale<double>(ref, part, factor) : Unscale<float>(ref, part, factor);
  }
  // Parts that run at the same time all write the same.
  if (!is_finite) {
    std::atomic_ref(*static_cast<float*>(launch.refs[first.size()].data)).store(1.0F, std::memory_order_relaxed);
  }
}

Status UnscaleTypes(OpCall& call) {
  call.compute = DType::kFloat;
  return {};
}

Status UnscaleShapes(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNumbers(call, "foundInf", 1));
  return CheckNumbers(call, "invScale", 1);
}

Status LowerUnscale(OpCall& call) {
  auto setup = std::make_shared<UnscaleSetup>();
  Launch& launch = call.AddLaunch(RunUnscale);
  for (const Operand& gradient : call.List("scaledGrads")) {
    setup->first.push_back(launch.units);
    launch.units += gradient.tensor->count;
    call.Write(launch, gradient);
  }
  call.Write(launch, call.Get("foundInf"));
  call.Read(launch, call.Get("invScale"));
  launch.grain = GrainOf(2);
  launch.state = std::move(setup);
  return {};
}

void RunZeroLists(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& first = launch.State<UnscaleSetup>().first;
  size_t i = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), range.begin) - first.begin()) - 1;
  for (; i < first.size() && first[i] < range.end; ++i) {
    const kernels::TensorRef& ref = launch.refs[i];
    const kernels::Range part{std::max(range.begin, first[i]) - first[i],
                              std::min(range.end - first[i], kernels::ElementCount(ref))};
    if (part.begin < part.end) kernels::Fill(ref, kernels::Scalar::Of<int64_t>(0), part);
  }
}

Status LowerForeachZero(OpCall& call) {
  auto setup = std::make_shared<UnscaleSetup>();
  Launch& launch = call.AddLaunch(RunZeroLists);
  for (const Operand& tensor : call.outputs) {
    setup->first.push_back(launch.units);
    launch.units += tensor.tensor->count;
    call.Write(launch, tensor);
  }
  launch.grain = GrainOf(1);
  launch.state = std::move(setup);
  return {};
}

Status NoShapes(OpCall&) { return {}; }

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/foreach.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
