# SPDX-License-Identifier: Apache-2.0
"""``import torch_npu.contrib.lightning``: Lightning knows the accelerator "npu", and takes it for "auto".

    trainer = lightning.Trainer(accelerator="npu", devices=1)

Works with the package ``lightning`` and with ``pytorch_lightning``, whichever are installed.
"""
import importlib
import importlib.util

import torch
from torch_npu._errors import refused


def _accelerator_of(package):
    base = importlib.import_module(f"{package}.accelerators").Accelerator

    class NPUAccelerator(base):
        """The device npu for Lightning."""

        def setup_device(self, device):
            if device.type != "npu":
                raise refused(ValueError(f"the accelerator npu takes devices of npu, not {device}"))
            torch.npu.set_device(device)

        def setup(self, trainer):
            torch.npu.empty_cache()

        def get_device_stats(self, device):
            return torch.npu.memory_stats(device)

        def teardown(self):
            torch.npu.empty_cache()

        @staticmethod
        def parse_devices(devices):
            """The indices of "auto", a number, "0,1" or a list."""
            count = torch.npu.device_count()
            if devices in ("auto", -1, "-1"):
                return list(range(count))
            if isinstance(devices, str):
                parts = [int(part) for part in devices.split(",") if part.strip()]
                devices = parts if "," in devices else parts[0]
            chosen = list(range(devices)) if isinstance(devices, int) else list(devices)
            wrong = [index for index in chosen if not 0 <= index < count]
            if wrong or not chosen:
                raise refused(
                    ValueError(f"devices={devices!r} asks for npu devices that are not there: there are {count}")
                )
            return chosen

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device("npu", index) for index in devices]

        @staticmethod
        def auto_device_count():
            return torch.npu.device_count()

        @staticmethod
        def is_available():
            return torch.npu.is_available()

        @staticmethod
        def name():
            return "npu"

        @classmethod
        def register_accelerators(cls, accelerator_registry):
            accelerator_registry.register("npu", cls, description=cls.__name__, override=True)

    return NPUAccelerator


def _patch_connector(connector, single_device, mixed_precision, kind):
    """Lightning decides about devices of accelerators that it does not know as if they were the CPU, or cuda."""
    choose, precision = connector._choose_strategy, connector._check_and_init_precision

    def _is_ours(self):
        return self._accelerator_flag == "npu" or isinstance(self._accelerator_flag, kind)

    def _choose_strategy(self):
        if _is_ours(self) and len(self._parallel_devices) == 1 and self._num_nodes_flag == 1:
            return single_device(device=self._parallel_devices[0])
        return choose(self)

    def _check_and_init_precision(self):
        made = precision(self)
        given = getattr(self, "_precision_plugin_flag", None) or getattr(self, "_precision_instance", None)
        if _is_ours(self) and isinstance(made, mixed_precision) and made is not given:
            return type(made)(made.precision, "npu")
        return made

    connector._choose_strategy = _choose_strategy
    connector._check_and_init_precision = _check_and_init_precision
    connector._choose_auto_accelerator = staticmethod(lambda *_: "npu")


def _register():
    """Makes the accelerator known to each of the packages that is installed; returns that of the one that is used most."""
    made = {}
    for package, connector in (
        ("pytorch_lightning", "trainer.connectors.accelerator_connector._AcceleratorConnector"),
        ("lightning.fabric", "connector._Connector"),
        ("lightning.pytorch", "trainer.connectors.accelerator_connector._AcceleratorConnector"),
    ):
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            continue
        accelerators = importlib.import_module(f"{package}.accelerators")
        strategies = importlib.import_module(f"{package}.strategies")
        precisions = importlib.import_module(f"{package}.plugins")
        kind = _accelerator_of(package)
        registry = getattr(accelerators, "AcceleratorRegistry", None) or accelerators.ACCELERATOR_REGISTRY
        kind.register_accelerators(registry)
        module, _, name = connector.rpartition(".")
        owner = getattr(importlib.import_module(f"{package}.{module}"), name)
        mixed = getattr(precisions, "MixedPrecision", None) or precisions.precision.MixedPrecision
        _patch_connector(owner, strategies.SingleDeviceStrategy, mixed, kind)
        made[package] = kind
    if not made:
        raise ImportError("torch_npu.contrib.lightning needs the package lightning: pip install lightning")
    return made.get("lightning.pytorch") or made.get("pytorch_lightning") or made["lightning.fabric"]


NPUAccelerator = _register()
