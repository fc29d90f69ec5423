# SPDX-License-Identifier: Apache-2.0
"""Rows of api/torch_ops.csv against the signatures that PyTorch has. scripts/gen_ops.py checks them as far as it can do
so without PyTorch."""
import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401  (defines torch.ops.npu)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import op_tables  # noqa: E402
import torch_rows  # noqa: E402

FUNCTIONS = {op.name: op for ops in op_tables.read_table().values() for op in ops}
ROWS = [torch_rows.TorchRow(row) for row in op_tables.read_rows(op_tables.TORCH)]


def schema_of(row):
    space, _, name = row.name.rpartition("::")
    name, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, space or "aten"), name), overload or "default")._schema


def check(row):
    _, signature = torch_rows.read_signature(str(schema_of(row)).partition("::")[2])
    row.check(FUNCTIONS, signature)


def test_every_row_fits_the_signature_of_its_operator():
    for row in ROWS:
        check(row)


@pytest.mark.parametrize("arguments, why", [
    ("self exponent[] keepdim %0 @0", "there is no argument exponent, but self, dim, keepdim, dtype"),
    ("self dim[] keepdim %0 @1", "there are 1 results"),
    ("self keepdim keepdim %0 @0", "it is IntArray, bool gives Bool or DType or Int"),
    ("self dim[] keepdim %0", "4 words, aclnnMean has 5 parameters"),
])
def test_a_row_that_does_not_fit_is_named(arguments, why):
    row = torch_rows.TorchRow({"torch": "mean.dim", "function": "aclnnMean", "arguments": arguments, "with_scalar": "",
                               "only": ""})
    with pytest.raises(SystemExit) as failure:
        check(row)
    text = str(failure.value)
    assert text.startswith("api/torch_ops.csv: row mean.dim, column arguments: ") and text.endswith(why), text


def number_of(text):
    """Whole numbers stay exact: the largest of 64 bits is no float."""
    return int(text) if text.lstrip("-").isdigit() else float(text)


def value_of(parameter):
    """The default of the table as Python has it."""
    text, kind = parameter.default, parameter.kind
    if text == "null":
        return None
    if kind.endswith("Array"):
        return [{"true": True, "false": False}.get(word) if kind == "BoolArray" else float(word)
                for word in text[1:-1].split(",") if word]
    return {"true": True, "false": False}[text] if kind == "Bool" else text if kind == "String" else number_of(text)


def default_of(match, argument):
    """What the words make of the default of PyTorch."""
    value = argument.default_value
    if value is None and match["default"]:
        return float(match["default"])
    if match["list"] == "[]":
        return [] if value is None else value if isinstance(value, list) else [value]
    return value


def test_defaults_are_those_of_pytorch():
    compared = 0
    for row in ROWS:
        arguments = {argument.name: argument for argument in schema_of(row).arguments}
        for word, parameter in zip(row.words, FUNCTIONS[row.function].params):
            match = torch_rows.WORD.fullmatch(word)
            if not parameter.default or match is None or match["choices"] or match["type"] or match["integer"]:
                continue
            argument = arguments[match["name"]]
            if not argument.has_default_value():
                continue
            compared += 1
            wanted = default_of(match, argument)
            wanted = list(wanted) if isinstance(wanted, (list, tuple)) else wanted
            if parameter.kind.endswith("Array") and isinstance(wanted, int):
                wanted = [wanted]
            assert value_of(parameter) == wanted, f"{row.name}: {word}, {parameter.name} of {row.function}"
    assert compared > 100


def test_cumprod_passes_its_dim_as_a_number():
    x = torch.rand(3, 40) + 0.5
    on_device = x.to("npu")
    before = torch.npu.event_counters()
    result = torch.cumprod(on_device, 1)
    assert torch.npu.event_counters() == before, "the device computes it"
    torch.testing.assert_close(result.cpu(), torch.cumprod(x, 1))
