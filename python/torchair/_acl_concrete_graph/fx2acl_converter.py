# SPDX-License-Identifier: Apache-2.0
"""A graph for capture and replay, from FX to code."""
import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torchair._acl_concrete_graph import (
    cat_elimination,
    codegen,
    dump_files,
    multi_stream,
    reinplace,
    static_kernel,
    tensor_dump,
    updatable,
)
from torchair._acl_concrete_graph.acl_graph import AclGraph, AclGraphCacheInfo, check_pool
from torchair._fx_passes.runner import PassRunner
from torchair._fx_passes.simple import place_constants, place_inputs
from torchair.core._concrete_graph import ConcreteGraph
from torchair.core.utils import logger
from torchair.ops import _air  # noqa: F401  torch.ops.air

__all__ = ["AclConcreteGraph", "key_inputs", "mutated_inputs", "settings_of"]


def settings_of(config):
    """What generated code is told: texts."""
    debug, experimental = config.debug.aclgraph, config.experimental_config
    ex = config.npugraphex_config.raw or {}
    kernels = experimental.aclgraph
    found = {
        "mode": config.mode.value,
        "run_eagerly": config.debug.run_eagerly.value,
        "clone_input": debug.clone_input.value,
        "enable_output_clone": debug.enable_output_clone.value,
        "disable_mempool_reuse_in_same_fx": debug.disable_mempool_reuse_in_same_fx.value,
        "static_capture_size_limit": debug.static_capture_size_limit.value,
        "frozen_parameter": experimental.frozen_parameter.value,
        "force_recapture": "1" if ex.get("force_recapture") else "0",
        "aclnn_static_shape_kernel": kernels._aclnn_static_shape_kernel.value,
        "super_kernel_optimize": kernels._super_kernel_optimize.value,
    }
    if kernels._aclnn_static_shape_kernel:
        found["aclnn_static_shape_kernel_sym_index"] = kernels._aclnn_static_shape_kernel_sym_index.value
        found["aclnn_static_shape_kernel_sym_value_range"] = kernels._aclnn_static_shape_kernel_sym_value_range.raw
    if kernels._super_kernel_optimize:
        found["super_kernel_optimize_options"] = kernels._super_kernel_optimize_options.raw
        found["super_kernel_debug_options"] = kernels._super_kernel_debug_options.raw
    return found


def mutated_inputs(gm):
    """Names of the inputs that operators of the graph write."""
    found = []
    for node in gm.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        for index, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            for each in value if isinstance(value, (list, tuple)) else [value]:
                base = _base(each)
                if base is not None and base.name not in found:
                    found.append(base.name)
    return found


def _base(node):
    """The input that a node is a view of."""
    while isinstance(node, torch.fx.Node):
        if node.op == "placeholder":
            return node
        target = node.target
        if node.op != "call_function" or not node.args:
            return None
        is_view = isinstance(target, torch._ops.OpOverload) and (target.is_view or target._schema.is_mutable)
        if not is_view and target is not operator.getitem and target is not torch.ops.aten.reshape.default:
            return None
        node = node.args[0]
    return None


class AclConcreteGraph(ConcreteGraph):
    """One FX graph for capture and replay."""

    def __init__(self, name, config):
        super().__init__(name, config)
        self._ex = config.npugraphex_config.raw or {}
        self._is_ex = config.mode.value == "npugraph_ex"
        self._pool = config.aclgraph_config.use_custom_pool.raw
        check_pool(self._pool)
        static_kernel.check_build_dir(config.experimental_config.aclgraph._aclnn_static_shape_kernel_build_dir.raw)
        self.settings = settings_of(config)
        self._info = None
        self._gm = None
        self._rules = {}
        self._placed = {}  # inputs of the host that are handed over on the device
        self._parameters = ()
        self.source = None
        self.acl_graph = None
        self.changes = {}  # by pass: in how many places it changed the graph

    def build(self, gm, example_inputs, phase):
        self._gm = gm
        self.phase = phase
        self._parameters = tuple(
            index
            for index, value in enumerate(example_inputs)
            if isinstance(value, torch.Tensor)
            and (isinstance(value, torch.nn.Parameter) or getattr(value, "_torchair_is_parameter", False))
        )

    def optimize(self):
        """The passes of captured graphs, in their order."""
        gm = self._gm
        runner = PassRunner(gm, None if self.files is None else self.files.after)
        self._check_waits(gm)
        folder = self.config.dump_config.dump_path.value
        if tensor_dump.is_wanted(self.config, "original"):
            runner.run("dump_original_tensors", tensor_dump.insert_saves, self.name, folder)
        self.changes["constants"] = runner.run("place_constants", place_constants)
        self._placed = runner.run("place_inputs", place_inputs)
        options = self.config.debug.aclgraph
        if options.remove_cat_ops:
            self.changes["cat"] = runner.run("remove_cat_ops", cat_elimination.remove_cat_ops)
        events = runner.run(
            "apply_event_closure_with_multi_stream", multi_stream.close_with_events, self.name, self._is_ex
        )
        runner.run("apply_event_record", multi_stream.record_before_waits)
        runner.run("eliminate_dead_code", lambda gm: gm.graph.eliminate_dead_code())
        if not options.disable_reinplace_inplaceable_ops_pass:
            self.changes["in place"] = runner.run(
                "reinplace_inplaceable_ops_pass", reinplace.reinplace_intermediates, self._is_ex
            )
        if not options.disable_reinplace_input_mutated_ops_pass:
            self.changes["inputs in place"] = runner.run(
                "reinplace_input_mutated_ops", reinplace.reinplace_inputs, self._is_ex
            )
            runner.run("decompose_auto_functionalized", reinplace.decompose_auto_functionalized)
        if self._is_ex:
            runner.run("eliminate_self_copy", reinplace.eliminate_self_copy)
        runner.run("replace_dynamic_workspace_ops", updatable.replace_by_out)
        if tensor_dump.is_wanted(self.config, "optimized"):
            runner.run("dump_optimized_tensors", tensor_dump.insert_saves, self.name, folder)
        runner.finish("npugraph_ex")
        static_kernel.check_core_limits(gm, self.settings)
        self._describe(gm, events)
        self.dump("optimized")

    @staticmethod
    def _check_waits(gm):
        wait = getattr(getattr(torch.ops.air, "wait_tensor", None), "default", None)
        if wait is not None and any(node.target is wait for node in gm.graph.nodes):
            raise NotImplementedError("npu_wait_tensor is for graphs of the engine (mode max-autotune); use ops.wait here")

    def _describe(self, gm, events):
        parameters = self._parameters
        inputs = {node.name: index for index, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
        self._rules = updatable.rulers(gm)
        mutated = [name for name in mutated_inputs(gm) if inputs[name] not in parameters]
        events = list(events or [])
        for node in gm.graph.nodes:
            name = getattr(node.target, "__name__", "")
            if name.startswith("tagged_event_") and node.args and node.args[-1] is True and node.args[0] not in events:
                events.append(node.args[0])
        self._info = AclGraphCacheInfo(
            pool=self._pool,
            capture_error_mode=self._ex.get("capture_error_mode", "global"),
            fx_graph_name=self.name,
            user_inputs_mapping=inputs,
            unupdated_sym_input_index=key_inputs(gm),
            updated_ops_param={name: sorted(map(str, rules)) for name, rules in self._rules.items()},
            ops_update_rulers=self._rules,
            mutated_user_inputs=mutated,
            tagged_event_names=events,
            parameter_user_inputs=sorted(parameters),
            user_stream_label=multi_stream.labels_of(gm),
            user_stream_info=multi_stream.streams_of(gm),
            userinput_ref_with_output=_aliases(gm),
            placed_inputs=self._placed,
        )

    # ---- Code ----

    def codegen(self, extra_options=None, caches=False, extra_globals=""):
        try:
            self.source = codegen.write_module(
                self._gm, self._rules, self._info, self.settings, extra_globals=extra_globals
            )
        except codegen.NotPrintable as why:
            logger.warning("%s cannot be supported by codegen: it holds %s", self.name, why)
            self.source = None
        return self.source

    def runner(self):
        with unset_fake_temporarily():  # constants are real
            return self._runner()

    def _runner(self):
        source = self.codegen()
        if source is None:
            kernel = self.acl_graph = self._live()
        else:
            if self.files is not None:
                self.files.write("output_code.py", source)
            module = {"__name__": f"torchair_{self.name}"}
            exec(compile(source, f"<{self.name}>", "exec"), module)  # noqa: S102  made above
            # torch.load makes fake tensors while something is traced.
            module["tensor_constants"].update(codegen.constants_of(self._gm, module["tensor_constants"]))
            kernel, self.acl_graph = module["kernel"], module["acl_graph"]
        if self.files is not None:
            self.acl_graph.dump_folder = self.files.folder

        def run(args):
            values = list(args)
            args.clear()  # as the function does with what it is given
            return kernel(*values)

        run._boxed_call = True
        return run

    def _live(self):
        """The graph as an object, for what has no code: its operators run as FX has them."""
        info = AclGraphCacheInfo(**vars(self._info))
        # Nothing is updated at replays there: lengths belong to the key.
        info.ops_update_rulers, info.updated_ops_param = {}, {}
        info.unupdated_sym_input_index = key_inputs(self._gm, without_updates=False)
        return AclGraph(fx_graph=self._gm, config=self.settings).load(info)

    def dump(self, stage):
        kind = self.config.debug.graph_dump.type.raw
        if kind is None:
            return
        if kind != "py":
            raise NotImplementedError(
                f"graphs of mode {self.config.mode.value} are written with graph_dump.type = 'py', not {kind!r}"
            )
        dump_files.write(self._gm, self.config.debug.graph_dump.path.raw, stage, self.name)

    @property
    def info(self):
        return self._info

    @property
    def gm(self):
        return self._gm


def key_inputs(gm, without_updates=True):
    """Numbers of the inputs whose sizes or values tell one captured graph from another."""
    inputs = list(gm.graph.find_nodes(op="placeholder"))
    symbols = {}
    for index, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            symbols.setdefault(str(value.node.expr), index)
    found = set()
    for index, node in enumerate(inputs):
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            if node.users and not (without_updates and _is_only_updated(node)):
                found.add(index)
        elif isinstance(value, torch.Tensor):
            for size in value.shape:
                if not isinstance(size, torch.SymInt):
                    continue
                names = {str(symbol) for symbol in size.node.expr.free_symbols}
                if names <= set(symbols):
                    found.update(symbols[name] for name in names)
                else:
                    found.add(index)
    return sorted(found)


def _is_only_updated(node):
    return all(updatable.uses_only_updated(user, node) for user in node.users)


def _aliases(gm):
    """{number of an output: number of the input that it shares memory with}"""
    memory = reinplace._Memory(gm.graph)
    inputs = {}
    for index, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        if memory.key(node) is not None:
            inputs.setdefault(memory.key(node), index)
    output = next(iter(reversed(gm.graph.nodes))).args[0]
    found = {}
    for index, node in enumerate(output if isinstance(output, (list, tuple)) else [output]):
        if isinstance(node, torch.fx.Node) and memory.key(node) in inputs:
            found[index] = inputs[memory.key(node)]
    return found

