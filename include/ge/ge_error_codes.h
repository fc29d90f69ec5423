/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that functions of the graph engine return. */
#ifndef REPRISE_GE_GE_ERROR_CODES_H_
#define REPRISE_GE_GE_ERROR_CODES_H_

#include <cstdint>

#include "graph/ge_error_codes.h"

namespace ge {

using Status = uint32_t;
const Status SUCCESS = 0;
const Status FAILED = 0xFFFFFFFF;
const Status MEMALLOC_FAILED = 0x50100000;
const Status PARAM_INVALID = 0x50100001;
const Status RT_FAILED = 0x50100003;
const Status INTERNAL_ERROR = 0x50100004;
const Status END_OF_SEQUENCE = 0x50100007;
const Status PATH_INVALID = 0x50100008;
const Status UNSUPPORTED = 0x50100064;
const Status OUT_OF_MEMORY = 0x50100065;
const Status GE_CLI_INIT_FAILED = 0x50101001;
const Status GE_CLI_SESS_CONSTRUCT_FAILED = 0x50101003;
const Status GE_CLI_SESS_DESTROY_FAILED = 0x50101004;
const Status GE_CLI_SESS_ADD_FAILED = 0x50101005;
const Status GE_CLI_SESS_REMOVE_FAILED = 0x50101007;
const Status GE_CLI_SESS_RUN_FAILED = 0x50101008;
const Status GE_CLI_GE_ALREADY_INITIALIZED = 0x5010100A;
const Status GE_CLI_GE_NOT_INITIALIZED = 0x5010100B;
const Status GE_MULTI_INIT = 0x50102000;
const Status GE_FINALIZE_NOT_INIT = 0x50102001;
const Status GE_SESS_ALREADY_RUNNING = 0x50103001;
const Status GE_SESSION_NOT_EXIST = 0x50103005;
const Status GE_SESSION_MANAGER_NOT_INIT = 0x50103006;
const Status GE_GRAPH_INIT_FAILED = 0x50104000;
const Status GE_GRAPH_ALREADY_RUNNING = 0x50104001;
const Status GE_GRAPH_GRAPH_NOT_EXIST = 0x50104002;
const Status GE_GRAPH_GRAPH_ALREADY_EXIST = 0x50104003;
const Status GE_GRAPH_GRAPH_IS_RUNNING = 0x50104004;
const Status GE_GRAPH_GET_IN_OUT_FAILED = 0x50104013;
const Status GE_GRAPH_EXECUTE_FAILED = 0x50104015;
const Status GE_GRAPH_PREPARE_FAILED = 0x50104019;
const Status GE_GRAPH_PRERUN_FAILED = 0x5010401C;
const Status GE_GRAPH_INFERSHAPE_FAILED = 0x5010401E;
const Status GE_GRAPH_GRAPH_NODE_NULL = 0x50104024;
const Status GE_GRAPH_UNSUPPORTED = 0x50104029;
const Status GE_GRAPH_OPTIONS_INVALID = 0x50104033;
const Status GE_GRAPH_NOT_BUILT = 0x50104037;
const Status GE_GRAPH_REPEAT_OPERATION = 0x50104042;
const Status GE_RTI_MODEL_NOT_LOADED = 0x50108004;

}  // namespace ge

/* Numbers of an older interface, for plug-ins. */
namespace domi {

using Status = uint32_t;
const Status SUCCESS = 0;
const Status FAILED = 0xFFFFFFFF;
const Status PARAM_INVALID = 0x03000001;
const Status INTERNAL_ERROR = 0x03000004;

}  // namespace domi

#endif  // REPRISE_GE_GE_ERROR_CODES_H_
