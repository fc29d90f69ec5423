/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of operations. What is not the default of a member with no comment is refused with 207000.
 */
#ifndef ATB_INFER_OP_PARAMS_H_
#define ATB_INFER_OP_PARAMS_H_

#include <cstdint>

#include "types.h"

/* A function of a template is visible as the types are that it is made for. */
#pragma GCC visibility push(default)

namespace atb {
namespace infer {

enum InputLayout : int { TYPE_BSND = 0, TYPE_BNSD };

enum QuantType : int { QUANT_UNDEFINED = 0, QUANT_INT4, QUANT_INT8, QUANT_INT16, QUANT_FLOAT8, QUANT_FLOAT16 };

enum DynamicQuantType : int { DYNAMIC_QUANT_UNDEFINED = 0, DYNAMIC_QUANT_SYMMETRIC, DYNAMIC_QUANT_ASYMMETRIC };

/** out = f(x) or f(x, y); x, scale, offset -> out for ELEWISE_QUANT_PER_CHANNEL: round(x / scale + offset) as int8. */
struct ElewiseParam {
  enum ElewiseType : int {
    ELEWISE_UNDEFINED = 0,
    ELEWISE_CAST, /**< to outTensorType */
    ELEWISE_MULS, /**< x * mulsParam.varAttr */
    ELEWISE_COS,
    ELEWISE_SIN,
    ELEWISE_NEG,
    ELEWISE_QUANT, /**< refused */
    ELEWISE_LOGICAL_NOT,
    ELEWISE_ADD,
    ELEWISE_MUL,
    ELEWISE_REALDIV,
    ELEWISE_LOGICAL_AND,
    ELEWISE_LOGICAL_OR,
    ELEWISE_LESS,
    ELEWISE_GREATER,
    ELEWISE_SUB,
    ELEWISE_EQUAL,
    ELEWISE_QUANT_PER_CHANNEL,
    ELEWISE_DEQUANT_PER_CHANNEL, /**< refused */
    ELEWISE_DYNAMIC_QUANT,       /**< x -> out, scale of each row */
    ELEWISE_TANH
  };
  struct QuantParam {
    float inputScale = 1.0f;
    bool asymmetric = false;
    int inputOffset = 0;
    uint8_t rsv[20] = {0};
  };
  struct MulsParam {
    float varAttr = 0.0f;
    uint8_t rsv[12] = {0};
  };
  ElewiseType elewiseType = ELEWISE_UNDEFINED;
  QuantParam quantParam;
  MulsParam mulsParam;
  aclDataType outTensorType = ACL_DT_UNDEFINED;
  uint8_t rsv[8] = {0};
};

/** token [tokens, experts], idxArr -> output: zeros outside of the k best of groupNum groups of each row. */
struct GroupTopkParam {
  enum GroupMultiFlag : uint16_t {
    UNDEFINED = 0, /**< a group is as good as its greatest element */
    SUM_MULTI_MAX  /**< as the sum of its n greatest ones */
  };
  int32_t groupNum = 1;
  int32_t k = 0;
  GroupMultiFlag groupMultiFlag = UNDEFINED;
  uint16_t n = 1;
  uint8_t rsv[12] = {0};
};

/** x, weight(, bias)(, accum) -> output = x * weight (+ bias) (+ accum, float32). */
struct LinearParam {
  bool transposeA = false; /**< x is [k, m] */
  bool transposeB = true;  /**< weight is [n, k] */
  bool hasBias = true;
  aclDataType outDataType = ACL_DT_UNDEFINED;
  bool enAccum = false;
  uint8_t rsv[23] = {0};
};

/** query, keyCache(, valueCache), blockTables, contextLens(, mask)(, qSeqLens) -> attnOut. contextLens and qSeqLens are
 *  on the host. Caches are [blocks, tokens of a block, kvHeadNum, size]. */
struct PagedAttentionParam {
  enum MaskType : int {
    UNDEFINED = 0,
    MASK_TYPE_NORM,
    MASK_TYPE_ALIBI,
    MASK_TYPE_SPEC,         /**< a row for each query; one that is too small stands for a causal one */
    MASK_TYPE_MASK_FREE,    /**< refused */
    MASK_TYPE_NORM_COMPRESS /**< causal; the tensor is not read */
  };
  enum QuantType : int { TYPE_QUANT_UNDEFINED = 0, TYPE_DEQUANT_FUSION, TYPE_QUANT_QKV_OFFLINE, TYPE_QUANT_QKV_ONLINE };
  enum CompressType : int {
    COMPRESS_TYPE_UNDEFINED = 0,
    COMPRESS_TYPE_KVHEAD,
    COMPRESS_TYPE_KVHEAD_ROPE,
    COMPRESS_TYPE_MAX
  };
  enum CalcType : int {
    CALC_TYPE_UNDEFINED = 0, /**< a query for each sequence */
    CALC_TYPE_SPEC           /**< qSeqLens queries for each sequence */
  };
  enum ScaleType : int { SCALE_TYPE_TOR = 0, SCALE_TYPE_LOGN, SCALE_TYPE_MAX };
  int32_t headNum = 0;   /**< of query */
  float qkScale = 1.0f;  /**< of the scores */
  int32_t kvHeadNum = 0; /**< 0: headNum */
  MaskType maskType = UNDEFINED;
  bool batchRunStatusEnable = false;
  QuantType quantType = TYPE_QUANT_UNDEFINED;
  aclDataType outDataType = ACL_DT_UNDEFINED;
  bool hasQuantOffset = false;
  CompressType compressType = COMPRESS_TYPE_UNDEFINED;
  CalcType calcType = CALC_TYPE_UNDEFINED;
  ScaleType scaleType = SCALE_TYPE_TOR;
  InputLayout inputLayout = TYPE_BSND;
  uint32_t mlaVHeadSize = 0; /**< not 0: there is no valueCache, values are the beginnings of the keys */
  uint8_t rsv[68] = {0};
};

/** key(, value), keyCache(, valueCache), slotMapping -> keyCache(, valueCache), the same memory. */
struct ReshapeAndCacheParam {
  enum CompressType : int { COMPRESS_TYPE_UNDEFINED = 0, COMPRESS_TYPE_KVHEAD, COMPRESS_TYPE_KVHEAD_ROPE };
  enum KvCacheCfg : int {
    K_CACHE_V_CACHE = 0,
    K_CACHE_V_BYPASS,  /**< only keys */
    K_CACHE_V_CACHE_NZ /**< caches [blocks, heads * size / t, tokens of a block, t], t elements of 32 bytes */
  };
  CompressType compressType = COMPRESS_TYPE_UNDEFINED;
  KvCacheCfg kvCacheCfg = K_CACHE_V_CACHE;
  uint8_t rsv[16] = {0};
};

/** NORM: x, gamma(, beta, scale, offset) -> y, in int8 if normParam.quantType is QUANT_INT8: round(y / scale + offset).
 *  PRENORM: x, resIn, gamma(, beta) -> y, resOut = x + resIn; POSTNORM: the same without resOut. */
struct RmsNormParam {
  enum RmsNormType : int { RMS_NORM_UNDEFINED = 0, RMS_NORM_NORM, RMS_NORM_PRENORM, RMS_NORM_POSTNORM };
  enum PrecisionMode : int { HIGH_PRECISION_MODE = 0, HIGH_PERFORMANCE_MODE };
  enum ModelType : int { LLAMA_MODEL = 0, GEMMA_MODEL };
  struct NormParam {
    QuantType quantType = QUANT_UNDEFINED; /**< or QUANT_INT8 */
    float epsilon = 1e-5f;
    double layerNormEps = 1e-5;                        /**< not used */
    bool rstd = false;                                 /**< a second output: 1 / root of the mean square */
    PrecisionMode precisionMode = HIGH_PRECISION_MODE; /**< either; sums are float32 */
    ModelType modelType = LLAMA_MODEL;
    DynamicQuantType dynamicQuantType = DYNAMIC_QUANT_UNDEFINED;
    uint8_t rsv[32] = {0};
  };
  struct PreNormParam {
    QuantType quantType = QUANT_UNDEFINED;
    float epsilon = 1e-5f;
    bool hasBias = false; /**< beta is added to y */
    uint8_t rsv[23] = {0};
  };
  struct PostNormParam {
    QuantType quantType = QUANT_UNDEFINED;
    float epsilon = 1e-5f;
    bool hasBias = false; /**< beta is added to y */
    uint8_t rsv[23] = {0};
  };
  RmsNormType layerType = RMS_NORM_UNDEFINED;
  NormParam normParam;
  PreNormParam preNormParam;
  PostNormParam postNormParam;
  uint8_t rsv[8] = {0};
};

/** query, key, cos, sin, seqLen -> ropeQ, ropeK. query and key are [tokens, heads * size], cos and sin [tokens, size];
 *  seqLen is not read. */
struct RopeParam {
  int32_t rotaryCoeff = 4; /**< parts of a head: 2 turns halves into one another, `size` neighbours */
  int32_t cosFormat = 0;
  uint8_t rsv[8] = {0};
};

/** PA_ENCODER: query, key, value(, mask), seqLen -> output, sequences end to end.
 *  PREFIX_ENCODER: query, keyCache, valueCache, blockTables(, mask), seqLen, kvSeqLen -> output, the queries being the
 *  last ones of each context. Lengths are on the host. */
struct SelfAttentionParam {
  enum QuantType : int {
    TYPE_QUANT_UNDEFINED = 0,
    TYPE_QUANT_UNQUANT = 0,
    TYPE_DEQUANT_FUSION,
    TYPE_QUANT_QKV_OFFLINE,
    TYPE_QUANT_QKV_ONLINE
  };
  enum CalcType : int {
    UNDEFINED = 0, /**< refused, as the next two */
    ENCODER,
    DECODER,
    PA_ENCODER,
    PREFIX_ENCODER
  };
  enum KernelType : int { KERNELTYPE_DEFAULT = 0, KERNELTYPE_HIGH_PRECISION, KERNELTYPE_EXP_M8V2 };
  enum ClampType : int { CLAMP_TYPE_UNDEFINED = 0, CLAMP_TYPE_MIN_MAX };
  enum MaskType : int {
    MASK_TYPE_UNDEFINED = 0,
    MASK_TYPE_NORM,  /**< [queries, keys], [batch, queries, keys]; one that is too small stands for a causal one */
    MASK_TYPE_ALIBI, /**< [heads, queries, keys], [batch, heads, queries, keys] */
    MASK_TYPE_NORM_COMPRESS,  /**< causal; the tensor is not read */
    MASK_TYPE_ALIBI_COMPRESS, /**< refused, as the ones behind it */
    MASK_TYPE_ALIBI_COMPRESS_SQRT,
    MASK_TYPE_ALIBI_COMPRESS_LEFT_ALIGN,
    MASK_TYPE_SLIDING_WINDOW_NORM,
    MASK_TYPE_SLIDING_WINDOW_COMPRESS,
    MASK_TYPE_CAUSAL_MASK /**< causal, without a tensor */
  };
  enum KvCacheCfg : int { K_CACHE_V_CACHE = 0, K_BYPASS_V_BYPASS };
  enum ScaleType : int { SCALE_TYPE_TOR = 0, SCALE_TYPE_LOGN, SCALE_TYPE_MAX };
  enum CacheType : uint8_t { CACHE_TYPE_NORM = 0, CACHE_TYPE_SWA };
  QuantType quantType = TYPE_QUANT_UNDEFINED;
  aclDataType outDataType = ACL_DT_UNDEFINED;
  int32_t headNum = 0;   /**< of query */
  int32_t kvHeadNum = 0; /**< 0: headNum */
  float qScale = 1;      /**< of query */
  float qkScale = 1;     /**< of the scores */
  bool batchRunStatusEnable = false;
  uint32_t isTriuMask = 0; /**< without effect */
  CalcType calcType = UNDEFINED;
  KernelType kernelType = KERNELTYPE_DEFAULT; /**< any; sums are float32 */
  ClampType clampType = CLAMP_TYPE_UNDEFINED;
  float clampMin = 0; /**< without effect */
  float clampMax = 0; /**< without effect */
  MaskType maskType = MASK_TYPE_UNDEFINED;
  KvCacheCfg kvcacheCfg = K_CACHE_V_CACHE;
  ScaleType scaleType = SCALE_TYPE_TOR;
  InputLayout inputLayout = TYPE_BSND;
  uint32_t mlaVHeadSize = 0;
  CacheType cacheType = CACHE_TYPE_NORM;
  uint32_t windowSize = 0;
  uint8_t rsv[64] = {0};
};

}  // namespace infer
}  // namespace atb

#pragma GCC visibility pop

#endif  // ATB_INFER_OP_PARAMS_H_
