// SPDX-License-Identifier: Apache-2.0
//
// Floating numbers that are packed without loss by the bytes of their exponents.
#include "kernels/exponent_code.h"

#include <array>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TwoPieces;

constexpr int64_t kFewestNumbers = 32768;
constexpr int64_t kFewestFixedBytes = 512;
constexpr int64_t kExponents = 256;

int64_t BytesOf(const Operand& operand) { return operand.tensor->count * kernels::ItemSize(operand.dtype); }

// The parameters of both functions.
struct Packed {
  const Operand& numbers;
  const Operand& mantissa;
  const Operand& fixed;
  const Operand& var;
  const Operand& pdf;
};

Packed PackedOf(const OpCall& call) {
  if (call.Has("inputTensor")) {
    return {call.Get("inputTensor"), call.Get("mantissaOut"), call.Get("fixedOut"), call.Get("varOut"),
            call.Get("pdfRef")};
  }
  return {call.Get("out"), call.Get("mantissa"), call.Get("fixed"), call.Get("var"), call.Get("pdf")};
}

Status PackedTypes(OpCall& call) {
  const Packed packed = PackedOf(call);
  call.compute = packed.numbers.dtype;
  for (const Operand* operand : {&packed.mantissa, &packed.fixed, &packed.var}) {
    if (operand->dtype == call.compute) continue;
    return call.InvalidOperand(*operand,
                               fmt::format("has {}, expected the type {} of {}", kernels::Name(operand->dtype),
                                           kernels::Name(call.compute), call.NameOf(packed.numbers)));
  }
  return {};
}

Status PackedShape(OpCall& call) {
  const Packed packed = PackedOf(call);
  const int64_t numbers = packed.numbers.tensor->count;
  if (numbers < kFewestNumbers || numbers % kernels::kExponentGroup != 0) {
    return call.InvalidOperand(packed.numbers, fmt::format("has {} elements, expected a multiple of {} and at least {}",
                                                           numbers, kernels::kExponentGroup, kFewestNumbers));
  }
  if (packed.pdf.tensor->count != kExponents) {
    return call.InvalidOperand(packed.pdf, fmt::format("has {} elements, expected one for each of {} exponents",
                                                       packed.pdf.tensor->count, kExponents));
  }
  const int64_t rest = numbers * (kernels::ItemSize(packed.numbers.dtype) - 1);
  if (BytesOf(packed.mantissa) != rest) {
    return call.InvalidOperand(
        packed.mantissa, fmt::format("has {} bytes, expected {}: all of {} but a byte each", BytesOf(packed.mantissa),
                                     rest, call.NameOf(packed.numbers)));
  }
  if (BytesOf(packed.fixed) < kFewestFixedBytes) {
    return call.InvalidOperand(
        packed.fixed, fmt::format("has {} bytes, expected {} at least", BytesOf(packed.fixed), kFewestFixedBytes));
  }
  const int64_t most = kernels::MostExponentBytes(numbers);
  const int64_t room = BytesOf(packed.fixed) + (call.Bool("reshuff") ? 0 : BytesOf(packed.var));
  if (room >= most) return {};
  return call.InvalidOperand(
      packed.fixed,
      fmt::format("has {} bytes{}, but {} numbers may take {}", BytesOf(packed.fixed),
                  call.Bool("reshuff") ? ", and reshuff leaves var out"
                                       : fmt::format(" and {} {}", call.NameOf(packed.var), BytesOf(packed.var)),
                  numbers, most));
}

// Operands `first` and the one behind it.
TwoPieces PiecesOf(const Launch& launch, size_t first, const Launch::KernelMemory& memory) {
  const auto bytes = [&](size_t i) {
    return kernels::ElementCount(launch.refs[i]) * kernels::ItemSize(launch.refs[i].dtype);
  };
  return {DataOf<uint8_t>(launch, first, memory), bytes(first), DataOf<uint8_t>(launch, first + 1, memory),
          bytes(first + 1)};
}

kernels::Range NumbersOf(kernels::Range groups) {
  return {groups.begin * kernels::kExponentGroup, groups.end * kernels::kExponentGroup};
}

// refs: exponents, mantissa; numbers. A unit is a group, here and below.
void RunSplit(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SplitExponents(launch.compute, DataOf<void>(launch, 2, memory), NumbersOf(range),
                          DataOf<uint8_t>(launch, 0, memory), DataOf<uint8_t>(launch, 1, memory));
}

// refs: counts; exponents. ints: how many. One unit.
void RunCount(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::CountExponents(DataOf<uint8_t>(launch, 1, memory), launch.ints[0], DataOf<int32_t>(launch, 0, memory));
}

// refs: widths, groups; exponents, counts.
void RunPack(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::PackExponents(DataOf<uint8_t>(launch, 2, memory), DataOf<int32_t>(launch, 3, memory), range,
                         DataOf<uint8_t>(launch, 0, memory), DataOf<uint8_t>(launch, 1, memory));
}

// refs: fixed, var; widths, groups. ints: how many groups. One unit.
void RunJoinGroups(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::JoinGroups(DataOf<uint8_t>(launch, 2, memory), DataOf<uint8_t>(launch, 3, memory), launch.ints[0],
                      PiecesOf(launch, 0, memory));
}

// refs: begins; fixed, var. ints: how many groups. One unit.
void RunFindGroups(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  kernels::FindGroups(PiecesOf(launch, 1, memory), launch.ints[0], DataOf<int64_t>(launch, 0, memory));
}

// refs: numbers, exponents; fixed, var, begins, counts, mantissa.
void RunUnpack(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  uint8_t* const exponents = DataOf<uint8_t>(launch, 1, memory);
  kernels::UnpackExponents(PiecesOf(launch, 2, memory), DataOf<int64_t>(launch, 4, memory),
                           DataOf<int32_t>(launch, 5, memory), range, exponents);
  kernels::JoinExponents(launch.compute, exponents, DataOf<uint8_t>(launch, 6, memory), NumbersOf(range),
                         DataOf<void>(launch, 0, memory));
}

void SplitGroups(Launch& launch, int64_t groups) {
  launch.units = groups;
  launch.grain = GrainOf(4 * kernels::kExponentGroup);
}

void RunAlone(Launch& launch, int64_t count) {
  launch.ints.push_back(count);
  launch.units = 1;
}

Status LowerEncode(OpCall& call) {
  const Packed packed = PackedOf(call);
  const DType type = call.compute;
  const int64_t numbers = packed.numbers.tensor->count, groups = numbers / kernels::kExponentGroup;
  const bool counts_itself = call.Bool("statistic");
  const Dense input = DenseInput(call, packed.numbers, type);
  const Dense mantissa = DenseOutput(call, packed.mantissa, type);
  const Dense fixed = DenseOutput(call, packed.fixed, type, true);
  const Dense var = DenseOutput(call, packed.var, type, true);
  const Dense pdf = DenseOutput(call, packed.pdf, DType::kInt32, !counts_itself);
  const Dense exponents = DenseTemporary(call, DType::kUInt8, std::array{numbers});
  const Dense widths = DenseTemporary(call, DType::kUInt8, std::array{groups});
  const Dense bodies = DenseTemporary(call, DType::kUInt8, std::array{numbers});

  Launch& split = call.AddLaunch(RunSplit);
  exponents.Write(call, split);
  mantissa.Write(call, split);
  input.Read(call, split);
  SplitGroups(split, groups);
  if (counts_itself) {
    Launch& count = call.AddLaunch(RunCount);
    pdf.Write(call, count);
    exponents.Read(call, count);
    RunAlone(count, numbers);
  }
  Launch& pack = call.AddLaunch(RunPack);
  widths.Write(call, pack);
  bodies.Write(call, pack);
  exponents.Read(call, pack);
  pdf.Read(call, pack);
  SplitGroups(pack, groups);
  Launch& join = call.AddLaunch(RunJoinGroups);
  fixed.Write(call, join);
  var.Write(call, join);
  widths.Read(call, join);
  bodies.Read(call, join);
  RunAlone(join, groups);
  for (const Dense* output : {&mantissa, &fixed, &var, &pdf}) output->Store(call);
  return {};
}

Status LowerDecode(OpCall& call) {
  const Packed packed = PackedOf(call);
  const DType type = call.compute;
  const int64_t numbers = packed.numbers.tensor->count, groups = numbers / kernels::kExponentGroup;
  const Dense mantissa = DenseInput(call, packed.mantissa, type);
  const Dense fixed = DenseInput(call, packed.fixed, type);
  const Dense var = DenseInput(call, packed.var, type);
  const Dense pdf = DenseInput(call, packed.pdf, DType::kInt32);
  const Dense out = DenseOutput(call, packed.numbers, type);
  const Dense exponents = DenseTemporary(call, DType::kUInt8, std::array{numbers});
  const Dense begins = DenseTemporary(call, DType::kInt64, std::array{groups});

  Launch& find = call.AddLaunch(RunFindGroups);
  begins.Write(call, find);
  fixed.Read(call, find);
  var.Read(call, find);
  RunAlone(find, groups);
  Launch& unpack = call.AddLaunch(RunUnpack);
  out.Write(call, unpack);
  exponents.Write(call, unpack);
  for (const Dense* input : {&fixed, &var, &begins, &pdf, &mantissa}) input->Read(call, unpack);
  SplitGroups(unpack, groups);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/exponent_code.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
