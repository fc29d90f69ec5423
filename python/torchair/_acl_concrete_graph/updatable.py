# SPDX-License-Identifier: Apache-2.0
"""Operators of a captured graph that get new host arguments at each replay: which ones, how they are captured, and
how they are updated."""
import threading

import torch
from torchair._acl_concrete_graph.sizes import SizeNodes
from torchair._acl_concrete_graph.weak import bare
from torchair.core.utils import logger

aten = torch.ops.aten


class Updatable:
    """``kwargs``, ``positions``: the arguments that are updated. With ``workspace`` the operator is replaced by its
    form with ``out``, because an update writes the same results."""

    def __init__(self, kwargs=(), positions=(), out=None, workspace=None, outputs=()):
        self.kwargs = kwargs
        self.positions = positions
        self.out = out
        self.workspace = workspace
        self.outputs = outputs


_table = {}
_workspaces = {}  # operators that tell a workspace: names of the arguments whose values do not matter there
_of_atb = {
    "_npu_paged_attention": {7: "context_lens"},
    "_npu_paged_attention_splitfuse": {4: "context_lens", 6: "seq_len"},
}


def table():
    """By operator, as graphs have it before and after the replacement."""
    if _table:
        return _table
    for name, workspace, lengths in (
        (
            "npu_fused_infer_attention_score",
            "_npu_fused_infer_attention_score_get_max_workspace",
            ("actual_seq_lengths", "actual_seq_lengths_kv", "actual_shared_prefix_len"),
        ),
        (
            "npu_fused_infer_attention_score_v2",
            "_npu_fused_infer_attention_score_v2_get_max_workspace",
            ("actual_seq_qlen", "actual_seq_kvlen"),
        ),
    ):
        packet = getattr(torch.ops.npu, name)
        row = Updatable(
            kwargs=lengths,
            out=packet.out,
            workspace=getattr(torch.ops.npu, workspace).default,
            outputs=("attention_out", "softmax_lse"),
        )
        _table[packet.default] = row
        _workspaces[row.workspace] = lengths
        _table[packet.out] = Updatable(kwargs=lengths)
    for name, places in _of_atb.items():
        operator = getattr(getattr(torch.ops.atb, name), "default", None)
        names = [argument.name for argument in operator._schema.arguments] if operator is not None else []
        if any(place >= len(names) or names[place] != given for place, given in places.items()):
            logger.warning("atb::%s is not updated at replays: its arguments are %s", name, names)
            continue
        _table[operator] = Updatable(positions=tuple(places))
    return _table


def updated_arguments(node):
    """``{name or position: value}`` of what replays update in this node."""
    row = table().get(node.target) if node.op == "call_function" else None
    if row is None:
        return {}
    found = {name: node.kwargs[name] for name in row.kwargs if node.kwargs.get(name) is not None}
    found.update({place: node.args[place] for place in row.positions if place < len(node.args)})
    return found


def uses_only_updated(user, node):
    """Whether the node's value matters to the user only as an argument that replays update."""
    table()
    if user.target in _workspaces:
        names, places = _workspaces[user.target], ()
    else:
        row = table().get(user.target) if user.op == "call_function" else None
        if row is None:
            return False
        names, places = row.kwargs, row.positions
    elsewhere = [value for name, value in user.kwargs.items() if name not in names]
    elsewhere += [value for place, value in enumerate(user.args) if place not in places]
    return not any(each is node for each in torch.utils._pytree.tree_leaves(elsewhere))


# ---- The graph ----


def replace_by_out(gm):
    """Operators with a workspace write results and workspace that are made before."""
    graph = gm.graph
    sizes = SizeNodes(graph)
    for node in list(graph.nodes):
        row = table().get(node.target) if node.op == "call_function" else None
        if row is None or row.out is None or not any(_varies(value) for value in updated_arguments(node).values()):
            continue
        values = node.meta.get("val")
        if not isinstance(values, (list, tuple)) or len(values) != len(row.outputs):
            raise RuntimeError(
                f"{node.target} has {len(values) if isinstance(values, (list, tuple)) else 1} results, but "
                f"{len(row.outputs)} were registered for it: {', '.join(row.outputs)}"
            )
        with graph.inserting_before(node):
            workspace = graph.call_function(row.workspace, node.args, dict(node.kwargs))
            made = []
            for value in values:
                shape = [sizes.node(size) for size in value.shape]
                made.append(
                    graph.call_function(
                        aten.empty.memory_format, (shape,), {"dtype": value.dtype, "device": value.device}
                    )
                )
                made[-1].meta["val"] = value
            outs = dict(zip(row.outputs, made))
            names = [argument.name for argument in row.out._schema.arguments]
            outs = outs if all(name in names for name in outs) else {"out": made}
            new = graph.call_function(row.out, node.args, {**node.kwargs, "workspace": workspace, **outs})
        new.meta.update(node.meta)
        for user in list(node.users):
            user.replace_all_uses_with(made[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)


def _varies(value):
    if isinstance(value, torch.fx.Node):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(item, torch.fx.Node) for item in value)


def rulers(gm):
    """How the new values come from the inputs: ``{node: {argument: ruler}}``.

    A ruler is a list of ("index", number of the input) and ("fixed", value), or one pair for a whole input.
    """
    inputs = {node: index for index, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    found = {}
    for node in gm.graph.nodes:
        for name, value in updated_arguments(node).items():
            if isinstance(name, int):
                if value in inputs:
                    found.setdefault(node.name, {})[name] = ("index", inputs[value])
                continue
            if not isinstance(value, (list, tuple)):
                raise RuntimeError(
                    f"{name} of {node.name} ({node.target}) is {value!r}: what replays update must be a list of numbers "
                    "and inputs of the compiled function"
                )
            ruler = [_rule(node, name, item, inputs) for item in value]
            if any(kind == "index" for kind, _ in ruler):
                found.setdefault(node.name, {})[name] = ruler
    return found


def _rule(node, name, item, inputs):
    if isinstance(item, torch.fx.Node) and item in inputs:
        return "index", inputs[item]
    if isinstance(item, (bool, int, float)):
        return "fixed", item
    raise RuntimeError(
        f"{name} of {node.name} ({node.target}) holds {item}, which is computed in the graph: what replays update must be "
        "a list of numbers and inputs of the compiled function; compute it before the call, and pass it"
    )


# ---- Capture ----


class Captured:
    """One operator of a captured graph that replays update."""

    __slots__ = ("name", "operator", "args", "kwargs", "handle", "event", "limits")


def capture(node_info, name, operator, args, kwargs):
    """In a capture: the operator as a group of tasks, before which replays wait for their update."""
    stream = torch.npu.current_stream()
    event = torch.npu.ExternalEvent()
    event.wait(stream)
    event.reset(stream)
    if "workspace" in kwargs and kwargs["workspace"] is None or _wants_workspace(operator, kwargs):
        kwargs = {**kwargs, "workspace": torch.ops.atb._npu_paged_attention_get_workspace(*args)}
    torch.npu.graph_task_group_begin(stream)
    try:
        result = operator(*args, **kwargs)
    finally:
        handle = torch.npu.graph_task_group_end(stream)
    made = Captured()
    made.name, made.operator, made.handle, made.event = name, operator, handle, event
    made.args, made.kwargs = list(bare(tuple(args))), bare(dict(kwargs))
    made.limits = torch.npu.get_stream_limit(stream)
    node_info.append(made)
    return result


def _wants_workspace(operator, kwargs):
    return operator is torch.ops.atb._npu_paged_attention.default and kwargs.get("workspace") is None


# ---- Replay ----

_lock = threading.Lock()
_stream = None


def update_stream():
    """One for the process, never the stream that replays."""
    global _stream
    current = torch.npu.current_stream()
    with _lock:
        while _stream is None or _stream.stream_id == current.stream_id or _stream.device != current.device:
            _stream = torch.npu.Stream(priority=-1)
        return _stream


class Updater:
    """What one compiled function updates. ``rules``: of ``rulers``."""

    def __init__(self, rules):
        self._rules = rules
        self._shared = []  # distinct rulers
        numbers = {}
        self._plan = {}  # node → [(argument, number of its ruler)]
        for node, arguments in rules.items():
            for name, ruler in arguments.items():
                text = repr(ruler)
                if text not in numbers:
                    numbers[text] = len(self._shared)
                    self._shared.append(ruler)
                self._plan.setdefault(node, []).append((name, numbers[text]))

    def __bool__(self):
        return bool(self._plan)

    @staticmethod
    def _evaluate(ruler, args):
        if isinstance(ruler, tuple):
            return args[ruler[1]]
        return [args[value] if kind == "index" else value for kind, value in ruler]

    def update(self, captured, args, done):
        """Behind a replay: gives the captured operators their values; ``done``: event of the replay before."""
        values = [self._evaluate(ruler, args) for ruler in self._shared]
        stream = update_stream()
        with torch.npu.stream(stream):
            if done is not None:
                done.wait(stream)
            for each in captured:
                self._update_one(stream, each, values)

    def _update_one(self, stream, each, values):
        for name, number in self._plan.get(each.name, ()):
            if isinstance(name, int):
                each.args[name] = values[number]
            else:
                each.kwargs[name] = values[number]
        limits = each.limits
        if torch.npu.get_stream_limit(stream) != limits:
            torch.npu.set_stream_limit(stream, limits["cube_core_num"], limits["vector_core_num"])
        torch.npu.graph_task_update_begin(stream, each.handle)
        try:
            each.operator(*each.args, **each.kwargs)
        finally:
            torch.npu.graph_task_update_end(stream)
        each.event.record(stream)


