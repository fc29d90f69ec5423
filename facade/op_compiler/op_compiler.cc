// SPDX-License-Identifier: Apache-2.0
//
// libacl_op_compiler.so exists so that link lines with -lacl_op_compiler and dlopen of its name work. Operators of the
// CPU device need no compilation at run time, and no aclop* function is offered yet: programs that look one up find
// none and take their other way, which is more honest than a function that always fails.

namespace reprise::facade {

extern const char kOpCompilerName[];
const char kOpCompilerName[] = "reprise op compiler";

}  // namespace reprise::facade
