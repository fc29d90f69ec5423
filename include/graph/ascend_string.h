/* SPDX-License-Identifier: Apache-2.0 */
/* A text that programs with either form of std::string pass to the libraries. */
#ifndef REPRISE_GRAPH_ASCEND_STRING_H_
#define REPRISE_GRAPH_ASCEND_STRING_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#pragma GCC visibility push(default)

namespace ge {

/* Immutable; copies share the text. One that was made of nothing equals "". */
class AscendString {
 public:
  AscendString() = default;
  AscendString(const char* name);                 // NOLINT: callers rely on the conversion
  AscendString(const char* name, size_t length);  // may hold zeros
  ~AscendString() = default;

  const char* GetString() const;  // never null
  size_t GetLength() const;
  /* The position of the first occurrence; size_t(-1) where there is none. */
  size_t Find(const AscendString& text) const;
  size_t Hash() const;

  bool operator<(const AscendString& other) const;
  bool operator>(const AscendString& other) const;
  bool operator<=(const AscendString& other) const;
  bool operator>=(const AscendString& other) const;
  bool operator==(const AscendString& other) const;
  bool operator!=(const AscendString& other) const;

 private:
  struct Text;
  std::shared_ptr<Text> text_;
};

}  // namespace ge

#pragma GCC visibility pop

namespace std {
template <>
struct hash<ge::AscendString> {
  size_t operator()(const ge::AscendString& text) const { return text.Hash(); }
};
}  // namespace std

#endif  // REPRISE_GRAPH_ASCEND_STRING_H_
