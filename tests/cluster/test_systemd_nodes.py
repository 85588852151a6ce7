"""A virtual node whose first process is systemd: it boots, its kubelet is a unit, and upgrades restart both.

The orders run from the node image, as in a node upgrade; no driver is loaded.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.order_jobs import OrderJobs
from tests.support.workbench import BINARY, BROKEN
from upgrader.core.node_protocol.orders import KubeletTarget, Reason, Reboot, UpgradeOrder
from upgrader.images.layout import Layout
from upgrader.images.product import Images
from upgrader.process.waiting import wait_until_true
from upgrader_dev.devcluster import DevCluster, VirtualNode, VmSpec

pytestmark = [pytest.mark.vm, pytest.mark.timeout(1800)]

PATIENCE = 900.0
"""Seconds; an emulated node on a busy machine needs a minute to start a pod."""

UNITS = {
    "start-limit": """
[Unit]
StartLimitIntervalSec=3600
StartLimitBurst=3
[Service]
Restart=always
RestartSec=100ms
""",
    "on-failure": "[Service]\nRestart=on-failure\n",
    "by-hand": "[Service]\nRestart=no\n",
}
STATE = "/var/lib/gpu-upgrader/kubelet"
FETCH = f"""
set -e
mkdir -p {STATE}/1.35.4 {STATE}/{BROKEN}
cp /opt/kubelet/1.35.4 {STATE}/1.35.4/kubelet
printf '%s\\n' '#!/bin/sh' '[ "$1" != --version ] || {{ echo Kubernetes v{BROKEN}; exit 0; }}' 'exit 1' \
  >{STATE}/{BROKEN}/kubelet
chmod 755 {STATE}/{BROKEN}/kubelet
for each in 1.35.4 {BROKEN}; do (cd {STATE}/$each && sha256sum kubelet >kubelet.sha256); done
"""
"""The kubelets that an artifact image would have copied to the node; one of them dies at once."""


@pytest.fixture(scope="session")
def image() -> Layout:
    with Images(print) as images:
        return images.node_image()


@pytest.fixture(scope="session")
def cluster(start_cluster: Callable[..., Any], image: Layout) -> DevCluster:
    machine = VmSpec(name="vm-a", init="systemd")
    made: DevCluster = start_cluster("systemd", boxes=0, vms=(machine,), vm_images=(image,), fast=False)
    made.virtual_node("vm-a").enter("sh", "-c", FETCH, seconds=PATIENCE)
    return made


@pytest.fixture(scope="session")
def jobs(cluster: DevCluster, image: Layout) -> OrderJobs:
    return OrderJobs(cluster, "vm-a", image)


@pytest.fixture
def node(cluster: DevCluster) -> VirtualNode:
    return cluster.virtual_node("vm-a")


def make_order(name: str, version: str) -> UpgradeOrder:
    target = KubeletTarget(version=version, binary=BINARY)
    return UpgradeOrder(upgrade=name, kubelet=target, healthz_timeout=120, ready_timeout=400)


def configure_unit(node: VirtualNode, kind: str) -> None:
    folder = "/etc/systemd/system/kubelet.service.d"
    node.enter("sh", "-c", f"mkdir -p {folder}; cat >{folder}/50-kind.conf", stdin=UNITS[kind].encode())
    node.enter("systemctl", "daemon-reload")


def has_package_lock(node: VirtualNode) -> bool:
    """Whether dpkg does not get its lock: that is its first step, before it looks for programs that the node lacks."""
    ended = node.enter("dpkg", "--configure", "-a", seconds=PATIENCE, check=False)
    return b"frontend lock was locked by another process" in ended.stderr


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


@pytest.mark.parametrize("kind", list(UNITS))
def test_the_previous_kubelet_comes_back_after_one_that_dies_at_once(
    jobs: OrderJobs, node: VirtualNode, kind: str
) -> None:
    node.wait_ready()
    configure_unit(node, kind)
    order = make_order(f"broken-{kind}", BROKEN)
    jobs.start(order)
    assert wait_until_true(lambda: has_package_lock(node), seconds=PATIENCE, every=5.0)
    result = jobs.wait(order, PATIENCE)
    assert (result.reason, result.facts["kubelet"]) == (Reason.KUBELET_RESTORED, "1.34.4"), result
    assert (node.wait_ready().kubelet, has_package_lock(node)) == ("v1.34.4", False)


def test_a_kubelet_whose_unit_never_restarts_it_is_swapped(jobs: OrderJobs, node: VirtualNode) -> None:
    configure_unit(node, "by-hand")
    result = jobs.run(make_order("swap", "1.35.4"), PATIENCE)
    assert (result.reason, result.message) == (Reason.DONE, "kubelet 1.35.4 runs and the node is Ready")
    assert node.wait_ready().kubelet == "v1.35.4"
    assert read_properties(node, "kubelet.service", "Restart", "ActiveState") == {
        "Restart": "no",
        "ActiveState": "active",
    }


def test_an_upgrade_reboots_the_node_into_the_other_kernel(jobs: OrderJobs, node: VirtualNode) -> None:
    before = node.wait_ready()
    (other,) = {*node.kernels} - {before.kernel}
    reboot = Reboot(kernel=other, select=("/usr/local/sbin/boot-kernel",), restart=("/sbin/reboot",))
    result = jobs.run(UpgradeOrder(upgrade="reboot", reboot=reboot), PATIENCE)
    after = node.wait_ready()
    assert (result.reason, result.message, after.kernel) == (Reason.DONE, f"rebooted into kernel {other}", other)
    assert (result.facts["boot id before"], result.facts["boot id"]) == (before.boot_id, after.boot_id)
    assert after.boot_id != before.boot_id
