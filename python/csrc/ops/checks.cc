// SPDX-License-Identifier: Apache-2.0
#include "ops/checks.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "ops/values.h"

namespace torch_npu {
namespace {

using Values = c10::ArrayRef<c10::IValue>;

bool IsGiven(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

void CheckMoments(Values arguments) {
  const at::ScalarType type = arguments[0].toTensor().scalar_type();
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "std and var only support floating point and complex dtypes, got ", type);
}

void CheckFactors(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", a.scalar_type(), " != ", b.scalar_type());
}

void CheckProduct(Values arguments) { CheckFactors(arguments[0].toTensor(), arguments[1].toTensor()); }
void CheckAddedProduct(Values arguments) { CheckFactors(arguments[1].toTensor(), arguments[2].toTensor()); }

template <bool is_max>
void CheckOfAll(Values arguments) {
  if (arguments.size() == 1 || (arguments.size() == 2 && IsGiven(arguments[1]))) {  // not of a dimension
    TORCH_CHECK(arguments[0].toTensor().numel() != 0, is_max ? "max" : "min",
                "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
                "the 'dim' argument.");
  }
}

// The dimension behind the tensor, or behind the number `dim_at` - 1.
void CheckHasElements(Values arguments, size_t dim_at, const char* name) {
  if (arguments.size() <= dim_at || !arguments[dim_at].isInt()) return;
  const at::Tensor& self = arguments[0].toTensor();
  int64_t dim = arguments[dim_at].toInt();
  if (self.dim() == 0 || dim < -self.dim() || dim >= self.dim()) return;  // said by others
  if (dim < 0) dim += self.dim();
  TORCH_CHECK_INDEX(self.size(dim) != 0, name, "(): Expected reduction dim ", dim, " to have non-zero size.");
}

void CheckMedian(Values arguments) { CheckHasElements(arguments, 1, "median"); }
void CheckMode(Values arguments) { CheckHasElements(arguments, 1, "mode"); }
void CheckKthValue(Values arguments) { CheckHasElements(arguments, 2, "kthvalue"); }

// out= has the type of the first argument; it is the last one.
void CheckOutLikeSelf(Values arguments) {
  const c10::IValue& last = arguments[arguments.size() - 1];
  if (arguments.size() < 2 || !IsGiven(last)) return;
  const at::Tensor& self = arguments[0].toTensor();
  TORCH_CHECK(last.toTensor().scalar_type() == self.scalar_type(), "Expected out tensor to have dtype ",
              self.scalar_type(), ", but got ", last.toTensor().scalar_type(), " instead");
}

void CheckIsNoTruth(Values arguments) {
  TORCH_CHECK(arguments[0].toTensor().scalar_type() != at::kBool, "Boolean inputs not supported for relu");
}

// index_select has a tensor in front of out=.
void CheckSelection(Values arguments) {
  TORCH_CHECK(arguments[0].toTensor().dim() != 0 || arguments[2].toTensor().numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", arguments[2].toTensor().numel(),
              " value(s)");
  if (arguments.size() == 4) CheckOutLikeSelf(arguments);
}

// Softmax has one flag, half_to_float, that makes its result wider.
void CheckOutOfSoftmax(Values arguments) {
  if (arguments.size() == 4 && !arguments[2].toBool()) CheckOutLikeSelf(arguments);
}

void CheckOutOfTruth(Values arguments) {
  const c10::IValue& last = arguments[arguments.size() - 1];
  if (arguments.size() < 2 || !IsGiven(last)) return;
  const at::ScalarType type = last.toTensor().scalar_type();
  TORCH_CHECK(type == at::kBool || type == at::kByte, "any and all only support bool tensors for results, got: ", type);
}

struct NamedCheck {
  std::string_view name;
  ArgumentCheck check;
};

constexpr NamedCheck kChecks[] = {
    {"std", CheckMoments},
    {"var", CheckMoments},
    {"std_mean", CheckMoments},
    {"var_mean", CheckMoments},
    {"mm", CheckProduct},
    {"bmm", CheckProduct},
    {"mv", CheckProduct},
    {"addmm", CheckAddedProduct},
    {"addbmm", CheckAddedProduct},
    {"addmv", CheckAddedProduct},
    {"baddbmm", CheckAddedProduct},
    {"max", CheckOfAll<true>},
    {"min", CheckOfAll<false>},
    {"median", CheckMedian},
    {"nanmedian", CheckMedian},
    {"mode", CheckMode},
    {"kthvalue", CheckKthValue},
    {"amax", CheckOutLikeSelf},
    {"amin", CheckOutLikeSelf},
    {"tril", CheckOutLikeSelf},
    {"triu", CheckOutLikeSelf},
    {"index_select", CheckSelection},
    {"relu", CheckIsNoTruth},
    {"_softmax", CheckOutOfSoftmax},
    {"_log_softmax", CheckOutOfSoftmax},
    {"any", CheckOutOfTruth},
    {"all", CheckOutOfTruth},
};

}  // namespace

ArgumentCheck FindCheck(std::string_view name) {
  if (name.ends_with('_')) name.remove_suffix(1);
  for (const NamedCheck& each : kChecks) {
    if (each.name == name) return each.check;
  }
  return nullptr;
}

}  // namespace torch_npu
