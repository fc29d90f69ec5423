/* SPDX-License-Identifier: Apache-2.0
 *
 * SVector: a list of up to 64 elements in place, of more behind a pointer once room for them was reserved.
 */
#ifndef ATB_SVECTOR_H_
#define ATB_SVECTOR_H_

#include <algorithm>
#include <cstddef>
#include <exception>
#include <initializer_list>

namespace atb {

constexpr std::size_t DEFAULT_SVECTOR_SIZE = 64;

struct MaxSizeExceeded : public std::exception {
  const char* what() const noexcept override { return "the list holds no more elements: reserve room for them first"; }
};

template <class T>
class SVector {
 public:
  constexpr SVector() : storage_() {}
  SVector(std::initializer_list<T> list) : SVector() {
    for (const T& element : list) push_back(element);
  }
  SVector(const SVector& other) : SVector() { Copy(other); }
  SVector& operator=(const SVector& other) {
    if (this != &other) {
      clear();
      Copy(other);
    }
    return *this;
  }
  ~SVector() { delete[] heap_; }

  void push_back(const T& element) {
    const std::size_t most = heap_ != nullptr ? capacity_ : DEFAULT_SVECTOR_SIZE;
    if (size_ == most) throw MaxSizeExceeded();
    data()[size_++] = element;
  }
  void reserve(std::size_t count) {
    if (count <= DEFAULT_SVECTOR_SIZE || count <= capacity_) return;
    T* const larger = new T[count];
    std::copy(begin(), end(), larger);
    delete[] heap_;
    heap_ = larger;
    capacity_ = count;
  }
  void resize(std::size_t count) {
    if (count > DEFAULT_SVECTOR_SIZE) reserve(count);
    size_ = count;
  }
  void clear() { size_ = 0; }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return heap_ != nullptr ? heap_ : storage_; }
  const T* data() const { return heap_ != nullptr ? heap_ : storage_; }
  T* begin() { return data(); }
  const T* begin() const { return data(); }
  T* end() { return data() + size_; }
  const T* end() const { return data() + size_; }

  T& operator[](std::size_t i) { return Checked(data(), i); }
  const T& operator[](std::size_t i) const { return Checked(data(), i); }
  T& at(std::size_t i) { return Checked(data(), i); }
  const T& at(std::size_t i) const { return Checked(data(), i); }

 private:
  template <class Pointer>
  auto& Checked(Pointer data, std::size_t i) const {
    if (i >= size_) throw MaxSizeExceeded();
    return data[i];
  }
  void Copy(const SVector& other) {
    reserve(other.size_);
    std::copy(other.begin(), other.end(), data());
    size_ = other.size_;
  }

  // The order of these is that of every library that passes such lists.
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  T storage_[DEFAULT_SVECTOR_SIZE + 1];
  T* heap_ = nullptr;
};

}  // namespace atb

#endif  // ATB_SVECTOR_H_
