// SPDX-License-Identifier: Apache-2.0
#include "kernels/remap.h"

#include <cstring>

namespace reprise::kernels {
namespace {

bool IsIdentity(const Remap::Dim& dim, int64_t self_size_at_least) {
  const RemapPiece& piece = dim.pieces[0];
  return dim.pieces.size() == 1 && !piece.is_fill && piece.step == 1 && piece.source == 0 &&
         piece.end == self_size_at_least;
}

// Whether every piece of the dim may be made of `inner` elements where it was made of one.
bool Scales(const Remap::Dim& dim) {
  for (const RemapPiece& piece : dim.pieces) {
    if (!piece.is_fill && piece.step != 1) return false;
  }
  return true;
}

struct Bytes16 {
  uint64_t words[2];
};

template <class Word>
void FillRow(Word word, char* out, int64_t out_stride, int64_t n) {
  if (out_stride == static_cast<int64_t>(sizeof(Word))) {
    Word* to = reinterpret_cast<Word*>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = word;
  } else {
    for (int64_t i = 0; i < n; ++i) *reinterpret_cast<Word*>(out + i * out_stride) = word;
  }
}

// n elements from `self`, `stride` bytes apart.
template <class Word>
void MoveRow(const char* self, int64_t stride, char* out, int64_t out_stride, int64_t n) {
  constexpr int64_t kItem = sizeof(Word);
  const Word* from = reinterpret_cast<const Word*>(self);
  if (stride == 0) return FillRow(*from, out, out_stride, n);
  if (out_stride == kItem) {
    Word* to = reinterpret_cast<Word*>(out);
    if (stride == kItem) {
      std::memcpy(out, self, static_cast<size_t>(n * kItem));
    } else if (stride == -kItem) {
      const Word* first = from - (n - 1);
      for (int64_t i = 0; i < n; ++i) to[i] = first[n - 1 - i];
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = *reinterpret_cast<const Word*>(self + i * stride);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    *reinterpret_cast<Word*>(out + i * out_stride) = *reinterpret_cast<const Word*>(self + i * stride);
  }
}

const RemapPiece* PieceOf(const Remap::Dim& dim, int64_t position) {
  const RemapPiece* piece = dim.pieces.data();
  while (position >= piece->end) ++piece;
  return piece;
}

template <class Word>
void RemapWords(const Remap& remap, const char* self, char* out, Range range) {
  int64_t remaining = range.end - range.begin;
  if (remaining <= 0) return;
  const int inner = static_cast<int>(remap.dims.size()) - 1;
  const Remap::Dim& row = remap.dims[static_cast<size_t>(inner)];
  Word fill;
  std::memcpy(&fill, remap.fill, sizeof fill);

  // Where the outer dims stand: position, piece, and the bytes they add to either side.
  struct Place {
    int64_t position = 0;
    const RemapPiece* piece = nullptr;
    int64_t self_bytes = 0;
  };
  Place places[kMaxRank];
  int fills = 0;  // outer dims on a piece without a source
  const auto enter = [&](int d, int64_t position) {
    const Remap::Dim& dim = remap.dims[static_cast<size_t>(d)];
    Place& place = places[d];
    if (place.piece != nullptr && place.piece->is_fill) --fills;
    if (place.piece == nullptr || position == 0) {
      place.piece = PieceOf(dim, position);
    } else if (position >= place.piece->end) {
      do ++place.piece;
      while (position >= place.piece->end);
    }
    place.position = position;
    const RemapPiece& piece = *place.piece;
    if (piece.is_fill) {
      ++fills;
      place.self_bytes = 0;
    } else {
      place.self_bytes = (piece.source + (position - piece.begin) * piece.step) * dim.self_stride;
    }
  };
  int64_t rest = range.begin;
  int64_t column = rest % row.size;
  rest /= row.size;
  for (int d = inner - 1; d >= 0; --d) {
    enter(d, rest % remap.dims[static_cast<size_t>(d)].size);
    rest /= remap.dims[static_cast<size_t>(d)].size;
  }
  const char* from = nullptr;
  char* to = nullptr;
  const auto locate = [&] {
    from = self;
    to = out;
    for (int d = 0; d < inner; ++d) {
      from += places[d].self_bytes;
      to += places[d].position * remap.dims[static_cast<size_t>(d)].out_stride;
    }
  };
  locate();
  while (true) {
    const int64_t end = std::min(row.size, column + remaining);
    remaining -= end - column;
    if (fills != 0) {
      FillRow(fill, to + column * row.out_stride, row.out_stride, end - column);
    } else {
      for (const RemapPiece* piece = PieceOf(row, column); column < end; ++piece) {
        const int64_t n = std::min(piece->end, end) - column;
        if (n <= 0) continue;
        char* target = to + column * row.out_stride;
        if (piece->is_fill) {
          FillRow(fill, target, row.out_stride, n);
        } else {
          MoveRow<Word>(from + (piece->source + (column - piece->begin) * piece->step) * row.self_stride,
                        piece->step * row.self_stride, target, row.out_stride, n);
        }
        column += n;
      }
    }
    if (remaining == 0) return;
    column = 0;
    // The next row lies on the same piece, mostly.
    if (Place& last = places[inner - 1]; last.position + 1 < last.piece->end) {
      const Remap::Dim& dim = remap.dims[static_cast<size_t>(inner) - 1];
      ++last.position;
      to += dim.out_stride;
      if (!last.piece->is_fill) {
        last.self_bytes += last.piece->step * dim.self_stride;
        from += last.piece->step * dim.self_stride;
      }
      continue;
    }
    for (int d = inner - 1; d >= 0; --d) {
      const int64_t next = places[d].position + 1;
      if (next < remap.dims[static_cast<size_t>(d)].size) {
        enter(d, next);
        break;
      }
      enter(d, 0);
    }
    locate();
  }
}

template <class Word>
void UnfoldWords(const TensorRef& self, const UnfoldWindow& window, const TensorRef& out, Range range) {
  constexpr int64_t kItem = sizeof(Word);
  const int64_t channels = self.sizes[1];
  const int64_t height = self.sizes[2];
  const int64_t width = self.sizes[3];
  const int64_t per_image = channels * window.kernel[0] * window.kernel[1];
  const int64_t out_column = out.strides[2] * kItem;
  const Word zero{};
  for (int64_t r = range.begin; r < range.end; ++r) {
    const int64_t image = r / per_image;
    int64_t rest = r % per_image;
    char* to = static_cast<char*>(out.data) + (image * out.strides[0] + rest * out.strides[1]) * kItem;
    const int64_t kx = rest % window.kernel[1];
    rest /= window.kernel[1];
    const int64_t ky = rest % window.kernel[0];
    const int64_t channel = rest / window.kernel[0];
    const char* from =
        static_cast<const char*>(self.data) + (image * self.strides[0] + channel * self.strides[1]) * kItem;
    const int64_t x0 = kx * window.dilation[1] - window.padding[1];  // of self, at position 0 of the window
    const int64_t step = window.stride[1];
    // Positions [first, last) lie on the image.
    const int64_t first = std::clamp<int64_t>(x0 < 0 ? (-x0 + step - 1) / step : 0, 0, window.out_size[1]);
    const int64_t last =
        std::clamp<int64_t>(x0 >= width ? 0 : (width - x0 + step - 1) / step, first, window.out_size[1]);
    for (int64_t oy = 0; oy < window.out_size[0]; ++oy) {
      const int64_t y = oy * window.stride[0] + ky * window.dilation[0] - window.padding[0];
      const bool is_inside = y >= 0 && y < height;
      const int64_t begin = is_inside ? first : window.out_size[1];
      const int64_t end = is_inside ? last : window.out_size[1];
      if (begin > 0) FillRow(zero, to, out_column, begin);
      if (end > begin) {
        MoveRow<Word>(from + (y * self.strides[2] + (x0 + begin * step) * self.strides[3]) * kItem,
                      step * self.strides[3] * kItem, to + begin * out_column, out_column, end - begin);
      }
      if (end < window.out_size[1]) FillRow(zero, to + end * out_column, out_column, window.out_size[1] - end);
      to += window.out_size[1] * out_column;
    }
  }
}

template <class Call>
void WithWord(DType dtype, Call&& call) {
  switch (ItemSize(dtype)) {
    case 1: return call(uint8_t{});
    case 2: return call(uint16_t{});
    case 4: return call(uint32_t{});
    case 8: return call(uint64_t{});
    default: return call(Bytes16{});
  }
}

}  // namespace

void Remap::Finish() {
  std::vector<Dim> kept;
  for (Dim& dim : dims) {
    if (dim.size == 1 && dim.pieces.size() == 1 && dim.pieces[0].step != 0 && !dim.pieces[0].is_fill &&
        dim.pieces[0].source == 0) {
      continue;
    }
    // An unchanged dim right inside of another one makes that one's elements longer.
    if (!kept.empty() && IsIdentity(dim, dim.size)) {
      Dim& outer = kept.back();
      if (Scales(outer) && outer.out_stride == dim.size * dim.out_stride &&
          outer.self_stride == dim.size * dim.self_stride) {
        for (RemapPiece& piece : outer.pieces) {
          piece.begin *= dim.size;
          piece.end *= dim.size;
          piece.source *= dim.size;
        }
        outer.size *= dim.size;
        outer.out_stride = dim.out_stride;
        outer.self_stride = dim.self_stride;
        continue;
      }
    }
    kept.push_back(std::move(dim));
  }
  if (kept.empty()) {
    const int64_t item = ItemSize(dtype);
    kept.push_back({1, item, item, {{0, 1, 0, 1, false}}});
  }
  dims = std::move(kept);
}

void RunRemap(const Remap& remap, const char* self, char* out, Range range) {
  WithWord(remap.dtype, [&](auto word) { RemapWords<decltype(word)>(remap, self, out, range); });
}

void Unfold(const TensorRef& self, const UnfoldWindow& window, const TensorRef& out, Range range) {
  WithWord(self.dtype, [&](auto word) { UnfoldWords<decltype(word)>(self, window, out, range); });
}

}  // namespace reprise::kernels
