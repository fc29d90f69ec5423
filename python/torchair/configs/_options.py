# SPDX-License-Identifier: Apache-2.0
"""Options: values with a rule for what they may be, in groups whose names are fixed."""
import copy
import os
import re

from torchair._errors import decorated


class Option:
    """A value. ``local`` and ``glob`` are the keys of the graph engine under which it travels, for a graph or for the process."""

    def __init__(self, default=None, local=None, glob=None, only_if_set=False):
        self.raw = default
        self.default = default
        self.local, self.glob, self.only_if_set = local, glob, only_if_set

    @property
    def value(self):
        if self.raw is None or callable(self.raw) or isinstance(self.raw, (list, dict, tuple)):
            return self.raw
        if isinstance(self.raw, bool):
            return "1" if self.raw else "0"
        return str(self.raw)

    @value.setter
    def value(self, value):
        self.set(value)

    def set(self, value):
        self.raw = self.checked(value)

    def checked(self, value):
        return value

    @property
    def engine_value(self):
        """As the engine reads it."""
        return self.value

    def __bool__(self):
        return bool(self.raw)

    def __eq__(self, other):
        return isinstance(other, Option) and type(self.raw) is type(other.raw) and self.raw == other.raw

    __hash__ = None


class Choice(Option):
    def __init__(self, default, *others, codes=None, **keys):
        super().__init__(default, **keys)
        self.values = [default, *others]
        self.codes = codes or {}

    def checked(self, value):
        if not any(value is each or (type(value) is type(each) and value == each) for each in self.values):
            raise ValueError(f"{value!r} not in optional list {self.values}")
        return value

    @property
    def engine_value(self):
        return self.codes.get(self.raw, self.value)


class Bool(Choice):
    def __init__(self, default=False, **keys):
        super().__init__(default, not default, **keys)


class Word(Bool):
    """A switch that the engine wants in words."""

    def __init__(self, **keys):
        super().__init__(False, codes={True: "true", False: "false"}, **keys)


class Maybe(Choice):
    def __init__(self, **keys):
        super().__init__(None, True, False, codes={True: "true", False: "false"}, **keys)


class Text(Option):
    def checked(self, value):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"Please set str type, but got {type(value)}")
        return value


class Pattern(Option):
    def __init__(self, pattern, example, **keys):
        super().__init__("", **keys)
        self.pattern, self.example = re.compile(pattern), example

    def checked(self, value):
        if not isinstance(value, str) or not self.pattern.fullmatch(value):
            raise ValueError(f"{value!r} is not of the form that is expected here, for example {self.example!r}")
        return value


class Int(Option):
    def __init__(self, default, least, most=2**63 - 1, **keys):
        super().__init__(default, **keys)
        self.least, self.most = least, most

    def checked(self, value):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"Please set integer type, but got {type(value)}")
        if not self.least <= value <= self.most:
            raise ValueError(f"Please set value in [{self.least}, {self.most}], {value} is out of range.")
        return value


class Ints(Option):
    def checked(self, value):
        if value is not None and not (isinstance(value, list) and all(type(each) is int for each in value)):
            raise TypeError(f"Please set a list of int, but got {type(value)}: {value!r}")
        return value


class Dict(Option):
    def checked(self, value):
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"Please set dict type, but got {type(value)}")
        return value


class Callback(Option):
    def checked(self, value):
        if value is not None and not callable(value):
            raise TypeError(f"Please set a callable or None, but got {type(value)}")
        return value


class RealPath(Option):
    """A path that is made when something is written there."""

    def checked(self, value):
        return None if value is None else os.path.realpath(value)


class Folder(Option):
    def checked(self, value):
        if value is None or not os.path.isdir(value):
            raise FileNotFoundError(f"Please set legal dir path, {value} is not found or is not a file directory!")
        return os.path.realpath(value)


class File(Option):
    def __init__(self, suffix="", **keys):
        super().__init__(None, **keys)
        self.suffix = suffix

    def checked(self, value):
        if value is None:
            raise FileNotFoundError("Please set legal file path, None is not found or is not a file!")
        if value == "" and self.suffix:
            raise ValueError("Please set legal file path, it cannot be empty")
        kind = f"'{self.suffix}' file" if self.suffix else "file"
        if not os.path.isfile(value) or not value.endswith(self.suffix):
            raise FileNotFoundError(f"Please set legal file path, {value} is not found or is not a {kind}!")
        return os.path.realpath(value)


class Pool(Option):
    """The handle of a pool of memory, as torch.npu.graph_pool_handle() gives it."""

    def checked(self, value):
        if value is not None and not is_pool(value):
            raise TypeError(
                f"Please set a pool handle, a tuple of two integers of which one is 0, but got {value!r} of {type(value)}"
            )
        return value


def is_pool(value):
    return (
        isinstance(value, tuple) and len(value) == 2 and all(type(each) is int for each in value) and 0 in value
    )


class Group:
    """Options and groups by name. ``OPTIONS`` of a subclass is the table; each object gets a copy."""

    OPTIONS = {}

    def __init__(self):
        self.__dict__["_options"] = {
            name: entry() if isinstance(entry, type) else copy.deepcopy(entry) for name, entry in self.OPTIONS.items()
        }

    def __getattr__(self, name):
        try:
            return self.__dict__["_options"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}") from None

    def __setattr__(self, name, value):
        try:
            entry = self._options.get(name)
            if entry is None:
                raise ValueError(f"{type(self).__name__} has no attribute {name!r}, options are {list(self._options)}")
            if isinstance(entry, Group):
                if type(value) is not type(entry):
                    raise TypeError(f"{type(self).__name__}.{name} is a {type(entry).__name__}, not {type(value)}")
                self._options[name] = value
            else:
                entry.set(value)
        except Exception as error:
            raise decorated(error) from None

    def __dir__(self):
        return [*super().__dir__(), *self._options]

    def __deepcopy__(self, memo):
        other = type(self)()
        other.__dict__["_options"] = {name: copy.deepcopy(entry, memo) for name, entry in self._options.items()}
        return other

    def __reduce__(self):
        return _restored, (type(self), self._options)

    def __eq__(self, other):
        return type(self) is type(other) and self._options == other._options

    __hash__ = None

    def leaves(self, prefix=""):
        """(path, option) of each option in here."""
        for name, entry in self._options.items():
            if isinstance(entry, Group):
                yield from entry.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name, entry

    def find(self, path):
        entry = self
        for name in path.split("."):
            entry = getattr(entry, name)
        return entry

    def assign(self, path, value):
        parent, _, name = path.rpartition(".")
        setattr(self.find(parent) if parent else self, name, value)

    def __repr__(self):
        return "\n".join(f"{path} = {option.raw!r}" for path, option in self.leaves())


def _restored(kind, options):
    group = kind()
    group.__dict__["_options"] = options
    return group
