// SPDX-License-Identifier: Apache-2.0
//
// Capture modes and which thread they bind: AG-036 … AG-061.
//
// T is the test's thread, which begins the capture; U is another thread with the same context.
#include "fixture.h"
#include "weak.h"

namespace reprise::conformance {
namespace {

// Sets the calling thread's exchange mode and checks what it was before.
void Exchange(aclmdlRICaptureMode mode, aclmdlRICaptureMode before) {
  aclmdlRICaptureMode value = mode;
  EXPECT_ACL(0, aclmdlRICaptureThreadExchangeMode(&value));
  EXPECT_EQ(value, before);
}

TEST_F(AclGraph, AG_036_SyncCopyOnBeginThreadIsRefusedInGlobalMode) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  EXPECT_TRUE(CopyIsRefused(107030));
  ExpectActive(s);
  End(s);
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_037_SyncCopyOnOtherThreadIsRefusedInGlobalMode) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  Worker u(context());
  u.Run([&] { EXPECT_TRUE(CopyIsRefused(107030)); });
  ExpectActive(s);
  End(s);
  u.Run([&] { EXPECT_TRUE(CopyWorks()); });
}

TEST_F(AclGraph, AG_038_SyncCopyOnBeginThreadIsRefusedInThreadLocalMode) {
  const aclrtStream s = NewStream();
  Begin(s, kThreadLocal);
  EXPECT_TRUE(CopyIsRefused(107030));
  ExpectActive(s);
  End(s);
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_039_SyncCopyOnOtherThreadWorksInThreadLocalMode) {
  const aclrtStream s = NewStream();
  Begin(s, kThreadLocal);
  Worker u(context());
  u.Run([&] { EXPECT_TRUE(CopyWorks()); });
  EXPECT_TRUE(CopyIsRefused(107030)) << "the begin thread stays restricted";
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_040_SyncCopyWorksOnEveryThreadInRelaxedMode) {
  const aclrtStream s = NewStream();
  Begin(s, kRelaxed);
  EXPECT_TRUE(CopyWorks());
  Worker u(context());
  u.Run([&] { EXPECT_TRUE(CopyWorks()); });
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_041_SyncMemsetIsRefusedInGlobalMode) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(7);
  Begin(s, kGlobal);
  EXPECT_ACL(107030, aclrtMemset(cell, 8, 0x5a, 8));
  EXPECT_EQ(ReadCell(cell), 7U);
  ExpectActive(s);
  End(s);
  EXPECT_ACL(0, aclrtMemset(cell, 8, 0x5a, 8));
  EXPECT_EQ(ReadCell(cell), 0x5a5a5a5a5a5a5a5aU);
}

TEST_F(AclGraph, AG_042_SyncMemcpy2dIsRefusedInGlobalMode) {
  const aclrtStream s = NewStream();
  uint64_t* const cells = NewCells(4, 7);
  const uint64_t rows[2] = {8, 9};
  Begin(s, kGlobal);
  EXPECT_ACL(107030, aclrtMemcpy2d(cells, 16, rows, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE));
  EXPECT_THAT(ReadCells(cells, 4), Each(7));
  ExpectActive(s);
  End(s);
  EXPECT_ACL(0, aclrtMemcpy2d(cells, 16, rows, 8, 8, 2, ACL_MEMCPY_HOST_TO_DEVICE));
  EXPECT_THAT(ReadCells(cells, 4), ElementsAre(8, 7, 9, 7));
}

TEST_F(AclGraph, AG_043_BeginThreadMayExchangeGlobalForRelaxed) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  EXPECT_TRUE(CopyIsRefused(107030));
  Exchange(kRelaxed, kGlobal);
  EXPECT_TRUE(CopyWorks());
  Exchange(kGlobal, kRelaxed);
  EXPECT_TRUE(CopyIsRefused(107030));
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_044_ThreadLocalExchangeDoesNotHelpTheBeginThreadOfAGlobalCapture) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  Exchange(kThreadLocal, kGlobal);
  EXPECT_TRUE(CopyIsRefused(107030));
  ExpectActive(s);
  End(s);
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_045_ThreadLocalExchangeFreesAnotherThread) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  Worker u(context());
  u.Run([&] {
    EXPECT_TRUE(CopyIsRefused(107030));
    Exchange(kThreadLocal, kGlobal);
    EXPECT_TRUE(CopyWorks());
  });
  EXPECT_TRUE(CopyIsRefused(107030)) << "the exchange mode is per thread";
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_046_RelaxedExchangeFreesAnotherThread) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  Worker u(context());
  u.Run([&] {
    EXPECT_TRUE(CopyIsRefused(107030));
    Exchange(kRelaxed, kGlobal);
    EXPECT_TRUE(CopyWorks());
  });
  EXPECT_TRUE(CopyIsRefused(107030)) << "the exchange mode is per thread";
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_047_RelaxedExchangeFreesTheBeginThreadOfAThreadLocalCapture) {
  const aclrtStream s = NewStream();
  Begin(s, kThreadLocal);
  EXPECT_TRUE(CopyIsRefused(107030));
  Exchange(kRelaxed, kGlobal);
  EXPECT_TRUE(CopyWorks());
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_048_ThreadLocalExchangeDoesNotHelpTheBeginThreadOfAThreadLocalCapture) {
  const aclrtStream s = NewStream();
  Begin(s, kThreadLocal);
  Exchange(kThreadLocal, kGlobal);
  EXPECT_TRUE(CopyIsRefused(107030));
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_049_GlobalExchangeRestrictsNobodyDuringARelaxedCapture) {
  const aclrtStream s = NewStream();
  Begin(s, kRelaxed);
  Worker u(context());
  u.Run([&] {
    Exchange(kGlobal, kGlobal);
    EXPECT_TRUE(CopyWorks());
  });
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_050_ExchangeModeOfNullIsRefused) {
  EXPECT_ACL(100000, aclmdlRICaptureThreadExchangeMode(nullptr));
  Exchange(kGlobal, kGlobal);
}

TEST_F(AclGraph, AG_051_ExchangeToModeThreeIsRefused) {
  Exchange(kThreadLocal, kGlobal);
  aclmdlRICaptureMode mode = OddMode(3);
  EXPECT_ACL(107000, aclmdlRICaptureThreadExchangeMode(&mode));
  EXPECT_EQ(static_cast<int>(mode), 3);
  Exchange(kGlobal, kThreadLocal);  // the thread's mode was kept
}

TEST_F(AclGraph, AG_052_ExchangeWithoutContextIsRefused) {
  Worker nobody(nullptr);
  nobody.Run([&] {
    aclmdlRICaptureMode mode = kRelaxed;
    EXPECT_ACL(107002, aclmdlRICaptureThreadExchangeMode(&mode));
    EXPECT_EQ(mode, kRelaxed);
    // The refused value did not take hold.
    MUST(aclrtSetCurrentContext(context()));
    Exchange(kGlobal, kGlobal);
  });
}

TEST_F(AclGraph, AG_053_ExchangeReturnsThePreviousMode) {
  Exchange(kRelaxed, kGlobal);
  Exchange(kGlobal, kRelaxed);
  Exchange(kThreadLocal, kGlobal);
  Exchange(kGlobal, kThreadLocal);
}

TEST_F(AclGraph, AG_054_RelaxedExchangeBeforeBeginHoldsDuringTheCapture) {
  const aclrtStream s = NewStream();
  Exchange(kRelaxed, kGlobal);
  Begin(s, kGlobal);
  EXPECT_TRUE(CopyWorks());
  ExpectActive(s);
  End(s);
  Exchange(kGlobal, kRelaxed);  // survives CaptureEnd
}

TEST_F(AclGraph, AG_055_RefusalByModeDoesNotInvalidate) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s, kGlobal);
  MUST(Append(s, log, 1));
  EXPECT_TRUE(CopyIsRefused(107030));
  MUST(Append(s, log, 2));
  const aclmdlRI model = End(s);
  EXPECT_EQ(CountTasks(model), 2U);
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(AclGraph, AG_056_CaptureInOneContextDoesNotRestrictAnother) {
  const aclrtContext b = NewContext();
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  Worker on_b(b);
  on_b.Run([&] { EXPECT_TRUE(CopyWorks()); });
  Worker on_a(context());
  on_a.Run([&] { EXPECT_TRUE(CopyIsRefused(107030)); });
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_057_GlobalCaptureOfAnotherThreadRestrictsARelaxedCapturer) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  Worker u(context());
  Begin(s1, kRelaxed);
  EXPECT_TRUE(CopyWorks());
  u.Run([&] { Begin(s2, kGlobal); });
  EXPECT_TRUE(CopyIsRefused(107030));
  u.Run([&] { EXPECT_TRUE(CopyIsRefused(107030)); });
  ExpectActive(s1);
  ExpectActive(s2);
  u.Run([&] { End(s2); });
  End(s1);
}

TEST_F(AclGraph, AG_058_RestrictionEndsWithTheStrictestCapture) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  Worker u(context());
  Begin(s1, kRelaxed);
  u.Run([&] { Begin(s2, kGlobal); });
  EXPECT_TRUE(CopyIsRefused(107030));
  u.Run([&] { End(s2); });
  EXPECT_TRUE(CopyWorks());
  ExpectActive(s1);
  End(s1);
}

TEST_F(AclGraph, AG_059_AllocationAndCreationAreNotRestricted) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  void* device = nullptr;
  EXPECT_ACL(0, aclrtMalloc(&device, 64, ACL_MEM_MALLOC_HUGE_FIRST));
  EXPECT_NE(device, nullptr);
  EXPECT_ACL(0, aclrtFree(device));
  void* host = nullptr;
  EXPECT_ACL(0, aclrtMallocHost(&host, 64));
  EXPECT_NE(host, nullptr);
  EXPECT_ACL(0, aclrtFreeHost(host));
  aclrtEvent event = nullptr;
  EXPECT_ACL(0, aclrtCreateEvent(&event));
  EXPECT_ACL(0, aclrtDestroyEvent(event));
  aclrtStream stream = nullptr;
  EXPECT_ACL(0, aclrtCreateStream(&stream));
  ExpectIdle(stream);
  EXPECT_ACL(0, aclrtDestroyStream(stream));
  EXPECT_TRUE(CopyIsRefused(107030)) << "the mode was in force all the time";
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_060_EmptySyncCopyIsAcceptedInGlobalMode) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(7);
  const uint64_t value = 8;
  Begin(s, kGlobal);
  EXPECT_ACL(0, aclrtMemcpy(cell, 8, &value, 0, ACL_MEMCPY_HOST_TO_DEVICE));
  EXPECT_EQ(ReadCell(cell), 7U);
  EXPECT_ACL(107030, aclrtMemcpy(cell, 8, &value, 8, ACL_MEMCPY_HOST_TO_DEVICE));
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_061_OtherStreamsWorkDuringAGlobalCapture) {
  const aclrtStream s = NewStream();
  const aclrtStream s2 = NewStream();
  uint64_t* const cell = NewCell(1);
  uint64_t* const pinned = NewPinned(1, 42);
  Begin(s, kGlobal);
  Worker u(context());
  u.Run([&] {
    EXPECT_ACL(0, aclrtMemcpyAsync(cell, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, s2));
    EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(s2, kWaitMs));
  });
  EXPECT_EQ(ReadCell(cell), 42U);
  ExpectIdle(s2);
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 0U);
}

}  // namespace
}  // namespace reprise::conformance
