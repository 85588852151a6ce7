"""Container runtime and control groups: what a new minor version of the kubelet does not support any more.

Kubernetes 1.35 is the last version that supports containerd 1.x, and its kubelet does not start on cgroup v1 unless
failCgroupV1 is false (release notes of 1.35; KEP-5573).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.node.host.text_files import read_optional
from upgrader.node.survey.surveyed_node import SurveyedNode, make_problem, make_warning

NO_CONTAINERD_1 = 36
NO_CGROUP_V1 = 35
"""Minor versions of Kubernetes."""

_VERSION = re.compile(r"v?1\.(\d{1,3})\.")
_CONTAINERD = re.compile(r"containerd://v?(\d+)\.")


class _Configuration(Struct, frozen=True, kw_only=True):
    fail_cgroup_v1: bool | None = msgspec.field(default=None, name="failCgroupV1")


def check_container_runtime(node: SurveyedNode) -> Iterator[Advice]:
    """Versions of containerd that the new kubelet does not support."""
    minor = _target_minor(node)
    if minor is None or node.readiness is None:
        return
    match = _CONTAINERD.match(node.readiness.runtime)
    if match is not None and int(match[1]) < 2 and minor >= NO_CONTAINERD_1:
        yield make_problem(
            SurveyCheck.CONTAINER_RUNTIME,
            node.readiness.runtime.replace("://", " "),
            f"kubelet 1.{minor} does not support containerd 1.x",
            "Upgrade containerd on the node to 2.0 or newer first.",
        )


def check_cgroup_version(node: SurveyedNode) -> Iterator[Advice]:
    """Control groups of version 1, on which a new kubelet does not start by default."""
    minor = _target_minor(node)
    if minor is None or minor < NO_CGROUP_V1 or has_cgroup_v2(node):
        return
    if _allows_cgroup_v1(node):
        yield make_warning(
            SurveyCheck.CGROUP_VERSION,
            "cgroup v1",
            f"kubelet 1.{minor} runs on it only because failCgroupV1 is false; its support will be removed",
            "Boot the node with cgroup v2: systemd.unified_cgroup_hierarchy=1",
        )
        return
    yield make_problem(
        SurveyCheck.CGROUP_VERSION,
        "cgroup v1",
        f"kubelet 1.{minor} does not start on it",
        "Boot the node with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false in the "
        "configuration of the kubelet.",
    )


def has_cgroup_v2(node: SurveyedNode) -> bool:
    """Whether the node uses control groups of version 2 only."""
    return (node.system / "fs/cgroup/cgroup.controllers").exists()


def _target_minor(node: SurveyedNode) -> int | None:
    """The minor version of the kubelet to install; None without one, or with a version of another format."""
    match = _VERSION.match(node.scope.kubelet.version) if node.scope.kubelet is not None else None
    return int(match[1]) if match is not None else None


def _allows_cgroup_v1(node: SurveyedNode) -> bool:
    """Whether the configuration of the kubelet, with its drop-ins, sets failCgroupV1 to false."""
    if node.kubelet is None:
        return False
    paths = [path] if (path := node.kubelet.option("config")) else []
    if folder := node.kubelet.option("config-dir"):
        place = node.host.path(folder)
        paths += [f"{folder.rstrip('/')}/{file.name}" for file in sorted(place.glob("*.conf"))]
    values = [_read_setting(node.host.path(path)) for path in paths]
    return next((value for value in reversed(values) if value is not None), True) is False


def _read_setting(path: Path) -> bool | None:
    return msgspec.yaml.decode(read_optional(path) or "{}", type=_Configuration).fail_cgroup_v1
