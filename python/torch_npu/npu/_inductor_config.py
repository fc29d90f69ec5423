# SPDX-License-Identifier: Apache-2.0
"""What generated programs for npu depend on, beside inductor's own settings: keys of its cache on the disk."""
import sys

from torch.utils._config_module import install_config_module

version: int = 2  # of what _inductor.py generates
threads: int = 1  # of a kernel

install_config_module(sys.modules[__name__])
