// SPDX-License-Identifier: Apache-2.0
//
// Paddings, flips and rolls: copies whose dims are cut.
#include "kernels/copy.h"
#include "kernels/remap.h"
#include "ops/computations.h"
#include "ops/families/movement.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

Pieces RolledDim(int64_t size, int64_t shift) {
  if (shift == 0 || size == 0) return WholeDim(size);
  return {{0, shift, size - shift, 1, false}, {shift, size, 0, 1, false}};
}

enum class PadMode : uint8_t { kConstant, kReflect, kReplicate };

Pieces PaddedDim(PadMode mode, int64_t size, int64_t before, int64_t after) {
  Pieces pieces;
  const int64_t kept = size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
  const bool is_fill = mode == PadMode::kConstant;
  const bool is_reflect = mode == PadMode::kReflect;
  int64_t at = std::max<int64_t>(before, 0);
  if (before > 0) pieces.push_back({0, before, is_reflect ? before : 0, is_reflect ? -1 : 0, is_fill});
  if (kept > 0) pieces.push_back({at, at + kept, std::max<int64_t>(-before, 0), 1, false});
  at += kept;
  if (after > 0) pieces.push_back({at, at + after, is_reflect ? size - 2 : size - 1, is_reflect ? -1 : 0, is_fill});
  if (pieces.empty()) pieces.push_back({0, 0, 0, 1, false});
  return pieces;
}

// Padding of dim d of a tensor of `rank`; pads begin with the last dim.
struct Pads {
  int64_t before = 0;
  int64_t after = 0;
};
Pads PadsOf(std::span<const int64_t> pads, int d, int rank) {
  const auto i = static_cast<size_t>(2 * (rank - 1 - d));
  return i + 1 < pads.size() ? Pads{pads[i], pads[i + 1]} : Pads{};
}

Status CheckPaddedShape(OpCall& call, std::string_view name) {
  const Operand& self = call.inputs[0];
  const std::span<const int64_t> pads = call.Ints(name);
  Dims shape;
  for (int d = 0; d < self.rank(); ++d) {
    const Pads pad = PadsOf(pads, d, self.rank());
    const int64_t size = self.sizes()[static_cast<size_t>(d)];
    constexpr int64_t kLeast = -(int64_t{1} << 61);
    if (pad.before < kLeast || pad.after < kLeast) return call.Invalid(fmt::format("{} is {}", name, ShapeText(pads)));
    const int64_t cropped = std::min<int64_t>(pad.before, 0) + std::min<int64_t>(pad.after, 0);
    int64_t padded = size;
    if (size + cropped < 0 || __builtin_add_overflow(padded, pad.before, &padded) ||
        __builtin_add_overflow(padded, pad.after, &padded)) {
      return call.Invalid(fmt::format("{} {} takes more from dim {} than the {} it has in {}", name, ShapeText(pads), d,
                                      size, call.InputShapes()));
    }
    shape.push_back(padded);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the padded shape"; });
}

void AddPad(OpCall& call, std::string_view name, PadMode mode, const kernels::Scalar* value) {
  const kernels::TensorRef self = call.RefOf(call.inputs[0]);
  const kernels::TensorRef out = call.RefOf(call.outputs[0]);
  if (call.outputs[0].tensor->count == 0) return;
  const std::span<const int64_t> pads = call.Ints(name);
  auto remap = MakeRemap(out, self, [&](int d) {
    const Pads pad = PadsOf(pads, d, self.rank);
    return PaddedDim(mode, self.sizes[d], pad.before, pad.after);
  });
  if (value != nullptr) {
    kernels::FindCast(value->dtype, out.dtype)(reinterpret_cast<const char*>(value->bytes), 0, remap->fill, 0, 1);
  }
  AddRemap(call, std::move(remap));
}

Status ConstantPadShape(OpCall& call) {
  const std::span<const int64_t> pads = call.Ints("pad");
  if (pads.size() % 2 != 0 || pads.size() > 2 * static_cast<size_t>(call.inputs[0].rank())) {
    return call.Invalid(fmt::format("pad is {}, expected two entries for each padded dim, the last dim first, of {}",
                                    ShapeText(pads), call.InputShapes()));
  }
  return CheckPaddedShape(call, "pad");
}

Status LowerConstantPad(OpCall& call) {
  const kernels::Scalar& value = *call.Scalar("value");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, value.dtype, "value"));
  AddPad(call, "pad", PadMode::kConstant, &value);
  return {};
}

// `code`: 2 * number of padded dims + (1 for replication).
Status MirrorPadShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int dims = call.op.computation.code / 2;
  const bool is_reflection = call.op.computation.code % 2 == 0;
  const std::span<const int64_t> pads = call.Ints("padding");
  if (pads.size() != 2 * static_cast<size_t>(dims)) {
    return call.Invalid(
        fmt::format("padding is {}, expected {} entries, the last dim first", ShapeText(pads), 2 * dims));
  }
  if (self.rank() != dims + 1 && self.rank() != dims + 2) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, expected rank {} or {}", ShapeText(self.sizes()), dims + 1, dims + 2));
  }
  for (int d = self.rank() - dims; d < self.rank(); ++d) {
    const int64_t size = self.sizes()[static_cast<size_t>(d)];
    const Pads pad = PadsOf(pads, d, self.rank());
    if (size < 1) return call.InvalidOperand(self, fmt::format("has no elements in dim {}", d));
    if (is_reflection && (pad.before >= size || pad.after >= size)) {
      return call.Invalid(fmt::format("padding is {}, expected less than the {} of dim {} of {}", ShapeText(pads), size,
                                      d, call.InputShapes()));
    }
  }
  return CheckPaddedShape(call, "padding");
}

Status LowerMirrorPad(OpCall& call) {
  AddPad(call, "padding", call.op.computation.code % 2 == 0 ? PadMode::kReflect : PadMode::kReplicate, nullptr);
  return {};
}

Status LowerFlip(OpCall& call) {
  const kernels::TensorRef self = call.RefOf(call.inputs[0]);
  const kernels::TensorRef out = call.RefOf(call.outputs[0]);
  uint32_t flipped = 0;
  for (int64_t dim : call.Ints("dims")) {
    REPRISE_ASSIGN_OR_RETURN(const int d, call.WrapDim("an entry of dims", dim, self.rank));
    if ((flipped >> d & 1) != 0) {
      return call.Invalid(fmt::format("dims {} names dim {} twice", ShapeText(call.Ints("dims")), d),
                          "name each dim once");
    }
    flipped |= 1u << d;
  }
  if (call.outputs[0].tensor->count == 0) return {};
  AddRemap(call, MakeRemap(out, self, [&](int d) {
             if ((flipped >> d & 1) == 0) return WholeDim(self.sizes[d]);
             return Pieces{{0, self.sizes[d], self.sizes[d] - 1, -1, false}};
           }));
  return {};
}

Status LowerRoll(OpCall& call) {
  const Operand& input = call.inputs[0];
  const std::span<const int64_t> shifts = call.Ints("shifts");
  const std::span<const int64_t> dims = call.Ints("dims");
  const kernels::TensorRef self = call.RefOf(input);
  const kernels::TensorRef out = call.RefOf(call.outputs[0]);
  const bool is_flat = dims.empty();
  if (is_flat ? shifts.size() != 1 : shifts.size() != dims.size()) {
    return call.Invalid(fmt::format("shifts is {} and dims is {}", ShapeText(shifts), ShapeText(dims)),
                        "pass one shift for each dim, or one shift and no dims to roll the flattened tensor");
  }
  int64_t by_dim[kernels::kMaxRank] = {};
  const auto wrapped = [](int64_t shift, int64_t size) { return size == 0 ? 0 : (shift % size + size) % size; };
  for (size_t i = 0; i < dims.size(); ++i) {
    REPRISE_ASSIGN_OR_RETURN(const int d, call.WrapDim("an entry of dims", dims[i], self.rank));
    if (self.rank == 0) continue;
    by_dim[d] = wrapped(by_dim[d] + wrapped(shifts[i], self.sizes[d]), self.sizes[d]);
  }
  const int64_t count = input.tensor->count;
  if (count == 0) return {};
  if (!is_flat) {
    AddRemap(call, MakeRemap(out, self, [&](int d) { return RolledDim(self.sizes[d], by_dim[d]); }));
    return {};
  }
  // As one dim; tensors that are not contiguous go through copies that are.
  const bool copies_self = !kernels::IsContiguous(self);
  const bool copies_out = !kernels::IsContiguous(out);
  const kernels::TensorRef from = copies_self ? call.Temporary(self.dtype, input.sizes()) : self;
  const kernels::TensorRef to = copies_out ? call.Temporary(out.dtype, input.sizes()) : out;
  const auto add = [&](const kernels::TensorRef& target, bool is_temporary, const kernels::TensorRef& source,
                       bool from_temporary, Launch::Kernel kernel) -> Launch& {
    Launch& launch = call.AddLaunch(kernel);
    if (is_temporary) {
      call.WriteTemporary(launch, target);
    } else {
      call.Write(launch, call.outputs[0], target);
    }
    if (from_temporary) {
      call.ReadTemporary(launch, source);
    } else {
      call.Read(launch, input, source);
    }
    launch.units = count;
    launch.grain = GrainOf(1);
    return launch;
  };
  if (copies_self) add(from, true, self, false, RunCopy);
  const kernels::TensorRef flat = kernels::MakeContiguous(nullptr, self.dtype, {count});
  add(to, copies_out, from, copies_self, RunRemapLaunch).state =
      MakeRemap(flat, flat, [&](int) { return RolledDim(count, wrapped(shifts[0], count)); });
  if (copies_out) add(out, false, to, true, RunCopy);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/padding.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
