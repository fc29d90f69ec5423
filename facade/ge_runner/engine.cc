// SPDX-License-Identifier: Apache-2.0
//
// The engine of the process: begin, end, messages.
#include <string>

#include "call.h"
#include "engine/warnings.h"
#include "ge/ge_api.h"
#include "ge/ge_api_v2.h"

using reprise::runtime::Api;
namespace engine = reprise::engine;

namespace reprise::ge_runner {
namespace {

ge::Status Begin(const char* api, const AscendStringMap& options) {
  return static_cast<ge::Status>(Api(api, [&] { return engine::Initialize(OptionsOf(options)); }));
}

ge::Status End(const char* api) { return static_cast<ge::Status>(Api(api, [] { return engine::Finalize(); })); }

}  // namespace

}  // namespace reprise::ge_runner

using namespace reprise::ge_runner;  // NOLINT: its functions are all that follows uses

namespace ge {

Status GEInitialize(const AscendStringMap& options) { return Begin("ge::GEInitialize", options); }
Status GEInitializeV2(const AscendStringMap& options) { return Begin("ge::GEInitializeV2", options); }
Status GEFinalize() { return End("ge::GEFinalize"); }
Status GEFinalizeV2() { return End("ge::GEFinalizeV2"); }
AscendString GEGetErrorMsgV2() { return TakeMessage(); }
AscendString GEGetErrorMsgV3() { return TakeMessage(); }
AscendString GEGetWarningMsgV2() { return {engine::TakeWarnings().c_str()}; }
AscendString GEGetWarningMsgV3() { return {engine::TakeWarnings().c_str()}; }

}  // namespace ge
