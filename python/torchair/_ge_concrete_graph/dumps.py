# SPDX-License-Identifier: Apache-2.0
"""Graphs in files: as text of protobuf, or as Python that makes them again."""
import itertools
import os
import time

from google.protobuf import text_format

from torchair._ge_concrete_graph.graph import is_control, node_of

_numbers = itertools.count()
_HIDDEN = {"value", "_readable_value", "_input_name_key", "_input_name_value", "_output_name_key", "_output_name_value"}


def dump(graph, stage, config, fx_code):
    """``stage``: "original" or "optimized"."""
    kind = config.debug.graph_dump.type.raw
    if kind is None:
        return None
    folder = config.debug.graph_dump.path.raw or os.getcwd()
    rank = os.environ.get("RANK", "0")
    name = f"dynamo_{stage}_graph_{next(_numbers)}_rank_{rank}_pid_{os.getpid()}_ts_{time.time_ns() // 1000}.{kind}"
    return write(graph, os.path.join(folder, name), kind, fx_code)


def write(graph, path, kind, fx_code=""):
    folder = os.path.dirname(path) or "."
    if os.path.islink(folder) or os.path.islink(path):
        raise ValueError(f"the dump is not written to {path}: it is a symbolic link")
    os.makedirs(folder, exist_ok=True)
    with open(path, "w") as file:
        file.write(as_text(graph, kind, fx_code))
    return path


def as_text(graph, kind, fx_code=""):
    return as_python(graph, fx_code) if kind == "py" else text_format.MessageToString(graph.proto, as_utf8=False)


def _value(attr):
    which = attr.WhichOneof("value")
    if which == "list":
        return next((list(value) for field, value in attr.list.ListFields() if field.name != "val_type"), [])
    if which == "t":
        return f"<{len(attr.t.data)} bytes>"
    value = getattr(attr, which) if which else None
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def as_python(graph, fx_code=""):
    lines = ["from torchair._ge_concrete_graph import ge_apis as ge", "from torchair.ge import attr", ""]
    lines += [f"## FX Code: {line}" if line.strip() else "##" for line in fx_code.splitlines()]
    for op in graph.op:
        words = []
        for i, edge in enumerate(op.input):
            if edge and not is_control(edge):
                name = op.input_desc[i].name if i < len(op.input_desc) else f"input{i}"
                words.append(f"{name}={variable(edge)}")
        controls = [variable(node_of(edge) + ":0") for edge in op.input if is_control(edge)]
        if controls:
            words.append(f"dependencies=[{', '.join(controls)}]")
        attrs = {key: _value(value) for key, value in sorted(op.attr.items())}
        shown = {key: value for key, value in attrs.items() if key not in _HIDDEN}
        if op.type == "Const":
            words.append(attrs.get("_readable_value", "...").replace("\n", " "))
            dtype = op.output_desc[0].dtype
            words.append(f"dtype={dtype}")
        words += [f"{key}={value!r}" for key, value in shown.items()]
        words.append(f'node_name="{op.name}"')
        targets = ", ".join(variable(f"{op.name}:{i}") for i in range(len(op.output_desc)))
        lines.append(f"{targets + ' = ' if targets else ''}ge.{op.type}({', '.join(words)})")
    return "\n".join(lines) + "\n"


def variable(edge):
    name, _, index = edge.rpartition(":")
    word = "".join(each if each.isalnum() else "_" for each in name)
    return f"{word}_{index}"
