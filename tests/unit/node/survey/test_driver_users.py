"""Processes that hold the driver: which of them an upgrade ends, by the pods of the node."""

import pytest

from tests.support.surveyed import SurveyWorld
from upgrader.node.kubelet.node_pods import NodePod

UID = "0a8f4a5e-32c3-4d5b-8f0a-8f6f0f6a9c11"
GROUP = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-1.scope"
HASH = "3f0c1d2e4b5a69788796a5b4c3d2e1f0"

TRAINING = NodePod(namespace="ml", name="rank-0", resources=frozenset({"nvidia.com/gpu", "cpu"}), owner="Job")
PARTITION = NodePod(namespace="ml", name="part", resources=frozenset({"nvidia.com/mig-1g.10gb"}))
CLAIM = NodePod(namespace="ml", name="claim", claims=True)
AGENT = NodePod(namespace="monitoring", name="agent", owner="DaemonSet")
BATCH = NodePod(namespace="ml", name="batch", owner="Job")
OPERAND = NodePod(namespace="gpu-upgrader-system", name="plugin", owner="DaemonSet")


@pytest.fixture
def world(tmp_path):
    world = SurveyWorld(tmp_path)
    world.load_own_driver()
    return world


@pytest.mark.parametrize(
    ("pod", "scope", "severity"),
    [
        (TRAINING, {}, None),
        (PARTITION, {}, None),
        (CLAIM, {}, None),
        (OPERAND, {}, None),
        (AGENT, {}, "problem"),
        (AGENT, {"ends_pods": True}, "problem"),
        (AGENT, {"adopted": True}, "warning"),
        (AGENT, {"reboots": True}, "warning"),
        (AGENT, {"swaps_driver": False}, None),
        (BATCH, {}, "problem"),
        (BATCH, {"ends_pods": True}, None),
        (BATCH, {"adopted": True}, "problem"),
        (NodePod(namespace="ml", name="static", static=True), {"ends_pods": True}, "problem"),
        (None, {}, None),
    ],
)
@pytest.mark.parametrize("how", ["opened", "mapped"])
def test_a_pod_that_holds_the_driver(world, pod, scope, severity, how):
    world.pods = {UID: pod} if pod is not None else {}
    world.add_process(4711, "python3", GROUP, **{how: "/dev/nvidia0"})
    expected = [("DriverInUse", severity, f"pod {pod}")] if severity else []
    assert world.found(**scope) == expected


def test_the_pods_of_the_node_cannot_be_read(world):
    world.add_process(4711, "python3", GROUP, opened="/dev/nvidia0")
    assert world.found() == [("DriverInUse", "warning", f"pod {UID}")]


def test_a_static_pod_is_found_by_the_hash_of_its_configuration(world):
    world.pods = {HASH: AGENT}
    world.add_process(4711, "agent", f"/kubepods/besteffort/pod{HASH}/1", opened="/dev/nvidiactl")
    assert world.found() == [("DriverInUse", "problem", "pod monitoring/agent")]


def test_services_and_other_processes(world):
    world.pods = {}
    world.add_process(50, "nv-hostengine", "/system.slice/nvidia-dcgm.service", opened="/dev/nvidia0")
    world.add_process(51, "nv-hostengine", "/system.slice/nvidia-dcgm.service", opened="/dev/nvidiactl")
    world.add_process(52, "bash", "/user.slice/user-0.slice/session-3.scope", opened="/dev/nvidia-uvm")
    world.add_process(53, "sshd", "/system.slice/ssh.service", opened="/dev/null")
    report = world.survey()
    assert [(advice.subject, advice.severity.value) for advice in report.findings] == [
        ("nvidia-dcgm.service", "problem"),
        ("pid 52 (bash)", "problem"),
    ]
    assert report.findings[0].message == "holds the driver: pid 50 (nv-hostengine), pid 51 (nv-hostengine)"
    assert report.findings[0].fix.endswith("systemctl disable --now nvidia-dcgm.service")
    assert world.found(stop_units=("nvidia-dcgm.service",)) == [
        ("DriverInUse", "problem", "pid 52 (bash)"),
        ("DriverInUse", "ok", "nvidia-dcgm.service"),
    ]
