// SPDX-License-Identifier: Apache-2.0
//
// Rules of products of matrices.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

constexpr int32_t kFloat = 0;
constexpr int32_t kInt8 = 2;
constexpr int32_t kInt32 = 3;

// Whether an operand is to be transposed, by whichever attribute the row has.
bool IsTransposed(const InferContext& call, size_t operand) {
  constexpr std::string_view kNames[2][3] = {{"transpose_x1", "adj_x1", "transpose_x"},
                                             {"transpose_x2", "adj_x2", "transpose_weight"}};
  for (const std::string_view name : kNames[operand]) {
    if (call.op.FindAttribute(name) != nullptr) return call.Bool(name);
  }
  return false;
}

Sizes Transposed(Sizes shape, bool is_transposed) {
  if (is_transposed) std::swap(shape[shape.rank() - 1], shape[shape.rank() - 2]);
  return shape;
}

// A weight of 4-bit numbers comes as int32, too, eight to an element along its rows or its columns: the shape that it
// stands for beside that many rows.
Sizes Unpacked(const InferContext& call, const InferTensor& weight, Sizes shape, const Dim& rows) {
  constexpr int64_t kNumbers = 8;
  if (call.op.type != "WeightQuantBatchMatmulV2" || weight.dtype != kInt32) return shape;
  Dim& first = shape[shape.rank() - 2];
  Dim& last = shape[shape.rank() - 1];
  const bool along_columns = first.is_number() && rows.is_number() && first * kNumbers == rows;
  (along_columns ? first : last) = (along_columns ? first : last) * kNumbers;
  return shape;
}

// Rows and columns of the product behind the broadcast batch. Both shapes have rank 2 or more.
Status MultiplyShapes(InferContext& call, const InferTensor& x1, const InferTensor& x2, const Sizes& first,
                      const Sizes& second, bool is_transposed, Sizes* product) {
  const size_t rank1 = first.rank();
  const size_t rank2 = second.rank();
  if (!call.facts->Unify(first[rank1 - 1], second[rank2 - 2])) {
    return call.WrongInput(x2,
                           fmt::format("is {}, which cannot be multiplied from the right to {}: {} and {}{}",
                                       x2.shape.text(), x1.shape.text(), first[rank1 - 1].text(),
                                       second[rank2 - 2].text(), is_transposed ? " after transposition" : ""),
                           "the last size of x1 must be the last but one of x2; attributes transpose them");
  }
  const std::optional<Sizes> batch =
      opdef::Broadcast(Sizes(Part(first, 0, rank1 - 2)), Sizes(Part(second, 0, rank2 - 2)), *call.facts);
  if (!batch.has_value()) {
    return call.WrongInput(
        x2, fmt::format("is {}, whose batch does not broadcast with {}", x2.shape.text(), x1.shape.text()));
  }
  *product = *batch;
  product->dims().push_back(first[rank1 - 2]);
  product->dims().push_back(second[rank2 - 1]);
  return {};
}

// Types of the products that the rule decides: integers add up in int32, the others keep their type or give float32.
Status SetProductType(InferContext& call, const InferTensor& x1) {
  InferResult& out = call.Out(0);
  if (call.op.outputs[0].source != TypeSource::kRule) return {};
  out.dtype = x1.dtype == kInt8 || x1.dtype == 29 ? kInt32 : x1.dtype;
  const bool widens = out.wanted == kFloat && IsSingleOrHalf(x1.dtype);
  const bool is_quantised = call.op.type == "WeightQuantBatchMatmulV2" && out.wanted == kInt8;
  if (out.wanted == -1 || out.wanted == out.dtype) return {};
  if (!widens && !is_quantised) {
    return call.WrongOutput(0,
                            fmt::format("is {}, but the product of {} is {}", TypeName(out.wanted), TypeName(x1.dtype),
                                        TypeName(out.dtype)),
                            "create the descriptor with the type of the product");
  }
  out.dtype = out.wanted;
  return {};
}

// What MatMul and its kin take beside the operands.
Status CheckExtras(InferContext& call, const InferTensor& x1, const Sizes& product) {
  if (call.op.FindAttribute("offset_x") != nullptr && call.Int("offset_x") != 0) {
    return call.WrongAttribute("offset_x", fmt::format("is {}, only 0 is possible", call.Int("offset_x")),
                               "subtract the offset before the product");
  }
  if (call.Has("offset_w")) return call.WrongInput(call.In("offset_w"), "is not possible here", "leave it out");
  REPRISE_RETURN_IF_ERROR(SetProductType(call, x1));
  if (!call.Has("bias")) return {};
  const InferTensor& bias = call.In("bias");
  const Dim& width = product.back();
  if (bias.shape.has_rank()) {
    const Sizes& shape = bias.shape;
    const bool is_quantised = call.op.FindAttribute("dtype") != nullptr;  // these take one for each matrix, too
    const bool is_row = (shape.rank() == 1 || (shape.rank() == 2 && call.facts->Unify(shape[0], 1)) ||
                         (is_quantised && shape.rank() == 3)) &&
                        call.facts->Unify(shape.back(), width);
    if (!is_row) {
      return call.WrongInput(bias, fmt::format("has the shape {}, expected [{}]", shape.text(), width.text()),
                             "pass one bias for each column of the product");
    }
  }
  const int32_t plain = x1.dtype == kInt8 ? kInt32 : x1.dtype;
  const bool is_plain = call.op.type == "MatMul" || call.op.type == "MatMulV2" || call.op.type == "BatchMatMulV2";
  if (is_plain && bias.dtype != plain && !(bias.dtype == kFloat && IsSingleOrHalf(x1.dtype))) {
    return call.WrongInput(bias, fmt::format("is {}, but the product is {}", TypeName(bias.dtype), TypeName(plain)));
  }
  return {};
}

bool IsMatrixOnly(const InferContext& call) { return call.op.type == "MatMul" || call.op.type == "MatMulV2"; }

Status Product(InferContext& call, Sizes* product) {
  const InferTensor& x1 = call.inputs[0][0];
  const InferTensor& x2 = call.inputs[1][0];
  for (const InferTensor* input : {&x1, &x2}) {
    if (!input->shape.has_rank()) continue;
    if (IsMatrixOnly(call) ? input->shape.rank() == 2 : input->shape.rank() >= 2) continue;
    return call.WrongInput(*input,
                           fmt::format("has the shape {}, expected a matrix{}", input->shape.text(),
                                       IsMatrixOnly(call) ? "" : " or a batch of them"),
                           IsMatrixOnly(call) ? "use BatchMatMulV2 for more dims" : "give it two dims at least");
  }
  if (!x1.shape.has_rank() || !x2.shape.has_rank()) {
    *product = IsMatrixOnly(call) ? Sizes::Unknown(2) : Sizes::UnknownRank();
    return SetProductType(call, x1);
  }
  const bool t1 = IsTransposed(call, 0);
  const bool t2 = IsTransposed(call, 1);
  const Sizes first = Transposed(x1.shape, t1);
  const Sizes second = Unpacked(call, x2, Transposed(x2.shape, t2), first.back());
  REPRISE_RETURN_IF_ERROR(MultiplyShapes(call, x1, x2, first, second, t1 || t2, product));
  return CheckExtras(call, x1, *product);
}

// The last dim replaced, or only it known where the rank is not.
Sizes WithLast(const Sizes& shape, const Dim& last) {
  if (!shape.has_rank() || shape.rank() == 0) return Sizes::UnknownRank();
  Sizes out = shape;
  out.dims().back() = last;
  return out;
}

// Columns of a weight [.., k, n], or [.., n, k] where it is transposed.
Dim Columns(const Sizes& weight, bool is_transposed) {
  if (!weight.has_rank() || weight.rank() < 2) return Dim::Unknown();
  return weight[weight.rank() - (is_transposed ? 2 : 1)];
}

void SetFloatingType(InferResult& out, int32_t own) {
  if (out.dtype != -1) return;
  out.dtype = out.wanted != -1 ? out.wanted : own == kInt8 ? 1 : own;
}

}  // namespace

Status Matmul(InferContext& call) {  // rule
  Sizes product;
  REPRISE_RETURN_IF_ERROR(Product(call, &product));
  return call.SetRest(product);
}

// The product of a batch added up over dims of it.
Status MatmulSum(InferContext& call) {  // rule
  Sizes product;
  REPRISE_RETURN_IF_ERROR(Product(call, &product));
  const std::optional<std::vector<int64_t>> given = call.Numbers("dims");
  if (!product.has_rank() || !given.has_value()) return call.Open();
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> dims, call.WrapDims("dims", *given, product.rank()));
  Sizes out;
  for (size_t d = 0; d < product.rank(); ++d) {
    const bool is_summed = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    if (!is_summed) out.dims().push_back(product[d]);
    if (is_summed && call.Bool("keep_dims")) out.dims().emplace_back(1);
  }
  return call.SetRest(out);
}

// Batches [b, m, k] and [b, k, n] behind permutations of x1 and x2, and one of the result.
Status PermutedMatmul(InferContext& call) {  // rule
  const InferTensor& x1 = call.In("x1");
  const InferTensor& x2 = call.In("x2");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x1, 3));
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(x2, 3));
  InferResult& out = call.Out(0);
  if (out.dtype == -1) out.dtype = out.wanted != -1 ? out.wanted : call.Has("scale") ? kInt8 : x1.dtype;
  if (!x1.shape.has_rank() || !x2.shape.has_rank()) return call.SetRest(Sizes::Unknown(3));
  const auto permuted = [&](const Sizes& shape, std::string_view name, Sizes* result) -> Status {
    const std::vector<int64_t> perm = call.Ints(name);
    *result = shape;
    if (perm.empty()) return {};
    REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> order, call.WrapDims(name, perm, 3));
    if (order.size() != 3) return call.WrongAttribute(name, "is " + TextOf(perm), "name each of the three dims once");
    for (size_t d = 0; d < 3; ++d) (*result)[d] = shape[static_cast<size_t>(order[d])];
    return {};
  };
  Sizes first;
  Sizes second;
  Sizes product;
  Sizes result;
  REPRISE_RETURN_IF_ERROR(permuted(x1.shape, "perm_x1", &first));
  REPRISE_RETURN_IF_ERROR(permuted(x2.shape, "perm_x2", &second));
  REPRISE_RETURN_IF_ERROR(MultiplyShapes(call, x1, x2, first, second, false, &product));
  REPRISE_RETURN_IF_ERROR(permuted(product, "perm_y", &result));
  // Parts of the batch in front, and the matrices of each side by side.
  const int64_t parts = call.Int("batch_split_factor");
  if (parts < 1) {
    return call.WrongAttribute("batch_split_factor", fmt::format("is {}", parts), "set it to 1 or more");
  }
  if (parts > 1) result = Sizes{parts, product[1], FloorDiv(product[0], parts) * product[2]};
  return call.SetRest(result);
}

Status Ffn(InferContext& call) {  // rule
  SetFloatingType(call.Out(0), call.In("x").dtype);
  return call.SetRest(WithLast(call.In("x").shape, Columns(call.In("weight2").shape, false)));
}

// One product for each group. split_item 0 and 1: as many results as groups; 2 and 3: one with the rows of all.
Status GroupedMatmul(InferContext& call) {  // rule
  const std::span<const InferTensor> x = call.List("x");
  const std::span<const InferTensor> weight = call.List("weight");
  if (x.empty() || weight.empty()) return call.WrongInputs("x or weight has no tensors", "pass one of each at least");
  const bool is_transposed = call.Bool("transpose_weight");
  const bool joins = call.Int("split_item") >= 2;
  call.outputs[0].resize(joins ? 1 : std::max(x.size(), weight.size()));
  Dim rows = 0;
  for (size_t i = 0; i < call.outputs[0].size(); ++i) {
    InferResult& out = call.outputs[0][i];
    out.dtype = -1;
    constexpr int32_t kTypes[] = {1, 27, kInt8};  // attribute dtype: float16, bfloat16, int8
    if (x[0].dtype == kInt8) {
      const int64_t number = call.Int("dtype");
      out.dtype = number >= 0 && number < 3 ? kTypes[number] : kInt32;
    }
    SetFloatingType(out, x[0].dtype);
    const InferTensor& own = x[std::min(i, x.size() - 1)];
    const InferTensor& matrix = weight[std::min(i, weight.size() - 1)];
    REPRISE_RETURN_IF_ERROR(call.Set(out, WithLast(own.shape, Columns(matrix.shape, is_transposed))));
  }
  if (!joins) return {};
  for (const InferTensor& part : x) {
    const bool is_known = part.shape.has_rank() && part.shape.rank() == 2;
    rows = rows + (is_known ? part.shape[call.Bool("transpose_x") ? 1 : 0] : Dim::Unknown());
  }
  const Dim columns = Columns(weight[0].shape, is_transposed);
  constexpr int64_t kByDepth = 2;  // groups along k: a product of each
  if (call.Int("group_type") == kByDepth) {
    const Dim groups =
        call.Has("group_list") && call.In("group_list").shape.has_rank() && call.In("group_list").shape.rank() == 1
            ? call.In("group_list").shape[0]
            : Dim::Unknown();
    return call.Set(call.outputs[0][0], Sizes{groups, rows, columns});
  }
  return call.Set(call.outputs[0][0], Sizes{rows, columns});
}

// Rows of x times the weight of their group.
Status GroupedRows(InferContext& call) {  // rule
  const Sizes& x = call.In("x").shape;
  const bool has_w = call.op.FindAttribute("transpose_w") != nullptr;
  const Sizes& weight = call.In(has_w ? "w" : "quantized_weight").shape;
  const Dim columns = Columns(weight, call.Bool(has_w ? "transpose_w" : "transpose_weight"));
  Dim rows = x.has_rank() && x.rank() == 2 ? x[0] : Dim::Unknown();
  if (has_w && call.Int("output_bs") != 0) rows = call.Int("output_bs");
  return call.SetRest(Sizes{rows, columns});
}

// Rows of x times the weight of their group; two halves of the product make one, with a scale for each row.
Status GroupedSwiglu(InferContext& call) {  // rule
  const Sizes& x = call.In("x").shape;
  const std::span<const InferTensor> weight = call.List("weight");
  if (weight.empty()) return call.WrongInputs("weight has no tensors", "pass one at least");
  const Dim rows = x.has_rank() && x.rank() == 2 ? x[0] : Dim::Unknown();
  const Dim columns = Columns(weight[0].shape, call.Bool("transpose_weight"));
  REPRISE_RETURN_IF_ERROR(call.Set(0, Sizes{rows, FloorDiv(columns, 2)}));
  return call.Set(1, Sizes{rows});
}

Status QuantDequant(InferContext& call) {  // rule
  return call.SetRest(
      WithLast(call.In("x").shape, Columns(call.In("quantized_weight").shape, call.Bool("transpose_weight"))));
}

// The dims of x from an axis on are one row of the product.
Status FullyConnection(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const InferTensor& w = call.In("w");
  const int64_t count = call.Int("num_output");
  if (count < 1) return call.WrongAttribute("num_output", fmt::format("is {}", count), "set it to 1 or more");
  if (call.Out(0).dtype == -1) {
    constexpr int32_t kInt8 = 2;
    const int32_t wanted = call.Out(0).wanted;
    call.Out(0).dtype = x.dtype == kInt8 ? 3 : wanted == 0 && IsSingleOrHalf(x.dtype) ? wanted : x.dtype;
  }
  if (!x.shape.has_rank()) return call.Open();
  if (x.shape.rank() < 2) {
    return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass two dims or more");
  }
  REPRISE_ASSIGN_OR_RETURN(const int64_t axis, call.WrapDim("axis", call.Int("axis"), x.shape.rank()));
  const Sizes row(Part(x.shape, static_cast<size_t>(axis), x.shape.rank()));
  if (w.shape.has_rank()) {
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(w, w.shape.elements(), row.elements() * count, "number of elements"));
    if (w.shape.rank() < 2) {
      return call.WrongInput(w, fmt::format("has the shape {}", w.shape.text()), "pass two dims or more");
    }
    const Dim& outputs = call.Bool("transpose") ? w.shape.back() : w.shape[0];
    REPRISE_RETURN_IF_ERROR(call.ExpectEqual(w, outputs, count, "number of outputs"));
  }
  std::vector<Dim> out = Part(x.shape, 0, static_cast<size_t>(axis));
  out.emplace_back(count);
  return call.SetRest(Sizes(std::move(out)));
}

// [.., n, n]
Status SquareMatrices(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  if (rank < 2) return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass matrices [.., n, n]");
  REPRISE_RETURN_IF_ERROR(call.ExpectEqual(x, x.shape[rank - 1], x.shape[rank - 2], "number of columns"));
  return call.SetRest(x.shape);
}

// A number for each matrix [.., n, n].
Status Determinants(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  if (rank < 2) return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass matrices [.., n, n]");
  REPRISE_RETURN_IF_ERROR(call.ExpectEqual(x, x.shape[rank - 1], x.shape[rank - 2], "number of columns"));
  return call.SetRest(Sizes(Part(x.shape, 0, rank - 2)));
}

// [.., m, n] as q and r that share the smaller size, or, in full, m.
Status MatrixQr(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  if (!x.shape.has_rank()) return call.Open();
  const size_t rank = x.shape.rank();
  if (rank < 2) return call.WrongInput(x, fmt::format("has the shape {}", x.shape.text()), "pass matrices [.., m, n]");
  const Dim& rows = x.shape[rank - 2];
  const Dim& columns = x.shape[rank - 1];
  Dim inner = call.Bool("full_matrices") || rows == columns ? rows : Dim::Unknown();
  if (!call.Bool("full_matrices") && rows.is_number() && columns.is_number()) {
    inner = std::min(rows.number(), columns.number());
  }
  Sizes q = x.shape;
  Sizes r = x.shape;
  q[rank - 1] = r[rank - 2] = inner;
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("q"), std::move(q)));
  return call.Set(call.Out("r"), std::move(r));
}

}  // namespace reprise::opdef::infer
