# SPDX-License-Identifier: Apache-2.0
"""From torch.compile to a compiled graph: the backend, and the compiler of FX graphs behind AOT autograd."""
import copy
import itertools
import warnings

import torch
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import default_partition
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchair import _fx_passes, _watch
from torchair._errors import pretty
from torchair._utils import debug_files
from torchair._utils.decompositions import decompositions_of
from torchair._utils.one_time import patch_torch
from torchair.configs.compiler_config import CompilerConfig
from torchair.core.utils import logger

_graph_numbers = itertools.count()

# What torch or the program has said of an input, which AOT autograd does not hand on.
_MARKS = ("dim_gears", "_dynamo_static_input_type", "_torchair_is_parameter")


def _marks_of(gm, example_inputs):
    """By place from the end, since inputs may be put in front. Dynamo keeps its own marks at the nodes of inputs; tensors whose
    address it guards are attributes of its graph, which AOT autograd puts before the inputs."""
    found = {}
    nodes = gm.graph.find_nodes(op="placeholder")
    given = [(value, node.meta.get("tensor_dict", {})) for node, value in zip(nodes, example_inputs)]
    own = {**dict(gm.named_parameters(remove_duplicate=False)), **dict(gm.named_buffers(remove_duplicate=False))}
    for i, (value, kept) in enumerate(reversed([*((value, {}) for value in own.values()), *given])):
        if not isinstance(value, torch.Tensor):
            continue
        marks = {name: getattr(value, name, kept.get(name)) for name in _MARKS}
        marks = {name: mark for name, mark in marks.items() if mark is not None}
        if isinstance(value, torch.nn.Parameter):
            marks["_torchair_is_parameter"] = True
        if marks:
            found[-1 - i] = marks
    return found


def _put_marks(example_inputs, marks):
    for place, values in marks.items():
        if len(example_inputs) + place < 0 or not isinstance(example_inputs[place], torch.Tensor):
            continue
        for name, value in values.items():
            setattr(example_inputs[place], name, value)


def _put_static_marks(example_inputs):
    """Inputs that torch knows to stay where they are: parameters and buffers of modules."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    for place in getattr(metadata, "static_input_indices", None) or ():
        if place < len(example_inputs) and isinstance(example_inputs[place], torch.Tensor):
            example_inputs[place]._torchair_is_parameter = True


class _FxCompiler:
    """Compiles one FX graph of ATen operators."""

    may_split = True
    is_inference = False  # no gradients are wanted: weights are not about to change

    def __init__(self, config, phase="forward", marks=None):
        self.config = config
        self.phase = phase
        self.marks = marks

    @pretty
    def __call__(self, gm, example_inputs):
        if self.marks:
            _put_marks(example_inputs, self.marks)
        if self.phase != "backward":
            _put_static_marks(example_inputs)
        return self.compile(gm, example_inputs)

    def compile(self, gm, example_inputs):
        run = self.convert(gm, example_inputs)
        if isinstance(run, torch.fx.GraphModule):
            return run
        found = run.runner()
        _watch.note(run)
        return found

    def convert(self, gm, example_inputs):
        """A ConcreteGraph, or an FX graph that is run as it is."""
        config = self.config
        bad = [node for node in gm.graph.nodes if node.op in ("call_module", "call_method")]
        if bad:
            raise RuntimeError(f"the FX graph has a node {bad[0].format_node()}: only functions can be compiled; use torch.compile")
        if not config.captures() and config.debug.fx_summary.type:
            from torchair import fx_summary

            fx_summary.summarize(gm, example_inputs)
            if config.debug.fx_summary.skip_compile:
                return gm
        if not config.captures() and config.debug.data_dump.type:
            from torchair import fx_dumper

            return fx_dumper.dumper(gm, config)
        name = f"graph_{next(_graph_numbers)}"
        with unset_fake_temporarily():  # constants are real
            gm = copy.deepcopy(gm)
        make = _graph_class(config)
        logger.debug("compiling %s (%s) with %s nodes", name, self.phase, len(gm.graph.nodes))
        files = debug_files.phase(self.phase)
        if files is not None:
            files.begin(gm)
        _fx_passes.optimize(gm, example_inputs, config, None if files is None else files.after, self.is_inference)
        graph = self.build(make, name, gm, example_inputs, files)
        graph.dump("original")
        graph.optimize()
        if config.debug.run_eagerly and not config.captures():
            return gm
        return graph

    def build(self, make, name, gm, example_inputs, files):
        """The graph of a mode, or several where the engine lacks operators and ``may_split``."""
        if self.may_split and not self.config.captures():
            from torchair._ge_concrete_graph import split

            def made(part):
                graph = make(part, self.config)
                graph.is_inference = self.is_inference
                graph.files = files if part == name else None
                return graph

            return split.build(made, name, gm, example_inputs, self.phase)
        graph = make(name, self.config)
        graph.is_inference = self.is_inference
        graph.files = files
        graph.build(gm, example_inputs, self.phase)
        return graph


def _graph_class(config):
    if config.captures():
        from torchair._acl_concrete_graph.fx2acl_converter import AclConcreteGraph

        return AclConcreteGraph
    from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph

    return GeConcreteGraph


def _no_backward(gm, example_inputs):
    raise RuntimeError("Backward cache compilation is not supported yet")


def _check_send_recv(gm, config):
    """With several sends and receives, the engine keeps the order of the program."""
    count = sum(
        node.op == "call_function" and getattr(node.target, "__name__", "").split(".")[0].lstrip("_") in ("send", "recv", "isend", "irecv")
        for node in gm.graph.nodes
    )
    if count > 1 and not config.captures():
        warnings.warn(
            f"the graph has {count} sends and receives: topology_sorting_strategy is set to StableRDFS", UserWarning, stacklevel=2
        )
        config.experimental_config.topology_sorting_strategy = "StableRDFS"


def _warn_of_mode(config):
    ignored = config.ignored()
    mode = config.mode.value
    if ignored:
        text = f"these options have no effect with mode {mode}: {', '.join(ignored)}"
        if mode == "reduce-overhead":
            text += "; nor have the functions set_dim_gears, dynamo_export, scope, npu_print"
        warnings.warn(text, UserWarning, stacklevel=3)
    if mode == "reduce-overhead":
        warnings.warn(
            'mode "reduce-overhead" is deprecated: use torch.compile(backend="npugraph_ex")', DeprecationWarning, stacklevel=3
        )


def _config_of(config):
    if config is None:
        return CompilerConfig()
    if not isinstance(config, CompilerConfig):
        raise TypeError(f"compiler_config must be a CompilerConfig, not {type(config)}")
    if config.experimental_config.aot_config_enable_joint_graph:
        raise NotImplementedError(
            "experimental_config.aot_config_enable_joint_graph: forward and backward are two graphs here; leave it False, call "
            "backward() on the loss and let the optimizer take its step"
        )
    return config


def get_compiler(compiler_config=None):
    """The compiler of FX graphs, for AOT autograd."""
    return _FxCompiler(_config_of(compiler_config))


def get_npu_backend(*, compiler_config=None, custom_decompositions=None):
    """A backend for torch.compile."""
    config = _config_of(compiler_config)
    _warn_of_mode(config)
    patch_torch()
    debug_files.open_log()

    def npu_backend(gm, example_inputs, **kwargs):
        return compile_with_aot(gm, example_inputs, config, custom_decompositions, kwargs.get("options"))

    npu_backend.config = config
    npu_backend.custom_decompositions = custom_decompositions
    return npu_backend


def compile_with_aot(gm, example_inputs, config, custom_decompositions=None, options=None, cache=None):
    """What the backend does with a graph of dynamo. ``cache``: takes the place of the compiler, with its arguments."""
    if options:
        config.take_options(options)
    _check_send_recv(gm, config)
    debug_files.begin_model(gm)
    if config.captures():
        from torchair._acl_concrete_graph import replace_stream_event

        gm = replace_stream_event.replace(gm)
    else:
        from torchair._ge_concrete_graph import gears

        gears.guard(gm, example_inputs)
    make = cache or _FxCompiler
    forward = make(config, "forward", _marks_of(gm, example_inputs))
    inference = forward if cache else make(config, "forward", forward.marks)
    inference.is_inference = True
    keeps = True if cache else config.experimental_config.keep_inference_input_mutations.raw
    return aot_module_simplified(
        gm,
        example_inputs,
        fw_compiler=forward,
        bw_compiler=_no_backward if cache else make(config, "backward"),
        inference_compiler=None if cache else inference,
        partition_fn=default_partition,
        decompositions=decompositions_of(config, custom_decompositions),
        keep_inference_input_mutations=keeps,
    )
