// SPDX-License-Identifier: Apache-2.0
//
// reprise/stream.h on threads that never had a context, such as those of a loader of data, and over two devices.
#include <reprise/operation.h>

#include <atomic>
#include <thread>

#include "../runtime/fixture.h"
#include "fixture.h"

namespace reprise::testing {
namespace {

__attribute__((constructor)) void UseTwoDevices(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_DEVICES", "2"}});
}

class Count final : public Operation {
 public:
  explicit Count(std::atomic<int>& runs) : runs_(runs) {}
  void Run(uint64_t) override { ++runs_; }
  OperationInfo Describe() const override { return {"count", {}}; }

 private:
  std::atomic<int>& runs_;
};

using Streams = GraphTest;

void InThread(const std::function<void()>& body) { std::thread(body).join(); }

TEST_F(Streams, AThreadWithoutAContextTakesThatOfItsFirstStream) {
  std::atomic<int> runs{0};
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  const struct {
    const char* what;
    std::function<void()> first;
    bool is_default;  // the stream that is current then
  } table[] = {
      {"SetCurrentStream", [&] { SetCurrentStream(stream_); }, false},
      {"CurrentStream", [] { EXPECT_NE(CurrentStream(), nullptr); }, true},
      {"CurrentStream(0)", [] { EXPECT_EQ(CurrentStream(0), CurrentStream()); }, true},
      {"StreamGuard", [&] { const StreamGuard guard(stream_); }, true},
      {"LaunchOperation", [&] { LaunchOperation(nullptr, std::make_unique<Count>(runs)); }, true},
      {"Allocate", [] { device_memory::Free(device_memory::Allocate(1)); }, true},
  };
  for (const auto& row : table) {
    runs = 0;
    InThread([&] {
      row.first();
      aclrtContext mine = nullptr;
      EXPECT_EQ(0, aclrtGetCurrentContext(&mine)) << row.what;
      EXPECT_EQ(mine, context) << row.what;
      void* const current = CurrentStream();
      EXPECT_EQ(current != stream_, row.is_default) << row.what;
      runs = 0;
      LaunchOperation(nullptr, std::make_unique<Count>(runs));
      EXPECT_EQ(0, aclrtSynchronizeStream(current)) << row.what;
      EXPECT_GE(runs, 1) << row.what;
    });
  }
  // None of them counts as a user of the device.
  EXPECT_EQ(0, aclrtResetDevice(0));
  EXPECT_NE(0, aclrtSynchronizeStream(stream_));
  ASSERT_EQ(0, aclrtSetDevice(0));
}

TEST_F(Streams, AskingForAStreamOpensItsDevice) {
  InThread([] {
    void* const stream = CurrentStream(1);
    ASSERT_NE(stream, nullptr);
    EXPECT_EQ(CurrentDevice(), 1);
    int32_t device = -1;
    EXPECT_EQ(0, aclrtGetDevice(&device));
    EXPECT_EQ(device, 1);
    EXPECT_EQ(CurrentStream(1), stream);
    EXPECT_EQ(0, aclrtSynchronizeStream(stream));
  });
  // A thread with a context keeps it.
  ASSERT_NE(CurrentStream(1), nullptr);
  EXPECT_EQ(CurrentDevice(), 0);
  EXPECT_EQ(CurrentStream(), stream_);
  EXPECT_EQ(0, aclrtResetDevice(1)) << "opened, it counts one";
  EXPECT_NE(0, aclrtResetDevice(1)) << "and no more";
}

TEST_F(Streams, WrongDevicesStreamsAndDestroyedContextsAreRefused) {
  for (const int device : {2, 64, 1 << 20}) {
    EXPECT_TRUE(Refused(107001, "", [&] { (void)CurrentStream(device); })) << device;
  }
  int word = 0;
  EXPECT_TRUE(Refused(107017, "", [&] { SetCurrentStream(&word); }));
  EXPECT_TRUE(Refused(107017, "", [&] { const StreamGuard guard(&word); }));
  EXPECT_EQ(CurrentStream(), stream_);
  InThread([&] {
    EXPECT_TRUE(Refused(107017, "", [&] { SetCurrentStream(&word); }));
    aclrtContext none = nullptr;
    EXPECT_NE(0, aclrtGetCurrentContext(&none)) << "a refused stream brings no context";
  });
  InThread([] {
    aclrtContext context = nullptr;
    ASSERT_EQ(0, aclrtCreateContext(&context, 1));
    ASSERT_EQ(0, aclrtDestroyContext(context));
    // Destroying the thread's own context leaves it without one, or with a stale one: either way nothing is corrupt.
    const int code = CodeOf([] { (void)CurrentStream(); });
    EXPECT_TRUE(code == 0 || code == 107002) << code;
  });
  std::thread stays([] {
    SetCurrentStream(nullptr);
    ASSERT_EQ(0, aclrtSetDevice(1));
    EXPECT_EQ(0, aclrtResetDeviceForce(1));
    EXPECT_TRUE(Refused(107002, "destroyed", [] { (void)CurrentStream(); }));
  });
  stays.join();
}

TEST_F(Streams, ReplayOnAStreamOfAnotherDeviceIsRefused) {
  std::atomic<int> runs{0};
  Graph graph;
  {
    Capture capture(graph, stream_);
    LaunchOperation(nullptr, std::make_unique<Count>(runs));
  }
  InThread([&] {
    ASSERT_EQ(0, aclrtSetDevice(1));
    aclrtStream foreign = nullptr;
    ASSERT_EQ(0, aclrtCreateStream(&foreign));
    EXPECT_TRUE(Refused(107004, "device 1", [&] { graph.Replay(foreign); })) << "the graph is of device 0";
    EXPECT_TRUE(Refused(107004, "device 1", [&] { graph.Replay(); }));
    EXPECT_TRUE(Refused(107003, "device 1", [&] { graph.Replay(stream_); })) << "so is the stream";
    EXPECT_TRUE(Refused(107003, "device 1", [&] { LaunchOperation(stream_, std::make_unique<Count>(runs)); }));
    ASSERT_EQ(0, aclrtSetDevice(0));
    EXPECT_TRUE(Refused(107003, "device 1", [&] { graph.Replay(foreign); }));
    EXPECT_EQ(0, aclrtSetDevice(1));
    EXPECT_EQ(0, aclrtDestroyStream(foreign));
    EXPECT_EQ(0, aclrtResetDeviceForce(1));
  });
  EXPECT_EQ(runs, 0);
  graph.Replay();
  Wait(stream_);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace reprise::testing
