// SPDX-License-Identifier: Apache-2.0
//
// Communicators, groups of calls, and what is configured for the whole process.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "collective/create.h"
#include "collective/request.h"
#include "hccl/hccl_comm.h"
#include "hccl_report.h"
#include "runtime/context.h"
#include "runtime/device.h"

namespace collective = reprise::collective;
using collective::Communicator;
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::hccl::Api;
using reprise::hccl::NotNull;

namespace {

constexpr uint32_t kCapabilities = HCCL_COMM_CONFIG_RESERVED;
constexpr int kMostDeterministic = 2;  // strict order
constexpr uint64_t kNoSubId = 0xFFFFFFFF;

static_assert(HCCL_ROOT_INFO_BYTES == collective::kTokenBytes);

StatusOr<collective::Settings> SettingsOf(const HcclCommConfig* config, bool may_be_null) {
  if (config != nullptr) return collective::ReadConfig(config);
  if (may_be_null) return collective::DefaultSettings();
  REPRISE_RETURN_IF_ERROR(NotNull(config, "config"));
  return Status();
}

Status MakeToken(HcclRootInfo* rootInfo) {
  REPRISE_RETURN_IF_ERROR(NotNull(rootInfo, "rootInfo"));
  REPRISE_ASSIGN_OR_RETURN(const collective::Token token, collective::MakeToken());
  token.Write(rootInfo->internal);
  return {};
}

Status Init(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, const HcclCommConfig* config, bool has_config,
            HcclComm* comm) {
  REPRISE_RETURN_IF_ERROR(NotNull(rootInfo, "rootInfo"));
  REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
  REPRISE_ASSIGN_OR_RETURN(collective::Settings settings, SettingsOf(config, !has_config));
  REPRISE_ASSIGN_OR_RETURN(const collective::Token token, collective::Token::Read(rootInfo->internal));
  return collective::CreateByToken(token, nRanks, rank, std::move(settings), comm);
}

Status InitCluster(const char* clusterInfo, uint32_t rank, const HcclCommConfig* config, bool has_config,
                   HcclComm* comm) {
  REPRISE_RETURN_IF_ERROR(NotNull(clusterInfo, "clusterInfo"));
  REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
  REPRISE_ASSIGN_OR_RETURN(collective::Settings settings, SettingsOf(config, !has_config));
  return collective::CreateByTable(clusterInfo, rank, std::move(settings), comm);
}

// What a live communicator says of itself.
template <class Value, class Read>
HcclResult Ask(const char* api, HcclComm comm, Value* to, const char* name, Read read) {
  return Api(api, [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_RETURN_IF_ERROR(NotNull(to, name));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, collective::FindCommunicator(comm));
    *to = static_cast<Value>(read(*communicator));
    return {};
  });
}

Status Bad(const char* parameter, std::string what, const char* hint) {
  return Error(HCCL_E_PARA, std::move(what)).Culprit(fmt::format("parameter {}", parameter)).Hint(hint);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo) {
  return Api("HcclGetRootInfo", [&] { return MakeToken(rootInfo); });
}
HcclResult HcclGetRootInfoScalable(HcclRootInfo* rootInfo) {
  return Api("HcclGetRootInfoScalable", [&] { return MakeToken(rootInfo); });
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm) {
  return Api("HcclCommInitRootInfo", [&] { return Init(nRanks, rootInfo, rank, nullptr, false, comm); });
}
HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                      const HcclCommConfig* config, HcclComm* comm) {
  return Api("HcclCommInitRootInfoConfig", [&] { return Init(nRanks, rootInfo, rank, config, true, comm); });
}
HcclResult HcclCommInitRootInfoScalable(uint32_t nRanks, uint32_t nRoot, const HcclRootInfo* rootInfoList,
                                        uint32_t rank, uint32_t nExtRoot, const HcclCommConfig* config,
                                        HcclComm* comm) {
  return Api("HcclCommInitRootInfoScalable", [&]() -> Status {
    if (nRoot == 0 || nRoot > nRanks)
      return Bad("nRoot", fmt::format("nRoot is {}, must be 1 to the {} ranks", nRoot, nRanks),
                 "pass the number of tokens");
    if (nExtRoot != 0) return Bad("nExtRoot", fmt::format("nExtRoot is {}, must be 0", nExtRoot), "pass 0");
    return Init(nRanks, rootInfoList, rank, config, true, comm);  // all meet at the first token
  });
}

HcclResult HcclCommInitClusterInfo(const char* clusterInfo, uint32_t rank, HcclComm* comm) {
  return Api("HcclCommInitClusterInfo", [&] { return InitCluster(clusterInfo, rank, nullptr, false, comm); });
}
HcclResult HcclCommInitClusterInfoConfig(const char* clusterInfo, uint32_t rank, HcclCommConfig* config,
                                         HcclComm* comm) {
  return Api("HcclCommInitClusterInfoConfig", [&] { return InitCluster(clusterInfo, rank, config, true, comm); });
}

HcclResult HcclCommInitAll(uint32_t ndev, int32_t* devices, HcclComm* comms) {
  return Api("HcclCommInitAll", [&]() -> Status {
    if (ndev == 0) return Bad("ndev", "ndev is 0", "pass the number of devices");
    REPRISE_RETURN_IF_ERROR(NotNull(devices, "devices"));
    REPRISE_RETURN_IF_ERROR(NotNull(comms, "comms"));
    return collective::CreateAll(devices, ndev, comms);
  });
}

HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds, uint64_t subCommId,
                                   uint32_t subCommRankId, HcclCommConfig* config, HcclComm* subComm) {
  return Api("HcclCreateSubCommConfig", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_RETURN_IF_ERROR(NotNull(subComm, "subComm"));
    if (rankIds == nullptr && subCommId == kNoSubId) return {};  // this rank is no member
    if (rankIds == nullptr || subCommId == kNoSubId) {
      return Bad(rankIds == nullptr ? "rankIds" : "subCommId",
                 "of rankIds and subCommId one says that this rank is no member", "pass a list and an id, or neither");
    }
    REPRISE_RETURN_IF_ERROR(NotNull(config, "config"));
    REPRISE_RETURN_IF_ERROR(NotNull(*comm, "*comm"));
    REPRISE_ASSIGN_OR_RETURN(Communicator * parent, collective::FindCommunicator(*comm));
    REPRISE_ASSIGN_OR_RETURN(collective::Settings settings, collective::ReadConfig(config));
    return collective::CreateSub(*parent, rankIds, rankNum, subCommId, subCommRankId, std::move(settings), subComm);
  });
}

HcclResult HcclCommDestroy(HcclComm comm) {
  return Api("HcclCommDestroy", [&]() -> Status {
    if (comm == nullptr) return {};
    return collective::Manage({.begin = {}, .meet = {}, .finish = [comm] { return Communicator::Destroy(comm); }});
  });
}

HcclResult HcclGetCommName(HcclComm comm, char* commName) {
  return Api("HcclGetCommName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_RETURN_IF_ERROR(NotNull(commName, "commName"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, collective::FindCommunicator(comm));
    const std::string& name = communicator->name();
    std::memcpy(commName, name.c_str(), std::min<size_t>(name.size() + 1, COMM_NAME_MAX_LENGTH));
    return {};
  });
}

HcclResult HcclCommGetHandleWithName(const char* commName, HcclComm* comm) {
  return Api("HcclCommGetHandleWithName", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(commName, "commName"));
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    // Of ranks in one process, that of the current device; else the first.
    Communicator* found = nullptr;
    if (auto context = reprise::runtime::CurrentContext(); context.ok()) {
      found = collective::FindByName(commName, (*context)->device().id());
    }
    if (found == nullptr) found = collective::FindByName(commName);
    if (found == nullptr)
      return Bad("commName", fmt::format("no live communicator has the name {}", commName),
                 "pass what HcclGetCommName tells");
    *comm = found->handle();
    return {};
  });
}

HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize) {
  return Ask("HcclGetRankSize", comm, rankSize, "rankSize", [](const Communicator& c) { return c.ranks(); });
}

HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  return Ask("HcclGetRankId", comm, rank, "rank", [](const Communicator& c) { return c.rank(); });
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* asyncError) {
  return Ask("HcclGetCommAsyncError", comm, asyncError, "asyncError", [](const Communicator& c) {
    if (c.error() == 0) [[likely]]
      return 0;
    const Status failure = c.Failure();
    if (!failure.ok()) reprise::runtime::Remember("an operator of the communicator", failure);
    return failure.code();
  });
}

const char* HcclGetErrorString(HcclResult code) {
  static const char* const texts[] = {
      "success",
      "a parameter has a value that is not allowed",
      "a required pointer is null",
      "a call for memory failed",
      "internal error",
      "not supported",
      "resource not found",
      "resource unavailable",
      "a call of the system failed",
      "the time is up",
      "a file cannot be opened",
      "no TCP connection",
      "no RoCE connection",
      "a TCP transfer failed",
      "a RoCE transfer failed",
      "a call of the runtime failed",
      "a call of the driver failed",
      "profiling failed",
      "the engine of collectives failed",
      "no usable network",
      "in use, try again",
      "a remote rank failed",
      "the communicator is suspended",
      "trying the operator again failed",
      "out of memory",
  };
  const int number = code;
  return number >= 0 && number < static_cast<int>(std::size(texts)) ? texts[number] : "unknown error";
}

uint32_t HcclGetCommConfigCapability(void) { return kCapabilities; }

HcclResult HcclSetConfig(HcclConfig config, HcclConfigValue configValue) {
  return Api("HcclSetConfig", [&]() -> Status {
    if (config != HCCL_DETERMINISTIC || collective::TheEnvironment().has_deterministic) return {};
    if (configValue.value < 0 || configValue.value > kMostDeterministic) {
      return Bad("configValue",
                 fmt::format("configValue of HCCL_DETERMINISTIC is {}, must be 0 to {}", configValue.value,
                             kMostDeterministic),
                 "pass 0 (off), 1 (on) or 2 (strict order)");
    }
    collective::SetDeterministic(configValue.value);
    return {};
  });
}

HcclResult HcclGetConfig(HcclConfig config, HcclConfigValue* configValue) {
  return Api("HcclGetConfig", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(configValue, "configValue"));
    configValue->value = config == HCCL_DETERMINISTIC ? collective::Deterministic() : 0;
    return {};
  });
}

HcclResult HcclConfigGetInfo(HcclComm comm, HcclConfigType cfgType, uint32_t infoLen, void* info) {
  return Api("HcclConfigGetInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_RETURN_IF_ERROR(NotNull(info, "info"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, collective::FindCommunicator(comm));
    if (cfgType != HCCL_CONFIG_TYPE_OP_EXPANSION_MODE) {
      return Error(HCCL_E_NOT_SUPPORT, fmt::format("cfgType {} cannot be asked for", static_cast<int>(cfgType)))
          .Culprit("parameter cfgType")
          .Hint("ask for HCCL_CONFIG_TYPE_OP_EXPANSION_MODE");
    }
    if (infoLen != sizeof(uint32_t))
      return Bad("infoLen", fmt::format("infoLen is {}, must be {}", infoLen, sizeof(uint32_t)),
                 "pass the size of an HcclOpExpansionMode");
    const uint32_t mode = communicator->settings().expansion_mode;
    std::memcpy(info, &mode, sizeof mode);
    return {};
  });
}

HcclResult HcclCommSuspend(HcclComm comm) {
  return Api("HcclCommSuspend", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_ASSIGN_OR_RETURN(Communicator * communicator, collective::FindCommunicator(comm));
    return communicator->Suspend();
  });
}

HcclResult HcclCommResume(HcclComm comm) {
  return Api("HcclCommResume", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_ASSIGN_OR_RETURN(Communicator * communicator, collective::FindCommunicator(comm));
    return communicator->Resume();
  });
}

HcclResult HcclCommGetStatus(const char* commId, HcclCommStatus* status) {
  return Api("HcclCommGetStatus", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(commId, "commId"));
    REPRISE_RETURN_IF_ERROR(NotNull(status, "status"));
    const Communicator* const found = collective::FindByName(commId);
    *status = found == nullptr        ? HCCL_COMM_STATUS_INVALID
              : found->is_suspended() ? HCCL_COMM_STATUS_SUSPENDING
                                      : HCCL_COMM_STATUS_READY;
    if (found != nullptr) return {};
    return Bad("commId", fmt::format("no live communicator has the name {}", commId),
               "pass what HcclGetCommName tells");
  });
}

HcclResult HcclCommRegCommStateCallback(const char* regName, HcclCommStateCallback cb, void* args) {
  return Api("HcclCommRegCommStateCallback", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(regName, "regName"));
    collective::SetStateCallback(regName, reinterpret_cast<collective::StateCallback>(cb), args);
    return {};
  });
}

HcclResult HcclCommWorkingDevNicSet(HcclComm comm, uint32_t* ranks, bool* useBackup, uint32_t nRanks) {
  return Api("HcclCommWorkingDevNicSet", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
    REPRISE_RETURN_IF_ERROR(NotNull(ranks, "ranks"));
    REPRISE_RETURN_IF_ERROR(NotNull(useBackup, "useBackup"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* communicator, collective::FindCommunicator(comm));
    if (nRanks == 0 || nRanks > communicator->ranks())
      return Bad("nRanks", fmt::format("nRanks is {}, the communicator has {} ranks", nRanks, communicator->ranks()),
                 "name some of the ranks");
    const uint32_t* const wrong =
        std::find_if(ranks, ranks + nRanks, [&](uint32_t rank) { return rank >= communicator->ranks(); });
    if (wrong == ranks + nRanks) return {};
    return Bad("ranks", fmt::format("rank {} is none of the communicator's {}", *wrong, communicator->ranks()),
               "name ranks of the communicator");
  });
}

HcclResult HcclGroupStart(void) {
  return Api("HcclGroupStart", [&]() -> Status {
    collective::StartGroup();
    return {};
  });
}
HcclResult HcclGroupEnd(void) {
  return Api("HcclGroupEnd", [&] { return collective::EndGroup(); });
}
HcclResult HcclGroupStatusGet(bool* isGroupEnabled) {
  return Api("HcclGroupStatusGet", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(isGroupEnabled, "isGroupEnabled"));
    *isGroupEnabled = collective::IsInGroup();
    return {};
  });
}

}  // extern "C"
#pragma GCC visibility pop
