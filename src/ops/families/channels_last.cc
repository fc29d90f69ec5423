// SPDX-License-Identifier: Apache-2.0
#include "ops/families/channels_last.h"

#include "kernels/conv_band.h"
#include "kernels/picture_layout.h"
#include "ops/families/plane_convolution.h"
#include "ops/rules.h"

namespace reprise::ops::channels_last {
namespace {

using kernels::ChannelsLastConv;
using kernels::Range;
using kernels::TensorRef;

// Of outputs with channels in front, below which what is packed with each run costs more than patches and the other
// kernel save.
constexpr int64_t kLeastTurnedPixels = 128;
constexpr int64_t kLeastTurnedChannels = 16;
constexpr int64_t kTurningCost = 2;  // of an element, in light operations

// refs: prepared, input.
void RunPrepare(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  launch.State<ChannelsLastConv>().Prepare(launch.refs[1], static_cast<float*>(launch.Ref(0, memory).data), range);
}

void TellPacking(const Launch& launch, std::vector<int64_t>& key) { launch.State<ChannelsLastConv>().TellPacking(key); }

// refs: out, input or what was prepared of it, packed, bias, addend.
void RunConvolve(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const auto& conv = launch.State<ChannelsLastConv>();
  const TensorRef input = launch.Ref(1, memory);
  const auto* const source = conv.source_elements() != 0 ? static_cast<const float*>(input.data) : nullptr;
  conv.Convolve(input, source, static_cast<const float*>(launch.Ref(2, memory).data), launch.RefOrNull(3),
                launch.RefOrNull(4), launch.Ref(0, memory), range, memory.scratch);
}

// refs: out, input; packed and bias of each convolution; addend.
void RunBand(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const auto& band = launch.State<kernels::ConvBand>();
  ChannelsLastConv::RowOperands operands[kernels::ConvBand::kMostConvs];
  const size_t count = band.convs().size();
  for (size_t i = 0; i < count; ++i) {
    operands[i].packed = static_cast<const float*>(launch.refs[2 + 2 * i].data);
    operands[i].bias = launch.RefOrNull(3 + 2 * i);
  }
  operands[0].input = launch.refs[1];
  if (band.convs()[0]->source_elements() != 0) operands[0].source = static_cast<const float*>(launch.refs[1].data);
  operands[count - 1].addend = launch.RefOrNull(2 + 2 * count);
  band.Run({operands, count}, launch.refs[0], range, memory.scratch);
}

// Launches of RunConvolve, with nothing that lies in a workspace.
Launch* Fuse(std::span<const Launch* const> launches) {
  if (launches.size() > kernels::ConvBand::kMostConvs) return nullptr;
  kernels::ConvBand::Convs convs;
  for (const Launch* launch : launches) {
    const bool is_last = launch == launches.back();
    if (launch->kernel != RunConvolve || (!is_last && launch->HasOperand(4))) return nullptr;
    const bool is_placed = std::none_of(launch->uses.begin(), launch->uses.end(), [](const OperandUse& use) {
      return use.slot < 0 && use.slot != OperandUse::kAbsent;
    });
    if (!is_placed) return nullptr;
    convs.push_back(std::static_pointer_cast<const ChannelsLastConv>(launch->state));
  }
  const auto band = kernels::ConvBand::Of(std::move(convs), Launch::Parallelism());
  if (band == nullptr) return nullptr;
  const Launch& first = *launches.front();
  const Launch& last = *launches.back();
  auto* const fused = new Launch(last.op, RunBand);
  const auto add = [&](const Launch& from, size_t operand) {
    fused->refs.push_back(from.refs[operand]);
    fused->uses.push_back(from.uses[operand]);
  };
  add(last, 0);
  add(first, 1);
  for (const Launch* launch : launches) {
    add(*launch, 2);
    add(*launch, 3);
  }
  add(last, 4);
  fused->compute = last.compute;
  fused->site = last.site;
  fused->state = band;
  fused->units = band->units();
  fused->grain = GrainOfProduct(band->unit_cost());
  fused->scratch_bytes = static_cast<uint64_t>(band->ScratchBytes());
  fused->Seal();
  return fused;
}

// A temporary with channels behind, of the sizes of `planes`.
TensorRef Behind(OpCall& call, const TensorRef& planes) {
  TensorRef ref = call.Temporary(kernels::DType::kFloat, {planes.sizes, 5});
  ref.strides[1] = 1;
  ref.strides[4] = ref.sizes[1];
  ref.strides[3] = ref.strides[4] * ref.sizes[4];
  ref.strides[2] = ref.strides[3] * ref.sizes[3];
  ref.strides[0] = ref.strides[2] * ref.sizes[2];
  return ref;
}

}  // namespace

// refs: pixels, planes.
void RunPixelsOfPlanes(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  kernels::PixelsOfPlanes(launch.refs[1], static_cast<float*>(launch.Ref(0, memory).data), range);
}

// refs: planes, pixels.
void RunPlanesOfPixels(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  kernels::PlanesOfPixels(static_cast<const float*>(launch.Ref(1, memory).data), launch.Ref(0, memory), range);
}

// refs: packed, weight.
void RunPack(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  launch.State<ChannelsLastConv>().Pack(launch.refs[1], static_cast<float*>(launch.Ref(0, memory).data), range,
                                        memory.scratch);
}

void SplitTurning(Launch& launch, const TensorRef& planes) {
  launch.units = kernels::PictureUnits(planes);
  launch.grain = GrainOf(kernels::PictureUnitElements(planes) * kTurningCost);
}

bool IsWorthTurning(const kernels::ConvShape& shape, const TensorRef& input, const TensorRef& out) {
  const int64_t pixels = shape.batch * shape.dims[0].out * shape.dims[1].out * shape.dims[2].out;
  if (shape.transposed && (shape.in_channels < kLeastTurnedChannels || !ChannelsLastConv::ReachesAll(shape))) {
    return false;
  }
  return shape.groups == 1 && input.dtype == kernels::DType::kFloat && out.dtype == kernels::DType::kFloat &&
         kernels::KernelSize(shape) > 1 && pixels >= kLeastTurnedPixels && shape.out_channels >= kLeastTurnedChannels;
}

Status AddLaunches(OpCall& call, const kernels::ConvShape& shape, const Operands& operands,
                   const kernels::ConvEpilogue& epilogue) {
  const TensorRef out_ref = operands.has_planes ? Behind(call, operands.out_ref) : operands.out_ref;
  const auto conv = std::make_shared<const ChannelsLastConv>(shape, operands.input_ref, out_ref, epilogue,
                                                             operands.packed != nullptr);
  TensorRef source;  // what is read in place of the input
  if (conv->source_elements() == 0 && operands.has_planes) {
    source = Behind(call, operands.input_ref);
    Launch& turn = call.AddLaunch(RunPixelsOfPlanes);
    call.WriteTemporary(turn, source);
    call.Read(turn, *operands.input, operands.input_ref);
    SplitTurning(turn, operands.input_ref);
  }
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
    pack.tell_packing = TellPacking;
  }
  Launch& launch = call.AddLaunch(RunConvolve);
  launch.state = conv;
  if (operands.is_temporary || operands.has_planes) {
    call.WriteTemporary(launch, out_ref);
  } else {
    call.Write(launch, *operands.out, out_ref);
  }
  if (conv->source_elements() != 0 || operands.has_planes) {
    call.ReadTemporary(launch, source);
  } else {
    call.Read(launch, *operands.input, operands.input_ref);
  }
  if (operands.packed == nullptr) {
    launch.packed_operand = static_cast<int8_t>(launch.refs.size());
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
  launch.grain = GrainOfProduct(conv->unit_cost());
  launch.has_cheap_calls = true;
  launch.fuse = Fuse;
  call.AddScratch(launch, static_cast<uint64_t>(conv->ScratchBytes()));
  if (!operands.has_planes) return {};
  Launch& turn = call.AddLaunch(RunPlanesOfPixels);
  if (operands.is_temporary) {
    call.WriteTemporary(turn, operands.out_ref);
  } else {
    call.Write(turn, *operands.out, operands.out_ref);
  }
  call.ReadTemporary(turn, out_ref);
  SplitTurning(turn, operands.out_ref);
  return {};
}

}  // namespace reprise::ops::channels_last

namespace reprise::ops {

bool FindTurnedConvolution(std::span<const Launch* const> launches, PlaneConvolution& found) {
  using namespace channels_last;
  if (launches.size() < 4) return false;
  const Launch& first = *launches[0];
  const Launch& pack = *launches[1];
  const Launch& convolve = *launches[2];
  const Launch& last = *launches[3];
  if ((first.kernel != RunPixelsOfPlanes && first.kernel != channels_last::RunPrepare) ||
      pack.kernel != channels_last::RunPack || convolve.kernel != channels_last::RunConvolve ||
      last.kernel != RunPlanesOfPixels || convolve.state != pack.state) {
    return false;
  }
  const auto is_of_program = [](const Launch& launch, size_t i) { return launch.uses[i].slot >= 0; };
  if (!is_of_program(first, 1) || !is_of_program(pack, 1) || !is_of_program(last, 0) || convolve.HasOperand(4)) {
    return false;
  }
  found = {convolve.State<ChannelsLastConv>().shape(),
           first.refs[1],
           pack.refs[1],
           last.refs[0],
           convolve.RefOrNull(3),
           4,
           true,
           false};
  return true;
}

}  // namespace reprise::ops
