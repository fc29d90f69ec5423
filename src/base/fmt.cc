// SPDX-License-Identifier: Apache-2.0
// The code of fmt, once for each library and test program. Compiled into every source (FMT_HEADER_ONLY), it was two
// thirds of the time that an instrumented build takes. Hidden, so that no other fmt in the process meets it.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// What fmt/format.h declares for char and leaves to one source to define.
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
