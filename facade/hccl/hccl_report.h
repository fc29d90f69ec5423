// SPDX-License-Identifier: Apache-2.0
//
// What the functions of libhccl.so have in common: their numbers are not those of the runtime.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "collective/communicator.h"
#include "collective/numbers.h"
#include "hccl/hccl_types.h"
#include "runtime/report.h"

namespace reprise::hccl {

/// An error of the runtime below is HCCL_E_RUNTIME, with its words.
inline Status AsCollective(Status status) {
  if (status.ok() || status.code() < 1000) return status;
  Status::Detail detail = status.detail();
  detail.what = fmt::format("{} ({})", detail.what, detail.code);
  if (detail.hint.empty()) detail.hint = std::string(SolutionOf(status.detail()));
  detail.code = collective::kRuntime;
  return Status(std::move(detail));
}

/// Body of a function of the library.
template <class Body>
HcclResult Api(const char* api, Body body) noexcept {
  if (collective::IsForkedChild()) [[unlikely]] {
    return static_cast<HcclResult>(
        runtime::Report(api, Error(collective::kUnavailable, "this process was forked from one that has communicators")
                                 .Culprit("the call of fork")
                                 .Hint("make communicators in the process that uses them")));
  }
  return static_cast<HcclResult>(runtime::Api(api, [&]() -> Status { return AsCollective(body()); }));
}

inline Status NotNull(const void* pointer, const char* parameter) {
  if (pointer != nullptr) [[likely]]
    return {};
  return Error(collective::kPointer, fmt::format("{} is null", parameter))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass the address of a variable, or a live handle");
}

}  // namespace reprise::hccl
