// SPDX-License-Identifier: Apache-2.0
//
// Rules of operators that move elements: other shapes, orders, parts, joins.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

// The elements stay the elements: of a list, so do their values.
void KeepValue(InferContext& call) {
  if (call.Out(0).shape.has_rank() && call.Out(0).shape.rank() <= 1) call.Out(0).value = call.First().value;
}

Status SetKept(InferContext& call, Sizes shape) {
  REPRISE_RETURN_IF_ERROR(call.Set(0, std::move(shape)));
  KeepValue(call);
  return {};
}

}  // namespace

Status Bitcast(InferContext& call) {  // rule
  const InferTensor& x = call.First();
  const int64_t from = TypeBits(x.dtype);
  const int64_t to = TypeBits(call.Out(0).dtype);
  if (!x.shape.has_rank() || from == to || from == 0 || to == 0) return call.SetRest(x.shape);
  Sizes shape = x.shape;
  if (from > to) {
    if (call.Bool("keep_dim") && shape.rank() != 0) {
      shape.dims().back() = shape.back() * (from / to);
    } else {
      shape.dims().push_back(from / to);
    }
    return call.SetRest(shape);
  }
  const int64_t group = to / from;
  const bool is_scaled = call.Bool("keep_dim");
  const bool fits =
      shape.rank() != 0 &&
      (shape.back().is_number() ? (is_scaled ? shape.back().number() % group == 0 : shape.back().number() == group)
                                : true);
  if (!fits) {
    return call.WrongInput(x,
                           fmt::format("has the shape {}, whose last size is not {} elements of {}", x.shape.text(),
                                       group, TypeName(x.dtype)),
                           fmt::format("join the bytes of one {} in the last dim", TypeName(call.Out(0).dtype)));
  }
  if (is_scaled) {
    shape.dims().back() = FloorDiv(shape.back(), group);
  } else {
    shape.dims().pop_back();
  }
  return call.SetRest(shape);
}

Status BroadcastTo(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::vector<Dim>* value = call.Value("shape");
  if (value == nullptr) return call.SetRest(UnknownSizes(call.In("shape")));
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(value->size()));
  Sizes shape(*value);
  const size_t fresh = shape.rank() - std::min(shape.rank(), x.shape.rank());
  bool fits = shape.rank() >= x.shape.rank();
  for (size_t d = 0; fits && d < shape.rank(); ++d) {
    const Dim own = d < fresh ? Dim(1) : x.shape[d - fresh];
    if (shape[d].Is(-1) && d >= fresh) shape[d] = own;  // keeps the size
    fits = (!shape[d].is_number() || shape[d].number() >= 0) && (own.Is(1) || call.facts->Unify(own, shape[d]));
  }
  if (fits) return call.SetRest(shape);
  return call.Wrong("shape", fmt::format("is {}, to which {} does not broadcast", shape.text(), x.shape.text()),
                    "sizes of x, aligned at the last dim, must be equal to those of shape or 1");
}

Status Reshape(InferContext& call) {  // rule
  for (const auto& [name, plain] : {std::pair<std::string_view, int64_t>{"axis", 0}, {"num_axes", -1}}) {
    if (call.Int(name) == plain) continue;
    return call.WrongAttribute(name, fmt::format("is {}, only {} is possible", call.Int(name), plain),
                               "give the whole shape");
  }
  const InferTensor& x = call.In("x");
  const std::vector<Dim>* value = call.Value("shape");
  if (value == nullptr) return call.SetRest(UnknownSizes(call.In("shape")));
  Sizes shape(*value);
  const auto wrong = [&] {
    return call.WrongInput(call.In("shape"),
                           fmt::format("is {}, which does not hold the elements of {}", TextOf(*value), x.shape.text()),
                           "the elements stay the same; one size may be -1");
  };
  Dim known = 1;
  Dim* open = nullptr;
  for (Dim& dim : shape.dims()) {
    if (dim.Is(-1) && open == nullptr) {
      open = &dim;
      continue;
    }
    if (dim.is_number() && dim.number() < 0) return wrong();
    const bool was_known = !known.is_unknown() && !dim.is_unknown();
    known = known * dim;
    if (was_known && known.is_unknown()) return wrong();  // beyond 64 bits
  }
  const Dim count = x.shape.elements();
  if (open == nullptr) return call.facts->Unify(known, count) ? SetKept(call, shape) : wrong();
  if (known.is_number() && count.is_number() && (known.number() == 0 || count.number() % known.number() != 0)) {
    return wrong();
  }
  *open = FloorDiv(count, known);
  return SetKept(call, shape);
}

Status ExpandDims(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  REPRISE_ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.Number("axis"));
  if (!x.shape.has_rank()) return call.Open();
  if (!given.has_value()) return call.SetRest(Sizes::Unknown(x.shape.rank() + 1));
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis, call.WrapDim("axis", *given, x.shape.rank() + 1));
  Sizes shape = x.shape;
  Insert(shape.dims(), static_cast<size_t>(axis), 1);
  return SetKept(call, std::move(shape));
}

Status Unsqueeze(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::string_view name = call.op.FindAttribute("axis") != nullptr ? "axis" : "axes";
  const std::optional<std::vector<int64_t>> given = call.Numbers(name);
  if (!given.has_value()) {
    const Sizes fresh = UnknownSizes(call.In(name));
    if (!x.shape.has_rank() || !fresh.has_rank()) return call.Open();
    return call.SetRest(Sizes::Unknown(x.shape.rank() + fresh.rank()));
  }
  constexpr size_t kMost = 8;
  if (given->size() > kMost) {
    return call.Wrong(name, fmt::format("has {} entries, more than there may be dims", given->size()),
                      "name each dim once");
  }
  if (!x.shape.has_rank()) return call.Open();
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> axes, call.WrapDims(name, *given, x.shape.rank() + given->size()));
  std::sort(axes.begin(), axes.end());
  Sizes shape = x.shape;
  for (const int64_t axis : axes) Insert(shape.dims(), static_cast<size_t>(axis), 1);
  return SetKept(call, std::move(shape));
}

Status Squeeze(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::string_view name = call.op.FindAttribute("axis") != nullptr ? "axis" : "axes";
  const std::optional<std::vector<int64_t>> given =
      call.Has(name) || name == "axis" ? call.Numbers(name) : std::vector<int64_t>();
  if (!x.shape.has_rank() || !given.has_value()) return call.Open();
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, call.WrapDims(name, *given, x.shape.rank()));
  Sizes shape;
  for (size_t d = 0; d < x.shape.rank(); ++d) {
    const Dim& size = x.shape[d];
    const bool is_named = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    if (is_named && !size.is_unknown() && !call.facts->Unify(size, 1)) {
      return call.Wrong(name, fmt::format("names dim {} of {}, which is not 1", d, x.shape.text()),
                        "name dims of size 1 only, or none for all of them");
    }
    if (axes.empty() && size.is_unknown()) return call.Open();  // one dim more or less
    if (!is_named && !(axes.empty() && size.Is(1))) shape.dims().push_back(size);
  }
  return SetKept(call, std::move(shape));
}

Status Flatten(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  REPRISE_ASSIGN_OR_RETURN(const int64_t first, call.WrapDim("axis", call.Int("axis"), rank));
  REPRISE_ASSIGN_OR_RETURN(const int64_t last, call.WrapDim("end_axis", call.Int("end_axis"), rank));
  if (first > last) {
    return call.WrongAttribute("axis", fmt::format("is {}, behind end_axis {}", first, last),
                               "let axis be the first of the dims to join");
  }
  if (rank == 0) return call.SetRest(Sizes{1});
  const auto from = static_cast<size_t>(first);
  const auto to = static_cast<size_t>(last) + 1;
  std::vector<Dim> dims = Part(x.shape, 0, from);
  dims.push_back(Sizes(Part(x.shape, from, to)).elements());
  Append(dims, Part(x.shape, to, rank));
  return SetKept(call, Sizes(std::move(dims)));
}

// The order of the dims: input perm, or attribute perm or order.
Status Transpose(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::string_view name = call.op.FindAttribute("order") != nullptr ? "order" : "perm";
  std::vector<int64_t> given;
  if (call.op.FindAttribute(name) != nullptr) {
    given = call.Ints(name);
  } else if (const auto numbers = call.Numbers(name); numbers.has_value()) {
    given = *numbers;
  } else {
    return call.SetRest(x.shape.has_rank() ? Sizes::Unknown(x.shape.rank()) : UnknownSizes(call.In(name)));
  }
  if (!x.shape.has_rank()) return call.SetRest(Sizes::Unknown(given.size()));
  if (given.size() != x.shape.rank()) {
    return call.Wrong(name, fmt::format("is {}, but {} has {} dims", TextOf(given), x.name, x.shape.rank()),
                      "name each dim once");
  }
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> perm, call.WrapDims(name, given, x.shape.rank()));
  Sizes shape;
  for (const int64_t dim : perm) shape.dims().push_back(x.shape[static_cast<size_t>(dim)]);
  return call.SetRest(shape);
}

Status Reverse(InferContext& call) {  // rule
  const Sizes& x = call.First().shape;
  const std::optional<std::vector<int64_t>> axes = call.Numbers("axis");
  if (x.has_rank() && axes.has_value()) REPRISE_RETURN_IF_ERROR(call.WrapDims("axis", *axes, x.rank()).status());
  return call.SetRest(x);
}

// ---- Joining and splitting ----

namespace {

// The joined dim counted from the front; nothing where it is not known.
StatusOr<std::optional<size_t>> JoinDim(const InferContext& call, bool is_pack, size_t rank) {
  const std::string_view name = is_pack ? "axis" : "concat_dim";
  REPRISE_ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.Number(name));
  if (!given.has_value()) return std::optional<size_t>();
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.WrapDim(name, *given, rank + (is_pack ? 1 : 0)));
  return std::optional<size_t>(static_cast<size_t>(dim));
}

// Adds the sizes of one tensor to those of the result.
Status JoinOne(const InferContext& call, const InferTensor& input, const InferTensor& first, bool is_pack, size_t dim,
               Sizes* shape) {
  bool fits = input.shape.rank() == first.shape.rank();
  for (size_t d = 0; fits && d < input.shape.rank(); ++d) {
    if (!is_pack && d == dim) continue;
    Dim& size = (*shape)[d + (is_pack && d >= dim ? 1 : 0)];
    fits = call.facts->Unify(input.shape[d], size);
    size = Known(size, input.shape[d]);
  }
  if (!fits) {
    return call.WrongInput(input,
                           fmt::format("has the shape {}, which cannot be joined to {} along dim {}",
                                       input.shape.text(), first.shape.text(), dim),
                           "tensors to be joined differ in the joined dim only");
  }
  const Dim more = is_pack ? Dim(1) : input.shape[dim];
  Dim& total = (*shape)[dim];
  const bool was_known = !total.is_unknown() && !more.is_unknown();
  total = total + more;
  if (!was_known || !total.is_unknown()) return {};
  return call.WrongInput(input, "makes the joined dim larger than 64 bits hold",
                         "create the descriptors with the shapes of the data");
}

// Lists of numbers that are joined to one.
void JoinValues(InferContext& call, std::span<const InferTensor> list) {
  std::vector<Dim> value;
  for (const InferTensor& input : list) {
    if (!input.value.has_value() || input.shape.rank() > 1) return;
    Append(value, *input.value);
  }
  if (call.Out(0).shape.rank() == 1) call.Out(0).value = std::move(value);
}

}  // namespace

Status Join(InferContext& call) {  // rule
  const std::span<const InferTensor> list = call.List("x");
  const auto count = static_cast<int64_t>(list.size());
  if (call.HasAttribute("N") && call.Int("N") != count) {
    return call.WrongAttribute("N", fmt::format("is {}, but there are {} tensors", call.Int("N"), count),
                               "set N to the number of tensors");
  }
  if (list.empty()) return call.WrongInputs("there are no tensors to join", "pass one at least");
  const bool is_pack = call.op.type == "Pack";
  for (size_t i = 0; i < call.inputs.size() && !is_pack; ++i) {
    if (!call.op.inputs[i].is_list()) continue;
    for (InferTensor& x : call.inputs[i]) {
      if (x.shape.has_rank() && x.shape.rank() == 0) x.shape = {1};  // as torchair joins numbers
    }
  }
  // A tensor of unknown rank has the rank of the others.
  const auto known = std::find_if(list.begin(), list.end(), [](const InferTensor& x) { return x.shape.has_rank(); });
  if (known == list.end()) return call.Open();
  const InferTensor& first = *known;
  REPRISE_ASSIGN_OR_RETURN(const std::optional<size_t> dim, JoinDim(call, is_pack, first.shape.rank()));
  if (!dim.has_value()) return call.SetRest(Sizes::Unknown(first.shape.rank() + (is_pack ? 1 : 0)));
  Sizes shape = first.shape;
  if (is_pack) Insert(shape.dims(), *dim, 0);
  shape[*dim] = 0;
  for (const InferTensor& input : list) {
    if (input.shape.has_rank()) {
      REPRISE_RETURN_IF_ERROR(JoinOne(call, input, first, is_pack, *dim, &shape));
    } else {
      shape[*dim] = is_pack ? shape[*dim] + 1 : Dim::Unknown();
    }
  }
  REPRISE_RETURN_IF_ERROR(call.SetRest(shape));
  JoinValues(call, list);
  return {};
}

Status Split(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const int64_t count = call.Int("num_split");
  constexpr int64_t kMost = 1 << 20;
  if (count < 1 || count > kMost) {
    return call.WrongAttribute("num_split", fmt::format("is {}", count), "set it to the number of parts");
  }
  call.outputs[0].resize(static_cast<size_t>(count));
  for (InferResult& part : call.outputs[0]) part.dtype = x.dtype;
  REPRISE_ASSIGN_OR_RETURN(const std::optional<int64_t> given, call.Number("split_dim"));
  if (!x.shape.has_rank()) return call.Open();
  if (!given.has_value()) return call.SetRest(Sizes::Unknown(x.shape.rank()));
  REPRISE_ASSIGN_OR_RETURN(const int64_t front, call.WrapDim("split_dim", *given, x.shape.rank()));
  const auto dim = static_cast<size_t>(front);
  if (x.shape.rank() == 0) return call.WrongInput(x, "has no dims", "pass a tensor that can be split");
  const std::vector<Dim>* value = call.Value("size_splits");
  std::vector<Dim> sizes = value != nullptr ? *value : std::vector<Dim>(call.outputs[0].size(), Dim::Unknown());
  if (sizes.size() != call.outputs[0].size()) {
    return call.Wrong("size_splits", fmt::format("has {} entries, but num_split is {}", sizes.size(), count),
                      "give the size of each part");
  }
  if (call.op.type == "Split" || call.op.type == "SplitD") {  // equal parts
    if (x.shape[dim].is_number() && x.shape[dim].number() % count != 0) {
      return call.WrongAttribute("num_split",
                                 fmt::format("is {}, but dim {} of {} has {}", count, dim, x.name, x.shape[dim].text()),
                                 "set it to a number that divides the dim");
    }
    std::fill(sizes.begin(), sizes.end(), FloorDiv(x.shape[dim], count));
  }
  Dim total = 0;
  Dim* open = nullptr;
  for (Dim& size : sizes) {
    if (size.Is(-1) && open == nullptr) {
      open = &size;
    } else {
      total = total + size;
    }
  }
  if (open != nullptr) *open = x.shape[dim] - total;
  const bool fits =
      open != nullptr ? !open->is_number() || open->number() >= 0 : call.facts->Unify(total, x.shape[dim]);
  if (!fits || std::any_of(sizes.begin(), sizes.end(), [](const Dim& d) { return d.is_number() && d.number() < 0; })) {
    return call.Wrong("size_splits",
                      fmt::format("is {}, but dim {} of {} has {}", TextOf(*value), dim, x.name, x.shape[dim].text()),
                      "give sizes that add up to the dim; one of them may be -1");
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    Sizes shape = x.shape;
    shape[dim] = sizes[i];
    REPRISE_RETURN_IF_ERROR(call.Set(call.outputs[0][i], std::move(shape)));
  }
  return {};
}

Status Unpack(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const int64_t count = call.Int("num");
  constexpr int64_t kMost = 1 << 20;
  if (count < 0 || count > kMost) {
    return call.WrongAttribute("num", fmt::format("is {}", count), "set it to the size of the dim");
  }
  call.outputs[0].resize(static_cast<size_t>(count));
  for (InferResult& part : call.outputs[0]) part.dtype = x.dtype;
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0) return call.WrongInput(x, "has no dims", "pass a tensor with the dim to take apart");
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, call.WrapDim("axis", call.Int("axis"), x.shape.rank()));
  if (!call.facts->Unify(x.shape[static_cast<size_t>(dim)], count)) {
    return call.WrongAttribute(
        "num",
        fmt::format("is {}, but dim {} of {} has {}", count, dim, x.name, x.shape[static_cast<size_t>(dim)].text()),
        "set it to the size of the dim");
  }
  Sizes shape = x.shape;
  shape.dims().erase(shape.dims().begin() + dim);
  REPRISE_RETURN_IF_ERROR(call.SetRest(shape));
  for (size_t i = 0; shape.rank() == 0 && x.value.has_value() && i < call.outputs[0].size(); ++i) {
    call.outputs[0][i].value = std::vector<Dim>{(*x.value)[i]};
  }
  return {};
}

Status Tile(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::vector<Dim>* value = call.Value("multiples");
  if (!x.shape.has_rank()) return call.Open();
  if (value == nullptr) {
    const Sizes repeats = UnknownSizes(call.In("multiples"));
    if (!repeats.has_rank()) return call.Open();
    return call.SetRest(Sizes::Unknown(std::max(repeats.rank(), x.shape.rank())));
  }
  std::vector<Dim> repeats = *value;
  Sizes shape = x.shape;
  while (shape.rank() < repeats.size()) Insert(shape.dims(), 0, 1);
  while (repeats.size() < shape.rank()) Insert(repeats, 0, 1);
  for (size_t d = 0; d < shape.rank(); ++d) {
    if (repeats[d].is_number() && repeats[d].number() < 0) {
      return call.Wrong("multiples", "is " + TextOf(*value), "repeat 0 times or more");
    }
    shape[d] = shape[d] * repeats[d];
  }
  return call.SetRest(shape);
}

// ---- Borders ----

namespace {

// The sizes with `sign` times the borders added. Paddings are pairs, or all in front before all behind.
Status SetPadded(InferContext& call, int sign) {
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  const std::vector<Dim>* value = call.Value("paddings");
  if (value == nullptr) return call.SetRest(Sizes::Unknown(rank));
  if (value->size() != 2 * rank) {
    return call.WrongInput(call.In("paddings"),
                           fmt::format("has {} numbers, but {} has {} dims", value->size(), x.name, rank),
                           "give two numbers for each dim");
  }
  const bool is_pairs = call.op.FindAttribute("paddings_contiguous") == nullptr || call.Bool("paddings_contiguous");
  Sizes shape = x.shape;
  for (size_t d = 0; d < rank; ++d) {
    const Dim both = is_pairs ? (*value)[2 * d] + (*value)[2 * d + 1] : (*value)[d] + (*value)[rank + d];
    shape[d] = sign > 0 ? shape[d] + both : shape[d] - both;
    if (!shape[d].is_number() || shape[d].number() >= 0) continue;
    return call.WrongInput(
        call.In("paddings"),
        fmt::format("is {}, which leaves nothing of dim {} of {}", TextOf(*value), d, x.shape.text()),
        "take away no more than there is");
  }
  return call.SetRest(shape);
}

}  // namespace

Status Pad(InferContext& call) {  // rule
  return SetPadded(call, 1);
}

Status PadGrad(InferContext& call) {  // rule
  return SetPadded(call, -1);
}

// ---- Slices ----

namespace {

struct SliceBounds {
  Dim begin, end;
  int64_t stride = 1;
  bool from_start = false;  // begin is masked
  bool to_end = false;      // end is masked
};

int64_t Clamped(int64_t place, int64_t size, int64_t stride) {
  if (place < 0) place += size;
  return stride > 0 ? std::clamp<int64_t>(place, 0, size) : std::clamp<int64_t>(place, -1, size - 1);
}

int64_t CountOf(int64_t begin, int64_t end, int64_t stride) {
  const int64_t span = stride > 0 ? end - begin : begin - end;
  const int64_t step = stride > 0 ? stride : -stride;
  return span <= 0 ? 0 : (span + step - 1) / step;
}

// A place from the front, if it lies within the dim whatever the symbols are.
std::optional<Dim> PlaceOf(const Dim& place, const Dim& size, bool is_end) {
  constexpr int64_t kFar = INT32_MAX;
  if (is_end && place.is_number() && place.number() >= kFar) return size;
  const Dim front = place.is_number() && place.number() < 0 ? size + place : place;
  const std::optional<int64_t> least = front.least();
  const std::optional<int64_t> rest = (size - front).least();
  if (least.has_value() && *least >= 0 && rest.has_value() && *rest >= 0) return front;
  return std::nullopt;
}

Dim SlicedSize(const Dim& size, const SliceBounds& slice) {
  if (size.is_number() && (slice.from_start || slice.begin.is_number()) && (slice.to_end || slice.end.is_number())) {
    const bool forward = slice.stride > 0;
    const int64_t n = size.number();
    const int64_t begin = slice.from_start ? (forward ? 0 : n - 1) : Clamped(slice.begin.number(), n, slice.stride);
    const int64_t end = slice.to_end ? (forward ? n : -1) : Clamped(slice.end.number(), n, slice.stride);
    return CountOf(begin, end, slice.stride);
  }
  if (size.is_unknown() || slice.stride < 1) return Dim::Unknown();
  const std::optional<Dim> begin = slice.from_start ? Dim(0) : PlaceOf(slice.begin, size, false);
  const std::optional<Dim> end = slice.to_end ? size : PlaceOf(slice.end, size, true);
  if (!begin.has_value() || !end.has_value()) return Dim::Unknown();
  const Dim span = *end - *begin;
  const std::optional<int64_t> least = span.least();
  if (span.is_number()) return span.number() <= 0 ? Dim(0) : CeilDiv(span, slice.stride);
  return least.has_value() && *least >= 0 ? CeilDiv(span, slice.stride) : Dim::Unknown();
}

struct SliceMasks {
  int64_t begin, end, ellipsis, new_axis, shrink;
};

// The numbers that a slice of a list of numbers takes; `count` is how many.
std::optional<std::vector<Dim>> SlicedValue(const std::vector<Dim>& value, const SliceBounds& slice, const Dim& count) {
  const bool is_known = (slice.from_start || slice.begin.is_number()) && count.is_number();
  if (!is_known) return std::nullopt;
  const auto size = static_cast<int64_t>(value.size());
  const int64_t first =
      slice.from_start ? (slice.stride > 0 ? 0 : size - 1) : Clamped(slice.begin.number(), size, slice.stride);
  std::vector<Dim> out;
  for (int64_t i = 0; i < count.number(); ++i) out.push_back(value[static_cast<size_t>(first + i * slice.stride)]);
  return out;
}

bool PlaceIsIn(const std::vector<Dim>& value, const Dim& place) {
  const auto size = static_cast<int64_t>(value.size());
  return place.number() >= -size && place.number() < size;
}

bool HasBit(int64_t mask, size_t i) { return i < 63 && (mask >> i & 1) != 0; }

// Lists whose values are known have an entry for each slice.
Status CheckSliceCounts(const InferContext& call, size_t count) {
  for (const std::string_view name : {"end", "axes", "strides"}) {
    const std::vector<Dim>* value = call.Value(name);
    if (value == nullptr || value->size() == count) continue;
    return call.Wrong(name, fmt::format("has {} entries, but begin has {}", value->size(), count),
                      "give one entry for each begin");
  }
  return {};
}

}  // namespace

Status StridedSlice(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const SliceMasks masks = {call.Int("begin_mask"), call.Int("end_mask"), call.Int("ellipsis_mask"),
                            call.Int("new_axis_mask"), call.Int("shrink_axis_mask")};
  const bool keeps_rank = masks.new_axis == 0 && masks.shrink == 0;
  const Sizes known_begin = call.Has("begin") ? UnknownSizes(call.In("begin")) : Sizes::UnknownRank();
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  const std::vector<Dim>* begin = call.Value("begin");
  const std::vector<Dim>* end = call.Value("end");
  const size_t count = begin != nullptr ? begin->size() : end != nullptr ? end->size() : known_begin.rank();
  if ((begin == nullptr && end == nullptr && !known_begin.has_rank()) ||
      (call.Has("axes") && !call.Numbers("axes").has_value())) {
    return keeps_rank ? call.SetRest(Sizes::Unknown(rank)) : call.Open();
  }
  REPRISE_RETURN_IF_ERROR(CheckSliceCounts(call, count));
  std::vector<int64_t> axes;
  if (call.Has("axes")) {
    REPRISE_ASSIGN_OR_RETURN(axes, call.WrapDims("axes", *call.Numbers("axes"), rank));
  }
  const std::optional<std::vector<int64_t>> strides = call.Has("strides") || call.op.FindAttribute("strides") != nullptr
                                                          ? call.Numbers("strides")
                                                          : std::vector<int64_t>(count, 1);
  // What each entry says about its dim; dims without an entry stay.
  std::vector<Dim> out;
  std::vector<bool> is_gone(rank, false);
  std::optional<std::vector<Dim>> value;
  Sizes shape = x.shape;
  size_t dim = 0;
  std::vector<std::pair<size_t, size_t>> fresh;  // new dims: in front of which dim, how many
  size_t sliced = 0;
  for (size_t i = 0; i < count; ++i) sliced += HasBit(masks.new_axis, i) || HasBit(masks.ellipsis, i) ? 0 : 1;
  for (size_t i = 0; i < count; ++i) {
    if (axes.empty() && HasBit(masks.ellipsis, i)) {
      dim += rank - std::min(rank, sliced);
      continue;
    }
    if (axes.empty() && HasBit(masks.new_axis, i)) {
      fresh.emplace_back(dim, 1);
      continue;
    }
    const size_t d = axes.empty() ? dim++ : static_cast<size_t>(axes[i]);
    if (d >= rank) {
      return call.Wrong("begin", fmt::format("has {} entries, but {} has {} dims", count, x.name, rank),
                        "give one entry for each dim at most");
    }
    if (HasBit(masks.shrink, i)) {
      is_gone[d] = true;
      const bool has_place = begin != nullptr && (*begin)[i].is_number() && x.value.has_value() && rank == 1;
      if (has_place)
        value = SlicedValue(*x.value, {(*begin)[i], 0, 1, false, false}, PlaceIsIn(*x.value, (*begin)[i]) ? 1 : 0);
      continue;
    }
    if (strides.has_value() && (*strides)[i] == 0) {
      return call.Wrong("strides", fmt::format("is {}", TextOf(*strides)), "use strides other than 0");
    }
    const bool is_known =
        strides.has_value() && (begin != nullptr || HasBit(masks.begin, i)) && (end != nullptr || HasBit(masks.end, i));
    if (!is_known) {
      shape[d] = Dim::Unknown();
      continue;
    }
    const SliceBounds slice = {begin != nullptr ? (*begin)[i] : Dim(), end != nullptr ? (*end)[i] : Dim(),
                               (*strides)[i], HasBit(masks.begin, i), HasBit(masks.end, i)};
    shape[d] = SlicedSize(x.shape[d], slice);
    if (x.value.has_value() && rank == 1) value = SlicedValue(*x.value, slice, shape[d]);
  }
  for (size_t d = 0; d <= rank; ++d) {
    for (const auto& entry : fresh) {
      if (entry.first == d) out.emplace_back(1);
    }
    if (d < rank && !is_gone[d]) out.push_back(shape[d]);
  }
  if (fresh.empty()) call.Out(0).value = std::move(value);
  return call.SetRest(Sizes(std::move(out)));
}

}  // namespace reprise::opdef::infer
