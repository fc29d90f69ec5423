// SPDX-License-Identifier: Apache-2.0
//
// The graph engine, which refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../../facade/ge_runner/ge_api.h"
#include "acl/acl.h"
#include "graph/graph.h"

namespace {

using testing::HasSubstr;

std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

TEST(GeEngine, RefusesWithASentence) {
  EXPECT_EQ(ge::GEInitialize({}), ge::UNSUPPORTED);
  const ge::AscendString text = ge::GEGetErrorMsgV2();
  EXPECT_THAT(text.GetString(), HasSubstr("there is no graph engine yet that compiles graphs of operators"));
  EXPECT_STREQ(ge::GEGetErrorMsgV2().GetString(), "");  // told once
  ge::Session session({});
  EXPECT_EQ(session.AddGraph(1, ge::Graph("g"), {}), ge::FAILED);
  EXPECT_EQ(session.CompileGraph(1), ge::FAILED);
  EXPECT_EQ(session.GetCompiledGraphSummary(1), nullptr);
  std::vector<ge::Tensor> outputs;
  EXPECT_EQ(session.RunGraph(1, {}, outputs), ge::FAILED);
  EXPECT_EQ(session.RunGraphWithStreamAsync(1, nullptr, {}, outputs), ge::FAILED);
  EXPECT_THAT(Message(), HasSubstr("ge::Session::RunGraphWithStreamAsync"));
  EXPECT_STREQ(ge::GEGetWarningMsgV2().GetString(), "");
  EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
}

}  // namespace
