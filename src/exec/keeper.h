// SPDX-License-Identifier: Apache-2.0
//
// Keeper: what a replay asks before each execution, which may let tasks read memory in other forms than the captured
// one (ir::Keeping). It does so by redirecting steps (Plan::Redirect). The replay knows no more of it.
#pragma once

#include <span>

#include "ir/graph.h"

namespace reprise::device {
class RunContext;
}

namespace reprise::exec {

class Plan;

/// Threads: one call at a time, while no execution runs.
class Keeper {
 public:
  virtual ~Keeper() = default;
  /// An execution begins.
  ///
  /// \param is_new  the plan has been made since the call before: no step of it is redirected
  /// \return whether to ask again; when not, no step is redirected, and none will be
  virtual bool Begin(Plan& plan, bool is_new, device::RunContext& context) noexcept = 0;
  /// These tasks have changed. The plan is still the old one: redirected steps of these nodes shall be given back.
  virtual void Change(Plan& plan, std::span<const ir::NodeId> changed) noexcept = 0;
};

}  // namespace reprise::exec
