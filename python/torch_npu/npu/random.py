# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the devices: the default generators, their seeds and states."""
import torch
from torch_npu import _C
from torch_npu.npu.device import _get_device_index, _lazy_call, _lazy_init, current_device, device_count, is_initialized

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

default_generators = ()


def _make_default_generators():
    """With the device: a capture would be too late to seed them."""
    global default_generators
    default_generators = tuple(_C._npu_defaultGenerator(index) for index in range(device_count()))
    torch.npu.default_generators = default_generators


_lazy_call(_make_default_generators)


def _generator_of(device):
    return default_generators[_get_device_index(device, optional=True)]


def get_rng_state(device="npu"):
    """The state of the device's default generator: 16 bytes, the seed and the offset."""
    _lazy_init()
    return _generator_of(device).get_state()


def get_rng_state_all():
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state, device="npu"):
    """Makes the device's default generator go on from a state that get_rng_state has returned."""
    state = new_state if is_initialized() else new_state.clone()  # it may change before it is needed
    _lazy_call(lambda: _generator_of(device).set_state(state))


def set_rng_state_all(new_states):
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed):
    """Seeds the default generator of the current device."""
    seed = int(seed)
    _lazy_call(lambda: default_generators[current_device()].manual_seed(seed))


def manual_seed_all(seed):
    """Seeds the default generators of all devices."""
    seed = int(seed)

    def seed_each():
        for generator in default_generators:
            generator.manual_seed(seed)

    _lazy_call(seed_each)


def seed():
    """Gives the default generator of the current device a seed that nobody can foresee."""
    _lazy_call(lambda: default_generators[current_device()].seed())


def seed_all():
    """Gives the default generators of all devices one seed that nobody can foresee."""

    def seed_each():
        fresh = default_generators[0].seed() if default_generators else 0
        for generator in default_generators[1:]:
            generator.manual_seed(fresh)

    _lazy_call(seed_each)


def initial_seed():
    """The seed of the current device's default generator."""
    _lazy_init()
    return default_generators[current_device()].initial_seed()


def _set_rng_state_offset(offset, device="npu"):
    """Sets the offset of the device's default generator, a multiple of 4; the seed stays."""
    _lazy_call(lambda: _generator_of(device).set_offset(offset))


def _get_rng_state_offset(device="npu"):
    _lazy_init()
    return _generator_of(device).get_offset()
