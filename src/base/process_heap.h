// SPDX-License-Identifier: Apache-2.0
//
// operator new and operator delete as the process has them.
//
// A program may bring both along. A library that is opened with RTLD_DEEPBIND finds those of the C++ library instead,
// and what one of the two has allocated the other must not free. Such a library defines both by these functions.
#pragma once

#include <cstddef>

namespace reprise {

/// `alignment` 0: that of operator new without one. Throws std::bad_alloc, as operator new does.
void* AllocateFromProcess(size_t bytes, size_t alignment);
void ReturnToProcess(void* block, size_t alignment) noexcept;

}  // namespace reprise
