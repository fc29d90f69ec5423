// Stands for code that only the compiler of the vendor's processor understands.
#include "kernel_operator.h"
#include "tiling.h"

extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z, AddTiling tiling) {}
extern "C" __global__ __aicore__ void scale_custom(GM_ADDR x, float by, uint32_t n) {}
