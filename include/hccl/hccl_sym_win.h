/* SPDX-License-Identifier: Apache-2.0
 *
 * Symmetric windows: memory of the same size on all ranks, which each of them can address.
 */
#ifndef REPRISE_HCCL_HCCL_SYM_WIN_H_
#define REPRISE_HCCL_HCCL_SYM_WIN_H_

#include "hccl/hccl_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where this process sees byte `offset` of the part of rank `peerRank`. */
HcclResult HcclSymWinGetPeerPointer(HcclCommSymWindow winHandle, size_t offset, uint32_t peerRank, void** ptr);

#ifdef __cplusplus
}
#endif
#endif
