// SPDX-License-Identifier: Apache-2.0
//
// Rules of operators that other front ends have beside those of infer_move.cc and infer_index.cc: slices by sizes,
// blocks of images, lists of places.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {

// -1 stands for any size.
Status EnsureShape(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  const std::vector<int64_t> wanted = call.Ints("shape");
  bool fits = !x.shape.has_rank() || x.shape.rank() == wanted.size();
  Sizes shape = x.shape.has_rank() ? x.shape : Sizes::Unknown(wanted.size());
  for (size_t d = 0; fits && d < wanted.size(); ++d) {
    if (wanted[d] < 0) continue;
    fits = call.facts->Unify(shape[d], wanted[d]);
    shape[d] = wanted[d];
  }
  if (fits) return call.SetRest(shape);
  return call.WrongInput(x, fmt::format("has the shape {}, which is not {}", x.shape.text(), TextOf(wanted)),
                         "pass a tensor of that shape");
}

Status Eye(InferContext& call) {  // rule
  const int64_t rows = call.Int("num_rows");
  const int64_t columns = call.Int("num_columns") == 0 ? rows : call.Int("num_columns");
  if (rows < 0) return call.WrongAttribute("num_rows", fmt::format("is {}", rows), "set it to the number of rows");
  if (columns < 0) {
    return call.WrongAttribute("num_columns", fmt::format("is {}", columns), "set it to the number of columns");
  }
  std::vector<int64_t> sizes = call.Ints("batch_shape");
  for (const int64_t size : sizes) {
    if (size < 0) return call.WrongAttribute("batch_shape", "is " + TextOf(sizes), "pass sizes of 0 or more");
  }
  sizes.push_back(rows);
  sizes.push_back(columns);
  return call.SetRest(Sizes::Of(sizes));
}

// [dims in front of axis, dims behind it], each as one.
Status FlattenToMatrix(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(2));
  const auto rank = static_cast<int64_t>(x.shape.rank());
  const int64_t given = call.Int("axis");
  const int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis > rank) {
    return call.WrongAttribute("axis", fmt::format("is {}, but {} has {} dims", given, x.name, rank),
                               fmt::format("set it to {} to {}", -rank, rank));
  }
  const auto dim = static_cast<size_t>(axis);
  return call.SetRest(
      Sizes{Sizes(Part(x.shape, 0, dim)).elements(), Sizes(Part(x.shape, dim, x.shape.rank())).elements()});
}

// Sizes of -1 reach to the end.
Status Slice(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  const std::vector<Dim>* offsets = call.Value("offsets");
  const std::vector<Dim>* sizes = call.Value("size");
  for (const auto& [name, value] : {std::pair{"offsets", offsets}, std::pair{"size", sizes}}) {
    if (value == nullptr || value->size() == rank) continue;
    return call.Wrong(name, fmt::format("has {} numbers, but {} has {} dims", value->size(), x.name, rank),
                      "give one number for each dim");
  }
  Sizes shape = Sizes::Unknown(rank);
  for (size_t d = 0; d < rank && sizes != nullptr; ++d) {
    const Dim& size = (*sizes)[d];
    const Dim offset = offsets != nullptr ? (*offsets)[d] : Dim::Unknown();
    shape[d] = size.Is(-1) ? x.shape[d] - offset : size;
    const Dim rest = x.shape[d] - offset - shape[d];
    const bool is_wrong = (offset.is_number() && offset.number() < 0) ||
                          (shape[d].is_number() && shape[d].number() < 0) || (rest.is_number() && rest.number() < 0);
    if (!is_wrong) continue;
    return call.Wrong("size",
                      fmt::format("asks for {} elements from {} on, but dim {} of {} has {}", size.text(),
                                  offset.text(), d, x.name, x.shape[d].text()),
                      "take a block that lies within the tensor; -1 reaches to the end");
  }
  return call.SetRest(shape);
}

// ---- Blocks ----

namespace {

// Height, width and channels of an image of four dims.
struct ImageDims {
  size_t height, width, channels;
};

StatusOr<ImageDims> ImageDimsOf(const InferContext& call) {
  const std::string format = call.Text("data_format");
  if (format == "NHWC") return ImageDims{1, 2, 3};
  if (format == "NCHW") return ImageDims{2, 3, 1};
  return call.WrongAttribute("data_format", fmt::format("is '{}'", format), "set it to NHWC or NCHW");
}

StatusOr<int64_t> BlockOf(const InferContext& call) {
  const int64_t block = call.Int("block_size");
  constexpr int64_t kMost = 1 << 15;  // its square is far from 64 bits
  if (block >= 1 && block <= kMost) return block;
  return call.WrongAttribute("block_size", fmt::format("is {}", block), "set it to the edge of a block");
}

Status Indivisible(const InferContext& call, size_t dim, int64_t divisor) {
  const InferTensor& x = call.First();
  return call.WrongInput(
      x, fmt::format("has the shape {}, whose dim {} has no {} equal parts", x.shape.text(), dim, divisor),
      "pass sizes that the block divides");
}

bool Divides(int64_t divisor, const Dim& size) { return !size.is_number() || size.number() % divisor == 0; }

}  // namespace

Status DepthToSpace(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  REPRISE_ASSIGN_OR_RETURN(const ImageDims at, ImageDimsOf(call));
  REPRISE_ASSIGN_OR_RETURN(const int64_t block, BlockOf(call));
  const std::string mode = call.Text("mode");
  if (mode != "DCR" && mode != "CRD") {
    return call.WrongAttribute("mode", fmt::format("is '{}'", mode), "set it to DCR or CRD");
  }
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  if (!Divides(block * block, x.shape[at.channels])) return Indivisible(call, at.channels, block * block);
  Sizes shape = x.shape;
  shape[at.height] = shape[at.height] * block;
  shape[at.width] = shape[at.width] * block;
  shape[at.channels] = FloorDiv(shape[at.channels], block * block);
  return call.SetRest(shape);
}

Status SpaceToDepth(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x, 4));
  REPRISE_ASSIGN_OR_RETURN(const ImageDims at, ImageDimsOf(call));
  REPRISE_ASSIGN_OR_RETURN(const int64_t block, BlockOf(call));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(4));
  Sizes shape = x.shape;
  for (const size_t dim : {at.height, at.width}) {
    if (!Divides(block, shape[dim])) return Indivisible(call, dim, block);
    shape[dim] = FloorDiv(shape[dim], block);
  }
  shape[at.channels] = shape[at.channels] * (block * block);
  return call.SetRest(shape);
}

namespace {

// Blocks of dims 1 and on, and what is taken away from them or put around them.
struct SpaceBlocks {
  std::vector<int64_t> blocks;
  std::vector<int64_t> borders;  // pairs
  int64_t count = 1;
};

// Nothing where the values are not known.
StatusOr<std::optional<SpaceBlocks>> ReadSpaceBlocks(const InferContext& call, std::string_view border_name) {
  const std::optional<std::vector<int64_t>> blocks = call.Numbers("block_shape");
  const std::optional<std::vector<int64_t>> borders = call.Numbers(border_name);
  if (!blocks.has_value() || !borders.has_value()) return std::optional<SpaceBlocks>();
  SpaceBlocks out{*blocks, *borders};
  if (out.borders.size() != 2 * out.blocks.size()) {
    return call.Wrong(border_name, fmt::format("has {} numbers for {} blocks", out.borders.size(), out.blocks.size()),
                      "give two numbers for each block");
  }
  constexpr int64_t kMost = 1 << 15;
  for (const int64_t block : out.blocks) {
    if (block < 1 || block > kMost || __builtin_mul_overflow(out.count, block, &out.count)) {
      return call.Wrong("block_shape", "is " + TextOf(out.blocks), "set it to the edges of a block");
    }
  }
  for (const int64_t border : out.borders) {
    if (border < 0) return call.Wrong(border_name, "is " + TextOf(out.borders), "pass numbers of 0 or more");
  }
  const Sizes& x = call.First().shape;
  if (x.has_rank() && x.rank() < 1 + out.blocks.size()) {
    return call.Wrong("block_shape",
                      fmt::format("has {} numbers, but the tensor has {} dims", out.blocks.size(), x.rank()),
                      "name dims behind the first");
  }
  return std::optional<SpaceBlocks>(std::move(out));
}

}  // namespace

Status BatchToSpace(InferContext& call) {  // rule
  REPRISE_ASSIGN_OR_RETURN(const std::optional<SpaceBlocks> given, ReadSpaceBlocks(call, "crops"));
  const InferTensor& x = call.First();
  if (!x.shape.has_rank()) return call.Open();
  if (!given.has_value()) return call.SetRest(Sizes::Unknown(x.shape.rank()));
  if (!Divides(given->count, x.shape[0])) return Indivisible(call, 0, given->count);
  Sizes shape = x.shape;
  shape[0] = FloorDiv(shape[0], given->count);
  for (size_t b = 0; b < given->blocks.size(); ++b) {
    Dim& size = shape[1 + b];
    size = size * given->blocks[b] - given->borders[2 * b] - given->borders[2 * b + 1];
    if (!size.is_number() || size.number() >= 0) continue;
    return call.Wrong("crops", "is " + TextOf(given->borders), "take away no more than there is");
  }
  return call.SetRest(shape);
}

Status SpaceToBatch(InferContext& call) {  // rule
  REPRISE_ASSIGN_OR_RETURN(const std::optional<SpaceBlocks> given, ReadSpaceBlocks(call, "paddings"));
  const InferTensor& x = call.First();
  if (!x.shape.has_rank()) return call.Open();
  if (!given.has_value()) return call.SetRest(Sizes::Unknown(x.shape.rank()));
  Sizes shape = x.shape;
  shape[0] = shape[0] * given->count;
  for (size_t b = 0; b < given->blocks.size(); ++b) {
    Dim& size = shape[1 + b];
    size = size + given->borders[2 * b] + given->borders[2 * b + 1];
    if (!Divides(given->blocks[b], size)) return Indivisible(call, 1 + b, given->blocks[b]);
    size = FloorDiv(size, given->blocks[b]);
  }
  return call.SetRest(shape);
}

// ---- Channels, places, segments ----

// Sums of each channel.
Status BiasAddGrad(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::string format = call.Text("data_format");
  if (format.empty() || format[0] != 'N') {
    return call.WrongAttribute("data_format", fmt::format("is '{}'", format), "set it to NHWC or NCHW");
  }
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(1));
  if (x.shape.rank() < 2) {
    return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass a batch with channels");
  }
  return call.SetRest(Sizes{x.shape[format.back() == 'C' ? x.shape.rank() - 1 : 1]});
}

// One number for each channel: the last dim in NHWC and its kin, else dim 1.
Status BiasAdd(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& bias = call.In("bias");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(bias, 1));
  const std::string format = call.Text("data_format");
  if (format.empty() || format[0] != 'N') {
    return call.WrongAttribute("data_format", fmt::format("is '{}'", format), "set it to NHWC or NCHW");
  }
  if (!x.shape.has_rank() || !bias.shape.has_rank()) return call.SetRest(x.shape);
  if (x.shape.rank() < 2) {
    return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass a batch with channels");
  }
  const size_t channels = format.back() == 'C' ? x.shape.rank() - 1 : 1;
  REPRISE_RETURN_IF_ERROR(call.ExpectEqual(bias, bias.shape[0], x.shape[channels], "dim 0"));
  return call.SetRest(x.shape);
}

// The last dim of indices has places in the first dims of x.
Status GatherNd(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& indices = call.In("indices");
  if (!x.shape.has_rank() || !indices.shape.has_rank()) return call.Open();
  if (indices.shape.rank() == 0) return call.WrongInput(indices, "has no dims", "pass rows of places");
  const Dim& count = indices.shape.back();
  if (!count.is_number()) return call.Open();
  const auto rank = static_cast<int64_t>(x.shape.rank());
  if (count.number() < 0 || count.number() > rank) {
    return call.WrongInput(indices,
                           fmt::format("has rows of {} places, but {} has {} dims", count.number(), x.name, rank),
                           "give one place for each of the first dims");
  }
  std::vector<Dim> dims = Part(indices.shape, 0, indices.shape.rank() - 1);
  Append(dims, Part(x.shape, static_cast<size_t>(count.number()), x.shape.rank()));
  return call.SetRest(Sizes(std::move(dims)));
}

// The dims that segment_ids has make one: a slice for each segment.
Status SegmentSum(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& ids = call.In("segment_ids");
  REPRISE_ASSIGN_OR_RETURN(const Dim count, call.ValueInt("num_segments"));
  if (count.is_number() && count.number() < 0) {
    return call.Wrong("num_segments", fmt::format("is {}", count.number()), "pass 0 or more");
  }
  if (!x.shape.has_rank() || !ids.shape.has_rank()) return call.Open();
  if (ids.shape.rank() > x.shape.rank()) {
    return call.WrongInput(ids, fmt::format("has the shape {}, more dims than {}", ids.shape.text(), x.name),
                           "give one segment for each slice");
  }
  for (size_t d = 0; d < ids.shape.rank(); ++d) {
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(ids, ids.shape[d], x.shape[d], fmt::format("dim {}", d)));
  }
  std::vector<Dim> dims = {count};
  Append(dims, Part(x.shape, ids.shape.rank(), x.shape.rank()));
  return call.SetRest(Sizes(std::move(dims)));
}

}  // namespace reprise::opdef::infer
