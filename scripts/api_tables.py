# SPDX-License-Identifier: Apache-2.0
"""Reads the tables under api/: the names, numbers, layouts and signatures of the public C interface.

The tables are the source; headers, the ABI test and the status page are made from them. Nothing here
knows how a header looks.
"""

import csv
import fnmatch
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
API_DIR = REPO / "api"

# Values of the column `kind` in typedefs.csv. `open-*` marks types whose values or members are not published
# here: an open-enum is declared as int, an open-struct stays incomplete.
HANDLE, SCALAR, OPAQUE, FUNCTION = "handle", "scalar", "opaque", "function"
OPEN_ENUM, OPEN_STRUCT = "open-enum", "open-struct"

# What a comment of a function may say beside its summary, in this order (notes/*.txt).
LABELS = ("Note", "Ownership", "Threads", "Errors", "Capture")


@dataclass(frozen=True)
class Function:
    name: str
    header: str  # "" for symbols that are only looked up at run time
    library: str
    rank: str
    area: str
    signature: str
    summary: str

    @property
    def returns(self):
        return self.signature[: self.signature.index(self.name + "(")].strip()

    @property
    def parameters(self):
        return split_parameters(self.signature)

    @property
    def pointer_type(self):
        """The type of a pointer to this function, valid in C and in C++."""
        return f"{self.returns} (*)({', '.join(self.parameters) or 'void'})"


@dataclass(frozen=True)
class Enum:
    name: str
    header: str
    comment: str
    constants: tuple  # of (name, value, meaning)


@dataclass(frozen=True)
class Constant:
    kind: str  # object, macro, guarded (macro inside #ifndef) or constexpr (C++ only)
    header: str
    name: str
    value: str
    ctype: str
    group: str
    meaning: str

    @property
    def literal(self):
        return self.value + {"uint32_t": "U", "unsigned long": "UL", "uint64_t": "ULL"}.get(self.ctype, "")


@dataclass(frozen=True)
class Field:
    path: str  # dotted for members of an inner union; ".name" when that union has no name
    offset: int
    type: str
    note: str

    @property
    def opens_union(self):
        return self.type.split()[0] == "union"

    @property
    def member(self):
        """The spelling that reaches the field from its struct, as offsetof wants it."""
        return self.path.lstrip(".")


@dataclass(frozen=True)
class Struct:
    name: str
    tag: str
    kind: str  # struct or union
    header: str
    size: int
    align: int
    note: str
    fields: tuple


@dataclass(frozen=True)
class Typedef:
    name: str
    kind: str
    header: str
    definition: str
    meaning: str


@dataclass(frozen=True)
class Overload:
    name: str
    template: str  # space-separated type parameters
    parameters: str
    forwards_to: str
    arguments: str
    prelude: str


@dataclass(frozen=True)
class Note:
    label: str  # one of LABELS
    text: str


@dataclass(frozen=True)
class Header:
    path: str  # below include/
    includes: tuple
    prose: str
    areas: tuple

    @property
    def key(self):
        """How the CSV files name the header: acl/ is left out."""
        return self.path.removeprefix("acl/")


class Tables:
    """All tables; rows keep the order of the files."""

    def __init__(self, directory=API_DIR):
        self.functions = [Function(**_rename(row, "function")) for row in read_csv(directory / "functions.csv")]
        self.constants = [Constant(**row) for row in read_csv(directory / "constants.csv")]
        self.typedefs = [Typedef(**_rename(row, "type")) for row in read_csv(directory / "typedefs.csv")]
        self.overloads = [Overload(**_rename(row, "overload")) for row in read_csv(directory / "overloads.csv")]
        self.enums = _read_enums(directory / "enums.csv")
        self.structs = _read_structs(directory / "structs.csv")
        description = tomllib.loads((directory / "headers.toml").read_text())
        self.area_titles = description["areas"]
        self.headers = [
            Header(h["path"], tuple(h["includes"]), h["prose"].strip(), tuple(h["areas"]))
            for h in description["header"]
        ]

        self.notes = {}  # function name -> tuple of Note
        for header in self.headers:
            self.notes.update(_read_notes(notes_path(header, directory)))
        for function, row in match_refusals(self.functions, directory / "refusals.csv")[0]:
            if function.name in self.notes:
                raise ValueError(f"{function.name}: api/refusals.csv refuses it, so that it has no notes of its own")
            self.notes[function.name] = _refusal_notes(row["number"], function)

    @property
    def declared_functions(self):
        return [f for f in self.functions if f.header]


def notes_path(header, directory=API_DIR):
    """Where the notes on the functions of a header are; the file need not exist."""
    return directory / "notes" / (header.path.rpartition("/")[2].removesuffix(".h") + ".txt")


def notes_path_of(function):
    """That of the header that declares the function, below the root of the repository."""
    return "api/notes/" + function.header.rpartition("/")[2].removesuffix(".h") + ".txt"


def takes_stream(function):
    return any(re.fullmatch(r"(const )?aclrtStream \w+", parameter) for parameter in function.parameters)


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def split_parameters(signature):
    """Splits the parameters of a declaration at the commas outside of inner parentheses."""
    text = signature[signature.index("(") + 1 : signature.rindex(")")]
    parts, depth = [""], 0
    for char in text:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    parts = [part.strip() for part in parts]
    return [] if parts in ([""], ["void"]) else parts


def parse_array(type_text):
    """Splits "uint8_t[8]" into ("uint8_t", "[8]"); the second part is empty for other types."""
    match = re.fullmatch(r"(.*?)((?:\[\w+\])*)", type_text)
    return match[1].strip(), match[2]


def _read_notes(path):
    """Blocks of a function's name and lines "Label: text"; `-` stands for the errors that all functions have."""
    notes = {}
    if not path.exists():
        return notes
    for block in re.split(r"\n\s*\n", path.read_text()):
        lines = [line for line in block.split("\n") if line and not line.startswith("#")]
        if not lines:
            continue
        name, found = lines[0], []
        if name in notes:
            raise ValueError(f"{path.name}: {name} is there twice")
        for line in lines[1:]:
            label, _, text = line.partition(": ")
            if label not in LABELS or not text:
                raise ValueError(f"{path.name}: {name}: {line!r} does not begin with one of {', '.join(LABELS)}")
            found.append(Note(label, text))
        if [note.label for note in found] != [label for label in LABELS if label in {note.label for note in found}]:
            raise ValueError(f"{path.name}: {name}: its lines are not in the order {', '.join(LABELS)}")
        notes[name] = tuple(found)
    return notes


def match_refusals(functions, path=API_DIR / "refusals.csv"):
    """[(function, row)] of the functions that are refused without code, and the rows that fit none.

    A row of a function's own goes before a pattern header:name."""
    rows = read_csv(path)
    named = {row["function"]: row for row in rows if ":" not in row["function"]}
    patterns = [(*row["function"].split(":"), row) for row in rows if ":" in row["function"]]
    found = []
    for function in functions:
        row = named.get(function.name) or next(
            (row for header, pattern, row in patterns
             if header == function.header and fnmatch.fnmatchcase(function.name, pattern)), None)
        if row is not None:
            found.append((function, row))
    used = [row["function"] for _, row in found]
    return found, [row for row in rows if row["function"] not in used]


def _refusal_notes(number, function):
    told = "always." if function.returns == "aclError" else "always, as the recent error; the result is NULL or 0."
    notes = [Note("Errors", f"{number} {told}")]
    if takes_stream(function):
        notes.append(Note("Capture", f"refused with {number}, as without a capture."))
    return tuple(notes)


def _rename(row, column):
    row = dict(row)
    row["name"] = row.pop(column)
    return row


def _group_rows(path, column):
    groups = {}
    for row in read_csv(path):
        groups.setdefault(row[column], []).append(row)
    return groups


def _read_enums(path):
    # The first row of an enum has no constant; it carries the comment of the enum itself.
    enums = []
    for name, (head, *rows) in _group_rows(path, "enum").items():
        constants = tuple((row["constant"], int(row["value"]), row["meaning"]) for row in rows)
        enums.append(Enum(name, head["header"], head["meaning"], constants))
    return enums


def _read_structs(path):
    # The first row of a struct has no field; its type is the tag where that differs from the name.
    structs = []
    for name, (head, *rows) in _group_rows(path, "struct").items():
        fields = tuple(Field(row["field"], int(row["offset"]), row["type"], row["note"]) for row in rows)
        size, align = int(head["size"]), int(head["align"])
        structs.append(
            Struct(name, head["type"] or name, head["kind"], head["header"], size, align, head["note"], fields)
        )
    return structs
