// SPDX-License-Identifier: Apache-2.0
//
// A device allocator over a simulated device, with captures as the graph class makes them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "memory/device_allocator.h"
#include "sim_driver.h"

namespace reprise::memory::testing {

class DeviceTest : public ::testing::Test {
 protected:
  static constexpr PoolId kP{1, 0}, kQ{0, 2};
  void* const s1 = SimDriver::S(1);
  void* const s2 = SimDriver::S(2);
  void* const s3 = SimDriver::S(3);

  ~DeviceTest() override {
    allocator_.reset();
    EXPECT_EQ(sim.used(), 0u);
    EXPECT_EQ(sim.live_segments(), 0u);
    EXPECT_EQ(sim.live_ranges(), 0u);
    EXPECT_EQ(sim.live_events(), 0u);
    EXPECT_EQ(sim.events_in_captures, 0u);
    SimDriver::SetCurrent(nullptr);
  }

  /// Made at the first use, from `config`.
  DeviceAllocator& a() {
    if (!allocator_) allocator_ = std::make_unique<DeviceAllocator>(sim, config);
    return *allocator_;
  }
  char* Get(uint64_t bytes, void* stream) {
    auto block = a().Allocate(0, bytes, stream);
    if (!block.ok()) {
      ADD_FAILURE() << std::move(block).status().detail().what;
      return nullptr;
    }
    return static_cast<char*>(*block);
  }
  Status Refusal(uint64_t bytes, void* stream) {
    auto block = a().Allocate(0, bytes, stream);
    EXPECT_FALSE(block.ok());
    return std::move(block).status();
  }
  void Put(void* block) { EXPECT_EQ(a().Free(block).code(), 0); }
  DeviceStats Stats() { return a().Stats(0); }
  int64_t Segments() { return Stats().segment.all.current; }
  int64_t Reserved() { return Stats().reserved_bytes.all.current; }
  int64_t Active() { return Stats().active.all.current; }

  StreamFilter InCapture(uint64_t id) {
    return [this, id](void* stream) {
      const CaptureState state = sim.CaptureOf(stream);
      return state.is_open && state.id == id;
    };
  }
  static StreamFilter OnStream(void* wanted) {
    return [wanted](void* stream) { return stream == wanted; };
  }
  void BeginCapture(void* stream, PoolId pool = kP, uint64_t id = 7) {
    EXPECT_EQ(a().BeginAllocateToPool(0, pool, InCapture(id)).code(), 0);
    sim.BeginCapture(stream, id);
    a().MarkCaptureBegin(0);
    SimDriver::SetCurrent(stream);
  }
  void EndCapture(PoolId pool = kP, uint64_t id = 7) {
    sim.EndCapture(id);
    a().MarkCaptureEnd(0);
    EXPECT_EQ(a().EndAllocateToPool(0, pool).code(), 0);
  }
  PoolId PoolOf(const void* block) {
    for (const SegmentInfo& segment : a().Snapshot({}, false).segments) {
      for (const BlockInfo& info : segment.blocks) {
        if (info.address == reinterpret_cast<uintptr_t>(block)) return segment.pool;
      }
    }
    ADD_FAILURE() << "no such block";
    return {};
  }

  SimDriver sim{kGiB};
  Config config;
  std::unique_ptr<DeviceAllocator> allocator_;
};

}  // namespace reprise::memory::testing
