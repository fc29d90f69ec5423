# SPDX-License-Identifier: Apache-2.0
"""What tests of operators import: ``torch_npu.testing.testcase`` and ``torch_npu.testing.common_utils``.

It stands on PyTorch's own helpers for tests (``torch.testing._internal``), which need the package expecttest.
"""
