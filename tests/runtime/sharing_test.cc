// SPDX-License-Identifier: Apache-2.0
//
// Exports of device memory: how long they stand, what they do to those who use the memory, why an import is refused,
// and random programs of several processes.
#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "base/fault.h"
#include "child.h"
#include "device/move_to_file.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

constexpr size_t kKeyBytes = 65;
constexpr uint64_t kForAll = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr uint64_t kForListed = ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT;

size_t OpenFiles() {
  size_t count = 0;
  DIR* const listing = ::opendir("/proc/self/fd");
  while (listing != nullptr && ::readdir(listing) != nullptr) ++count;  // NOLINT(concurrency-mt-unsafe)
  if (listing != nullptr) ::closedir(listing);
  return count;
}

size_t SharedBlocks() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += line.find("reprise-memory") != std::string::npos ? 1 : 0;
  return count;
}

class Sharing : public Runtime {
 protected:
  static std::string Export(void* memory, size_t bytes, uint64_t flags = kForAll) {
    char key[kKeyBytes];
    EXPECT_ACL(0, aclrtIpcMemGetExportKey(memory, bytes, key, sizeof key, flags));
    return key;
  }
  static std::string WhyNot(int code, const std::string& key) {
    void* imported = nullptr;
    EXPECT_ACL(code, aclrtIpcMemImportByKey(&imported, key.c_str(), 0));
    EXPECT_EQ(code, aclrtIpcMemImportByKey(&imported, key.c_str(), 0));
    EXPECT_EQ(imported, nullptr);
    const char* message = aclGetRecentErrMsg();
    return message != nullptr ? message : "";
  }
};

// A key with one field of it put in another's place: reprise-PID-INDEX-NONCE-SPACE.
std::string WithField(const std::string& key, int field, const std::string& value) {
  std::string made;
  size_t begin = 0;
  for (int i = 0; begin <= key.size(); ++i) {
    const size_t end = std::min(key.find('-', begin), key.size());
    made += (i != 0 ? "-" : "") + (i == field ? value : key.substr(begin, end - begin));
    begin = end + 1;
  }
  return made;
}

class SharingChild : public Sharing {};

// ---- How long exports stand ----

// The first key is stale and the second one is good; what is there begins with the letter.
TEST_F(SharingChild, DISABLED_FindsTheNewBlock) {
  const std::string keys = Child::Argument();
  const size_t space = keys.find(' ');
  EXPECT_THAT(WhyNot(107000, keys.substr(0, space)), ::testing::HasSubstr("has closed it, or freed what it named"));
  void* memory = nullptr;
  const std::string good = keys.substr(space + 1);
  const size_t files = OpenFiles(), blocks = SharedBlocks();
  ArmFault("memory.map", 1);
  EXPECT_ACL(207001, aclrtIpcMemImportByKey(&memory, good.c_str(), 0));
  ArmFault("", 0);
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(SharedBlocks(), blocks);
  MUST(aclrtIpcMemImportByKey(&memory, good.c_str(), 0));
  EXPECT_EQ(OpenFiles(), files) << "a mapping needs no file";
  EXPECT_EQ(*static_cast<char*>(memory), 'n');
  MUST(aclrtIpcMemClose(good.c_str()));
  EXPECT_EQ(SharedBlocks(), blocks);
}

TEST_F(Sharing, FreedMemoryIsOfferedNoMore) {
  for (const size_t bytes : {size_t{5000}, size_t{3} << 20}) {
    char* const old = static_cast<char*>(NewMemory(bytes));
    *old = 'o';
    const std::string stale = Export(old, bytes);
    MUST(aclrtFree(old));
    // Most often at the same address.
    char* const block = static_cast<char*>(NewMemory(bytes));
    *block = 'n';
    const std::string key = Export(block, bytes);
    EXPECT_NE(stale, key);
    Child("SharingChild.DISABLED_FindsTheNewBlock", stale + " " + key).Join();
    EXPECT_ACL(0, aclrtIpcMemClose(stale.c_str())) << "closing after freeing is in order, once";
    EXPECT_ACL(107000, aclrtIpcMemClose(stale.c_str()));
    EXPECT_ACL(0, aclrtIpcMemClose(key.c_str()));
    MUST(aclrtFree(block));
  }
}

TEST_F(Sharing, FreesAndResetsLeaveNoFilesBehind) {
  const auto round = [](bool resets) {
    for (int i = 0; i < 20; ++i) {
      void* const block = NewMemory(5000);
      Export(block, 100);
      Export(static_cast<char*>(block) + 100, 100);
      Export(block, 100, kForListed);
      if (!resets) {
        MUST(aclrtFree(block));
      }
    }
    if (resets) {
      MUST(aclrtResetDeviceForce(0));
      MUST(aclrtSetDevice(0));
    }
  };
  round(false);
  const size_t files = OpenFiles(), blocks = SharedBlocks();
  EXPECT_EQ(blocks, 0u);
  round(false);
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(SharedBlocks(), blocks);
  round(true);
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(SharedBlocks(), blocks);
  // The table of offers has 8192 places: none of these stays taken.
  void* const block = NewMemory(4096);
  for (int i = 0; i < 9000; ++i) {
    const std::string key = Export(block, 64);
    ASSERT_EQ(0, aclrtIpcMemClose(key.c_str()));
  }
}

// The first key is for listed processes, the second for all.
TEST_F(SharingChild, DISABLED_MayTakeTheSecond) {
  const std::string keys = Child::Argument();
  const size_t space = keys.find(' ');
  EXPECT_THAT(WhyNot(107000, keys.substr(0, space)), ::testing::HasSubstr("does not let process"));
  const std::string good = keys.substr(space + 1);
  void* memory = nullptr;
  MUST(aclrtIpcMemImportByKey(&memory, good.c_str(), 0));
  MUST(aclrtIpcMemClose(good.c_str()));
}

TEST_F(Sharing, EachExportHasItsFlagsAndItsClose) {
  void* const block = NewMemory(4096);
  for (const bool listed_first : {true, false}) {
    std::string listed = Export(block, 100, listed_first ? kForListed : kForAll);
    std::string open = Export(block, 100, listed_first ? kForAll : kForListed);
    if (!listed_first) std::swap(listed, open);
    EXPECT_NE(listed, open);
    EXPECT_EQ(listed, Export(block, 100, kForListed));
    EXPECT_EQ(open, Export(block, 100, kForAll));
    const std::string argument = listed + " " + open;
    Child("SharingChild.DISABLED_MayTakeTheSecond", argument).Join();
    // One of two exports is closed: the other stands, with what it said.
    MUST(aclrtIpcMemClose(open.c_str()));
    MUST(aclrtIpcMemClose(listed.c_str()));
    Child("SharingChild.DISABLED_MayTakeTheSecond", argument).Join();
    MUST(aclrtIpcMemClose(open.c_str()));
    EXPECT_ACL(107000, aclrtIpcMemClose(open.c_str()));
    MUST(aclrtIpcMemClose(listed.c_str()));
    EXPECT_ACL(107000, aclrtIpcMemClose(listed.c_str()));
  }
}

// ---- Exports of memory in use ----

// Counts in a word of its own in each page, as fast as it can.
struct Writer {
  std::atomic<uint64_t> written{0};
  std::thread thread;
};

class SharingInUse : public Sharing, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    Sharing::SetUp();
    // What the first export and the first refusal open for good: the table of offers and the log.
    void* const block = NewMemory(64);
    MUST(aclrtIpcMemClose(Export(block, 64).c_str()));
    MUST(aclrtFree(block));
    EXPECT_ACL(107000, aclrtFree(block));
    device::MovesWithSignals() = GetParam();
  }
  void TearDown() override {
    device::MovesWithSignals() = false;
    Sharing::TearDown();
  }
};

TEST_P(SharingInUse, LosesNoWrite) {
  constexpr size_t kPage = 4096;
  constexpr size_t kWriters = 3;
  constexpr uint64_t kEnough = 2000;
  for (int round = 0; round < 6; ++round) {
    const size_t bytes = round % 3 == 0 ? 16 * kPage : size_t{2} << 20;
    char* const block = static_cast<char*>(NewMemory(bytes));
    const size_t pages = bytes / kPage;
    std::atomic<bool> stop{false};
    std::array<Writer, kWriters> writers;
    for (size_t i = 0; i < kWriters; ++i) {
      writers[i].thread = std::thread([&, i] {
        for (size_t page = 0; !stop.load(std::memory_order_relaxed); page = (page + 1) % pages) {
          auto* const word = reinterpret_cast<uint64_t*>(block + page * kPage) + i;
          std::atomic_ref<uint64_t>(*word).fetch_add(1, std::memory_order_relaxed);
          writers[i].written.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
    // Copies from pageable memory, which the system makes.
    std::atomic<uint64_t> copies{0};
    std::thread copier([&] {
      ASSERT_EQ(0, aclrtSetDevice(0));
      const auto from = std::make_unique<std::array<uint64_t, 128>>();
      for (size_t page = 0; !stop.load(std::memory_order_relaxed); page = (page + 1) % pages) {
        from->fill(copies.load() + 1);
        ASSERT_EQ(0, aclrtMemcpy(block + page * kPage + kPage / 2, 1024, from->data(), 1024, ACL_MEMCPY_HOST_TO_DEVICE))
            << aclGetRecentErrMsg();
        uint64_t back = 0;
        ASSERT_EQ(0, aclrtMemcpy(&back, 8, block + page * kPage + kPage / 2, 8, ACL_MEMCPY_DEVICE_TO_HOST));
        ASSERT_EQ(back, from->front());
        ++copies;
      }
    });
    const auto await = [&](uint64_t more) {
      for (Writer& each : writers) {
        const uint64_t until = each.written.load() + more;
        while (each.written.load() < until) std::this_thread::yield();
      }
    };
    await(kEnough);
    const std::string key = Export(block, bytes);
    await(kEnough);
    stop = true;
    for (Writer& each : writers) each.thread.join();
    copier.join();
    for (size_t i = 0; i < kWriters; ++i) {
      uint64_t found = 0;
      for (size_t page = 0; page < pages; ++page) found += reinterpret_cast<uint64_t*>(block + page * kPage)[i];
      EXPECT_EQ(found, writers[i].written.load()) << "writer " << i << " of round " << round;
    }
    MUST(aclrtIpcMemClose(key.c_str()));
    MUST(aclrtFree(block));
  }
}

// Streams of two contexts work on the block, one of them is held up in the midst of it, and a capture is open.
TEST_P(SharingInUse, NeedsNoPauseOfStreamsAndCaptures) {
  char* const block = static_cast<char*>(NewMemory(1 << 20));
  std::memset(block, 'p', 1 << 20);
  const aclrtStream held = NewStream(), capturing = NewStream();
  Gate gate;
  gate.Block(held);
  MUST(aclrtMemsetAsync(block, 100, 'h', 100, held));
  MUST(aclmdlRICaptureBegin(capturing, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtMemsetAsync(block + 4096, 100, 'c', 100, capturing));
  const std::string key = Export(block, 1 << 20);
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(capturing, &model));
  MUST(aclmdlRIExecuteAsync(model, capturing));
  MUST(aclrtSynchronizeStream(capturing));
  gate.Open();
  MUST(aclrtSynchronizeStream(held));
  EXPECT_EQ(std::count(block, block + 4096, 'h'), 100);
  EXPECT_EQ(std::count(block + 4096, block + 8192, 'c'), 100);
  EXPECT_EQ(std::count(block, block + (1 << 20), 'p'), (1 << 20) - 200);
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtIpcMemClose(key.c_str()));
  MUST(aclrtFree(block));
}

TEST_P(SharingInUse, AFailedExportLeavesTheBlockAsItWas) {
  const size_t blocks = SharedBlocks();
  const auto fail_once = [&](const char* point, size_t bytes) {
    char* const block = static_cast<char*>(NewMemory(bytes));
    std::memset(block, 'p', bytes);
    char key[kKeyBytes] = "untouched";
    ArmFault(point, 1);
    EXPECT_ACL(207001, aclrtIpcMemGetExportKey(block, 100, key, sizeof key, 0));
    EXPECT_TRUE(FaultFired());
    ArmFault("", 0);
    EXPECT_STREQ(key, "untouched");
    EXPECT_EQ(std::count(block, block + bytes, 'p'), static_cast<ptrdiff_t>(bytes));
    EXPECT_EQ(SharedBlocks(), blocks);
    const std::string good = Export(block, 100);
    EXPECT_EQ(std::count(block, block + bytes, 'p'), static_cast<ptrdiff_t>(bytes));
    MUST(aclrtIpcMemClose(good.c_str()));
    MUST(aclrtFree(block));
  };
  fail_once("share.file", 8192);  // the first opens what stays: the log, the table of offers
  const size_t files = OpenFiles();
  for (const char* point : {"share.file", "share.map"}) {
    for (const size_t bytes : {size_t{8192}, size_t{3} << 20}) fail_once(point, bytes);
  }
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(SharedBlocks(), blocks);
}

INSTANTIATE_TEST_SUITE_P(, SharingInUse, ::testing::Values(false, true),
                         [](const auto& each) { return each.param ? "WithSignals" : "WithHeldFaults"; });

// The handler of signals takes nothing from the one that was there.
TEST(SharingDeathTest, AWildWriteStillEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::signal(SIGSEGV, [](int) { std::_Exit(42); });
        device::MovesWithSignals() = true;
        void* block = nullptr;
        char key[kKeyBytes];
        const bool good = aclrtSetDevice(0) == 0 && aclrtMalloc(&block, 8192, ACL_MEM_MALLOC_HUGE_FIRST) == 0 &&
                          aclrtIpcMemGetExportKey(block, 100, key, sizeof key, 0) == 0;
        void* const wall = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (good) *static_cast<volatile char*>(wall) = 1;
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(42), "");
}

// ---- Closed and freed under work ----

// The key is that of a block of 2 MiB full of sevens, which is closed while copies from it and to it are queued.
TEST_F(SharingChild, DISABLED_ClosesUnderQueuedWork) {
  constexpr size_t kBytes = 2 << 20;
  const std::string key = Child::Argument();
  const aclrtStream stream = NewStream();
  char* const result = static_cast<char*>(NewMemory(kBytes));
  void* memory = nullptr;
  MUST(aclrtIpcMemImportByKey(&memory, key.c_str(), 0));
  auto* const imported = static_cast<char*>(memory);
  Gate gate;
  gate.Block(stream);
  MUST(aclrtMemcpyAsync(result, kBytes, imported, kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
  MUST(aclrtMemsetAsync(imported, kBytes, 8, kBytes, stream));
  MUST(aclrtIpcMemClose(key.c_str()));
  EXPECT_ACL(107000, aclrtMemset(imported, 8, 1, 8)) << "gone for all who ask";
  EXPECT_EQ(SharedBlocks(), 1u) << "but not for the work";
  // Imported once more, which is another mapping.
  MUST(aclrtIpcMemImportByKey(&memory, key.c_str(), 0));
  EXPECT_NE(memory, imported);
  EXPECT_EQ(*static_cast<char*>(memory), 7);
  gate.Open();
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(std::count(result, result + kBytes, 7), static_cast<ptrdiff_t>(kBytes));
  EXPECT_EQ(std::count(static_cast<char*>(memory), static_cast<char*>(memory) + kBytes, 8),
            static_cast<ptrdiff_t>(kBytes));
  MUST(aclrtIpcMemClose(key.c_str()));
  EXPECT_EQ(SharedBlocks(), 0u) << "nothing is in flight";
}

TEST_F(Sharing, WhatIsClosedUnderQueuedWorkStaysUntilThatHasRun) {
  constexpr size_t kBytes = 2 << 20;
  char* const block = static_cast<char*>(NewMemory(kBytes));
  std::memset(block, 7, kBytes);
  const std::string key = Export(block, kBytes);
  Child("SharingChild.DISABLED_ClosesUnderQueuedWork", key).Join();
  EXPECT_EQ(std::count(block, block + kBytes, 8), static_cast<ptrdiff_t>(kBytes)) << "what the other process wrote";
  // The exporter frees under work of its own.
  const aclrtStream stream = NewStream();
  char* const result = static_cast<char*>(NewMemory(kBytes));
  Gate gate;
  gate.Block(stream);
  MUST(aclrtMemcpyAsync(result, kBytes, block, kBytes, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
  MUST(aclrtFree(block));
  EXPECT_EQ(SharedBlocks(), 1u);
  gate.Open();
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(std::count(result, result + kBytes, 8), static_cast<ptrdiff_t>(kBytes));
  EXPECT_EQ(SharedBlocks(), 0u);
  MUST(aclrtIpcMemClose(key.c_str()));
}

// ---- Why imports fail ----

TEST_F(SharingChild, DISABLED_DoesNothing) {}

TEST_F(Sharing, ImportsSayWhyTheyFail) {
  void* const block = NewMemory(4096);
  const std::string key = Export(block, 100);
  Child child("SharingChild.DISABLED_DoesNothing", "-");
  const std::string gone = std::to_string(child.pid());
  child.Join();
  EXPECT_THAT(WhyNot(107000, WithField(key, 1, gone)), ::testing::HasSubstr("process " + gone + " has ended"));
  // One that lives, and is none of ours.
  const std::string other = std::to_string(::getppid());
  EXPECT_THAT(WhyNot(107000, WithField(WithField(key, 1, other), 4, "1")),
              ::testing::HasSubstr("of another container"));
  MUST(aclrtIpcMemClose(key.c_str()));
}

TEST_F(SharingChild, DISABLED_IsAnotherUser) {
  if (::geteuid() == 0) {
    ASSERT_EQ(0, ::setresuid(65534, 65534, 65534));
  }
  EXPECT_THAT(WhyNot(507022, Child::Argument()),
              ::testing::AllOf(::testing::HasSubstr("Permission denied"), ::testing::HasSubstr("same user")));
}

TEST_F(SharingChild, DISABLED_HasNoProc) {
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", "/proc", "tmpfs", 0, nullptr) != 0) {
    GTEST_SKIP() << "the system does not let it";
  }
  const std::string message = WhyNot(507022, Child::Argument());
  ::umount2("/proc", MNT_DETACH);
  EXPECT_THAT(message, ::testing::HasSubstr("there is no /proc"));
}

TEST_F(SharingChild, DISABLED_HasTooManyFiles) {
  const rlimit few{64, 64};
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &few));
  std::vector<int> files;
  for (int fd; (fd = ::dup(0)) >= 0;) files.push_back(fd);
  const std::string message = WhyNot(207005, Child::Argument());
  for (const int fd : files) ::close(fd);
  EXPECT_THAT(message, ::testing::HasSubstr("Too many open files"));
}

TEST_F(Sharing, ImportsSayWhatKeepsProcessesApart) {
  void* const block = NewMemory(4096);
  const std::string key = Export(block, 100);
  Child("SharingChild.DISABLED_HasNoProc", key).Join();
  Child("SharingChild.DISABLED_HasTooManyFiles", key).Join();
  ASSERT_EQ(0, ::prctl(PR_SET_DUMPABLE, 0));
  Child("SharingChild.DISABLED_IsAnotherUser", key).Join();
  ASSERT_EQ(0, ::prctl(PR_SET_DUMPABLE, 1));
  MUST(aclrtIpcMemClose(key.c_str()));
}

// ---- Random programs against an oracle ----

struct Command {
  char what = 0;
  int32_t slot = 0;
  uint64_t value = 0;
  char key[kKeyBytes] = {};
};

struct Reply {
  int32_t code = 0;
  uint64_t value = 0;
  char key[kKeyBytes] = {};
};

constexpr int kSlots = 3;

// Does what it is told: 'a'llocate, 'f'ree, 'e'xport a slot; 'c'lose, 'i'mport a key, 's'ay who may; 'r'ead, 'w'rite
// the first word of a slot (-1: of the imported key); 'R'eset the device; 'n'umber of open files.
TEST_F(SharingChild, DISABLED_Obeys) {
  const int line = std::stoi(Child::Argument());
  std::array<void*, kSlots> slots{};
  std::map<std::string, void*> imports;
  for (Command command; ::recv(line, &command, sizeof command, 0) == sizeof command;) {
    Reply reply;
    void* const at = command.slot >= 0 ? slots[static_cast<size_t>(command.slot)] : imports[command.key];
    switch (command.what) {
      case 'a': slots[static_cast<size_t>(command.slot)] = NewMemory(command.value); break;
      case 'f': reply.code = aclrtFree(at); break;
      case 'e': reply.code = aclrtIpcMemGetExportKey(at, 64, reply.key, sizeof reply.key, command.value); break;
      case 'c': reply.code = aclrtIpcMemClose(command.key); break;
      case 's': {
        auto pid = static_cast<int32_t>(command.value);
        reply.code = aclrtIpcMemSetImportPid(command.key, &pid, 1);
        break;
      }
      case 'i': {
        void* memory = nullptr;
        reply.code = aclrtIpcMemImportByKey(&memory, command.key, 0);
        if (reply.code == 0) imports[command.key] = memory;
        break;
      }
      case 'r': reply.code = aclrtMemcpy(&reply.value, 8, at, 8, ACL_MEMCPY_DEVICE_TO_HOST); break;
      case 'w': reply.code = aclrtMemcpy(at, 8, &command.value, 8, ACL_MEMCPY_HOST_TO_DEVICE); break;
      case 'R':
        reply.code = aclrtResetDeviceForce(0);
        MUST(aclrtSetDevice(0));
        break;
      default: reply.value = OpenFiles() * 1000 + SharedBlocks(); break;
    }
    ASSERT_EQ(::send(line, &reply, sizeof reply, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof reply));
  }
}

class Peer {
 public:
  Peer() {
    int line[2];
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line));
    const int theirs = ::dup(line[1]);  // without the flag
    child_ = std::make_unique<Child>("SharingChild.DISABLED_Obeys", std::to_string(theirs));
    ::close(theirs);
    ::close(line[1]);
    line_ = line[0];
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() { ::close(line_); }  // it ends then

  Reply Do(char what, int slot, uint64_t value = 0, const std::string& key = "") {
    Command command;
    command.what = what;
    command.slot = slot;
    command.value = value;
    key.copy(command.key, kKeyBytes - 1);
    Reply reply;
    EXPECT_EQ(::send(line_, &command, sizeof command, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof command));
    EXPECT_EQ(::recv(line_, &reply, sizeof reply, 0), static_cast<ssize_t>(sizeof reply)) << "the process has ended";
    return reply;
  }
  void Kill() { child_->Kill(); }
  pid_t pid() const { return child_->pid(); }

 private:
  int line_ = -1;
  std::unique_ptr<Child> child_;
};

class SharingModel {
 public:
  explicit SharingModel(uint32_t seed) : random_(seed) {
    for (size_t i = 0; i < kPeers; ++i) Start(i);
  }

  void Step() {
    const size_t p = Below(kPeers);
    const size_t slot = Below(kSlots);
    Who& who = peers_[p];
    switch (Below(20)) {
      case 0:
      case 1:
      case 2: {
        if (who.blocks[slot] >= 0) return;
        constexpr uint64_t kSizes[] = {64, 5000, 2u << 20};
        Expect(0, who.peer->Do('a', static_cast<int>(slot), kSizes[Below(3)]), "allocate");
        who.blocks[slot] = static_cast<int>(values_.size());
        values_.push_back(0);
        return;
      }
      case 3: {
        if (who.blocks[slot] < 0) return;
        Expect(0, who.peer->Do('f', static_cast<int>(slot)), "free");
        Freed(who, slot);
        return;
      }
      case 4:
      case 5:
      case 6:
      case 7: {
        if (who.blocks[slot] >= 0) Export(p, slot, Below(4) == 0);
        return;
      }
      case 8:
      case 9: {
        if (!keys_.empty()) Close(p, Below(keys_.size()));
        return;
      }
      case 10:
      case 11:
      case 12:
      case 13: {
        if (!keys_.empty()) Import(p, keys_.size() - 1 - Below(std::min<size_t>(keys_.size(), 8)));
        return;
      }
      case 14: {
        if (!keys_.empty()) Allow(p, keys_.size() - 1 - Below(std::min<size_t>(keys_.size(), 8)), Below(kPeers));
        return;
      }
      case 15: {
        if (Below(3) != 0) return;
        Expect(0, who.peer->Do('R', 0), "reset");
        for (size_t each = 0; each < kSlots; ++each) {
          if (who.blocks[each] >= 0) Freed(who, each);
        }
        return;
      }
      case 16: {
        if (Below(4) != 0) return;
        who.peer->Kill();
        for (Key& key : keys_) {
          if (key.process == who.process) key.dead = true;
        }
        Start(p);
        return;
      }
      default: Use(p, slot); return;
    }
  }

  /// Everything is closed and freed: nothing stays open.
  void End() {
    for (size_t p = 0; p < kPeers; ++p) {
      while (!peers_[p].imports.empty()) Close(p, peers_[p].imports.begin()->first);
      for (size_t k = 0; k < keys_.size(); ++k) {
        while (keys_[k].process == peers_[p].process && keys_[k].exports != 0) Close(p, k);
      }
      Expect(0, peers_[p].peer->Do('R', 0), "reset");
      EXPECT_EQ(peers_[p].peer->Do('n', 0).value, peers_[p].files) << "files and mappings of process " << p;
    }
  }

 private:
  static constexpr size_t kPeers = 3;
  struct Who {
    std::unique_ptr<Peer> peer;
    int process = 0;  // another one after each kill
    std::array<int, kSlots> blocks{-1, -1, -1};
    std::map<size_t, uint32_t> imports;  // by key
    uint64_t files = 0;
  };
  struct Key {
    std::string text;
    int block;
    int process;
    bool listed;
    uint32_t exports = 1;  // that are not closed
    bool dead = false;     // freed, or its process has gone
    std::set<int> allowed = {};
  };

  size_t Below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }

  static void Expect(int code, const Reply& reply, const std::string& what) { EXPECT_EQ(reply.code, code) << what; }

  void Start(size_t p) {
    peers_[p] = Who();
    Who& who = peers_[p];
    who.peer = std::make_unique<Peer>();
    who.process = ++processes_;
    // What the first export makes for good is there before the files are counted, and the log, which refusals open.
    Expect(0, who.peer->Do('a', 0, 64), "allocate");
    const Reply first = who.peer->Do('e', 0, kForAll);
    Expect(0, first, "export");
    Expect(0, who.peer->Do('c', 0, 0, first.key), "close");
    Expect(0, who.peer->Do('f', 0), "free");
    Expect(107000, who.peer->Do('f', 0), "free once more");
    who.files = who.peer->Do('n', 0).value;
  }

  void Freed(Who& who, size_t slot) {
    for (Key& key : keys_) {
      if (key.process == who.process && key.block == who.blocks[slot]) key.dead = true;
    }
    who.blocks[slot] = -1;
  }

  void Export(size_t p, size_t slot, bool listed) {
    Who& who = peers_[p];
    const Reply reply = who.peer->Do('e', static_cast<int>(slot), listed ? kForListed : kForAll);
    Expect(0, reply, "export");
    for (Key& key : keys_) {
      if (key.block != who.blocks[slot] || key.listed != listed || key.exports == 0 || key.dead) continue;
      EXPECT_EQ(key.text, reply.key);
      ++key.exports;
      return;
    }
    for (const Key& key : keys_) EXPECT_NE(key.text, reply.key) << "a key comes again";
    keys_.push_back({reply.key, who.blocks[slot], who.process, listed});
  }

  void Import(size_t p, size_t k) {
    Who& who = peers_[p];
    const Key& key = keys_[k];
    const bool good = who.imports.count(k) != 0 ||
                      (key.process != who.process && (!key.listed || key.allowed.count(who.process) != 0) &&
                       !key.dead && key.exports != 0);
    Expect(good ? 0 : 107000, who.peer->Do('i', -1, 0, key.text), "import " + key.text);
    if (good) ++who.imports[k];
  }

  void Allow(size_t p, size_t k, size_t other) {
    Who& who = peers_[p];
    Key& key = keys_[k];
    const bool good = key.process == who.process && !key.dead && key.exports != 0;
    const auto pid = static_cast<uint64_t>(peers_[other].peer->pid());
    Expect(good ? 0 : 107000, who.peer->Do('s', -1, pid, key.text), "set the importer of " + key.text);
    if (good) key.allowed.insert(peers_[other].process);
  }

  void Close(size_t p, size_t k) {
    Who& who = peers_[p];
    Key& key = keys_[k];
    const auto imported = who.imports.find(k);
    const bool exported = key.process == who.process && key.exports != 0;
    const bool good = imported != who.imports.end() || exported;
    Expect(good ? 0 : 107000, who.peer->Do('c', -1, 0, key.text), "close " + key.text);
    if (imported != who.imports.end()) {
      if (--imported->second == 0) who.imports.erase(imported);
    } else if (exported) {
      --key.exports;
    }
  }

  void Use(size_t p, size_t slot) {
    Who& who = peers_[p];
    int block = who.blocks[slot];
    int where = static_cast<int>(slot);
    std::string text;
    if (!who.imports.empty() && (block < 0 || Below(2) == 0)) {
      auto import = who.imports.begin();
      std::advance(import, static_cast<ptrdiff_t>(Below(who.imports.size())));
      block = keys_[import->first].block;
      where = -1;
      text = keys_[import->first].text;
    }
    if (block < 0) return;
    uint64_t& value = values_[static_cast<size_t>(block)];
    const Reply reply = who.peer->Do('r', where, 0, text);
    Expect(0, reply, "read");
    EXPECT_EQ(reply.value, value) << "block " << block;
    value = random_();
    Expect(0, who.peer->Do('w', where, value, text), "write");
  }

  std::mt19937 random_;
  std::array<Who, kPeers> peers_;
  int processes_ = 0;
  std::vector<uint64_t> values_;  // by block; those who have a freed block imported still see it
  std::vector<Key> keys_;
};

TEST(SharingRandom, ProcessesAgreeWithTheOracle) {
  const char* const form = std::getenv("REPRISE_TEST_FORM");
  const uint32_t programs = form != nullptr && std::string(form) == "full" ? 40 : 2;
  for (uint32_t seed = 1; seed <= programs; ++seed) {
    SharingModel model(seed);
    for (int step = 0; step < 300; ++step) {
      SCOPED_TRACE("step " + std::to_string(step) + " with seed " + std::to_string(seed));
      model.Step();
      if (HasFailure()) return;
    }
    model.End();
  }
}

}  // namespace
}  // namespace reprise::testing
