// SPDX-License-Identifier: Apache-2.0
//
// Operators of torch on lists of tensors, which optimizers are made of: one operator of the device for a whole list,
// and so one task. Lists that it does not take (several types, integers, shapes that differ) go tensor by tensor, as
// torch does it for every device.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/native.h"
#include "ops/tensors.h"

namespace torch_npu {
namespace {

using c10::IValue;

enum class Form : uint8_t {
  kLists,    // the arguments in their order, then the results
  kNorm,     // so, and each result is one number
  kCopy,     // the second list, then the first, which is written
  kWritten,  // one list, which is written
};

// The operator of torch, without the "_" of its form in place, and the operator of the device.
struct Row {
  const char* name;
  const char* overload;
  const char* function;
  Form form = Form::kLists;
};

constexpr Row kRows[] = {
    {"_foreach_abs", "", "aclnnForeachAbs"},
    {"_foreach_acos", "", "aclnnForeachAcos"},
    {"_foreach_add", "List", "aclnnForeachAddListV2"},
    {"_foreach_add", "Scalar", "aclnnForeachAddScalarV2"},
    {"_foreach_add", "ScalarList", "aclnnForeachAddScalarList"},
    {"_foreach_addcdiv", "Scalar", "aclnnForeachAddcdivScalarV2"},
    {"_foreach_addcmul", "Scalar", "aclnnForeachAddcmulScalarV2"},
    {"_foreach_asin", "", "aclnnForeachAsin"},
    {"_foreach_atan", "", "aclnnForeachAtan"},
    {"_foreach_clamp_max", "List", "aclnnForeachMinimumList"},
    {"_foreach_clamp_max", "Scalar", "aclnnForeachMinimumScalarV2"},
    {"_foreach_clamp_max", "ScalarList", "aclnnForeachMinimumScalarList"},
    {"_foreach_clamp_min", "List", "aclnnForeachMaximumList"},
    {"_foreach_clamp_min", "Scalar", "aclnnForeachMaximumScalarV2"},
    {"_foreach_clamp_min", "ScalarList", "aclnnForeachMaximumScalarList"},
    {"_foreach_copy_", "", "aclnnForeachCopy", Form::kCopy},
    {"_foreach_cos", "", "aclnnForeachCos"},
    {"_foreach_cosh", "", "aclnnForeachCosh"},
    {"_foreach_div", "List", "aclnnForeachDivList"},
    {"_foreach_div", "Scalar", "aclnnForeachDivScalarV2"},
    {"_foreach_div", "ScalarList", "aclnnForeachDivScalarList"},
    {"_foreach_div", "Tensor", "aclnnForeachDivScalar"},
    {"_foreach_erf", "", "aclnnForeachErf"},
    {"_foreach_erfc", "", "aclnnForeachErfc"},
    {"_foreach_exp", "", "aclnnForeachExp"},
    {"_foreach_expm1", "", "aclnnForeachExpm1"},
    {"_foreach_lerp", "List", "aclnnForeachLerpList"},
    {"_foreach_lerp", "Scalar", "aclnnForeachLerpScalar"},
    {"_foreach_log", "", "aclnnForeachLog"},
    {"_foreach_log10", "", "aclnnForeachLog10"},
    {"_foreach_log1p", "", "aclnnForeachLog1p"},
    {"_foreach_log2", "", "aclnnForeachLog2"},
    {"_foreach_maximum", "List", "aclnnForeachMaximumList"},
    {"_foreach_maximum", "Scalar", "aclnnForeachMaximumScalarV2"},
    {"_foreach_maximum", "ScalarList", "aclnnForeachMaximumScalarList"},
    {"_foreach_minimum", "List", "aclnnForeachMinimumList"},
    {"_foreach_minimum", "Scalar", "aclnnForeachMinimumScalarV2"},
    {"_foreach_minimum", "ScalarList", "aclnnForeachMinimumScalarList"},
    {"_foreach_mul", "List", "aclnnForeachMulList"},
    {"_foreach_mul", "Scalar", "aclnnForeachMulScalarV2"},
    {"_foreach_mul", "ScalarList", "aclnnForeachMulScalarList"},
    {"_foreach_mul", "Tensor", "aclnnForeachMulScalar"},
    {"_foreach_neg", "", "aclnnForeachNeg"},
    {"_foreach_norm", "Scalar", "aclnnForeachNorm", Form::kNorm},
    {"_foreach_pow", "List", "aclnnForeachPowList"},
    {"_foreach_pow", "Scalar", "aclnnForeachPowScalarV2"},
    {"_foreach_pow", "ScalarAndTensor", "aclnnForeachPowScalarAndTensor"},
    {"_foreach_pow", "ScalarList", "aclnnForeachPowScalarList"},
    {"_foreach_reciprocal", "", "aclnnForeachReciprocal"},
    {"_foreach_sigmoid", "", "aclnnForeachSigmoid"},
    {"_foreach_sign", "", "aclnnForeachSign"},
    {"_foreach_sin", "", "aclnnForeachSin"},
    {"_foreach_sinh", "", "aclnnForeachSinh"},
    {"_foreach_sqrt", "", "aclnnForeachSqrt"},
    {"_foreach_sub", "List", "aclnnForeachSubListV2"},
    {"_foreach_sub", "Scalar", "aclnnForeachSubScalarV2"},
    {"_foreach_sub", "ScalarList", "aclnnForeachSubScalarList"},
    {"_foreach_tan", "", "aclnnForeachTan"},
    {"_foreach_tanh", "", "aclnnForeachTanh"},
    {"_foreach_zero_", "", "aclnnForeachZeroInplace", Form::kWritten},
};

// One call. The lists live as long as it does.
class ForeachCall {
 public:
  ForeachCall(const Row& row, const std::string& name) : row_(row), call_(row.function, name.c_str()) {}

  bool Launch(const c10::FunctionSchema& schema, c10::ArrayRef<IValue> arguments) {
    is_in_place_ = schema.returns().empty();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!Read(arguments[i])) return false;
    }
    if (lists_.empty() || !Fits()) return false;
    if (row_.form == Form::kCopy) {
      call_.Tensors(lists_[1]);
      return call_.Tensors(lists_[0]).Launch();
    }
    size_t list = 0;
    for (const IValue& value : arguments) {
      if (value.isTensorList()) {
        call_.Tensors(lists_[list++]);
      } else if (value.isTensor()) {
        call_.Tensor(value.toTensor());
      } else if (value.isScalar()) {
        call_.Number(value.toScalar());
      } else if (value.isList()) {
        call_.Numbers(numbers_);
      }
    }
    if (row_.form == Form::kWritten) return call_.Launch();
    return call_.Tensors(is_in_place_ ? lists_[0] : MakeResults()).Launch();
  }

  const std::vector<at::Tensor>& results() const { return results_; }

 private:
  // Also false for what would need arithmetic of its own: complex numbers, a type of the result, another alpha.
  bool Read(const IValue& value) {
    if (value.isTensorList()) {
      lists_.push_back(value.toTensorVector());
      return !lists_.back().empty() && lists_.back().size() == lists_[0].size();
    }
    if (value.isTensor()) {
      other_ = value.toTensor();
      return other_.device().type() == c10::kPrivateUse1 && other_.dim() == 0;
    }
    if (value.isScalar()) return IsReal(value.toScalar());
    if (value.isList()) {
      for (const IValue& item : value.toListRef()) {
        if (!item.isScalar() || !IsReal(item.toScalar())) return false;
        numbers_.push_back(item.toScalar());
      }
      return true;
    }
    return value.isNone() || (value.isBool() && row_.form == Form::kCopy);
  }

  static bool IsReal(const at::Scalar& number) { return number.isFloatingPoint() || number.isIntegral(false); }

  // One floating type and device; what stands in one place of the lists has one shape, or is one number.
  bool Fits() {
    const at::Tensor& first = lists_[0][0];
    if (!c10::isFloatingType(first.scalar_type()) || first.device().type() != c10::kPrivateUse1) return false;
    if (other_.defined() && other_.scalar_type() != first.scalar_type()) return false;
    if (!numbers_.empty() && numbers_.size() != lists_[0].size()) return false;
    for (std::vector<at::Tensor>& list : lists_) {
      for (size_t i = 0; i < list.size(); ++i) {
        at::Tensor& tensor = list[i];
        const at::Tensor& wanted = lists_[0][i];
        if (tensor.scalar_type() != first.scalar_type() || tensor.device() != first.device()) return false;
        if (tensor.sizes() == wanted.sizes()) continue;
        if (tensor.dim() != 0 || row_.form == Form::kCopy) return false;
        tensor = tensor.expand_as(wanted);
      }
    }
    return true;
  }

  const std::vector<at::Tensor>& MakeResults() {
    results_.reserve(lists_[0].size());
    for (const at::Tensor& tensor : lists_[0]) {
      results_.push_back(row_.form == Form::kNorm ? at::empty({}, tensor.options()) : at::empty_like(tensor));
    }
    return results_;
  }

  const Row& row_;
  NativeCall call_;
  bool is_in_place_ = false;
  at::Tensor other_;
  std::vector<std::vector<at::Tensor>> lists_;
  std::vector<at::Scalar> numbers_;
  std::vector<at::Tensor> results_;
};

class Foreach final : public c10::OperatorKernel {
 public:
  Foreach(const Row& row, std::string name) : row_(row), name_(std::move(name)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) const {
    const size_t count = op.schema().arguments().size();
    ForeachCall call(row_, name_);
    if (!call.Launch(op.schema(), torch::jit::last(*stack, count))) {
      // The kernel of the CPU calls the operators of the tensors one by one, of whatever device.
      return op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    }
    torch::jit::drop(*stack, count);
    if (!op.schema().returns().empty()) torch::jit::push(*stack, call.results());
  }

 private:
  const Row& row_;
  std::string name_;
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  const auto add = [&](const Row& row, const std::string& name) {
    const std::string full = row.overload[0] == '\0' ? name : name + "." + row.overload;
    if (!c10::Dispatcher::singleton().findSchema({"aten::" + name, row.overload}).has_value()) return;
    m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Foreach>(row, "aten::" + full)));
  };
  for (const Row& row : kRows) {
    const std::string name = row.name;
    add(row, name);
    if (name.back() != '_') add(row, name + "_");
  }
}

}  // namespace
}  // namespace torch_npu
