# SPDX-License-Identifier: Apache-2.0
"""Two distributions bring a package named torch_npu: this one, and that of the vendor."""
import importlib.metadata
import os
import warnings

OURS, VENDORS = "reprise-torch", "torch-npu"


def _version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def warn_of_another():
    """Says which one is in use, where both are installed."""
    theirs = _version(VENDORS)
    if theirs is not None:
        warnings.warn(
            f"two distributions with a package torch_npu are installed: {OURS} {_version(OURS) or ''} (the CPU as device "
            f"npu) and {VENDORS} {theirs} (the vendor's, for the hardware). {OURS} is in use, from "
            f"{os.path.dirname(os.path.abspath(__file__))}. If both were installed into one folder, their files are "
            f"mixed: uninstall both (pip uninstall {OURS} {VENDORS}), then install the one that you want.",
            stacklevel=3,
        )
