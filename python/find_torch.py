# SPDX-License-Identifier: Apache-2.0
"""For CMakeLists.txt: where PyTorch and Python's headers are, as a CMake list."""
import sys
import sysconfig
from pathlib import Path

try:
    import torch
except ImportError as error:
    sys.exit(f"{error}\n")
print(
    Path(torch.__file__).parent,
    torch.__version__,
    int(torch.compiled_with_cxx11_abi()),
    sysconfig.get_path("include"),
    sysconfig.get_config_var("EXT_SUFFIX"),
    sep=";",
)
