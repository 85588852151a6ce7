import threading

import msgspec
import pytest

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base import record
from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.record import BoxRecord, ClusterRecord, VmRecord
from upgrader_dev.devcluster.base.spec import KwokSpec

RECORD = ClusterRecord(
    name="dev",
    token="t",  # noqa: S106 - a mark, no secret
    addresses=Addresses(octet=70),
    fast=True,
    created="2026-11-21T10:00:00Z",
    boxes=(BoxRecord(name="gpu-a", index=1, kubelet="1.34.4", labels={"a": "b"}),),
    kwok=(KwokSpec(count=2, prefix="fleet"),),
)


@pytest.fixture
def folder(tmp_path):
    record.write_record(tmp_path / "dev", RECORD)
    return tmp_path / "dev"


def test_what_is_written_is_read(folder):
    assert record.read_record(folder) == RECORD
    assert record.is_cluster(folder)
    assert record.cluster_folders(folder.parent) == [folder]


def test_no_cluster_says_how_to_get_one(tmp_path):
    with pytest.raises(DevClusterError, match="there is no cluster in") as raised:
        record.read_record(tmp_path)

    assert "upgrader dev up" in raised.value.resolution
    assert record.cluster_folders(tmp_path / "nowhere") == []


def test_a_record_that_cannot_be_read_is_named(folder):
    (folder / "cluster.json").write_text('{"name": 1}')

    with pytest.raises(DevClusterError, match=r"cluster\.json cannot be read") as raised:
        record.read_record(folder)

    assert "$.name" in raised.value.details


def test_a_box_is_replaced_by_name(folder):
    changed = BoxRecord(name="gpu-a", index=1, kubelet="1.34.4", kernel="6.1.0-50-amd64")

    record.add_box(folder, changed)

    assert record.read_record(folder).boxes == (changed,)


def test_a_virtual_node_is_added_and_replaced_by_name(folder):
    first = VmRecord(name="vm-a", index=2, kubelet="1.34.4", image="/i", kernels=("a", "b"), memory_mib=1024)
    other = msgspec.structs.replace(first, name="vm-b", index=3)
    for vm in (first, other, msgspec.structs.replace(first, kernel="a", order="1")):
        record.put_vm(folder, vm)

    assert record.read_record(folder).vms == (other, msgspec.structs.replace(first, kernel="a", order="1"))
    assert record.read_record(folder).vm("vm-b") == other
    with pytest.raises(DevClusterError, match="no virtual node vm-c") as raised:
        record.read_record(folder).vm("vm-c")
    assert raised.value.details == "Its virtual nodes: vm-b, vm-a."


def test_unknown_nodes_name_the_known_ones(folder):
    with pytest.raises(DevClusterError, match="no box gpu-x") as raised:
        record.read_record(folder).box("gpu-x")
    assert raised.value.details == "Its boxes: gpu-a."

    assert record.read_record(folder).find_kwok("fleet-1").prefix == "fleet"
    with pytest.raises(DevClusterError, match="no kwok node fleet-2"):
        record.read_record(folder).find_kwok("fleet-2")


def test_changes_of_several_at_once_are_all_kept(folder):
    def add(index):
        record.add_box(folder, BoxRecord(name=f"n{index}", index=index, kubelet="1.34.4"))

    threads = [threading.Thread(target=add, args=(index,)) for index in range(2, 22)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {box.name for box in record.read_record(folder).boxes} == {"gpu-a", *(f"n{index}" for index in range(2, 22))}


def test_a_change_that_fails_changes_nothing(folder):
    def change():
        with record.change_record(folder) as held:
            held[0] = msgspec.structs.replace(RECORD, name="x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        change()

    assert record.read_record(folder) == RECORD
