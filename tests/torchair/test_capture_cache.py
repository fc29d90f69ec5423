# SPDX-License-Identifier: Apache-2.0
"""Captured functions that are kept in files."""
import warnings

import torch
import torch_npu  # noqa: F401
import torchair
from acl_support import config, log


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.run(x)

    def _run(self, x):
        with torchair.scope.npu_stream_switch("cached"):
            y = torch.relu(self.layer(x))
        torchair.ops.wait([y])
        return y + 1


def test_TA_133_180_192_cached_captures(tmp_path):
    torch.manual_seed(7)
    for turn in range(2):
        torch._dynamo.reset()
        model = Model().npu()
        given = config("npugraph_ex", debug__aclgraph__static_capture_size_limit=1)
        model.run = torchair.inference.cache_compile(model._run, config=given, dynamic=True, cache_dir=str(tmp_path))
        with torch.no_grad(), log() as lines, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for size in (3, 3, 5, 3):
                x = torch.randn(size, 4, device="npu")
                torch.testing.assert_close(model(x), model._run(x))
        assert lines.count("Success to capture fx_graph") == 1 and lines.count("capture_limit reached") == 1
        assert bool(lines.count("After fx graph pass")) == (turn == 0)
