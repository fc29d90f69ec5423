// SPDX-License-Identifier: Apache-2.0
//
// What comes before latent attention: queries, and the lines of its caches, out of hidden states.
#include "kernels/latent.h"

#include <array>

#include "kernels/matmul.h"
#include "kernels/paged_cache.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::CacheLayout;
using kernels::DType;
using kernels::SlotRule;
using kernels::TensorRef;

// Sizes of a call, and what is quantised.
struct Latent {
  int64_t tokens = 0, hidden = 0, low = 0, heads = 0, depth = 0, rope = 0, latent = 0;
  int64_t batch_tokens = 1;  // tokens of a sequence, for slots of blocks
  bool has_int8_input = false, has_int8_queries = false, has_int8_out = false;
  float query_scale = 1, key_scale = 1;
};

// refs: out, a, b.
void RunLatentProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), DType::kFloat, launch.Ref(0, memory), range,
                  memory.scratch);
}

// refs: lines, row factor, column factor, gamma, smooth, line scale, copy, copy of the scale, out scale; scalars:
// epsilon, scale; ints: to_int8.
void RunLatentNorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::LatentNorm norm;
  norm.lines = launch.Ref(0, memory);
  norm.factors = {launch.refs[1], launch.refs[2]};
  norm.gamma = launch.refs[3];
  norm.epsilon = launch.scalars[0].As<float>();
  norm.scale = launch.scalars[1].As<float>();
  norm.smooth = launch.refs[4];
  norm.to_int8 = launch.ints[0] != 0;
  norm.line_scale = launch.HasOperand(5) ? launch.Ref(5, memory) : TensorRef();
  norm.copy = launch.HasOperand(6) ? launch.Ref(6, memory) : TensorRef();
  norm.scale_copy = launch.refs[7];
  norm.out_scale = launch.refs[8];
  kernels::NormLatent(norm, range);
}

// refs: out, lines, row factor, column factor, cos, sin, out scale; ints: first element.
void RunLatentRotation(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::LatentRotation rotation;
  rotation.out = launch.Ref(0, memory);
  rotation.lines = launch.Ref(1, memory);
  rotation.factors = {launch.HasOperand(2) ? launch.Ref(2, memory) : TensorRef(), launch.refs[3]};
  rotation.first = launch.ints[0];
  rotation.cos = launch.Ref(4, memory);
  rotation.sin = launch.Ref(5, memory);
  rotation.out_scale = launch.refs[6];
  kernels::RotateLatent(rotation, range, static_cast<float*>(memory.scratch));
}

// refs: out, scale, lines.
void RunLatentQuantization(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::QuantizeLatent(launch.Ref(2, memory), launch.Ref(0, memory), launch.refs[1], range);
}

// refs: cache, lines, slots; ints: rule, tokens of a sequence, layout.
void RunLatentStore(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScatterTokens(launch.Ref(1, memory), launch.refs[2], static_cast<SlotRule>(launch.ints[0]), launch.ints[1],
                         static_cast<CacheLayout>(launch.ints[2]), launch.refs[0], range);
}

const Operand* LatentGiven(const OpCall& call, std::string_view name) {
  const Operand* operand = call.Has(name) ? call.Find(name) : nullptr;
  return operand == nullptr || operand->tensor->count == 0 ? nullptr : operand;
}

int64_t TokensOf(const Operand& x) {
  int64_t tokens = 1;
  for (const int64_t size : x.sizes().first(static_cast<size_t>(x.rank() - 1))) tokens *= size;
  return tokens;
}

Status CheckMatrix(OpCall& call, const char* name, int64_t rows, int64_t columns) {
  const int64_t expected[] = {rows, columns};
  return call.CheckShape(call.Get(name), expected, [] { return "the shape"; });
}

// Lines [token, ..] of an operand, or of a temporary that has its elements in order.
struct Lines {
  const Operand* operand = nullptr;  // null: a temporary
  TensorRef view;
};

void ReadLines(const OpCall& call, Launch& launch, const Lines& lines) {
  lines.operand != nullptr ? call.Read(launch, *lines.operand, lines.view) : call.ReadTemporary(launch, lines.view);
}

void WriteLines(const OpCall& call, Launch& launch, const Lines& lines) {
  lines.operand != nullptr ? call.Write(launch, *lines.operand, lines.view) : call.WriteTemporary(launch, lines.view);
}

// The temporary as the operand has its dims.
TensorRef InDimsOf(const TensorRef& temporary, const TensorRef& operand) {
  TensorRef view = kernels::MakeContiguous(nullptr, temporary.dtype, operand.rank, operand.sizes);
  view.data = temporary.data;
  return view;
}

// The tokens of an operand as one dim, whose dims in front are those of tokenX.
StatusOr<Lines> LinesOf(OpCall& call, const Operand& operand, const Operand& x, int rest) {
  const TensorRef ref = call.RefOf(operand);
  const int outer = x.rank() - 1;
  const bool fits =
      ref.rank == outer + rest && std::equal(x.sizes().begin(), x.sizes().begin() + outer, operand.sizes().begin());
  if (!fits) {
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected the tokens of tokenX {} and {} dims behind",
                                                    ShapeText(operand.sizes()), ShapeText(x.sizes()), rest));
  }
  int64_t sizes[kernels::kMaxRank] = {outer == 2 ? ref.sizes[0] * ref.sizes[1] : ref.sizes[0]};
  std::copy_n(ref.sizes + outer, rest, sizes + 1);
  const bool is_line =
      outer == 1 || ref.sizes[0] == 1 || ref.sizes[1] == 1 || ref.strides[0] == ref.sizes[1] * ref.strides[1];
  if (!is_line) return Lines{nullptr, call.Temporary(ref.dtype, {sizes, static_cast<size_t>(rest) + 1})};
  TensorRef view = ref;
  view.rank = rest + 1;
  view.sizes[0] = sizes[0];
  view.strides[0] = outer == 2 && ref.sizes[1] == 1 ? ref.strides[0] : ref.strides[outer - 1];
  for (int d = 0; d < rest; ++d) {
    view.sizes[d + 1] = ref.sizes[outer + d];
    view.strides[d + 1] = ref.strides[outer + d];
  }
  return Lines{&operand, view};
}

void CopyLines(OpCall& call, const Operand& operand, const TensorRef& temporary, bool is_input) {
  Launch& copy = call.AddLaunch(RunCopy);
  const TensorRef in_dims = InDimsOf(temporary, call.RefOf(operand));
  if (is_input) {
    call.WriteTemporary(copy, in_dims);
    call.Read(copy, operand);
  } else {
    call.Write(copy, operand);
    call.ReadTemporary(copy, in_dims);
  }
  copy.units = operand.tensor->count;
  copy.grain = GrainOf(1);
}

// As LinesOf; a temporary gets the elements.
StatusOr<Lines> InputLines(OpCall& call, const Operand& operand, const Operand& x, int rest) {
  REPRISE_ASSIGN_OR_RETURN(const Lines lines, LinesOf(call, operand, x, rest));
  if (lines.operand == nullptr) CopyLines(call, operand, lines.view, true);
  return lines;
}

// What was written to a temporary goes to its operand.
void FinishLines(OpCall& call, const Operand& operand, const Lines& lines) {
  if (lines.operand == nullptr) CopyLines(call, operand, lines.view, false);
}

Status CheckModes(const OpCall& call, const Latent& l) {
  if (!call.Has("weightQuantMode")) return {};
  const int64_t weights = l.has_int8_input ? 2 : l.has_int8_queries ? 1 : 0;
  if (call.Int("weightQuantMode") != weights) {
    return call.Invalid(fmt::format("weightQuantMode is {}, but the types of tokenX and the weights are those of {}",
                                    call.Int("weightQuantMode"), weights),
                        "0 nothing is int8, 1 weightUqQr is, 2 tokenX, weightDq, weightUqQr and weightDkvKr are");
  }
  const int64_t cache = call.Int("kvCacheQuantMode");
  if (cache < 0 || cache > 2 || (cache != 0) != (call.Get("kvCacheRef").dtype == DType::kInt8)) {
    return call.Invalid(
        fmt::format("kvCacheQuantMode is {} for a cache of {}", cache, kernels::Name(call.Get("kvCacheRef").dtype)),
        "0 for caches that are not int8, 1 and 2 for int8; tiles are not supported yet");
  }
  for (std::string_view name : {"ckvkrRepoMode", "quantScaleRepoMode"}) {
    if (call.Int(name) == 0) continue;
    return call.Invalid(fmt::format("{} is {}, expected 0", name, call.Int(name)),
                        "caches in one tensor are not supported yet");
  }
  if (LatentGiven(call, "kNopeClipAlphaOptional") != nullptr) {
    return call.InvalidOperand(call.Get("kNopeClipAlphaOptional"),
                               "is given, but belongs to tiles, which are not "
                               "supported yet",
                               "pass null");
  }
  return {};
}

StatusOr<Latent> DescribeLatent(OpCall& call) {
  Latent l;
  const Operand& x = call.Get("tokenX");
  const Operand& uk = call.Get("weightUk");
  if (x.rank() != 2 && x.rank() != 3) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 or 3 dims", ShapeText(x.sizes())));
  }
  if (uk.rank() != 3 || call.Get("weightDq").rank() != 2) {
    const Operand& wrong = uk.rank() != 3 ? uk : call.Get("weightDq");
    return call.InvalidOperand(wrong, fmt::format("has shape {}", ShapeText(wrong.sizes())),
                               "weightUk is [heads, elements, latent], weightDq [hidden, low rank]");
  }
  l.tokens = TokensOf(x);
  l.batch_tokens = std::max<int64_t>(1, x.rank() == 3 ? x.sizes()[1] : l.tokens);
  l.hidden = x.sizes().back();
  l.low = call.Get("weightDq").sizes()[1];
  l.heads = uk.sizes()[0];
  l.depth = uk.sizes()[1];
  l.latent = uk.sizes()[2];
  const Operand& cos = call.Get("ropeCos");
  if (cos.rank() == 0 || cos.sizes().back() % 2 != 0) {
    return call.InvalidOperand(cos, fmt::format("has shape {}, expected an even last dim", ShapeText(cos.sizes())));
  }
  l.rope = cos.sizes().back();
  l.has_int8_input = x.dtype == DType::kInt8;
  l.has_int8_queries = call.Get("weightUqQr").dtype == DType::kInt8;
  l.has_int8_out = call.Get("queryOut").dtype == DType::kInt8;
  if (call.Has("qcQrScale")) {
    l.query_scale = static_cast<float>(call.Real("qcQrScale"));
    l.key_scale = static_cast<float>(call.Real("kcScale"));
  }
  REPRISE_RETURN_IF_ERROR(CheckMatrix(call, "weightDq", l.hidden, l.low));
  REPRISE_RETURN_IF_ERROR(CheckMatrix(call, "weightUqQr", l.low, l.heads * (l.depth + l.rope)));
  REPRISE_RETURN_IF_ERROR(CheckMatrix(call, "weightDkvKr", l.hidden, l.latent + l.rope));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("rmsnormGammaCq"), {&l.low, 1}, [] { return "one for each element of low rank:"; }));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("rmsnormGammaCkv"), {&l.latent, 1}, [] { return "one for each latent element:"; }));
  REPRISE_RETURN_IF_ERROR(CheckModes(call, l));
  return l;
}

// One number for each of `count`, or one for all if `may_be_one`; as one dim.
StatusOr<TensorRef> NumbersView(const OpCall& call, const char* name, int64_t count, bool may_be_one, bool is_needed) {
  const Operand* operand = LatentGiven(call, name);
  if (operand == nullptr) {
    if (!is_needed) return TensorRef();
    return Error(kOperatorArgumentNull, fmt::format("{}: {} is null", call.op.name, name))
        .Hint("int8 operands need their factors");
  }
  TensorRef ref = call.RefOf(*operand);
  int dim = 0;
  for (int d = 0; d < ref.rank; ++d) {
    if (ref.sizes[d] != 1) dim = d;
  }
  const int64_t elements = kernels::ElementCount(ref);
  if (!(elements == count || (may_be_one && elements == 1)) || (ref.rank > 0 && ref.sizes[dim] != elements)) {
    return call.InvalidOperand(*operand,
                               fmt::format("has shape {}, expected {} numbers", ShapeText(operand->sizes()), count));
  }
  TensorRef view = ref;
  view.rank = 1;
  view.sizes[0] = elements;
  view.strides[0] = ref.rank == 0 ? 0 : ref.strides[dim];
  return view;
}

void ReadNumbers(const OpCall& call, Launch& launch, const char* name, const TensorRef& view) {
  view.rank == 0 ? call.ReadOptional(launch, nullptr) : call.Read(launch, call.Get(name), view);
}

// out = a x b.
void AddProduct(OpCall& call, const Lines& out, const Lines& a, const Operand& b) {
  const TensorRef& out_view = out.view;
  const TensorRef& a_view = a.view;
  const TensorRef b_view = call.RefOf(b);
  Launch& launch = call.AddLaunch(RunLatentProduct);
  WriteLines(call, launch, out);
  ReadLines(call, launch, a);
  call.Read(launch, b, b_view);
  launch.units = kernels::MatMulUnitCount(a_view, b_view, DType::kFloat, out_view);
  if (launch.units == 0) return;
  launch.grain = GrainOf(kernels::MatMulUnitWork(a_view, b_view, DType::kFloat, out_view));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a_view, b_view, DType::kFloat, out_view)));
}

// Lines of low rank, normed: what queries are made of.
StatusOr<std::array<TensorRef, 2>> AddLowRank(OpCall& call, const Latent& l, const Lines& x) {
  const int64_t sizes[] = {l.tokens, l.low};
  const TensorRef lines = call.Temporary(DType::kFloat, sizes);
  const TensorRef scale = call.Temporary(DType::kFloat, {&l.tokens, 1});
  AddProduct(call, {nullptr, lines}, x, call.Get("weightDq"));
  const bool is_int8 = l.has_int8_input;
  REPRISE_ASSIGN_OR_RETURN(const TensorRef row, NumbersView(call, "dequantScaleXOptional", l.tokens, false, is_int8));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef column, NumbersView(call, "dequantScaleWDqOptional", l.low, false, is_int8));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef smooth, NumbersView(call, "smoothScalesCqOptional", l.low, true, false));
  Launch& norm = call.AddLaunch(RunLatentNorm);
  call.WriteTemporary(norm, lines);
  ReadNumbers(call, norm, "dequantScaleXOptional", is_int8 ? row : TensorRef());
  ReadNumbers(call, norm, "dequantScaleWDqOptional", is_int8 ? column : TensorRef());
  call.Read(norm, call.Get("rmsnormGammaCq"));
  ReadNumbers(call, norm, "smoothScalesCqOptional", l.has_int8_queries ? smooth : TensorRef());
  l.has_int8_queries ? call.WriteTemporary(norm, scale) : call.ReadOptional(norm, nullptr);
  const bool has_copy =
      call.Has("queryNormFlag") ? call.Bool("queryNormFlag") : LatentGiven(call, "queryNormOutOptional") != nullptr;
  const Operand* copy = has_copy ? LatentGiven(call, "queryNormOutOptional") : nullptr;
  Lines copy_lines;
  if (copy != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(copy_lines, LinesOf(call, *copy, call.Get("tokenX"), 1));
    if (copy_lines.view.sizes[1] != l.low || (copy->dtype == DType::kInt8) != l.has_int8_queries) {
      return call.InvalidOperand(*copy,
                                 fmt::format("has {} and shape {}, expected the type of weightUqQr and lines of {}",
                                             kernels::Name(copy->dtype), ShapeText(copy->sizes()), l.low));
    }
    WriteLines(call, norm, copy_lines);
  } else {
    call.WriteOptional(norm, nullptr);
  }
  const Operand* copy_scale = l.has_int8_queries ? LatentGiven(call, "dequantScaleQNormOutOptional") : nullptr;
  if (copy_scale != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(const TensorRef view,
                             NumbersView(call, "dequantScaleQNormOutOptional", l.tokens, false, true));
    call.Write(norm, *copy_scale, view);
  } else {
    call.WriteOptional(norm, nullptr);
  }
  call.ReadOptional(norm, nullptr);
  norm.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("rmsnormEpsilonCq"))));
  norm.scalars.push_back(kernels::Scalar::Of(l.query_scale));
  norm.ints.push_back(l.has_int8_queries ? 1 : 0);
  norm.units = l.tokens;
  norm.grain = GrainOf(4 * l.low);
  if (copy != nullptr) FinishLines(call, *copy, copy_lines);
  return std::array<TensorRef, 2>{lines, scale};
}

struct Angles {
  Lines cos, sin;
};

// refs as RunLatentRotation has them; `out` is there.
void FinishRotation(OpCall& call, Launch& rotate, const Latent& l, const Angles& angles, int64_t first, int64_t heads) {
  ReadLines(call, rotate, angles.cos);
  ReadLines(call, rotate, angles.sin);
  rotate.ints.push_back(first);
  rotate.units = l.tokens;
  rotate.grain = GrainOf(4 * heads * (first + l.rope));
}

// Both parts of the queries.
Status AddQueries(OpCall& call, const Latent& l, const TensorRef& low, const TensorRef& low_scale,
                  const Angles& angles) {
  const int64_t line = l.depth + l.rope;
  const int64_t sizes[] = {l.tokens, l.heads * line};
  const TensorRef flat = call.Temporary(DType::kFloat, sizes);
  const Operand& weight = call.Get("weightUqQr");
  AddProduct(call, {nullptr, flat}, {nullptr, low}, weight);
  TensorRef lines = flat;
  lines.rank = 3;
  lines.sizes[1] = l.heads;
  lines.sizes[2] = line;
  lines.strides[1] = line;
  lines.strides[2] = 1;
  const Operand& x = call.Get("tokenX");
  const Operand& rope_out = call.Get("queryRopeOut");
  REPRISE_ASSIGN_OR_RETURN(const Lines rope_lines, LinesOf(call, rope_out, x, 2));
  const Operand& out = call.Get("queryOut");
  REPRISE_ASSIGN_OR_RETURN(const Lines out_lines, LinesOf(call, out, x, 2));
  for (const auto& [operand, view, size] :
       {std::tuple(&rope_out, &rope_lines.view, l.rope), {&out, &out_lines.view, l.latent}}) {
    if (view->sizes[1] == l.heads && view->sizes[2] == size) continue;
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected {} heads of {} elements for each token",
                                                     ShapeText(operand->sizes()), l.heads, size));
  }
  REPRISE_ASSIGN_OR_RETURN(const TensorRef column,
                           NumbersView(call, "dequantScaleWUqQrOptional", l.heads * line, false, l.has_int8_queries));
  Launch& rotate = call.AddLaunch(RunLatentRotation);
  WriteLines(call, rotate, rope_lines);
  call.WriteTemporary(rotate, lines);
  l.has_int8_queries ? call.ReadTemporary(rotate, low_scale) : call.ReadOptional(rotate, nullptr);
  ReadNumbers(call, rotate, "dequantScaleWUqQrOptional", l.has_int8_queries ? column : TensorRef());
  FinishRotation(call, rotate, l, angles, l.depth, l.heads);
  call.ReadOptional(rotate, nullptr);
  call.AddScratch(rotate, static_cast<uint64_t>(3 * l.rope) * sizeof(float));
  FinishLines(call, rope_out, rope_lines);
  // [head, token, element] x [head, element, latent].
  const auto by_head = [](const TensorRef& from, int64_t size) {
    TensorRef view = from;
    view.sizes[0] = from.sizes[1];
    view.strides[0] = from.strides[1];
    view.sizes[1] = from.sizes[0];
    view.strides[1] = from.strides[0];
    view.sizes[2] = size;
    return view;
  };
  const Operand& uk = call.Get("weightUk");
  if (!l.has_int8_out) {
    AddProduct(call, {out_lines.operand, by_head(out_lines.view, l.latent)}, {nullptr, by_head(lines, l.depth)}, uk);
    FinishLines(call, out, out_lines);
    return {};
  }
  const int64_t wide[] = {l.tokens, l.heads, l.latent};
  const TensorRef made = call.Temporary(DType::kFloat, wide);
  AddProduct(call, {nullptr, by_head(made, l.latent)}, {nullptr, by_head(lines, l.depth)}, uk);
  const Operand* scale = LatentGiven(call, "dequantScaleQNopeOutOptional");
  if (scale == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: dequantScaleQNopeOutOptional is null", call.op.name))
        .Hint("int8 queries need a tensor for their factors");
  }
  const int64_t scales[] = {l.tokens, l.heads, 1};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*scale, scales, [] { return "one for each token and head:"; }));
  const TensorRef scale_view = call.RefOf(*scale);
  Launch& quantize = call.AddLaunch(RunLatentQuantization);
  WriteLines(call, quantize, out_lines);
  call.Write(quantize, *scale, scale_view);
  call.ReadTemporary(quantize, made);
  quantize.units = l.tokens * l.heads;
  quantize.grain = GrainOf(4 * l.latent);
  FinishLines(call, out, out_lines);
  return {};
}

struct LatentStore {
  SlotRule rule = SlotRule::kEach;
  CacheLayout layout = CacheLayout::kLines;
  bool is_plain = false;  // the cache holds all tokens in order
};

StatusOr<LatentStore> StoreOf(const OpCall& call) {
  const std::string_view mode = call.Text("cacheModeOptional");
  if (mode.empty() || mode == "PA_BSND") return LatentStore{};
  if (mode == "PA_NZ") return LatentStore{SlotRule::kEach, CacheLayout::kFolded};
  if (mode == "PA_BLK_BSND") return LatentStore{SlotRule::kOfBlocks};
  if (mode == "PA_BLK_NZ") return LatentStore{SlotRule::kOfBlocks, CacheLayout::kFolded};
  if (mode == "BSND" || mode == "TND") return LatentStore{.is_plain = true};
  return call.Invalid(
      fmt::format("cacheModeOptional is '{}', expected PA_BSND, PA_NZ, PA_BLK_BSND, PA_BLK_NZ, BSND or "
                  "TND",
                  mode));
}

// Lines [token, element] into a cache.
Status AddStore(OpCall& call, const Latent& l, const LatentStore& store, const char* name, TensorRef lines) {
  const Operand& cache = call.Get(name);
  const int64_t size = lines.sizes[1];
  TensorRef view = call.RefOf(cache);
  if (view.rank < 2 || view.sizes[view.rank - 1] != size) {
    return call.InvalidOperand(cache,
                               fmt::format("has shape {}, expected lines of {}", ShapeText(cache.sizes()), size));
  }
  if (store.is_plain) {
    if (cache.tensor->count != l.tokens * size) {
      return call.InvalidOperand(cache, fmt::format("has shape {}, expected a line for each of {} tokens",
                                                    ShapeText(cache.sizes()), l.tokens));
    }
    Launch& copy = call.AddLaunch(RunCopy);
    call.Write(copy, cache);
    TensorRef same = kernels::MakeContiguous(lines.data, lines.dtype, view.rank, view.sizes);
    if (lines.strides[0] != size) {
      // Lines are longer than what is stored: [.., token, element] with their stride.
      same.strides[view.rank - 2] = lines.strides[0];
      for (int d = view.rank - 3; d >= 0; --d) same.strides[d] = same.strides[d + 1] * same.sizes[d + 1];
    }
    call.ReadTemporary(copy, same);
    copy.units = cache.tensor->count;
    copy.grain = GrainOf(1);
    return {};
  }
  const Operand* index = LatentGiven(call, call.Has("cacheIndex") ? "cacheIndex" : "cacheIndexOptional");
  if (index == nullptr && l.tokens != 0) {
    return Error(kOperatorArgumentNull, fmt::format("{}: the index of the cache is null", call.op.name))
        .Hint("pass a slot for each token, or for each block of tokens");
  }
  if (index == nullptr) return {};
  if (view.rank != 4 || view.sizes[2] != 1) {
    return call.InvalidOperand(
        cache, fmt::format("has shape {}, expected [pages, tokens, 1, {}]", ShapeText(cache.sizes()), size));
  }
  const int64_t page = std::max<int64_t>(1, view.sizes[1]);
  const bool is_each = store.rule == SlotRule::kEach;
  const int64_t slots = is_each ? l.tokens : l.tokens / l.batch_tokens * ((l.batch_tokens + page - 1) / page);
  if (index->tensor->count != slots) {
    return call.InvalidOperand(
        *index, fmt::format("has shape {}, expected {} numbers, one for each {}", ShapeText(index->sizes()), slots,
                            is_each ? "token" : "block of tokens"));
  }
  const int64_t piece = kernels::kPieceBytes / kernels::ItemSize(cache.dtype);
  if (store.layout == CacheLayout::kFolded && size % piece != 0) {
    return call.InvalidOperand(cache, fmt::format("has shape {}, expected lines of a multiple of {} for pieces",
                                                  ShapeText(cache.sizes()), piece));
  }
  Launch& scatter = call.AddLaunch(RunLatentStore);
  call.Write(scatter, cache, view);
  call.ReadTemporary(scatter, lines);
  call.Read(scatter, *index);
  for (int64_t value : {static_cast<int64_t>(store.rule), l.batch_tokens, static_cast<int64_t>(store.layout)}) {
    scatter.ints.push_back(value);
  }
  scatter.units = cache.tensor->count == 0 ? 0 : kernels::ScatterParts(lines);
  scatter.grain = GrainOf(l.tokens * kernels::kScatterPart);
  return {};
}

// Both parts of the keys.
Status AddKeys(OpCall& call, const Latent& l, const Lines& x, const Angles& angles) {
  REPRISE_ASSIGN_OR_RETURN(const LatentStore store, StoreOf(call));
  const int64_t sizes[] = {l.tokens, l.latent + l.rope};
  const TensorRef lines = call.Temporary(DType::kFloat, sizes);
  const Operand& weight = call.Get("weightDkvKr");
  AddProduct(call, {nullptr, lines}, x, weight);
  const bool is_int8 = l.has_int8_input;
  REPRISE_ASSIGN_OR_RETURN(const TensorRef row, NumbersView(call, "dequantScaleXOptional", l.tokens, false, is_int8));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef column,
                           NumbersView(call, "dequantScaleWDkvKrOptional", l.latent + l.rope, false, is_int8));
  const bool kv_is_int8 = call.Get("kvCacheRef").dtype == DType::kInt8;
  const bool kr_is_int8 = call.Get("krCacheRef").dtype == DType::kInt8;
  REPRISE_ASSIGN_OR_RETURN(const TensorRef kv_scale,
                           NumbersView(call, "quantScaleCkvOptional", l.latent, true, kv_is_int8));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef kr_scale,
                           NumbersView(call, "quantScaleCkrOptional", l.rope, true, kr_is_int8));
  Launch& norm = call.AddLaunch(RunLatentNorm);
  call.WriteTemporary(norm, lines);
  ReadNumbers(call, norm, "dequantScaleXOptional", is_int8 ? row : TensorRef());
  ReadNumbers(call, norm, "dequantScaleWDkvKrOptional", is_int8 ? column : TensorRef());
  call.Read(norm, call.Get("rmsnormGammaCkv"));
  for (int i = 0; i < 4; ++i) call.ReadOptional(norm, nullptr);
  ReadNumbers(call, norm, "quantScaleCkvOptional", kv_is_int8 ? kv_scale : TensorRef());
  norm.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("rmsnormEpsilonCkv"))));
  norm.scalars.push_back(kernels::Scalar::Of(l.key_scale));
  norm.ints.push_back(0);
  norm.units = l.tokens;
  norm.grain = GrainOf(4 * l.latent);
  // The turned part of the line, as one head.
  const int64_t turned_sizes[] = {l.tokens, l.rope};
  const TensorRef turned = call.Temporary(DType::kFloat, turned_sizes);
  const auto as_head = [](TensorRef view) {
    view.rank = 3;
    view.sizes[2] = view.sizes[1];
    view.strides[2] = 1;
    view.sizes[1] = 1;
    view.strides[1] = 0;
    return view;
  };
  Launch& rotate = call.AddLaunch(RunLatentRotation);
  call.WriteTemporary(rotate, as_head(turned));
  call.WriteTemporary(rotate, as_head(lines));
  call.ReadOptional(rotate, nullptr);  // the norm has applied the factors
  call.ReadOptional(rotate, nullptr);
  FinishRotation(call, rotate, l, angles, l.latent, 1);
  ReadNumbers(call, rotate, "quantScaleCkrOptional", kr_is_int8 ? kr_scale : TensorRef());
  call.AddScratch(rotate, static_cast<uint64_t>(3 * l.rope) * sizeof(float));
  TensorRef latent = lines;
  latent.sizes[1] = l.latent;
  REPRISE_RETURN_IF_ERROR(AddStore(call, l, store, "kvCacheRef", latent));
  return AddStore(call, l, store, "krCacheRef", turned);
}

Status LatentTypes(OpCall& call) {
  const DType type = call.Get("queryRopeOut").dtype;
  call.compute = type;
  const bool is_int8 = call.Get("tokenX").dtype == DType::kInt8;
  for (std::string_view name : {"tokenX", "weightDq", "weightDkvKr", "weightUqQr"}) {
    const Operand& operand = call.Get(name);
    const DType wanted = is_int8 ? DType::kInt8 : type;
    if (operand.dtype == wanted || (name == "weightUqQr" && operand.dtype == DType::kInt8)) continue;
    return call.InvalidOperand(operand,
                               fmt::format("has {}, expected {}", kernels::Name(operand.dtype), kernels::Name(wanted)),
                               "weightUqQr may be int8 alone, the others are int8 with tokenX");
  }
  for (std::string_view name : {"weightUk", "rmsnormGammaCq", "rmsnormGammaCkv", "ropeSin", "ropeCos"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == type) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of queryRopeOut",
                                                    kernels::Name(operand.dtype), kernels::Name(type)));
  }
  for (std::string_view name : {"kvCacheRef", "krCacheRef", "queryOut"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == type || operand.dtype == DType::kInt8) continue;
    return call.InvalidOperand(
        operand, fmt::format("has {}, expected {} or int8", kernels::Name(operand.dtype), kernels::Name(type)));
  }
  return {};
}

Status LowerLatent(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Latent l, DescribeLatent(call));
  const Operand& x = call.Get("tokenX");
  REPRISE_ASSIGN_OR_RETURN(const Lines lines, InputLines(call, x, x, 1));
  Angles angles;
  REPRISE_ASSIGN_OR_RETURN(angles.cos, InputLines(call, call.Get("ropeCos"), x, 1));
  REPRISE_ASSIGN_OR_RETURN(angles.sin, InputLines(call, call.Get("ropeSin"), x, 1));
  if (angles.sin.view.sizes[1] != l.rope) {
    return call.InvalidOperand(call.Get("ropeSin"), fmt::format("has shape {}, expected that of ropeCos",
                                                                ShapeText(call.Get("ropeSin").sizes())));
  }
  REPRISE_ASSIGN_OR_RETURN(const auto low, AddLowRank(call, l, lines));
  REPRISE_RETURN_IF_ERROR(AddQueries(call, l, low[0], low[1], angles));
  return AddKeys(call, l, lines, angles);
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/latent.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
