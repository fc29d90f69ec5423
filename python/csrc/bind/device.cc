// SPDX-License-Identifier: Apache-2.0
#include <acl/acl.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bind/bindings.h"
#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "device/sync_debug.h"
#include "ops/launch.h"
#include "rng/generator.h"

namespace torch_npu {
namespace {

namespace py = pybind11;

// A delay in stream order. It computes nothing, so it leaves the scope of kernels to those that do.
class Sleep final : public reprise::Operation {
 public:
  explicit Sleep(int64_t cycles) : cycles_(cycles) {}
  void Run(uint64_t) override { std::this_thread::sleep_for(std::chrono::nanoseconds(cycles_)); }
  reprise::OperationInfo Describe() const override { return {"sleep", {}}; }

 private:
  int64_t cycles_;  // of one nanosecond
};

py::dict Properties(int64_t index) {
  const c10::DeviceIndex device = ToDeviceIndex(index);
  const auto number = [&](aclrtDevAttr attribute) {
    int64_t value = 0;
    Check(aclrtGetDeviceInfo(static_cast<uint32_t>(device), attribute, &value), "aclrtGetDeviceInfo");
    return value;
  };
  const char* const name = aclrtGetSocName();
  aclrtUuid uuid{};
  Check(aclrtDeviceGetUuid(device, &uuid), "aclrtDeviceGetUuid");
  py::dict properties;
  properties["name"] = name != nullptr ? name : "";
  properties["total_memory"] = number(ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE);
  properties["cube_core_num"] = number(ACL_DEV_ATTR_CUBE_CORE_NUM);
  properties["vector_core_num"] = number(ACL_DEV_ATTR_VECTOR_CORE_NUM);
  properties["L2_cache_size"] = number(ACL_DEV_ATTR_L2_CACHE_SIZE);
  properties["uuid"] = py::bytes(reinterpret_cast<const char*>(&uuid), sizeof uuid);
  return properties;
}

}  // namespace

void BindDevice(py::module_& module) {
  module.def("_writes_refusals", &reprise::WritesRefusals);
  module.def("_write_refusal", &WriteRefusalOfPython);
  module.def("_npu_init", [] {
    InitRuntime();
    EnsureContext();
  });
  module.def("_npu_shutdown", &Shutdown);
  module.def("_npu_isInBadFork", [] { return torch::utils::is_device_in_bad_fork(c10::kPrivateUse1); });
  module.def("_npu_getDeviceCount", [] { return static_cast<int>(DeviceCount()); });
  module.def("_npu_getDevice", [] { return static_cast<int>(CurrentDevice()); });
  module.def("_npu_setDevice", [](int64_t device) { SetDevice(ToDeviceIndex(device)); });
  module.def("_npu_exchangeDevice",
             [](int64_t device) { return device < 0 ? -1 : static_cast<int>(ExchangeDevice(ToDeviceIndex(device))); });
  module.def("_npu_synchronize", [](int64_t device) { SynchronizeDevice(ToDeviceIndex(device)); });
  module.def("_npu_isInitialized", &IsInitialized);
  module.def("_npu_isCurrentStreamCapturing", [] { return IsInitialized() && CurrentStream().is_capturing(); });
  module.def("_npu_sleep", [](int64_t cycles) {
    TORCH_CHECK(cycles > 0, "_sleep takes a positive number of cycles, not ", cycles);
    Launch(std::make_unique<Sleep>(cycles));
  });
  module.def("_npu_defaultGenerator", [](int64_t device) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_initDefaultGenerator(DefaultGenerator(ToDeviceIndex(device))));
  });

  module.def("_npu_memGetInfo", [](int64_t device) {
    const DeviceScope scope(ToDeviceIndex(device));
    size_t free = 0;
    size_t total = 0;
    Check(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
    return std::pair(free, total);
  });
  module.def("_npu_getDeviceProperties", &Properties);
  module.def("_npu_canAccessPeer", [](int64_t device, int64_t peer) {
    int32_t can = 0;
    Check(aclrtDeviceCanAccessPeer(&can, ToDeviceIndex(device), ToDeviceIndex(peer)), "aclrtDeviceCanAccessPeer");
    return can != 0;
  });
  module.def("_npu_initDump", [] { Check(aclmdlInitDump(), "aclmdlInitDump"); });
  module.def("_npu_setDump", [](const std::string& file) { Check(aclmdlSetDump(file.c_str()), "aclmdlSetDump"); });
  module.def("_npu_finalizeDump", [] {
    int code = 0;
    {
      const py::gil_scoped_release release;
      code = aclmdlFinalizeDump();
    }
    Check(code, "aclmdlFinalizeDump");
  });
  module.def("_npu_getSyncDebugMode", [] { return static_cast<int>(SyncDebugMode()); });
  module.def("_npu_setSyncDebugMode", [](int mode) {
    TORCH_CHECK(mode >= 0 && mode <= 2, "sync debug mode must be 0, 1 or 2, not ", mode);
    SetSyncDebugMode(static_cast<SyncDebug>(mode));
  });

  // torch.npu.npurt(): plain functions of the runtime, which return its numbers.
  py::module_ runtime = module.def_submodule("_npurt", "Functions of the runtime, by number and address.");
  runtime.def("npuHostRegister", [](uint64_t address, uint64_t bytes, uint32_t) {
    void* on_device = nullptr;
    return aclrtHostRegister(reinterpret_cast<void*>(address), bytes, ACL_HOST_REGISTER_MAPPED, &on_device);
  });
  runtime.def("npuHostUnregister",
              [](uint64_t address) { return aclrtHostUnregister(reinterpret_cast<void*>(address)); });
  runtime.def("npuStreamCreate",
              [](uint64_t place) { return aclrtCreateStream(reinterpret_cast<aclrtStream*>(place)); });
  runtime.def("npuStreamDestroy", [](uint64_t stream) {
    if (stream == 0) return static_cast<aclError>(ACL_ERROR_INVALID_PARAM);
    return aclrtDestroyStream(reinterpret_cast<aclrtStream>(stream));
  });
}

}  // namespace torch_npu
