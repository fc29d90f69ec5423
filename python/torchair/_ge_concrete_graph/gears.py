# SPDX-License-Identifier: Apache-2.0
"""Sizes of which a graph knows all that will come: the gears of the dims of its inputs."""
import itertools


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
