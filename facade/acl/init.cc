// SPDX-License-Identifier: Apache-2.0
//
// aclInit and its counterpart, the application log, and what can be asked before a device is set.
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "base/log.h"
#include "capture/session.h"
#include "check.h"
#include "dump_of_file.h"
#include "runtime/context.h"
#include "runtime/device.h"

namespace reprise::facade {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 10;

template <class Function>
struct Hook {
  aclRegisterCallbackType type;
  Function function;
  void* user_data;
};

struct Process {
  std::mutex mutex;
  uint64_t references = 0;
  json config = json::object();  // of the call that initialised
  std::vector<Hook<aclInitCallbackFunc>> at_init;
  std::vector<Hook<aclFinalizeCallbackFunc>> at_finalize;
};

Process& TheProcess() {
  static auto* const process = new Process;
  return *process;
}

StatusOr<json> ReadConfig(const char* path) {
  if (path == nullptr || *path == '\0') return json::object();
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf() || file.eof())) {
    return Error(kInvalidFile, fmt::format("configuration file \"{}\" cannot be read", path))
        .Culprit(fmt::format("parameter configPath \"{}\"", path))
        .Hint("check that the file exists and is readable, or pass NULL for the defaults");
  }
  const std::string content = text.str();
  if (content.find_first_not_of(" \t\r\n") == std::string::npos) return json::object();
  bool too_deep = false;
  try {
    json config = json::parse(content, [&](int depth, json::parse_event_t event, json&) {
      if ((event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) &&
          depth >= kMaxNesting) {
        too_deep = true;
      }
      return !too_deep;
    });
    if (too_deep) {
      return Error(kParseFile,
                   fmt::format("configuration file \"{}\" is nested more than {} levels deep", path, kMaxNesting))
          .Culprit(fmt::format("file \"{}\"", path))
          .Hint(fmt::format("nest at most {} objects and arrays", kMaxNesting));
    }
    if (!config.is_object()) {
      return Error(kParseFile, fmt::format("configuration file \"{}\" holds no JSON object but a JSON {}", path,
                                           config.type_name()))
          .Culprit(fmt::format("file \"{}\"", path))
          .Hint("write { … } around the keys");
    }
    return config;
  } catch (const json::parse_error& error) {
    return Error(kParseFile, fmt::format("configuration file \"{}\" is no valid JSON: {}", path, error.what()))
        .Culprit(fmt::format("byte {} of \"{}\"", error.byte, path))
        .Hint("correct the JSON text there");
  } catch (const json::exception& error) {  // a number that fits no type
    return Error(kParseFile, fmt::format("configuration file \"{}\" holds what cannot be read: {}", path, error.what()))
        .Culprit(fmt::format("file \"{}\"", path))
        .Hint("write numbers that a 64-bit number can hold");
  }
}

// "0", 0 …: the files write numbers in both ways.
std::string TextOf(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Nothing has changed when it fails.
Status ApplyConfig(const char* path, const json& config) {
  int default_device = -1;
  if (const auto device = config.find("defaultDevice"); device != config.end()) {
    const auto id = device->is_object() ? device->find("default_device") : device->end();
    if (!device->is_object() || id == device->end()) {
      return Error(kInvalidArgument, "defaultDevice has no key default_device")
          .Culprit("key defaultDevice of the configuration file")
          .Hint("write \"defaultDevice\": {\"default_device\": \"0\"}");
    }
    const std::string text = TextOf(*id);
    const bool digits = !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::stoul(text) >= runtime::Devices().size()) {
      return Error(kInvalidArgument,
                   fmt::format("default_device is {}, must be a device id below {}", text, runtime::Devices().size()))
          .Culprit("key defaultDevice of the configuration file")
          .Hint("name a device that aclrtGetDeviceCount counts");
    }
    default_device = static_cast<int>(std::stoul(text));
  }
  if (config.contains("profiler")) {
    REPRISE_LOG(kWarning, "ASCENDCL",
                "configuration key profiler is accepted and has no effect: call aclprofInit and aclprofStart");
  }
  bool process_wide = false;
  if (const auto mode = config.find("err_msg_mode"); mode != config.end()) {
    const std::string text = TextOf(*mode);
    if (text != "0" && text != "1") {
      return Error(kInvalidArgument, fmt::format("err_msg_mode is {}, must be \"0\" (thread) or \"1\" (process)", text))
          .Culprit("key err_msg_mode of the configuration file")
          .Hint("write \"0\" or \"1\"");
    }
    process_wide = text == "1";
  }
  REPRISE_RETURN_IF_ERROR(StartDumpOfFile(path != nullptr ? path : "", config.dump()));
  runtime::SetDefaultDevice(default_device);
  runtime::SetProcessWideMessages(process_wide);
  return {};
}

// What ApplyConfig has begun.
Status WithdrawConfig() {
  runtime::SetProcessWideMessages(false);
  runtime::SetDefaultDevice(-1);
  return EndDumpOfFile();
}

Status Initialize(const char* path) {
  REPRISE_ASSIGN_OR_RETURN(const json config, ReadConfig(path));
  Process& process = TheProcess();
  std::vector<Hook<aclInitCallbackFunc>> hooks;
  {
    std::lock_guard lock(process.mutex);
    if (process.references != 0) {
      if (!config.empty() && config != process.config) {
        return Error(kInvalidArgument, "this configuration differs from the one that the process was initialised with")
            .Culprit(fmt::format("parameter configPath \"{}\"; the process was initialised with {}", path,
                                 process.config.dump()))
            .Hint("call aclFinalize before initialising in another way");
      }
      ++process.references;
      return Error(kRepeatedInitialize,
                   fmt::format("the process is initialised already; {} references are held now", process.references))
          .Culprit("an earlier aclInit")
          .Hint("go on: the call took one more reference");
    }
    REPRISE_RETURN_IF_ERROR(ApplyConfig(path, config));
    process.config = config;
    process.references = 1;
    hooks = process.at_init;
  }
  const std::string text = config.dump();
  for (const auto& [type, function, user_data] : hooks) {
    const aclError result = function(text.c_str(), text.size(), user_data);
    if (result == 0) continue;
    {
      std::lock_guard lock(process.mutex);
      process.references = 0;
    }
    (void)WithdrawConfig();  // which may call back
    return Error(result, fmt::format("an init callback of type {} returned {}", static_cast<int>(type), result))
        .Culprit(fmt::format("the function {} given to aclInitCallbackRegister", reinterpret_cast<void*>(function)))
        .Hint("see what that library reports");
  }
  return {};
}

// REPRISE_STRICT=1: nothing may be captured when the process shuts down.
Status CheckNothingIsCaptured() {
  if (!IsStrict()) return {};
  const std::string open = capture::DescribeOpenCapture();
  if (open.empty()) return {};
  return StrictRefusal(kStreamCaptured, "aclFinalize takes away what an open capture needs")
      .Culprit(open)
      .Hint("end the capture with aclmdlRICaptureEnd first");
}

Status NotInitialized() {
  return Error(kRepeatedFinalize, "the process is not initialised: no reference is left")
      .Culprit("an earlier aclFinalize, or a missing aclInit")
      .Hint("call aclFinalize once, after a successful aclInit");
}

// References are 0 already; the callbacks run without the lock.
Status ShutDown(std::unique_lock<std::mutex> lock, Process& process) {
  const auto hooks = process.at_finalize;
  process.config = json::object();
  lock.unlock();
  Status first;
  for (const auto& [type, function, user_data] : hooks) {
    const aclError result = function(user_data);
    if (result == 0 || !first.ok()) continue;
    first = Error(result, fmt::format("a finalize callback of type {} returned {}", static_cast<int>(type), result))
                .Culprit(fmt::format("the function {} given to aclFinalizeCallbackRegister",
                                     reinterpret_cast<void*>(function)))
                .Hint("see what that library reports; the process is finalised all the same");
  }
  Status ended = WithdrawConfig();
  return first.ok() ? std::move(ended) : std::move(first);
}

Status CheckHook(aclRegisterCallbackType type, bool has_function) {
  if ((type < ACL_REG_TYPE_ACL_MODEL || type > ACL_REG_TYPE_ACL_RETR) && type != ACL_REG_TYPE_OTHER) {
    return Error(kInvalidArgument, fmt::format("type is {}, must be 0 to 7 or 65535", static_cast<int>(type)))
        .Culprit("parameter type")
        .Hint("pass one of ACL_REG_TYPE_*");
  }
  if (has_function) return {};
  return Error(kInvalidArgument, "parameter cbFunc is null").Culprit("parameter cbFunc").Hint("pass a valid cbFunc");
}

// A pair of type and function is kept once, with the newest user data.
template <class Function>
Status AddHook(std::vector<Hook<Function>>& hooks, aclRegisterCallbackType type, Function function, void* user_data) {
  REPRISE_RETURN_IF_ERROR(CheckHook(type, function != nullptr));
  std::lock_guard lock(TheProcess().mutex);
  for (Hook<Function>& hook : hooks) {
    if (hook.type == type && hook.function == function) {
      hook.user_data = user_data;
      return {};
    }
  }
  hooks.push_back({type, function, user_data});
  return {};
}

template <class Function>
Status RemoveHook(std::vector<Hook<Function>>& hooks, aclRegisterCallbackType type, Function function) {
  REPRISE_RETURN_IF_ERROR(CheckHook(type, function != nullptr));
  std::lock_guard lock(TheProcess().mutex);
  const auto removed =
      std::erase_if(hooks, [&](const Hook<Function>& hook) { return hook.type == type && hook.function == function; });
  if (removed != 0) return {};
  return Error(kInvalidArgument, fmt::format("the function {} is not registered for type {}",
                                             reinterpret_cast<void*>(function), static_cast<int>(type)))
      .Culprit("parameters type and cbFunc")
      .Hint("pass the pair that was registered");
}

}  // namespace

Status CheckInitialized(const char* api) {
  if (!IsStrict()) [[likely]]
    return {};
  Process& process = TheProcess();
  std::lock_guard lock(process.mutex);
  if (process.references != 0) return {};
  return StrictRefusal(kNotInitialized, fmt::format("{} is called while the process is not initialised", api))
      .Culprit("a missing aclInit, or an earlier aclFinalize")
      .Hint("call aclInit first");
}

namespace {

constexpr aclCannAttr kAttributes[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE};

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

aclError aclInit(const char* configPath) {
  return runtime::Api("aclInit", [&]() -> Status { return Initialize(configPath); });
}

aclError aclFinalize() {
  return runtime::Api("aclFinalize", []() -> Status {
    Process& process = TheProcess();
    std::unique_lock lock(process.mutex);
    if (process.references == 0) return NotInitialized();
    REPRISE_RETURN_IF_ERROR(CheckNothingIsCaptured());
    process.references = 0;
    return ShutDown(std::move(lock), process);
  });
}

aclError aclFinalizeReference(uint64_t* refCount) {
  return runtime::Api("aclFinalizeReference", [&]() -> Status {
    Process& process = TheProcess();
    std::unique_lock lock(process.mutex);
    if (process.references == 0) return NotInitialized();
    if (process.references == 1) REPRISE_RETURN_IF_ERROR(CheckNothingIsCaptured());
    --process.references;
    if (refCount != nullptr) *refCount = process.references;
    return process.references == 0 ? ShutDown(std::move(lock), process) : Status();
  });
}

aclError aclInitCallbackRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc, void* userData) {
  return runtime::Api("aclInitCallbackRegister",
                      [&]() -> Status { return AddHook(TheProcess().at_init, type, cbFunc, userData); });
}

aclError aclInitCallbackUnRegister(aclRegisterCallbackType type, aclInitCallbackFunc cbFunc) {
  return runtime::Api("aclInitCallbackUnRegister",
                      [&]() -> Status { return RemoveHook(TheProcess().at_init, type, cbFunc); });
}

aclError aclFinalizeCallbackRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc, void* userData) {
  return runtime::Api("aclFinalizeCallbackRegister",
                      [&]() -> Status { return AddHook(TheProcess().at_finalize, type, cbFunc, userData); });
}

aclError aclFinalizeCallbackUnRegister(aclRegisterCallbackType type, aclFinalizeCallbackFunc cbFunc) {
  return runtime::Api("aclFinalizeCallbackUnRegister",
                      [&]() -> Status { return RemoveHook(TheProcess().at_finalize, type, cbFunc); });
}

const char* aclGetRecentErrMsg() { return runtime::TakeRecentMessage(); }

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line, const char* fmt, ...) {
  const auto level = static_cast<LogLevel>(logLevel);
  if (fmt == nullptr || logLevel < ACL_DEBUG || logLevel > ACL_ERROR || !LogEnabled(level, "APP")) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, fmt);
  const int length = std::vsnprintf(text, sizeof text, fmt, arguments);
  va_end(arguments);
  if (length < 0) return;
  WriteLog(level, "APP", file != nullptr ? file : "", static_cast<int>(line), func != nullptr ? func : "", text);
}

aclError aclGetCannAttributeList(const aclCannAttr** cannAttrList, size_t* num) {
  return runtime::Api("aclGetCannAttributeList", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(cannAttrList, "cannAttrList"));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(num, "num"));
    *cannAttrList = kAttributes;
    *num = std::size(kAttributes);
    return {};
  });
}

aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t* value) {
  return runtime::Api("aclGetCannAttribute", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(
        InRange(cannAttr, ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_JIT_COMPILE, "cannAttr", kInvalidArgument));
    // Operators of the CPU device are never compiled at run time.
    *value = cannAttr == ACL_CANN_ATTR_JIT_COMPILE ? 0 : 1;
    return {};
  });
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  return runtime::Api("aclGetDeviceCapability", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(value, "value"));
    REPRISE_RETURN_IF_ERROR(
        InRange(deviceId, 0, static_cast<int64_t>(runtime::Devices().size()) - 1, "deviceId", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(
        InRange(deviceInfo, ACL_DEVICE_INFO_AI_CORE_NUM, ACL_DEVICE_INFO_L2_SIZE, "deviceInfo", kInvalidArgument));
    switch (deviceInfo) {
      case ACL_DEVICE_INFO_AI_CORE_NUM: *value = runtime::HardwareCores(ACL_RT_DEV_RES_CUBE_CORE); break;
      case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = runtime::HardwareCores(ACL_RT_DEV_RES_VECTOR_CORE); break;
      default: *value = static_cast<int64_t>(EnvBytes(EnvVar::kL2Bytes));
    }
    return {};
  });
}
