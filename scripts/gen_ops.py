#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from the operator table api/ops/*.csv, one file for each family of operators:

    include/aclnnop/aclnn_*.h           the C headers, also of operators that the library does not have
    facade/opapi/generated/FAMILY.cc    the exported functions, which pack their arguments into one generic call
    src/ops/generated/FAMILY.def        the rows as src/ops/op_schema.h and src/ops/op_table.cc read them
    src/ops/op_ids.def                  the list of families

    scripts/gen_ops.py            write the files
    scripts/gen_ops.py --check    fail when a file on disk differs from the table

One operator is one row. Columns:

    operator     C name
    header       of include/aclnnop
    about        opening sentence of the header, in its first row
    rank         of the specification
    types        set of op_schema.h that the tensors belong to
    parameters   as in C
    roles        one word for each parameter: in, out, inout, attr; a scalar that is `in` takes the place of a tensor.
                 A "?" behind the word: may be null. "=kSet" behind that: this parameter has a set of types of its own
                 and no say in the type of the computation (indices, masks, statistics).
    computation  what is computed: a Computation that src/ops defines; several rows may share one
    bound        the error that tests/ops allows: "exact", or "A/B" in units of the spacing of the type (A: float32,
                 float64 and complex; B: float16, bfloat16), relative to each element, or with " of max" to the
                 largest element of the result
    formula, shapes (a key of SHAPES below, or a text), note    for the header

Functions without a second phase stand in api/single_phase.csv, which gives their headers; their bodies are written by
hand in facade/opapi.

Operators that the library does not have stand in api/ops_declared.csv: programs include headers of more operators than
they call. Columns: operator, header, parameters without the two that every first phase ends with ("...": not public).
A row goes by itself when api/ops has the operator.
"""

import argparse
import csv
import io
import re
import sys
import textwrap
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
TABLES = REPO / "api" / "ops"
SINGLE_PHASE = REPO / "api" / "single_phase.csv"
DECLARED = REPO / "api" / "ops_declared.csv"
HEADER_DIR = REPO / "include" / "aclnnop"
FACADE_DIR = REPO / "facade" / "opapi" / "generated"
ROWS_DIR = REPO / "src" / "ops" / "generated"
IDS = REPO / "src" / "ops" / "op_ids.def"
WIDTH = 110  # columns of a header line

SHAPES = {
    "broadcast": "self and other broadcast (sizes, aligned at the last dim, are equal or 1); out has the broadcast shape",
    "broadcast_ref": "the second tensor broadcasts to the shape of selfRef",
    "same": "out has the shape of self",
    "ref": "any shape",
    "matmul": "as NumPy's matmul: [.., m, k] x [.., k, n] gives [.., m, n], batch dims broadcast, a vector is a row on "
              "the left and a column on the right and its dim is absent from out",
    "mm": "[m, k] x [k, n] gives [m, n]",
    "bmm": "[b, m, k] x [b, k, n] gives [b, m, n]",
    "reduce": "dims are distinct and count from the end if negative, none at all means every dim; out has the other dims "
              "of self, and size 1 in their place if keepDims",
    "cat": "tensors agree in every dim but dim, which counts from the end if negative; out has the sum of the sizes there. "
           "Tensors of shape [0] are skipped",
    "permute": "dims names each dim of self once, negative ones count from the end",
}

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
    "kMaskByteTypes": "bool, int8, uint8",
}

# C type -> kind of the parameter (ParamKind of op_schema.h).
KINDS = {
    "aclTensor*": "Tensor", "aclScalar*": "Scalar", "aclIntArray*": "IntArray", "aclFloatArray*": "FloatArray",
    "aclBoolArray*": "BoolArray", "aclTensorList*": "TensorList", "aclScalarList*": "ScalarList",
    "int64_t": "Int", "uint64_t": "Int", "int32_t": "Int", "int": "Int", "int8_t": "Int", "bool": "Bool",
    "float": "Real", "double": "Real", "aclDataType": "DType", "char*": "String",
}
ROLES = {"in": "Input", "out": "Output", "inout": "InOut", "attr": "Attribute"}
# Operators with a function that tells the workspace of calls of any lengths.
WITH_MOST = {"aclnnFusedInferAttentionScoreV3", "aclnnFusedInferAttentionScoreV4", "aclnnFusedInferAttentionScoreV5",
             "aclnnFlashAttentionVarLenScoreV5"}
BOUND = re.compile(r"exact|[0-9.e+-]+/[0-9.e+-]+( of max)?")

NOTICE = "Generated by scripts/gen_ops.py from api/ops/*.csv; change the table, not this file."


class Operator:
    def __init__(self, row, family):
        self.name = row["operator"]
        self.family = family
        self.header = row["header"]
        self.about = row["about"]
        self.types = row["types"]
        self.computation = row["computation"]
        self.bound = row["bound"]
        self.formula = row["formula"]
        self.shapes = row["shapes"]
        self.note = row["note"]
        self.parameters = [split_parameter(text) for text in row["parameters"].split(", ")]
        self.roles = row["roles"].split()
        if not self.name.startswith("aclnn"):
            raise SystemExit(f"{self.name}: names of operators begin with aclnn")
        if len(self.roles) != len(self.parameters):
            raise SystemExit(f"{self.name}: {len(self.parameters)} parameters and {len(self.roles)} roles")
        if self.types not in TYPES:
            raise SystemExit(f"{self.name}: no set of types '{self.types}'")
        if BOUND.fullmatch(row["bound"]) is None:
            raise SystemExit(f"{self.name}: cannot read the bound '{row['bound']}'")

    @property
    def id(self):
        return self.name.removeprefix("aclnn")

    def params(self):
        """The parameters as C++ words."""
        for (c_type, name), role in zip(self.parameters, self.roles):
            kind = KINDS.get(c_type.removeprefix("const "))
            if kind is None:
                raise SystemExit(f"{self.name}: no kind for the type '{c_type}'")
            word, _, types = role.partition("=")
            optional = word.endswith("?")
            word = word.removesuffix("?")
            if word not in ROLES or (types and types not in TYPES):
                raise SystemExit(f"{self.name}: cannot read the role '{role}' of {name}")
            yield (f'Param{{"{name}", ParamKind::k{kind}, Role::k{ROLES[word]}, {str(optional).lower()}'
                   f'{", " + types if types else ""}}}')


def split_parameter(text):
    """'const aclTensor* self' -> ('const aclTensor*', 'self')."""
    match = re.fullmatch(r"((?:const )?\w+(?: const)?\*{0,3}(?: const)?) (\w+)", text.strip())
    if match is None:
        raise SystemExit(f"cannot read the parameter '{text}'")
    return match.group(1), match.group(2)


def declare(c_type, name):
    """Pointer stars stand at the name, as in the other headers."""
    base, star, rest = c_type.partition("*")
    return f"{base} {star}{rest}{' ' if rest.endswith('const') else ''}{name}"


def wrap_code(text, width):
    """Breaks a declaration between parameters only."""
    glued = re.sub(r"(?<!,) (?!\{)", "\0", text)
    return [line.replace("\0", " ") for line in
            textwrap.wrap(glued, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)]


def comment(text, indent=""):
    """`text` as doc-comment lines; later lines are indented by `indent`."""
    return textwrap.wrap(text, WIDTH, initial_indent="/// ", subsequent_indent="/// " + indent)


def signature(name, parameters):
    text = f"ACL_FUNC_VISIBILITY aclnnStatus {name}({', '.join(declare(*p) for p in parameters)});"
    return wrap_code(text, WIDTH)


PHASE_ONE = [("uint64_t*", "workspaceSize"), ("aclOpExecutor**", "executor")]
PHASE_TWO = [("void*", "workspace"), ("uint64_t", "workspaceSize"), ("aclOpExecutor*", "executor"),
             ("aclrtStream", "stream")]


def types_of(op):
    own = [f"{name} {TYPES[role.partition('=')[2]]}" for (_, name), role in zip(op.parameters, op.roles) if "=" in role]
    return "; ".join([TYPES[op.types]] + own)


def render_operator(op):
    lines = comment(f"Plans {op.formula}.")
    lines.append("///")
    lines += comment(f"Shapes: {SHAPES.get(op.shapes, op.shapes)}.", " " * 8)
    lines += comment(f"Types: {types_of(op)}.", " " * 7)
    if op.note:
        lines += comment(f"Note: {op.note}", " " * 6)
    if any(c_type.endswith("aclTensor*") for c_type, _ in op.parameters):
        lines += comment("Views: strides and offsets of any kind"
                         + ("; an output may be the very view that an input is." if op.shapes in
                            ("broadcast", "same") else "."), " " * 7)
    optional = [name for (_, name), role in zip(op.parameters, op.roles) if "?" in role]
    but = f" (but {', '.join(optional)})" if optional else ""
    lines += comment(f"Errors: 161001 when an argument is null{but}; 161002 when an object was destroyed or a type, format, "
                     "shape or value does not fit.", " " * 8)
    lines += signature(op.name + "GetWorkspaceSize", op.parameters + PHASE_ONE)
    lines.append("")
    lines += comment(f"Queues what {op.name}GetWorkspaceSize planned. The executor is used up unless it is repeatable.")
    lines += signature(op.name, PHASE_TWO)
    if op.name in WITH_MOST:
        lines.append("")
        lines += comment(f"Tells a workspace that is large enough for {op.name} with tensors of these shapes, whatever the "
                         "lengths of sequences, which are not looked at. Phase two refuses the executor with 161002; it is "
                         "to be destroyed with aclDestroyAclOpExecutor.")
        lines += signature(op.name + "GetMaxWorkspaceSize", op.parameters + PHASE_ONE)
    return lines


def render_single_phase(row):
    lines = []
    for paragraph in row["comment"].split("|"):
        lines += comment(paragraph.strip(), " " * 8 if re.match(r"(Errors|\\param)", paragraph.strip()) else "")
    if row["parameters"] == "void":
        return lines + [f"ACL_FUNC_VISIBILITY aclnnStatus {row['function']}(void);"]
    return lines + signature(row["function"], [split_parameter(text) for text in row["parameters"].split(", ")])


def render_declared(row):
    """What is known of an operator that the library does not have."""
    name, parameters = row["operator"], row["parameters"]
    phase_one = name + ("" if name.endswith("GetMaxWorkspaceSize") else "GetWorkspaceSize")
    lines = comment(f"{name} is not in Reprise yet: a program that calls it does not link."
                    + (" Its parameters are not public." if parameters == "..." else ""))
    if parameters == "...":
        declaration = f"ACL_FUNC_VISIBILITY aclnnStatus {phase_one}"
        lines += ["#ifdef __cplusplus", f"{declaration}(...);", "#else", f"{declaration}();", "#endif"]
    else:
        lines += signature(phase_one, [split_parameter(text) for text in parameters.split(", ")] + PHASE_ONE)
    if phase_one != name:
        lines += signature(name, PHASE_TWO)
    return lines


def guard_of(name):
    return "REPRISE_ACLNNOP_" + re.sub(r"\W", "_", name).upper()


def opening(guard):
    return ["", f"#ifndef {guard}", f"#define {guard}", "", '#include "aclnn/aclnn_base.h"', "",
            "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]


def closing(guard):
    return ["#ifdef __cplusplus", "}", "#endif", "", f"#endif  // {guard}", ""]


def render_declared_header(name, declared):
    notice = NOTICE.replace("api/ops/*.csv", DECLARED.relative_to(REPO).as_posix())
    lines = ["// SPDX-License-Identifier: Apache-2.0", "", f"// {notice}"] + opening(guard_of(name))
    for row in declared:
        lines += render_declared(row) + [""]
    return "\n".join(lines + closing(guard_of(name)))


def render_single_phase_header(name, rows):
    notice = NOTICE.replace("api/ops/*.csv", SINGLE_PHASE.relative_to(REPO).as_posix())
    lines = ["// SPDX-License-Identifier: Apache-2.0", "", f"// {notice}"] + opening(guard_of(name))
    for row in rows:
        lines += render_single_phase(row) + [""]
    return "\n".join(lines + closing(guard_of(name)))


def render_header(name, operators, single_phase, declared):
    guard = guard_of(name)
    about = next((op.about for op in operators if op.about), None)
    if about is None:
        raise SystemExit(f"{name}: the first row needs a text in column about")
    prose = (f"{about} Phase one checks the arguments and tells how much device memory phase two needs; phase two "
             "queues the work and returns at once. Both return 0 or an error number, and aclGetRecentErrMsg tells which "
             "argument is wrong and why. Phase two returns 561103 for a null executor, 561102 for one that is used up, "
             "161002 for too small a workspace and 361001 for tensors outside of device memory or an unusable stream.")
    lines = ["// SPDX-License-Identifier: Apache-2.0", "", f"// {NOTICE}", "//"]
    lines += textwrap.wrap(prose, WIDTH, initial_indent="// ", subsequent_indent="// ")
    lines += opening(guard)
    for op in operators:
        lines += render_operator(op) + [""]
    for row in single_phase:
        lines += render_single_phase(row) + [""]
    for row in declared:
        lines += render_declared(row) + [""]
    return "\n".join(lines + closing(guard))


def render_facade(operators):
    lines = ["// SPDX-License-Identifier: Apache-2.0", "", f"// {NOTICE}"]
    lines += [f'#include "aclnnop/{header}"' for header in sorted({op.header for op in operators})]
    lines += ['#include "facade/opapi/call.h"', "", "using reprise::opapi::Launch;", "using reprise::opapi::Plan;"]
    if any(op.name in WITH_MOST for op in operators):
        lines.append("using reprise::opapi::TellMost;")
    lines += ["using reprise::ops::OpId;", ""]
    for op in operators:
        arguments = ", ".join(name for _, name in op.parameters)
        one = [declare(*p) for p in op.parameters + PHASE_ONE]
        two = ", ".join(declare(*p) for p in PHASE_TWO)
        lines += wrap_code(f"aclnnStatus {op.name}GetWorkspaceSize({', '.join(one)}) {{", 120)
        lines.append(f'  return Plan(OpId::k{op.id}, "{op.name}GetWorkspaceSize", {{{arguments}}}, workspaceSize, '
                     "executor);")
        if op.name in WITH_MOST:
            lines += ["}"] + wrap_code(f"aclnnStatus {op.name}GetMaxWorkspaceSize({', '.join(one)}) {{", 120)
            lines.append(f'  return TellMost(OpId::k{op.id}, "{op.name}GetMaxWorkspaceSize", {{{arguments}}}, '
                         "workspaceSize, executor);")
        lines += ["}", f"aclnnStatus {op.name}({two}) {{",
                  f'  return Launch(OpId::k{op.id}, "{op.name}", workspace, workspaceSize, executor, stream);', "}", ""]
    return "\n".join(lines[:-1]) + "\n"


def render_rows(operators):
    lines = ["// SPDX-License-Identifier: Apache-2.0", "", f"// {NOTICE}"]
    lines += [f"REPRISE_COMPUTATION({name})" for name in sorted({op.computation for op in operators})]
    for op in operators:
        lines.append(f"REPRISE_OP({op.id}, {op.types}, {op.computation},")
        lines.append("           " + ",\n           ".join(op.params()) + ")")
    return "\n".join(lines) + "\n"


def render_ids(families):
    lines = ["// SPDX-License-Identifier: Apache-2.0", "", f"// {NOTICE}",
             "// REPRISE_OP(id, set of types, computation, parameters ...), REPRISE_COMPUTATION(name)",
             "#ifndef REPRISE_OP", "#define REPRISE_OP(...)", "#endif",
             "#ifndef REPRISE_COMPUTATION", "#define REPRISE_COMPUTATION(name)", "#endif"]
    lines += [f'#include "ops/generated/{family}.def"' for family in families]
    lines += ["#undef REPRISE_OP", "#undef REPRISE_COMPUTATION"]
    return "\n".join(lines) + "\n"


def read_table():
    """Operators by family; scripts and tests import this."""
    families = {}
    for path in sorted(TABLES.glob("*.csv")):
        with open(path, newline="") as file:
            families[path.stem] = [Operator(row, path.stem) for row in csv.DictReader(file)]
    return families


def read_declared(has):
    """Rows of operators that are declared alone, and the text of the table without the others."""
    with open(DECLARED, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["operator"] not in has]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["operator", "header", "parameters"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return rows, text.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files on disk, write nothing")
    check = parser.parse_args().check

    families = read_table()
    operators = [op for ops in families.values() for op in ops]
    names = [op.name for op in operators]
    for name in set(names):
        if names.count(name) > 1:
            raise SystemExit(f"api/ops lists {name} twice")

    with open(SINGLE_PHASE, newline="") as file:
        single_phase = list(csv.DictReader(file))
    declared, declared_text = read_declared({*names, *(f"{name}GetMaxWorkspaceSize" for name in WITH_MOST),
                                             *(row["function"] for row in single_phase)})
    files = {IDS: render_ids(families), DECLARED: declared_text}
    for family, ops in families.items():
        files[FACADE_DIR / f"{family}.cc"] = render_facade(ops)
        files[ROWS_DIR / f"{family}.def"] = render_rows(ops)
    for header in {op.header for op in operators}:
        files[HEADER_DIR / header] = render_header(header, [op for op in operators if op.header == header],
                                                   [row for row in single_phase if row["header"] == header],
                                                   [row for row in declared if row["header"] == header])
    for header in {row["header"] for row in declared}:
        if HEADER_DIR / header not in files:
            files[HEADER_DIR / header] = render_declared_header(header, [r for r in declared if r["header"] == header])
    for header in {row["header"] for row in single_phase}:
        if HEADER_DIR / header not in files:
            files[HEADER_DIR / header] = render_single_phase_header(
                header, [row for row in single_phase if row["header"] == header])
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    owned = [*HEADER_DIR.glob("aclnn_*.h"), *FACADE_DIR.glob("*.cc"), *ROWS_DIR.glob("*.def")]
    obsolete = [path for path in sorted(owned) if path not in files]
    for path in sorted(stale):
        name = path.relative_to(REPO)
        if check:
            print(f"{name} is stale, run scripts/gen_ops.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
            print(f"wrote {name}")
    for path in obsolete:
        print(f"{path.relative_to(REPO)} has no row in api/ops, remove it")
    return 1 if obsolete or (check and stale) else 0


if __name__ == "__main__":
    sys.exit(main())
