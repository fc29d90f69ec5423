/* SPDX-License-Identifier: Apache-2.0 */
/* Where dims of 1 are put into a shape before it is laid out in another format. */
#ifndef REPRISE_EXE_GRAPH_RUNTIME_EXPAND_DIMS_TYPE_H_
#define REPRISE_EXE_GRAPH_RUNTIME_EXPAND_DIMS_TYPE_H_

#include <cstddef>
#include <cstdint>

namespace gert {

class ExpandDimsType {
 public:
  static constexpr size_t kMaxExpandSize = 56;

  ExpandDimsType() : bits_(0), reserved_{} {}
  /* "1100": a dim for each letter, "1" where one is put in. Longer texts than 56 are none. */
  explicit ExpandDimsType(const char* expand_dims_type) : ExpandDimsType() {
    uint64_t mask = 0;
    uint64_t size = 0;
    for (; expand_dims_type != nullptr && expand_dims_type[size] != '\0'; ++size) {
      if (size == kMaxExpandSize) return;
      if (expand_dims_type[size] == '1') mask |= uint64_t(1) << size;
    }
    bits_ = size | mask << 8;
  }

  uint64_t GetFullSize() const { return bits_ & 0xFF; }
  bool IsExpandIndex(uint64_t index) const { return index < GetFullSize() && (bits_ >> (8 + index) & 1) != 0; }
  void SetExpandIndex(uint64_t index) {
    if (index < kMaxExpandSize) bits_ |= uint64_t(1) << (8 + index);
  }
  bool operator==(const ExpandDimsType& other) const { return bits_ == other.bits_; }

 private:
  uint64_t bits_;  // 8 of the size, then one for each dim
  uint8_t reserved_[40];
};
static_assert(sizeof(ExpandDimsType) == 48, "programs are compiled for this size");

}  // namespace gert

#endif  // REPRISE_EXE_GRAPH_RUNTIME_EXPAND_DIMS_TYPE_H_
