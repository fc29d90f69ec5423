// SPDX-License-Identifier: Apache-2.0
//
// torch_npu._C._distributed_c10d: the backend hccl, and dumps of its flight recorder.
#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <utility>
#include <vector>

#include "bind/bindings.h"
#include "device/runtime.h"
#include "distributed/monitor.h"
#include "distributed/process_group.h"
#include "distributed/recorder.h"

namespace torch_npu {
namespace {

namespace py = pybind11;
using NoGil = py::call_guard<py::gil_scoped_release>;
using std::chrono::milliseconds;

// ---- Options ----

py::dict ConfigToPython(const HcclOptions& options) {
  py::dict config;
  for (const auto& [key, entry] : options.hccl_config) {
    if (const auto* const number = std::get_if<int64_t>(&entry)) config[key.c_str()] = *number;
    if (const auto* const text = std::get_if<std::string>(&entry)) config[key.c_str()] = *text;
    if (std::holds_alternative<std::monostate>(entry)) config[key.c_str()] = py::none();
  }
  return config;
}

void ConfigFromPython(HcclOptions& options, const py::dict& config) {
  options.hccl_config.clear();
  for (const auto& [key, value] : config) {
    HcclConfigEntry entry;  // of any other type: refused when a communicator needs it
    if (py::isinstance<py::str>(value)) entry = value.cast<std::string>();
    if (py::isinstance<py::int_>(value) && !py::isinstance<py::bool_>(value)) entry = value.cast<int64_t>();
    options.hccl_config[key.cast<std::string>()] = std::move(entry);
  }
}

// ---- Flight recorder ----

void BindRecorder(py::module_& module) {
  module.def(
      "_dump_hccl_trace",
      [](bool operators, bool stacks, bool only_active) {
        return py::bytes(Recorder::Get().Pickled({operators, stacks, only_active}));
      },
      py::arg("includeCollectives") = true, py::arg("includeStackTraces") = true, py::arg("onlyActive") = false);
  module.def(
      "_dump_hccl_trace_json",
      [](bool operators, bool only_active) {
        const py::bytes pickled(Recorder::Get().Pickled({operators, false, only_active}));
        const py::object trace = py::module_::import("pickle").attr("loads")(pickled);
        return py::module_::import("json").attr("dumps")(trace).attr("encode")();
      },
      py::arg("includeCollectives") = true, py::arg("onlyActive") = false);
}

// ---- The group ----

using GroupClass = py::class_<ProcessGroupHCCL, c10d::Backend, c10::intrusive_ptr<ProcessGroupHCCL>>;

c10::DeviceIndex IndexOf(const c10::Device& device) { return device.has_index() ? device.index() : CurrentDevice(); }

void BindNames(GroupClass& group) {
  group
      .def("get_hccl_comm_name", &ProcessGroupHCCL::CommunicatorName, py::arg("rank"), py::arg("init_comm") = true,
           NoGil())
      .def("get_hccl_comm", &ProcessGroupHCCL::CommunicatorHandle, py::arg("rank"), NoGil())
      .def("_set_hccl_comm_name", &ProcessGroupHCCL::SetCommunicatorName, py::arg("hccl_comm_name"), NoGil())
      .def(
          "_get_stream_id",
          [](ProcessGroupHCCL& self, bool p2p, int peer) {
            return p2p ? self.TransferStreamId(-1, peer) : self.CollectiveStreamId(-1);
          },
          py::arg("p2p") = false, py::arg("peer") = -1, NoGil())
      .def(
          "get_coll_stream_id",
          [](ProcessGroupHCCL& self, const c10::Device& device) { return self.CollectiveStreamId(IndexOf(device)); },
          py::arg("device"))
      .def(
          "get_p2p_stream_id",
          [](ProcessGroupHCCL& self, const c10::Device& device, int peer, bool is_batched) {
            return is_batched ? self.CollectiveStreamId(IndexOf(device)) : self.TransferStreamId(IndexOf(device), peer);
          },
          py::arg("device"), py::arg("peer"), py::arg("is_batched") = false);
}

void BindLife(GroupClass& group) {
  group.def("abort_hccl_comm", &ProcessGroupHCCL::Abort, py::arg("abort_reason") = "", NoGil())
      .def(
          "resume_hccl_comm", [](ProcessGroupHCCL& self, int64_t) { self.Resume(); }, py::arg("device_id") = 0, NoGil())
      .def("_delete_tcpstore_key", &ProcessGroupHCCL::BeginAnew, NoGil())
      .def(
          "set_watchdog_status",
          [](ProcessGroupHCCL& self, int status) {
            TORCH_CHECK_VALUE(status >= 0 && status <= 2,
                              "the status of a watchdog is 0 (stop), 1 (run) or 2 (pause), not ", status);
            self.watchdog().SetPaused(status != 1);
          },
          py::arg("status"), NoGil())
      .def(
          "clear_workmeta_list", [](ProcessGroupHCCL& self) { self.watchdog().Clear(); }, NoGil())
      .def("_add_ephemeral_timeout", &ProcessGroupHCCL::AddEphemeralTimeout, py::arg("timeout"), NoGil())
      .def("_set_default_timeout", &ProcessGroupHCCL::setTimeout, py::arg("timeout"), NoGil())
      .def(
          "_group_start", [](ProcessGroupHCCL&) { CallGroup::Start(); }, NoGil())
      .def(
          "_group_end", [](ProcessGroupHCCL&) { CallGroup::End(); }, NoGil());
}

void BindOperators(GroupClass& group) {
  group
      .def(
          "_reduce_oop",
          [](ProcessGroupHCCL& self, at::Tensor& output, at::Tensor& input, const c10d::ReduceOptions& options) {
            return self.ReduceInto(output, input, options);
          },
          py::arg("output"), py::arg("input"), py::arg("opts") = c10d::ReduceOptions(), NoGil())
      .def(
          "reduce_scatter_tensor_uneven",
          [](ProcessGroupHCCL& self, at::Tensor& output, at::Tensor& input, const std::vector<int64_t>& splits,
             const c10d::ReduceScatterOptions& options) {
            return self.ReduceScatterUneven(output, input, splits, options);
          },
          py::arg("output"), py::arg("input"), py::arg("input_split_sizes"),
          py::arg("opts") = c10d::ReduceScatterOptions(), NoGil())
      .def(
          "all_gather_into_tensor_uneven",
          [](ProcessGroupHCCL& self, at::Tensor& output, at::Tensor& input, const std::vector<int64_t>& splits,
             const c10d::AllgatherOptions& options) { return self.AllGatherUneven(output, input, splits, options); },
          py::arg("output"), py::arg("input"), py::arg("output_split_sizes"),
          py::arg("opts") = c10d::AllgatherOptions(), NoGil())
      .def(
          "alltoallvc",
          [](ProcessGroupHCCL& self, at::Tensor& output, at::Tensor& input,
             const std::vector<std::vector<int64_t>>& matrix,
             const c10d::AllToAllOptions& options) { return self.AllToAllVc(output, input, matrix, options); },
          py::arg("output"), py::arg("input"), py::arg("send_count_matrix"), py::arg("opts") = c10d::AllToAllOptions(),
          NoGil());
}

}  // namespace

void BindDistributed(py::module_& parent) {
  py::module_::import("torch._C._distributed_c10d");  // where the classes are that these derive from
  py::module_ module = parent.def_submodule("_distributed_c10d");
  GroupClass group(module, "ProcessGroupHCCL");
  py::class_<HcclOptions, c10d::Backend::Options, c10::intrusive_ptr<HcclOptions>> options(group, "Options");
  options.def(py::init<bool>(), py::arg("is_high_priority_stream") = false)
      .def_readwrite("op_timeout", &HcclOptions::op_timeout)
      .def_readwrite("is_high_priority_stream", &HcclOptions::is_high_priority_stream)
      .def_readwrite("group_id", &HcclOptions::group_id)
      .def_property("hccl_config", &ConfigToPython, &ConfigFromPython)
      .def("__copy__", [](const HcclOptions& self) { return c10::make_intrusive<HcclOptions>(self); })
      .def("__deepcopy__",
           [](const HcclOptions& self, const py::dict&) { return c10::make_intrusive<HcclOptions>(self); });
  group
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       const c10::intrusive_ptr<HcclOptions>& of_group) {
             return c10::make_intrusive<ProcessGroupHCCL>(store, rank, size, of_group);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options") = c10::intrusive_ptr<HcclOptions>(),
           NoGil())
      .def_property_readonly("options", &ProcessGroupHCCL::options);
  BindNames(group);
  BindLife(group);
  BindOperators(group);
  BindRecorder(module);
  module.def(
      "_stop_watchdogs",
      [] {
        Watchdog::StopAll();
        Monitor::Stop();
      },
      NoGil());
}

}  // namespace torch_npu
