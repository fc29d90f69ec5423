# SPDX-License-Identifier: Apache-2.0
"""Inputs of captured graphs: what makes a call another graph's, what is copied in, what is read where it lies."""
import torch
import torch_npu
from torchair._acl_concrete_graph.weak import bare

_C = torch_npu._C

_FEW = 16  # so many numbers of a host tensor may belong to a key


class Inputs:
    def __init__(self, info, settings):
        self._info = info
        self._clones = settings.clone_input
        self._symbols = list(info.unupdated_sym_input_index)
        self._parameters = list(info.parameter_user_inputs)
        self._mutated = sorted(info.user_inputs_mapping[name] for name in info.mutated_user_inputs)
        self._tracks_parameters = bool(self._parameters) and not settings.frozen_parameter
        self._updated = {
            ruler[1]
            for arguments in info.ops_update_rulers.values()
            for ruler in arguments.values()
            if isinstance(ruler, tuple)
        }
        self._addresses = []  # of the parameters at the last call
        self._hash = ""
        self._texts = {}  # keys by what they are made of

    def begin(self, args):
        """Sorts the inputs, by those of the first call: their kinds are the same in all calls."""
        fixed = set(self._parameters) | set(self._mutated)
        self._plain, self._host, self._few = [], [], []
        for index, value in enumerate(args):
            if not isinstance(value, torch.Tensor) or index in self._updated:
                continue
            if value.device.type == "cpu":
                (self._few if value.numel() <= _FEW else self._host).append(index)
            elif index not in fixed:
                self._plain.append(index)
        self._floats = [index for index, value in enumerate(args) if isinstance(value, (float, bool))]

    @staticmethod
    def device(args):
        for value in args:
            if isinstance(value, torch.Tensor) and value.device.type == "npu":
                return value.device.index
        return torch.npu.current_device()

    def why_not(self, args):
        """Why no graph can be captured for such inputs."""
        if not self._host:
            return None
        return (
            f"input {self._host[0]} is a tensor of the host with {args[self._host[0]].numel()} elements, which a captured "
            "graph would not read again: move it to npu before the call"
        )

    # ---- Keys ----

    def key(self, args):
        symbols = tuple([self._symbol(args[index]) for index in self._symbols])
        host = tuple([(index, tuple(args[index].flatten().tolist())) for index in self._few]) if self._few else ()
        floats = tuple([args[index] for index in self._floats])
        if self._tracks_parameters:
            values = list(args)
            if not self._addresses or not _C._tensors_data_ptrs_at_indices_equal(
                values, self._addresses, self._parameters
            ):
                self._addresses = [
                    value.data_ptr() if isinstance(value, torch.Tensor) else 0 for value in values
                ]
                self._hash = str(hash(tuple(self._addresses[index] for index in self._parameters)))
        made_of = (symbols, host, floats, self._hash)
        text = self._texts.get(made_of)
        if text is None:
            text = self._texts[made_of] = self._text(*made_of)
        return text

    @staticmethod
    def _symbol(value):
        return tuple(value.shape) if isinstance(value, torch.Tensor) else value

    def _text(self, symbols, host, floats, addresses):
        parts = [list(each) if isinstance(each, tuple) else each for each in symbols]
        parts += [list(values) for _, values in host] + list(floats)
        text = str(parts) if parts else "no_updated_input"
        return text + addresses

    # ---- Addresses ----

    def mutated_addresses(self, args):
        return [args[index].data_ptr() for index in self._mutated]

    def are_mutated_at(self, addresses, args):
        if not self._mutated:
            return True
        return all(args[index].data_ptr() == address for index, address in zip(self._mutated, addresses))

    # ---- Memory of the graph's own ----

    def statics(self, args):
        """In a capture: what the captured function is called with."""
        if not self._clones:
            return list(args)
        made = list(args)
        with torch.inference_mode(False):
            for index in self._plain:
                made[index] = torch.empty_like(args[index], requires_grad=False)
        return made

    def places(self, statics):
        """Which inputs are copied in at replays, and where to. Places in the pool are not owned: the graph does."""
        places = [statics[index].detach() for index in self._plain]
        return tuple(self._plain), bare(places) if self._clones else places

    def outside_of(self, pool, args):
        """Inputs that lie in the memory of the pool, which is about to be overwritten, are copied first."""
        ranges = [
            (blocks[0]["ptr"], blocks[-1]["ptr"] + blocks[-1]["size"]) for blocks in pool.state().segments if blocks
        ]
        copied = list(args)
        for index in self._plain:
            address = args[index].data_ptr()
            if any(begin <= address < end for begin, end in ranges):
                copied[index] = args[index].clone()
        return copied

    def copy(self, record, args, pool=None):
        """Copies what the graph reads into its own memory. ``pool``: another graph has run there, so that inputs may lie
        where they are copied to. Returns the arguments, as they can be used behind that."""
        if pool is not None:
            args = self.outside_of(pool, args)
        sources = [args[index] for index in record.filled]
        if not self._clones:
            pairs = [(to, value) for to, value in zip(record.statics, sources) if to.data_ptr() != value.data_ptr()]
            for to, value in pairs:
                to.copy_(value)
        elif len(sources) > 1:
            torch._foreach_copy_(record.statics, sources)
        elif sources:
            record.statics[0].copy_(sources[0])
        return args
