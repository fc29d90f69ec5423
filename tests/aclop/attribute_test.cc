// SPDX-License-Identifier: Apache-2.0
//
// aclopAttr: every function that sets an attribute, as the file of the graph shows it, and what it refuses.
#include <unistd.h>

#include <fstream>

#include "harness.h"
#include "support/json.h"

namespace aclop_test {
namespace {

class AttributeTest : public AclopTest {
 protected:
  // The attributes of a call as a reader of the graph file finds them. Names that begin with '_' are free.
  nlohmann::json Show(const Attr& attr) {
    const Tensor x(ACL_FLOAT, {1});
    const Tensor y(ACL_FLOAT, {1});
    Arrays in({&x});
    Arrays out({&y});
    const std::string path = testing::TempDir() + "aclop_attributes_" + std::to_string(getpid()) + ".json";
    EXPECT_EQ(0, aclGenGraphAndDumpForOp("Relu", 1, in.descs.data(), in.buffers.data(), 1, out.descs.data(),
                                         out.buffers.data(), attr.get(), 0, path.c_str(), nullptr))
        << RecentMessage();
    std::ifstream file(path);
    nlohmann::json graph = reprise::testing::ParseJson(file);
    EXPECT_FALSE(graph.is_discarded());
    EXPECT_EQ(0, unlink(path.c_str()));
    return graph["attributes"];
  }
};

TEST_F(AttributeTest, EveryKindIsKept) {
  Attr attr;
  attr.Bool("_bool", true).Int("_int", -5).Float("_float", 0.5f).String("_text", "a \"b\"").Type("_type", ACL_BF16);
  const uint8_t bools[] = {0, 2};
  const float floats[] = {1.5f, -2};
  const char* texts[] = {"x", ""};
  const aclDataType types[] = {ACL_FLOAT, ACL_INT8};
  const int64_t first[] = {1, 2};
  const int64_t* const lists[] = {first, nullptr};
  const int lengths[] = {2, 0};
  EXPECT_EQ(0, aclopSetAttrListBool(attr.get(), "_bools", 2, bools));
  attr.Ints("_ints", {3, -4});
  EXPECT_EQ(0, aclopSetAttrListFloat(attr.get(), "_floats", 2, floats));
  EXPECT_EQ(0, aclopSetAttrListString(attr.get(), "_texts", 2, texts));
  EXPECT_EQ(0, aclopSetAttrListDataType(attr.get(), "_types", 2, types));
  EXPECT_EQ(0, aclopSetAttrListListInt(attr.get(), "_lists", 2, lengths, lists));
  EXPECT_EQ(0, aclopSetAttrListFloat(attr.get(), "_none", 0, nullptr));
  const auto expected = reprise::testing::ParseJson(R"({
    "_bool": true, "_int": -5, "_float": 0.5, "_text": "a \"b\"", "_type": 27, "_bools": [false, true],
    "_ints": [3, -4], "_floats": [1.5, -2.0], "_texts": ["x", ""], "_types": [0, 2], "_lists": [[1, 2], []],
    "_none": []})");
  EXPECT_EQ(expected, Show(attr));
}

TEST_F(AttributeTest, TheLastValueOfANameCounts) {
  Attr attr;
  attr.Int("_a", 1).Float("_a", 2.5f);
  EXPECT_EQ(reprise::testing::ParseJson(R"({"_a": 2.5})"), Show(attr));
  attr.Float("_a", INFINITY);  // no number in JSON
  EXPECT_EQ(reprise::testing::ParseJson(R"({"_a": "inf"})"), Show(attr));
}

TEST_F(AttributeTest, WrongCallsAreRefused) {
  Attr attr;
  aclopAttr* const live = attr.get();
  const int64_t one = 1;
  const int64_t* const lists[] = {&one};
  const int64_t* const null_list[] = {nullptr};
  const int one_each[] = {1};
  const int negative_each[] = {-1};
  const char* null_text[] = {nullptr};
  ExpectRefused(100000, aclopSetAttrBool(nullptr, "a", 1), {"attr"}, "aclopSetAttrBool");
  ExpectRefused(100000, aclopSetAttrInt(live, nullptr, 1), {"attrName"}, "aclopSetAttrInt");
  ExpectRefused(100000, aclopSetAttrFloat(live, "", 1), {"attrName", "empty"}, "aclopSetAttrFloat");
  ExpectRefused(100000, aclopSetAttrString(live, "a", nullptr), {"attrValue"}, "aclopSetAttrString");
  ExpectRefused(100000, aclopSetAttrListInt(live, "a", -1, &one), {"numValues", "-1"}, "aclopSetAttrListInt");
  ExpectRefused(100000, aclopSetAttrListInt(live, "a", 1, nullptr), {"values"}, "aclopSetAttrListInt");
  ExpectRefused(100000, aclopSetAttrListInt(live, "a", INT32_MAX, &one), {"numValues"}, "aclopSetAttrListInt");
  ExpectRefused(100000, aclopSetAttrListBool(live, "a", 1, nullptr), {"values"}, "aclopSetAttrListBool");
  ExpectRefused(100000, aclopSetAttrListFloat(live, "a", -7, nullptr), {"numValues"}, "aclopSetAttrListFloat");
  ExpectRefused(100000, aclopSetAttrListDataType(live, "a", 1, nullptr), {"values"}, "aclopSetAttrListDataType");
  ExpectRefused(100000, aclopSetAttrListString(live, "a", 1, null_text), {"values[0]"}, "aclopSetAttrListString");
  ExpectRefused(100000, aclopSetAttrListListInt(live, "a", 1, nullptr, lists), {"numValues"},
                "aclopSetAttrListListInt");
  ExpectRefused(100000, aclopSetAttrListListInt(live, "a", 1, one_each, nullptr), {"values"},
                "aclopSetAttrListListInt");
  ExpectRefused(100000, aclopSetAttrListListInt(live, "a", 1, one_each, null_list), {"values[0]"},
                "aclopSetAttrListListInt");
  ExpectRefused(100000, aclopSetAttrListListInt(live, "a", 1, negative_each, lists), {"numValues[0]", "-1"},
                "aclopSetAttrListListInt");
  EXPECT_EQ(nlohmann::json::object(), Show(attr)) << "a refused call set something";

  int foreign = 0;
  auto* const wild = reinterpret_cast<aclopAttr*>(&foreign);
  ExpectRefused(107017, aclopSetAttrBool(wild, "a", 1), {"aclopAttr"}, "aclopSetAttrBool");
  aclopAttr* const gone = aclopCreateAttr();
  aclopDestroyAttr(gone);
  ExpectRefused(107017, aclopSetAttrDataType(gone, "a", ACL_FLOAT), {"destroyed"}, "aclopSetAttrDataType");
  aclopDestroyAttr(gone);
  EXPECT_THAT(RecentMessage(), testing::HasSubstr("aclopDestroyAttr"));
  aclopDestroyAttr(nullptr);
  EXPECT_EQ("", RecentMessage());
}

}  // namespace
}  // namespace aclop_test
