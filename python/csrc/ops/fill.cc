// SPDX-License-Identifier: Apache-2.0
//
// Fills: one task each, without a call of an operator when the elements lie back to back.
#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "graph/liveness.h"
#include "ops/alias.h"
#include "ops/launch.h"

namespace torch_npu {
namespace {

// One element, as it lies in memory.
struct Pattern {
  std::array<unsigned char, 16> bytes{};
  size_t size = 0;

  bool is_one_byte() const {
    return std::all_of(bytes.begin(), bytes.begin() + size, [this](unsigned char byte) { return byte == bytes[0]; });
  }
};

// None for types that are not worth a case of their own. Throws when the value does not fit the type.
std::optional<Pattern> PatternOf(const at::Scalar& value, at::ScalarType type) {
  Pattern pattern;
  const auto store = [&]<class T>(T element) {
    static_assert(sizeof(T) <= sizeof(pattern.bytes));
    pattern.size = sizeof(T);
    std::memcpy(pattern.bytes.data(), &element, sizeof(T));
  };
  switch (type) {
#define CASE(T, NAME) \
  case at::ScalarType::NAME: store(value.to<T>()); return pattern;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_EXCEPT_COMPLEX_HALF_F8NZ(CASE)
#undef CASE
    default: return std::nullopt;
  }
}

template <class T>
void Repeat(void* to, const Pattern& pattern, int64_t count) {
  T element;
  std::memcpy(&element, pattern.bytes.data(), sizeof(T));
  std::fill_n(static_cast<T*>(to), count, element);
}

struct Wide {
  uint64_t parts[2];
};

void Repeat(void* to, const Pattern& pattern, int64_t count) {
  if (pattern.is_one_byte()) {
    std::memset(to, pattern.bytes[0], static_cast<size_t>(count) * pattern.size);
    return;
  }
  switch (pattern.size) {
    case 2: return Repeat<uint16_t>(to, pattern, count);
    case 4: return Repeat<uint32_t>(to, pattern, count);
    case 8: return Repeat<uint64_t>(to, pattern, count);
    default: return Repeat<Wide>(to, pattern, count);
  }
}

at::Tensor& FillScalar(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  const c10::DeviceGuard guard(self.device());
  Touched touched;
  touched.Write(self);
  if (self.is_non_overlapping_and_dense()) {
    if (const std::optional<Pattern> pattern = PatternOf(value, self.scalar_type())) {
      NoteUse(self);
      Launch(
          "fill_",
          [to = self.mutable_data_ptr(), pattern = *pattern, count = self.numel()] { Repeat(to, pattern, count); },
          &touched);
      return self;
    }
  }
  Aliases aliases(c10::kCPU);
  Launch(
      "fill_", [to = aliases.Of(self), value]() mutable { to.fill_(value); }, &touched);
  return self;
}

at::Tensor& FillTensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  // A value of the host is known now, and frozen.
  if (value.device().is_cpu()) return FillScalar(self, value.item());
  TORCH_CHECK(value.device() == self.device(), "fill_: the value is on ", value.device(), ", the tensor on ",
              self.device(), "; move one of them");
  if (self.numel() == 0) return self;
  at::assert_no_internal_overlap(self);
  const c10::DeviceGuard guard(self.device());
  Aliases aliases(c10::kCPU);
  Touched touched;
  touched.Write(self).Read(value);
  Launch(
      "fill_", [to = aliases.Of(self), from = aliases.Of(value)]() mutable { to.fill_(from); }, &touched);
  return self;
}

at::Tensor& Zero(at::Tensor& self) {
  if (self.numel() == 0) return self;
  const c10::DeviceGuard guard(self.device());
  Touched touched;
  touched.Write(self);
  if (self.is_non_overlapping_and_dense()) {
    NoteUse(self);
    Launch(
        "zero_", [to = self.mutable_data_ptr(), bytes = self.nbytes()] { std::memset(to, 0, bytes); }, &touched);
  } else {
    Aliases aliases(c10::kCPU);
    Launch(
        "zero_", [to = aliases.Of(self)]() mutable { to.zero_(); }, &touched);
  }
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("zero_", Zero);
  m.impl("fill_.Scalar", FillScalar);
  m.impl("fill_.Tensor", FillTensor);
}

}  // namespace
}  // namespace torch_npu
