"""The kubelet of the node: its unit, its arguments with a new version, container runtime and control groups."""

import pytest

from tests.support.surveyed import SurveyWorld
from upgrader.core.errors import ProcessError
from upgrader.node.kubelet.readiness import NodeReadiness


@pytest.fixture
def world(tmp_path):
    world = SurveyWorld(tmp_path)
    world.load_own_driver()
    return world


@pytest.mark.parametrize(
    ("properties", "finding"),
    [
        ({}, False),
        ({"Restart": "on-failure"}, True),
        ({"Restart": "no"}, True),
        ({"RestartUSec": "100ms"}, True),
        ({"RestartUSec": "100ms", "StartLimitIntervalUSec": "0"}, False),
        ({"RestartUSec": "100ms", "StartLimitBurst": "0"}, False),
        ({"RestartUSec": "100ms", "StartLimitIntervalUSec": "infinity"}, True),
    ],
)
def test_whether_the_unit_restarts_the_kubelet(world, properties, finding):
    world.programs.properties |= properties
    expected = [("KubeletUnit", "ok", "kubelet.service")] if finding else []
    assert world.found(restarts_kubelet=True) == expected


def test_a_kubelet_in_no_unit(world):
    world.add_kubelet(group="/user.slice")
    assert world.found() == [("KubeletUnit", "warning", "kubelet")]


def test_a_node_without_systemd(world):
    (world.root / "run/systemd/system/.keep").unlink()
    (world.root / "run/systemd/system").rmdir()
    assert world.found(restarts_kubelet=True) == []
    assert world.programs.calls == []


def test_a_systemctl_that_fails(world):
    world.programs.code = 1
    assert world.found() == [("CannotLook", "warning", "unit of the kubelet")]


def test_a_program_that_does_not_end(world):
    def run(words, *, seconds, env=None):
        raise ProcessError(f"{words[0]} did not end within {seconds} s")

    world.programs.run = run
    assert world.found() == [("CannotLook", "warning", "unit of the kubelet")]


def test_an_argument_that_the_new_kubelet_rejects(world):
    world.add_kubelet("--pod-infra-container-image=pause:3.9", "--v", "2")
    target = world.fetch_kubelet()
    assert world.found(kubelet=target) == []
    assert world.programs.calls[-1][1:] == [
        "--kubeconfig",
        "/etc/kubernetes/kubelet.conf",
        "--pod-infra-container-image=pause:3.9",
        "--v",
        "2",
        "--version",
    ]
    world.programs.rejected = {"--pod-infra-container-image"}
    assert world.found(kubelet=target) == [("KubeletArguments", "problem", "kubelet 1.36.2")]


def test_a_kubelet_that_was_not_fetched_is_not_run(world):
    world.programs.rejected = {"--kubeconfig"}
    target = world.fetch_kubelet()
    (world.root / "var/lib/gpu-upgrader/kubelet/1.36.2/kubelet").unlink()
    assert world.found(kubelet=target) == []


@pytest.mark.parametrize(
    ("runtime", "version", "finding"),
    [
        ("containerd://1.7.24", "1.36.2", True),
        ("containerd://1.7.24", "1.35.4", False),
        ("containerd://2.1.4", "1.36.2", False),
        ("cri-o://1.34.0", "1.36.2", False),
        ("", "1.36.2", False),
        ("containerd://1.7.24", "latest", False),
    ],
)
def test_a_container_runtime_that_the_new_kubelet_does_not_support(world, runtime, version, finding):
    node = world.node(world.scope_of(kubelet=world.fetch_kubelet(version)))
    node.readiness = NodeReadiness(kubelet_version="v1.34.4", ready=True, heartbeat=0.0, runtime=runtime)
    expected = [("ContainerRuntime", "problem", "containerd 1.7.24")] if finding else []
    assert world.found_on(node) == expected


@pytest.mark.parametrize(
    ("arguments", "version", "severity"),
    [
        ((), "1.35.4", "problem"),
        ((), "1.34.9", None),
        (("--config", "/etc/kubelet.yaml"), "1.35.4", "warning"),
        (("--config", "/etc/kubelet.yaml", "--config-dir", "/etc/kubelet.d"), "1.35.4", "problem"),
    ],
)
def test_control_groups_of_version_1(world, arguments, version, severity):
    (world.root / "sys/fs/cgroup/cgroup.controllers").unlink()
    world.write("etc/kubelet.yaml", "kind: KubeletConfiguration\nfailCgroupV1: false\n")
    world.write("etc/kubelet.d/10-site.conf", "failCgroupV1: true\n")
    world.add_kubelet(*arguments)
    expected = [("CgroupVersion", severity, "cgroup v1")] if severity else []
    assert world.found(kubelet=world.fetch_kubelet(version)) == expected
    assert world.survey().facts["cgroup"] == "v1"


@pytest.mark.parametrize(("status", "findings"), [("install", 1), ("hold", 0)])
def test_a_package_that_owns_the_kubelet(world, status, findings):
    world.write("var/lib/dpkg/info/kubelet.list", "/.\n/usr\n/usr/bin/kubelet\n")
    world.write("var/lib/dpkg/status", f"Package: kubelet-x\n\nPackage: kubelet\nStatus: {status} ok installed\n")
    world.write("etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    found = world.found(restarts_kubelet=True, binary="/usr/bin/kubelet")
    assert found == [("PackageUpgrades", "warning", "package kubelet")] * findings
    assert world.found(binary="/usr/bin/kubelet") == []
