/* SPDX-License-Identifier: Apache-2.0 */
/* What functions of inference hand each other beside descriptions of tensors: shapes behind handles, and marks. */
#ifndef REPRISE_GRAPH_INFERENCE_CONTEXT_H_
#define REPRISE_GRAPH_INFERENCE_CONTEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "graph/types.h"

#pragma GCC visibility push(default)

namespace ge {

class ShapeAndType {
 public:
  ShapeAndType() = default;
  ShapeAndType(const Shape& shape, DataType data_type) : shape_(shape), type_(data_type) {}
  void SetShape(const Shape& shape) { shape_ = shape; }
  void SetType(DataType data_type) { type_ = data_type; }
  Shape GetShape() const { return shape_; }
  DataType GetDataType() const { return type_; }

 private:
  Shape shape_;
  DataType type_ = DT_UNDEFINED;
};

class InferenceContext;
using InferenceContextPtr = std::shared_ptr<InferenceContext>;

class InferenceContext {
 public:
  static std::unique_ptr<InferenceContext> Create() {
    return std::unique_ptr<InferenceContext>(new InferenceContext());
  }

  void SetInputHandleShapesAndTypes(std::vector<std::vector<ShapeAndType>>&& shapes) { inputs_ = std::move(shapes); }
  const std::vector<std::vector<ShapeAndType>>& GetInputHandleShapesAndTypes() const { return inputs_; }
  void SetOutputHandleShapesAndTypes(const std::vector<std::vector<ShapeAndType>>& shapes) { outputs_ = shapes; }
  const std::vector<std::vector<ShapeAndType>>& GetOutputHandleShapesAndTypes() const { return outputs_; }
  void SetMarks(const std::vector<AscendString>& marks) { marks_ = marks; }
  void GetMarks(std::vector<AscendString>& marks) const { marks = marks_; }

 private:
  InferenceContext() = default;
  std::vector<std::vector<ShapeAndType>> inputs_;
  std::vector<std::vector<ShapeAndType>> outputs_;
  std::vector<AscendString> marks_;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_INFERENCE_CONTEXT_H_
