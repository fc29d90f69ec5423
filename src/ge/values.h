// SPDX-License-Identifier: Apache-2.0
//
// Classes of namespace ge as callers see them: value classes hold one pointer to what they share with their copies, an
// Operator also the pointer to its table of virtual functions. libgraph.so defines them, libge_runner.so takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace ge {

using graphStatus = uint32_t;
constexpr graphStatus GRAPH_SUCCESS = 0;
constexpr graphStatus GRAPH_FAILED = 0xFFFFFFFF;
constexpr graphStatus GRAPH_NULL_PTR = 50331538;
constexpr graphStatus GRAPH_PARAM_OUT_OF_RANGE = 50331644;
constexpr graphStatus GRAPH_PARAM_INVALID = 50331649;

enum DataType : int { DT_FLOAT = 0, DT_UNDEFINED = 28, DT_MAX = 42 };
enum Format : int { FORMAT_NCHW = 0, FORMAT_ND = 2, FORMAT_RESERVED = 40 };
enum Placement : int { kPlacementHost = 0, kPlacementDevice = 1 };

class AscendString {
 public:
  AscendString() = default;
  AscendString(const char* text);  // NOLINT: callers rely on the conversion
  /// "" for an empty one, never null.
  const char* GetString() const;
  bool operator<(const AscendString& other) const;
  bool operator==(const AscendString& other) const;

 private:
  std::shared_ptr<std::string> text_;
};

using AscendStringMap = std::map<AscendString, AscendString>;

class Shape {
 public:
  Shape();
  explicit Shape(const std::vector<int64_t>& dims);
  std::vector<int64_t> GetDims() const;

 private:
  friend class Tensor;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class TensorDesc {
 public:
  /// A scalar of DT_FLOAT in FORMAT_ND, in host memory.
  TensorDesc();
  DataType GetDataType() const;
  Format GetFormat() const;
  Placement GetPlacement() const;
  Shape GetShape() const;
  void SetDataType(DataType type);
  void SetFormat(Format format);
  void SetOriginFormat(Format format);
  void SetOriginShape(const Shape& shape);
  void SetPlacement(Placement placement);

 private:
  friend class Tensor;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class Tensor {
 public:
  using DeleteFunc = std::function<void(uint8_t*)>;

  Tensor();
  uint8_t* GetData();
  const uint8_t* GetData() const;
  DataType GetDataType() const;
  Format GetFormat() const;
  Placement GetPlacement() const;
  TensorDesc GetTensorDesc() const;
  size_t GetShapeDimNum() const;
  size_t GetOriginShapeDimNum() const;
  /// 0 for an index that the shape does not have.
  int64_t GetShapeDim(size_t index) const;

  graphStatus SetData(uint8_t* data, size_t size, const DeleteFunc& deleter);
  graphStatus ResetData(uint8_t* data, size_t size, const DeleteFunc& deleter);
  /// Hands the memory to the caller, with what frees it.
  std::unique_ptr<uint8_t[], DeleteFunc> ResetData();
  graphStatus SetTensorDesc(const TensorDesc& desc);
  graphStatus SetDataType(const DataType& type);
  graphStatus SetFormat(const Format& format);
  graphStatus SetPlacement(const Placement& placement);
  /// Dimensions that are added are 0.
  graphStatus SetShapeDimNum(size_t count);
  graphStatus SetShapeDim(size_t index, int64_t value);
  graphStatus SetOriginShapeDimNum(size_t count);
  graphStatus SetOriginShapeDim(size_t index, int64_t value);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class GNode {
 public:
  GNode();
  graphStatus GetType(AscendString& type) const;

 private:
  friend class Graph;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class Graph {
 public:
  explicit Graph(const char* name);
  graphStatus CopyFrom(const Graph& other);
  /// The nodes of the root graph, in the order of the model.
  std::vector<GNode> GetAllNodes() const;
  graphStatus LoadFromSerializedModelArray(const void* model, size_t bytes);
  graphStatus SaveToFile(const char* path) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class Operator {
 public:
  Operator();
  virtual ~Operator();
  graphStatus GetAllIrAttrNamesAndTypes(AscendStringMap& attributes) const;
  graphStatus UpdateInputDesc(const char* input, const TensorDesc& desc);

 private:
  std::shared_ptr<void> impl_;
};

class OperatorFactory {
 public:
  static Operator CreateOperator(const char* name, const char* type);
  static bool IsExistOp(const char* type);
};

/// "NCHW" of FORMAT_NCHW; "RESERVED" for a number that is no format.
const char* GetFormatName(Format format);

}  // namespace ge

#pragma GCC visibility pop
