// SPDX-License-Identifier: Apache-2.0
//
// Operators called by their type (acl/acl_op.h): each function passes its arguments on to ops/named_op.h. Every type is
// at hand, so nothing has to be loaded before.
#include "acl/acl_op.h"
#include "ops/named_op.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;
namespace ops = reprise::ops;

namespace {

const void* const* Handles(const void* array) { return static_cast<const void* const*>(array); }

// A conversion as a call of Cast.
struct CastArguments {
  const void* inputs[1];
  const void* outputs[1];
  const void* input_descs[1];
  const void* output_descs[1];
  ops::NamedArguments arguments;

  CastArguments(const aclTensorDesc* src_desc, const aclDataBuffer* src, const aclTensorDesc* dst_desc,
                const aclDataBuffer* dst)
      : inputs{src}, outputs{dst}, input_descs{src_desc}, output_descs{dst_desc} {
    arguments = {"Cast", 1, input_descs, inputs, 1, output_descs, outputs, nullptr};
  }
  CastArguments(const CastArguments&) = delete;
};

}  // namespace

aclError aclopSetMaxOpQueueNum(uint64_t maxOpNum) {
  return Api("aclopSetMaxOpQueueNum", [&]() -> Status {
    if (maxOpNum != 0) return {};  // nothing is cached, so any limit is kept
    return Error(kInvalidArgument, "maxOpNum is 0, must be at least 1")
        .Culprit("parameter maxOpNum")
        .Hint("pass at least 1");
  });
}

aclError aclopExecute(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[],
                      const aclDataBuffer* const inputs[], int numOutputs, const aclTensorDesc* const outputDesc[],
                      aclDataBuffer* const outputs[], const aclopAttr* attr, aclrtStream stream) {
  return Api("aclopExecute", [&] {
    return ops::RunNamed({opType, numInputs, Handles(inputDesc), Handles(inputs), numOutputs, Handles(outputDesc),
                          Handles(outputs), attr},
                         stream, ops::ShapeResult::kKeep);
  });
}

aclError aclopExecuteV2(const char* opType, int numInputs, aclTensorDesc* inputDesc[], aclDataBuffer* inputs[],
                        int numOutputs, aclTensorDesc* outputDesc[], aclDataBuffer* outputs[], aclopAttr* attr,
                        aclrtStream stream) {
  return Api("aclopExecuteV2", [&] {
    return ops::RunNamed({opType, numInputs, Handles(inputDesc), Handles(inputs), numOutputs, Handles(outputDesc),
                          Handles(outputs), attr},
                         stream, ops::ShapeResult::kWriteBack);
  });
}

aclError aclopInferShape(const char* opType, int numInputs, aclTensorDesc* inputDesc[], aclDataBuffer* inputs[],
                         int numOutputs, aclTensorDesc* outputDesc[], aclopAttr* attr) {
  return Api("aclopInferShape", [&] {
    return ops::InferNamed(
        {opType, numInputs, Handles(inputDesc), Handles(inputs), numOutputs, Handles(outputDesc), nullptr, attr});
  });
}

aclError aclopCreateHandle(const char* opType, int numInputs, const aclTensorDesc* const inputDesc[], int numOutputs,
                           const aclTensorDesc* const outputDesc[], const aclopAttr* opAttr, aclopHandle** handle) {
  return Api("aclopCreateHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    *handle = nullptr;
    REPRISE_ASSIGN_OR_RETURN(void* made, ops::CreateNamedHandle({opType, numInputs, Handles(inputDesc), nullptr,
                                                                 numOutputs, Handles(outputDesc), nullptr, opAttr}));
    *handle = static_cast<aclopHandle*>(made);
    return {};
  });
}

void aclopDestroyHandle(aclopHandle* handle) {
  Api("aclopDestroyHandle", [&] { return ops::DestroyNamedHandle(handle); });
}

aclError aclopExecWithHandle(aclopHandle* handle, int numInputs, const aclDataBuffer* const inputs[], int numOutputs,
                             aclDataBuffer* const outputs[], aclrtStream stream) {
  return Api("aclopExecWithHandle", [&] {
    return ops::RunNamedHandle(
        handle, {nullptr, numInputs, nullptr, Handles(inputs), numOutputs, nullptr, Handles(outputs), nullptr}, stream);
  });
}

// `truncate` says how numbers become integers; the conversions of this device cut the fraction off.
aclError aclopCast(const aclTensorDesc* srcDesc, const aclDataBuffer* srcBuffer, const aclTensorDesc* dstDesc,
                   aclDataBuffer* dstBuffer, uint8_t /*truncate*/, aclrtStream stream) {
  return Api("aclopCast", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(srcDesc, "srcDesc"));
    REPRISE_RETURN_IF_ERROR(NotNull(srcBuffer, "srcBuffer"));
    REPRISE_RETURN_IF_ERROR(NotNull(dstDesc, "dstDesc"));
    REPRISE_RETURN_IF_ERROR(NotNull(dstBuffer, "dstBuffer"));
    const CastArguments call(srcDesc, srcBuffer, dstDesc, dstBuffer);
    return ops::RunNamed(call.arguments, stream, ops::ShapeResult::kKeep);
  });
}

aclError aclopCreateHandleForCast(aclTensorDesc* srcDesc, aclTensorDesc* dstDesc, uint8_t /*truncate*/,
                                  aclopHandle** handle) {
  return Api("aclopCreateHandleForCast", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(srcDesc, "srcDesc"));
    REPRISE_RETURN_IF_ERROR(NotNull(dstDesc, "dstDesc"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    *handle = nullptr;
    const CastArguments call(srcDesc, nullptr, dstDesc, nullptr);
    REPRISE_ASSIGN_OR_RETURN(void* made, ops::CreateNamedHandle(call.arguments));
    *handle = static_cast<aclopHandle*>(made);
    return {};
  });
}
