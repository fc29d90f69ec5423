# SPDX-License-Identifier: Apache-2.0
"""Rows of api/torch_ops.csv, and whether they fit what they connect: a signature of PyTorch and a C function.

A row has one word for each parameter of the C function; python/csrc/ops/native.cc explains the words and makes the
calls. A word is checked against the kind of its parameter, and against the argument or result that it names where the
signature is known: those of torch.ops.npu and torch.ops.atb stand in python/torch_npu/_ops. Those of PyTorch itself are
known to tests/torch/test_operator_table.py alone, which makes the same checks with them.
"""

import ast
import re
from dataclasses import dataclass

from op_tables import ONLY, REPO, TORCH, TableError, once, read_rows

NPU_OPERATORS = REPO / "python" / "torch_npu" / "_ops"
WORD = re.compile(r"(?P<apart>!?)(?P<name>[a-zA-Z_]\w*)(?P<integer>#?)(?P<scalar>\$?)(?P<list>(\[\]|\{\})?)"
                  r"(?P<type>%?)(:(?P<choices>[^|]+))?(\|(?P<default>-?\d+(\.\d+)?))?")
RESULT = re.compile(r"!?@(?P<index>\d|\*)(\?(?P<flag>\w+))?")
NUMBER = re.compile(r"=-?\d+(\.\d+)?")
LISTS = {"IntArray", "FloatArray", "BoolArray"}
WHOLE = {"Int", "Bool", "DType"}  # kinds of parameters that an integer is passed for


@dataclass(frozen=True)
class Argument:
    name: str
    type: str  # "Tensor", "Tensor?", "int[]", "Scalar", …, without sizes of lists and marks of aliases
    is_written: bool = False
    default: str = ""  # as the signature has it; empty: there is none


@dataclass(frozen=True)
class Signature:
    arguments: tuple
    results: tuple  # types; an argument that is returned is one, too

    def find(self, name):
        return next((argument for argument in self.arguments if argument.name == name), None)


class TorchRow:
    """A row of api/torch_ops.csv."""

    def __init__(self, row):
        self.name = row["torch"]
        self.function = row["function"]
        self.words = row["arguments"].split()
        self.with_scalar = row["with_scalar"]
        self.only = row["only"]
        if self.only not in ONLY:
            self.fail("only", f"no word '{self.only}'; there are {', '.join(filter(None, ONLY))}")
        if self.is_declared and (self.with_scalar or self.only):
            self.fail("with_scalar" if self.with_scalar else "only", "only for operators of PyTorch itself")

    def fail(self, column, text):
        raise TableError(TORCH, self.name, column, text)

    @property
    def is_declared(self):
        """Of torch.ops.npu or torch.ops.atb, which torch_npu defines."""
        return "::" in self.name

    def function_of(self, column, operators):
        name = getattr(self, column)
        return operators.get(name) or self.fail(column, f"api/ops has no function {name}")

    def check(self, operators, signature=None):
        """Fails with row and column where the words do not fit the function or, if given, the signature."""
        function = self.function_of("function", operators)
        if len(self.words) != len(function.params):
            self.fail("arguments", f"{len(self.words)} words, {function.name} has {len(function.params)} parameters")
        for word, parameter in zip(self.words, function.params):
            why = fault_of(word, parameter, signature)
            if why:
                self.fail("arguments", f"'{word}' for {parameter.name} of {function.name}: {why}")
        if self.with_scalar:
            self.check_with_scalar(function, self.function_of("with_scalar", operators))

    def check_with_scalar(self, function, other):
        if "other" not in self.words:
            self.fail("with_scalar", "no word of column arguments is 'other'")
        if len(other.params) != len(function.params):
            self.fail("with_scalar", f"{other.name} has {len(other.params)} parameters, {function.name} "
                                     f"{len(function.params)}")
        for word, a, b in zip(self.words, function.params, other.params):
            wanted = "Scalar" if word == "other" else a.kind
            if (b.kind, b.role) != (wanted, a.role):
                self.fail("with_scalar", f"{b.name} of {other.name} is {b.role} {b.kind}, expected {a.role} {wanted}")


def fault_of(word, parameter, signature):
    """Why the word does not fit the parameter; empty: it does."""
    if word == "-":
        return "" if parameter.optional else "it may not be null"
    if word == "[]":
        return "" if parameter.kind in LISTS else f"it is no list of numbers, but {parameter.kind}"
    if NUMBER.fullmatch(word):
        wanted = {"Real"} if "." in word else WHOLE
        return "" if parameter.kind in wanted else f"it is {parameter.kind}"
    if word.startswith("%"):
        return fault_of_type_word(word, parameter, signature)
    if match := RESULT.fullmatch(word):
        return fault_of_result(match, parameter, signature)
    if match := WORD.fullmatch(word):
        return fault_of_argument(match, parameter, signature)
    return "it cannot be read"


def fault_of_type_word(word, parameter, signature):
    if not re.fullmatch(r"%\d", word):
        return "it cannot be read"
    if signature and int(word[1]) >= len(signature.results):
        return f"there are {len(signature.results)} results"
    return "" if parameter.kind == "DType" else f"it is no type, but {parameter.kind}"


def fault_of_result(match, parameter, signature):
    if not parameter.is_written:
        return "it is not written"
    wanted = "TensorList" if match["index"] == "*" else "Tensor"
    if parameter.kind != wanted:
        return f"it is {parameter.kind}"
    if match["flag"] and not parameter.optional:
        return "it may not be null"
    if signature is None:
        return ""
    if match["index"] != "*" and int(match["index"]) >= len(signature.results):
        return f"there are {len(signature.results)} results"
    flag = match["flag"] and signature.find(match["flag"])
    if match["flag"] and (flag is None or flag.type not in ("bool", "int", "Tensor?")):
        return f"there is no argument {match['flag']} that is a flag or a tensor"
    return ""


def fault_of_argument(match, parameter, signature):
    kinds = kinds_by_marks(match)
    if kinds and parameter.kind not in kinds:
        return f"it is {parameter.kind}, expected {' or '.join(sorted(kinds))}"
    if parameter.role == "Output" and parameter.kind not in ("Tensor", "TensorList"):
        return f"it is an output of the kind {parameter.kind}"
    if match["choices"] and not all(re.fullmatch(r"[\w-]+=-?\d+", choice) for choice in match["choices"].split(",")):
        return "choices are NAME=NUMBER with ',' between them"
    if signature is None:
        return ""
    argument = signature.find(match["name"])
    if argument is None:
        return f"there is no argument {match['name']}, but {', '.join(a.name for a in signature.arguments)}"
    if parameter.role == "Output" and not argument.is_written:
        return "the signature does not say that the argument is written"
    kinds = kinds or kinds_of_type(argument.type)
    if parameter.kind in kinds:
        return ""
    return f"it is {parameter.kind}, {argument.type} gives {' or '.join(sorted(kinds)) or 'nothing that C takes'}"


def kinds_by_marks(match):
    """Kinds of parameters that the marks behind a name allow; empty: the type of the argument says."""
    if match["choices"] or match["integer"] or match["type"]:
        return WHOLE
    if match["scalar"]:
        return {"Scalar"}
    if match["list"]:
        return {"TensorList"} if match["list"] == "{}" else {"IntArray"}
    if match["default"]:
        return {"Real"} if "." in match["default"] else WHOLE
    return set()


def kinds_of_type(type_name):
    base = type_name.rstrip("?")
    if base in ("Tensor[]", "Tensor?[]"):
        return {"TensorList"}
    return {"Tensor": {"Tensor"}, "Scalar": {"Scalar"}, "int": WHOLE, "SymInt": WHOLE, "bool": WHOLE, "float": {"Real"},
            "str": {"String"}, "int[]": {"IntArray"}, "SymInt[]": {"IntArray"}, "bool[]": {"BoolArray"},
            "float[]": {"FloatArray"}}.get(base, set())


# ---- Signatures of torch.ops.npu and torch.ops.atb ----


def split_arguments(text):
    """At commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part.strip() for part in [*parts, text[begin:]] if part.strip()]


def plain_type(text):
    """Without sizes of lists and marks of aliases: 'Tensor(a!)[]' -> 'Tensor[]', 'bool[3]' -> 'bool[]'."""
    return re.sub(r"\[\d+\]", "[]", re.sub(r"\([^)]*\)", "", text))


def read_signature(text):
    """'name.overload(arguments) -> results' -> its name and Signature."""
    name, _, rest = text.partition("(")
    inside, _, results = rest.rpartition(" -> ")
    arguments = []
    for part in split_arguments(inside.strip().removesuffix(")")):
        if part == "*":
            continue
        declared, _, default = part.partition("=")
        type_name, argument = declared.rsplit(" ", 1)
        arguments.append(Argument(argument, plain_type(type_name), "!" in type_name, default))
    is_tuple = results.strip().startswith("(") and results.strip().endswith(")")
    types = split_arguments(results.strip()[1:-1] if is_tuple else results)
    return name, Signature(tuple(arguments), tuple(plain_type(each) for each in types))


def texts_of_signatures():
    """What the modules of python/torch_npu/_ops define: SCHEMAS line by line, and the literals of declare()."""
    for path in sorted(NPU_OPERATORS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SCHEMAS":
                yield from (line.split(" ", 1)[1] for line in node.value.value.splitlines())
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "declare":
                if isinstance(node.args[0], ast.Constant):
                    yield node.args[0].value


def read_signatures():
    """Signatures by full name: 'npu::npu_rms_norm'."""
    signatures = {}
    for text in texts_of_signatures():
        name, signature = read_signature(text)
        space, name = ("atb", name[4:]) if name.startswith("atb.") else ("npu", name)
        signatures[f"{space}::{name}"] = signature
    return signatures


def read_torch_rows(operators):
    """All rows, each checked; `operators` are those of api/ops by name."""
    rows = [TorchRow(row) for row in read_rows(TORCH)]
    once(rows, TORCH, "torch")
    signatures = read_signatures()
    for row in rows:
        if row.is_declared and row.name not in signatures:
            row.fail("torch", "no module of python/torch_npu/_ops defines it")
        row.check(operators, signatures.get(row.name))
    return rows
