// SPDX-License-Identifier: Apache-2.0
//
// Rules of operators that read and write by index.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {

// Sums of rows of a table, one for each bag.
Status EmbeddingBag(InferContext& call) {  // rule
  const InferTensor& weight = call.In("weight");
  const InferTensor& indices = call.In("indices");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(weight, 2));
  const Dim width = weight.shape.has_rank() ? weight.shape[1] : Dim::Unknown();
  Dim bags = Dim::Unknown();
  if (call.Has("offsets") && call.In("offsets").shape.has_rank()) {
    REPRISE_RETURN_IF_ERROR(call.ExpectRank(call.In("offsets"), 1));
    bags = call.In("offsets").shape[0] - (call.Bool("include_last_offset") ? 1 : 0);
  } else if (!call.Has("offsets") && indices.shape.has_rank()) {
    REPRISE_RETURN_IF_ERROR(call.ExpectRank(indices, 2));
    bags = indices.shape[0];
  }
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("y"), Sizes{bags, width}));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("offset2bag"), Sizes{indices.shape.elements()}));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("bag_size"), Sizes{bags}));
  return call.Set(call.Out("max_indices"), call.Text("mode") == "max" ? Sizes{bags, width} : Sizes{bags});
}

Status EmbeddingGrad(InferContext& call) {  // rule
  const InferTensor& grad = call.In("grad");
  if (call.Int("num_weights") < 0) {
    return call.WrongAttribute("num_weights", fmt::format("is {}", call.Int("num_weights")),
                               "set it to the rows of the table");
  }
  const bool has_width = grad.shape.has_rank() && grad.shape.rank() != 0;
  return call.SetRest(Sizes{call.Int("num_weights"), has_width ? grad.shape.back() : Dim::Unknown()});
}

// x[.., indices, ..] in the place of dim axis; the first batch_dims dims of both are one.
Status Gather(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& indices = call.In("indices");
  const int64_t batch_dims = call.op.FindAttribute("batch_dims") != nullptr ? call.Int("batch_dims") : 0;
  const bool has_axis = call.Has("axis") || call.op.FindAttribute("axis") != nullptr;
  std::optional<int64_t> given = batch_dims;
  if (has_axis) {
    REPRISE_ASSIGN_OR_RETURN(given, call.Number("axis"));
  }
  if (!x.shape.has_rank() || !indices.shape.has_rank()) return call.Open();
  if (x.shape.rank() == 0) return call.WrongInput(x, "has no dims", "pass a tensor with a dim to gather along");
  const int64_t wrapped = batch_dims < 0 ? batch_dims + static_cast<int64_t>(indices.shape.rank()) : batch_dims;
  const auto limit = static_cast<int64_t>(std::min(x.shape.rank() - 1, indices.shape.rank()));
  if (wrapped < 0 || wrapped > limit) {
    return call.WrongAttribute("batch_dims", fmt::format("is {}, expected 0 to {}", batch_dims, limit),
                               "count the dims in front that both have");
  }
  const auto batch = static_cast<size_t>(wrapped);
  if (!given.has_value()) return call.SetRest(Sizes::Unknown(x.shape.rank() - 1 + indices.shape.rank() - batch));
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis,
                           has_axis ? call.WrapDim("axis", *given, x.shape.rank()) : StatusOr<int64_t>(wrapped));
  const auto dim = static_cast<size_t>(axis);
  if (dim < batch) {
    return call.WrongAttribute("batch_dims", fmt::format("is {}, but axis is {}", batch, axis),
                               "gather behind the batch");
  }
  for (size_t d = 0; d < batch; ++d) {
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(indices, indices.shape[d], x.shape[d], fmt::format("dim {}", d)));
  }
  std::vector<Dim> dims = Part(x.shape, 0, dim);
  Append(dims, Part(indices.shape, batch, indices.shape.rank()));
  Append(dims, Part(x.shape, dim + 1, x.shape.rank()));
  REPRISE_RETURN_IF_ERROR(call.SetRest(Sizes(std::move(dims))));
  // Elements of a list of numbers, as sizes are taken from shapes.
  const std::optional<std::vector<int64_t>> places = call.Numbers("indices");
  if (!x.value.has_value() || !places.has_value() || x.shape.rank() != 1 || indices.shape.rank() > 1) return {};
  std::vector<Dim> value;
  for (const int64_t place : *places) {
    const auto count = static_cast<int64_t>(x.value->size());
    const int64_t front = place < 0 ? place + count : place;
    if (front < 0 || front >= count) return {};
    value.push_back((*x.value)[static_cast<size_t>(front)]);
  }
  call.Out(0).value = std::move(value);
  return {};
}

Status GatherElements(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& index = call.In("index");
  if (x.shape.has_rank() && index.shape.has_rank()) {
    REPRISE_RETURN_IF_ERROR(call.WrapDim("dim", call.Int("dim"), x.shape.rank()).status());
    REPRISE_RETURN_IF_ERROR(call.ExpectRank(index, x.shape.rank()));
  }
  return call.SetRest(index.shape);
}

// Advanced indexing: the broadcast indices stand in the place of the indexed dims where those follow each other, and in
// front of all dims where they do not.
Status IndexByTensor(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const std::span<const InferTensor> indices = call.List("indices");
  const std::vector<int64_t> mask = call.Ints("indices_mask");
  std::vector<size_t> indexed;
  for (size_t d = 0; d < mask.size(); ++d) {
    if (mask[d] != 0) indexed.push_back(d);
  }
  if (indexed.size() != indices.size() || indices.empty()) {
    return call.WrongAttribute("indices_mask",
                               fmt::format("is {}, but there are {} tensors of indices", TextOf(mask), indices.size()),
                               "set 1 for each dim that has a tensor");
  }
  Sizes places = indices[0].shape;
  for (const InferTensor& index : indices) REPRISE_RETURN_IF_ERROR(call.BroadcastWith(index, &places));
  if (!x.shape.has_rank() || !places.has_rank()) return call.Open();
  if (indexed.back() >= x.shape.rank()) {
    return call.WrongAttribute("indices_mask",
                               fmt::format("is {}, but {} has {} dims", TextOf(mask), x.name, x.shape.rank()),
                               "give one entry for each dim at most");
  }
  const bool is_block = indexed.back() - indexed.front() + 1 == indexed.size();
  std::vector<Dim> dims;
  for (size_t d = 0; d < x.shape.rank(); ++d) {
    if (d == indexed.front() && is_block) Append(dims, places.dims());
    if (std::find(indexed.begin(), indexed.end(), d) == indexed.end()) dims.push_back(x.shape[d]);
  }
  if (!is_block) dims.insert(dims.begin(), places.dims().begin(), places.dims().end());
  return call.SetRest(Sizes(std::move(dims)));
}

}  // namespace reprise::opdef::infer
