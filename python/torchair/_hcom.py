# SPDX-License-Identifier: Apache-2.0
"""Collectives in graphs."""
from torchair.core.utils import logger


def patch_for_hcom():
    """Needed by old releases of PyTorch, whose tracer did not know collectives."""
    logger.warning("For versions 2.3.1 and above of PyTorch, there is no need to call patch_for_hcom anymore.")
