// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the C++ interface are written with: a device, kernels that are functions of this program, and the
// sums that must not change.
#pragma once

#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <reprise/graph.h>
#include <reprise/memory.h>
#include <reprise/reprise.h>
#include <reprise/stream.h>

#include <functional>
#include <string>
#include <vector>

namespace reprise::testing {

/// Number of the exception that the call throws; 0: none.
inline int CodeOf(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Exception& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  return 0;
}

/// The call is refused with this number, and the message holds the words.
inline ::testing::AssertionResult Refused(int code, const std::string& words, const std::function<void()>& call) {
  std::string message;
  const int got = CodeOf(call, &message);
  if (got != code) return ::testing::AssertionFailure() << "threw " << got << ", not " << code << ": " << message;
  if (message.find(words) == std::string::npos) {
    return ::testing::AssertionFailure() << "no \"" << words << "\" in: " << message;
  }
  if (message.find("next step: ") == std::string::npos)
    return ::testing::AssertionFailure() << "no advice: " << message;
  return ::testing::AssertionSuccess();
}

/// What a failed or finished capture must leave as it was.
struct Books {
  int64_t device_live, device_segments, device_reserved, host_blocks, host_active;
  bool operator==(const Books&) const = default;
  static Books Take() {
    const DeviceStats device = device_memory::Stats(0);
    const HostStats host = host_memory::Stats();
    return {device.allocation.all.current, device.segment.all.current, device.reserved_bytes.all.current,
            host.allocations.current, host.active_requests.current};
  }
  friend std::ostream& operator<<(std::ostream& out, const Books& books) {
    return out << "live " << books.device_live << ", segments " << books.device_segments << ", reserved "
               << books.device_reserved << ", pinned " << books.host_blocks << ", in use " << books.host_active;
  }
};

class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(0, aclrtSetDevice(0));
    stream_ = NewStream();
    SetCurrentStream(stream_);
  }
  void TearDown() override {
    SetCurrentStream(nullptr);
    for (aclrtStream stream : streams_) aclrtDestroyStreamForce(stream);
    device_memory::EmptyCache();
    host_memory::EmptyCache();
    EXPECT_EQ(0, aclrtResetDeviceForce(0));
  }
  aclrtStream NewStream() {
    aclrtStream stream = nullptr;
    EXPECT_EQ(0, aclrtCreateStream(&stream));
    streams_.push_back(stream);
    return stream;
  }
  void Destroy(aclrtStream stream) {
    std::erase(streams_, stream);
    EXPECT_EQ(0, aclrtDestroyStream(stream));
  }
  static float* Floats(size_t count, aclrtStream stream) {
    return static_cast<float*>(device_memory::Allocate(count * sizeof(float), stream));
  }
  /// y[i] = f(y[i]), as a task.
  static void Apply(aclrtStream stream, float* y, size_t count, std::function<float(float)> f) {
    ASSERT_EQ(0, LaunchClosure(stream, "apply", [=] {
                for (size_t i = 0; i < count; ++i) y[i] = f(y[i]);
                return 0;
              }));
  }
  static void Copy(aclrtStream stream, float* y, const float* x, size_t count) {
    ASSERT_EQ(
        0, aclrtMemcpyAsync(y, count * sizeof(float), x, count * sizeof(float), ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
  }
  static void Wait(aclrtStream stream) { ASSERT_EQ(0, aclrtSynchronizeStream(stream)); }
  static aclmdlRICaptureStatus StatusOf(aclrtStream stream) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, nullptr));
    return status;
  }

  aclrtStream stream_ = nullptr;

 private:
  std::vector<aclrtStream> streams_;
};

}  // namespace reprise::testing
