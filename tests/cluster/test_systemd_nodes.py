"""A virtual node whose first process is systemd: it boots, its kubelet is a unit, and it reboots."""

from collections.abc import Callable
from typing import Any

import pytest

from upgrader_dev.devcluster import VirtualNode, VmSpec

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1200)]


@pytest.fixture(scope="session")
def node(start_cluster: Callable[..., Any]) -> VirtualNode:
    cluster = start_cluster("systemd", boxes=0, vms=(VmSpec(name="vm-a", init="systemd"),))
    machine: VirtualNode = cluster.virtual_node("vm-a")
    return machine


def read_properties(node: VirtualNode, unit: str, *names: str) -> dict[str, str]:
    words = ["systemctl", "show", unit, *(f"--property={name}" for name in names)]
    return dict(line.split("=", 1) for line in node.enter(*words).text.splitlines())


def test_a_node_with_systemd_is_ready_and_its_kubelet_is_a_unit(node: VirtualNode) -> None:
    assert node.wait_ready().ready == "True"
    state = node.enter("systemctl", "is-system-running", "--wait", seconds=300, check=False).text.strip()
    failed = node.enter("systemctl", "list-units", "--failed", "--no-legend", "--plain").text
    assert (state, failed, node.enter("cat", "/proc/1/comm").text) == ("running", "", "systemd")
    assert read_properties(node, "kubelet.service", "ActiveState", "SubState", "Restart", "NRestarts") == {
        "ActiveState": "active",
        "SubState": "running",
        "Restart": "always",
        "NRestarts": "0",
    }
    (pid,) = read_properties(node, "kubelet.service", "MainPID").values()
    executable = node.enter("readlink", f"/proc/{pid}/exe").text.strip()
    assert executable == "/var/lib/box/bin/kubelet"


def test_systemd_reboots_the_node_and_the_kubelet_is_ready_again(node: VirtualNode) -> None:
    before = node.wait_ready()
    node.restart()
    after = node.wait_ready()
    assert (after.kernel, after.ready) == (before.kernel, "True")
    assert after.boot_id != before.boot_id
