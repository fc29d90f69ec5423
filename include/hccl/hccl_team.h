/* SPDX-License-Identifier: Apache-2.0
 *
 * Teams of operator developers. Refused here with HCCL_E_NOT_SUPPORT.
 */
#ifndef REPRISE_HCCL_HCCL_TEAM_H_
#define REPRISE_HCCL_HCCL_TEAM_H_

#include "hccl/hccl_developer_types.h"

#ifdef __cplusplus
extern "C" {
#endif

HcclResult HcclTeamCreate(HcclComm comm, const HcclTeamCreateDesc* desc, HcommTeamHandle* team);
HcclResult HcclTeamDestroy(HcommTeamHandle team);

#ifdef __cplusplus
}
#endif
#endif
