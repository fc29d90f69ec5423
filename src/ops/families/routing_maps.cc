// SPDX-License-Identifier: Apache-2.0
//
// Tokens to experts and back by a map that tells who computes which, tokens that come rank by rank, and experts that
// stand in several places.
#include "kernels/routing_maps.h"

#include "kernels/copy.h"
#include "kernels/routing.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

std::string MapText(const Operand& operand) { return ShapeText(operand.sizes()); }

Status CheckMapRank(const OpCall& call, const Operand& operand, int rank) {
  if (operand.rank() == rank) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims", MapText(operand), rank));
}

// ---- Lists of rows and tokens ----

// Where the lists of a launch come from, and how long they are; places in its refs are those of ListAt.
struct RowLists {
  enum class From : uint8_t { kMap, kTokens, kSorted } from = From::kMap;
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t capacity = 0;  ///< rows of each expert; 0: as many as it has tokens
  int64_t choices = 0;   ///< of each token, for kSorted without a map
  enum class Told : uint8_t { kOrder, kTokens } told = Told::kOrder;  ///< what `sorted` becomes
};
struct ListAt {
  enum : size_t { kSorted, kTokenOut, kToken, kExpert, kOrder, kBegin, kMap, kIndex };
};

int64_t* WordsAt(const Launch& launch, size_t place, const Launch::KernelMemory& memory) {
  return static_cast<int64_t*>(launch.Ref(place, memory).data);
}

// Entry i of the list, where its token has one.
void TellEntries(const RowLists& lists, const int64_t* token, const int64_t* order, const TensorRef& sorted,
                 const TensorRef& token_out) {
  const auto write = [](const TensorRef& ref, int64_t i, int64_t word) {
    kernels::FindCast(DType::kInt64, ref.dtype)(
        reinterpret_cast<const char*>(&word), 0,
        static_cast<char*>(ref.data) + i * (ref.rank == 0 ? 0 : ref.strides[0]) * kernels::ItemSize(ref.dtype), 0, 1);
  };
  for (int64_t i = 0; i < lists.rows; ++i) {
    const int64_t row = order[i];
    if (sorted.data != nullptr) write(sorted, i, lists.told == RowLists::Told::kTokens ? token[i] : row);
    if (token_out.data != nullptr) write(token_out, i, row < 0 ? -1 : token[row]);
  }
}

void RunListRows(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const auto& lists = launch.State<RowLists>();
  int64_t* const token = WordsAt(launch, ListAt::kToken, memory);
  int64_t* const expert = WordsAt(launch, ListAt::kExpert, memory);
  int64_t* const order = WordsAt(launch, ListAt::kOrder, memory);
  int64_t* const begin = WordsAt(launch, ListAt::kBegin, memory);
  const TensorRef& map = launch.refs[ListAt::kMap];
  const TensorRef& index = launch.refs[ListAt::kIndex];
  if (lists.from == RowLists::From::kTokens) {
    kernels::ReadTokens(index, lists.tokens, token);
    for (int64_t i = 0; i < lists.rows; ++i) expert[i] = lists.capacity == 0 ? 0 : i / lists.capacity;
  } else if (map.data != nullptr) {
    kernels::ListEntries({.map = map, .rows = lists.rows, .capacity = lists.capacity}, token, expert);
  } else {
    std::fill_n(expert, lists.rows, int64_t{0});
  }
  if (lists.from == RowLists::From::kSorted && map.data == nullptr) {
    kernels::ListSorted(index, lists.choices, lists.tokens, order, begin, token);
  } else {
    kernels::OrderByToken(token, lists.rows, lists.tokens, order, begin);
  }
  if (lists.from == RowLists::From::kSorted && map.data != nullptr) {
    // The order of the caller, in which each token has as many rows as the map tells.
    kernels::ReadTokens(index, lists.rows, order);
  }
  TellEntries(lists, token, order, launch.refs[ListAt::kSorted], launch.refs[ListAt::kTokenOut]);
}

struct ListMemory {
  TensorRef token, expert, order, begin;
};

ListMemory AddLists(OpCall& call, const RowLists& lists, const Operand* sorted, const Operand* token_out,
                    const Operand* map, const Operand* index) {
  const int64_t ends = lists.tokens + 1;
  const ListMemory memory = {
      .token = call.Temporary(DType::kInt64, {&lists.rows, 1}),
      .expert = call.Temporary(DType::kInt64, {&lists.rows, 1}),
      .order = call.Temporary(DType::kInt64, {&lists.rows, 1}),
      .begin = call.Temporary(DType::kInt64, {&ends, 1}),
  };
  Launch& launch = call.AddLaunch(RunListRows);
  call.WriteOptional(launch, sorted);
  call.WriteOptional(launch, token_out);
  for (const TensorRef* each : {&memory.token, &memory.expert, &memory.order, &memory.begin}) {
    call.WriteTemporary(launch, *each);
  }
  call.ReadOptional(launch, map);
  call.ReadOptional(launch, index);
  launch.units = 1;
  launch.state = std::make_shared<const RowLists>(lists);
  return memory;
}

// refs: out, from, token, expert.
void RunGatherPairs(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GatherPairs(launch.refs[1], WordsAt(launch, 2, memory), WordsAt(launch, 3, memory), launch.refs[0], range);
}
void RunScatterPairs(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScatterPairs(launch.refs[1], WordsAt(launch, 2, memory), WordsAt(launch, 3, memory), launch.refs[0], range);
}

void AddPairs(OpCall& call, Launch::Kernel kernel, const Operand& out, const Operand& from, const ListMemory& lists,
              int64_t rows) {
  Launch& launch = call.AddLaunch(kernel);
  call.Write(launch, out);
  call.Read(launch, from);
  call.ReadTemporary(launch, lists.token);
  call.ReadTemporary(launch, lists.expert);
  launch.units = rows;
  launch.grain = GrainOf(16);
}

// refs: out, rows, weight, order, begin.
void RunSumRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SumRowsOfTokens(launch.refs[1], launch.refs[2], WordsAt(launch, 3, memory), WordsAt(launch, 4, memory),
                           launch.refs[0], range);
}

void AddSumOfRows(OpCall& call, const Operand& out, const Operand& rows, const Operand* weight,
                  const ListMemory& lists) {
  Launch& launch = call.AddLaunch(RunSumRows);
  call.Write(launch, out);
  call.Read(launch, rows);
  call.ReadOptional(launch, weight);
  call.ReadTemporary(launch, lists.order);
  call.ReadTemporary(launch, lists.begin);
  launch.units = out.tensor->count == 0 ? 0 : out.sizes()[0];
  launch.grain = GrainOf(out.sizes()[1] * 4);
}

void RunFillZero(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

void AddZeros(OpCall& call, const Operand& out) {
  Launch& launch = call.AddLaunch(RunFillZero);
  call.Write(launch, out);
  launch.scalars.push_back(kernels::Scalar::Of(0.0F));
  launch.units = out.tensor->count;
  launch.grain = GrainOf(1);
}

// refs: out, rows, source.
void RunTakeRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t* const source = WordsAt(launch, 3, memory);
  kernels::ExpandRows(kernels::RowQuantization::kNone, launch.refs[2], source, source, launch.refs[4], {},
                      launch.refs[0], launch.refs[1], range);
}

// out[i] = rows[source[i]], and the numbers beside them.
void AddTakenRows(OpCall& call, const Operand& out, const Operand& rows, const TensorRef& source,
                  const Operand* numbers_out, const Operand* numbers) {
  Launch& launch = call.AddLaunch(RunTakeRows);
  call.Write(launch, out);
  call.WriteOptional(launch, numbers_out);
  call.Read(launch, rows);
  call.ReadTemporary(launch, source);
  call.ReadOptional(launch, numbers);
  launch.units = out.sizes()[0];
  launch.grain = GrainOf(out.sizes()[1]);
}

// ---- To the experts ----

// Rows of each expert; 0 where experts have as many as they have tokens.
StatusOr<int64_t> CapacityOf(const OpCall& call, std::string_view pads, int64_t rows, int64_t experts, int64_t tokens) {
  if (!call.Bool(pads)) return 0;
  if (experts > 0 && rows % experts == 0 && rows / experts <= tokens) return std::max<int64_t>(rows / experts, 1);
  return call.Invalid(
      fmt::format("{} is true, but {} rows are no equal number, up to {} tokens, for each of {} experts", pads, rows,
                  tokens, experts));
}

Status PermuteByMapShape(OpCall& call) {
  const Operand& tokens = call.Get("tokens");
  const Operand& map = call.Get("routingMap");
  const Operand* const probs = call.Find("probsOptional");
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, tokens, 2));
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, map, 2));
  if (map.sizes()[0] != tokens.sizes()[0]) {
    return call.InvalidOperand(
        map, fmt::format("has shape {}, expected a row for each one of tokens {}", MapText(map), MapText(tokens)));
  }
  const int64_t rows = call.Int("numOutTokens");
  const int64_t most = map.tensor->count;
  if (rows < 0 || rows > most) {
    return call.Invalid(fmt::format("numOutTokens is {}, expected a value from 0 to {}", rows, most),
                        "pass how many entries of routingMap are set");
  }
  REPRISE_RETURN_IF_ERROR(CapacityOf(call, "dropAndPad", rows, map.sizes()[1], map.sizes()[0]).status());
  const int64_t shape[] = {rows, tokens.sizes()[1]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("permuteTokensOut"), shape, [] { return "the shape"; }));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("sortedIndicesOut"), {&rows, 1}, [] { return "one for each row:"; }));
  if (probs == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*probs, map.sizes(), [] { return "the shape of routingMap,"; }));
  const Operand* const probs_out = call.Find("permuteProbsOutOptional");
  if (probs_out == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: permuteProbsOutOptional is null, but probsOptional is not", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*probs_out, {&rows, 1}, [] { return "one for each row:"; });
}

Status LowerPermuteByMap(OpCall& call) {
  const Operand& tokens = call.Get("tokens");
  const Operand& map = call.Get("routingMap");
  RowLists lists = {.rows = call.Int("numOutTokens"), .tokens = tokens.sizes()[0]};
  REPRISE_ASSIGN_OR_RETURN(lists.capacity, CapacityOf(call, "dropAndPad", lists.rows, map.sizes()[1], map.sizes()[0]));
  if (lists.capacity != 0) lists.told = RowLists::Told::kTokens;
  const ListMemory memory = AddLists(call, lists, &call.Get("sortedIndicesOut"), nullptr, &map, nullptr);
  AddTakenRows(call, call.Get("permuteTokensOut"), tokens, memory.token, nullptr, nullptr);
  if (const Operand* probs = call.Find("probsOptional")) {
    AddPairs(call, RunGatherPairs, call.Get("permuteProbsOutOptional"), *probs, memory, lists.rows);
  }
  return {};
}

Status PermuteByMapGradShape(OpCall& call) {
  const Operand& rows = call.Get("permutedTokenOutputGrad");
  const Operand& index = call.Get("sortedIndices");
  const Operand* const map = call.Find("routingMapOptional");
  const Operand* const probs = call.Find("permutedProbsOutputGradOptional");
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, rows, 2));
  const int64_t count = rows.sizes()[0];
  const int64_t experts = call.Int("numExperts");
  const int64_t tokens = call.Int("tokensNum");
  if (tokens < 0 || experts < 0) {
    return call.Invalid(fmt::format("numExperts and tokensNum are {} and {}, expected at least 0", experts, tokens));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(index, {&count, 1}, [] { return "one for each row:"; }));
  const int64_t pairs[] = {tokens, experts};
  if (map != nullptr) REPRISE_RETURN_IF_ERROR(call.CheckShape(*map, pairs, [] { return "[tokensNum, numExperts]:"; }));
  const bool pads = call.Bool("dropAndPad");
  REPRISE_RETURN_IF_ERROR(CapacityOf(call, "dropAndPad", count, experts, tokens).status());
  if (!pads && map == nullptr && (tokens == 0 ? count != 0 : count % tokens != 0)) {
    return call.Invalid(
        fmt::format("routingMapOptional is null, but {} rows are no equal number for each of {} tokens", count, tokens),
        "pass the map");
  }
  const int64_t shape[] = {tokens, rows.sizes()[1]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("tokensGradOut"), shape, [] { return "a row for each token,"; }));
  if (probs == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*probs, {&count, 1}, [] { return "one for each row:"; }));
  if (!pads && map == nullptr) {
    return call.Invalid("routingMapOptional is null, but permutedProbsOutputGradOptional is not",
                        "pass the map: it tells the expert of each row");
  }
  const Operand* const probs_out = call.Find("probsGradOutOptional");
  if (probs_out == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: probsGradOutOptional is null, but permutedProbsOutputGradOptional is not",
                             call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*probs_out, pairs, [] { return "one for each token and expert,"; });
}

Status LowerPermuteByMapGrad(OpCall& call) {
  const Operand& rows = call.Get("permutedTokenOutputGrad");
  const Operand* const map = call.Find("routingMapOptional");
  RowLists lists = {.rows = rows.sizes()[0], .tokens = call.Int("tokensNum")};
  REPRISE_ASSIGN_OR_RETURN(lists.capacity,
                           CapacityOf(call, "dropAndPad", lists.rows, call.Int("numExperts"), lists.tokens));
  lists.from = call.Bool("dropAndPad") ? RowLists::From::kTokens
               : map == nullptr        ? RowLists::From::kSorted
                                       : RowLists::From::kMap;
  if (lists.tokens != 0) lists.choices = lists.rows / lists.tokens;
  const bool reads_map = lists.from == RowLists::From::kMap;
  const ListMemory memory =
      AddLists(call, lists, nullptr, nullptr, reads_map ? map : nullptr, &call.Get("sortedIndices"));
  AddSumOfRows(call, call.Get("tokensGradOut"), rows, nullptr, memory);
  if (const Operand* probs = call.Find("permutedProbsOutputGradOptional")) {
    AddZeros(call, call.Get("probsGradOutOptional"));
    AddPairs(call, RunScatterPairs, call.Get("probsGradOutOptional"), *probs, memory, lists.rows);
  }
  return {};
}

// ---- And back ----

Status UnpermuteByMapShape(OpCall& call) {
  const Operand& rows = call.Get("permutedTokens");
  const Operand& out = call.Get("unpermutedTokens");
  const Operand* const map = call.Find("routingMapOptional");
  const Operand* const probs = call.Find("probsOptional");
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, rows, 2));
  const int64_t count = rows.sizes()[0];
  const int64_t n = rows.sizes()[1];
  const std::span<const int64_t> restored = call.Ints("restoreShapeOptional");
  if ((!restored.empty() && restored.size() != 2) || (restored.size() == 2 && restored[1] != n)) {
    return call.Invalid(fmt::format("restoreShapeOptional is {}, expected [tokens, {}]", ShapeText(restored), n));
  }
  const int64_t of_out = n != 0 ? out.tensor->count / n : out.rank() == 2 ? out.sizes()[0] : 0;
  const int64_t tokens = restored.size() == 2 ? restored[0] : of_out;
  const int64_t shape[] = {tokens, n};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(out, shape, [] { return "a row for each token,"; }));
  for (const char* name : {"sortedIndices", "outIndex", "permuteTokenId"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {&count, 1}, [] { return "one for each row:"; }));
  }
  const bool pads = call.Bool("paddedMode");
  if (map != nullptr) {
    REPRISE_RETURN_IF_ERROR(CheckMapRank(call, *map, 2));
    const int64_t pairs[] = {tokens, map->sizes()[1]};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*map, pairs, [] { return "a row for each token,"; }));
  } else if (!pads && (tokens == 0 ? count != 0 : count % tokens != 0)) {
    return call.Invalid(
        fmt::format("routingMapOptional is null, but {} rows are no equal number for each of {} tokens", count, tokens),
        "pass the map");
  }
  if (probs == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, *probs, 2));
  const int64_t pairs[] = {tokens, probs->sizes()[1]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*probs, pairs, [] { return "a row for each token,"; }));
  REPRISE_RETURN_IF_ERROR(CapacityOf(call, "paddedMode", count, pairs[1], tokens).status());
  if (!pads && map == nullptr) {
    return call.Invalid("routingMapOptional is null, but probsOptional is not",
                        "pass the map: it tells whose they are");
  }
  if (map != nullptr)
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*map, pairs, [] { return "the shape of probsOptional,"; }));
  const Operand* const probs_out = call.Find("permuteProbs");
  if (probs_out == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: permuteProbs is null, but probsOptional is not", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*probs_out, {&count, 1}, [] { return "one for each row:"; });
}

Status LowerUnpermuteByMap(OpCall& call) {
  const Operand& rows = call.Get("permutedTokens");
  const Operand& out = call.Get("unpermutedTokens");
  const Operand* const probs = call.Find("probsOptional");
  const bool pads = call.Bool("paddedMode");
  RowLists lists = {.rows = rows.sizes()[0], .tokens = out.sizes()[0]};
  if (probs != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(lists.capacity,
                             CapacityOf(call, "paddedMode", lists.rows, probs->sizes()[1], lists.tokens));
  }
  lists.from = pads ? RowLists::From::kTokens : RowLists::From::kSorted;
  if (lists.tokens != 0) lists.choices = lists.rows / lists.tokens;
  const ListMemory memory = AddLists(call, lists, &call.Get("outIndex"), &call.Get("permuteTokenId"),
                                     pads ? nullptr : call.Find("routingMapOptional"), &call.Get("sortedIndices"));
  const Operand* weight = nullptr;
  if (probs != nullptr) {
    weight = &call.Get("permuteProbs");
    AddPairs(call, RunGatherPairs, *weight, *probs, memory, lists.rows);
  }
  AddSumOfRows(call, out, rows, weight, memory);
  return {};
}

// Places in the refs of RunUnpermuteGradient.
struct UnpermuteGradAt {
  enum : size_t { kRowsGradient, kProbsGradient, kGradient, kRows, kProbs, kOutIndex, kToken, kExpert };
};

void RunUnpermuteGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  using At = UnpermuteGradAt;
  const Refs& refs = launch.refs;
  kernels::UnpermuteByMapBackward({.gradient = refs[At::kGradient],
                                   .rows = refs[At::kRows],
                                   .probs = refs[At::kProbs],
                                   .out_index = refs[At::kOutIndex],
                                   .rows_gradient = refs[At::kRowsGradient],
                                   .probs_gradient = refs[At::kProbsGradient],
                                   .token = WordsAt(launch, At::kToken, memory),
                                   .expert = WordsAt(launch, At::kExpert, memory)},
                                  range);
}

// token and expert of each entry. refs: token, expert, out index, token id, map; ints: tokens, rows, capacity.
void RunListEntries(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  int64_t* const token = WordsAt(launch, 0, memory);
  int64_t* const expert = WordsAt(launch, 1, memory);
  int64_t* const row = WordsAt(launch, 2, memory);
  int64_t* const of_row = WordsAt(launch, 3, memory);
  const int64_t rows = launch.ints[1];
  const int64_t capacity = launch.ints[2];
  if (launch.HasOperand(6)) kernels::ListEntries({.map = launch.refs[6], .rows = rows}, token, of_row);
  kernels::ReadTokens(launch.refs[4], rows, row);
  kernels::ReadTokens(launch.refs[5], launch.ints[0], token);
  for (int64_t i = 0; i < rows; ++i) {
    expert[i] = row[i] < 0 ? -1 : capacity != 0 ? row[i] / capacity : launch.HasOperand(6) ? of_row[row[i]] : -1;
  }
}

Status UnpermuteByMapGradShape(OpCall& call) {
  const Operand& gradient = call.Get("unpermutedTokensGrad");
  const Operand& index = call.Get("outIndex");
  const Operand* const map = call.Find("routingMapOptional");
  const Operand* const rows = call.Find("permutedTokensOptional");
  const Operand* const probs = call.Find("probsOptional");
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, gradient, 2));
  const int64_t count = index.tensor->count;
  const int64_t tokens = gradient.sizes()[0];
  for (const char* name : {"outIndex", "permuteTokenId"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {&count, 1}, [] { return "one for each row:"; }));
  }
  const int64_t shape[] = {count, gradient.sizes()[1]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("permutedTokensGradOut"), shape, [] { return "the shape"; }));
  if (probs == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, *probs, 2));
  const int64_t pairs[] = {tokens, probs->sizes()[1]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*probs, pairs, [] { return "a row for each token,"; }));
  REPRISE_RETURN_IF_ERROR(CapacityOf(call, "paddedMode", count, pairs[1], tokens).status());
  if (rows == nullptr || (map == nullptr && !call.Bool("paddedMode"))) {
    return call.Invalid(fmt::format("{} is null, but probsOptional is not",
                                    rows == nullptr ? "permutedTokensOptional" : "routingMapOptional"),
                        "gradients of probs need it");
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*rows, shape, [] { return "the shape"; }));
  if (map != nullptr)
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*map, pairs, [] { return "the shape of probsOptional,"; }));
  const Operand* const probs_out = call.Find("probsGradOutOptional");
  if (probs_out == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: probsGradOutOptional is null, but probsOptional is not", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*probs_out, pairs, [] { return "the shape of probsOptional,"; });
}

Status LowerUnpermuteByMapGrad(OpCall& call) {
  const Operand& gradient = call.Get("unpermutedTokensGrad");
  const Operand& rows_gradient = call.Get("permutedTokensGradOut");
  const Operand* const probs = call.Find("probsOptional");
  const int64_t count = call.Get("outIndex").tensor->count;
  int64_t capacity = 0;
  if (probs != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(capacity, CapacityOf(call, "paddedMode", count, probs->sizes()[1], gradient.sizes()[0]));
  }
  TensorRef words[4];
  for (TensorRef& each : words) each = call.Temporary(DType::kInt64, {&count, 1});
  Launch& list = call.AddLaunch(RunListEntries);
  for (const TensorRef& each : words) call.WriteTemporary(list, each);
  call.Read(list, call.Get("outIndex"));
  call.Read(list, call.Get("permuteTokenId"));
  call.ReadOptional(list, probs == nullptr || capacity != 0 ? nullptr : call.Find("routingMapOptional"));
  for (int64_t value : {gradient.sizes()[0], count, capacity}) list.ints.push_back(value);
  list.units = 1;
  AddZeros(call, rows_gradient);
  if (probs != nullptr) AddZeros(call, call.Get("probsGradOutOptional"));
  Launch& launch = call.AddLaunch(RunUnpermuteGradient);
  call.Write(launch, rows_gradient);
  call.WriteOptional(launch, probs != nullptr ? call.Find("probsGradOutOptional") : nullptr);
  call.Read(launch, gradient);
  call.ReadOptional(launch, probs != nullptr ? call.Find("permutedTokensOptional") : nullptr);
  call.ReadOptional(launch, probs);
  call.Read(launch, call.Get("outIndex"));
  call.ReadTemporary(launch, words[0]);
  call.ReadTemporary(launch, words[1]);
  launch.units = count;
  launch.grain = GrainOf(gradient.sizes()[1] * 4);
  return {};
}

// ---- Rank by rank ----

// refs: index, numbers, order, counts; ints: whether index is a scatter's, whether numbers are ends.
void RunOrderByExpert(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const TensorRef& index = launch.refs[0];
  int64_t* const order = WordsAt(launch, 2, memory);
  const int64_t tokens = index.sizes[0];
  kernels::OrderByExpert(launch.refs[3], tokens, order);
  for (int64_t row = 0; row < tokens; ++row) {
    const bool is_scatter = launch.ints[0] != 0;
    const int64_t place = is_scatter ? order[row] : row;
    const int64_t word = is_scatter ? row : order[row];
    kernels::FindCast(DType::kInt64, index.dtype)(
        reinterpret_cast<const char*>(&word), 0,
        static_cast<char*>(index.data) + place * index.strides[0] * kernels::ItemSize(index.dtype), 0, 1);
  }
  kernels::SumRanks(launch.refs[3], launch.ints[1] != 0, launch.refs[1]);
}

Status ReRoutingTypes(OpCall& call) {
  const Operand& tokens = call.Get("tokens");
  const Operand& out = call.Get("permuteTokens");
  call.compute = tokens.dtype;
  if (out.dtype == tokens.dtype) return {};
  return call.InvalidOperand(out, fmt::format("has {}, expected the type {} of tokens", kernels::Name(out.dtype),
                                              kernels::Name(tokens.dtype)));
}

Status ReRoutingShape(OpCall& call) {
  const Operand& tokens = call.Get("tokens");
  const Operand& counts = call.Get("expertTokenNumPerRank");
  const Operand* const scales = call.Find("perTokenScalesOptional");
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, tokens, 2));
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, counts, 2));
  for (const char* name : {"expertTokenNumType", "idxType"}) {
    if (call.Int(name) == 0 || call.Int(name) == 1) continue;
    return call.Invalid(fmt::format("{} is {}, expected 0 or 1", name, call.Int(name)));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("permuteTokens"), tokens.sizes(), [] { return "the shape of tokens,"; }));
  const int64_t count = tokens.sizes()[0];
  const int64_t experts = counts.sizes()[1];
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("permuteTokenIdx"), {&count, 1}, [] { return "one for each token:"; }));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("expertTokenNum"), {&experts, 1}, [] { return "one for each expert:"; }));
  if (scales == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*scales, {&count, 1}, [] { return "one for each token:"; }));
  const Operand* const scales_out = call.Find("permutePerTokenScalesOptional");
  if (scales_out == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: permutePerTokenScalesOptional is null, but perTokenScalesOptional is not",
                             call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*scales_out, {&count, 1}, [] { return "one for each token:"; });
}

Status LowerReRouting(OpCall& call) {
  const Operand& tokens = call.Get("tokens");
  const Operand* const scales = call.Find("perTokenScalesOptional");
  const int64_t count = tokens.sizes()[0];
  const TensorRef order = call.Temporary(DType::kInt64, {&count, 1});
  Launch& list = call.AddLaunch(RunOrderByExpert);
  call.Write(list, call.Get("permuteTokenIdx"));
  call.Write(list, call.Get("expertTokenNum"));
  call.WriteTemporary(list, order);
  call.Read(list, call.Get("expertTokenNumPerRank"));
  list.ints.push_back(call.Int("idxType"));
  list.ints.push_back(call.Int("expertTokenNumType") == 0 ? 1 : 0);
  list.units = 1;
  AddTakenRows(call, call.Get("permuteTokens"), tokens, order,
               scales == nullptr ? nullptr : call.Find("permutePerTokenScalesOptional"), scales);
  return {};
}

// ---- Experts in several places ----

// refs: ids out, mask out, ids, table, scales, threshold, active; state: ExpertBalance without operands.
void RunBalance(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::ExpertBalance operands = launch.State<kernels::ExpertBalance>();
  operands.ids_out = launch.refs[0];
  operands.mask_out = launch.refs[1];
  operands.expert_ids = launch.refs[2];
  operands.table = launch.refs[3];
  operands.scales = launch.refs[4];
  operands.threshold = launch.refs[5];
  operands.active = launch.refs[6];
  kernels::BalanceExperts(operands, range);
}

Status UpdateExpertTypes(OpCall& call) {
  call.compute = DType::kInt64;
  return {};
}

Status UpdateExpertShape(OpCall& call) {
  const Operand& ids = call.Get("expertIds");
  const Operand& table = call.Get("eplbTable");
  const Operand* const scales = call.Find("expertScalesOptional");
  const Operand* const threshold = call.Find("pruningThresholdOptional");
  const Operand* const active = call.Find("activeMaskOptional");
  const Operand* const mask = call.Find("balancedActiveMask");
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, ids, 2));
  REPRISE_RETURN_IF_ERROR(CheckMapRank(call, table, 2));
  if (table.sizes()[1] < 2) {
    return call.InvalidOperand(table,
                               fmt::format("has shape {}, expected a count and a place or more", MapText(table)));
  }
  const int64_t mode = call.Int("balanceMode");
  if (mode != 0 && mode != 1) {
    return call.Invalid(fmt::format("balanceMode is {}, expected 0 or 1", mode), "0: by the rank, 1: by the token");
  }
  const int64_t rank = call.Int("localRankId");
  const int64_t world = call.Int("worldSize");
  if (mode == 0 && (world < 1 || rank < 0 || rank >= world)) {
    return call.Invalid(fmt::format("localRankId is {} and worldSize {}, expected a rank below the size", rank, world));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("balancedExpertIds"), ids.sizes(), [] { return "the shape of expertIds,"; }));
  if ((scales == nullptr) != (threshold == nullptr)) {
    return call.Invalid(fmt::format("{} is null, but {} is not",
                                    scales == nullptr ? "expertScalesOptional" : "pruningThresholdOptional",
                                    scales == nullptr ? "pruningThresholdOptional" : "expertScalesOptional"),
                        "pass both or none");
  }
  if (scales != nullptr) {
    const int64_t k = ids.sizes()[1];
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*scales, ids.sizes(), [] { return "the shape of expertIds,"; }));
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*threshold, {&k, 1}, [] { return "one for each choice:"; }));
  }
  if (active != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*active, ids.sizes().first(1), [] { return "one for each token:"; }));
  }
  if (scales == nullptr) return {};
  if (mask == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: balancedActiveMask is null, but expertScalesOptional is not", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*mask, ids.sizes(), [] { return "the shape of expertIds,"; });
}

Status LowerUpdateExpert(OpCall& call) {
  const Operand& ids = call.Get("expertIds");
  const Operand* const scales = call.Find("expertScalesOptional");
  Launch& launch = call.AddLaunch(RunBalance);
  call.Write(launch, call.Get("balancedExpertIds"));
  call.WriteOptional(launch, scales == nullptr ? nullptr : call.Find("balancedActiveMask"));
  call.Read(launch, ids);
  call.Read(launch, call.Get("eplbTable"));
  call.ReadOptional(launch, scales);
  call.ReadOptional(launch, call.Find("pruningThresholdOptional"));
  call.ReadOptional(launch, call.Find("activeMaskOptional"));
  launch.units = ids.tensor->count == 0 ? 0 : ids.sizes()[0];
  launch.grain = GrainOf(ids.sizes()[1] * 8);
  launch.state = std::make_shared<const kernels::ExpertBalance>(
      kernels::ExpertBalance{.rank = call.Int("localRankId"),
                             .world = std::max<int64_t>(call.Int("worldSize"), 1),
                             .by_token = call.Int("balanceMode") == 1});
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/routing_maps.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
