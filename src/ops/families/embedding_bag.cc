// SPDX-License-Identifier: Apache-2.0
//
// Bags of rows of a table, and rows of a bounded norm (kernels/embedding_bag.h).
#include "kernels/embedding_bag.h"

#include <cmath>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::BagMode;
using kernels::DType;
using kernels::EmbeddingBags;

Status ReadBags(const OpCall& call, EmbeddingBags& bags) {
  const Operand& weight = call.Get("weight");
  const Operand& indices = call.Get("indices");
  const Operand& offsets = call.Get("offsets");
  if (weight.rank() != 2) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected rank 2", ShapeText(weight.sizes())));
  }
  for (const Operand* vector : {&indices, &offsets}) {
    if (vector->rank() == 1) continue;
    return call.InvalidOperand(*vector, fmt::format("has shape {}, expected rank 1", ShapeText(vector->sizes())),
                               "bags of one size are a vector of indices, too");
  }
  const int64_t mode = call.Int("mode");
  if (mode < 0 || mode > 2) {
    return call.Invalid(fmt::format("mode is {}, expected 0 (sum), 1 (mean) or 2 (max)", mode));
  }
  bags.mode = static_cast<BagMode>(mode);
  bags.rows = weight.sizes()[0];
  bags.width = weight.sizes()[1];
  bags.items = indices.sizes()[0];
  bags.has_end = call.Bool("includeLastOffset");
  bags.bags = offsets.sizes()[0] - (bags.has_end ? 1 : 0);
  bags.padding = call.Int("paddingIdx");
  if (bags.bags < 0) {
    return call.InvalidOperand(offsets, "is empty, but includeLastOffset says that it ends with the number of items");
  }
  if (bags.padding >= std::max<int64_t>(bags.rows, 1) || bags.padding < -1) {
    return call.Invalid(fmt::format("paddingIdx is {}, weight has {} rows", bags.padding, bags.rows),
                        "-1 says that there is none");
  }
  return {};
}

Status EmbeddingBagShape(OpCall& call) {
  EmbeddingBags bags;
  REPRISE_RETURN_IF_ERROR(ReadBags(call, bags));
  if (const Operand* scales = call.Find("perSampleWeights"); scales != nullptr) {
    if (bags.mode != BagMode::kSum) {
      return call.InvalidOperand(*scales, fmt::format("is for sums, but mode is {}", call.Int("mode")),
                                 "pass null, or mode 0");
    }
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(*scales, call.Get("indices").sizes(), [] { return "one for each item, the shape"; }));
  }
  const int64_t result[2] = {bags.bags, bags.width};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("output"), result, [] { return "one row for each bag,"; }));
  const int64_t items[1] = {bags.items};
  // Frameworks that do without it make it empty.
  if (call.Get("offset2bag").rank() != 1 || call.Get("offset2bag").tensor->count != 0) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("offset2bag"), items, [] { return "one for each item,"; }));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("bagSize"), {result, 1}, [] { return "one for each bag, the shape"; }));
  const Operand& places = call.Get("maxIndices");
  if (bags.mode == BagMode::kMax) {
    return call.CheckShape(places, result, [] { return "one for each element of output,"; });
  }
  // Frameworks make it as long as offsets.
  if (places.rank() == 1 && places.tensor->count == call.Get("offsets").tensor->count) return {};
  return call.CheckShape(places, {result, 1}, [] { return "one for each bag, the shape"; });
}

// refs: output, sizes, places, weight, indices, offsets, scales.
void RunEmbeddingBag(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ReduceBags(launch.State<EmbeddingBags>(), launch.refs[0].dtype, DataOf<void>(launch, 3, memory),
                      DataOf<int64_t>(launch, 4, memory), DataOf<int64_t>(launch, 5, memory),
                      DataOf<void>(launch, 6, memory), DataOf<void>(launch, 0, memory),
                      DataOf<int64_t>(launch, 1, memory), DataOf<int64_t>(launch, 2, memory), range);
}

// refs: the bag of each item, offsets.
void RunBagsOfItems(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::BagsOfItems(launch.State<EmbeddingBags>(), DataOf<int64_t>(launch, 1, memory),
                       DataOf<int64_t>(launch, 0, memory));
}

void RunZero(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  std::fill(DataOf<int64_t>(launch, 0, memory) + range.begin, DataOf<int64_t>(launch, 0, memory) + range.end,
            int64_t{0});
}

Status LowerEmbeddingBag(OpCall& call) {
  auto bags = std::make_shared<EmbeddingBags>();
  REPRISE_RETURN_IF_ERROR(ReadBags(call, *bags));
  const DType type = WideFloatOf(call.compute);
  const Dense weight = DenseInput(call, call.Get("weight"), type);
  const Dense indices = DenseInput(call, call.Get("indices"), DType::kInt64);
  const Dense offsets = DenseInput(call, call.Get("offsets"), DType::kInt64);
  const Dense scales = DenseInput(call, call.Find("perSampleWeights"), type);
  const Dense out = DenseOutput(call, call.Get("output"), type);
  const Dense of_item = DenseOutput(call, call.Get("offset2bag"), DType::kInt64);
  const Dense sizes = DenseOutput(call, call.Get("bagSize"), DType::kInt64);
  const Dense places = DenseOutput(call, call.Get("maxIndices"), DType::kInt64);
  const bool has_places = bags->mode == BagMode::kMax;
  Launch& launch = call.AddLaunch(RunEmbeddingBag);
  out.Write(call, launch);
  sizes.Write(call, launch);
  if (has_places) {
    places.Write(call, launch);
  } else {
    call.WriteOptional(launch, nullptr);
  }
  weight.Read(call, launch);
  indices.Read(call, launch);
  offsets.Read(call, launch);
  scales.Read(call, launch);
  launch.units = bags->bags;
  launch.grain = GrainOf((bags->width + 1) * (bags->items / std::max<int64_t>(1, bags->bags) + 1));
  launch.state = bags;
  Launch& items = call.AddLaunch(RunBagsOfItems);
  of_item.Write(call, items);
  offsets.Read(call, items);
  items.units = call.Get("offset2bag").tensor->count == 0 ? 0 : 1;
  items.state = bags;
  if (!has_places) {
    Launch& zero = call.AddLaunch(RunZero);
    places.Write(call, zero);
    zero.units = call.Get("maxIndices").tensor->count;
    zero.grain = GrainOf(1);
  }
  for (const Dense* result : {&out, &of_item, &sizes, &places}) result->Store(call);
  return {};
}

// ---- EmbeddingRenorm ----

Status EmbeddingRenormShape(OpCall& call) {
  const Operand& table = call.outputs[0];
  if (table.rank() != 2) {
    return call.InvalidOperand(table, fmt::format("has shape {}, expected rank 2", ShapeText(table.sizes())));
  }
  if (!(call.Real("maxNorm") >= 0)) {
    return call.Invalid(fmt::format("maxNorm is {}, expected 0 or more", call.Real("maxNorm")));
  }
  if (!(call.Real("normType") > 0)) {
    return call.Invalid(fmt::format("normType is {}, expected a number above 0", call.Real("normType")));
  }
  return {};
}

// refs: table, scratch, indices.
void RunEmbeddingRenorm(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const kernels::TensorRef& table = launch.refs[0];
  kernels::RenormRows(table.dtype, DataOf<void>(launch, 0, memory), table.sizes[0], table.sizes[1],
                      DataOf<int64_t>(launch, 2, memory), kernels::ElementCount(launch.refs[2]),
                      launch.scalars[0].As<double>(), launch.scalars[1].As<double>(),
                      DataOf<uint8_t>(launch, 1, memory));
}

Status LowerEmbeddingRenorm(OpCall& call) {
  const Operand& table = call.outputs[0];
  if (table.tensor->count == 0 || call.Get("indices").tensor->count == 0) return {};
  const Dense rows = DenseOutput(call, table, WideFloatOf(call.compute), true);
  const Dense indices = DenseInput(call, call.Get("indices"), DType::kInt64);
  const Dense seen = DenseTemporary(call, DType::kUInt8, table.sizes().first(1));
  Launch& launch = call.AddLaunch(RunEmbeddingRenorm);
  rows.Write(call, launch);
  seen.Write(call, launch);
  indices.Read(call, launch);
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("normType")));
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("maxNorm")));
  launch.units = 1;
  rows.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/embedding_bag.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
