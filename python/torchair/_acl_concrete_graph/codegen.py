# SPDX-License-Identifier: Apache-2.0
"""Python source for an FX graph: what capture and eager runs call, and what cached files hold."""
import builtins
import functools
import io
import math
import operator

import torch
from torchair import _hcom
from torchair._acl_concrete_graph import updatable
from torchair._acl_concrete_graph.multi_stream import _stream_ids
from torchair._fx_passes.labels import STREAM_LABEL, is_scope_enter, is_scope_exit, scope_attributes, stream_labels
from torchair.ops._tables import CURRENT

_INDENT = "    "

HEADER = '''# Made by torchair: one compiled function.
import io
import math
import operator

import torch
import torch_npu
import torchair
from torch import device, inf, nan
from torch._dynamo.testing import rand_strided
from torchair import _hcom
from torchair._acl_concrete_graph import updatable
from torchair._acl_concrete_graph.acl_graph import AclGraph, AclGraphCacheInfo
from torchair.ops import _tables as tables

assert_size_stride = torch._C._dynamo.guards.assert_size_stride
'''


class NotPrintable(Exception):
    """The graph holds something that source cannot say: it runs as it is."""


def _name_of_function(target):
    if isinstance(target, torch._ops.OpOverload):
        space, name = target._schema.name.split("::")
        return f"torch.ops.{space}.{name}.{target._overloadname or 'default'}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"torch.ops.{target._qualified_op_name.replace('::', '.')}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target._name}"
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    if module in ("_operator", "operator") and getattr(operator, name, None) is target:
        return f"operator.{name}"
    if module == "math" and getattr(math, name, None) is target:
        return f"math.{name}"
    if module == "builtins" and getattr(builtins, name, None) is target:
        return name
    if module and module.split(".")[0] == "torch" and getattr(torch, name, None) is target:
        return f"torch.{name}"
    found = torch.fx.node._get_qualified_name(target) if module else None
    if found and found.split(".")[0] in ("torch", "torch_npu", "torchair") and _leads_to(found, target):
        return found
    raise NotPrintable(f"{target!r}")


def _leads_to(path, target):
    value = {"torch": torch}.get(path.split(".")[0])
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value is target


def text_of(value):
    """Source for an argument."""
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, _Text):
        return value.text
    if value is None or value is Ellipsis or isinstance(value, (bool, int, str, torch.dtype, torch.layout)):
        if isinstance(value, int) and not isinstance(value, bool):
            return repr(int(value))
        return repr(value)
    if isinstance(value, float):
        return f"float({str(value)!r})" if not math.isfinite(value) else repr(value)
    if isinstance(value, complex):
        return f"complex({text_of(value.real)}, {text_of(value.imag)})"
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    if isinstance(value, (torch.memory_format, torch.qscheme)):
        return repr(value)
    if isinstance(value, slice):
        return f"slice({text_of(value.start)}, {text_of(value.stop)}, {text_of(value.step)})"
    if isinstance(value, tuple):
        return "(" + "".join(text_of(item) + ", " for item in value) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(text_of(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(key)}: {text_of(item)}" for key, item in value.items()) + "}"
    if callable(value) and not isinstance(value, type):
        return _name_of_function(value)
    raise NotPrintable(f"{value!r} of type {type(value).__name__}")


def _call(function, args, kwargs):
    given = [text_of(value) for value in args] + [f"{name}={text_of(value)}" for name, value in kwargs.items()]
    return f"{function}({', '.join(given)})"


class _Text:
    """An argument that is source already."""

    def __init__(self, text):
        self.text = text


def _with_groups(node):
    """Arguments and keyword arguments. Names of process groups are those of this process: what finds them is written."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "_c10d_functional":
        return node.args, node.kwargs
    names = [each.name for each in target._schema.arguments]

    def taken(name, value):
        if name != "group_name" or not isinstance(value, str):
            return value
        group = torch.distributed.distributed_c10d._resolve_process_group(value)
        return _Text(f"_hcom.recorded_name{text_of(_hcom.record_of(group))}".replace(", )", ")"))

    return [taken(*pair) for pair in zip(names, node.args)], {name: taken(name, value) for name, value in node.kwargs.items()}


def _has_no_name(node):
    """Whether the node is a statement in the source, whose result has no variable."""
    return is_scope_enter(node) or is_scope_exit(node) or node.target is torch.ops.air.wait.default


def _last_uses(graph):
    """{node: names that nobody needs behind it}. On several streams memory is kept until the end of the graph."""
    if len(set(stream_labels(graph).values())) > 1:
        return {}
    found, seen = {}, set()
    for node in reversed(graph.nodes):
        if node.op == "output":
            seen.update(node.all_input_nodes)
            continue
        for each in (*node.all_input_nodes, node):
            if each not in seen and each.op == "call_function" and not _has_no_name(each):
                seen.add(each)
                found.setdefault(node, []).append(each.name)
    return found


class _Writer:
    def __init__(self, gm, rules):
        self._gm = gm
        self._rules = rules
        self._lines = []
        self._depth = 1
        self._scopes = []  # whether each open scope is a block
        self.constants = []

    def line(self, text):
        self._lines.append(_INDENT * self._depth + text)

    def write(self):
        inputs = [node.name for node in self._gm.graph.find_nodes(op="placeholder")]
        if inputs:
            self.line(f"{', '.join(inputs)}{',' if len(inputs) == 1 else ''} = args")
        if any(CURRENT in node.args or self._is_current_scope(node) for node in self._gm.graph.nodes):
            self.line("main_stream = torch.npu.current_stream()")
        done = _last_uses(self._gm.graph)
        for node in self._gm.graph.nodes:
            self._node(node)
            if node in done:
                self.line(f"del {', '.join(done[node])}")
        if len(self._lines) == 0:
            self.line("pass")
        return "def forward(*args, node_info=[], is_capturing=False):\n" + "\n".join(self._lines) + "\n"

    @staticmethod
    def _is_current_scope(node):
        return is_scope_enter(node) and CURRENT in node.args[1]

    def _node(self, node):
        if node.op == "placeholder":
            return
        if node.op == "output":
            self.line(f"return {text_of(node.args[0])}")
        elif node.op == "get_attr":
            self._constant(node)
        elif node.op != "call_function":
            raise NotPrintable(f"{node.op} {node.target}")
        elif is_scope_enter(node):
            self._enter(node)
        elif is_scope_exit(node):
            if self._scopes.pop():
                self.line("pass")
                self._depth -= 1
        elif node.target is torch.ops.air.record.default:
            self.line(f"{node.name} = tables.record()")
        elif node.target is torch.ops.air.wait.default:
            self.line(f"tables.wait({text_of(node.args[0])})")
        elif node.name in self._rules:
            self._updated(node)
        else:
            self._plain(node)

    def _plain(self, node):
        function = _name_of_function(node.target)
        args = node.args
        if CURRENT in [each for each in args if isinstance(each, str)]:
            call = f"{function}({', '.join(self._stream_texts(args))})"
        else:
            call = _call(function, *_with_groups(node))
        self.line(f"{node.name} = {call}")

    @staticmethod
    def _stream_texts(args):
        """The marks of the stream that is current at the beginning become its parts."""
        texts = []
        parts = iter(())
        for value in args:
            if value == CURRENT:
                part = next(parts, None)
                if part is None:
                    parts = iter(("device_index", "device_type"))
                    part = "stream_id"
                texts.append(f"str(main_stream.{part})")
            else:
                texts.append(text_of(value))
        return texts

    def _updated(self, node):
        function = _name_of_function(node.target)
        self.line("if is_capturing:")
        args, kwargs = text_of(tuple(node.args)), text_of(dict(node.kwargs))
        self.line(f"{_INDENT}{node.name} = updatable.capture(node_info, {node.name!r}, {function}, {args}, {kwargs})")
        self.line("else:")
        self.line(f"{_INDENT}{node.name} = {_call(function, node.args, node.kwargs)}")

    def _enter(self, node):
        attributes = scope_attributes(node)
        is_block = STREAM_LABEL in attributes or {"_op_aicore_num", "_op_vectorcore_num"} <= set(attributes)
        self._scopes.append(is_block)
        if not is_block:
            return
        ids = _stream_ids(attributes)
        if ids is not None and CURRENT in ids:
            self.line("with tables.same_stream(main_stream):")
        else:
            self.line(f"with tables.scope_context({attributes!r}):")
        self._depth += 1

    def _constant(self, node):
        value = functools.reduce(getattr, node.target.split("."), self._gm)
        if not isinstance(value, torch.Tensor):
            raise NotPrintable(f"{node.target}, a {type(value).__name__}")
        if node.target not in self.constants:
            self.constants.append(node.target)
        self.line(f"{node.name} = tensor_constants[{node.target!r}]")


def write_forward(gm, rules):
    """Source of ``forward``, and the names of the constants that it needs. Raises NotPrintable."""
    writer = _Writer(gm, rules)
    source = writer.write()
    return source, writer.constants


# ---- What is checked at the first call ----


def _expression(value):
    """Source for a size, in names of symbols; None when it depends on data."""
    if isinstance(value, int):
        return str(value)
    from torch.utils._sympy.printers import PythonPrinter

    return PythonPrinter().doprint(value.node.expr)


def write_checks(gm):
    """Lines that bind symbols and hold sizes and strides against those that the code was made for."""
    lines, known = [], set()
    inputs = list(gm.graph.find_nodes(op="placeholder"))
    for index, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            lines.append(f"{value.node.expr} = args[{index}]")
            known.add(str(value.node.expr))
    for index, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and str(size.node.expr) not in known:
                    lines.append(f"{size.node.expr} = args[{index}].size({dim})")
                    known.add(str(size.node.expr))
    for index, node in enumerate(inputs):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if any(isinstance(size, int) and size == 0 for size in value.shape):
            continue
        parts = (*value.shape, *value.stride())
        if any(
            isinstance(part, torch.SymInt) and not {str(each) for each in part.node.expr.free_symbols} <= known
            for part in parts
        ):
            continue
        sizes = "".join(_expression(size) + ", " for size in value.shape)
        strides = "".join(_expression(stride) + ", " for stride in value.stride())
        check = f"assert_size_stride(args[{index}], ({sizes}), ({strides}))"
        if any(isinstance(size, torch.SymInt) for size in value.shape):
            check = f"if args[{index}].numel(): {check}"
        lines.append(check)
    return lines


def write_main(gm):
    """``main()`` calls the kernel with random inputs of the sizes that were traced, symbol k being 2 + k."""
    lines, values = [], []
    numbers = {}

    def sized(value):
        if isinstance(value, int):
            return value
        expression = value.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            numbers.setdefault(symbol, 2 + len(numbers))
        return int(expression.subs(numbers))

    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes, strides = tuple(map(sized, value.shape)), tuple(map(sized, value.stride()))
            lines.append(
                f"{node.name} = rand_strided({sizes}, {strides}, device={str(value.device)!r}, dtype={value.dtype})"
            )
        else:
            number = sized(value) if isinstance(value, (int, torch.SymInt)) else 1.0
            lines.append(f"{node.name} = {number!r}")
        values.append(node.name)
    lines.append(f"return kernel({', '.join(values)})")
    return lines


def write_module(gm, rules, info, config, extra_globals=""):
    """The whole module. ``info``: AclGraphCacheInfo; ``config``: a dict of texts."""
    forward, constants = write_forward(gm, rules)
    parts = [HEADER]
    if extra_globals:
        parts.append(extra_globals)
    parts.append(_write_constants(gm, constants))
    parts.append(forward)
    parts.append(f"compile_configs = {config!r}\n")
    parts.append("acl_graph = AclGraph(fx_forward=forward, config=compile_configs)")
    fields = [f"{_INDENT}{name}={value!r}," for name, value in vars(info).items() if name != "stream"]
    parts.append("\n".join(["acl_graph_cache_info = AclGraphCacheInfo(", *fields, ")"]))
    parts.append("acl_graph.load(acl_graph_cache_info)\n_is_first_call = True\n")
    checks = write_checks(gm)
    body = ["def kernel(*args):", f"{_INDENT}global _is_first_call", f"{_INDENT}if _is_first_call:"]
    body += [f"{_INDENT * 2}{line}" for line in checks]
    body += [f"{_INDENT * 2}_is_first_call = False", f"{_INDENT}return acl_graph(*args)\n"]
    parts.append("\n".join(body))
    parts.append("\n".join(["def main():", *(_INDENT + line for line in write_main(gm))]) + "\n")
    parts.append('if __name__ == "__main__":\n    print(main())\n')
    return "\n".join(parts)


def constants_of(gm, names):
    """The tensors that the graph holds under these names."""
    return {name: functools.reduce(getattr, name.split("."), gm).detach() for name in names}


def _write_constants(gm, names):
    if not names:
        return "tensor_constants = {}\n"
    file = io.BytesIO()
    torch.save(constants_of(gm, names), file)
    return f"tensor_constants = torch.load(io.BytesIO({file.getvalue()!r}))\n"
