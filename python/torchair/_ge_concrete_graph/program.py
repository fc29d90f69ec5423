# SPDX-License-Identifier: Apache-2.0
"""What a call of a compiled graph does: its inputs are put together, the graph runs, its results are taken apart.

The work of a call is a function of generated Python, so that it costs no more than what this graph needs.
"""
import os
import sys

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from torchair._ge_concrete_graph import deadlock, dump_options, dumps, formats, gears
from torchair._ge_concrete_graph.graph import is_symbolic
from torchair.core import _backend
from torchair.core.utils import logger

_print = PythonPrinter().doprint


class Program:
    """``lines``: the body of the function ``kernel(args)``."""

    def __init__(self, compiled):
        self.compiled = compiled
        self.graph = compiled.graph
        self.config = compiled.config
        self.bound = compiled.reuse  # output to input
        ops = sorted((op for op in self.graph.op if op.type in ("Data", "RefData")), key=lambda op: op.attr["index"].i)
        self.inputs = [self.graph.inputs[op.name] for op in ops]
        self.output_count = len(self.graph.attr["_output_dtypes"].list.i)
        self.engine_graph = None
        self.ran = False  # what the engine refuses before that, it refuses to compile
        self.symbols = {}
        self.lines = self._lines()

    # ---- Source ----

    def expression(self, value):
        """As Python, over the symbols, which the function reads from its arguments."""
        if is_symbolic(value):
            value = value.node.expr
        if isinstance(value, (bool, int, float)):
            return repr(value)
        for symbol in value.free_symbols:
            self._need(symbol)
        return _print(value)

    def _need(self, symbol):
        if symbol in self.symbols:
            return
        for place, arg in enumerate(self.compiled.args):
            if is_symbolic(arg) and arg.node.expr == symbol:
                self.symbols[symbol] = f"arg{place}"
                return
        for place, arg in enumerate(self.compiled.args):
            if not isinstance(arg, torch.Tensor):
                continue
            for getter, values in (("size", arg.shape), ("stride", arg.stride())):
                for dim, value in enumerate(values):
                    if is_symbolic(value) and value.node.expr == symbol:
                        self.symbols[symbol] = f"arg{place}.{getter}({dim})"
                        return
        for place, arg in enumerate(self.compiled.args):  # sizes like 2*s0
            if not isinstance(arg, torch.Tensor) and not is_symbolic(arg):
                continue
            values = [(f"arg{place}", arg)] if is_symbolic(arg) else [(f"arg{place}.size({i})", s) for i, s in enumerate(arg.shape)]
            for text, value in values:
                if is_symbolic(value) and value.node.expr.free_symbols == {symbol}:
                    size = sympy.Symbol("size", integer=True)
                    solved = sympy.solve(value.node.expr - size, symbol)
                    if len(solved) == 1:
                        self.symbols[symbol] = f"int({_print(solved[0].subs(size, sympy.Symbol('SIZE')))})".replace("SIZE", text)
                        return
        raise AssertionError(f"the symbol {symbol} is no size of an input of graph {self.graph.name}")

    def _lines(self):
        body, names, copies = [], [], []
        for i, entry in enumerate(self.inputs):
            if entry.kind == "arg":
                name = f"arg{entry.value}"
                if not entry.is_contiguous:
                    body.append(f"in{i} = {name}.contiguous()")
                    if i in self.bound.values() or entry.node.name in self.graph.ref_data:
                        copies.append((entry.value, i))
                    name = f"in{i}"
                names.append(name)
                continue
            name = f"in{i}"
            if entry.kind == "sym":
                kind = {11: "torch.float32", 1: "torch.float32", 12: "torch.bool"}.get(entry.node.output_desc[0].dtype, "torch.int64")
                body.append(f"{name} = torch.tensor({self.expression(entry.value)}, dtype={kind})")
            elif entry.kind == "pack":
                parts = ", ".join(self.expression(each) for each in entry.value)
                body.append(f"{name} = torch.tensor([{parts}])")
            else:
                body.append(f"{name} = rng_offsets()")
            names.append(name)
        assigned = "()"
        on_host = self.compiled.executor == 0  # where results have memory of their own
        if self.bound and not on_host:
            places = [names[self.bound[i]] if i in self.bound else "None" for i in range(self.output_count)]
            assigned = f"({', '.join(places)},)"
        body.append(f"outs = run((({''.join(name + ', ' for name in names)}), {assigned}, None))")
        for output, i in sorted(self.bound.items()) if on_host else ():
            body.append(f"{names[i]}.copy_(outs[{output}])")
        for place, i in copies:
            body.append(f"arg{place}.copy_(in{i})")
        results = ", ".join(self._result(each) for each in self.compiled.results)
        head = []
        if self.compiled.args:
            head.append("".join(f"arg{i}, " for i in range(len(self.compiled.args))) + "= args")
        head += [f"{symbol} = {text}" for symbol, text in self.symbols.items()]
        return [*head, *body, f"return [{results}]"]

    def _result(self, result):
        kind, value, *meta = result
        if kind == "constant":
            return repr(value)
        if kind == "sym":
            return self.expression(value)
        if kind == "item":
            return f"outs[{value}].item()"
        if kind == "input":
            return f"arg{value}"
        if kind == "edge":
            place = self.bound.get(value)
            if place is not None:
                entry = self.inputs[place]
                return f"arg{entry.value}"
            return f"outs[{value}]"
        meta = meta[0]
        source = f"arg{value}"
        if kind != "strided":
            source = f"torch.{kind}({source})"
            original = self.compiled.args[value]
            wanted = torch.view_as_real(original) if kind == "view_as_real" else torch.view_as_complex(original)
            if str(tuple(wanted.shape)) == str(tuple(meta.shape)) and str(tuple(wanted.stride())) == str(tuple(meta.stride())):
                return source
        sizes = "".join(self.expression(each) + ", " for each in meta.shape)
        strides = "".join(self.expression(each) + ", " for each in meta.stride())
        return f"{source}.as_strided(({sizes}), ({strides}), {self.expression(meta.storage_offset())})"

    def source(self):
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"def kernel(args):\n{body}\n"

    # ---- Running ----

    def runner(self):
        """The function; its first call gives the graph to the engine."""
        names = {"torch": torch, "math": __import__("math"), "rng_offsets": self.rng_offsets, "run": self.first_run}
        code = compile(self.source(), f"<{self.graph.name}>", "exec")
        exec(code, names)  # noqa: S102  our own text
        self.names = names
        kernel = names["kernel"]
        if self.compiled.refused is not None:
            self._try_first(kernel, names)
        kernel._boxed_call = True
        kernel.graph = self.compiled
        return kernel

    def _try_first(self, kernel, names):
        """The first call finds out whether the engine takes the graph; later ones cost nothing for that."""
        code = kernel.__code__

        def first(args):
            kernel.__code__ = code
            values = list(args)
            try:
                return kernel(args)
            except RuntimeError as error:
                other = names["other"] = None if self.ran else self.compiled.refused(error)
                if other is None:
                    raise
            kernel.__code__ = _call_other.__code__
            return kernel(values)

        names["first"] = first
        kernel.__code__ = _call_first.__code__

    def rng_offsets(self):
        return self.graph.rng.offsets()

    def first_run(self, everything):
        inputs = everything[0]
        self.prepare(inputs)
        self.ran = True
        results = self.engine_graph.run(*everything)
        if len(results) != self.output_count:
            raise AssertionError(
                f"graph {self.graph.name} has {self.output_count} results, but the engine gave {len(results)}"
            )
        # What the engine refuses later is decorated, too; the plain function is taken where it passes.
        self.names["run"] = _decorating(self.engine_graph.run_base)
        return results

    def prepare(self, inputs):
        from torchair._ge_concrete_graph import graph_pass

        if self.config.experimental_config.enable_ref_data:
            graph_pass.name_ref_data(self.graph, self.bound, inputs)
        self.compiled.dump("optimized")
        if self.config.export.export_mode:
            from torchair import npu_export

            npu_export.export_graph(self.compiled, inputs)
        formats.describe(self.graph.name, self.inputs, inputs)
        local, glob = self.last_options = self.options(inputs)
        _backend.initialize_graph_engine(glob)
        self.engine_graph = _backend.TorchNpuGraph(self.graph.name)
        self.engine_graph.load(self.graph, local)
        if self.config.debug.deadlock_check:
            self.engine_graph.set_on_load(lambda timeline: deadlock.check(self.graph, timeline))
        if self.config.aoe_config.aoe_mode and not self._is_dynamic():
            self.engine_graph.auto_tune(list(inputs))
        self.engine_graph.compile()
        logger.debug("graph %s is compiled (%s)", self.graph.name, "static" if self.engine_graph.is_static else "dynamic")

    def _is_dynamic(self):
        return any(-1 in entry.node.output_desc[0].shape.dim for entry in self.inputs)

    def options(self, inputs):
        """(of the graph, of the process)."""
        local, glob = self.config.as_dict()
        glob.update(global_options())
        local.update(dump_options.take(self.graph, glob))
        local["ge.exec.atomicCleanPolicy"] = "1"
        for key in ("ge.deterministic", "ge.deterministicLevel"):
            local[key] = glob[key]
        local["ge.exec.allTensorNotEmpty"] = "0" if self.graph.has_empty else "1"
        local["ge.inputHintShape"] = ";".join(
            f"{i}:[{','.join(str(size) for size in tensor.shape)}]" for i, tensor in enumerate(inputs)
        )
        local["frozenInput"] = ",".join(str(int(self._is_frozen(entry))) for entry in self.inputs)
        if self.compiled.is_inference:
            local["weightInput"] = ",".join(str(int(self._is_weight(entry))) for entry in self.inputs)
        free = [str(i) for i in range(self.output_count) if i not in self.bound]
        if free:
            local["ge.exec.outputReuseMemIndexes"] = ",".join(free)
        if self.bound and not any(self.inputs[i].is_host for i in self.bound.values()):
            local["ge.exec.outputReuseInputMemIndexes"] = "|".join(f"{i},{o}" for o, i in sorted(self.bound.items()))
        local.update(gears.options(self.inputs, self.config))
        if self.compiled.extra_options:
            local.update(self.compiled.extra_options, **{"ge.graph_key": self.graph.name})
        return local, glob

    def _is_frozen(self, entry):
        return bool(self.config.experimental_config.frozen_parameter) and self._is_weight(entry)

    @staticmethod
    def _is_weight(entry):
        return entry.kind == "arg" and bool(entry.flag) and entry.is_contiguous and not entry.is_host

    def codegen(self, extra_options=None, caches=False):
        from torchair._ge_concrete_graph import codegen

        return codegen.program_text(self, extra_options, caches)


def _call_first(args):
    return first(args)  # noqa: F821  of the generated function


def _call_other(args):
    return other(args)  # noqa: F821  of the generated function


def _decorating(run):
    from torchair._errors import decorated

    def call(everything):
        try:
            return run(everything)
        except Exception as error:
            raise decorated(error) from None

    return call


def global_options():
    """Options of the process that no configuration sets."""
    torch_npu = sys.modules.get("torch_npu")
    options = {
        "ge.exec.staticMemoryPolicy": "2",
        "ge.opSelectImplmode": "high_precision",
        "ge.exec.deviceId": str(_backend.device_id()),
        "ge_run_with_torch_npu": "0" if torch_npu is None else "1",
        "ge.exec.allow_hf32": "10",
        "ge.deterministic": "1",
        "ge.deterministicLevel": "0",
    }
    if torch_npu is not None:
        options["ge.deterministic"] = "1" if torch.are_deterministic_algorithms_enabled() else "0"
        options["ge.exec.allow_hf32"] = "".join(
            "1" if getattr(part, "allow_hf32", default) else "0"
            for part, default in ((getattr(torch_npu.npu, "conv", None), True), (getattr(torch_npu.npu, "matmul", None), False))
        )
    return options


__all__ = ["Program", "dumps", "global_options", "os"]
