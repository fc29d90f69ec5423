# SPDX-License-Identifier: Apache-2.0
"""Kernels that are compiled for one shape: accepted, and said; operators of this device need none."""
import os
import re
import warnings

import torch

from torchair.core.utils import logger


class StaticKernels:
    def __init__(self, settings, name):
        self._is_on = settings.aclnn_static_shape_kernel
        self._range = settings.aclnn_static_shape_kernel_sym_value_range
        self._index = settings.aclnn_static_shape_kernel_sym_index
        self._name = name
        self._seen = set()

    def before_capture(self):
        if self._is_on:
            logger.info("Start to compile static shape kernel for fx graph %s", self._name)

    def before_eager_run(self, args, symbols):
        """Once for each tuple of sizes that lies in the range."""
        if not self._is_on:
            return
        values = tuple(args[index] for index in symbols if isinstance(args[index], int))
        if values in self._seen:
            return
        self._seen.add(values)
        wanted = self._range
        if wanted is not None and self._index < len(values) and values[self._index] not in wanted:
            logger.info("Skip compile static shape kernel for fx graph %s: %s is not in %s", self._name, values, wanted)
            return
        logger.info("Start to compile static shape kernel for fx graph %s with %s", self._name, values)


def check_build_dir(path):
    """Where kernels would go. Raises for names that lead elsewhere."""
    if path is None:
        return
    if "\0" in path or ".." in path.split(os.sep) or os.path.islink(path):
        raise ValueError(f"the folder for static kernels, {path!r}, must be a plain path without .. and links")


_WITH_LIMITS = (9, 0, 0)  # engines from this version on compile kernels for fewer cores


def _engine_version():
    from torch_npu.npu import utils

    return tuple(int(part) for part in re.findall(r"\d+", utils.get_cann_version())[:3])


def check_core_limits(gm, settings):
    """Core limits and static kernels exclude each other with old engines: the kernels are left out, with a warning."""
    if settings.get("aclnn_static_shape_kernel") != "1" or not _has_core_limits(gm):
        return
    version = _engine_version()
    if version and version < _WITH_LIMITS:
        warnings.warn(
            f"static kernels are off, since the function limits cores (limit_core_num) and the toolkit is of version "
            f"{'.'.join(map(str, version))}, before {'.'.join(map(str, _WITH_LIMITS))}",
            UserWarning, stacklevel=2,
        )
        settings["aclnn_static_shape_kernel"] = "0"


def _has_core_limits(gm):
    return any(
        node.target is torch.ops.air.scope_enter.default and "_op_aicore_num" in node.args[0]
        for node in gm.graph.find_nodes(op="call_function", target=torch.ops.air.scope_enter.default)
    )
