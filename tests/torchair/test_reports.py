# SPDX-License-Identifier: Apache-2.0
"""Values and operators of a compiled model, in files."""
import csv

import numpy as np
import torch
import torchair
from support_ge import compiled, equal, numbers


def test_TA_116_values_of_operators(tmp_path):
    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(tmp_path)
    step = compiled(lambda x: x.to(torch.bfloat16).relu() + 1, config=config, dynamic=True)
    for rows in (2, 3):
        x = numbers(rows, 4)
        equal(step(x), x.to(torch.bfloat16).relu() + 1)
    files = sorted(tmp_path.rglob("*.npy"))
    assert len({path.parent for path in files}) == 2
    results = [path for path in files if path.name.startswith("relu.OUTPUT")]
    assert len(results) == 2 and np.load(results[0]).dtype == np.float32


def test_TA_118_operators_of_a_model(tmp_path):
    for skips in (True, False):
        config = torchair.CompilerConfig()
        config.debug.fx_summary.type = "csv"
        config.debug.fx_summary.skip_compile = skips
        x = numbers(2, 4)
        equal(compiled(lambda x: x.relu().relu().sinc(), config=config)(x), x.relu().relu().sinc())
        torch._dynamo.reset()
    tables = list(tmp_path.glob("*.csv"))
    assert len(tables) == 2
    with tables[0].open(encoding="utf-8") as file:
        rows = {row[0]: row for row in csv.reader(file)}
    assert rows["aten.relu.default"][2:4] == ["已支持", "2"]
