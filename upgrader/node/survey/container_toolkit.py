"""NVIDIA's container toolkit and CDI specifications on the node that the stack did not write."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.core.untrusted import FILE_BYTES
from upgrader.node.host.text_files import read_optional
from upgrader.node.survey.surveyed_node import SurveyedNode, make_problem, make_warning

CONFIGURATION = "/etc/nvidia-container-runtime/config.toml"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
KIND = "nvidia.com/"


class _Mount(Struct, frozen=True, kw_only=True, rename="camel"):
    host_path: str = ""


class _Edits(Struct, frozen=True, kw_only=True):
    mounts: tuple[_Mount, ...] = ()


class _Device(Struct, frozen=True, kw_only=True, rename="camel"):
    container_edits: _Edits = _Edits()


class _Specification(Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str
    devices: tuple[_Device, ...] = ()
    container_edits: _Edits = _Edits()


def check_toolkit(node: SurveyedNode) -> Iterator[Advice]:
    """The root of the driver in the toolkit's configuration: libraries of another driver would be given to jobs."""
    text = read_optional(node.host.path(CONFIGURATION))
    if node.scope.vendor != "nvidia" or not text:
        return
    section = tomllib.loads(text).get("nvidia-container-cli", {})
    root = str(section.get("root", "/")) if isinstance(section, dict) else "/"
    if root.startswith(f"{STATE_DIRECTORY}/"):
        return
    if node.scope.managed_runtime:
        yield make_warning(
            SurveyCheck.CONTAINER_TOOLKIT,
            CONFIGURATION,
            "another container toolkit is installed; both change the configuration of the container runtime",
            "Remove its package; the stack deploys a container toolkit.",
        )
        return
    gone = not node.host.path(root).is_dir() or root.startswith("/run/nvidia/driver")
    make = make_problem if gone else make_warning
    yield make(
        SurveyCheck.CONTAINER_TOOLKIT,
        CONFIGURATION,
        f"the toolkit takes the driver's libraries from {root}, and not from the driver image of the stack",
        f"Set root in [nvidia-container-cli] to {STATE_DIRECTORY}/drivers/nvidia/current, or let the stack manage the "
        "runtime hook (spec.runtime.management: Managed).",
    )


def check_cdi(node: SurveyedNode) -> Iterator[Advice]:
    """CDI specifications with files that are not the driver image's."""
    if node.scope.vendor != "nvidia" or node.scope.managed_runtime:
        return
    for folder in CDI_FOLDERS:
        place = node.host.path(folder)
        for file in sorted([*place.glob("*.yaml"), *place.glob("*.json")]) if place.is_dir() else ():
            foreign = _foreign_paths(file)
            if foreign:
                yield make_warning(
                    SurveyCheck.CDI_FILES,
                    f"{folder}/{file.name}",
                    f"it gives containers {len(foreign)} file(s) of another driver, such as {foreign[0]}",
                    "Generate it again after the upgrade (nvidia-ctk cdi generate), or set spec.runtime.management to "
                    "Managed, so that the stack deploys a container toolkit.",
                )


def _foreign_paths(file: Path) -> list[str]:
    """Libraries in a specification that are not below the folder of driver images; none of another vendor's."""
    if file.stat().st_size > FILE_BYTES:
        raise ValueError(f"{file.name} is larger than {FILE_BYTES} bytes")
    specification = msgspec.yaml.decode(file.read_bytes(), type=_Specification)
    if not specification.kind.startswith(KIND):
        return []
    edits = (specification.container_edits, *(device.container_edits for device in specification.devices))
    paths = sorted({mount.host_path for edit in edits for mount in edit.mounts if ".so" in mount.host_path})
    return [path for path in paths if not path.startswith(f"{STATE_DIRECTORY}/drivers/")]
