// SPDX-License-Identifier: Apache-2.0
//
// Attributes and descriptions of tensors, from messages and to them.
//
// Reading takes out of a message what a graph has a place for. What is left is kept (Unread); writing begins with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <wire/ge.pb.h>
#include "compiler/graph.h"
#include "opdef/attribute.h"

namespace reprise::compiler {

/// Attributes of nodes that stand elsewhere in a graph.
inline constexpr char kValueAttribute[] = "value";
inline constexpr char kFormatAttribute[] = "format_for_int";

/// Bytes with sorted maps, so that equal messages have equal bytes.
std::string BytesOf(const google::protobuf::MessageLite& message);
/// What is left of a message; one empty text for all of which nothing is.
Unread Keep(const google::protobuf::MessageLite& message);
/// What was kept, or an empty message.
template <class Message>
Message Kept(const Unread& unread) {
  Message message;
  if (unread != nullptr) message.ParseFromString(*unread);
  return message;
}

/// Nothing for kinds that no operator has: tensors, descriptions, graphs, functions.
std::optional<opdef::AttributeValue> AttributeOf(const wire::AttrDef& attr);
wire::AttrDef AttrOf(const opdef::AttributeValue& value);

using AttrMap = google::protobuf::Map<std::string, wire::AttrDef>;
/// Takes out of the map what is written again just so from its value.
void StripAttributes(AttrMap& attrs);
/// Adds attributes to what was kept; of that goes what the graph has had, and has no more.
void WriteAttributes(const opdef::Attributes& attributes, const opdef::Attributes* more, AttrMap& attrs);

Tensor TensorOf(const wire::TensorDescriptor& desc);
/// Whether its type may be nothing but what descriptions begin with. Torchair names the tensors whose types it knows.
bool HasOpenType(const wire::TensorDescriptor& desc);
/// Takes type and shape out of the description, where TensorOf says all of them.
void StripTensor(wire::TensorDescriptor& desc);
/// Writes what the description says otherwise; `completes`: or says nothing of.
void WriteTensor(const Tensor& tensor, bool completes, wire::TensorDescriptor& desc);

}  // namespace reprise::compiler
