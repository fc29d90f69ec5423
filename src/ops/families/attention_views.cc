// SPDX-License-Identifier: Apache-2.0
#include "ops/families/attention.h"

namespace reprise::ops::attention {

bool IsLayout(std::string_view text) {
  for (std::string_view known : {"BSH", "SBH", "BSND", "BNSD", "NBSD", "TND", "NTD"}) {
    if (text == known) return true;
  }
  return false;
}

StatusOr<HeadView> ViewAs(const OpCall& call, const Operand& operand, std::string_view layout, int64_t heads,
                          int64_t depth) {
  const TensorRef from = call.RefOf(operand);
  if (from.rank != static_cast<int>(layout.size())) {
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims for the layout {}",
                                                    ShapeText(operand.sizes()), layout.size(), layout));
  }
  HeadView view;
  TensorRef& to = view.ref;
  to.data = from.data;
  to.dtype = from.dtype;
  to.rank = 4;
  to.sizes[0] = 1;
  for (int d = 0; d < from.rank; ++d) {
    const char letter = layout[static_cast<size_t>(d)];
    if (letter == 'H') {
      const int64_t size = from.sizes[d];
      const int64_t count = heads != 0 ? heads : depth == 0 ? 0 : size / depth;
      if (count == 0 || size % count != 0) {
        return call.InvalidOperand(
            operand,
            fmt::format("has shape {}, its last dim {} does not divide into {}", ShapeText(operand.sizes()), size,
                        heads != 0 ? fmt::format("{} heads", heads) : fmt::format("heads of {} elements", depth)));
      }
      to.sizes[1] = count;
      to.sizes[3] = size / count;
      to.strides[1] = from.strides[d] * to.sizes[3];
      to.strides[3] = from.strides[d];
      continue;
    }
    const int at = letter == 'B' ? 0 : letter == 'N' ? 1 : letter == 'D' ? 3 : 2;
    to.sizes[at] = from.sizes[d];
    to.strides[at] = from.strides[d];
  }
  if (heads != 0 && to.sizes[1] != heads) {
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} heads in dim {} of the layout {}",
                                                    ShapeText(operand.sizes()), heads, layout.find('N'), layout));
  }
  return view;
}

namespace {

// The place of a factor; null: the name is none of one.
const Operand** FactorOf(Parts& parts, std::string_view name) {
  if (name.ends_with("Optional")) name.remove_suffix(8);
  const std::pair<std::string_view, const Operand**> known[] = {{"deqScale1", &parts.score_factor},
                                                                {"dequantScale1", &parts.score_factor},
                                                                {"quantScale1", &parts.weight_factor},
                                                                {"deqScale2", &parts.value_factor},
                                                                {"dequantScale2", &parts.value_factor},
                                                                {"quantScale2", &parts.out_scale},
                                                                {"quantOffset2", &parts.out_offset},
                                                                {"antiquantScale", &parts.both_scale},
                                                                {"antiquantOffset", &parts.both_offset},
                                                                {"keyAntiquantScale", &parts.key_scale},
                                                                {"keyAntiquantOffset", &parts.key_offset},
                                                                {"valueAntiquantScale", &parts.value_scale},
                                                                {"valueAntiquantOffset", &parts.value_offset},
                                                                {"dequantScaleQuery", &parts.query_factor}};
  for (const auto& [own, place] : known) {
    if (own == name) return place;
  }
  return nullptr;
}

}  // namespace

StatusOr<Parts> FindParts(const OpCall& call) {
  Parts parts;
  for (const Operand& input : call.inputs) {
    const std::string_view name = call.op.params[input.param].name;
    if (name == "query") {
      parts.query = &input;
    } else if (name == "key" || name == "keyIn" || name == "value") {
      auto& list = name != "value" ? parts.keys : parts.values;
      list =
          list.empty() ? std::span<const Operand>(&input, 1) : std::span<const Operand>(list.data(), list.size() + 1);
    } else if (name.starts_with("pseShift") || name == "realShiftOptional") {
      parts.shift = &input;
    } else if (name.starts_with("attenMask")) {
      parts.mask = &input;
    } else if (name == "dropMaskOptional") {
      parts.drop = &input;
    } else if (name.starts_with("block")) {
      parts.table = &input;
    } else if (name == "learnableSinkOptional" || name == "sinkOptional") {
      parts.sink = &input;
    } else if (name == "queryRopeOptional" || name == "queryRope") {
      parts.query_rope = &input;
    } else if (name == "keyRopeOptional" || name == "keyRope" || name == "keyInRope") {
      parts.key_rope = &input;
    } else if (name == "attentionInOptional") {
      parts.out = &input;
    } else if (name == "softmaxMaxOptional") {
      parts.maximum = &input;
    } else if (name == "softmaxSumOptional") {
      parts.sum = &input;
    } else if (name == "dy" || name == "softmaxInOptional") {
      continue;  // not of the forward pass, not needed
    } else if (const Operand** factor = FactorOf(parts, name)) {
      *factor = &input;
    } else {
      return call.InvalidOperand(input, "is not supported yet", "pass null");
    }
  }
  for (const Operand& output : call.outputs) {
    const std::string_view name = call.op.params[output.param].name;
    if (name.starts_with("attentionOut")) {
      parts.out = &output;
    } else if (name == "softmaxMaxOut") {
      parts.maximum = &output;
    } else if (name == "softmaxSumOut") {
      parts.sum = &output;
    } else if (name == "softmaxLse") {
      parts.log_sum = &output;
    }
  }
  if (parts.keys.empty() || parts.keys.size() != parts.values.size()) {
    return call.Invalid(fmt::format("key has {} tensors and value {}", parts.keys.size(), parts.values.size()),
                        "pass lists of the same length that is not 0");
  }
  return parts;
}

std::string_view FirstOf(const OpCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    if (call.Has(name)) return name;
  }
  return {};
}

std::span<const int64_t> IntsOf(const OpCall& call, std::string_view name) {
  return name.empty() ? std::span<const int64_t>() : call.Ints(name);
}

StatusOr<TensorRef> ScoreView(const OpCall& call, const Operand& operand, int64_t batch, int64_t heads, int64_t queries,
                              int64_t keys) {
  const TensorRef from = call.RefOf(operand);
  TensorRef to;
  to.data = from.data;
  to.dtype = from.dtype;
  to.rank = 4;
  const int64_t wanted[4] = {batch, heads, queries, keys};
  // Which of the four a dim is: [.., query, key], a batch in front of them; one query leaves out its dim.
  int place[4] = {0, 1, 2, 3};
  if (from.rank == 3) place[0] = 0, place[1] = 2, place[2] = 3;
  if (from.rank == 2) place[0] = 2, place[1] = 3;
  if (from.rank == 2 && queries == 1 && from.sizes[0] == batch) place[0] = 0;
  for (int d = 0; d < 4; ++d) to.sizes[d] = 1;
  bool fits = from.rank >= 2 && from.rank <= 4;
  for (int d = 0; fits && d < from.rank; ++d) {
    const int at = place[d];
    const int64_t size = from.sizes[d];
    to.sizes[at] = size;
    to.strides[at] = size == 1 ? 0 : from.strides[d];
    fits = size == 1 || size == wanted[at] || (at >= 2 && size > wanted[at]);
  }
  if (!fits) {
    return call.InvalidOperand(operand,
                               fmt::format("has shape {}, expected one that broadcasts to [{}, {}, {}, {}]",
                                           ShapeText(operand.sizes()), batch, heads, queries, keys),
                               "pass [batch, heads, queries, keys], each of them 1 if it is the same for all, or "
                               "[queries, keys]");
  }
  return to;
}

StatusOr<TensorRef> StatisticView(OpCall& call, const Operand& operand, const HeadView& query, bool is_packed,
                                  int64_t copies) {
  Dims expected;
  if (is_packed) {
    for (int64_t size : {query.tokens(), query.heads(), copies}) expected.push_back(size);
  } else {
    for (int64_t size : {query.batch(), query.heads(), query.tokens(), copies}) expected.push_back(size);
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(operand, expected, [] { return "the shape"; }));
  REPRISE_ASSIGN_OR_RETURN(const HeadView view, ViewAs(call, operand, is_packed ? "TND" : "BNSD", query.heads(), 0));
  return view.ref;
}

void AddOptional(const OpCall& call, Launch& launch, const Operand* operand, const TensorRef& view, bool is_write) {
  if (operand == nullptr) return is_write ? call.WriteOptional(launch, nullptr) : call.ReadOptional(launch, nullptr);
  is_write ? call.Write(launch, *operand, view) : call.Read(launch, *operand, view);
}

}  // namespace reprise::ops::attention
