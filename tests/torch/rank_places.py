# SPDX-License-Identifier: Apache-2.0
"""Where ranks are: a visible device for each, and a rank table. The environment of test_distributed.py has two devices
and says where the table will be."""
import json
import os
import warnings

import torch
import torch.distributed as dist
from rank_checks import backend, there

NEEDS_GROUP = False
FOLDER = os.environ["REPRISE_TEST_FOLDER"]


def _write_table(ranks):
    devices = [{"device_id": str(each), "device_ip": "127.0.0.1", "rank_id": str(each)} for each in range(ranks)]
    table = {
        "status": "completed",
        "version": "1.0",
        "server_count": "1",
        "server_list": [{"server_id": "here", "device": devices}],
    }
    part = f"{FOLDER}/table.{os.getpid()}"
    with open(part, "w") as file:
        json.dump(table, file)
    os.rename(part, f"{FOLDER}/table.json")


def _start(name, rank, size):
    dist.init_process_group("hccl", store=dist.FileStore(f"{FOLDER}/{name}", size), rank=rank, world_size=size)


def _has_met_through_store(name):
    """A token of 4108 bytes went through it."""
    return os.path.getsize(f"{FOLDER}/{name}") > 4108


def ht_011_ht_063_a_visible_device_for_each_rank(rank, size):
    """Each rank sees one device of the two, and they meet as the rank table says."""
    os.environ["ASCEND_RT_VISIBLE_DEVICES"] = str(rank)
    _write_table(size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _start("by table", rank, size)
    assert any("HCCL_CONNECT_TIMEOUT" in str(each.message) for each in caught)
    assert torch.npu.device_count() == 1
    x = there(rank, 2)
    dist.all_reduce(x)
    assert x.tolist() == [1, 4]
    part = dist.new_group([1, 0])
    dist.all_reduce(x, group=part)
    assert x.tolist() == [2, 8]
    assert backend(part).get_hccl_comm_name(0) != backend().get_hccl_comm_name(0)
    assert not _has_met_through_store("by table")
    dist.destroy_process_group()


def ht_063_a_table_that_does_not_serve(rank, size):
    _write_table(1)  # of another job
    _start("by store", rank, size)
    x = there(rank, 2)
    dist.all_reduce(x)
    assert x.tolist() == [1, 4] and _has_met_through_store("by store")
    dist.destroy_process_group()
