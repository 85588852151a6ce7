"""The distribution of the node, and programs that change its packages."""

import re
from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.node.host.features import read_os_release
from upgrader.node.host.text_files import read_optional
from upgrader.node.survey.surveyed_node import SurveyedNode, make_problem, make_warning

UNSUPPORTED = {
    "talos": "its root file system is read-only and its kernel loads only modules of its own build",
    "bottlerocket": "its root file system is read-only and its kernel loads only modules of its own build",
    "cos": "its kernel loads only modules that Google has signed",
}
"""By ID of os-release, why upgrades cannot work."""

_UNATTENDED = re.compile(r'^\s*APT::Periodic::Unattended-Upgrade\s+"[1-9]', re.MULTILINE)
_PACKAGE = re.compile(r"^Package: (\S+)$", re.MULTILINE)


def check_distribution(node: SurveyedNode) -> Iterator[Advice]:
    """Distributions on which upgrades cannot work."""
    system = read_os_release(node.host).get("ID", "").lower()
    if why := UNSUPPORTED.get(system, ""):
        yield make_problem(
            SurveyCheck.OPERATING_SYSTEM,
            f"operating system {system}",
            f"upgrades do not work on it: {why}",
            "Upgrade the driver of these nodes with their image, and exclude them from the stack's nodeSelector.",
        )


def check_package_upgrades(node: SurveyedNode) -> Iterator[Advice]:
    """Packages of the node that replace the kubelet by themselves."""
    owner = _find_package(node, node.scope.binary)
    if owner is None or not node.scope.restarts_kubelet:
        return
    name, held = owner
    settings = node.host.path("/etc/apt/apt.conf.d")
    automatic = any(_UNATTENDED.search(read_optional(file)) for file in settings.glob("*")) if settings.is_dir() else 0
    if held:
        return
    yield make_warning(
        SurveyCheck.PACKAGE_UPGRADES,
        f"package {name}",
        f"it owns {node.scope.binary} and is not on hold, so that an upgrade of packages"
        f"{', which runs unattended on this node,' if automatic else ''} replaces the installed kubelet",
        f"apt-mark hold {name}",
    )


def _find_package(node: SurveyedNode, path: str) -> tuple[str, bool] | None:
    """The package that owns a file by dpkg's lists, and whether it is on hold; None without such a package."""
    lists = node.host.path("/var/lib/dpkg/info")
    if not path or not lists.is_dir():
        return None
    file = lists / "kubelet.list"  # the name of the package in all distributions of Kubernetes' own packages
    if path not in read_optional(file).splitlines():
        return None
    status = read_optional(node.host.path("/var/lib/dpkg/status"))
    for block in status.split("\n\n"):
        match = _PACKAGE.search(block)
        if match is not None and match[1] == "kubelet":
            return "kubelet", "Status: hold " in block
    return None
