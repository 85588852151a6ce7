"""Containers that run programs of users on all GPUs of a node, and that pull their images before an upgrade. Pure.

An image may have no shell and no program that ends by itself, so a static busybox from the node image is given to its
containers: it starts the program and records output and exit code, or only proves that the image is on the node.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from upgrader.api.v1alpha1 import NodeState, NodeUpgrade
from upgrader.core.model.validation import GPUS_VARIABLE, AllReduce, Diagnostics, ValidationLevel
from upgrader.core.node_protocol.node_places import ALL_REDUCE, DIAGNOSTICS, PROGRAM_RESULTS, VALIDATION_FOLDER
from upgrader.core.node_protocol.orders import AllReduceCheck, ProgramsOrder
from upgrader.stack.node_pods.commands import node_command
from upgrader.stack.node_pods.validation import WORKLOAD
from upgrader.stack.parts import LOGS_ON_ERROR, PULL_POLICY, Manifest, empty_dir_volume, host_path, volume_mount
from upgrader.stack.settings import StackSettings

PROGRAMS = "programs"
"""Name of the container that judges the results."""

_TOOLS = "/upgrader-tools"
_BUSYBOX = f"{_TOOLS}/busybox"
_RECORD = f'"$@" > {PROGRAM_RESULTS}/$0.out 2> {PROGRAM_RESULTS}/$0.err; echo $? > {PROGRAM_RESULTS}/$0.code'
_MOST_OUTPUT = "64Mi"
_SHARED_MEMORY, _SHARED_MEMORY_BYTES = "/dev/shm", "1Gi"  # noqa: S108 - the path is defined by POSIX
"""NCCL exchanges data between GPUs without a direct connection by shared memory; the default of runtimes is 64 MiB."""


def _programs_of(state: NodeState, level: ValidationLevel) -> dict[str, AllReduce | Diagnostics]:
    """The programs of a level that a state has, by the name of their container, in their order.

    A state before the upgrade may have none: to return to it must not depend on a program that it never had.
    """
    programs = (
        (ALL_REDUCE, ValidationLevel.ALL_REDUCE, state.all_reduce),
        (DIAGNOSTICS, ValidationLevel.DIAGNOSTICS, state.diagnostics),
    )
    return {name: program for name, needed, program in programs if program is not None and level.includes(needed)}


def program_containers(
    state: NodeState, level: ValidationLevel, devices: Mapping[str, int], settings: StackSettings
) -> list[Manifest]:
    """Init containers that run the programs of a level in sequence, each with all devices, and judge their results.

    Empty if the level has no program. `devices`: number of devices of each extended resource that the node offers.
    """
    programs, gpus = _programs_of(state, level), max(1, sum(devices.values()) // state.shares)
    if not programs:
        return []
    runs = [_program_container(name, program, devices, gpus) for name, program in programs.items()]
    all_reduce = state.all_reduce if ALL_REDUCE in programs else None
    order = ProgramsOrder(
        all_reduce=_all_reduce_check(all_reduce, gpus) if all_reduce is not None else None,
        diagnostics=DIAGNOSTICS in programs,
    )
    mounts = [volume_mount("results", PROGRAM_RESULTS, readOnly=True), volume_mount("validation", VALIDATION_FOLDER)]
    judge = node_command(PROGRAMS, order, settings, command="validate-programs", volumeMounts=mounts)
    return [_tools_container(settings), *runs, judge]


def program_volumes() -> list[Manifest]:
    """Volumes of these containers."""
    return [
        empty_dir_volume("tools"),
        {"name": "results", "emptyDir": {"sizeLimit": _MOST_OUTPUT}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY_BYTES}},
        host_path("validation", VALIDATION_FOLDER),
    ]


def pull_containers(upgrade: NodeUpgrade, settings: StackSettings) -> list[Manifest]:
    """Init containers that pull the images of users' programs which the validation will run; without devices."""
    target = upgrade.spec.target
    images = {name: program.image for name, program in _programs_of(target, upgrade.spec.validation).items()}
    if target.workload_image:
        images = {WORKLOAD: target.workload_image, **images}
    pulls = [_user_container(name, image, ["true"]) for name, image in images.items()]
    return [_tools_container(settings), *pulls] if pulls else []


def pull_volumes() -> list[Manifest]:
    """Volumes of these containers."""
    return [empty_dir_volume("tools")]


def _all_reduce_check(program: AllReduce, gpus: int) -> AllReduceCheck:
    identity = json.dumps([program.image, *program.command])
    return AllReduceCheck(
        program=hashlib.sha256(identity.encode()).hexdigest()[:16],
        gpus=gpus,
        min_bus_bandwidth=program.min_bus_bandwidth,
        tolerance_percent=program.tolerance_percent,
    )


def _tools_container(settings: StackSettings) -> Manifest:
    return {
        "name": "tools",
        "image": settings.node_image,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/bin/busybox", "cp", "/bin/busybox", _BUSYBOX],
        "volumeMounts": [volume_mount("tools", _TOOLS)],
        **LOGS_ON_ERROR,
    }


def _program_container(name: str, program: AllReduce | Diagnostics, devices: Mapping[str, int], gpus: int) -> Manifest:
    container = _user_container(name, program.image, ["sh", "-c", _RECORD, name])
    container["volumeMounts"] += [
        volume_mount("results", PROGRAM_RESULTS),
        volume_mount("shared-memory", _SHARED_MEMORY),
    ]
    return container | {
        "args": program.command,
        "env": [{"name": GPUS_VARIABLE, "value": str(gpus)}],
        "resources": {"limits": {resource: str(count) for resource, count in devices.items()}},
    }


def _user_container(name: str, image: str, busybox_command: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": PULL_POLICY,
        "command": [_BUSYBOX, *busybox_command],
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [volume_mount("tools", _TOOLS, readOnly=True)],
        **LOGS_ON_ERROR,
    }
