# SPDX-License-Identifier: Apache-2.0
"""The tensor-parallel decoder of the benchmark (bench/collectives/decoder.py), a tiny one: what its ranks say."""
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "collectives"))
import decoder

SHAPE = decoder.Shape(layers=2, width=32, heads=4, kv_heads=2, hidden=64, vocabulary=96, positions=24)
COUNT = 20
WEIGHTS = decoder.weights_of(SHAPE)


def _said(model, step):
    return decoder.tokens_of(model, step, COUNT), model.logits.clone().cpu()


@torch.no_grad()
def replays_say_what_one_process_with_all_parts_says(rank, size):
    """With the same bits: the ranks' parts are added in their order."""
    split = decoder.member(SHAPE, WEIGHTS, rank, size, "npu")
    replay = decoder.captured(split)
    whole = decoder.alone(SHAPE, WEIGHTS, size, "npu")
    wanted, logits = _said(whole, whole.step)
    assert len(set(wanted)) > 5, f"a model that says little: {wanted}"
    assert wanted[: len(decoder.PROMPT)] == decoder.PROMPT
    for _ in range(2):  # another sequence, in the same caches
        said, own_logits = _said(split, replay)
        assert said == wanted
        assert torch.equal(own_logits, logits)


@torch.no_grad()
def calls_say_what_replays_say(rank, size):
    split = decoder.member(SHAPE, WEIGHTS, rank, size, "npu")
    called, logits = _said(split, split.step)
    replayed, own_logits = _said(split, decoder.captured(split))
    assert called == replayed and torch.equal(logits, own_logits)


@torch.no_grad()
def one_rank_that_does_not_cut_says_nearly_the_same(rank, size):
    """Its sums have another order. The first step with a choice has seen the same tokens on both sides."""
    split = decoder.member(SHAPE, WEIGHTS, rank, size, "npu")
    replay = decoder.captured(split)
    one = decoder.alone(SHAPE, WEIGHTS, 1, "cpu")
    steps = len(decoder.PROMPT) + 1
    for model, step in ((split, replay), (one, one.step)):
        decoder.generate(model, step, steps)
    torch.testing.assert_close(split.logits.cpu(), one.logits, rtol=1e-4, atol=1e-4)
    # All ranks have the same, bit for bit.
    everybody = torch.empty(size * SHAPE.vocabulary, device="npu")
    dist.all_gather_into_tensor(everybody, split.logits)
    assert all(torch.equal(each, split.logits) for each in everybody.chunk(size))
