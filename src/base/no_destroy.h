// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace reprise {

/// An object that lives as long as the process: code of users may need it in static destructors. As a constinit static
/// it costs nothing to reach, not even the guard that other static locals of functions have.
template <class T>
union NoDestroy {
  T value;

  constexpr NoDestroy() : value() {}
  NoDestroy(const NoDestroy&) = delete;
  NoDestroy& operator=(const NoDestroy&) = delete;
  ~NoDestroy() {}  // NOLINT: that of a union with such a member is deleted unless written
};

}  // namespace reprise
