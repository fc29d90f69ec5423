# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: shapes, names, refusals, compilation; npu_ops.py says how cases are run."""
import importlib
import json
import pathlib
import re

import pytest
import torch
import torch_npu
from npu_ops import ALL_CASES, F32, HALF, Call, Cases, Source, mapped, npu
from torch.nn.functional import pad, silu

case = Cases()

# Rank A of the published package, as programs name them.
RANK_A = """
_npu_fused_infer_attention_score_get_max_workspace _npu_fused_infer_attention_score_v2_get_max_workspace
atb._npu_flash_attention atb._npu_flash_attention_qlens atb._npu_flash_attention_unpad atb._npu_flash_attention_unpad_v2
atb._npu_flash_attention_v2 atb._npu_flash_attention_v3 atb._npu_group_topk atb._npu_matmul_add_fp32
atb._npu_paged_attention atb._npu_paged_attention_get_workspace atb._npu_paged_attention_mla
atb._npu_paged_attention_splitfuse atb._npu_paged_attention_splitfuse_v2 atb._npu_reshape_and_cache
atb._npu_reshape_and_cache_siso atb._npu_rotary_embedding atb.npu_paged_cache_load get_npu_format npu_add_rms_norm
npu_add_rms_norm_dynamic_quant npu_add_rms_norm_quant npu_apply_rotary_pos_emb npu_attention_update
npu_chunk_gated_delta_rule npu_clipped_swiglu npu_convert_weight_to_int4pack npu_dequant_swiglu_quant
npu_dynamic_block_quant npu_dynamic_quant npu_fast_gelu npu_format_cast npu_fused_infer_attention_score
npu_fused_infer_attention_score_v2 npu_fusion_attention npu_gather_pa_kv_cache npu_grouped_matmul
npu_grouped_matmul_swiglu_quant npu_grouped_matmul_swiglu_quant_v2 npu_interleave_rope
npu_kv_quant_sparse_flash_attention npu_kv_rmsnorm_rope_cache npu_lightning_indexer npu_mla_prolog_v2 npu_mla_prolog_v3
npu_moe_compute_expert_tokens npu_moe_finalize_routing npu_moe_gating_top_k npu_moe_gating_top_k_softmax
npu_moe_init_routing npu_moe_init_routing_v2 npu_moe_token_permute npu_moe_token_unpermute npu_mrope
npu_prompt_flash_attention npu_quant_grouped_matmul_dequant npu_quant_lightning_indexer npu_quant_matmul npu_quantize
npu_recurrent_gated_delta_rule npu_rms_norm npu_rotary_mul npu_scatter_nd_update_ npu_scatter_pa_cache
npu_scatter_pa_kv_cache npu_swiglu npu_top_k_top_p npu_transpose_batchmatmul npu_transpose_quant_batchmatmul
npu_weight_quant_batchmatmul
""".split()

# ---- Shapes and products ----


@case(F32)
def matmul_add(g):
    x, w, c = g(7, 4, dtype=HALF), g(7, 5, dtype=HALF), g(4, 5)
    return Call(npu("_npu_matmul_add_fp32"), (x, w, c), left={2: c + x.float().t() @ w.float()}, want=None)


@case(F32)
def shapes(g):
    """Several that only move numbers, one behind the other."""

    def op(x):
        y = torch_npu.npu_transpose(x, [1, 0, 2])
        y = torch_npu.npu_slice(y, [0, 1, 0], [-1, 2, 3])
        y = torch_npu.npu_reshape(torch_npu.npu_broadcast(y, [5, 2, 3]), [5, 6])
        y = torch_npu.npu_dtype_cast(y, torch.float16)
        return torch_npu.npu_confusion_transpose(y, [1, 0, 2], [5, 2, 3], False)

    x = g(4, 5, 3)
    want = x.permute(1, 0, 2)[:, 1:3].reshape(5, 6).half().view(5, 2, 3).permute(1, 0, 2)
    return Call(op, (x,), want=want)


@case(F32, HALF)
def simple(g):
    x, w, b = g(4, 8), g(6, 8), g(6)

    def op(x, w, b):
        return torch_npu.npu_linear(torch_npu.npu_mish(torch_npu.npu_silu(x)), w, b)

    want = (torch.nn.functional.mish(silu(x.float())) @ w.float().t() + b.float()).to(x.dtype)
    return Call(op, (x, w, b), want=want)

@case(F32)
def copies(g):
    x, y, h = g(4, 6), g(6), g(3, 4, dtype=HALF)

    def op(x, y, h):
        torch_npu.npu_view_copy(x, y, False)
        out = torch.empty(2, 3, device=x.device)
        return (
            torch_npu.npu_stride_copy(x, [2, 3], [1, 6], 2),
            torch.ops.npu.npu_stride_copy.out(x, [2, 3], [6, 2], 1, out=out),
            torch_npu.npu_dtype_cast_(torch.empty(3, 4, device=x.device), h),
        )

    x1 = y.expand(4, 6).contiguous()
    want = (torch.as_strided(x1, (2, 3), (1, 6), 2).clone(), torch.as_strided(x1, (2, 3), (6, 2), 1).clone(), h.float())
    return Call(op, (x, y, h), want=want, left={0: x1})


@case(F32)
def shapes_into(g):
    x = g(4, 6)

    def op(x):
        def room(*sizes):
            return torch.empty(sizes, device=x.device)

        return (
            torch.ops.npu.npu_transpose.out(x, [1, 0], out=room(6, 4)),
            torch.ops.npu.npu_reshape.out(x, [3, 8], out=room(3, 8)),
            torch.ops.npu.npu_broadcast.out(x, [2, 4, 6], out=room(2, 4, 6)),
            torch.ops.npu.npu_slice.out(x, [1, 2], [2, -1], out=room(2, 4)),
            torch.ops.npu._npu_format_cast.aclnn(x, 29, 1),
            torch.ops.npu._npu_format_cast.input_dtype(x, 29, 1, 1),
        )

    want = (x.t().contiguous(), x.view(3, 8), x.expand(2, 4, 6).contiguous(), x[1:3, 2:].contiguous(), x, x)
    return Call(op, (x,), want=want)


@case(F32)
def slices(g):
    x, c, d = g(4, 5, 6), g(2, 20, 1, 3, 2), g(2, 10, 1, 3, 2)

    def op(x, c, d):
        return (
            torch_npu.npu_indexing(x, [1, 0, 2], [4, 3, 6], [1, 2, 3]),
            torch_npu.npu_indexing(x, [1, -2, 0], [2, 0, 1], [1, 1, 2], 0, 6, 0, 0, 1),
            torch.ops.npu.npu_indexing.out(x, [0], [2], [1], out=torch.empty(2, 5, 6, device=x.device)),
            torch_npu.npu_pad(x, [1, 0, 0, 2, 3, 1]),
            torch_npu.npu_stride_add(c, d, 4, 0, 1),
        )

    added = pad(d, (0, 0, 0, 0, 0, 0, 0, 6)) + c[:, 4:]
    want = (
        x[1:4, 0:3:2, 2:6:3].contiguous(), x[1, -2:, 0::2].contiguous(), x[:2], pad(x, (3, 1, 0, 2, 1, 0)), added,
    )  # fmt: skip
    return Call(op, (x, c, d), want=want)


@case(F32)
def choices(g):
    x, index, rows, grad = g(5, 6), g.ints(0, 5, 2, 3), g(4, 6), g(2, 3, 6)
    where = g.ints(0, 5, 4)

    def op(x, index, rows, grad, where):
        added = torch_npu._npu_index_add_(x.clone(), where, rows, alpha=2)
        return (
            *torch_npu.npu_max(x, 1), *torch_npu.npu_min(x, 0, True), torch_npu.npu_sort_v2(x, 0, True),
            torch.ops.npu.npu_sort_v2.out(x, out=torch.empty_like(x)), torch_npu.npu_gather_sparse_index(x, index),
            torch_npu.npu_gather_sparse_index_backward(grad, x.shape, index),
            torch_npu._npu_index_add(x, where, rows, alpha=2), added,
        )  # fmt: skip

    most, least = x.max(1), x.min(0, keepdim=True)
    added = x.index_add(0, where.long(), rows, alpha=2)
    want = (
        most.values, most.indices.int(), least.values, least.indices.int(), x.sort(0, True).values, x.sort(1).values,
        x[index.long()], torch.zeros(5, 6).index_add(0, index.long().view(-1), grad.view(-1, 6)), added, added,
    )  # fmt: skip
    return Call(op, (x, index, rows, grad, where), want=want)


@case(F32)
def marks(g):
    classes, x, y = g.ints(0, 4, 2, 3), g(3, 8), g(5, 3, 4)
    start = torch.tensor([[0, 2, 1], [5, 6, 7]], dtype=torch.int32)
    end = torch.tensor([[2, 5, 1], [8, 7, 8]], dtype=torch.int32)
    value, first, last = g(2), torch.tensor([[1, 4]], dtype=torch.int32), torch.tensor([[2, 5]], dtype=torch.int32)

    def op(classes, x, y, start, end, value, first, last):
        return (
            torch_npu.npu_one_hot(classes, depth=6, on_value=2, off_value=-1),
            torch_npu.npu_masked_fill_range(x, start, end, value),
            torch_npu.npu_masked_fill_range(y, first, last, value[:1], 0),
        )

    hot = torch.nn.functional.one_hot(classes.long(), 6).float() * 3 - 1
    filled, rows = x.clone(), y.clone()
    for number in range(2):
        for row in range(3):
            filled[row, start[number, row] : end[number, row]] = value[number]
    rows[1], rows[4] = value[0], value[0]
    return Call(op, (classes, x, y, start, end, value, first, last), want=(hot, filled, rows))


@case(F32)
def scattered(g):
    x, index, values = g(3, 4), g.ints(0, 4, 3), g(3)
    tensors, places, updates = [g(2, 6, 3), g(2, 6, 3)], torch.tensor([1, 4], dtype=torch.int32), g(2, 2, 1, 3)
    mask = torch.tensor([1, 1], dtype=torch.uint8)

    def op(x, index, values, tensors, places, updates, mask):
        whole = torch_npu.npu_scatter(x, index, values, 1)
        lists = torch_npu.npu_scatter_list(tensors, places, updates, mask)
        torch_npu.npu_scatter_list_(tensors, places, updates, mask)
        return whole, *lists

    want = x.clone()
    for row in range(3):
        want[row, index[row]] = values[row]
    changed = [tensor.clone() for tensor in tensors]
    for number in range(2):
        changed[number][:, places[number]] = updates[number][:, 0]
    args = (x, index, values, tensors, places, updates, mask)
    return Call(op, args, want=(want, *changed))


@case(F32, HALF)
def signs(g):
    x = g(21)

    def op(x):
        packed = torch_npu.npu_sign_bits_pack(x, 3)
        return packed, torch_npu.npu_sign_bits_unpack(packed.view(-1), 2, x.dtype)

    flags = (pad((x >= 0).int(), (0, 3))).view(3, 8)
    packed = (flags * 2 ** torch.arange(8)).sum(1).to(torch.uint8)
    return Call(op, (x,), want=(packed.view(3, 1), (flags * 2 - 1).view(2, 12).to(x.dtype)))


@case(F32)
def normalized(g):
    x, lengths = g(2, 3, 6), g.ints(3, 7, 2)

    def op(x, lengths):
        torch_npu.npu_prefetch(x, None, 1024)
        return torch_npu.npu_normalize_batch(x, lengths), torch_npu.npu_normalize_batch(x, lengths, 1)

    rows, wholes = torch.empty_like(x), torch.empty_like(x)
    for number, length in enumerate(lengths.tolist()):
        known = x[number, :, :length]
        rows[number] = (x[number] - known.mean(1, keepdim=True)) / (known.std(1, keepdim=True) + 1e-5)
        wholes[number] = (x[number] - known.mean()) / (known.std() + 1e-5)
    return Call(op, (x, lengths), want=(rows, wholes))


# ---- Names ----


@pytest.mark.parametrize("name", RANK_A)
def test_rank_a_is_there(name):
    """Callable under the names of the published package, and not refused."""
    space, _, short = name.rpartition(".")
    packet = getattr(getattr(torch.ops, space or "npu"), short)
    assert callable(packet)
    assert getattr(torch_npu, short, None) is packet or getattr(torch_npu.atb, short) is packet
    assert torch_npu._ops.NAMES[space or "npu", short] == ("A", True)


def test_rank_a_is_tested():
    """By a case; formats and workspaces further down."""
    for noun in ("attention", "cache", "moe", "norm", "quantization"):
        importlib.import_module(f"test_npu_ops_{noun}")
    operators = [build(Source(1, dtype)).op for build, dtype in ALL_CASES.values()]
    used = {str(getattr(operator, "overloadpacket", operator)).removeprefix("npu.") for operator in operators}
    apart = {name for name in RANK_A if name.endswith("workspace")} | {"get_npu_format"}
    assert set(RANK_A) - apart - used == set()


def test_others_are_refused_by_name():
    """With the reason and what to call instead."""
    names = torch_npu._ops.NAMES.items()
    missing = {name for (_, name), (rank, there) in names if rank == "B" and not there}
    assert set(torch_npu._ops.refused.REASONS) == missing
    x = torch.zeros(2, 2)
    for call in (
        lambda: torch_npu.npu_grid_assign_positive(*[x.npu()] * 7, 1, 0.5, 0.5, True),
        lambda: torch.ops.npu.npu_rotated_overlaps(x, x),
        lambda: torch.ops.npu.npu_rotated_overlaps(x.to("meta"), x),
    ):
        with pytest.raises(NotImplementedError, match="npu::npu_.*Reprise does not have this operator yet: no formula"):
            call()
    with pytest.raises(NotImplementedError, match="use torch.nn.MultiheadAttention"):
        torch.ops.npu.npu_fused_attention_qkv_grad(*[x] * 8)


def test_documented_counts():
    """docs/pytorch.md says how many names of each rank there are."""
    text = (pathlib.Path(__file__).parents[2] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([ABC]): [^|]*\| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    ranks = list(torch_npu._ops.NAMES.values())
    by_rank = {rank: [there for other, there in ranks if other == rank] for rank in "ABC"}
    counted = [(rank, len(there), sum(there)) for rank, there in by_rank.items()]
    assert [(rank, int(names), int(there)) for rank, names, there in rows] == counted


def test_a_derivative_is_not_dropped_in_silence():
    """What has none says so instead of leaving gradients out."""
    x, gamma = torch.ones(2, 8, device="npu", requires_grad=True), torch.ones(8, device="npu")
    with pytest.raises(RuntimeError, match="npu_add_rms_norm"):
        torch_npu.npu_add_rms_norm(x, x, gamma)[2].sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y = torch_npu.npu_rms_norm(x, gamma)[0].sum()
        y.backward()
        y.backward()

# ---- Errors, compilation ----


def test_wrong_calls():
    x, w = torch.ones(4, 8, device="npu"), torch.ones(8, device="npu")
    i = torch.ones(4, 8, device="npu", dtype=torch.int8)
    page, table = torch.zeros(2, 4, 2, 8, device="npu"), torch.zeros(1, 1, device="npu", dtype=torch.int32)
    wrong = [
        (lambda: torch_npu.npu_rms_norm(x, w[:3]), "gamma has shape"),
        (lambda: torch_npu.npu_rms_norm(x.int(), w), "npu_rms_norm: .*int32"),
        (lambda: torch_npu.npu_rms_norm(x, w.cpu()), "same device"),
        (lambda: torch_npu.npu_swiglu(x[:, :7]), "no halves"),
        (lambda: torch_npu.npu_rotary_mul(x, x, x, "third"), "it does not know 'third', but half"),
        (lambda: torch_npu.npu_fusion_attention(x, x, x, 2, "ABC"), "input_layout is 'ABC'"),
        (lambda: torch_npu.npu_fusion_attention(x[None], x[None], x[None], 3, "BSH"), "3 heads do not divide"),
        (lambda: torch_npu.npu_fusion_attention(*[x.view(4, 2, 4)] * 3, 2, "TND"), "needs actual_seq_qlen"),
        (lambda: torch_npu.npu_quant_matmul(x, i.t(), w), "x1 has type torch.float32"),
        (lambda: torch_npu.npu_quant_matmul(i, i, w), "no product"),
        (lambda: torch_npu.npu_quant_matmul(i, i.t(), w[:3]), "scale has shape"),
        (lambda: torch_npu.npu_moe_gating_top_k(x, 9), "k is 9"),
        (lambda: torch_npu.npu_grouped_matmul_swiglu_quant(i, i.view(1, 4, 8), page, w, w), "no product"),
        (lambda: torch_npu.npu_dynamic_quant(x, dst_type=torch.float8_e4m3fn), "float8_e4m3fn.*not supported"),
        (lambda: torch_npu.npu_quant_matmul(i, i.t(), w, x1_dtype=torch_npu.hifloat8), "hifloat8.*not supported"),
        (lambda: torch_npu._npu_reshape_and_cache(page, page, page, page, table), "takes no rows|rows of"),
        (
            lambda: torch_npu._npu_paged_attention(x.view(2, 2, 8), page, page, 2, 2, 1.0, table, [1], x),
            "context_lens|_npu_paged_attention",
        ),
        (lambda: torch_npu.npu_format_cast(x, 77), "acl_format is 77"),
    ]
    for call, text in wrong:
        with pytest.raises((RuntimeError, NotImplementedError), match=text):
            call()
        assert torch.equal(x.cpu(), torch.ones(4, 8))


def test_an_index_out_of_range_is_reported():
    query = torch.ones(2, 1, 4, device="npu")
    state = torch.zeros(3, 1, 4, 4, device="npu")
    places = torch.tensor([0, 7], dtype=torch.int32, device="npu")
    lengths = torch.tensor([1, 1], dtype=torch.int32, device="npu")
    torch_npu.npu_recurrent_gated_delta_rule(
        query, query, query, state, actual_seq_lengths=lengths, ssm_state_indices=places
    )
    with pytest.raises(RuntimeError, match="state 7 is wanted of 3"):
        torch.npu.synchronize()


def test_compiled():
    def block(x, gamma, cos, sin):
        y = torch_npu.npu_rms_norm(x, gamma)[0]
        y = torch_npu.npu_rotary_mul(y.view(2, 5, 2, 8), cos, sin).flatten(2)
        return torch_npu.npu_fusion_attention(y, y, y, 2, "BSH", scale=0.3)[0].sum()

    source = Source(9, F32)
    tensors = [source(2, 5, 16), source(16), source(1, 5, 1, 8), source(1, 5, 1, 8)]
    results = []
    for function in (block, torch.compile(block, backend="aot_eager", fullgraph=True)):
        leaves = [tensor.npu().requires_grad_() for tensor in tensors]
        value = function(*leaves)
        value.backward()
        results.append([value, *(leaf.grad for leaf in leaves)])
    for eager, compiled in zip(*results):
        torch.testing.assert_close(compiled, eager)


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


# ---- Tasks ----

# Cases whose call is one operator of the device, and so one task of a graph; with the most tasks that such an operator
# is cut into where it takes several steps.
ONE_OPERATOR = {
    "attention": "prompt=1 fused_infer=1 flash_unpad=1 paged=1 attention_update=1 recurrent_delta=1 latent_plain=1",
    "cache": "reshape_and_cache=2 reshape_and_cache_siso=1 scatter_pa=2 scatter_pa_one=1 gather_pa=2 "
    "gather_pa_offsets=2 kv_rmsnorm=6 kv_rmsnorm_paged=6",
    "moe": "gating_softmax=1 gating_sigmoid=1 gating_plain=1 expert_tokens=1 init_routing=2 init_routing_v2=2 "
    "init_routing_v2_quant=2 init_routing_v2_capacity=2 finalize_routing=1 finalize_routing_rows=1 token_permute=2 "
    "token_unpermute=1 top_k_top_p=1 unpermute_grad=2",
    "norm": "rms=1 add_rms=1 add_rms_quant=1 add_rms_quant_twice=1 add_rms_dynamic_quant=1 "
    "add_rms_dynamic_quant_once=1 swiglu=1 clipped_swiglu=1 rotary_mul=1 interleave_rope=1 deep_norm=1 mrope=2",
    "quantization": "dynamic_quant=1 int4pack=1 quant_matmul=2 quant_matmul_int8=2 quant_matmul_deep=1 weight_quant=1 "
    "transpose_bmm=1 transpose_bmm_plain=1 grouped=1 grouped_quant=2",
}


@pytest.mark.parametrize("noun", ONE_OPERATOR)
def test_one_operator_is_one_launch(noun, tmp_path):
    module = importlib.import_module(f"test_npu_ops_{noun}")
    builds = {build.__name__: (build, dtype) for build, dtype in module.case.values()}
    for word in ONE_OPERATOR[noun].split():
        name, most = word.split("=")
        build, dtype = builds[name]
        call = build(Source(1, dtype))
        args, kwargs = (mapped(each, lambda tensor: tensor.npu()) for each in (call.args, call.kwargs))
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            call.op(*args, **kwargs)
        path = tmp_path / f"{name}.json"
        graph.debug_dump(str(path))
        events = [event for event in json.loads(path.read_text(encoding="utf-8")) if event["ph"] == "X"]
        assert 0 < len(events) <= int(most), (name, [event["name"] for event in events])
        assert len({event["name"] for event in events}) == 1, (name, [event["name"] for event in events])
