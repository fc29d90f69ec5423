// SPDX-License-Identifier: Apache-2.0
#include "runtime/limits.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/mutex.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

struct KeptSize {
  std::atomic<size_t> bytes;
  SizeBounds bounds;
  size_t least;  // that is kept
  size_t step;
};

KeptSize& Kept(SizeLimit limit) {
  static KeptSize stack{32 << 10, {0, 192 << 10}, 32 << 10, 16 << 10};
  static KeptSize print_buffer{32 << 10, {1 << 10, 64 << 20}, 0, 8};
  return limit == SizeLimit::kStack ? stack : print_buffer;
}

}  // namespace

uint32_t EffectiveCores(Device& device, const Stream* stream, int type) {
  MutexLock lock(device.limits_mutex);
  if (stream != nullptr && stream->attributes.limits.cores[type] != 0) return stream->attributes.limits.cores[type];
  return device.limits.cores[type] != 0 ? device.limits.cores[type] : HardwareCores(type);
}

uint32_t EffectiveCoresOfThread(Device& device, int type) {
  const void* used = ThisThread().limits_stream;
  const Stream* stream = used != nullptr ? Streams().Find(used) : nullptr;
  if (stream != nullptr && &stream->device() != &device) stream = nullptr;
  return EffectiveCores(device, stream, type);
}

void SetCores(Device& device, int type, uint32_t cores) {
  MutexLock lock(device.limits_mutex);
  device.limits.cores[type] = cores;
}

void SetCores(Stream& stream, int type, uint32_t cores) {
  MutexLock lock(stream.device().limits_mutex);
  stream.attributes.limits.cores[type] = cores;
}

void ResetCores(Device& device) {
  MutexLock lock(device.limits_mutex);
  device.limits = {};
}

void ResetCores(Stream& stream) {
  MutexLock lock(stream.device().limits_mutex);
  stream.attributes.limits = {};
}

SizeBounds BoundsOf(SizeLimit limit) { return Kept(limit).bounds; }

void SetSize(SizeLimit limit, size_t bytes) {
  KeptSize& kept = Kept(limit);
  kept.bytes = std::max((bytes + kept.step - 1) / kept.step * kept.step, kept.least);
}

size_t SizeOf(SizeLimit limit) { return Kept(limit).bytes; }

std::atomic<int64_t>& SystemOption(size_t number) {
  static std::array<std::atomic<int64_t>, kSystemOptions> options{};
  return options[number];
}

}  // namespace reprise::runtime
