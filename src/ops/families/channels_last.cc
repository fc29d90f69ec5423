// SPDX-License-Identifier: Apache-2.0
#include "ops/families/channels_last.h"

#include "ops/rules.h"

namespace reprise::ops::channels_last {
namespace {

using kernels::ChannelsLastConv;
using kernels::Range;
using kernels::TensorRef;

constexpr int64_t kGrain = int64_t{1} << 18;  // multiply-adds

// refs: prepared, input.
void RunPrepare(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  launch.State<ChannelsLastConv>().Prepare(launch.refs[1], static_cast<float*>(launch.Ref(0, memory).data), range);
}

// refs: packed, weight.
void RunPack(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  launch.State<ChannelsLastConv>().Pack(launch.refs[1], static_cast<float*>(launch.Ref(0, memory).data), range,
                                        memory.scratch);
}

// refs: out, input or what was prepared of it, packed, bias, addend.
void RunConvolve(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const auto& conv = launch.State<ChannelsLastConv>();
  const TensorRef input = launch.Ref(1, memory);
  const auto* const source = conv.source_elements() != 0 ? static_cast<const float*>(input.data) : nullptr;
  conv.Convolve(input, source, static_cast<const float*>(launch.Ref(2, memory).data), launch.RefOrNull(3),
                launch.RefOrNull(4), launch.Ref(0, memory), range, memory.scratch);
}

}  // namespace

Status AddLaunches(OpCall& call, const kernels::ConvShape& shape, const Operands& operands,
                   const kernels::ConvEpilogue& epilogue) {
  const auto conv = std::make_shared<const ChannelsLastConv>(shape, operands.input_ref, operands.out_ref, epilogue);
  TensorRef source;
  if (conv->source_elements() != 0) {
    const int64_t count[1] = {conv->source_elements()};
    source = call.Temporary(kernels::DType::kFloat, count);
    Launch& prepare = call.AddLaunch(RunPrepare);
    prepare.state = conv;
    call.WriteTemporary(prepare, source);
    call.Read(prepare, *operands.input, operands.input_ref);
    prepare.units = conv->prepare_units();
    prepare.grain = GrainOf(conv->prepare_cost());
  }
  TensorRef packed;
  if (operands.packed == nullptr) {
    const int64_t count[1] = {conv->packed_elements()};
    packed = call.Temporary(kernels::DType::kFloat, count);
    Launch& pack = call.AddLaunch(RunPack);
    pack.state = conv;
    call.WriteTemporary(pack, packed);
    call.Read(pack, *operands.weight, operands.weight_ref);
    pack.units = conv->pack_units();
    pack.grain = GrainOf(conv->pack_cost());
    call.AddScratch(pack, static_cast<uint64_t>(conv->PackScratchBytes()));
  }
  Launch& launch = call.AddLaunch(RunConvolve);
  launch.state = conv;
  if (operands.is_temporary) {
    call.WriteTemporary(launch, operands.out_ref);
  } else {
    call.Write(launch, *operands.out, operands.out_ref);
  }
  if (conv->source_elements() != 0) {
    call.ReadTemporary(launch, source);
  } else {
    call.Read(launch, *operands.input, operands.input_ref);
  }
  if (operands.packed == nullptr) {
    call.ReadTemporary(launch, packed);
  } else {
    call.Read(launch, *operands.packed);
  }
  call.ReadOptional(launch, operands.bias);
  if (operands.addend != nullptr) {
    call.Read(launch, *operands.addend, operands.addend_ref);
  } else {
    call.ReadOptional(launch, nullptr);
  }
  launch.units = conv->units();
  launch.grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, conv->unit_cost()));
  call.AddScratch(launch, static_cast<uint64_t>(conv->ScratchBytes()));
  return {};
}

}  // namespace reprise::ops::channels_last
