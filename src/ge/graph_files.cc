// SPDX-License-Identifier: Apache-2.0
//
// Graphs: models in memory and in files, and texts for people.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ostream>

#include "compiler/compiled_file.h"
#include "compiler/dump/dump.h"
#include "compiler/export/export.h"
#include "compiler/import/import.h"
#include "ge/access.h"
#include "ge/graph_impl.h"
#include "graph/graph.h"

namespace ge {
namespace {

namespace compiler = reprise::compiler;

Status EmptyGraphError() {
  return Invalid("the graph was made empty", "the graph", "make it with a name", GRAPH_FAILED);
}

// As the number that functions of graphs answer, whatever number it has inside.
Status As(graphStatus number, Status status, const char* culprit) {
  if (status.ok()) return status;
  const Status::Detail& detail = status.detail();
  return Error(static_cast<int>(number), detail.what)
      .Culprit(detail.culprit.empty() ? culprit : detail.culprit)
      .Hint(detail.hint);
}

Status FileError(const char* path, const char* what, int error) {
  return Error(GRAPH_FAILED, fmt::format("\"{}\" cannot be {}: {}", path, what, std::strerror(error)))
      .Culprit("parameter file_name")
      .Hint(fmt::format("pass the path of a file that may be {}", what));
}

Status WriteFile(const char* path, const std::string& bytes) {
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return FileError(path, "written", errno);
  const bool wrote = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int error = errno;
  if (std::fclose(file) != 0) return FileError(path, "written", errno);
  return wrote ? Status() : FileError(path, "written", error);
}

StatusOr<std::string> ReadFile(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return FileError(path, "read", errno);
  std::string bytes;
  char block[65536];
  size_t count = 0;
  while ((count = std::fread(block, 1, sizeof block, file)) != 0) bytes.append(block, count);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  std::fclose(file);
  if (failed) return FileError(path, "read", error);
  return bytes;
}

// The serialised model.
StatusOr<std::string> BytesOf(Graph::Impl* graph) {
  if (graph == nullptr) return EmptyGraphError();
  REPRISE_RETURN_IF_ERROR(graph->Update());
  if (!graph->bytes.empty()) return graph->bytes;
  auto bytes = compiler::ExportBytes(*graph->model);
  return bytes.ok() ? std::move(bytes) : As(GRAPH_FAILED, std::move(bytes).status(), "the graph");
}

StatusOr<compiler::DumpForm> FormOf(Graph::DumpFormat format) {
  switch (format) {
    case Graph::DumpFormat::kOnnx: return compiler::DumpForm::kOnnx;
    case Graph::DumpFormat::kTxt: return compiler::DumpForm::kProto;
    case Graph::DumpFormat::kReadable: return compiler::DumpForm::kReadable;
  }
  return Invalid(fmt::format("there is no format {}", static_cast<uint32_t>(format)), "parameter format",
                 "pass one of DumpFormat");
}

}  // namespace

graphStatus Graph::SaveToFile(const char* file_name) const {
  return Answer("ge::Graph::SaveToFile", [&]() -> Status {
    if (file_name == nullptr) return NullArgument("file_name");
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(impl_.get()));
    return WriteFile(file_name, bytes);
  });
}
graphStatus Graph::SaveToMem(std::vector<uint8_t>& buffer) const {
  return Answer("ge::Graph::SaveToMem", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, BytesOf(impl_.get()));
    buffer.assign(bytes.begin(), bytes.end());
    return {};
  });
}

graphStatus Graph::LoadFromSerializedModelArray(const void* serialized_model, size_t size) {
  return Answer("ge::Graph::LoadFromSerializedModelArray", [&]() -> Status {
    if (serialized_model == nullptr) return NullArgument("serialized_model");
    std::string bytes(static_cast<const char*>(serialized_model), size);
    if (const auto compiled = compiler::SplitCompiled(bytes)) {
      if (!compiled->model) {
        return Invalid("the compiled graph is damaged", "parameter serialized_model", "build it again");
      }
      bytes = std::string(*compiled->model);
    }
    auto model = compiler::ImportBytes(bytes);
    if (!model.ok()) return As(GRAPH_PARAM_INVALID, std::move(model).status(), "parameter serialized_model");
    if (!impl_) *this = Graph(model->get()->name.c_str());
    GraphAccess::SetModel(*this, std::move(*model));
    impl_->extras.clear();
    impl_->subgraphs.clear();
    impl_->bytes = std::move(bytes);
    return {};
  });
}
graphStatus Graph::LoadFromMem(const uint8_t* data, size_t size) { return LoadFromSerializedModelArray(data, size); }
graphStatus Graph::LoadFromFile(const char* file_name) {
  std::string bytes;
  const graphStatus status = Answer("ge::Graph::LoadFromFile", [&]() -> Status {
    if (file_name == nullptr) return NullArgument("file_name");
    REPRISE_ASSIGN_OR_RETURN(bytes, ReadFile(file_name));
    return {};
  });
  return status != GRAPH_SUCCESS ? status : LoadFromSerializedModelArray(bytes.data(), bytes.size());
}

graphStatus Graph::Dump(DumpFormat format, std::ostream& o_stream) const {
  return Answer("ge::Graph::Dump", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::DumpForm form, FormOf(format));
    if (!impl_) return EmptyGraphError();
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    auto text = compiler::DumpText(*impl_->model, form, compiler::Content::kAll);
    if (!text.ok()) return As(GRAPH_FAILED, std::move(text).status(), "the graph");
    o_stream << *text;
    if (o_stream.good()) return {};
    return Invalid("the stream takes no more", "parameter o_stream", "pass a stream that can be written to",
                   GRAPH_FAILED);
  });
}
graphStatus Graph::DumpToFile(DumpFormat format, const AscendString& suffix) const {
  return Answer("ge::Graph::DumpToFile", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const compiler::DumpForm form, FormOf(format));
    if (!impl_) return EmptyGraphError();
    REPRISE_RETURN_IF_ERROR(impl_->Update());
    auto path = compiler::DumpToFile(*impl_->model, form, {.stage = suffix.GetString()});
    return path.ok() ? Status() : As(GRAPH_FAILED, std::move(path).status(), "the graph");
  });
}

}  // namespace ge
