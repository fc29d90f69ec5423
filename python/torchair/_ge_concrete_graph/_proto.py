# SPDX-License-Identifier: Apache-2.0
"""Classes of protobuf messages from tables of their fields."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "ge.proto"
_FIELD = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "float": _FIELD.TYPE_FLOAT,
    "bool": _FIELD.TYPE_BOOL,
}


def _resolve(name, scope, known):
    """The full name of a type that is named within `scope`."""
    parts = scope.split(".")
    for depth in range(len(parts), -1, -1):
        full = ".".join([*parts[:depth], name])
        if full in known:
            return full
    raise KeyError(name)


def _set_type(field, kind, scope, enums, messages):
    if kind in _KINDS:
        field.type = _KINDS[kind]
        return
    full = _resolve(kind, scope, {**enums, **messages})
    field.type = _FIELD.TYPE_ENUM if full in enums else _FIELD.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{full}"


def _fill(message, scope, fields, enums, messages):
    unions = []
    for what, name, number, union in fields:
        field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
        *label, kind = what.split()
        if label:
            field.label = _FIELD.LABEL_REPEATED
        if label[:1] == ["map"]:
            entry_name = "".join(part.title() for part in name.split("_")) + "Entry"
            entry = message.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            for i, (part, part_kind) in enumerate((("key", label[1]), ("value", kind)), 1):
                _set_type(
                    entry.field.add(name=part, number=i, label=_FIELD.LABEL_OPTIONAL), part_kind, scope, enums, messages
                )
            field.type = _FIELD.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{scope}.{entry_name}"
            continue
        _set_type(field, kind, scope, enums, messages)
        if union:
            if union not in unions:
                unions.append(union)
                message.oneof_decl.add(name=union)
            field.oneof_index = unions.index(union)


def build(enums, messages):
    """{name: class or number} of all that stands in no other message."""
    file = descriptor_pb2.FileDescriptorProto(name="ge_ir.proto", package=_PACKAGE, syntax="proto3")
    made = {}
    for full, fields in messages.items():
        outer, _, name = full.rpartition(".")
        message = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        made[full] = message
    for full, values in enums.items():
        outer, _, name = full.rpartition(".")
        enum = (made[outer] if outer else file).enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for full, fields in messages.items():
        _fill(made[full], full, fields, enums, messages)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {}
    if hasattr(message_factory, "GetMessageClass"):
        make = message_factory.GetMessageClass
    else:  # before 4.22
        make = message_factory.MessageFactory(pool).GetPrototype
    for full in messages:
        if "." not in full:
            found[full] = make(pool.FindMessageTypeByName(f"{_PACKAGE}.{full}"))
    for full, values in enums.items():
        if "." not in full:
            found.update({value: number for number, value in enumerate(values)})
    return found
