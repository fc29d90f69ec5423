# SPDX-License-Identifier: Apache-2.0
"""Captured graphs: keys, recaptures, inputs, results."""
import warnings

import pytest
import torch
import torch_npu  # noqa: F401
from acl_support import compiled, config, graphs, log
from torch._dynamo.utils import counters
from torchair._acl_concrete_graph.acl_graph import AclGraph, AclGraphCacheInfo
from torchair._acl_concrete_graph.weak import LazyMessage, WeakRef


@pytest.fixture(autouse=True)
def without_gradients():
    counters.clear()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def rand(*shape):
    return torch.randn(*shape, device="npu")


def counted(name):
    return {key.rsplit("_graph_", 1)[0]: value for key, value in counters["npugraph_ex"].items() if name in key}


def test_TA_126_captured_once_then_replayed():
    f = compiled(lambda x: torch.relu(x) * 2)
    with log() as lines:
        for _ in range(3):
            x = rand(4, 8)
            torch.testing.assert_close(f(x), torch.relu(x) * 2)
    assert lines.count("Success to capture fx_graph") == 1
    assert lines.count("Find captured AclGraph") == 2


def test_TA_127_132_each_size_has_a_graph():
    f = compiled(lambda x: x * 2 + 1, dynamic=True)
    with log() as lines:
        for size in (4, 6, 4, 8, 6):
            x = rand(size, 3)
            torch.testing.assert_close(f(x), x * 2 + 1)
    assert lines.count("Success to capture fx_graph") == 3
    assert lines.count("Find captured AclGraph") == 2
    assert counted("captured_") == {"captured": 3}


def test_TA_128_values_and_sizes_are_in_the_key():
    f = compiled(lambda x, n: x[:3] * n, dynamic=True)
    with log() as lines:
        for size, n in ((5, 2), (5, 3), (6, 3), (5, 2)):
            x = rand(size, 3)
            torch.testing.assert_close(f(x, n), x[:3] * n)
    assert lines.count("Success to capture fx_graph") == 3


def test_TA_129_135_plain_inputs_may_be_anywhere():
    f = compiled(lambda x, y: x @ y)
    x, y = rand(4, 4), rand(4, 4)
    f(x, y)
    with log() as lines:
        want, got = x @ y, f(x.clone(), y)
        x.zero_()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(f(x, y), x @ y)
    assert lines.count("no needs to be recaptured") == 2


def test_TA_135_136_inputs_that_are_not_cloned():
    for dynamic in (False, True):
        torch._dynamo.reset()
        f = compiled(lambda x: x + 1, dynamic=dynamic, debug__aclgraph__clone_input=False)
        x = rand(4, 4)
        torch.testing.assert_close(f(x), x + 1)
        x.fill_(3)
        torch.testing.assert_close(f(x), x + 1)
        y = rand(4, 4)
        torch.testing.assert_close(f(y), y + 1)


def test_TA_130_132_written_input_at_another_address():
    def step(x, cache):
        cache.add_(x)
        return cache * 2

    f = compiled(step)
    one, other = rand(4), rand(4)
    with log() as lines:
        for cache in (one, one, other, one):
            x, want = rand(4), cache.clone()
            got = f(x, cache)
            torch.testing.assert_close(got, (want + x) * 2)
            torch.testing.assert_close(cache, want + x)
    assert lines.count("needs to be recaptured") - lines.count("no needs to be recaptured") == 2
    assert counted("recapture_due_to_mutated_input_change") == {"recapture_due_to_mutated_input_change": 2}
    assert counted("captured_") == {"captured": 1}


def test_TA_131_parameters_at_another_address():
    for frozen, captures in ((False, 2), (True, 1)):
        torch._dynamo.reset()
        layer = torch.nn.Linear(4, 4).npu()
        f = compiled(layer, experimental_config__frozen_parameter=frozen)
        x = rand(2, 4)
        with log() as lines:
            f(x)
            before = layer.weight.data
            layer.weight.data = before.clone().mul_(2)
            got = f(x).clone()
        assert lines.count("Success to capture fx_graph") == captures
        if not frozen:
            torch.testing.assert_close(got, layer(x))


def test_TA_132_forced_recapture():
    f = torch.compile(lambda x: x + 1, backend="npugraph_ex", options={"force_recapture": True})
    for _ in range(3):
        x = rand(3)
        torch.testing.assert_close(f(x), x + 1)
    assert counted("recapture_due_to_force_recapture") == {"recapture_due_to_force_recapture": 2}


@pytest.mark.parametrize("mode, phrase", [("reduce-overhead", "static_capture_size_limit"), ("npugraph_ex", "capture_limit")])
def test_TA_133_limit(mode, phrase):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = compiled(lambda x: x * 3, dynamic=True, mode=mode, debug__aclgraph__static_capture_size_limit=1)
    with log() as lines:
        for size in (4, 5, 4, 6):
            x = rand(size)
            torch.testing.assert_close(f(x), x * 3)
    assert lines.count(f"{phrase} reached") == 1
    assert lines.count("Success to capture fx_graph") == 1
    assert lines.lines[-1].count("capture") and not counters["npugraph_ex"]
    assert int(config().debug.aclgraph.static_capture_size_limit.value) == 64


def test_TA_134_mutations_of_inputs_kept_or_not():
    for keep in (True, False):
        torch._dynamo.reset()
        f = compiled(lambda x: x.add_(1) * 2, experimental_config__keep_inference_input_mutations=keep)
        x = rand(4)
        y = x.clone()
        for _ in range(3):
            torch.testing.assert_close(f(x), y.add_(1) * 2)
            torch.testing.assert_close(x, y)


def test_TA_137_input_that_is_returned():
    def step(x, y):
        return x.view(-1), x + y, x

    f = compiled(step)
    with log() as lines:
        for _ in range(3):
            x, y = rand(2, 3), rand(2, 3)
            flat, total, same = f(x, y)
            torch.testing.assert_close(flat, x.view(-1))
            torch.testing.assert_close(total, x + y)
            torch.testing.assert_close(same, x)
    assert lines.count("Success to capture fx_graph") == 1


def test_TA_138_results_are_the_same_objects():
    f = compiled(lambda x: (x + 1, x * 2))
    first = f(rand(4))
    second = f(rand(4))
    assert all(a is b for a, b in zip(first, second))


def test_TA_138_results_of_another_key_are_stale():
    f = compiled(lambda x: x + 1, dynamic=True)
    x = rand(8)
    kept, view = f(x), None
    view = kept[:2]
    with pytest.warns(UserWarning, match="may be overwritten"):
        f(rand(4))
    for read in (lambda: kept + 1, lambda: view.cpu(), lambda: kept.add_(1), lambda: torch.ops.aten.mm(kept[None], kept[:, None])):
        with pytest.raises(RuntimeError, match=r"replay 1 of graph_\d+ \(key \[8\].*capture of graph_\d+ \(key \[4\]"):
            read()
    torch.testing.assert_close(f(x), x + 1)


def test_TA_139_results_that_live_are_given_again():
    f = compiled(lambda x: x + 1, dynamic=True)
    kept = f(rand(8))
    f(rand(4))
    x = rand(8)
    with log() as lines:
        again = f(x)
    assert again is kept and lines.count("no need to reconstruct output tensors for")
    torch.testing.assert_close(kept, x + 1)
    del again, kept
    f(rand(4))
    with log() as lines:
        torch.testing.assert_close(f(x), x + 1)
    assert lines.count("After reconstructing")


def test_TA_138_without_reuse_results_stay():
    f = compiled(lambda x: x + 1, dynamic=True, debug__aclgraph__disable_mempool_reuse_in_same_fx=True)
    x, y = rand(8), rand(4)
    kept = f(x)
    with log() as lines:
        other = f(y)
        again = f(x)
    assert again is kept and lines.count("memory pool reuse is disable")
    torch.testing.assert_close(kept, x + 1)
    torch.testing.assert_close(other, y + 1)


def test_results_of_one_key_go_into_another():
    f = compiled(lambda x, y: (x * 2 + y, y - 1), dynamic=True)
    x, y = rand(64), rand(64)
    for _ in range(3):
        a, b = f(x, y)
        want = (a[8:40] * 2 + b[8:40], b[8:40] - 1)
        got = f(a[8:40], b[8:40])
        torch.testing.assert_close(list(got), list(want))


def test_TA_140_results_that_share_memory():
    def step(x):
        y = x + 1
        return y, y.view(-1), y[0]

    f = compiled(step, dynamic=True)
    f(rand(4, 3))
    f(rand(5, 3))
    for size in (4, 5):
        x = rand(size, 3)
        whole, flat, row = f(x)
        assert flat.untyped_storage()._cdata == whole.untyped_storage()._cdata == row.untyped_storage()._cdata
        torch.testing.assert_close(whole, x + 1)
        torch.testing.assert_close(row, x[0] + 1)


@pytest.mark.parametrize("reuse", [True, False])
def test_TA_141_clones_of_results(reuse):
    options = {"debug__aclgraph__enable_output_clone": True, "debug__aclgraph__disable_mempool_reuse_in_same_fx": not reuse}
    f = compiled(lambda x, w: (x + 1, w.add_(1)), dynamic=True, **options)
    w = rand(3)
    kept = []
    for size in (4, 5, 4):
        x = rand(size)
        y, same = f(x, w)
        kept.append((y, x + 1))
        assert same is w
    for got, want in kept:
        torch.testing.assert_close(got, want)


def test_TA_142_pools():
    pool = torch.npu.graph_pool_handle()
    with graphs() as found:
        for options in ({"aclgraph_config__use_custom_pool": pool},) * 2 + ({},) * 2:
            torch._dynamo.reset()
            f = compiled(lambda x: x + 1, **options)
            x = rand(4)
            torch.testing.assert_close(f(x), x + 1)
    pools = [graph.acl_graph.pool for graph in found]
    assert pools[0] == pools[1] == pool and len({pool, *pools[2:]}) == 3
    for wrong in ((1, 2), [0, 1], (0, "a"), 5):
        with pytest.raises(TypeError, match=str(type(wrong).__name__)):
            AclGraph(fx_graph=lambda x: x).load(AclGraphCacheInfo(pool=wrong))


def test_TA_148_sizes_are_held_against_the_code():
    with graphs() as found:
        compiled(lambda x: x + 1)(rand(4, 3))
    module = {"__name__": "again"}
    exec(found[0].source, module)  # noqa: S102
    with pytest.raises(AssertionError, match=r"expected size 5==4, stride 3==3 at dim=0"):
        module["kernel"](rand(5, 3))
    torch._dynamo.reset()
    with graphs() as found:
        compiled(lambda x: x + 1, dynamic=True)(rand(4, 3))
    module = {"__name__": "again"}
    exec(found[0].source, module)  # noqa: S102
    (out,) = module["kernel"](0, 3, rand(0, 3))
    assert out.shape == (0, 3)


def test_TA_149_dumps(tmp_path):
    f = compiled(lambda x: x + 1, debug__graph_dump__type="py", debug__graph_dump__path=str(tmp_path))
    f(rand(4))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2 and names[0].startswith("dynamo_optimized_graph_") and names[1].startswith("dynamo_original_graph_")
    text = (tmp_path / names[0]).read_text()
    assert "## FX Code" in text and "torch.float32[4]npu:0" in text
    for kind in ("txt", "pbtxt"):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="NotImplementedError"):
            compiled(lambda x: x + 1, debug__graph_dump__type=kind)(rand(4))


def test_TA_177_178_dumps_of_tensors(tmp_path):
    for stage in ("original", "optimized"):
        torch._dynamo.reset()
        options = {"dump_tensor_data": True, "data_dump_stage": stage, "data_dump_dir": str(tmp_path)}
        with graphs() as found:
            f = torch.compile(lambda x: torch.relu(x * 2) + 1, backend="npugraph_ex", options=options)
            x = rand(3)
            torch.testing.assert_close(f(x), torch.relu(x * 2) + 1)
        torch.npu.synchronize()
        torch_npu._C._npu_runPendingHostFuncs()
        saved = sorted(path.name for path in (tmp_path / found[0].name).iterdir())
        assert len(saved) == 3 and saved[0].startswith("add")
        torch.testing.assert_close(
            torch.load(tmp_path / found[0].name / saved[0]), (torch.relu(x * 2) + 1).cpu(), check_device=False
        )
    torch._dynamo.reset()
    made = []
    optimize = torch.npu.NPUGraph.super_kernel_optimize
    torch.npu.NPUGraph.super_kernel_optimize = lambda self, *given: made.append(given)
    try:
        options = {"dump_tensor_data": True, "data_dump_dir": str(tmp_path), "super_kernel_optimize": True}
        options["super_kernel_optimize_options"] = {"aggressive_opt_strategies": {}}
        with log() as lines:
            f = torch.compile(lambda x: x * 2, backend="npugraph_ex", options=options)
            f(x), f(x)
    finally:
        torch.npu.NPUGraph.super_kernel_optimize = optimize
    assert made == [({"aggressive_opt_strategies": {}}, None)] and lines.count("tensors are not dumped")


def test_TA_170_static_kernels_are_said():
    f = compiled(
        lambda x: x + 1,
        dynamic=True,
        debug__run_eagerly=False,
        experimental_config__aclgraph___aclnn_static_shape_kernel=True,
    )
    with log() as lines:
        x = rand(4)
        torch.testing.assert_close(f(x), x + 1)
    assert lines.count("Start to compile static shape kernel for fx graph") == 1


def test_TA_173_weak_references_and_lazy_messages():
    x = rand(2)
    ref = WeakRef(x)
    assert ref() is x and WeakRef(5)() == 5
    del x
    assert ref() is None
    made = []
    message = LazyMessage(lambda: made.append(1) or "text")
    assert not made and str(message) == "text" and made


def test_TA_175_capture_error_mode_and_options():
    for mode in ("global", "thread_local", "relaxed"):
        torch._dynamo.reset()
        f = torch.compile(lambda x: x + 1, backend="npugraph_ex", options={"capture_error_mode": mode})
        x = rand(3)
        torch.testing.assert_close(f(x), x + 1)
    for options, text in (({"capture_error_mode": "all"}, "capture_error_mode"), ({"nonsense": 1}, "Invalid option 'nonsense'.*capture_limit")):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=text):
            torch.compile(lambda x: x + 1, backend="npugraph_ex", options=options)(rand(3))


def test_TA_176_compile_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x, y):
        return torch.relu(x @ y) + 1, x

    x, y = rand(4, 4), rand(4, 4)
    gm = make_fx(step, tracing_mode="fake")(x, y)
    for given in ([x, y], None):
        run = torch.npu.npugraph_ex.compile_fx(gm, given, {"clone_input": True})
        for _ in range(2):
            got = run(x, y)
            torch.testing.assert_close(list(got), list(step(x, y)))


def test_TA_119_eager():
    for dynamic in (False, True):
        torch._dynamo.reset()
        f = compiled(lambda x: x * 2, dynamic=dynamic, debug__run_eagerly=True)
        with log() as lines:
            x = rand(4)
            torch.testing.assert_close(f(x), x * 2)
        assert not lines.count("capture")


def test_exactly_one_of_code_and_graph():
    for arguments in ({}, {"fx_forward": len, "fx_graph": len}):
        with pytest.raises(AssertionError, match="exactly one"):
            AclGraph(**arguments)


def test_host_numbers_belong_to_the_key():
    f = compiled(lambda x, s: x * s, dynamic=True)
    for value in (2.0, 3.0, 2.0):
        x, s = rand(3), torch.tensor(value)
        torch.testing.assert_close(f(x, s), x * s)
    big = torch.ones(1000)
    torch._dynamo.reset()
    g = compiled(lambda x, y: x + (y * 2).to("npu"))
    x = rand(1000)
    with log() as lines:
        torch.testing.assert_close(g(x, big), x + 2)
    assert lines.count("tensor of the host")


def test_captures_of_the_caller_hold_the_operators():
    f = compiled(lambda x: x + 1)
    x = rand(4)
    f(x)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = f(x)
    x.fill_(2)
    graph.replay()
    torch.testing.assert_close(y, x + 1)


def test_training_steps_equal_eager():
    with torch.enable_grad():
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).npu()
        import copy

        twin = copy.deepcopy(model)
        f = compiled(model)
        pairs = [(f, model), (twin, twin)]
        for _ in range(4):
            x = rand(5, 8)
            for call, module in pairs:
                loss = call(x).square().mean()
                loss.backward()  # gradients add up over two of them
                (call(x) * 2).sum().backward()
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter.sub_(0.05 * parameter.grad)
                        parameter.grad = None
            for a, b in zip(model.parameters(), twin.parameters()):
                torch.testing.assert_close(a, b)
        y, z = f(x), f(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (y.sum() + z.sum()).backward()


def test_inference_mode_and_caches_of_it():
    with torch.inference_mode():
        cache = torch.zeros(4, device="npu")
    f = compiled(lambda x, c: (c.add_(x), x * 2))
    with torch.inference_mode():
        for k in range(3):
            x = torch.ones(4, device="npu")
            _, y = f(x, cache)
            torch.testing.assert_close(y, x * 2)
    assert float(cache[0]) == 3


def test_random_numbers_are_new_at_each_replay():
    f = compiled(lambda x: torch.nn.functional.dropout(x, 0.5, True))
    x = torch.ones(256, device="npu")
    torch.manual_seed(5)
    first = [f(x).clone() for _ in range(3)]
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[1], first[2])


def test_progress(capsys, monkeypatch):
    monkeypatch.setenv("TORCHAIR_PROGRESS", "1")
    f = compiled(lambda x: x + 1, dynamic=True)
    for size in range(2, 8):
        f(rand(size))
    assert "6 graphs of at most 64" in capsys.readouterr().err


def test_inputs_that_begin_empty():
    f = compiled(lambda x: x + 1, dynamic=True)
    for size in (0, 3, 0, 3, 5):
        x = rand(size)
        torch.testing.assert_close(f(x), x + 1)


def test_strict_results(monkeypatch):
    monkeypatch.setenv("REPRISE_TORCH_STALE", "strict")
    f = compiled(lambda x: x + 1)
    x = rand(3)
    f(x)
    first = f(x)
    second = f(x)
    torch.testing.assert_close(second, x + 1)
    with pytest.raises(RuntimeError, match="replay 2 of .* replay 3 of"):
        first.sum()
    monkeypatch.setenv("REPRISE_TORCH_STALE", "nonsense")
    torch._dynamo.reset()
    with pytest.raises(ValueError, match="REPRISE_TORCH_STALE"):
        compiled(lambda x: x + 1)(x)


def test_constants_of_tensors():
    kept = torch.arange(4.0, device="npu")
    f = compiled(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0], device="npu") * kept)
    for _ in range(2):
        x = rand(4)
        torch.testing.assert_close(f(x), x + (kept + 1) * kept)


def test_captures_that_fail_say_what_to_do():
    def step(x):
        torch.ops.torchair_test.waits(x)
        return x + 1

    library = torch.library.Library("torchair_test", "FRAGMENT")
    library.define("waits(Tensor x) -> ()")
    library.impl("waits", lambda x: torch.npu.synchronize(), "PrivateUse1")
    torch.library.register_fake("torchair_test::waits", lambda x: None, lib=library)
    torch.fx.node.has_side_effect(torch.ops.torchair_test.waits.default)
    f = compiled(step)
    with pytest.raises(RuntimeError) as caught:
        f(rand(3))
    assert "force_eager" in caught.value.__notes__[0]
    g = compiled(lambda x: x * 2)
    x = rand(3)
    torch.testing.assert_close(g(x), x * 2)


def test_ends_of_ranges_are_tensors():
    """A capture does not read them, and each replay has those of its call."""
    def function(first, last):
        own = {"device": first.device}
        return [torch.linspace(first, last, 5, **own), torch.logspace(0.5, last, 4, base=2.0, **own),
                torch.linspace(first, 7, 3, dtype=torch.int64, **own)]

    step = compiled(function)
    for first, last in ((1.0, 9.0), (-2.0, 4.0), (3.0, 3.0)):
        ends = [torch.tensor(each).npu() for each in (first, last)]
        torch.testing.assert_close(step(*ends), [each.npu() for each in function(torch.tensor(first), torch.tensor(last))])
