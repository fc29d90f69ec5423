# SPDX-License-Identifier: Apache-2.0
"""Changes of FX graphs before a mode takes them."""


def optimize(gm, example_inputs, config):
    """The passes of all modes, in their order; changes ``gm``."""
    for custom in (config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass):
        if custom:
            custom.raw(gm, example_inputs, config)
            gm.recompile()
    return gm
