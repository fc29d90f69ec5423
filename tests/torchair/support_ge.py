# SPDX-License-Identifier: Apache-2.0
"""Compiled functions beside eager ones."""
import torch
import torchair

tree = torch.utils._pytree


def config_of(**experimental):
    config = torchair.CompilerConfig()
    for name, value in experimental.items():
        setattr(config.experimental_config, name, value)
    return config


class Counting:
    """The backend, and how often it compiled."""

    def __init__(self, config=None, **kwargs):
        self.compile = torchair.get_npu_backend(compiler_config=config, **kwargs)
        self.count = 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.compile(*args, **kwargs)


def compiled(function, dynamic=False, config=None, **kwargs):
    """Compiled; ``count`` of its attribute ``backend`` says how often."""
    backend = Counting(config, **kwargs)
    made = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=True)

    def call(*args, **kw):
        return made(*args, **kw)

    call.backend = backend
    return call


def on_host(values):
    return tree.tree_map(lambda each: each.detach().cpu() if isinstance(each, torch.Tensor) else each, values)


def equal(result, expected, bound=1e-4):
    torch.testing.assert_close(on_host(result), on_host(expected), rtol=bound, atol=bound)


def cloned(values):
    return tree.tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, values)


def check(function, *args, dynamic=False, config=None, bound=1e-4):
    """Results and what is written to the arguments are those of the eager function. Gives the compiled one."""
    own, other = cloned(args), cloned(args)
    step = compiled(function, dynamic, config)
    equal(step(*own), function(*other), bound)
    equal(own, other, bound)
    return step


def graphs_of(function, *args, dynamic=False, config=None, monkeypatch=None):
    """The graphs of the engine that a call makes."""
    from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph

    made = []
    optimize = GeConcreteGraph.optimize

    def note(self):
        made.append(self)
        optimize(self)

    GeConcreteGraph.optimize = note
    try:
        result = compiled(function, dynamic, config)(*args)
    finally:
        GeConcreteGraph.optimize = optimize
    return made, result


def types(graph):
    return [op.type for op in graph.graph.op]


def numbers(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).npu()


def tokens(high, *shape):
    return torch.randint(0, high, shape).npu()
