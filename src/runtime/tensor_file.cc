// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "device/memory.h"
#include "ir/task_info.h"
#include "kernels/dtype.h"
#include "kernels/float16.h"

namespace reprise::runtime {
namespace {

using kernels::DType;

constexpr int64_t kPieceBytes = 256 << 10;

DType TypeOfTensor(const ir::TensorInfo& tensor) {
  const auto type = static_cast<DType>(tensor.dtype);
  return kernels::IsKnown(type) ? type : DType::kUndefined;
}

int64_t ItemBytes(const ir::TensorInfo& tensor) {
  const DType type = TypeOfTensor(tensor);
  return type == DType::kUndefined ? 0 : kernels::ItemSize(type);
}

// How NumPy writes the type.
const char* NpyType(DType type) {
  switch (type) {
    case DType::kFloat:
    case DType::kBFloat16: return "<f4";
    case DType::kFloat16: return "<f2";
    case DType::kInt8: return "|i1";
    case DType::kInt32: return "<i4";
    case DType::kUInt8: return "|u1";
    case DType::kInt16: return "<i2";
    case DType::kUInt16: return "<u2";
    case DType::kUInt32: return "<u4";
    case DType::kInt64: return "<i8";
    case DType::kUInt64: return "<u8";
    case DType::kDouble: return "<f8";
    case DType::kBool: return "|b1";
    case DType::kComplex64: return "<c8";
    case DType::kComplex128: return "<c16";
    case DType::kUndefined: break;
  }
  return "|u1";
}

std::string NpyHeader(const ir::TensorInfo& tensor) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 NpyType(TypeOfTensor(tensor)), fmt::join(tensor.sizes, ", "),
                                 tensor.sizes.size() == 1 ? "," : "");  // "(3)" is no tuple
  constexpr size_t kPrefix = 10;                                        // magic, version, length
  constexpr size_t kAlignment = 64;
  text.append(kAlignment - 1 - (kPrefix + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

// Gathers what is handed over in pieces of `kPieceBytes`.
class ElementReader {
 public:
  ElementReader(const ir::TensorInfo& tensor, const TakeBytes& take)
      : tensor_(tensor), take_(take), item_(ItemBytes(tensor)), buffer_(new char[kPieceBytes]) {}

  int64_t Run() {
    const int64_t count = CountOf(tensor_);
    if (item_ == 0 || count <= 0 || tensor_.data == nullptr) return 0;
    // Trailing dims that lie back to back are read as one.
    size_t outer = tensor_.sizes.size();
    int64_t run = 1;
    while (outer > 0 && (tensor_.sizes[outer - 1] == 1 || tensor_.strides[outer - 1] == run)) {
      run *= tensor_.sizes[--outer];
    }
    int64_t stride = 1;
    if (run == 1 && outer > 0) {
      --outer;
      run = tensor_.sizes[outer];
      stride = tensor_.strides[outer];
    }
    std::vector<int64_t> index(outer, 0);
    for (;;) {
      int64_t offset = 0;
      for (size_t d = 0; d < outer; ++d) offset += index[d] * tensor_.strides[d];
      if (!ReadRow(static_cast<const char*>(tensor_.data) + offset * item_, run, stride)) break;
      size_t d = outer;
      while (d > 0 && ++index[d - 1] == tensor_.sizes[d - 1]) index[--d] = 0;
      if (d == 0) break;
    }
    Flush();
    return taken_ / item_;
  }

 private:
  bool Flush() {
    if (used_ != 0 && !refused_) {
      refused_ = !take_({buffer_.get(), static_cast<size_t>(used_)});
      if (!refused_) taken_ += used_;
    }
    used_ = 0;
    return !refused_;
  }

  bool ReadRow(const char* row, int64_t count, int64_t stride) {
    for (int64_t done = 0; done < count;) {
      if (used_ + item_ > kPieceBytes && !Flush()) return false;
      int64_t now = std::min(count - done, (kPieceBytes - used_) / item_);
      const char* const from = row + done * stride * item_;
      if (stride == 1) {
        if (!device::CopyFromUntrusted(buffer_.get() + used_, from, static_cast<size_t>(now * item_))) {
          // Up to the hole, an element at a time.
          if (!device::CopyFromUntrusted(buffer_.get() + used_, from, static_cast<size_t>(item_))) return false;
          now = 1;
        }
      } else {
        now = std::clamp<int64_t>(stride == 0 ? now : kPieceBytes / (stride * item_), 1, now);
        const int64_t extent = ((now - 1) * stride + 1) * item_;
        scratch_.resize(static_cast<size_t>(extent));
        if (!device::CopyFromUntrusted(scratch_.data(), from, static_cast<size_t>(extent))) {
          if (!device::CopyFromUntrusted(scratch_.data(), from, static_cast<size_t>(item_))) return false;
          now = 1;
        }
        for (int64_t i = 0; i < now; ++i) {
          std::memcpy(buffer_.get() + used_ + i * item_, scratch_.data() + i * stride * item_,
                      static_cast<size_t>(item_));
        }
      }
      used_ += now * item_;
      done += now;
    }
    return true;
  }

  const ir::TensorInfo& tensor_;
  const TakeBytes& take_;
  const int64_t item_;
  std::unique_ptr<char[]> buffer_;
  std::vector<char> scratch_;
  int64_t used_ = 0;
  int64_t taken_ = 0;
  bool refused_ = false;
};

template <class T>
T ItemAt(std::string_view bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T, class ToValue>
TensorStatistics StatisticsAs(const ir::TensorInfo& tensor, const ToValue& to_value) {
  using Value = decltype(to_value(T{}));
  TensorStatistics found;
  Value min = std::numeric_limits<Value>::max();
  Value max = std::numeric_limits<Value>::lowest();
  int64_t finite = 0;
  long double sum = 0;
  long double squares = 0;
  found.count = ReadElements(tensor, [&](std::string_view bytes) {
    for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const Value value = to_value(ItemAt<T>(bytes, i));
      if constexpr (std::is_floating_point_v<Value>) {
        if (std::isnan(value)) {
          ++found.nans;
          continue;
        }
        if (std::isinf(value)) {
          ++(value < 0 ? found.negative_infinities : found.positive_infinities);
          continue;
        }
      }
      ++finite;
      min = std::min(min, value);
      max = std::max(max, value);
      sum += static_cast<long double>(value);
      squares += static_cast<long double>(value) * static_cast<long double>(value);
    }
    return true;
  });
  if (finite == 0) return found;
  found.min = fmt::format("{}", min);
  found.max = fmt::format("{}", max);
  found.mean = fmt::format("{}", static_cast<double>(sum / static_cast<long double>(finite)));
  found.l2norm = fmt::format("{}", static_cast<double>(std::sqrt(squares)));
  return found;
}

template <class T>
TensorStatistics StatisticsOfInts(const ir::TensorInfo& tensor) {
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  return StatisticsAs<T>(tensor, [](T value) { return static_cast<Wide>(value); });
}

}  // namespace

int64_t CountOf(const ir::TensorInfo& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.sizes) count *= size;
  return count;
}

uint64_t BytesOf(const ir::TensorInfo& tensor) { return static_cast<uint64_t>(CountOf(tensor) * ItemBytes(tensor)); }

int64_t ReadElements(const ir::TensorInfo& tensor, const TakeBytes& take) { return ElementReader(tensor, take).Run(); }

bool WriteNpy(const ir::TensorInfo& tensor, const TakeBytes& take, int64_t* read) {
  *read = 0;
  bool refused = !take(NpyHeader(tensor));
  const DType type = TypeOfTensor(tensor);
  std::string converted;
  const int64_t done = refused ? 0 : ReadElements(tensor, [&](std::string_view bytes) {
    std::string_view out = bytes;
    if (type == DType::kBFloat16) {
      converted.resize(bytes.size() * 2);
      for (size_t i = 0; i < bytes.size() / 2; ++i) {
        // The upper half of a float32.
        const uint32_t bits = static_cast<uint32_t>(ItemAt<uint16_t>(bytes, i)) << 16;
        std::memcpy(converted.data() + i * sizeof bits, &bits, sizeof bits);
      }
      out = converted;
    } else if (type == DType::kBool) {
      converted.assign(bytes);
      for (char& byte : converted) byte = byte != 0 ? 1 : 0;
      out = converted;
    }
    refused = !take(out);
    return !refused;
  });
  *read = done;
  if (refused) return false;
  const int64_t item = type == DType::kBFloat16 ? 4 : ItemBytes(tensor);
  const std::string zeros(static_cast<size_t>(kPieceBytes), '\0');
  for (int64_t missing = (CountOf(tensor) - done) * item; missing > 0; missing -= kPieceBytes) {
    if (!take(std::string_view(zeros).substr(0, static_cast<size_t>(std::min(missing, kPieceBytes))))) return false;
  }
  return true;
}

TensorStatistics StatisticsOf(const ir::TensorInfo& tensor) {
  switch (TypeOfTensor(tensor)) {
    case DType::kFloat: return StatisticsAs<float>(tensor, [](float value) { return static_cast<double>(value); });
    case DType::kDouble: return StatisticsAs<double>(tensor, [](double value) { return value; });
    case DType::kFloat16:
      return StatisticsAs<uint16_t>(tensor,
                                    [](uint16_t bits) { return static_cast<double>(kernels::HalfBitsToFloat(bits)); });
    case DType::kBFloat16:
      return StatisticsAs<uint16_t>(tensor, [](uint16_t bits) {
        return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
      });
    case DType::kComplex64:
      return StatisticsAs<std::complex<float>>(
          tensor, [](std::complex<float> value) { return std::hypot(double{value.real()}, double{value.imag()}); });
    case DType::kComplex128:
      return StatisticsAs<std::complex<double>>(
          tensor, [](std::complex<double> value) { return std::hypot(value.real(), value.imag()); });
    case DType::kBool: return StatisticsAs<uint8_t>(tensor, [](uint8_t byte) { return uint64_t{byte != 0}; });
    case DType::kInt8: return StatisticsOfInts<int8_t>(tensor);
    case DType::kInt16: return StatisticsOfInts<int16_t>(tensor);
    case DType::kInt32: return StatisticsOfInts<int32_t>(tensor);
    case DType::kInt64: return StatisticsOfInts<int64_t>(tensor);
    case DType::kUInt8: return StatisticsOfInts<uint8_t>(tensor);
    case DType::kUInt16: return StatisticsOfInts<uint16_t>(tensor);
    case DType::kUInt32: return StatisticsOfInts<uint32_t>(tensor);
    case DType::kUInt64: return StatisticsOfInts<uint64_t>(tensor);
    case DType::kUndefined: break;
  }
  return {};
}

}  // namespace reprise::runtime
