# SPDX-License-Identifier: Apache-2.0
"""What attention refuses beyond what the rows of its operators say."""

import pytest
import torch

import aclnn
import test_operators
from cases_attention import arguments
from harness import Call, Case, Generator


def call_of(name, queries=4, **given):
    g = Generator(1)
    q, k, v = (g.tensor([2, heads, tokens, 8], torch.float32) for heads, tokens in ((4, queries), (2, 16), (2, 16)))
    out = "attentionOutOut" if name.startswith("Flash") else "attentionOut"
    row = aclnn.TABLE[name]
    outputs = {n: None for (_, n), role in zip(row.parameters, row.roles) if role.startswith("out?")}
    if name.startswith("Flash"):
        outputs |= {n: torch.zeros(2, 4, queries, 8) for n in ("softmaxMaxOut", "softmaxSumOut")}
    args = arguments(name, q, k, v, "BNSD", 4, 2, 0.3, **given)
    return row, Call(row, Case(args, outputs | {out: torch.zeros_like(q)}))


FUSED = "FusedInferAttentionScoreV3"


@pytest.mark.parametrize("name, changed, words", [
    (FUSED, {"inputLayout": "BDSN"}, "inputLayout is 'BDSN'"),
    (FUSED, {"inputLayout": "BSH"}, "expected 3 dims for the layout BSH"),
    (FUSED, {"numHeads": 0}, "number of heads is 0"),
    (FUSED, {"numHeads": 3}, "expected 3 heads"),
    (FUSED, {"numKeyValueHeads": -2}, "numKeyValueHeads is -2"),
    (FUSED, {"numKeyValueHeads": 4}, "expected 4 heads"),
    (FUSED, {"sparseMode": 9}, "sparseMode is 9"),
    (FUSED, {"actualSeqLengthsKvOptional": [17]}, "entry 0 of actualSeqLengthsKvOptional is 17"),
    (FUSED, {"actualSeqLengthsOptional": [1, -1]}, "entry 1 of actualSeqLengthsOptional is -1"),
    (FUSED, {"actualSeqLengthsKvOptional": [1, 2, 3]}, None),
    (FUSED, {"softmaxLseFlag": True}, "softmaxLse is null"),
    ("FlashAttentionScoreV2", {"pseType": 2}, "pseType is 2"),
    ("FlashAttentionScore", {"sparseMode": 6}, "prefixOptional has 0 entries"),
])
def test_attributes(name, changed, words):
    op, call = call_of(name)
    if words is None:
        test_operators.plan_of(op, call, **changed)
    else:
        with pytest.raises(aclnn.AclError) as refused:
            test_operators.plan_of(op, call, **changed)
        assert words in refused.value.message and op.name in refused.value.message, refused.value
    call.destroy()


@pytest.mark.parametrize("given, words", [
    ({"attenMask": torch.zeros(3, 16, dtype=torch.bool)}, "broadcasts to [2, 4, 4, 16]"),
    ({"attenMask": torch.zeros(4, 16, dtype=torch.bool), "sparseMode": 3}, "expected [2048, 2048]"),
    ({"pseShift": torch.zeros(1, 3, 4, 16)}, "broadcasts to [2, 4, 4, 16]"),
    ({"blockTable": torch.zeros(2, 2, dtype=torch.int32), "blockSize": 8, "actualSeqLengthsKv": [1]},
     "blockSize is 8, but the blocks of key hold 16 tokens"),
    ({"blockTable": torch.zeros(2, 2, dtype=torch.int32), "blockSize": 16}, "paged keys need the lengths"),
    ({"blockTable": torch.zeros(1, 2, dtype=torch.int32), "blockSize": 16, "actualSeqLengthsKv": [1]},
     "expected a row for each sequence"),
    ({"quantScale1": torch.zeros(1)}, "quantScale1Optional is given, but query is not int8"),
    ({"keyAntiquantScale": torch.zeros(1)}, "but there are factors for int8"),
    ({"quantScale2": torch.ones(1)}, "is not int8, but there is a scale for results"),
    ({"kvPaddingSize": torch.zeros(1, dtype=torch.int64)}, "kvPaddingSizeOptional is not supported yet"),
    ({"queryRope": torch.zeros(2, 4, 4, 8)}, "one of queryRopeOptional and keyRopeOptional is missing"),
])
def test_tensors(given, words):
    op, call = call_of(FUSED, **given)
    with pytest.raises(aclnn.AclError) as refused:
        test_operators.plan_of(op, call)
    assert refused.value.status == aclnn.PARAM_INVALID and words in refused.value.message, refused.value
    call.destroy()


def test_a_table_that_names_no_block_reads_none_outside():
    """Entries out of range are moved to the nearest block: the result is that of the moved table."""
    results = []
    for blocks in ([[-5, 9], [1, 1 << 30]], [[0, 1], [1, 1]]):
        op, call = call_of(FUSED, 1, blockTable=torch.tensor(blocks, dtype=torch.int32), blockSize=16,
                           actualSeqLengthsKv=[20, 32])
        call.write_inputs()
        aclnn.run(op, call.packed())
        aclnn.device().synchronize()
        results.append(call.results()[-1])
        call.destroy()
    assert torch.equal(*results) and bool(results[0].abs().sum() > 0)
