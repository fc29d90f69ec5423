// SPDX-License-Identifier: Apache-2.0
//
// Models built by hand: persistent streams are bound to a model, and their stored tasks become its program. Streams
// start other streams, switch between them and jump to labels when the program runs.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "exec/program_plan.h"
#include "model/model.h"
#include "runtime/stream.h"

namespace reprise::model {

/// A mark in the tasks of a bound stream.
struct Label {
  runtime::Context* context;
  std::shared_ptr<exec::LabelTarget> target;
  void* handle = nullptr;
};
HandleTable<Label, HandleKind::kLabel>& Labels();
constexpr size_t kMaxLabels = 65535;
/// 207005 when the process has kMaxLabels already. Destroyed through Labels().
StatusOr<Label*> CreateLabel(runtime::Context& context);

/// Its labels may be set later, up to the end of the build.
struct LabelList {
  std::vector<std::shared_ptr<const exec::LabelTarget>> targets;
  void* handle = nullptr;
};
HandleTable<LabelList, HandleKind::kLabelList>& LabelLists();

StatusOr<Model*> BeginBuild(runtime::Context& context);
Status Bind(Model& model, runtime::Stream& stream, bool is_head);
Status Unbind(Model& model, runtime::Stream& stream);
Status AddEndTask(Model& model, runtime::Stream& stream);
Status EndBuild(Model& model);

/// Tasks that steer the program; 107005 unless both streams are bound to one model.
Status SubmitActivate(runtime::Stream& stream, runtime::Stream& target);
Status SubmitSwitch(runtime::Stream& stream, const void* left, const void* right, exec::SwitchCondition condition,
                    bool is_int64, runtime::Stream& target);
Status SetLabel(Label& label, runtime::Stream& stream);
Status SubmitLabelSwitch(runtime::Stream& stream, const void* index, uint32_t most, const LabelList& list);

}  // namespace reprise::model
