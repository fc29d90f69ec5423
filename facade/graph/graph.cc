// SPDX-License-Identifier: Apache-2.0
//
// Graphs of namespace ge: the bytes of a model, from which names and types of its nodes are read. Operators have no
// prototypes yet: nothing runs such a graph (libge_runner.so says so), so nothing asks for more.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "ge/values.h"
#include "runtime/report.h"
#include "wire.h"

using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::Refuse;

namespace ge {
namespace {

constexpr const char* kNoPrototypes = "operators of the graph engine have no prototypes here";
constexpr const char* kUseCapture =
    "run the model eagerly, or capture it: torch.npu.NPUGraph, torch.compile in the mode reduce-overhead";

// Fields of the messages ModelDef, GraphDef and OpDef.
constexpr uint32_t kModelGraph = 7;
constexpr uint32_t kGraphOp = 6;
constexpr uint32_t kOpType = 2;

Status WriteModel(const char* path, const std::string& model) {
  const auto failed = [path](int error) {
    return Error(GRAPH_FAILED, fmt::format("\"{}\" cannot be written: {}", path, std::strerror(error)))
        .Culprit("parameter file_name")
        .Hint("pass the path of a file in a folder that exists and may be written to");
  };
  std::FILE* file = std::fopen(path, "we");
  if (file == nullptr) return failed(errno);
  const bool wrote = std::fwrite(model.data(), 1, model.size(), file) == model.size();
  const int error = errno;
  if (std::fclose(file) != 0) return failed(errno);
  return wrote ? Status() : failed(error);
}

graphStatus NullArgument(const char* api, const char* parameter) {
  return static_cast<graphStatus>(Api(api, [&]() -> Status {
    return Error(GRAPH_NULL_PTR, fmt::format("{} is null", parameter))
        .Culprit(fmt::format("parameter {}", parameter))
        .Hint("pass an address");
  }));
}

}  // namespace

struct GNode::Impl {
  std::string type;
};

GNode::GNode() : impl_(std::make_shared<Impl>()) {}
graphStatus GNode::GetType(AscendString& type) const {
  type = AscendString(impl_->type.c_str());
  return GRAPH_SUCCESS;
}

struct Graph::Impl {
  std::string name;
  std::string model;  // a serialised ModelDef
  std::vector<GNode> nodes;
};

Graph::Graph(const char* name) : impl_(std::make_shared<Impl>()) { impl_->name = name != nullptr ? name : ""; }

graphStatus Graph::CopyFrom(const Graph& other) {
  const std::string name = impl_->name;
  *impl_ = *other.impl_;
  impl_->name = name;
  return GRAPH_SUCCESS;
}

std::vector<GNode> Graph::GetAllNodes() const { return impl_->nodes; }

graphStatus Graph::LoadFromSerializedModelArray(const void* model, size_t bytes) {
  constexpr const char* kApi = "ge::Graph::LoadFromSerializedModelArray";
  if (model == nullptr) return NullArgument(kApi, "serialized_model");
  return static_cast<graphStatus>(Api(kApi, [&]() -> Status {
    Impl read{impl_->name, std::string(static_cast<const char*>(model), bytes), {}};
    size_t graphs = 0;
    // The root graph is the first one; nodes of the others are bound to it by name.
    const bool whole = wire::ForEach(read.model, kModelGraph, [&](std::string_view graph) {
      if (graphs++ != 0) return wire::ForEach(graph, kGraphOp, [](std::string_view) { return true; });
      return wire::ForEach(graph, kGraphOp, [&](std::string_view op) {
        GNode node;
        const bool read_all = wire::ForEach(op, kOpType, [&](std::string_view type) {
          node.impl_->type = type;
          return true;
        });
        read.nodes.push_back(node);
        return read_all;
      });
    });
    if (!whole || graphs == 0) {
      return Error(GRAPH_PARAM_INVALID,
                   whole ? "the model holds no graph" : fmt::format("the {} bytes are no serialised ModelDef", bytes))
          .Culprit("parameter serialized_model")
          .Hint("pass the bytes and the size of a ModelDef with one graph or more");
    }
    *impl_ = std::move(read);
    return {};
  }));
}

graphStatus Graph::SaveToFile(const char* path) const {
  constexpr const char* kApi = "ge::Graph::SaveToFile";
  if (path == nullptr) return NullArgument(kApi, "file_name");
  return static_cast<graphStatus>(Api(kApi, [&] { return WriteModel(path, impl_->model); }));
}

Operator::Operator() = default;
Operator::~Operator() = default;
graphStatus Operator::GetAllIrAttrNamesAndTypes(AscendStringMap& /*attributes*/) const {
  return static_cast<graphStatus>(
      Refuse("ge::Operator::GetAllIrAttrNamesAndTypes", static_cast<int>(GRAPH_FAILED), kNoPrototypes, kUseCapture));
}
graphStatus Operator::UpdateInputDesc(const char* /*input*/, const TensorDesc& /*desc*/) {
  return static_cast<graphStatus>(
      Refuse("ge::Operator::UpdateInputDesc", static_cast<int>(GRAPH_FAILED), kNoPrototypes, kUseCapture));
}
Operator OperatorFactory::CreateOperator(const char* /*name*/, const char* /*type*/) {
  Refuse("ge::OperatorFactory::CreateOperator", static_cast<int>(GRAPH_FAILED), kNoPrototypes, kUseCapture);
  return {};
}
bool OperatorFactory::IsExistOp(const char* /*type*/) { return false; }

}  // namespace ge
