// SPDX-License-Identifier: Apache-2.0
//
// Preloaded by a test: names of a program that brings its own along, before those of all libraries.
//
// operator new and operator delete: a mark stands before each block; a block without one, which another operator new
// has made, ends the process. And a function of another release of protobuf, which ends the process when it is called.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

constexpr uint64_t kMark = 0x0DD4EA90DD4EA9;
constexpr size_t kHeader = 64;

void* Take(size_t bytes) {
  auto* const block = static_cast<char*>(std::aligned_alloc(kHeader, (bytes + 2 * kHeader - 1) / kHeader * kHeader));
  if (block == nullptr) throw std::bad_alloc();
  *reinterpret_cast<uint64_t*>(block) = kMark;
  return block + kHeader;
}

void Give(void* memory) {
  if (memory == nullptr) return;
  auto* const mark = reinterpret_cast<uint64_t*>(static_cast<char*>(memory) - kHeader);
  if (*mark != kMark) {
    std::fputs("a block of another operator new is deleted\n", stderr);
    std::abort();
  }
  *mark = 0;
  std::free(mark);
}

}  // namespace

void* operator new(size_t bytes) { return Take(bytes); }
void* operator new[](size_t bytes) { return Take(bytes); }
void* operator new(size_t bytes, std::align_val_t) { return Take(bytes); }
void* operator new[](size_t bytes, std::align_val_t) { return Take(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes); }
void operator delete(void* memory) noexcept { Give(memory); }
void operator delete[](void* memory) noexcept { Give(memory); }
void operator delete(void* memory, size_t) noexcept { Give(memory); }
void operator delete[](void* memory, size_t) noexcept { Give(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Give(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Give(memory); }

extern "C" bool _ZN6google8protobuf11MessageLite14ParseFromArrayEPKvi(void*, const void*, int) {  // NOLINT
  std::fputs("a function of another protobuf is called\n", stderr);
  std::abort();
}
