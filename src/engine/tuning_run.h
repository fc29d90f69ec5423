// SPDX-License-Identifier: Apache-2.0
//
// What a tuning shows while it lasts, and how it is interrupted.
#pragma once

#include <chrono>
#include <csignal>
#include <string>

namespace reprise::engine {

/// SIGINT, held back while this lives, and raised again behind it. One at a time in the process.
class HeldInterrupt {
 public:
  HeldInterrupt();
  ~HeldInterrupt();
  HeldInterrupt(const HeldInterrupt&) = delete;
  HeldInterrupt& operator=(const HeldInterrupt&) = delete;
  static bool came();

 private:
  struct sigaction before_ {};
};

/// One line on standard error that is written over again; nothing where that is no terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void Show(size_t done, size_t total, const std::string& what);
  /// "tuning [####......] 4/10, about 12 s left: MatMulV2", at most `width` columns.
  static std::string Text(size_t done, size_t total, double elapsed_s, const std::string& what, size_t width);

 private:
  const bool is_terminal_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace reprise::engine
