// SPDX-License-Identifier: Apache-2.0
//
// Steps of an LSTM or GRU, as front ends write them out one by one, into one operator for all of them.
//
// A cell is what one step computes from the states before it and from its share of the input part, a product of the
// whole input. Cells are found from their last node, the hidden state; those that take the states of one another are a
// chain. A chain that takes all shares of one tensor in their order is a layer.
#include <algorithm>
#include <map>
#include <unordered_set>

#include "compiler/constant.h"
#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

// ---- Cells ----

// x times a weight, rows behind rows, with a bias.
struct Linear {
  Port x, weight, bias;
  bool is_transposed = false;  // the weight has a row for each result
  bool is_reversed = false;    // the rows of x, last dim but one of three, come from behind

  bool HasParams(const Linear& other) const {
    return weight == other.weight && bias == other.bias && is_transposed == other.is_transposed;
  }
};

struct Cell {
  Port h, c;  // c: LSTM
  Port h_before, c_before;
  Linear hidden;
  Port share;  // of the input part
  std::vector<NodeId> inner;
  std::vector<NodeId> views;  // between h_before and its product
};

using Types = std::initializer_list<std::string_view>;
const Types kSums = {"Add", "AddV2"};
const Types kPacks = {"Pack"};
const Types kConcats = {"ConcatV2", "ConcatV2D", "ConcatD", "Concat"};
const Types kViews = {"Reshape", "Squeeze", "Unsqueeze", "ExpandDims"};

bool IsOneOf(const Node& node, Types types) { return std::find(types.begin(), types.end(), node.type) != types.end(); }

// Walks from one node towards the inputs, and remembers over what.
class Walk {
 public:
  Walk(Rewriter& rewriter, PassContext& context, NodeId root) : match_(rewriter, context, root) { Take(root); }

  const Match& match() const { return match_; }
  const std::vector<NodeId>& inner() const { return inner_; }

  NodeId Maker(Port port, Types types) {
    if (!match_.IsMadeBy(port, types)) return kNoNode;
    Take(port.node);
    return port.node;
  }
  // The operand of the one operator of this type that makes the port; not set where there is none.
  Port Operand(Port port, std::string_view type) {
    const NodeId maker = Maker(port, {type});
    return maker == kNoNode ? Port() : match_.In(maker, "x");
  }
  // Both operands of an operator, in each order, until fn says that it has found what it wants.
  template <class Fn>
  bool Either(Port port, Types types, Fn&& fn) {
    const size_t mark = inner_.size();
    const NodeId maker = Maker(port, types);
    if (maker == kNoNode) return false;
    const auto [first, second] = match_.Both(maker);
    const size_t behind = inner_.size();
    if (fn(first, second)) return true;
    inner_.resize(behind);
    if (fn(second, first)) return true;
    inner_.resize(mark);
    return false;
  }
  // What views show; `over` gets them.
  Port BehindViews(Port port, std::vector<NodeId>& over) const {
    for (; match_.IsMadeBy(port, kViews); port = match_.In(port.node, "x")) over.push_back(port.node);
    return port;
  }

  // Views of a product with the bias inside or added, and the order of its rows.
  bool FindLinear(Port port, Linear& linear) {
    const opdef::Dim width = LastDim(port);
    for (;;) {
      if (!port.is_set() || !AreEqual(LastDim(port), width)) return false;
      if (const NodeId reverse = Maker(port, {"ReverseV2"}); reverse != kNoNode) {
        if (linear.is_reversed || match_.Integers(match_.In(reverse, "axis")) != std::vector<int64_t>{0}) return false;
        if (Rank(port) != 3) return false;
        linear.is_reversed = true;
        port = match_.In(reverse, "x");
      } else if (const NodeId view = Maker(port, kViews); view != kNoNode) {
        port = match_.In(view, "x");
      } else if (match_.IsMadeBy(port, kSums)) {
        if (linear.bias.is_set()) return false;
        const bool is_found = Either(port, kSums, [&](Port rest, Port bias) {
          if (Rank(bias) != 1 || !AreEqual(LastDim(bias), width) || Rank(rest) < 2) return false;
          linear.bias = bias;
          port = rest;
          return true;
        });
        if (!is_found) return false;
      } else {
        return FindProduct(port, linear);
      }
    }
  }

  size_t Rank(Port port) const {
    const opdef::Shape& shape = match_.TensorOf(port).shape;
    return port.is_set() && shape.has_rank() ? shape.rank() : 0;
  }
  opdef::Dim LastDim(Port port) const {
    return Rank(port) == 0 ? opdef::Dim::Unknown() : match_.TensorOf(port).shape[Rank(port) - 1];
  }

 private:
  void Take(NodeId node) { inner_.push_back(node); }

  bool FindProduct(Port port, Linear& linear) {
    const NodeId product = Maker(port, {"MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2"});
    if (product == kNoNode) return false;
    const bool is_batched = match_.graph().at(product).type.starts_with("Batch");
    if (match_.Flag(product, is_batched ? "adj_x1" : "transpose_x1")) return false;
    linear.x = match_.In(product, "x1");
    linear.weight = match_.In(product, "x2");
    linear.is_transposed = match_.Flag(product, is_batched ? "adj_x2" : "transpose_x2");
    if (Rank(linear.weight) != 2) return false;
    if (const Port bias = match_.In(product, "bias"); bias.is_set()) {
      if (linear.bias.is_set() || Rank(bias) != 1) return false;
      linear.bias = bias;
    }
    const Node& maker = match_.graph().at(linear.weight.node);
    if (linear.is_transposed || !match_.IsMadeBy(linear.weight, {"Transpose", "TransposeD"})) return true;
    const auto perm = maker.type == "Transpose" ? match_.Integers(match_.In(linear.weight.node, "perm"))
                                                : match_.Ints(linear.weight.node, "perm");
    if (perm != std::vector<int64_t>{1, 0}) return true;
    linear.weight = match_.In(linear.weight.node, "x");
    linear.is_transposed = true;
    return true;
  }

  Match match_;
  std::vector<NodeId> inner_;
};

// Which of `count` equal parts of the last dim of a tensor a port is.
struct Piece {
  NodeId split = kNoNode;
  int64_t index = 0;
};
std::optional<Piece> PieceOf(const Walk& walk, Port port, size_t count) {
  if (!port.is_set()) return std::nullopt;
  const Match& match = walk.match();
  const Node& split = match.graph().at(port.node);
  if (!IsOneOf(split, {"SplitV", "Split", "SplitVD", "SplitD"}) || split.outputs.size() != count) return std::nullopt;
  const Port x = match.In(port.node, "x");
  const auto rank = static_cast<int64_t>(walk.Rank(x));
  int64_t dim = split.type.ends_with("D") ? match.Int(port.node, "split_dim") : -2;
  if (const auto found = match.Integers(match.In(port.node, "split_dim")); found && found->size() == 1) {
    dim = (*found)[0];
  }
  if (rank == 0 || (dim < 0 ? dim + rank : dim) != rank - 1) return std::nullopt;
  for (const Output& output : split.outputs) {
    const opdef::Shape& shape = output.tensor.shape;
    if (!shape.has_rank() || !AreEqual(shape[shape.rank() - 1], walk.LastDim(port))) return std::nullopt;
  }
  return Piece{port.node, static_cast<int64_t>(port.output)};
}

// h = sigmoid(o) tanh(c); c = sigmoid(f) c' + sigmoid(i) tanh(g); i, f, g, o are parts of share + linear(h').
std::optional<Cell> LstmCellOf(Rewriter& rewriter, PassContext& context, NodeId root) {
  Walk walk(rewriter, context, root);
  const Match& match = walk.match();
  Cell cell;
  cell.h = {root, 0};
  NodeId split = kNoNode;
  const auto is_gate = [&](Port port, int64_t index) {
    const auto piece = PieceOf(walk, port, 4);
    if (!piece || piece->index != index || (split != kNoNode && split != piece->split)) return false;
    split = piece->split;
    return true;
  };
  const bool is_cell = walk.Either({root, 0}, {"Mul"}, [&](Port output, Port state) {
    if (!is_gate(walk.Operand(output, "Sigmoid"), 3)) return false;
    cell.c = walk.Operand(state, "Tanh");
    return walk.Either(cell.c, kSums, [&](Port kept, Port added) {
      return walk.Either(kept, {"Mul"}, [&](Port forget, Port before) {
        cell.c_before = before;
        return is_gate(walk.Operand(forget, "Sigmoid"), 1);
      }) && walk.Either(added, {"Mul"}, [&](Port input, Port candidate) {
        return is_gate(walk.Operand(input, "Sigmoid"), 0) && is_gate(walk.Operand(candidate, "Tanh"), 2);
      });
    });
  });
  if (!is_cell) return std::nullopt;
  const bool is_sum = walk.Either(match.In(split, "x"), kSums, [&](Port product, Port share) {
    cell.share = share;
    cell.hidden = {};
    return walk.FindLinear(product, cell.hidden) && !cell.hidden.is_reversed;
  });
  if (!is_sum) return std::nullopt;
  cell.h_before = walk.BehindViews(cell.hidden.x, cell.views);
  cell.inner = walk.inner();
  cell.inner.push_back(split);
  return cell;
}

// h = (h' - n) z + n; n = tanh(share_n + r hidden_n), r and z = sigmoid(hidden + share), of linear(h') and a share.
std::optional<Cell> GruCellOf(Rewriter& rewriter, PassContext& context, NodeId root) {
  Walk walk(rewriter, context, root);
  const Match& match = walk.match();
  Cell cell;
  cell.h = {root, 0};
  NodeId of_share = kNoNode, of_hidden = kNoNode;
  const auto is_piece = [&](Port port, NodeId& split, int64_t index) {
    const auto piece = PieceOf(walk, port, 3);
    if (!piece || piece->index != index || (split != kNoNode && split != piece->split)) return false;
    split = piece->split;
    return true;
  };
  // The hidden part is found with the candidate, which says which is which.
  const auto is_gate = [&](Port gate, int64_t index) {
    const Port sum = walk.Operand(gate, "Sigmoid");
    return walk.Either(sum, kSums,
                       [&](Port a, Port b) { return is_piece(a, of_hidden, index) && is_piece(b, of_share, index); });
  };
  const bool is_cell = walk.Either({root, 0}, kSums, [&](Port moved, Port fresh) {
    of_share = of_hidden = kNoNode;
    Port reset;
    const Port sum = walk.Operand(fresh, "Tanh");
    const bool is_fresh = walk.Either(sum, kSums, [&](Port share, Port product) {
      of_share = of_hidden = kNoNode;
      return is_piece(share, of_share, 2) && walk.Either(product, {"Mul"}, [&](Port hidden, Port gate) {
        reset = gate;
        of_hidden = kNoNode;
        return is_piece(hidden, of_hidden, 2);
      });
    });
    if (!is_fresh || !is_gate(reset, 0)) return false;
    return walk.Either(moved, {"Mul"}, [&](Port difference, Port update) {
      const NodeId sub = walk.Maker(difference, {"Sub"});
      if (sub == kNoNode || match.In(sub, "x2") != fresh) return false;
      cell.h_before = walk.BehindViews(match.In(sub, "x1"), cell.views);
      return is_gate(update, 1);
    });
  });
  if (!is_cell || !walk.FindLinear(match.In(of_hidden, "x"), cell.hidden) || cell.hidden.is_reversed ||
      walk.BehindViews(cell.hidden.x, cell.views) != cell.h_before) {
    return std::nullopt;
  }
  cell.share = match.In(of_share, "x");
  cell.inner = walk.inner();
  cell.inner.push_back(of_share);
  cell.inner.push_back(of_hidden);
  return cell;
}

// ---- Layers ----

constexpr std::string_view kKept[] = {"_user_stream_label", "_stream_label", "_batch_label", "_force_skip_prune",
                                      "_cannot_be_deleted"};

class Layer {
 public:
  Layer(Rewriter& rewriter, PassContext& context, std::vector<Cell> cells, bool is_lstm)
      : rewriter_(rewriter), context_(context), cells_(std::move(cells)), is_lstm_(is_lstm) {}

  void Fuse() {
    if (!FindInput()) return Refuse("the input part is not one product, of which each step takes its share in order");
    const Tensor& state = graph().TensorOf(cells_.back().h);
    if (!IsSingleOrHalf(state.dtype) || !state.shape.has_rank() || state.shape.rank() < 2 || state.shape.rank() > 3) {
      return Refuse("the states are of a type or shape that the operator does not take");
    }
    is_flat_ = state.shape.rank() == 2;
    if (input_.bias.is_set() != cells_[0].hidden.bias.is_set()) return Refuse("only one of two products has a bias");
    if (!FitsStates()) return Refuse("the states in front of the first step have another shape");
    if (!IsClosed()) return;
    Replace();
  }

 private:
  const Graph& graph() const { return std::as_const(rewriter_).graph(); }
  int64_t steps() const { return static_cast<int64_t>(cells_.size()); }
  void Refuse(std::string_view reason) { context_.Refused(graph().at(cells_.back().h.node), reason); }

  // The product behind the shares.
  bool FindInput() {
    const NodeId split = cells_[0].share.node;
    const Node& shares = graph().at(split);
    Walk walk(rewriter_, context_, split);
    const Match& match = walk.match();
    if (shares.op == nullptr || shares.outputs.size() != cells_.size()) return false;
    if (shares.type == "Unpack") {
      if (match.Int(split, "axis") != 0) return false;
    } else if (!IsOneOf(shares, {"SplitV", "Split"}) ||
               match.Integers(match.In(split, "split_dim")) != std::vector<int64_t>{0}) {
      return false;
    }
    for (size_t t = 0; t < cells_.size(); ++t) {
      if (cells_[t].share != Port{split, static_cast<uint32_t>(t)}) return false;
    }
    whole_ = match.In(split, "x");
    if (walk.Rank(whole_) != 3 || !AreEqual(match.TensorOf(whole_).shape[0], opdef::Dim(steps()))) return false;
    if (!walk.FindLinear(whole_, input_)) return false;
    const size_t rank = walk.Rank(input_.x);
    return rank == 3 ? AreEqual(match.TensorOf(input_.x).shape[0], opdef::Dim(steps())) : rank == 2;
  }

  // [batch, hidden], or with a dim of size 1 in front.
  bool IsState(Port port) const {
    if (!port.is_set()) return false;
    const opdef::Shape& given = graph().TensorOf(port).shape;
    const opdef::Shape& state = graph().TensorOf(cells_.back().h).shape;
    if (!given.has_rank() || given.rank() < 2 || given.rank() > 3) return false;
    if (given.rank() == 3 && !AreEqual(given[0], opdef::Dim(1))) return false;
    if (state.rank() == 3 && !AreEqual(state[0], opdef::Dim(1))) return false;
    for (size_t i = 1; i <= 2; ++i) {
      if (!AreEqual(given[given.rank() - i], state[state.rank() - i])) return false;
    }
    return graph().TensorOf(port).dtype == graph().TensorOf(cells_.back().h).dtype;
  }
  bool FitsStates() const { return IsState(cells_[0].h_before) && (!is_lstm_ || IsState(cells_[0].c_before)); }

  // Whether the parts have no users but each other, states aside, and may go.
  bool IsClosed() {
    std::unordered_set<NodeId> inner;
    for (const Cell& cell : cells_) {
      inner.insert(cell.inner.begin(), cell.inner.end());
      inner.insert(cell.views.begin(), cell.views.end());
    }
    for (size_t t = 0; t < cells_.size(); ++t) {
      std::vector<NodeId> parts = cells_[t].inner;
      // Whoever else looks at the states in front of the first step may.
      if (t != 0) parts.insert(parts.end(), cells_[t].views.begin(), cells_[t].views.end());
      for (const NodeId id : parts) {
        const Node& node = graph().at(id);
        if (!node.after.empty() || !rewriter_.FollowersOf(id).empty() ||
            std::any_of(std::begin(kKept), std::end(kKept),
                        [&](std::string_view name) { return FindNote(node, name) != nullptr; })) {
          Refuse("a part has an order or a place of its own");
          return false;
        }
        for (uint32_t output = 0; output < node.outputs.size(); ++output) {
          const Port port{id, output};
          if (port == cells_[t].h || (t + 1 == cells_.size() && port == cells_[t].c)) continue;
          for (const Use& use : rewriter_.UsesOf(port)) {
            if (!use.is_result() && inner.contains(use.node)) continue;
            Refuse(port == cells_[t].c ? "the cell state of a step has other users" : "a part has other users");
            return false;
          }
        }
      }
    }
    inner_ = std::move(inner);
    return true;
  }

  // ---- The operator ----

  std::string NameOf(std::string_view part) const {
    return graph().at(cells_.back().h.node).name + "_" + std::string(part);
  }

  Port AddIntegers(std::string_view part, const std::vector<int64_t>& values) {
    constexpr int32_t kInt64 = 9;
    const auto constant = MakeConstant(kInt64, {static_cast<int64_t>(values.size())}, values);
    return {rewriter_.AddConstant(NameOf(part), constant), 0};
  }

  Port AddReversed(std::string_view part, Port x) {
    const Tensor tensor = graph().TensorOf(x);
    const Port axis = AddIntegers(std::string(part) + "_axis", {0});
    return {rewriter_.AddOperator(NameOf(part), "ReverseV2", {x, axis}, tensor), 0};
  }

  // Sizes that a Reshape may be told; -1 where it is not known, of which there is one at most.
  Port AddReshape(std::string_view part, Port x, const opdef::Shape& shape) {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < shape.rank(); ++i) sizes.push_back(shape[i].is_number() ? shape[i].number() : -1);
    Tensor tensor = graph().TensorOf(x);
    tensor.shape = shape;
    const Port to = AddIntegers(std::string(part) + "_shape", sizes);
    return {rewriter_.AddOperator(NameOf(part), "Reshape", {x, to}, tensor), 0};
  }

  // A row for each result.
  Port WeightOf(std::string_view part, const Linear& linear) {
    if (linear.is_transposed) return linear.weight;
    Tensor tensor = graph().TensorOf(linear.weight);
    tensor.shape = opdef::Shape({tensor.shape[1], tensor.shape[0]});
    const Port perm = AddIntegers(std::string(part) + "_perm", {1, 0});
    return {rewriter_.AddOperator(NameOf(part), "Transpose", {linear.weight, perm}, tensor), 0};
  }

  void Replace() {
    const opdef::Shape& whole = graph().TensorOf(whole_).shape;
    const opdef::Shape& input = graph().TensorOf(input_.x).shape;
    Port x = input_.x;
    if (input.rank() == 2) x = AddReshape("x", x, opdef::Shape({whole[0], whole[1], input[1]}));
    if (input_.is_reversed) x = AddReversed("x_reversed", x);

    const opdef::Shape& state = graph().TensorOf(cells_.back().h).shape;
    Tensor y = graph().TensorOf(cells_.back().h);
    y.shape = opdef::Shape({whole[0], whole[1], state[state.rank() - 1]});
    Tensor last = y;
    last.shape = opdef::Shape({opdef::Dim(1), y.shape[1], y.shape[2]});

    Node node;
    node.name = NameOf(is_lstm_ ? "lstm" : "gru");
    node.type = is_lstm_ ? "LSTMFused" : "GRUFused";
    node.op = opdef::FindGraphOp(node.type);
    const Linear& hidden = cells_[0].hidden;
    node.inputs = {{"x", x},
                   {"weight_input", WeightOf("weight_input", input_)},
                   {"weight_hidden", WeightOf("weight_hidden", hidden)}};
    if (hidden.bias.is_set()) {
      node.inputs.push_back({"bias_input", input_.bias});
      node.inputs.push_back({"bias_hidden", hidden.bias});
    }
    node.inputs.push_back({"init_h", cells_[0].h_before});
    if (is_lstm_) node.inputs.push_back({"init_c", cells_[0].c_before});
    node.outputs = {{"y", y}, {"last_h", last}};
    if (is_lstm_) node.outputs.push_back({"last_c", last});
    const NodeId layer = rewriter_.Add(std::move(node));

    Connect(layer);
    context_.Changed();
  }

  // Users of the states read the operator; the parts go.
  void Connect(NodeId layer) {
    std::vector<NodeId> unused = {cells_.back().h.node};
    const auto take = [&](const std::vector<Port>& states, Port port) {
      for (const NodeId joined : FindJoined(states)) {
        rewriter_.ReplaceUses({joined, 0}, port);
        unused.push_back(joined);
      }
    };
    std::vector<Port> states;
    for (const Cell& cell : cells_) states.push_back(cell.h);
    take(states, {layer, 0});
    if (cells_.size() > 1) {
      std::reverse(states.begin(), states.end());
      if (!FindJoined(states).empty()) take(states, AddReversed("y_reversed", {layer, 0}));
    }
    for (const NodeId joined : std::vector<NodeId>(unused.begin() + 1, unused.end())) inner_.insert(joined);

    const auto lasting = [&](Port from, uint32_t output) {
      if (!HasOtherUsers(from)) return;
      Port to{layer, output};
      if (is_flat_) to = AddReshape(output == 1 ? "last_h" : "last_c", to, graph().TensorOf(from).shape);
      ReplaceOtherUses(from, to);
    };
    lasting(cells_.back().h, 1);
    if (is_lstm_) lasting(cells_.back().c, 2);
    Port pieces;
    for (size_t t = 0; t + 1 < cells_.size(); ++t) {
      if (!HasOtherUsers(cells_[t].h)) continue;
      if (!pieces.is_set()) pieces = AddPieces({layer, 0});
      ReplaceOtherUses(cells_[t].h, {pieces.node, static_cast<uint32_t>(t)});
    }
    // Those behind others first: what nobody reads any more goes with what it alone needed.
    for (const NodeId id : std::vector<NodeId>(unused.rbegin(), unused.rend())) {
      if (!graph().at(id).is_removed && rewriter_.IsUnused(id)) rewriter_.RemoveWithSources(id);
    }
  }

  bool IsOther(const Use& use) const { return use.is_result() || !inner_.contains(use.node); }
  bool HasOtherUsers(Port port) {
    const std::vector<Use>& uses = rewriter_.UsesOf(port);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return IsOther(use); });
  }
  void ReplaceOtherUses(Port from, Port to) {
    for (const Use& use : std::vector<Use>(rewriter_.UsesOf(from))) {
      if (IsOther(use)) rewriter_.Set(use, to);
    }
  }

  // Nodes that join these along the first dim to [steps, batch, hidden], and nothing else.
  std::vector<NodeId> FindJoined(const std::vector<Port>& states) {
    std::vector<NodeId> joined;
    for (const Use& use : rewriter_.UsesOf(states[0])) {
      if (use.is_result()) continue;
      const Node& node = graph().at(use.node);
      if (!IsOneOf(node, is_flat_ ? kPacks : kConcats)) continue;
      if (node.op == nullptr || FindNote(node, "_cannot_be_deleted") != nullptr) continue;
      const Match match(rewriter_, context_, use.node);
      std::optional<int64_t> dim;
      if (is_flat_) {
        dim = match.Int(use.node, "axis");
      } else if (node.type.ends_with("D")) {
        dim = match.Int(use.node, "concat_dim");
      } else if (const auto found = match.Integers(match.In(use.node, "concat_dim")); found && found->size() == 1) {
        dim = (*found)[0];
      }
      if (dim == 0 && match.List(use.node, "x") == states) joined.push_back(use.node);
    }
    std::sort(joined.begin(), joined.end());
    joined.erase(std::unique(joined.begin(), joined.end()), joined.end());
    return joined;
  }

  // The states of all steps as outputs of one node.
  Port AddPieces(Port y) {
    const Tensor state = graph().TensorOf(cells_[0].h);
    Node node;
    node.name = rewriter_.FreshName(NameOf("states"));
    node.type = is_flat_ ? "Unpack" : "SplitV";
    node.op = opdef::FindGraphOp(node.type);
    node.inputs = {{"x", y}};
    if (is_flat_) {
      node.attributes = {{"axis", int64_t{0}}, {"num", steps()}};
    } else {
      node.inputs.push_back({"size_splits", AddIntegers("states_sizes", std::vector<int64_t>(cells_.size(), 1))});
      node.inputs.push_back({"split_dim", AddIntegers("states_dim", {0})});
      node.attributes = {{"num_split", steps()}};
    }
    for (size_t t = 0; t < cells_.size(); ++t) node.outputs.push_back({"y" + std::to_string(t), state});
    return {rewriter_.Add(std::move(node)), 0};
  }

  Rewriter& rewriter_;
  PassContext& context_;
  const std::vector<Cell> cells_;
  const bool is_lstm_;
  Port whole_;    // the input part of all steps
  Linear input_;  // what makes it
  bool is_flat_ = false;
  std::unordered_set<NodeId> inner_;
};

// ---- The passes ----

Status FuseLayers(Graph& graph, PassContext& context, Types roots,
                  std::optional<Cell> (*find)(Rewriter& rewriter, PassContext& context, NodeId root), bool is_lstm) {
  std::vector<NodeId> candidates;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (!node.is_removed && node.kind == NodeKind::kOperator && node.op != nullptr && IsOneOf(node, roots)) {
      candidates.push_back(id);
    }
  }
  if (candidates.empty()) return {};
  const uint64_t before = context.record->changed;
  Rewriter rewriter(graph);
  std::vector<Cell> cells;
  std::map<NodeId, size_t> by_state;  // cells by the node of their hidden state
  for (const NodeId id : candidates) {
    if (std::optional<Cell> cell = find(rewriter, context, id)) {
      by_state.emplace(id, cells.size());
      cells.push_back(std::move(*cell));
    }
  }
  // The cell that takes the states of each, if there is one only.
  constexpr size_t kNone = ~size_t{0}, kMany = kNone - 1;
  std::vector<size_t> next(cells.size(), kNone);
  std::vector<bool> is_first(cells.size(), true);
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto found = by_state.find(cells[i].h_before.node);
    if (found == by_state.end()) continue;
    const Cell& other = cells[found->second];
    const bool follows = cells[i].h_before == other.h && (!is_lstm || cells[i].c_before == other.c) &&
                         cells[i].hidden.HasParams(other.hidden) && cells[i].share.node == other.share.node;
    if (!follows) continue;
    next[found->second] = next[found->second] == kNone ? i : kMany;
    is_first[i] = false;
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!is_first[i]) continue;
    std::vector<Cell> chain;
    for (size_t at = i; at < kMany; at = next[at]) chain.push_back(cells[at]);
    Layer(rewriter, context, std::move(chain), is_lstm).Fuse();
  }
  return context.record->changed == before ? Status() : InferShapes(graph, context.facts);
}

Status RunLstm(Graph& graph, PassContext& context) { return FuseLayers(graph, context, {"Mul"}, LstmCellOf, true); }
Status RunGru(Graph& graph, PassContext& context) { return FuseLayers(graph, context, kSums, GruCellOf, false); }

constexpr Pass kRecurrentFusions[] = {
    Fusion("LstmFusionPass", RunLstm, "the steps of an LSTM, written out"),
    Fusion("GruFusionPass", RunGru, "the steps of a GRU, written out"),
};

}  // namespace

std::span<const Pass> RecurrentFusions() { return kRecurrentFusions; }

}  // namespace reprise::compiler
