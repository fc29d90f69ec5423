# SPDX-License-Identifier: Apache-2.0
"""Values between operators, as files of numpy: the graph runs operator by operator."""
import os

import numpy as np
import torch


class _Dumper(torch.fx.Interpreter):
    def __init__(self, gm, folder, keep):
        super().__init__(gm)
        self.folder, self.keep = folder, keep

    def run_node(self, node):
        result = super().run_node(node)
        if node.op == "call_function" and (self.keep is None or self.keep(node) is not None):
            args = [self.env[each] for each in node.all_input_nodes if each in self.env]
            for kind, values in (("INPUT", args), ("OUTPUT", [result])):
                for i, value in enumerate(torch.utils._pytree.tree_leaves(values)):
                    if isinstance(value, torch.Tensor):
                        self._save(node, kind, i, value)
        return result

    def _save(self, node, kind, i, value):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            value = value.float()
        np.save(os.path.join(self.folder, f"{node.name}.{kind}.{i}.npy"), value.numpy())


def dumper(gm, config):
    """What is called in the place of the compiled graph. Each call has a folder of its own."""
    root = os.path.join(config.debug.data_dump.path.raw, "gm_dump")
    steps = 0

    def run(args):
        nonlocal steps
        folder = os.path.join(root, f"pid_{os.getpid()}_{id(gm)}", str(steps))
        os.makedirs(folder, exist_ok=True)
        steps += 1
        with torch.no_grad():
            # What is asked for when a value is used for the last time would be lost.
            return _Dumper(gm, folder, config.debug.data_dump.filter.raw).run(*args)

    run._boxed_call = True
    run.runner = lambda: run
    return run
