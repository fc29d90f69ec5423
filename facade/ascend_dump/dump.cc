// SPDX-License-Identifier: Apache-2.0
//
// Debugging dumps: arguments of launched kernels, tensors of failed operators.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl_dump.h"
#include "device/memory.h"
#include "runtime/device.h"
#include "runtime/dump.h"
#include "runtime/report.h"
#include "runtime/thread.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::runtime::Api;
using reprise::runtime::Dump;
using reprise::runtime::NotNull;

namespace {

constexpr size_t kLongestName = 255;  // of a file
constexpr size_t kMostTensors = 4096;

using Callback = int32_t (*)(const acldumpChunk*, int32_t);

// A piece as the callback wants it: the header, with the bytes in its last member.
int SendChunk(Callback callback, int32_t flag, const std::string& file, uint64_t offset, std::string_view bytes,
              bool last) {
  const size_t size = sizeof(acldumpChunk) + bytes.size();
  std::unique_ptr<acldumpChunk, decltype(&std::free)> chunk(static_cast<acldumpChunk*>(std::calloc(1, size)),
                                                            std::free);
  if (chunk == nullptr) return -1;
  file.copy(chunk->fileName, sizeof chunk->fileName - 1);
  chunk->bufLen = static_cast<uint32_t>(bytes.size());
  chunk->isLastChunk = last ? 1 : 0;
  chunk->offset = static_cast<int64_t>(offset);
  chunk->flag = flag;
  if (!bytes.empty())
    std::memcpy(reinterpret_cast<char*>(chunk.get()) + offsetof(acldumpChunk, dataBuf), bytes.data(), bytes.size());
  return callback(chunk.get(), static_cast<int32_t>(size));
}

int CurrentDevice() {
  const reprise::runtime::Context* context = reprise::runtime::LiveContext();
  return context != nullptr ? context->device().id() : 0;
}

Status CheckArgsType(uint32_t type) {
  if (type == ACL_OP_DUMP_OP_AICORE_ARGS) return {};
  return Error(kInvalidArgument, fmt::format("dumpType is {:#x}, must be {} (ACL_OP_DUMP_OP_AICORE_ARGS)", type,
                                             ACL_OP_DUMP_OP_AICORE_ARGS))
      .Culprit("parameter dumpType")
      .Hint("pass ACL_OP_DUMP_OP_AICORE_ARGS");
}

// A name of a file, and no way out of its folder.
Status CheckName(std::string_view name) {
  if (!name.empty() && name.size() <= kLongestName - 16 && name != "." && name != ".." &&
      name.find('/') == std::string_view::npos) {
    return {};
  }
  return Error(kInvalidArgument,
               fmt::format("fileName is \"{}\", must be a plain name of 1 to {} bytes without a slash",
                           name.substr(0, 64), kLongestName - 16))
      .Culprit("parameter fileName")
      .Hint("pass a name only: the folder is that of acldumpGetExceptionInfoPath");
}

StatusOr<Dump::Tensor> ReadTensor(const acldumpTensorInfo& info, size_t index) {
  const auto wrong = [&](const char* field, int64_t value, int64_t most) {
    return Error(kInvalidArgument, fmt::format("tensors[{}].{} is {}, must be 0 to {}", index, field, value, most))
        .Culprit(fmt::format("parameter tensors, entry {}", index))
        .Hint("fill the structure as acl_dump.h describes it");
  };
  const auto number = [](auto value) { return static_cast<int64_t>(static_cast<int>(value)); };
  if (info.type < ACL_DUMP_TENSOR_INPUT || info.type > ACL_DUMP_TENSOR_WORKSPACE) {
    return wrong("type", number(info.type), ACL_DUMP_TENSOR_WORKSPACE);
  }
  if (info.addrType < ACL_DUMP_ADDR_PTR || info.addrType > ACL_DUMP_ADDR_RAW) {
    return wrong("addrType", number(info.addrType), ACL_DUMP_ADDR_RAW);
  }
  if (info.placement < ACL_DUMP_PLACEMENT_DEVICE || info.placement >= ACL_DUMP_PLACEMENT_END) {
    return wrong("placement", number(info.placement), ACL_DUMP_PLACEMENT_END - 1);
  }
  if (info.shapeNum > ACL_DUMP_MAX_SHAPE_NUM) return wrong("shapeNum", info.shapeNum, ACL_DUMP_MAX_SHAPE_NUM);
  if (info.originShapeNum > ACL_DUMP_MAX_SHAPE_NUM) {
    return wrong("originShapeNum", info.originShapeNum, ACL_DUMP_MAX_SHAPE_NUM);
  }
  Dump::Tensor tensor{static_cast<int>(info.type),
                      info.format,
                      info.dataType,
                      info.tensorSize,
                      info.tensorAddr,
                      info.placement == ACL_DUMP_PLACEMENT_HOST,
                      info.argsOffset,
                      {info.shape, info.shape + info.shapeNum},
                      {info.originShape, info.originShape + info.originShapeNum}};
  if (info.addrType == ACL_DUMP_ADDR_PTR_PTR) {
    const void* data = nullptr;
    const bool readable =
        tensor.address != nullptr && reprise::device::CopyUntrusted(&data, tensor.address, sizeof data);
    tensor.address = readable ? data : nullptr;
  }
  return tensor;
}

}  // namespace

aclError acldumpRegCallback(int32_t (*const messageCallback)(const acldumpChunk*, int32_t), int32_t flag) {
  return Api("acldumpRegCallback", [&]() -> Status {
    if (flag != 0) {
      return Error(kInvalidArgument, fmt::format("flag is {}, must be 0", flag))
          .Culprit("parameter flag")
          .Hint("pass 0 for flag");
    }
    if (messageCallback == nullptr) {
      Dump::Get().RemoveReceiver();
      return {};
    }
    Dump::Get().SetReceiver(
        [callback = messageCallback, flag](const std::string& file, uint64_t offset, std::string_view bytes,
                                           bool last) { return SendChunk(callback, flag, file, offset, bytes, last); });
    return {};
  });
}

void acldumpUnregCallback() {
  Api("acldumpUnregCallback", []() -> Status {
    Dump::Get().RemoveReceiver();
    return {};
  });
}

const char* acldumpGetPath(acldumpType dumpType) {
  const char* path = nullptr;
  Api("acldumpGetPath", [&]() -> Status {
    switch (dumpType) {
      case DATA_DUMP: path = Dump::Get().args_folder(); return {};
      case AIC_ERR_BRIEF_DUMP:
      case AIC_ERR_NORM_DUMP:
      case AIC_ERR_DETAIL_DUMP: path = Dump::Get().Keep(Dump::Get().exception_folder(CurrentDevice())); return {};
      case OVERFLOW_DUMP: return {};  // never on
    }
    return Error(kInvalidArgument, fmt::format("dumpType is {}, must be {} to {}", static_cast<int>(dumpType),
                                               static_cast<int>(AIC_ERR_BRIEF_DUMP), static_cast<int>(OVERFLOW_DUMP)))
        .Culprit("parameter dumpType")
        .Hint("pass one of the kinds of acldumpType");
  });
  return path;
}

aclError acldumpSaveExceptionInfo(const char* fileName, const char* userTag, const acldumpTensorInfo* tensors,
                                  size_t tensorCount) {
  return Api("acldumpSaveExceptionInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(fileName, "fileName"));
    const std::string name(fileName, strnlen(fileName, kLongestName + 1));
    REPRISE_RETURN_IF_ERROR(CheckName(name));
    if (tensorCount != 0) REPRISE_RETURN_IF_ERROR(NotNull(tensors, "tensors"));
    if (tensorCount > kMostTensors) {
      return Error(kInvalidArgument, fmt::format("tensorCount is {}, must be at most {}", tensorCount, kMostTensors))
          .Culprit("parameter tensorCount")
          .Hint("save the tensors of one operator at a time");
    }
    std::vector<acldumpTensorInfo> copies(tensorCount);
    if (!reprise::device::CopyUntrusted(copies.data(), tensors, tensorCount * sizeof *tensors)) {
      return Error(kInvalidArgument,
                   fmt::format("tensors {} does not point to {} readable entries", fmt::ptr(tensors), tensorCount))
          .Culprit("parameters tensors and tensorCount")
          .Hint("pass an array and the number of its entries");
    }
    std::vector<Dump::Tensor> read;
    for (size_t i = 0; i < tensorCount; ++i) {
      REPRISE_ASSIGN_OR_RETURN(Dump::Tensor tensor, ReadTensor(copies[i], i));
      read.push_back(std::move(tensor));
    }
    constexpr size_t kLongestTag = 4096;
    return Dump::Get().SaveTensors(CurrentDevice(), name,
                                   userTag != nullptr ? std::string(userTag, strnlen(userTag, kLongestTag)) : "", read);
  });
}

aclError acldumpGetExceptionInfoPath(char* path, size_t maxLen) {
  return Api("acldumpGetExceptionInfoPath", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(path, "path"));
    const std::string folder = Dump::Get().exception_folder(CurrentDevice());
    if (folder.size() >= maxLen) {
      return Error(kInvalidArgument, fmt::format("maxLen is {}, must be at least {}", maxLen, folder.size() + 1))
          .Culprit("parameter maxLen")
          .Hint(fmt::format("pass a buffer of {} bytes", ACL_DUMP_MAX_FILE_PATH_LENGTH));
    }
    std::memcpy(path, folder.c_str(), folder.size() + 1);
    return {};
  });
}

aclError aclopStartDumpArgs(uint32_t dumpType, const char* path) {
  return Api("aclopStartDumpArgs", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckArgsType(dumpType));
    REPRISE_RETURN_IF_ERROR(NotNull(path, "path"));
    const std::string folder(path, strnlen(path, ACL_DUMP_MAX_FILE_PATH_LENGTH));
    if (folder.empty() || folder.size() == ACL_DUMP_MAX_FILE_PATH_LENGTH) {
      return Error(kInvalidArgument, fmt::format("path has {} bytes, must have 1 to {}", folder.size(),
                                                 ACL_DUMP_MAX_FILE_PATH_LENGTH - 1))
          .Culprit("parameter path")
          .Hint("pass a folder");
    }
    return Dump::Get().StartArgs(folder);
  });
}

aclError aclopStopDumpArgs(uint32_t dumpType) {
  return Api("aclopStopDumpArgs", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckArgsType(dumpType));
    return Dump::Get().StopArgs();
  });
}
