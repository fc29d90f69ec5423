// SPDX-License-Identifier: Apache-2.0
//
// Settings of the allocators in use, and the blocks of a pool, through reprise/memory.h.
#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise/memory.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../runtime/child.h"
#include "../unit/scale.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

std::string MessageOf(int code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Exception& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::map<std::string, std::string> Settings() {
  std::map<std::string, std::string> settings;
  for (auto& [key, value] : MemorySettings()) EXPECT_TRUE(settings.emplace(key, value).second) << key;
  return settings;
}

// Each test is a process of its own: nothing leads back from a limit to none.
class InProcess : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(0, aclrtSetDevice(0)); }
  void TearDown() override { EXPECT_EQ(0, aclrtResetDeviceForce(0)); }
};

void InChild(const std::string& test, const char* environment = "") {
  if (*environment != '\0') ::setenv("PYTORCH_NPU_ALLOC_CONF", environment, 1);
  Child child("InProcess.DISABLED_" + test, "");
  ::unsetenv("PYTORCH_NPU_ALLOC_CONF");
  child.Join();
}

TEST_F(InProcess, DISABLED_ShowWhatWasChanged) {
  const auto before = Settings();
  for (const char* key : {"max_split_size_mb", "garbage_collection_threshold", "expandable_segments", "page_size",
                          "pinned_max_cached_size_mb", "PYTORCH_NO_NPU_MEMORY_CACHING"}) {
    EXPECT_TRUE(before.contains(key)) << key;
  }
  EXPECT_EQ(before.at("max_split_size_mb"), "");
  EXPECT_EQ(before.at("throw_on_npumalloc_oom"), "False");
  const struct {
    const char* change;
    std::vector<std::pair<std::string, std::string>> shown;
  } table[] = {
      {"", {}},
      {" , ", {}},
      {"max_split_size_mb:64", {{"max_split_size_mb", "64"}}},
      {"max_non_split_rounding_mb: 30 ,release_lock_on_npumalloc:True",
       {{"max_non_split_rounding_mb", "30"}, {"release_lock_on_npumalloc", "True"}}},
      {"throw_on_npumalloc_oom:True", {{"throw_on_npumalloc_oom", "True"}}},
      {"throw_on_npumalloc_oom:True,throw_on_npumalloc_oom:False", {{"throw_on_npumalloc_oom", "False"}}},
      {"per_process_memory_fraction:0.5", {{"per_process_memory_fraction", "0.5"}}},
      {"pinned_max_round_threshold_mb:8,pinned_max_cached_size_mb:16",
       {{"pinned_max_round_threshold_mb", "8"}, {"pinned_max_cached_size_mb", "16"}}},
  };
  auto expected = before;
  for (const auto& row : table) {
    ChangeMemorySettings(row.change);
    for (const auto& [key, value] : row.shown) expected[key] = value;
    EXPECT_EQ(Settings(), expected) << row.change;
  }
}
TEST(MemorySettings, ShowWhatWasChanged) { InChild("ShowWhatWasChanged"); }

TEST_F(InProcess, DISABLED_AreRefusedAsAWhole) {
  const struct {
    const char* change;
    std::vector<const char*> says;
  } table[] = {
      {"release_lock_on_npumalloc:True,bogus:1", {"no key 'bogus'", "culprit: key 'bogus'", "use one of"}},
      {"release_lock_on_npumalloc:True,expandable_segment:True", {"did you mean expandable_segments"}},
      {"release_lock_on_npumalloc:True,throw_on_npumalloc_oom:yes", {"'yes' is no value", "True or False"}},
      {"release_lock_on_npumalloc:True,max_split_size_mb:20", {"'20' is no value", "more than 20"}},
      {"release_lock_on_npumalloc:True,per_process_memory_fraction:1.5", {"'1.5' is no value", "from 0 to 1"}},
      {"release_lock_on_npumalloc:True,pinned_max_cached_size_mb:-1", {"'-1' is no value"}},
      {"release_lock_on_npumalloc:True,max_split_size_mb", {"'' is no value"}},
      {"release_lock_on_npumalloc:True,max_split_size_mb:32,expandable_segments:True",
       {"expandable_segments:True and max_split_size_mb exclude each other", "leave out"}},
      {"release_lock_on_npumalloc:True,garbage_collection_threshold:0.5", {"cannot change", "these may change"}},
      {"large_segment_size_mb:32", {"large_segment_size_mb is read when", "PYTORCH_NPU_ALLOC_CONF"}},
      {"segment_size_mb:32", {"cannot change"}},
      {"roundup_power2_divisions:[256:1,512:2]", {"cannot change"}},
      {"page_size:1g", {"cannot change"}},
      {"base_addr_aligned_kb:0", {"cannot change"}},
      {"multi_stream_lazy_reclaim:True", {"cannot change"}},
      {"pinned_use_background_threads:True", {"cannot change"}},
      {"pinned_mem_register:True", {"cannot change"}},
      {"pinned_reserve_segment_size_mb:4", {"cannot change"}},
      {"pin_memory_expandable_segments:True", {"cannot change"}},
  };
  const auto before = Settings();
  for (const auto& row : table) {
    const std::string message = MessageOf(107000, [&] { ChangeMemorySettings(row.change); });
    for (const char* words : row.says) EXPECT_THAT(message, HasSubstr(words)) << row.change;
    EXPECT_THAT(message, AllOf(HasSubstr("culprit: "), HasSubstr("next step: "))) << row.change;
    EXPECT_EQ(Settings(), before) << row.change;
  }
  // What is in force counts as much as what the text says.
  ChangeMemorySettings("max_split_size_mb:32");
  EXPECT_THAT(MessageOf(107000, [] { ChangeMemorySettings("expandable_segments:True"); }),
              HasSubstr("exclude each other"));
  EXPECT_EQ(Settings().at("expandable_segments"), "False");
}
TEST(MemorySettings, AreRefusedAsAWhole) { InChild("AreRefusedAsAWhole"); }

TEST_F(InProcess, DISABLED_AreRefusedWithAMalformedEnvironment) {
  EXPECT_THAT(MessageOf(107000, [] { (void)MemorySettings(); }), HasSubstr("PYTORCH_NPU_ALLOC_CONF"));
  EXPECT_THAT(MessageOf(107000, [] { ChangeMemorySettings("max_split_size_mb:32"); }),
              HasSubstr("PYTORCH_NPU_ALLOC_CONF"));
}
TEST(MemorySettings, AreRefusedWithAMalformedEnvironment) {
  InChild("AreRefusedWithAMalformedEnvironment", "max_split_size_mb:2");
}

TEST_F(InProcess, DISABLED_OfDeviceMemoryCountFromTheNextAllocationOn) {
  const auto expandable = [](const void* block) {
    for (const SegmentInfo& segment : device_memory::Snapshot().segments) {
      for (const BlockInfo& info : segment.blocks) {
        if (info.address == reinterpret_cast<uintptr_t>(block)) return segment.is_expandable ? 1 : 0;
      }
    }
    return -1;
  };
  void* const plain = device_memory::Allocate(4 * kMiB);
  EXPECT_EQ(expandable(plain), 0);
  ChangeMemorySettings("expandable_segments:True");
  void* const ranged = device_memory::Allocate(64 * kMiB);
  EXPECT_EQ(expandable(ranged), 1);
  ChangeMemorySettings("expandable_segments:False");
  void* const again = device_memory::Allocate(96 * kMiB);
  EXPECT_EQ(expandable(again), 0);
  EXPECT_EQ(expandable(plain), 0);
  EXPECT_EQ(expandable(ranged), 1);
  for (void* block : {plain, ranged, again}) device_memory::Free(block);
  device_memory::EmptyCache();
  EXPECT_EQ(device_memory::Stats(0).reserved_bytes.all.current, 0);

  EXPECT_EQ(device_memory::Stats(0).max_split_size, -1);
  ChangeMemorySettings("max_split_size_mb:32");
  EXPECT_EQ(device_memory::Stats(0).max_split_size, static_cast<int64_t>(32 * kMiB));
  void* const large = device_memory::Allocate(40 * kMiB);
  EXPECT_EQ(device_memory::Stats(0).oversize_allocations.current, 1);
  ChangeMemorySettings("max_split_size_mb:64");
  device_memory::Free(large);
  EXPECT_EQ(device_memory::Stats(0).oversize_allocations.current, 0) << "counted by the limit of its allocation";

  // A named fraction is in force, also when it is the one that was set before a call changed it.
  device_memory::SetFraction(0, 0.25);
  ChangeMemorySettings("throw_on_npumalloc_oom:True");
  EXPECT_EQ(device_memory::Fraction(0), 0.25);
  ChangeMemorySettings("per_process_memory_fraction:1");
  EXPECT_EQ(device_memory::Fraction(0), 1);
  ChangeMemorySettings("per_process_memory_fraction:0");
  EXPECT_THAT(MessageOf(207001, [] { (void)device_memory::Allocate(512 * kMiB); }), HasSubstr("207001"));
  EXPECT_EQ(device_memory::Stats(0).num_oom_rejections, 1) << "throw_on_npumalloc_oom: without flushing";
  ChangeMemorySettings("per_process_memory_fraction:1,throw_on_npumalloc_oom:False");
  device_memory::Free(device_memory::Allocate(kMiB));
}
TEST(MemorySettings, OfDeviceMemoryCountFromTheNextAllocationOn) {
  InChild("OfDeviceMemoryCountFromTheNextAllocationOn");
}

TEST_F(InProcess, DISABLED_OfPinnedMemoryCountFromTheNextAllocationOn) {
  const auto owned = [] { return host_memory::Stats().allocated_bytes.current; };
  host_memory::Free(host_memory::Allocate(5 * kMiB));
  EXPECT_EQ(owned(), static_cast<int64_t>(8 * kMiB)) << "rounded up, and kept";
  ChangeMemorySettings("pinned_max_cached_size_mb:4");
  EXPECT_EQ(owned(), 0) << "nothing that large is kept any more";
  ChangeMemorySettings("pinned_max_round_threshold_mb:2,pinned_max_cached_size_mb:64");
  void* const block = host_memory::Allocate(5 * kMiB);
  EXPECT_EQ(owned(), static_cast<int64_t>(5 * kMiB)) << "not rounded";
  host_memory::Free(block);
  EXPECT_EQ(owned(), static_cast<int64_t>(5 * kMiB)) << "kept";
  void* const same = host_memory::Allocate(5 * kMiB);
  EXPECT_EQ(same, block);
  ChangeMemorySettings("pinned_max_cached_size_mb:1");
  EXPECT_EQ(owned(), static_cast<int64_t>(5 * kMiB)) << "in use";
  host_memory::Free(same);
  EXPECT_EQ(owned(), 0);
}
TEST(MemorySettings, OfPinnedMemoryCountFromTheNextAllocationOn) {
  InChild("OfPinnedMemoryCountFromTheNextAllocationOn");
}

// Threads allocate while others change everything that may change.
TEST_F(InProcess, DISABLED_MayChangeUnderTheHandsOfOthers) {
  const int rounds = Loops(3000, 300);
  std::atomic<int> left{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      for (int i = 0; i < rounds; ++i) {
        const size_t bytes = size_t{512} << (i * 7 + t) % 15;
        void* const device = device_memory::Allocate(bytes);
        EXPECT_GE(device_memory::SizeOf(device), bytes);
        void* const host = host_memory::Allocate(bytes);
        device_memory::Free(device);
        host_memory::Free(host);
      }
      --left;
    });
  }
  const std::vector<std::string> changes[2] = {
      {"expandable_segments:True", "pinned_max_round_threshold_mb:0,release_lock_on_npumalloc:True",
       "expandable_segments:False,pinned_max_round_threshold_mb:8"},
      {"pinned_max_cached_size_mb:0", "pinned_max_cached_size_mb:8,max_non_split_rounding_mb:30",
       "per_process_memory_fraction:0.9"}};
  for (const auto& list : changes) {
    threads.emplace_back([&] {
      for (size_t i = 0; left != 0 || i < list.size(); ++i) ChangeMemorySettings(list[i % list.size()]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // No change of one thread is lost to the other.
  const auto settings = Settings();
  EXPECT_EQ(settings.at("release_lock_on_npumalloc"), "True");
  EXPECT_EQ(settings.at("max_non_split_rounding_mb"), "30");
  EXPECT_EQ(settings.at("per_process_memory_fraction"), "0.9");
  EXPECT_EQ(device_memory::Stats(0).allocation.all.current, 0);
  EXPECT_EQ(host_memory::Stats().active_requests.current, 0);
}
TEST(MemorySettings, MayChangeUnderTheHandsOfOthers) { InChild("MayChangeUnderTheHandsOfOthers"); }

// ---- Live blocks ----

TEST_F(InProcess, LiveBlocksAreThoseThatSomebodyHolds) {
  const MemPool pool;
  const auto live = [&] { return device_memory::LiveBlocks(0, pool.id()); };
  EXPECT_THAT(live(), ElementsAre());
  std::vector<void*> blocks;
  {
    const UsePool use(pool);
    for (const size_t bytes : {size_t{512}, 3 * kMiB, size_t{1024}, 30 * kMiB}) {
      blocks.push_back(device_memory::Allocate(bytes));
    }
  }
  void* const outside = device_memory::Allocate(512);
  std::vector<void*> expected = blocks;
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(live(), expected);
  EXPECT_THAT(device_memory::LiveBlocks(0, {}), ElementsAre(outside)) << "the default pool";
  device_memory::Free(blocks[1]);
  std::erase(expected, blocks[1]);
  EXPECT_EQ(live(), expected);

  // Freed, but still in use elsewhere: nobody holds it.
  aclrtStream other = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&other));
  device_memory::RecordStream(blocks[0], other);
  device_memory::Free(blocks[0]);
  std::erase(expected, blocks[0]);
  EXPECT_EQ(live(), expected);
  for (void* block : {blocks[2], blocks[3], outside}) device_memory::Free(block);
  EXPECT_THAT(live(), ElementsAre());
  EXPECT_EQ(0, aclrtDestroyStream(other));
}

TEST_F(InProcess, LiveBlocksOfWhatIsNotThere) {
  EXPECT_THAT(device_memory::LiveBlocks(0, {0, uint64_t{1} << 60}), ElementsAre()) << "no such pool";
  for (const int device : {-1, 99}) {
    EXPECT_THAT(MessageOf(107001, [&] { (void)device_memory::LiveBlocks(device, {}); }), HasSubstr("device"));
  }
}

// ---- Waits ----

std::mutex g_needed;  // by the caller and by work of the device
std::atomic<int> g_left{0};

void Need(void*) {
  // Not std::timed_mutex: ThreadSanitizer of GCC 12 does not see its waits.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!g_needed.try_lock()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "who waits for the device holds the lock";
      return;
    }
    std::this_thread::yield();
  }
  g_needed.unlock();
}

TEST_F(InProcess, WaitsForTheDeviceLetGoOfALockThatItsWorkNeeds) {
  device_memory::SetWaitScope(
      []() -> void* {
        g_needed.unlock();
        ++g_left;
        return &g_left;
      },
      [](void* left) {
        EXPECT_EQ(left, &g_left);
        g_needed.lock();
      });
  aclrtStream stream = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&stream));
  void* const block = device_memory::Allocate(kMiB, stream);
  {
    const std::lock_guard lock(g_needed);
    ASSERT_EQ(0, aclrtLaunchHostFunc(stream, Need, nullptr));
    device_memory::Free(block);
    device_memory::EmptyCache();
    EXPECT_GT(g_left, 0);
    EXPECT_EQ(device_memory::Stats(0).reserved_bytes.all.current, 0);
  }
  device_memory::SetWaitScope(nullptr, nullptr);
  g_left = 0;
  device_memory::EmptyCache();
  EXPECT_EQ(g_left, 0);
  EXPECT_THAT(MessageOf(107000, [] { device_memory::SetWaitScope(nullptr, [](void*) {}); }),
              HasSubstr("parameter leave"));
  EXPECT_EQ(0, aclrtDestroyStream(stream));
}

}  // namespace
}  // namespace reprise::testing
