// SPDX-License-Identifier: Apache-2.0
//
// Scanning texts: the C library reads numbers, field by field; texts are read here, where their sizes are known.
#include <cctype>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "securec.h"

namespace {

// A va_list that functions can share.
struct Arguments {
  va_list list;
};

// One conversion of a format, %… with its parts.
struct Field {
  bool assigned = true;
  size_t width = 0;  // 0: none was given
  std::string length;
  char conversion = 0;
  bool members[UCHAR_MAX + 1] = {};  // of a set
};

// Reads the field behind a '%'; null when the format makes no sense.
const char* ReadField(const char* at, Field& field) {
  if (*at == '*') {
    field.assigned = false;
    ++at;
  }
  for (; std::isdigit(static_cast<unsigned char>(*at)) != 0; ++at) {
    field.width = field.width * 10 + static_cast<size_t>(*at - '0');
    if (field.width > SECUREC_STRING_MAX_LEN) return nullptr;
  }
  while (*at != '\0' && std::strchr("hlqLjzt", *at) != nullptr) field.length += *at++;
  field.conversion = *at;
  if (*at == '\0' || std::strchr("diouxXpaAeEfFgGcsn[%", *at) == nullptr) return nullptr;
  ++at;
  if (field.conversion != '[') return at;
  const bool inverted = *at == '^';
  if (inverted) ++at;
  for (bool first = true; first || *at != ']'; first = false) {
    const auto from = static_cast<unsigned char>(*at);
    if (from == 0) return nullptr;
    auto to = from;
    if (at[1] == '-' && at[2] != ']' && at[2] != '\0' && static_cast<unsigned char>(at[2]) >= from) {
      to = static_cast<unsigned char>(at[2]);
      at += 2;
    }
    for (unsigned c = from; c <= to; ++c) field.members[c] = true;
    ++at;
  }
  if (inverted) {
    for (bool& member : field.members) member = !member;
  }
  field.members[0] = false;
  return at + 1;
}

bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

enum class Outcome { kRead, kNoMatch, kEnd, kTooLong, kBadFormat };

// %s, %c, %[: moves `at` behind what was read.
Outcome ReadText(const char*& at, const Field& field, Arguments& arguments) {
  if (!field.length.empty()) return Outcome::kBadFormat;  // wide characters
  char* const dest = field.assigned ? va_arg(arguments.list, char*) : nullptr;
  const size_t room = field.assigned ? va_arg(arguments.list, size_t) : 0;
  if (field.assigned && (dest == nullptr || room == 0)) return Outcome::kTooLong;
  if (field.conversion == 's') {
    while (IsSpace(*at)) ++at;
  }
  if (*at == '\0') return Outcome::kEnd;
  const bool is_char = field.conversion == 'c';
  const size_t most = field.width != 0 ? field.width : is_char ? 1 : SIZE_MAX;
  size_t length = 0;
  while (length < most && at[length] != '\0') {
    const char c = at[length];
    if (field.conversion == 's' ? IsSpace(c) : !is_char && !field.members[static_cast<unsigned char>(c)]) break;
    ++length;
  }
  if (length == 0) return Outcome::kNoMatch;
  if (is_char && length < most) return Outcome::kEnd;
  if (field.assigned) {
    const size_t needed = is_char ? length : length + 1;
    if (needed > room) {
      *dest = '\0';
      return Outcome::kTooLong;
    }
    std::memcpy(dest, at, length);
    if (!is_char) dest[length] = '\0';
  }
  at += length;
  return Outcome::kRead;
}

Outcome ReadNumber(const char*& at, const Field& field, Arguments& arguments) {
  void* const dest = field.assigned ? va_arg(arguments.list, void*) : nullptr;
  if (field.assigned && dest == nullptr) return Outcome::kBadFormat;
  while (IsSpace(*at)) ++at;
  if (*at == '\0') return Outcome::kEnd;
  std::string format = field.assigned ? "%" : "%*";
  if (field.width != 0) format += std::to_string(field.width);
  format += field.length + field.conversion + "%n";
  int consumed = -1;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  const int read =
      field.assigned ? std::sscanf(at, format.c_str(), dest, &consumed) : std::sscanf(at, format.c_str(), &consumed);
#pragma GCC diagnostic pop
  if (consumed < 0) return read < 0 ? Outcome::kEnd : Outcome::kNoMatch;
  at += consumed;
  return Outcome::kRead;
}

void StoreCount(size_t count, const Field& field, Arguments& arguments) {
  void* const dest = va_arg(arguments.list, void*);
  if (dest == nullptr) return;
  const std::string& length = field.length;
  if (length == "hh") {
    *static_cast<signed char*>(dest) = static_cast<signed char>(count);
  } else if (length == "h") {
    *static_cast<short*>(dest) = static_cast<short>(count);
  } else if (length.empty()) {
    *static_cast<int*>(dest) = static_cast<int>(count);
  } else {
    *static_cast<long*>(dest) = static_cast<long>(count);
  }
}

int Scan(const char* buffer, const char* format, Arguments& arguments) {
  const char* at = buffer;
  int assigned = 0;
  bool converted = false;
  while (*format != '\0') {
    if (IsSpace(*format)) {
      while (IsSpace(*at)) ++at;
      ++format;
      continue;
    }
    if (*format != '%') {
      if (*at == '\0' && !converted) return EOF;
      if (*at != *format) return assigned;
      ++at;
      ++format;
      continue;
    }
    Field field;
    format = ReadField(format + 1, field);
    if (format == nullptr) return converted ? assigned : -1;
    if (field.conversion == 'n') {
      if (field.assigned) StoreCount(static_cast<size_t>(at - buffer), field, arguments);
      continue;
    }
    if (field.conversion == '%') {
      while (IsSpace(*at)) ++at;
      if (*at == '\0' && !converted) return EOF;
      if (*at != '%') return assigned;
      ++at;
      continue;
    }
    const bool is_text = std::strchr("sc[", field.conversion) != nullptr;
    switch (is_text ? ReadText(at, field, arguments) : ReadNumber(at, field, arguments)) {
      case Outcome::kRead: break;
      case Outcome::kEnd: return converted ? assigned : EOF;
      case Outcome::kBadFormat: return converted ? assigned : -1;
      case Outcome::kNoMatch:
      case Outcome::kTooLong: return assigned;
    }
    converted = true;
    if (field.assigned) ++assigned;
  }
  return assigned;
}

}  // namespace

int vsscanf_s(const char* buffer, const char* format, va_list argList) try {
  if (buffer == nullptr || format == nullptr) return -1;
  Arguments arguments;
  va_copy(arguments.list, argList);
  const int assigned = Scan(buffer, format, arguments);
  va_end(arguments.list);
  return assigned;
} catch (...) {  // no memory for a few letters
  return -1;
}

int sscanf_s(const char* buffer, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int assigned = vsscanf_s(buffer, format, arguments);
  va_end(arguments);
  return assigned;
}
