/* SPDX-License-Identifier: Apache-2.0
 *
 * Operands that a caller attaches: the memory that a kernel or a host function of the program reads and writes. The
 * runtime knows neither code. Of a kernel it takes every word of the argument block for a possible address, of a host
 * function it knows nothing. A launch that says more is checked better and shown better:
 *
 *     const RepriseOperand operands[] = {{y, n * sizeof(float), REPRISE_ACCESS_READ_WRITE},
 *                                        {x, n * sizeof(float), REPRISE_ACCESS_READ}};
 *     repriseLaunchKernelWithOperands(axpy, 1, stream, args, sizeof args, operands, 2);
 *     repriseLaunchHostFuncWithOperands(stream, PrintSum, y, operands, 1);
 *
 * A replay is refused (107000) once memory of an operand was freed, dumps and pictures list the operands. They are what
 * the task touches, all of it: a list of none says that it touches no memory of the runtime. Nothing holds the task to
 * it. They go with the launch that names them: into a queue, or into a graph and each of its replays. What replaces a
 * captured task (an update of a task group, new parameters) brings operands of its own or has none.
 *
 * In C++, OperationOptions::operands and LaunchClosure take the same structure.
 */
#ifndef REPRISE_OPERANDS_H_
#define REPRISE_OPERANDS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a task does with an operand. */
enum { REPRISE_ACCESS_READ = 1, REPRISE_ACCESS_WRITE = 2, REPRISE_ACCESS_READ_WRITE = 3 };

/** A launch names at most as many operands. */
#define REPRISE_MAX_OPERANDS 4096u

/** A range of memory that a task touches. */
typedef struct RepriseOperand {
  const void* address; /**< of the first byte */
  uint64_t bytes;      /**< at least 1 */
  uint32_t access;     /**< REPRISE_ACCESS_* */
} RepriseOperand;

/** Launches a kernel as aclrtLaunchKernelWithHostArgs does without attributes and placeholders, with operands.
 *
 *  \param function    aclrtFuncHandle
 *  \param num_blocks  at least 1
 *  \param stream      aclrtStream; NULL means the default stream of the current context
 *  \param args        argument block in memory of the host, copied; NULL when args_bytes is 0
 *  \param operands    copied; may be NULL when count is 0
 *
 *  Threads: thread-safe.
 *  Capture: recorded; the operands stay with the captured task.
 *  Returns 0; 107000 for arguments that aclrtLaunchKernelWithHostArgs refuses with that number, for more than
 *  REPRISE_MAX_OPERANDS operands, and for an operand without an address, without bytes, with another access, or that
 *  leaves the memory in which it begins; else what aclrtLaunchKernelWithHostArgs returns. A refused call launches
 *  nothing. */
int32_t repriseLaunchKernelWithOperands(void* function, uint32_t num_blocks, void* stream, const void* args,
                                        size_t args_bytes, const RepriseOperand* operands, size_t count);

/** Queues a host function as aclrtLaunchHostFunc does, with operands. Parameters, threads, capture and errors of
 *  operands as above; else returns what aclrtLaunchHostFunc does. */
int32_t repriseLaunchHostFuncWithOperands(void* stream, void (*function)(void*), void* user_data,
                                          const RepriseOperand* operands, size_t count);

/** Queues a callback as aclrtLaunchCallback does, for the thread that is subscribed to the stream, with operands.
 *
 *  \param blocks  1: the stream waits until the callback has run (ACL_CALLBACK_BLOCK); 0: it goes on
 *
 *  Parameters, threads, capture and errors of operands as above; else returns what aclrtLaunchCallback does. */
int32_t repriseLaunchCallbackWithOperands(void (*function)(void*), void* user_data, uint32_t blocks, void* stream,
                                          const RepriseOperand* operands, size_t count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* REPRISE_OPERANDS_H_ */
