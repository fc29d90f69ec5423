// SPDX-License-Identifier: Apache-2.0
//
// Serialised models, made without protobuf: a process must not hold one release of it twice, and numbers of fields are
// written down here a second time.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::testing {

/// The bytes of a message, field by field in the order of the calls.
class Message {
 public:
  Message& Int(int field, int64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    return Varint(static_cast<uint64_t>(value));
  }
  Message& Float(int field, float value) {
    Varint(static_cast<uint64_t>(field) << 3 | 5);
    char raw[4];
    std::memcpy(raw, &value, 4);
    bytes_.append(raw, 4);
    return *this;
  }
  Message& Bytes(int field, std::string_view value) {
    Varint(static_cast<uint64_t>(field) << 3 | 2);
    Varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& Sub(int field, const Message& value) { return Bytes(field, value.bytes_); }
  /// A repeated field of numbers.
  Message& Ints(int field, const std::vector<int64_t>& values) {
    Message packed;
    for (const int64_t value : values) packed.Varint(static_cast<uint64_t>(value));
    return values.empty() ? *this : Sub(field, packed);
  }
  Message& Floats(int field, const std::vector<float>& values) {
    return Bytes(field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  /// The fields of another message.
  Message& Raw(const Message& fields) {
    bytes_ += fields.bytes_;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Message& Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  std::string bytes_;
};

/// Entries of a map in the order of its keys.
using Attrs = std::map<std::string, Message>;
inline void AddAttrs(const Attrs& attrs, int field, Message& message) {
  for (const auto& [name, attr] : attrs) message.Sub(field, Message().Bytes(1, name).Sub(2, attr));
}

// Values of attributes.
inline Message IntAttr(int64_t value) { return Message().Int(3, value); }
inline Message BoolAttr(bool value) { return Message().Int(5, value ? 1 : 0); }
inline Message FloatAttr(float value) { return Message().Float(4, value); }
inline Message TextAttr(std::string_view value) { return Message().Bytes(2, value); }
inline Message TypeAttr(int64_t value) { return Message().Int(15, value); }
inline Message IntsAttr(const std::vector<int64_t>& values) {
  return Message().Sub(1, Message().Ints(3, values).Int(20, 2));
}

// Types, as models number them.
inline constexpr int kProtoFloat = 1;
inline constexpr int kProtoInt32 = 7;
inline constexpr int kProtoInt64 = 8;

struct Desc {
  std::string name;
  int type = 0;
  std::vector<int64_t> dims = {};
  Attrs attrs = {};
  Message more = {};  ///< fields behind those

  Message message() const {
    Message out;
    if (!name.empty()) out.Bytes(1, name);
    if (type != 0) out.Int(2, type);
    if (!dims.empty()) out.Sub(3, Message().Ints(1, dims));
    AddAttrs(attrs, 5, out);
    return out.Raw(more);
  }
};

/// An operator of a model; Set and the like may be chained.
struct ModelOp {
  std::string name;
  std::string type;
  std::vector<std::string> inputs;
  Attrs attrs = {};
  std::vector<Desc> input_descs = {};
  std::vector<Desc> output_descs = {};
  std::vector<std::string> subgraphs = {};

  ModelOp& Set(const std::string& attribute, Message value) {
    attrs[attribute] = std::move(value);
    return *this;
  }
  ModelOp& Output(int output_type, const std::vector<int64_t>& dims, const std::string& output_name = "y") {
    output_descs.push_back({output_name, output_type, dims});
    return *this;
  }
  ModelOp& Calls(const std::string& graph) {
    subgraphs.push_back(graph);
    return *this;
  }
  Message message() const {
    Message out;
    if (!name.empty()) out.Bytes(1, name);
    out.Bytes(2, type);
    for (const std::string& input : inputs) out.Bytes(5, input);
    AddAttrs(attrs, 10, out);
    for (const Desc& desc : input_descs) out.Sub(33, desc.message());
    for (const Desc& desc : output_descs) out.Sub(34, desc.message());
    for (const std::string& graph : subgraphs) out.Bytes(35, graph);
    return out;
  }
};

/// A model, as a front end writes it. Operators go into the graph that was begun last.
class Model {
 public:
  explicit Model(const std::string& name = "main") { NextGraph(name); }

  ModelOp& Op(const std::string& name, const std::string& type, const std::vector<std::string>& inputs,
              const std::vector<std::string>& operands = {}) {
    ModelOp& op = graphs_.back().ops.emplace_back(ModelOp{name, type, inputs});
    for (const std::string& operand : operands) op.input_descs.push_back({operand});
    return op;
  }
  ModelOp& Data(const std::string& name, int64_t index, int type, const std::vector<int64_t>& dims) {
    return Op(name, "Data", {}).Set("index", IntAttr(index)).Output(type, dims);
  }
  /// `shape` is that of the values if none is given.
  ModelOp& Const(const std::string& name, const std::vector<int64_t>& values, std::vector<int64_t> shape = {}) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    const std::string_view raw(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
    const Message tensor = Message().Sub(1, Desc{"", kProtoInt64, shape}.message()).Bytes(2, raw);
    return Op(name, "Const", {}).Set("value", Message().Sub(12, tensor));
  }
  ModelOp& Results(const std::vector<std::string>& inputs) { return Op("results", "NetOutput", inputs); }
  void NextGraph(const std::string& name) { graphs_.push_back({name, {}, {}}); }
  void SetOfGraph(const std::string& attribute, Message value) { graphs_.back().attrs[attribute] = std::move(value); }

  std::string Bytes() const {
    Message model;
    for (const ModelGraph& graph : graphs_) {
      Message out;
      out.Bytes(1, graph.name);
      for (const ModelOp& op : graph.ops) out.Sub(6, op.message());
      AddAttrs(graph.attrs, 11, out);
      model.Sub(7, out);
    }
    return model.bytes();
  }

 private:
  struct ModelGraph {
    std::string name;
    std::deque<ModelOp> ops;
    Attrs attrs;
  };
  std::deque<ModelGraph> graphs_;
};

}  // namespace reprise::testing
