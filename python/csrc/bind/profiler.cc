// SPDX-License-Identifier: Apache-2.0
//
// The recorder of the runtime, for torch_npu.profiler.
#include <acl/acl_prof.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <vector>

#include "bind/bindings.h"
#include "common/error.h"

namespace torch_npu {
namespace {

aclprofConfig* recording = nullptr;  // under the GIL

void StopRecording() {
  if (recording == nullptr) return;
  Check(aclprofStop(recording), "aclprofStop");
  Check(aclprofDestroyConfig(recording), "aclprofDestroyConfig");
  recording = nullptr;
  Check(aclprofFinalize(), "aclprofFinalize");
}

}  // namespace

void BindProfiler(pybind11::module_& module) {
  // The folder gets a file with the timeline when it stops.
  module.def("_npu_startRecording",
             torch::wrap_pybind_function([](const std::string& folder, std::vector<uint32_t> devices) {
               TORCH_CHECK(recording == nullptr, "a profile is being recorded already; stop it first");
               Check(aclprofInit(folder.c_str(), folder.size()), "aclprofInit");
               aclprofConfig* const config =
                   aclprofCreateConfig(devices.data(), static_cast<uint32_t>(devices.size()), ACL_AICORE_NONE, nullptr,
                                       ACL_PROF_TASK_TIME | ACL_PROF_ACL_API | ACL_PROF_MSPROFTX);
               if (config == nullptr) (void)aclprofFinalize();
               TORCH_CHECK(config != nullptr, "aclprofCreateConfig refused the devices of the profile");
               const int code = aclprofStart(config);
               if (code != 0) {
                 (void)aclprofDestroyConfig(config);
                 (void)aclprofFinalize();
               }
               Check(code, "aclprofStart");
               recording = config;
             }));
  module.def("_npu_stopRecording", torch::wrap_pybind_function(&StopRecording));
}

}  // namespace torch_npu
