// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets share. Each target is one file with LLVMFuzzerTestOneInput; libFuzzer calls it with inputs of
// its own making (make fuzz), replay_main.cc with those of the corpus (make test).
#pragma once

#include <acl/acl.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace reprise::fuzz {

/// Ends the process: what libFuzzer calls a crash.
[[noreturn]] inline void Found(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::fflush(nullptr);
  std::abort();
}

/// A refusal must come with a message that carries its number and says what to do.
/// With REPRISE_FUZZ_TRACE=1 each call is printed, to see what an input does.
inline int Checked(const char* call, int got) {
  static const bool trace = std::getenv("REPRISE_FUZZ_TRACE") != nullptr;
  if (trace) std::fprintf(stderr, "%d = %s\n", got, call);
  if (got == 0) return 0;
  const char* message = aclGetRecentErrMsg();
  const std::string text = message != nullptr ? message : "";
  if (text.find("(" + std::to_string(got) + ")") == std::string::npos || text.find("Solution: ") == std::string::npos) {
    Found(std::string(call) + " returned " + std::to_string(got) + " with the message: " + text);
  }
  return got;
}

/// A call whose arguments are evaluated from left to right, as only braces promise.
struct Ordered {
  template <class Function, class... Arguments>
  Ordered(const char* name, Function function, Arguments... arguments)
      : result(Checked(name, function(arguments...))) {}
  int result;
};

/// For steps that no input may spoil.
inline void Must(const char* call, int got) {
  if (got == 0) return;
  const char* message = aclGetRecentErrMsg();
  Found(std::string(call) + " returned " + std::to_string(got) + ": " + (message != nullptr ? message : ""));
}

/// The bytes of an input, one after the other; zeros behind its end.
class Input {
 public:
  Input(const uint8_t* data, size_t bytes) : at_(data), left_(bytes) {}

  bool empty() const { return left_ == 0; }
  size_t left() const { return left_; }
  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  uint32_t Below(uint32_t limit) { return limit <= 256 ? Byte() % limit : Number<uint32_t>() % limit; }
  template <class T>
  T Number() {
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>((static_cast<uint64_t>(value) << 8) | Byte());
    return value;
  }
  /// Mostly one of the usual values 0 … usual - 1, sometimes any number.
  uint32_t Usual(uint32_t usual) {
    const uint8_t byte = Byte();
    return byte < 240 ? byte % usual : Number<uint32_t>();
  }
  std::string Text(size_t most) {
    const size_t bytes = most < left_ ? most : left_;
    std::string text(reinterpret_cast<const char*>(at_), bytes);
    at_ += bytes;
    left_ -= bytes;
    return text;
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

}  // namespace reprise::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
