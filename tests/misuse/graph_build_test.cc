// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions for models built by hand, labels, task groups and conditional tasks.
#include <climits>

#include "graph_world.h"

namespace reprise::testing {
namespace {

struct World : GraphWorld {
  // Two streams of `fresh`, the model under construction.
  aclrtStream head = nullptr;
  aclrtStream other = nullptr;
  aclrtLabel null_label[2] = {};
  aclrtLabel bad_labels[2] = {};  ///< the second one is `bad`
  aclmdlRICondHandle handle = nullptr;
  aclrtTaskGrp group = nullptr;
  aclrtStream fast = nullptr;
};

aclmdlRICondHandleFlag HandleFlag(int value) { return static_cast<aclmdlRICondHandleFlag>(value); }
aclmdlRICondTaskType TaskType(int value) { return static_cast<aclmdlRICondTaskType>(value); }
constexpr aclmdlRICondTaskType kIf = ACL_MODEL_RI_COND_TYPE_IF;
constexpr aclmdlRICondTaskType kWhile = ACL_MODEL_RI_COND_TYPE_WHILE;
constexpr aclmdlRICondTaskType kSwitch = ACL_MODEL_RI_COND_TYPE_SWITCH;
constexpr uint32_t kHead = ACL_MODEL_STREAM_FLAG_HEAD;
constexpr uint32_t kDefault = ACL_MODEL_STREAM_FLAG_DEFAULT;
constexpr aclrtCondition kEqual = ACL_RT_EQUAL;
constexpr aclrtCompareDataType kInt64 = ACL_RT_SWITCH_INT64;

class GraphBuild : public GraphMisuse<World> {
 protected:
  void SetUp() override {
    GraphMisuse::SetUp();
    if (HasFatalFailure()) return;
    World& w = world_;
    w.head = NewStreamWith(ACL_STREAM_PERSISTENT);
    w.other = NewStreamWith(ACL_STREAM_PERSISTENT);
    w.fast = NewStreamWith(ACL_STREAM_PERSISTENT | ACL_STREAM_FAST_LAUNCH);
    MUST(aclmdlRIBindStream(w.fresh, w.head, kHead));
    MUST(aclmdlRIBindStream(w.fresh, w.other, kDefault));
    fresh_cell_ = static_cast<uint64_t*>(NewMemory(64));
    MUST(Launch(w.head, fresh_cell_, 1));
    MUST(Launch(w.other, fresh_cell_, 100));  // runs if anything starts the stream
    w.group = w.captured_model.group;
    w.null_label[0] = w.set_label;
    w.bad_labels[0] = w.set_label;
  }
  /// The model under construction holds what was meant, and nothing that a refused call left there.
  void TearDown() override {
    if (!finished_) {
      EXPECT_ACL(0, aclmdlRIEndTask(world_.fresh, world_.head));
      EXPECT_ACL(0, aclmdlRIBuildEnd(world_.fresh, nullptr));
      EXPECT_ACL(0, aclmdlRIExecute(world_.fresh, kPatience));
      EXPECT_EQ(*fresh_cell_, 1U);
    }
    GraphMisuse::TearDown();
  }
  uint64_t* fresh_cell_ = nullptr;
  bool finished_ = false;
};

TEST_F(GraphBuild, Null) {
  Everywhere({
      ROW(100000, aclmdlRIBuildBegin(nullptr, 0)),
      ROW(100000, aclmdlRIBuildBegin(nullptr, 1)),
      ROW(100000, aclmdlRIBindStream(nullptr, w.persistent, kHead)),
      ROW(107000, aclmdlRIBindStream(w.fresh, nullptr, kHead)),
      ROW(100000, aclmdlRIUnbindStream(nullptr, w.head)),
      ROW(107005, aclmdlRIUnbindStream(w.fresh, nullptr)),
      ROW(100000, aclmdlRIEndTask(nullptr, w.head)),
      ROW(507000, aclmdlRIEndTask(w.fresh, nullptr)),
      ROW(100000, aclmdlRIBuildEnd(nullptr, nullptr)),
      ROW(100000, aclmdlRIBuildEnd(w.fresh, &w.local)),
      ROW(100000, aclmdlRIBuildEnd(nullptr, &w.local)),
      ROW(107000, aclrtPersistentTaskClean(nullptr)),
      ROW(100000, aclrtActiveStream(nullptr, w.head)),
      ROW(100000, aclrtActiveStream(w.other, nullptr)),
      ROW(100000, aclrtSwitchStream(nullptr, kEqual, w.memory, kInt64, w.other, nullptr, w.head)),
      ROW(100000, aclrtSwitchStream(w.memory, kEqual, nullptr, kInt64, w.other, nullptr, w.head)),
      ROW(100000, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, nullptr, nullptr, w.head)),
      ROW(100000, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, nullptr)),
      ROW(100000, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, w.head, w.head)),
      ROW(100000, aclrtCreateLabel(nullptr)),
      ROW(100000, aclrtSetLabel(nullptr, w.head)),
      ROW(100000, aclrtSetLabel(w.label, nullptr)),
      ROW(100000, aclrtDestroyLabel(nullptr)),
      ROW(100000, aclrtCreateLabelList(nullptr, 1, w.out.handle())),
      ROW(100000, aclrtCreateLabelList(&w.set_label, 1, nullptr)),
      ROW(107000, aclrtCreateLabelList(w.null_label, 2, w.out.handle())),
      ROW(100000, aclrtDestroyLabelList(nullptr)),
      ROW(100000, aclrtSwitchLabelByIndex(nullptr, 1, w.label_list, w.head)),
      ROW(100000, aclrtSwitchLabelByIndex(w.memory, 1, nullptr, w.head)),
      ROW(100000, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, nullptr)),
      ROW(100000, aclmdlRICaptureTaskGrpBegin(nullptr)),
      ROW(100000, aclmdlRICaptureTaskGrpEnd(nullptr, w.out.handle())),
      ROW(100000, aclmdlRICaptureTaskGrpEnd(w.aux, nullptr)),
      ROW(100000, aclmdlRICaptureTaskUpdateBegin(nullptr, w.group)),
      ROW(100000, aclmdlRICaptureTaskUpdateBegin(w.aux, nullptr)),
      ROW(100000, aclmdlRICaptureTaskUpdateEnd(nullptr)),
      ROW(100000, aclmdlRICondHandleCreate(nullptr, 0, HandleFlag(0), w.out.handle())),
      ROW(100000, aclmdlRICondHandleCreate(w.model, 0, HandleFlag(0), nullptr)),
      ROW(100000, aclmdlRICondHandleGetCondPtr(nullptr, w.out.As<uint64_t*>())),
      ROW(100000, aclmdlRICondHandleGetCondPtr(w.captured_model.condition, nullptr)),
      ROW(100000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, nullptr, 0)),
      ROW(107000, aclmdlRIAddCondTask({nullptr, kIf, 1, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, nullptr}, w.aux, 0)),
  });
}

TEST_F(GraphBuild, ModelThatIsNone) {
  BadHandles("model", {
                          ROW(107017, aclmdlRIBindStream(w.bad, w.persistent, kHead)),
                          ROW(107000, aclmdlRIBindStream(w.bad, w.persistent, 5)),
                          ROW(107017, aclmdlRIUnbindStream(w.bad, w.head)),
                          ROW(107017, aclmdlRIEndTask(w.bad, w.head)),
                          ROW(107017, aclmdlRIBuildEnd(w.bad, nullptr)),
                          ROW(100000, aclmdlRIBuildEnd(w.bad, &w.local)),
                          ROW(107017, aclmdlRICondHandleCreate(w.bad, 0, HandleFlag(1), w.out.handle())),
                          ROW(107000, aclmdlRICondHandleCreate(w.bad, 0, HandleFlag(2), w.out.handle())),
                      });
}

TEST_F(GraphBuild, StreamThatIsNone) {
  BadHandles("stream",
             {
                 ROW(107017, aclmdlRIBindStream(w.fresh, w.bad, kHead)),
                 ROW(107017, aclmdlRIUnbindStream(w.fresh, w.bad)),
                 ROW(107017, aclmdlRIEndTask(w.fresh, w.bad)),
                 ROW(107017, aclrtPersistentTaskClean(w.bad)),
                 ROW(107017, aclrtActiveStream(w.bad, w.head)),
                 ROW(107017, aclrtActiveStream(w.other, w.bad)),
                 ROW(107017, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.bad, nullptr, w.head)),
                 ROW(107017, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, w.bad)),
                 ROW(107017, aclrtSetLabel(w.label, w.bad)),
                 ROW(107017, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.bad)),
                 ROW(107017, aclmdlRICaptureTaskGrpBegin(w.bad)),
                 ROW(107017, aclmdlRICaptureTaskGrpEnd(w.bad, w.out.handle())),
                 ROW(107017, aclmdlRICaptureTaskUpdateBegin(w.bad, w.group)),
                 ROW(107017, aclmdlRICaptureTaskUpdateEnd(w.bad)),
                 ROW(107017, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.bad, 0)),
             });
}

TEST_F(GraphBuild, OtherHandlesThatAreNone) {
  BadHandles("label", {
                          ROW(107017, aclrtSetLabel(w.bad, w.head)),
                          ROW(107017, aclrtDestroyLabel(w.bad)),
                          ROW(107017, aclrtCreateLabelList(&w.bad, 1, w.out.handle())),
                          ROW(107000, aclrtCreateLabelList(&w.bad, 0, w.out.handle())),
                      });
  BadHandles("label list", {
                               ROW(107017, aclrtDestroyLabelList(w.bad)),
                               ROW(107017, aclrtSwitchLabelByIndex(w.memory, 1, w.bad, w.head)),
                           });
  BadHandles("task group", {ROW(107017, aclmdlRICaptureTaskUpdateBegin(w.aux, w.bad))});
  BadHandles("condition", {
                              ROW(107017, aclmdlRICondHandleGetCondPtr(w.bad, w.out.As<uint64_t*>())),
                              ROW(107017, aclmdlRIAddCondTask({w.bad, kIf, 1, w.out.handle()}, w.aux, 0)),
                              ROW(107000, aclmdlRIAddCondTask({w.bad, TaskType(3), 1, w.out.handle()}, w.aux, 0)),
                          });
}

TEST_F(GraphBuild, ValuesOutOfRange) {
  Everywhere({
      ROW(107000, aclmdlRIBuildBegin(w.out.handle(), 1)),
      ROW(107000, aclmdlRIBuildBegin(w.out.handle(), UINT32_MAX)),
      ROW(107000, aclmdlRIBindStream(w.fresh, w.persistent, 1)),
      ROW(107000, aclmdlRIBindStream(w.fresh, w.persistent, 0x80000000U)),
      ROW(107000, aclmdlRIBindStream(w.fresh, w.persistent, UINT32_MAX)),
      ROW(107000,
          aclrtSwitchStream(w.memory, static_cast<aclrtCondition>(6), w.memory, kInt64, w.other, nullptr, w.head)),
      ROW(107000,
          aclrtSwitchStream(w.memory, static_cast<aclrtCondition>(-1), w.memory, kInt64, w.other, nullptr, w.head)),
      ROW(107000, aclrtSwitchStream(w.memory, kEqual, w.memory, static_cast<aclrtCompareDataType>(2), w.other, nullptr,
                                    w.head)),
      ROW(107000, aclrtSwitchStream(&w.local, kEqual, w.memory, kInt64, w.other, nullptr, w.head)),
      ROW(107000, aclrtSwitchStream(w.memory, kEqual, &w.local, kInt64, w.other, nullptr, w.head)),
      ROW(107000, aclrtSwitchStream(Address(8), kEqual, w.memory, kInt64, w.other, nullptr, w.head)),
      ROW(107000,
          aclrtSwitchStream(static_cast<char*>(w.memory) + 4, kEqual, w.memory, kInt64, w.other, nullptr, w.head)),
      ROW(107000, aclrtSwitchStream(w.memory, kEqual, Address(UINTPTR_MAX - 7), kInt64, w.other, nullptr, w.head)),
      ROW(107000, aclrtSwitchStream(w.memory, kEqual, static_cast<char*>(w.memory) + 1, ACL_RT_SWITCH_INT32, w.other,
                                    nullptr, w.head)),
      ROW(107000, aclrtCreateLabelList(&w.set_label, 0, w.out.handle())),
      ROW(107000, aclrtCreateLabelList(&w.set_label, 65536, w.out.handle())),
      ROW(107000, aclrtCreateLabelList(&w.set_label, SIZE_MAX, w.out.handle())),
      ROW(107000, aclrtSwitchLabelByIndex(w.memory, 0, w.label_list, w.head)),
      ROW(107000, aclrtSwitchLabelByIndex(w.memory, 2, w.label_list, w.head)),
      ROW(107000, aclrtSwitchLabelByIndex(w.memory, UINT32_MAX, w.label_list, w.head)),
      ROW(107000, aclrtSwitchLabelByIndex(&w.local, 1, w.label_list, w.head)),
      ROW(107000, aclrtSwitchLabelByIndex(static_cast<char*>(w.memory) + 2, 1, w.label_list, w.head)),
      ROW(107000, aclrtSwitchLabelByIndex(Address(UINTPTR_MAX - 3), 1, w.label_list, w.head)),
      ROW(107000, aclmdlRICondHandleCreate(w.model, 0, HandleFlag(2), w.out.handle())),
      ROW(107000, aclmdlRICondHandleCreate(w.model, 0, HandleFlag(-1), w.out.handle())),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, TaskType(3), 1, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, TaskType(-1), 1, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.aux, 1)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 0, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 3, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kWhile, 2, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kWhile, UINT32_MAX, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kSwitch, 0, w.out.handle()}, w.aux, 0)),
  });
}

TEST_F(GraphBuild, ModelsOfTheWrongKindOrState) {
  Everywhere({
      ROW(107000, aclmdlRIBindStream(w.model, w.persistent, kHead)),
      ROW(107000, aclmdlRIBindStream(w.body, w.persistent, kHead)),
      ROW(107000, aclmdlRIBindStream(w.built, w.persistent, kDefault)),
      ROW(107000, aclmdlRIUnbindStream(w.model, w.head)),
      ROW(107000, aclmdlRIEndTask(w.model, w.head)),
      ROW(107000, aclmdlRIEndTask(w.body, w.head)),
      ROW(507000, aclmdlRIEndTask(w.built, w.bound)),
      ROW(107000, aclmdlRIBuildEnd(w.model, nullptr)),
      ROW(107000, aclmdlRIBuildEnd(w.body, nullptr)),
      ROW(107000, aclmdlRIBuildEnd(w.built, nullptr)),
      ROW(207000, aclmdlRICondHandleCreate(w.built, 0, HandleFlag(0), w.out.handle())),
      ROW(207000, aclmdlRICondHandleCreate(w.fresh, 0, HandleFlag(0), w.out.handle())),
      ROW(207000, aclmdlRICondHandleCreate(w.foreign_built, 0, HandleFlag(0), w.out.handle())),
      ROW(107000, aclmdlRICondHandleCreate(w.model, 0, HandleFlag(1), w.out.handle())),
      ROW(107000, aclmdlRICondHandleCreate(w.body, 0, HandleFlag(1), w.out.handle())),
  });
}

TEST_F(GraphBuild, StreamsOfTheWrongKindOrState) {
  Everywhere({
      ROW(107000, aclmdlRIBindStream(w.fresh, w.aux, kHead)),
      ROW(107000, aclmdlRIBindStream(w.fresh, w.default_stream, kHead)),
      ROW(107000, aclmdlRIBindStream(w.fresh, w.cpu_schedule, kHead)),
      ROW(507000, aclmdlRIBindStream(w.fresh, w.device_only, kHead)),
      ROW(207000, aclmdlRIBindStream(w.fresh, w.fast, kHead)),
      ROW(107005, aclmdlRIBindStream(w.fresh, w.head, kHead)),
      ROW(107005, aclmdlRIBindStream(w.fresh, w.bound, kDefault)),
      ROW(107005, aclmdlRIBindStream(w.built, w.head, kDefault)),
      ROW(107005, aclmdlRIUnbindStream(w.fresh, w.persistent)),
      ROW(107005, aclmdlRIUnbindStream(w.fresh, w.bound)),
      ROW(107005, aclmdlRIUnbindStream(w.built, w.head)),
      ROW(107005, aclmdlRIUnbindStream(w.fresh, w.aux)),
      ROW(507000, aclmdlRIEndTask(w.fresh, w.persistent)),
      ROW(507000, aclmdlRIEndTask(w.fresh, w.bound)),
      ROW(507000, aclmdlRIEndTask(w.fresh, w.aux)),
      ROW(107000, aclrtPersistentTaskClean(w.aux)),
      ROW(107000, aclrtPersistentTaskClean(w.default_stream)),
      ROW(107005, aclrtActiveStream(w.persistent, w.head)),
      ROW(107005, aclrtActiveStream(w.bound, w.head)),
      ROW(107005, aclrtActiveStream(w.other, w.aux)),
      ROW(107005, aclrtActiveStream(w.aux, w.persistent)),
      ROW(107000, aclrtActiveStream(w.bound, w.bound)),
      ROW(107005, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.persistent, nullptr, w.head)),
      ROW(107005, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, w.aux)),
      ROW(107000, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.bound, nullptr, w.bound)),
      ROW(107005, aclrtSetLabel(w.label, w.persistent)),
      ROW(107005, aclrtSetLabel(w.label, w.aux)),
      ROW(107000, aclrtSetLabel(w.label, w.bound)),
      ROW(107000, aclrtSetLabel(w.set_label, w.head)),
      ROW(507031, aclrtSetLabel(w.foreign_label, w.head)),
      ROW(107005, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.persistent)),
      ROW(107005, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.aux)),
      ROW(107000, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.bound)),
      ROW(107029, aclmdlRICaptureTaskGrpBegin(w.aux)),
      ROW(107029, aclmdlRICaptureTaskGrpBegin(w.default_stream)),
      ROW(107029, aclmdlRICaptureTaskGrpBegin(w.bound)),
      ROW(107005, aclmdlRICaptureTaskUpdateBegin(w.bound, w.group)),
      ROW(107005, aclmdlRICaptureTaskUpdateBegin(w.head, w.group)),
      ROW(107033, aclmdlRICaptureTaskUpdateEnd(w.aux)),
      ROW(107033, aclmdlRICaptureTaskUpdateEnd(w.bound)),
      ROW(107029, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.aux, 0)),
      ROW(107029, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.head, 0)),
      // A bound stream goes after its model, or is unbound.
      ROW(107005, aclrtDestroyStream(w.head)),
      ROW(107005, aclrtDestroyStreamForce(w.other)),
      ROW(107005, aclrtDestroyStream(w.bound)),
  });
  aclrtTaskGrp group = &world_.local;
  EXPECT_ACL(107029, aclmdlRICaptureTaskGrpEnd(world_.aux, &group));
  EXPECT_EQ(group, nullptr);
}

TEST_F(GraphBuild, StreamsThatStopOnFailure) {
  // The mode of one stream counts for its whole context, so this is a context of its own.
  aclrtContext context = nullptr;
  MUST(aclrtCreateContext(&context, 0));
  const aclrtStream stream = NewStreamWith(ACL_STREAM_PERSISTENT);
  const aclrtStream other = NewStreamWith(ACL_STREAM_PERSISTENT);
  aclmdlRI model = nullptr;
  MUST(aclmdlRIBuildBegin(&model, 0));
  MUST(aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
  EXPECT_ACL(207000, aclmdlRIBindStream(model, stream, kHead));
  EXPECT_ACL(207000, aclmdlRIBindStream(model, other, kDefault));
  EXPECT_ACL(507000, aclmdlRIEndTask(model, stream));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_ACL(0, aclrtSetCurrentContext(world_.context));
  EXPECT_ACL(0, aclrtDestroyContext(context));
  StillWorks();
}

TEST_F(GraphBuild, OtherContextOrNone) {
  Everywhere({
      ROW(107004, aclmdlRIBindStream(w.foreign_built, w.persistent, kHead)),
      ROW(107003, aclmdlRIBindStream(w.fresh, w.foreign_persistent, kHead)),
      ROW(107000, aclmdlRIBindStream(w.foreign_model, w.persistent, kHead)),
      ROW(107000, aclmdlRIBindStream(w.fresh, w.foreign, kHead)),
      ROW(107004, aclmdlRIUnbindStream(w.foreign_built, w.head)),
      ROW(107003, aclmdlRIUnbindStream(w.fresh, w.foreign_persistent)),
      ROW(107004, aclmdlRIEndTask(w.foreign_built, w.head)),
      ROW(107003, aclmdlRIEndTask(w.fresh, w.foreign_persistent)),
      ROW(107004, aclmdlRIBuildEnd(w.foreign_built, nullptr)),
      ROW(107003, aclrtPersistentTaskClean(w.foreign_persistent)),
      ROW(107003, aclrtActiveStream(w.foreign, w.head)),
      ROW(107003, aclrtActiveStream(w.other, w.foreign)),
      ROW(107003, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.foreign, nullptr, w.head)),
      ROW(107003, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, w.foreign)),
      ROW(107003, aclrtSetLabel(w.label, w.foreign_persistent)),
      ROW(107003, aclrtSetLabel(w.foreign_label, w.foreign_persistent)),
      ROW(107003, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.foreign)),
      ROW(107003, aclmdlRICaptureTaskGrpBegin(w.foreign)),
      ROW(107003, aclmdlRICaptureTaskGrpEnd(w.foreign, w.out.handle())),
      ROW(107003, aclmdlRICaptureTaskUpdateBegin(w.foreign, w.group)),
      ROW(107003, aclmdlRICaptureTaskUpdateEnd(w.foreign)),
      ROW(107004, aclmdlRICondHandleCreate(w.foreign_model, 0, HandleFlag(0), w.out.handle())),
      ROW(107003, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.foreign, 0)),
  });
  OnThread(nullptr,
           {
               ROW(107002, aclmdlRIBuildBegin(w.out.handle(), 0)),
               ROW(107002, aclmdlRIBindStream(w.fresh, w.persistent, kHead)),
               ROW(107002, aclmdlRIBindStream(w.fresh, nullptr, kHead)),
               ROW(107002, aclmdlRIUnbindStream(w.fresh, w.head)),
               ROW(107002, aclmdlRIEndTask(w.fresh, w.head)),
               ROW(107002, aclmdlRIBuildEnd(w.fresh, nullptr)),
               ROW(107002, aclrtPersistentTaskClean(w.head)),
               ROW(107002, aclrtActiveStream(w.other, w.head)),
               ROW(107002, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, w.head)),
               ROW(107002, aclrtCreateLabel(w.out.handle())),
               ROW(107002, aclrtSetLabel(w.label, w.head)),
               ROW(107002, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.head)),
               ROW(107002, aclmdlRICaptureTaskGrpBegin(w.aux)),
               ROW(107002, aclmdlRICaptureTaskGrpEnd(w.aux, w.out.handle())),
               ROW(107002, aclmdlRICaptureTaskUpdateBegin(w.aux, w.group)),
               ROW(107002, aclmdlRICaptureTaskUpdateEnd(w.aux)),
               ROW(107002, aclmdlRICondHandleCreate(w.model, 0, HandleFlag(0), w.out.handle())),
               ROW(107002, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.aux, 0)),
           });
}

TEST_F(GraphBuild, DuringACapture) {
  Open();
  MUST(aclmdlRICondHandleCreate(world_.open_model, 0, HandleFlag(0), &world_.handle));
  RunRows({
      ROW(107027, aclmdlRIBindStream(w.fresh, w.origin, kHead)),
      ROW(107027, aclmdlRIBindStream(w.fresh, w.forked, kDefault)),
      ROW(107000, aclmdlRIBindStream(w.open_model, w.persistent, kHead)),
      ROW(107027, aclmdlRIUnbindStream(w.fresh, w.origin)),
      ROW(107027, aclmdlRIEndTask(w.fresh, w.forked)),
      ROW(107000, aclmdlRIBuildEnd(w.open_model, nullptr)),
      ROW(107000, aclrtPersistentTaskClean(w.origin)),
      ROW(107005, aclrtActiveStream(w.other, w.origin)),
      ROW(107005, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, w.origin)),
      ROW(107027, aclrtSetLabel(w.label, w.origin)),
      ROW(107005, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.origin)),
      ROW(107027, aclmdlRICaptureTaskUpdateBegin(w.origin, w.group)),
      ROW(107027, aclmdlRICaptureTaskUpdateBegin(w.forked, w.group)),
      ROW(107027, aclmdlRICaptureTaskUpdateEnd(w.origin)),
      ROW(107000, aclmdlRICondHandleCreate(w.open_model, 0, HandleFlag(2), w.out.handle())),
      // A handle of another model, whether that is finished or not.
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.origin, 0)),
      ROW(107029, aclmdlRIAddCondTask({w.handle, kIf, 1, w.out.handle()}, w.aux, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.handle, kWhile, 2, w.out.handle()}, w.origin, 0)),
      ROW(207005, aclmdlRIAddCondTask({w.handle, kSwitch, UINT32_MAX, w.out.handle()}, w.origin, 0)),
      ROW(207005, aclmdlRIAddCondTask({w.handle, kSwitch, (1U << 20) + 1, w.out.handle()}, w.forked, 0)),
  });
  aclrtTaskGrp group = &world_.local;
  EXPECT_ACL(107033, aclmdlRICaptureTaskGrpEnd(world_.origin, &group));
  EXPECT_EQ(group, nullptr);
  StillWorks();
  Close();
}

TEST_F(GraphBuild, ConditionHandlesServeOnce) {
  Open();
  MUST(aclmdlRICondHandleCreate(world_.open_model, 0, HandleFlag(0), &world_.handle));
  aclmdlRI body = nullptr;
  MUST(aclmdlRIAddCondTask({world_.handle, kIf, 1, &body}, world_.origin, 0));
  RunRows({
      ROW(107000, aclmdlRIAddCondTask({w.handle, kIf, 1, w.out.handle()}, w.origin, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.handle, kSwitch, 2, w.out.handle()}, w.forked, 0)),
  });
  // A body has handles of its own, while it is being captured.
  aclmdlRICondHandle inner = &world_.local;
  EXPECT_ACL(107000, aclmdlRICondHandleCreate(body, 0, HandleFlag(0), &inner));
  EXPECT_EQ(inner, &world_.local);
  MUST(aclmdlRICaptureToModelRIBegin(world_.aux, body, kGlobal));
  MUST(aclmdlRICondHandleCreate(body, 0, HandleFlag(0), &inner));
  world_.handle = inner;
  RunRows({
      ROW(107000, aclmdlRIAddCondTask({w.handle, kIf, 1, w.out.handle()}, w.origin, 0)),
      ROW(107000, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.aux, 0)),
      ROW(107005, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.aux)),
      ROW(107027, aclrtSetLabel(w.label, w.aux)),
  });
  MUST(aclmdlRICaptureEnd(world_.aux, nullptr));
  Close();
  // An invalidated capture gives out no more handles.
  MUST(aclmdlRICaptureBegin(world_.origin, kRelaxed));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureGetInfo(world_.origin, nullptr, &model));
  aclmdlRICondHandle handle = nullptr;
  MUST(aclmdlRICondHandleCreate(model, 0, HandleFlag(0), &handle));
  MUST(aclmdlRICaptureTaskGrpBegin(world_.origin));
  EXPECT_ACL(507009, aclmdlRIAddCondTask({handle, kIf, 1, &body}, world_.origin, 0)) << "only kernels are in a group";
  EXPECT_EQ(Status(world_.origin), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
  inner = &world_.local;
  EXPECT_ACL(107000, aclmdlRICondHandleCreate(model, 0, HandleFlag(0), &inner));
  EXPECT_EQ(inner, &world_.local);
  aclrtTaskGrp group = &world_.local;
  EXPECT_ACL(507009, aclmdlRICaptureTaskGrpEnd(world_.origin, &group));
  EXPECT_EQ(group, nullptr);
  EndFails(507903, world_.origin);
  StillWorks();
}

TEST_F(GraphBuild, GroupsDuringACapture) {
  Open();
  MUST(aclmdlRICaptureTaskGrpBegin(world_.origin));
  RunRows({
      ROW(107033, aclmdlRICaptureTaskGrpBegin(w.origin)),
      ROW(100000, aclmdlRICaptureTaskGrpEnd(w.origin, nullptr)),
      ROW(107027, aclmdlRICaptureTaskUpdateBegin(w.origin, w.group)),
      ROW(107027, aclmdlRICaptureTaskUpdateEnd(w.origin)),
  });
  aclrtTaskGrp group = &world_.local;
  EXPECT_ACL(107033, aclmdlRICaptureTaskGrpEnd(world_.forked, &group));
  EXPECT_EQ(group, nullptr);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(world_.origin, &group));
  EXPECT_ACL(107033, aclmdlRICaptureTaskGrpEnd(world_.origin, &group));
  EXPECT_EQ(group, nullptr);
  Close();
}

TEST_F(GraphBuild, UpdatesOfGroups) {
  uint64_t* const cell = world_.captured_model.cell;
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(world_.aux, world_.group));
  RunRows({
      ROW(107033, aclmdlRICaptureTaskUpdateBegin(w.aux, w.group)),
      ROW(107033, aclmdlRICaptureTaskUpdateBegin(w.stream, w.group)),
      ROW(107033, aclmdlRICaptureTaskUpdateBegin(w.default_stream, w.group)),
      ROW(107033, aclmdlRICaptureTaskUpdateEnd(w.stream)),
      ROW(107033, aclmdlRICaptureTaskGrpBegin(w.aux)),
      ROW(507009, aclrtMemsetAsync(w.memory, 64, 1, 64, w.aux)),
      ROW(507009, aclrtRecordEvent(w.event, w.aux)),
      ROW(507009, aclrtLaunchHostFunc(
                      w.aux, [](void*) { FAIL() << "must not run"; }, nullptr)),
  });
  EXPECT_ACL(0, aclmdlRIBuildBegin(&world_.open_model, 0));
  RunRows({ROW(107029, aclmdlRIAddCondTask({w.captured_model.condition, kIf, 1, w.out.handle()}, w.aux, 0))});
  EXPECT_ACL(0, aclmdlRIDestroy(world_.open_model));
  // Kernels of the wrong kind, too many, too few.
  DropMessage();
  EXPECT_EQ(507000, Launch(world_.aux, cell, 10, world_.cube_add));
  EXPECT_EQ(507009, Launch(world_.aux, cell, 10, world_.aicpu_add));
  EXPECT_EQ(0, Launch(world_.aux, cell, 10));
  EXPECT_EQ(507000, Launch(world_.aux, cell, 10));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(world_.aux));
  EXPECT_ACL(107033, aclmdlRICaptureTaskUpdateEnd(world_.aux));
  StillWorks();
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(world_.aux, world_.group));
  EXPECT_ACL(507000, aclmdlRICaptureTaskUpdateEnd(world_.aux));
  EXPECT_ACL(107033, aclmdlRICaptureTaskUpdateEnd(world_.aux));
  StillWorks();
  // Another thread may end it; a stream that goes away ends it, too.
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(world_.aux, world_.group));
  EXPECT_EQ(0, Launch(world_.aux, cell, 10));
  OnThread(world_.context, {ROW(0, aclmdlRICaptureTaskUpdateEnd(w.aux))});
  const aclrtStream going = NewStream();
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(going, world_.group));
  EXPECT_EQ(0, Launch(going, cell, 10));
  EXPECT_ACL(0, aclrtDestroyStream(going));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(world_.aux, world_.group)) << "the group is free again";
  EXPECT_ACL(507000, aclmdlRICaptureTaskUpdateEnd(world_.aux));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world_.aux, kPatience));
  StillWorks();
}

TEST_F(GraphBuild, ModelDestroyedWhileItsGroupIsUpdated) {
  Captured extra;
  Capture(extra);
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(world_.aux, extra.group));
  EXPECT_ACL(0, aclmdlRIDestroy(extra.model));
  EXPECT_ACL(107017, aclmdlRICaptureTaskUpdateBegin(world_.stream, extra.group));
  EXPECT_EQ(0, Launch(world_.aux, extra.cell, 10));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(world_.aux));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world_.aux, kPatience));
  EXPECT_EQ(*extra.cell, 0U);
  StillWorks();
}

// A persistent stream stores the replacement like any task, and its model may run it again and again.
TEST_F(GraphBuild, UpdateOnAPersistentStreamRunsWithItsModel) {
  Captured extra;
  Capture(extra);
  const aclrtStream stream = NewStreamWith(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(stream, extra.group));
  EXPECT_EQ(0, Launch(stream, extra.cell, 20));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(stream));
  aclmdlRI model = nullptr;
  MUST(aclmdlRIBuildBegin(&model, 0));
  MUST(aclmdlRIBindStream(model, stream, kHead));
  MUST(aclmdlRIEndTask(model, stream));
  MUST(aclmdlRIBuildEnd(model, nullptr));
  uint64_t expected = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_ACL(0, aclmdlRIExecute(model, kPatience));
    EXPECT_ACL(0, aclmdlRIExecuteAsync(extra.model, world_.stream));
    EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
    expected += Captured::kAdds + 10;
    EXPECT_EQ(*extra.cell, expected);
  }
  EXPECT_ACL(0, aclmdlRIDestroy(extra.model));
  EXPECT_ACL(0, aclmdlRIExecute(model, kPatience)) << "the group is gone, its update goes nowhere";
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

TEST_F(GraphBuild, CallsInTheWrongOrder) {
  World& world = world_;
  // No end task; and execution before the build has ended.
  RunRows({
      ROW(507011, aclmdlRIExecute(w.fresh, 10)),
      ROW(507011, aclmdlRIExecuteAsync(w.fresh, w.stream)),
  });
  // A second end task.
  MUST(aclmdlRIEndTask(world.fresh, world.head));
  RunRows({
      ROW(507000, aclmdlRIEndTask(w.fresh, w.head)),
      ROW(507000, aclmdlRIEndTask(w.fresh, w.other)),
  });
  MUST(aclmdlRIBuildEnd(world.fresh, nullptr));
  const auto built = [&] {
    RunRows({
        ROW(107000, aclmdlRIBuildEnd(w.fresh, nullptr)),
        ROW(107000, aclmdlRIBindStream(w.fresh, w.persistent, kHead)),
        ROW(507000, aclmdlRIEndTask(w.fresh, w.other)),
        ROW(107000, aclrtActiveStream(w.other, w.head)),
        ROW(107000, aclrtSwitchStream(w.memory, kEqual, w.memory, kInt64, w.other, nullptr, w.head)),
        ROW(107000, aclrtSetLabel(w.label, w.head)),
        ROW(107000, aclrtSwitchLabelByIndex(w.memory, 1, w.label_list, w.other)),
        ROW(107000, aclrtMemsetAsync(w.memory, 64, 1, 64, w.head)),
        ROW(107005, aclrtDestroyStreamForce(w.head)),
    });
  };
  built();
  // While it waits for its turn, nothing of it may change.
  Gate gate;
  gate.Block(world.stream);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(world.fresh, world.stream));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(world.fresh, world.stream));
  built();
  EXPECT_ACL(0, aclmdlRIUnbindStream(world.fresh, world.other));
  EXPECT_ACL(0, aclrtDestroyStream(world.other));
  EXPECT_ACL(0, aclrtPersistentTaskClean(world.head));
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world.stream, kPatience));
  EXPECT_EQ(*fresh_cell_, 2U) << "what was built runs";
  EXPECT_ACL(107017, aclmdlRIUnbindStream(world.fresh, world.other));
  EXPECT_ACL(0, aclmdlRIUnbindStream(world.fresh, world.head));
  EXPECT_ACL(107005, aclmdlRIUnbindStream(world.fresh, world.head));
  EXPECT_ACL(0, aclmdlRIExecute(world.fresh, kPatience));
  EXPECT_EQ(*fresh_cell_, 3U);
  EXPECT_ACL(0, aclrtDestroyStream(world.head));
  EXPECT_ACL(0, aclmdlRIExecute(world.fresh, kPatience));
  EXPECT_EQ(*fresh_cell_, 4U);
  finished_ = true;
  StillWorks();
}

TEST_F(GraphBuild, ModelsThatCannotEnd) {
  // Without a stream, and without an end task.
  aclmdlRI model = nullptr;
  MUST(aclmdlRIBuildBegin(&model, 0));
  EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(507011, aclmdlRIExecute(model, 10));
  EXPECT_ACL(507011, aclmdlRIExecuteAsync(model, world_.stream));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  // The stream with the end task is unbound, or cleaned, before the build has ended.
  for (const bool clean : {false, true}) {
    MUST(aclmdlRIBuildBegin(&model, 0));
    const aclrtStream first = NewStreamWith(ACL_STREAM_PERSISTENT);
    const aclrtStream second = NewStreamWith(ACL_STREAM_PERSISTENT);
    MUST(aclmdlRIBindStream(model, first, kHead));
    MUST(aclmdlRIBindStream(model, second, kHead));
    MUST(Launch(first, world_.cell, 1000));
    MUST(aclmdlRIEndTask(model, first));
    if (clean) {
      EXPECT_ACL(0, aclrtPersistentTaskClean(first));
    } else {
      EXPECT_ACL(0, aclmdlRIUnbindStream(model, first));
    }
    MUST(Launch(second, world_.cell, 1));
    EXPECT_ACL(0, aclmdlRIEndTask(model, second)) << "the first end task is gone";
    EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr));
    *world_.cell = 0;
    EXPECT_ACL(0, aclmdlRIExecute(model, kPatience));
    EXPECT_EQ(*world_.cell, 1U) << "dropped tasks do not run, later ones do";
    EXPECT_ACL(0, aclmdlRIDestroy(model));
    EXPECT_ACL(0, aclrtDestroyStream(first));
    EXPECT_ACL(0, aclrtDestroyStream(second));
  }
  // The end task stands where nothing comes to.
  MUST(aclmdlRIBuildBegin(&model, 0));
  const aclrtStream never = NewStreamWith(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBindStream(model, never, kDefault));
  MUST(aclmdlRIEndTask(model, never));
  EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(507011, aclmdlRIExecute(model, kPatience));
  EXPECT_ACL(507011, aclmdlRIExecute(model, kPatience));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  StillWorks();
}

TEST_F(GraphBuild, TargetsOfOtherModels) {
  // A stream that is unbound again, and a label on another model: found when the build ends, and not fatal.
  aclmdlRI model = nullptr;
  MUST(aclmdlRIBuildBegin(&model, 0));
  const aclrtStream first = NewStreamWith(ACL_STREAM_PERSISTENT);
  const aclrtStream second = NewStreamWith(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBindStream(model, first, kHead));
  MUST(aclmdlRIBindStream(model, second, kDefault));
  MUST(aclrtActiveStream(second, first));
  MUST(aclmdlRIUnbindStream(model, second));
  EXPECT_ACL(107005, aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(507011, aclmdlRIExecute(model, 10));
  MUST(aclrtPersistentTaskClean(first));
  MUST(aclrtSwitchLabelByIndex(world_.memory, 1, world_.label_list, first));
  EXPECT_ACL(107005, aclmdlRIBuildEnd(model, nullptr));
  MUST(aclrtPersistentTaskClean(first));
  MUST(Launch(first, world_.cell, 1));
  MUST(aclmdlRIEndTask(model, first));
  EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr)) << "once the wrong tasks are gone";
  EXPECT_ACL(0, aclmdlRIExecute(model, kPatience));
  EXPECT_EQ(*world_.cell, 1U);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  StillWorks();
}

TEST_F(GraphBuild, AJumpForward) {
  aclmdlRI model = nullptr;
  MUST(aclmdlRIBuildBegin(&model, 0));
  const aclrtStream stream = NewStreamWith(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBindStream(model, stream, kHead));
  aclrtLabel labels[2] = {};
  for (aclrtLabel& label : labels) MUST(aclrtCreateLabel(&label));
  aclrtLabelList list = nullptr;
  EXPECT_ACL(0, aclrtCreateLabelList(labels, 2, &list)) << "its labels come later";
  auto* const cell = static_cast<uint64_t*>(NewMemory(64));
  auto* const index = static_cast<uint32_t*>(NewMemory(64));
  EXPECT_ACL(0, aclrtSwitchLabelByIndex(index, 2, list, stream));
  MUST(Launch(stream, cell, 1));
  MUST(aclrtSetLabel(labels[0], stream));
  MUST(Launch(stream, cell, 10));
  MUST(aclmdlRIEndTask(model, stream));
  DropMessage();
  EXPECT_EQ(107000, aclmdlRIBuildEnd(model, nullptr));
  const char* const message = aclGetRecentErrMsg();
  ASSERT_NE(message, nullptr);
  EXPECT_NE(std::string(message).find("entry 1 of its list"), std::string::npos) << message;
  EXPECT_ACL(507011, aclmdlRIExecute(model, 10));
  MUST(aclrtPersistentTaskClean(stream));
  // Once more, with all of it.
  MUST(aclrtSwitchLabelByIndex(index, 2, list, stream));
  MUST(Launch(stream, cell, 1));
  EXPECT_ACL(107000, aclrtSetLabel(labels[0], stream)) << "one position for a label, also when that is gone";
  MUST(aclrtSetLabel(labels[1], stream));
  MUST(Launch(stream, cell, 10));
  MUST(aclmdlRIEndTask(model, stream));
  EXPECT_ACL(107005, aclmdlRIBuildEnd(model, nullptr)) << "the first label went with the tasks that were cleaned";
  MUST(aclrtPersistentTaskClean(stream));
  for (aclrtLabel& label : labels) {
    EXPECT_ACL(0, aclrtDestroyLabel(label));
    MUST(aclrtCreateLabel(&label));
  }
  EXPECT_ACL(0, aclrtDestroyLabelList(list));
  MUST(aclrtCreateLabelList(labels, 2, &list));
  MUST(aclrtSwitchLabelByIndex(index, 2, list, stream));
  EXPECT_ACL(0, aclrtDestroyLabelList(list)) << "the switch knows its labels";
  MUST(Launch(stream, cell, 1));
  MUST(aclrtSetLabel(labels[0], stream));
  MUST(Launch(stream, cell, 10));
  MUST(aclrtSetLabel(labels[1], stream));
  MUST(Launch(stream, cell, 100));
  for (const aclrtLabel label : labels) EXPECT_ACL(0, aclrtDestroyLabel(label));
  MUST(aclmdlRIEndTask(model, stream));
  EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr));
  for (const auto& [to, sum] : {std::pair{0U, 110U}, {1U, 100U}, {7U, 100U}}) {
    *index = to;
    *cell = 0;
    EXPECT_ACL(0, aclmdlRIExecute(model, kPatience));
    EXPECT_EQ(*cell, sum) << to;
  }
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  StillWorks();
}

TEST_F(GraphBuild, LabelsThatAreGone) {
  World& w = world_;
  aclrtLabel label = nullptr;
  MUST(aclrtCreateLabel(&label));
  MUST(aclrtSetLabel(label, w.head));
  aclrtLabelList list = nullptr;
  MUST(aclrtCreateLabelList(&label, 1, &list));
  EXPECT_ACL(0, aclrtDestroyLabel(label));
  EXPECT_ACL(107017, aclrtSetLabel(label, w.head));
  aclrtLabelList other = &w.local;
  EXPECT_ACL(107017, aclrtCreateLabelList(&label, 1, &other));
  EXPECT_EQ(other, &w.local);
  // The list still knows the place: `other` runs into an endless loop of jumps if anything starts it.
  EXPECT_ACL(0, aclrtSwitchLabelByIndex(w.memory, 1, list, w.other));
  EXPECT_ACL(0, aclrtDestroyLabelList(list));
  EXPECT_ACL(107017, aclrtSwitchLabelByIndex(w.memory, 1, list, w.other));
  EXPECT_ACL(107017, aclrtDestroyLabelList(list));
  EXPECT_ACL(107017, aclrtDestroyLabel(label));
  StillWorks();
}

// ---------------------------------------------------------------------------------------------------------------------

TEST_F(GraphBuild, RandomArguments) {
  World& w = world_;
  const std::vector<uint32_t> flags = {0, 0, 0, kDefault, 1, UINT32_MAX};
  const std::vector<int> enums = {0, 1, 2, 3, 5, 6, -1, INT_MAX, INT_MIN};
  const std::vector<void*> addresses = {nullptr,
                                        w.memory,
                                        w.memory,
                                        w.pinned,
                                        static_cast<char*>(w.memory) + 1,
                                        static_cast<char*>(w.memory) + World::kMemoryBytes,
                                        &w.local,
                                        Address(8)};
  for (const uint64_t seed : Seeds(Loops(6, 2))) {
    // What the calls may use up. Nothing of it is executed: random programs need not end.
    std::vector<aclrtStream> own;
    for (int i = 0; i < 3; ++i) {
      own.push_back(NewStream());
      own.push_back(NewStreamWith(ACL_STREAM_PERSISTENT));
    }
    std::vector<aclrtStream> streams = {nullptr, w.default_stream, w.foreign, w.bound, w.fast, w.device_only};
    for (int i = 0; i < 4; ++i) streams.insert(streams.end(), own.begin(), own.end());
    for (const Handle& bad : w.BadHandles("stream")) streams.push_back(bad.handle);
    std::vector<aclmdlRI> models = {nullptr, w.model, w.body, w.built, w.foreign_built, w.foreign_model};
    for (const Handle& bad : w.BadHandles("model")) models.push_back(bad.handle);
    std::vector<aclmdlRI> made;
    for (int i = 0; i < 4; ++i) MUST(aclmdlRIBuildBegin(&made.emplace_back(), 0));
    std::vector<aclrtLabel> labels = {w.set_label};
    std::vector<aclrtLabelList> lists = {w.label_list};
    std::vector<aclrtTaskGrp> groups = {w.group, nullptr};
    std::vector<aclmdlRICondHandle> handles = {w.captured_model.condition, nullptr};
    std::vector<aclmdlRI> bodies = {w.body};
    const std::vector<Handle> all_bad = w.BadHandles("anything");  // live ones of every sort, too
    const auto stream = [&](Dice& d) { return d.Pick(streams); };
    const auto model = [&](Dice& d) { return d.Below(2) == 0 ? d.Pick(models) : d.Pick(made); };
    const auto any = [&](Dice& d, const std::vector<void*>& good) {
      return d.Below(3) == 0 ? d.Pick(all_bad).handle : d.Pick(good);
    };
    // Labels and lists of the world itself stay.
    const auto own_only = [&](void* handle) {
      return handle == w.set_label || handle == w.label || handle == w.label_list ? nullptr : handle;
    };
    const std::vector<RandomCall> calls = {
        {"aclmdlRIBuildBegin",
         [&](Dice& d) {
           aclmdlRI out = nullptr;
           const int code = aclmdlRIBuildBegin(d.Below(4) == 0 ? nullptr : &out, d.Pick(flags));
           if (out != nullptr) made.push_back(out);
           return code;
         }},
        {"aclmdlRIBindStream", [&](Dice& d) { return aclmdlRIBindStream(model(d), stream(d), d.Pick(flags)); }},
        {"aclmdlRIUnbindStream", [&](Dice& d) { return aclmdlRIUnbindStream(d.Pick(made), stream(d)); }},
        {"aclmdlRIEndTask", [&](Dice& d) { return aclmdlRIEndTask(model(d), stream(d)); }},
        {"aclmdlRIBuildEnd", [&](Dice& d) { return aclmdlRIBuildEnd(model(d), d.Below(4) == 0 ? &w.local : nullptr); }},
        {"aclrtPersistentTaskClean", [&](Dice& d) { return aclrtPersistentTaskClean(d.Pick(own)); }},
        {"aclrtActiveStream", [&](Dice& d) { return aclrtActiveStream(stream(d), stream(d)); }},
        {"aclrtSwitchStream",
         [&](Dice& d) {
           return aclrtSwitchStream(d.Pick(addresses), d.PickEnum<aclrtCondition>(enums), d.Pick(addresses),
                                    d.PickEnum<aclrtCompareDataType>(enums), stream(d),
                                    d.Below(4) == 0 ? stream(d) : nullptr, stream(d));
         }},
        {"aclrtCreateLabel",
         [&](Dice& d) {
           aclrtLabel out = nullptr;
           const int code = aclrtCreateLabel(d.Below(4) == 0 ? nullptr : &out);
           if (out != nullptr) labels.push_back(out);
           return code;
         }},
        {"aclrtSetLabel", [&](Dice& d) { return aclrtSetLabel(own_only(any(d, labels)), stream(d)); }},
        {"aclrtDestroyLabel", [&](Dice& d) { return aclrtDestroyLabel(own_only(any(d, labels))); }},
        {"aclrtCreateLabelList",
         [&](Dice& d) {
           aclrtLabel chosen[3] = {any(d, labels), any(d, labels), any(d, labels)};
           aclrtLabelList out = nullptr;
           const int code =
               aclrtCreateLabelList(d.Below(8) == 0 ? nullptr : chosen, d.Below(4), d.Below(8) == 0 ? nullptr : &out);
           if (out != nullptr) lists.push_back(out);
           return code;
         }},
        {"aclrtDestroyLabelList", [&](Dice& d) { return aclrtDestroyLabelList(own_only(any(d, lists))); }},
        {"aclrtSwitchLabelByIndex",
         [&](Dice& d) {
           return aclrtSwitchLabelByIndex(d.Pick(addresses), static_cast<uint32_t>(d.Below(4)), any(d, lists),
                                          stream(d));
         }},
        {"aclmdlRICaptureTaskGrpBegin", [&](Dice& d) { return aclmdlRICaptureTaskGrpBegin(stream(d)); }},
        {"aclmdlRICaptureTaskGrpEnd",
         [&](Dice& d) {
           aclrtTaskGrp out = nullptr;
           const int code = aclmdlRICaptureTaskGrpEnd(stream(d), d.Below(4) == 0 ? nullptr : &out);
           if (out != nullptr) groups.push_back(out);
           return code;
         }},
        {"aclmdlRICaptureTaskUpdateBegin",
         [&](Dice& d) { return aclmdlRICaptureTaskUpdateBegin(stream(d), any(d, groups)); }},
        {"aclmdlRICaptureTaskUpdateEnd", [&](Dice& d) { return aclmdlRICaptureTaskUpdateEnd(stream(d)); }},
        {"aclmdlRICondHandleCreate",
         [&](Dice& d) {
           aclmdlRICondHandle out = nullptr;
           const int code =
               aclmdlRICondHandleCreate(d.Below(2) == 0 ? d.Pick(bodies) : model(d), 7,
                                        d.PickEnum<aclmdlRICondHandleFlag>(enums), d.Below(8) == 0 ? nullptr : &out);
           if (out != nullptr) handles.push_back(out);
           return code;
         }},
        {"aclmdlRICondHandleGetCondPtr",
         [&](Dice& d) {
           uint64_t* cell = nullptr;
           return aclmdlRICondHandleGetCondPtr(any(d, handles), d.Below(4) == 0 ? nullptr : &cell);
         }},
        {"aclmdlRIAddCondTask",
         [&](Dice& d) {
           aclmdlRI out[3] = {};
           const auto size = static_cast<uint32_t>(d.Below(5) == 4 ? UINT32_MAX : d.Below(4));
           const int code = aclmdlRIAddCondTask(
               {any(d, handles), d.PickEnum<aclmdlRICondTaskType>(enums), size, d.Below(8) == 0 ? nullptr : out},
               stream(d), d.Below(4) == 0 ? 1 : 0);
           if (code == 0) bodies.insert(bodies.end(), out, out + size);
           return code;
         }},
        // What brings streams and models into states.
        {"aclmdlRICaptureBegin",
         [&](Dice& d) {
           const aclrtStream chosen = stream(d);
           const int code = aclmdlRICaptureBegin(chosen, kRelaxed);
           if (code == 0) (void)aclmdlRICaptureGetInfo(chosen, nullptr, &bodies.emplace_back());
           return code;
         }},
        {"aclmdlRICaptureToModelRIBegin",
         [&](Dice& d) { return aclmdlRICaptureToModelRIBegin(stream(d), d.Pick(bodies), kRelaxed); }},
        {"aclmdlRICaptureEnd",
         [&](Dice& d) {
           aclmdlRI out = nullptr;
           const int code = aclmdlRICaptureEnd(stream(d), &out);
           if (out != nullptr) made.push_back(out);
           return code;
         }},
        {"aclrtLaunchKernelWithHostArgs", [&](Dice& d) { return Launch(d.Pick(own), w.captured_model.cell, 10); }},
        {"aclmdlRIDestroy", [&](Dice& d) { return d.Below(4) == 0 ? aclmdlRIDestroy(d.Pick(made)) : 0; }},
    };
    RunRandomCalls(seed, Loops(4000, 800), calls);
    if (HasFailure()) break;
    for (const aclrtStream used : own) (void)aclmdlRICaptureTaskUpdateEnd(used);
    for (const aclrtStream used : {w.default_stream, w.device_only, w.fast}) (void)aclmdlRICaptureTaskUpdateEnd(used);
    own.push_back(w.fast);
    for (const aclrtStream used : own) {
      aclmdlRI out = nullptr;
      if (aclmdlRICaptureEnd(used, &out) == 0) (void)aclmdlRIDestroy(out);
    }
    for (const aclrtStream used : own) EXPECT_EQ(Status(used), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
    for (const aclmdlRI used : made) (void)aclmdlRIDestroy(used);
    own.pop_back();
    for (const aclrtStream used : own) {
      EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(used, kPatience));
      EXPECT_ACL(0, aclrtDestroyStream(used));
    }
    for (const aclrtLabel used : labels) (void)aclrtDestroyLabel(own_only(used));
    for (const aclrtLabelList used : lists) (void)aclrtDestroyLabelList(own_only(used));
    EXPECT_ACL(0, aclrtSynchronizeDeviceWithTimeout(kPatience));
    StillWorks();
  }
}

}  // namespace
}  // namespace reprise::testing
