// SPDX-License-Identifier: Apache-2.0
//
// What device memory tells a checker of accesses. The program plays AddressSanitizer's part: it has the functions that
// the libraries look for, and notes what they close and open. The recipe of docs/cookbook.md runs with the real one.
#include <acl/acl_rt_memory_soma.h>
#include <reprise/memory.h>
#include <reprise/stream.h>

#include <mutex>

#include "fixture.h"

namespace {

struct Note {
  uintptr_t begin, end;
  bool closed;
};
std::mutex g_mutex;
std::vector<Note>& Notes() {
  static auto* const notes = new std::vector<Note>;
  return *notes;
}
void Add(const volatile void* begin, size_t bytes, bool closed) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  std::lock_guard lock(g_mutex);
  Notes().push_back({at, at + bytes, closed});
}
void (*g_report)(const char*) = nullptr;
void* g_address = nullptr;

// The newest note decides.
bool IsClosed(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard lock(g_mutex);
  for (auto note = Notes().rbegin(); note != Notes().rend(); ++note) {
    if (at >= note->begin && at < note->end) return note->closed;
  }
  return false;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
void __asan_poison_memory_region(const volatile void* begin, size_t bytes) { Add(begin, bytes, true); }
void __asan_unpoison_memory_region(const volatile void* begin, size_t bytes) { Add(begin, bytes, false); }
void __asan_set_error_report_callback(void (*callback)(const char*)) { g_report = callback; }
void* __asan_get_report_address() { return g_address; }
}
#pragma GCC visibility pop

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;

class RedZones : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    stream_ = NewStream();
  }
  static char* Malloc(size_t bytes) {
    void* at = nullptr;
    EXPECT_EQ(0, aclrtMalloc(&at, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    return static_cast<char*>(at);
  }
  // What the libraries add to a report of an access there.
  static std::string Report(void* address) {
    g_address = address;
    ::testing::internal::CaptureStderr();
    g_report("");
    return ::testing::internal::GetCapturedStderr();
  }
  aclrtStream stream_ = nullptr;
};

TEST_F(RedZones, BehindEachAllocation) {
  for (const size_t bytes : {size_t{1}, size_t{40}, size_t{4096}, size_t{1} << 20, (size_t{3} << 20) + 5}) {
    SCOPED_TRACE(bytes);
    char* const memory = Malloc(bytes);
    EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(memory) % 512);
    EXPECT_FALSE(IsClosed(memory));
    EXPECT_FALSE(IsClosed(memory + bytes - 1));
    for (size_t behind = 0; behind < 64; ++behind) EXPECT_TRUE(IsClosed(memory + bytes + behind)) << behind;
    EXPECT_THAT(Report(memory + bytes + 3),
                HasSubstr("lies 3 bytes behind the end of device memory " + ::testing::PrintToString((void*)memory)));
    EXPECT_THAT(Report(memory + bytes + 3), HasSubstr(" of " + std::to_string(bytes) + " bytes (device 0)"));
    EXPECT_THAT(Report(memory + bytes + 3), HasSubstr("runtime_red_zones(")) << "names the place in the program";
    MUST(aclrtFree(memory));
    EXPECT_THAT(Report(memory), HasSubstr("lies 0 bytes into device memory "));
    EXPECT_THAT(Report(memory), HasSubstr(", which was freed by thread "));
  }
  void* pinned = nullptr;
  MUST(aclrtMallocHost(&pinned, 100));
  EXPECT_FALSE(IsClosed(static_cast<char*>(pinned) + 99));
  EXPECT_TRUE(IsClosed(static_cast<char*>(pinned) + 100));
  MUST(aclrtFreeHost(pinned));
}

TEST_F(RedZones, BlocksOfTheCachingAllocator) {
  auto* const first = static_cast<char*>(device_memory::Allocate(1024, stream_));
  auto* const second = static_cast<char*>(device_memory::Allocate(1000, stream_));
  EXPECT_FALSE(IsClosed(first));
  EXPECT_FALSE(IsClosed(first + 1023));
  EXPECT_TRUE(IsClosed(first + 1024)) << "also behind a multiple of the granule";
  EXPECT_FALSE(IsClosed(second + 999));
  EXPECT_TRUE(IsClosed(second + 1000));
  EXPECT_TRUE(IsClosed(second + 4096)) << "what nobody has been given yet";
  EXPECT_THAT(Report(second + 1002), HasSubstr("lies 2 bytes behind the end of the block of 1000 bytes"));
  EXPECT_THAT(Report(first + 8), HasSubstr("lies 8 bytes into the block of 1024 bytes"));

  device_memory::Free(first);
  EXPECT_TRUE(IsClosed(first));
  EXPECT_TRUE(IsClosed(first + 1023));
  EXPECT_THAT(Report(first + 8), HasSubstr("was freed"));
  auto* const again = static_cast<char*>(device_memory::Allocate(900, stream_));
  EXPECT_EQ(first, again);
  EXPECT_FALSE(IsClosed(again + 899));
  EXPECT_TRUE(IsClosed(again + 900));
  device_memory::Free(again);
  device_memory::Free(second);
}

// A kernel that is queued may use a block that was freed after its launch.
TEST_F(RedZones, FreedBlocksStayOpenWhileAStreamHasWork) {
  auto* const block = static_cast<char*>(device_memory::Allocate(1024, stream_));
  Gate gate;
  gate.Block(stream_);
  device_memory::Free(block);
  EXPECT_FALSE(IsClosed(block));
  auto* const smaller = static_cast<char*>(device_memory::Allocate(600, stream_));
  EXPECT_EQ(block, smaller);
  EXPECT_FALSE(IsClosed(block + 1023)) << "what is queued may use all of the earlier block";
  device_memory::Free(smaller);
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  void* const other = device_memory::Allocate(2 << 20, stream_);  // from elsewhere
  EXPECT_TRUE(IsClosed(block)) << "closed by the first allocation behind the work";
  device_memory::Free(other);
}

TEST_F(RedZones, MemoryOfPools) {
  aclrtMemPool pool = nullptr;
  aclrtMemPoolProps properties{};
  properties.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  MUST(aclrtMemPoolCreate(&pool, &properties));
  void* taken = nullptr;
  MUST(aclrtMemPoolMallocAsync(&taken, 1000, pool, stream_));
  auto* const block = static_cast<char*>(taken);
  EXPECT_FALSE(IsClosed(block + 999));
  EXPECT_TRUE(IsClosed(block + 1000));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclrtMemPoolFreeAsync(taken, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclrtMemPoolDestroy(pool));
}

}  // namespace
}  // namespace reprise::testing
