// SPDX-License-Identifier: Apache-2.0
#include "torchair/engine.h"

#include <acl/acl.h>
#include <c10/util/Exception.h>

#include <mutex>

namespace torchair {
namespace {

std::mutex mutex;
std::shared_ptr<ge::Session> session;
bool initialized = false;

}  // namespace

void CheckEngine(ge::Status status, const std::string& what) {
  if (status == ge::SUCCESS) return;
  const ge::AscendString words = ge::GEGetErrorMsgV2();
  TORCH_CHECK(false, what, " failed (", status,
              "): ", words.GetLength() > 0 ? words.GetString() : "no reason is known");
}

void InitializeEngine(const Options& options) {
  const std::lock_guard lock(mutex);
  if (initialized) return;
  const auto device = options.find("ge.exec.deviceId");
  TORCH_CHECK(
      device != options.end() && !device->second.empty() && device->second[0] != '-',
      "the graph engine cannot be initialised: option ge.exec.deviceId must be the number of a device, 0 or more");
  Options own;
  for (const auto& [key, value] : options) {
    if (key.rfind("ge.", 0) == 0) own.emplace(key, value);
  }
  CheckEngine(ge::GEInitialize(own), "initialising the graph engine");
  Options of_session = {{"ge.session_device_id", device->second}};
  session = std::make_shared<ge::Session>(of_session);
  initialized = true;
}

void FinalizeEngine() {
  const std::lock_guard lock(mutex);
  if (!initialized) return;
  (void)aclrtSynchronizeDevice();
  session.reset();
  initialized = false;
  (void)ge::GEFinalize();
}

std::shared_ptr<ge::Session> EngineSession() {
  const std::lock_guard lock(mutex);
  TORCH_CHECK(session != nullptr,
              "Failed to init Session: the graph engine is not initialised, or was ended; call "
              "InitializeGraphEngine first, and compile graphs anew");
  return session;
}

bool FindOperator(const std::string& type, Names& inputs, Names& outputs, Names& attributes) {
  using Found = std::vector<std::pair<ge::AscendString, ge::AscendString>>;
  Found found[3];
  if (GetRegisteredIrDef(type.c_str(), found[0], found[1], found[2]) != ge::SUCCESS) {
    (void)ge::GEGetErrorMsgV2();
    return false;
  }
  Names* const names[] = {&inputs, &outputs, &attributes};
  for (int i = 0; i < 3; ++i) {
    for (const auto& [name, kind] : found[i]) names[i]->emplace_back(name.GetString(), kind.GetString());
  }
  return true;
}

}  // namespace torchair
