// SPDX-License-Identifier: Apache-2.0
#include "collector.h"

#include "call.h"
#include "tensors.h"

namespace reprise::ge_runner {

ge::Status RegisterCollector(uint64_t session, const char* key, const CollectorCallback& callback) {
  return OnSession(session, "ge::Session::RegisterCallBackFunc", [&](engine::Session& s) -> Status {
    engine::Session::Collect collect;
    if (callback) {
      collect = [callback](uint32_t graph, const std::map<std::string, engine::HostTensor>& values) {
        std::map<ge::AscendString, ge::Tensor> named;
        for (const auto& [name, value] : values) {
          std::vector<engine::HostTensor> one{value};
          std::vector<ge::Tensor> tensors;
          Return(one, tensors);
          named.emplace(ge::AscendString(name.c_str()), std::move(tensors[0]));
        }
        return static_cast<int>(callback(graph, named));
      };
    }
    return s.RegisterCallback(key != nullptr ? key : "", std::move(collect));
  });
}

}  // namespace reprise::ge_runner
