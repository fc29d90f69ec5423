/* SPDX-License-Identifier: Apache-2.0 */
/* The place where older build scripts look. */
#ifndef REPRISE_EXTERNAL_GE_GE_API_V2_H_
#define REPRISE_EXTERNAL_GE_GE_API_V2_H_

#include "ge/ge_api_v2.h"

#endif  // REPRISE_EXTERNAL_GE_GE_API_V2_H_
