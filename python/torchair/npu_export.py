# SPDX-License-Identifier: Apache-2.0
"""Models as graphs of the engine in files."""
import copy
import json
import os

import torch

from torchair._ge_concrete_graph import dtypes
from torchair._ge_concrete_graph.graph import set_shape
from torchair.configs.compiler_config import CompilerConfig
from torchair.core.utils import logger
from torchair.ge import attr as ge_attr

_LARGEST = 1848 * 2**20  # with more, weights go into files of their own


class ExportSuccess(Exception):
    """Ends the call that exports."""


def dynamo_export(*args, model, export_path="export_file", export_name="export", dynamic=False, config=None, **kwargs):
    """Writes ``export_path``/``export_name``.air, the graph of model(*args, **kwargs) with its weights, and dynamo.pbtxt."""
    from torchair.npu_fx_compiler import get_npu_backend

    name = os.path.basename(export_name)
    for path in (export_path, os.path.join(export_path, f"{name}.air")):
        if os.path.islink(path):
            logger.error("dynamo_export writes nothing: %s is a symbolic link", path)
            return
    os.makedirs(export_path, exist_ok=True)
    config = copy.deepcopy(config or CompilerConfig())
    config.export.export_mode = True
    config.export.export_path_dir = export_path
    config.export.export_name = name
    config.experimental_config.enable_ref_data = True
    tensors = [*model.named_parameters(), *model.named_buffers()] if isinstance(model, torch.nn.Module) else []
    config.export.weight_name = {_key(tensor): own for own, tensor in tensors}
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=get_npu_backend(compiler_config=config), dynamic=dynamic, fullgraph=True)
    try:
        with torch.no_grad():
            compiled(*args, **kwargs)
    except ExportSuccess:
        pass
    finally:
        torch._dynamo.reset()


def _key(tensor):
    return f"{tensor.data_ptr()}_{tuple(tensor.shape)}_{tuple(tensor.stride())}"


def _rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return torch.distributed.get_rank()
    return None


def export_graph(compiled, inputs):
    """With these inputs of the engine; ends with ExportSuccess."""
    graph, config = compiled.graph, compiled.config
    folder, name = config.export.export_path_dir.value, config.export.export_name.value
    weights = config.export.weight_name.raw
    ops = sorted((op for op in graph.op if op.type in ("Data", "RefData")), key=lambda op: op.attr["index"].i)
    known = [(op, tensor, weights[_key(tensor)]) for op, tensor in zip(ops, inputs)
             if op.type == "Data" and _key(tensor) in weights]
    total = len(graph.SerializeToString()) + sum(tensor.nbytes for _, tensor, _ in known)
    for op, tensor, own in known:
        if not tensor.is_contiguous():
            raise AssertionError(f"the weight {own} is not contiguous, so that it cannot be exported")
        if total > _LARGEST:
            _in_file(op, tensor, os.path.join(folder, own.replace(".", "_")))
        else:
            _as_constant(op, tensor)
    data = [op for op in ops if op.type in ("Data", "RefData")]
    for i, op in enumerate(data):
        op.attr["index"].i = i
    content = graph.SerializeToString()
    if len(content) > 2**31 - 1:
        raise RuntimeError(f"the graph has {len(content)} bytes, which exceed 2G limit")
    rank = _rank()
    with open(os.path.join(folder, f"{name}{'' if rank is None else rank}.air"), "wb") as file:
        file.write(content)
    own_folder = folder if rank is None else os.path.join(folder, f"rank_{rank}")
    os.makedirs(own_folder, exist_ok=True)
    from google.protobuf import text_format

    with open(os.path.join(own_folder, "dynamo.pbtxt"), "w") as file:
        file.write(text_format.MessageToString(graph.proto))
    if rank == 0 and config.export.experimental.auto_atc_config_generated:
        _describe_deployment(folder, name, groups_of(graph))
    raise ExportSuccess(folder)


def groups_of(graph):
    """Ranks of the groups of collectives, by the name that the graph has for them."""
    found = {name: list(ranks) for name, (_, ranks, _) in graph.groups.items()}
    for op in graph.op:
        name = op.attr["group"].s.decode() if "group" in op.attr else ""
        if name.startswith("tag=") and ";rank_list=" in name:
            found[name] = [int(each) for each in name.rpartition("=")[2].split(",")]
    return found


def _describe_deployment(folder, name, groups):
    """Files for the offline compiler: which model runs on which device, which ranks talk with each other."""
    if not groups:
        return
    ranks = range(torch.distributed.get_world_size())
    models = [f"{name}{rank}.air" for rank in ranks]
    relation = {
        "deploy_config": [{"submodel_name": model, "deploy_device_id_list": f"0:0:{rank}"} for rank, model in enumerate(models)],
        "model_name_to_instance_id": [{"model_name": model, "model_instance_id": rank} for rank, model in enumerate(models)],
        "comm_group": [{"group_name": group, "group_rank_list": str(members)} for group, members in groups.items()],
        "rank_table": [{"rank_id": rank, "model_instance_id": rank} for rank in ranks],
    }
    items = {"item_list": [{"item_id": rank} for rank in ranks], "node_id": 0, "is_local": True}
    numa = {"cluster": [{"cluster_nodes": [items]}]}
    for file_name, content in (("model_relation_config.json", relation), ("numa_config.json", numa)):
        with open(os.path.join(folder, file_name), "w") as file:
            json.dump(content, file, indent=2)


def _clear(op):
    del op.input_desc[:]
    op.attr.clear() if hasattr(op.attr, "clear") else None
    op.output_desc[0].ClearField("device_type")


def _as_constant(op, tensor):
    dtype = dtypes.ge_type(tensor.dtype)
    content, shape = dtypes.tensor_bytes(tensor, dtype)
    _clear(op)
    op.type = "Const"
    value = op.attr["value"].t
    value.data = content
    value.desc.dtype = dtypes.to_proto(dtype)
    value.desc.layout = "ND"
    set_shape(value.desc, shape)


def _in_file(op, tensor, path):
    dtype = dtypes.ge_type(tensor.dtype)
    content, shape = dtypes.tensor_bytes(tensor, dtype)
    with open(path, "wb") as file:
        file.write(content)
    _clear(op)
    op.type = "FileConstant"
    ge_attr.ListInt(shape).merge_to(op.attr["shape"])
    ge_attr.DataType(int(dtype)).merge_to(op.attr["dtype"])
    ge_attr.Str(path).merge_to(op.attr["file_path"])
