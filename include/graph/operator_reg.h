/* SPDX-License-Identifier: Apache-2.0 */
/* Prototypes of operators. A program declares one, in namespace ge, by

       REG_OP(Scale)
           .INPUT(x, TensorType::ALL())
           .OUTPUT(y, TensorType::ALL())
           .ATTR(factor, Float, 1.0)
           .OP_END_FACTORY_REG(Scale)

   which makes the class ge::op::Scale with set_input_x, set_attr_factor …, and makes the type known to OperatorFactory.
   What is inferred for its outputs is said by COMMON_INFER_FUNC_REG. The classes of the library's own types are in
   op_proto/ and made of the same macros. */
#ifndef REPRISE_GRAPH_OPERATOR_REG_H_
#define REPRISE_GRAPH_OPERATOR_REG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/operator.h"
#include "graph/operator_factory.h"
#include "graph/tensor.h"
#include "graph/types.h"

namespace ge {
namespace attr_kind {

struct String : AscendString {
  String() : AscendString("") {}
  String(const char* text) : AscendString(text) {}                             // NOLINT: as texts are written
  String(const std::string& text) : AscendString(text.data(), text.size()) {}  // NOLINT
  String(const AscendString& text) : AscendString(text.GetString(), text.GetLength()) {}  // NOLINT
  operator std::string() const { return std::string(GetString(), GetLength()); }          // NOLINT
};
using Int = int64_t;
using Float = float;
using Bool = bool;
using Type = DataType;
using Tensor = ::ge::Tensor;
using NamedAttrs = ::ge::NamedAttrs;
using Bytes = OpBytes;
using ListInt = std::vector<int64_t>;
using ListFloat = std::vector<float>;
using ListBool = std::vector<bool>;
using ListString = std::vector<std::string>;
using ListType = std::vector<DataType>;
using ListTensor = std::vector<::ge::Tensor>;
using ListNamedAttrs = std::vector<::ge::NamedAttrs>;
using ListListInt = std::vector<std::vector<int64_t>>;
using ListListFloat = std::vector<std::vector<float>>;

}  // namespace attr_kind
}  // namespace ge

/* ---- The functions of a class ---- */

#define REPRISE_OP_CONSTRUCTORS(Class)                                        \
  Class() : Class(static_cast<const char*>(nullptr)) {}                       \
  explicit Class(const ::ge::AscendString& name) : Class(name.GetString()) {} \
  explicit Class(const std::string& name) : Class(name.c_str()) {}

#define REPRISE_OP_INPUT(Class, x)                                                                                 \
  Class& set_input_##x(const ::ge::Operator& v) {                                                                  \
    SetInput(#x, v);                                                                                               \
    return *this;                                                                                                  \
  }                                                                                                                \
  Class& set_input_##x(const ::ge::Operator& v, uint32_t index) {                                                  \
    SetInput(#x, v, index);                                                                                        \
    return *this;                                                                                                  \
  }                                                                                                                \
  Class& set_input_##x(const ::ge::Operator& v, const char* output) { return set_input_##x##_by_name(v, output); } \
  Class& set_input_##x(const ::ge::Operator& v, const std::string& output) {                                       \
    return set_input_##x##_by_name(v, output.c_str());                                                             \
  }                                                                                                                \
  Class& set_input_##x##_by_name(const ::ge::Operator& v, const char* output) {                                    \
    SetInput(#x, v, output);                                                                                       \
    return *this;                                                                                                  \
  }                                                                                                                \
  ::ge::TensorDesc get_input_desc_##x() const { return GetInputDescByName(#x); }                                   \
  ::ge::graphStatus update_input_desc_##x(const ::ge::TensorDesc& desc) { return UpdateInputDesc(#x, desc); }

#define REPRISE_OP_OUTPUT(Class, y)                                                \
  ::ge::TensorDesc get_output_desc_##y() const { return GetOutputDescByName(#y); } \
  ::ge::graphStatus update_output_desc_##y(const ::ge::TensorDesc& desc) { return UpdateOutputDesc(#y, desc); }

#define REPRISE_OP_DYNAMIC_INPUT(Class, x)                                                                     \
  Class& create_dynamic_input_##x(uint32_t num, bool is_push_back = true) {                                    \
    DynamicInputRegister(#x, num, is_push_back);                                                               \
    return *this;                                                                                              \
  }                                                                                                            \
  Class& set_dynamic_input_##x(uint32_t index, const ::ge::Operator& v) {                                      \
    SetDynamicInput(#x, index, v);                                                                             \
    return *this;                                                                                              \
  }                                                                                                            \
  Class& set_dynamic_input_##x(uint32_t index, const ::ge::Operator& v, const char* output) {                  \
    SetDynamicInput(#x, index, v, output);                                                                     \
    return *this;                                                                                              \
  }                                                                                                            \
  Class& set_dynamic_input_##x(uint32_t index, const ::ge::Operator& v, const std::string& output) {           \
    return set_dynamic_input_##x(index, v, output.c_str());                                                    \
  }                                                                                                            \
  ::ge::TensorDesc get_dynamic_input_desc_##x(uint32_t index) const { return GetDynamicInputDesc(#x, index); } \
  ::ge::graphStatus update_dynamic_input_desc_##x(uint32_t index, const ::ge::TensorDesc& desc) {              \
    return UpdateDynamicInputDesc(#x, index, desc);                                                            \
  }

#define REPRISE_OP_DYNAMIC_OUTPUT(Class, y)                                                                      \
  Class& create_dynamic_output_##y(uint32_t num, bool is_push_back = true) {                                     \
    DynamicOutputRegister(#y, num, is_push_back);                                                                \
    return *this;                                                                                                \
  }                                                                                                              \
  ::ge::TensorDesc get_dynamic_output_desc_##y(uint32_t index) const { return GetDynamicOutputDesc(#y, index); } \
  ::ge::graphStatus update_dynamic_output_desc_##y(uint32_t index, const ::ge::TensorDesc& desc) {               \
    return UpdateDynamicOutputDesc(#y, index, desc);                                                             \
  }

#define REPRISE_OP_ATTRIBUTE(Class, a, Kind)            \
  ::ge::attr_kind::Kind get_attr_##a() const {          \
    ::ge::attr_kind::Kind value{};                      \
    (void)GetAttr(#a, value);                           \
    return value;                                       \
  }                                                     \
  Class& set_attr_##a(const ::ge::attr_kind::Kind& v) { \
    SetAttr(#a, v);                                     \
    return *this;                                       \
  }

#define REPRISE_OP_SUBGRAPH(Class, f)                                                       \
  Class& set_subgraph_builder_##f(const ::ge::SubgraphBuilder& v) {                         \
    SetSubgraphBuilder(#f, 0, v);                                                           \
    return *this;                                                                           \
  }                                                                                         \
  ::ge::SubgraphBuilder get_subgraph_builder_##f() const { return GetSubgraphBuilder(#f); } \
  ::ge::Graph get_subgraph_##f() const { return GetSubgraph(#f); }

#define REPRISE_OP_DYNAMIC_SUBGRAPH(Class, f)                                               \
  Class& create_dynamic_subgraph_##f(uint32_t num) {                                        \
    SubgraphCountRegister(#f, num);                                                         \
    return *this;                                                                           \
  }                                                                                         \
  Class& set_dynamic_subgraph_builder_##f(uint32_t index, const ::ge::SubgraphBuilder& v) { \
    SetSubgraphBuilder(#f, index, v);                                                       \
    return *this;                                                                           \
  }                                                                                         \
  ::ge::SubgraphBuilder get_dynamic_subgraph_builder_##f(uint32_t index) const {            \
    return GetDynamicSubgraphBuilder(#f, index);                                            \
  }                                                                                         \
  ::ge::Graph get_dynamic_subgraph_##f(uint32_t index) const { return GetDynamicSubgraph(#f, index); }

/* ---- Declaring a prototype ----

   Each link of the chain ends the function that the link before it began, and begins the next one, which the first one
   calls: so the constructor runs through all of them. */

#define REG_OP(Class)                                                               \
  namespace op {                                                                    \
  class Class : public ::ge::Operator {                                             \
    using _THIS_TYPE = Class;                                                       \
                                                                                    \
   public:                                                                          \
    explicit Class(const char* name) : Operator(name, #Class) { RepriseDeclare(); } \
    explicit Class(const ::ge::Operator& same) : Operator(same) {}                  \
    REPRISE_OP_CONSTRUCTORS(Class)                                                  \
                                                                                    \
   private:                                                                         \
    _THIS_TYPE& RepriseSelf() { return *this; }                                     \
    void RepriseThen() {}                                                           \
    void RepriseDeclare() {                                                         \
      RepriseSelf()

#define REPRISE_OP_NEXT(Declare, functions) \
  RepriseThen();                            \
  Declare();                                \
  }                                         \
                                            \
 public:                                    \
  functions                                 \
                                            \
      private : void                        \
                Declare() {
#define INPUT(x, ...)                                                \
  REPRISE_OP_NEXT(RepriseInput_##x, REPRISE_OP_INPUT(_THIS_TYPE, x)) \
  InputRegister(#x);                                                 \
  RepriseSelf()
#define OPTIONAL_INPUT(x, ...)                                       \
  REPRISE_OP_NEXT(RepriseInput_##x, REPRISE_OP_INPUT(_THIS_TYPE, x)) \
  OptionalInputRegister(#x);                                         \
  RepriseSelf()
#define DYNAMIC_INPUT(x, ...)                                                \
  REPRISE_OP_NEXT(RepriseInput_##x, REPRISE_OP_DYNAMIC_INPUT(_THIS_TYPE, x)) \
  DynamicInputDeclare(#x);                                                   \
  RepriseSelf()
#define OUTPUT(y, ...)                                                 \
  REPRISE_OP_NEXT(RepriseOutput_##y, REPRISE_OP_OUTPUT(_THIS_TYPE, y)) \
  OutputRegister(#y);                                                  \
  RepriseSelf()
#define DYNAMIC_OUTPUT(y, ...)                                                 \
  REPRISE_OP_NEXT(RepriseOutput_##y, REPRISE_OP_DYNAMIC_OUTPUT(_THIS_TYPE, y)) \
  DynamicOutputDeclare(#y);                                                    \
  RepriseSelf()
#define ATTR(a, Kind, ...)                                                    \
  REPRISE_OP_NEXT(RepriseAttr_##a, REPRISE_OP_ATTRIBUTE(_THIS_TYPE, a, Kind)) \
  const ::ge::attr_kind::Kind value = __VA_ARGS__;                            \
  AttrRegister(#a, #Kind, value);                                             \
  RepriseSelf()
#define REQUIRED_ATTR(a, Kind)                                                \
  REPRISE_OP_NEXT(RepriseAttr_##a, REPRISE_OP_ATTRIBUTE(_THIS_TYPE, a, Kind)) \
  RequiredAttrRegister(#a, #Kind);                                            \
  RepriseSelf()
#define GRAPH(f)                                                        \
  REPRISE_OP_NEXT(RepriseGraph_##f, REPRISE_OP_SUBGRAPH(_THIS_TYPE, f)) \
  SubgraphRegister(#f, false);                                          \
  RepriseSelf()
#define DYNAMIC_GRAPH(f)                                                        \
  REPRISE_OP_NEXT(RepriseGraph_##f, REPRISE_OP_DYNAMIC_SUBGRAPH(_THIS_TYPE, f)) \
  SubgraphRegister(#f, true);                                                   \
  RepriseSelf()
/* A name for a set of types; which sets are allowed is not checked. */
#define DATATYPE(t, ...) RepriseSelf()

#define OP_END() \
  RepriseThen(); \
  }              \
  }              \
  ;              \
  } /* namespace op */
#define OP_END_FACTORY_REG(Class)                                  \
  OP_END()                                                         \
  static const ::ge::OperatorCreatorRegister g_reprise_op_##Class( \
      #Class, [](const ::ge::AscendString& name) -> ::ge::Operator { return op::Class(name); });

/* ---- Inference and checks ---- */

#define IMPLEMT_COMMON_INFERFUNC(func) static ::ge::graphStatus func(::ge::Operator& op)
#define COMMON_INFER_FUNC_REG(Class, func) \
  static const ::ge::InferShapeFuncRegister g_reprise_infer_##Class(#Class, func);
#define IMPLEMT_INFERFUNC(Class, func) static ::ge::graphStatus func(op::Class& op)
#define INFER_FUNC_REG(Class, func)                                                                         \
  static const ::ge::InferShapeFuncRegister g_reprise_infer_##Class(#Class, [](::ge::Operator& operation) { \
    op::Class same(operation);                                                                              \
    return func(same);                                                                                      \
  });
#define IMPLEMT_VERIFIER(Class, func) static ::ge::graphStatus func(op::Class& op)
#define VERIFY_FUNC_REG(Class, func)                                                                     \
  static const ::ge::VerifyFuncRegister g_reprise_verify_##Class(#Class, [](::ge::Operator& operation) { \
    op::Class same(operation);                                                                           \
    return func(same);                                                                                   \
  });

#endif  // REPRISE_GRAPH_OPERATOR_REG_H_
