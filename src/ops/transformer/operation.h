// SPDX-License-Identifier: Apache-2.0
//
// Operations of the transformer library, over the operators of the table: what a call asks for, the tensors that it
// takes and gives, and the calls of operators that do it.
//
// The values of some tensors are needed when the call is planned (lengths of sequences): these lie on the host.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "kernels/dtype.h"
#include "ops/tensor.h"

namespace reprise::runtime {
class Stream;
}

namespace reprise::ops::transformer {

/// A tensor of a call.
struct GivenTensor {
  Tensor view;                 ///< row-major; without data where the numbers are on the host
  const void* host = nullptr;  ///< numbers there, row-major
  bool is_given = false;       ///< an optional one may be left out
};

// ---- What a call asks for ----

/// What queries do not see, or what is added to their scores.
enum class Mask : uint8_t {
  kNone,
  kNorm,   ///< a tensor that all heads share; too small for the sequences it stands for a causal one
  kAlibi,  ///< a tensor with a part for each head
  kRows,   ///< a row for each query; too small it stands for a causal one
  kCausal  ///< a tensor that is not read
};

/// Attention over keys and values in pages.
struct PagedAttention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  float scale = 1;
  Mask mask = Mask::kNone;
  int64_t value_size = 0;          ///< not 0: values are the beginnings of the keys
  bool has_query_lengths = false;  ///< several queries for each sequence, the last ones of its context
};

/// Attention of sequences that lie end to end.
struct SelfAttention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  float scale = 1;
  Mask mask = Mask::kNone;
  bool is_paged = false;  ///< keys and values come from pages, and what comes before the queries with them
  const char* name = "SelfAttentionOperation";
  bool has_mask = false;  ///< a tensor for it is among the inputs
  bool has_slopes = false;
};

/// Attention over latent keys in pages, which are the values, too, with a part of each key and query apart.
struct LatentAttention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  float scale = 1;
};

/// Attention of sequences end to end, joined with what a part of their keys has given before.
struct RingAttention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  float scale = 1;
  bool is_causal = false;
  bool is_first = true;
};

/// Keys, and values, of tokens into pages.
struct CacheWrite {
  bool has_value = true;
  bool is_tiled = false;
};

/// Keys and values of sequences out of pages, end to end.
struct CacheRead {
  bool is_tiled = false;
  bool is_cumulative = false;
  bool has_starts = false;
};

struct RmsNorm {
  enum class Kind : uint8_t { kNorm, kBefore, kAfter };  ///< alone; of a sum, which is given, too; of a sum
  Kind kind = Kind::kNorm;
  float epsilon = 1e-5f;
  bool has_bias = false;
  bool is_quantized = false;
  bool has_rstd = false;
};

struct Rotary {
  int64_t coefficient = 4;  ///< parts of a head, of which neighbours are turned into one another
};

struct Linear {
  bool transposes_a = false;
  bool transposes_b = true;
  bool has_bias = true;
  bool accumulates = false;
};

/// Zeros in all but the best groups of each row.
struct GroupChoice {
  int64_t groups = 1;
  int64_t chosen = 0;
  int64_t summed = 1;  ///< a group is as good as the sum of so many of its greatest elements
};

/// The best experts of the best groups.
struct ExpertChoice {
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  int64_t summed = 1;
  int64_t chosen = 1;
  bool is_normalized = true;
  float scale = 1;
};

struct Elementwise {
  enum Kind : uint8_t {
    kUndefined,
    kCast,
    kMultiplyScalar,
    kCos,
    kSin,
    kNegate,
    kQuantize,
    kNot,
    kAdd,
    kMultiply,
    kDivide,
    kAnd,
    kOr,
    kLess,
    kGreater,
    kSubtract,
    kEqual,
    kQuantizeChannels,
    kDequantizeChannels,
    kDynamicQuantize,
    kTanh,
    kCount
  };
  Kind kind = kUndefined;
  float factor = 0;
  kernels::DType type = kernels::DType::kUndefined;  ///< of the output, of a cast
};

using Request = std::variant<PagedAttention, SelfAttention, LatentAttention, RingAttention, CacheWrite, CacheRead,
                             RmsNorm, Rotary, Linear, GroupChoice, ExpertChoice, Elementwise>;

// ---- What a request takes and gives ----

struct OutputRule {
  std::string_view name;
  size_t like = 0;                                   ///< the input whose shape and type it has
  kernels::DType type = kernels::DType::kUndefined;  ///< another type
};

struct Signature {
  std::string_view name;  ///< "PagedAttentionOperation"
  std::vector<std::string_view> inputs;
  std::vector<OutputRule> outputs;
};
Signature SignatureOf(const Request& request);

/// Shape and type, as far as inference goes.
struct Description {
  int32_t dtype_number = -1;
  std::vector<int64_t> sizes;
};
/// Errors: 161002 for a number of inputs or a shape that does not fit
StatusOr<std::vector<Description>> InferOutputs(const Request& request, std::span<const Description> inputs);

// ---- Calls ----

/// Checks the whole call; nothing is allocated or queued.
/// Errors: 161002 for tensors that do not fit, 107000 for memory that the device does not reach, 207000 for what is not
/// supported
Status Check(const Request& request, std::span<const GivenTensor> inputs, std::span<const GivenTensor> outputs);

/// Queues the call, or records it.
///
/// Threads:  thread-safe
/// Capture:  recorded as kernels; numbers on the host are taken over by the call
/// Errors:   those of Check and of submissions
Status Run(const Request& request, std::span<const GivenTensor> inputs, std::span<const GivenTensor> outputs,
           runtime::Stream& stream);

}  // namespace reprise::ops::transformer
