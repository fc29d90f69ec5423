# SPDX-License-Identifier: Apache-2.0
"""``TestCase`` and ``run_tests`` for tests of operators on npu."""
import importlib.util
import sys

import numpy
import torch
from torch.testing._internal import common_utils

__all__ = ["TestCase", "run_tests"]


def run_tests(argv=None):
    """PyTorch's. Where CI is set that writes reports by the package xmlrunner; without the package there are none."""
    if common_utils.IS_CI and importlib.util.find_spec("xmlrunner") is None:
        print("no reports as XML: the package xmlrunner is not installed", file=sys.stderr)
        common_utils.IS_CI = False
        common_utils.TEST_SAVE_XML = ""
    common_utils.run_tests(argv)


class TestCase(common_utils.TestCase):
    """PyTorch's, with the comparison that tests of npu use."""

    def assertRtolEqual(self, x, y, prec=1e-4, prec16=1e-3, auto_trans_dtype=False, message=None):
        """Equal within ``prec`` of the larger number, ``prec16`` for types of 16 bits; lists and tuples by part."""
        if isinstance(x, (list, tuple)):
            self.assertEqual(len(x), len(y), message)
            for one, other in zip(x, y):
                self.assertRtolEqual(one, other, prec, prec16, auto_trans_dtype, message)
            return
        x, y = (torch.as_tensor(value).detach().cpu() for value in (x, y))
        if auto_trans_dtype:
            x, y = x.to(torch.promote_types(x.dtype, y.dtype)), y.to(torch.promote_types(x.dtype, y.dtype))
        self.assertEqual(x.dtype, y.dtype, message)
        self.assertEqual(x.shape, y.shape, message)
        close = prec16 if x.dtype in (torch.float16, torch.bfloat16) else prec
        if x.is_floating_point() or x.is_complex():
            x, y = x.to(torch.complex128 if x.is_complex() else torch.float64).numpy(), y.to(
                torch.complex128 if y.is_complex() else torch.float64
            ).numpy()
            numpy.testing.assert_allclose(x, y, rtol=close, atol=close, equal_nan=True, err_msg=message or "")
        else:
            self.assertTrue(torch.equal(x, y), message)
