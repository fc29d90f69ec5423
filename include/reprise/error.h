/* SPDX-License-Identifier: Apache-2.0
 *
 * What the C++ interface throws. The C interface returns the same numbers.
 */
#ifndef REPRISE_ERROR_H_
#define REPRISE_ERROR_H_

#include <stdexcept>
#include <string>
#include <utility>

namespace reprise {

/** A refused call. what() is the whole message: number, cause, culprit, next step. */
class Exception : public std::runtime_error {
 public:
  Exception(int code, const std::string& message, std::string cause, std::string culprit, std::string hint)
      : std::runtime_error(message),
        code_(code),
        cause_(std::move(cause)),
        culprit_(std::move(culprit)),
        hint_(std::move(hint)) {}

  int code() const noexcept { return code_; }                       ///< ACL_ERROR_…, never 0
  const std::string& cause() const noexcept { return cause_; }      ///< one sentence
  const std::string& culprit() const noexcept { return culprit_; }  ///< object or call to blame; may be empty
  const std::string& hint() const noexcept { return hint_; }        ///< next step; may be empty

 private:
  int code_;
  std::string cause_, culprit_, hint_;
};

/** The device (or the limit set for it) has no room; the message says who holds what, and what would free it. */
class OutOfMemory : public Exception {
 public:
  using Exception::Exception;
};

}  // namespace reprise

#endif  // REPRISE_ERROR_H_
