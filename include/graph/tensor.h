/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, descriptions of tensors, and tensors. */
#ifndef REPRISE_GRAPH_TENSOR_H_
#define REPRISE_GRAPH_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/types.h"

#pragma GCC visibility push(default)

namespace ge {

/* A value: changing a copy leaves the original as it is. */
class Shape {
 public:
  Shape();  // of a scalar
  explicit Shape(const std::vector<int64_t>& dims);
  ~Shape() = default;

  size_t GetDimNum() const;  // 0 where the rank is unknown
  /* GRAPH_PARAM_OUT_OF_RANGE for an index that there is not. */
  graphStatus SetDim(size_t idx, int64_t value);
  std::vector<int64_t> GetDims() const;
  int64_t GetDim(size_t idx) const;  // 0 for an index that there is not
  /* The product of the dims; -1 where one is unknown, 0 of a scalar. */
  int64_t GetShapeSize() const;

 private:
  friend class Tensor;
  friend class TensorDesc;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/* A value. */
class TensorDesc {
 public:
  TensorDesc();  // a scalar of DT_FLOAT in FORMAT_ND, in host memory
  explicit TensorDesc(Shape shape, Format format = FORMAT_ND, DataType dt = DT_FLOAT);
  TensorDesc(const TensorDesc& desc);
  TensorDesc(TensorDesc&& desc);  // NOLINT: the name of one that throws
  TensorDesc& operator=(const TensorDesc& desc);
  TensorDesc& operator=(TensorDesc&& desc);  // NOLINT
  ~TensorDesc() = default;

  void Update(const Shape& shape, Format format = FORMAT_ND, DataType dt = DT_FLOAT);
  Shape GetShape() const;
  void SetShape(const Shape& shape);
  /* The shape becomes [-2]: not even the rank is known. */
  graphStatus SetUnknownDimNumShape();
  /* (least, most) of each dim; -1 for a most without a limit. */
  graphStatus SetShapeRange(const std::vector<std::pair<int64_t, int64_t>>& range);
  graphStatus GetShapeRange(std::vector<std::pair<int64_t, int64_t>>& range) const;
  Format GetFormat() const;
  void SetFormat(Format format);
  Shape GetOriginShape() const;  // that of the shape, until it is set
  void SetOriginShape(const Shape& origin_shape);
  Format GetOriginFormat() const;  // the format, until it is set
  void SetOriginFormat(Format origin_format);
  DataType GetDataType() const;
  void SetDataType(DataType dt);
  graphStatus GetName(AscendString& name);
  graphStatus GetName(AscendString& name) const;
  void SetName(const char* name);
  int64_t GetSize() const;
  void SetSize(int64_t size);
  int64_t GetRealDimCnt() const;
  void SetRealDimCnt(int64_t real_dim_count);
  Placement GetPlacement() const;
  void SetPlacement(Placement placement);
  void SetConstData(std::unique_ptr<uint8_t[]> const_data_buffer, const size_t& const_data_len);
  /* False where there is none. */
  bool GetConstData(uint8_t** const_data_buffer, size_t& const_data_len) const;
  graphStatus SetExpandDimsRule(const AscendString& expand_dims_rule);
  graphStatus GetExpandDimsRule(AscendString& expand_dims_rule) const;
  void SetReuseInputIndex(const uint32_t idx);
  bool GetReuseInputIndex(uint32_t& idx) const;  // false where it is not set

  std::string GetName() const {
    AscendString name;
    (void)GetName(name);
    return name.GetString();
  }
  void SetName(const std::string& name) { SetName(name.c_str()); }

 private:
  friend class Tensor;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/* Copies share description and data. */
class Tensor {
 public:
  using DeleteFunc = std::function<void(uint8_t*)>;

  Tensor();
  explicit Tensor(const TensorDesc& tensor_desc);
  Tensor(const TensorDesc& tensor_desc, const std::vector<uint8_t>& data);
  Tensor(const TensorDesc& tensor_desc, const uint8_t* data, size_t size);
  Tensor(TensorDesc&& tensor_desc, std::vector<uint8_t>&& data);
  ~Tensor() = default;

  TensorDesc GetTensorDesc() const;
  graphStatus SetTensorDesc(const TensorDesc& tensor_desc);

  const uint8_t* GetData() const;
  uint8_t* GetData();
  size_t GetSize() const;
  /* Hands the memory to the caller, with what frees it. */
  std::unique_ptr<uint8_t[], DeleteFunc> ResetData();

  graphStatus SetData(std::vector<uint8_t>&& data);
  graphStatus SetData(const std::vector<uint8_t>& data);
  graphStatus SetData(const uint8_t* data, size_t size);
  /* Texts: {offset from the start, length}, both of 64 bits, of each; then the texts, each with a zero behind it. */
  graphStatus SetData(const char* data);
  graphStatus SetData(const std::vector<AscendString>& data);
  /* The tensor owns the memory from here on, and `deleter_func` frees it. */
  graphStatus SetData(uint8_t* data, size_t size, const DeleteFunc& deleter_func);
  graphStatus ResetData(uint8_t* data, size_t size, const DeleteFunc& deleter_func);

  /* GRAPH_FAILED where the number of bytes does not fit shape and type. */
  graphStatus IsValid();
  /* With a copy of the data. */
  Tensor Clone() const;

  DataType GetDataType() const;
  graphStatus SetDataType(const DataType& dtype);
  Format GetFormat() const;
  graphStatus SetFormat(const Format& format);
  Format GetOriginFormat() const;
  graphStatus SetOriginFormat(const Format& format);
  Placement GetPlacement() const;
  graphStatus SetPlacement(const Placement& placement);
  graphStatus SetExpandDimsRule(const AscendString& expand_dims_rule);
  graphStatus GetExpandDimsRule(AscendString& expand_dims_rule) const;
  size_t GetShapeDimNum() const;
  /* Dims that are added are 0. */
  graphStatus SetShapeDimNum(size_t dim_num);
  int64_t GetShapeDim(size_t idx) const;  // 0 for an index that the shape does not have
  graphStatus SetShapeDim(size_t idx, int64_t dim_value);
  size_t GetOriginShapeDimNum() const;
  graphStatus SetOriginShapeDimNum(size_t dim_num);
  int64_t GetOriginShapeDim(size_t idx) const;
  graphStatus SetOriginShapeDim(size_t idx, int64_t dim_value);

  graphStatus SetData(const std::string& data) { return SetData(data.c_str()); }
  graphStatus SetData(const std::vector<std::string>& data) {
    std::vector<AscendString> texts;
    for (const std::string& text : data) texts.emplace_back(text.data(), text.size());
    return SetData(texts);
  }

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_TENSOR_H_
