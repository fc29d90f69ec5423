# SPDX-License-Identifier: Apache-2.0
"""The logger of the package."""
import functools
import logging
import os
import warnings

EVENT = 35
logging.addLevelName(EVENT, "EVENT")


class _Logger(logging.Logger):
    @functools.lru_cache(None)  # noqa: B019  there is one logger
    def warning_once(self, text):
        self.warning(text)

    def event(self, text, *args):
        self.log(EVENT, text, *args)


def _make():
    kind = logging.getLoggerClass()
    logging.setLoggerClass(_Logger)
    try:
        made = logging.getLogger("torchair")
    finally:
        logging.setLoggerClass(kind)
    if not made.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(
            logging.Formatter("[%(levelname)s] TORCHAIR(%(process)d,%(processName)s):%(asctime)s [%(filename)s:%(lineno)d]%(thread)d %(message)s")
        )
        made.addHandler(handler)
        made.propagate = False
    made.setLevel(logging.DEBUG if debugs() else logging.ERROR)
    return made


def debugs():
    """Whether graphs and logs are written for whoever looks for a fault."""
    return os.environ.get("TORCH_COMPILE_DEBUG") == "1"


logger = _make()


@functools.lru_cache(None)
def warn_once(text):
    warnings.warn(text, UserWarning, stacklevel=2)
