/* SPDX-License-Identifier: Apache-2.0 */
/* An operator of a graph that is being built: its inputs, outputs and attributes. */
#ifndef REPRISE_GRAPH_OPERATOR_H_
#define REPRISE_GRAPH_OPERATOR_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/attr_value.h"
#include "graph/ge_error_codes.h"
#include "graph/inference_context.h"
#include "graph/tensor.h"
#include "graph/types.h"

#pragma GCC visibility push(default)

namespace ge {

class Graph;
class Operator;
class OperatorFactory;
struct GraphAccess;

using SubgraphBuilder = std::function<Graph()>;
using InferShapeFunc = std::function<graphStatus(Operator& op)>;
using VerifyFunc = std::function<graphStatus(Operator& op)>;
using InferFormatFunc = std::function<graphStatus(Operator& op)>;

/* Copies are the same operator. Functions that give an Operator& back leave it as it is where their arguments are
   wrong, and set the message of the calling thread. Inputs and outputs are known by name or by index, in the order of
   the prototype; the tensors of a list `x` are called x0, x1 … */
class Operator {
 public:
  Operator();                           // empty: belongs to no type
  explicit Operator(const char* type);  // the name is the type, with a number
  Operator(const char* name, const char* type);
  Operator(const AscendString& name, const AscendString& type);
  explicit Operator(const std::string& type) : Operator(type.c_str()) {}
  Operator(const std::string& name, const std::string& type) : Operator(name.c_str(), type.c_str()) {}
  Operator(const Operator& other);
  Operator(Operator&& other) noexcept;
  Operator& operator=(const Operator& other);
  Operator& operator=(Operator&& other) noexcept;
  virtual ~Operator();

  bool IsEmpty() const;
  graphStatus GetName(AscendString& name) const;
  graphStatus GetOpType(AscendString& type) const;
  std::string GetName() const {
    AscendString name;
    (void)GetName(name);
    return name.GetString();
  }
  std::string GetOpType() const {
    AscendString type;
    (void)GetOpType(type);
    return type.GetString();
  }

  /* Edges. Without a name or index of an output, the source has to have one output. */
  Operator& SetInput(const char* dst_name, const Operator& src_oprt);
  Operator& SetInput(const char* dst_name, const Operator& src_oprt, const char* name);
  Operator& SetInput(const char* dst_name, const Operator& src_oprt, const AscendString& name);
  Operator& SetInput(const char* dst_name, const Operator& src_oprt, uint32_t index);
  Operator& SetInput(uint32_t dst_index, const Operator& src_oprt, uint32_t src_index);
  Operator& SetInput(uint32_t dst_index, const Operator& src_oprt, const char* name);
  Operator& SetInput(const std::string& dst_name, const Operator& src_oprt) {
    return SetInput(dst_name.c_str(), src_oprt);
  }
  Operator& SetInput(const std::string& dst_name, const Operator& src_oprt, const std::string& name) {
    return SetInput(dst_name.c_str(), src_oprt, name.c_str());
  }
  Operator& SetInput(const std::string& dst_name, const Operator& src_oprt, uint32_t index) {
    return SetInput(dst_name.c_str(), src_oprt, index);
  }
  /* `src_oprt` comes first, although no value goes between the two. */
  Operator& AddControlInput(const Operator& src_oprt);
  /* Takes all edges from and to this operator away. */
  void BreakConnect() const;

  /* The bytes of an input that comes from a constant; GRAPH_FAILED for others. */
  graphStatus GetInputConstData(const char* dst_name, Tensor& data) const;
  graphStatus GetInputConstData(const std::string& dst_name, Tensor& data) const {
    return GetInputConstData(dst_name.c_str(), data);
  }

  size_t GetInputsSize() const;
  size_t GetOutputsSize() const;
  TensorDesc GetInputDesc(uint32_t index) const;
  TensorDesc GetInputDescByName(const char* name) const;
  TensorDesc GetOutputDesc(uint32_t index) const;
  TensorDesc GetOutputDescByName(const char* name) const;
  TensorDesc GetInputDesc(const std::string& name) const { return GetInputDescByName(name.c_str()); }
  TensorDesc GetOutputDesc(const std::string& name) const { return GetOutputDescByName(name.c_str()); }
  graphStatus TryGetInputDesc(const char* name, TensorDesc& tensor_desc) const;
  graphStatus TryGetInputDesc(const std::string& name, TensorDesc& tensor_desc) const {
    return TryGetInputDesc(name.c_str(), tensor_desc);
  }
  graphStatus UpdateInputDesc(const char* name, const TensorDesc& tensor_desc);
  graphStatus UpdateInputDesc(uint32_t index, const TensorDesc& tensor_desc);
  graphStatus UpdateOutputDesc(const char* name, const TensorDesc& tensor_desc);
  graphStatus UpdateOutputDesc(uint32_t index, const TensorDesc& tensor_desc);
  graphStatus UpdateInputDesc(const std::string& name, const TensorDesc& tensor_desc) {
    return UpdateInputDesc(name.c_str(), tensor_desc);
  }
  graphStatus UpdateOutputDesc(const std::string& name, const TensorDesc& tensor_desc) {
    return UpdateOutputDesc(name.c_str(), tensor_desc);
  }

  /* Lists of tensors. */
  int GetDynamicInputNum(const char* name) const;
  int GetDynamicOutputNum(const char* name) const;
  TensorDesc GetDynamicInputDesc(const char* name, uint32_t index) const;
  TensorDesc GetDynamicOutputDesc(const char* name, uint32_t index) const;
  graphStatus UpdateDynamicInputDesc(const char* name, uint32_t index, const TensorDesc& tensor_desc);
  graphStatus UpdateDynamicOutputDesc(const char* name, uint32_t index, const TensorDesc& tensor_desc);
  int GetDynamicInputNum(const std::string& name) const { return GetDynamicInputNum(name.c_str()); }
  int GetDynamicOutputNum(const std::string& name) const { return GetDynamicOutputNum(name.c_str()); }
  TensorDesc GetDynamicInputDesc(const std::string& name, uint32_t index) const {
    return GetDynamicInputDesc(name.c_str(), index);
  }
  TensorDesc GetDynamicOutputDesc(const std::string& name, uint32_t index) const {
    return GetDynamicOutputDesc(name.c_str(), index);
  }
  graphStatus UpdateDynamicInputDesc(const std::string& name, uint32_t index, const TensorDesc& tensor_desc) {
    return UpdateDynamicInputDesc(name.c_str(), index, tensor_desc);
  }
  graphStatus UpdateDynamicOutputDesc(const std::string& name, uint32_t index, const TensorDesc& tensor_desc) {
    return UpdateDynamicOutputDesc(name.c_str(), index, tensor_desc);
  }
  /* Makes the list `name` of `num` tensors; once for each list. */
  void DynamicInputRegister(const char* name, const uint32_t num, bool is_push_back = true);
  void DynamicOutputRegister(const char* name, const uint32_t num, bool is_push_back = true);
  Operator& SetDynamicInput(const char* name, uint32_t index, const Operator& src_oprt);
  Operator& SetDynamicInput(const char* name, uint32_t index, const Operator& src_oprt, const char* src_name);

  /* Attributes. Getters answer GRAPH_FAILED where there is none of the name, or it has another kind. */
  Operator& SetAttr(const char* name, const AttrValue& attr_value);
  Operator& SetAttr(const char* name, AttrValue&& attr_value);
  graphStatus GetAttr(const char* name, AttrValue& attr_value) const;
  Operator& SetAttr(const char* name, const char* attr_value);
  Operator& SetAttr(const char* name, int64_t attr_value);
  Operator& SetAttr(const char* name, int32_t attr_value);
  Operator& SetAttr(const char* name, uint32_t attr_value);
  Operator& SetAttr(const char* name, float attr_value);
  Operator& SetAttr(const char* name, bool attr_value);
  Operator& SetAttr(const char* name, DataType attr_value);
  Operator& SetAttr(const char* name, const std::vector<int64_t>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<int32_t>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<uint32_t>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<float>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<bool>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<DataType>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<std::vector<int64_t>>& attr_value);
  Operator& SetAttr(const char* name, const std::vector<std::vector<float>>& attr_value);
  Operator& SetAttr(const char* name, const OpBytes& attr_value);
  Operator& SetAttr(const char* name, const Tensor& attr_value);
  Operator& SetAttr(const char* name, const std::vector<Tensor>& attr_value);
  Operator& SetAttr(const char* name, const NamedAttrs& attr_value);
  Operator& SetAttr(const char* name, const std::vector<NamedAttrs>& attr_value);
  Operator& SetAttr(const char* name, const AscendString& attr_value);
  Operator& SetAttr(const char* name, const std::vector<AscendString>& attr_value);
  Operator& SetAttr(const char* name, std::initializer_list<int64_t>&& attr_value);
  graphStatus GetAttr(const char* name, int64_t& attr_value) const;
  graphStatus GetAttr(const char* name, int32_t& attr_value) const;
  graphStatus GetAttr(const char* name, uint32_t& attr_value) const;
  graphStatus GetAttr(const char* name, float& attr_value) const;
  graphStatus GetAttr(const char* name, bool& attr_value) const;
  graphStatus GetAttr(const char* name, DataType& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<int64_t>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<int32_t>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<uint32_t>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<float>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<bool>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<DataType>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<std::vector<int64_t>>& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<std::vector<float>>& attr_value) const;
  graphStatus GetAttr(const char* name, OpBytes& attr_value) const;
  graphStatus GetAttr(const char* name, Tensor& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<Tensor>& attr_value) const;
  graphStatus GetAttr(const char* name, NamedAttrs& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<NamedAttrs>& attr_value) const;
  graphStatus GetAttr(const char* name, AscendString& attr_value) const;
  graphStatus GetAttr(const char* name, std::vector<AscendString>& attr_value) const;
  graphStatus GetAttr(const char* name, std::string& attr_value) const {
    AscendString text;
    const graphStatus status = GetAttr(name, text);
    if (status == GRAPH_SUCCESS) attr_value.assign(text.GetString(), text.GetLength());
    return status;
  }
  graphStatus GetAttr(const char* name, std::vector<std::string>& attr_value) const {
    std::vector<AscendString> texts;
    const graphStatus status = GetAttr(name, texts);
    if (status != GRAPH_SUCCESS) return status;
    attr_value.clear();
    for (const AscendString& text : texts) attr_value.emplace_back(text.GetString(), text.GetLength());
    return status;
  }
  Operator& SetAttr(const char* name, const std::string& attr_value) {
    return SetAttr(name, AscendString(attr_value.data(), attr_value.size()));
  }
  Operator& SetAttr(const char* name, const std::vector<std::string>& attr_value) {
    std::vector<AscendString> texts;
    for (const std::string& text : attr_value) texts.emplace_back(text.data(), text.size());
    return SetAttr(name, texts);
  }
  Operator& SetAttr(const std::string& name, int64_t attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, int32_t attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, uint32_t attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, float attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, bool attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, DataType attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, const char* attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, const std::vector<int64_t>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<int32_t>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<uint32_t>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<float>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<bool>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<DataType>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<std::vector<int64_t>>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<std::vector<float>>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const OpBytes& attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, const Tensor& attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, const std::vector<Tensor>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const NamedAttrs& attr_value) { return SetAttr(name.c_str(), attr_value); }
  Operator& SetAttr(const std::string& name, const std::vector<NamedAttrs>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const AscendString& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<AscendString>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::string& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  Operator& SetAttr(const std::string& name, const std::vector<std::string>& attr_value) {
    return SetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, int64_t& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, int32_t& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, uint32_t& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, float& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, bool& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, DataType& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, std::vector<int64_t>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<int32_t>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<uint32_t>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<float>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<bool>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<DataType>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<std::vector<int64_t>>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<std::vector<float>>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, OpBytes& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, Tensor& attr_value) const { return GetAttr(name.c_str(), attr_value); }
  graphStatus GetAttr(const std::string& name, std::vector<Tensor>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, NamedAttrs& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<NamedAttrs>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, AscendString& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<AscendString>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::string& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  graphStatus GetAttr(const std::string& name, std::vector<std::string>& attr_value) const {
    return GetAttr(name.c_str(), attr_value);
  }
  /* Of the attributes of the prototype: "VT_INT" … by name. */
  graphStatus GetAllIrAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const;
  graphStatus GetAllAttrNamesAndTypes(std::map<AscendString, AscendString>& attr_name_types) const;

  /* Works out types and shapes of the outputs from those of the inputs. */
  graphStatus InferShapeAndType();
  /* GRAPH_FAILED where an attribute or an input that the prototype asks for is missing, or has the wrong kind. */
  graphStatus VerifyAllAttr(bool disable_common_verifier = false);
  void SetInferenceContext(const InferenceContextPtr& inference_context);
  InferenceContextPtr GetInferenceContext() const;

  /* Graphs that If, While and others call. */
  size_t GetSubgraphNamesCount() const;
  graphStatus GetSubgraphNames(std::vector<AscendString>& names) const;
  void SetSubgraphBuilder(const char* ir_name, uint32_t index, const SubgraphBuilder& builder);
  SubgraphBuilder GetSubgraphBuilder(const char* name) const;
  SubgraphBuilder GetDynamicSubgraphBuilder(const char* ir_name, uint32_t index) const;
  Graph GetSubgraph(const char* name) const;
  Graph GetDynamicSubgraph(const char* ir_name, uint32_t index) const;
  void SetSubgraphBuilder(const std::string& ir_name, uint32_t index, const SubgraphBuilder& builder) {
    SetSubgraphBuilder(ir_name.c_str(), index, builder);
  }
  /* Room for `num` graphs; for prototypes with a list of them. */
  void SubgraphCountRegister(const char* ir_name, uint32_t count);

  struct Impl;  // src/ge/operator_impl.h

 protected:
  /* For prototypes, see operator_reg.h. */
  void InputRegister(const char* name);
  void OptionalInputRegister(const char* name);
  void OutputRegister(const char* name);
  void SubgraphRegister(const char* ir_name, bool dynamic);
  void DynamicInputDeclare(const char* name);
  void DynamicOutputDeclare(const char* name);
  void RequiredAttrRegister(const char* name, const char* kind);
  template <class T>
  void AttrRegister(const char* name, const char* kind, const T& value) {
    AttrDeclare(name, kind);
    SetAttr(name, value);
  }
  void AttrDeclare(const char* name, const char* kind);
  void InferFuncRegister(const InferShapeFunc& func);
  void VerifierFuncRegister(const VerifyFunc& func);

 private:
  friend class Graph;
  friend class OperatorFactory;
  friend struct GraphAccess;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_OPERATOR_H_
