# SPDX-License-Identifier: Apache-2.0
"""What the package relies on beyond the names: items 1 to 10 of its specification, a group of tests each."""

import ctypes
import json
import threading

import pytest
import torch
import torch.nn.functional as F
import torch_npu

ACL = ctypes.CDLL("libascendcl.so")
SUCCESS = 0


# Item 1: the device of the configuration is current on threads that set none.


def test_default_device(run, tmp_path):
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"defaultDevice": {"default_device": "0"}}))
    assert run(f"""
        import ctypes
        acl = ctypes.CDLL("libascendcl.so")
        stream = ctypes.c_void_p()
        print(acl.aclInit(b"{config}"), acl.aclrtCreateStream(ctypes.byref(stream)))
    """) == "0 0"


def test_threads_that_set_no_device():
    sums = []

    def work():
        with torch.npu.stream(torch.npu.Stream()):
            sums.append((torch.ones(3).npu() + 1).sum().item())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert sums == [6.0]


# Item 2: expandable segments reserve addresses with flags 1 and no context.


def test_expandable_segments(run):
    assert run("""
        import torch, torch_npu
        x = torch.ones(1000, 1000).npu()
        y = torch.ones(3000, 1000).npu()
        del x
        torch.npu.empty_cache()
        print(int((y + y).sum().item()))
    """, PYTORCH_NPU_ALLOC_CONF="expandable_segments:True") == "6000000"


def test_reserving_addresses_needs_no_context(run):
    assert run("""
        import ctypes
        acl = ctypes.CDLL("libascendcl.so")
        place = ctypes.c_void_p()
        print(acl.aclInit(None), acl.aclrtReserveMemAddress(ctypes.byref(place), ctypes.c_size_t(2 << 20),
              ctypes.c_size_t(0), None, ctypes.c_uint64(1)), place.value is not None)
    """) == "0 0 True"


# Item 3: memory of aclrtMallocHost can be registered once more; pinning takes unaligned pointers.


MAPPED, PINNED = 2, 0x10000000  # ACL_HOST_REG_MAPPED, ACL_HOST_REG_PINNED


@pytest.mark.parametrize("version", [1, 2])
def test_registers_pinned_memory(version):
    place, mapped = ctypes.c_void_p(), ctypes.c_void_p()
    size = ctypes.c_uint64(8192)
    assert ACL.aclrtMallocHost(ctypes.byref(place), size) == SUCCESS
    if version == 1:
        assert ACL.aclrtHostRegister(place, size, 0, ctypes.byref(mapped)) == SUCCESS
        assert mapped.value == place.value
    else:
        assert ACL.aclrtHostRegisterV2(place, size, ctypes.c_uint32(MAPPED)) == SUCCESS
    assert ACL.aclrtHostUnregister(place) == SUCCESS
    assert ACL.aclrtFreeHost(place) == SUCCESS


def test_pins_from_within_a_page():
    memory = (ctypes.c_char * 16384)()
    place = ctypes.c_void_p(ctypes.addressof(memory) + 4)
    assert ACL.aclrtHostRegisterV2(place, ctypes.c_uint64(100), ctypes.c_uint32(PINNED)) == SUCCESS
    assert ACL.aclrtHostUnregister(place) == SUCCESS


def test_pinned_tensors():
    x = torch.arange(10.0).pin_memory()
    assert x.is_pinned()
    y = x.npu(non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(y.cpu(), x)


# Item 4: fused attention.


def heads(positions):
    torch.manual_seed(positions)
    return torch.randn(2, 4, positions, 16).half()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_lengths_of_a_query_with_one_position(version):
    q, k, v = heads(1), heads(32), heads(32)
    wanted = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), scale=0.25)
    if version == "v1":
        out, _ = torch_npu.npu_fused_infer_attention_score(
            q.npu(), k.npu(), v.npu(), num_heads=4, scale=0.25, input_layout="BNSD", actual_seq_lengths=[5, 7])
    else:
        out, _ = torch_npu.npu_fused_infer_attention_score_v2(
            q.npu(), k.npu(), v.npu(), num_query_heads=4, softmax_scale=0.25, input_layout="BNSD",
            actual_seq_qlen=[5, 7])
    torch.testing.assert_close(out.cpu().float(), wanted, rtol=2e-3, atol=2e-3)


def test_sums_of_the_softmax_are_ignored_while_their_flag_is_false():
    q, k, v = heads(3).npu(), heads(32).npu(), heads(32).npu()
    without, _ = torch_npu.npu_fused_infer_attention_score(q, k, v, num_heads=4, scale=0.25, input_layout="BNSD")
    beside, lse = torch_npu.npu_fused_infer_attention_score(
        q, k, v, num_heads=4, scale=0.25, input_layout="BNSD", softmax_lse_flag=True)
    assert torch.equal(without.cpu(), beside.cpu())
    assert lse.shape[:3] == (2, 4, 3)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_largest_workspace(version):
    q, k, v = heads(1).npu(), heads(32).npu(), heads(32).npu()
    if version == "v1":
        workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
            q, k, v, num_heads=4, scale=0.25, input_layout="BNSD")
    else:
        workspace = torch_npu._npu_fused_infer_attention_score_v2_get_max_workspace(
            q, k, v, num_query_heads=4, softmax_scale=0.25, input_layout="BNSD")
    assert workspace.device.type == "npu"


# Item 5: an undefined index is an empty tensor.


def test_indexing_with_gaps():
    c = torch.arange(24.0).reshape(2, 3, 4)
    x = c.npu()
    i, j = torch.tensor([0, 2]), torch.tensor([1, 3])
    assert torch.equal(x[:, i.npu()].cpu(), c[:, i])
    assert torch.equal(x[:, :, j.npu()].cpu(), c[:, :, j])
    assert torch.equal(x[torch.tensor([0, 1]).npu(), :, j.npu()].cpu(), c[torch.tensor([0, 1]), :, j])
    assert torch.equal(x[(c > 5).npu()].cpu(), c[c > 5])
    x[:, i.npu()] = 1
    c[:, i] = 1
    assert torch.equal(x.cpu(), c)


# Item 6: a replay draws what the same eager calls would.

WEIGHTS = torch.rand(16, 100)
DRAWS = {
    "uniform": lambda: torch.empty(64, 32, device="npu").uniform_(),
    "normal": lambda: torch.empty(64, 32, device="npu").normal_(),
    "random": lambda: torch.empty(64, 32, device="npu").random_(),
    "randint": lambda: torch.randint(0, 1000, (64,), device="npu"),
    "dropout": lambda: F.dropout(torch.ones(64, 32, device="npu"), 0.5),
    "multinomial": lambda: torch.multinomial(WEIGHTS.npu(), 4),
}


@pytest.mark.parametrize("name", DRAWS)
def test_replays_draw_like_eager_calls(name):
    if name == "multinomial":
        weights = WEIGHTS.npu()
        draw = lambda: torch.multinomial(weights, 4)  # noqa: E731: a capture copies nothing from the host
    else:
        draw = DRAWS[name]
    torch.npu.manual_seed(7)
    eager = [draw().cpu() for _ in range(3)]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = draw()
    torch.npu.manual_seed(7)
    for i, wanted in enumerate(eager):
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(out.cpu(), wanted), i
    assert not torch.equal(eager[0], eager[1])


# Item 7: scaled gradients; Adam with its state on the device.


def test_gradient_scaler():
    model = torch.nn.Linear(4, 4).npu()
    before = model.bias.detach().cpu().clone()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.npu.amp.GradScaler(init_scale=8.0)
    scaler.scale(model(torch.ones(2, 4).npu()).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(model.bias.detach().cpu(), before - 0.2)
    assert scaler.get_scale() == 8.0
    scaler.scale(model(torch.full((2, 4), float("inf")).npu()).sum()).backward()
    scaler.step(optimizer)  # skipped
    scaler.update()
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("options", [{}, {"foreach": True}])
def test_adam(options):
    torch.manual_seed(3)
    start = torch.randn(4, 4)
    weights = {}
    for device in ("cpu", "npu"):
        weight = torch.nn.Parameter(start.clone().to(device))
        optimizer = torch.optim.AdamW([weight], lr=0.1, **options)
        for _ in range(3):
            optimizer.zero_grad()
            (weight ** 2).sum().backward()
            optimizer.step()
        weights[device] = weight.detach().cpu()
    torch.testing.assert_close(weights["npu"], weights["cpu"], rtol=1e-5, atol=1e-6)


# Item 8: operators called by their type where the aclnn function is absent; the fractal format.


def test_a_type_that_is_absent_is_named(run):
    """The package calls an operator by its type where it does not find the function; the message says which one."""
    text = run("""
        import torch, torch_npu
        try:
            torch_npu.npu_sign_bits_pack(torch.ones(8).npu(), 1)
            torch.npu.synchronize()
        except RuntimeError as error:
            print(error)
    """, ASCEND_LAUNCH_BLOCKING="1")
    assert 'no operator has the type "SignBitsPack"' in text
    assert "use an aclnn function, or one of the " in text


def test_fractal_format(run):
    assert run("""
        import torch, torch_npu
        torch.npu.config.allow_internal_format = True
        w = torch.randn(32, 48).half()
        x = torch.randn(16, 32).half()
        nz = torch_npu.npu_format_cast(w.npu(), 29)
        print(torch_npu.get_npu_format(nz) == 29, torch.equal(torch_npu.npu_format_cast(nz, 2).cpu(), w),
              (torch.mm(x.npu(), nz).cpu().float() - x.float() @ w.float()).abs().max().item() < 0.05)
    """) == "True True True"


# Item 9: corners of single operators.


def test_nonzero_of_one_number():
    assert torch.nonzero(torch.tensor(1.0).npu()).shape == (1, 0)
    assert torch.nonzero(torch.tensor(0.0).npu()).shape == (0, 0)


def test_complex_of_two_parts():
    a, b = torch.randn(5), torch.randn(5)
    assert torch.equal(torch.complex(a.npu(), b.npu()).cpu(), torch.complex(a, b))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex32])
def test_copies_of_types_that_nothing_computes_with(dtype):
    x = torch.arange(16, dtype=torch.uint8).view(dtype)
    y = x.npu()
    z = torch.empty_like(y)
    z.copy_(y)
    assert torch.equal(z.cpu().view(torch.uint8), x.view(torch.uint8))
