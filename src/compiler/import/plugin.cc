// SPDX-License-Identifier: Apache-2.0
#include "compiler/import/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "compiler/import/import.h"

namespace reprise::compiler {
namespace {

// The run-time libraries of sanitizers end a process that binds deep.
bool HasSanitizer() {
  for (const char* const name : {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"}) {
    if (dlsym(RTLD_DEFAULT, name) != nullptr) return true;
  }
  return false;
}

// Where another release of protobuf would be taken, if the plugin was not bound deep; empty when there is none.
std::string ForeignProtobuf() {
  void* const place = dlsym(RTLD_DEFAULT, "_ZN6google8protobuf11MessageLite14ParseFromArrayEPKvi");
  Dl_info info = {};
  if (place == nullptr || dladdr(place, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  return file.find("libprotobuf.so") == std::string_view::npos ? std::string(file) : std::string();
}

Status Unusable(const std::string& path, std::string_view reason) {
  return Error(kInvalidFile, fmt::format("models cannot be read or written: {} cannot be used: {}", path, reason))
      .Culprit(path)
      .Hint(fmt::format("keep {} of one installation beside libreprise_compiler.so, and install protobuf's run-time "
                        "library (libprotobuf32 on Debian 12)",
                        kProtoLibrary));
}

StatusOr<const ProtoFunctions*> OpenBesideUs() {
  Dl_info info = {};
  std::filesystem::path beside = kProtoLibrary;  // on the search path of the loader, where our place is not known
  if (dladdr(reinterpret_cast<void*>(&OpenProto), &info) != 0 && info.dli_fname != nullptr) {
    const std::filesystem::path self = info.dli_fname;
    std::error_code error;
    if (self.has_parent_path()) beside = self.parent_path() / kProtoLibrary;
    if (!std::filesystem::exists(beside, error)) {  // libraries that are reached through links
      const std::filesystem::path real = std::filesystem::canonical(self, error);
      if (!error && std::filesystem::exists(real.parent_path() / kProtoLibrary, error)) {
        beside = real.parent_path() / kProtoLibrary;
      }
    }
  }
  return OpenProtoAt(beside.string());
}

}  // namespace

StatusOr<const ProtoFunctions*> OpenProtoAt(const std::string& path) {
  int mode = RTLD_NOW | RTLD_LOCAL;
  if (!HasSanitizer()) {
    mode |= RTLD_DEEPBIND;
  } else if (const std::string foreign = ForeignProtobuf(); !foreign.empty()) {
    return Unusable(path, fmt::format("the process has a sanitizer, under which the protobuf in {} would be taken for "
                                      "that of the system",
                                      foreign));
  }
  void* const library = dlopen(path.c_str(), mode);
  if (library == nullptr) {
    const char* const reason = dlerror();
    return Unusable(path, reason != nullptr ? reason : "no reason is known");
  }
  const auto table = reinterpret_cast<const ProtoFunctions* (*)()>(dlsym(library, kProtoSymbol));
  if (table == nullptr) return Unusable(path, fmt::format("it has no function {}", kProtoSymbol));
  const ProtoFunctions* const functions = table();
  if (std::strcmp(functions->build, kProtoBuild) != 0) {
    return Unusable(path, fmt::format("it is of build {}, not {}", functions->build, kProtoBuild));
  }
  return functions;  // stays open: descriptors of protobuf are never taken back
}

StatusOr<const ProtoFunctions*> OpenProto() {
  struct Opened {
    const ProtoFunctions* functions = nullptr;
    Status failure;
  };
  static const Opened opened = [] {
    StatusOr<const ProtoFunctions*> result = OpenBesideUs();
    return result.ok() ? Opened{*result, {}} : Opened{nullptr, std::move(result).status()};
  }();
  if (opened.functions == nullptr) return opened.failure.Clone();
  return opened.functions;
}

StatusOr<std::unique_ptr<Graph>> ImportBytes(std::string_view bytes) {
  REPRISE_ASSIGN_OR_RETURN(const ProtoFunctions* proto, OpenProto());
  REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<Graph> graph, proto->import_bytes(bytes));
  REPRISE_RETURN_IF_ERROR(Verify(*graph));
  return graph;
}

StatusOr<std::unique_ptr<Graph>> FromProtoText(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const std::string bytes, ModelOfText(text));
  return ImportBytes(bytes);
}

StatusOr<std::string> ModelOfText(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const ProtoFunctions* proto, OpenProto());
  return proto->model_of_text(text);
}

StatusOr<std::string> TextOfModel(std::string_view bytes) {
  REPRISE_ASSIGN_OR_RETURN(const ProtoFunctions* proto, OpenProto());
  return proto->text_of_model(bytes);
}

StatusOr<std::string> ExportBytes(const Graph& graph, const ExportOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(const ProtoFunctions* proto, OpenProto());
  return proto->export_bytes(graph, options);
}

StatusOr<std::string> ToProtoText(const Graph& graph, const ExportOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(const std::string bytes, ExportBytes(graph, options));
  return TextOfModel(bytes);
}

}  // namespace reprise::compiler
