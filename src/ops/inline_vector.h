// SPDX-License-Identifier: Apache-2.0
//
// InlineVector: a vector that keeps its first elements inside itself. The objects of an operator call hold a few dims,
// a few operands, a few scalars; a heap block for each would cost more than the call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

namespace reprise::ops {

/// The usual subset of std::vector for plain values; the first `N` need no allocation.
template <class T, size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  InlineVector() noexcept {}
  InlineVector(const T* values, size_t count) { assign(values, count); }
  InlineVector(const InlineVector& other) { assign(other.data(), other.size()); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) assign(other.data(), other.size());
    return *this;
  }
  InlineVector(InlineVector&& other) noexcept { Take(other); }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) Take(other);
    return *this;
  }

  void assign(const T* values, size_t count) {
    size_ = 0;
    reserve(count);
    if (count != 0) std::memcpy(static_cast<void*>(data()), values, count * sizeof(T));
    size_ = count;
  }
  void reserve(size_t count) {
    if (count <= capacity_) return;
    std::unique_ptr<std::byte[]> heap(new std::byte[count * sizeof(T)]);
    if (size_ != 0) std::memcpy(heap.get(), data(), size_ * sizeof(T));
    heap_ = std::move(heap);
    capacity_ = count;
  }
  /// New elements are value-initialised.
  void resize(size_t count) {
    reserve(count);
    for (size_t i = size_; i < count; ++i) new (data() + i) T();
    size_ = count;
  }
  /// \pre count <= size().
  void truncate(size_t count) noexcept { size_ = count; }
  T& push_back(const T& value) {
    const T copy = value;  // may live in the block that reserve frees
    if (size_ == capacity_) reserve(2 * capacity_);
    return *new (data() + size_++) T(copy);
  }
  T& emplace_back() { return push_back(T()); }

  T* data() noexcept { return reinterpret_cast<T*>(heap_ ? heap_.get() : inline_); }
  const T* data() const noexcept { return reinterpret_cast<const T*>(heap_ ? heap_.get() : inline_); }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T& operator[](size_t i) noexcept { return data()[i]; }
  const T& operator[](size_t i) const noexcept { return data()[i]; }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }
  operator std::span<const T>() const noexcept { return {data(), size_}; }  // NOLINT: as std::vector's

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  void Take(InlineVector& other) noexcept {
    if (other.heap_) {
      heap_ = std::move(other.heap_);
      capacity_ = other.capacity_;
    } else {
      heap_.reset();
      capacity_ = N;
      if (other.size_ != 0) std::memcpy(inline_, other.inline_, other.size_ * sizeof(T));
    }
    size_ = other.size_;
    other.size_ = 0;
    other.capacity_ = N;
  }

  alignas(T) std::byte inline_[N * sizeof(T)];
  std::unique_ptr<std::byte[]> heap_;
  size_t size_ = 0;
  size_t capacity_ = N;
};

}  // namespace reprise::ops
