# SPDX-License-Identifier: Apache-2.0
"""Operators that write the tensor that they read: the cases of the operator with an output of its own."""

import importlib
from pathlib import Path

import aclnn
from harness import CASES, FORM, Case, Ref, cases, cases_of

# All others first: what has cases of its own needs none from here.
for path in sorted(Path(__file__).parent.glob("cases_*.py")):
    if path.stem != Path(__file__).stem:
        importlib.import_module(path.stem)
NAMES = [name for name in aclnn.TABLE
         if name.startswith("Inplace") and name.removeprefix("Inplace") in aclnn.TABLE and name not in CASES]


def output_of(op):
    return next((name, role) for (_, name), role in zip(op.parameters, op.roles) if role.startswith("out"))


@cases(*NAMES)
def inplace(op, g):
    base, own = aclnn.TABLE[op.removeprefix("Inplace")], aclnn.TABLE[op]
    out, role = output_of(base)
    any_type = "=" in role or base.id.startswith("Logical")
    inputs = [name for (_, name), role in zip(base.parameters, base.roles) if not role.startswith("out")]
    names = dict(zip(inputs, (name for _, name in own.parameters)))
    seen = set()
    for case in cases_of(base.id):
        x, expected = case.args[inputs[0]], case.expect[out]
        if list(x.shape) != expected.shape or (expected.dtype != x.dtype and not any_type):
            continue
        # The computation is tested with the other operator: here each type and each kind of shape once.
        new = {x.dtype, (x.dim(), x.numel() == 0)} - seen
        if FORM == "full" or new:
            seen |= new
            yield Case({names[name]: value for name, value in case.args.items()},
                       {names[inputs[0]]: Ref(expected.value, x.dtype, bound=expected.bound)})
