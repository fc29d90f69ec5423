/* SPDX-License-Identifier: Apache-2.0
 *
 * The older way to launch kernels (libruntime.so): an address that the program chooses stands for a kernel. What can be
 * launched are host-compiled kernels, see reprise/kernel.h; new programs use aclrtBinaryLoadFromFile and
 * aclrtLaunchKernelWithHostArgs. Numbers of errors are those of acl_rt.h; aclGetRecentErrMsg has the words.
 */
#ifndef REPRISE_EXPERIMENT_RUNTIME_RT_H_
#define REPRISE_EXPERIMENT_RUNTIME_RT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef int32_t rtError_t;
typedef void* rtStream_t;

#define RT_ERROR_NONE 0

/** Kinds of binaries. Accepted and not looked at: the file says what it is. */
#define RT_DEV_BINARY_MAGIC_ELF 0x43554245U
#define RT_DEV_BINARY_MAGIC_ELF_AIVEC 0x41415246U
#define RT_DEV_BINARY_MAGIC_ELF_AICUBE 0x41494343U

typedef struct tagRtDevBinary {
  uint32_t magic;   /**< one of RT_DEV_BINARY_MAGIC_* */
  uint32_t version; /**< 0 */
  const void* data; /**< bytes of a kernel binary; copied */
  uint64_t length;  /**< their number */
} rtDevBinary_t;

typedef struct tagRtSmDesc rtSmDesc_t;

/** Loads a kernel binary; aclrtBinaryUnLoad takes the handle, too. */
rtError_t rtDevBinaryRegister(const rtDevBinary_t* bin, void** hdl);

/** From now on `stubFunc`, any address of the program's choice, stands for a kernel of the binary: the one named by the
 *  text at `kernelInfoExt`, or by `stubName` where that is null. `funcMode` is 0. */
rtError_t rtFunctionRegister(void* binHandle, const void* stubFunc, const char* stubName, const void* kernelInfoExt,
                             uint32_t funcMode);

/** Queues `blockDim` blocks of the kernel; `args` is host memory and copied. `smDesc` is null. */
rtError_t rtKernelLaunch(const void* stubFunc, uint32_t blockDim, void* args, uint32_t argsSize, rtSmDesc_t* smDesc,
                         rtStream_t stm);

/** Scratch memory of the current device in which cores of a mixed kernel meet, and its bytes. */
rtError_t rtGetC2cCtrlAddr(uint64_t* addr, uint32_t* len);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* REPRISE_EXPERIMENT_RUNTIME_RT_H_ */
