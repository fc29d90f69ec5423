/* SPDX-License-Identifier: Apache-2.0 */
/* A value of an attribute of any kind, and attributes with a name. */
#ifndef REPRISE_GRAPH_ATTR_VALUE_H_
#define REPRISE_GRAPH_ATTR_VALUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/tensor.h"
#include "graph/types.h"

#pragma GCC visibility push(default)

namespace ge {

class NamedAttrs;
class GNode;
class Graph;
class Operator;
using OpBytes = std::vector<uint8_t>;

/* A value; copies are independent. Getters answer GRAPH_FAILED, and leave `value` alone, where the kind is another. */
class AttrValue {
 public:
  AttrValue();
  AttrValue(const AttrValue& other);
  AttrValue& operator=(const AttrValue& other);
  ~AttrValue() = default;

  graphStatus SetAttrValue(const int64_t& value);
  graphStatus SetAttrValue(const float& value);
  graphStatus SetAttrValue(const bool& value);
  graphStatus SetAttrValue(const AscendString& value);
  graphStatus SetAttrValue(const DataType& value);
  graphStatus SetAttrValue(const Tensor& value);
  graphStatus SetAttrValue(const TensorDesc& value);
  graphStatus SetAttrValue(const NamedAttrs& value);
  graphStatus SetAttrValue(const OpBytes& value);
  graphStatus SetAttrValue(const std::vector<int64_t>& value);
  graphStatus SetAttrValue(const std::vector<float>& value);
  graphStatus SetAttrValue(const std::vector<bool>& value);
  graphStatus SetAttrValue(const std::vector<AscendString>& value);
  graphStatus SetAttrValue(const std::vector<DataType>& value);
  graphStatus SetAttrValue(const std::vector<Tensor>& value);
  graphStatus SetAttrValue(const std::vector<NamedAttrs>& value);
  graphStatus SetAttrValue(const std::vector<std::vector<int64_t>>& value);
  graphStatus SetAttrValue(const std::vector<std::vector<float>>& value);

  graphStatus GetAttrValue(int64_t& value) const;
  graphStatus GetAttrValue(float& value) const;
  graphStatus GetAttrValue(bool& value) const;
  graphStatus GetAttrValue(AscendString& value) const;
  graphStatus GetAttrValue(DataType& value) const;
  graphStatus GetAttrValue(Tensor& value) const;
  graphStatus GetAttrValue(TensorDesc& value) const;
  graphStatus GetAttrValue(NamedAttrs& value) const;
  graphStatus GetAttrValue(OpBytes& value) const;
  graphStatus GetAttrValue(std::vector<int64_t>& value) const;
  graphStatus GetAttrValue(std::vector<float>& value) const;
  graphStatus GetAttrValue(std::vector<bool>& value) const;
  graphStatus GetAttrValue(std::vector<AscendString>& value) const;
  graphStatus GetAttrValue(std::vector<DataType>& value) const;
  graphStatus GetAttrValue(std::vector<Tensor>& value) const;
  graphStatus GetAttrValue(std::vector<NamedAttrs>& value) const;
  graphStatus GetAttrValue(std::vector<std::vector<int64_t>>& value) const;
  graphStatus GetAttrValue(std::vector<std::vector<float>>& value) const;

  graphStatus GetValue(AscendString& value) { return GetAttrValue(value); }

 private:
  friend class GNode;
  friend class Graph;
  friend class NamedAttrs;
  friend class Operator;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/* A name and attributes; copies are independent. */
class NamedAttrs {
 public:
  NamedAttrs();
  NamedAttrs(const NamedAttrs& other);
  NamedAttrs& operator=(const NamedAttrs& other);
  ~NamedAttrs() = default;

  void SetName(const AscendString& name);
  graphStatus GetName(AscendString& name) const;
  graphStatus SetAttr(const AscendString& name, const AttrValue& value);
  /* GRAPH_FAILED where there is none of this name. */
  graphStatus GetAttr(const AscendString& name, AttrValue& value) const;
  std::vector<AscendString> GetAttrNames() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_ATTR_VALUE_H_
