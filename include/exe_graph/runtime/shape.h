/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of tensors that are passed to runs of graphs: plain memory of a fixed size. */
#ifndef REPRISE_EXE_GRAPH_RUNTIME_SHAPE_H_
#define REPRISE_EXE_GRAPH_RUNTIME_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

namespace gert {

struct Shape {
  static constexpr size_t kMaxDimNum = 25;
  static constexpr int64_t kInvalidDimValue = std::numeric_limits<int64_t>::min();

  Shape() : dim_num_(0), dims_{}, reserved_{} {}                 // of a scalar
  Shape(const std::initializer_list<int64_t>& dims) : Shape() {  // NOLINT: as shapes are written
    if (dims.size() > kMaxDimNum) return;
    for (const int64_t dim : dims) dims_[dim_num_++] = dim;
  }

  bool operator==(const Shape& other) const {
    return dim_num_ == other.dim_num_ &&
           (dim_num_ > kMaxDimNum || std::memcmp(dims_, other.dims_, dim_num_ * sizeof(int64_t)) == 0);
  }
  bool operator!=(const Shape& other) const { return !(*this == other); }

  size_t GetDimNum() const { return dim_num_; }
  /* Dims that are added keep what they were. */
  void SetDimNum(size_t dim_num) { dim_num_ = dim_num; }
  int64_t GetDim(size_t idx) const { return idx < kMaxDimNum ? dims_[idx] : kInvalidDimValue; }
  void SetDim(size_t idx, int64_t dim_value) {
    if (idx < kMaxDimNum) dims_[idx] = dim_value;
  }
  /* Without an effect where there is no room. */
  Shape& AppendDim(int64_t value) {
    if (dim_num_ < kMaxDimNum) dims_[dim_num_++] = value;
    return *this;
  }
  const int64_t& operator[](size_t idx) const { return dims_[idx]; }
  int64_t& operator[](size_t idx) { return dims_[idx]; }
  bool IsScalar() const { return dim_num_ == 0; }
  void SetScalar() { dim_num_ = 0; }
  /* The product of the dims: 1 of a scalar, -1 where it does not fit or a dim is unknown. */
  int64_t GetShapeSize() const {
    int64_t size = 1;
    for (size_t i = 0; i < dim_num_ && i < kMaxDimNum; ++i) {
      const int64_t dim = dims_[i];
      if (dim < 0 || (dim != 0 && size > std::numeric_limits<int64_t>::max() / dim)) return -1;
      size *= dim;
    }
    return size;
  }

 private:
  size_t dim_num_;
  int64_t dims_[kMaxDimNum];
  uint8_t reserved_[40];
};
static_assert(sizeof(Shape) == 248, "programs are compiled for this size");

}  // namespace gert

#endif  // REPRISE_EXE_GRAPH_RUNTIME_SHAPE_H_
