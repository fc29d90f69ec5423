// SPDX-License-Identifier: Apache-2.0
#include "ops/unboxed.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ops/fallback.h"
#include "ops/known_calls.h"
#include "ops/op_traits.h"

namespace torch_npu {
namespace {

using c10::IValue;

// An empty list, if there is one with the memory that the thread has used before.
c10::List<at::Tensor> TakeList() {
  KnownCalls* const calls = KnownCalls::Mine();
  if (calls == nullptr || !calls->spare_list.has_value()) return c10::List<at::Tensor>();
  c10::List<at::Tensor> list = std::move(*std::exchange(calls->spare_list, std::nullopt));
  if (list.use_count() != 1) return c10::List<at::Tensor>();
  list.clear();
  return list;
}

// Counts nobody in; Return takes it back.
IValue Borrow(const at::Tensor& tensor) {
  using Owner = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return IValue(at::Tensor(Owner::reclaim(tensor.unsafeGetTensorImpl())));
}
void Return(IValue& value) {
  if (value.isTensor()) {
    (void)std::move(value).toTensor().unsafeReleaseTensorImpl();
  } else if (value.isTensorList()) {  // of borrowed ones
    c10::List<at::Tensor> list = std::move(value).toTensorList();
    for (size_t i = 0; i < list.size(); ++i) (void)list.extract(i).unsafeReleaseTensorImpl();
    if (KnownCalls* const calls = KnownCalls::Mine()) calls->spare_list = std::move(list);
  }
}

IValue ValueOf(const at::Tensor& tensor) { return Borrow(tensor); }
IValue ValueOf(const at::ITensorListRef& tensors) {
  c10::List<at::Tensor> list = TakeList();
  list.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) list.push_back(Borrow(tensor).toTensor());
  return list;
}
IValue ValueOf(at::OptionalIntArrayRef numbers) { return numbers.has_value() ? IValue(*numbers) : IValue(); }
IValue ValueOf(c10::string_view text) { return IValue(std::string(text)); }
template <class T>
IValue ValueOf(const T& value) {
  return IValue(value);
}

// The arguments of a call, for as long as it lasts.
template <size_t kCount>
class Arguments {
 public:
  // Delegates, so that those that are there are returned if there is no memory for another.
  template <class... Args>
  explicit Arguments(const Args&... args) : Arguments(Empty()) {
    IValue* next = values_.data();
    ((*next++ = ValueOf(args)), ...);
  }
  ~Arguments() {
    for (IValue& value : values_) Return(value);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  c10::ArrayRef<IValue> values() const { return values_; }

 private:
  struct Empty {};
  explicit Arguments(Empty) {}

  std::array<IValue, kCount> values_;
};

template <class Op, class Schema = typename Op::schema>
struct Unboxed;

// One result: a new tensor, or the first argument.
template <class Op, class Result, class... Args>
struct Unboxed<Op, Result(Args...)> {
  static Result Run(Args... args) {
    static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    static const OpTraits& traits = TraitsOf(op);
    const Arguments<sizeof...(Args)> arguments(args...);
    if constexpr (std::is_reference_v<Result>) {
      RunOperator(op, traits, arguments.values(), Returned::kLeftOut);
      return std::get<0>(std::forward_as_tuple(args...));
    } else {
      auto results = RunOperator(op, traits, arguments.values(), Returned::kAll);
      return std::move(results[0]).toTensor();
    }
  }
};

struct Entry {
  const char* name;
  torch::CppFunction (*make)();
};

template <class Op>
torch::CppFunction Make() {
  return torch::CppFunction(TORCH_FN(Unboxed<Op>::Run));
}

namespace o = at::_ops;

constexpr Entry kEntries[] = {
    {"add.Tensor", Make<o::add_Tensor>},
    {"add_.Tensor", Make<o::add__Tensor>},
    {"sub.Tensor", Make<o::sub_Tensor>},
    {"sub_.Tensor", Make<o::sub__Tensor>},
    {"mul.Tensor", Make<o::mul_Tensor>},
    {"mul_.Tensor", Make<o::mul__Tensor>},
    {"div.Tensor", Make<o::div_Tensor>},
    {"div_.Tensor", Make<o::div__Tensor>},
    {"maximum", Make<o::maximum>},
    {"minimum", Make<o::minimum>},
    {"eq.Tensor", Make<o::eq_Tensor>},
    {"ne.Tensor", Make<o::ne_Tensor>},
    {"lt.Tensor", Make<o::lt_Tensor>},
    {"le.Tensor", Make<o::le_Tensor>},
    {"gt.Tensor", Make<o::gt_Tensor>},
    {"ge.Tensor", Make<o::ge_Tensor>},
    {"eq.Scalar", Make<o::eq_Scalar>},
    {"ne.Scalar", Make<o::ne_Scalar>},
    {"lt.Scalar", Make<o::lt_Scalar>},
    {"le.Scalar", Make<o::le_Scalar>},
    {"gt.Scalar", Make<o::gt_Scalar>},
    {"ge.Scalar", Make<o::ge_Scalar>},
    {"pow.Tensor_Scalar", Make<o::pow_Tensor_Scalar>},
    {"neg", Make<o::neg>},
    {"exp", Make<o::exp>},
    {"sqrt", Make<o::sqrt>},
    {"rsqrt", Make<o::rsqrt>},
    {"sin", Make<o::sin>},
    {"cos", Make<o::cos>},
    {"tanh", Make<o::tanh>},
    {"sigmoid", Make<o::sigmoid>},
    {"relu", Make<o::relu>},
    {"relu_", Make<o::relu_>},
    {"silu", Make<o::silu>},
    {"gelu", Make<o::gelu>},
    {"mm", Make<o::mm>},
    {"bmm", Make<o::bmm>},
    {"cat", Make<o::cat>},
    {"addmm", Make<o::addmm>},
    {"_softmax", Make<o::_softmax>},
    {"sum.dim_IntList", Make<o::sum_dim_IntList>},
    {"mean.dim", Make<o::mean_dim>},
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const Entry& entry : kEntries) m.impl(entry.name, entry.make());
}

}  // namespace

bool IsUnboxed(std::string_view name) {
  return std::any_of(std::begin(kEntries), std::end(kEntries), [&](const Entry& each) { return each.name == name; });
}

}  // namespace torch_npu
