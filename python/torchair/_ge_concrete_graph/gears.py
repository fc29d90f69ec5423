# SPDX-License-Identifier: Apache-2.0
"""Sizes of which a graph knows all that will come: the gears of the dims of its inputs."""
import itertools

import torch


def options(inputs, config):
    """Options of the engine for inputs with gears; none where no input has any."""
    named = sorted((entry for entry in inputs if entry.gears), key=lambda entry: entry.node.name)
    if not named:
        return {}
    lists = []
    for entry in named:
        sizes = list(entry.node.output_desc[0].shape.dim)
        for dim in sorted(entry.gears):
            if sizes[dim] == -1:
                lists.append(list(entry.gears[dim]))
    if not lists:
        raise AssertionError("dims have gears (set_dim_gears), but none of them is dynamic: compile with dynamic=True")
    gears = merged(lists, config.inference_config.dynamic_gears_merge_policy.value)
    shapes = []
    for entry in sorted(inputs, key=lambda entry: entry.node.name):
        shapes.append(f"{entry.node.name}:{','.join(str(size) for size in entry.node.output_desc[0].shape.dim)}")
    return {
        "ge.inputShape": ";".join(shapes),
        "ge.dynamicDims": ";".join(",".join(str(size) for size in each) for each in gears),
        "ge.dynamicNodeType": "1",
    }


def merged(lists, policy):
    """The tuples of sizes that may come, one size for each dim."""
    if policy == "zip":
        if len({len(each) for each in lists}) != 1:
            raise AssertionError(
                f"with dynamic_gears_merge_policy zip all dims need as many gears, but they have {[len(each) for each in lists]}"
            )
        found = list(zip(*lists))
    else:
        found = list(itertools.product(*lists))
    found = list(dict.fromkeys(found))
    if len(found) > 100:
        raise AssertionError(f"the gears of all dims make {len(found)} combinations, more than 100")
    return found


def guard(gm, example_inputs):
    """Once an input has gears, the program is compiled anew where a size leaves the gears of its dim, or another one changes."""
    tensors = [
        (place, each, node.meta.get("example_value"))
        for place, (each, node) in enumerate(zip(example_inputs, gm.graph.find_nodes(op="placeholder")))
        if isinstance(each, torch.Tensor)
    ]
    if not any(getattr(each, "dim_gears", None) for _, each, _ in tensors):
        return
    for place, tensor, traced in tensors:
        own = getattr(tensor, "dim_gears", None) or {}
        for dim, size in enumerate(tensor.shape if traced is None else traced.shape):
            if not isinstance(size, torch.SymInt):
                continue
            if dim not in own:
                int(size)  # what asks for its value holds it
                continue
            values = sorted(own[dim])
            for low, high in itertools.pairwise(values):
                if not bool((size <= low) | (size >= high)):
                    _refuse(place, dim, size, values)
            if not bool(size >= values[0]) or not bool(size <= values[-1]):
                _refuse(place, dim, size, values)


def _refuse(place, dim, size, values):
    raise AssertionError(
        f"set_dim_gears: dim {dim} of input {place} is {size.node.hint} in the first call, which is none of its gears {values}"
    )
