// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: models of graphs, as bytes and as text. What is read is written again the same way from then on.
#include <string>
#include <string_view>

#include "compiler/dump/dump.h"
#include "compiler/export/export.h"
#include "compiler/import/import.h"
#include "compiler/text.h"
#include "input.h"

using namespace reprise::fuzz;      // NOLINT: the two functions that libFuzzer looks for
using namespace reprise::compiler;  // NOLINT

namespace {

void Refused(const reprise::Status& status) {
  if (status.code() != 100000 && status.code() != 100006) Found("another number: " + status.detail().what);
  if (status.detail().hint.empty()) Found("a refusal without advice: " + status.detail().what);
}

void ReadAndWrite(std::string_view bytes) {
  auto graph = ImportBytes(bytes);
  if (!graph.ok()) return Refused(std::move(graph).status());
  auto once = ExportBytes(**graph);
  if (!once.ok()) Found("what was read is not written: " + std::move(once).status().detail().what);
  auto again = ImportBytes(*once);
  if (!again.ok()) Found("what was written is not read: " + std::move(again).status().detail().what);
  if (ToText(**again) != ToText(**graph)) Found("another graph is read than was written");
  auto twice = ExportBytes(**again);
  if (!twice.ok() || *twice != *once) Found("the second time something else is written");
  for (const DumpForm form : {DumpForm::kOnnx, DumpForm::kProto, DumpForm::kReadable}) {
    if (!DumpText(**graph, form, Content::kStructure).ok()) Found("a graph that is not dumped");
  }
  reprise::opdef::Facts facts;
  [[maybe_unused]] const reprise::Status status = InferShapes(**graph, facts);
  if (!DumpText(**graph, DumpForm::kProto, Content::kNoData).ok()) Found("an inferred graph that is not dumped");
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string copy(reinterpret_cast<const char*>(data), bytes);
  ReadAndWrite(copy);
  auto model = ModelOfText(copy);
  if (model.ok()) {
    ReadAndWrite(*model);
  } else {
    Refused(std::move(model).status());
  }
  return 0;
}
