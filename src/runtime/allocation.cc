// SPDX-License-Identifier: Apache-2.0
#include "runtime/allocation.h"

#include "device/memory.h"
#include "runtime/reclaim.h"

namespace reprise::runtime {
namespace {

constexpr uint32_t kSmallPage = 4u << 10;
constexpr uint32_t kHugePage = 2u << 20;
constexpr uint32_t kGiantPage = 1u << 30;
constexpr uint64_t kHugeFrom = 1u << 20;
constexpr uint64_t kRoom = 32;  // what sizes are multiples of, and what a device adds

uint32_t PageBytes(PageWish wish, uint64_t bytes) {
  switch (wish) {
    case PageWish::kSmall: return kSmallPage;
    case PageWish::kHuge: return kHugePage;
    case PageWish::kGiant: return kGiantPage;
    case PageWish::kAny: break;
  }
  return bytes > kHugeFrom ? kHugePage : kSmallPage;
}

}  // namespace

StatusOr<void*> AllocateBlock(Device& device, uint64_t bytes, PageWish pages, bool adds_room) {
  const uint32_t page = PageBytes(pages, bytes);
  const bool is_absurd = bytes > UINT64_MAX - 2 * kRoom;
  const uint64_t rounded = is_absurd ? UINT64_MAX : (bytes + kRoom - 1) / kRoom * kRoom;
  const uint64_t whole = is_absurd || !adds_room || page == kGiantPage ? rounded : rounded + kRoom;
  return OrReclaim(device.id(), whole, [&] {
    return device::MemoryRegistry::Get().AllocateDevice(device.id(), whole, page, false, false, bytes);
  });
}

}  // namespace reprise::runtime
