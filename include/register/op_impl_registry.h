/* SPDX-License-Identifier: Apache-2.0 */
/* What operators of the program's need beside their prototypes:

       IMPL_OP(Scale).InputsDataDependency({1});

   says that Execute of the type Scale (graph/custom_op.h) reads the value of operand 1 on the host: a run waits for it.
 */
#ifndef REPRISE_REGISTER_OP_IMPL_REGISTRY_H_
#define REPRISE_REGISTER_OP_IMPL_REGISTRY_H_

#include <cstdint>
#include <initializer_list>

#include "graph/ge_error_codes.h"

#pragma GCC visibility push(default)

namespace gert {

class OpImplRegisterV2 {
 public:
  explicit OpImplRegisterV2(const char* op_type);
  /* By operand of the prototype. */
  OpImplRegisterV2& InputsDataDependency(std::initializer_list<int32_t> inputs);

 private:
  const char* type_;
};

}  // namespace gert

#pragma GCC visibility pop

#define REPRISE_JOIN_NAMES_(a, b) a##b
#define REPRISE_JOIN_NAMES(a, b) REPRISE_JOIN_NAMES_(a, b)
#define IMPL_OP(Type)                                                                                          \
  [[maybe_unused]] static ::gert::OpImplRegisterV2 REPRISE_JOIN_NAMES(g_reprise_impl_##Type##_, __COUNTER__) = \
      ::gert::OpImplRegisterV2(#Type)

#endif  // REPRISE_REGISTER_OP_IMPL_REGISTRY_H_
