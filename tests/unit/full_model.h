// SPDX-License-Identifier: Apache-2.0
//
// A model in which every field of every message is set.
#pragma once

#include <string>
#include <vector>

#include "model_bytes.h"

namespace reprise::testing {

// Every field of a description of a tensor.
inline Message FullDesc(const std::string& name, const Message& groups) {
  Message desc;
  desc.Bytes(1, name).Int(2, kProtoFloat).Sub(3, Message().Ints(1, {2, -1})).Bytes(4, "NCHW");
  desc.Sub(5, Message().Bytes(1, "format_for_int").Sub(2, IntAttr(0)));
  desc.Sub(5,
           Message().Bytes(1, "shape_range").Sub(2, Message().Sub(14, Message().Sub(1, Message().Ints(1, {1, -1})))));
  desc.Sub(6, groups).Int(9, 1).Int(10, 1024).Int(11, 7).Int(12, 1).Int(13, 1).Bytes(14, "NPU").Int(15, 1);
  return desc.Int(16, 2).Int(17, 1).Int(18, 64).Int(19, 3).Bytes(20, "tab").Int(21, 5);
}

// Every group of attributes, with every field.
inline Message FullGroups() {
  const Message other = Message().Sub(1, Message().Bytes(1, "key").Sub(2, Message().Float(3, 0.5F)));
  const Message memory = Message().Int(1, 1).Int(2, 2).Int(3, 3).Int(4, 4).Ints(5, {5, 6}).Bytes(6, "m").Int(7, 8);
  const Message axis = Message()
                           .Int(1, 1)
                           .Bytes(2, "a")
                           .Int(3, 2)
                           .Int(4, 1)
                           .Bytes(5, "s0")
                           .Int(6, 32)
                           .Ints(7, {1})
                           .Int(8, 9)
                           .Int(9, 1)
                           .Int(10, 1);
  const Message check = Message().Bytes(1, "s0 < 4").Bytes(2, "file").Int(3, 12).Bytes(4, "dfx");
  const std::vector<Message> groups = {
      Message().Sub(2, Message().Bytes(1, "n").Bytes(2, "t")),
      Message().Sub(3, Message().Bytes(1, "s0").Bytes(1, "s1").Bytes(2, "v")),
      Message().Sub(4, Message()
                           .Sub(1, Message().Bytes(1, "s0").Int(2, 4))
                           .Sub(2, Message().Int(1, 4).Sub(2, Message().Bytes(1, "s0")))
                           .Sub(3, Message().Bytes(1, "s0").Sub(2, Message().Int(1, 1).Int(2, 2)))
                           .Sub(4, Message().Bytes(1, "s1").Sub(2, Message().Bytes(1, "s0").Int(2, 1)))
                           .Sub(5, check)
                           .Sub(6, check)
                           .Sub(7, Message().Int(1, 1).Int(2, 2))
                           .Int(8, 77)),
      Message().Sub(5, Message().Int(1, 3).Sub(2, axis).Int(3, 1).Bytes(4, "size")),
      Message().Sub(6, Message()
                           .Bytes(1, "n")
                           .Bytes(2, "t")
                           .Sub(3, Message().Int(1, 1).Ints(2, {0, 1}).Int(3, 2).Int(4, 3))
                           .Sub(4, Message().Int(1, 1).Int(2, 2).Int(3, 3))
                           .Sub(5, Message().Sub(1, Message().Bytes(1, "k").Sub(2, IntAttr(1))))
                           .Sub(6, Message().Sub(1, Message().Bytes(1, "8").Int(2, 1)).Sub(2, memory))),
      Message().Sub(7, Message()
                           .Int(1, 1)
                           .Ints(2, {1, 2})
                           .Bytes(3, "r")
                           .Bytes(4, "s")
                           .Ints(5, {3})
                           .Bytes(6, "v")
                           .Sub(7, memory)
                           .Sub(8, Message().Int(1, 1).Int(2, 2).Int(3, 3).Bytes(4, "q"))
                           .Sub(9, Message().Int(1, 1).Bytes(2, "b"))
                           .Sub(10, Message().Int(1, 1).Int(2, 2).Int(3, 3)))};
  Message out = Message().Sub(1, other);
  for (const Message& group : groups) out.Sub(2, group);
  return out;
}

// A value of every kind, and lists of every kind.
inline Attrs FullAttrs() {
  const Message tensor = Message().Sub(1, Desc{"t", kProtoFloat, {1}}.message()).Bytes(2, std::string("\0\0\x80?", 4));
  const Message named = Message().Bytes(1, "f").Sub(2, Message().Bytes(1, "k").Sub(2, IntAttr(1)));
  const Message graph = Message().Bytes(1, "g").Sub(6, ModelOp{"n", "Relu", {"a:0"}}.message());
  const auto list = [](int field, const Message& value, int type) {
    return Message().Sub(1, Message().Sub(field, value).Int(20, type));
  };
  Attrs attrs = {{"s", TextAttr("text")},
                 {"i", IntAttr(-5)},
                 {"zero", IntAttr(0)},
                 {"f", FloatAttr(1.5F)},
                 {"b", BoolAttr(true)},
                 {"bt", Message().Bytes(7, std::string("\0\1", 2))},
                 {"func", Message().Sub(10, named)},
                 {"td", Message().Sub(11, Desc{"d", kProtoInt32, {3}}.message())},
                 {"t", Message().Sub(12, tensor)},
                 {"g", Message().Sub(13, graph)},
                 {"lli", Message().Sub(14, Message().Sub(1, Message().Ints(1, {1, 2})).Sub(1, Message().Ints(1, {3})))},
                 {"dt", TypeAttr(27)},
                 {"llf", Message().Sub(16, Message().Sub(1, Message().Floats(1, {1, 2})))},
                 {"expression", Message().Bytes(17, "s0+1")},
                 {"l_i", IntsAttr({1, -1})},
                 {"l_f", Message().Sub(1, Message().Floats(4, {0.25F}).Int(20, 3))},
                 {"l_b", Message().Sub(1, Message().Ints(5, {1, 0}).Int(20, 4))},
                 {"l_dt", Message().Sub(1, Message().Ints(12, {0, 27}).Int(20, 10))},
                 {"l_none", Message().Sub(1, Message())}};
  attrs["l_s"] = Message().Sub(1, Message().Bytes(2, "a").Bytes(2, "b").Int(20, 1));
  attrs["l_s_untold"] = Message().Sub(1, Message().Bytes(2, "a"));
  attrs["l_bt"] = Message().Sub(1, Message().Bytes(7, "x").Int(20, 5));
  attrs["l_td"] = list(8, Desc{"d", kProtoInt32, {3}}.message(), 6);
  attrs["l_t"] = list(9, tensor, 7);
  attrs["l_g"] = list(10, graph, 8);
  attrs["l_na"] = list(11, named, 9);
  return attrs;
}

// A model in which every field of every message is set; with `unknown`, also one that nobody knows in each.
inline std::string FullModel(bool unknown) {
  const Message extra = unknown ? Message().Int(900, 42).Bytes(901, "later") : Message();
  const Message groups = FullGroups().Raw(extra);
  const Attrs attrs = FullAttrs();
  Message op;
  op.Bytes(1, "n").Bytes(2, "Later");
  for (const char* const input : {"x:-1", "x:0", "", "w:0", "w:-1"}) op.Bytes(5, input);
  AddAttrs(attrs, 10, op);
  op.Sub(11, groups).Int(20, 1).Int(21, 4).Int(22, 2).Bytes(23, "in").Bytes(24, "src").Ints(25, {1}).Bytes(26, "dst");
  op.Ints(27, {0}).Ints(28, {512}).Ints(29, {1024}).Ints(30, {2048}).Ints(31, {64}).Ints(32, {1, 0});
  op.Sub(33, FullDesc("a", groups).Raw(extra)).Sub(33, Desc{"b"}.message()).Sub(33, Desc{"c", 0, {2, -1}}.message());
  op.Sub(34, FullDesc("y", groups).Raw(extra)).Bytes(35, "inner").Raw(extra);
  Message tensor;
  tensor.Sub(1, FullDesc("", groups).Raw(extra)).Bytes(2, std::string(8, 'x')).Raw(extra);
  Message data;
  data.Bytes(1, "x").Bytes(2, "Data").Sub(10, Message().Bytes(1, "index").Sub(2, IntAttr(0)));
  data.Sub(33, FullDesc("x", groups)).Sub(34, FullDesc("y", groups)).Raw(extra);
  Message graph;
  graph.Bytes(1, "main").Bytes(4, "x:0").Bytes(5, "n:0").Sub(6, data);
  graph.Sub(6, ModelOp{"out", "NetOutput", {"n:0", "x:-1"}, {}, {Desc{"input0", kProtoFloat, {2, -1}}}}.message());
  graph.Sub(6, ModelOp{"w", "Variable", {}, attrs, {}, {Desc{"y", kProtoFloat, {2, -1}}}}.message()).Sub(6, op);
  AddAttrs(attrs, 11, graph);
  graph.Sub(12, groups).Raw(extra);
  Message inner;
  inner.Bytes(1, "inner").Sub(6, ModelOp{"a", "Data", {}, {{"index", IntAttr(0)}}}.message());
  const Message unused = Message().Bytes(1, "unused").Sub(6, ModelOp{"k", "NoOp", {}}.message());
  Message model;
  model.Bytes(1, "model").Int(2, 3).Bytes(3, "custom").Sub(7, graph).Sub(7, unused).Sub(7, inner);
  AddAttrs(attrs, 11, model);
  return model.Sub(12, groups).Raw(extra).bytes();
}

}  // namespace reprise::testing
