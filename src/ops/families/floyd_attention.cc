// SPDX-License-Identifier: Apache-2.0
//
// Attention over triangles.
#include "kernels/floyd_attention.h"

#include "ops/computations.h"
#include "ops/families/attention.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::FloydOperands;
using kernels::TensorRef;

// refs: query, keys and values of both edges, mask, result, maximum, sum from `first` on; scalars: scale.
FloydOperands FloydOperandsOf(const Launch& launch, size_t first) {
  const TensorRef* refs = launch.refs.begin() + first;
  FloydOperands in;
  in.query = refs[0];
  for (int i = 0; i < 2; ++i) {
    in.key[i] = refs[1 + 2 * i];
    in.value[i] = refs[2 + 2 * i];
  }
  in.mask = refs[5];
  in.out = refs[6];
  in.maximum = refs[7];
  in.sum = refs[8];
  in.scale = launch.scalars[0].As<float>();
  return in;
}

void RunFloyd(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::FloydAttention(FloydOperandsOf(launch, 0), range, static_cast<float*>(memory.scratch));
}

// refs: gradients of query and of keys and values of both edges, gradient, then as FloydOperandsOf.
void RunFloydBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::FloydGradients to;
  to.query = launch.refs[0];
  for (size_t i = 0; i < 2; ++i) {
    to.key[i] = launch.refs[1 + 2 * i];
    to.value[i] = launch.refs[2 + 2 * i];
  }
  to.gradient = launch.refs[5];
  kernels::FloydBackward(FloydOperandsOf(launch, 6), to, range, static_cast<float*>(memory.scratch));
}

constexpr const char* kFloydInputs[] = {"query", "key1", "value1", "key2", "value2"};

Status FloydShape(OpCall& call) {
  const Operand& query = call.Get("query");
  const Operand& key = call.Get("key1");
  for (const Operand* operand : {&query, &key}) {
    if (operand->rank() == 5) continue;
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected 5 dims", ShapeText(operand->sizes())));
  }
  const std::span<const int64_t> q = query.sizes();
  const int64_t k = key.sizes()[3];
  const int64_t first[] = {q[0], q[1], q[2], k, q[4]};
  const int64_t second[] = {q[0], q[1], k, q[3], q[4]};
  const int64_t statistics[] = {q[0], q[1], q[2], q[3], attention::kStatisticCopies};
  for (const char* name : {"key1", "value1", "dkey1", "dvalue1"}) {
    if (call.Has(name)) REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), first, [] { return "the shape"; }));
  }
  for (const char* name : {"key2", "value2", "dkey2", "dvalue2"}) {
    if (call.Has(name)) REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), second, [] { return "the shape"; }));
  }
  for (const char* name : {"attentionOut", "dquery", "grad"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), q, [] { return "the shape of query,"; }));
  }
  for (const char* name : {"softmaxMax", "softmaxSum"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), statistics, [] { return "the shape"; }));
  }
  const Operand* mask = call.Find("attenMaskOptional");
  if (mask == nullptr) return {};
  const int64_t most[] = {q[0], q[1], q[2], q[3], k};
  bool fits = mask->rank() == 5;
  for (size_t d = 0; fits && d < 5; ++d) fits = mask->sizes()[d] == most[d] || mask->sizes()[d] == 1;
  if (fits) return {};
  return call.InvalidOperand(*mask, fmt::format("has shape {}, expected one that broadcasts to {}",
                                                ShapeText(mask->sizes()), ShapeText(most)));
}

void ReadFloyd(const OpCall& call, Launch& launch, bool is_backward) {
  for (const char* name : kFloydInputs) call.Read(launch, call.Get(name));
  if (const Operand* mask = call.Find("attenMaskOptional")) {
    TensorRef view = call.RefOf(*mask);
    for (int d = 0; d < view.rank; ++d) {
      if (view.sizes[d] == 1) view.strides[d] = 0;
    }
    call.Read(launch, *mask, view);
  } else {
    call.ReadOptional(launch, nullptr);
  }
  for (const char* name : {"attentionOut", "softmaxMax", "softmaxSum"}) {
    is_backward ? call.Read(launch, call.Get(name)) : call.Write(launch, call.Get(name));
  }
  launch.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("scaleValue"))));
}

Status LowerFloyd(OpCall& call) {
  const std::span<const int64_t> q = call.Get("query").sizes();
  Launch& launch = call.AddLaunch(RunFloyd);
  ReadFloyd(call, launch, false);
  launch.units = q[0] * q[1] * q[2] * q[3];
  const int64_t work = std::max<int64_t>(1, 4 * call.Get("key1").sizes()[3] * q[4]);
  launch.grain = GrainOfProduct(work);
  const int64_t floats = kernels::FloydScratchFloats(FloydOperandsOf(launch, 0));
  call.AddScratch(launch, static_cast<uint64_t>(floats) * sizeof(float));
  return {};
}

Status LowerFloydBackward(OpCall& call) {
  const std::span<const int64_t> q = call.Get("query").sizes();
  Launch& launch = call.AddLaunch(RunFloydBackward);
  for (const char* name : {"dquery", "dkey1", "dvalue1", "dkey2", "dvalue2"}) call.Write(launch, call.Get(name));
  call.Read(launch, call.Get("grad"));
  ReadFloyd(call, launch, true);
  launch.units = q[0] * q[1];
  launch.grain = 1;
  const int64_t floats = kernels::FloydBackwardScratchFloats(FloydOperandsOf(launch, 6));
  call.AddScratch(launch, static_cast<uint64_t>(floats) * sizeof(float));
  return {};
}

}  // namespace

using attention::AttentionTypes;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/floyd_attention.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
