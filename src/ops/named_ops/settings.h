// SPDX-License-Identifier: Apache-2.0
//
// Steps of operators by type that name the parameters of the aclnn function they run, and views that such steps need.
//
//     return StepWith(call, "aclnnGridSampler2D", {{"input", x}, {"grid", grid}, {"interpolationMode", int64_t{0}},
//     ...});
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "ops/named_ops/steps.h"

namespace reprise::ops::named {

/// A parameter by its name. Those that are not set are null, or have their default.
struct Setting {
  std::string_view name;
  StepArgument value;
};

/// Adds the step that an aclnn function is.
Status StepWith(NamedCall& call, std::string_view function, std::span<const Setting> settings);
inline Status StepWith(NamedCall& call, std::string_view function, std::initializer_list<Setting> settings) {
  return StepWith(call, function, std::span<const Setting>(settings.begin(), settings.size()));
}

/// The input, or null where it is left out.
StepArgument OptionalInput(const NamedCall& call, std::string_view name);
/// The output, or null where nobody wants it.
StepArgument OptionalOutput(const NamedCall& call, std::string_view name);

// ---- Views ----

/// Dims in another order.
StridedView Permuted(const StridedView& view, std::span<const size_t> order);
/// Memory of the call for a parameter that is looked at for its shape alone.
StridedView Placeholder(NamedCall& call, kernels::DType dtype, std::span<const int64_t> sizes);
/// The same numbers in another type: the view itself, or a copy.
StatusOr<StridedView> Converted(NamedCall& call, const StridedView& view, kernels::DType dtype);
/// Numbers into a view, converted to its type.
Status CopyTo(NamedCall& call, const StridedView& from, const StridedView& to);

}  // namespace reprise::ops::named
