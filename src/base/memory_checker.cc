// SPDX-License-Identifier: Apache-2.0
#include "base/memory_checker.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <exception>

#include "base/env.h"

// Both are optional: the header when this is compiled, valgrind itself when the program runs.
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define REPRISE_KNOWS_MEMCHECK 1
#else
#define REPRISE_KNOWS_MEMCHECK 0
#endif

// Of the AddressSanitizer of the program; null without one.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void* begin, size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* begin, size_t bytes);
__attribute__((weak)) void __asan_set_error_report_callback(void (*callback)(const char*));
__attribute__((weak)) void* __asan_get_report_address();
__attribute__((weak)) void __sanitizer_symbolize_pc(void* place, const char* format, char* text, size_t bytes);
}

namespace reprise {
namespace {

constexpr size_t kMostExplanations = 4;
constinit std::array<std::atomic<ExplainAddress>, kMostExplanations> g_explanations{};

MemoryChecker Look() noexcept {
  const bool has_asan = __asan_poison_memory_region != nullptr && __asan_unpoison_memory_region != nullptr;
  bool has_memcheck = false;
#if REPRISE_KNOWS_MEMCHECK
  // Other tools of valgrind do not answer.
  const char probe = 0;
  has_memcheck = VALGRIND_MAKE_MEM_DEFINED(&probe, sizeof probe) != 0;
#endif
  if (!has_asan && !has_memcheck) return MemoryChecker::kNone;
  if (EnvInt(EnvVar::kRedZones, 0, 1) == 0) return MemoryChecker::kNone;
  return has_asan ? MemoryChecker::kAddressSanitizer : MemoryChecker::kMemcheck;
}

void EndReport(const char*) {
  const auto address = reinterpret_cast<uintptr_t>(__asan_get_report_address());
  for (const auto& place : g_explanations) {
    const ExplainAddress explain = place.load(std::memory_order_acquire);
    if (explain == nullptr) continue;
    try {
      const std::string text = explain(address);
      if (!text.empty()) std::fprintf(stderr, "reprise: %s\n", text.c_str());
    } catch (const std::exception&) {
      // The report has been printed.
    }
  }
}

}  // namespace

MemoryChecker TheMemoryChecker() noexcept {
  static const MemoryChecker checker = Look();
  return checker;
}

void ForbidAccess(const void* begin, uint64_t bytes) noexcept {
  if (bytes == 0) return;
  switch (TheMemoryChecker()) {
    case MemoryChecker::kNone: return;
    case MemoryChecker::kAddressSanitizer: __asan_poison_memory_region(begin, bytes); return;
    case MemoryChecker::kMemcheck:
#if REPRISE_KNOWS_MEMCHECK
      (void)VALGRIND_MAKE_MEM_NOACCESS(begin, bytes);
#endif
      return;
  }
}

void AllowAccess(const void* begin, uint64_t bytes) noexcept {
  if (bytes == 0) return;
  switch (TheMemoryChecker()) {
    case MemoryChecker::kNone: return;
    case MemoryChecker::kAddressSanitizer: __asan_unpoison_memory_region(begin, bytes); return;
    case MemoryChecker::kMemcheck:
#if REPRISE_KNOWS_MEMCHECK
      (void)VALGRIND_MAKE_MEM_DEFINED(begin, bytes);
#endif
      return;
  }
}

void NoteAllocation([[maybe_unused]] const void* begin, [[maybe_unused]] uint64_t bytes) noexcept {
#if REPRISE_KNOWS_MEMCHECK
  if (TheMemoryChecker() == MemoryChecker::kMemcheck) VALGRIND_MALLOCLIKE_BLOCK(begin, bytes, 0, 1);
#endif
}

void NoteRelease([[maybe_unused]] const void* begin) noexcept {
#if REPRISE_KNOWS_MEMCHECK
  if (TheMemoryChecker() == MemoryChecker::kMemcheck) VALGRIND_FREELIKE_BLOCK(begin, 0);
#endif
}

std::string NamePlace(const void* place) {
  if (place == nullptr || __sanitizer_symbolize_pc == nullptr) return {};
  std::array<char, 512> text{};
  __sanitizer_symbolize_pc(const_cast<void*>(place), "%f %S", text.data(), text.size());
  text.back() = '\0';
  return text.data();
}

void AddToMemoryReports(ExplainAddress explain) noexcept {
  if (TheMemoryChecker() != MemoryChecker::kAddressSanitizer) return;
  if (__asan_set_error_report_callback == nullptr || __asan_get_report_address == nullptr) return;
  for (auto& place : g_explanations) {
    ExplainAddress expected = nullptr;
    if (place.compare_exchange_strong(expected, explain) || expected == explain) break;
  }
  __asan_set_error_report_callback(EndReport);
}

}  // namespace reprise
