# SPDX-License-Identifier: Apache-2.0
"""Functional operators whose argument nobody needs any more write it in place again."""
import operator

import torch
from torchair._acl_concrete_graph.order import StreamOrder
from torchair.core.utils import logger

aten = torch.ops.aten

_SCATTERS = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}
# Nodes that ask for sizes and the like do not read memory.
_ASKS = (
    aten.sym_size.int, aten.sym_size.default, aten.sym_stride.int, aten.sym_stride.default, aten.sym_numel.default,
    aten.sym_storage_offset.default,
)  # fmt: skip


def _multi_ops():
    """Functional operators that return what they have written last: (in-place form, arguments, results before)."""
    found = {}
    for name, twin, places, results in (
        ("npu_kv_rmsnorm_rope_cache_v2_functional", "npu_kv_rmsnorm_rope_cache_v2", (5, 6), 2),
        ("npu_mla_prolog_v3_functional", "npu_mla_prolog_v3", (9, 10), None),
        ("npu_add_rms_norm_v2_functional", "npu_add_rms_norm_v2", (0, 1), 1),
    ):
        if hasattr(torch.ops.npu, name) and hasattr(torch.ops.npu, twin):
            functional = getattr(torch.ops.npu, name).default
            if results is None:
                results = len(functional._schema.returns) - len(places)
            found[functional] = (getattr(torch.ops.npu, twin).default, places, results)
    return found


def in_place_form(target):
    """``aten.add.Tensor`` → ``aten.add_.Tensor``, if it takes the same and writes its first argument; else None."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    schema = target._schema
    name = schema.name.split("::")[1]
    if name.endswith("_") or not schema.arguments or not isinstance(schema.arguments[0].type, torch.TensorType):
        return None
    if schema.is_mutable or len(schema.returns) != 1:
        return None
    packet = getattr(getattr(torch.ops, schema.name.split("::")[0]), name + "_", None)
    if packet is None or target._overloadname not in packet.overloads():
        return None
    twin = getattr(packet, target._overloadname)
    mine, other = schema.arguments, twin._schema.arguments
    if len(mine) < len(other) or [a.name for a in mine[: len(other)]] != [a.name for a in other]:
        return None
    info = other[0].alias_info
    return twin if info is not None and info.is_write else None


class _Memory:
    """Which nodes share memory, and where they are used."""

    def __init__(self, graph):
        self.order = {node: index for index, node in enumerate(graph.nodes)}
        self.members = {}
        self.joined = {}  # a storage that is another one by now
        for node in graph.nodes:
            for key in self.keys(node):
                self.members.setdefault(key, []).append(node)
        # Views that a pass has made may have a value of their own (cat_elimination.py).
        for node in graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
                base, mine = self.key(node.args[0]), self.key(node)
                if base is not None and mine is not None and base != mine:
                    self.join(base, mine)
        self.inputs = {key for node in graph.find_nodes(op="placeholder") for key in self.keys(node)}

    def keys(self, node):
        """The storages of a node's value; several for tuples."""
        leaves = torch.utils._pytree.tree_leaves(node.meta.get("val"))
        found = set()
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                try:
                    key = leaf.untyped_storage()._cdata
                except NotImplementedError:
                    continue
                while key in self.joined:
                    key = self.joined[key]
                found.add(key)
        return found

    def join(self, key, other):
        """All that lies in the storage ``other`` lies in ``key`` from now on."""
        self.members.setdefault(key, []).extend(self.members.pop(other, ()))
        self.joined[other] = key

    def key(self, node):
        keys = self.keys(node) if isinstance(node, torch.fx.Node) else set()
        return next(iter(keys)) if len(keys) == 1 else None

    def users(self, key):
        """All nodes that read or write the memory."""
        return {user for node in self.members.get(key, ()) for user in node.users if user.target not in _ASKS}

    def later_users(self, key, node):
        return [user for user in self.users(key) if self.order[user] > self.order[node]]


def _overwrites(user, node):
    """copy_ into all of the node: what was there before does not matter."""
    return user.target is aten.copy_.default and user.args[0] is node and user.args[1] is not node


def _is_just_looked_at(user):
    """A view of the memory that is used for its sizes alone."""
    return (
        isinstance(user.target, torch._ops.OpOverload)
        and user.target.is_view
        and all(each.target in _ASKS or _is_just_looked_at(each) for each in user.users)
    )


def _plain(value):
    return isinstance(value, torch.Tensor)


def _same_layout(left, right):
    return (
        left.dtype == right.dtype
        and len(left.shape) == len(right.shape)
        and all(str(a) == str(b) for a, b in zip(left.shape, right.shape))
        and all(str(a) == str(b) for a, b in zip(left.stride(), right.stride()))
        and not any(stride == 0 for stride in left.stride() if isinstance(stride, int))
    )


class _Pass:
    def __init__(self, gm, accepts_events):
        self.gm = gm
        self.graph = gm.graph
        self.memory = _Memory(gm.graph)
        self.kept = []
        self.streams = StreamOrder(gm.graph, accepts_events)
        self.multi = _multi_ops()

    def _is_safe(self, kind, op, keys):
        """The memory's users run on one stream, or in an order that events give."""
        users = set().union(*(self.memory.users(key) for key in keys)) | {op}
        users = {user for user in users if user.op != "output"}
        return self.streams.is_safe(kind, op, users)

    def _once(self, node, base):
        return sum(each is base for each in torch.utils._pytree.tree_leaves((node.args, node.kwargs))) == 1

    def _shared_by_others(self, node, base, key):
        """Whether another argument of the node lies in the same memory."""
        return any(
            each is not base and self.memory.key(each) == key
            for each in torch.utils._pytree.tree_leaves((node.args, node.kwargs))
            if isinstance(each, torch.fx.Node)
        )

    # ---- What is made in the graph ----

    def intermediates(self):
        changed = 0
        for node in list(self.graph.nodes):
            if node.op != "call_function":
                continue
            if node.target in self.multi:
                changed += self._multi_intermediate(node)
            elif self._single_intermediate(node):
                changed += 1
        return changed

    def _may_be_lost(self, node, base, key):
        memory = self.memory
        if key is None or key in memory.inputs or any(each.op == "get_attr" for each in memory.members[key]):
            return False
        if self._shared_by_others(node, base, key) or not self._once(node, base):
            return False
        return not [user for user in memory.later_users(key, node) if not _is_just_looked_at(user)]

    def _single_intermediate(self, node):
        if not node.args or not isinstance(node.args[0], torch.fx.Node):
            return False
        base, twin = node.args[0], in_place_form(node.target)
        key = self.memory.key(base)
        scatter = node.target in _SCATTERS
        if (twin is None and not scatter) or base.op != "call_function" or not self._may_be_lost(node, base, key):
            return False
        if not _plain(base.meta.get("val")) or not _same_layout(base.meta["val"], node.meta["val"]):
            return False
        if not self._is_safe("multi_stream_single_reinplace", node, [key]):
            return False
        if scatter:
            self._write_part(node, base)
        else:
            _retarget(node, twin)
            self._join(node, key)
        return True

    def _join(self, node, key):
        """The node's value lies in that memory now."""
        mine = self.memory.key(node)
        if mine is not None and mine != key:
            self.memory.join(key, mine)
            self.kept.append(node.meta["val"])  # its address names a storage
            node.meta["val"] = node.args[0].meta["val"]

    def _write_part(self, node, base):
        """x_scatter(base, part, where…) → copy_(x(base, where…), part)"""
        with self.graph.inserting_before(node):
            view = self.graph.call_function(_SCATTERS[node.target], (base, *node.args[2:]), dict(node.kwargs))
            part = node.args[1]
            copy = self.graph.call_function(aten.copy_.default, (view, part))
        view.meta["val"] = copy.meta["val"] = part.meta.get("val")
        node.replace_all_uses_with(base)
        self.graph.erase_node(node)
        memory = self.memory
        for number, each in enumerate((view, copy)):
            memory.order[each] = memory.order[node] + number / 2
            memory.members[memory.key(base)].append(each)
        mine = memory.key(node)
        memory.members[mine] = [each for each in memory.members[mine] if each is not node]

    def _multi_intermediate(self, node):
        twin, places, results = self.multi[node.target]
        bases = [node.args[place] for place in places]
        keys = [self.memory.key(base) for base in bases]
        if len(set(keys)) < len(keys) or any(key is None or key in self.memory.inputs for key in keys):
            return 0
        for base, key in zip(bases, keys):
            if self._shared_by_others(node, base, key) or self.memory.later_users(key, node):
                return 0
        if not self._is_safe("multi_stream_multi_reinplace", node, keys):
            return 0
        self._replace_multi(node, twin, bases, results)
        return 1

    def _replace_multi(self, node, twin, bases, results):
        for user in list(node.users):
            if user.target is not operator.getitem:
                continue
            index = user.args[1]
            if index >= results:
                user.replace_all_uses_with(bases[index - results])
                self.graph.erase_node(user)
            elif len(twin._schema.returns) == 1:
                user.replace_all_uses_with(node, delete_user_cb=lambda each, keep=user: each is not keep)
                self.graph.erase_node(user)
        _retarget(node, twin)

    # ---- Inputs ----

    def inputs(self):
        changed = 0
        for node in list(self.graph.nodes):
            if node.op != "call_function":
                continue
            if node.target in self.multi:
                changed += self._multi_input(node)
            elif node.target in _SCATTERS or in_place_form(node.target) is not None:
                changed += self._single_input(node)
        return changed

    def _epilogue(self, value, base):
        """The only copy_ into the input ``base``, if it is that of ``value``."""
        if base.op != "placeholder":
            return None
        copies = [user for user in base.users if user.target is aten.copy_.default and user.args[0] is base]
        if len(copies) != 1 or copies[0].args[1] is not value or len(copies[0].args) > 2:
            return None
        return copies[0]

    def _is_read_between(self, node, base, key, copy):
        order = self.memory.order
        return any(
            user is not copy and order[user] > order[node] and user.op != "output" and not _is_just_looked_at(user)
            and not (_overwrites(user, base) and order[user] > order[copy])
            for user in self.memory.users(key)
        )  # fmt: skip

    def _is_returned(self, value):
        """Whether the value itself leaves the graph: it would be the input then."""
        key = self.memory.key(value)
        return any(user.op == "output" for each in self.memory.members.get(key, [value]) for user in each.users)

    def _single_input(self, node):
        base = node.args[0]
        if not isinstance(base, torch.fx.Node) or base.op != "placeholder":
            return 0
        key, copy = self.memory.key(base), self._epilogue(node, base)
        if copy is None or key is None or not _same_layout(base.meta["val"], node.meta["val"]):
            return 0
        if self._shared_by_others(node, base, key) or not self._once(node, base):
            return 0
        if self._is_read_between(node, base, key, copy) or self._is_returned(node):
            return 0
        if not self._is_safe("multi_stream_single_reinplace", node, [key, self.memory.key(node)]):
            return 0
        copy.replace_all_uses_with(base)
        self.graph.erase_node(copy)
        if node.target in _SCATTERS:
            self._write_part(node, base)
        else:
            _retarget(node, in_place_form(node.target))
            self._join(node, key)
        return 1

    def _multi_input(self, node):
        twin, places, results = self.multi[node.target]
        bases = [node.args[place] for place in places]
        keys = [self.memory.key(base) for base in bases]
        if len(set(keys)) < len(keys) or None in keys:
            return 0
        values = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        copies = []
        for index, base in enumerate(bases):
            value = values.get(results + index)
            copy = self._epilogue(value, base) if value is not None else None
            if copy is None or self._is_returned(value):
                return 0
            if self._shared_by_others(node, base, keys[index]):
                return 0
            if self._is_read_between(node, base, keys[index], copy):
                return 0
            copies.append((copy, base))
        if not self._is_safe("multi_stream_multi_reinplace", node, keys):
            return 0
        for copy, base in copies:
            copy.replace_all_uses_with(base)
            self.graph.erase_node(copy)
        self._replace_multi(node, twin, bases, results)
        return 1


def _retarget(node, twin):
    known = {argument.name for argument in twin._schema.arguments}
    node.target = twin
    node.kwargs = {name: value for name, value in node.kwargs.items() if name in known}


def reinplace_intermediates(gm, accepts_events):
    """Values that are made in the graph and used for the last time by the operator that could write them."""
    return _Pass(gm, accepts_events).intermediates()


def reinplace_inputs(gm, accepts_events):
    """Values that a copy_ at the end brings into an input: the operator writes the input itself."""
    changed = _Pass(gm, accepts_events).inputs()
    return changed + _reinplace_auto_functionalized(gm, accepts_events)


def _auto_functionalized():
    names = ("auto_functionalized", "auto_functionalized_v2")
    return [getattr(torch.ops.higher_order, name) for name in names]


def _reinplace_auto_functionalized(gm, accepts_events):
    nodes = [node for node in gm.graph.nodes if node.target in _auto_functionalized()]
    if not nodes:
        return 0
    streams = StreamOrder(gm.graph, accepts_events)
    if streams.has_scopes:  # inductor's pass does not know streams: every argument is copied
        for node in nodes:
            streams.is_safe("multi_stream_auto_functionalize", node, set(gm.graph.nodes))
        return 0
    from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops_core

    reinplace_inplaceable_ops_core(gm.graph)
    return len(nodes)


def decompose_auto_functionalized(gm):
    """Operators that were made functional become themselves, on copies of what must not change."""
    if not any(node.target in _auto_functionalized() for node in gm.graph.nodes):
        return
    from torch._inductor.fx_passes.post_grad import decompose_auto_functionalized as decompose

    decompose(gm.graph)


def eliminate_self_copy(gm):
    """copy_(x, x) whose result nobody uses."""
    for node in list(gm.graph.find_nodes(op="call_function", target=aten.copy_.default)):
        if len(node.args) >= 2 and node.args[0] is node.args[1] and not node.users:
            gm.graph.erase_node(node)
    logger.debug("copies of a tensor to itself are gone")
