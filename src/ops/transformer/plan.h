// SPDX-License-Identifier: Apache-2.0
//
// Plan: one call of an operation of the transformer library while it is checked and turned into calls of operators.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/operator_chain.h"
#include "ops/transformer/operation.h"

namespace reprise::ops::transformer {

/// Threads: belongs to the thread that makes the call.
class Plan {
 public:
  Plan(const Signature& signature, std::span<const GivenTensor> inputs, std::span<const GivenTensor> outputs,
       OperatorChain& operators)
      : chain(operators), signature_(signature), inputs_(inputs), outputs_(outputs) {}

  /// The number of tensors, which are missing, and whether the device reaches them.
  Status CheckTensors() const;

  OperatorChain& chain;

  // ---- Tensors, by the names of the signature ----

  /// In device memory.
  const Tensor& In(std::string_view name) const { return Given(name).view; }
  const Tensor& Out(std::string_view name) const;
  bool Has(std::string_view name) const { return Given(name).is_given; }
  /// Of lengths.
  StatusOr<std::vector<int64_t>> HostInts(std::string_view name) const;

  // ---- Views that several operations need ----

  /// [tokens, heads, size], also of [tokens, heads * size].
  StatusOr<Tensor> Tokens(std::string_view name, int64_t heads) const { return TokensOf(name, In(name), heads); }
  StatusOr<Tensor> OutTokens(std::string_view name, int64_t heads) const { return TokensOf(name, Out(name), heads); }
  /// [blocks, heads, tokens of a block, size] of [blocks, tokens of a block, heads, size], the last two also as one.
  StatusOr<Tensor> Pages(std::string_view name, int64_t heads) const;

  /// 161002: "<operation>: <tensor> <text>".
  Status Wrong(std::string_view name, std::string_view text, std::string hint = {}) const;
  /// 161002: "<operation>: <text>".
  Status Invalid(std::string_view text, std::string hint = {}) const;
  /// "has shape [4, 3], expected <what>".
  Status WrongShape(std::string_view name, std::string_view what) const;
  /// 207000: "<operation>: <text>".
  Status Unsupported(std::string_view text, std::string hint) const;

 private:
  const GivenTensor& Given(std::string_view name) const;
  StatusOr<Tensor> TokensOf(std::string_view name, const Tensor& tensor, int64_t heads) const;

  const Signature& signature_;
  std::span<const GivenTensor> inputs_, outputs_;
};

// ---- One for each request: attention.cc, caches.cc, rows.cc ----

Status Make(const PagedAttention& request, Plan& plan);
Status Make(const SelfAttention& request, Plan& plan);
Status Make(const LatentAttention& request, Plan& plan);
Status Make(const RingAttention& request, Plan& plan);
Status Make(const CacheWrite& request, Plan& plan);
Status Make(const CacheRead& request, Plan& plan);
Status Make(const RmsNorm& request, Plan& plan);
Status Make(const Rotary& request, Plan& plan);
Status Make(const Linear& request, Plan& plan);
Status Make(const GroupChoice& request, Plan& plan);
Status Make(const ExpertChoice& request, Plan& plan);
Status Make(const Elementwise& request, Plan& plan);

}  // namespace reprise::ops::transformer
