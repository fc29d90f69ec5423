// SPDX-License-Identifier: Apache-2.0
#include "collective/settings.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "collective/address.h"
#include "collective/numbers.h"

namespace reprise::collective {
namespace {

// ---- Environment ----

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool ReadNumber(std::string_view text, double low, double high, double& value) {
  double read = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !(read >= low && read <= high))
    return false;
  value = read;
  return true;
}

bool IsWhole(std::string_view text, double low, double high) {
  double value = 0;
  return text.find_first_not_of("0123456789") == std::string_view::npos && ReadNumber(text, low, high, value);
}

bool IsOneOf(std::string_view text, std::initializer_list<std::string_view> values) {
  return std::find(values.begin(), values.end(), text) != values.end();
}

bool IsAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// "a-b,c": ports, none twice.
bool ArePorts(const std::string& text) {
  if (text == "auto") return true;
  std::vector<std::pair<double, double>> ranges;
  for (const std::string& part : Split(text, ',')) {
    const std::vector<std::string> ends = Split(part, '-');
    double low = 0;
    double high = 0;
    if (ends.size() > 2 || !IsWhole(ends[0], 1, 65535) || !IsWhole(ends.back(), 1, 65535)) return false;
    if (!ReadNumber(ends[0], 1, 65535, low) || !ReadNumber(ends.back(), low, 65535, high)) return false;
    for (const auto& [a, b] : ranges) {
      if (low <= b && a <= high) return false;
    }
    ranges.emplace_back(low, high);
  }
  return true;
}

// "key:value" parts, each of a known key with a value that is taken.
template <class Takes>
bool AreSettings(const std::string& text, Takes takes) {
  for (const std::string& part : Split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos || !takes(part.substr(0, colon), part.substr(colon + 1))) return false;
  }
  return true;
}

bool IsDfsConfig(const std::string& text) {
  return AreSettings(text, [](const std::string& key, const std::string& value) {
    if (key == "connection_fault_detection_time") return value == "0" || IsWhole(value, 20, 7200);
    if (key == "task_monitor_interval") return IsWhole(value, 0, 7200000);
    if (key == "inconsistent_check") return IsOneOf(value, {"on", "first", "off"});
    return IsOneOf(key, {"cluster_heartbeat", "stuck_detection", "task_exception"}) && IsOneOf(value, {"on", "off"});
  });
}

bool IsRetryParams(const std::string& text) {
  return AreSettings(text, [](const std::string& key, const std::string& value) {
    if (key == "MaxCnt") return IsWhole(value, 1, 10);
    return IsOneOf(key, {"HoldTime", "IntervalTime"}) && IsWhole(value, 0, 60000);
  });
}

bool IsRetryEnable(const std::string& text) {
  return AreSettings(text, [](const std::string& key, const std::string& value) {
    return IsOneOf(key, {"L0", "L1", "L2"}) && IsOneOf(value, {"0", "1"});
  });
}

bool IsAlgorithm(std::string_view name) {
  return IsOneOf(name, {"NA", "null", "ring", "H-D_R", "NHR", "NHR_V1", "NB", "AHC", "AHC_BROKE", "pipeline",
                        "pairwise", "mesh", "fullmesh", "star"});
}

// "level0:NA;level1:ring", or "allreduce=level0:NA;level1:ring/allgather=…".
bool AreAlgorithms(const std::string& text) {
  for (const std::string& part : Split(text, '/')) {
    const size_t equals = part.find('=');
    for (const std::string& level : Split(equals == std::string::npos ? part : part.substr(equals + 1), ';')) {
      const size_t colon = level.find(':');
      if (colon == std::string::npos || !IsOneOf(level.substr(0, colon), {"level0", "level1", "level2", "level3"}) ||
          !IsAlgorithm(level.substr(colon + 1)))
        return false;
    }
  }
  return true;
}

bool IsTrafficClass(const std::string& text) { return IsWhole(text, 0, 255) && std::atoi(text.c_str()) % 4 == 0; }

struct Mode {
  const char* name;
  uint32_t number;
};
constexpr Mode kModes[] = {{"AI_CPU", 0},  {"AICPU_TS", 0}, {"AICPU_CacheDisable", 0}, {"AIV", 1},     {"HOST", 2},
                           {"HOST_TS", 3}, {"CCU_MS", 4},   {"CCU_SCHED", 5},          {"AIV_ONLY", 6}};
const Mode* FindMode(std::string_view text) {
  const auto* at =
      std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& mode) { return text == mode.name; });
  return at != std::end(kModes) ? at : nullptr;
}

// What is only held against its syntax, because it has no effect on a CPU.
struct Checked {
  EnvVar variable;
  const char* range;
  bool (*takes)(const std::string& text);
};
template <int kLow, int kHigh>
bool Within(const std::string& text) {
  return IsWhole(text, kLow, kHigh);
}
bool IsFlag(const std::string& text) { return text == "0" || text == "1"; }
bool IsTruth(const std::string& text) { return IsOneOf(text, {"TRUE", "FALSE", "true", "false"}); }
bool IsFraction(const std::string& text) {
  double value = 0;
  return ReadNumber(text, 0, 1, value);
}

const Checked kChecked[] = {
    {EnvVar::kHcclSocketFamily, "AF_INET or AF_INET6",
     [](const std::string& text) {
       return IsOneOf(text, {"AF_INET", "AF_INET6"});
     }},
    {EnvVar::kHcclIfBasePort, "1024 to 65520", Within<1024, 65520>},
    {EnvVar::kHcclHostPorts, "auto, or ports as a-b,c that do not overlap", ArePorts},
    {EnvVar::kHcclNpuPorts, "auto, or ports as a-b,c that do not overlap", ArePorts},
    {EnvVar::kHcclWhitelistDisable, "0 or 1", IsFlag},
    {EnvVar::kHcclNet, "tcp or none",
     [](const std::string& text) {
       return IsOneOf(text, {"tcp", "none"});
     }},
    {EnvVar::kHcclShm, "0 or 1", IsFlag},
    {EnvVar::kHcclAlgo, "level0:NA;level1:ring, or the same for each operator as allreduce=…/allgather=…",
     AreAlgorithms},
    {EnvVar::kHcclDfsConfig, "key:value,key:value", IsDfsConfig},
    {EnvVar::kHcclEntryLog, "0 or 1", IsFlag},
    {EnvVar::kHcclDiagnose, "0 or 1", IsFlag},
    {EnvVar::kHcclRetryEnable, "L0:0,L1:1,L2:0", IsRetryEnable},
    {EnvVar::kHcclRetryParams, "MaxCnt:1..10,HoldTime:0..60000,IntervalTime:0..60000", IsRetryParams},
    {EnvVar::kHcclIntraPcie, "0 or 1", IsFlag},
    {EnvVar::kHcclIntraRoce, "0 or 1", IsFlag},
    {EnvVar::kHcclInterHccsDisable, "TRUE or FALSE", IsTruth},
    {EnvVar::kHcclRdmaTc, "0 to 255, a multiple of 4", IsTrafficClass},
    {EnvVar::kHcclRdmaSl, "0 to 7", Within<0, 7>},
    {EnvVar::kHcclRdmaTimeout, "5 to 20", Within<5, 20>},
    {EnvVar::kHcclRdmaRetryCnt, "1 to 7", Within<1, 7>},
    {EnvVar::kHcclRdmaQps, "1 to 32", Within<1, 32>},
    {EnvVar::kHcclMultiQp, "1 to 8192", Within<1, 8192>},
    {EnvVar::kHcclSuperpod, "fewer than 128 characters", [](const std::string& text) { return text.size() < 128; }},
    {EnvVar::kHcclSplitRatio, "0 to 1", IsFraction},
};

Environment ReadEnvironment() {
  Environment read;
  const auto complain = [&](EnvVar variable, std::string_view range) {
    if (!read.error.ok()) return;
    read.error = Error(kParameter, fmt::format("EI0001: Value {} for environment variable {} is invalid, expected: {}",
                                               Env(variable), EnvName(variable), range))
                     .Culprit(fmt::format("environment variable {}", EnvName(variable)))
                     .Hint(fmt::format("set {} to {}, or unset it", EnvName(variable), range));
  };
  const auto number = [&](EnvVar variable, double low, double high, const char* range, double& value) {
    const std::string& text = Env(variable);
    if (!text.empty() && !ReadNumber(text, low, high, value)) complain(variable, range);
  };
  number(EnvVar::kHcclConnectTimeout, 1, 7200, "1 to 7200 seconds", read.connect_timeout_s);
  number(EnvVar::kHcclExecTimeout, 0, 2147483647, "0 to 2147483647 seconds", read.exec_timeout_s);
  double buffer = read.buffer_mb;
  const std::string& size = Env(EnvVar::kHcclBuffSize);
  if (!size.empty() && (!IsWhole(size, 1, UINT32_MAX - 1) || !ReadNumber(size, 1, UINT32_MAX - 1, buffer)))
    complain(EnvVar::kHcclBuffSize, "1 or more MB");
  read.buffer_mb = static_cast<uint32_t>(buffer);
  if (const std::string& text = Env(EnvVar::kHcclDeterministic); !text.empty()) {
    read.has_deterministic = true;
    if (!IsOneOf(text, {"false", "true", "strict", "FALSE", "TRUE", "STRICT"}))
      complain(EnvVar::kHcclDeterministic, "false, true or strict");
  }
  if (const std::string& text = Env(EnvVar::kHcclExpansionMode); !text.empty()) {
    if (const Mode* mode = FindMode(text)) {
      read.expansion_mode = mode->number;
      read.has_expansion_mode = true;
    } else {
      complain(EnvVar::kHcclExpansionMode,
               "AI_CPU, AICPU_TS, AICPU_CacheDisable, AIV, HOST, HOST_TS, CCU_MS or CCU_SCHED");
    }
  }
  read.interface_address = Env(EnvVar::kHcclIfIp);
  if (!read.interface_address.empty() && !IsAddress(read.interface_address))
    complain(EnvVar::kHcclIfIp, "one IPv4 or IPv6 address");
  read.interface_names = Env(EnvVar::kHcclIfName);
  for (const Checked& checked : kChecked) {
    const std::string& text = Env(checked.variable);
    if (!text.empty() && !checked.takes(text)) complain(checked.variable, checked.range);
  }
  if (Env(EnvVar::kHcclIntraPcie) == "1" && Env(EnvVar::kHcclIntraRoce) == "1")
    complain(EnvVar::kHcclIntraRoce, "0 where HCCL_INTRA_PCIE_ENABLE is 1");
  read.logs_entries = Env(EnvVar::kHcclEntryLog) == "1";
  read.keeps_history = Env(EnvVar::kHcclDiagnose) == "1";
  read.compares_graphs = EnvInt(EnvVar::kHcclStrictGraph) != 0;
  return read;
}

// ---- Configuration ----

constexpr uint32_t kMagic = 0xf0f0f0f0;
constexpr uint64_t kLeastBytes = 32;
constexpr uint64_t kMostBytes = uint64_t{1} << 20;
constexpr uint32_t kNotSet = 0xffffffff;

Status BadField(const char* field, const std::string& what, const char* hint) {
  return Error(kParameter, fmt::format("{} {}", field, what)).Culprit(fmt::format("config.{}", field)).Hint(hint);
}

// Fields of the structure, as far as its size says that it has them.
class Fields {
 public:
  Fields(const char* bytes, uint64_t size) : bytes_(bytes), size_(size) {}

  template <class T>
  T Get(uint64_t offset, T otherwise) const {
    if (offset + sizeof(T) > size_) return otherwise;
    T value;
    std::memcpy(&value, bytes_ + offset, sizeof value);
    return value;
  }
  Status Text(uint64_t offset, uint64_t length, const char* field, std::string* text) const {
    if (offset + length > size_) return {};
    const void* end = std::memchr(bytes_ + offset, '\0', length);
    if (end == nullptr) {
      return BadField(field, fmt::format("has no end within its {} bytes", length), "end texts with a null character");
    }
    if (text != nullptr) text->assign(bytes_ + offset);
    return {};
  }

 private:
  const char* bytes_;
  uint64_t size_;
};

Status CheckRange(const char* field, uint32_t value, uint32_t high, uint32_t step = 1) {
  if (value == kNotSet || (value <= high && value % step == 0)) return {};
  return BadField(field,
                  step == 1 ? fmt::format("is {}, must be 0 to {}", value, high)
                            : fmt::format("is {}, must be 0 to {}, a multiple of {}", value, high, step),
                  "leave what HcclCommConfigInit has set");
}

}  // namespace

const Environment& TheEnvironment() {
  static const auto* const environment = new Environment(ReadEnvironment());
  return *environment;
}

Status CheckEnvironment() {
  REPRISE_RETURN_IF_ERROR(TheEnvironment().error.Clone());
  return CheckWhitelist();
}

Settings DefaultSettings() {
  const Environment& environment = TheEnvironment();
  Settings settings;
  settings.buffer_mb = environment.buffer_mb;
  settings.exec_timeout_s = environment.exec_timeout_s;
  settings.expansion_mode = environment.expansion_mode;
  settings.has_expansion_mode = environment.has_expansion_mode;
  return settings;
}

StatusOr<Settings> ReadConfig(const void* config) {
  const auto* const bytes = static_cast<const char*>(config);
  uint64_t size = 0;
  uint32_t magic = 0;
  std::memcpy(&size, bytes, sizeof size);
  std::memcpy(&magic, bytes + 8, sizeof magic);
  if (magic != kMagic) {
    return BadField("reserved", "has no magic word: config was not initialised with HcclCommConfigInit",
                    "call HcclCommConfigInit before the fields are set");
  }
  if (size < kLeastBytes || size > kMostBytes) {
    return BadField("reserved", fmt::format("says that config has {} bytes, must be {} or more", size, kLeastBytes),
                    "call HcclCommConfigInit before the fields are set");
  }
  const Fields fields(bytes, size);
  Settings settings = DefaultSettings();
  if (const auto mb = fields.Get<uint32_t>(24, kNotSet); mb != kNotSet) {
    if (mb == 0) return BadField("hcclBufferSize", "is 0 MB, must be 1 or more", "pass a size in MB");
    settings.buffer_mb = mb;
  }
  if (const auto value = fields.Get<uint32_t>(28, kNotSet); value != kNotSet) {
    REPRISE_RETURN_IF_ERROR(CheckRange("hcclDeterministic", value, 2));
    settings.deterministic = value;
  }
  REPRISE_RETURN_IF_ERROR(fields.Text(32, 128, "hcclCommName", &settings.name));
  REPRISE_RETURN_IF_ERROR(fields.Text(160, 128, "hcclUdi", &settings.udi));
  const auto mode = fields.Get<uint32_t>(288, 0);
  if (mode > 6) return BadField("hcclOpExpansionMode", fmt::format("is {}, must be 0 to 6", mode), "leave it 0");
  if (mode != 0) {
    settings.expansion_mode = mode;
    settings.has_expansion_mode = true;
  }
  REPRISE_RETURN_IF_ERROR(CheckRange("hcclRdmaTrafficClass", fields.Get<uint32_t>(292, kNotSet), 255, 4));
  REPRISE_RETURN_IF_ERROR(CheckRange("hcclRdmaServiceLevel", fields.Get<uint32_t>(296, kNotSet), 7));
  settings.world_rank = fields.Get<uint32_t>(300, 0);
  settings.job = fields.Get<uint64_t>(304, 0);
  if (const auto zero_copy = fields.Get<uint8_t>(312, 0); zero_copy > 1)
    return BadField("aclGraphZeroCopyEnable", fmt::format("is {}, must be 0 or 1", zero_copy), "leave it 0");
  if (const auto seconds = fields.Get<int32_t>(316, -1); seconds != -1) {
    if (seconds < 0)
      return BadField("hcclExecTimeOut", fmt::format("is {} s, must be 0 or more", seconds), "leave it -1");
    settings.exec_timeout_s = seconds;
  }
  std::string algorithm;
  REPRISE_RETURN_IF_ERROR(fields.Text(320, 1600, "hcclAlgo", &algorithm));
  if (!algorithm.empty() && !AreAlgorithms(algorithm)) {
    return BadField("hcclAlgo", fmt::format("is \"{}\"", algorithm.substr(0, 80)),
                    "write level0:NA;level1:ring, or the same for each operator as allreduce=…/allgather=…");
  }
  REPRISE_RETURN_IF_ERROR(fields.Text(1920, 50, "hcclRetryEnable", nullptr));
  REPRISE_RETURN_IF_ERROR(fields.Text(1970, 128, "hcclRetryParams", nullptr));
  REPRISE_RETURN_IF_ERROR(fields.Text(2098, 128, "hcclBufferName", nullptr));
  settings.window_gb = fields.Get<uint64_t>(2232, settings.window_gb);
  return settings;
}

}  // namespace reprise::collective
