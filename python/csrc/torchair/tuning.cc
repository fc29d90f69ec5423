// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "torchair/graph.h"

namespace torchair {
namespace {

using TuningOptions = std::map<ge::AscendString, ge::AscendString>;
constexpr uint32_t kNothingToTune = 8;

// Opened when something is tuned for the first time.
template <class Function>
Function* Symbol(const char* name) {
  static void* const library = dlopen("libaoe_tuning.so", RTLD_NOW);
  TORCH_CHECK(library != nullptr, "libaoe_tuning.so cannot be opened: ", dlerror());
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  TORCH_CHECK(found != nullptr, "libaoe_tuning.so has no function ", name);
  return found;
}

void Check(uint32_t status, const char* function) {
  TORCH_CHECK(status == 0 || status == kNothingToTune, function, " failed (", status,
              "): ", ge::GEGetErrorMsgV2().GetString());
}

}  // namespace

void NpuGraph::AutoTune(const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(loaded_model_, "graph ", name_, " has no model yet: call load before auto_tune");
  const auto option = [&](const char* key) {
    const auto found = options_.find(key);
    TORCH_CHECK(found != options_.end() && !found->second.empty(), "graph ", name_, " cannot be tuned: option ", key,
                " is missing");
    return ge::AscendString(found->second.c_str());
  };
  TuningOptions options{{"work_path", option("work_path")}, {"job_type", option("aoe_mode")}};
  TuningOptions of_graph;
  if (const auto file = options_.find("aoe_config_file"); file != options_.end()) {
    of_graph.emplace("ge.aoe_config_file", file->second.c_str());
  }
  static const bool initialized = [&] {
    Check(Symbol<uint32_t(const TuningOptions&)>("AoeInitialize")(options), "AoeInitialize");
    return true;
  }();
  (void)initialized;
  const auto session = EngineSession();
  std::vector<ge::Tensor> own;
  for (const at::Tensor& input : inputs) {
    const at::Tensor host = input.cpu().contiguous();
    const ge::TensorDesc desc(ge::Shape(host.sizes().vec()), ge::FORMAT_ND, TypeOf(host.scalar_type()));
    own.emplace_back(desc, static_cast<const uint8_t*>(host.const_data_ptr()), host.nbytes());
  }
  ge::Graph copy;
  TORCH_CHECK(copy.CopyFrom(graph_) == ge::GRAPH_SUCCESS, "graph ", name_, " cannot be copied");
  uint64_t tuning = 0;
  Check(Symbol<uint32_t(uint64_t&)>("AoeCreateSession")(tuning), "AoeCreateSession");
  try {
    Check(Symbol<uint32_t(uint64_t, ge::Session*)>("AoeSetGeSession")(tuning, session.get()), "AoeSetGeSession");
    Check(Symbol<uint32_t(uint64_t, const ge::Graph&)>("AoeSetTuningGraph")(tuning, copy), "AoeSetTuningGraph");
    Check(Symbol<uint32_t(uint64_t, const std::vector<ge::Tensor>&)>("AoeSetTuningGraphInput")(tuning, own),
          "AoeSetTuningGraphInput");
    Check(Symbol<uint32_t(uint64_t, const TuningOptions&)>("AoeTuningGraph")(tuning, of_graph), "AoeTuningGraph");
  } catch (...) {
    (void)Symbol<uint32_t(uint64_t)>("AoeDestroySession")(tuning);
    throw;
  }
  Check(Symbol<uint32_t(uint64_t)>("AoeDestroySession")(tuning), "AoeDestroySession");
}

}  // namespace torchair
