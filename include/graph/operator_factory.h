/* SPDX-License-Identifier: Apache-2.0 */
/* Operators by the names of their types. */
#ifndef REPRISE_GRAPH_OPERATOR_FACTORY_H_
#define REPRISE_GRAPH_OPERATOR_FACTORY_H_

#include <functional>
#include <string>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"
#include "graph/operator.h"

#pragma GCC visibility push(default)

namespace ge {

using OpCreator = std::function<Operator(const std::string&)>;
using OpCreatorV2 = std::function<Operator(const AscendString&)>;

class OperatorFactory {
 public:
  /* An empty operator, and a message, for a type without a prototype. */
  static Operator CreateOperator(const char* operator_name, const char* operator_type);
  static Operator CreateOperator(const std::string& operator_name, const std::string& operator_type) {
    return CreateOperator(operator_name.c_str(), operator_type.c_str());
  }
  static graphStatus GetOpsTypeList(std::vector<AscendString>& all_ops);
  static graphStatus GetOpsTypeList(std::vector<std::string>& all_ops) {
    std::vector<AscendString> types;
    const graphStatus status = GetOpsTypeList(types);
    for (const AscendString& type : types) all_ops.emplace_back(type.GetString());
    return status;
  }
  static bool IsExistOp(const char* operator_type);
  static bool IsExistOp(const std::string& operator_type) { return IsExistOp(operator_type.c_str()); }

  /* For prototypes of the program; those of the library cannot be replaced. */
  static graphStatus Register(const char* operator_type, const OpCreatorV2& creator);
  static graphStatus RegisterInfer(const char* operator_type, const InferShapeFunc& func);
  static graphStatus RegisterVerify(const char* operator_type, const VerifyFunc& func);
};

class OperatorCreatorRegister {
 public:
  OperatorCreatorRegister(const char* operator_type, const OpCreatorV2& creator) {
    (void)OperatorFactory::Register(operator_type, creator);
  }
};

class InferShapeFuncRegister {
 public:
  InferShapeFuncRegister(const char* operator_type, const InferShapeFunc& func) {
    (void)OperatorFactory::RegisterInfer(operator_type, func);
  }
};

class VerifyFuncRegister {
 public:
  VerifyFuncRegister(const char* operator_type, const VerifyFunc& func) {
    (void)OperatorFactory::RegisterVerify(operator_type, func);
  }
};

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_OPERATOR_FACTORY_H_
