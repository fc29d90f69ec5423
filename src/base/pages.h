// SPDX-License-Identifier: Apache-2.0
//
// Memory for what grows with the size of a graph. The first touch of a page costs the kernel two microseconds, as much
// as recording twenty nodes. So amounts from kLargeBytes on come from regions of 2 MiB, which the kernel can back with
// one huge page each and which are used again; whatever is smaller comes from malloc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

namespace reprise {

constexpr size_t kLargeBytes = 64 << 10;
constexpr size_t kHugePageBytes = 2 << 20;
constexpr size_t kRegionBytes = kHugePageBytes;

/// `bytes` may be more than was asked for.
struct PageBlock {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Aligned for every type; throws std::bad_alloc. Threads: thread-safe, as are the two below.
PageBlock TakePages(size_t bytes);
void GivePages(PageBlock block) noexcept;
/// Gives the pages behind the first `bytes` back, as far as possible. The block may move.
PageBlock TrimPages(PageBlock block, size_t bytes) noexcept;

/// How many regions and mappings of their own are in use or kept; for tests.
struct PageUse {
  size_t regions;
  size_t spare_regions;  ///< of these: without any block
  size_t mappings;
};
PageUse PagesInUse();

/// For standard containers.
template <class T>
struct PageAllocator {
  using value_type = T;
  PageAllocator() = default;
  template <class U>
  PageAllocator(const PageAllocator<U>&) {}  // NOLINT: allocators convert
  T* allocate(size_t count) { return reinterpret_cast<T*>(TakePages(Rounded(count)).data); }
  void deallocate(T* data, size_t count) { GivePages({reinterpret_cast<std::byte*>(data), Rounded(count)}); }
  template <class U>
  bool operator==(const PageAllocator<U>&) const {
    return true;
  }

 private:
  // A count for which TakePages returns a block that is no larger than asked for.
  static size_t Rounded(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = count * sizeof(T);
    return bytes < kLargeBytes ? bytes : (bytes + 4095) & ~size_t{4095};
  }
};

/// An array that only grows. Threads: thread-compatible.
template <class T>
class GrowingArray {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  GrowingArray() = default;
  GrowingArray(GrowingArray&& other) noexcept
      : data_(other.data_), size_(other.size_), capacity_(other.capacity_), bytes_(other.bytes_) {
    other.data_ = nullptr;
    other.size_ = other.capacity_ = other.bytes_ = 0;
  }
  GrowingArray& operator=(GrowingArray&&) = delete;
  ~GrowingArray() {
    if (data_ != nullptr) GivePages(block());
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t memory_bytes() const { return bytes_; }

  /// Room for one more, so that the next Append cannot fail. Throws std::bad_alloc, then nothing has changed.
  void MakeRoom() {
    if (size_ == capacity_) [[unlikely]]
      Grow();
  }
  /// After MakeRoom.
  void Append(const T& value) noexcept { new (data_ + size_++) T(value); }
  /// Gives the room behind the last element back.
  void Trim() noexcept {
    if (data_ != nullptr) Take(TrimPages(block(), size_ * sizeof(T)));
  }

 private:
  static constexpr size_t kFirst = 16;
  PageBlock block() const { return {reinterpret_cast<std::byte*>(data_), bytes_}; }
  void Take(PageBlock block) {
    data_ = reinterpret_cast<T*>(block.data);
    bytes_ = block.bytes;
    capacity_ = bytes_ / sizeof(T);
  }
  void Grow() {
    const PageBlock larger = TakePages(std::max(kFirst, 2 * capacity_) * sizeof(T));
    if (data_ != nullptr) {
      std::memcpy(larger.data, data_, size_ * sizeof(T));
      GivePages(block());
    }
    Take(larger);
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t bytes_ = 0;
};

}  // namespace reprise
