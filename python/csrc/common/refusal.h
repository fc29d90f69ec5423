// SPDX-License-Identifier: Apache-2.0
//
// Precompiled, so that it comes before every source of the extension: what the TORCH_CHECK_… of the extension refuse is
// written to REPRISE_ERROR_JSON, as what the runtime refuses is.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace torch_npu {

/// Writes a line for a c10::Error of this type that is about to be thrown; returns its words.
[[gnu::cold]] std::string NoteRefusal(const char* type, const char* function, std::string words) noexcept;

/// For one that torch has thrown in a call of ours: writes its line, unless NoteRefusal has.
[[gnu::cold]] void NoteError(const c10::Error& error, const char* function) noexcept;

}  // namespace torch_npu

#undef TORCH_CHECK_WITH_MSG
#define TORCH_CHECK_WITH_MSG(error_t, cond, type, ...)                                              \
  if (C10_UNLIKELY_OR_CONST(!(cond))) {                                                             \
    C10_THROW_ERROR(error_t, ::torch_npu::NoteRefusal(#error_t, static_cast<const char*>(__func__), \
                                                      TORCH_CHECK_MSG(cond, type, ##__VA_ARGS__))); \
  }
#undef TORCH_CHECK
#define TORCH_CHECK(cond, ...)                                                                          \
  if (C10_UNLIKELY_OR_CONST(!(cond))) {                                                                 \
    ::c10::detail::torchCheckFail(__func__, __FILE__, static_cast<uint32_t>(__LINE__),                  \
                                  ::torch_npu::NoteRefusal("Error", static_cast<const char*>(__func__), \
                                                           TORCH_CHECK_MSG(cond, "", ##__VA_ARGS__)));  \
  }
