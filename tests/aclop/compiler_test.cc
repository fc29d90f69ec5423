// SPDX-License-Identifier: Apache-2.0
//
// Compile options and graph files.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "harness.h"
#include "support/json.h"

namespace aclop_test {
namespace {

using CompilerTest = AclopTest;

std::string Option(int option) {
  std::vector<char> value(aclGetCompileoptSize(option), 'x');
  EXPECT_EQ(0, aclGetCompileopt(option, value.data(), value.size())) << RecentMessage();
  EXPECT_EQ('\0', value.back());
  return value.data();
}

TEST_F(CompilerTest, OptionsAreKept) {
  EXPECT_EQ("", Option(200));
  EXPECT_EQ(1u, aclGetCompileoptSize(200));
  EXPECT_EQ(0, aclSetCompileopt(0, "allow_fp32_to_fp16"));
  EXPECT_EQ(0, aclSetCompileopt(1, ""));
  EXPECT_EQ("allow_fp32_to_fp16", Option(0));
  EXPECT_EQ("", Option(1));
  EXPECT_EQ(0, aclSetCompileopt(0, "must_keep_origin_dtype"));
  std::thread([] { EXPECT_EQ("must_keep_origin_dtype", Option(0)); }).join();  // of the process, not of the thread
}

TEST_F(CompilerTest, WrongOptionsAreRefused) {
  ASSERT_EQ(0, aclSetCompileopt(2, "abc"));
  ExpectRefused(100000, aclSetCompileopt(2, nullptr), {"value"}, "aclSetCompileopt");
  ExpectRefused(100000, aclSetCompileopt(-1, "a"), {"opt", "-1"}, "aclSetCompileopt");
  ExpectRefused(100000, aclSetCompileopt(1000, "a"), {"opt", "1000"}, "aclSetCompileopt");
  char small[3] = {'x', 'x', 'x'};
  ExpectRefused(100000, aclGetCompileopt(2, small, 3), {"length is 3", "4 bytes"}, "aclGetCompileopt");
  EXPECT_EQ('x', small[0]);
  ExpectRefused(100000, aclGetCompileopt(2, nullptr, 4), {"value"}, "aclGetCompileopt");
  ExpectRefused(100000, aclGetCompileopt(-3, small, 3), {"opt"}, "aclGetCompileopt");
  EXPECT_EQ(0u, aclGetCompileoptSize(-1));
  EXPECT_THAT(RecentMessage(), testing::HasSubstr("aclGetCompileoptSize"));
  EXPECT_EQ("abc", Option(2));
  EXPECT_EQ(0, aclopSetCompileFlag(1));
  ExpectRefused(100000, aclopSetCompileFlag(-1), {"flag"}, "aclopSetCompileFlag");
  EXPECT_EQ(0, aclopSetMaxOpQueueNum(20000));
  ExpectRefused(100000, aclopSetMaxOpQueueNum(0), {"maxOpNum"}, "aclopSetMaxOpQueueNum");
}

TEST_F(CompilerTest, GraphFilesShowTheCall) {
  const Tensor x(ACL_FLOAT16, {2, 3});
  const auto axes = Tensor::Constant(ACL_INT64, {1}, {0});
  const Tensor y(ACL_FLOAT16, {1, 3});
  Attr attr;
  attr.Bool("keep_dims", true);
  Arrays in({&x, axes.get()});
  Arrays out({&y});
  aclGraphDumpOption* option = aclCreateGraphDumpOpt();
  ASSERT_NE(nullptr, option);
  const std::string path = testing::TempDir() + "aclop_graph_" + std::to_string(getpid()) + ".json";
  const auto dump = [&](const char* type, const char* where, const aclGraphDumpOption* with) {
    return aclGenGraphAndDumpForOp(type, 2, in.descs.data(), in.buffers.data(), 1, out.descs.data(), out.buffers.data(),
                                   attr.get(), 0, where, with);
  };
  ASSERT_EQ(0, dump("ReduceSum", path.c_str(), option)) << RecentMessage();
  std::ifstream file(path);
  EXPECT_EQ(reprise::testing::ParseJson(R"({
    "type": "ReduceSum",
    "inputs": [{"name": "x", "dtype": "float16", "format": "ND", "shape": [2, 3], "constant": false},
               {"name": "axes", "dtype": "int64", "format": "ND", "shape": [1], "constant": true}],
    "outputs": [{"name": "y", "dtype": "float16", "format": "ND", "shape": [1, 3], "constant": false}],
    "attributes": {"keep_dims": true}})"),
            reprise::testing::ParseJson(file));
  EXPECT_EQ(0, unlink(path.c_str()));

  const char* const function = "aclGenGraphAndDumpForOp";
  ExpectRefused(100024, dump("ReduceSun", path.c_str(), nullptr), {"ReduceSum"}, function);
  EXPECT_NE(0, access(path.c_str(), F_OK)) << "a refused call made a file";
  ExpectRefused(100000, dump("ReduceSum", nullptr, nullptr), {"graphDumpPath"}, function);
  ExpectRefused(100003, dump("ReduceSum", "", nullptr), {"graphDumpPath"}, function);
  ExpectRefused(100003, dump("ReduceSum", testing::TempDir().c_str(), nullptr), {"directory"}, function);
  ExpectRefused(100003, dump("ReduceSum", "/nowhere/at/all.json", nullptr), {"/nowhere/at/all.json"}, function);
  EXPECT_EQ(0, aclDestroyGraphDumpOpt(option));
  ExpectRefused(107017, dump("ReduceSum", path.c_str(), option), {"destroyed"}, function);
  ExpectRefused(107017, aclDestroyGraphDumpOpt(option), {"destroyed"}, "aclDestroyGraphDumpOpt");
  ExpectRefused(100000, aclDestroyGraphDumpOpt(nullptr), {"graphDumpOpt"}, "aclDestroyGraphDumpOpt");
}

}  // namespace
}  // namespace aclop_test
