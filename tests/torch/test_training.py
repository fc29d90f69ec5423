# SPDX-License-Identifier: Apache-2.0
"""Training, eagerly and with captured steps: the same numbers either way."""
import copy
import io

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

DEVICE = "npu"


def seed(value):
    torch.manual_seed(value)
    torch.npu.manual_seed_all(value)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU()
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

    @staticmethod
    def batch(generator):
        labels = torch.randint(3, (8,), generator=generator)
        return torch.randn(8, 1, 8, 8, generator=generator) + labels[:, None, None, None], labels


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 16)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.head(self.layer(self.embedding(x), src_mask=mask)).flatten(0, 1)

    @staticmethod
    def batch(generator):
        tokens = torch.randint(16, (4, 1), generator=generator) + torch.arange(7)
        tokens = tokens % 16
        return tokens[:, :-1], tokens[:, 1:].flatten()


class Trainer:
    """A model whose whole step, mixed precision included, runs eagerly or is captured after two warm-up steps."""

    def __init__(self, model):
        seed(11)
        self.model = model().to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3, fused=True, capturable=True)
        self.batches = torch.Generator().manual_seed(3)
        x, y = self.next_batch()
        self.x, self.y = x.to(DEVICE), y.to(DEVICE)
        self.graph = None
        self.loss = None

    def next_batch(self):
        return self.model.batch(self.batches)

    def work(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("npu", dtype=torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.npu.NPUGraph()
        with torch.npu.graph(self.graph):
            self.loss = self.work()

    def step(self):
        x, y = self.next_batch()
        self.x.copy_(x)
        self.y.copy_(y)
        if self.graph is None:
            return self.work().item()
        self.graph.replay()
        return self.loss.item()


@pytest.mark.parametrize("model", [Cnn, Transformer])
def test_TN_267_whole_steps_train_the_same_eagerly_and_replayed(model):
    runs = []
    for captured in (False, True):
        trainer = Trainer(model)
        losses = [trainer.step() for _ in range(2)]
        if captured:
            trainer.capture()
        losses += [trainer.step() for _ in range(98)]
        runs.append((losses, [p.detach().cpu() for p in trainer.model.parameters()]))
    (eager, eager_parameters), (replayed, replayed_parameters) = runs
    assert replayed == eager
    assert sum(eager[-10:]) < 0.6 * sum(eager[:10])
    for a, b in zip(eager_parameters, replayed_parameters):
        assert torch.equal(a, b)


def test_TN_267_sgd_steps_on_new_data():
    seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(DEVICE)
    twin = copy.deepcopy(model)
    data = [(torch.randn(4, 6), torch.randn(4, 2)) for _ in range(20)]
    x, y = torch.zeros(4, 6, device=DEVICE), torch.zeros(4, 2, device=DEVICE)

    def step(net, optimizer, x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    other = torch.optim.SGD(twin.parameters(), 0.1, momentum=0.9)
    step(model, optimizer, x, y)
    step(twin, other, x, y)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        loss = step(model, optimizer, x, y)
    for a, b in data:
        x.copy_(a)
        y.copy_(b)
        graph.replay()
        assert torch.equal(loss.cpu(), step(twin, other, a.to(DEVICE), b.to(DEVICE)).cpu())
    for a, b in zip(model.parameters(), twin.parameters()):
        assert torch.equal(a.cpu(), b.cpu())


def parameters():
    seed(7)
    return [torch.randn(4, 3, device=DEVICE, requires_grad=True), torch.randn(5, device=DEVICE, requires_grad=True)]


def give_gradients(params, number):
    generator = torch.Generator().manual_seed(number)
    for p in params:
        g = torch.randn(p.shape, generator=generator)
        p.grad = g.to(DEVICE) if p.grad is None else p.grad.copy_(g)


def check_captured_steps(make, replays=4):
    """Steps of the optimizer, captured, against the same steps run eagerly: parameters and state are equal."""
    ours, expected = parameters(), parameters()
    optimizer, other = make(ours), make(expected)
    for params, opt in ((ours, optimizer), (expected, other)):
        give_gradients(params, 0)
        opt.step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        optimizer.step()
    for number in range(1, replays + 1):
        give_gradients(ours, number)
        graph.replay()
        give_gradients(expected, number)
        other.step()
    for p, q in zip(ours, expected):
        assert torch.equal(p.detach().cpu(), q.detach().cpu())
        a, b = optimizer.state[p], other.state[q]
        assert a.keys() == b.keys()
        for name, value in a.items():
            if torch.is_tensor(value):
                assert torch.equal(value.cpu(), b[name].cpu()), name
    return optimizer


VARIANTS = [(foreach, amsgrad) for foreach in (False, True) for amsgrad in (False, True)]


@pytest.mark.parametrize("foreach,amsgrad", VARIANTS)
def test_TN_268_captured_adam(foreach, amsgrad):
    check_captured_steps(lambda p: torch.optim.Adam(p, 0.1, foreach=foreach, amsgrad=amsgrad, capturable=True))


@pytest.mark.parametrize("foreach,amsgrad", VARIANTS)
def test_TN_269_captured_adamw(foreach, amsgrad):
    optimizer = check_captured_steps(
        lambda p: torch.optim.AdamW(p, 0.1, foreach=foreach, amsgrad=amsgrad, capturable=True)
    )
    for state in optimizer.state.values():
        assert state["step"].device.type == DEVICE and state["step"].item() == 5


def captured_with(name):
    def test(foreach):
        make = getattr(torch.optim, name)
        check_captured_steps(lambda p: make(p, lr=0.01, foreach=foreach, capturable=True))

    return pytest.mark.parametrize("foreach", [False, True])(test)


test_TN_270_captured_nadam = captured_with("NAdam")
test_TN_271_captured_radam = captured_with("RAdam")
test_TN_272_captured_asgd = captured_with("ASGD")
test_TN_273_captured_adamax = captured_with("Adamax")
test_TN_274_captured_adadelta = captured_with("Adadelta")
test_TN_275_captured_rprop = captured_with("Rprop")
test_TN_276_captured_rmsprop = captured_with("RMSprop")


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_TN_277_captured_fused_optimizers(name):
    options = {"lr": 0.1, "fused": True}
    options.update({"momentum": 0.9} if name == "SGD" else {"capturable": True})
    check_captured_steps(lambda p: getattr(torch.optim, name)(p, **options))


@pytest.mark.parametrize("name", ["Adam", "NAdam", "Adamax", "Rprop"])
def test_TN_278_a_group_that_is_not_capturable_is_refused(name):
    params = parameters()
    groups = [{"params": params[:1], "capturable": True}, {"params": params[1:], "capturable": False}]
    optimizer = getattr(torch.optim, name)(groups, lr=0.01)
    give_gradients(params, 0)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        unchanged = params[0].detach() + 0
        with pytest.raises(RuntimeError, match=f"Attempting NPU graph capture of step.. for an instance of {name}"):
            optimizer.step()
    graph.replay()
    assert torch.equal(unchanged.cpu(), params[0].detach().cpu())
    both = getattr(torch.optim, name)([{"params": [p], "capturable": True} for p in params], lr=0.01)
    both.step()
    before = params[1].detach().cpu()
    other = torch.npu.NPUGraph()
    with torch.npu.graph(other):
        both.step()
    other.replay()
    assert not torch.equal(params[1].detach().cpu(), before)


def test_TN_279_not_capturable_optimizers_step_eagerly():
    ours = parameters()
    cpu = [p.detach().cpu().requires_grad_() for p in ours]
    a, b = torch.optim.Adam(ours, 0.1), torch.optim.Adam(cpu, 0.1)
    for number in range(3):
        give_gradients(ours, number)
        for p, q in zip(ours, cpu):
            q.grad = p.grad.cpu()
        a.step()
        b.step()
    for p, q in zip(ours, cpu):
        torch.testing.assert_close(p.detach().cpu(), q.detach(), rtol=1e-5, atol=1e-6)


def test_TN_285_a_learning_rate_in_a_tensor_changes_between_replays():
    params = parameters()
    rate = torch.tensor(0.1, device=DEVICE)
    optimizer = torch.optim.Adam(params, rate, capturable=True)
    give_gradients(params, 0)
    optimizer.step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        optimizer.step()
    before = params[0].detach().cpu()
    graph.replay()
    moved = params[0].detach().cpu()
    assert (moved - before).abs().max() > 0.01
    rate.fill_(0)
    graph.replay()
    assert torch.equal(params[0].detach().cpu(), moved)


@pytest.mark.parametrize("foreach", [False, True])
def test_TN_286_captured_clipping_of_gradients(foreach):
    ours, expected = parameters(), parameters()
    give_gradients(ours, 0)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        norm = nn.utils.clip_grad_norm_(ours, 0.5, foreach=foreach)
    for number in (1, 2):
        give_gradients(ours, number)
        graph.replay()
        give_gradients(expected, number)
        assert norm.item() == nn.utils.clip_grad_norm_(expected, 0.5, foreach=foreach).item()
        for p, q in zip(ours, expected):
            assert torch.equal(p.grad.cpu(), q.grad.cpu())


def test_TN_288_forward_and_backward_graphed_and_the_optimizer_eager():
    runs = []
    for captured in (False, True):
        seed(5)
        model = nn.Linear(6, 3).to(DEVICE)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        x = torch.randn(4, 6, device=DEVICE)

        def work(model=model, x=x):
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        work()
        optimizer.zero_grad(set_to_none=True)
        if captured:
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph):
                static = work()
        losses = []
        for _ in range(10):
            if captured:
                graph.replay()
                loss = static
            else:
                optimizer.zero_grad(set_to_none=True)
                loss = work()
            losses.append(loss.item())
            optimizer.step()
            if captured:
                optimizer.zero_grad(set_to_none=False)
        runs.append(losses)
    assert runs[0] == runs[1] and runs[0][-1] < runs[0][0]


def test_TN_289_running_statistics_advance_with_each_replay():
    norm = nn.BatchNorm1d(3, momentum=0.5).to(DEVICE)
    twin = copy.deepcopy(norm)
    x = torch.randn(8, 3, device=DEVICE)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = norm(x)
    assert torch.equal(norm.running_mean.cpu(), twin.running_mean.cpu())
    assert norm.num_batches_tracked.item() == 0
    for i in range(3):
        x.copy_(torch.randn(8, 3) + i)
        graph.replay()
        assert torch.equal(y.detach().cpu(), twin(x).detach().cpu())
        assert torch.equal(norm.running_mean.cpu(), twin.running_mean.cpu())
        assert torch.equal(norm.running_var.cpu(), twin.running_var.cpu())
    assert norm.num_batches_tracked.item() == 3


def test_dropout_in_replays_is_fresh_and_reproducible():
    x = torch.ones(64, device=DEVICE)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = F.dropout(x, 0.5)
    seed(3)
    first = []
    for _ in range(5):
        graph.replay()
        first.append(y.cpu())
    assert len({tuple(t.tolist()) for t in first}) == 5
    seed(3)
    for expected in first[:2]:
        graph.replay()
        assert torch.equal(y.cpu(), expected)
    for expected in first[2:]:
        assert torch.equal(F.dropout(x, 0.5).cpu(), expected)  # eager calls go on where replays stopped


def test_many_replays_with_changing_input_do_not_grow():
    weight = torch.eye(8, device=DEVICE)
    x = torch.zeros(4, 8, device=DEVICE)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = (x @ weight).relu() + 1
    pinned = torch.zeros(4, 8).pin_memory()
    in_use = []
    for i in range(10000):
        if i in (1000, 9999):
            torch.accelerator.synchronize()
            in_use.append((torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()))
        if i % 100 == 0:
            torch.accelerator.synchronize()
            pinned.fill_(i)
            x.copy_(pinned, non_blocking=True)
        x += 1
        graph.replay()
    assert y[0, 0].item() == 9900 + 100 + 1
    assert in_use[0] == in_use[1]


def test_data_loader_with_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(16, 2), torch.arange(16))
    seen = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert x.is_pinned() and y.is_pinned()
        x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
        seen.append((x.sum(1) + y).cpu())
    assert torch.cat(seen).tolist() == [4.0 * i + 1 + i for i in range(16)]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_recompute_with_the_same_dropout(use_reentrant):
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).to(DEVICE)
    x = torch.randn(4, 8, device=DEVICE, requires_grad=True)
    seed(9)
    layer(x).square().sum().backward()
    expected = [x.grad.cpu()] + [p.grad.cpu() for p in layer.parameters()]
    x.grad = None
    layer.zero_grad()
    seed(9)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=use_reentrant).square().sum().backward()
    for ours, other in zip([x.grad] + [p.grad for p in layer.parameters()], expected):
        assert torch.equal(ours.cpu(), other)


def test_deep_copies_and_files_of_modules_and_optimizers():
    model = Cnn().to(DEVICE)
    twin = copy.deepcopy(model)
    for p, q in zip(model.parameters(), twin.parameters()):
        assert p.data_ptr() != q.data_ptr() and q.device.type == DEVICE and torch.equal(p.cpu(), q.cpu())
    optimizer = torch.optim.Adam(model.parameters(), 0.1, capturable=True)
    x, y = Cnn.batch(torch.Generator().manual_seed(1))
    F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE)).backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert all(t.device.type == DEVICE for t in saved["model"].values())
    twin.load_state_dict(saved["model"])
    other = torch.optim.Adam(twin.parameters(), 0.1, capturable=True)
    other.load_state_dict(saved["optimizer"])
    for m, opt in ((model, optimizer), (twin, other)):
        opt.zero_grad()
        F.cross_entropy(m(x.to(DEVICE)), y.to(DEVICE)).backward()
        opt.step()
    for p, q in zip(model.parameters(), twin.parameters()):
        assert torch.equal(p.cpu(), q.cpu())
    file.seek(0)
    moved = torch.load(file, map_location="cpu", weights_only=True)["model"]
    assert all(t.device.type == "cpu" for t in moved.values())
