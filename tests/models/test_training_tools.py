# SPDX-License-Identifier: Apache-2.0
"""accelerate, peft, safetensors, lightning and torchmetrics."""
import math

import accelerate
import lightning
import peft
import pytest
import safetensors
import safetensors.torch
import torch
import torchmetrics
import transformers
from compare import assert_same, check_training, two
from torch.utils.data import DataLoader, TensorDataset


def _rows(rows=12):
    data = torch.randn(rows, 6)
    return TensorDataset(data, (data.sum(1) > 0).long())


def _network():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_accelerator_finds_the_device_and_trains(precision):
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
    assert accelerator.device.type == "npu"
    model = _network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, DataLoader(_rows(), 4), schedule)
    losses = []
    for _ in range(8):
        for data, classes in loader:
            assert data.device.type == "npu"
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(data), classes)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).float().mean().item())
    assert losses[-1] < losses[0]


def test_accelerator_saves_and_goes_on(tmp_path):
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator()
    model, optimizer = accelerator.prepare(_network(), torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1))
    accelerate.utils.set_seed(3)
    accelerator.save_state(tmp_path)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    accelerator.load_state(tmp_path)
    assert_same(list(model.parameters()), [one.cpu() for one in before])


def test_accelerate_spreads_a_model(tmp_path):
    config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    here = transformers.GPT2LMHeadModel(config).eval()
    here.save_pretrained(tmp_path)
    spread = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map="auto").eval()
    assert spread.device.type == "npu"
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert_same(spread(ids.npu()).logits, here(ids).logits)
        accelerate.cpu_offload(spread, execution_device="npu")
        assert_same(spread(ids.npu()).logits, here(ids).logits)


def _llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
        )
    )


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_adapters_train_merge_and_load(kind, tmp_path):
    names = ["q_proj", "v_proj"]
    config = {
        "lora": peft.LoraConfig(r=4, target_modules=names, task_type="CAUSAL_LM", init_lora_weights=False),
        "dora": peft.LoraConfig(r=4, target_modules=names, use_dora=True, init_lora_weights=False),
        "ia3": peft.IA3Config(target_modules=names, feedforward_modules=[]),
    }[kind]
    ids = torch.randint(1, 64, (2, 10))
    base = _llama()
    base.save_pretrained(tmp_path / "base")
    model = peft.get_peft_model(base, config)
    check_training(model, lambda one, given: one(input_ids=given, labels=given).loss, ids)
    there = model.npu().eval()
    with torch.no_grad():
        wanted = there(input_ids=ids.npu()).logits
    there.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(
        transformers.LlamaForCausalLM.from_pretrained(tmp_path / "base", device_map="npu"), tmp_path / "adapter"
    ).eval()
    merged = there.merge_and_unload()
    with torch.no_grad():
        assert_same(loaded(input_ids=ids.npu()).logits, wanted.cpu())
        assert_same(merged(ids.npu()).logits, wanted.cpu(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_tensors_are_stored_and_loaded_onto_the_device(dtype, tmp_path):
    path = tmp_path / "tensors.safetensors"
    stored = {"a": (torch.randn(3, 5) * 4).to(dtype).npu(), "b": torch.arange(6).npu().view(2, 3)}
    safetensors.torch.save_file(stored, path, metadata={"made": "here"})
    for device in ("npu", "npu:0"):
        loaded = safetensors.torch.load_file(path, device=device)
        assert all(one.device.type == "npu" for one in loaded.values())
        assert all(torch.equal(loaded[name].cpu(), one.cpu()) and loaded[name].dtype == one.dtype
                   for name, one in stored.items())
    with safetensors.safe_open(path, framework="pt", device="npu") as file:
        part = file.get_slice("a")[1:, :2]
        assert part.device.type == "npu" and torch.equal(part.cpu(), stored["a"].cpu()[1:, :2])
    model = _network().npu()
    safetensors.torch.save_model(model, path)
    other = _network().npu()
    safetensors.torch.load_model(other, path, device="npu")
    assert torch.equal(other[0].weight, model[0].weight)


class _Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = _network()
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2)
        self.losses, self.devices = [], set()

    def training_step(self, batch, index):
        data, classes = batch
        self.devices.add(data.device.type)
        loss = torch.nn.functional.cross_entropy(self.network(data), classes)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.accuracy(self.network(batch[0]), batch[1])
        self.log("accuracy", self.accuracy)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-2)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_lightning_trains(precision, tmp_path):
    from torch_npu.contrib import lightning as npu_lightning  # registers the accelerator

    rows = _rows()
    trainer = lightning.Trainer(
        accelerator="npu", devices=1, max_epochs=6, precision=precision, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, log_every_n_steps=1,
    )
    assert isinstance(trainer.accelerator, npu_lightning.NPUAccelerator)
    module = _Classifier()
    trainer.fit(module, DataLoader(rows, 4), DataLoader(rows, 4))
    assert module.devices == {"npu"} and module.losses[-1] < module.losses[0]
    assert 0.5 <= trainer.callback_metrics["accuracy"].item() <= 1
    assert trainer.validate(module, DataLoader(rows, 4), verbose=False)[0]["accuracy"] > 0.5
    saved = next(tmp_path.rglob("*.ckpt"))
    assert torch.equal(_Classifier.load_from_checkpoint(saved).network[0].weight.cpu(), module.network[0].weight.cpu())


def test_fabric_and_auto_take_the_device():
    import torch_npu.contrib.lightning  # noqa: F401

    fabric = lightning.Fabric(accelerator="auto", devices=1, precision="bf16-mixed")
    model = _network()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model(fabric.to_device(torch.randn(3, 6))).square().mean()
    fabric.backward(loss)
    optimizer.step()
    assert loss.device.type == "npu" and fabric.device == torch.device("npu", 0)
    assert lightning.Trainer(accelerator="auto", logger=False).strategy.root_device == torch.device("npu", 0)
    with pytest.raises(ValueError, match="not there"):
        lightning.Trainer(accelerator="npu", devices=99)


METRICS = {
    "accuracy": lambda: torchmetrics.Accuracy(task="multiclass", num_classes=4),
    "f1": lambda: torchmetrics.F1Score(task="multiclass", num_classes=4, average="macro"),
    "auroc": lambda: torchmetrics.AUROC(task="multiclass", num_classes=4),
    "confusion": lambda: torchmetrics.ConfusionMatrix(task="multiclass", num_classes=4, normalize="true"),
    "calibration": lambda: torchmetrics.CalibrationError(task="multiclass", num_classes=4),
    "average": lambda: torchmetrics.AveragePrecision(task="multiclass", num_classes=4, thresholds=5),
}


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS.keys())
def test_metrics_are_the_same(make):
    scores, classes = torch.randn(40, 4).softmax(1), torch.randint(0, 4, (40,))
    here, there = two(make())
    for rows in (slice(0, 25), slice(25, 40)):
        here.update(scores[rows], classes[rows])
        there.update(scores[rows].npu(), classes[rows].npu())
    wanted, got = here.compute(), there.compute()
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), wanted)
    assert math.isfinite(wanted.sum().item())


def test_regression_metrics_are_the_same():
    guess, truth = torch.randn(30), torch.randn(30)
    here, there = two(
        torchmetrics.MetricCollection(
            [torchmetrics.MeanSquaredError(), torchmetrics.PearsonCorrCoef(), torchmetrics.R2Score(),
             torchmetrics.SpearmanCorrCoef()]
        )
    )
    assert_same(there(guess.npu(), truth.npu()), here(guess, truth))
