# SPDX-License-Identifier: Apache-2.0
"""transformers: small models of random weights compute, train and generate as on the CPU."""
import pytest
import torch
import transformers
from compare import assert_same, check_forward, check_training, two, without_dropout


def _text(vocabulary=64, rows=2, length=12):
    return torch.randint(3, vocabulary, (rows, length))


_LLAMA = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def _causal(kind, config):
    return getattr(transformers, kind)(without_dropout(config)), {"input_ids": _text()}


def llama():
    return _causal("LlamaForCausalLM", transformers.LlamaConfig(**_LLAMA))


def qwen2():
    return _causal("Qwen2ForCausalLM", transformers.Qwen2Config(**_LLAMA))


def qwen3():
    return _causal("Qwen3ForCausalLM", transformers.Qwen3Config(**_LLAMA, head_dim=8))


def mixtral():
    config = transformers.MixtralConfig(**_LLAMA, num_local_experts=4, num_experts_per_tok=2)
    return _causal("MixtralForCausalLM", config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    return _causal("GPT2LMHeadModel", config)


def mistral():
    return _causal("MistralForCausalLM", transformers.MistralConfig(**_LLAMA, sliding_window=8))


def gemma2():
    return _causal("Gemma2ForCausalLM", transformers.Gemma2Config(**_LLAMA, head_dim=8, sliding_window=8))


def bert():
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 7:] = 0
    return transformers.BertForMaskedLM(without_dropout(config)), {"input_ids": _text(), "attention_mask": mask}


def vit():
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4,
        num_labels=5,
    )
    model = transformers.ViTForImageClassification(without_dropout(config))
    return model, {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([1, 3])}


def t5():
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(without_dropout(config)), {"input_ids": _text()}


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=16,
        max_target_positions=32, decoder_start_token_id=1, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        suppress_tokens=None, begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(without_dropout(config))
    return model, {"input_features": torch.randn(2, 8, 32)}


def clip():
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    config = transformers.CLIPConfig(
        text_config=dict(sizes, vocab_size=64, max_position_embeddings=16, eos_token_id=2, bos_token_id=1),
        vision_config=dict(sizes, image_size=16, patch_size=4),
        projection_dim=16,
    )
    return transformers.CLIPModel(config), {"input_ids": _text(), "pixel_values": torch.randn(2, 3, 16, 16)}


DECODERS = [llama, qwen2, qwen3, mixtral, gpt2, mistral, gemma2]
ALL = DECODERS + [bert, vit, t5, whisper, clip]
name = dict(ids=lambda make: make.__name__)


def _labelled(make):
    model, inputs = make()
    if make in DECODERS or make is bert:
        inputs["labels"] = inputs["input_ids"]
    elif make in (t5, whisper):
        inputs["labels"] = _text(length=6)
    elif make is clip:
        inputs["return_loss"] = True
    return model, inputs


@pytest.mark.parametrize("make", ALL, **name)
def test_model_computes(make):
    model, inputs = _labelled(make)
    check_forward(model, lambda one, given: {k: v for k, v in one(**given).items() if k != "past_key_values"}, inputs)


@pytest.mark.parametrize("make", ALL, **name)
def test_model_trains(make):
    model, inputs = _labelled(make)
    check_training(model, lambda one, given: one(**given).loss, inputs)


@pytest.mark.parametrize("make", DECODERS + [t5, whisper], **name)
@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"cache_implementation": "static", "disable_compile": True}],
                         ids=["greedy", "beams", "static"])
def test_model_generates(make, options):
    model, inputs = make()
    here, there = two(model.eval())
    options = dict(options, max_new_tokens=8, min_new_tokens=8, do_sample=False, return_dict_in_generate=True)
    if "num_beams" not in options:
        options["output_logits"] = True
    wanted = here.generate(**inputs, **options)
    got = there.generate(**{key: value.npu() for key, value in inputs.items()}, **options)
    assert got.sequences.device.type == "npu"
    assert torch.equal(got.sequences.cpu(), wanted.sequences)
    if "num_beams" not in options:
        assert_same(got.logits, wanted.logits, rtol=1e-3, atol=1e-4)


def test_model_draws_tokens():
    model, inputs = llama()
    model = model.eval().npu()
    inputs = {key: value.npu() for key, value in inputs.items()}
    drawn = []
    for _ in range(2):
        torch.npu.manual_seed(5)
        drawn.append(model.generate(**inputs, do_sample=True, top_k=20, top_p=0.9, max_new_tokens=8))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flash_attention_2"])
def test_llama_attends_in_each_way(attention):
    model, inputs = llama()
    here, there = two(model.eval())
    if attention == "flash_attention_2":
        there.to(torch.bfloat16)
        here.to(torch.bfloat16)
    there.set_attn_implementation(attention)
    with torch.no_grad():
        wanted = here(**inputs).logits
        got = there(input_ids=inputs["input_ids"].npu()).logits
    close = dict(rtol=5e-2, atol=5e-2) if attention == "flash_attention_2" else {}
    assert_same(got, wanted, **close)


def test_padded_batch_attends_to_what_is_there():
    model, inputs = llama()
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, :5] = 0
    check_forward(model, lambda one, given: one(**given).logits, {**inputs, "attention_mask": mask})


def test_model_is_saved_and_loaded_onto_the_device(tmp_path):
    model, inputs = llama()
    model.eval().npu().save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path, device_map="npu").eval()
    assert loaded.device.type == "npu"
    ids = inputs["input_ids"].npu()
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)


def test_trainer_trains(tmp_path):
    model, inputs = llama()
    rows = [{"input_ids": row, "labels": row} for row in inputs["input_ids"]] * 2
    before = model.model.embed_tokens.weight.detach().clone()
    arguments = transformers.TrainingArguments(
        tmp_path, max_steps=3, per_device_train_batch_size=2, report_to=[], save_steps=3, learning_rate=1e-2, bf16=True
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
    assert trainer.args.device.type == "npu" and trainer.model.device.type == "npu"
    trainer.train()
    assert not torch.equal(before, model.model.embed_tokens.weight.detach().cpu())
    assert (tmp_path / "checkpoint-3" / "model.safetensors").exists()
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert trainer.evaluate(rows)["eval_loss"] > 0
