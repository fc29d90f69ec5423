// The host version of add_custom.cpp.
#include <reprise/kernel.h>

#include "tiling.h"

REPRISE_KERNEL(add_custom, REPRISE_KERNEL_VECTOR, (const float* x, const float* y, float* z, AddTiling tiling)) {
  for (uint64_t i = ctx.block_index; i < tiling.length; i += ctx.block_count) z[i] = x[i] + y[i];
}

/* A comment; with a semicolon and [brackets], and REPRISE_KERNEL(of_no, MEANING, ()). */
REPRISE_KERNEL(scale_custom, REPRISE_KERNEL_VECTOR,
               (float* x,  // in place
                float by, uint32_t n)) {
  for (uint64_t i = ctx.block_index; i < n; i += ctx.block_count) x[i] *= by * SCALE;
}

REPRISE_KERNEL_TABLE(add_custom, scale_custom)
