// SPDX-License-Identifier: Apache-2.0
//
// From the structs that describe a draw of random numbers to what the core takes.
#pragma once

#include "acl/acl.h"
#include "base/status.h"
#include "runtime/random.h"

namespace reprise::facade {

/// 107000 naming the field that is wrong.
Status ReadRandomRequest(const aclrtRandomNumTaskInfo& info, runtime::RandomRequest* request);
/// Changes function and parameters of a complete request.
Status ReadRandomFunction(const aclrtRandomNumFuncParaInfo& info, runtime::RandomRequest* request);

}  // namespace reprise::facade
