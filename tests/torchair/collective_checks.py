# SPDX-License-Identifier: Apache-2.0
"""What two ranks of hccl compute in compiled functions, beside what they compute eagerly; test_collectives.py runs them."""
import ctypes
import glob
import json
import logging
import os
import tempfile
import warnings

import pytest
import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
import torchair
from support_ge import compiled, equal, graphs_of

npu = torch.device("npu")


def tensor(rank, *shape):
    generator = torch.Generator().manual_seed(17 + rank)
    return torch.randn(*shape, generator=generator).npu()


def group_name(group=None):
    return (group or dist.group.WORLD)._get_backend(npu).get_hccl_comm_name(dist.get_rank())


def same(function, *inputs, dynamic=False, runs=2):
    """Compiled as eager, bit for bit; gives the compiled function."""
    made = compiled(function, dynamic=dynamic)
    for _ in range(runs):
        expected = function(*[each.clone() for each in inputs])
        equal(made(*[each.clone() for each in inputs]), expected, bound=0)
    assert made.backend.count == 1
    return made


def dumped(function, *inputs):
    """The graph that is compiled, as text."""
    config = torchair.CompilerConfig()
    with tempfile.TemporaryDirectory() as folder:
        config.debug.graph_dump.type = "pbtxt"
        config.debug.graph_dump.path = folder
        compiled(function, config=config)(*inputs)
        names = [name for name in glob.glob(os.path.join(folder, "**", "*.pbtxt"), recursive=True) if "original" in name or "dynamo" in name]
        with open(sorted(names)[0]) as file:
            return file.read()


def step(x):
    y = x * 2
    dist.all_reduce(y)
    return y @ y.t() + x.sum()


def hg_001_all_reduce(rank, size):
    same(step, tensor(rank, 4, 4))
    text = dumped(step, tensor(rank, 4, 4))
    assert text.count('type: "HcomAllReduce"') == 1 and group_name() in text and '"sum"' in text, text


def every_function(rank, size, group=None):
    """A function for each collective that TA-202 names. Names in dist are looked up when they are called."""
    def gather(x):
        out = x.new_empty(size * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x + 1, group=group)
        return out * 2

    def scatter(x):
        out = x.new_empty(x.shape[0] // size, x.shape[1])
        dist.reduce_scatter_tensor(out, x * 3, group=group)
        return out - 1

    def broadcast(x):
        y = x * 2
        dist.broadcast(y, src=1, group=group)
        return y + x

    def reduced(x):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y - x

    def exchange(x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x * 2, group=group)
        return out + x

    def uneven(x):
        send = [1, 3] if rank == 0 else [2, 2]
        receive = [1, 2] if rank == 0 else [3, 2]
        out = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(out, x, receive, send, group=group)
        return out * 2

    def listed(x):
        parts = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(parts, x * 2, group=group)
        return parts[0] - parts[1]

    def lists_of_sizes(x):
        rows = [1, 3]
        parts = [x.new_empty(count, x.shape[1]) for count in rows]
        dist.all_gather(parts, x[: rows[rank]] * 2, group=group)
        return torch.cat(parts)

    def swapped(x):
        out = [torch.empty_like(x[:2]) for _ in range(size)]
        dist.all_to_all(out, [x[:2] + 1, x[2:] * 2], group=group)
        return out[0] * out[1]

    return gather, scatter, broadcast, reduced, exchange, uneven, listed, lists_of_sizes, swapped


def hg_002_ta_202_every_function(rank, size):
    for function in every_function(rank, size):
        same(function, tensor(rank, 4, 3))


def ta_202_every_function_with_a_group(rank, size):
    group = dist.new_group([0, 1])
    for function in every_function(rank, size, group):
        same(function, tensor(rank, 4, 3))
    dist.destroy_process_group(group)


def ta_202_every_function_with_patch_for_hcom(rank, size):
    originals = {name: each for name, each in vars(dist).items() if callable(each)}
    torchair.patch_for_hcom()
    try:
        assert dist.all_reduce is not originals["all_reduce"]
        for function in every_function(rank, size):
            same(function, tensor(rank, 4, 3))
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def hg_003_open_sizes(rank, size):
    made = compiled(step, dynamic=True)
    for rows in (4, 6, 3, 4):
        x = tensor(rank, rows, 5)
        equal(made(x.clone()), step(x.clone()), bound=0)
    assert made.backend.count == 1


def hg_004_deterministic(rank, size):
    """Each run sets what the graphs of the process are compiled with, whatever another caller has set before."""
    x = tensor(rank, 8, 8)
    made = compiled(step)
    wanted = 1 if torch.are_deterministic_algorithms_enabled() else 0
    results = []
    library = ctypes.CDLL("libhccl.so")
    for is_on in (1, 0, 1):
        assert library.HcclSetConfig(0, is_on) == 0
        results.append(made(x.clone()).cpu())
        value = ctypes.c_int32(-1)
        assert library.HcclGetConfig(0, ctypes.byref(value)) == 0
        assert value.value == wanted
    assert all(torch.equal(results[0], other) for other in results)
    return results[0]


def deterministic_algorithms(rank, size):
    """hg_004 for a process of its own, since the option holds for all its graphs."""
    torch.use_deterministic_algorithms(True)
    result = hg_004_deterministic(rank, size)
    torch.use_deterministic_algorithms(False)
    assert torch.equal(result, step(tensor(rank, 8, 8)).cpu())


def hg_005_006_ta_203_205_patch(rank, size):
    originals = {name: getattr(dist, name) for name in ("all_reduce", "all_gather", "all_gather_into_tensor", "broadcast", "all_to_all_single", "all_to_all")}
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    handler = Lines()
    torchair.logger.addHandler(handler)
    level = torchair.logger.level
    torchair.logger.setLevel(logging.WARNING)
    try:
        torchair.patch_for_hcom()
        once = dist.all_reduce
        torchair.patch_for_hcom()
        assert once is dist.all_reduce  # idempotent
        assert any("no need to call patch_for_hcom" in line for line in lines)
        assert all(getattr(dist, name) is not original for name, original in originals.items())
        y = torch.ones(2, device="npu")
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        assert y.tolist() == [2, 2]
        same(step, tensor(rank, 4, 4))

        def broadcast(x):
            y = x * 2
            dist.broadcast(y, 1)
            return y

        same(broadcast, tensor(rank, 4, 4))

        def later(x):
            y = x * 2
            dist.all_reduce(y, async_op=True)
            return y

        with pytest.raises(Exception, match="async_op"):
            compiled(later)(tensor(rank, 2))
    finally:
        torchair.logger.removeHandler(handler)
        torchair.logger.setLevel(level)
        for name, original in originals.items():
            setattr(dist, name, original)


def hg_006_async_op_is_refused(rank, size):
    for call in (dist.all_reduce, dist.broadcast):

        def later(x, call=call):
            y = x * 2
            work = call(y, async_op=True) if call is dist.all_reduce else call(y, 0, async_op=True)
            work.wait()
            return y

        with pytest.raises(Exception, match="async_op"):
            compiled(later)(tensor(rank, 2))
        torch._dynamo.reset()
    equal(torch.compile(later, backend=torchair.get_npu_backend(), dynamic=False)(tensor(rank, 2)), tensor(0, 2) * 2, bound=0)


def hg_007_wait_is_the_order_of_the_stream(rank, size):
    def function(x):
        y = dist._functional_collectives.all_reduce(x, "sum", dist.group.WORLD)
        return y * 2

    same(function, tensor(rank, 4))
    text = dumped(function, tensor(rank, 4))
    assert '"Identity"' in text and "Wait" not in text


def hg_008_reductions(rank, size):
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):

        def function(x, op=op):
            y = x + 1
            dist.all_reduce(y, op)
            return y

        same(function, tensor(rank, 5))
        torch._dynamo.reset()

    def average(x):
        y = x + 1
        dist.all_reduce(y, dist.ReduceOp.AVG)
        return y

    with pytest.raises(Exception, match="sum, min, max and product"):
        compiled(average)(tensor(rank, 5))


def hg_009_ta_204_pairs(rank, size):
    def function(x):
        y = torch.empty_like(x)
        if rank == 0:
            dist.send(x * 2, 1, tag=3)
            dist.recv(y, 1, tag=4)
        else:
            dist.recv(y, 0, tag=3)
            dist.send(x + 1, 0, tag=4)
        return y * x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same(function, tensor(rank, 4))
    assert any("StableRDFS" in str(each.message) for each in caught)
    torch._dynamo.reset()
    made, _ = graphs_of(function, tensor(rank, 4))
    assert made[0].program.last_options[0]["ge.topoSortingMode"] == "3"

    def alone(x):
        if rank == 0:
            dist.send(x * 2, 1)
            return x + 1
        y = torch.empty_like(x)
        dist.recv(y, 0)
        return y + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made, result = graphs_of(alone, tensor(0, 4))
    assert not any("StableRDFS" in str(each.message) for each in caught)
    assert made[0].program.last_options[0]["ge.topoSortingMode"] == "1"
    equal(result, tensor(0, 4) * (1 if rank == 0 else 2) + 1, bound=0)


def hg_011_even_parts(rank, size):
    def exchange(x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, [2, 2], [2, 2])
        return out

    text = dumped(exchange, tensor(rank, 4, 2))
    assert '"HcomAllToAll"' in text and '"HcomAllToAllV"' not in text

    def uneven(x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x, [1, 3] if rank == 0 else [3, 1], [1, 3] if rank == 0 else [3, 1])
        return out

    assert '"HcomAllToAllV"' in dumped(uneven, tensor(rank, 4, 2))


def hg_012_captured(rank, size):
    def gather(x):
        out = x.new_empty(size * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(out, x + 1)
        return out * 2

    def pair(x):
        y = torch.empty_like(x)
        if rank == 0:
            dist.send(x * 2, 1)
            dist.recv(y, 1)
        else:
            dist.recv(y, 0)
            dist.send(x + 1, 0)
        return y * x

    config = torchair.CompilerConfig()
    config.mode = "npugraph_ex"
    for function in (gather, step, pair):
        made = torch.compile(function, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True, dynamic=False)
        for run in range(100):
            x = tensor(rank + run, 3, 3)
            equal(made(x), function(x.clone()), bound=0)


def hg_014_two_groups(rank, size):
    pairs = [dist.new_group([0, 1]), dist.new_group([0, 1])]

    def function(x):
        y = x * 2
        dist.all_reduce(y)
        dist.all_reduce(y, group=pairs[0])
        z = x.new_empty(2 * x.shape[0])
        dist.all_gather_into_tensor(z, y, group=pairs[1])
        return z

    same(function, tensor(rank, 4))
    text = dumped(function, tensor(rank, 4))
    names = {group_name(), group_name(pairs[0]), group_name(pairs[1])}
    assert len(names) == 3 and all(name in text for name in names)


def hg_017_layers(rank, size):
    from torch import nn

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(16, 8)
            self.down = nn.Linear(8, 16)
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            y = torch.nn.functional.gelu(self.up(x))
            y = self.down(y)
            dist.all_reduce(y)
            z = self.norm(x + y)
            w = z * 0.5
            dist.all_reduce(w)
            return z + w

    torch.manual_seed(5)
    model = nn.Sequential(*[Layer() for _ in range(16)]).npu()
    made = compiled(model)
    captured = torch.compile(model, backend="npugraph_ex", dynamic=False)
    with torch.no_grad():
        for run in range(50):
            x = tensor(run, 2, 16)
            expected = model(x)
            equal(made(x), expected, bound=0)
            equal(captured(x), expected, bound=0)


def hg_018_functional(rank, size):
    functional = dist._functional_collectives

    def function(x):
        y = functional.all_gather_tensor(x * 2, 0, dist.group.WORLD)
        z = functional.reduce_scatter_tensor(y, "sum", 0, dist.group.WORLD)
        w = functional.all_to_all_single(z, None, None, dist.group.WORLD)
        a, b = functional.all_reduce_coalesced([w, x], "sum", dist.group.WORLD)
        return functional.broadcast(a, 1, dist.group.WORLD) + b

    same(function, tensor(rank, 4, 2))


def hg_020_one_rank_compiles(rank, size):
    x = tensor(rank, 4, 4)
    expected = step(x.clone())
    equal((compiled(step) if rank == 0 else step)(x.clone()), expected, bound=0)


def hg_010_ta_203_uneven(rank, size):
    define = torch.ops.npu_define
    tag, ranks, count = torchair._hcom.tag_and_ranks(None)
    counts = [2, 6]

    def gather(x):
        return define.allgather_in_tensor_uneven(x[: counts[rank] // 2], counts[rank], counts, tag, ranks, count, [0, 2]) * 2

    def scatter(x):
        return define.reduce_scatter_tensor_uneven(x, counts, counts[rank], "sum", tag, ranks, count, [0, 2]) + 1

    for function in (gather, scatter):
        same(function, tensor(rank, 4, 2))

    def wrong(x):
        return define.reduce_scatter_tensor_uneven(x, [2, 7], 2 if rank == 0 else 7, "sum", tag, ranks, count, [0, 2])

    with pytest.raises(Exception):
        compiled(wrong)(tensor(rank, 4, 2))
        torch.npu.synchronize()


def ta_206_only_used_groups_are_initialised(rank, size):
    used, other = dist.new_group([0, 1]), dist.new_group([0, 1])

    def function(x):
        y = x * 2
        dist.all_reduce(y, group=used)
        if x.shape[0] > 100:
            dist.all_reduce(y, group=other)
        empty = x.new_empty(0)
        dist.all_reduce(empty, group=other)  # of nothing: no operator is made of it
        return y

    made, result = graphs_of(function, tensor(rank, 4))
    equal(result, tensor(0, 4) * 2 + tensor(1, 4) * 2, bound=0)
    names = [group._get_backend(npu).get_hccl_comm_name(rank, init_comm=False) for group in (used, other)]
    assert names[0] and not names[1], names
    tag = dist.distributed_c10d._get_group_tag(used)
    assert {name: record[:2] for name, record in made[0].graph.groups.items()} == {names[0]: (tag, [0, 1])}

    # Operators of users that name a communicator which is there (they do not create any) are recorded, too.
    torch.library.define("collective_checks::fused", "(Tensor x, str hcom) -> Tensor")
    torch.library.impl("collective_checks::fused", "CompositeExplicitAutograd", lambda x, hcom: x + x)
    torch.library.register_fake("collective_checks::fused", lambda x, hcom: torch.empty_like(x))

    @torchair.register_fx_node_ge_converter(torch.ops.collective_checks.fused.default)
    def convert(x, hcom, *, meta_outputs):
        attr = torchair.ge.attr
        return torchair.ge.custom_op("HcomAllReduce", inputs={"x": x}, outputs=["y"],
                                     attrs={"reduction": attr.Str("sum"), "group": attr.Str(hcom)})

    name = group_name()
    made, result = graphs_of(lambda x: torch.ops.collective_checks.fused(x, name), tensor(0, 4))
    equal(result, tensor(0, 4) * 2, bound=0)
    assert list(made[0].graph.groups) == [name]


GROUP = None  # of the methods below


class Layers(torch.nn.Module):
    def step(self, x):
        y = x * 2
        dist.all_reduce(y, group=GROUP)
        return y + x

    def gathered(self, x):
        parts = [x.new_empty(rows, 2) for rows in (1, 2)]
        dist.all_gather(parts, x[: 1 + dist.get_rank()] * 1, group=GROUP)
        return torch.cat(parts)


def hg_013_ta_191_cached_code_finds_groups_by_ranks_and_tag(rank, size):
    global GROUP
    from torchair.inference import cache_compile, readable_cache

    capture = torchair.CompilerConfig()
    capture.mode = "npugraph_ex"
    model, x = Layers(), tensor(rank, 2, 2)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        ways = [("step", {}), ("step", {"config": capture}), ("gathered", {}), ("gathered", {"config": capture})]

        def made(places):
            torch._dynamo.reset()
            return [cache_compile(getattr(model, name), cache_dir=folder, **given) for name, given in (ways[i] for i in places)]

        GROUP = dist.new_group([0, 1])
        steps = made(range(4))
        expected = [model.step(x.clone()), model.step(x.clone()), model.gathered(x), model.gathered(x)]
        for step, right in zip(steps, expected):
            equal(step(x.clone()), right, bound=0)
        first, first_name = group_name(GROUP), GROUP.group_name
        text = readable_cache(steps[0].path, print_output=False)
        assert "tag=ptd:" in text and ";rank_list=0,1" in text and f"{first}" not in text.partition("process_groups = ")[0]
        dist.destroy_process_group(GROUP)

        # The next group of these ranks has another name and, since the program gives none, another tag.
        unused, GROUP = dist.new_group([rank], use_local_synchronization=True), dist.new_group([0, 1])
        for step, right in zip(made(range(4)), expected):
            assert step.run is not None
            equal(step(x.clone()), right, bound=0)
            equal(step(x.clone()), right, bound=0)
        assert group_name(GROUP) != first and GROUP.group_name != first_name
        assert unused._get_backend(npu).get_hccl_comm_name(0, init_comm=False) == ""
        dist.destroy_process_group(GROUP)

        for step in made(range(2)):
            with pytest.raises(AssertionError, match=r"tag=ptd:\d+;rank_list=0,1, which this process does not have"):
                step(x.clone())
            assert os.path.exists(step.path)
    dist.destroy_process_group(unused)


def ta_190_191_what_the_engine_keeps_names_communicators(rank, size):
    global GROUP
    from torchair.inference import cache_compile

    model, x = Layers(), tensor(rank, 2, 2)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        names = []
        for turn in range(3):
            torch._dynamo.reset()
            GROUP = dist.new_group([0, 1])
            step = cache_compile(model.step, cache_dir=folder, ge_cache=True)
            assert (step.run is not None) is (turn > 0)
            if turn == 2:
                group_name(GROUP)  # has a name before
                with pytest.raises(AssertionError, match="name communicators"):
                    step(x.clone())
            else:
                equal(step(x.clone()), model.step(x.clone()), bound=0)
            names.append(group_name(GROUP))
            dist.destroy_process_group(GROUP)
        assert names[0] == names[1] != names[2]


def ta_200_files_for_the_offline_compiler(rank, size):
    config = torchair.CompilerConfig()
    config.export.experimental.auto_atc_config_generated = True
    group = dist.new_group([0, 1])

    def function(x):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y

    with tempfile.TemporaryDirectory() as folder:
        torchair.dynamo_export(tensor(rank, 4), model=function, export_path=folder, export_name="sums", config=config)
        assert os.path.exists(os.path.join(folder, f"sums{rank}.air"))
        with open(os.path.join(folder, f"rank_{rank}", "dynamo.pbtxt")) as file:
            assert group_name(group) in file.read()
        files = {name for name in os.listdir(folder) if name.endswith(".json")}
        if rank > 0:
            assert not files
            return
        assert files == {"model_relation_config.json", "numa_config.json"}
        with open(os.path.join(folder, "model_relation_config.json")) as file:
            relation = json.load(file)
    assert relation["comm_group"] == [{"group_name": group_name(group), "group_rank_list": "[0, 1]"}]
    assert [each["deploy_device_id_list"] for each in relation["deploy_config"]] == ["0:0:0", "0:0:1"]
    assert [each["rank_id"] for each in relation["rank_table"]] == [0, 1]
    assert [each["model_instance_id"] for each in relation["model_name_to_instance_id"]] == [0, 1]


def hg_015_groups_without_devices(rank, size):
    group = dist.new_group([0, 1], backend="gloo")

    def function(x):
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + 1

    with tempfile.TemporaryDirectory() as folder:
        torchair.dynamo_export(torch.ones(4), model=function, export_path=folder)
        with open(os.path.join(folder, f"rank_{rank}", "dynamo.pbtxt")) as file:
            text = file.read()
    tag = dist.distributed_c10d._get_group_tag(group)
    assert text.count('type: "HcomAllReduce"') == 1 and f"tag={tag};rank_list=0,1" in text
