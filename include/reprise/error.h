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

/** One refusal, as a line of REPRISE_ERROR_JSON shows it. What is empty is left out, or stands there empty. */
struct Refusal {
  std::string call;     ///< function that refuses
  int code = 0;         ///< ACL_ERROR_…
  std::string cause;    ///< one sentence
  std::string culprit;  ///< object or call to blame
  std::string hint;     ///< next step
  std::string kind;     ///< type of the exception, for languages that have them
  std::string stream;   ///< on which the caller works
  std::string place;    ///< file:line of the caller
};

/** Completes a refusal, and puts its words as the caller's language has them. */
using RefusalDescriber = void (*)(Refusal&);

/** Asked on the thread that is refused, without locks of the runtime, before each line is written; null: nobody. */
void SetRefusalDescriber(RefusalDescriber describer) noexcept;

/** Whether REPRISE_ERROR_JSON names a file: whoever refuses by itself need not collect words otherwise. */
bool WritesRefusals() noexcept;

/** Writes a line for a refusal that this library knows nothing of; calls of this library write theirs by themselves. */
void WriteRefusal(const Refusal& refusal) noexcept;

}  // namespace reprise

#endif  // REPRISE_ERROR_H_
