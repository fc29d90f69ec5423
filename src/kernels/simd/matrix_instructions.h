// SPDX-License-Identifier: Apache-2.0
//
// Instructions of the matrix unit (AMX), and the attribute of functions that use them. Internal to simd/.
#pragma once

#include "kernels/simd/bfloat16_instructions.h"

#if defined(__x86_64__)
#define REPRISE_MATRIX \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,amx-int8")))

namespace reprise::kernels::simd {

/// The tile registers of this thread, as 16 rows of 64 bytes each, until the end of the outermost scope.
class TileRegisters {
 public:
  TileRegisters() { Open(); }
  ~TileRegisters() { Close(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  /// The same without an object.
  REPRISE_MATRIX static void Open() {
    if (scopes_++ > 0) return;
    // What the instruction reads: a palette, then for each register its bytes a row and its rows.
    struct alignas(64) Shapes {
      uint8_t palette = 1;
      uint8_t start = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Shapes kShapes;
    _tile_loadconfig(&kShapes);
  }
  REPRISE_MATRIX static void Close() {
    if (--scopes_ == 0) _tile_release();
  }

 private:
  static inline thread_local int scopes_ = 0;
};

}  // namespace reprise::kernels::simd
#endif
