// SPDX-License-Identifier: Apache-2.0
//
// Graphs from text. One reader for the words of a line, one for the lines of the graphs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>

#include "compiler/constant.h"
#include "compiler/text.h"
#include "kernels/dtype.h"

namespace reprise::compiler {
namespace {

using opdef::AttributeValue;
using opdef::Dim;

constexpr int kMostNested = 64;

// The number of a type by its name; -1 for "?", nothing for other words.
std::optional<int32_t> TypeOfName(std::string_view name) {
  if (name == "?") return -1;
  for (int32_t type = 0; type < 64; ++type) {
    if (opdef::TypeName(type) == name) return type;
  }
  return std::nullopt;
}

/// The words of one line.
class Line {
 public:
  Line(std::string_view text, size_t number) : text_(text), number_(number) {}

  Status Wrong(std::string_view what) const {
    return Error(kInvalidArgument, fmt::format("line {}: {}", number_, what))
        .Culprit(fmt::format("\"{}\"", text_))
        .Hint(fmt::format(
            "mend it at column {}: name = Type(x = node:0) {{attribute = 1}} after (node) : y float32 [2]", at_ + 1));
  }

  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool IsAtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }
  bool Sees(std::string_view mark) {
    SkipBlanks();
    return text_.substr(at_).starts_with(mark);
  }
  bool Take(std::string_view mark) {
    if (!Sees(mark)) return false;
    at_ += mark.size();
    return true;
  }
  bool TakeWord(std::string_view word) {
    const size_t from = at_;
    if (Word() == word) return true;
    at_ = from;
    return false;
  }
  // Up to a blank or a mark; a colon is part of it unless a blank stands before it.
  std::string_view Word() {
    SkipBlanks();
    const size_t from = at_;
    while (at_ < text_.size() && std::string_view(" \t=(){}[],\"").find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(from, at_ - from);
  }
  Status Expect(std::string_view mark) { return Take(mark) ? Status() : Wrong(fmt::format("\"{}\" is missing", mark)); }
  std::string_view rest() {
    SkipBlanks();
    return text_.substr(std::exchange(at_, text_.size()));
  }

  // ---- Shapes ----

  StatusOr<opdef::Shape> Shape() {
    REPRISE_RETURN_IF_ERROR(Expect("["));
    if (Take("..")) {
      REPRISE_RETURN_IF_ERROR(Expect("]"));
      return opdef::Shape::UnknownRank();
    }
    std::vector<Dim> dims;
    while (!Take("]")) {
      if (!dims.empty()) REPRISE_RETURN_IF_ERROR(Expect(","));
      REPRISE_ASSIGN_OR_RETURN(Dim dim, Sum(0));
      dims.push_back(std::move(dim));
    }
    return opdef::Shape(std::move(dims));
  }

  // ---- Values of attributes ----

  StatusOr<AttributeValue> Value(std::optional<opdef::AttributeKind> kind) {
    if (Take("[")) return List(kind);
    if (Sees("\"")) {
      REPRISE_ASSIGN_OR_RETURN(std::string text, Quoted());
      if (kind == opdef::AttributeKind::kFloat) return AttributeValue(std::strtof(text.c_str(), nullptr));
      return AttributeValue(std::move(text));
    }
    const std::string word(Word());
    if (word == "true") return AttributeValue(true);
    if (word == "false") return AttributeValue(false);
    int64_t integer = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), integer);
    if (error == std::errc() && stop == word.data() + word.size()) {
      if (kind == opdef::AttributeKind::kFloat) return AttributeValue(static_cast<float>(integer));
      if (kind == opdef::AttributeKind::kType)
        return AttributeValue(opdef::DataTypeValue{static_cast<int32_t>(integer)});
      return AttributeValue(integer);
    }
    if (const auto type = TypeOfName(word); type && *type >= 0) {
      if (kind == opdef::AttributeKind::kInt) return AttributeValue(static_cast<int64_t>(*type));
      return AttributeValue(opdef::DataTypeValue{*type});
    }
    char* end = nullptr;
    const float real = std::strtof(word.c_str(), &end);
    if (!word.empty() && *end == '\0') return AttributeValue(real);
    return Wrong(fmt::format("\"{}\" is no value", word));
  }

 private:
  StatusOr<Dim> Sum(int depth) {
    REPRISE_ASSIGN_OR_RETURN(Dim sum, Product(depth));
    for (;;) {
      const bool is_plus = Take("+");
      if (!is_plus && !Take("-")) return sum;
      REPRISE_ASSIGN_OR_RETURN(const Dim other, Product(depth));
      sum = is_plus ? sum + other : sum - other;
    }
  }
  StatusOr<Dim> Product(int depth) {
    REPRISE_ASSIGN_OR_RETURN(Dim product, Factor(depth));
    for (;;) {
      const bool divides = Take("//");
      if (!divides && !Take("*")) return product;
      REPRISE_ASSIGN_OR_RETURN(const Dim other, Factor(depth));
      product = divides ? opdef::FloorDiv(product, other) : product * other;
    }
  }
  StatusOr<Dim> Factor(int depth) {
    if (depth > kMostNested) return Wrong("a size has too many parentheses");
    if (Take("?")) return Dim::Unknown();
    if (Take("-")) {
      REPRISE_ASSIGN_OR_RETURN(const Dim dim, Factor(depth + 1));
      return Dim(0) - dim;
    }
    if (Take("(")) {
      REPRISE_ASSIGN_OR_RETURN(Dim dim, Sum(depth + 1));
      REPRISE_RETURN_IF_ERROR(Expect(")"));
      return dim;
    }
    const bool is_symbol = Take("s");
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error != std::errc() || (is_symbol && number > 1'000'000)) return Wrong("a size is no number or symbol");
    at_ = static_cast<size_t>(stop - text_.data());
    return is_symbol ? Dim::Symbol(static_cast<int>(number)) : Dim(number);
  }

  StatusOr<std::string> Quoted() {
    std::string text;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        text += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      text += text_[at_] == 'n' ? '\n' : text_[at_] == 't' ? '\t' : text_[at_];
    }
    REPRISE_RETURN_IF_ERROR(Expect("\""));
    return text;
  }

  StatusOr<AttributeValue> List(std::optional<opdef::AttributeKind> kind) {
    std::vector<AttributeValue> values;
    while (!Take("]")) {
      if (!values.empty()) REPRISE_RETURN_IF_ERROR(Expect(","));
      if (Sees("[") && ++depth_ > kMostNested) return Wrong("lists are nested too deeply");
      REPRISE_ASSIGN_OR_RETURN(AttributeValue value, Value(std::nullopt));
      values.push_back(std::move(value));
    }
    if (values.empty() && kind == opdef::AttributeKind::kBools) return AttributeValue(std::vector<bool>());
    if (values.empty()) return AttributeValue(std::vector<int64_t>());
    std::optional<AttributeValue> list;
    const auto collect = [&]<class T>(T) {
      std::vector<T> found;
      for (const AttributeValue& value : values) {
        const T* element = std::get_if<T>(&value);
        if (element == nullptr) return;
        found.push_back(*element);
      }
      list = std::move(found);
    };
    collect(bool());
    collect(int64_t());
    collect(std::string());
    collect(opdef::DataTypeValue());
    collect(std::vector<int64_t>());
    if (list) return std::move(*list);
    std::vector<float> reals;
    for (const AttributeValue& value : values) {
      if (const auto* real = std::get_if<float>(&value)) {
        reals.push_back(*real);
      } else if (const auto* integer = std::get_if<int64_t>(&value)) {
        reals.push_back(static_cast<float>(*integer));
      } else {
        return Wrong("the elements of a list differ in kind");
      }
    }
    return AttributeValue(std::move(reals));
  }

  std::string_view text_;
  size_t number_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// One graph. Names are looked up when all of its lines are there.
struct Draft {
  struct Edge {
    NodeId node;    // kNoNode: the results
    int32_t input;  // -1: an edge of order
    std::string source;
    Line line;
  };
  struct Call {
    NodeId node;
    std::string graph;
    Line line;
  };

  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  std::map<std::string, NodeId, std::less<>> names;
  std::vector<Edge> edges;
  std::vector<Call> calls;
  bool has_return = false;
};

class Reader {
 public:
  StatusOr<std::unique_ptr<Graph>> Read(std::string_view text) {
    for (size_t number = 1; !text.empty(); ++number) {
      const size_t end = std::min(text.find('\n'), text.size());
      Line line(text.substr(0, end), number);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.IsAtEnd() || line.Sees("#")) continue;
      REPRISE_RETURN_IF_ERROR(ReadLine(line));
    }
    if (drafts_.empty()) return Line("", 1).Wrong("there is no graph");
    if (Status status = ConnectAll(); !status.ok()) {
      // Graphs that call each other in a circle would hold each other for ever.
      for (const Draft& draft : drafts_) {
        for (const Draft::Call& call : draft.calls) draft.graph->at(call.node).graphs.clear();
      }
      return status;
    }
    return std::make_unique<Graph>(std::move(*drafts_[0].graph));
  }

 private:
  Status ReadLine(Line& line) {
    if (line.TakeWord("graph")) {
      drafts_.emplace_back().graph->name = line.Word();
      return {};
    }
    if (drafts_.empty()) return line.Wrong("the first line is no \"graph NAME\"");
    Draft& draft = drafts_.back();
    if (draft.has_return) return line.Wrong("a line stands behind the return of its graph");
    if (line.TakeWord("return")) return ReadReturn(line, draft);
    return ReadNode(line, draft);
  }

  Status ReadReturn(Line& line, Draft& draft) {
    draft.has_return = true;
    int32_t count = 0;
    while (!line.IsAtEnd() && !line.TakeWord("after")) {
      if (count > 0) REPRISE_RETURN_IF_ERROR(line.Expect(","));
      draft.edges.push_back({kNoNode, count++, std::string(line.Word()), line});
      if (draft.edges.back().source.empty()) return line.Wrong("a result has no name");
      if (line.TakeWord("after")) return ReadNames(line, draft, kNoNode);
    }
    return line.IsAtEnd() ? Status() : ReadNames(line, draft, kNoNode);
  }

  Status ReadNames(Line& line, Draft& draft, NodeId node) {
    REPRISE_RETURN_IF_ERROR(line.Expect("("));
    for (bool is_first = true; !line.Take(")"); is_first = false) {
      if (!is_first) REPRISE_RETURN_IF_ERROR(line.Expect(","));
      draft.edges.push_back({node, -1, std::string(line.Word()), line});
      if (draft.edges.back().source.empty()) return line.Wrong("a name is missing");
    }
    return {};
  }

  static Status ReadAttributes(Line& line, const Node& node, opdef::Attributes& attributes) {
    REPRISE_RETURN_IF_ERROR(line.Expect("{"));
    for (bool is_first = true; !line.Take("}"); is_first = false) {
      if (!is_first) REPRISE_RETURN_IF_ERROR(line.Expect(","));
      const std::string name(line.Word());
      REPRISE_RETURN_IF_ERROR(line.Expect("="));
      const opdef::AttributeDef* row = node.op != nullptr ? node.op->FindAttribute(name) : nullptr;
      REPRISE_ASSIGN_OR_RETURN(AttributeValue value,
                               line.Value(row != nullptr ? std::optional(row->kind) : std::nullopt));
      attributes.insert_or_assign(name, std::move(value));
    }
    return {};
  }

  Status ReadNode(Line& line, Draft& draft) {
    Node node;
    node.name = line.Word();
    if (node.name.empty()) return line.Wrong("the name of a node is missing");
    REPRISE_RETURN_IF_ERROR(line.Expect("="));
    node.type = line.Word();
    if (node.type.empty()) return line.Wrong("the type of the node is missing");
    node.kind = KindOfType(node.type);
    node.op = opdef::FindGraphOp(node.type);
    const auto id = static_cast<NodeId>(draft.graph->nodes.size());
    REPRISE_RETURN_IF_ERROR(ReadInputs(line, draft, id, node));
    if (line.Sees("{")) REPRISE_RETURN_IF_ERROR(ReadAttributes(line, node, node.attributes));
    if (line.TakeWord("notes")) REPRISE_RETURN_IF_ERROR(ReadAttributes(line, node, node.notes));
    if (line.TakeWord("calls")) {
      REPRISE_RETURN_IF_ERROR(line.Expect("("));
      for (bool is_first = true; !line.Take(")"); is_first = false) {
        if (!is_first) REPRISE_RETURN_IF_ERROR(line.Expect(","));
        draft.calls.push_back({id, std::string(line.Word()), line});
        if (draft.calls.back().graph.empty()) return line.Wrong("a name is missing");
      }
    }
    if (line.TakeWord("after")) REPRISE_RETURN_IF_ERROR(ReadNames(line, draft, id));
    if (line.Take(":")) REPRISE_RETURN_IF_ERROR(ReadOutputs(line, node));
    if (node.kind == NodeKind::kConstant) REPRISE_RETURN_IF_ERROR(ReadConstant(line, node));
    if (!line.IsAtEnd()) return line.Wrong("something follows that belongs to no node");
    if (node.kind == NodeKind::kData) draft.graph->inputs.push_back(id);
    if (node.kind == NodeKind::kData && node.outputs.empty()) node.outputs.push_back({"y", {}});
    if (node.kind == NodeKind::kOperator && node.op != nullptr && node.outputs.empty()) AddOutputs(node);
    if (!draft.names.emplace(node.name, id).second) return line.Wrong("another node has this name");
    draft.graph->nodes.push_back(std::move(node));
    return {};
  }

  static Status ReadInputs(Line& line, Draft& draft, NodeId id, Node& node) {
    REPRISE_RETURN_IF_ERROR(line.Expect("("));
    for (bool is_first = true; !line.Take(")"); is_first = false) {
      if (!is_first) REPRISE_RETURN_IF_ERROR(line.Expect(","));
      std::string source(line.Word());
      std::string name;
      if (line.Take("=")) {
        name = std::move(source);
        source = line.Word();
      }
      if (source.empty()) return line.Wrong("an input has no source");
      draft.edges.push_back({id, static_cast<int32_t>(node.inputs.size()), std::move(source), line});
      node.inputs.push_back({std::move(name), {}});
    }
    return {};
  }

  static Status ReadOutputs(Line& line, Node& node) {
    do {
      Output output;
      std::string_view word = line.Word();
      if (line.Sees("[")) {
        output.name = NameOfOutput(node);
      } else {
        output.name = word;
        word = line.Word();
      }
      const auto type = TypeOfName(word);
      if (!type) return line.Wrong(fmt::format("\"{}\" is no type", word));
      output.tensor.dtype = *type;
      REPRISE_ASSIGN_OR_RETURN(output.tensor.shape, line.Shape());
      if (line.TakeWord("format")) {
        REPRISE_ASSIGN_OR_RETURN(const AttributeValue format, line.Value(std::nullopt));
        if (!std::holds_alternative<int64_t>(format)) return line.Wrong("a format is a number");
        output.tensor.format = static_cast<int32_t>(std::get<int64_t>(format));
      }
      node.outputs.push_back(std::move(output));
    } while (line.Take(","));
    return {};
  }

  // Those of the row, which inference fills in. A list has as many as are used.
  static void AddOutputs(Node& node) {
    for (const opdef::Operand& output : node.op->outputs) {
      if (!output.is_list()) node.outputs.push_back({std::string(output.name), {}});
    }
  }
  static void AddListOutputs(Node& node, uint32_t used) {
    constexpr uint32_t kMost = 4096;
    if (node.op == nullptr || used >= kMost) return;
    const auto list =
        std::find_if(node.op->outputs.begin(), node.op->outputs.end(), [](auto& o) { return o.is_list(); });
    if (list == node.op->outputs.end()) return;
    while (node.outputs.size() <= used)
      node.outputs.push_back({fmt::format("{}{}", list->name, node.outputs.size()), {}});
  }

  // By the row; inference names those of lists.
  static std::string NameOfOutput(const Node& node) {
    const size_t index = node.outputs.size();
    if (node.op == nullptr) return index == 0 ? "y" : "";
    if (index >= node.op->outputs.size() || node.op->outputs[index].is_list()) return {};
    return std::string(node.op->outputs[index].name);
  }

  static Status ReadConstant(Line& line, Node& node) {
    if (node.outputs.size() != 1 || !node.outputs[0].tensor.shape.is_static()) {
      return line.Wrong("a constant has one output, of a known shape");
    }
    const Tensor& tensor = node.outputs[0].tensor;
    if (!kernels::IsKnown(static_cast<kernels::DType>(tensor.dtype)) ||
        kernels::CategoryOf(static_cast<kernels::DType>(tensor.dtype)) == kernels::Category::kComplex) {
      return line.Wrong("texts have constants of real numbers, integers and bool only");
    }
    REPRISE_RETURN_IF_ERROR(line.Expect("="));
    std::vector<double> reals;
    std::vector<int64_t> integers;
    bool is_integer = true;
    bool repeats = false;
    while (!line.IsAtEnd()) {
      if (!reals.empty() && line.Take("...")) {
        repeats = true;
        break;
      }
      if (!reals.empty()) REPRISE_RETURN_IF_ERROR(line.Expect(","));
      const std::string word(line.Word());
      char* end = nullptr;
      reals.push_back(word == "true" ? 1 : word == "false" ? 0 : std::strtod(word.c_str(), &end));
      if (word.empty() || (end != nullptr && *end != '\0')) return line.Wrong("an element is no number");
      int64_t integer = 0;
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), integer);
      is_integer = is_integer && error == std::errc() && stop == word.data() + word.size();
      integers.push_back(integer);
    }
    const Dim count = tensor.shape.elements();
    if (!count.is_number() || count.number() < 0 || count.number() > (1 << 26)) return line.Wrong("it is too large");
    const auto elements = static_cast<size_t>(count.number());
    if (repeats && elements > reals.size()) {
      reals.resize(elements, reals.back());
      integers.resize(elements, integers.back());
    }
    if (reals.size() != elements) {
      return line.Wrong(fmt::format("the shape has {} elements, {} are there", elements, reals.size()));
    }
    node.constant = is_integer ? MakeConstant(tensor.dtype, tensor.shape.numbers(), std::span<const int64_t>(integers))
                               : MakeConstant(tensor.dtype, tensor.shape.numbers(), std::span<const double>(reals));
    return {};
  }

  // ---- Names ----

  static StatusOr<Port> Find(const Draft& draft, const Draft::Edge& edge) {
    if (edge.input >= 0 && edge.source == "nothing" && edge.node != kNoNode) return Port{};
    std::string_view name = edge.source;
    uint32_t output = 0;
    auto found = draft.names.find(name);
    if (const size_t colon = name.rfind(':'); found == draft.names.end() && colon != std::string_view::npos) {
      const char* end = name.data() + name.size();
      const auto [stop, error] = std::from_chars(name.data() + colon + 1, end, output);
      if (error == std::errc() && stop == end) found = draft.names.find(name.substr(0, colon));
    }
    if (found == draft.names.end()) return edge.line.Wrong(fmt::format("the graph has no node {}", edge.source));
    return Port{found->second, output};
  }

  Status Connect(Draft& draft) {
    Graph& graph = *draft.graph;
    size_t results = 0;
    for (const Draft::Edge& edge : draft.edges) results += edge.node == kNoNode && edge.input >= 0 ? 1 : 0;
    graph.results.resize(results);
    for (const Draft::Edge& edge : draft.edges) {
      REPRISE_ASSIGN_OR_RETURN(const Port source, Find(draft, edge));
      const auto index = static_cast<size_t>(edge.input);
      if (source.is_set()) AddListOutputs(graph.at(source.node), source.output);
      if (edge.node == kNoNode) {
        if (edge.input >= 0) {
          graph.results[index] = source;
        } else {
          graph.results_after.push_back(source.node);
        }
      } else if (edge.input >= 0) {
        graph.at(edge.node).inputs[index].source = source;
      } else {
        graph.at(edge.node).after.push_back(source.node);
      }
    }
    for (const Draft::Call& call : draft.calls) {
      const auto found = std::find_if(drafts_.begin(), drafts_.end(),
                                      [&](const Draft& other) { return other.graph->name == call.graph; });
      if (found == drafts_.end()) return call.line.Wrong(fmt::format("there is no graph {}", call.graph));
      graph.at(call.node).graphs.push_back(found->graph);
    }
    return {};
  }

  Status ConnectAll() {
    for (Draft& draft : drafts_) REPRISE_RETURN_IF_ERROR(Connect(draft));
    return CheckCalls();
  }

  // None calls itself, through others or not: graphs that call only checked ones are checked, until there are no more.
  Status CheckCalls() const {
    std::map<const Graph*, size_t> waits;
    std::map<const Graph*, std::vector<const Graph*>> callers;
    std::vector<const Graph*> ready;
    for (const Draft& draft : drafts_) {
      for (const Draft::Call& call : draft.calls) {
        for (const auto& inner : draft.graph->at(call.node).graphs) callers[inner.get()].push_back(draft.graph.get());
        waits[draft.graph.get()] += draft.graph->at(call.node).graphs.size();
      }
      if (draft.calls.empty()) ready.push_back(draft.graph.get());
    }
    size_t checked = 0;
    for (; checked < ready.size(); ++checked) {
      for (const Graph* caller : std::vector<const Graph*>(callers[ready[checked]])) {
        if (--waits[caller] == 0) ready.push_back(caller);
      }
    }
    for (const Draft& draft : drafts_) {
      if (std::find(ready.begin(), ready.end(), draft.graph.get()) != ready.end()) continue;
      return draft.calls[0].line.Wrong(fmt::format("the graph {} calls itself, or one that does", draft.graph->name));
    }
    return {};
  }

  std::vector<Draft> drafts_;
};

}  // namespace

StatusOr<std::unique_ptr<Graph>> FromText(std::string_view text) { return Reader().Read(text); }

}  // namespace reprise::compiler
