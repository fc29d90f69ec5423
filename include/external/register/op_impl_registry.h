/* SPDX-License-Identifier: Apache-2.0 */
/* Another name for register/op_impl_registry.h. */
#ifndef REPRISE_EXTERNAL_REGISTER_OP_IMPL_REGISTRY_H_
#define REPRISE_EXTERNAL_REGISTER_OP_IMPL_REGISTRY_H_

#include "register/op_impl_registry.h"

#endif  // REPRISE_EXTERNAL_REGISTER_OP_IMPL_REGISTRY_H_
