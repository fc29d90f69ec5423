// SPDX-License-Identifier: Apache-2.0
//
// What the value classes of the C++ API throw. The text is that of aclGetRecentErrMsg in one line: what happened, who
// is to blame, what to do next.
#ifndef REPRISE_EXCEPTION_H_
#define REPRISE_EXCEPTION_H_

#include <stdexcept>
#include <string>

namespace reprise {

class Exception : public std::runtime_error {
 public:
  Exception(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  /// The public error number; see docs/errors.md.
  int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace reprise

#endif  // REPRISE_EXCEPTION_H_
