# SPDX-License-Identifier: Apache-2.0
"""For CMakeLists.txt: where PyTorch and Python's headers are, as a CMake list. Importing torch would take seconds."""
import importlib.metadata
import importlib.util
import re
import sys
import sysconfig
from pathlib import Path

spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit("no module named torch\n")
folder = Path(spec.origin).parent
abi = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", (folder / "share/cmake/Torch/TorchConfig.cmake").read_text())
print(
    folder,
    importlib.metadata.version("torch"),
    abi[1] if abi else 1,
    sysconfig.get_path("include"),
    sysconfig.get_config_var("EXT_SUFFIX"),
    sep=";",
)
