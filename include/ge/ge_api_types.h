/* SPDX-License-Identifier: Apache-2.0 */
/* Types and names of options of the graph engine. */
#ifndef REPRISE_GE_GE_API_TYPES_H_
#define REPRISE_GE_GE_API_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ge/ge_error_codes.h"
#include "graph/tensor.h"
#include "graph/types.h"

namespace ge {

/* Values of GEInitialize, of a session, of AddGraph, of LoadGraph. */
const char* const OPTION_EXEC_DEVICE_ID = "ge.exec.deviceId";
const char* const OPTION_GRAPH_RUN_MODE = "ge.graphRunMode";
const char* const OPTION_SESSION_DEVICE_ID = "ge.session_device_id";
const char* const OPTION_EXEC_ENABLE_DUMP = "ge.exec.enableDump";
const char* const OPTION_EXEC_DUMP_PATH = "ge.exec.dumpPath";
const char* const OPTION_EXEC_DUMP_STEP = "ge.exec.dumpStep";
const char* const OPTION_EXEC_DUMP_MODE = "ge.exec.dumpMode";
const char* const OPTION_EXEC_DUMP_LAYER = "ge.exec.dumpLayer";
const char* const OPTION_EXEC_DUMP_DATA = "ge.exec.dumpData";
const char* const OPTION_EXEC_REUSE_ZERO_COPY_MEMORY = "ge.exec.reuseZeroCopyMemory";
const char* const OPTION_EXEC_DISABLE_REUSED_MEMORY = "ge.exec.disableReuseMemory";
const char* const OPTION_FEATURE_BASE_REFRESHABLE = "ge.featureBaseRefreshable";
const char* const OPTION_CONST_LIFECYCLE = "ge.constLifecycle";
const char* const OPTION_INPUT_REUSE_MEM_INDEXES = "ge.exec.inputReuseMemIndexes";
const char* const OPTION_OUTPUT_REUSE_MEM_INDEXES = "ge.exec.outputReuseMemIndexes";
const char* const OPTION_OUTPUT_REUSE_INPUT_MEM_INDEXES = "ge.exec.outputReuseInputMemIndexes";
const char* const OPTION_EXEC_FROZEN_INPUT_INDEXES = "ge.exec.frozenInputIndexes";
const char* const OPTION_EXEC_HOST_INPUT_INDEXES = "ge.exec.hostInputIndexes";
const char* const OPTION_STATIC_MODEL_OPS_LOWER_LIMIT = "ge.exec.static_model_ops_lower_limit";
const char* const OPTION_ALL_TENSOR_NOT_EMPTY = "ge.exec.allTensorNotEmpty";
const char* const OPTION_GRAPH_COMPILER_CACHE_DIR = "ge.graph_compiler_cache_dir";
const char* const OPTION_GRAPH_KEY = "ge.graph_key";
const char* const OPTION_ALLOW_MULTI_GRAPH_PARALLEL_COMPILE = "ge.AllowMultiGraphParallelCompile";
const char* const OPTION_TOPOSORTING_MODE = "ge.topoSortingMode";
const char* const OPTION_FUSION_SWITCH_FILE = "ge.fusionSwitchFile";
const char* const OPTION_OPTIMIZATION_SWITCH = "ge.optimizationSwitch";
const char* const OO_LEVEL = "ge.oo.level";
const char* const OO_CONSTANT_FOLDING = "ge.oo.constantFolding";
const char* const OO_DEAD_CODE_ELIMINATION = "ge.oo.deadCodeElimination";
const char* const ENABLE_SINGLE_STREAM = "ge.enableSingleStream";
const char* const INPUT_SHAPE = "ge.inputShape";
const char* const DYNAMIC_NODE_TYPE = "ge.dynamicNodeType";
const char* const JIT_COMPILE = "ge.jit_compile";
const char* const PRECISION_MODE = "ge.exec.precision_mode";
const char* const PRECISION_MODE_V2 = "ge.exec.precision_mode_v2";
const char* const SOC_VERSION = "ge.socVersion";
const char* const DETERMINISTIC = "ge.deterministic";
const char* const EXTERNAL_WEIGHT = "ge.externalWeight";
const char* const kDynamicDims = "ge.dynamicDims";

enum class MemoryType : std::int64_t {
  MEMORY_TYPE_DEFAULT,
  MEMORY_TYPE_P2P
};

struct InputTensorInfo {
  uint32_t data_type;
  std::vector<int64_t> dims;
  void* data;
  int64_t length;
};

struct OutputTensorInfo {
  uint32_t data_type = 0;
  std::vector<int64_t> dims;
  std::unique_ptr<uint8_t[]> data;
  int64_t length = 0;

  OutputTensorInfo() = default;
  OutputTensorInfo(OutputTensorInfo&&) = default;
  OutputTensorInfo& operator=(OutputTensorInfo&&) = default;
};

/* A compiled graph, as a model. */
struct ModelBufferData {
  std::shared_ptr<uint8_t> data = nullptr;
  uint64_t length = 0;
};

using RunAsyncCallback = std::function<void(Status, std::vector<ge::Tensor>&)>;

}  // namespace ge

#endif  // REPRISE_GE_GE_API_TYPES_H_
