// SPDX-License-Identifier: Apache-2.0
//
// Small helpers without a device: fp16 numbers, data buffers, sizes of data types.
#include <cmath>
#include <memory>

#include "acl/acl.h"
#include "check.h"
#include "kernels/float16.h"
#include "runtime/descriptors.h"

namespace reprise::facade {
namespace {

using runtime::DataBuffer;
using runtime::DataBuffers;

StatusOr<DataBuffer*> FindBuffer(const aclDataBuffer* handle) {
  return runtime::FindObject(DataBuffers(), handle, "aclDataBuffer");
}

// For the getters, which can only return "nothing"; a bad handle still leaves a message.
const DataBuffer* BufferOrNull(const char* api, const aclDataBuffer* handle) {
  if (handle == nullptr) return nullptr;
  const DataBuffer* buffer = nullptr;
  runtime::Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(buffer, FindBuffer(handle));
    return {};
  });
  return buffer;
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT
using reprise::runtime::DataBuffer;
using reprise::runtime::DataBuffers;

float aclFloat16ToFloat(aclFloat16 value) {
  // The largest exponent is an ordinary one here: no infinities, no NaN.
  const int exponent = (value >> 10) & 0x1F;
  const int fraction = value & 0x3FF;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                        : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (value & 0x8000) != 0 ? -magnitude : magnitude;
}

aclFloat16 aclFloatToFloat16(float value) {
  constexpr aclFloat16 kLargest = 0x7BFF;  // 65504
  if (std::isnan(value)) return kLargest;
  const aclFloat16 bits = kernels::FloatToHalfBits(value);
  return (bits & 0x7FFF) == 0x7C00 ? static_cast<aclFloat16>((bits & 0x8000) | kLargest) : bits;
}

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) {
  void* handle = nullptr;
  runtime::Api("aclCreateDataBuffer", [&]() -> Status {
    auto buffer = std::make_unique<DataBuffer>(DataBuffer{data, size});
    handle = DataBuffers().Insert(buffer.get());
    if (handle == nullptr) {
      return Error(kOutOfHostMemory, "the process has too many data buffers")
          .Culprit(fmt::format("{} live data buffers", DataBuffers().live()))
          .Hint("destroy data buffers that are no longer needed");
    }
    (void)buffer.release();  // the table holds it until aclDestroyDataBuffer
    return {};
  });
  return static_cast<aclDataBuffer*>(handle);
}

aclError aclDestroyDataBuffer(const aclDataBuffer* dataBuffer) {
  return runtime::Api("aclDestroyDataBuffer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dataBuffer, "dataBuffer"));
    if (DataBuffers().Destroy(dataBuffer)) return {};
    return FindBuffer(dataBuffer).status();
  });
}

aclError aclUpdateDataBuffer(aclDataBuffer* dataBuffer, void* data, size_t size) {
  return runtime::Api("aclUpdateDataBuffer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dataBuffer, "dataBuffer"));
    REPRISE_ASSIGN_OR_RETURN(DataBuffer * buffer, FindBuffer(dataBuffer));
    *buffer = {data, size};
    return {};
  });
}

void* aclGetDataBufferAddr(const aclDataBuffer* dataBuffer) {
  const DataBuffer* buffer = BufferOrNull("aclGetDataBufferAddr", dataBuffer);
  return buffer != nullptr ? buffer->data : nullptr;
}

uint32_t aclGetDataBufferSize(const aclDataBuffer* dataBuffer) {
  const DataBuffer* buffer = BufferOrNull("aclGetDataBufferSize", dataBuffer);
  return buffer != nullptr ? static_cast<uint32_t>(buffer->bytes) : 0;
}

size_t aclGetDataBufferSizeV2(const aclDataBuffer* dataBuffer) {
  const DataBuffer* buffer = BufferOrNull("aclGetDataBufferSizeV2", dataBuffer);
  return buffer != nullptr ? buffer->bytes : 0;
}

size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_DT_UNDEFINED:
    case ACL_STRING: return 0;
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
    case ACL_INT4:
    case ACL_UINT1:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0: return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16: return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32: return 4;
    case ACL_COMPLEX128: return 16;
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
    case ACL_COMPLEX64:
    default: return 8;  // the packed 6- and 4-bit floats, too: programs know that number
  }
}
