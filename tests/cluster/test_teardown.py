"""A cluster leaves nothing behind: see tests/support/leftovers.py for all that is looked at."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.leftovers import left, machine, marked, running, until
from upgrader.core.errors import DevClusterError
from upgrader.process.daemon import reap_child, start_daemon
from upgrader_dev.devcluster import ClusterSpec, delete_cluster, load_cluster, start_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

POD = {
    "metadata": {"name": "left"},
    "spec": {
        "hostNetwork": False,
        "containers": [{"name": "c", "image": "localhost/pause:1", "imagePullPolicy": "Never"}],
    },
}
PODS = "/api/v1/namespaces/default/pods"


def test_down_leaves_nothing(mark, name):
    before = machine()
    cluster = start_cluster(ClusterSpec(name=name, boxes=2, kwok=2), print)
    cluster.api.create(PODS, {**POD, "spec": {**POD["spec"], "nodeName": "gpu-a"}})
    until(lambda: cluster.api.get(f"{PODS}/left")["status"]["phase"] == "Running")
    cluster.box_node("gpu-b").cut()
    cluster.close()
    seen = running(mark)
    assert len(seen.pids) > 15
    assert len(seen.namespaces) > 15

    delete_cluster(name)

    until(lambda: not left(before, seen, mark), lambda: left(before, seen, mark))
    assert not cluster.folder.exists()


def test_power_off_leaves_the_disk_only(mark, name):
    cluster = start_cluster(ClusterSpec(name=name, boxes=1), print)
    on = machine()
    node = cluster.box_node("gpu-a")
    pids = marked(mark)

    node.pause()  # what is frozen has to end, too
    node.power_off()
    with pytest.raises(DevClusterError, match="gpu-a is off"):
        node.pause()

    off = machine()
    cable = cluster.addresses.cable_name(cluster.addresses.last_octet(1))
    # Of this cluster only: another that begins or ends meanwhile has links before it has a process to be known by.
    assert {link for link in on.links - off.links if link.startswith(cluster.addresses.link)} == {cable}
    assert {Path(path).name for path in on.cgroups - off.cgroups} >= {f"{cluster.addresses.link}-gpu-a"}
    assert not any("gpu-a" in path for path in off.cgroups)
    assert node.home.exists()
    assert pids > marked(mark)
    cluster.close()


def test_what_a_killed_up_has_started_is_found_and_removed(mark, name):
    before = machine()
    code = f"from upgrader_dev.devcluster import *; start_cluster(ClusterSpec(name={name!r}, boxes=2), print)"
    starter = start_daemon([sys.executable, "-c", code], log=Path(os.devnull))
    until(lambda: len(marked(mark)) > 4)
    os.kill(starter, signal.SIGKILL)
    reap_child(starter)
    seen = running(mark)

    delete_cluster(name)

    until(lambda: not left(before, seen, mark), lambda: left(before, seen, mark))


def test_two_clusters_at_once_have_nothing_in_common(mark, name):
    before = machine()
    other = f"{name}-2"
    try:
        first = start_cluster(ClusterSpec(name=name, boxes=1), print)
        second = start_cluster(ClusterSpec(name=other, boxes=1), print)
        assert first.addresses.octet != second.addresses.octet
        names = {first.nodes["gpu-a"].wait_ready().boot_id, second.nodes["gpu-a"].wait_ready().boot_id}
        assert len(names) == 2
        delete_cluster(name)
        assert load_cluster(other).nodes["gpu-a"].wait_ready().ready == "True"
        first.close()
        second.close()
        seen = running(mark)
    finally:
        delete_cluster(other)

    until(lambda: not left(before, seen, mark), lambda: left(before, seen, mark))
