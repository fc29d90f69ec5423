# SPDX-License-Identifier: Apache-2.0
"""Changes of FX graphs before a mode takes them."""
from torchair._fx_passes import joint, patterns, simple, valid
from torchair._fx_passes.runner import PassRunner

__all__ = ["PassRunner", "optimize"]


def optimize(gm, example_inputs, config, dump=None, is_inference=False):
    """The passes of all modes, in their order; changes ``gm``. ``dump(name, gm)`` is called after each. ``is_inference``: no
    gradients are wanted."""
    kind = "ACL" if config.captures() else "GE"
    runner = PassRunner(gm, dump)
    if is_inference and config.experimental_config.npu_fx_pass:
        runner.run("npu_fx_pass", joint.apply)
    before, after = config.post_grad_custom_pre_pass, config.post_grad_custom_post_pass
    if before:
        runner.run("post_grad_custom_pre_pass", before.raw, example_inputs, config)
    _built_in(runner, config, kind)
    if after:
        runner.run("post_grad_custom_post_pass", after.raw, example_inputs, config)
    runner.finish("fx")
    valid.check_scopes(gm)
    return gm


def _built_in(runner, config, kind):
    if config.experimental_config.remove_noop_ops:
        runner.run("optimize_noop_ops", simple.remove_noop_ops)
    runner.run("recover_view_inplace_pattern", simple.recover_view_inplace, kind)
    if kind == "GE":
        runner.run("optimize_sym_input", simple.sizes_of_inputs)
    if config.experimental_config.pattern_fusion_pass:
        runner.run("apply_pattern_passes", patterns.apply, kind)
    runner.run("view_to_reshape", simple.view_to_reshape)
