# SPDX-License-Identifier: Apache-2.0
"""Compiled methods in files: the next process runs them without dynamo and without converting anything."""
import builtins
import dataclasses
import dis
import fcntl
import hashlib
import importlib
import io
import marshal
import os
import pickle
import shutil
import stat
import sys
import time
import types
import warnings

import torch

from torchair.configs.compiler_config import CompilerConfig
from torchair.core.utils import logger

VERSIONS = {"max-autotune": "1.0.5", "reduce-overhead": "1.0.5", "npugraph_ex": "1.0.6"}


@dataclasses.dataclass
class CacheMeta:
    name: str
    date: str
    version: str


@dataclasses.dataclass
class CompiledFX:
    signature: str
    py_code: str
    parameters: list  # (qualified name, whether it is a Parameter)


@dataclasses.dataclass
class CacheContent:
    meta: CacheMeta
    code: bytes  # marshalled: the function as dynamo has compiled it
    compiled: CompiledFX


_CLASSES = {each.__name__: each for each in (CacheMeta, CompiledFX, CacheContent)}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module == __name__ and name in _CLASSES:
            return _CLASSES[name]
        raise pickle.UnpicklingError(f"a cache holds no {module}.{name}")


class _Broken(Exception):
    pass


# ---- Files ----


def _read(path):
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        found_target = os.stat(path)
        if found_target.st_uid != os.getuid():
            raise _Broken(f"{path} leads to a file of another user")
        found = found_target
    if found.st_uid != os.getuid():
        raise _Broken(f"{path} belongs to another user")
    if stat.S_IMODE(found.st_mode) != 0o600:
        raise _Broken(f"{path} has mode {stat.S_IMODE(found.st_mode):o}, not 600")
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            content = _Unpickler(file).load()
        except Exception as error:
            raise _Broken(f"{path} cannot be read: {error}") from error
    if not isinstance(content, CacheContent):
        raise _Broken(f"{path} holds no compiled function")
    return content


def _write(path, content):
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    part = f"{path}.{os.getpid()}"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        pickle.dump(content, file)
    os.replace(part, path)


def readable_cache(cache_bin, print_output=True, file=None):
    """What a file of a cache holds, as text."""
    if not os.path.isfile(cache_bin) or os.path.islink(cache_bin):
        raise ValueError(f"readable_cache: {cache_bin} must be a file, and no symbolic link")
    content = _read(os.path.realpath(cache_bin))
    out = io.StringIO()
    print(f"name: {content.meta.name}\ndate: {content.meta.date}\nversion: {content.meta.version}", file=out)
    print(f"signature: {content.compiled.signature}\n", file=out)
    code = marshal.loads(content.code)
    print(dis.Bytecode(code).dis(), file=out)
    print(content.compiled.py_code, file=out)
    text = out.getvalue()
    if file is not None:
        with open(file, "w") as target:
            target.write(text)
    if print_output:
        print(text)
    return text


# ---- Where a function is kept ----


def _options_text(config):
    parts = []
    for path, option in config.leaves():
        value = option.raw
        if callable(value):
            value = dis.Bytecode(value).dis() if hasattr(value, "__code__") else repr(type(value))
        parts.append(f"{path}={value!r}")
    return "\n".join(parts)


def _folder(func, config, dynamic, cache_dir, ge_cache, ranks):
    module = func.__self__
    root = cache_dir or os.environ.get("TORCHAIR_CACHE_HOME") or os.path.join(os.getcwd(), ".torchair_cache")
    kind = "dynamic" if dynamic else "static"
    if config.captures():
        kind += "_aclgraphcache"
    elif ge_cache:
        kind += "_gecache"
    digest = hashlib.md5(f"{module}{_options_text(config)}".encode(), usedforsecurity=False).hexdigest()
    parts = [root, f"{type(module).__name__}_{kind}_{digest}"]
    world, rank = _world(ranks)
    if world > 1:
        text = f"world{world}global_rank{rank}"
        for name in ("tp_rank", "pp_rank"):
            if ranks[name] is not None:
                text += f"_{name}{ranks[name]}"
        parts.append(text)
    return os.path.join(*parts, func.__name__)


def _world(ranks):
    world = rank = None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        world, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    if ranks["global_rank"] is not None:
        rank = ranks["global_rank"]
        world = world or int(os.environ.get("WORLD_SIZE", "2"))
    return world or 1, rank or 0


# ---- The function ----


class CacheBackend:
    """Compiles like the backend, and remembers the graph."""

    def __init__(self, config, custom_decompositions, extra_options):
        self.config, self.custom_decompositions, self.extra_options = config, custom_decompositions, extra_options
        self.graphs = []

    def __call__(self, gm, example_inputs, **kwargs):
        from torchair.npu_fx_compiler import _FxCompiler, compile_with_aot

        backend = self

        class Compiler(_FxCompiler):
            may_split = False  # one graph is stored

            def compile(self, gm, example_inputs):
                graph = self.convert(gm, example_inputs)
                if isinstance(graph, torch.fx.GraphModule):
                    return graph
                graph.extra_options = backend.extra_options
                run = graph.runner()
                backend.graphs.append(graph)
                return run

        return compile_with_aot(
            gm, example_inputs, self.config, self.custom_decompositions, kwargs.get("options"), cache=Compiler
        )


class CachedFunction:
    """What cache_compile gives: called like the method."""

    def __init__(self, func, config, dynamic, folder, custom_decompositions, extra_options):
        self.func, self.config, self.dynamic, self.folder = func, config, dynamic, folder
        self.path = os.path.join(folder, "compiled_module")
        self.custom_decompositions, self.extra_options = custom_decompositions, extra_options
        self.version = VERSIONS[config.mode.value]
        self.run = None
        self._made = []  # code as dynamo has compiled it
        if os.path.lexists(self.path):
            self._load()

    def __call__(self, *args, **kwargs):
        run = self._compile_and_run if self.run is None else self.run
        if not torch.is_grad_enabled():
            return run(*args, **kwargs)
        with _refusing_gradients(self.func, args, kwargs):
            return run(*args, **kwargs)

    # ---- Found ----

    def _load(self):
        try:
            content = _read(self.path)
            if content.meta.version != self.version:
                raise _Broken(f"{self.path} is of version {content.meta.version}, not {self.version}")
            self.run = self._rebuild(content)
            logger.info("loaded %s", self.path)
        except Exception as error:
            warnings.warn(f"Clear broken cache {self.folder}: {error}", UserWarning, stacklevel=3)
            logger.warning("Clear broken cache %s: %s", self.folder, error)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.run = None

    def _rebuild(self, content):
        code = marshal.loads(content.code)
        names = {}
        exec(compile(content.compiled.py_code, self.path, "exec"), names)  # noqa: S102  a file of this user's
        kernel = names["kernel"]
        if self.extra_options and "_update_ge_cache_dir" in names:
            names["_update_ge_cache_dir"](self.folder)
        return _bind(code, self.func, kernel)

    # ---- Made ----

    def _compile_and_run(self, *args, **kwargs):
        backend = CacheBackend(self.config, self.custom_decompositions, self.extra_options)
        target = self.func.__func__.__code__
        handle = torch._dynamo.convert_frame.register_bytecode_hook(
            lambda old, new: self._made.append(new) if old is target else None
        )
        try:
            if not hasattr(self, "compiled"):
                self.compiled = torch.compile(self.func, backend=self._counting(backend), dynamic=self.dynamic, fullgraph=True)
            before = len(self._made)
            result = self.compiled(*args, **kwargs)
        finally:
            handle.remove()
        if len(self._made) > before:
            if before:
                warnings.warn(
                    f"{self.func.__qualname__} was compiled once more, for other inputs, so that its cache {self.folder} is removed",
                    UserWarning, stacklevel=3,
                )
                shutil.rmtree(self.folder, ignore_errors=True)
            else:
                self._save()
        return result

    def _counting(self, backend):
        self.backend = backend
        return backend

    def _save(self):
        graphs = self.backend.graphs
        try:
            if len(graphs) != 1:
                raise ValueError(f"{len(graphs)} graphs were compiled")
            text = graphs[0].codegen(self.extra_options, caches=True)
            if text is None:
                raise ValueError("the graph has no program")
            code = _portable(self._made[-1])
            content = CacheContent(
                CacheMeta(self.func.__qualname__, time.strftime("%Y-%m-%d %H:%M:%S"), self.version),
                marshal.dumps(code),
                CompiledFX(f"{self.func.__qualname__}{_signature(self.func)}", text, []),
            )
            _missing_names(code, self.func)
            _write(self.path, content)
        except AssertionError:
            raise
        except Exception as error:
            warnings.warn(f"{self.func.__qualname__} is not cached: {error}", UserWarning, stacklevel=4)


def _signature(func):
    import inspect

    return str(inspect.signature(func))


class _refusing_gradients:  # noqa: N801  a context
    """Gradients cannot come from a cache."""

    def __init__(self, func, args, kwargs):
        tensors = [each for each in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if any(each.requires_grad for each in tensors):
            raise RuntimeError("Backward cache compilation is not supported yet")
        self.guard = torch.no_grad()

    def __enter__(self):
        self.guard.__enter__()

    def __exit__(self, *why):
        self.guard.__exit__(*why)


def _portable(code):
    marshal.dumps(code)
    return code


def _compiled_names(code):
    return [name for name in code.co_names if name.startswith("__compiled_fn")]


def _missing_names(code, func):
    """Raises for a name that another process does not have."""
    known = func.__func__.__globals__
    for name in code.co_names:
        if name.startswith("__") and name not in known and not hasattr(builtins, name):
            if name.startswith(("__compiled_fn", "__import_", "__builtins_dict__")) or _is_attribute(code, name):
                continue
            raise ValueError(f"it needs {name}, which only this process has")


def _is_attribute(code, name):
    return all(each.opname not in ("LOAD_GLOBAL", "LOAD_NAME") for each in dis.get_instructions(code) if each.argval == name)


def _bind(code, func, kernel):
    """The function around the kernel: with the names of its module and the cells of its closure."""
    names = dict(func.__func__.__globals__)
    for name in code.co_names:
        if name.startswith("__import_"):
            names[name] = importlib.import_module(name.removeprefix("__import_").replace("_dot_", "."))
        elif name.startswith("__builtins_dict__"):
            names[name] = builtins.__dict__
    for name in _compiled_names(code):
        names[name] = lambda *args: tuple(kernel(*args))
    own = func.__func__
    cells = dict(zip(own.__code__.co_freevars, own.__closure__ or ()))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, names, own.__name__, own.__defaults__, closure)
    made.__kwdefaults__ = own.__kwdefaults__
    return types.MethodType(made, func.__self__)


def cache_compile(func, *, config=None, backend=None, dynamic=True, cache_dir=None, global_rank=None, tp_rank=None, pp_rank=None,
                  custom_decompositions=None, ge_cache=False):
    """Compiles a method of a module when it is called, and keeps it in a file for the next process."""
    if not isinstance(func, types.MethodType) or not isinstance(func.__self__, torch.nn.Module):
        raise ValueError(f"cache_compile: only bound methods of a torch.nn.Module can be cached, not {func!r}")
    if backend is not None:
        own = getattr(backend, "config", None)
        if own is None:
            raise ValueError("cache_compile: backend must come from torchair.get_npu_backend")
        if config is not None and config != own:
            raise ValueError("cache_compile: config and the config of backend differ; give one of them")
        config = own
        custom_decompositions = custom_decompositions or backend.custom_decompositions
    config = config or CompilerConfig()
    if cache_dir is not None and os.path.exists(cache_dir) and os.stat(cache_dir).st_uid != os.getuid():
        raise ValueError(f"cache_compile: cache_dir {cache_dir} belongs to another user")
    ranks = {"global_rank": global_rank, "tp_rank": tp_rank, "pp_rank": pp_rank}
    if ge_cache and config.captures():
        logger.warning_once("ge_cache has no effect for captured graphs")
        ge_cache = False
    folder = _folder(func, config, dynamic, cache_dir, ge_cache, ranks)
    extra = None
    if ge_cache:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        extra = {"ge.graph_compiler_cache_dir": folder}
    return CachedFunction(func, config, dynamic, folder, custom_decompositions, extra)


_ = sys
