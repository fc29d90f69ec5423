// SPDX-License-Identifier: Apache-2.0
//
// Keys and values of tokens into caches of pages, and out of them.
#include "kernels/paged_cache.h"

#include "kernels/copy.h"
#include "kernels/normalize.h"
#include "kernels/quantize.h"
#include "kernels/rotary.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::CacheLayout;
using kernels::DType;
using kernels::SlotRule;
using kernels::TensorRef;

// refs: cache, tokens, slots; ints: rule, tokens of a sequence, layout.
void RunScatterTokens(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScatterTokens(launch.Ref(1, memory), launch.refs[2], static_cast<SlotRule>(launch.ints[0]), launch.ints[1],
                         static_cast<CacheLayout>(launch.ints[2]), launch.refs[0], range);
}

void FinishScatter(Launch& launch, const TensorRef& tokens, SlotRule rule, int64_t per_sequence, CacheLayout layout) {
  for (int64_t value : {static_cast<int64_t>(rule), per_sequence, static_cast<int64_t>(layout)}) {
    launch.ints.push_back(value);
  }
  launch.units = tokens.sizes[0] == 0 ? 0 : kernels::ScatterParts(tokens);
  launch.grain = GrainOf(tokens.sizes[0] * kernels::kScatterPart);
}

StatusOr<CacheLayout> LayoutOf(const OpCall& call) {
  const std::string_view mode = call.Text("cacheMode");
  if (mode.empty() || mode == "Norm") return CacheLayout::kLines;
  if (mode == "PA_NZ") return CacheLayout::kPieces;
  return call.Invalid(fmt::format("cacheMode is '{}', expected Norm or PA_NZ", mode));
}

// A cache whose lines are as long as the tokens, given as [token, ..].
Status CheckCache(const OpCall& call, const Operand& cache, const Operand& tokens, CacheLayout layout) {
  const TensorRef ref = call.RefOf(cache);
  int64_t line = 1;
  for (const int64_t size : tokens.sizes().subspan(1)) line *= size;
  const int64_t piece = ref.rank == 0 ? 0 : ref.sizes[ref.rank - 1] * kernels::ItemSize(ref.dtype);
  const bool is_cut = layout == CacheLayout::kPieces;
  if (kernels::CacheLine(layout, ref) == line && (!is_cut || line == 0 || piece == kernels::kPieceBytes)) return {};
  return call.InvalidOperand(
      cache, fmt::format("has shape {}, expected {} for {} {}", ShapeText(cache.sizes()),
                         is_cut ? fmt::format("[pages, {} / {}, tokens, {}]", line,
                                              kernels::kPieceBytes / kernels::ItemSize(ref.dtype),
                                              kernels::kPieceBytes / kernels::ItemSize(ref.dtype))
                                : fmt::format("[pages, tokens, heads, elements] with lines of {}", line),
                         call.NameOf(tokens), ShapeText(tokens.sizes())));
}

Status CacheTypes(OpCall& call) {
  for (const auto& [tokens, cache] : {std::pair("key", "keyCacheRef"),
                                      {"value", "valueCacheRef"},
                                      {"keyRef", "keyCache"},
                                      {"valueRef", "valueCache"}}) {
    const Operand* const a = call.Find(tokens);
    const Operand* const b = call.Find(cache);
    if (a == nullptr || b == nullptr || a->dtype == b->dtype) continue;
    return call.InvalidOperand(*b, fmt::format("has {}, expected the type {} of {}", kernels::Name(b->dtype),
                                               kernels::Name(a->dtype), call.NameOf(*a)));
  }
  call.compute = call.inputs[0].dtype;
  return {};
}

Status CacheRank(const OpCall& call, const Operand& operand, int least, int most) {
  if (operand.rank() >= least && operand.rank() <= most) return {};
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected {} to {} dims", ShapeText(operand.sizes()), least, most));
}

// ---- Scatter ----

Status ScatterCacheShape(OpCall& call) {
  for (const char* name : {"compressLensOptional", "compressSeqOffsetOptional", "seqLensOptional"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || operand->tensor->count == 0) continue;
    return call.InvalidOperand(*operand, "is given, but compressed caches are not supported yet", "pass null");
  }
  if (call.Has("scatterMode")) {
    const std::string_view mode = call.Text("scatterMode");
    if (!mode.empty() && mode != "None" && mode != "Nct") {
      return call.Invalid(fmt::format("scatterMode is '{}', expected None or Nct", mode),
                          "other modes belong to compressed caches, which are not supported yet");
    }
    for (const int64_t stride : call.Ints("stridesOptional")) {
      if (stride == 1) continue;
      return call.Invalid(fmt::format("stridesOptional is {}, expected ones", ShapeText(call.Ints("stridesOptional"))),
                          "tensors have strides of their own");
    }
    for (const int64_t offset : call.Ints("offsetsOptional")) {
      if (offset == 0) continue;
      return call.Invalid(fmt::format("offsetsOptional is {}, expected zeros", ShapeText(call.Ints("offsetsOptional"))),
                          "tensors have offsets of their own");
    }
  }
  REPRISE_ASSIGN_OR_RETURN(const CacheLayout layout, LayoutOf(call));
  const Operand& key = call.Get("key");
  REPRISE_RETURN_IF_ERROR(CacheRank(call, key, 2, 3));
  REPRISE_RETURN_IF_ERROR(CheckCache(call, call.Get("keyCacheRef"), key, layout));
  const int64_t tokens = key.sizes()[0];
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("slotMapping"), {&tokens, 1}, [] { return "one for each token:"; }));
  const Operand* const value = call.Find("value");
  if (value == nullptr) return {};
  REPRISE_RETURN_IF_ERROR(CacheRank(call, *value, 2, 3));
  if (value->sizes()[0] != tokens) {
    return call.InvalidOperand(*value, fmt::format("has shape {}, expected {} tokens as key {}",
                                                   ShapeText(value->sizes()), tokens, ShapeText(key.sizes())));
  }
  return CheckCache(call, call.Get("valueCacheRef"), *value, layout);
}

Status LowerScatterCache(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const CacheLayout layout, LayoutOf(call));
  for (const auto& [tokens, cache] : {std::pair("key", "keyCacheRef"), {"value", "valueCacheRef"}}) {
    const Operand* const operand = call.Find(tokens);
    if (operand == nullptr) continue;
    Launch& launch = call.AddLaunch(RunScatterTokens);
    call.Write(launch, call.Get(cache));
    call.Read(launch, *operand);
    call.Read(launch, call.Get("slotMapping"));
    FinishScatter(launch, launch.refs[1], SlotRule::kEach, 1, layout);
  }
  return {};
}

// ---- Gather ----

// refs: tokens, cache, table, lengths, offsets; ints: lengths are ends, layout.
void RunGatherTokens(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::GatherTokens({.table = launch.refs[2],
                         .lengths = launch.refs[3],
                         .offsets = launch.refs[4],
                         .lengths_are_ends = launch.ints[0] != 0},
                        static_cast<CacheLayout>(launch.ints[1]), launch.refs[1], launch.refs[0], range);
}

Status GatherCacheShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const CacheLayout layout, LayoutOf(call));
  const Operand& table = call.Get("blockTables");
  REPRISE_RETURN_IF_ERROR(CacheRank(call, table, 2, 2));
  const int64_t sequences = table.sizes()[0];
  const int64_t lengths = sequences + (call.Bool("isSeqLensCumsum") ? 1 : 0);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("seqLens"), {&lengths, 1}, [] { return "one for each sequence:"; }));
  if (const Operand* offsets = call.Find("seqOffsetOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*offsets, {&sequences, 1}, [] { return "one for each sequence:"; }));
  }
  for (const auto& [tokens, cache] : {std::pair("keyRef", "keyCache"), {"valueRef", "valueCache"}}) {
    const Operand& operand = call.Get(tokens);
    // Lines of tokens may be flat where the cache is cut.
    REPRISE_RETURN_IF_ERROR(CacheRank(call, operand, 2, 3));
    REPRISE_RETURN_IF_ERROR(CheckCache(call, call.Get(cache), operand, layout));
  }
  return {};
}

Status LowerGatherCache(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const CacheLayout layout, LayoutOf(call));
  for (const auto& [tokens, cache] : {std::pair("keyRef", "keyCache"), {"valueRef", "valueCache"}}) {
    const Operand& operand = call.Get(tokens);
    Launch& launch = call.AddLaunch(RunGatherTokens);
    call.Write(launch, operand);
    call.Read(launch, call.Get(cache));
    call.Read(launch, call.Get("blockTables"));
    call.Read(launch, call.Get("seqLens"));
    call.ReadOptional(launch, call.Find("seqOffsetOptional"));
    launch.ints.push_back(call.Bool("isSeqLensCumsum") ? 1 : 0);
    launch.ints.push_back(static_cast<int64_t>(layout));
    const int64_t sequences = call.Get("blockTables").sizes()[0];
    launch.units = operand.tensor->count == 0 || call.Get(cache).tensor->count == 0 ? 0 : sequences;
    launch.grain = GrainOf(operand.tensor->count / std::max<int64_t>(1, sequences));
  }
  return {};
}

// ---- Norm, rotation, cache ----

// refs: out, x, gamma; ints: length, batch; scalars: epsilon.
void RunNormInto(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef out = launch.Ref(0, memory);
  kernels::RmsNorm({.x = &launch.refs[1], .weight = &launch.refs[2], .out = &out}, launch.scalars[0].As<double>(),
                   launch.compute, {launch.ints[0], launch.ints[1]}, memory.scratch, range);
}

// refs: out, x, cos, sin.
void RunRotateInto(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Rotate(kernels::RotaryMode::kInterleaveHalf, launch.refs[1], launch.refs[2], launch.refs[3],
                  launch.Ref(0, memory), range, memory.scratch);
}

// refs: out, x, scale, offset.
void RunQuantizeInto(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Quantize(launch.Ref(1, memory), launch.refs[2], launch.refs[3], false, kernels::Rounding::kNearest,
                    launch.Ref(0, memory), range);
}

// How kv goes into the two caches.
struct CacheWrite {
  SlotRule rule = SlotRule::kEach;
  bool is_cut = false;
  int64_t batch = 0, length = 0, norm = 0, rope = 0;
};

struct CachePart {
  const char *cache, *scale, *offset, *out;
  int64_t size;
};

Status DescribeCacheWrite(const OpCall& call, CacheWrite& write) {
  const Operand& kv = call.Get("kv");
  REPRISE_RETURN_IF_ERROR(CacheRank(call, kv, 4, 4));
  if (kv.sizes()[1] != 1) {
    return call.InvalidOperand(
        kv, fmt::format("has shape {}, expected one head: [batch, 1, tokens, elements]", ShapeText(kv.sizes())));
  }
  REPRISE_RETURN_IF_ERROR(CacheRank(call, call.Get("gamma"), 1, 1));
  write.batch = kv.sizes()[0];
  write.length = kv.sizes()[2];
  write.norm = call.Get("gamma").sizes()[0];
  write.rope = kv.sizes()[3] - write.norm;
  if (write.norm < 1 || write.rope < 2 || write.rope % 2 != 0) {
    return call.InvalidOperand(
        call.Get("gamma"), fmt::format("has shape {}, which leaves {} of the {} elements of kv to be turned, expected "
                                       "an even number",
                                       ShapeText(call.Get("gamma").sizes()), write.rope, kv.sizes()[3]));
  }
  const std::string_view mode = call.Text("cacheMode");
  if (mode.empty() || mode == "Norm") {
    write.rule = SlotRule::kInRow;
  } else if (mode == "PA" || mode == "PA_BNSD" || mode == "PA_NZ") {
    write.is_cut = mode == "PA_NZ";
  } else if (mode == "PA_BLK_BNSD" || mode == "PA_BLK_NZ") {
    write.rule = SlotRule::kOfBlocks;
    write.is_cut = mode == "PA_BLK_NZ";
  } else {
    return call.Invalid(
        fmt::format("cacheMode is '{}', expected Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD or PA_BLK_NZ", mode));
  }
  return {};
}

std::array<CachePart, 2> PartsOfCache(const CacheWrite& write) {
  return {CachePart{"kCacheRef", "kRopeScaleOptional", "kRopeOffsetOptional", "kRopeOut", write.rope},
          CachePart{"ckvCacheRef", "ckvScaleOptional", "ckvOffsetOptional", "cKvOut", write.norm}};
}

Status NormRopeCacheTypes(OpCall& call) {
  call.compute = call.Get("kv").dtype;
  for (const char* name : {"gamma", "cos", "sin", "kRopeOut", "cKvOut"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || operand->dtype == call.compute) continue;
    return call.InvalidOperand(*operand, fmt::format("has {}, expected the type {} of kv",
                                                     kernels::Name(operand->dtype), kernels::Name(call.compute)));
  }
  for (const auto& [cache, scale] :
       {std::pair("kCacheRef", "kRopeScaleOptional"), {"ckvCacheRef", "ckvScaleOptional"}}) {
    const Operand& operand = call.Get(cache);
    const DType wanted = call.Find(scale) != nullptr ? DType::kInt8 : call.compute;
    if (operand.dtype == wanted) continue;
    return call.InvalidOperand(
        operand, fmt::format("has {}, expected {} {} {}", kernels::Name(operand.dtype), kernels::Name(wanted),
                             wanted == DType::kInt8 ? "with" : "without", scale));
  }
  return {};
}

Status NormRopeCacheShape(OpCall& call) {
  CacheWrite write;
  REPRISE_RETURN_IF_ERROR(DescribeCacheWrite(call, write));
  if (const Operand* v = call.Find("vOptional"); v != nullptr && v->tensor->count != 0) {
    return call.InvalidOperand(*v, "is given, but values of their own are not supported yet", "pass null");
  }
  for (const char* name : {"cos", "sin"}) {
    const Operand& angles = call.Get(name);
    const std::span<const int64_t> sizes = angles.sizes();
    const bool fits = sizes.size() == 4 && sizes[0] == write.batch && sizes[1] == 1 &&
                      (sizes[2] == write.length || sizes[2] == 1) && sizes[3] == write.rope;
    if (fits) continue;
    return call.InvalidOperand(angles, fmt::format("has shape {}, expected [{}, 1, {}, {}]", ShapeText(sizes),
                                                   write.batch, write.length, write.rope));
  }
  int64_t page = 0;
  for (const CachePart& part : PartsOfCache(write)) {
    const Operand& cache = call.Get(part.cache);
    const std::span<const int64_t> sizes = cache.sizes();
    const bool is_row = write.rule == SlotRule::kInRow;
    const bool fits = sizes.size() == 4 && sizes[3] == part.size && sizes[is_row ? 1 : 2] == 1 &&
                      (!is_row || sizes[0] == write.batch) && (page == 0 || sizes[is_row ? 2 : 1] == page);
    if (!fits) {
      return call.InvalidOperand(
          cache,
          fmt::format("has shape {}, expected {}", ShapeText(sizes),
                      is_row ? fmt::format("[{}, 1, tokens, {}]", write.batch, part.size)
                             : fmt::format("[pages, tokens, 1, {}] with as many tokens as the other", part.size)));
    }
    page = sizes[is_row ? 2 : 1];
    const int64_t piece = kernels::kPieceBytes / kernels::ItemSize(cache.dtype);
    if (write.is_cut && part.size % piece != 0) {
      return call.InvalidOperand(cache, fmt::format("has shape {}, expected lines of a multiple of {} for cacheMode {}",
                                                    ShapeText(sizes), piece, call.Text("cacheMode")));
    }
    for (const char* name : {part.scale, part.offset}) {
      const Operand* const line = call.Find(name);
      if (line == nullptr) continue;
      REPRISE_RETURN_IF_ERROR(
          call.CheckShape(*line, {&part.size, 1}, [] { return "one for each element of a line:"; }));
    }
    if (call.Find(part.offset) != nullptr && call.Find(part.scale) == nullptr) {
      return call.InvalidOperand(call.Get(part.offset), fmt::format("is there, but {} is null", part.scale));
    }
    const Operand* const out = call.Find(part.out);
    if (!call.Bool("isOutputKv")) continue;
    if (out == nullptr)
      return Error(kOperatorArgumentNull, fmt::format("{}: {} is null, but isOutputKv is true", call.op.name, part.out))
          .Hint("pass an aclTensor for it, or leave out what asks for it");
    const int64_t shape[] = {write.batch, 1, write.length, part.size};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*out, shape, [] { return "the shape"; }));
  }
  const int64_t entries =
      write.rule == SlotRule::kOfBlocks
          ? write.batch * ((write.length + std::max<int64_t>(page, 1) - 1) / std::max<int64_t>(page, 1))
          : write.batch * write.length;
  const Operand& index = call.Get("index");
  if (index.tensor->count == entries) return {};
  return call.InvalidOperand(
      index, fmt::format("has shape {}, expected {} elements, one for each {}", ShapeText(index.sizes()), entries,
                         write.rule == SlotRule::kOfBlocks ? "block" : "token"));
}

// The cache as [page, token, head, element].
TensorRef CacheView(const TensorRef& cache, const CacheWrite& write) {
  TensorRef view = cache;
  if (write.rule == SlotRule::kInRow) {
    std::swap(view.sizes[1], view.sizes[2]);
    std::swap(view.strides[1], view.strides[2]);
  }
  return view;
}

// The part of kv that is turned, into `out`.
void AddCacheRotation(OpCall& call, const CacheWrite& write, const TensorRef& turned, const TensorRef& out) {
  Launch& rotate = call.AddLaunch(RunRotateInto);
  call.WriteTemporary(rotate, out);
  call.Read(rotate, call.Get("kv"), turned);
  for (const char* name : {"cos", "sin"}) {
    TensorRef angles = call.RefOf(call.Get(name));
    for (int d = 0; d < angles.rank; ++d) {
      if (angles.sizes[d] == 1) angles.strides[d] = 0;
    }
    call.Read(rotate, call.Get(name), angles);
  }
  rotate.units = kernels::RotaryRowCount(turned);
  rotate.grain = GrainOf(4 * write.rope);
  call.AddScratch(rotate, static_cast<uint64_t>(kernels::RotaryScratchBytes(turned)));
}

// The part of kv that is normalised, into `out`.
void AddCacheNorm(OpCall& call, const CacheWrite& write, const TensorRef& normed, const TensorRef& out) {
  Launch& norm = call.AddLaunch(RunNormInto);
  norm.ints.push_back(write.norm);
  norm.ints.push_back(1);
  norm.scalars.push_back(kernels::Scalar::Of(call.Real("epsilon")));
  call.WriteTemporary(norm, out);
  call.Read(norm, call.Get("kv"), normed);
  call.Read(norm, call.Get("gamma"));
  norm.units = write.batch * write.length;
  norm.grain = GrainOf(3 * write.norm);
  const int64_t bytes = kernels::NormScratchBytes({.x = &norm.refs[1], .weight = &norm.refs[2], .out = &norm.refs[0]},
                                                  false, call.compute, {write.norm, 1});
  call.AddScratch(norm, static_cast<uint64_t>(bytes));
}

// The quantized lines.
TensorRef AddCacheQuantization(OpCall& call, const CachePart& part, const Operand& scale, const TensorRef& lines,
                               int64_t tokens) {
  const TensorRef numbers = call.Temporary(DType::kInt8, {lines.sizes, 4});
  Launch& quantize = call.AddLaunch(RunQuantizeInto);
  call.WriteTemporary(quantize, numbers);
  call.ReadTemporary(quantize, lines);
  for (const Operand* factor : {&scale, call.Find(part.offset)}) {
    if (factor == nullptr) {
      call.ReadOptional(quantize, nullptr);
      continue;
    }
    const TensorRef line = call.RefOf(*factor);
    TensorRef view = line;
    view.rank = 4;
    std::fill_n(view.sizes, 3, 1);
    std::fill_n(view.strides, 3, 0);
    view.sizes[3] = line.sizes[0];
    view.strides[3] = line.strides[0];
    call.Read(quantize, *factor, view);
  }
  quantize.units = tokens;
  quantize.grain = GrainOf(4 * part.size);
  return numbers;
}

void AddCacheScatter(OpCall& call, const CacheWrite& write, const CachePart& part, const TensorRef& lines) {
  const Operand& cache = call.Get(part.cache);
  Launch& scatter = call.AddLaunch(RunScatterTokens);
  call.Write(scatter, cache, CacheView(call.RefOf(cache), write));
  TensorRef flat = lines;
  flat.rank = 2;
  flat.sizes[0] = write.batch * write.length;
  flat.sizes[1] = part.size;
  flat.strides[0] = part.size;
  flat.strides[1] = 1;
  call.ReadTemporary(scatter, flat);
  call.Read(scatter, call.Get("index"));
  FinishScatter(scatter, flat, write.rule, write.length, write.is_cut ? CacheLayout::kFolded : CacheLayout::kLines);
  if (cache.tensor->count == 0) scatter.units = 0;
}

Status LowerNormRopeCache(OpCall& call) {
  CacheWrite write;
  REPRISE_RETURN_IF_ERROR(DescribeCacheWrite(call, write));
  const Operand& kv = call.Get("kv");
  const int64_t tokens = write.batch * write.length;
  if (tokens == 0) return {};
  TensorRef normed = call.RefOf(kv);
  normed.sizes[3] = write.norm;
  TensorRef turned = call.RefOf(kv);
  turned.sizes[3] = write.rope;
  turned.data = static_cast<char*>(turned.data) + write.norm * turned.strides[3] * kernels::ItemSize(turned.dtype);

  TensorRef made[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t shape[] = {write.batch, 1, write.length, i == 0 ? write.rope : write.norm};
    made[i] = call.Temporary(kv.dtype, shape);
  }
  AddCacheRotation(call, write, turned, made[0]);
  AddCacheNorm(call, write, normed, made[1]);

  int i = 0;
  for (const CachePart& part : PartsOfCache(write)) {
    TensorRef lines = made[i++];
    if (call.Bool("isOutputKv")) {
      Launch& copy = call.AddLaunch(RunCopy);
      call.Write(copy, call.Get(part.out));
      call.ReadTemporary(copy, lines);
      copy.units = tokens * part.size;
      copy.grain = GrainOf(1);
    }
    if (const Operand* scale = call.Find(part.scale)) lines = AddCacheQuantization(call, part, *scale, lines, tokens);
    AddCacheScatter(call, write, part, lines);
  }
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/paged_cache.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
