// SPDX-License-Identifier: Apache-2.0
//
// Text that a handler of signals puts together: no memory of the heap, no locks, no locale.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace reprise {

/// What does not fit is left out.
class SignalText {
 public:
  SignalText& operator<<(std::string_view text) noexcept {
    for (const char c : text) Put(c);
    return *this;
  }
  SignalText& operator<<(char c) noexcept {
    Put(c);
    return *this;
  }
  SignalText& operator<<(const char* text) noexcept {
    return *this << (text != nullptr ? std::string_view(text) : std::string_view("?"));
  }
  SignalText& operator<<(int64_t value) noexcept {
    if (value < 0) Put('-');
    return Digits(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value), 10, 1);
  }
  SignalText& operator<<(int value) noexcept { return *this << int64_t{value}; }
  SignalText& operator<<(uint32_t value) noexcept { return Digits(value, 10, 1); }
  SignalText& operator<<(uint64_t value) noexcept { return Digits(value, 10, 1); }
  SignalText& operator<<(const void* address) noexcept { return Hex(reinterpret_cast<uintptr_t>(address)); }
  SignalText& Hex(uint64_t value, int digits = 1) noexcept { return (*this << "0x").Digits(value, 16, digits); }

  std::string_view view() const noexcept { return {text_, size_}; }
  void WriteTo(int fd) const noexcept {
    for (size_t at = 0; at < size_;) {
      const ssize_t written = ::write(fd, text_ + at, size_ - at);
      if (written <= 0) return;
      at += static_cast<size_t>(written);
    }
  }

 private:
  void Put(char c) noexcept {
    if (size_ < sizeof text_) text_[size_++] = c;
  }
  SignalText& Digits(uint64_t value, unsigned base, int least) noexcept {
    char digits[24];
    int count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0 || count < least);
    while (count != 0) Put(digits[--count]);
    return *this;
  }

  size_t size_ = 0;
  char text_[6144];
};

}  // namespace reprise
