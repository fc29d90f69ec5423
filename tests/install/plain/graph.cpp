// SPDX-License-Identifier: Apache-2.0
//
// A program that builds a graph of operators, as programs for this toolkit do; compiled with both forms of std::string.
#include <cstdio>
#include <string>
#include <vector>

#include "all_ops.h"
#include "external/graph/tensor.h"
#include "graph/graph.h"
#include "graph/operator_reg.h"

namespace ge {
REG_OP(InstalledScale)
    .INPUT(x, TensorType::FLOAT())
    .OUTPUT(y, TensorType::FLOAT())
    .ATTR(mode, String, "sum")
    .OP_END_FACTORY_REG(InstalledScale)
}  // namespace ge

#define CHECK(condition)                                              \
  if (!(condition)) {                                                 \
    std::printf("line %d: %s does not hold\n", __LINE__, #condition); \
    return 1;                                                         \
  }

int main() {
  const ge::TensorDesc desc(ge::Shape({2, 3}), ge::FORMAT_ND, ge::DT_FLOAT);
  auto data = ge::op::Data("x").set_attr_index(0);
  data.update_input_desc_x(desc);
  data.update_output_desc_y(desc);
  const std::vector<float> ones(6, 1.0F);
  auto one = ge::op::Const("one").set_attr_value(
      ge::Tensor(desc, reinterpret_cast<const uint8_t*>(ones.data()), ones.size() * sizeof(float)));
  auto add = ge::op::Add("add").set_input_x1(data).set_input_x2(one);
  auto scale = ge::op::InstalledScale(std::string("scale")).set_input_x(add).set_attr_mode("max");
  CHECK(add.InferShapeAndType() == ge::GRAPH_SUCCESS);
  CHECK(add.get_output_desc_y().GetShape().GetDimNum() == 2);

  ge::Graph graph("g");
  std::vector<ge::Operator> inputs{data};
  graph.SetInputs(inputs).SetOutputs(std::vector<std::pair<ge::Operator, std::string>>{{add, "y"}});
  CHECK(graph.GetName() == "g");
  std::vector<std::string> names;
  CHECK(graph.GetAllOpName(names) == ge::GRAPH_SUCCESS && names.size() == 3);
  std::string mode;
  CHECK(scale.GetAttr(std::string("mode"), mode) == ge::GRAPH_SUCCESS && mode == "max");
  CHECK(scale.GetName() == "scale" && ge::OperatorFactory::IsExistOp(std::string("InstalledScale")));
  std::vector<uint8_t> bytes;
  CHECK(graph.SaveToMem(bytes) == ge::GRAPH_SUCCESS);
  ge::Graph read("read");
  CHECK(read.LoadFromMem(bytes.data(), bytes.size()) == ge::GRAPH_SUCCESS);
  CHECK(read.GetAllNodes().size() == 4);
  return 0;
}
