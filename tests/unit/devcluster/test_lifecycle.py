import msgspec
import pytest

from upgrader.core.errors import DevClusterError
from upgrader.devcluster import ClusterSpec, down, lifecycle, load, names, record, status, up
from upgrader.devcluster.addresses import Addresses
from upgrader.devcluster.record import Record

RECORD = Record(name="dev", token="no-such-token", addresses=Addresses(octet=0), fast=True, created="")  # noqa: S106


@pytest.mark.parametrize("name", ["", "a/b", "..", "A b", "-x", ".lock"])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path, name):
    with pytest.raises(DevClusterError, match="is no name for a cluster"):
        up(ClusterSpec(name=name, boxes=0), print, tmp_path)
    with pytest.raises(DevClusterError, match="is no name for a cluster"):
        down(name, tmp_path)


def test_taking_down_what_is_not_there_is_no_error(tmp_path):
    down("nothing", tmp_path)


def test_what_does_not_run_is_said_and_removed(tmp_path):
    record.write(tmp_path / "dev", RECORD)

    assert names(tmp_path) == ["dev"]
    assert status("dev", tmp_path).running is False
    with pytest.raises(DevClusterError, match="cluster dev does not run"):
        load("dev", tmp_path)
    down("dev", tmp_path)
    assert names(tmp_path) == []
    with pytest.raises(DevClusterError, match="there is no cluster"):
        status("dev", tmp_path)


def test_a_cluster_without_namespaces_takes_no_box(tmp_path):
    record.write(tmp_path / "dev", msgspec.structs.replace(RECORD, name="dev"))

    with pytest.raises(DevClusterError, match="boxes need root"):
        up(ClusterSpec(name="dev", boxes=1, loopback=True), print, tmp_path)


def test_somebody_who_starts_the_same_cluster_at_the_same_time_is_left_alone(tmp_path):
    record.write(tmp_path / "dev", RECORD)

    with pytest.raises(DevClusterError, match="is being started by somebody else"):
        lifecycle._claim(ClusterSpec(name="dev"), tmp_path / "dev", namespaces=False)

    assert record.read(tmp_path / "dev") == RECORD
