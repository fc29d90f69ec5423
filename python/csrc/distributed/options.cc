// SPDX-License-Identifier: Apache-2.0
#include "distributed/options.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <limits>

namespace torch_npu {
namespace {

const HcclConfigEntry* EntryOf(const HcclOptions& options, const char* key) {
  const auto found = options.hccl_config.find(key);
  return found == options.hccl_config.end() ? nullptr : &found->second;
}

template <class Field>
void TakeInt(const HcclOptions& options, const char* key, Field& field) {
  const HcclConfigEntry* const entry = EntryOf(options, key);
  if (entry == nullptr) return;
  const int64_t* const value = std::get_if<int64_t>(entry);
  TORCH_CHECK(value != nullptr, "Value type of ", key, " should be int.");
  field = static_cast<Field>(*value);
}

template <size_t kBytes>
void TakeText(const HcclOptions& options, const char* key, char (&field)[kBytes]) {
  const HcclConfigEntry* const entry = EntryOf(options, key);
  if (entry == nullptr) return;
  const std::string* const value = std::get_if<std::string>(entry);
  TORCH_CHECK(value != nullptr, "Value type of ", key, " should be string.");
  if (value->size() >= kBytes) {
    TORCH_WARN(key, " has ", value->size(), " characters and is cut after ", kBytes - 1);
  }
  const size_t length = std::min(value->size(), kBytes - 1);
  std::memcpy(field, value->data(), length);
  field[length] = '\0';
}

void TakeExecTimeout(const HcclOptions& options, HcclCommConfig& config) {
  constexpr const char* kKey = "hccl_exec_timeout";
  const HcclConfigEntry* const entry = EntryOf(options, kKey);
  if (entry == nullptr) return;
  const int64_t* const value = std::get_if<int64_t>(entry);
  TORCH_CHECK(value != nullptr, "Value type of ", kKey, " should be int.");
  TORCH_CHECK(*value <= std::numeric_limits<int32_t>::max(), kKey, " is ", *value, " seconds, the most is ",
              std::numeric_limits<int32_t>::max());
  if (*value < 0) {
    TORCH_WARN(kKey, " is ", *value, ": a negative time limit counts as not set");
    return;
  }
  config.hcclExecTimeOut = static_cast<decltype(config.hcclExecTimeOut)>(*value);
}

}  // namespace

HcclCommConfig ConfigOf(const HcclOptions& options, const std::string& name) {
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  TakeInt(options, "hccl_buffer_size", config.hcclBufferSize);
  TakeText(options, "group_name", config.hcclUdi);
  TakeInt(options, "qos_traffic_class", config.hcclRdmaTrafficClass);
  TakeInt(options, "qos_service_level", config.hcclRdmaServiceLevel);
  TakeInt(options, "hccl_sdma_qos", config.hcclQos);
  TakeInt(options, "hccl_op_expansion_mode", config.hcclOpExpansionMode);
  TakeInt(options, "hccl_world_rank_id", config.hcclWorldRankID);
  TakeInt(options, "hccl_job_id", config.hcclJobID);
  TakeExecTimeout(options, config);
  TakeText(options, "hccl_algo", config.hcclAlgo);
  TakeText(options, "hccl_retry_enable", config.hcclRetryEnable);
  TakeText(options, "hccl_retry_params", config.hcclRetryParams);
  TakeText(options, "hccl_buffer_name", config.hcclBufferName);
  std::memcpy(config.hcclCommName, name.c_str(), std::min(name.size() + 1, sizeof config.hcclCommName));
  config.hcclCommName[sizeof config.hcclCommName - 1] = '\0';
  return config;
}

}  // namespace torch_npu
