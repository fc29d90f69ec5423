// SPDX-License-Identifier: Apache-2.0
//
// A simulated device: real bytes, streams that move only when the test says so, room that ends where the test says.
// Counts what it gives and takes, so that a test can say that nothing is left.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "memory/driver.h"

namespace reprise::memory::testing {

class SimDriver : public Driver {
 public:
  explicit SimDriver(uint64_t total_bytes = uint64_t{1} << 30, int devices = 1)
      : total_(total_bytes), used_(devices, 0) {}
  ~SimDriver() override {
    for (auto& [address, segment] : segments_) std::free(address);
    for (auto& [address, bytes] : host_) std::free(address);
    for (auto& [address, range] : ranges_) munmap(address, range.bytes);
    for (Event* event : events_) delete event;
  }

  // ---- What tests do ----

  struct Stream {
    uint64_t submitted = 0;  ///< events recorded, and other work
    uint64_t done = 0;       ///< how many of them the stream has got past
    CaptureState capture;
    std::map<void*, uint32_t> before;  ///< while it is captured: tasks of each stream, its own among them
  };
  /// Streams are named by small numbers.
  static void* S(uintptr_t n) { return reinterpret_cast<void*>(n); }
  /// The stream gets through everything that was submitted.
  void Advance(void* stream) {
    std::lock_guard lock(mutex_);
    streams_[stream].done = streams_[stream].submitted;
  }
  void AdvanceBy(void* stream, uint64_t events) {
    std::lock_guard lock(mutex_);
    Stream& s = streams_[stream];
    s.done = std::min(s.submitted, s.done + events);
  }
  /// Work that no event stands behind; its position in the stream.
  uint64_t Submit(void* stream) {
    std::lock_guard lock(mutex_);
    return ++streams_[stream].submitted;
  }
  /// Whether the stream has got past a position.
  bool Passed(void* stream, uint64_t position) {
    std::lock_guard lock(mutex_);
    return streams_[stream].done >= position;
  }
  void BeginCapture(void* stream, uint64_t id) {
    std::lock_guard lock(mutex_);
    streams_[stream].capture = {true, id};
    streams_[stream].before.clear();
  }
  /// A task of the graph.
  void Capture(void* stream) {
    std::lock_guard lock(mutex_);
    ++streams_[stream].before[stream];
  }
  /// `to` waits for all that `from`, which is being captured, has so far; it joins the capture.
  void Join(void* to, void* from) {
    std::lock_guard lock(mutex_);
    if (!streams_[to].capture.is_open) streams_[to].before.clear();
    streams_[to].capture = streams_[from].capture;
    for (const auto& [stream, tasks] : streams_[from].before) {
      uint32_t& before = streams_[to].before[stream];
      before = std::max(before, tasks);
    }
  }
  void EndCapture(uint64_t id) {
    std::lock_guard lock(mutex_);
    for (auto& [name, s] : streams_) {
      if (s.capture.is_open && s.capture.id == id) s.capture = {};
    }
  }
  static void SetCurrent(void* stream) { current_ = stream; }
  void set_total(uint64_t bytes) { total_ = bytes; }
  /// The n-th next acquisition (memory, pages, event) fails; 0: none.
  void FailAt(int n) { fail_at_ = n; }

  uint64_t used(int device = 0) {
    std::lock_guard lock(mutex_);
    return used_[device];
  }
  size_t live_segments() {
    std::lock_guard lock(mutex_);
    return segments_.size();
  }
  size_t live_ranges() {
    std::lock_guard lock(mutex_);
    return ranges_.size();
  }
  size_t live_host() {
    std::lock_guard lock(mutex_);
    return host_.size();
  }
  size_t live_events() {
    std::lock_guard lock(mutex_);
    return events_.size();
  }
  /// Events recorded on a stream while it was being captured: has to stay 0.
  uint64_t events_in_captures = 0;
  uint64_t queries = 0;
  uint64_t waits = 0;
  uint64_t failures = 0;  ///< acquisitions that FailAt has made fail
  /// Called in the midst of a wait for the device, as other threads would go on then.
  std::function<void()> on_wait;

  // ---- The driver ----

  int DeviceCount() override { return static_cast<int>(used_.size()); }
  StatusOr<void*> Allocate(int device, uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    if (Fails() || used_[device] + bytes > total_) return Error(207001, "the simulated device has no room");
    void* segment = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    used_[device] += bytes;
    segments_[segment] = {device, bytes};
    return segment;
  }
  void Free(int device, void* segment) override {
    std::lock_guard lock(mutex_);
    auto it = segments_.find(segment);
    if (it == segments_.end() || it->second.device != device) std::abort();
    used_[device] -= it->second.bytes;
    segments_.erase(it);
    std::free(segment);
  }
  DeviceSize Size(int device) override {
    std::lock_guard lock(mutex_);
    return {total_ > used_[device] ? total_ - used_[device] : 0, total_};
  }

  StatusOr<void*> ReserveRange(int device, uint64_t bytes, uint64_t) override {
    std::lock_guard lock(mutex_);
    if (Fails()) return Error(207001, "the simulated device has no addresses");
    void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return Error(207001, "no addresses");
    ranges_[range] = {device, bytes, {}};
    return range;
  }
  Status CommitPages(int device, void* at, uint64_t bytes, uint64_t page_bytes) override {
    std::lock_guard lock(mutex_);
    if (Fails() || used_[device] + bytes > total_) return Error(207001, "the simulated device has no room");
    Range& range = RangeOf(at);
    for (uint64_t i = 0; i < bytes; i += page_bytes) {
      if (!range.pages.emplace(static_cast<char*>(at) + i, page_bytes).second) std::abort();
    }
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) std::abort();
    used_[device] += bytes;
    return {};
  }
  void DecommitPages(int device, void* at, uint64_t bytes, uint64_t page_bytes) override {
    std::lock_guard lock(mutex_);
    Range& range = RangeOf(at);
    for (uint64_t i = 0; i < bytes; i += page_bytes) {
      if (range.pages.erase(static_cast<char*>(at) + i) != 1) std::abort();
    }
    madvise(at, bytes, MADV_DONTNEED);
    mprotect(at, bytes, PROT_NONE);
    used_[device] -= bytes;
  }
  void ReleaseRange(int, void* range) override {
    std::lock_guard lock(mutex_);
    auto it = ranges_.find(range);
    if (it == ranges_.end() || !it->second.pages.empty()) std::abort();
    munmap(range, it->second.bytes);
    ranges_.erase(it);
  }

  StatusOr<void*> AllocateHost(uint64_t bytes) override {
    std::lock_guard lock(mutex_);
    if (Fails()) return Error(207001, "the simulated host has no room");
    void* block = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    host_[block] = bytes;
    return block;
  }
  void FreeHost(void* block) override {
    std::lock_guard lock(mutex_);
    if (host_.erase(block) != 1) std::abort();
    std::free(block);
  }

  void* CurrentStream(int) override { return current_; }
  int CurrentDevice() override { return 0; }
  CaptureState CaptureOf(void* stream) override {
    std::lock_guard lock(mutex_);
    return streams_[stream].capture;
  }

  CapturePoint PointInCapture(void* stream) override {
    std::lock_guard lock(mutex_);
    Stream& s = streams_[stream];
    if (!s.capture.is_open) return {};
    const auto lane_of = [](void* of) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(of)); };
    CapturePoint point{s.capture.id, lane_of(stream), s.before[stream], {}};
    for (const auto& [of, tasks] : s.before) {
      if (point.before.size() <= lane_of(of)) point.before.resize(lane_of(of) + 1);
      point.before[lane_of(of)] = tasks;
    }
    return point;
  }

  CaptureMoment MomentInCapture(void* stream) override {
    std::lock_guard lock(mutex_);
    Stream& s = streams_[stream];
    return s.capture.is_open ? CaptureMoment{s.capture.id, s.before[stream]} : CaptureMoment{};
  }

  StatusOr<void*> RecordEvent(void* stream) override {
    std::lock_guard lock(mutex_);
    if (Fails()) return Error(207007, "the simulated device has no events");
    Stream& s = streams_[stream];
    if (s.capture.is_open) ++events_in_captures;
    auto* event = new Event{stream, ++s.submitted};
    events_.push_back(event);
    return static_cast<void*>(event);
  }
  bool IsDone(void* event) override {
    std::lock_guard lock(mutex_);
    ++queries;
    const auto* e = static_cast<Event*>(event);
    return streams_[e->stream].done >= e->position;
  }
  void Wait(void* event) override {
    std::lock_guard lock(mutex_);
    ++waits;
    const auto* e = static_cast<Event*>(event);
    Stream& s = streams_[e->stream];
    s.done = std::max(s.done, e->position);
  }
  void ReleaseEvent(void* event) override {
    std::lock_guard lock(mutex_);
    if (std::erase(events_, static_cast<Event*>(event)) != 1) std::abort();
    delete static_cast<Event*>(event);
  }
  void WaitForDevice(int) override {
    if (on_wait) on_wait();
    std::lock_guard lock(mutex_);
    ++waits;
    for (auto& [name, s] : streams_) {
      if (!s.capture.is_open) s.done = s.submitted;
    }
  }

 private:
  struct Segment {
    int device;
    uint64_t bytes;
  };
  struct Range {
    int device;
    uint64_t bytes;
    std::map<char*, uint64_t> pages;
  };
  struct Event {
    void* stream;
    uint64_t position;
  };
  bool Fails() {
    const bool fails = fail_at_ > 0 && --fail_at_ == 0;
    failures += fails ? 1 : 0;
    return fails;
  }
  Range& RangeOf(void* at) {
    auto it = ranges_.upper_bound(at);
    if (it == ranges_.begin()) std::abort();
    --it;
    if (static_cast<char*>(at) >= static_cast<char*>(it->first) + it->second.bytes) std::abort();
    return it->second;
  }

  std::mutex mutex_;
  uint64_t total_;
  std::vector<uint64_t> used_;
  std::map<void*, Segment> segments_;
  std::map<void*, Range> ranges_;
  std::map<void*, uint64_t> host_;
  std::map<void*, Stream> streams_;
  std::vector<Event*> events_;
  int fail_at_ = 0;
  static inline thread_local void* current_ = nullptr;
};

}  // namespace reprise::memory::testing
