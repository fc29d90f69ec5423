// SPDX-License-Identifier: Apache-2.0
//
// Random programs over the allocator of pinned memory, against an oracle that keeps every use of every byte range. It
// knows nothing of pools' lists, events or parking: only that no range may be handed out, or returned to the driver,
// while a stream has yet to pass a use of it, or a graph that has captured a use of it may still run.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../unit/scale.h"
#include "memory/host_allocator.h"
#include "sim_driver.h"

namespace reprise::memory {
namespace {

using testing::SimDriver;

constexpr uintptr_t kStreams = 5;
constexpr int kPools = 3;

class Program : public SimDriver {
 public:
  Program(uint64_t seed, Config config)
      : seed_(seed), random_(seed), allocator_(std::make_unique<HostAllocator>(*this, config)) {}

  // Empty, or what went wrong.
  std::string Run(int steps) {
    for (int i = 0; i < steps && error_.empty(); ++i) {
      step_ = i;
      Step();
      CheckStatistics();
    }
    if (error_.empty()) Finish();
    allocator_.reset();
    if (error_.empty() && live_host() != 0) Fail("memory is left in the driver");
    if (error_.empty() && live_events() != 0) Fail("events are left in the driver");
    if (error_.empty() && events_in_captures != 0) Fail("an event was recorded on a captured stream");
    return error_;
  }
  std::map<std::string, int> counts;

  // Memory must not leave while somebody may touch it.
  StatusOr<void*> AllocateHost(uint64_t bytes) override {
    StatusOr<void*> memory = SimDriver::AllocateHost(bytes);
    if (!memory.ok()) return memory;
    owned_[static_cast<char*>(*memory)] = bytes;
    // Blocks that are too large to be cached go at the end of the same call.
    owned_bytes_ += static_cast<int64_t>(bytes);
    if (reserve_ == 0) {
      peak_[0] = std::max(peak_[0], static_cast<int64_t>(owned_.size()));
      peak_[2] = std::max(peak_[2], owned_bytes_);
    }
    return memory;
  }
  void FreeHost(void* memory) override {
    const auto it = owned_.find(static_cast<char*>(memory));
    if (it == owned_.end()) {
      Fail("the driver never gave this");
    } else {
      if (!finishing_) CheckUnused(it->first, it->second, "returned to the driver");
      late_.erase(it->first);
      owned_bytes_ -= static_cast<int64_t>(it->second);
      owned_.erase(it);
    }
    if (in_capture_call_) Fail("memory was returned within a capture");
    SimDriver::FreeHost(memory);
  }
  StatusOr<void*> RecordEvent(void* stream) override {
    if (in_capture_call_) Fail("an event was recorded within a capture");
    return SimDriver::RecordEvent(stream);
  }
  bool IsDone(void* event) override {
    if (in_capture_call_) Fail("an event was queried within a capture");
    return SimDriver::IsDone(event);
  }
  void Wait(void* event) override {
    if (!finishing_) Fail("the allocator waits");
    SimDriver::Wait(event);
  }

 private:
  // A graph: it owns a user of a pool's life, may be executing, and ends when it is reset and idle.
  struct Graph {
    int life;
    bool is_reset = false;
    bool is_idle = true;
  };
  struct Use {
    void* stream;
    uint64_t position;
    int life;  ///< -1: an eager use
  };
  struct Taken {
    char* address;
    uint64_t bytes;
    unsigned char pattern;
    std::vector<Use> uses;
  };
  struct Capture {
    uint64_t id;
    PoolId pool;
    void* origin;
    std::vector<void*> streams;
    int graph;
  };

  void Fail(const std::string& what) {
    if (error_.empty()) {
      error_ = "seed " + std::to_string(seed_) + ", step " + std::to_string(step_) + ": " + what;
    }
  }
  uint64_t Draw(uint64_t below) { return random_() % below; }
  void* AnyStream() { return S(1 + Draw(kStreams)); }
  PoolId Pool(int i) { return i == 0 ? PoolId{9, 0} : PoolId{0, static_cast<uint64_t>(i)}; }
  bool IsCaptured(void* stream) { return CaptureOf(stream).is_open; }

  // Graphs of this life that are not reset, or still execute.
  bool LifeGoesOn(int life) const {
    return std::any_of(graphs_.begin(), graphs_.end(), [&](const std::shared_ptr<Graph>& g) {
      return g->life == life && (!g->is_reset || !g->is_idle);
    });
  }
  // A life ends for good once all are reset and idle; it cannot come back then.
  bool IsOpen(const Use& use) { return use.life >= 0 ? LifeGoesOn(use.life) : !Passed(use.stream, use.position); }

  void CheckUnused(const char* address, uint64_t bytes, const char* what) {
    const auto overlaps = [&](const Taken& t) { return t.address < address + bytes && address < t.address + t.bytes; };
    for (const Taken& t : live_) {
      if (overlaps(t)) Fail(std::string("a live block is ") + what);
    }
    for (auto it = freed_.begin(); it != freed_.end();) {
      std::erase_if(it->uses, [&](const Use& use) { return !IsOpen(use); });
      if (it->uses.empty()) {
        it = freed_.erase(it);
        continue;
      }
      if (overlaps(*it)) {
        Fail(std::string(it->uses[0].life >= 0 ? "a block of a graph is " : "a block that a stream uses is ") + what);
      }
      ++it;
    }
  }

  void Step() {
    switch (Draw(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: return Take();
      case 5:
      case 6:
      case 7: return Give();
      case 8:
      case 9:
      case 10:
      case 11: return Copy();
      case 12:
      case 13: return Advance();
      case 14: return captures_.size() < 2 ? BeginCapture() : EndCapture();
      case 15: return Draw(2) == 0 ? EndCapture() : Fork();
      case 16: return ResetGraph();
      case 17: return Replay();
      case 18: return Empty();
      default: return Odd();
    }
  }

  // The current stream of the calling thread, and whether calls now are calls within a capture.
  void ChooseCurrent() {
    void* stream = AnyStream();
    if (!captures_.empty() && Draw(2) == 0) stream = captures_[Draw(captures_.size())].origin;
    SetCurrent(stream);
    in_capture_call_ = IsCaptured(stream) && !routes_.empty();
  }

  void Take() {
    ChooseCurrent();
    static constexpr uint64_t kSizes[] = {1, 100, 128, 1000, 4096, 5000, 70000};
    const uint64_t bytes = kSizes[Draw(std::size(kSizes))] + Draw(3);
    const bool fails = Draw(30) == 0;
    if (fails) FailAt(1);
    StatusOr<void*> block = allocator_->Allocate(bytes);
    FailAt(0);
    in_capture_call_ = false;
    ++counts["allocations"];
    if (!block.ok()) {
      if (!fails || std::move(block).status().code() != 207001) Fail("an allocation failed by itself");
      ++counts["refused allocations"];
      return;
    }
    auto* address = static_cast<char*>(*block);
    CheckUnused(address, bytes, "handed out");
    const auto pattern = static_cast<unsigned char>(1 + Draw(255));
    std::memset(address, pattern, bytes);
    if (reused_.count(address) != 0) ++counts["reuses"];
    reused_[address] = true;
    late_.erase(address);
    live_.push_back({address, bytes, pattern, {}});
  }

  void Give() {
    if (live_.empty()) return;
    ChooseCurrent();
    auto it = std::next(live_.begin(), static_cast<ptrdiff_t>(Draw(live_.size())));
    for (uint64_t i = 0; i < it->bytes; i += 61) {
      if (static_cast<unsigned char>(it->address[i]) != it->pattern) Fail("somebody else wrote to a live block");
    }
    char* const address = it->address;
    if (!it->uses.empty()) late_.insert(address);
    freed_.push_back(*it);
    live_.erase(it);
    const bool fails = Draw(30) == 0;
    if (fails) FailAt(1);
    // Only events and records may fail here, which the caller does not see.
    if (!allocator_->Free(address).ok()) Fail("a free failed");
    FailAt(0);
    in_capture_call_ = false;
  }

  void Copy() {
    if (live_.empty()) return;
    Taken& block = *std::next(live_.begin(), static_cast<ptrdiff_t>(Draw(live_.size())));
    void* const stream = AnyStream();
    // The order of filters decides whose capture it is; only one accepts a captured stream here.
    int life = -1;
    for (const Capture& capture : captures_) {
      if (CaptureOf(stream).is_open && CaptureOf(stream).id == capture.id) life = graphs_[capture.graph]->life;
    }
    block.uses.push_back({stream, life >= 0 ? 0 : Submit(stream), life});
    ++counts[life >= 0 ? "captured copies" : "eager copies"];
    StatusOr<bool> ours = allocator_->RecordUse(block.address + Draw(block.bytes), stream);
    if (!ours.ok() || !*ours) Fail("a use was not recorded");
  }

  void Advance() {
    void* const stream = AnyStream();
    Draw(2) == 0 ? SimDriver::Advance(stream) : AdvanceBy(stream, 1 + Draw(3));
  }

  void BeginCapture() {
    void* const origin = AnyStream();
    const PoolId pool = Pool(static_cast<int>(Draw(kPools)));
    if (IsCaptured(origin)) return;
    const uint64_t id = ++last_capture_;
    const Status status = allocator_->BeginAllocateToPool(pool, [this, id](void* stream) {
      const CaptureState state = CaptureOf(stream);
      return state.is_open && state.id == id;
    });
    if (status.ok() != (routes_.count(pool) == 0)) Fail("routing was taken or refused wrongly");
    if (!status.ok()) return;
    routes_.insert({pool, id});
    // A new life, when the last one has no users.
    const bool lives = std::any_of(graphs_.begin(), graphs_.end(), [&](const std::shared_ptr<Graph>& g) {
      return !g->is_reset && pool_of_life_[static_cast<size_t>(g->life)] == pool && life_of_pool_[pool] == g->life;
    });
    if (!lives) {
      life_of_pool_[pool] = static_cast<int>(pool_of_life_.size());
      pool_of_life_.push_back(pool);
      ++counts["lives"];
    }
    graphs_.push_back(std::make_shared<Graph>(Graph{life_of_pool_[pool]}));
    SimDriver::BeginCapture(origin, id);
    captures_.push_back({id, pool, origin, {origin}, static_cast<int>(graphs_.size()) - 1});
    if (allocator_->PoolUsers(pool) != UsersOf(pool)) Fail("the users of a pool are miscounted");
  }
  int UsersOf(PoolId pool) {
    const int life = life_of_pool_[pool];
    return static_cast<int>(std::count_if(graphs_.begin(), graphs_.end(), [&](const std::shared_ptr<Graph>& g) {
      return g->life == life && !g->is_reset;
    }));
  }

  void Fork() {
    if (captures_.empty()) return;
    void* const stream = AnyStream();
    if (!IsCaptured(stream)) SimDriver::BeginCapture(stream, captures_[Draw(captures_.size())].id);
  }

  void EndCapture() {
    if (captures_.empty()) return;
    const size_t i = Draw(captures_.size());
    SimDriver::EndCapture(captures_[i].id);
    if (!allocator_->EndAllocateToPool(captures_[i].pool).ok()) Fail("the end of routing was refused");
    routes_.erase(captures_[i].pool);
    const int graph = captures_[i].graph;
    captures_.erase(captures_.begin() + static_cast<ptrdiff_t>(i));
    if (Draw(5) == 0) Reset(graph);  // a capture that failed
  }

  void Replay() {
    for (const auto& graph : graphs_) {
      if (!graph->is_idle && Draw(2) == 0) graph->is_idle = true;
    }
    if (graphs_.empty()) return;
    Graph& graph = *graphs_[Draw(graphs_.size())];
    if (!graph.is_reset && !IsOpenCapture(graph)) graph.is_idle = false;
  }
  bool IsOpenCapture(const Graph& graph) const {
    return std::any_of(captures_.begin(), captures_.end(),
                       [&](const Capture& c) { return graphs_[static_cast<size_t>(c.graph)].get() == &graph; });
  }

  void ResetGraph() {
    if (graphs_.empty()) return;
    const auto i = static_cast<int>(Draw(graphs_.size()));
    if (!graphs_[static_cast<size_t>(i)]->is_reset && !IsOpenCapture(*graphs_[static_cast<size_t>(i)])) Reset(i);
  }
  void Reset(int i) {
    std::shared_ptr<Graph> graph = graphs_[static_cast<size_t>(i)];
    ChooseCurrent();
    graph->is_reset = true;
    std::function<bool()> idle;
    if (!graph->is_idle || Draw(2) == 0) idle = [graph] { return graph->is_idle; };
    if (!allocator_->ReleasePool(pool_of_life_[static_cast<size_t>(graph->life)], std::move(idle)).ok()) {
      Fail("a release was refused");
    }
    in_capture_call_ = false;
    ++counts["resets"];
  }

  void Empty() {
    ChooseCurrent();
    const bool captured = in_capture_call_;
    if (!allocator_->EmptyCache().ok()) Fail("emptying was refused");
    in_capture_call_ = false;
    if (!captured) ++counts["empties"];
  }

  void Odd() {
    char foreign = 0;
    if (allocator_->Free(&foreign).code() != 107000) Fail("a foreign block was freed");
    if (!freed_.empty()) {
      // As long as a use of it is open, it cannot be anybody's, so it has been freed before.
      CheckUnused(&foreign, 1, "");
      if (!freed_.empty() && allocator_->Free(freed_.front().address).code() != 107000) Fail("freed twice");
    }
    if (!live_.empty() && !allocator_->Owns(live_.front().address)) Fail("a live block is not ours");
  }

  // Numbers that can be counted without knowing when the allocator looks at events.
  void CheckStatistics() {
    const HostStats stats = allocator_->Stats();
    // Pieces of the reserve segment are blocks, too; without one, blocks are what the driver gave.
    if (reserve_ == 0) {
      if (stats.allocations.current != static_cast<int64_t>(owned_.size())) Fail("allocations are miscounted");
      if (stats.allocated_bytes.current != owned_bytes_) Fail("allocated bytes are miscounted");
    }
    if (stats.num_host_alloc - stats.num_host_free != static_cast<int64_t>(owned_.size())) Fail("calls are miscounted");
    const auto live = static_cast<int64_t>(live_.size());
    if (stats.active_requests.current < live) Fail("active requests are fewer than live blocks");
    if (stats.active_requests.current > live + static_cast<int64_t>(late_.size())) Fail("active requests are too many");
    const std::pair<const Stat*, int64_t*> peaks[] = {{&stats.allocations, &peak_[0]},
                                                      {&stats.active_requests, &peak_[1]},
                                                      {&stats.allocated_bytes, &peak_[2]},
                                                      {&stats.active_bytes, &peak_[3]}};
    for (const auto& [stat, peak] : peaks) {
      *peak = std::max(*peak, stat->current);
      if (stat->peak != *peak) Fail("a peak is not the largest value there was");
      if (stat->current != stat->allocated - stat->freed) Fail("current is not allocated less freed");
    }
  }

  // The allocator has seen that everything is over: then all numbers are known.
  void Finish() {
    while (!captures_.empty()) EndCapture();
    SetCurrent(nullptr);
    for (int round = 0; round < 2; ++round) {
      for (uintptr_t s = 1; s <= kStreams; ++s) SimDriver::Advance(S(s));
      if (!allocator_->EmptyCache().ok()) Fail("emptying was refused");
    }
    // What is still in use now are live blocks and those of graphs.
    CheckUnused(nullptr, 0, "");
    int64_t bytes = 0;
    for (const Taken& t : live_) bytes += static_cast<int64_t>(std::bit_ceil(t.bytes));
    for (const Taken& t : freed_) bytes += static_cast<int64_t>(std::bit_ceil(t.bytes));
    HostStats stats = allocator_->Stats();
    if (stats.active_requests.current != static_cast<int64_t>(live_.size() + freed_.size())) {
      Fail("active requests differ from the recount");
    }
    if (stats.active_bytes.current != bytes) Fail("active bytes differ from the recount");
    for (size_t i = 0; i < graphs_.size(); ++i) {
      graphs_[i]->is_idle = true;
      if (!graphs_[i]->is_reset) Reset(static_cast<int>(i));
    }
    SetCurrent(nullptr);
    while (!live_.empty()) {
      char* const address = live_.front().address;
      freed_.splice(freed_.end(), live_, live_.begin());
      if (!allocator_->Free(address).ok()) Fail("a free failed");
    }
    for (int round = 0; round < 2; ++round) {
      for (uintptr_t s = 1; s <= kStreams; ++s) SimDriver::Advance(S(s));
      if (!allocator_->EmptyCache().ok()) Fail("emptying was refused");
    }
    stats = allocator_->Stats();
    if (stats.active_requests.current != 0 || stats.active_bytes.current != 0) Fail("something is still active");
    if (stats.allocations.current != 0 || stats.allocated_bytes.current != 0) Fail("something is still cached");
    if (owned_.size() != (reserve_ != 0 ? 1u : 0u) && owned_.size() != 0) Fail("the driver's memory was not returned");
    finishing_ = true;
  }

 public:
  void set_reserve(uint64_t bytes) { reserve_ = bytes; }

 private:
  const uint64_t seed_;
  std::mt19937_64 random_;
  uint64_t reserve_ = 0;
  std::string error_;
  int step_ = 0;
  bool in_capture_call_ = false;
  bool finishing_ = false;
  std::map<char*, uint64_t> owned_;
  std::map<char*, bool> reused_;
  std::set<char*> late_;  ///< freed blocks with uses that have not been seen again
  std::list<Taken> live_;
  std::list<Taken> freed_;
  std::vector<std::shared_ptr<Graph>> graphs_;
  std::vector<Capture> captures_;
  std::map<PoolId, uint64_t> routes_;
  std::map<PoolId, int> life_of_pool_;
  std::vector<PoolId> pool_of_life_;
  uint64_t last_capture_ = 0;
  int64_t owned_bytes_ = 0;
  int64_t peak_[4] = {};
  std::unique_ptr<HostAllocator> allocator_;
};

void RunPrograms(uint64_t first_seed, int programs, const Config& config) {
  std::map<std::string, int> counts;
  for (int i = 0; i < programs; ++i) {
    Program program(first_seed + static_cast<uint64_t>(i), config);
    program.set_reserve(config.pinned_reserve_segment_size);
    const std::string error = program.Run(150);
    ASSERT_EQ(error, "");
    for (const auto& [name, count] : program.counts) counts[name] += count;
  }
  // A program that does nothing finds nothing.
  for (const char* name : {"allocations", "refused allocations", "reuses", "captured copies", "eager copies", "lives",
                           "resets", "empties"}) {
    EXPECT_GT(counts[name], programs / 4) << name;
  }
}

int Programs(int full) {
  const char* cases = std::getenv("REPRISE_TEST_CASES");
  return cases != nullptr ? std::atoi(cases) : ::reprise::testing::InForm(::reprise::testing::Loops(full, full / 10));
}

TEST(HostRandom, NoBlockIsHandedOutWhileAStreamOrAGraphUsesIt) { RunPrograms(1, Programs(2000), {}); }

TEST(HostRandom, NorWithLimitsOfRoundingAndCaching) {
  Config config;
  config.pinned_max_cached_size = 4096;
  RunPrograms(100001, Programs(700), config);
}

TEST(HostRandom, NorWithAReserveSegment) {
  Config config;
  config.pinned_reserve_segment_size = kMiB;
  RunPrograms(200001, Programs(700), config);
}

}  // namespace
}  // namespace reprise::memory
