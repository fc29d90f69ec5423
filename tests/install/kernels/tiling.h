#pragma once
#include <cstdint>

struct AddTiling {
  uint32_t length;
  uint32_t tile;
  uint64_t reserved;
};
