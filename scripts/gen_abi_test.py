#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes C and C++ sources that assert the public ABI at compile time.

    scripts/gen_abi_test.py BUILD_DIR

abi_test.c and abi_test.cpp check every constant, enumerator, type, layout and function type of the tables
under api/ against what the compiler makes of the headers. headers/ gets one source per header and language,
which includes that header and nothing else; aclnnop.c and aclnnop.cpp include every operator header, in the two orders
of their names. The text of the headers is never read here.
"""

import argparse
import re
import sys
from pathlib import Path

import api_tables as api


# What the suffix of a literal makes of it: callers mix macros with variables of their own, as in std::max(size, MACRO).
LITERAL_TYPES = {
    "int": "int",
    "uint32_t": "unsigned int",
    "unsigned long": "unsigned long",
    "uint64_t": "unsigned long long",
}
ACLNNOP = Path(__file__).resolve().parent.parent / "include" / "aclnnop"


class C11:
    suffix = "c"
    assertion = "_Static_assert"
    preamble = "#define ALIGN_OF(type) _Alignof(type)\n"

    @staticmethod
    def same_function(function):
        return f"_Generic(&{function.name}, {function.pointer_type}: 1, default: 0)"

    @staticmethod
    def same_type(name, definition):
        return f"_Generic(({name} *)0, {pointer_to(definition)}: 1, default: 0)"

    @staticmethod
    def same_field(struct, field):
        base, array = api.parse_array(field.type)
        place = f"(({struct.name} *)0)->{field.member}"
        if array == "[0]":  # ISO C cannot spell the type, only that of an element
            return f"_Generic(&{place}[0], {base} *: 1, default: 0)"
        return f"_Generic(&{place}, {base} (*){array}: 1, default: 0)"

    @staticmethod
    def same_constant(constant):
        return f"_Generic({constant.name}, {constant.ctype}: 1, default: 0)"

    @staticmethod
    def same_literal(constant):
        return f"_Generic({constant.name}, {LITERAL_TYPES[constant.ctype]}: 1, default: 0)"

    @staticmethod
    def same_text(constant):  # characters of a literal are no constant expressions in C
        return f"sizeof {constant.name} == sizeof {constant.literal}"

    @staticmethod
    def is_signed(enum):
        return f"(({enum.name})-1 < ({enum.name})1)"


class Cpp17:
    suffix = "cpp"
    assertion = "static_assert"
    preamble = "#include <cstddef>\n#include <string_view>\n#include <type_traits>\n#define ALIGN_OF(type) alignof(type)\n"

    @staticmethod
    def same_function(function):
        return f"std::is_same_v<decltype(&{function.name}), {function.pointer_type}>"

    @staticmethod
    def same_type(name, definition):
        return f"std::is_same_v<{name}, {definition}>"

    @staticmethod
    def same_field(struct, field):
        base, array = api.parse_array(field.type)
        place = f"(({struct.name} *)nullptr)->{field.member}"
        if array == "[0]":
            return f"std::is_same_v<decltype(&{place}[0]), {base} *>"
        return f"std::is_same_v<std::remove_reference_t<decltype(({place}))>, {base}{array}>"

    @staticmethod
    def same_constant(constant):
        return f"std::is_same_v<decltype({constant.name}), const {constant.ctype}>"

    @staticmethod
    def same_literal(constant):
        return f"std::is_same_v<decltype({constant.name}), {LITERAL_TYPES[constant.ctype]}>"

    @staticmethod
    def same_text(constant):
        return f"std::string_view({constant.name}) == {constant.literal}"

    @staticmethod
    def is_signed(enum):
        return f"std::is_signed_v<std::underlying_type_t<{enum.name}>>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build_dir", type=Path)
    build_dir = parser.parse_args().build_dir

    tables = api.Tables()
    for language in (C11, Cpp17):
        write(build_dir / f"abi_test.{language.suffix}", render_test(tables, language))
        for header in tables.headers:
            stem = re.sub(r"\W", "_", header.path.removesuffix(".h"))
            # The typedef keeps the source from being empty, which ISO C forbids.
            text = f'#include "{header.path}"\ntypedef int header_compiled_alone;\n'
            write(build_dir / "headers" / f"{stem}.{language.suffix}", text)
        names = sorted(path.name for path in ACLNNOP.glob("*.h"))
        includes = "".join(f'#include "aclnnop/{name}"\n' for name in (names if language is C11 else reversed(names)))
        write(build_dir / f"aclnnop.{language.suffix}", includes)
    return 0


def write(path, text):
    """Leaves an unchanged file alone, so that nothing is compiled again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def render_test(tables, language):
    # acl_rt_api.h overloads the C functions; taking their address would be ambiguous.
    includes = "".join(f'#include "{h.path}"\n' for h in tables.headers if h.path != "acl/acl_rt_api.h")
    checks = [
        *constant_checks(tables, language),
        *enum_checks(tables, language),
        *typedef_checks(tables, language),
        *struct_checks(tables, language),
        *function_checks(tables, language),
    ]
    lines = [f'{language.assertion}({condition}, "{text}");' for condition, text in checks]
    return f"// Generated by scripts/gen_abi_test.py.\n{includes}\n{language.preamble}\n" + "\n".join(lines) + "\n"


def constant_checks(tables, language):
    for constant in tables.constants:
        if constant.kind == "constexpr" and language is C11:
            continue
        if constant.kind in ("object", "constexpr"):
            yield language.same_constant(constant), f"{constant.name} has another type"
        elif constant.ctype in LITERAL_TYPES:
            yield language.same_literal(constant), f"{constant.name} has another type"
        if constant.kind == "object" and language is C11:
            continue  # the value of an object is no constant expression in C
        if constant.literal.startswith('"'):
            yield language.same_text(constant), f"{constant.name} has another text"
            continue
        yield f"{constant.name} == {constant.literal}", f"{constant.name} is not {constant.value}"


def enum_checks(tables, language):
    for enum in tables.enums:
        for name, value, _ in enum.constants:
            yield f"{name} == {value}", f"{name} is not {value}"
        signed = any(value < 0 for _, value, _ in enum.constants)
        yield f"sizeof({enum.name}) == 4", f"{enum.name} is not 32 bits wide"
        yield f"{language.is_signed(enum)} == {int(signed)}", f"{enum.name} has the wrong sign"


def typedef_checks(tables, language):
    for typedef in tables.typedefs:
        yield language.same_type(typedef.name, typedef.definition), f"{typedef.name} is another type"


def pointer_to(definition):
    return definition.replace("(*)", "(**)", 1) if "(*)" in definition else f"{definition} *"


def struct_checks(tables, language):
    for struct in tables.structs:
        yield f"sizeof({struct.name}) == {struct.size}", f"{struct.name} is not {struct.size} bytes"
        yield f"ALIGN_OF({struct.name}) == {struct.align}", f"{struct.name} is not aligned to {struct.align}"
        for field in struct.fields:
            if not field.member:
                continue
            place = f"{struct.name}.{field.member}"
            yield f"offsetof({struct.name}, {field.member}) == {field.offset}", f"{place} is not at {field.offset}"
            if not field.opens_union:
                yield language.same_field(struct, field), f"{place} has another type"


def function_checks(tables, language):
    for function in tables.declared_functions:
        yield language.same_function(function), f"{function.name} has another type"


if __name__ == "__main__":
    sys.exit(main())
