# SPDX-License-Identifier: Apache-2.0
"""``torchair.explain``: what becomes of a function when it is compiled."""
import collections
import dataclasses
import html
import json
import os
import tempfile
import textwrap
import typing

import torch
from torchair import _watch
from torchair.configs.compiler_config import CompilerConfig


@dataclasses.dataclass
class GraphStory:
    """One compiled graph."""

    name: str
    phase: str
    mode: str  # "captured", "compiled by the engine", "runs eagerly"
    operators: typing.Dict[str, int]
    changes: typing.Dict[str, int]  # by pass: places
    tasks: int = 0
    streams: int = 0
    bytes: int = 0
    fallbacks: typing.Dict[str, int] = dataclasses.field(default_factory=dict)
    keys: typing.List[str] = dataclasses.field(default_factory=list)

    def lines(self):
        names = ", ".join(f"{name} {count}×" if count > 1 else name for name, count in self.operators.items())
        found = [f"{self.mode}, {self.phase}", f"operators: {names or 'none'}"]
        changed = [f"{name} {count}" for name, count in self.changes.items() if count]
        found.append(f"passes: {', '.join(changed)}" if changed else "passes changed nothing")
        if self.keys:
            found.append(f"{self.tasks} tasks on {self.streams} stream(s), {self.bytes} bytes of its own; keys {', '.join(self.keys)}")
        if self.fallbacks:
            slow = ", ".join(f"{name} {count}×" if count > 1 else name for name, count in self.fallbacks.items())
            found.append(f"{'as kernels of PyTorch for the CPU' if self.mode == 'captured' else 'run by PyTorch'}: {slow}")
        return found


@dataclasses.dataclass
class Explanation:
    graphs: typing.List[GraphStory]
    breaks: typing.List[str]

    def __str__(self):
        lines = [f"{len(self.graphs)} graph(s), {len(self.breaks)} break(s)"]
        for graph in self.graphs:
            lines += [graph.name, *("  " + line for line in graph.lines())]
        for number, reason in enumerate(self.breaks, 1):
            lines += [f"break {number}", *("  " + line for line in reason.splitlines())]
        return "\n".join(lines)

    def picture(self, path):
        """Writes an SVG."""
        if not str(path).endswith(".svg"):
            raise ValueError(f"explain writes pictures as .svg, not as {path}")
        with open(path, "w") as file:
            file.write(_svg(self))


_WIDTH, _LINE = 100, 17  # letters, pixels


def _box(y, title, lines, color):
    wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH) or [""]]
    height = _LINE * (len(wrapped) + 1) + 16
    parts = [f'<rect x="16" y="{y}" width="768" height="{height}" rx="6" fill="{color}" stroke="#888"/>']
    parts.append(f'<text x="28" y="{y + 20}" font-weight="bold">{html.escape(title)}</text>')
    for number, line in enumerate(wrapped, 1):
        parts.append(f'<text x="28" y="{y + 20 + number * _LINE}">{html.escape(line)}</text>')
    return parts, y + height


def _svg(explanation):
    parts, y = [], 16
    for number, graph in enumerate(explanation.graphs):
        color = "#e4f1e4" if graph.mode == "captured" else "#e4ecf7" if "engine" in graph.mode else "#f6f0dc"
        made, y = _box(y, graph.name, graph.lines(), color)
        parts += made
        if number < len(explanation.breaks):
            made, y = _box(y + 8, f"break {number + 1}", explanation.breaks[number].splitlines(), "#f7e0e0")
            parts += made
        y += 8
    for number in range(len(explanation.graphs), len(explanation.breaks)):
        made, y = _box(y, f"break {number + 1}", explanation.breaks[number].splitlines(), "#f7e0e0")
        parts, y = parts + made, y + 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="800" height="{y + 8}" viewBox="0 0 800 {y + 8}" '
        'font-family="monospace" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>\n"])


# ---- What there is to tell ----


def _short(target):
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return getattr(target, "__name__", str(target))


def _operators(gm):
    found = collections.Counter()
    for node in gm.graph.nodes:
        if node.op == "call_function" and _short(node.target) != "getitem":
            found[_short(node.target)] += 1
    return dict(found.most_common())


def _tasks(graph):
    """The tasks of a captured graph, as its trace has them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.json")
        graph.debug_dump(path)
        with open(path) as file:
            trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    return [event for event in events if event.get("ph") == "X"]


def _story(graph):
    is_capture = hasattr(graph, "acl_graph")
    story = GraphStory(
        name=graph.name,
        phase=getattr(graph, "phase", None) or "forward",
        mode="compiled by the engine",
        operators=_operators(graph.gm) if getattr(graph, "gm", None) is not None else {},
        changes=dict(getattr(graph, "changes", {})),
    )
    if not is_capture:
        story.fallbacks = dict(getattr(graph, "fallbacks", {}))
        return story
    captured = graph.acl_graph.graphs if graph.acl_graph is not None else {}
    story.mode = "captured" if captured else "runs eagerly"
    story.keys = list(captured)
    streams, slow = set(), collections.Counter()
    for each in captured.values():
        for event in _tasks(each):
            streams.add(event.get("tid"))
            story.tasks += 1
            given = event.get("args", {})
            if str(given.get("Task Type", "")).startswith("KERNEL") and "Kernel Args" not in given:
                slow[event["name"]] += 1
    story.streams, story.fallbacks = len(streams), dict(slow.most_common())
    if captured:
        story.bytes = sum(
            segment["total_size"] for segment in torch.npu.memory_snapshot(tuple(graph.acl_graph.pool))
        )
    return story


def _why(reason):
    text = str(getattr(reason, "reason", reason)).strip().splitlines()
    place = getattr(reason, "user_stack", None) or []
    where = [f"at {frame.filename}:{frame.lineno} in {frame.name}" for frame in place[-1:]]
    return "\n".join([line.strip() for line in text[:4] if line.strip()] + where)


def explain(function, *args, config=None, dynamic=None, **kwargs):
    """Compiles and runs a function, and tells which graphs it became, where and why it was cut, what passes did, which
    operators have no kernel of the device, how many tasks, streams and bytes there are.

    ``config``: a CompilerConfig; without one, the function is captured (mode npugraph_ex). Prints as text;
    ``.picture("file.svg")`` draws it. What the program has compiled before is compiled anew afterwards.
    """
    from torchair.npu_fx_compiler import get_npu_backend

    if config is None:
        config = CompilerConfig()
        config.mode = "npugraph_ex"
    function = getattr(function, "_torchdynamo_orig_callable", function)
    torch._dynamo.reset()
    breaks = torch._dynamo.explain(function)(*args, **kwargs).break_reasons
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=get_npu_backend(compiler_config=config), dynamic=dynamic)
    with _watch.watching() as found:
        compiled(*args, **kwargs)
        torch.npu.synchronize()
        stories = [_story(graph) for graph in found]
    torch._dynamo.reset()
    return Explanation(stories, [_why(reason) for reason in breaks])
