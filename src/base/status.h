// SPDX-License-Identifier: Apache-2.0
//
// Status: the result of every core function that can fail.
//
// A failed Status carries the public error number (for example 107027) and the words that a person needs: what
// happened, which object is the culprit, and what to do next. The core never prints; the C facades turn a Status into
// the number they return and the text that aclGetRecentErrMsg hands out.
//
//     if (stream.is_capturing()) {
//       return Error(kStreamCaptured, "stream 3 is being captured")
//           .Culprit("capture of model 7, begun by thread 4711 on stream 3")
//           .Hint("end the capture with aclmdlRICaptureEnd, or synchronise another stream");
//     }
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace reprise {

/// The public error numbers by name: kStreamCaptured is 107027. The table is errors.def.
inline namespace errors {
#define REPRISE_ERROR(number, code, name, category, title, solution) inline constexpr int number = code;
#include "base/errors.def"
#undef REPRISE_ERROR
}  // namespace errors

/// Result of a fallible call; null (one pointer) when it succeeded.
///
/// Threads: thread-compatible.
class [[nodiscard]] Status {
 public:
  struct Detail {
    int code = 0;         ///< public error number, never 0
    std::string what;     ///< one sentence, lower case, with the numbers
    std::string culprit;  ///< object or call that is to blame, and where it came from; may be empty
    std::string hint;     ///< next step; may be empty where the error table has general advice, which is shown then
    const char* function = "";
    const char* file = "";
    int line = 0;
  };

  Status() noexcept = default;
  explicit Status(Detail detail) : detail_(std::make_unique<Detail>(std::move(detail))) {}
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const noexcept { return detail_ == nullptr; }
  int code() const noexcept { return detail_ ? detail_->code : 0; }
  /// Only when !ok().
  const Detail& detail() const noexcept { return *detail_; }

  Status Culprit(std::string text) && {
    detail_->culprit = std::move(text);
    return std::move(*this);
  }
  Status Hint(std::string text) && {
    detail_->hint = std::move(text);
    return std::move(*this);
  }
  /// For an error that is reported at two places (an asynchronous one).
  Status Clone() const { return ok() ? Status() : Status(*detail_); }

 private:
  std::unique_ptr<Detail> detail_;
};

/// A failed Status. The location defaults to the caller's (clang 14 lacks <source_location>).
Status Error(int code, std::string what, const char* function = __builtin_FUNCTION(),
             const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// A value or the reason why there is none.
template <class T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {}  // NOLINT: implicit, so that `return Error(…)` reads well
  StatusOr(T value) : value_(std::move(value)) {}          // NOLINT
  bool ok() const noexcept { return status_.ok(); }
  Status&& status() && noexcept { return std::move(status_); }
  T& value() & noexcept { return value_; }
  T&& value() && noexcept { return std::move(value_); }
  T* operator->() noexcept { return &value_; }
  T& operator*() noexcept { return value_; }

 private:
  Status status_;
  T value_{};
};

#define REPRISE_CONCAT_INNER_(a, b) a##b
#define REPRISE_CONCAT_(a, b) REPRISE_CONCAT_INNER_(a, b)

#define REPRISE_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                          \
    if (::reprise::Status reprise_status = (expr); !reprise_status.ok()) return reprise_status; \
  } while (false)

/// REPRISE_ASSIGN_OR_RETURN(auto* stream, FindStream(handle));
#define REPRISE_ASSIGN_OR_RETURN(lhs, expr)                                                                            \
  auto REPRISE_CONCAT_(reprise_or_, __LINE__) = (expr);                                                                \
  if (!REPRISE_CONCAT_(reprise_or_, __LINE__).ok()) return std::move(REPRISE_CONCAT_(reprise_or_, __LINE__)).status(); \
  lhs = std::move(REPRISE_CONCAT_(reprise_or_, __LINE__)).value()

/// One row of the error table (errors.def).
struct ErrorInfo {
  int code;
  std::string_view name;      ///< ACL_ERROR_RT_…
  std::string_view category;  ///< EE1001 …, the message code that tools search for
  std::string_view title;     ///< a few words
  std::string_view solution;  ///< general advice, used when the error has no hint of its own; may be empty
};

/// The row for `code`; a generic one for a number that the table does not list.
const ErrorInfo& FindErrorInfo(int code) noexcept;
/// What to do about it: the hint, or the table's advice.
std::string_view SolutionOf(const Status::Detail& detail) noexcept;

}  // namespace reprise
