// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/copy.h"
#include "kernels/gating.h"
#include "kernels/rotary.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::AttentionPlan;
using kernels::AttentionSequence;
using kernels::TensorRef;

// Multiply-adds that are worth a thread: some tens of microseconds.
constexpr int64_t kGrainOfAttention = int64_t{1} << 19;
// Side of the mask that stands for a causal or a banded one.
constexpr int64_t kCompressedMask = 2048;
// Copies of each value in the statistics of aclnnFlashAttentionScore.
constexpr int64_t kStatisticCopies = 8;
constexpr int64_t kMostChosen = 1024;

// Ways to call attention: Computation::code.
enum AttentionKind : uint8_t { kPrompt, kIncremental, kFused, kTraining };

enum SparseMode : int64_t { kDefault, kAllMask, kLeftUpCausal, kRightDownCausal, kBand, kPrefix, kCompressedPrefix };

// Places in Launch::refs.
enum Place : size_t {
  kOut,
  kMaximum,
  kSum,
  kLogSum,
  kQuery,
  kMask,
  kShift,
  kDrop,
  kTable,
  kSink,
  kQueryRope,
  kKeyRope,
  kPartial,
  kFirstKeys
};

kernels::AttentionOperands OperandsOf(const Launch& launch) {
  const size_t lists = (launch.refs.size() - kFirstKeys) / 2;
  return {.query = launch.refs[kQuery],
          .mask = launch.refs[kMask],
          .shift = launch.refs[kShift],
          .drop = launch.refs[kDrop],
          .table = launch.refs[kTable],
          .sink = launch.refs[kSink],
          .query_rope = launch.refs[kQueryRope],
          .key_rope = launch.refs[kKeyRope],
          .out = launch.refs[kOut],
          .maximum = launch.refs[kMaximum],
          .sum = launch.refs[kSum],
          .log_sum = launch.refs[kLogSum],
          .keys = {launch.refs.begin() + kFirstKeys, lists},
          .values = {launch.refs.begin() + kFirstKeys + lists, lists}};
}

void RunAttention(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::Attend(launch.State<AttentionPlan>(), OperandsOf(launch), range,
                  static_cast<float*>(launch.Ref(kPartial, memory).data), memory.scratch);
}

void RunMerge(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::MergeAttention(launch.State<AttentionPlan>(), OperandsOf(launch), range,
                          static_cast<const float*>(launch.Ref(kPartial, memory).data), memory.scratch);
}

void RunZero(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

// A tensor as [batch, head, token, depth].
struct View {
  TensorRef ref;
  int64_t batch() const { return ref.sizes[0]; }
  int64_t heads() const { return ref.sizes[1]; }
  int64_t tokens() const { return ref.sizes[2]; }
  int64_t depth() const { return ref.sizes[3]; }
};

bool IsLayout(std::string_view text) {
  for (std::string_view known : {"BSH", "SBH", "BSND", "BNSD", "NBSD", "TND", "NTD"}) {
    if (text == known) return true;
  }
  return false;
}

// `heads`: of a last dim H; where that is not known (0) `depth` is.
StatusOr<View> ViewAs(const OpCall& call, const Operand& operand, std::string_view layout, int64_t heads,
                      int64_t depth) {
  const TensorRef from = call.RefOf(operand);
  if (from.rank != static_cast<int>(layout.size())) {
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims for the layout {}",
                                                    ShapeText(operand.sizes()), layout.size(), layout));
  }
  View view;
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

struct Parts {
  const Operand *query = nullptr, *shift = nullptr, *mask = nullptr, *drop = nullptr, *table = nullptr, *sink = nullptr,
                *query_rope = nullptr, *key_rope = nullptr, *out = nullptr, *maximum = nullptr, *sum = nullptr,
                *log_sum = nullptr;
  std::span<const Operand> keys, values;
};

// The operands by what they are; those that are not supported are refused.
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
    } else if (name == "keyRopeOptional" || name == "keyRope") {
      parts.key_rope = &input;
    } else if (name == "attentionInOptional") {
      parts.out = &input;
    } else if (name == "softmaxMaxOptional") {
      parts.maximum = &input;
    } else if (name == "softmaxSumOptional") {
      parts.sum = &input;
    } else if (name == "dy" || name == "softmaxInOptional") {
      continue;  // not of the forward pass, not needed
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

// Entry i of lengths of which one stands for all; `most` where there are none.
StatusOr<int64_t> LengthOf(const OpCall& call, std::string_view name, std::span<const int64_t> lengths, size_t i,
                           size_t count, int64_t most) {
  if (lengths.empty()) return most;
  if (lengths.size() != 1 && lengths.size() < count) {
    return call.Invalid(fmt::format("{} has {} entries, expected 1 or {}", name, lengths.size(), count));
  }
  const int64_t length = lengths.size() == 1 ? lengths[0] : lengths[i];
  if (length < 0 || length > most) {
    return call.Invalid(fmt::format("entry {} of {} is {}, expected a value from 0 to {}", i, name, length, most));
  }
  return length;
}

// Entry i of lengths that are added up.
StatusOr<int64_t> EndOf(const OpCall& call, std::string_view name, std::span<const int64_t> ends, size_t i,
                        int64_t most) {
  const int64_t before = i == 0 ? 0 : ends[i - 1];
  if (ends[i] < before || ends[i] > most) {
    return call.Invalid(
        fmt::format("entry {} of {} is {}, expected a value from {} to {}", i, name, ends[i], before, most),
        "for layouts with T the entries are added up: each is where its sequence ends");
  }
  return ends[i];
}

// A view [batch, head, query, key] of something that broadcasts to at least that.
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

// Shape [batch, head, token, copies], or [token, head, copies].
StatusOr<TensorRef> StatisticView(OpCall& call, const Operand& operand, const View& query, bool is_packed,
                                  int64_t copies) {
  Dims expected;
  if (is_packed) {
    for (int64_t size : {query.tokens(), query.heads(), copies}) expected.push_back(size);
  } else {
    for (int64_t size : {query.batch(), query.heads(), query.tokens(), copies}) expected.push_back(size);
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(operand, expected, [] { return "the shape"; }));
  REPRISE_ASSIGN_OR_RETURN(const View view, ViewAs(call, operand, is_packed ? "TND" : "BNSD", query.heads(), 0));
  return view.ref;
}

// What of `sequence` its queries may see.
Status SetBand(const OpCall& call, int64_t sparse_mode, bool has_mask, int64_t before, int64_t after,
               AttentionSequence& sequence) {
  const int64_t shift = sequence.keys - sequence.queries;
  constexpr int64_t kFar = INT64_MAX / 8;
  before = std::clamp(before, -kFar, kFar);
  after = std::clamp(after, -kFar, kFar);
  switch (sparse_mode) {
    case kDefault:
      if (!has_mask) break;
      sequence.low = -before;
      sequence.high = after;
      break;
    case kAllMask:
    case kPrefix: break;
    case kLeftUpCausal: sequence.high = 0; break;
    case kRightDownCausal:
    case kCompressedPrefix: sequence.high = shift; break;
    case kBand:
      sequence.low = shift - before;
      sequence.high = shift + after;
      break;
    default:
      return call.Invalid(
          fmt::format("sparseMode is {}, expected a value from 0 to {}", sparse_mode, int64_t{kCompressedPrefix}),
          "0 band and mask, 1 mask, 2 causal from the left upper corner, 3 causal from the right lower "
          "corner, 4 band from there, 5 and 6 prefix");
  }
  return {};
}

void AddOptional(const OpCall& call, Launch& launch, const Operand* operand, const TensorRef& view, bool is_write) {
  if (operand == nullptr) return is_write ? call.WriteOptional(launch, nullptr) : call.ReadOptional(launch, nullptr);
  is_write ? call.Write(launch, *operand, view) : call.Read(launch, *operand, view);
}

// ---- Rotary -----------------------------------------------------------------------------------------------------

void RunRotate(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::Rotate(static_cast<kernels::RotaryMode>(launch.ints[0]), launch.refs[1], launch.refs[2], launch.refs[3],
                  launch.refs[0], range, memory.scratch);
}

void RunRotateBackward(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::RotateBackward(static_cast<kernels::RotaryMode>(launch.ints[0]), launch.refs[1], launch.refs[2],
                          launch.refs[3], launch.refs[0], range, memory.scratch);
}

void RunAngleBackward(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::RotaryAngleBackward(static_cast<kernels::RotaryMode>(launch.ints[0]), launch.refs[2], launch.refs[3],
                               launch.refs[0], launch.refs[1], range, memory.scratch);
}

Status CheckRotaryMode(const OpCall& call, int64_t mode, const Operand& x) {
  if (mode < 0 || mode > static_cast<int64_t>(kernels::RotaryMode::kInterleaveHalf)) {
    return call.Invalid(fmt::format("mode is {}, expected a value from 0 to 3", mode),
                        "0 half, 1 interleave, 2 quarter, 3 interleave-half");
  }
  const int64_t parts = mode == static_cast<int64_t>(kernels::RotaryMode::kQuarter) ? 4 : 2;
  if (x.rank() == 0 || x.sizes().back() % parts != 0) {
    return call.InvalidOperand(x, fmt::format("has shape {}, its last dim must be a multiple of {} for mode {}",
                                              ShapeText(x.sizes()), parts, mode));
  }
  return {};
}

// cos or sin, whose dims are those of x or 1.
Status CheckAngles(const OpCall& call, const Operand& angles, const Operand& x) {
  const std::span<const int64_t> sizes = angles.sizes();
  bool fits = sizes.size() == x.sizes().size();
  for (size_t d = 0; fits && d < sizes.size(); ++d) {
    fits = sizes[d] == x.sizes()[d] || (sizes[d] == 1 && d + 1 < sizes.size());
  }
  if (fits) return {};
  return call.InvalidOperand(angles, fmt::format("has shape {}, expected that of {} {}, or 1 in dims but the last",
                                                 ShapeText(sizes), call.NameOf(x), ShapeText(x.sizes())));
}

TensorRef Repeated(TensorRef ref) {
  for (int d = 0; d < ref.rank; ++d) {
    if (ref.sizes[d] == 1) ref.strides[d] = 0;
  }
  return ref;
}

void FinishRotary(OpCall& call, Launch& launch, int64_t mode, const TensorRef& x, int64_t units, int64_t per_unit) {
  launch.ints.push_back(mode);
  launch.units = units;
  if (units == 0) return;
  launch.grain = GrainOf(4 * per_unit);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::RotaryScratchBytes(x)));
}

// One tensor turned, from x to out.
void AddRotation(OpCall& call, Launch::Kernel kernel, int64_t mode, const Operand& x, const Operand& cos,
                 const Operand& sin, const Operand& out) {
  Launch& launch = call.AddLaunch(kernel);
  call.Write(launch, out);
  call.Read(launch, x);
  call.Read(launch, cos, Repeated(call.RefOf(cos)));
  call.Read(launch, sin, Repeated(call.RefOf(sin)));
  const TensorRef ref = call.RefOf(x);
  FinishRotary(call, launch, mode, ref, kernels::RotaryRowCount(ref), ref.sizes[ref.rank - 1]);
}

Status RotaryTypes(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  for (const auto& operand : call.inputs) {
    if (operand.dtype == call.compute) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of {}", kernels::Name(operand.dtype),
                                                    kernels::Name(call.compute), call.NameOf(call.inputs[0])));
  }
  return OneType(call);
}

// Operators without a parameter for it have one mode, their code.
int64_t RotaryModeOf(const OpCall& call) {
  return call.Has("mode") ? call.Int("mode") : static_cast<int64_t>(call.op.computation.code);
}

Status RotaryShape(OpCall& call) {
  const Operand& x = call.inputs[0];
  REPRISE_RETURN_IF_ERROR(CheckRotaryMode(call, RotaryModeOf(call), x));
  REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.inputs[1], x));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.inputs[2], call.inputs[1].sizes(), [] { return "the shape of cos,"; }));
  return call.CheckShape(call.outputs[0], x.sizes(), [] { return "the shape"; });
}

Status PlanRotary(OpCall& call) {
  AddRotation(call, RunRotate, RotaryModeOf(call), call.inputs[0], call.inputs[1], call.inputs[2], call.outputs[0]);
  return {};
}

Status RotaryBackwardShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(RotaryShape(call));
  if (const Operand* x = call.Find("xOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*x, call.inputs[0].sizes(), [] { return "the shape of dy,"; }));
    for (std::string_view name : {"dcosOut", "dsinOut"}) {
      REPRISE_RETURN_IF_ERROR(
          call.CheckShape(call.Get(name), call.inputs[1].sizes(), [] { return "the shape of cos,"; }));
    }
  }
  return {};
}

Status PlanRotaryBackward(OpCall& call) {
  const Operand& dy = call.inputs[0];
  AddRotation(call, RunRotateBackward, call.Int("mode"), dy, call.inputs[1], call.inputs[2], call.outputs[0]);
  const Operand* x = call.Find("xOptional");
  if (x == nullptr) return {};
  Launch& launch = call.AddLaunch(RunAngleBackward);
  call.Write(launch, call.Get("dcosOut"));
  call.Write(launch, call.Get("dsinOut"));
  call.Read(launch, dy);
  call.Read(launch, *x);
  const TensorRef dcos = call.RefOf(call.Get("dcosOut"));
  const int64_t units = kernels::RotaryRowCount(dcos);
  FinishRotary(call, launch, call.Int("mode"), dcos, units, units == 0 ? 0 : dy.tensor->count / units);
  return {};
}

StatusOr<int64_t> AppliedMode(const OpCall& call) {
  if (!call.Has("rotaryMode")) return int64_t{0};
  const std::string_view name = call.Text("rotaryMode");
  int64_t mode = 0;
  for (std::string_view known : {"half", "interleave", "quarter"}) {
    if (name == known) return mode;
    ++mode;
  }
  return call.Invalid(fmt::format("rotaryMode is '{}', expected half, interleave or quarter", name));
}

// query and key, each [B, S, N, D] (layout 1), [S, B, N, D] (2), [B, N, S, D] (3) or [T, N, D] (4), with as many heads
// as they like; cos and sin repeat over the heads.
Status ApplyRotaryShape(OpCall& call) {
  const int64_t layout = call.Int("layout");
  if (layout < 1 || layout > 4) {
    return call.Invalid(fmt::format("layout is {}, expected a value from 1 to 4", layout),
                        "1 BSND, 2 SBND, 3 BNSD, 4 TND");
  }
  const int rank = layout == 4 ? 3 : 4;
  REPRISE_ASSIGN_OR_RETURN(const int64_t mode, AppliedMode(call));
  for (size_t i = 0; i < 2; ++i) {
    const Operand& x = call.inputs[i];
    if (x.rank() != rank) {
      return call.InvalidOperand(
          x, fmt::format("has shape {}, expected {} dims for layout {}", ShapeText(x.sizes()), rank, layout));
    }
    REPRISE_RETURN_IF_ERROR(CheckRotaryMode(call, mode, x));
    REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.inputs[2], x));
    REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.inputs[3], x));
  }
  return {};
}

Status PlanApplyRotary(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t mode, AppliedMode(call));
  for (size_t i = 0; i < 2; ++i) {
    AddRotation(call, RunRotate, mode, call.inputs[i], call.inputs[2], call.inputs[3], call.outputs[i]);
  }
  return {};
}

// ---- Gating -----------------------------------------------------------------------------------------------------

void RunGating(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::ChooseExperts(launch.refs[3], launch.refs[4], launch.refs[0], launch.refs[1], launch.refs[2], range,
                         memory.scratch);
}

// [row, ..] as [1, row, ..].
void AddOuterDim(TensorRef& ref) {
  for (int d = ref.rank++; d > 0; --d) {
    ref.sizes[d] = ref.sizes[d - 1];
    ref.strides[d] = ref.strides[d - 1];
  }
  ref.sizes[0] = 1;
  ref.strides[0] = 0;
}

Status GatingShape(OpCall& call) {
  const Operand& x = call.inputs[0];
  if (x.rank() != 2 && x.rank() != 3) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 or 3 dims", ShapeText(x.sizes())));
  }
  const int64_t k = call.Int("k");
  const int64_t most = std::min(kMostChosen, x.sizes().back());
  if (k < 0 || k > most) return call.Invalid(fmt::format("k is {}, expected a value from 0 to {}", k, most));
  Dims shape(x.sizes().data(), x.sizes().size() - 1);
  if (const Operand* finished = call.Find("finishedOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*finished, shape, [] { return "the rows"; }));
  }
  shape.push_back(k);
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "the shape"; }));
  }
  return {};
}

Status PlanGating(OpCall& call) {
  Launch& launch = call.AddLaunch(RunGating);
  for (const Operand& output : call.outputs) call.Write(launch, output);
  call.Read(launch, call.inputs[0]);
  const Operand* finished = call.Find("finishedOptional");
  call.ReadOptional(launch, finished);
  if (call.inputs[0].rank() == 2) {
    for (TensorRef& ref : launch.refs) AddOuterDim(ref);
  }
  if (call.outputs[0].tensor->count == 0) return {};
  const int64_t columns = call.inputs[0].sizes().back();
  launch.units = call.inputs[0].tensor->count / columns;
  launch.grain = GrainOf(columns * 16);
  call.AddScratch(launch, static_cast<uint64_t>(columns) * 8);
  return {};
}

// ---- Attention --------------------------------------------------------------------------------------------------

Status AttentionTypes(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  for (const Operand& input : call.inputs) {
    if (input.apart || input.dtype == call.compute) continue;
    return call.InvalidOperand(input, fmt::format("has {}, expected the type {} of query", kernels::Name(input.dtype),
                                                  kernels::Name(call.compute)));
  }
  return OneType(call);
}

// What the lengths say: the sequences of the plan, and a run without keys for queries that belong to none.
class Sequences {
 public:
  Sequences(OpCall& call, AttentionPlan& plan, const Parts& parts, const View& query, bool is_packed)
      : call_(call), plan_(plan), parts_(parts), query_(query), is_packed_(is_packed) {
    const auto kind = static_cast<AttentionKind>(call.op.computation.code);
    if (kind != kIncremental) {
      query_name_ = FirstOf(call, {"actualSeqLengths", "actualSeqLengthsOptional", "actualSeqQLenOptional"});
      key_name_ = FirstOf(call, {"actualSeqLengthsKv", "actualSeqLengthsKvOptional", "actualSeqKvLenOptional"});
    } else {
      key_name_ = "actualSeqLengths";
    }
    is_fused_ = kind == kFused;
    if (call.only_tells_size()) return;
    query_lengths_ = IntsOf(call, query_name_);
    key_lengths_ = IntsOf(call, key_name_);
  }

  Status Fill(std::span<const View> keys, int64_t paged_capacity) {
    if (call_.only_tells_size()) {
      // The longest there can be.
      AttentionSequence s;
      s.queries = query_.tokens();
      plan_.sequences.push_back(s);
      return {};
    }
    const bool is_paged = parts_.table != nullptr;
    size_t count = static_cast<size_t>(query_.batch());
    if (is_packed_) {
      if (query_lengths_.empty()) {
        return call_.Invalid(fmt::format("{} is missing", query_name_),
                             "layouts with T need the ends of the sequences");
      }
      count = query_lengths_.size();
      if (!is_paged && key_lengths_.size() != count) {
        return call_.Invalid(
            fmt::format("{} has {} entries and {} has {}", query_name_, count, key_name_, key_lengths_.size()),
            "layouts with T need an end of queries and one of keys for each sequence");
      }
    }
    if (is_paged && key_lengths_.empty()) {
      return call_.Invalid(fmt::format("{} is missing", key_name_), "paged keys need the lengths of the sequences");
    }
    plan_.sequences.reserve(2 * count);
    for (size_t i = 0; i < count; ++i) {
      AttentionSequence s;
      s.mask_batch = is_packed_ ? 0 : static_cast<int64_t>(i);
      if (is_packed_) {
        s.query_begin = i == 0 ? 0 : query_lengths_[i - 1];
        REPRISE_ASSIGN_OR_RETURN(const int64_t end, EndOf(call_, query_name_, query_lengths_, i, query_.tokens()));
        s.queries = end - s.query_begin;
      } else {
        s.query_batch = static_cast<int64_t>(i);
        // A single query is there whatever its lengths say: callers count what came before it, too.
        const bool is_single = is_fused_ && query_.tokens() == 1;
        REPRISE_ASSIGN_OR_RETURN(
            s.queries, LengthOf(call_, query_name_, is_single ? std::span<const int64_t>() : query_lengths_, i, count,
                                query_.tokens()));
      }
      if (is_paged) {
        s.kv_batch = static_cast<int64_t>(i);
        REPRISE_ASSIGN_OR_RETURN(s.keys, LengthOf(call_, key_name_, key_lengths_, i, count, paged_capacity));
      } else if (is_packed_) {
        s.kv_begin = i == 0 ? 0 : key_lengths_[i - 1];
        REPRISE_ASSIGN_OR_RETURN(const int64_t end, EndOf(call_, key_name_, key_lengths_, i, keys[0].tokens()));
        s.keys = end - s.kv_begin;
      } else {
        s.kv_tensor = keys.size() > 1 ? static_cast<int64_t>(i) : 0;
        s.kv_batch = keys.size() > 1 ? 0 : static_cast<int64_t>(i);
        REPRISE_ASSIGN_OR_RETURN(s.keys, LengthOf(call_, key_name_, key_lengths_, i, count,
                                                  keys[static_cast<size_t>(s.kv_tensor)].tokens()));
      }
      plan_.sequences.push_back(s);
      if (!is_packed_ && s.queries < query_.tokens()) {
        AttentionSequence rest;
        rest.query_batch = s.query_batch;
        rest.query_begin = s.queries;
        rest.queries = query_.tokens() - s.queries;
        plan_.sequences.push_back(rest);
      }
    }
    if (is_packed_ && query_lengths_.back() < query_.tokens()) {
      AttentionSequence rest;
      rest.query_begin = query_lengths_.back();
      rest.queries = query_.tokens() - rest.query_begin;
      plan_.sequences.push_back(rest);
    }
    return {};
  }

 private:
  OpCall& call_;
  AttentionPlan& plan_;
  const Parts& parts_;
  const View& query_;
  const bool is_packed_;
  bool is_fused_ = false;
  std::string_view query_name_, key_name_;
  std::span<const int64_t> query_lengths_, key_lengths_;
};

// What every way to call attention has: where things are, and who sees what.
struct Attention {
  Parts parts;
  std::shared_ptr<AttentionPlan> plan = std::make_shared<AttentionPlan>();
  View query, out;
  std::vector<View> keys, values;
  std::string_view layout;
  bool is_packed = false;  ///< sequences end to end
  int64_t capacity = 0;    ///< tokens of keys that a sequence may have
  TensorRef table, mask, shift, drop, sink, query_rope, key_rope;
  const Operand* mask_operand = nullptr;  ///< null if the mask is not read
};

Status Describe(OpCall& call, Attention& a) {
  const auto kind = static_cast<AttentionKind>(call.op.computation.code);
  REPRISE_ASSIGN_OR_RETURN(a.parts, FindParts(call));
  const Parts& parts = a.parts;
  if (call.Has("actualSharedPrefixLenOptional") && call.IsGiven("actualSharedPrefixLenOptional")) {
    return call.Invalid("actualSharedPrefixLenOptional is not supported yet", "pass null");
  }

  // Layouts and heads.
  const std::string_view text = call.Text("inputLayout");
  const size_t underscore = text.find('_');
  const std::string_view layout = text.substr(0, underscore);
  const std::string_view out_layout = underscore == std::string_view::npos ? layout : text.substr(underscore + 1);
  if (!IsLayout(layout) || !IsLayout(out_layout)) {
    return call.Invalid(fmt::format("inputLayout is '{}', expected BSH, SBH, BSND, BNSD, TND or NTD", text),
                        "two of them, as in BNSD_BSND, are that of the inputs and that of the output");
  }
  const bool is_packed = layout[0] == 'T' || layout[1] == 'T';
  a.layout = layout;
  a.is_packed = is_packed;
  AttentionPlan& plan = *a.plan;
  plan.heads = call.Int(kind == kTraining ? "headNum" : "numHeads");
  if (plan.heads <= 0) return call.Invalid(fmt::format("the number of heads is {}, expected at least 1", plan.heads));
  REPRISE_ASSIGN_OR_RETURN(a.query, ViewAs(call, *parts.query, layout, plan.heads, 0));
  const View& query = a.query;
  plan.depth = query.depth();
  plan.kv_heads = kind == kTraining ? 0 : call.Int("numKeyValueHeads");
  if (kind != kTraining && plan.kv_heads == 0) plan.kv_heads = plan.heads;
  if (plan.kv_heads < 0) return call.Invalid(fmt::format("numKeyValueHeads is {}, expected at least 0", plan.kv_heads));

  // Keys and values.
  const bool is_paged = parts.table != nullptr;
  const auto layout_of = [&](const Operand& key) {
    return !is_paged ? layout : key.rank() == 3 ? std::string_view("BSH") : std::string_view("BNSD");
  };
  std::vector<View>& keys = a.keys;
  std::vector<View>& values = a.values;
  int64_t& capacity = a.capacity;
  for (size_t i = 0; i < parts.keys.size(); ++i) {
    const Operand& key = parts.keys[i];
    const Operand& value = parts.values[i];
    const std::string_view kv_layout = layout_of(key);
    REPRISE_ASSIGN_OR_RETURN(keys.emplace_back(), ViewAs(call, key, kv_layout, plan.kv_heads, plan.depth));
    const View& k = keys.back();
    if (k.heads() == 0 || plan.heads % k.heads() != 0) {
      return call.InvalidOperand(
          key, fmt::format("has {} heads, which do not divide the {} of query", k.heads(), plan.heads));
    }
    plan.kv_heads = k.heads();
    REPRISE_ASSIGN_OR_RETURN(values.emplace_back(), ViewAs(call, value, kv_layout, plan.kv_heads, 0));
    const View& v = values.back();
    if (k.depth() != query.depth()) {
      return call.InvalidOperand(key, fmt::format("has shape {}: heads of {} elements, those of query have {}",
                                                  ShapeText(key.sizes()), k.depth(), plan.depth));
    }
    if (v.batch() != k.batch() || v.tokens() != k.tokens() || v.depth() != values[0].depth()) {
      return call.InvalidOperand(value, fmt::format("has shape {}, which does not fit {} {}", ShapeText(value.sizes()),
                                                    call.NameOf(key), ShapeText(key.sizes())));
    }
    const int64_t batch = parts.keys.size() > 1 ? 1 : query.batch();
    if (!is_paged && k.batch() != batch) {
      return call.InvalidOperand(key,
                                 fmt::format("has shape {}, expected a batch of {}", ShapeText(key.sizes()), batch));
    }
    capacity = std::max(capacity, k.tokens());
  }
  if ((parts.query_rope == nullptr) != (parts.key_rope == nullptr)) {
    return call.Invalid(fmt::format("one of {} and {} is missing", FirstOf(call, {"queryRopeOptional", "queryRope"}),
                                    FirstOf(call, {"keyRopeOptional", "keyRope"})),
                        "pass both or none");
  }
  if (parts.query_rope != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(const View q, ViewAs(call, *parts.query_rope, layout, plan.heads, 0));
    REPRISE_ASSIGN_OR_RETURN(const View k, ViewAs(call, *parts.key_rope, layout_of(*parts.key_rope), plan.kv_heads, 0));
    if (q.batch() != query.batch() || q.tokens() != query.tokens()) {
      return call.InvalidOperand(*parts.query_rope,
                                 fmt::format("has shape {}, which does not fit query {}",
                                             ShapeText(parts.query_rope->sizes()), ShapeText(parts.query->sizes())));
    }
    if (parts.keys.size() != 1 || k.batch() != keys[0].batch() || k.tokens() != keys[0].tokens() ||
        k.depth() != q.depth()) {
      return call.InvalidOperand(
          *parts.key_rope,
          fmt::format("has shape {}, which does not fit {} {} and heads of {}", ShapeText(parts.key_rope->sizes()),
                      call.NameOf(parts.keys[0]), ShapeText(parts.keys[0].sizes()), q.depth()));
    }
    a.query_rope = q.ref;
    a.key_rope = k.ref;
    plan.rope_depth = q.depth();
    plan.depth += plan.rope_depth;
  }
  if (parts.keys.size() > 1 && (is_paged || is_packed || static_cast<int64_t>(parts.keys.size()) != query.batch())) {
    return call.Invalid(fmt::format(
        "key has {} tensors, expected 1{}", parts.keys.size(),
        is_paged || is_packed ? std::string() : fmt::format(" or {}, one for each of the batch", query.batch())));
  }
  plan.value_depth = values[0].depth();
  if (parts.out == nullptr) return call.Invalid("attentionInOptional is missing", "pass what the forward pass made");
  REPRISE_ASSIGN_OR_RETURN(a.out, ViewAs(call, *parts.out, out_layout, plan.heads, 0));
  const View& out = a.out;
  if (out.batch() != query.batch() || out.tokens() != query.tokens() || out.depth() != plan.value_depth) {
    return call.InvalidOperand(
        *parts.out, fmt::format("has shape {}, expected batch {}, {} tokens, {} heads of {} elements in the layout {}",
                                ShapeText(parts.out->sizes()), query.batch(), query.tokens(), plan.heads,
                                plan.value_depth, out_layout));
  }

  // Pages.
  TensorRef& table = a.table;
  if (is_paged) {
    table = call.RefOf(*parts.table);
    plan.page_tokens = capacity;
    if (table.rank != 2) {
      return call.InvalidOperand(
          *parts.table, fmt::format("has shape {}, expected [batch, blocks]", ShapeText(parts.table->sizes())));
    }
    if (const int64_t block = call.Int("blockSize"); block != capacity) {
      return call.Invalid(fmt::format("blockSize is {}, but the blocks of key hold {} tokens", block, capacity));
    }
    capacity = keys[0].batch() == 0 ? 0 : table.sizes[1] * plan.page_tokens;
  }

  // Sequences, and what they see.
  Sequences sequences(call, plan, parts, query, is_packed);
  REPRISE_RETURN_IF_ERROR(sequences.Fill(keys, capacity));
  if (call.only_tells_size()) return {};
  const int64_t sparse_mode = call.Has("sparseMode") ? call.Int("sparseMode") : 0;
  // A single query sees all keys that its mask leaves: for it preTokens and nextTokens say nothing.
  const bool has_band = !(kind == kFused && !is_packed && query.tokens() == 1);
  const bool is_compressed = sparse_mode >= kLeftUpCausal && sparse_mode != kPrefix;
  const std::span<const int64_t> prefix = IntsOf(call, FirstOf(call, {"prefixOptional"}));
  int64_t most_keys = 0;
  int64_t most_queries = 0;
  int64_t bits = 0;
  for (AttentionSequence& s : plan.sequences) {
    if (kind != kIncremental) {
      REPRISE_RETURN_IF_ERROR(SetBand(call, sparse_mode, has_band && parts.mask != nullptr, call.Int("preTokens"),
                                      call.Int("nextTokens"), s));
    }
    if (is_paged && s.keys > 0 && s.kv_batch >= table.sizes[0]) {
      return call.InvalidOperand(
          *parts.table, fmt::format("has shape {}, expected a row for each sequence", ShapeText(parts.table->sizes())));
    }
    if (sparse_mode == kCompressedPrefix && s.keys > 0) {
      const auto at = static_cast<size_t>(s.mask_batch);
      if (is_packed || at >= prefix.size()) {
        return call.Invalid(fmt::format("sparseMode is 6 and prefixOptional has {} entries", prefix.size()),
                            "pass the length of the prefix of each sequence");
      }
      s.prefix = std::clamp<int64_t>(prefix[at], 0, s.keys);
    }
    most_keys = std::max(most_keys, s.keys);
    if (s.keys > 0) most_queries = std::max(most_queries, s.queries);
    s.drop_begin = bits;
    s.drop_stride = s.keys;
    bits += plan.heads * s.queries * s.keys;
  }

  // Masks and shifts.
  TensorRef& mask = a.mask;
  const Operand*& mask_operand = a.mask_operand;
  mask_operand = is_compressed ? nullptr : parts.mask;
  if (mask_operand != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(
        mask, ScoreView(call, *mask_operand, is_packed ? 1 : query.batch(), plan.heads, most_queries, most_keys));
  } else if (parts.mask != nullptr && sparse_mode != kCompressedPrefix) {
    const std::span<const int64_t> sizes = parts.mask->sizes();
    const size_t rank = sizes.size();
    if (rank < 2 || sizes[rank - 1] != kCompressedMask || sizes[rank - 2] != kCompressedMask) {
      return call.InvalidOperand(*parts.mask,
                                 fmt::format("has shape {}, expected [{}, {}] for sparseMode {}", ShapeText(sizes),
                                             kCompressedMask, kCompressedMask, sparse_mode));
    }
  }
  TensorRef& shift = a.shift;
  if (parts.shift != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(
        shift, ScoreView(call, *parts.shift, is_packed ? 1 : query.batch(), plan.heads, most_queries, most_keys));
  }
  plan.scale = static_cast<float>(call.Real("scaleValue"));
  const int64_t most_pse_type = kind == kTraining ? 1 : 0;
  const int64_t pse_type = call.Has("pseType") ? call.Int("pseType") : most_pse_type;
  if (pse_type < 0 || pse_type > most_pse_type) {
    return call.Invalid(fmt::format("pseType is {}, expected {}", pse_type, most_pse_type == 1 ? "0 or 1" : "0"),
                        "slopes that are turned into a shift are not supported yet");
  }
  plan.shift_first = pse_type == 1;
  TensorRef& drop = a.drop;
  if (parts.drop != nullptr) {
    const double keep = call.Real("keepProb");
    if (!(keep > 0 && keep <= 1)) {
      return call.Invalid(fmt::format("keepProb is {}, expected a value above 0 and up to 1", keep));
    }
    plan.keep = static_cast<float>(keep);
    drop = call.RefOf(*parts.drop);
    if (drop.rank != 1 || drop.sizes[0] < (bits + 7) / 8) {
      return call.InvalidOperand(*parts.drop, fmt::format("has shape {}, expected one dim of at least {} bytes",
                                                          ShapeText(parts.drop->sizes()), (bits + 7) / 8));
    }
  }
  TensorRef& sink = a.sink;
  if (parts.sink != nullptr) {
    sink = call.RefOf(*parts.sink);
    const int64_t expected[] = {plan.heads};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*parts.sink, expected, [] { return "one for each head,"; }));
  }
  return {};
}

Status PlanAttention(OpCall& call) {
  const auto kind = static_cast<AttentionKind>(call.op.computation.code);
  Attention a;
  REPRISE_RETURN_IF_ERROR(Describe(call, a));
  const Parts& parts = a.parts;
  AttentionPlan& plan = *a.plan;
  if (call.only_tells_size()) {
    kernels::PrepareAttention(plan, a.capacity);
    const int64_t partials = kernels::MostAttentionPartials(plan, a.capacity);
    call.Temporary(kernels::DType::kFloat, {&partials, 1});
    for (int i = 0; i < 2; ++i) {  // of Attend and of MergeAttention, each in as many parts as there can be
      Launch& launch = call.AddLaunch(RunAttention);
      launch.units = INT32_MAX;
      launch.grain = 1;
      call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionScratchBytes(plan)));
    }
    return {};
  }

  // Statistics.
  TensorRef maximum;
  TensorRef sum;
  TensorRef log_sum;
  const Operand* log_sum_operand = nullptr;
  if (kind == kTraining) {
    REPRISE_ASSIGN_OR_RETURN(maximum, StatisticView(call, *parts.maximum, a.query, a.is_packed, kStatisticCopies));
    REPRISE_ASSIGN_OR_RETURN(sum, StatisticView(call, *parts.sum, a.query, a.is_packed, kStatisticCopies));
  } else if (kind == kFused && call.Bool("softmaxLseFlag")) {
    if (parts.log_sum == nullptr)
      return Error(kOperatorArgumentNull, fmt::format("{}: softmaxLse is null", call.op.name))
          .Hint("pass an aclTensor for it, or leave out what asks for it");
    log_sum_operand = parts.log_sum;
    if (log_sum_operand->dtype != kernels::DType::kFloat) {
      return call.InvalidOperand(*log_sum_operand,
                                 fmt::format("has {}, expected float32", kernels::Name(log_sum_operand->dtype)));
    }
    REPRISE_ASSIGN_OR_RETURN(log_sum, StatisticView(call, *parts.log_sum, a.query, a.is_packed, 1));
  } else if (parts.log_sum != nullptr) {
    Launch& zero = call.AddLaunch(RunZero);
    call.Write(zero, *parts.log_sum);
    zero.scalars.push_back(kernels::Scalar::Of(0.0f));
    zero.units = parts.log_sum->tensor->count;
    zero.grain = kGrainElements;
  }

  // Launches.
  if (parts.out->tensor->count == 0) return {};
  kernels::PrepareAttention(plan, a.capacity);
  TensorRef partial;
  if (plan.is_split) {
    const int64_t count = kernels::AttentionPartialCount(plan);
    partial = call.Temporary(kernels::DType::kFloat, {&count, 1});
  }
  const auto add = [&](Launch::Kernel kernel, int64_t units, bool is_merge) {
    Launch& launch = call.AddLaunch(kernel);
    call.Write(launch, *parts.out, a.out.ref);
    AddOptional(call, launch, parts.maximum, maximum, true);
    AddOptional(call, launch, parts.sum, sum, true);
    AddOptional(call, launch, log_sum_operand, log_sum, true);
    call.Read(launch, *parts.query, a.query.ref);
    AddOptional(call, launch, a.mask_operand, a.mask, false);
    AddOptional(call, launch, parts.shift, a.shift, false);
    AddOptional(call, launch, parts.drop, a.drop, false);
    AddOptional(call, launch, parts.table, a.table, false);
    AddOptional(call, launch, parts.sink, a.sink, false);
    AddOptional(call, launch, parts.query_rope, a.query_rope, false);
    AddOptional(call, launch, parts.key_rope, a.key_rope, false);
    if (!plan.is_split) {
      call.ReadOptional(launch, nullptr);
    } else if (is_merge) {
      call.ReadTemporary(launch, partial);
    } else {
      call.WriteTemporary(launch, partial);
    }
    for (size_t i = 0; i < a.keys.size(); ++i) call.Read(launch, parts.keys[i], a.keys[i].ref);
    for (size_t i = 0; i < a.values.size(); ++i) call.Read(launch, parts.values[i], a.values[i].ref);
    launch.state = a.plan;
    launch.units = units;
    // By the room that there is, not by the keys of this call, so that a call with other lengths is cut alike.
    const int64_t rows = a.query.batch() * plan.heads * a.query.tokens();
    const int64_t work =
        rows * (is_merge ? plan.value_depth * plan.pieces : a.capacity * (plan.depth + plan.value_depth));
    launch.grain = std::max<int64_t>(1, kGrainOfAttention / std::max<int64_t>(1, work / std::max<int64_t>(1, units)));
    call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionScratchBytes(plan)));
  };
  add(RunAttention, plan.units, false);
  if (plan.is_split) add(RunMerge, plan.merge_units, true);
  return {};
}

// Places in Launch::refs of the backward pass.
enum BackwardPlace : size_t {
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kBackQuery,
  kBackKey,
  kBackValue,
  kGradient,
  kResult,
  kBackMaximum,
  kBackSum,
  kBackMask,
  kBackShift,
  kBackDrop
};

void RunBackward(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  const Refs& refs = launch.refs;
  kernels::AttentionOperands forward;
  forward.query = refs[kBackQuery];
  forward.mask = refs[kBackMask];
  forward.shift = refs[kBackShift];
  forward.drop = refs[kBackDrop];
  forward.out = refs[kResult];
  forward.maximum = refs[kBackMaximum];
  forward.sum = refs[kBackSum];
  forward.keys = {&refs[kBackKey], 1};
  forward.values = {&refs[kBackValue], 1};
  kernels::AttendBackward(launch.State<AttentionPlan>(), forward,
                          {.gradient = refs[kGradient],
                           .query = refs[kQueryGradient],
                           .key = refs[kKeyGradient],
                           .value = refs[kValueGradient]},
                          range, memory.scratch);
}

Status PlanAttentionBackward(OpCall& call) {
  Attention a;
  REPRISE_RETURN_IF_ERROR(Describe(call, a));
  const Parts& parts = a.parts;
  for (std::string_view name : {"softmaxMaxOptional", "softmaxSumOptional"}) {
    if (!call.IsGiven(name)) return call.Invalid(fmt::format("{} is missing", name), "pass what the forward pass made");
  }
  if (const Operand* shift_gradient = call.Find("dpseOut");
      shift_gradient != nullptr && shift_gradient->tensor->count != 0) {
    return call.InvalidOperand(*shift_gradient, "is not supported yet", "pass null");
  }
  REPRISE_ASSIGN_OR_RETURN(const TensorRef maximum,
                           StatisticView(call, *parts.maximum, a.query, a.is_packed, kStatisticCopies));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef sum,
                           StatisticView(call, *parts.sum, a.query, a.is_packed, kStatisticCopies));
  const Operand& dy = call.Get("dy");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(dy, parts.out->sizes(), [] { return "the shape of the result,"; }));
  const Operand* inputs[] = {parts.query, &parts.keys[0], &parts.values[0]};
  const std::string_view names[] = {"dqOut", "dkOut", "dvOut"};
  AttentionPlan& plan = *a.plan;
  const int64_t heads[] = {plan.heads, plan.kv_heads, plan.kv_heads};
  if (parts.query->tensor->count == 0 && parts.keys[0].tensor->count == 0) return {};
  kernels::PrepareAttention(plan, 0);
  Launch& launch = call.AddLaunch(RunBackward);
  for (size_t i = 0; i < 3; ++i) {
    const Operand& output = call.Get(names[i]);
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, inputs[i]->sizes(),
                                            [&] { return fmt::format("the shape of {},", call.NameOf(*inputs[i])); }));
    REPRISE_ASSIGN_OR_RETURN(const View view, ViewAs(call, output, a.layout, heads[i], 0));
    call.Write(launch, output, view.ref);
  }
  REPRISE_ASSIGN_OR_RETURN(const View gradient, ViewAs(call, dy, a.layout, plan.heads, 0));
  call.Read(launch, *parts.query, a.query.ref);
  call.Read(launch, parts.keys[0], a.keys[0].ref);
  call.Read(launch, parts.values[0], a.values[0].ref);
  call.Read(launch, dy, gradient.ref);
  call.Read(launch, *parts.out, a.out.ref);
  call.Read(launch, *parts.maximum, maximum);
  call.Read(launch, *parts.sum, sum);
  AddOptional(call, launch, a.mask_operand, a.mask, false);
  AddOptional(call, launch, parts.shift, a.shift, false);
  AddOptional(call, launch, parts.drop, a.drop, false);
  launch.state = a.plan;
  launch.units = static_cast<int64_t>(plan.sequences.size()) * plan.kv_heads;
  const int64_t per_unit = a.query.tokens() * plan.heads / plan.kv_heads * a.capacity * (plan.depth + plan.value_depth);
  launch.grain = std::max<int64_t>(1, kGrainOfAttention / std::max<int64_t>(1, per_unit));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionBackwardScratchBytes(plan)));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/attention.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
