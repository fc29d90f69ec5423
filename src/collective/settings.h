// SPDX-License-Identifier: Apache-2.0
//
// Settings of a communicator: those of the program (HcclCommConfig), else those of the environment (HCCL_*).
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace reprise::collective {

/// What the environment says about all communicators. Bad values are kept as an error, which creation returns.
struct Environment {
  double connect_timeout_s = 120;
  double exec_timeout_s = 1836;  ///< 0: for ever
  uint32_t buffer_mb = 200;
  bool has_deterministic = false;
  uint32_t expansion_mode = 2;
  bool has_expansion_mode = false;
  bool logs_entries = false;
  bool keeps_history = false;  ///< HCCL_DIAGNOSE_ENABLE
  bool compares_graphs = false;
  std::string interface_address;  ///< HCCL_IF_IP
  std::string interface_names;    ///< HCCL_SOCKET_IFNAME
  Status error;
};
/// Read once.
const Environment& TheEnvironment();
/// 1 with EI0001 when a variable has a bad value.
Status CheckEnvironment();

struct Settings {
  std::string name;  ///< empty: a default one
  std::string udi;
  uint32_t buffer_mb = 0;
  uint32_t deterministic = 0;
  uint32_t expansion_mode = 0;
  bool has_expansion_mode = false;
  uint32_t world_rank = 0;
  uint64_t job = 0;
  uint64_t window_gb = 16;
  double exec_timeout_s = 0;
};
/// Without a configuration of the program.
Settings DefaultSettings();
/// From the bytes of an HcclCommConfig of any version. 1 with the field.
StatusOr<Settings> ReadConfig(const void* config);

}  // namespace reprise::collective
