# SPDX-License-Identifier: Apache-2.0
"""What scripts/op_tables.py and torch_rows.py say of rows that are wrong: table, row and column."""
import aclnn  # noqa: F401  (finds the scripts)
import op_tables
import pytest
import torch_rows

FUNCTIONS = {op.name: op for op in aclnn.TABLE.values()}
ADD = {"operator": "aclnnAdd", "header": "aclnn_add.h", "about": "", "rank": "A", "types": "kAllTypes",
       "parameters": "const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out",
       "roles": "in in attr:1 out", "computation": "kAdd", "graph_op": "Add", "bound": "exact", "formula": "",
       "shapes": "same", "note": ""}
SUM = {"computation": "kReduceSum", "family": "reduction", "lower": "LowerReduceSum", "code": "", "type_rule": "OneType",
       "shape_rule": "ReducedShape", "aliasing": "none", "engine": "vector", "takes": "", "determinism": "always"}
GELU = {"torch": "npu::npu_gelu", "function": "aclnnGeluV2", "arguments": "input approximate:none=0,tanh=1 @0",
        "with_scalar": "", "only": ""}
EQ = {"torch": "eq.Tensor", "function": "aclnnEqTensor", "arguments": "self other @0", "with_scalar": "aclnnEqScalar",
      "only": ""}


def text_of_failure(make):
    with pytest.raises(SystemExit) as failure:
        make()
    return str(failure.value)


@pytest.mark.parametrize("column, value, why", [
    ("operator", "Add", "begin with aclnn"),
    ("types", "kSomeTypes", "no set of types 'kSomeTypes'"),
    ("roles", "in in attr", "3 words for 4 parameters"),
    ("roles", "in in arg out", "role 'arg' of alpha"),
    ("roles", "in:1 in attr out", "default of self: only attributes"),
    ("roles", "in in attr:one out", "default of alpha: 'one' is no number"),
    ("roles", "in in attr:null out", "default of alpha: null, but it may not be null"),
    ("parameters", "const aclTensor* self, wchar_t other, const aclScalar* alpha, aclTensor* out", "no kind for"),
    ("bound", "some", "cannot read 'some'"),
])
def test_functions(column, value, why):
    op_tables.Operator(ADD, "arithmetic")
    text = text_of_failure(lambda: op_tables.Operator({**ADD, column: value}, "arithmetic"))
    row = value if column == "operator" else "aclnnAdd"
    assert text.startswith(f"api/ops/arithmetic.csv: row {row}, column {column}: ") and why in text, text


@pytest.mark.parametrize("column, value, why", [
    ("family", "sums", "no src/ops/families/sums.cc"),
    ("shape_rule", "", "no name of a function"),
    ("aliasing", "any", "no word 'any'; there are none, same_view, first_input"),
    ("takes", "fractals strings", "no word 'strings'"),
    ("determinism", "never", "no word 'never'"),
])
def test_computations(column, value, why):
    op_tables.Computation(SUM)
    text = text_of_failure(lambda: op_tables.Computation({**SUM, column: value}))
    assert text.startswith(f"api/computations.csv: row kReduceSum, column {column}: ") and why in text, text


@pytest.mark.parametrize("base, column, value, why", [
    (GELU, "function", "aclnnGelu9", "api/ops has no function aclnnGelu9"),
    (GELU, "arguments", "input @0", "2 words, aclnnGeluV2 has 3 parameters"),
    (GELU, "arguments", "input approximate @0", "it is Int, str gives String"),
    (GELU, "arguments", "input approximate:none,tanh @0", "choices are NAME=NUMBER"),
    (GELU, "arguments", "input approx# @0", "there is no argument approx"),
    (GELU, "arguments", "- =0 @0", "it may not be null"),
    (GELU, "arguments", "@0 =0 @0", "it is not written"),
    (GELU, "arguments", "input =0.5 @0", "it is Int"),
    (GELU, "arguments", "input =0 input", "does not say that the argument is written"),
    (GELU, "arguments", "input ?? @0", "it cannot be read"),
    (GELU, "only", "floating", "only for operators of PyTorch itself"),
    (EQ, "only", "even", "no word 'even'"),
    (EQ, "with_scalar", "aclnnAdds", "4 parameters, aclnnEqTensor 3"),
    (EQ, "with_scalar", "aclnnGeTensor", "other of aclnnGeTensor is Input Tensor, expected Input Scalar"),
])
def test_operators_of_pytorch(base, column, value, why):
    signature = torch_rows.read_signatures().get(base["torch"])

    def check(row):
        torch_rows.TorchRow(row).check(FUNCTIONS, signature)

    check(base)
    text = text_of_failure(lambda: check({**base, column: value}))
    assert text.startswith(f"api/torch_ops.csv: row {base['torch']}, column {column}: ") and why in text, text


def test_a_type_of_graph_operator_must_be_in_its_table(monkeypatch):
    op = op_tables.Operator({**ADD, "graph_op": "Plus"}, "arithmetic")
    monkeypatch.setattr(op_tables, "read_graph_types", lambda: {"Add"})
    text = text_of_failure(lambda: op_tables.check_graph_types([op]))
    assert text == "api/ops/arithmetic.csv: row aclnnAdd, column graph_op: api/graph_ops has no type Plus"
