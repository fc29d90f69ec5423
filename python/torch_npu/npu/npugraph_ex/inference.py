# SPDX-License-Identifier: Apache-2.0
"""Compiled programs that are kept on the disk."""
from torch_npu._errors import refused
from torch_npu.npu.npugraph_ex import _config

__all__ = ["cache_compile", "readable_cache"]


def _of_torchair(name):
    from torchair import inference

    found = getattr(inference, name, None)
    if found is None:
        raise refused(NotImplementedError(f"torchair.inference.{name} is not there yet; compile with torch.compile"))
    return found


def cache_compile(func, *, options=None, dynamic=True, cache_dir=None, **kwargs):
    """As torchair.inference.cache_compile, with options of this backend."""
    return _of_torchair("cache_compile")(
        func, config=_config(options), dynamic=dynamic, cache_dir=cache_dir, **kwargs
    )


def readable_cache(cache_bin, print_output=True, file=None):
    return _of_torchair("readable_cache")(cache_bin, print_output=print_output, file=file)
