// SPDX-License-Identifier: Apache-2.0
//
// What has been written since the last look is told, however it was written, and nothing else is.
#include "device/write_watch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise::device {
namespace {

constexpr uint64_t kPage = 4096;

// Memory of its own, without a file unless one is given.
class Pages {
 public:
  explicit Pages(uint64_t pages, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
      : bytes_(pages * kPage), at_(static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0))) {}
  ~Pages() { munmap(at_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* at(uint64_t page, uint64_t byte = 0) const { return at_ + page * kPage + byte; }
  WatchedRange range(uint64_t page, uint64_t pages = 1) const { return {at(page), pages * kPage}; }
  uint64_t bytes() const { return bytes_; }

 private:
  const uint64_t bytes_;
  char* const at_;
};

class WriteWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!WriteWatch::IsPossible()) GTEST_SKIP() << "this kernel does not tell which pages have been written";
  }
  // By range: whether a look finds it written.
  static std::vector<bool> Look(WriteWatch& watch) {
    std::vector<uint64_t> before;
    for (size_t i = 0; i < watch.size(); ++i) before.push_back(watch.writes(i));
    watch.Look();
    std::vector<bool> found;
    for (size_t i = 0; i < watch.size(); ++i) found.push_back(watch.writes(i) != before[i]);
    return found;
  }
};
using Found = std::vector<bool>;

TEST_F(WriteWatchTest, WhatNobodyWritesStays) {
  const Pages pages(8);
  std::memset(pages.at(0), 1, pages.bytes());
  const auto watch = WriteWatch::Of(std::vector{pages.range(0, 2), pages.range(4, 4)});
  ASSERT_NE(watch, nullptr);
  EXPECT_NE(watch->writes(0), 0U);
  for (int look = 0; look < 3; ++look) EXPECT_EQ(Look(*watch), (Found{false, false}));
  long sum = 0;
  for (uint64_t i = 0; i < pages.bytes(); ++i) sum += pages.at(0)[i];
  EXPECT_EQ(sum, static_cast<long>(pages.bytes()));
  EXPECT_EQ(Look(*watch), (Found{false, false})) << "it was read";
  *pages.at(3) = 2;
  EXPECT_EQ(Look(*watch), (Found{false, false})) << "written between the ranges";
}

TEST_F(WriteWatchTest, EveryWayToWriteIsSeenOnce) {
  const Pages pages(4);
  std::memset(pages.at(0), 1, pages.bytes());
  const auto watch = WriteWatch::Of(std::vector{pages.range(0, 2), pages.range(2, 2)});
  ASSERT_NE(watch, nullptr);
  char* const there = pages.at(3, 4095);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::vector<std::pair<std::string, std::function<void()>>> ways = {
      {"a store", [&] { *there = 2; }},
      {"the same value once more", [&] { *there = 2; }},
      {"another thread", [&] { std::thread([&] { *there = 3; }).join(); }},
      {"a system call",
       [&] {
         ASSERT_EQ(write(ends[1], "x", 1), 1);
         ASSERT_EQ(read(ends[0], there, 1), 1);
       }},
      {"a call that takes addresses of processes",
       [&] {
         char from = 5;
         const iovec local = {&from, 1};
         const iovec remote = {there, 1};
         ASSERT_EQ(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), 1);
       }},
      {"giving the pages back", [&] { ASSERT_EQ(madvise(pages.at(3), kPage, MADV_DONTNEED), 0); }},
  };
  for (const auto& [name, way] : ways) {
    SCOPED_TRACE(name);
    way();
    EXPECT_EQ(Look(*watch), (Found{false, true}));
    EXPECT_EQ(Look(*watch), (Found{false, false}));
  }
  close(ends[0]);
  close(ends[1]);
}

TEST_F(WriteWatchTest, UntouchedMemoryIsWatched) {
  const Pages pages(600);  // with room for a large page
  const auto watch = WriteWatch::Of(std::vector{pages.range(0, 600)});
  ASSERT_NE(watch, nullptr);
  EXPECT_EQ(Look(*watch), Found{false});
  *pages.at(599) = 1;
  EXPECT_EQ(Look(*watch), Found{true});
}

TEST_F(WriteWatchTest, RangesMayBeSmallAndShareAPage) {
  const Pages pages(2);
  std::memset(pages.at(0), 1, pages.bytes());
  const std::vector<WatchedRange> ranges = {{pages.at(0, 8), 4}, {pages.at(0, 4000), 200}, {pages.at(1, 100), 4}, {}};
  const auto watch = WriteWatch::Of(ranges);
  ASSERT_NE(watch, nullptr);
  *pages.at(0, 100) = 2;
  EXPECT_EQ(Look(*watch), (Found{true, true, false, false})) << "pages are told, not bytes";
  *pages.at(1, 4095) = 2;
  EXPECT_EQ(Look(*watch), (Found{false, true, true, false}));
}

TEST_F(WriteWatchTest, WhatOneWatchSeesOthersAreTold) {
  const Pages pages(4);
  std::memset(pages.at(0), 1, pages.bytes());
  const auto first = WriteWatch::Of(std::vector{pages.range(0, 4)});
  const auto second = WriteWatch::Of(std::vector{pages.range(1), pages.range(3)});
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  (void)Look(*first);
  const uint64_t before = second->writes(0);
  *pages.at(1) = 2;
  EXPECT_EQ(Look(*first), Found{true});
  EXPECT_NE(second->writes(0), before);
  EXPECT_EQ(Look(*second), (Found{false, false}));
  *pages.at(2) = 2;
  EXPECT_EQ(Look(*second), (Found{false, false}));
  EXPECT_EQ(Look(*first), Found{true}) << "the second watch does not look there";
}

TEST_F(WriteWatchTest, SharedMemoryAndFilesAreRefused) {
  const int fd = memfd_create("watched", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 4 * kPage), 0);
  const Pages shared(4, MAP_SHARED, fd);
  const Pages of_file(4, MAP_PRIVATE, fd);
  const Pages plain(4);
  for (const Pages* const pages : {&shared, &of_file}) {
    EXPECT_EQ(WriteWatch::Of(std::vector{pages->range(0, 4)}), nullptr);
    EXPECT_EQ(WriteWatch::Of(std::vector{plain.range(0, 4), pages->range(1)}), nullptr);
  }
  close(fd);
  const Pages closed(2);
  ASSERT_EQ(mprotect(closed.at(1), kPage, PROT_READ), 0);
  EXPECT_EQ(WriteWatch::Of(std::vector{closed.range(0, 2)}), nullptr);
  ASSERT_EQ(munmap(closed.at(1), kPage), 0);
  EXPECT_EQ(WriteWatch::Of(std::vector{closed.range(0, 2)}), nullptr);
}

// As device memory is, when it becomes shared between processes: who writes it then is not seen.
TEST_F(WriteWatchTest, MemoryThatIsReplacedCountsAsWritten) {
  const Pages pages(4);
  std::memset(pages.at(0), 1, pages.bytes());
  const auto watch = WriteWatch::Of(std::vector{pages.range(0, 4)});
  ASSERT_NE(watch, nullptr);
  const int fd = memfd_create("replaced", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 4 * kPage), 0);
  ASSERT_EQ(mmap(pages.at(0), pages.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), pages.at(0));
  close(fd);
  for (int look = 0; look < 3; ++look) EXPECT_EQ(Look(*watch), Found{true});
}

TEST_F(WriteWatchTest, AChildOfForkHasNone) {
  const Pages pages(1);
  *pages.at(0) = 1;
  const auto watch = WriteWatch::Of(std::vector{pages.range(0)});
  ASSERT_NE(watch, nullptr);
  const pid_t child = fork();
  if (child == 0)
    _exit(!WriteWatch::IsPossible() && Look(*watch) == Found{true} && Look(*watch) == Found{true} ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Look(*watch), Found{false});
  *pages.at(0) = 2;
  EXPECT_EQ(Look(*watch), Found{true}) << "the page was shared with the child";
}

// Random ranges, writes and looks against a list of bytes.
TEST_F(WriteWatchTest, RandomWritesAreToldAsAListOfBytesTellsThem) {
  constexpr uint64_t kPages = 64;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Pages pages(kPages);
    std::memset(pages.at(0), 1, pages.bytes());
    struct Watching {
      std::vector<WatchedRange> ranges;
      std::unique_ptr<WriteWatch> watch;
      std::vector<uint64_t> seen;
      std::vector<bool> expected;
    };
    std::vector<Watching> all(3);
    for (Watching& each : all) {
      for (uint32_t i = 0; i < 1 + random() % 12; ++i) {
        const uint64_t begin = random() % pages.bytes();
        const uint64_t bytes = 1 + random() % std::min<uint64_t>(pages.bytes() - begin, 5 * kPage);
        each.ranges.push_back({pages.at(0, begin), bytes});
      }
      each.watch = WriteWatch::Of(each.ranges);
      ASSERT_NE(each.watch, nullptr);
      each.expected.resize(each.ranges.size());
    }
    const auto remember = [](Watching& each) {
      each.seen.clear();
      for (size_t i = 0; i < each.ranges.size(); ++i) each.seen.push_back(each.watch->writes(i));
      each.expected.assign(each.ranges.size(), false);
    };
    for (Watching& each : all) remember(each);
    for (int step = 0; step < 60; ++step) {
      if (random() % 3 != 0) {
        const uint64_t page = random() % kPages;
        *pages.at(page, random() % kPage) = static_cast<char>(step);
        for (Watching& each : all) {
          for (size_t i = 0; i < each.ranges.size(); ++i) {
            const auto* const first = static_cast<const char*>(each.ranges[i].data);
            const auto from = static_cast<uint64_t>(first - pages.at(0)) / kPage;
            const auto to = (static_cast<uint64_t>(first - pages.at(0)) + each.ranges[i].bytes - 1) / kPage;
            if (from <= page && page <= to) each.expected[i] = true;
          }
        }
        continue;
      }
      Watching& each = all[random() % all.size()];
      each.watch->Look();
      for (size_t i = 0; i < each.ranges.size(); ++i) {
        EXPECT_EQ(each.watch->writes(i) != each.seen[i], each.expected[i]) << "range " << i << " in step " << step;
      }
      remember(each);
    }
  }
}

// Looks and writes of many threads: no write that happened before a look is missed by it.
TEST_F(WriteWatchTest, ThreadsLookAtOnce) {
  constexpr uint64_t kThreads = 4;
  const Pages pages(kThreads);
  std::memset(pages.at(0), 0, pages.bytes());
  std::vector<std::unique_ptr<WriteWatch>> watches;
  for (uint64_t i = 0; i < kThreads; ++i)
    watches.push_back(WriteWatch::Of(std::vector{pages.range(0, kThreads), pages.range(i)}));
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        const uint64_t before = watches[i]->writes(1);
        *pages.at(i) = static_cast<char>(round);
        watches[i]->Look();
        ASSERT_NE(watches[i]->writes(1), before) << round;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reprise::device
