/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of the program's, in graphs. A program declares the prototype (graph/operator_reg.h) and says what runs:

       class Scale : public ge::EagerExecuteOp {
        public:
         ge::graphStatus Execute(gert::EagerOpExecutionContext* context) override { … }
       };
       REG_AUTO_MAPPING_OP(Scale);

   The class has the name of the type. A run of the graph calls Execute on its own thread when it comes to the node;
   what that puts on the stream of the context runs in order with the graph. */
#ifndef REPRISE_GRAPH_CUSTOM_OP_H_
#define REPRISE_GRAPH_CUSTOM_OP_H_

#include <functional>
#include <memory>
#include <vector>

#include "exe_graph/runtime/eager_op_execution_context.h"
#include "ge/ge_error_codes.h"
#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"

#pragma GCC visibility push(default)

namespace ge {

class BaseCustomOp {
 public:
  BaseCustomOp() = default;
  BaseCustomOp(const BaseCustomOp&) = delete;
  BaseCustomOp& operator=(const BaseCustomOp&) = delete;
  virtual ~BaseCustomOp() = default;
};

/* One object serves all nodes of its type, also at the same time. */
class EagerExecuteOp : public BaseCustomOp {
 public:
  /* GRAPH_SUCCESS, or the run fails. Exceptions fail the run with their text. */
  virtual graphStatus Execute(gert::EagerOpExecutionContext* context) = 0;
};

using BaseOpCreator = std::function<std::unique_ptr<BaseCustomOp>()>;

class CustomOpFactory {
 public:
  /* GRAPH_PARAM_INVALID for an empty type, for no creator, and for types of the library. A second creator of a type
     replaces the first one, for graphs that are compiled afterwards. */
  static graphStatus RegisterCustomOpCreator(const AscendString& op_type, const BaseOpCreator& creator);
  /* Null for a type without a creator. */
  static std::unique_ptr<BaseCustomOp> CreateCustomOp(const AscendString& op_type);
  static graphStatus GetAllRegisteredOps(std::vector<AscendString>& all_registered_ops);
  static bool IsExistOp(const AscendString& op_type);
};

class CustomOpCreatorRegister {
 public:
  CustomOpCreatorRegister(const AscendString& op_type, const BaseOpCreator& creator) {
    (void)CustomOpFactory::RegisterCustomOpCreator(op_type, creator);
  }
};

}  // namespace ge

#pragma GCC visibility pop

#define REG_AUTO_MAPPING_OP(Class)                                        \
  static const ::ge::CustomOpCreatorRegister g_reprise_custom_op_##Class( \
      #Class,                                                             \
      []() -> std::unique_ptr<::ge::BaseCustomOp> { return std::unique_ptr<::ge::BaseCustomOp>(new Class()); })

#endif  // REPRISE_GRAPH_CUSTOM_OP_H_
