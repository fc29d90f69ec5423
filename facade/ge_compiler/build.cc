// SPDX-License-Identifier: Apache-2.0
//
// Graphs compiled ahead of time: each function is one call of engine/offline.h.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "engine/numbers.h"
#include "engine/offline.h"
#include "ge/access.h"
#include "ge/ge_ir_build.h"
#include "graph/operator.h"
#include "graph/operator_factory.h"
#include "runtime/report.h"

namespace engine = reprise::engine;
using reprise::runtime::Api;

namespace ge {
namespace {

using Options = std::map<AscendString, AscendString>;

engine::OptionMap OptionsOf(const Options& options) {
  engine::OptionMap map;
  for (const auto& [key, value] : options) map[key.GetString()] = value.GetString();
  return map;
}

template <class Body>
graphStatus Answer(const char* api, Body body) {
  return static_cast<graphStatus>(Api(api, body));
}

reprise::Status IsNull(const char* parameter) {
  return engine::Fail(engine::kParamInvalid, engine::kNullValue, std::string(parameter) + " is null")
      .Culprit(std::string("parameter ") + parameter)
      .Hint("pass an address");
}

reprise::StatusOr<std::shared_ptr<reprise::compiler::Graph>> ModelOf(const Graph& graph) {
  auto model = GraphAccess::ModelOf(graph);
  if (!model.ok()) return engine::As(engine::kParamInvalid, engine::kBadInput, std::move(model).status());
  if (*model != nullptr) return model;
  return engine::Fail(engine::kParamInvalid, engine::kBadInput, "the graph is empty")
      .Culprit("parameter graph")
      .Hint("give it inputs and outputs, or load a model into it");
}

graphStatus Refuse(const char* api, const char* reason, const char* advice) {
  return static_cast<graphStatus>(reprise::runtime::Refuse(api, engine::kUnsupported, reason, advice));
}

}  // namespace

graphStatus aclgrphBuildInitialize(Options& global_options) {
  return Answer("ge::aclgrphBuildInitialize", [&] { return engine::BeginBuilds(OptionsOf(global_options)); });
}

void aclgrphBuildFinalize() {
  Api("ge::aclgrphBuildFinalize", []() -> reprise::Status {
    engine::EndBuilds();
    return {};
  });
}

graphStatus aclgrphBuildModel(const Graph& graph, const Options& build_options, ModelBufferData& model) {
  return Answer("ge::aclgrphBuildModel", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(const auto source, ModelOf(graph));
    REPRISE_ASSIGN_OR_RETURN(const std::string bytes, engine::BuildOffline(*source, OptionsOf(build_options)));
    model.data = std::shared_ptr<uint8_t>(new uint8_t[bytes.size()], std::default_delete<uint8_t[]>());
    std::memcpy(model.data.get(), bytes.data(), bytes.size());
    model.length = bytes.size();
    return {};
  });
}

graphStatus aclgrphSaveModel(const char* output_file, const ModelBufferData& model) {
  return Answer("ge::aclgrphSaveModel", [&]() -> reprise::Status {
    if (output_file == nullptr) return IsNull("output_file");
    if (model.data == nullptr) return IsNull("model.data");
    return engine::SaveOffline(output_file, {reinterpret_cast<const char*>(model.data.get()), model.length});
  });
}

graphStatus aclgrphGetIRVersion(int* major_version, int* minor_version, int* patch_version) {
  return Answer("ge::aclgrphGetIRVersion", [&]() -> reprise::Status {
    if (major_version == nullptr || minor_version == nullptr || patch_version == nullptr) return IsNull("a version");
    *major_version = IR_MAJOR_VERSION;
    *minor_version = IR_MINOR_VERSION;
    *patch_version = IR_PATCH_VERSION;
    return {};
  });
}

graphStatus aclgrphInferShapeAndType(Graph& graph) {
  return Answer("ge::aclgrphInferShapeAndType", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(const auto model, ModelOf(graph));
    return engine::InferOffline(*model);
  });
}

graphStatus aclgrphDumpGraph(const Graph& graph, const char* file, const size_t len) {
  if (file == nullptr) {
    return Answer("ge::aclgrphDumpGraph", [] { return IsNull("file"); });
  }
  return graph.DumpToFile(Graph::DumpFormat::kTxt, AscendString(std::string(file, strnlen(file, len)).c_str()));
}

graphStatus aclgrphGenerateForOp(const AscendString& op_type, const std::vector<TensorDesc>& inputs,
                                 const std::vector<TensorDesc>& outputs, Graph& graph) {
  return Answer("ge::aclgrphGenerateForOp", [&]() -> reprise::Status {
    Operator op = OperatorFactory::CreateOperator(op_type.GetString(), op_type.GetString());
    if (op.GetInputsSize() != inputs.size() || op.GetOutputsSize() != outputs.size()) {
      return engine::Fail(engine::kParamInvalid, engine::kBadInput,
                          "there is no operator of this type with so many inputs and outputs")
          .Culprit("parameter op_type")
          .Hint("describe each input and output of the prototype; lists of tensors cannot be described");
    }
    std::vector<Operator> datas;
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      Operator& data = datas.emplace_back(("data_" + std::to_string(i)).c_str(), "Data");
      data.SetAttr("index", static_cast<int64_t>(i));
      static_cast<void>(data.UpdateInputDesc(0U, inputs[i]));
      static_cast<void>(data.UpdateOutputDesc(0U, inputs[i]));
      op.SetInput(i, data, 0U);
    }
    for (uint32_t i = 0; i < outputs.size(); ++i) static_cast<void>(op.UpdateOutputDesc(i, outputs[i]));
    Graph made(op_type.GetString());
    made.SetInputs(datas).SetOutputs(std::vector<Operator>{op});
    graph = made;
    return {};
  });
}

graphStatus aclgrphSetOpAttr(Graph& /*graph*/, aclgrphAttrType /*attr_type*/, const char* /*cfg_path*/) {
  return Refuse("ge::aclgrphSetOpAttr", "types of operators stay as they are, and weights are not compressed",
                "leave the call out");
}
graphStatus aclgrphBundleBuildModel(const std::vector<GraphWithOptions>& /*graph_with_options*/,
                                    ModelBufferData& /*model*/) {
  return Refuse("ge::aclgrphBundleBuildModel", "a compiled graph is one graph", "build each graph for itself");
}
graphStatus aclgrphBundleSaveModel(const char* /*output_file*/, const ModelBufferData& /*model*/) {
  return Refuse("ge::aclgrphBundleSaveModel", "a compiled graph is one graph", "save each graph for itself");
}

}  // namespace ge
