// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/settings.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

// What a parameter gets that nobody set; its default stands in the table as text.
StepArgument DefaultOf(const Param& param) {
  const std::string_view text = param.default_value;
  const auto number = [&](auto value) {
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  switch (param.kind) {
    case ParamKind::kInt:
    case ParamKind::kDType: return number(int64_t{0});
    case ParamKind::kBool: return text == "true";
    case ParamKind::kReal: return number(0.0);
    case ParamKind::kString:
      if (text.empty() || text == "null") return nullptr;
      return std::string(text);
    default: return nullptr;
  }
}

}  // namespace

Status StepWith(NamedCall& call, std::string_view function, std::span<const Setting> settings) {
  const Routine routine = Routine::Of(function);
  std::vector<StepArgument> arguments;
  arguments.reserve(routine.params.size());
  size_t used = 0;
  for (const Param& param : routine.params) {
    const auto setting =
        std::find_if(settings.begin(), settings.end(), [&](const Setting& known) { return known.name == param.name; });
    used += setting != settings.end() ? 1 : 0;
    arguments.push_back(setting != settings.end() ? setting->value : DefaultOf(param));
  }
  if (used == settings.size()) return call.Step(routine, arguments);
  return Error(kInternalError,
               fmt::format("{}: {} has no parameter of one of the names that were set", call.op.type, function))
      .Hint("this is a defect of the library");
}

StepArgument OptionalInput(const NamedCall& call, std::string_view name) {
  if (!call.Has(name)) return nullptr;
  return call.Input(name).view();
}

StepArgument OptionalOutput(const NamedCall& call, std::string_view name) {
  if (!call.Wants(name)) return nullptr;
  return call.Output(name).view();
}

StridedView Permuted(const StridedView& view, std::span<const size_t> order) {
  StridedView out = view;
  for (size_t d = 0; d < order.size(); ++d) {
    out.sizes[d] = view.sizes[order[d]];
    out.strides[d] = view.strides[order[d]];
  }
  return out;
}

StridedView Placeholder(NamedCall& call, kernels::DType dtype, std::span<const int64_t> sizes) {
  constexpr int64_t kOne[1] = {1};
  StridedView view = StridedView::Of(dtype, sizes, call.Temporary(dtype, kOne).data);
  std::fill(view.strides.begin(), view.strides.end(), 0);
  return view;
}

StatusOr<StridedView> Converted(NamedCall& call, const StridedView& view, kernels::DType dtype) {
  if (view.dtype == dtype) return view;
  const StridedView copy = call.Temporary(dtype, view.sizes);
  REPRISE_RETURN_IF_ERROR(CopyTo(call, view, copy));
  return copy;
}

Status CopyTo(NamedCall& call, const StridedView& from, const StridedView& to) { return call.Step(kCopy, {from, to}); }

}  // namespace reprise::ops::named
