# SPDX-License-Identifier: Apache-2.0
"""Whole models through torch.compile with torchair, in both of its modes: results, gradients and what is generated are
those of eager calls on npu."""
import copy
import pathlib
import sys

import pytest
import test_transformers
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "torchair"))

import small_models  # noqa: E402
import torchair  # noqa: E402

MODES = ["max-autotune", "npugraph_ex"]


@pytest.fixture(autouse=True)
def nothing_compiled_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # compilations leave files in the working folder
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Part(torch.nn.Module):
    """A model with tensors as arguments and one tensor as the result."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


def _text(batch, length):
    return torch.randint(3, 64, (batch, length))


def _model_of(make):
    """Experts as products of batches: the others ask the device how many tokens each of them gets."""
    model, inputs = make()
    if "moe" in make.__name__ or make is test_transformers.mixtral:
        model.set_experts_implementation("batched_mm")
    return model, inputs


def _of_text(make):
    return lambda: (Part(_model_of(make)[0], lambda one, ids: one(input_ids=ids, use_cache=False).logits), lambda b, n: (_text(b, n),))


def qwen2_moe():
    config = transformers.Qwen2MoeConfig(
        **test_transformers._LLAMA, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
        shared_expert_intermediate_size=24, decoder_sparse_step=1,
    )
    return test_transformers._causal("Qwen2MoeForCausalLM", config)


def bert():
    def inputs(batch, length):
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[-1, length // 2:] = 0
        return _text(batch, length), mask

    model = test_transformers.bert()[0]
    return Part(model, lambda one, ids, mask: one(input_ids=ids, attention_mask=mask).logits), inputs


def t5():
    model = test_transformers.t5()[0]
    call = lambda one, ids, given: one(input_ids=ids, decoder_input_ids=given, use_cache=False).logits  # noqa: E731
    return Part(model, call), lambda b, n: (_text(b, n), _text(b, 5))


def vit():
    model = test_transformers.vit()[0]
    return Part(model, lambda one, images: one(pixel_values=images).logits), lambda b, n: (torch.randn(b, 3, 16, 16),)


def whisper_encoder():
    model = test_transformers.whisper()[0].model.encoder
    return Part(model, lambda one, sound: one(sound).last_hidden_state), lambda b, n: (torch.randn(b, 8, 32),)


def clip():
    model = test_transformers.clip()[0]
    call = lambda one, ids, images: one(input_ids=ids, pixel_values=images).logits_per_text  # noqa: E731
    return Part(model, call), lambda b, n: (_text(b, n), torch.randn(b, 3, 16, 16))


def unet_of_diffusers():
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        norm_num_groups=4, attention_head_dim=8, cross_attention_dim=16,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )
    call = lambda one, noise, time, text: one(noise, time, text).sample  # noqa: E731
    return Part(model, call), lambda b, n: (torch.randn(b, 4, 8, 8), torch.arange(b) * 3, torch.randn(b, n, 16))


def lstm_of_torch():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm = torch.nn.Embedding(64, 8), torch.nn.LSTM(8, 12, 2, batch_first=True)
            self.head = torch.nn.Linear(12, 5)

        def forward(self, ids):
            return self.head(self.lstm(self.words(ids))[0])

    return Model(), lambda b, n: (_text(b, n),)


def _small(name):
    make, arguments = small_models.MODELS[name]
    return lambda: (make(), lambda b, n: arguments(b))


MODELS = {
    "llama": _of_text(test_transformers.llama), "qwen2_moe": _of_text(qwen2_moe), "gpt2": _of_text(test_transformers.gpt2),
    "gemma2": _of_text(test_transformers.gemma2), "mixtral": _of_text(test_transformers.mixtral), "bert": bert, "t5": t5,
    "vit": vit, "whisper_encoder": whisper_encoder, "clip": clip, "unet_of_diffusers": unet_of_diffusers,
    "lstm_of_torch": lstm_of_torch, **{name: _small(name) for name in small_models.MODELS},
}
# What changes its number of steps with the length is a graph for each.
OF_TEXT = {"llama", "qwen2_moe", "gpt2", "gemma2", "mixtral", "bert", "t5", "unet_of_diffusers"}
BATCHES = set(MODELS)
TRAINED = ["llama", "qwen2_moe", "gpt2", "bert", "t5", "vit", "whisper_encoder", "resnet", "mobilenet", "unet", "lstm", "diffusion",
           "decoder", "lstm_of_torch"]


class Counting:
    """torchair's backend, and how often it compiled."""

    def __init__(self, mode):
        config = torchair.CompilerConfig()
        config.mode = mode
        self.backend, self.count = torchair.get_npu_backend(compiler_config=config), 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.backend(*args, **kwargs)


def _equal(got, wanted, bound=2e-4):
    torch.testing.assert_close(got.cpu(), wanted.cpu(), rtol=bound, atol=bound)


def _npu(tensors):
    return [each.npu() for each in tensors]


@pytest.fixture
def steps_of_lstm(monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "allow_rnn", True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_inference(name, mode, steps_of_lstm):
    model, inputs = MODELS[name]()
    model, backend = model.eval().npu(), Counting(mode)
    step = torch.compile(model, backend=backend, dynamic=False, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            given = _npu(inputs(2, 8))
            _equal(step(*given), model(*given))
    assert backend.count == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_sizes_that_change(name, mode, steps_of_lstm):
    """Batch and length are symbols: one compilation serves all."""
    model, inputs = MODELS[name]()
    model, backend = model.eval().npu(), Counting(mode)
    step = torch.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        for batch, length in ((2, 8), (3, 11), (5, 6), (2, 8)):
            given = _npu(inputs(batch, length if name in OF_TEXT else 8))
            for each in given:
                torch._dynamo.maybe_mark_dynamic(each, 0)
                if name in OF_TEXT and each.dim() > 1 and each.shape[1] == length:
                    torch._dynamo.maybe_mark_dynamic(each, 1)
            _equal(step(*given), model(*given))
    assert backend.count == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TRAINED)
def test_training(name, mode, steps_of_lstm):
    model, inputs = MODELS[name]()
    model = model.train().npu()
    other = copy.deepcopy(model)
    step = torch.compile(model, backend=Counting(mode), dynamic=False, fullgraph=True)
    given = [_npu(inputs(2, 8)) for _ in range(2)]
    losses = []
    for one, call in ((model, step), (other, other)):
        optimizer = torch.optim.SGD(one.parameters(), lr=1e-2, momentum=0.9)
        mine = []
        for number in range(4):
            optimizer.zero_grad()
            loss = small_models.loss_of(call(*given[number % 2]))
            loss.backward()
            optimizer.step()
            mine.append(loss.item())
        losses.append(mine)
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-5)
    gradients = [{key: p.grad for key, p in one.named_parameters() if p.grad is not None} for one in (model, other)]
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for key, wanted in gradients[1].items():
        # Through batch norms, single elements are small differences of large numbers.
        apart, size = (each.double().norm().item() for each in (gradients[0][key].cpu() - wanted.cpu(), wanted.cpu()))
        assert apart <= 1e-2 * size + 1e-5, f"{key}: {apart} apart, of {size}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2_moe"])
def test_generation_with_a_static_cache(name, mode):
    make = qwen2_moe if name == "qwen2_moe" else getattr(test_transformers, name)
    model, inputs = _model_of(make)
    model = model.eval().npu()
    ids = inputs["input_ids"].npu()
    options = dict(max_new_tokens=8, min_new_tokens=8, do_sample=False, cache_implementation="static", disable_compile=True)
    wanted = model.generate(ids, **options)
    backend = Counting(mode)
    model.forward = torch.compile(model.forward, backend=backend, dynamic=False, fullgraph=True)
    got = model.generate(ids, **options)
    assert torch.equal(got.cpu(), wanted.cpu())
    assert 1 <= backend.count <= 3, "prompts and tokens"


@pytest.mark.parametrize("mode", MODES)
def test_caches_are_written_in_place(mode):
    model = small_models.Generating().eval().npu()
    other = copy.deepcopy(model)
    step = torch.compile(model, backend=Counting(mode), dynamic=False, fullgraph=True)
    for one, call in ((model, step), (other, other)):
        token = torch.tensor([[3]]).npu()
        tokens = []
        with torch.no_grad():
            for place in range(6):
                token = call(token, torch.tensor([place]).npu()).clone()
                tokens.append(token.item())
        one.seen = tokens
    assert model.seen == other.seen
    _equal(model.keys, other.keys)
    _equal(model.values, other.values)
    assert model.keys.any()
