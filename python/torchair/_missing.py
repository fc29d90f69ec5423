# SPDX-License-Identifier: Apache-2.0
"""What is not there yet."""


def not_there(name, instead):
    """A function that says so."""

    def refuse(*args, **kwargs):
        raise NotImplementedError(f"torchair.{name} is not supported by Reprise: {instead}")

    refuse.__name__ = name.rpartition(".")[2]
    return refuse
