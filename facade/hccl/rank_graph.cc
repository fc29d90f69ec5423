// SPDX-License-Identifier: Apache-2.0
//
// The topology of a communicator, as operator developers ask for it: one layer with all ranks, each beside each other.
#include "hccl/hccl_rank_graph.h"

#include "collective/communicator.h"
#include "hccl_report.h"

using reprise::Error;
using reprise::Status;
using reprise::collective::Communicator;
using reprise::hccl::Api;
using reprise::hccl::NotNull;

namespace {

// Lists that live as long as the process: each is what all communicators have.
uint32_t* Zero() {
  static uint32_t zero[1] = {0};
  return zero;
}

reprise::StatusOr<const Communicator*> Find(HcclComm comm, const void* result, uint32_t layer, uint32_t instance) {
  REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
  REPRISE_RETURN_IF_ERROR(NotNull(result, "the result"));
  REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, reprise::collective::FindCommunicator(comm));
  if (layer == 0 && instance == 0) return communicator;
  return Error(HCCL_E_PARA, fmt::format("layer {}, instance {}: there is one layer with one instance", layer, instance))
      .Culprit("parameter netLayer")
      .Hint("pass 0");
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

HcclResult HcclRankGraphGetLayers(HcclComm comm, uint32_t** netLayers, uint32_t* netLayerNum) {
  return Api("HcclRankGraphGetLayers", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(netLayerNum, "netLayerNum"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Communicator* communicator, Find(comm, netLayers, 0, 0));
    *netLayers = Zero();
    *netLayerNum = 1;
    return {};
  });
}

HcclResult HcclRankGraphGetTopoInstsByLayer(HcclComm comm, uint32_t netLayer, uint32_t** topoInsts,
                                            uint32_t* topoInstNum) {
  return Api("HcclRankGraphGetTopoInstsByLayer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(topoInstNum, "topoInstNum"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Communicator* communicator, Find(comm, topoInsts, netLayer, 0));
    *topoInsts = Zero();
    *topoInstNum = 1;
    return {};
  });
}

HcclResult HcclRankGraphGetRanksByLayer(HcclComm comm, uint32_t netLayer, uint32_t** ranks, uint32_t* rankNum) {
  return Api("HcclRankGraphGetRanksByLayer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(rankNum, "rankNum"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, Find(comm, ranks, netLayer, 0));
    *ranks = communicator->rank_list();
    *rankNum = communicator->ranks();
    return {};
  });
}

HcclResult HcclRankGraphGetRanksByTopoInst(HcclComm comm, uint32_t netLayer, uint32_t topoInstId, uint32_t** ranks,
                                           uint32_t* rankNum) {
  return Api("HcclRankGraphGetRanksByTopoInst", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(rankNum, "rankNum"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, Find(comm, ranks, netLayer, topoInstId));
    *ranks = communicator->rank_list();
    *rankNum = communicator->ranks();
    return {};
  });
}

HcclResult HcclRankGraphGetRankSizeByLayer(HcclComm comm, uint32_t netLayer, uint32_t* rankNum) {
  return Api("HcclRankGraphGetRankSizeByLayer", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, Find(comm, rankNum, netLayer, 0));
    *rankNum = communicator->ranks();
    return {};
  });
}

HcclResult HcclRankGraphGetInstSizeListByLayer(HcclComm comm, uint32_t netLayer, uint32_t** instSizeList,
                                               uint32_t* listSize) {
  return Api("HcclRankGraphGetInstSizeListByLayer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(listSize, "listSize"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, Find(comm, instSizeList, netLayer, 0));
    *instSizeList = communicator->rank_list() + communicator->ranks();
    *listSize = 1;
    return {};
  });
}

HcclResult HcclRankGraphGetTopoType(HcclComm comm, uint32_t netLayer, uint32_t topoInstId, CommTopo* topoType) {
  return Api("HcclRankGraphGetTopoType", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Communicator* communicator,
                             Find(comm, topoType, netLayer, topoInstId));
    *topoType = COMM_TOPO_1DMESH;
    return {};
  });
}

HcclResult HcclRankGraphGetTopoTypeByLayer(HcclComm comm, uint32_t netLayer, CommTopo* topoType) {
  return Api("HcclRankGraphGetTopoTypeByLayer", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const Communicator* communicator, Find(comm, topoType, netLayer, 0));
    *topoType = COMM_TOPO_1DMESH;
    return {};
  });
}

}  // extern "C"
#pragma GCC visibility pop
