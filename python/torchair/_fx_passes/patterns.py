# SPDX-License-Identifier: Apache-2.0
"""Chains of operators that one operator of the device computes, and those that programs register."""
import functools

import torch
from torchair._fx_passes import built_in_patterns
from torchair._fx_passes.labels import stream_labels
from torchair.core.utils import logger

__all__ = ["apply", "register_replacement"]


class _Manager:
    """Patterns of the process. ``modes``: the kinds of graph ("GE", "ACL") that a pattern is for."""

    def __init__(self):
        self._passes = {}  # by the set of modes

    @staticmethod
    def is_there():
        """Patterns are matched by inductor's matcher, in the form that it has since PyTorch 2.6."""
        return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)

    def _pass_of(self, modes):
        from torch._inductor.pattern_matcher import PatternMatcherPass

        if modes not in self._passes:
            self._passes[modes] = PatternMatcherPass(pass_name="torchair_patterns_" + "_".join(sorted(modes)))
        return self._passes[modes]

    def register(self, search_fn, replace_fn, example_inputs, modes=("GE", "ACL"), trace_fn=None,
                 extra_check=None, search_fn_pattern=None, scalar_workaround=None, skip_duplicates=False):  # fmt: skip
        from torch._inductor import pattern_matcher

        newer = {}
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 7):
            newer["skip_duplicates"] = skip_duplicates
        pattern_matcher.register_replacement(
            search_fn,
            replace_fn,
            example_inputs,
            trace_fn or pattern_matcher.fwd_only,
            self._pass_of(frozenset(modes)),
            extra_check=functools.partial(_check, extra_check),
            scalar_workaround=scalar_workaround,
            search_fn_pattern=search_fn_pattern,
            **newer,
        )

    def apply(self, gm, kind):
        count = built_in_patterns.apply(gm.graph, kind)
        for modes, each in list(self._passes.items()):
            if kind in modes:
                count += each.apply(gm.graph)
        return count


_manager = _Manager()


def _check(extra_check, match):
    """All that is replaced must run on one stream: this comes before the pattern's own condition."""
    calls = [node for node in match.nodes if node.op == "call_function"]
    if calls:
        labels = stream_labels(calls[0].graph)
        if len({labels[node] for node in calls}) > 1:
            logger.debug(
                "cross-stream operation detected: %s are not fused, since they run on several streams",
                [node.name for node in calls],
            )
            return False
    return extra_check is None or bool(extra_check(match))


def apply(gm, kind):
    """Replaces what matches. Returns how many places were."""
    if not _manager.is_there():
        logger.warning_once(f"Skip pattern fusion: it needs PyTorch 2.6, this is {torch.__version__}")
        return 0
    count = _manager.apply(gm, kind)
    logger.info("In fx_graph, find %s matched patterns for fusion", count)
    return count


def register_replacement(search_fn, replace_fn, example_inputs, trace_fn=None, extra_check=None,
                         search_fn_pattern=None, scalar_workaround=None, skip_duplicates=False):  # fmt: skip
    """Adds a pattern for all graphs that are compiled from now on: what computes as ``search_fn`` becomes ``replace_fn``.

    ``example_inputs``: tensors to trace both with; their sizes do not matter. ``extra_check(match)``: whether a place that
    matches may be replaced. ``skip_duplicates``: the same pattern again is not an error.
    """
    if not _manager.is_there():
        logger.warning_once(f"register_replacement needs PyTorch 2.6, this is {torch.__version__}: nothing is registered")
        return
    _manager.register(
        search_fn,
        replace_fn,
        example_inputs,
        trace_fn=trace_fn,
        extra_check=extra_check,
        search_fn_pattern=search_fn_pattern,
        scalar_workaround=scalar_workaround,
        skip_duplicates=skip_duplicates,
    )
