# SPDX-License-Identifier: Apache-2.0
"""Compiled graphs as Python programs, which another process can run without compiling the FX graph again."""
import torch

from torchair import _hcom
from torchair._ge_concrete_graph.graph import is_symbolic
from torchair.core.utils import logger

VERSION = "0.1"
_CACHE_FOLDER = [
    "",
    "",
    "def _update_ge_cache_dir(path):",
    '    """Where the engine keeps the compiled graph; before the first call."""',
    '    if "ge.graph_compiler_cache_dir" in local_compile_options:',
    '        local_compile_options["ge.graph_compiler_cache_dir"] = path',
    "",
    "",
]


def program_text(program, extra_options, caches):
    """The program, or None where its graph belongs to this process."""
    config = program.config
    if config.experimental_config.enable_ref_data or config.export.export_mode or config.aoe_config.aoe_mode:
        logger.warning("graph %s cannot be supported by codegen: enable_ref_data, export or tuning is on", program.graph.name)
        return None
    for i, entry in enumerate(program.inputs):
        if entry.kind == "rng":
            raise AssertionError(
                f"graph {program.graph.name} cannot be cached: its input {i} holds offsets of the random generator of this process"
            )
    local, glob = program.last_options
    if extra_options:
        local = {**local, **extra_options, "ge.graph_key": program.graph.name}
    groups = program.graph.groups if caches else {}
    lines = [
        "import math",
        "import torch",
        "from torch._C._dynamo.guards import assert_size_stride",
        *(["from torchair import _hcom"] if groups else []),
        "from torchair._ge_concrete_graph.graph import GeGraph",
        "from torchair.core._backend import TorchNpuGraph, initialize_graph_engine",
        "",
        f"serialized_graph = {_serialized(program.graph, groups)!r}",
        *([f"process_groups = {({_hcom.stand_in(*record): (*record, name) for name, record in groups.items()})!r}"] if groups else []),
        f"global_compile_options = {glob!r}",
        f"local_compile_options = {local!r}",
        *_CACHE_FOLDER,
        "initialize_graph_engine(global_compile_options)",
        "ge_graph = GeGraph(serialized_model_def=serialized_graph)",
        f"npu_graph = TorchNpuGraph({program.graph.name!r})",
        "_is_first_run = True",
        "",
        "",
        "def _first_run(args):",
        *(f"    {line}" for line in _checks(program)),
        *([f"    _hcom.resolve(ge_graph, process_groups, {bool(extra_options)})"] if groups else []),
        "    npu_graph.load(ge_graph, local_compile_options)",
        "    npu_graph.compile()",
        "",
        "",
        "def kernel(*args):",
        "    global _is_first_run",
        "    if _is_first_run:",
        "        _first_run(args)",
        "        _is_first_run = False",
        *(f"    {line}".replace("= run((", "= npu_graph.run_base((") for line in program.lines),
    ]
    return "\n".join(lines) + "\n"


def _serialized(graph, groups):
    """Communicators have other names in the next process."""
    if not groups:
        return graph.SerializeToString()
    model = type(graph.model)()
    model.CopyFrom(graph.model)
    for op in model.graph[0].op:
        name = op.attr["group"].s.decode() if "group" in op.attr else None
        if name in groups:
            op.attr["group"].s = _hcom.stand_in(*groups[name]).encode()
    return model.SerializeToString(deterministic=True)


def _checks(program):
    """Assertions about the sizes and strides of the arguments."""
    lines = [line for line in program.lines[: 1 + len(program.symbols)] if not line.startswith(("outs", "return"))]
    found = []
    for place, arg in enumerate(program.compiled.args):
        if not isinstance(arg, torch.Tensor):
            continue
        values = [*arg.shape, *arg.stride()]
        if any(is_symbolic(each) and not each.node.expr.free_symbols <= set(program.symbols) for each in values):
            continue  # a size that nothing else needs
        sizes, strides = (
            "(" + "".join(program.expression(each) + ", " for each in part) + ")" for part in (arg.shape, arg.stride())
        )
        found.append(f"assert_size_stride(arg{place}, {sizes}, {strides})")
    return [*lines, *found] or ["pass"]
