# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the one table of operators: api/ops/*.csv (a C function in each row), api/computations.csv (what
they compute) and api/torch_ops.csv (the operators of PyTorch that call them). docs/design/operators.md explains it.

Columns of api/ops/FAMILY.csv:

    operator     C name
    header       of include/aclnnop
    about        opening sentence of the header, in its first row
    rank         of the specification
    types        set of src/opdef/dtype_set.h that the tensors belong to
    parameters   as in C
    roles        one word for each parameter: in, out, inout, attr; a scalar that is `in` takes the place of a tensor.
                 A "?" behind the word: may be null. "=kSet" behind that: this parameter has a set of types of its own
                 and no say in the type of the computation (indices, masks, statistics). ":VALUE" behind an attr: its
                 default, which whoever has no wish passes: a number, true, false, a text, numbers with "," between
                 them in "[]", or null.
    computation  what is computed: a row of api/computations.csv; several functions may share one
    graph_op     type of the graph operator that computes the same, empty if there is none
    bound        the error that tests/ops allows: "exact", or "A/B" in units of the spacing of the type (A: float32,
                 float64 and complex; B: float16, bfloat16), relative to each element, or with " of max" to the
                 largest element of the result
    formula, shapes (a key of SHAPES below, or a text), note    for the header

Columns of api/computations.csv:

    computation  name in C++
    family       file of src/ops/families that has its functions
    lower, code  the kernel: function that adds the launches, and the number that tells it which of several to add
    type_rule    function that chooses the type of the computation and checks the outputs for it
    shape_rule   function that checks the shapes
    aliasing     how outputs may overlap inputs: none, same_view, first_input (Aliasing in src/opdef/function.h)
    engine       vector, cube: what dumps and profiles say
    takes        tensors beyond plain ones of the types: fractals, int4, any_bits, small_floats,
                 empty_as_null
    determinism  always; option: a device needs ACL_OPT_DETERMINISTIC for equal results from run to run; sampling

Columns of api/torch_ops.csv:

    torch        operator with its overload: "add.Tensor", or of another namespace: "npu::npu_rms_norm"
    function     C name of the operator that computes it
    arguments    one word for each parameter of the function, see python/csrc/ops/native.cc
    with_scalar  C name of the function that is called if the argument `other` is a number
    only         types of the computation, or values, that the function is called for: floating, integral,
                 nonzero_alpha; the kernels of the CPU do the others
"""

import csv
import io
import re
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
TABLES = REPO / "api" / "ops"
COMPUTATIONS = REPO / "api" / "computations.csv"
TORCH = REPO / "api" / "torch_ops.csv"
DECLARED = REPO / "api" / "ops_declared.csv"
GRAPH_OPS = REPO / "api" / "graph_ops"
FAMILIES_DIR = REPO / "src" / "ops" / "families"

TYPES = {
    "kAllTypes": "float32, float16, bfloat16, float64, all integers, bool, complex64, complex128",
    "kNumericTypes": "float32, float16, bfloat16, float64, all integers, complex64, complex128",
    "kRealTypes": "float32, float16, bfloat16, float64, all integers",
    "kRealAndBoolTypes": "float32, float16, bfloat16, float64, all integers, bool",
    "kFloatingTypes": "float32, float16, bfloat16, float64",
    "kFloatingAndComplexTypes": "float32, float16, bfloat16, float64, complex64, complex128",
    "kComplexTypes": "complex64, complex128",
    "kIntegralTypes": "all integers, bool",
    "kIntegerTypes": "all integers",
    "kIndexTypes": "int32, int64",
    "kMaskTypes": "bool, uint8",
    "kByteTypes": "int8, uint8",
    "kBoolType": "bool",
    "kSolverTypes": "float32, float64, complex64, complex128",
    "kQuantizedTypes": "int8, int32",
    "kFloatingAndQuantizedTypes": "float32, float16, bfloat16, float64, int8, int32",
    "kInt32Type": "int32",
    "kInt64Type": "int64",
    "kWideFloatingTypes": "float32, float64",
    "kUInt8Type": "uint8",
    "kFloat32Type": "float32",
    "kSingleAndHalfTypes": "float32, float16, bfloat16",
    "kSingleHalfAndInt8Types": "float32, float16, bfloat16, int8",
    "kMaskByteTypes": "bool, int8, uint8",
    "kSmallFloatTypes": "float8_e4m3fn, float8_e5m2, hifloat8",
    "kSmallScaleTypes": "float32, float8_e8m0",
    "kSumAndFloatTypes": "int32, float32, float16, bfloat16",
}
# Sets that C++ has no name for: the type rule of the computation refuses what is in this one beyond them.
WIDER = {"kSmallFloatTypes": "kAllTypes", "kSmallScaleTypes": "kAllTypes", "kSumAndFloatTypes": "kFloatingAndQuantizedTypes"}

# C type -> kind of the parameter (ParamKind of op_schema.h).
KINDS = {
    "aclTensor*": "Tensor", "aclScalar*": "Scalar", "aclIntArray*": "IntArray", "aclFloatArray*": "FloatArray",
    "aclBoolArray*": "BoolArray", "aclTensorList*": "TensorList", "aclScalarList*": "ScalarList",
    "int64_t": "Int", "uint64_t": "Int", "int32_t": "Int", "int": "Int", "int8_t": "Int", "bool": "Bool",
    "float": "Real", "double": "Real", "aclDataType": "DType", "char*": "String",
}
ROLES = {"in": "Input", "out": "Output", "inout": "InOut", "attr": "Attribute"}
ALIASING = {"none": "kNone", "same_view": "kSameView", "first_input": "kFirstInput"}
ENGINES = {"vector": "kVector", "cube": "kCube"}
TAKES = {"fractals": "kTakesFractals", "int4": "kTakesInt4", "any_bits": "kTakesAnyBits", "small_floats": "kTakesSmallFloats",
         "empty_as_null": "kTakesEmptyAsNull"}
DETERMINISM = {"always": "kAlways", "option": "kByOption", "sampling": "kSampling"}
ONLY = {"": "kAny", "floating": "kFloating", "integral": "kIntegral", "nonzero_alpha": "kNonZeroAlpha"}
BOUND = re.compile(r"exact|[0-9.e+-]+/[0-9.e+-]+( of max)?")
ROLE = re.compile(r"(?P<word>\w+)(?P<optional>\??)(=(?P<types>k\w+))?(:(?P<default>\S+))?")
INTEGER = re.compile(r"-?\d+")
REAL = re.compile(r"-?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|-?inf")


class TableError(SystemExit):
    """What is wrong, with table, row and column."""

    def __init__(self, table, row, column, text):
        where = table.relative_to(REPO) if table.is_relative_to(REPO) else table
        super().__init__(f"{where}: row {row}, column {column}: {text}")


def short_name(operator):
    """aclnnAdd is Add, aclStft Stft."""
    return re.sub(r"^acl(nn)?(?=[A-Z])", "", operator)


class Parameter:
    """One parameter of a C function."""

    def __init__(self, operator, text, role):
        match = re.fullmatch(r"((?:const )?\w+(?: const)?\*{0,3}(?: const)?) (\w+)", text.strip())
        if match is None:
            operator.fail("parameters", f"cannot read '{text}'")
        self.c_type, self.name = match.groups()
        self.kind = KINDS.get(self.c_type.removeprefix("const "))
        if self.kind is None:
            operator.fail("parameters", f"no kind for the type '{self.c_type}' of {self.name}")
        match = ROLE.fullmatch(role)
        if match is None or match["word"] not in ROLES or (match["types"] and match["types"] not in TYPES):
            operator.fail("roles", f"cannot read the role '{role}' of {self.name}")
        self.role = ROLES[match["word"]]
        self.optional = bool(match["optional"])
        self.types = match["types"]
        self.default = match["default"] or ""
        why = self.fault_of_default()
        if why:
            operator.fail("roles", f"the default of {self.name}: {why}")

    @property
    def is_written(self):
        return self.role in ("Output", "InOut")

    def fault_of_default(self):
        """Why the default is none of this parameter; empty: it is one."""
        text = self.default
        if not text:
            return ""
        if self.role != "Attribute":
            return "only attributes have one"
        if text == "null":
            return "" if self.optional else "null, but it may not be null"
        if self.kind == "Bool":
            return "" if text in ("true", "false") else f"'{text}' is not true or false"
        if self.kind == "Int":
            return "" if INTEGER.fullmatch(text) else f"'{text}' is no integer"
        if self.kind in ("Real", "Scalar"):
            return "" if REAL.fullmatch(text) else f"'{text}' is no number"
        if self.kind in ("IntArray", "FloatArray", "BoolArray"):
            if not (text.startswith("[") and text.endswith("]")):
                return f"'{text}' is no list in []"
            item = {"IntArray": INTEGER, "FloatArray": REAL, "BoolArray": re.compile("true|false")}[self.kind]
            other = [word for word in text[1:-1].split(",") if word and not item.fullmatch(word)]
            return f"'{other[0]}' is no item of one" if other else ""
        return "" if self.kind == "String" else f"parameters of the kind {self.kind} have none"

    def cpp(self):
        """The parameter as C++ words."""
        more = ", " + WIDER.get(self.types, self.types) if self.types else ", {}" if self.default else ""
        if self.default:
            more += f', "{self.default}"'
        words = [f'"{self.name}"', f"ParamKind::k{self.kind}", f"Role::k{self.role}", str(self.optional).lower()]
        return f"Param{{{', '.join(words)}{more}}}"


class Operator:
    """A row of api/ops: one C function."""

    def __init__(self, row, family):
        self.name = row["operator"]
        self.family = family
        self.header = row["header"]
        self.about = row["about"]
        self.rank = row["rank"]
        self.types = row["types"]
        self.computation = row["computation"]
        self.graph_op = row["graph_op"]
        self.bound = row["bound"]
        self.formula = row["formula"]
        self.shapes = row["shapes"]
        self.note = row["note"]
        if not re.match(r"acl(nn)?[A-Z]", self.name):
            self.fail("operator", "names of operators begin with aclnn, or with acl")
        if self.types not in TYPES or self.types in WIDER:
            self.fail("types", f"no set of types '{self.types}'")
        if BOUND.fullmatch(row["bound"]) is None:
            self.fail("bound", f"cannot read '{row['bound']}'")
        texts, words = row["parameters"].split(", "), row["roles"].split()
        if len(words) != len(texts):
            self.fail("roles", f"{len(words)} words for {len(texts)} parameters")
        self.params = [Parameter(self, text, word) for text, word in zip(texts, words)]
        self.roles = [word.partition(":")[0] for word in words]  # without defaults
        self.parameters = [(p.c_type, p.name) for p in self.params]

    def fail(self, column, text):
        raise TableError(TABLES / f"{self.family}.csv", self.name, column, text)

    @property
    def id(self):
        return short_name(self.name)


class Computation:
    """A row of api/computations.csv: one thing that can be computed."""

    def __init__(self, row):
        self.name = row["computation"]
        self.family = row["family"]
        self.lower = row["lower"]
        self.code = row["code"]
        self.type_rule = row["type_rule"]
        self.shape_rule = row["shape_rule"]
        self.aliasing = self.word(row, "aliasing", ALIASING)
        self.engine = self.word(row, "engine", ENGINES)
        self.determinism = self.word(row, "determinism", DETERMINISM)
        self.takes = [TAKES.get(word) or self.fail("takes", f"no word '{word}'; there are {', '.join(TAKES)}")
                      for word in row["takes"].split()]
        if not re.fullmatch(r"k[A-Z]\w*", self.name):
            self.fail("computation", "names begin with a small k and a capital letter")
        if not (FAMILIES_DIR / f"{self.family}.cc").exists():
            self.fail("family", f"there is no src/ops/families/{self.family}.cc")
        for column in ("lower", "type_rule", "shape_rule"):
            if not re.fullmatch(r"[A-Z][\w:<>]*", row[column]):
                self.fail(column, f"'{row[column]}' is no name of a function")

    def fail(self, column, text):
        raise TableError(COMPUTATIONS, self.name, column, text)

    def word(self, row, column, words):
        return words.get(row[column]) or self.fail(column, f"no word '{row[column]}'; there are {', '.join(words)}")


def read_rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def once(rows, path, column):
    """The rows by that column, which no two of them share."""
    by_name = {}
    for row in rows:
        if row.name in by_name:
            raise TableError(path, row.name, column, "there is another row of this name")
        by_name[row.name] = row
    return by_name


def read_table():
    """Operators by family; scripts and tests import this."""
    families = {path.stem: [Operator(row, path.stem) for row in read_rows(path)]
                for path in sorted(TABLES.glob("*.csv"))}
    once([op for ops in families.values() for op in ops], TABLES, "operator")
    return families


def read_computations(operators):
    """Computations by name; each is one of an operator, and each operator has one."""
    computations = once([Computation(row) for row in read_rows(COMPUTATIONS)], COMPUTATIONS, "computation")
    for op in operators:
        if op.computation not in computations:
            op.fail("computation", f"api/computations.csv has no row {op.computation}")
    used = {op.computation for op in operators}
    for computation in computations.values():
        if computation.name not in used:
            computation.fail("computation", "no row of api/ops has it")
    return computations


def read_graph_types():
    """Types of graph operators, as far as their table is there."""
    return {row["type"] for path in sorted(GRAPH_OPS.glob("*.csv")) for row in read_rows(path)}


def check_graph_types(operators):
    known = read_graph_types()
    for op in operators:
        if op.graph_op and known and op.graph_op not in known:
            op.fail("graph_op", f"api/graph_ops has no type {op.graph_op}")


def read_declared(has):
    """Rows of operators that are declared alone, and the text of the table without the others."""
    rows = [row for row in read_rows(DECLARED) if row["operator"] not in has]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["operator", "header", "parameters"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return rows, text.getvalue()
