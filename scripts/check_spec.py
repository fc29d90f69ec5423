#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the tables under api/ with a specification folder that is not part of the project.

    scripts/check_spec.py SPEC_DIR

Headers and ABI test come from the same tables, so an error in a table would fool both. This script reads the
specification (acl-api.csv, acl-constants.md, aclnn-abi.md and the signatures in the other pages) on its own and
prints every difference in names, values, sizes, offsets and signatures. Run by hand when tables change.
"""

import argparse
import csv
import re
import sys
from pathlib import Path

import api_tables as api
import gen_graph_ops
import op_tables

NO_HEADER = "(no public header"
# Names that signatures of the specification use without defining them; the tables add them.
ADDED_MACROS = {"ACL_TENSOR_SHAPE_RANGE_NUM", "ACL_TENSOR_VALUE_RANGE_NUM"}
# Numbers that programs name and the specification leaves out.
ADDED_CONSTANTS = {"ACL_ERROR_GE_FAILURE"}


class Report:
    def __init__(self):
        self.differences = 0
        self.compared = 0

    def same(self, what, expected, found):
        self.compared += 1
        if expected != found:
            self.differences += 1
            print(f"{what}: table has {found!r}, specification has {expected!r}")

    def same_keys(self, what, expected, found):
        self.same(f"{what} missing or extra", [], sorted(set(expected) ^ set(found)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec_dir", type=Path)
    spec_dir = parser.parse_args().spec_dir

    tables = api.Tables()
    constants_page = (spec_dir / "acl-constants.md").read_text()
    report = Report()
    check_functions(report, tables, spec_dir / "acl-api.csv")
    check_page_signatures(report, tables, spec_dir)
    check_constants(report, tables, constants_page)
    check_enums(report, tables, constants_page)
    check_typedefs(report, tables, constants_page, (spec_dir / "aclnn-abi.md").read_text())
    check_structs(report, tables, constants_page)
    check_overloads(report, tables, constants_page)
    check_graph_types(report, spec_dir / "ge-prototypes.csv")
    check_graph_ops(report, spec_dir / "ge-prototypes.csv")
    print(f"{report.compared} comparisons, {report.differences} differences")
    return 1 if report.differences else 0


# Operators


def check_graph_types(report, path):
    """Column graph_op of api/ops names prototypes of rank A or B, or rows of api/graph_ops."""
    known = {row["type"] for row in op_tables.read_rows(path) if row["rank"] in "AB"}
    known |= op_tables.read_graph_types()
    for op in (op for ops in op_tables.read_table().values() for op in ops if op.graph_op):
        report.same(f"{op.name} graph_op is known", True, op.graph_op in known)


# Functions


def check_functions(report, tables, path):
    with open(path, newline="") as file:
        expected = {row["function"]: row for row in csv.DictReader(file)}
    found = {f.name: f for f in tables.functions}
    report.same_keys("functions", expected, found)
    for name in expected.keys() & found.keys():
        row, function = expected[name], found[name]
        header = "" if row["header"].startswith(NO_HEADER) else row["header"]
        report.same(f"{name} header", header, function.header)
        for column in ("library", "rank", "area"):
            report.same(f"{name} {column}", row[column], getattr(function, column))
        report.same(f"{name} signature", squeeze(row["signature"]), squeeze(function.signature))


def check_page_signatures(report, tables, spec_dir):
    """The prose pages repeat most signatures; they must not contradict the tables."""
    functions = {f.name: f for f in tables.functions}
    for page in ("acl-runtime.md", "acl-graph.md", "aclnn-abi.md"):
        for code in re.findall(r"`([^`\n]+)`", (spec_dir / page).read_text()):
            match = re.fullmatch(r"((?:const )?\w+[ *]+)?(\w+)\((.*)\)", code)
            function = match and functions.get(match[2])
            if not function or not (match[1] or re.search(r"\w[ *]+\w", match[3])):
                continue  # not a signature, or a call written as an example
            expected = code if match[1] else f"{function.returns} {code}"
            found = shorten_like(function.signature, code)
            report.same(f"{function.name} in {page}", squeeze(expected), squeeze(found))


def shorten_like(signature, model):
    """Drops the parameter names that `model` leaves out: the pages write aclmdlRI for aclmdlRI modelRI."""
    shortened = [
        drop_name(parameter) if squeeze(drop_name(parameter)) == squeeze(other) else parameter
        for parameter, other in zip(api.split_parameters(signature), api.split_parameters(model))
    ]
    rest = api.split_parameters(signature)[len(shortened) :]
    return signature[: signature.index("(")] + f"({', '.join(shortened + rest) or 'void'})"


def drop_name(parameter):
    return re.sub(r"(?<=[\s*])\w+$", "", parameter).strip()


def squeeze(signature):
    """One spelling for all: no blanks around stars, one blank elsewhere."""
    return re.sub(r"\s*([*,()\[\]])\s*", r"\1", re.sub(r"\s+", " ", signature.strip()))


# Constants and enumerations


def check_constants(report, tables, page):
    expected = {}
    expected |= {name: ("object", "int", value) for value, name in table_rows(section(page, "### 3.1"))}
    expected |= {name: ("macro", "int", value) for value, name in table_rows(section(page, "### 3.2"))}
    for name, value in re.findall(r"`(\w+)`=(\d+)", section(page, "### 3.3")):
        expected[name] = ("object", "uint32_t", int(value))
    for name, value in macro_values(page):
        expected[name] = ("macro", None, value)
    found = {c.name: c for c in tables.constants if c.kind != "constexpr" and c.name not in ADDED_MACROS | ADDED_CONSTANTS}
    report.same_keys("constants", expected, found)
    for name in expected.keys() & found.keys():
        kind, ctype, value = expected[name]
        constant = found[name]
        report.same(f"{name} value", value, int(constant.value, 0))
        report.same(f"{name} kind", kind, "macro" if constant.kind == "guarded" else constant.kind)
        if ctype:
            report.same(f"{name} type", ctype, constant.ctype)


def macro_values(page):
    text = section(page, "## 4.")
    for name, value in re.findall(r"^\| (ACL_\w+) \| (\w+)", text, re.M):
        yield name, int(value, 0)
    for name, value in re.findall(r"`(\w+)`=(\d+)", text):
        yield name, int(value)


def check_enums(report, tables, page):
    expected = {}
    for name, header, body in re.findall(r"^### `(\w+)` \((\S+)\)\n\n((?:\|.*\n)+)", page, re.M):
        expected[name] = (header, [(constant, value) for value, constant in table_rows(body)])
    for name, header, body in re.findall(r"^\*\*`(\w+)`\*\* \((\S+)\): (.*)$", page, re.M):
        expected[name] = (header, [(c, int(v)) for c, v in re.findall(r"`(\w+)`=(-?\d+)", body)])
    found = {e.name: e for e in tables.enums}
    report.same_keys("enums", expected, found)
    for name in expected.keys() & found.keys():
        header, constants = expected[name]
        report.same(f"{name} header", header, found[name].header)
        report.same(f"{name} constants", constants, [(c, v) for c, v, _ in found[name].constants])


# Types


def check_typedefs(report, tables, page, aclnn_page):
    found = {t.name: t for t in tables.typedefs}
    types = section(page, "## 1.")
    for name, definition, header in re.findall(r"^\| `(\w+)` \| (.+?) \| (\S+\.h) \|$", types, re.M):
        report.same(f"{name} header", header, getattr(found.get(name), "header", None))
        report.same(f"{name} definition", typedef_text(name, definition), getattr(found.get(name), "definition", None))
    for name, definition, header in re.findall(r"^\| `(\w+)` \| `(.+?)` \| (\S+\.h) \|$", section(page, "## 2."), re.M):
        typedef = found.get(name)
        report.same(f"{name} header", header, getattr(typedef, "header", None))
        report.same(f"{name} definition", squeeze(definition), typedef and squeeze(drop_names(typedef.definition)))
    last_line = types[types.index("Declared by the offline-model") :]
    opaque = [name for name in re.findall(r"`(acl\w+)`", last_line) if name != "aclDataDeallocator"]
    opaque += re.findall(r"`(acl\w+)`", next(l for l in aclnn_page.split("\n") if l.startswith("| `aclTensor`,")))
    for name in opaque:
        report.same(f"{name} kind", api.OPAQUE, getattr(found.get(name), "kind", None))
    status = re.search(r"`typedef (\w+) aclnnStatus;`", aclnn_page)[1]
    report.same("aclnnStatus", status, found["aclnnStatus"].definition)


def typedef_text(name, definition):
    if definition == "opaque struct":
        return f"struct {name}"
    return definition.removeprefix("opaque ").strip("`")


def drop_names(function_type):
    """void *(*)(int a, char *b) -> void *(*)(int, char *)"""
    head, _, _ = function_type.partition(")(")
    parameters = [drop_name(p) for p in api.split_parameters(function_type[len(head) + 1 :])]
    return f"{head})({', '.join(parameters)})"


def check_structs(report, tables, page):
    macros = {c.name: c.value for c in tables.constants}
    found = {s.name: s for s in tables.structs}
    pattern = r"^\*\*`(\w+)`\*\* \S+ (struct|union), size (\d+), align (\d+) \((\S+)\) *\n(.*)$"
    blocks = re.findall(pattern, section(page, "## 8."), re.M)
    report.same_keys("structs", [block[0] for block in blocks], found)
    for name, kind, size, align, header, body in blocks:
        struct = found.get(name)
        if not struct:
            continue
        expected = (kind, int(size), int(align), header)
        report.same(name, expected, (struct.kind, struct.size, struct.align, struct.header))
        fields, _, inner = body.partition("then anonymous union")
        expected = [
            (field, int(offset), type_text.replace("anonymous union", "union"))
            for offset, field, type_text in re.findall(r"`(\d+) (\w+) : ([^`]+)`", fields)
        ]
        outer = [f for f in struct.fields if "." not in f.path]
        report.same(f"{name} fields", expected, [(f.path, f.offset, resolve(f.type, macros)) for f in outer])
        if inner:
            offset = int(re.search(r"at offset (\d+)", inner)[1])
            members = [f for f in struct.fields if f.path.startswith(".") and not f.opens_union]
            report.same(f"{name} union members", re.findall(r"`(\w+)`", inner), [f.member for f in members])
            report.same(f"{name} union offset", {offset}, {f.offset for f in members})


def resolve(type_text, macros):
    return re.sub(r"\[(\w+)\]", lambda m: f"[{macros.get(m[1], m[1])}]", type_text)


def check_overloads(report, tables, page):
    found = {(o.name, o.forwards_to) for o in tables.overloads}
    for row in re.findall(r"^\| (acl.*) \|$", section(page, "## 9."), re.M):
        left, right = (cell.replace("*", "") for cell in row.split(" | "))
        name, target = re.match(r"\w+", left)[0], re.match(r"\w+", right)[0]
        if target.startswith("acl"):
            report.same(f"overload {name} -> {target}", True, (name, target) in found)


# Graph operators

# Where api/graph_ops means to differ from the prototypes: what is empty or misprinted there, and what may be left out.
GRAPH_OP_DIFFERS = {
    "AssignSub": "called var there, ref by all that use it",
    "BatchNormV3": "empty there",
    "MoeUpdateExpert": "the second output has the name of the first one there",
}
LIST_KINDS = {"ListInt": "Ints", "ListBool": "Bools", "ListFloat": "Floats", "int": "Int"}
TYPE_GROUPS = {"ALL": "all", "BasicType": "basic", "NumberType": "number", "RealNumberType": "real", "UnaryDataType": "unary",
               "FloatingDataType": "floating", "IntegerDataType": "integer", "IndexNumberType": "index"}
TYPE_NAMES = {"FLOAT": "float32", "DOUBLE": "float64", "FP16": "float16", "BF16": "bfloat16", "FP8_E5M2": "float8_e5m2",
              "FP8_E4M3FN": "float8_e4m3fn", "FLOAT8_E4M3": "float8_e4m3fn", "DI_UINT16": "uint16", "offsetINT32": "int32"}


def check_graph_ops(report, path):
    """Names, marks, kinds and defaults are equal, and the table takes every type that the prototype takes."""
    with open(path, newline="") as file:
        expected = {row[0]: row for row in list(csv.reader(file))[1:]}
    found = {row.type: row for rows in gen_graph_ops.read_table().values() for row in rows}
    report.same("graph operators missing", [], sorted(t for t, row in expected.items() if row[1] in "AB" and t not in found))
    for type_name in expected.keys() & found.keys():
        if type_name in GRAPH_OP_DIFFERS:
            continue
        prototype, row = expected[type_name], found[type_name]
        report.same(f"{type_name} rank", prototype[1], row.row["rank"])
        for what, text, operands in (("inputs", prototype[2], row.inputs), ("outputs", prototype[3], [o for o in row.outputs if not o.is_unnamed])):
            names = [re.match(r"(\w+)(\?|\[\])?", word).groups() for word in filter(None, text.split(" ; "))]
            marks = [(o.name, "?" if o.is_optional else "[]" if o.is_list else None) for o in operands]
            report.same(f"{type_name} {what}", names, marks)
            for word, operand in zip(filter(None, text.split(" ; ")), operands):
                missing = prototype_types(word.partition(":")[2]) & ~operand.mask if operand.mask else 0
                report.same(f"{type_name} {operand.name}: types missing, as bits", 0, missing)
        attributes = {a.name: (a.kind, a.is_required) for a in row.attributes if a.has_default or a.is_required}
        for word in filter(None, prototype[4].split(" ; ")):
            name, required, kind = re.match(r"(\w+)(!?):(\w+)", word).groups()
            if name in attributes:
                report.same(f"{type_name} {name}", (LIST_KINDS.get(kind, kind), required == "!"), attributes[name])
            else:
                report.same(f"{type_name} {name} may be left out", True, any(a.name == name for a in row.attributes))


def prototype_types(text):
    """The bits of a list of types; none where it names variables alone."""
    bits = 0
    for word in re.findall(r"\w+", text.replace("TensorType", "").replace("FLOAT16COMPLEX64", "FLOAT16,COMPLEX64")):
        if word in TYPE_GROUPS:
            bits |= gen_graph_ops.mask_of(TYPE_GROUPS[word])
        elif not re.fullmatch(r"T\d?", word):
            name = word.replace("BFLOAT", "bfloat").replace("FLOAT64", "float64").lower()
            if word != "COMPLEX32":  # which nothing here has
                bits |= gen_graph_ops.mask_of(TYPE_NAMES.get(word, name))
    return bits


# Reading Markdown


def section(page, title):
    """The text from a heading to the next one of the same or a higher level."""
    level = title.split()[0]
    start = page.index(f"\n{title}") + 1
    following = re.compile(rf"^#{{2,{len(level)}}} ", re.M).search(page, start + len(title))
    return page[start : following.start() if following else len(page)]


def table_rows(text):
    """(value, name) of tables whose first two columns are a number and a name."""
    return [(int(value), name) for value, name in re.findall(r"^\| (-?\d+)[^|]* \| (\w+) \|", text, re.M)]


if __name__ == "__main__":
    sys.exit(main())
