// SPDX-License-Identifier: Apache-2.0
#include "runtime/offline_model.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/mutex.h"
#include "base/no_destroy.h"
#include "runtime/context.h"
#include "runtime/descriptors.h"
#include "runtime/device.h"

namespace reprise::runtime {
namespace {

struct Loaded {
  std::shared_ptr<OfflineModel> model;
  void* context = nullptr;
  int device = -1;
};
struct Registry {
  Mutex mutex;
  std::map<uint32_t, Loaded> models REPRISE_GUARDED_BY(mutex);
  uint32_t last REPRISE_GUARDED_BY(mutex) = 0;
};
Registry& TheModels() {
  static NoDestroy<Registry> models;
  return models.value;
}

Status EngineUnusable(const std::string& path, std::string_view reason) {
  return Error(kInvalidFile,
               fmt::format("offline models need the graph engine, and {} cannot be used: {}", path, reason))
      .Culprit(path)
      .Hint(fmt::format("keep {} of one installation beside libreprise.so", kOfflineModelsLibrary));
}

// Beside the library that this code is in, also where it was reached through a link.
std::filesystem::path BesideUs() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&OpenOfflineModel), &info) == 0 || info.dli_fname == nullptr) {
    return kOfflineModelsLibrary;
  }
  const std::filesystem::path self = info.dli_fname;
  if (!self.has_parent_path()) return kOfflineModelsLibrary;
  std::error_code error;
  std::filesystem::path beside = self.parent_path() / kOfflineModelsLibrary;
  if (std::filesystem::exists(beside, error)) return beside;
  const std::filesystem::path real = std::filesystem::canonical(self, error);
  return error ? beside : real.parent_path() / kOfflineModelsLibrary;
}

StatusOr<const OfflineModels*> OpenEngine() {
  const std::string path = BesideUs().string();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open: models keep code of it
  if (library == nullptr) {
    const char* const reason = dlerror();
    return EngineUnusable(path, reason != nullptr ? reason : "no reason is known");
  }
  const auto table = reinterpret_cast<const OfflineModels* (*)()>(dlsym(library, kOfflineModelsSymbol));
  if (table == nullptr) return EngineUnusable(path, fmt::format("it has no function {}", kOfflineModelsSymbol));
  const OfflineModels* const functions = table();
  if (std::strcmp(functions->build, kOfflineModelsBuild) == 0) return functions;
  return EngineUnusable(path, fmt::format("it is of build {}, not {}", functions->build, kOfflineModelsBuild));
}

StatusOr<std::shared_ptr<OfflineModel>> Load(std::string_view bytes, uint32_t id) {
  REPRISE_ASSIGN_OR_RETURN(const OfflineModels* const engine, OpenEngine());
  return engine->load(bytes, id);
}

Status NoSuchModel(uint32_t id) {
  return Error(kInvalidModelId, fmt::format("no model with the id {} is loaded", id))
      .Culprit("parameter modelId")
      .Hint("use an id that aclmdlLoadFromFile or aclmdlLoadFromMem has written, before aclmdlUnload");
}

}  // namespace

ModelDataset::~ModelDataset() {
  for (const Entry& entry : entries) {
    if (entry.descriptor != nullptr) TensorDescs().Destroy(entry.descriptor);
  }
}

HandleTable<ModelDesc, HandleKind::kModelDesc>& ModelDescs() { return TheTable<ModelDesc, HandleKind::kModelDesc>(); }
HandleTable<ModelDataset, HandleKind::kModelDataset>& ModelDatasets() {
  return TheTable<ModelDataset, HandleKind::kModelDataset>();
}

StatusOr<std::shared_ptr<OfflineModel>> OpenOfflineModel(std::string_view bytes) {
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] Context * context, CurrentContext());
  return Load(bytes, 0);
}

StatusOr<uint32_t> LoadOfflineModel(std::string_view bytes, void* work, size_t work_bytes, void* weights,
                                    size_t weight_bytes) {
  REPRISE_ASSIGN_OR_RETURN(Context * context, CurrentContext());
  Registry& registry = TheModels();
  uint32_t id = 0;
  {
    MutexLock lock(registry.mutex);
    do {
      id = ++registry.last;
    } while (id == 0 || registry.models.contains(id));
  }
  REPRISE_ASSIGN_OR_RETURN(std::shared_ptr<OfflineModel> model, Load(bytes, id));
  REPRISE_RETURN_IF_ERROR(model->SetMemory(work, work_bytes, weights, weight_bytes));
  MutexLock lock(registry.mutex);
  registry.models[id] = {std::move(model), context->handle(), context->device().id()};
  return id;
}

StatusOr<std::string> ReadModelFile(const char* path) {
  const auto refuse = [path](int reason) {
    return Error(kInvalidFile, fmt::format("the model file {} cannot be read: {}", path, std::strerror(reason)))
        .Culprit(fmt::format("file {}", path))
        .Hint("check that the file exists and may be read");
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return refuse(EISDIR);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rbe"), &std::fclose);
  if (file == nullptr) return refuse(errno);
  std::string bytes;
  char block[1 << 16];
  while (const size_t read = std::fread(block, 1, sizeof block, file.get())) bytes.append(block, read);
  if (std::ferror(file.get()) != 0) return refuse(errno);
  return bytes;
}

StatusOr<std::shared_ptr<OfflineModel>> FindOfflineModel(uint32_t id) {
  Loaded found;
  {
    Registry& registry = TheModels();
    MutexLock lock(registry.mutex);
    const auto entry = registry.models.find(id);
    if (entry == registry.models.end()) return NoSuchModel(id);
    found = entry->second;
  }
  if (Contexts().Find(found.context) == nullptr) {
    return Error(kModelContext, fmt::format("the context in which model {} was loaded is gone", id))
        .Culprit(fmt::format("model {}", id))
        .Hint("load the model again, and unload it before its context is destroyed or its device is reset");
  }
  REPRISE_ASSIGN_OR_RETURN(Context * context, CurrentContext());
  if (context->device().id() == found.device) return found.model;
  return Error(kModelContext, fmt::format("model {} was loaded on device {}, the current context is on device {}", id,
                                          found.device, context->device().id()))
      .Culprit(fmt::format("model {}", id))
      .Hint("make the context current in which the model was loaded: aclrtSetCurrentContext");
}

Status UnloadOfflineModel(uint32_t id) {
  Loaded gone;  // ends without the lock
  Registry& registry = TheModels();
  MutexLock lock(registry.mutex);
  const auto entry = registry.models.find(id);
  if (entry == registry.models.end()) return NoSuchModel(id);
  gone = std::move(entry->second);
  registry.models.erase(entry);
  return {};
}

}  // namespace reprise::runtime
