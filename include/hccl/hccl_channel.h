/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels of operator developers. Refused here with HCCL_E_NOT_SUPPORT: they program the engines of a device.
 */
#ifndef REPRISE_HCCL_HCCL_CHANNEL_H_
#define REPRISE_HCCL_HCCL_CHANNEL_H_

#include "hccl/hccl_developer_types.h"

#ifdef __cplusplus
extern "C" {
#endif

HcclResult HcclChannelAcquireWithConfig(HcclComm comm, CommEngine engine, const HcclChannelDesc* channelDescs,
                                        uint32_t channelNum, HcclChannelConfig config, ChannelHandle* channels);
HcclResult HcclChannelConfigCreate(HcclChannelConfig* config);
HcclResult HcclChannelConfigDestroy(HcclChannelConfig config);
HcclResult HcclChannelConfigSetInt(HcclChannelConfig config, HcclChannelConfigType type, uint32_t value);
HcclResult HcclChannelConfigSetStr(HcclChannelConfig config, HcclChannelConfigType type, const char* value);
HcclResult HcclChannelDestroy(HcclComm comm, const ChannelHandle* channels, uint32_t channelNum);
HcclResult HcclChannelQuery(HcclComm comm, CommEngine engine, const HcclChannelDesc* channelDescs, uint32_t channelNum,
                            ChannelHandle* channels);

#ifdef __cplusplus
}
#endif
#endif
