/* SPDX-License-Identifier: Apache-2.0
 *
 * Host-compiled kernels: what a shared object has to export so that aclrtBinaryLoadFromFile accepts it.
 *
 * A device binary means nothing to a CPU. What can be launched here is a shared object whose functions have the
 * signature `RepriseKernelFn`. Writing one in C++ takes one macro per kernel:
 *
 *     #include <reprise/kernel.h>
 *
 *     REPRISE_KERNEL(axpy, REPRISE_KERNEL_VECTOR, (float* y, const float* x, uint64_t n, float a)) {
 *       for (uint64_t i = ctx.block_index; i < n; i += ctx.block_count) y[i] += a * x[i];
 *     }
 *     REPRISE_KERNEL_TABLE(axpy)
 *
 * compiled with `c++ -shared -fPIC` (CMake: reprise_add_kernels(my_kernels axpy.cpp)), loaded with
 * aclrtBinaryLoadFromFile("…/my_kernels.so", NULL, &bin) and found with aclrtBinaryGetFunction(bin, "axpy", &func).
 * A path ending in `.o` is served by the `.so` of the same name beside it, so that paths in programs need not change.
 *
 * Argument block: the parameters in declaration order, each in an 8-byte slot (a value wider than 8 bytes takes as
 * many slots as it needs); pointers are device addresses, which the CPU device can dereference directly.
 */
#ifndef REPRISE_KERNEL_H_
#define REPRISE_KERNEL_H_

#if defined(__cplusplus) && defined(__GNUC__) && __cplusplus < 202002L
#pragma GCC system_header /* -pedantic does not know that every compiler that we take has __VA_OPT__ */
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Layout version of the structs below; a table of another version is refused at load. */
#define REPRISE_KERNEL_ABI_VERSION 1u

/** Kernel kinds; the numbers are those of aclrtKernelType. The kind decides the task type that dumps show and
 *  whether the kernel may be in a task group (AI CPU kernels may not). */
enum {
  REPRISE_KERNEL_AICORE = 0,
  REPRISE_KERNEL_CUBE = 1,
  REPRISE_KERNEL_VECTOR = 2,
  REPRISE_KERNEL_MIX = 3,
  REPRISE_KERNEL_AICPU = 100
};

/** What a kernel instance may know about its launch. Valid during the call only. */
typedef struct RepriseKernelContext {
  uint32_t struct_size; /**< sizeof of the caller's struct; later versions only append */
  uint32_t block_index; /**< 0 .. block_count-1 */
  uint32_t block_count; /**< numBlocks of the launch */
  int32_t device_id;    /**< user id of the device */
  int32_t stream_id;    /**< aclrtStreamGetId of the stream, or of the captured stream in a replay */
  uint32_t task_id;     /**< as in dumps and exception information */
  const char* kernel_name;
} RepriseKernelContext;

/** One block of a kernel. `args` is the argument block, `args_size` its length in bytes; both are read-only.
 *  Blocks of one launch may run at the same time on several threads, in any order: they must not wait for each
 *  other. Returns 0, or an ACL error number (507015 when in doubt) that the stream then reports at its next
 *  synchronisation. Must not throw and must not call functions of the runtime that wait. */
typedef int32_t (*RepriseKernelFn)(const RepriseKernelContext* ctx, const void* args, size_t args_size);

/** One kernel of a binary. Strings and arrays must live as long as the shared object. */
typedef struct RepriseKernelDesc {
  const char* name; /**< unique in its table */
  uint64_t entry;   /**< tiling key for aclrtBinaryGetFunctionByEntry; 0 = none */
  RepriseKernelFn fn;
  uint32_t kind;               /**< REPRISE_KERNEL_* */
  uint16_t cube_ratio;         /**< REPRISE_KERNEL_MIX: cube share of the task ration */
  uint16_t vector_ratio;       /**< REPRISE_KERNEL_MIX: vector share */
  const uint32_t* param_sizes; /**< bytes of each parameter; launches with less are refused. NULL: unknown */
  uint32_t param_count;
} RepriseKernelDesc;

typedef struct RepriseKernelTable {
  uint32_t abi_version; /**< REPRISE_KERNEL_ABI_VERSION */
  uint32_t kernel_count;
  const RepriseKernelDesc* kernels;
} RepriseKernelTable;

/** The one symbol that a kernel binary exports. */
#define REPRISE_KERNEL_TABLE_SYMBOL "repriseKernelTable"
typedef const RepriseKernelTable* (*RepriseKernelTableFn)(void);

/** Makes kernels that are linked into the program known under `binary_key`: aclrtBinaryLoadFromFile and
 *  aclrtBinaryLoadFromData accept the key (as path, or as the bytes of the data) from then on.
 *  `table` is borrowed for the rest of the process. Thread-safe.
 *  Returns 0; 107000 for a null or malformed table; 507028 when the key is taken. */
int32_t repriseRegisterKernels(const char* binary_key, const RepriseKernelTable* table);

#ifdef __cplusplus
} /* extern "C" */

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

namespace reprise::kernel_detail {

constexpr size_t SlotBytes(size_t bytes) { return (bytes + 7) / 8 * 8; }

template <class T>
struct Tag {
  using type = T;
};

template <class... Params>
struct Signature {
  using Tuple = std::tuple<Params...>;
  static_assert((std::is_trivially_copyable_v<Params> && ...), "kernel parameters are copied as bytes");
  static constexpr uint32_t kCount = sizeof...(Params);
  static constexpr uint32_t kSizes[sizeof...(Params) + 1] = {static_cast<uint32_t>(sizeof(Params))..., 0};
  static constexpr size_t kBytes = (SlotBytes(sizeof(Params)) + ... + 0);

  // Reads the 8-byte slots in order; false when the block is too short for the parameters.
  template <class Body>
  static bool Call(const RepriseKernelContext& ctx, const void* args, size_t args_size, Body body) {
    if (args_size < kBytes) return false;
    const auto* at = static_cast<const unsigned char*>(args);
    [[maybe_unused]] auto take = [&at](auto tag) {
      using T = typename decltype(tag)::type;
      T value;
      std::memcpy(&value, at, sizeof(T));
      at += SlotBytes(sizeof(T));
      return value;
    };
    // Braced initialisation fixes the left-to-right order of the reads.
    Tuple values{take(Tag<Params>{})...};
    std::apply([&](auto... v) { body(ctx, v...); }, values);
    return true;
  }
};

template <class... Params>
Signature<Params...> SignatureOf(void (*)(const RepriseKernelContext&, Params...));

}  // namespace reprise::kernel_detail

/** Defines kernel `NAME` of kind `KIND`; PARAMS is a parenthesised parameter list of trivially copyable types. The
 *  body sees `ctx` and the parameters. */
#define REPRISE_KERNEL(NAME, KIND, PARAMS) REPRISE_KERNEL_IMPL_(NAME, KIND, 0, 0, REPRISE_KERNEL_STRIP_ PARAMS)
/** The same for a mix kernel with its cube : vector task ration. */
#define REPRISE_MIX_KERNEL(NAME, CUBE, VECTOR, PARAMS) \
  REPRISE_KERNEL_IMPL_(NAME, REPRISE_KERNEL_MIX, CUBE, VECTOR, REPRISE_KERNEL_STRIP_ PARAMS)

#define REPRISE_KERNEL_STRIP_(...) __VA_ARGS__
#define REPRISE_KERNEL_IMPL_(NAME, KIND, CUBE, VECTOR, ...)                                          \
  static void NAME##_body(const RepriseKernelContext& ctx __VA_OPT__(, ) __VA_ARGS__);               \
  static int32_t NAME##_entry(const RepriseKernelContext* ctx, const void* args, size_t args_size) { \
    using Sig = decltype(reprise::kernel_detail::SignatureOf(&NAME##_body));                         \
    /* 507015: the same number a real kernel that reads past its arguments ends with */              \
    return Sig::Call(*ctx, args, args_size, &NAME##_body) ? 0 : 507015;                              \
  }                                                                                                  \
  static constexpr RepriseKernelDesc NAME##_desc = {                                                 \
      #NAME,                                                                                         \
      0,                                                                                             \
      &NAME##_entry,                                                                                 \
      KIND,                                                                                          \
      CUBE,                                                                                          \
      VECTOR,                                                                                        \
      decltype(reprise::kernel_detail::SignatureOf(&NAME##_body))::kSizes,                           \
      decltype(reprise::kernel_detail::SignatureOf(&NAME##_body))::kCount};                          \
  static void NAME##_body([[maybe_unused]] const RepriseKernelContext& ctx __VA_OPT__(, ) __VA_ARGS__)

/** Exports the listed kernels; once per shared object. Entries (tiling keys) are their positions, from 1. */
#define REPRISE_KERNEL_TABLE(...)                                                                          \
  extern "C" __attribute__((visibility("default"))) const RepriseKernelTable* repriseKernelTable(void) {   \
    return reprise::kernel_detail::TableOf<REPRISE_KERNEL_FOR_EACH_(REPRISE_KERNEL_DESC_, __VA_ARGS__)>(); \
  }

#define REPRISE_KERNEL_DESC_(NAME) &NAME##_desc
#define REPRISE_KERNEL_PARENS_ ()
#define REPRISE_KERNEL_EXPAND_(...) \
  REPRISE_KERNEL_EXPAND2_(REPRISE_KERNEL_EXPAND2_(REPRISE_KERNEL_EXPAND2_(REPRISE_KERNEL_EXPAND2_(__VA_ARGS__))))
#define REPRISE_KERNEL_EXPAND2_(...) \
  REPRISE_KERNEL_EXPAND1_(REPRISE_KERNEL_EXPAND1_(REPRISE_KERNEL_EXPAND1_(REPRISE_KERNEL_EXPAND1_(__VA_ARGS__))))
#define REPRISE_KERNEL_EXPAND1_(...) __VA_ARGS__
#define REPRISE_KERNEL_FOR_EACH_(MACRO, ...) \
  __VA_OPT__(REPRISE_KERNEL_EXPAND_(REPRISE_KERNEL_EACH_(MACRO, __VA_ARGS__)))
#define REPRISE_KERNEL_EACH_(MACRO, FIRST, ...) \
  MACRO(FIRST) __VA_OPT__(, REPRISE_KERNEL_AGAIN_ REPRISE_KERNEL_PARENS_(MACRO, __VA_ARGS__))
#define REPRISE_KERNEL_AGAIN_() REPRISE_KERNEL_EACH_

namespace reprise::kernel_detail {

// One array per list of kernels, with the position written into `entry`.
template <const RepriseKernelDesc*... Kernels>
const RepriseKernelTable* TableOf() {
  static const auto* const table = [] {
    static RepriseKernelDesc descs[] = {*Kernels...};
    for (uint64_t i = 0; i < sizeof...(Kernels); ++i) descs[i].entry = i + 1;
    static const RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, sizeof...(Kernels), descs};
    return &kTable;
  }();
  return table;
}

}  // namespace reprise::kernel_detail
#endif /* __cplusplus */

#endif /* REPRISE_KERNEL_H_ */
