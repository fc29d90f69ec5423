# SPDX-License-Identifier: Apache-2.0
"""What a captured graph is told by its configuration: texts, since generated code carries them."""
import dataclasses
import os


def _flag(value):
    return value in (True, "1", "True", "true")


@dataclasses.dataclass
class Settings:
    mode: str = "reduce-overhead"
    run_eagerly: bool = False
    clone_input: bool = True
    enable_output_clone: bool = False
    disable_mempool_reuse_in_same_fx: bool = False
    static_capture_size_limit: int = 64
    frozen_parameter: bool = False
    force_recapture: bool = False
    aclnn_static_shape_kernel: bool = False
    aclnn_static_shape_kernel_sym_value_range: object = None
    aclnn_static_shape_kernel_sym_index: int = 0
    super_kernel_optimize: bool = False
    super_kernel_optimize_options: object = None
    super_kernel_debug_options: object = None

    @classmethod
    def of(cls, config):
        """``config``: a dict of texts, or None."""
        settings = cls()
        for field in dataclasses.fields(cls):
            if config is None or field.name not in config:
                continue
            value = config[field.name]
            if field.type in (bool, "bool"):
                value = _flag(value)
            elif field.type in (int, "int"):
                value = int(value)
            setattr(settings, field.name, value)
        return settings

    @property
    def limit_phrase(self):
        return "capture_limit" if self.mode == "npugraph_ex" else "static_capture_size_limit"


STALE_WORDS = ("error", "strict", "warn", "off")


def stale_mode():
    """What happens to results that a later replay overwrites: REPRISE_TORCH_STALE."""
    word = os.environ.get("REPRISE_TORCH_STALE", "error")
    if word not in STALE_WORDS:
        raise ValueError(f"REPRISE_TORCH_STALE is {word!r}, expected one of {', '.join(STALE_WORDS)}")
    return word
