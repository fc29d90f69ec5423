// SPDX-License-Identifier: Apache-2.0
//
// Options of a process group of the backend hccl: torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options.
#pragma once

#include <hccl/hccl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace torch_npu {

/// A value of `hccl_config`; monostate: of a type that no key takes.
using HcclConfigEntry = std::variant<std::monostate, int64_t, std::string>;

struct HcclOptions : c10d::Backend::Options {
  explicit HcclOptions(bool high_priority = false) : Options("hccl"), is_high_priority_stream(high_priority) {}

  std::chrono::milliseconds op_timeout{10'000};  // nothing reads it
  bool is_high_priority_stream;
  std::string group_id;
  std::map<std::string, HcclConfigEntry> hccl_config;
};

/// The configuration of a communicator that `options` ask for. Throws for values of a wrong type and out of range; says
/// what is cut.
HcclCommConfig ConfigOf(const HcclOptions& options, const std::string& name);

}  // namespace torch_npu
