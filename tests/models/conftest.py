# SPDX-License-Identifier: Apache-2.0
"""Other people's packages on the device `npu`: `make test-models`. What the tests share is in compare.py."""
import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded: all models are made of small configurations
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import pytest
import torch


@pytest.fixture(autouse=True)
def begin_anew():
    torch.manual_seed(1)
    yield
    torch.npu.synchronize()  # what the device has to complain of is this test's failure
    gc.collect()
