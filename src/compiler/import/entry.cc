// SPDX-License-Identifier: Apache-2.0
//
// The one function of the plugin, and models in protobuf's text form.
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <string>

#include <wire/ge.pb.h>
#include "compiler/import/fields.h"
#include "compiler/import/plugin.h"
#include "compiler/import/proto.h"

namespace reprise::compiler {
namespace {

// The first error; lines and columns as editors count them.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text.empty()) text = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  std::string text;
};

StatusOr<std::string> TextOf(std::string_view bytes) {
  const google::protobuf::LogSilencer silence;
  wire::ModelDef model;
  std::string text;
  if (bytes.size() > INT32_MAX || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      !google::protobuf::TextFormat::PrintToString(model, &text)) {
    return Error(kInvalidArgument, fmt::format("{} bytes are no serialised ge.proto.ModelDef", bytes.size()))
        .Hint("pass what SerializeToString of a ModelDef gives; it holds 2 GiB at most");
  }
  return text;
}

StatusOr<std::string> OfText(std::string_view text) {
  const google::protobuf::LogSilencer silence;
  const std::string whole(text);
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(100);
  wire::ModelDef model;
  if (parser.ParseFromString(whole, &model)) return BytesOf(model);
  // Files of this kind may also hold one graph.
  FirstError other;
  parser.RecordErrorsTo(&other);
  model.Clear();
  if (parser.ParseFromString(whole, model.add_graph())) return BytesOf(model);
  return Error(kParseFile, fmt::format("no model in protobuf's text form: {}", error.text))
      .Hint("give the text of a ge.proto.ModelDef, or of a GraphDef");
}

constexpr ProtoFunctions kFunctions = {kProtoBuild, ImportModel, ExportModel, TextOf, OfText};

}  // namespace
}  // namespace reprise::compiler

extern "C" __attribute__((visibility("default"))) const reprise::compiler::ProtoFunctions*
reprise_ge_proto_functions() {
  return &reprise::compiler::kFunctions;
}
