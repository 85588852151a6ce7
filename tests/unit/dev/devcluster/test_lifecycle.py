import msgspec
import pytest

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster import (
    ClusterSpec,
    cluster_names,
    cluster_status,
    delete_cluster,
    lifecycle,
    load_cluster,
    start_cluster,
)
from upgrader_dev.devcluster.base import record
from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.record import ClusterRecord
from upgrader_dev.devcluster.base.spec import BoxSpec, VmSpec
from upgrader_dev.devcluster.cluster import DevCluster
from upgrader_dev.devcluster.virtual.image import Image

RECORD = ClusterRecord(name="dev", token="no-such-token", addresses=Addresses(octet=0), fast=True, created="")  # noqa: S106


@pytest.mark.parametrize("name", ["", "a/b", "..", "A b", "-x", ".lock"])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path, name):
    with pytest.raises(DevClusterError, match="is not a valid name for a cluster"):
        start_cluster(ClusterSpec(name=name, boxes=0), print, tmp_path)
    with pytest.raises(DevClusterError, match="is not a valid name for a cluster"):
        delete_cluster(name, tmp_path)


def test_taking_down_what_is_not_there_is_no_error(tmp_path):
    delete_cluster("nothing", tmp_path)


def test_what_does_not_run_is_said_and_removed(tmp_path):
    record.write_record(tmp_path / "dev", RECORD)

    assert cluster_names(tmp_path) == ["dev"]
    assert cluster_status("dev", tmp_path).running is False
    with pytest.raises(DevClusterError, match="cluster dev does not run"):
        load_cluster("dev", tmp_path)
    delete_cluster("dev", tmp_path)
    assert cluster_names(tmp_path) == []
    with pytest.raises(DevClusterError, match="there is no cluster"):
        cluster_status("dev", tmp_path)


def test_a_cluster_without_namespaces_takes_no_box(tmp_path):
    record.write_record(tmp_path / "dev", msgspec.structs.replace(RECORD, name="dev"))

    with pytest.raises(DevClusterError, match="boxes require root"):
        start_cluster(ClusterSpec(name="dev", boxes=1, loopback=True), print, tmp_path)


def test_somebody_who_starts_the_same_cluster_at_the_same_time_is_left_alone(tmp_path):
    record.write_record(tmp_path / "dev", RECORD)

    with pytest.raises(DevClusterError, match="is being started by another process"):
        lifecycle._claim_addresses(ClusterSpec(name="dev"), tmp_path / "dev", namespaces=False)

    assert record.read_record(tmp_path / "dev") == RECORD


def test_boxes_and_virtual_nodes_share_one_row_of_indexes(tmp_path):
    found = msgspec.structs.replace(RECORD, name="dev", addresses=Addresses(octet=70))
    record.write_record(tmp_path / "dev", found)
    cluster = DevCluster(tmp_path / "dev")
    image = Image(folder=tmp_path / "image", kernels=("6.1.0-47-amd64", "6.1.0-50-amd64"))

    cluster.record_box(BoxSpec(name="gpu-a"))
    cluster.record_vm(VmSpec(name="vm-a", kernel="6.1.0-47-amd64"), image)
    cluster.record_box(BoxSpec(name="gpu-b"))
    cluster.record_vm(VmSpec(name="vm-b", init="systemd"), image)

    kept = record.read_record(tmp_path / "dev")
    assert [(one.name, one.index) for one in (*kept.boxes, *kept.vms)] == [
        ("gpu-a", 1),
        ("gpu-b", 3),
        ("vm-a", 2),
        ("vm-b", 4),
    ]
    assert [(vm.kernel, bool(vm.order), vm.init) for vm in kept.vms] == [
        ("6.1.0-47-amd64", True, "busybox"),
        ("", False, "systemd"),
    ]
    with pytest.raises(DevClusterError, match="a node or folder named vm-a already exists"):
        cluster.record_box(BoxSpec(name="vm-a"))
    with pytest.raises(DevClusterError, match="a node or folder named shared already exists"):
        cluster.record_vm(VmSpec(name="shared"), image)


def test_a_cluster_without_namespaces_takes_no_virtual_node(tmp_path):
    record.write_record(tmp_path / "dev", RECORD)

    with pytest.raises(DevClusterError, match="cannot have boxes or virtual nodes"):
        DevCluster(tmp_path / "dev").record_vm(VmSpec(name="vm-a"), Image(folder=tmp_path, kernels=("a", "b")))
