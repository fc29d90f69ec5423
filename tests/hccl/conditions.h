// SPDX-License-Identifier: Apache-2.0
//
// Graphs with conditional tasks whose bodies have collectives.
#pragma once

#include <functional>
#include <vector>

#include "ranks.h"

namespace reprise::testing {

/// Records a graph of one rank, and bodies within it. Streams live as long as it does.
class Recorder {
 public:
  using Body = std::function<void()>;

  explicit Recorder(const Rank& rank) : rank_(rank), stream_(rank.stream) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() {
    rank_.Use();
    for (aclrtStream stream : made_) EXPECT_EQ(0, aclrtDestroyStream(stream));
  }

  aclmdlRI Graph(const Body& body) {
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)) << Message();
    body();
    EXPECT_EQ(0, aclmdlRICaptureEnd(stream_, &model)) << Message();
    return model;
  }
  /// Adds a conditional task where recording is now; the cell of its condition, which keeps its value.
  uint64_t* Add(aclmdlRICondTaskType type, const std::vector<Body>& bodies) { return AddOn(stream_, type, bodies); }
  uint64_t* AddOn(aclrtStream stream, aclmdlRICondTaskType type, const std::vector<Body>& bodies) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, &model));
    aclmdlRICondHandle handle = nullptr;
    EXPECT_EQ(0, aclmdlRICondHandleCreate(model, 0, static_cast<aclmdlRICondHandleFlag>(0), &handle)) << Message();
    std::vector<aclmdlRI> models(bodies.size(), nullptr);
    aclmdlRICondTaskParams params = {};
    params.handle = handle;
    params.type = type;
    params.size = static_cast<uint32_t>(bodies.size());
    params.modelRIArray = models.data();
    EXPECT_EQ(0, aclmdlRIAddCondTask(params, stream, 0)) << Message();
    for (size_t i = 0; i < bodies.size(); ++i) {
      const aclrtStream outer = stream_;
      stream_ = NewStream();
      EXPECT_EQ(0, aclmdlRICaptureToModelRIBegin(stream_, models[i], ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)) << Message();
      bodies[i]();
      EXPECT_EQ(0, aclmdlRICaptureEnd(stream_, &models[i])) << Message();
      stream_ = outer;
    }
    uint64_t* cell = nullptr;
    EXPECT_EQ(0, aclmdlRICondHandleGetCondPtr(handle, &cell)) << Message();
    return cell;
  }
  /// The rest of the body runs beside what `work` records on another stream.
  void Beside(const std::function<void(aclrtStream)>& work, const Body& here) {
    const aclrtStream side = NewStream();
    aclrtEvent fork = nullptr;
    aclrtEvent join = nullptr;
    EXPECT_EQ(0, aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
    EXPECT_EQ(0, aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
    EXPECT_EQ(0, aclrtRecordEvent(fork, stream_));
    EXPECT_EQ(0, aclrtStreamWaitEvent(side, fork));
    work(side);
    here();
    EXPECT_EQ(0, aclrtRecordEvent(join, side));
    EXPECT_EQ(0, aclrtStreamWaitEvent(stream_, join));
    EXPECT_EQ(0, aclrtDestroyEvent(fork));
    EXPECT_EQ(0, aclrtDestroyEvent(join));
  }
  /// One less in the cell, as a task.
  void CountDown(uint64_t** cell) {
    EXPECT_EQ(0, aclrtLaunchHostFunc(
                     stream_, [](void* at) { --**static_cast<uint64_t**>(at); }, cell))
        << Message();
  }
  /// Where recording is now.
  aclrtStream stream() const { return stream_; }

 private:
  aclrtStream NewStream() {
    made_.push_back(nullptr);
    EXPECT_EQ(0, aclrtCreateStream(&made_.back())) << Message();
    return made_.back();
  }

  const Rank rank_;
  aclrtStream stream_;
  std::vector<aclrtStream> made_;
};

}  // namespace reprise::testing
