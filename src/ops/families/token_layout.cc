// SPDX-License-Identifier: Apache-2.0
#include "ops/families/token_layout.h"

#include <climits>

namespace reprise::ops {

using kernels::DType;
using kernels::TensorRef;

StatusOr<TensorRef> Tokens::ViewOfQuery(const OpCall& call, const Operand& operand, int64_t heads) const {
  REPRISE_ASSIGN_OR_RETURN(const attention::HeadView view, attention::ViewAs(call, operand, query_layout, heads, 0));
  if (view.batch() == query.batch() && view.tokens() == query.tokens()) return view.ref;
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} batches of {} tokens, as query has",
                                                  ShapeText(operand.sizes()), query.batch(), query.tokens()));
}

StatusOr<TensorRef> Tokens::ViewOfKey(const OpCall& call, const Operand& operand, int64_t heads) const {
  REPRISE_ASSIGN_OR_RETURN(const attention::HeadView view, attention::ViewAs(call, operand, key_layout, heads, 0));
  if (view.batch() == key.batch() && view.tokens() == key.tokens()) return view.ref;
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected {} {} of {} tokens, as key has", ShapeText(operand.sizes()),
                           key.batch(), layout.is_paged() ? "pages" : "batches", key.tokens()));
}

StatusOr<TensorRef> Tokens::NumbersOfQuery(const OpCall& call, const Operand& operand) const {
  const std::string_view text = layout.queries_are_packed ? "TN" : "BSN";
  REPRISE_ASSIGN_OR_RETURN(attention::HeadView view, attention::ViewAs(call, operand, text, query.heads(), 0));
  view.ref.sizes[3] = 1;
  if (view.batch() == query.batch() && view.tokens() == query.tokens()) return view.ref;
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected a number for each token and head of query",
                                                  ShapeText(operand.sizes())));
}

StatusOr<TensorRef> Tokens::NumbersOfKey(const OpCall& call, const Operand& operand) const {
  const std::string_view text = layout.keys_are_packed ? "TN" : "BSN";
  REPRISE_ASSIGN_OR_RETURN(attention::HeadView view, attention::ViewAs(call, operand, text, key.heads(), 0));
  view.ref.sizes[3] = 1;
  if (view.batch() == key.batch() && view.tokens() == key.tokens()) return view.ref;
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected a number for each token and head of key",
                                                  ShapeText(operand.sizes())));
}

namespace {

// A list of numbers, or a tensor of them, for every sequence.
Status ReadNumbers(const OpCall& call, std::string_view name, const Operand*& operand, std::vector<int64_t>& numbers) {
  if (name.empty()) return {};
  for (const auto& param : call.op.params) {
    if (param.name != name) continue;
    if (param.kind == ParamKind::kIntArray) {
      const std::span<const int64_t> list = call.Ints(name);
      numbers.assign(list.begin(), list.end());
      return {};
    }
    operand = call.Find(name);
    if (operand != nullptr && operand->tensor->count == 0) operand = nullptr;
    if (operand == nullptr) return {};
    if (operand->rank() != 1) {
      return call.InvalidOperand(*operand, fmt::format("has shape {}, expected one dim", ShapeText(operand->sizes())));
    }
  }
  return {};
}

// How many sequences lengths speak of; -1: there are none.
int64_t CountOf(const Operand* operand, const std::vector<int64_t>& numbers) {
  if (operand != nullptr) return operand->sizes()[0];
  return numbers.empty() ? -1 : static_cast<int64_t>(numbers.size());
}

Status CheckLengths(const OpCall& call, const TokenNames& names, const Tokens& tokens) {
  const kernels::TokenLayout& layout = tokens.layout;
  const int64_t keys = CountOf(tokens.key_lengths, tokens.key_numbers);
  const int64_t queries = CountOf(tokens.query_lengths, tokens.query_numbers);
  const auto check = [&](std::string_view name, int64_t count, bool is_needed) -> Status {
    if (count == layout.sequences || (count == -1 && !is_needed)) return {};
    if (count == -1) {
      return call.Invalid(fmt::format("{} is missing", name),
                          "layouts with T need the ends of the sequences, and pages the lengths of keys");
    }
    return call.Invalid(fmt::format("{} has {} entries for {} sequences", name, count, layout.sequences),
                        "pass a number for each sequence");
  };
  REPRISE_RETURN_IF_ERROR(check(names.query_lengths, queries, layout.queries_are_packed));
  return check(names.key_lengths, keys, layout.keys_are_packed || layout.is_paged());
}

}  // namespace

StatusOr<Tokens> ReadTokens(const OpCall& call, const TokenNames& names, const Operand& query, const Operand& key,
                            std::string_view query_layout, std::string_view key_layout, int64_t query_heads,
                            int64_t key_heads) {
  if (query_layout.empty()) query_layout = "BSND";
  if (key_layout.empty()) key_layout = query_layout;
  const bool is_paged = key_layout == "PA_BSND";
  const auto is_known = [](std::string_view layout, int64_t heads) {
    return layout == "BSND" || layout == "BNSD" || layout == "TND" || (layout == "BSH" && heads > 0);
  };
  if (!is_known(query_layout, query_heads) || (!is_paged && !is_known(key_layout, key_heads))) {
    return call.Invalid(
        fmt::format("the layouts are '{}' and '{}', expected BSND or TND, and PA_BSND for pages of keys", query_layout,
                    key_layout));
  }
  Tokens tokens;
  tokens.query_layout = query_layout;
  tokens.key_layout = !is_paged ? key_layout : key.rank() == 3 && key_heads > 0 ? "BSH" : "BSND";
  REPRISE_ASSIGN_OR_RETURN(tokens.query, attention::ViewAs(call, query, tokens.query_layout, query_heads, 0));
  REPRISE_ASSIGN_OR_RETURN(tokens.key, attention::ViewAs(call, key, tokens.key_layout, key_heads, 0));
  REPRISE_RETURN_IF_ERROR(ReadNumbers(call, names.query_lengths, tokens.query_lengths, tokens.query_numbers));
  REPRISE_RETURN_IF_ERROR(ReadNumbers(call, names.key_lengths, tokens.key_lengths, tokens.key_numbers));
  kernels::TokenLayout& layout = tokens.layout;
  layout.queries_are_packed = query_layout == "TND";
  layout.keys_are_packed = key_layout == "TND";
  layout.queries = tokens.query.tokens();
  layout.keys = tokens.key.tokens();
  layout.key_batches = tokens.key.batch();
  layout.sequences = tokens.query.batch();
  if (layout.queries_are_packed) {
    layout.sequences = std::max<int64_t>(0, CountOf(tokens.query_lengths, tokens.query_numbers));
  }
  if (is_paged) {
    tokens.table = names.table.empty() ? nullptr : call.Find(names.table);
    if (tokens.table == nullptr) {
      return call.Invalid(fmt::format("{} is missing", names.table), "the layout PA_BSND needs the pages of keys");
    }
    if (tokens.table->rank() != 2 || tokens.table->sizes()[0] != layout.sequences) {
      return call.InvalidOperand(*tokens.table, fmt::format("has shape {}, expected [{}, pages]",
                                                            ShapeText(tokens.table->sizes()), layout.sequences));
    }
    layout.table_pages = tokens.table->sizes()[1];
    if (layout.table_pages == 0) layout.key_batches = 0;
  } else if (!layout.keys_are_packed && layout.key_batches != layout.sequences) {
    return call.InvalidOperand(
        key, fmt::format("has shape {}, expected a batch of {}", ShapeText(key.sizes()), layout.sequences));
  }
  REPRISE_RETURN_IF_ERROR(CheckLengths(call, names, tokens));
  if (tokens.key.heads() == 0 || tokens.query.heads() % tokens.key.heads() != 0) {
    return call.InvalidOperand(key, fmt::format("has {} heads, which do not divide the {} of query", tokens.key.heads(),
                                                tokens.query.heads()));
  }
  return tokens;
}

void MakeEnds(Tokens& tokens) {
  const auto make = [](std::vector<int64_t>& numbers, int64_t all) {
    int64_t sum = 0;
    for (const int64_t number : numbers) sum = number < 0 || sum > all ? INT64_MIN / 4 : sum + number;
    if (sum != all || numbers.empty() || numbers.back() == all) return;
    for (size_t i = 1; i < numbers.size(); ++i) numbers[i] += numbers[i - 1];
  };
  if (tokens.layout.queries_are_packed) make(tokens.query_numbers, tokens.layout.queries);
  if (tokens.layout.keys_are_packed) make(tokens.key_numbers, tokens.layout.keys);
}

StatusOr<kernels::Causal> CausalOf(const OpCall& call) {
  switch (call.Int("sparseMode")) {
    case 0: return kernels::Causal::kNo;
    case 2: return kernels::Causal::kLeftUp;
    case 3: return kernels::Causal::kRightDown;
    default:
      return call.Invalid(fmt::format("sparseMode is {}, expected 0, 2 or 3", call.Int("sparseMode")),
                          "0 all keys, 2 causal from the left upper corner, 3 from the right lower one");
  }
}

Status CheckNoBand(const OpCall& call) {
  for (std::string_view name : {"preTokens", "nextTokens"}) {
    if (!call.Has(name) || call.Int(name) >= INT_MAX) continue;
    return call.Invalid(fmt::format("{} is {}, but bands are not supported yet", name, call.Int(name)),
                        "pass 2147483647 or more");
  }
  return {};
}

void ReadLengths(const OpCall& call, Launch& launch, const Tokens& tokens) {
  for (const Operand* operand : {tokens.query_lengths, tokens.key_lengths, tokens.table}) {
    call.ReadOptional(launch, operand);
  }
}

kernels::TokenLengths LengthsOf(const Launch& launch, size_t first, const std::vector<int64_t>& query_numbers,
                                const std::vector<int64_t>& key_numbers) {
  kernels::TokenLengths lengths{launch.refs[first], launch.refs[first + 1], launch.refs[first + 2]};
  const auto replace = [](TensorRef& ref, const std::vector<int64_t>& numbers) {
    if (numbers.empty()) return;
    ref = kernels::MakeContiguous(const_cast<int64_t*>(numbers.data()), DType::kInt64,
                                  {static_cast<int64_t>(numbers.size())});
  };
  replace(lengths.queries, query_numbers);
  replace(lengths.keys, key_numbers);
  return lengths;
}

}  // namespace reprise::ops
