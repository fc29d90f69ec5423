# SPDX-License-Identifier: Apache-2.0
"""How the backend gets into torch: import, names, generated members, processes without a device call."""
import json

import pytest
import torch
from support import output_of


@pytest.fixture(scope="session")  # once, in whatever order tests run
def fresh():
    """What an interpreter sees that imports torch alone."""
    return json.loads(
        output_of(
            """
            import json, os, torch
            seen = {}
            seen["module"] = hasattr(torch, "npu")
            seen["device"] = str(torch.device("npu"))
            seen["autoload"] = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
            seen["name"] = torch._C._get_privateuse1_backend_name()
            seen["accelerator"] = str(torch.accelerator.current_accelerator())
            seen["accelerator_available"] = torch.accelerator.is_available()
            seen["available"] = torch.npu.is_available()
            seen["count"] = torch.npu.device_count()
            seen["counts"] = []
            for visible in ("0", "", "1,0", "0,x,1", "0,1", "1", "0,7,1"):
                os.environ["ASCEND_RT_VISIBLE_DEVICES"] = visible
                seen["counts"].append(torch.npu.device_count())
            os.environ["ASCEND_RT_VISIBLE_DEVICES"] = ""
            try:
                torch.npu.init()
            except RuntimeError as error:
                seen["none"] = str(error)
            del os.environ["ASCEND_RT_VISIBLE_DEVICES"]
            seen["initialized"] = torch.npu.is_initialized()
            torch.npu.manual_seed_all(7)
            seen["initialized_after_seed"] = torch.npu.is_initialized()
            early = torch.rand(4, device="npu").tolist()
            seen["initialized_after_draw"] = torch.npu.is_initialized()
            torch.npu.manual_seed_all(7)
            seen["draws_agree"] = early == torch.rand(4, device="npu").tolist()
            os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "0"
            seen["count_after_init"] = torch.npu.device_count()
            print(json.dumps(seen))
            """,
            TORCH_DEVICE_BACKEND_AUTOLOAD=None,
            ASCEND_RT_VISIBLE_DEVICES=None,
            REPRISE_DEVICES="2",
            fresh=True,
        )
    )


def test_TN_001_importing_torch_is_enough(fresh):
    assert fresh["module"] and fresh["device"] == "npu"
    assert not fresh["initialized"]
    assert fresh["autoload"] is None


def test_TN_002_the_package_may_be_imported_first():
    seen = output_of(
        """
        import torch_npu
        import torch
        assert torch.npu is torch_npu.npu
        import threading
        calls = []
        torch.npu._lazy_call(lambda: calls.append(torch.npu.current_device()))
        start = threading.Barrier(4)
        made = []
        def first_use():
            start.wait()
            made.append(torch.ones(2, device="npu").sum().item())
        threads = [threading.Thread(target=first_use) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert made == [2.0] * 4, made
        assert calls == [0], calls
        print("once")
        """,
        fresh=True,
    )
    assert seen == "once"


def test_TN_003_autoload_can_be_switched_off():
    seen = output_of(
        """
        import os, torch
        assert not hasattr(torch, "npu")
        assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
        real = torch.accelerator.current_accelerator
        torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        try:
            import torch_npu
        except RuntimeError as error:
            assert "another accelerator" in str(error), error
        else:
            raise SystemExit("loaded beside another accelerator")
        torch.accelerator.current_accelerator = real
        import torch_npu
        assert torch.npu is torch_npu.npu
        assert torch.npu.device_count() == 1, torch.npu.device_count()
        print(os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"])
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        ASCEND_RT_VISIBLE_DEVICES="0,x,1",
        REPRISE_DEVICES="2",
        fresh=True,
    )
    assert seen == "0"


def test_TN_004_torch_knows_the_backend(fresh):
    assert fresh["name"] == "npu"
    assert fresh["accelerator"] == "npu"
    assert fresh["accelerator_available"]


def test_TN_005_tensors_and_modules_move():
    here = torch.arange(4.0)
    there = here.npu()
    assert there.is_npu and not here.is_npu
    assert there.device == torch.device("npu", torch.npu.current_device())
    assert there.npu() is there
    assert here.to("npu").is_npu and torch.empty(2, device="npu").is_npu
    assert torch.equal(there.cpu(), here)
    module = torch.nn.Linear(2, 2).npu()
    assert module.weight.is_npu and module.to("npu").bias.is_npu


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_TN_006_packed_sequences_and_storages_move():
    rows = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0])]
    packed = torch.nn.utils.rnn.pack_sequence(rows)
    moved = packed.npu()
    assert moved.is_npu and not packed.is_npu
    assert torch.equal(moved.data.cpu(), packed.data)
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    there = storage.npu()
    assert there.is_npu and list(there.cpu()) == [0, 1, 2, 3]
    quantized = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8).storage()
    with pytest.raises(RuntimeError):
        quantized.npu()


def test_TN_007_questions_do_not_initialise(fresh):
    assert fresh["available"] and fresh["count"] == 2
    assert not fresh["initialized"] and not fresh["initialized_after_seed"]
    assert fresh["initialized_after_draw"]


def test_TN_008_visible_devices(fresh):
    assert fresh["counts"] == [1, 0, 0, 1, 2, 1, 1]
    assert "ASCEND_RT_VISIBLE_DEVICES" in fresh["none"]


def test_TN_009_the_count_is_settled_at_the_first_use(fresh):
    assert fresh["counts"][0] == 1 and fresh["counts"][1] == 0  # asked anew before
    assert fresh["count_after_init"] == 2


def test_TN_010_lazy_parameters_move():
    assert torch.nn.parameter.UninitializedParameter().npu().device.type == "npu"


def test_TN_012_seeds_wait_for_the_first_use(fresh):
    assert fresh["draws_agree"]


def test_dump_writes_what_operators_read_and_write(tmp_path):
    np = pytest.importorskip("numpy")
    config = tmp_path / "dump.json"
    config.write_text(json.dumps({"dump": {"dump_path": str(tmp_path / "out"), "dump_mode": "all"}}))
    torch.npu.init_dump()
    try:
        with pytest.warns(UserWarning, match="nothing is dumped"):
            torch.npu.set_dump(str(tmp_path / "no such file"))
        torch.npu.set_dump(str(config))
        a = torch.arange(6.0, device="npu").reshape(2, 3)
        b = torch.mm(a, a.t())
    finally:
        torch.npu.finalize_dump()
    arrays = list((tmp_path / "out").rglob("*.output.0.npy"))
    matches = [path for path in arrays if np.array_equal(np.load(path), b.cpu().numpy())]
    assert matches, [path.name for path in arrays]
    inputs = np.load(str(matches[0]).replace("output.0", "input.0"))
    assert np.array_equal(inputs, a.cpu().numpy())
    with pytest.raises(RuntimeError, match="dump is not initialised"):
        torch.npu.finalize_dump()


def test_every_name_is_there_and_harmless():
    npu = torch.npu
    for name, arguments, result in (
        ("set_option", ({"a": "b"},), None),
        ("set_compile_mode", (False,), None),
        ("is_jit_compile_false", (), True),
        ("set_aoe", ("/tmp",), None),
        ("set_mm_bmm_format_nd", (True,), None),
        ("get_mm_bmm_format_nd", (), True),
        ("get_npu_overflow_flag", (), False),
        ("clear_npu_overflow_flag", (), None),
        ("check_uce_in_memory", (0,), 0),
        ("enable_deterministic_with_backward", (), None),
        ("disable_deterministic_with_backward", (), None),
        ("set_deterministic_level", (1,), None),
        ("use_compatible_impl", (False,), None),
        ("are_compatible_impl_enabled", (), False),
        ("ipc_collect", (), None),
        ("set_op_timeout_ms", (100,), None),
        ("is_bf16_supported", (), True),
    ):
        assert getattr(npu, name)(*arguments) == result, name
    with pytest.warns(UserWarning):
        assert npu.current_blas_handle() is None
    with pytest.raises(RuntimeError, match="not supported"):
        npu.obfuscation_calculate(None)
    with pytest.raises(ValueError):
        npu.set_deterministic_level(9)
    npu.set_device_limit(0, 3)
    assert npu.get_device_limit(0)["cube_core_num"] == 3
    stream = npu.Stream()
    npu.set_stream_limit(stream, vector_num=5)
    assert npu.get_stream_limit(stream) == {"cube_core_num": 3, "vector_core_num": 5}
    npu.reset_stream_limit(stream)
    assert npu.get_stream_limit(stream)["vector_core_num"] != 5
    npu.set_device_limit(0, npu.get_device_properties(0).cube_core_num)
    old = npu.FloatTensor(2, 3)
    assert old.shape == (2, 3) and isinstance(old, npu.FloatTensor) and not isinstance(old, npu.HalfTensor)
    assert npu.LongTensor([1, 2]).tolist() == [1, 2]
    assert npu.IntStorage(3).device.type == "npu"
    assert npu.mstx.mark("here") is None and npu.CubeMathType.KEEP_DTYPE == 0
    npu.matmul.allow_hf32 = npu.conv.allow_hf32 = False
    assert issubclass(npu.OutOfMemoryError, RuntimeError)
    from torch_npu.utils._error_code import ErrCode, pta_error

    assert "refused" + pta_error(ErrCode.PARAM) == "refused"
    before = npu.get_autocast_dtype()
    npu.set_autocast_dtype(torch.bfloat16)
    assert npu.get_autocast_dtype() == torch.bfloat16 and not npu.is_autocast_enabled()
    npu.set_autocast_dtype(before)
