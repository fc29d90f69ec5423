# SPDX-License-Identifier: Apache-2.0
"""torchair under its other name, ``torch_npu.dynamo.torchair``, and its backends for torch.compile. Nothing is imported before it
is asked for."""
import importlib
import importlib.abc
import importlib.util
import sys

_ALIAS = __name__ + ".torchair"


class _Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """``torch_npu.dynamo.torchair.X`` is the module ``torchair.X``."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == _ALIAS or fullname.startswith(_ALIAS + "."):
            return importlib.util.spec_from_loader(fullname, self)
        return None

    def create_module(self, spec):
        module = importlib.import_module("torchair" + spec.name.removeprefix(_ALIAS))
        self._own = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self._own  # importing has put that of the alias there


sys.meta_path.insert(0, _Alias())


def __getattr__(name):
    if name == "torchair":
        return importlib.import_module(_ALIAS)
    if name in _BACKENDS:  # torch.compile looks it up, and traces then: streams of npu must be known
        from torch_npu.npu import _dynamo_streams

        _dynamo_streams.register()
        return _BACKENDS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_backends = {}


def _backend(mode):
    """A backend that torch.compile finds by an entry point of the distribution."""

    def compile_with_torchair(gm, example_inputs, **kwargs):
        if mode not in _backends:
            torchair = importlib.import_module("torchair")
            config = torchair.CompilerConfig()
            config.mode = mode
            _backends[mode] = torchair.get_npu_backend(compiler_config=config)
        return _backends[mode](gm, example_inputs, **kwargs)

    return compile_with_torchair


def _npugraph_ex(gm, example_inputs, **kwargs):
    """The backend of that name, with its options."""
    return importlib.import_module("torch_npu.npu.npugraph_ex")._backend(gm, example_inputs, **kwargs)


_npugraph_ex.captures = True  # for torch.npu.set_stream in what dynamo traces
_BACKENDS = {"npu": _backend("max-autotune"), "npugraph_ex": _npugraph_ex, "npugraphs": _npugraph_ex}
