// SPDX-License-Identifier: Apache-2.0
#include "compiler/custom_op.h"

#include <map>

#include "base/mutex.h"
#include "base/no_destroy.h"

namespace reprise::compiler {
namespace {

struct Registry {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<const CustomOp>, std::less<>> ops REPRISE_GUARDED_BY(mutex);
};
Registry& TheRegistry() {
  static NoDestroy<Registry> registry;
  return registry.value;
}

}  // namespace

void RegisterCustomOp(std::string type, std::shared_ptr<const CustomOp> op) {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  registry.ops[std::move(type)] = std::move(op);
}

std::shared_ptr<const CustomOp> FindCustomOp(std::string_view type) {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  const auto found = registry.ops.find(type);
  return found != registry.ops.end() ? found->second : nullptr;
}

}  // namespace reprise::compiler
