// SPDX-License-Identifier: Apache-2.0
//
// Scanning texts: the C library reads numbers, field by field; texts are read here, where their sizes are known.
#include <cctype>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

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

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"

enum class Outcome { kRead, kNoMatch, kEnd, kTooLong, kBadFormat };

// Where characters come from: the next one, or EOF.
class TextSource {
 public:
  explicit TextSource(const char* text) : at_(text), begin_(text) {}
  int Peek() const { return *at_ != '\0' ? static_cast<unsigned char>(*at_) : EOF; }
  void Skip() { ++at_; }
  size_t count() const { return static_cast<size_t>(at_ - begin_); }

  // `format` is a number and %n, for `dest` (null: read over) and an int. What the C library says.
  int ReadNumber(const char* format, void* dest, int* consumed) {
    const int read = dest != nullptr ? std::sscanf(at_, format, dest, consumed) : std::sscanf(at_, format, consumed);
    if (*consumed > 0) at_ += *consumed;
    return read;
  }

 private:
  const char* at_;
  const char* const begin_;
};

class FileSource {
 public:
  explicit FileSource(FILE* file) : file_(file) {}
  int Peek() {
    const int c = std::getc(file_);
    return c != EOF ? std::ungetc(c, file_) : EOF;
  }
  void Skip() {
    (void)std::getc(file_);
    ++count_;
  }
  size_t count() const { return count_; }
  int ReadNumber(const char* format, void* dest, int* consumed) {
    const int read =
        dest != nullptr ? std::fscanf(file_, format, dest, consumed) : std::fscanf(file_, format, consumed);
    if (*consumed > 0) count_ += static_cast<size_t>(*consumed);
    return read;
  }

 private:
  FILE* const file_;
  size_t count_ = 0;
};

#pragma GCC diagnostic pop

template <class Source>
void SkipSpace(Source& source) {
  for (int c = source.Peek(); c != EOF && std::isspace(c) != 0; c = source.Peek()) source.Skip();
}

// %s, %c, %[.
template <class Source>
Outcome ReadText(Source& source, const Field& field, Arguments& arguments) {
  if (!field.length.empty()) return Outcome::kBadFormat;  // wide characters
  char* const dest = field.assigned ? va_arg(arguments.list, char*) : nullptr;
  const size_t room = field.assigned ? va_arg(arguments.list, size_t) : 0;
  if (field.assigned && (dest == nullptr || room == 0)) return Outcome::kTooLong;
  if (field.conversion == 's') SkipSpace(source);
  if (source.Peek() == EOF) return Outcome::kEnd;
  const bool is_char = field.conversion == 'c';
  const size_t most = field.width != 0 ? field.width : is_char ? 1 : SIZE_MAX;
  const size_t fits = is_char ? room : room - 1;
  const bool was_empty = field.assigned && !is_char && fits == 0;
  size_t length = 0;
  for (int c = source.Peek(); length < most && c != EOF; c = source.Peek()) {
    if (field.conversion == 's' ? std::isspace(c) != 0 : !is_char && !field.members[c]) break;
    if (field.assigned && (was_empty || length == fits)) {
      *dest = '\0';
      return Outcome::kTooLong;
    }
    if (field.assigned) dest[length] = static_cast<char>(c);
    ++length;
    source.Skip();
  }
  if (length == 0) return Outcome::kNoMatch;
  if (is_char) return length < most ? Outcome::kEnd : Outcome::kRead;
  if (field.assigned) dest[length] = '\0';
  return Outcome::kRead;
}

template <class Source>
Outcome ReadNumber(Source& source, const Field& field, Arguments& arguments) {
  void* const dest = field.assigned ? va_arg(arguments.list, void*) : nullptr;
  if (field.assigned && dest == nullptr) return Outcome::kBadFormat;
  SkipSpace(source);
  if (source.Peek() == EOF) return Outcome::kEnd;
  std::string format = field.assigned ? "%" : "%*";
  if (field.width != 0) format += std::to_string(field.width);
  format += field.length + field.conversion + "%n";
  int consumed = -1;
  const int read = source.ReadNumber(format.c_str(), dest, &consumed);
  if (consumed < 0) return read < 0 ? Outcome::kEnd : Outcome::kNoMatch;
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

// The next character must be this one.
template <class Source>
Outcome ReadLiteral(Source& source, char wanted) {
  const int c = source.Peek();
  if (c == EOF) return Outcome::kEnd;
  if (c != static_cast<unsigned char>(wanted)) return Outcome::kNoMatch;
  source.Skip();
  return Outcome::kRead;
}

template <class Source>
int Scan(Source source, const char* format, Arguments& arguments) {
  int assigned = 0;
  bool converted = false;
  while (*format != '\0') {
    if (IsSpace(*format)) {
      SkipSpace(source);
      ++format;
      continue;
    }
    Outcome outcome;
    Field field;
    bool is_literal = true;
    if (*format != '%') {
      outcome = ReadLiteral(source, *format++);
    } else {
      format = ReadField(format + 1, field);
      if (format == nullptr) return converted ? assigned : -1;
      if (field.conversion == 'n') {
        if (field.assigned) StoreCount(source.count(), field, arguments);
        continue;
      }
      if (field.conversion == '%') {
        SkipSpace(source);
        outcome = ReadLiteral(source, '%');
      } else {
        is_literal = false;
        const bool is_text = std::strchr("sc[", field.conversion) != nullptr;
        outcome = is_text ? ReadText(source, field, arguments) : ReadNumber(source, field, arguments);
      }
    }
    switch (outcome) {
      case Outcome::kRead: break;
      case Outcome::kEnd: return converted ? assigned : EOF;
      case Outcome::kBadFormat: return converted ? assigned : -1;
      case Outcome::kNoMatch:
      case Outcome::kTooLong: return assigned;
    }
    if (is_literal) continue;
    converted = true;
    if (field.assigned) ++assigned;
  }
  return assigned;
}

template <class Source>
int ScanFrom(Source source, const char* format, va_list list) noexcept try {
  Arguments arguments;
  va_copy(arguments.list, list);
  const int assigned = Scan(std::move(source), format, arguments);
  va_end(arguments.list);
  return assigned;
} catch (...) {  // no memory for a few letters
  return -1;
}

}  // namespace

int vsscanf_s(const char* buffer, const char* format, va_list argList) {
  if (buffer == nullptr || format == nullptr) return -1;
  return ScanFrom(TextSource(buffer), format, argList);
}

int vfscanf_s(FILE* stream, const char* format, va_list argList) {
  if (stream == nullptr || format == nullptr) return -1;
  return ScanFrom(FileSource(stream), format, argList);
}

int vscanf_s(const char* format, va_list argList) { return vfscanf_s(stdin, format, argList); }

int sscanf_s(const char* buffer, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int assigned = vsscanf_s(buffer, format, arguments);
  va_end(arguments);
  return assigned;
}

int fscanf_s(FILE* stream, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int assigned = vfscanf_s(stream, format, arguments);
  va_end(arguments);
  return assigned;
}

int scanf_s(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int assigned = vscanf_s(format, arguments);
  va_end(arguments);
  return assigned;
}
