# SPDX-License-Identifier: Apache-2.0
"""Random numbers: generators, and replays that draw what eager calls would have drawn."""
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from support import capture, output_of
from torch.utils.checkpoint import checkpoint

N = 257


def values(results):
    if isinstance(results, torch.Tensor):
        return [results.cpu()]
    return [result.cpu() for result in results]


def same(left, right):
    left, right = values(left), values(right)
    return len(left) == len(right) and all(
        torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in zip(left, right)
    )


def cloned(results):
    return [results.clone()] if isinstance(results, torch.Tensor) else [result.clone() for result in results]


def check_against_eager(work, warm_up=True):
    """Replays draw what the same calls draw eagerly from the same seed, one after another."""
    if warm_up:
        work()
    torch.manual_seed(5)
    eager = [cloned(work()) for _ in range(3)]
    assert not all(same(a, b) for a, b in zip(eager[0:1], eager[1:2])), "the work draws nothing"
    graph = torch.npu.NPUGraph()
    results = capture(graph, work)
    torch.manual_seed(5)
    graph.replay()
    assert same(results, eager[0])
    graph.replay()
    assert same(results, eager[1])
    assert same(work(), eager[2]), "what comes after the replays"


# ---- The same numbers as eager ----


def test_TN_176_functions():
    source = torch.randn(N, device="npu").abs() + 0.1
    check_against_eager(
        lambda: (
            F.dropout(source, 0.4),
            F.rrelu(-source, training=True),
            torch.rand(N, device="npu"),
            torch.randn(N, device="npu"),
            torch.randint(1000, (N,), device="npu"),
            torch.bernoulli(torch.full((N,), 0.3, device="npu")),
            torch.normal(0.0, 2.0, (N,), device="npu"),
            torch.normal(source, source),
            torch.poisson(source * 5),
        )
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda t: t.bernoulli_(0.3),
        lambda t: t.cauchy_(),
        lambda t: t.exponential_(),
        lambda t: t.geometric_(0.3),
        lambda t: t.log_normal_(),
        lambda t: t.normal_(),
        lambda t: t.random_(),
        lambda t: t.uniform_(),
    ],
    ids="bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_".split(),
)
def test_TN_177_in_place(draw):
    target = torch.empty(N, device="npu")
    check_against_eager(lambda: draw(target).clone())


def test_TN_178_multinomial_randperm_dropout():
    weights = torch.rand(50, device="npu") + 0.1
    source = torch.ones(N, device="npu", requires_grad=True)

    def work():
        kept, mask = torch.native_dropout(source, 0.5, True)
        (gradient,) = torch.autograd.grad(kept.sum(), source)
        return (
            torch.multinomial(weights, 20, replacement=True),
            torch.multinomial(weights, 20),
            torch.randperm(N, device="npu"),
            kept.detach(),
            mask,
            gradient,
        )

    check_against_eager(work)
    kept, mask = torch.native_dropout(source, 0.5, True)
    (gradient,) = torch.autograd.grad(kept.sum(), source)
    assert gradient.cpu().equal(mask.cpu() * 2.0)


def test_TN_179_replays_go_on():
    graph = torch.npu.NPUGraph()
    torch.npu.manual_seed(3)
    eager = [torch.rand(N, device="npu") for _ in range(2)]
    result = capture(graph, lambda: torch.rand(N, device="npu"))
    torch.npu.manual_seed(3)
    graph.replay()
    first = result.clone()
    graph.replay()
    assert not same(first, result)
    assert same(first, eager[0]) and same(result, eager[1])


def test_TN_180_eager_calls_go_on_after_replays():
    torch.npu.manual_seed(3)
    eager = [torch.rand(N, device="npu") for _ in range(3)]
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: (torch.rand(N, device="npu"), torch.rand(N, device="npu")))
    torch.npu.manual_seed(3)
    graph.replay()
    assert same(result, eager[:2])
    assert same(torch.rand(N, device="npu"), eager[2])


def test_TN_181_a_capture_consumes_nothing():
    torch.npu.manual_seed(3)
    torch.rand(N, device="npu")
    before = torch.npu.random._get_rng_state_offset()
    assert before > 0 and before % 4 == 0
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: torch.rand(N, device="npu"))
    assert torch.npu.random._get_rng_state_offset() == before
    graph.replay()
    assert torch.npu.random._get_rng_state_offset() > before
    del result


def test_TN_182_seeds_between_replays():
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: torch.rand(N, device="npu"))
    for seed in (1, 2, 1):
        torch.npu.manual_seed(seed)
        graph.replay()
        replayed = result.clone()
        torch.npu.manual_seed(seed)
        assert same(replayed, torch.rand(N, device="npu"))


def test_TN_183_several_generators():
    generators = [torch.Generator("npu"), torch.Generator("npu"), None]

    def work():
        return tuple(torch.rand(N, device="npu", generator=generator) for generator in generators) * 2

    def seed():
        torch.npu.manual_seed(1)
        for index, generator in enumerate(generators[:2]):
            generator.manual_seed(10 + index)

    seed()
    eager = [cloned(work()) for _ in range(2)]
    graph = torch.npu.NPUGraph()
    results = capture(graph, work)
    seed()
    for expected in eager:
        graph.replay()
        assert same(results, expected)


def test_TN_184_generators_register_themselves():
    generator = torch.Generator("npu")
    generator.manual_seed(4)
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: torch.rand(N, device="npu", generator=generator))
    graph.replay()
    assert same(result, torch.rand(N, device="npu", generator=torch.Generator("npu").manual_seed(4)))


def test_TN_185_what_a_capture_refuses():
    generator = torch.Generator("npu")
    graph = torch.npu.NPUGraph()

    def work():
        for call in (
            lambda: torch.Generator("npu"),
            generator.seed,
            generator.get_offset,
            lambda: generator.set_offset(8),
            generator.clone_state,
        ):
            with pytest.raises(RuntimeError, match="captur"):
                call()
        return torch.rand(N, device="npu", generator=generator)

    result = capture(graph, work)
    graph.replay()
    assert same(result, torch.rand(N, device="npu", generator=torch.Generator("npu")))


@pytest.mark.parametrize("draws_before", [0, 1], ids=["TN_186", "TN_187"])
def test_TN_186_TN_187_states_within_a_capture(draws_before):
    torch.npu.manual_seed(8)
    sequence = [torch.rand(N, device="npu") for _ in range(4)]
    graph = torch.npu.NPUGraph()

    def work():
        drawn = [torch.rand(N, device="npu") for _ in range(draws_before)]
        state = torch.npu.get_rng_state()
        drawn.append(torch.rand(N, device="npu"))
        torch.npu.set_rng_state(state)
        drawn.append(torch.rand(N, device="npu"))
        return drawn

    drawn = capture(graph, work)
    torch.npu.manual_seed(8)
    for start in range(0, 2 * (draws_before + 1), draws_before + 1):
        graph.replay()
        assert same(drawn[-1], drawn[-2])
        assert same(drawn[-1], sequence[start + draws_before])
    torch.npu.manual_seed(8)
    graph.replay()
    assert same(torch.rand(N, device="npu"), sequence[draws_before + 1])


def test_TN_188_a_net_increment_of_nothing():
    graph = torch.npu.NPUGraph()

    def work():
        state = torch.npu.get_rng_state()
        drawn = torch.rand(N, device="npu")
        torch.npu.set_rng_state(state)
        return drawn

    drawn = capture(graph, work)
    for seed in (21, 22):
        torch.npu.manual_seed(seed)
        graph.replay()
        replayed = drawn.clone()
        assert torch.npu.random._get_rng_state_offset() == 0
        assert same(replayed, torch.rand(N, device="npu"))


def test_TN_189_other_seeds_in_a_capture():
    torch.npu.manual_seed(30)
    other = torch.Generator("npu").manual_seed(31).get_state()
    graph = torch.npu.NPUGraph()

    def work():
        with pytest.raises(RuntimeError, match="new seed"):
            torch.npu.set_rng_state(other)
        with pytest.raises(RuntimeError, match="new seed"):
            torch.npu.manual_seed(31)
        torch.npu.manual_seed(30)
        return torch.rand(N, device="npu")

    result = capture(graph, work)
    graph.replay()
    torch.npu.manual_seed(30)
    assert same(result, torch.rand(N, device="npu"))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_TN_190_checkpoint_in_a_captured_step(use_reentrant):
    weight = torch.randn(16, 16, device="npu", requires_grad=True)
    source = torch.randn(8, 16, device="npu")

    def body(value):
        return F.dropout(torch.tanh(value @ weight), 0.5)

    def step():
        value = source.clone().requires_grad_()
        result = checkpoint(body, value, use_reentrant=use_reentrant, preserve_rng_state=True)
        return torch.autograd.grad(result.sum(), weight)[0] if not use_reentrant else backward(result)

    def backward(result):
        weight.grad = None
        result.sum().backward()
        return weight.grad

    step()
    torch.npu.manual_seed(6)
    eager = [step().clone() for _ in range(2)]
    assert not same(*eager)
    graph = torch.npu.NPUGraph()
    gradient = capture(graph, step)
    torch.npu.manual_seed(6)
    for expected in eager:
        graph.replay()
        assert same(gradient, expected)


def test_TN_191_a_refused_item_leaves_random_numbers_alone():
    stream = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError), torch.npu.graph(graph, stream=stream):
        torch.rand(1, device="npu").item()
    graph.reset()
    torch.npu.manual_seed(2)
    with torch.npu.stream(stream):
        eager = torch.rand(N, device="npu")
    torch.npu.synchronize()
    result = capture(graph, lambda: torch.rand(N, device="npu"), stream=stream)
    torch.npu.manual_seed(2)
    graph.replay()
    assert same(result, eager)


def test_TN_192_two_graphs_share_the_default_generator():
    torch.npu.manual_seed(14)
    eager = [torch.rand(N, device="npu") for _ in range(6)]
    graphs = [torch.npu.NPUGraph() for _ in range(2)]
    results = [capture(graph, lambda: torch.rand(N, device="npu")) for graph in graphs]
    streams = [torch.npu.Stream() for _ in range(2)]
    torch.npu.manual_seed(14)
    drawn = []
    for _ in range(3):
        for graph, result, stream in zip(graphs, results, streams):
            with torch.npu.stream(stream):
                graph.replay()
                drawn.append(result.clone())
    torch.npu.synchronize()
    assert same(drawn, eager)


def test_TN_193_captured_again():
    graph = torch.npu.NPUGraph()
    torch.npu.manual_seed(9)
    eager = torch.rand(N, device="npu")
    for _ in range(2):
        torch.npu.manual_seed(9)
        result = capture(graph, lambda: torch.rand(N, device="npu"))
        torch.npu.manual_seed(9)
        graph.replay()
        assert same(result, eager)
        graph.reset()


def test_TN_194_register_generator_state_is_history():
    generator = torch.Generator("npu")
    graph = torch.npu.NPUGraph()
    with torch.inference_mode(), pytest.warns(DeprecationWarning, match="register"):
        graph.register_generator_state(generator)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = capture(graph, lambda: torch.rand(N, device="npu", generator=generator))
    graph.replay()
    assert same(result, torch.rand(N, device="npu", generator=torch.Generator("npu")))


def test_TN_195_first_draw_in_inference_mode():
    generator = torch.Generator("npu")
    graph = torch.npu.NPUGraph()
    with torch.inference_mode():
        result = capture(graph, lambda: torch.rand(N, device="npu", generator=generator))
    for _ in range(2):
        graph.replay()
    fresh = torch.Generator("npu")
    torch.rand(N, device="npu", generator=fresh)
    assert same(result, torch.rand(N, device="npu", generator=fresh))


# ---- Generators ----


def test_TN_196_states():
    generator = torch.Generator("npu").manual_seed(77)
    torch.rand(N, device="npu", generator=generator)
    state = generator.get_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    assert int.from_bytes(bytes(state[:8].tolist()), "little") == 77
    assert int.from_bytes(bytes(state[8:].tolist()), "little") == generator.get_offset() > 0
    for size in (0, 7, 15, 17, 5056):
        with pytest.raises(RuntimeError, match="RNG state is wrong size"):
            generator.set_state(torch.zeros(size, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        generator.set_state(torch.zeros(16))
    assert generator.get_state().equal(state)
    expected = torch.rand(N, device="npu", generator=generator)
    generator.set_state(state)
    assert same(torch.rand(N, device="npu", generator=generator), expected)
    generator.set_state(state[:8].clone())
    assert generator.initial_seed() == 77 and generator.get_offset() == 0


def test_TN_197_offsets_are_multiples_of_four():
    generator = torch.Generator("npu")
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(6)
    assert generator.get_offset() == 0
    first = torch.rand(N, device="npu", generator=generator)
    step = generator.get_offset()
    second = torch.rand(N, device="npu", generator=generator)
    generator.set_offset(step)
    assert same(torch.rand(N, device="npu", generator=generator), second)
    generator.set_offset(0)
    assert same(torch.rand(N, device="npu", generator=generator), first)


def test_TN_198_states_that_are_shared():
    first = torch.Generator("npu").manual_seed(3)
    second = torch.Generator("npu").manual_seed(4)
    second.graphsafe_set_state(first.graphsafe_get_state())
    reference = torch.Generator("npu").manual_seed(3)
    for generator in (first, second, second, first):
        expected = torch.rand(N, device="npu", generator=reference)
        assert same(torch.rand(N, device="npu", generator=generator), expected)
    assert first.get_offset() == second.get_offset() == reference.get_offset()
    with pytest.raises(RuntimeError, match="NPU Generator"):
        first.graphsafe_set_state(torch.Generator("cpu"))
    copy = first.clone_state()
    torch.rand(N, device="npu", generator=copy)
    assert copy.get_offset() > first.get_offset()


def test_TN_199_default_generators_differ_between_processes():
    code = """
        import torch
        print(torch.rand(4, device="npu").tolist(), torch.npu.initial_seed())
    """
    assert output_of(code) != output_of(code)  # forks of one that has drawn nothing


def test_TN_200_the_seed_of_a_new_generator():
    generator = torch.Generator("npu")
    assert generator.initial_seed() == 67280421310721
    assert generator.get_offset() == 0
    assert generator.device == torch.device("npu", 0)
    assert generator.seed() == generator.initial_seed() != 67280421310721


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: torch.rand(4, generator=g, device="npu"),
        lambda g: torch.empty(4, device="npu").normal_(generator=g),
        lambda g: torch.randperm(4, generator=g, device="npu"),
        lambda g: torch.bernoulli(torch.ones(4, device="npu"), generator=g),
    ],
    ids=["rand", "normal_", "randperm", "bernoulli"],
)
def test_TN_201_generators_of_the_cpu_are_refused(draw):
    with pytest.raises(RuntimeError, match="npu"):
        draw(torch.Generator("cpu"))


def test_TN_202_all_devices():
    torch.npu.seed_all()
    states = torch.npu.get_rng_state_all()
    assert len(states) == torch.npu.device_count() == len(torch.npu.default_generators)
    first = torch.rand(N, device="npu")
    torch.npu.set_rng_state_all(states)
    assert same(torch.rand(N, device="npu"), first)
    torch.npu.manual_seed_all(12)
    assert all(generator.initial_seed() == 12 for generator in torch.npu.default_generators)
    assert torch.npu.initial_seed() == 12
    torch.npu.seed()
    assert torch.npu.initial_seed() != 12


def test_TN_203_graphs_without_random_numbers_have_no_holders():
    source = torch.zeros(128, device="npu")
    source + 1
    torch.npu.synchronize()
    torch.npu.empty_cache()
    before = torch.npu.memory_stats()["active.all.current"]
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: source + 1)
    assert torch.npu.memory_stats()["active.all.current"] == before + 1
    del result


# ---- The module of torch ----


def test_seeds_from_before_the_first_use():
    code = """
        import torch
        torch.npu.manual_seed(7)
        state_before = torch.npu.is_initialized()
        early = torch.rand(8, device="npu")
        torch.npu.manual_seed(7)
        later = torch.rand(8, device="npu")
        generator = torch.Generator("npu").manual_seed(7)
        print(state_before, early.equal(later), torch.rand(8, device="npu", generator=generator).equal(later))
    """
    assert output_of(code) == "False True True"


def test_states_from_before_the_first_use_are_copied():
    code = """
        import torch
        import torch_npu
        state = torch.zeros(16, dtype=torch.uint8)
        state[0] = 9
        torch.npu.set_rng_state(state)
        state[0] = 1
        before = torch.npu.is_initialized()
        print(before, torch.npu.initial_seed(), len(torch.npu.default_generators) > 0)
    """
    assert output_of(code) == "False 9 True"


def test_torch_manual_seed_reaches_the_device():
    torch.manual_seed(123)
    assert torch.npu.initial_seed() == 123
    first = torch.rand(N, device="npu")
    torch.manual_seed(123)
    assert same(torch.rand(N, device="npu"), first)


def test_fork_rng_restores():
    torch.manual_seed(5)
    expected = torch.rand(N, device="npu")
    torch.manual_seed(5)
    with torch.random.fork_rng(device_type="npu"):
        torch.manual_seed(99)
        torch.rand(N, device="npu")
    assert same(torch.rand(N, device="npu"), expected)


def test_checkpoint_restores_eagerly():
    source = torch.ones(N, device="npu", requires_grad=True)
    for use_reentrant in (False, True):
        source.grad = None
        before = torch.npu.random._get_rng_state_offset()
        # The result is what the second dropout kept of what the first one did: both must be drawn again.
        result = checkpoint(
            lambda value: F.dropout(F.dropout(value * 1.5, 0.5).sin(), 0.5), source, use_reentrant=use_reentrant
        )
        after = torch.npu.random._get_rng_state_offset()
        result.sum().backward()
        assert torch.npu.random._get_rng_state_offset() == after > before
        assert source.grad.ne(0).cpu().equal(result.ne(0).cpu())


def test_threads_draw_from_one_generator_without_loss():
    generator = torch.Generator("npu")
    each = 25

    def draw():
        for _ in range(each):
            torch.rand(8, device="npu", generator=generator)

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert generator.get_offset() == 4 * each * 4


def test_offsets_of_the_default_generator():
    torch.npu.manual_seed(1)
    first = torch.rand(N, device="npu")
    torch.npu.random._set_rng_state_offset(0)
    assert same(torch.rand(N, device="npu"), first)
    assert torch.npu.random._get_rng_state_offset("npu:0") > 0
