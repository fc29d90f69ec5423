// SPDX-License-Identifier: Apache-2.0
//
// Models that are read and written again: bytes, text and files; the plugin that does it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "compiler/export/export.h"
#include "compiler/import/file_constant.h"
#include "compiler/import/import.h"
#include "compiler/import/plugin.h"
#include "compiler/text.h"
#include "model_bytes.h"

namespace reprise::compiler {
namespace {

using namespace reprise::testing;  // NOLINT: builders of models

std::string WhatOf(Status&& status) { return status.ok() ? "nothing is wrong" : status.detail().what; }

std::unique_ptr<Graph> Read(const std::string& bytes) {
  StatusOr<std::unique_ptr<Graph>> graph = ImportBytes(bytes);
  if (graph.ok()) return std::move(graph).value();
  ADD_FAILURE() << WhatOf(std::move(graph).status());
  return std::make_unique<Graph>();
}

std::string Written(const Graph& graph, const ExportOptions& options = {}) {
  StatusOr<std::string> bytes = ExportBytes(graph, options);
  if (bytes.ok()) return std::move(bytes).value();
  ADD_FAILURE() << WhatOf(std::move(bytes).status());
  return {};
}

std::string TextOf(const std::string& bytes) {
  StatusOr<std::string> text = TextOfModel(bytes);
  return text.ok() ? std::move(text).value() : WhatOf(std::move(text).status());
}

// ---- The plugin ----

TEST(ProtoPlugin, OpensOnceForAllThreads) {
  std::vector<const ProtoFunctions*> found(8, nullptr);
  std::vector<std::thread> threads;
  for (const ProtoFunctions*& one : found) {
    threads.emplace_back([&one] {
      StatusOr<const ProtoFunctions*> opened = OpenProto();
      if (opened.ok()) one = *opened;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ProtoFunctions* const one : found) EXPECT_EQ(one, found[0]);
  ASSERT_NE(found[0], nullptr);
}

TEST(ProtoPlugin, SaysWhatIsMissing) {
  for (const char* const path : {"/nowhere/libreprise_ge_proto.so", "libreprise.so"}) {
    StatusOr<const ProtoFunctions*> opened = OpenProtoAt(path);
    ASSERT_FALSE(opened.ok()) << path;
    const Status status = std::move(opened).status();
    EXPECT_EQ(status.code(), kInvalidFile);
    EXPECT_NE(status.detail().what.find(path), std::string::npos) << status.detail().what;
    EXPECT_NE(status.detail().hint.find("libprotobuf"), std::string::npos) << status.detail().hint;
  }
}

// Anything that goes wrong between two releases of protobuf ends the process here; tests/ops runs this beside PyTorch.
TEST(ProtoPlugin, ReadsAndWritesAModel) {
  Model model;
  model.Data("x", 0, kProtoFloat, {-1, 8});
  model.Op("y", "Relu", {"x:0"}, {"x"});
  model.Results({"y:0"});
  const std::string bytes = model.Bytes();
  EXPECT_EQ(Written(*Read(bytes)), bytes);
  EXPECT_NE(TextOf(bytes).find("type: \"Relu\""), std::string::npos);
}

}  // namespace
}  // namespace reprise::compiler
