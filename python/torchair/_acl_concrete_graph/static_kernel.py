# SPDX-License-Identifier: Apache-2.0
"""Kernels that are compiled for one shape: accepted, and said; operators of this device need none."""
import os

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
