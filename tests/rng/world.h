// SPDX-License-Identifier: Apache-2.0
//
// Generators on the real runtime: an environment over the C interface, and a graph that does what owners of captures
// have to do for the states that draw in them.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "fixture.h"
#include "rng/draw.h"
#include "rng/generator.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::testing {

class Graph;

class RealEnvironment final : public rng::Environment {
 public:
  static RealEnvironment& Get() {
    static auto* const environment = new RealEnvironment;
    return *environment;
  }

  /// Of the calling thread.
  static inline thread_local aclrtStream current_stream = nullptr;

  uint64_t CurrentCapture(int) override { return current_stream == nullptr ? 0 : CaptureOf(current_stream); }
  uint64_t CaptureOf(void* stream) override {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, &model));
    return status == ACL_MODEL_RI_CAPTURE_STATUS_NONE ? 0 : reinterpret_cast<uint64_t>(model);
  }
  Status Register(uint64_t capture, std::shared_ptr<rng::GeneratorState> state) override;
  StatusOr<int64_t*> AllocateCell(int) override {
    void* cell = nullptr;
    if (const int code = aclrtMalloc(&cell, sizeof(int64_t), ACL_MEM_MALLOC_HUGE_FIRST); code != 0) {
      return Error(code, "no cell");
    }
    cells.fetch_add(1);
    return static_cast<int64_t*>(cell);
  }
  void FreeCell(int64_t* cell) noexcept override {
    EXPECT_EQ(0, aclrtFree(cell));
    cells.fetch_sub(1);
  }
  Status WriteCells(void* stream, int64_t* seed_cell, int64_t seed, int64_t* offset_cell, int64_t offset) override {
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(runtime::SubmitValueWrite(*on, seed_cell, static_cast<uint64_t>(seed)));
    return runtime::SubmitValueWrite(*on, offset_cell, static_cast<uint64_t>(offset));
  }

  std::atomic<int> cells{0};

 private:
  friend class Graph;
  std::mutex mutex_;
  std::map<uint64_t, Graph*> graphs_;  // open captures
};

/// A capture and its replays.
class Graph {
 public:
  Graph() { EXPECT_EQ(0, aclrtCreateEvent(&done_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    Reset();
    EXPECT_EQ(0, aclrtDestroyEvent(done_));
  }

  void Begin(aclrtStream stream) {
    ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    capture_ = Environment().CaptureOf(stream);
    ASSERT_NE(0u, capture_);
    std::lock_guard lock(Environment().mutex_);
    Environment().graphs_[capture_] = this;
    RealEnvironment::current_stream = stream;
  }
  void End(aclrtStream stream) {
    const int code = aclmdlRICaptureEnd(stream, &model_);
    RealEnvironment::current_stream = nullptr;
    {
      std::lock_guard lock(Environment().mutex_);
      Environment().graphs_.erase(capture_);
    }
    std::lock_guard lock(mutex_);
    if (code != 0) {
      for (const auto& [state, increment] : states_) state->RemoveCapture(capture_);
      states_.clear();
    }
    ASSERT_EQ(0, code);
    for (auto& [state, increment] : states_) increment = state->CaptureEpilogue(capture_);
  }
  void Replay(aclrtStream stream) {
    std::lock_guard lock(mutex_);
    // Before the cells are written: the last replay may still read them.
    if (replayed_) {
      ASSERT_EQ(0, aclrtStreamWaitEvent(stream, done_));
    }
    for (const auto& [state, increment] : states_) {
      const Status status = state->ReplayPrologue(capture_, increment, stream);
      ASSERT_TRUE(status.ok()) << status.detail().what;
    }
    ASSERT_EQ(0, aclmdlRIExecuteAsync(model_, stream));
    ASSERT_EQ(0, aclrtRecordEvent(done_, stream));
    replayed_ = true;
  }
  void Reset() {
    std::lock_guard lock(mutex_);
    for (const auto& [state, increment] : states_) state->RemoveCapture(capture_);
    states_.clear();
    if (model_ != nullptr) {
      EXPECT_EQ(0, aclmdlRIDestroy(std::exchange(model_, nullptr)));
    }
    replayed_ = false;
  }

  aclmdlRI model() const { return model_; }
  uint64_t increment(const rng::Generator& generator) {
    std::lock_guard lock(mutex_);
    return states_.at(generator.state());
  }

 private:
  friend class RealEnvironment;
  static RealEnvironment& Environment() { return RealEnvironment::Get(); }

  std::mutex mutex_;
  uint64_t capture_ = 0;
  aclmdlRI model_ = nullptr;
  aclrtEvent done_ = nullptr;
  bool replayed_ = false;
  std::map<std::shared_ptr<rng::GeneratorState>, uint64_t> states_;
};

inline Status RealEnvironment::Register(uint64_t capture, std::shared_ptr<rng::GeneratorState> state) {
  std::lock_guard lock(mutex_);
  const auto found = graphs_.find(capture);
  if (found == graphs_.end()) {
    return Error(107030, "no graph owns the capture").Culprit("the capture").Hint("capture with a graph");
  }
  std::lock_guard graph_lock(found->second->mutex_);
  found->second->states_.try_emplace(std::move(state), 0);
  return {};
}

/// Device memory for elements of one type.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    EXPECT_EQ(0, aclrtMalloc(&memory_, std::max<size_t>(1, count) * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST));
    Clear();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { EXPECT_EQ(0, aclrtFree(memory_)); }
  T* data() const { return static_cast<T*>(memory_); }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data()[i]; }
  void Clear() const { std::memset(memory_, 0xEE, count_ * sizeof(T)); }
  std::vector<T> Copy() const { return {data(), data() + count_}; }

 private:
  void* memory_ = nullptr;
  size_t count_;
};

class RandomWorld : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
    generator_ = NewGenerator();
  }
  void TearDown() override {
    RealEnvironment::current_stream = nullptr;
    generator_.reset();
    EXPECT_EQ(RealEnvironment::Get().cells, 0) << "cells that nobody freed";
    Runtime::TearDown();
  }
  static std::shared_ptr<rng::Generator> NewGenerator() {
    auto made = rng::Generator::Create(RealEnvironment::Get(), 0);
    EXPECT_TRUE(made.ok());
    return *made;
  }
  static Status TryDraw(aclrtStream stream, rng::Generator& generator, const kernels::DrawCall& call) {
    auto found = runtime::FindStream(stream);
    EXPECT_TRUE(found.ok());
    return rng::SubmitDraw(**found, generator, call);
  }
  static void Draw(aclrtStream stream, rng::Generator& generator, const kernels::DrawCall& call) {
    const Status status = TryDraw(stream, generator, call);
    ASSERT_TRUE(status.ok()) << status.detail().what;
  }
  /// Normal numbers.
  static kernels::DrawCall Normal(const Buffer<float>& out) {
    kernels::DrawCall call;
    call.distribution = kernels::Distribution::kNormal;
    call.b = 1.0;
    call.count = static_cast<int64_t>(out.size());
    call.out = out.data();
    return call;
  }
  void Seed(uint64_t seed) { ASSERT_TRUE(generator_->SetCurrentSeed(seed).ok()); }
  uint64_t Offset() {
    auto offset = generator_->PhiloxOffset();
    EXPECT_TRUE(offset.ok());
    return *offset;
  }

  aclrtStream stream_ = nullptr;
  std::shared_ptr<rng::Generator> generator_;
};

}  // namespace reprise::testing
